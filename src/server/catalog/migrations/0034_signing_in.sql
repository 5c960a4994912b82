-- What a user proves beside their password.
create table second_factor (
    user blob primary key references user (id),
    -- The secret of its codes, sealed.
    secret text not null,
    confirmed_at integer not null,
    -- The last time step whose code was taken; codes of it and of earlier ones prove nothing.
    used_step integer not null
) strict, without rowid;

-- Codes for a lost second factor, each of which works once.
create table recovery_code (
    user blob not null references user (id),
    hash blob not null,
    primary key (user, hash)
) strict, without rowid;

-- Since when the setting demands a second factor of everybody; null: it does not.
alter table installation add column second_factor_since integer;

-- What the browser of a sign-in called itself.
alter table browser_session add column agent text not null default '';

-- The networks that a user may come from; none: everywhere.
alter table user add column networks text not null default '[]' check (json_valid(networks));

-- When the present password was set; null: as long ago as the account was made. Of older ones it is not known: they
-- count from now, so that a rule for their age makes nobody wait outside at once.
alter table user add column password_set_at integer;
update user set password_set_at = cast(strftime('%s', 'now') as integer) * 1000;

-- Hashes of passwords that a user had before, where the setting keeps some.
create table password_past (
    user blob not null references user (id),
    at integer not null,
    password text not null,
    primary key (user, at)
) strict, without rowid;
