-- What a user asks administrators of the site for: that limits of theirs are raised for a while, as a JSON object of limits, days,
-- a reason and the time. Null: nothing.
alter table user add column limit_request text check (limit_request is null or json_valid(limit_request));

create index user_asks on user (id) where limit_request is not null;

-- That it was declined is among what users are told.
drop index event_told;
create index event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned', 'session.idle',
               'session.reservation-warned', 'reservation.approved', 'reservation.refused', 'reservation.expired',
               'session.course-warned', 'course.message', 'session.preempted', 'session.break-glass',
               'folder.break-glass', 'user.signed-in-elsewhere', 'user.limit-declined');
