-- Networks that a user signed in from, the last one first: a sign-in from another one is told to them. None are known of those
-- who signed in before; of their next sign-in nothing is told.
alter table user add column sign_in_places text not null default '[]' check (json_valid(sign_in_places));

-- When a user last signed in; null: never, or before this column was.
alter table user add column signed_in_at integer;

-- That they signed in from elsewhere is among what users are told.
drop index event_told;
create index event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned', 'session.idle',
               'session.reservation-warned', 'reservation.approved', 'reservation.refused', 'reservation.expired',
               'session.course-warned', 'course.message', 'session.preempted', 'session.break-glass',
               'folder.break-glass', 'user.signed-in-elsewhere');
