-- How each container ended. Until now a session had one container, and ended as that did.
alter table container add column outcome text
    check (outcome in ('succeeded', 'failed', 'stopped', 'refused', 'lost'));

update container
set outcome = (select session.outcome from session where session.id = container.session)
where state = 'ended';
