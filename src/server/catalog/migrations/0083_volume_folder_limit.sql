-- What each new folder on a volume may take by itself, in bytes; null: no limit, until an administrator gives it one.
alter table volume add column folder_limit integer check (folder_limit > 0);
