-- When members of a course were last told something.
alter table course add column told_at integer;
-- The member with whom the last mass start ended that left some; the next one goes on behind them.
alter table course add column started_to blob;
-- Notices that the mail server refused for good, and why: an administrator sends them again once it is mended.
alter table mail_notice add column failed_at integer;
alter table mail_notice add column failure text;
create index mail_notice_failed on mail_notice (failed_at) where failed_at is not null;
