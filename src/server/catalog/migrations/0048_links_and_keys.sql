-- Links that sign a user in once. Of the code in a link only the hash is kept; a user has one at most.
create table sign_in_link (
    user blob primary key references user (id) on delete cascade,
    hash blob not null unique,
    -- Who made it: it holds while they may still change the account.
    maker blob not null references user (id) on delete cascade,
    actor text not null,
    created_at integer not null,
    expires_at integer not null
) strict, without rowid;

create index sign_in_link_by_maker on sign_in_link (maker);
create index sign_in_link_by_end on sign_in_link (expires_at);

-- A token that is proven by signatures and never sent: it ends as tokens do.
create table access_key (
    token blob primary key references token (id) on delete cascade,
    -- Sent with each request; no secret.
    key text not null unique,
    -- What signs requests, sealed.
    secret text not null
) strict, without rowid;
