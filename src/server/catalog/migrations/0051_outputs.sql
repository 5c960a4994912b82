-- Which kinds of notices a user gets by mail, as a JSON list of words; without a row, those that need an answer.
create table mail_choice (
    user blob primary key references user (id) on delete cascade,
    kinds text not null
) strict, without rowid;

-- Notices on their way to a user by mail, and for a while those that were sent, so that none is sent again. What a notice
-- says is read from the user's own notices when it is sent.
create table mail_notice (
    user blob not null references user (id) on delete cascade,
    -- Names the notice among those of the user.
    key text not null,
    kind text not null,
    queued_at integer not null,
    -- When it is tried next; null once it was sent or given up.
    next_at integer,
    tries integer not null,
    primary key (user, key)
) strict, without rowid;

create index mail_notice_due on mail_notice (next_at) where next_at is not null;
create index mail_notice_old on mail_notice (queued_at);

-- How far mail looked through the journal, and what it lost.
create table output_progress (
    output text primary key check (output in ('mail')),
    -- The newest event that was looked at, and when it happened.
    seen integer not null,
    seen_at integer not null,
    -- Notices that never arrived, since it was set up.
    lost integer not null,
    lost_at integer,
    -- The last success.
    sent_at integer
) strict, without rowid;

-- Addresses of other programs that are told of events, and how far each is.
create table webhook (
    id blob primary key,
    name text not null unique,
    address text not null,
    -- A JSON list of topics and beginnings of codes.
    kinds text not null,
    -- What signs each request, sealed.
    secret text not null,
    active integer not null check (active in (0, 1)),
    created_at integer not null,
    generation integer not null,
    -- The newest event that it was told of, or that is none of its kinds.
    seen integer not null,
    -- Events that it was never told of.
    lost integer not null,
    lost_at integer,
    delivered_at integer
) strict, without rowid;

-- How the site looks, beside its settings. Without a row: as the product does.
create table branding (
    id integer primary key check (id = 1),
    -- Empty: the machine's own name.
    name text not null,
    -- PNG; null: the product's own.
    logo blob,
    -- One of the eight hues; null: the product's own.
    hue integer,
    footer text not null,
    footer_ko text not null,
    sign_in text not null,
    sign_in_ko text not null,
    generation integer not null
) strict;
