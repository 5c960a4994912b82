-- How many containers the session has, all on one node. Amounts of the row are those of all of them together.
alter table session add column containers integer not null default 1 check (containers between 1 and 20);
