-- What its owner said a session is for.
alter table session add column description text;
