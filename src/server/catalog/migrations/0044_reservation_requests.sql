-- Hundredths of GPU-hours in any 30 days that the leads of a project book without asking.
alter table project add column reservation_quota integer not null default 0 check (reservation_quota >= 0);

-- The lead who booked or asked; null: an administrator booked.
alter table reservation add column asked_by blob references user (id) on delete set null;
-- When it was asked for; null: it was booked at once.
alter table reservation add column asked_at integer;
-- What the administrator said who decided.
alter table reservation add column reason text not null default '';
create index reservation_asked_by on reservation (asked_by) where asked_by is not null;

-- A time may wait for an administrator, and be refused or expire then.
create table reservation_time_ (
    reservation blob not null references reservation (id) on delete cascade,
    number integer not null,
    from_at integer not null,
    to_at integer not null,
    state text not null
        check (state in ('asked', 'booked', 'warned', 'active', 'over', 'cancelled', 'released', 'refused', 'expired')),
    -- Machines and devices that were chosen.
    parts text not null check (json_valid(parts)),
    warned_at integer,
    unused_since integer,
    -- Sessions that were told that they make way for its cores and memory.
    told text not null default '[]' check (json_valid(told)),
    primary key (reservation, number),
    check (from_at < to_at)
) strict, without rowid;
insert into reservation_time_ (reservation, number, from_at, to_at, state, parts, warned_at, unused_since, told)
select reservation, number, from_at, to_at, state, parts, warned_at, unused_since, told
from reservation_time;
drop table reservation_time;
alter table reservation_time_ rename to reservation_time;
create index reservation_live on reservation_time (from_at)
where state in ('booked', 'warned', 'active');
create index reservation_now on reservation_time (from_at)
where state in ('warned', 'active');
-- A request by the first of its times.
create index reservation_asked on reservation_time (from_at)
where state = 'asked' and number = 1;

-- Decisions are among what users are told.
drop index event_told;
create index event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned', 'session.idle',
               'session.reservation-warned', 'reservation.approved', 'reservation.refused', 'reservation.expired');
