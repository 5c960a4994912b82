-- What the sessions of a user start with. Contents and values are sealed; nothing but the user's own sessions get them.
create table dotfile (
    user blob not null references user (id) on delete cascade,
    -- Below the home, without a leading slash.
    path text not null,
    -- Permission bits alone.
    mode integer not null check (mode between 256 and 511),
    content text not null,
    -- Of the content as it was written.
    bytes integer not null check (bytes >= 0),
    changed_at integer not null,
    primary key (user, path)
) strict, without rowid;

create table startup_script (
    user blob primary key references user (id) on delete cascade,
    script text not null,
    bytes integer not null check (bytes > 0),
    -- A session ends where it fails.
    ends_session integer not null check (ends_session in (0, 1)),
    changed_at integer not null
) strict, without rowid;

create table variable (
    user blob not null references user (id) on delete cascade,
    name text not null,
    value text not null,
    bytes integer not null check (bytes >= 0),
    changed_at integer not null,
    primary key (user, name)
) strict, without rowid;

-- Which of it a session gets, and which of its starts the script failed in, as JSON.
alter table session add column start_up text not null default '{}';
