-- When a session of theirs last got a place: people take turns.
alter table person add column served_at integer;

-- Those of one person that wait are counted at each launch.
create index session_waiting on session (owner) where phase = 'pending';

-- Failures are counted in memory: they delay, and shut nobody out for long.
drop table sign_in_failure;
