-- What its machine's watchdog answered to its present start; see rules::messages::Incident.
alter table session add column incidents text not null default '[]';
