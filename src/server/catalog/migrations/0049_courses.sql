-- A project with a term, and what launches of its members begin with.
create table course (
    id blob primary key,
    project blob not null references project (id),
    domain blob not null references domain (id),
    name text not null,
    -- What people read; empty: the name.
    title text not null,
    state text not null check (state in ('draft', 'open', 'running', 'closed', 'archived')),
    from_at integer not null,
    to_at integer not null,
    -- IANA name of the zone in which both were typed.
    time_zone text not null,
    -- As a launch names them; empty: the usual image, no preset.
    image text not null,
    preset text not null,
    max_runtime_seconds integer,
    rules text not null,
    -- Steps of the clock that were taken: each is taken once.
    warned_at integer,
    closed_at integer,
    stopped_at integer,
    -- The moment of the next step; null where none waits for time.
    due_at integer,
    generation integer not null,
    check (from_at < to_at)
) strict, without rowid;
create unique index course_name on course (project, name);
-- One course at a time: what a launch in the project is bound by.
create unique index course_current on course (project) where state <> 'archived';
create index course_domain on course (domain);
create index course_due on course (due_at) where due_at is not null;

-- The end of a term and messages of teachers are among what users are told.
drop index event_told;
create index event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned', 'session.idle',
               'session.reservation-warned', 'reservation.approved', 'reservation.refused', 'reservation.expired',
               'session.course-warned', 'course.message');
