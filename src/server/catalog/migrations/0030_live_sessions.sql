-- Every pass lists the live sessions with their generations, oldest first. Without an index of those alone it looked at
-- every ended session too, and read each row.
create index session_live on session (created_at, id, generation, state) where state <> 'ended';
