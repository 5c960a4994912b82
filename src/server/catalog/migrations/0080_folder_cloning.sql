-- Whether all who may read a folder's files make own copies of it; its owner does in any case.
alter table folder add column cloneable integer not null default 1 check (cloneable in (0, 1));
