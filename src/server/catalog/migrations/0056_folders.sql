-- Directories that outlive sessions. Their bytes lie beside the catalog, under the id.
create table folder (
    id blob primary key,
    owner blob not null references user (id) on delete cascade,
    name text not null,
    kind text not null check (kind in ('general', 'home')),
    state text not null check (state in ('ready', 'trashed', 'purging')),
    created_at integer not null,
    -- When a session was launched that mounts it.
    used_at integer,
    trashed_at integer check ((trashed_at is null) = (state = 'ready')),
    -- What it took of the disk when it was counted last.
    counted_at integer,
    bytes integer,
    entries integer,
    generation integer not null,
    check ((counted_at is null) = (bytes is null) and (bytes is null) = (entries is null))
) strict, without rowid;

create unique index folder_ready on folder (owner, name) where state = 'ready';
create index folder_by_owner on folder (owner);
create index folder_gone on folder (trashed_at) where trashed_at is not null;

-- Folders of its owner that a session mounts, as JSON.
alter table session add column mounts text not null default '[]';
