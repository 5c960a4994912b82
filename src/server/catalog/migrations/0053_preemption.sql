-- How urgent a session is, whether its launch said that it makes way for more urgent ones, and how often it did. Sessions
-- that were launched before never said so.
alter table session add column priority integer not null default 10 check (priority between 0 and 100);
alter table session add column yields integer not null default 0 check (yields in (0, 1));
alter table session add column preempted_count integer not null default 0 check (preempted_count >= 0);

-- Whether sessions of the group that yield are stopped for those of higher priority.
alter table resource_group add column preemption text not null default 'off' check (preemption in ('off', 'priority'));

-- Users are told that a session of theirs made way.
drop index event_told;
create index event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned', 'session.idle',
               'session.reservation-warned', 'reservation.approved', 'reservation.refused', 'reservation.expired',
               'session.course-warned', 'course.message', 'session.preempted');
