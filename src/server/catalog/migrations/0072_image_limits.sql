-- What sessions of an image may ask for at least and at most, as an administrator gave it, a JSON object; null: as its labels
-- say.
alter table image add column limits text;

-- What processes of a session may have more than is usual, as memlock=unlimited,stack=64m; empty: nothing.
alter table session add column ulimits text not null default '';

-- Apps that a launch names, as jupyter,board:6006,8501; empty: none.
alter table session add column apps text not null default '';

create index session_with_apps on session (id) where apps <> '' and state = 'running';
