-- What sessions of an image may ask for at least and at most, as an administrator gave it, a JSON object; null: as its labels
-- say.
alter table image add column limits text;
