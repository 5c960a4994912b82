-- Roles are grants on a scope. Those of a domain or the site stand in role_grant, those of a project in the
-- membership; the column of the user goes.
create table role_grant (
    user blob not null references user (id),
    role text not null check (role in ('auditor', 'administrator')),
    -- A domain; empty for the whole site.
    domain blob not null,
    -- Null: until it is taken away.
    expires_at integer,
    primary key (user, domain, role)
) strict, without rowid;

insert into role_grant (user, role, domain)
select id, 'administrator', x''
from user
where role = 'administrator' and removed_at is null;

alter table user drop column role;

-- SQLite changes no check in its place.
create table member as select user, project, role from membership;
drop table membership;

create table tenant as select id, domain, name, title, state, generation from project;
drop table project;

create table project (
    id blob primary key,
    domain blob not null references domain (id),
    name text not null,
    title text not null,
    state text not null check (state in ('active', 'archived')),
    generation integer not null,
    unique (domain, name)
) strict;

insert into project (id, domain, name, title, state, generation)
select id, domain, name, title, state, generation
from tenant;

drop table tenant;

create table membership (
    user blob not null references user (id),
    project blob not null references project (id),
    role text not null check (role in ('member', 'viewer', 'lead')),
    -- Null: until it is taken away.
    expires_at integer,
    primary key (user, project)
) strict, without rowid;

insert into membership (user, project, role)
select user, project, role
from member;

drop table member;

create index membership_project on membership (project);
