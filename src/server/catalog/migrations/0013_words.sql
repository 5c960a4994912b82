-- The words of the glossary: user, installation, self-test report, partitions. SQLite takes the new names into
-- references and triggers by itself; indexes are made again.
alter table person rename to user;
drop index person_name;
create unique index user_name on user (name) where removed_at is null;

alter table browser_session rename column person to user;
drop index browser_session_person;
create index browser_session_user on browser_session (user);

alter table token rename column person to user;
drop index token_person;
create index token_user on token (user);

alter table membership rename column person to user;
alter table operation rename column person to user;

alter table box rename to installation;
alter table installation rename column box_id to installation_id;
alter table installation rename column founded_at to created_at;

alter table proof rename to self_test_report;
drop index proof_device;
create index self_test_report_device on self_test_report (device, at);

alter table device rename column cut to desired_partitions;
alter table device rename column cut_before to previous_partitions;
alter table device rename column cut_at to partitions_desired_at;
alter table assignment rename column cuts to partitions;

-- Words in values: permissions of tokens, topics and codes of events, codes of reasons.
update token
set scopes = replace(scopes, '"people:', '"users:')
where instr(scopes, '"people:');

update event
set topic = iif(topic = 'people', 'users', topic),
    code = case
        when code like 'person.%' then 'user.' || substr(code, 8)
        when code = 'gpu.cut' then 'gpu.partitioned'
        when code = 'session.longest-run' then 'session.max-runtime'
        when code = 'session.device-cut' then 'session.device-partitioned'
        else code
    end
where topic = 'people' or code like 'person.%'
    or code in ('gpu.cut', 'session.longest-run', 'session.device-cut');

update session
set reason = replace(
    replace(reason, '"session.longest-run"', '"session.max-runtime"'),
    '"session.device-cut"', '"session.device-partitioned"'
)
where instr(reason, '"session.longest-run"') or instr(reason, '"session.device-cut"');
