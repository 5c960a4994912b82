-- How far the audit log was handed over: one row for each sort of place outside.
create table audit_target (
    target text primary key check (target in ('file', 'syslog', 'http')),
    -- The newest row of the log that it has.
    delivered integer not null,
    -- Rows that were forgotten before it had them.
    lost integer not null,
    delivered_at integer
) strict;
