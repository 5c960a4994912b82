-- When each node last got a session, as a number that rises with each; 0: never. Groups whose nodes take turns read it.
alter table node add column turn integer not null default 0 check (turn >= 0);

-- One way of placement more. A check is no part that can be changed, so the column is made again.
alter table resource_group add column placement text check (placement in ('pack', 'spread', 'roundrobin'));
update resource_group set placement = spreading;
alter table resource_group drop column spreading;
alter table resource_group rename column placement to spreading;
