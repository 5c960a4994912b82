-- Users whose password a directory outside checks: theirs here is none.
create table external_user (
    user blob primary key references user (id),
    -- What proves them: `ldap`, `oidc`.
    way text not null,
    -- The identifier of their entry, which stays when names change. Also of who was removed: their entry makes no second
    -- account.
    subject text not null,
    -- By what name the entry was found last; empty where none was typed.
    asked text not null,
    -- When the directory last admitted them.
    checked_at integer not null
) strict, without rowid;

create unique index external_user_subject on external_user (way, subject);
