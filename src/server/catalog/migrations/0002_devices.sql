-- What an administrator says of a device; the device itself stands in its machine's report.
create table device (
    uuid text primary key,
    cordoned integer not null check (cordoned in (0, 1)),
    note text not null,
    changed_at integer not null,
    changed_by text not null
) strict, without rowid;

alter table session add column gpu_memory integer;
alter table session add column mig text;
-- What the machine may still hold it to, until it has confirmed `devices`.
alter table session add column unconfirmed text not null default '[]';
