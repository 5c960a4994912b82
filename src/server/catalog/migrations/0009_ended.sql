-- What ended sessions of one person keep: bytes of commands, variables and labels, and rows. The triggers keep both
-- true for every statement, so that their bounds are checked without reading the rows; see catalog/ended.rs.
alter table person add column ended_bytes integer not null default 0;
alter table person add column ended_rows integer not null default 0;

-- Its command, variables and labels are no longer kept.
alter table session add column document_gone integer not null default 0 check (document_gone in (0, 1));

create index session_ended_of on session (owner, document_gone desc, ended_at) where phase = 'ended';

update person
set ended_rows = (select count(*) from session where owner = person.id and phase = 'ended'),
    ended_bytes = (
        select coalesce(sum(octet_length(command) + octet_length(env) + octet_length(labels)), 0)
        from session
        where owner = person.id and phase = 'ended'
    );

create trigger session_ended_written after insert on session when new.phase = 'ended' begin
    update person
    set ended_rows = ended_rows + 1,
        ended_bytes = ended_bytes
            + octet_length(new.command) + octet_length(new.env) + octet_length(new.labels)
    where id = new.owner;
end;

create trigger session_ended_removed after delete on session when old.phase = 'ended' begin
    update person
    set ended_rows = ended_rows - 1,
        ended_bytes = ended_bytes
            - octet_length(old.command) - octet_length(old.env) - octet_length(old.labels)
    where id = old.owner;
end;

create trigger session_ended_changed after update on session
when old.phase = 'ended' or new.phase = 'ended' begin
    update person
    set ended_rows = ended_rows + (new.phase = 'ended') - (old.phase = 'ended'),
        ended_bytes = ended_bytes
            + (new.phase = 'ended')
                * (octet_length(new.command) + octet_length(new.env) + octet_length(new.labels))
            - (old.phase = 'ended')
                * (octet_length(old.command) + octet_length(old.env) + octet_length(old.labels))
    where id = new.owner;
end;
