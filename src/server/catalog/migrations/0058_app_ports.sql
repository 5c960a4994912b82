-- Ports of this machine that apps are opened at, one for each: whose it is, and where it leads.
create table app_port (
    port integer primary key check (port between 1 and 65535),
    owner blob not null references user (id) on delete cascade,
    app text not null,
    -- Null: it leads nowhere. The next session of its owner that opens the app gets it again.
    session blob references session (id) on delete set null,
    -- Where the app listens in the session.
    inner_port integer not null check (inner_port between 1 and 65535),
    opened_at integer not null,
    used_at integer not null,
    -- When another app had it before.
    passed_at integer
) strict;

create unique index app_port_by_session on app_port (session, app);
create index app_port_by_owner on app_port (owner);

-- Names of the cookies that the app at a port sets: browsers send each to all ports of this machine.
create table app_cookie (
    port integer not null references app_port (port) on delete cascade,
    name text not null,
    primary key (port, name)
) strict, without rowid;

-- Apps that are shared.
create table app_share (
    id blob primary key,
    session blob not null references session (id) on delete cascade,
    app text not null,
    -- Null: all members of the session's project.
    user blob references user (id) on delete cascade,
    created_at integer not null,
    ends_at integer not null
) strict, without rowid;

create index app_share_by_session on app_share (session, app);
create index app_share_by_user on app_share (user) where user is not null;
