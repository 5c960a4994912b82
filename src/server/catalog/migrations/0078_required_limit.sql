-- Whether each session under a policy says how long it runs at most.
alter table policy add column require_limit integer not null default 0 check (require_limit in (0, 1));
