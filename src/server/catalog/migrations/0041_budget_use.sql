-- Ledger's time at which the present start of the session got its place: amounts change, that does not.
alter table allocation add column placed integer not null default 0;
update allocation set placed = began where is_open;

-- The sums of one project or owner, read without their rows.
create index usage_project on usage (project, hour, domain, gpu);
drop index usage_owner;
create index usage_owner on usage (owner, hour, domain, gpu);
