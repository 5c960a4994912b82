-- Milliseconds that a session waited in the queue before it was put on hold, for the same start.
alter table session add column queued_before integer not null default 0;
