-- Counts what a user has waiting, and its bytes, without a look at the rows themselves.
drop index session_waiting;

create index session_waiting on session (owner, octet_length(command) + octet_length(env))
where state = 'pending';
