-- Into which partitions an administrator wants a device cut (a list of profiles; null: as its machine says),
-- what it was cut into before, and since when.
alter table device add column cut text;
alter table device add column cut_before text;
alter table device add column cut_at integer;
