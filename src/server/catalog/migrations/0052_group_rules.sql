-- One order more: `drf`, by the dominant share that users hold, without the past. The rule moves to a table that knows it.
create table queue_rule_next (
    id integer primary key check (id = 1),
    ordering text not null check (ordering in ('turns', 'fifo', 'lifo', 'drf', 'fair')),
    -- Hours after which use of the past counts half.
    half_life_hours integer not null check (half_life_hours between 1 and 8760),
    generation integer not null,
    -- Who may start before a session that waits.
    backfill text not null default 'strict' check (backfill in ('strict', 'timed'))
) strict;

insert into queue_rule_next (id, ordering, half_life_hours, generation, backfill)
select id, ordering, half_life_hours, generation, backfill
from queue_rule;

drop table queue_rule;
alter table queue_rule_next rename to queue_rule;

-- What a resource group says of its own queue; null: as the site's rule.
alter table resource_group
add column ordering text check (ordering in ('turns', 'fifo', 'lifo', 'drf', 'fair'));
alter table resource_group
add column backfill text check (backfill in ('strict', 'timed'));

-- How many times sessions together may hold the cores of a node, in hundredths.
alter table resource_group
add column cpu_overcommit integer not null default 100 check (cpu_overcommit between 100 and 800);

-- Weekly windows, and the zone of their times, as JSON; null: none.
alter table resource_group add column calendar text;
