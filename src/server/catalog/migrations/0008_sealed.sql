-- Environments of sessions, orders to machines and answers kept for keys are sealed from here on: what of
-- them stood readable is sealed at the first start with this version, see catalog/sealing.rs.

-- Which key of the key file they are sealed with; null: none yet.
alter table box add column seal_key blob;
-- When the last row that stood readable was sealed; null: some may still.
alter table box add column sealed_at integer;
