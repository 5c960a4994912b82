-- When each node last got a session, as a number that rises with each; 0: never. Groups whose nodes take turns read it.
alter table node add column turn integer not null default 0 check (turn >= 0);

-- One way of placement more. A check is no part that can be changed, so the column is made again.
alter table resource_group add column placement text check (placement in ('pack', 'spread', 'roundrobin'));
update resource_group set placement = spreading;
alter table resource_group drop column spreading;
alter table resource_group rename column placement to spreading;

-- Days off, a row for each calendar: of a domain, or of the whole site, whose domain is empty. The days are a JSON object:
-- days since 1 January 1970, each with its name.
create table holiday_calendar (
    domain blob primary key,
    days text not null,
    generation integer not null
) strict, without rowid;

-- Whether the weeks of a reservation that begin on a day off were left out.
alter table reservation add column skips_holidays integer not null default 0 check (skips_holidays in (0, 1));

-- Addresses that may ask for an account of a domain: `*`, or `@HOST` with commas; null: no stranger may.
alter table domain add column sign_up text;

-- Requests of strangers for an account. One that is approved becomes a user and is forgotten here; one that is declined
-- stays for a while, so that it can be taken up again.
create table sign_up (
    id blob primary key,
    domain blob not null references domain (id),
    name text not null,
    full_name text not null,
    email text not null,
    -- A hash, as that of a user.
    password text not null,
    -- What they said about themselves.
    note text not null,
    -- Address that they asked from.
    source text not null,
    asked_at integer not null,
    -- Null while it waits.
    declined_at integer,
    declined_by text
) strict, without rowid;

create index sign_up_by_domain on sign_up (domain, asked_at);

-- When the account of a guest ends: from then on it is suspended, and its sessions are stopped. Null: it has no end.
alter table user add column expires_at integer;
create index user_by_end on user (expires_at) where expires_at is not null;

-- The resource group that a preset is for; null: any.
alter table preset add column resource_group blob references resource_group (id) on delete set null;
