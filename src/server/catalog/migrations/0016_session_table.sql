-- The order of the list of sessions: what runs, what waits, what ended, each newest first, with the replicas of one
-- launch beside each other. Without it a page sorts every session there ever was.
create index session_standing on session (
    case state when 'ended' then 0 when 'pending' then 1 else 2 end,
    created_at,
    owner,
    rtrim(name, '0123456789'),
    id
);

-- The same by name.
create index session_name on session (lower(name), id);
