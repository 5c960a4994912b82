-- What is booked of machines for a time, for a user, a project or maintenance.
create table reservation (
    id blob primary key,
    name text not null,
    -- Both null: maintenance.
    user blob references user (id) on delete cascade,
    project blob references project (id) on delete cascade,
    -- Of the project, or home of the user; null for maintenance.
    domain blob references domain (id),
    amount text not null check (json_valid(amount)),
    before text not null check (before in ('drain', 'fit')),
    generation integer not null,
    check (user is null or project is null),
    check ((domain is null) = (user is null and project is null))
) strict, without rowid;
create unique index reservation_name on reservation (coalesce(project, user, x''), name);
create index reservation_user on reservation (user) where user is not null;
create index reservation_project on reservation (project) where project is not null;

-- Its times: a weekly one has as many as it repeats.
create table reservation_time (
    reservation blob not null references reservation (id) on delete cascade,
    number integer not null,
    from_at integer not null,
    to_at integer not null,
    state text not null
        check (state in ('booked', 'warned', 'active', 'over', 'cancelled', 'released')),
    -- Machines and devices that were chosen.
    parts text not null check (json_valid(parts)),
    warned_at integer,
    unused_since integer,
    primary key (reservation, number),
    check (from_at < to_at)
) strict, without rowid;
create index reservation_live on reservation_time (from_at)
where state in ('booked', 'warned', 'active');

-- Warnings are among what users are told.
drop index event_told;
create index event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned', 'session.idle',
               'session.reservation-warned');
