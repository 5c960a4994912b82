-- Each snapshot asks which live sessions were launched together. Without an index of those alone it reads the row of
-- every live session.
create index session_launch on session (id, launch) where state <> 'ended' and launch is not null;
