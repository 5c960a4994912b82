-- Who made an image of a session; none for an imported one, which all users of its domain share. A user who made any is
-- never removed.
alter table image add column owner blob references user (id);
-- Whether users of the domain beside its owner see it.
alter table image add column shared integer not null default 1 check (shared in (0, 1));
create index image_by_owner on image (owner) where owner is not null;
