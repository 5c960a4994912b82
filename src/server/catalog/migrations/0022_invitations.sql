-- Links by which accounts join a project. Of the code in a link only the hash is kept.
create table invitation (
    id blob primary key,
    hash blob not null unique,
    project blob not null references project (id),
    role text not null,
    -- Null: any holder of the link may use it.
    email text,
    max_uses integer not null check (max_uses > 0),
    used integer not null default 0 check (used between 0 and max_uses),
    -- When a membership that comes of it ends.
    member_until integer,
    -- Who made it: it holds while they may choose members of the project.
    owner blob not null references user (id),
    actor text not null,
    created_at integer not null,
    expires_at integer not null
) strict;

create index invitation_by_project on invitation (project, created_at);
