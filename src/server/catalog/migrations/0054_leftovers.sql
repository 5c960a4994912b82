-- When members of a course were last told something.
alter table course add column told_at integer;
