-- The clock of the ledger: it counts on while the machine runs, and cannot be set.
create table ledger_clock (
    id integer primary key check (id = 1),
    -- Which start of the machine it was last read at, and how long that had run.
    boot blob not null,
    uptime integer not null,
    ledger integer not null
) strict;

insert into ledger_clock (id, boot, uptime, ledger) values (1, zeroblob(16), 0, 0);

-- What a session held, from one change of its amounts to the next. Times are the ledger's.
create table allocation (
    session blob not null,
    number integer not null check (number > 0),
    owner blob not null,
    domain blob not null,
    project blob not null,
    gpu integer not null,
    cpu integer not null,
    memory integer not null,
    began integer not null,
    -- Up to here it is part of `usage`.
    counted integer not null check (counted >= began),
    -- The newest hour that it was counted into.
    hour integer not null,
    is_open integer not null check (is_open in (0, 1)),
    -- By the time of day: to be forgotten with its session.
    closed_at integer,
    primary key (session, number)
) strict, without rowid;

create unique index allocation_open on allocation (session) where is_open;

create index allocation_closed on allocation (closed_at) where not is_open;

-- Sums of amounts x milliseconds.
create table usage (
    -- Hours since 1970 UTC.
    hour integer not null,
    domain blob not null,
    project blob not null,
    owner blob not null,
    session integer not null,
    gpu integer not null,
    cpu integer not null,
    memory integer not null,
    starts integer not null,
    waited integer not null,
    primary key (hour, project, owner)
) strict, without rowid;

create index usage_owner on usage (owner, hour);
