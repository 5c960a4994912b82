-- Who put a waiting session on hold: it starts after its release.
alter table session add column held_by text;
