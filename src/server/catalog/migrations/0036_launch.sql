-- The launch that made a session together with others, by the id of its first one; null: it was launched alone. Owner,
-- moment and name are those of two launches in one millisecond as well.
alter table session add column launch blob;
update session set launch = several.first
from (
    select min(id) as first, owner, created_at, rtrim(name, '0123456789') as base
    from session
    group by owner, created_at, base
    having count(*) > 1
) as several
where several.owner = session.owner
    and several.created_at = session.created_at
    and several.base = rtrim(session.name, '0123456789');

-- As the list of sessions is sorted and grouped.
drop index session_standing;
create index session_standing on session (
    case state when 'ended' then 0 when 'pending' then 1 else 2 end,
    created_at,
    owner,
    rtrim(name, '0123456789'),
    coalesce(launch, id),
    id
);
