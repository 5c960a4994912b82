-- Who may start before a session that waits. A site that ran before keeps what it knew; a new one is told when it is
-- founded.
alter table queue_rule add column backfill text not null default 'strict' check (backfill in ('strict', 'timed'));
