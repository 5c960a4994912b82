-- A suspended account that is removed from then on, once its last session is over.
alter table user add column departs_at integer;

create index user_departs on user (departs_at)
where departs_at is not null;
