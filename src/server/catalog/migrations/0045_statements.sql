-- Months whose use was frozen, in their order without a gap. Never changed.
create table closed_month (
    -- Such as 2026-10.
    month text primary key,
    -- Hours since 1970 UTC; the end is left out.
    from_hour integer not null,
    until_hour integer not null check (until_hour > from_hour),
    closed_at integer not null,
    -- JSON, byte for byte what was signed.
    statement text not null,
    signature blob not null
) strict, without rowid;

create table statement_line (
    month text not null references closed_month (month),
    position integer not null check (position > 0),
    -- Said by the statement too, to be found by; null where the line sums more than one.
    domain blob,
    project blob,
    owner blob,
    -- JSON, byte for byte what the digest is of.
    statement text not null,
    -- SHA-256 of the statement: readers are told of it without reading every line.
    digest blob not null check (length(digest) = 32),
    primary key (month, position)
) strict, without rowid;

-- Use of hours of closed months that was found since: the next close takes it.
create table late_usage (
    project blob not null,
    owner blob not null,
    domain blob not null,
    session integer not null,
    gpu integer not null,
    cpu integer not null,
    memory integer not null,
    starts integer not null,
    waited integer not null,
    primary key (project, owner)
) strict, without rowid;

-- What an hour costs, in millionths of the currency. Without a currency there are no prices.
create table price (
    id integer primary key check (id = 1),
    currency text not null,
    gpu integer not null,
    core integer not null,
    gib integer not null,
    generation integer not null
) strict;

insert into price (id, currency, gpu, core, gib, generation) values (1, '', 0, 0, 0, 1);
