-- Whether a policy lets launches ask for sudo.
alter table policy add column sudo integer not null default 0 check (sudo in (0, 1));

-- Whether commands in a session may run as root of its own user namespace where its own user is another one.
alter table session add column sudo integer not null default 0 check (sudo in (0, 1));
