-- Limits stand in named policies; a policy is used by the site, a domain, a project or a user. The policy `default`
-- of the site has the limits that each user had before: rules::quota says how they are read.
create table policy (
    id blob primary key,
    name text not null unique,
    limits text not null check (json_valid(limits)),
    generation integer not null
) strict;

create table policy_use (
    subject_kind text not null check (subject_kind in ('site', 'domain', 'project', 'user')),
    -- Empty for the site.
    subject blob not null,
    policy blob not null references policy (id),
    primary key (subject_kind, subject)
) strict, without rowid;

insert into policy (id, name, limits, generation)
values (
    x'00000000000070008000000000000003',
    'default', '{"waiting":1000,"waiting_bytes":16777216}', 1
);

insert into policy_use (subject_kind, subject, policy)
values ('site', x'', x'00000000000070008000000000000003');
