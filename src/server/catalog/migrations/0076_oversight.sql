-- Looks of administrators into what is another user's: who, into what, and why. Its owner reads them for as long as they are
-- kept.
create table break_glass (
    id blob primary key,
    -- The administrator.
    actor blob not null,
    actor_name text not null,
    -- The user whose it is; null for a folder of a project.
    owner blob,
    owner_name text not null,
    kind text not null check (kind in ('session', 'folder')),
    -- The session or the folder, and its name then.
    object blob not null,
    name text not null,
    domain blob not null,
    reason text not null,
    began_at integer not null,
    ends_at integer not null,
    -- Null while it is open.
    ended_at integer
) strict, without rowid;

create unique index break_glass_open on break_glass (actor, object) where ended_at is null;
create index break_glass_due on break_glass (ends_at) where ended_at is null;

-- That an administrator looks is among what users are told.
drop index event_told;
create index event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned', 'session.idle',
               'session.reservation-warned', 'reservation.approved', 'reservation.refused', 'reservation.expired',
               'session.course-warned', 'course.message', 'session.preempted', 'session.break-glass',
               'folder.break-glass');

-- Whether acts of administrators on policies, roles and settings wait until another one approves them.
alter table installation add column four_eyes integer not null default 0 check (four_eyes in (0, 1));

-- Such acts. One that no other administrator decides on is of no use from `expires_at` on.
create table approval (
    id blob primary key,
    -- The administrator who asked.
    asker blob not null,
    asker_name text not null,
    -- The act with everything it needs, as JSON; what it does and to what, in a word and a name.
    act text not null,
    word text not null,
    object text not null,
    asked_at integer not null,
    expires_at integer not null,
    -- Running: approved, and being done now.
    state text not null check (state in ('waiting', 'running', 'done', 'declined')),
    decided_by text,
    decided_at integer
) strict, without rowid;

create index approval_by_state on approval (state, asked_at);

-- The reservations of the timetable of a course: what is left of them is cancelled when it ends.
create table course_slot (
    course blob not null references course (id) on delete cascade,
    reservation blob not null references reservation (id) on delete cascade,
    primary key (course, reservation)
) strict, without rowid;

create index course_slot_reservation on course_slot (reservation);
