-- A policy can bound each member of a project.
create table policy_use_ (
    subject_kind text not null
        check (subject_kind in ('site', 'domain', 'project', 'member', 'user')),
    -- Empty for the site, that of the project for members.
    subject blob not null,
    policy blob not null references policy (id),
    primary key (subject_kind, subject)
) strict, without rowid;

insert into policy_use_ (subject_kind, subject, policy)
select subject_kind, subject, policy from policy_use;

drop table policy_use;

alter table policy_use_ rename to policy_use;
