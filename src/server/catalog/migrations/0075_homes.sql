-- Roles with an end are dropped once it has come, at each pass: a clock that is set back revives none. Of all members only
-- those with an end are looked at.
create index membership_by_end on membership (expires_at) where expires_at is not null;
create index role_grant_by_end on role_grant (expires_at) where expires_at is not null;

-- The user and the group of a volume whose file system has no id-mapped mounts: what user 1000 of a session is there.
alter table volume add column mapped_uid integer check (mapped_uid between 1000 and 999999999);
alter table volume add column mapped_gid integer check (mapped_gid between 1000 and 999999999);

-- Whether sessions under a policy have no home folder by themselves.
alter table policy add column no_home integer not null default 0 check (no_home in (0, 1));
