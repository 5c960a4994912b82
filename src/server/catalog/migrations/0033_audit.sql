-- What users did, each act one row. Rows are never changed; each hash covers the one before it.
create table audit (
    sequence integer primary key,
    -- JSON, byte for byte what the digest is of.
    statement text not null,
    digest blob not null check (length(digest) = 32),
    hash blob not null check (length(hash) = 32),
    -- Said by the statement too, to be found by.
    at integer not null,
    actor blob,
    act text not null,
    object text not null,
    domain blob,
    project blob
) strict;

create index audit_at on audit (at);

create index audit_actor on audit (actor, at);

create index audit_object on audit (object, at);

create index audit_domain on audit (domain, at)
where domain is not null;

create index audit_project on audit (project, at)
where project is not null;

-- The hash of a row as the machine signed it. Older rows may be forgotten behind one.
create table audit_checkpoint (
    sequence integer primary key,
    at integer not null,
    hash blob not null check (length(hash) = 32),
    -- JSON, byte for byte what was signed.
    statement text not null,
    signature blob not null
) strict;
