-- File systems that an administrator mounted and that folders lie on. The marker on each holds its id, too.
create table volume (
    id blob primary key,
    name text not null unique,
    -- The directory that it is mounted on. Two that are mounted there in turns have the same one.
    path text not null,
    -- Domains and projects whose users make folders there, as JSON; with none of both: all users.
    access text not null,
    created_at integer not null,
    generation integer not null
) strict, without rowid;

-- Null: the disk of the data directory.
alter table folder add column volume blob references volume (id);
create index folder_by_volume on folder (volume) where volume is not null;
