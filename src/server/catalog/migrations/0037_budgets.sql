-- GPU-hours that a project or a user may use in a time.
create table budget (
    id blob primary key,
    domain blob not null references domain (id),
    -- One of the two is null.
    project blob references project (id) on delete cascade,
    account blob references "user" (id) on delete cascade,
    -- Hundredths of GPU-hours.
    amount integer not null,
    -- Milliseconds since 1970; the end is left out.
    began integer not null,
    ends integer not null check (ends > began),
    is_hard integer not null check (is_hard in (0, 1)),
    -- Given by an administrator of the site: those of a domain do not write it.
    is_of_site integer not null check (is_of_site in (0, 1)),
    -- The highest percentage that was warned of.
    warned integer not null,
    generation integer not null,
    check ((project is null) <> (account is null))
) strict, without rowid;
create index budget_project on budget (project);
create index budget_account on budget (account);
