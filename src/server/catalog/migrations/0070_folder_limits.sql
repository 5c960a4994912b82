-- Folders with a limit of their own: what each may take. Null: it counts on the limit of its owner's folders together.
alter table folder add column own_limit integer check (own_limit is null or own_limit > 0);

-- Whether an administrator gave it on top of the owner's limit; else it is a part of that.
alter table folder add column limit_on_top integer not null default 0
    check (limit_on_top in (0, 1) and (limit_on_top = 0 or own_limit is not null));
