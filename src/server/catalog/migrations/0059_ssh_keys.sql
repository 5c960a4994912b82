-- Public keys by which users sign in over SSH. A key is of one user.
create table ssh_key (
    id blob primary key,
    user blob not null references user (id) on delete cascade,
    name text not null,
    -- As SSH calls it, such as ssh-ed25519.
    kind text not null,
    bits integer not null check (bits > 0),
    -- The key as it is sent, and its SHA-256, by which it is found.
    public_key blob not null,
    digest blob not null unique,
    created_at integer not null,
    expires_at integer,
    used_at integer,
    used_from text,
    check ((used_at is null) = (used_from is null))
) strict, without rowid;

create index ssh_key_by_user on ssh_key (user);

-- By what this box is known over SSH, drawn once.
create table ssh_host_key (
    id integer primary key check (id = 1),
    -- The seed of an Ed25519 key, sealed.
    secret text not null,
    created_at integer not null
) strict;
