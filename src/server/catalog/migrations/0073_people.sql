-- When each node last got a session, as a number that rises with each; 0: never. Groups whose nodes take turns read it.
alter table node add column turn integer not null default 0 check (turn >= 0);

-- One way of placement more. A check is no part that can be changed, so the column is made again.
alter table resource_group add column placement text check (placement in ('pack', 'spread', 'roundrobin'));
update resource_group set placement = spreading;
alter table resource_group drop column spreading;
alter table resource_group rename column placement to spreading;

-- Days off, a row for each calendar: of a domain, or of the whole site, whose domain is empty. The days are a JSON object:
-- days since 1 January 1970, each with its name.
create table holiday_calendar (
    domain blob primary key,
    days text not null,
    generation integer not null
) strict, without rowid;

-- Whether the weeks of a reservation that begin on a day off were left out.
alter table reservation add column skips_holidays integer not null default 0 check (skips_holidays in (0, 1));
