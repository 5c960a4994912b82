-- What the self-test of a card found, as it was signed. Kept when the card is gone.
create table proof (
    id blob primary key,
    device text not null,
    driver text not null,
    at integer not null,
    passed integer not null check (passed in (0, 1)),
    -- JSON, byte for byte what the signature is of.
    statement text not null,
    signature blob not null
) strict;

create index proof_device on proof (device, at);

-- The only device that the session may have a share of.
alter table session add column only_on text;
