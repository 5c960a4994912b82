-- The containers of sessions: of the present start, or of the last. One session has one today; the table carries
-- several, on several nodes.
create table container (
    session blob not null references session (id) on delete cascade,
    -- 0 is the main one.
    position integer not null check (position >= 0),
    node blob not null,
    -- Shares of devices, JSON: the grant, and what the node may still hold it to until it confirmed the grant.
    devices text not null,
    pending_devices text not null,
    state text not null check (state in ('scheduled', 'preparing', 'running', 'ended')),
    started_at integer,
    exit_code integer,
    primary key (session, position),
    check (state <> 'running' or started_at is not null),
    check (state not in ('scheduled', 'preparing') or started_at is null),
    check (state = 'ended' or exit_code is null)
) strict, without rowid;

create index container_node on container (node) where state <> 'ended';

insert into container (session, position, node, devices, pending_devices, state, started_at, exit_code)
select id, 0, node, devices, unconfirmed,
       case
           when phase <> 'stopping' then phase
           when started_at is null then 'scheduled'
           else 'running'
       end,
       case when phase not in ('scheduled', 'preparing') then started_at end,
       case when phase = 'ended' then exit_code end
from session
where node is not null and phase <> 'pending';

alter table session drop column node;
alter table session drop column devices;
alter table session drop column unconfirmed;

alter table session rename column phase to state;
alter table session rename column wish to desired;
alter table session rename column only_on to device_affinity;
alter table session rename column longest_run_seconds to max_runtime_seconds;
