-- Networks that a token, or the access key that it is behind, may be used from; none: everywhere.
alter table token add column networks text not null default '[]' check (json_valid(networks));
