-- Folders that are shared. One share is with a user, or with all members of a project.
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

create unique index folder_share_by_user on folder_share (user, folder) where user is not null;
create unique index folder_share_by_project on folder_share (project, folder) where project is not null;
create index folder_share_by_folder on folder_share (folder);
create index folder_share_by_end on folder_share (ends_at) where ends_at is not null;
