-- Rules that end idle sessions of the site, a domain or a project.
create table idle_rule (
    id blob primary key,
    name text not null unique,
    level text not null check (level in ('site', 'domain', 'project')),
    -- The domain or the project; null for the site.
    subject blob,
    -- Null: both kinds.
    kind text check (kind in ('interactive', 'batch')),
    -- KEY or KEY=VALUE: sessions with this label are let off; empty: none are.
    exempt text not null,
    rule text not null check (json_valid(rule)),
    generation integer not null,
    check ((level = 'site') = (subject is null))
) strict, without rowid;

-- What a session was told under a rule since it was last busy. It holds for that start of the session and that version
-- of the rule only.
create table idle_watch (
    session blob primary key references session (id) on delete cascade,
    rule blob not null references idle_rule (id) on delete cascade,
    rule_generation integer not null,
    incarnation integer not null,
    -- When the warnings were given, and after how many quiet milliseconds.
    first_at integer,
    first_quiet integer,
    second_at integer,
    second_quiet integer,
    kept integer not null,
    kept_at integer,
    -- Quiet milliseconds after which the rule acts on what was kept.
    put_off integer not null,
    acted integer not null check (acted in (0, 1)),
    -- By the time of day, for people.
    due_at integer,
    check ((first_at is null) = (first_quiet is null)),
    check ((second_at is null) = (second_quiet is null)),
    check (second_at is null or first_at is not null),
    check (acted = 0 or second_at is not null)
) strict, without rowid;

create index idle_watch_rule on idle_watch (rule);

-- Warnings are among what users are told.
drop index event_told;
create index event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned', 'session.idle');
