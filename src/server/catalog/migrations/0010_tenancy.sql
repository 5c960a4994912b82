-- Domains, projects and their members; one of each is there from the beginning, and every user is in it. The
-- ids are those of rules::tenancy.
create table domain (
    id blob primary key,
    name text not null unique,
    title text not null,
    state text not null check (state in ('active')),
    generation integer not null
) strict;

create table project (
    id blob primary key,
    domain blob not null references domain (id),
    name text not null,
    title text not null,
    state text not null check (state in ('active')),
    generation integer not null,
    unique (domain, name)
) strict;

create table membership (
    person blob not null references person (id),
    project blob not null references project (id),
    role text not null check (role in ('member')),
    primary key (person, project)
) strict, without rowid;

insert into domain (id, name, title, state, generation)
values (x'00000000000070008000000000000001', 'default', '', 'active', 1);

insert into project (id, domain, name, title, state, generation)
values (
    x'00000000000070008000000000000002',
    x'00000000000070008000000000000001',
    'default', '', 'active', 1
);

insert into membership (person, project, role)
select id, x'00000000000070008000000000000002', 'member'
from person
where removed_at is null;

-- Constant defaults, so that no row is written again. SQLite takes none on a column that references a table.
alter table person add column domain blob not null default x'00000000000070008000000000000001';
alter table image add column domain blob not null default x'00000000000070008000000000000001';
alter table session add column domain blob not null default x'00000000000070008000000000000001';
alter table session add column project blob not null default x'00000000000070008000000000000002';

-- Where what happened belongs; null for what belongs to the site.
alter table event add column domain blob;
alter table event add column project blob;

update event
set domain = x'00000000000070008000000000000001',
    project = iif(topic = 'sessions', x'00000000000070008000000000000002', null)
where owner is not null or topic = 'images' or (topic = 'people' and code <> 'sign-in.locked');
