-- Whether a policy closes the inner doors of its sessions, by which they ask the server about themselves. One that does is
-- enough.
alter table policy add column no_inner_door integer not null default 0 check (no_inner_door in (0, 1));
