-- What the folders of each user take together, as it was seen last, and what they may. Derived: it is made again from the
-- disk and the policies.
create table storage (
    owner blob primary key references user (id) on delete cascade,
    used integer not null check (used >= 0),
    max_bytes integer not null check (max_bytes > 0),
    at integer not null,
    -- How near the limit is, and since when it is so near or nearer: its owner is told once.
    level text not null check (level in ('free', 'near', 'close', 'full')),
    level_since integer not null
) strict, without rowid;

create index storage_warned on storage (level_since) where level <> 'free';

-- What a session may write outside its folders.
alter table session add column disk integer check (disk is null or disk > 0);
