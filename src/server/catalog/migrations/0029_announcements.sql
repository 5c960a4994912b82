-- Short texts that readers of the console see for a time.
create table announcement (
    id blob primary key,
    -- Null: of the whole site.
    domain blob references domain (id),
    level text not null check (level in ('info', 'warning')),
    text text not null,
    -- For readers in Korean; empty: they read the other one.
    text_ko text not null,
    begins_at integer not null,
    -- Null: until it is removed.
    ends_at integer,
    before_sign_in integer not null check (before_sign_in in (0, 1)),
    generation integer not null
) strict, without rowid;
