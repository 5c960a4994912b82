-- Roles with an end are dropped once it has come, at each pass: a clock that is set back revives none. Of all members only
-- those with an end are looked at.
create index membership_by_end on membership (expires_at) where expires_at is not null;
create index role_grant_by_end on role_grant (expires_at) where expires_at is not null;
