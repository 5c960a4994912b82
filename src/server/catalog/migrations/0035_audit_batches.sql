-- Rows enter the indexes 64 at once: an act changes one page of the table where it changed six.
alter table audit add column in_index integer not null default 1 check (in_index in (0, 1));

drop index audit_at;

drop index audit_actor;

drop index audit_object;

drop index audit_domain;

drop index audit_project;

create index audit_at on audit (at)
where in_index = 1;

create index audit_actor on audit (actor, at)
where in_index = 1;

create index audit_object on audit (object, at)
where in_index = 1;

create index audit_domain on audit (domain, at)
where in_index = 1 and domain is not null;

create index audit_project on audit (project, at)
where in_index = 1 and project is not null;
