-- In which order waiting sessions are looked at.
create table queue_rule (
    id integer primary key check (id = 1),
    ordering text not null check (ordering in ('turns', 'fifo', 'lifo', 'fair')),
    -- Hours after which use of the past counts half.
    half_life_hours integer not null check (half_life_hours between 1 and 8760),
    generation integer not null
) strict;

insert into queue_rule (id, ordering, half_life_hours, generation) values (1, 'turns', 168, 1);

-- Weights other than 1.
create table fair_weight (
    subject_kind text not null check (subject_kind in ('domain', 'project', 'user')),
    subject blob not null,
    weight integer not null check (weight between 1 and 1000),
    primary key (subject_kind, subject)
) strict, without rowid;

-- What the past of `usage` comes to, as of one hour: made anew from it whenever another hour begins.
create table fair_standing (
    domain blob not null,
    project blob not null,
    owner blob not null,
    past integer not null,
    hour integer not null,
    primary key (domain, project, owner)
) strict, without rowid;
