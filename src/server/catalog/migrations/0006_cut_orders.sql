-- How devices of a machine are to be cut, as it was told. JSON.
alter table assignment add column cuts text not null default '[]';
