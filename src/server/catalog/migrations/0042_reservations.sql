-- The zone in which the weeks of a reservation keep their time of day.
alter table reservation add column time_zone text not null default 'UTC';
-- Sessions that were told that they make way for its cores and memory.
alter table reservation_time add column told text not null default '[]' check (json_valid(told));

-- A name is taken while something is left of its reservation.
drop index reservation_name;
create index reservation_name on reservation (name);

-- What a pass looks at before all that is booked.
create index reservation_now on reservation_time (from_at)
where state in ('warned', 'active');
