-- Accounts have a name to read and an address, and lists of them are taken in and undone as one.
alter table user add column full_name text not null default '';

-- Lower case; signs in as the name does.
alter table user add column email text;

-- Somebody else chose the password: the user sets their own before anything else.
alter table user add column must_change integer not null default 0 check (must_change in (0, 1));

create unique index user_email on user (email)
where email is not null and removed_at is null;

create table roster (
    id blob primary key,
    -- Who took it in.
    actor text not null,
    owner blob not null references user (id),
    applied_at integer not null,
    undone_at integer,
    -- Each row with what it was before, as JSON.
    changes text not null
) strict;
