-- When members of a course were last told something.
alter table course add column told_at integer;
-- The member with whom the last mass start ended that left some; the next one goes on behind them.
alter table course add column started_to blob;
