-- The table of sessions by what they have, and by when they ended: without these a page of 50 reads and sorts every
-- session there ever was.
create index session_cpu on session (cpu, id);
create index session_memory on session (memory, id);
create index session_gpu on session (gpu, id);
create index session_ended_at on session (coalesce(ended_at, 0), id);
