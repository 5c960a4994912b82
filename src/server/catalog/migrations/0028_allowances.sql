-- Limits of a domain, a project or a user that are raised for a while.
create table allowance (
    id blob primary key,
    subject_kind text not null check (subject_kind in ('domain', 'project', 'user')),
    subject blob not null,
    limits text not null check (json_valid(limits)),
    ends_at integer not null,
    reason text not null,
    actor text not null,
    created_at integer not null
) strict;

create index allowance_subject on allowance (subject_kind, subject);
create index allowance_ends on allowance (ends_at);
