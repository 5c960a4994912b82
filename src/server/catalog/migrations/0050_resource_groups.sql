-- Nodes that serve sessions of their own. The founding group has no row of a node or a session: null is that group, so
-- that a site that ran before is as it was. The id is that of rules::resource_group.
create table resource_group (
    id blob primary key,
    name text not null unique,
    -- What people read; empty: the name.
    title text not null,
    -- Domains, projects and users who may use it; null: everybody.
    access text,
    interactive integer not null check (interactive in (0, 1)),
    batch integer not null check (batch in (0, 1)),
    -- Null: as the settings say.
    spreading text check (spreading in ('pack', 'spread')),
    generation integer not null
) strict, without rowid;

insert into resource_group (id, name, title, access, interactive, batch, spreading, generation)
values (x'00000000000070008000000000000004', 'default', '', null, 1, 1, null, 1);

alter table node add column resource_group blob references resource_group (id);
alter table session add column resource_group blob references resource_group (id);
create index node_by_group on node (resource_group) where resource_group is not null;
create index session_by_group on session (resource_group) where resource_group is not null;
create index session_live_by_group on session (resource_group, id, state)
where resource_group is not null and state <> 'ended';
