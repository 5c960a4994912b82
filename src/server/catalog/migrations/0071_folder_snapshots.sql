-- Earlier states of folders, whose files lie beside those of the folder and share their blocks.
create table folder_snapshot (
    folder blob not null references folder (id) on delete cascade,
    -- Names its directory; counts up from 1 in each folder.
    number integer not null check (number > 0),
    origin text not null check (origin in ('hand', 'hourly', 'daily', 'weekly')),
    state text not null check (state in ('making', 'ready', 'removing')),
    -- No session could write while it was made, and no file was changed from outside.
    is_frozen integer not null default 0 check (is_frozen in (0, 1)),
    created_at integer not null,
    -- Who made it, or set the schedule.
    created_by text not null,
    -- What its files take by themselves.
    bytes integer check (bytes >= 0),
    entries integer check (entries >= 0),
    primary key (folder, number),
    check ((bytes is null) = (entries is null)),
    check (state <> 'ready' or bytes is not null)
) strict, without rowid;

create index folder_snapshot_removing on folder_snapshot (state) where state = 'removing';

-- How many scheduled snapshots of a folder are kept. The right of the user who set it is asked each time.
create table folder_snapshot_schedule (
    folder blob primary key references folder (id) on delete cascade,
    user blob not null references user (id) on delete cascade,
    hourly integer not null check (hourly between 0 and 48),
    daily integer not null check (daily between 0 and 31),
    weekly integer not null check (weekly between 0 and 52),
    -- When one was begun last; null: none since it was set.
    tried_at integer
) strict, without rowid;

create index folder_snapshot_schedule_by_user on folder_snapshot_schedule (user);
