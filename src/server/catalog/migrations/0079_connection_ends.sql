-- How far the ends of a row's connections are told as events: the number of the last one, and how many were.
alter table session_connection add column last_end integer not null default 0;
alter table session_connection add column told_ends integer not null default 0;
