-- Amounts with a name, which a launch may ask for.
create table preset (
    id blob primary key,
    -- Both null: of the whole site. One of a project has the project's domain.
    domain blob references domain (id),
    project blob references project (id),
    name text not null,
    -- What people read; empty: the name.
    title text not null,
    -- For readers in Korean; empty: they read the other one.
    title_ko text not null,
    amounts text not null,
    position integer not null,
    is_default integer not null check (is_default in (0, 1)),
    generation integer not null
) strict, without rowid;
create unique index preset_name on preset (coalesce(project, domain, x''), name);
