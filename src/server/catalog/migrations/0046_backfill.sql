-- Who may start before a session that waits. A site that ran before keeps what it knew; a new one is told when it is
-- founded.
alter table queue_rule add column backfill text not null default 'strict' check (backfill in ('strict', 'timed'));

-- Whether timed backfill gave a session its place: a restart gives that up.
alter table session add column backfilled integer not null default 0 check (backfilled in (0, 1));
