-- Why a node takes no new sessions, in an administrator's words; empty where nothing was said.
alter table node add column note text not null default '';

-- Up to which event, and until when, a user has read their notices.
alter table "user" add column notices_read integer not null default 0;
alter table "user" add column notices_read_at integer not null default 0;

-- What users are told of their own sessions: few of all events, and of all live sessions.
create index event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned');

create index session_limited on session (owner, started_at)
where state = 'running' and max_runtime_seconds is not null;
