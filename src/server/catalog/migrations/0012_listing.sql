-- The newest sessions, a page at a time: without it a list sorts every session there ever was.
create index session_created on session (created_at, id);

-- How many sessions ended lately, of whom and how, is counted without reading their rows.
drop index if exists session_ended;
create index session_ended on session (ended_at, outcome, owner) where state = 'ended';
