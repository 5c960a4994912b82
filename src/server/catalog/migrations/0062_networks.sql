-- What a policy says of networks, as JSON: those that a launch may choose, and their targets. Null: nothing.
alter table policy add column egress text check (egress is null or json_valid(egress));

-- What a session reaches outside, by the policy of its launch, as JSON. Null: nothing.
alter table session add column egress text;

-- Connections of a session's containers to the outside: one row for each host and how it came out, counted since the
-- container began. At most 64 of each session, 32 of them refused; rows of earlier starts make room.
create table session_connection (
    session blob not null references session (id) on delete cascade,
    incarnation integer not null,
    container integer not null,
    host text not null,
    port integer not null check (port between 1 and 65535),
    outcome text not null,
    count integer not null,
    sent integer not null,
    received integer not null,
    first_at integer not null,
    last_at integer not null,
    primary key (session, incarnation, container, host, port, outcome)
) strict, without rowid;
