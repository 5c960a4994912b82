-- Folders that a project owns, copies that are under way, and offers of a folder to another owner. The table of folders moves
-- to one that knows them; shares are kept beside it meanwhile, since they would go with their folders.
create table folder_share_kept as select * from folder_share;
drop table folder_share;

create table folder_next (
    id blob primary key,
    -- Whose it is: a user's or a project's.
    owner blob references user (id) on delete cascade,
    project blob references project (id),
    -- What members of the project may do with its files.
    members text not null default 'ro' check (members in ('ro', 'rw')),
    name text not null,
    kind text not null check (kind in ('general', 'home')),
    state text not null
        check (state in ('ready', 'copying', 'transferring', 'trashed', 'purging')),
    created_at integer not null,
    -- When a session was launched that mounts it.
    used_at integer,
    trashed_at integer check ((trashed_at is null) = (state in ('ready', 'copying', 'transferring'))),
    -- What it took of the disk when it was counted last.
    counted_at integer,
    bytes integer,
    entries integer,
    generation integer not null,
    -- Null: the disk of the data directory.
    volume blob references volume (id),
    check ((counted_at is null) = (bytes is null) and (bytes is null) = (entries is null)),
    check ((owner is null) <> (project is null)),
    check (project is null or kind = 'general')
) strict, without rowid;

insert into folder_next
    (id, owner, name, kind, state, created_at, used_at, trashed_at, counted_at, bytes, entries, generation,
     volume)
select id, owner, name, kind, state, created_at, used_at, trashed_at, counted_at, bytes, entries, generation,
    volume
from folder;

drop table folder;
alter table folder_next rename to folder;

create unique index folder_ready on folder (owner, name) where trashed_at is null and owner is not null;
create unique index folder_ready_of_project on folder (project, name)
where trashed_at is null and project is not null;
create index folder_by_owner on folder (owner) where owner is not null;
create index folder_by_project on folder (project) where project is not null;
create index folder_gone on folder (trashed_at) where trashed_at is not null;
create index folder_by_volume on folder (volume) where volume is not null;

create table folder_share (
    id blob primary key,
    folder blob not null references folder (id) on delete cascade,
    user blob references user (id) on delete cascade,
    project blob references project (id) on delete cascade,
    access text not null check (access in ('ro', 'rw', 'rwd')),
    -- Null: the user was asked and did not answer yet.
    accepted_at integer,
    created_at integer not null,
    -- Who made it, or changed it last.
    created_by text not null,
    -- Null: until it is taken back.
    ends_at integer,
    check ((user is null) <> (project is null)),
    check (user is not null or accepted_at is not null)
) strict, without rowid;

insert into folder_share (id, folder, user, project, access, accepted_at, created_at, created_by, ends_at)
select id, folder, user, project, access, accepted_at, created_at, created_by, ends_at
from folder_share_kept;

drop table folder_share_kept;

create unique index folder_share_by_user on folder_share (user, folder) where user is not null;
create unique index folder_share_by_project on folder_share (project, folder) where project is not null;
create index folder_share_by_folder on folder_share (folder);
create index folder_share_by_end on folder_share (ends_at) where ends_at is not null;

-- A folder that its owner offers another one; forgotten once it is taken, or not.
create table folder_transfer (
    folder blob primary key references folder (id) on delete cascade,
    user blob references user (id) on delete cascade,
    project blob references project (id),
    created_at integer not null,
    -- Who offers it.
    created_by text not null,
    check ((user is null) <> (project is null))
) strict, without rowid;

create index folder_transfer_by_user on folder_transfer (user) where user is not null;
create index folder_transfer_by_project on folder_transfer (project) where project is not null;

-- What the folders of each owner take together, as it was seen last, and what they may: the id of a user, or of a project.
drop table storage;
create table storage (
    owner blob primary key,
    used integer not null check (used >= 0),
    max_bytes integer not null check (max_bytes > 0),
    at integer not null,
    -- How near the limit is, and since when it is so near or nearer: its owner is told once.
    level text not null check (level in ('free', 'near', 'close', 'full')),
    level_since integer not null
) strict, without rowid;

create index storage_warned on storage (level_since) where level <> 'free';
