PRAGMA defer_foreign_keys = on;

CREATE TABLE access_key (
    token blob primary key references token (id) on delete cascade,
    -- Sent with each request; no secret.
    key text not null unique,
    -- What signs requests, sealed.
    secret text not null
) strict, without rowid;

CREATE TABLE allocation (
    session blob not null,
    number integer not null check (number > 0),
    owner blob not null,
    domain blob not null,
    project blob not null,
    gpu integer not null,
    cpu integer not null,
    memory integer not null,
    began integer not null,
    -- Up to here it is part of `usage`.
    counted integer not null check (counted >= began),
    -- The newest hour that it was counted into.
    hour integer not null,
    is_open integer not null check (is_open in (0, 1)),
    -- By the time of day: to be forgotten with its session.
    closed_at integer, placed integer not null default 0,
    primary key (session, number)
) strict, without rowid;

CREATE INDEX allocation_closed on allocation (closed_at) where not is_open;

CREATE UNIQUE INDEX allocation_open on allocation (session) where is_open;

CREATE TABLE allowance (
    id blob primary key,
    subject_kind text not null check (subject_kind in ('domain', 'project', 'user')),
    subject blob not null,
    limits text not null check (json_valid(limits)),
    ends_at integer not null,
    reason text not null,
    actor text not null,
    created_at integer not null
) strict;

CREATE INDEX allowance_ends on allowance (ends_at);

CREATE INDEX allowance_subject on allowance (subject_kind, subject);

CREATE TABLE announcement (
    id blob primary key,
    -- Null: of the whole site.
    domain blob references domain (id),
    level text not null check (level in ('info', 'warning')),
    text text not null,
    -- For readers in Korean; empty: they read the other one.
    text_ko text not null,
    begins_at integer not null,
    -- Null: until it is removed.
    ends_at integer,
    before_sign_in integer not null check (before_sign_in in (0, 1)),
    generation integer not null
) strict, without rowid;

CREATE TABLE app_cookie (
    port integer not null references app_port (port) on delete cascade,
    name text not null,
    primary key (port, name)
) strict, without rowid;

CREATE TABLE app_port (
    port integer primary key check (port between 1 and 65535),
    owner blob not null references user (id) on delete cascade,
    app text not null,
    -- Null: it leads nowhere. The next session of its owner that opens the app gets it again.
    session blob references session (id) on delete set null,
    -- Where the app listens in the session.
    inner_port integer not null check (inner_port between 1 and 65535),
    opened_at integer not null,
    used_at integer not null,
    -- When another app had it before.
    passed_at integer
) strict;

CREATE INDEX app_port_by_owner on app_port (owner);

CREATE UNIQUE INDEX app_port_by_session on app_port (session, app);

CREATE TABLE app_share (
    id blob primary key,
    session blob not null references session (id) on delete cascade,
    app text not null,
    -- Null: all members of the session's project.
    user blob references user (id) on delete cascade,
    created_at integer not null,
    ends_at integer not null
) strict, without rowid;

CREATE INDEX app_share_by_session on app_share (session, app);

CREATE INDEX app_share_by_user on app_share (user) where user is not null;

CREATE TABLE approval (
    id blob primary key,
    -- The administrator who asked.
    asker blob not null,
    asker_name text not null,
    -- The act with everything it needs, as JSON; what it does and to what, in a word and a name.
    act text not null,
    word text not null,
    object text not null,
    asked_at integer not null,
    expires_at integer not null,
    -- Running: approved, and being done now.
    state text not null check (state in ('waiting', 'running', 'done', 'declined')),
    decided_by text,
    decided_at integer
) strict, without rowid;

CREATE INDEX approval_by_state on approval (state, asked_at);

CREATE TABLE assignment (
    node blob primary key references node (id),
    generation integer not null,
    containers text not null
, partitions text not null default '[]') strict;

CREATE TABLE audit (
    sequence integer primary key,
    -- JSON, byte for byte what the digest is of.
    statement text not null,
    digest blob not null check (length(digest) = 32),
    hash blob not null check (length(hash) = 32),
    -- Said by the statement too, to be found by.
    at integer not null,
    actor blob,
    act text not null,
    object text not null,
    domain blob,
    project blob
, in_index integer not null default 1 check (in_index in (0, 1))) strict;

CREATE INDEX audit_actor on audit (actor, at)
where in_index = 1;

CREATE INDEX audit_at on audit (at)
where in_index = 1;

CREATE INDEX audit_domain on audit (domain, at)
where in_index = 1 and domain is not null;

CREATE INDEX audit_object on audit (object, at)
where in_index = 1;

CREATE INDEX audit_project on audit (project, at)
where in_index = 1 and project is not null;

CREATE TABLE audit_checkpoint (
    sequence integer primary key,
    at integer not null,
    hash blob not null check (length(hash) = 32),
    -- JSON, byte for byte what was signed.
    statement text not null,
    signature blob not null
) strict;

CREATE TABLE audit_target (
    target text primary key check (target in ('file', 'syslog', 'http')),
    -- The newest row of the log that it has.
    delivered integer not null,
    -- Rows that were forgotten before it had them.
    lost integer not null,
    delivered_at integer
) strict;

CREATE TABLE branding (
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

CREATE TABLE break_glass (
    id blob primary key,
    -- The administrator.
    actor blob not null,
    actor_name text not null,
    -- The user whose it is; null for a folder of a project.
    owner blob,
    owner_name text not null,
    kind text not null check (kind in ('session', 'folder')),
    -- The session or the folder, and its name then.
    object blob not null,
    name text not null,
    domain blob not null,
    reason text not null,
    began_at integer not null,
    ends_at integer not null,
    -- Null while it is open.
    ended_at integer
) strict, without rowid;

CREATE INDEX break_glass_due on break_glass (ends_at) where ended_at is null;

CREATE UNIQUE INDEX break_glass_open on break_glass (actor, object) where ended_at is null;

CREATE TABLE browser_session (
    id blob primary key,
    hash blob not null unique,
    user blob not null references "user" (id),
    created_at integer not null,
    used_at integer not null,
    ends_at integer not null,
    source text not null
, agent text not null default '') strict;

CREATE INDEX browser_session_user on browser_session (user);

CREATE TABLE budget (
    id blob primary key,
    domain blob not null references domain (id),
    -- One of the two is null.
    project blob references project (id) on delete cascade,
    account blob references "user" (id) on delete cascade,
    -- Hundredths of GPU-hours.
    amount integer not null,
    -- Milliseconds since 1970; the end is left out.
    began integer not null,
    ends integer not null check (ends > began),
    is_hard integer not null check (is_hard in (0, 1)),
    -- Given by an administrator of the site: those of a domain do not write it.
    is_of_site integer not null check (is_of_site in (0, 1)),
    -- The highest percentage that was warned of.
    warned integer not null,
    generation integer not null,
    check ((project is null) <> (account is null))
) strict, without rowid;

CREATE INDEX budget_account on budget (account);

CREATE INDEX budget_project on budget (project);

CREATE TABLE closed_month (
    -- Such as 2026-10.
    month text primary key,
    -- Hours since 1970 UTC; the end is left out.
    from_hour integer not null,
    until_hour integer not null check (until_hour > from_hour),
    closed_at integer not null,
    -- JSON, byte for byte what was signed.
    statement text not null,
    signature blob not null
) strict, without rowid;

CREATE TABLE container (
    session blob not null references session (id) on delete cascade,
    -- 0 is the main one.
    position integer not null check (position >= 0),
    node blob not null,
    -- Shares of devices, JSON: the grant, and what the node may still hold it to until it confirmed the grant.
    devices text not null,
    pending_devices text not null,
    state text not null check (state in ('scheduled', 'preparing', 'running', 'ended')),
    started_at integer,
    exit_code integer, outcome text
    check (outcome in ('succeeded', 'failed', 'stopped', 'refused', 'lost')),
    primary key (session, position),
    check (state <> 'running' or started_at is not null),
    check (state not in ('scheduled', 'preparing') or started_at is null),
    check (state = 'ended' or exit_code is null)
) strict, without rowid;

CREATE INDEX container_node on container (node) where state <> 'ended';

CREATE TABLE course (
    id blob primary key,
    project blob not null references project (id),
    domain blob not null references domain (id),
    name text not null,
    -- What people read; empty: the name.
    title text not null,
    state text not null check (state in ('draft', 'open', 'running', 'closed', 'archived')),
    from_at integer not null,
    to_at integer not null,
    -- IANA name of the zone in which both were typed.
    time_zone text not null,
    -- As a launch names them; empty: the usual image, no preset.
    image text not null,
    preset text not null,
    max_runtime_seconds integer,
    rules text not null,
    -- Steps of the clock that were taken: each is taken once.
    warned_at integer,
    closed_at integer,
    stopped_at integer,
    -- The moment of the next step; null where none waits for time.
    due_at integer,
    generation integer not null, told_at integer, started_to blob,
    check (from_at < to_at)
) strict, without rowid;

CREATE UNIQUE INDEX course_current on course (project) where state <> 'archived';

CREATE INDEX course_domain on course (domain);

CREATE INDEX course_due on course (due_at) where due_at is not null;

CREATE UNIQUE INDEX course_name on course (project, name);

CREATE TABLE course_slot (
    course blob not null references course (id) on delete cascade,
    reservation blob not null references reservation (id) on delete cascade,
    primary key (course, reservation)
) strict, without rowid;

CREATE INDEX course_slot_reservation on course_slot (reservation);

CREATE TABLE device (
    uuid text primary key,
    cordoned integer not null check (cordoned in (0, 1)),
    note text not null,
    changed_at integer not null,
    changed_by text not null
, desired_partitions text, previous_partitions text, partitions_desired_at integer) strict, without rowid;

CREATE TABLE domain (
    id blob primary key,
    name text not null unique,
    title text not null,
    state text not null check (state in ('active')),
    generation integer not null
, sign_up text) strict;

CREATE TABLE dotfile (
    user blob not null references user (id) on delete cascade,
    -- Below the home, without a leading slash.
    path text not null,
    -- Permission bits alone.
    mode integer not null check (mode between 256 and 511),
    content text not null,
    -- Of the content as it was written.
    bytes integer not null check (bytes >= 0),
    changed_at integer not null,
    primary key (user, path)
) strict, without rowid;

CREATE TABLE environment (
    name text not null,
    version text not null,
    about text not null,
    -- SHA-256 of the bundle's manifest, as sha256:….
    digest text not null,
    -- The name of the trusted key that signed it; null: an administrator accepted it without one.
    signer text,
    -- Packages as SPDX, and the texts of the licences.
    sbom text not null,
    licences text not null,
    imported_at integer not null,
    primary key (name, version)
) strict;

CREATE TABLE environment_image (
    name text not null,
    version text not null,
    image blob not null references image (id) on delete cascade,
    -- What a session of it is best started with, as JSON.
    recommended text not null,
    primary key (name, version, image),
    foreign key (name, version) references environment (name, version) on delete cascade
) strict, without rowid;

CREATE INDEX environment_image_by_image on environment_image (image);

CREATE TABLE event (
    sequence integer primary key autoincrement,
    at integer not null,
    actor text not null,
    topic text not null,
    object text not null,
    -- Whose the thing is; null where everybody may hear of it or administrators only.
    owner blob,
    code text not null,
    before text not null,
    after text not null
, domain blob, project blob) strict;

CREATE INDEX event_object on event (object, sequence);

CREATE INDEX event_told on event (owner, sequence)
where code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned', 'session.idle',
               'session.reservation-warned', 'reservation.approved', 'reservation.refused', 'reservation.expired',
               'session.course-warned', 'course.message', 'session.preempted', 'session.break-glass',
               'folder.break-glass', 'user.signed-in-elsewhere', 'user.limit-declined');

CREATE TABLE external_user (
    user blob primary key references user (id),
    -- What proves them: `ldap`, `oidc`.
    way text not null,
    -- The identifier of their entry, which stays when names change. Also of who was removed: their entry makes no second
    -- account.
    subject text not null,
    -- By what name the entry was found last; empty where none was typed.
    asked text not null,
    -- When the directory last admitted them.
    checked_at integer not null
) strict, without rowid;

CREATE UNIQUE INDEX external_user_subject on external_user (way, subject);

CREATE TABLE fair_standing (
    domain blob not null,
    project blob not null,
    owner blob not null,
    past integer not null,
    hour integer not null,
    primary key (domain, project, owner)
) strict, without rowid;

CREATE TABLE fair_weight (
    subject_kind text not null check (subject_kind in ('domain', 'project', 'user')),
    subject blob not null,
    weight integer not null check (weight between 1 and 1000),
    primary key (subject_kind, subject)
) strict, without rowid;

CREATE TABLE "folder" (
    id blob primary key,
    -- Whose it is: a user's or a project's.
    owner blob references user (id) on delete cascade,
    project blob references project (id),
    -- What members of the project may do with its files.
    members text not null default 'ro' check (members in ('ro', 'rw')),
    name text not null,
    kind text not null check (kind in ('general', 'home')),
    state text not null
        check (state in ('ready', 'copying', 'transferring', 'trashed', 'purging')),
    created_at integer not null,
    -- When a session was launched that mounts it.
    used_at integer,
    trashed_at integer check ((trashed_at is null) = (state in ('ready', 'copying', 'transferring'))),
    -- What it took of the disk when it was counted last.
    counted_at integer,
    bytes integer,
    entries integer,
    generation integer not null,
    -- Null: the disk of the data directory.
    volume blob references volume (id), own_limit integer check (own_limit is null or own_limit > 0), limit_on_top integer not null default 0
    check (limit_on_top in (0, 1) and (limit_on_top = 0 or own_limit is not null)), cloneable integer not null default 1 check (cloneable in (0, 1)),
    check ((counted_at is null) = (bytes is null) and (bytes is null) = (entries is null)),
    check ((owner is null) <> (project is null)),
    check (project is null or kind = 'general')
) strict, without rowid;

CREATE INDEX folder_by_owner on folder (owner) where owner is not null;

CREATE INDEX folder_by_project on folder (project) where project is not null;

CREATE INDEX folder_by_volume on folder (volume) where volume is not null;

CREATE INDEX folder_gone on folder (trashed_at) where trashed_at is not null;

CREATE UNIQUE INDEX folder_ready on folder (owner, name) where trashed_at is null and owner is not null;

CREATE UNIQUE INDEX folder_ready_of_project on folder (project, name)
where trashed_at is null and project is not null;

CREATE TABLE folder_share (
    id blob primary key,
    folder blob not null references folder (id) on delete cascade,
    user blob references user (id) on delete cascade,
    project blob references project (id) on delete cascade,
    access text not null check (access in ('ro', 'rw', 'rwd')),
    -- Null: the user was asked and did not answer yet.
    accepted_at integer,
    created_at integer not null,
    -- Who made it, or changed it last.
    created_by text not null,
    -- Null: until it is taken back.
    ends_at integer,
    check ((user is null) <> (project is null)),
    check (user is not null or accepted_at is not null)
) strict, without rowid;

CREATE INDEX folder_share_by_end on folder_share (ends_at) where ends_at is not null;

CREATE INDEX folder_share_by_folder on folder_share (folder);

CREATE UNIQUE INDEX folder_share_by_project on folder_share (project, folder) where project is not null;

CREATE UNIQUE INDEX folder_share_by_user on folder_share (user, folder) where user is not null;

CREATE TABLE folder_snapshot (
    folder blob not null references folder (id) on delete cascade,
    -- Names its directory; counts up from 1 in each folder.
    number integer not null check (number > 0),
    origin text not null check (origin in ('hand', 'hourly', 'daily', 'weekly')),
    state text not null check (state in ('making', 'ready', 'removing')),
    -- No session could write while it was made, and no file was changed from outside.
    is_frozen integer not null default 0 check (is_frozen in (0, 1)),
    created_at integer not null,
    -- Who made it, or set the schedule.
    created_by text not null,
    -- What its files take by themselves.
    bytes integer check (bytes >= 0),
    entries integer check (entries >= 0),
    primary key (folder, number),
    check ((bytes is null) = (entries is null)),
    check (state <> 'ready' or bytes is not null)
) strict, without rowid;

CREATE INDEX folder_snapshot_removing on folder_snapshot (state) where state = 'removing';

CREATE TABLE folder_snapshot_schedule (
    folder blob primary key references folder (id) on delete cascade,
    user blob not null references user (id) on delete cascade,
    hourly integer not null check (hourly between 0 and 48),
    daily integer not null check (daily between 0 and 31),
    weekly integer not null check (weekly between 0 and 52),
    -- When one was begun last; null: none since it was set.
    tried_at integer
) strict, without rowid;

CREATE INDEX folder_snapshot_schedule_by_user on folder_snapshot_schedule (user);

CREATE TABLE folder_transfer (
    folder blob primary key references folder (id) on delete cascade,
    user blob references user (id) on delete cascade,
    project blob references project (id),
    created_at integer not null,
    -- Who offers it.
    created_by text not null,
    check ((user is null) <> (project is null))
) strict, without rowid;

CREATE INDEX folder_transfer_by_project on folder_transfer (project) where project is not null;

CREATE INDEX folder_transfer_by_user on folder_transfer (user) where user is not null;

CREATE TABLE holiday_calendar (
    domain blob primary key,
    days text not null,
    generation integer not null
) strict, without rowid;

CREATE TABLE idempotency (
    principal blob not null,
    route text not null,
    key text not null,
    digest blob not null,
    answer text not null,
    created_at integer not null,
    primary key (principal, route, key)
) strict, without rowid;

CREATE INDEX idempotency_created on idempotency (created_at);

CREATE TABLE idle_rule (
    id blob primary key,
    name text not null unique,
    level text not null check (level in ('site', 'domain', 'project')),
    -- The domain or the project; null for the site.
    subject blob,
    -- Null: both kinds.
    kind text check (kind in ('interactive', 'batch')),
    -- KEY or KEY=VALUE: sessions with this label are let off; empty: none are.
    exempt text not null,
    rule text not null check (json_valid(rule)),
    generation integer not null,
    check ((level = 'site') = (subject is null))
) strict, without rowid;

CREATE TABLE idle_watch (
    session blob primary key references session (id) on delete cascade,
    rule blob not null references idle_rule (id) on delete cascade,
    rule_generation integer not null,
    incarnation integer not null,
    -- When the warnings were given, and after how many quiet milliseconds.
    first_at integer,
    first_quiet integer,
    second_at integer,
    second_quiet integer,
    kept integer not null,
    kept_at integer,
    -- Quiet milliseconds after which the rule acts on what was kept.
    put_off integer not null,
    acted integer not null check (acted in (0, 1)),
    -- By the time of day, for people.
    due_at integer,
    check ((first_at is null) = (first_quiet is null)),
    check ((second_at is null) = (second_quiet is null)),
    check (second_at is null or first_at is not null),
    check (acted = 0 or second_at is not null)
) strict, without rowid;

CREATE INDEX idle_watch_rule on idle_watch (rule);

CREATE TABLE image (
    id blob primary key,
    reference text not null unique,
    digest text not null,
    size integer not null,
    architecture text not null,
    created_at integer not null,
    imported_at integer not null,
    labels text not null,
    entrypoint text not null,
    command text not null,
    env text not null,
    user text not null,
    working_directory text not null,
    stop_signal text not null,
    generation integer not null
, domain blob not null default x'00000000000070008000000000000001', owner blob references user (id), shared integer not null default 1 check (shared in (0, 1)), limits text) strict;

CREATE INDEX image_by_owner on image (owner) where owner is not null;

CREATE TABLE image_blob (
    image blob not null references image (id) on delete cascade,
    digest text not null,
    bytes integer not null check (bytes >= 0),
    -- Of a manifest that an index names; null for other blobs.
    media_type text,
    primary key (image, digest)
) strict, without rowid;

CREATE TABLE image_manifest (
    image blob primary key references image (id) on delete cascade,
    -- SHA-256 of the body, as sha256:….
    digest text not null,
    media_type text not null,
    body blob not null
) strict, without rowid;

CREATE TABLE "installation" (
    id integer primary key check (id = 1),
    installation_id blob not null,
    node_id blob not null,
    cursor_key blob not null,
    created_at integer not null,
    set_up_at integer,
    setup_hash blob,
    setup_expires_at integer,
    revision integer not null
, seal_key blob, sealed_at integer, second_factor_since integer, four_eyes integer not null default 0 check (four_eyes in (0, 1))) strict;

CREATE TABLE invitation (
    id blob primary key,
    hash blob not null unique,
    project blob not null references project (id),
    role text not null,
    -- Null: any holder of the link may use it.
    email text,
    max_uses integer not null check (max_uses > 0),
    used integer not null default 0 check (used between 0 and max_uses),
    -- When a membership that comes of it ends.
    member_until integer,
    -- Who made it: it holds while they may choose members of the project.
    owner blob not null references user (id),
    actor text not null,
    created_at integer not null,
    expires_at integer not null
) strict;

CREATE INDEX invitation_by_project on invitation (project, created_at);

CREATE TABLE late_usage (
    project blob not null,
    owner blob not null,
    domain blob not null,
    session integer not null,
    gpu integer not null,
    cpu integer not null,
    memory integer not null,
    starts integer not null,
    waited integer not null,
    primary key (project, owner)
) strict, without rowid;

CREATE TABLE ledger_clock (
    id integer primary key check (id = 1),
    -- Which start of the machine it was last read at, and how long that had run.
    boot blob not null,
    uptime integer not null,
    ledger integer not null
) strict;

CREATE TABLE mail_choice (
    user blob primary key references user (id) on delete cascade,
    kinds text not null
) strict, without rowid;

CREATE TABLE mail_notice (
    user blob not null references user (id) on delete cascade,
    -- Names the notice among those of the user.
    key text not null,
    kind text not null,
    queued_at integer not null,
    -- When it is tried next; null once it was sent or given up.
    next_at integer,
    tries integer not null, failed_at integer, failure text,
    primary key (user, key)
) strict, without rowid;

CREATE INDEX mail_notice_due on mail_notice (next_at) where next_at is not null;

CREATE INDEX mail_notice_failed on mail_notice (failed_at) where failed_at is not null;

CREATE INDEX mail_notice_old on mail_notice (queued_at);

CREATE TABLE membership (
    user blob not null references user (id),
    project blob not null references project (id),
    role text not null check (role in ('member', 'viewer', 'lead')),
    -- Null: until it is taken away.
    expires_at integer,
    primary key (user, project)
) strict, without rowid;

CREATE INDEX membership_by_end on membership (expires_at) where expires_at is not null;

CREATE INDEX membership_project on membership (project);

CREATE TABLE node (
    id blob primary key,
    name text not null,
    boot blob not null,
    capacity text not null,
    host_environment integer not null check (host_environment in (0, 1)),
    seen_at integer not null,
    generation integer not null,
    schedulable integer not null check (schedulable in (0, 1)),
    problems text not null
, note text not null default '', resource_group blob references resource_group (id), turn integer not null default 0 check (turn >= 0)) strict;

CREATE INDEX node_by_group on node (resource_group) where resource_group is not null;

CREATE TABLE operation (
    id blob primary key,
    kind text not null,
    user blob not null references "user" (id),
    state text not null
        check (state in ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
    input text not null,
    cancel integer not null check (cancel in (0, 1)),
    result text,
    refusal text,
    created_at integer not null,
    ended_at integer,
    generation integer not null
) strict;

CREATE INDEX operation_open on operation (created_at) where state in ('pending', 'running');

CREATE TABLE output_progress (
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

CREATE TABLE password_past (
    user blob not null references user (id),
    at integer not null,
    password text not null,
    primary key (user, at)
) strict, without rowid;

CREATE TABLE policy (
    id blob primary key,
    name text not null unique,
    limits text not null check (json_valid(limits)),
    generation integer not null
, egress text check (egress is null or json_valid(egress)), sudo integer not null default 0 check (sudo in (0, 1)), no_inner_door integer not null default 0 check (no_inner_door in (0, 1)), no_home integer not null default 0 check (no_home in (0, 1)), require_limit integer not null default 0 check (require_limit in (0, 1))) strict;

CREATE TABLE "policy_use" (
    subject_kind text not null
        check (subject_kind in ('site', 'domain', 'project', 'member', 'user')),
    -- Empty for the site, that of the project for members.
    subject blob not null,
    policy blob not null references policy (id),
    primary key (subject_kind, subject)
) strict, without rowid;

CREATE TABLE preset (
    id blob primary key,
    -- Both null: of the whole site. One of a project has the project's domain.
    domain blob references domain (id),
    project blob references project (id),
    name text not null,
    -- What people read; empty: the name.
    title text not null,
    -- For readers in Korean; empty: they read the other one.
    title_ko text not null,
    amounts text not null,
    position integer not null,
    is_default integer not null check (is_default in (0, 1)),
    generation integer not null
, resource_group blob references resource_group (id) on delete set null) strict, without rowid;

CREATE UNIQUE INDEX preset_name on preset (coalesce(project, domain, x''), name);

CREATE TABLE price (
    id integer primary key check (id = 1),
    currency text not null,
    gpu integer not null,
    core integer not null,
    gib integer not null,
    generation integer not null
) strict;

CREATE TABLE project (
    id blob primary key,
    domain blob not null references domain (id),
    name text not null,
    title text not null,
    state text not null check (state in ('active', 'archived')),
    generation integer not null, reservation_quota integer not null default 0 check (reservation_quota >= 0),
    unique (domain, name)
) strict;

CREATE TABLE "queue_rule" (
    id integer primary key check (id = 1),
    ordering text not null check (ordering in ('turns', 'fifo', 'lifo', 'drf', 'fair')),
    -- Hours after which use of the past counts half.
    half_life_hours integer not null check (half_life_hours between 1 and 8760),
    generation integer not null,
    -- Who may start before a session that waits.
    backfill text not null default 'strict' check (backfill in ('strict', 'timed'))
) strict;

CREATE TABLE recovery_code (
    user blob not null references user (id),
    hash blob not null,
    primary key (user, hash)
) strict, without rowid;

CREATE TABLE reservation (
    id blob primary key,
    name text not null,
    -- Both null: maintenance.
    user blob references user (id) on delete cascade,
    project blob references project (id) on delete cascade,
    -- Of the project, or home of the user; null for maintenance.
    domain blob references domain (id),
    amount text not null check (json_valid(amount)),
    before text not null check (before in ('drain', 'fit')),
    generation integer not null, time_zone text not null default 'UTC', asked_by blob references user (id) on delete set null, asked_at integer, reason text not null default '', skips_holidays integer not null default 0 check (skips_holidays in (0, 1)),
    check (user is null or project is null),
    check ((domain is null) = (user is null and project is null))
) strict, without rowid;

CREATE INDEX reservation_asked_by on reservation (asked_by) where asked_by is not null;

CREATE INDEX reservation_name on reservation (name);

CREATE INDEX reservation_project on reservation (project) where project is not null;

CREATE INDEX reservation_user on reservation (user) where user is not null;

CREATE TABLE "reservation_time" (
    reservation blob not null references reservation (id) on delete cascade,
    number integer not null,
    from_at integer not null,
    to_at integer not null,
    state text not null
        check (state in ('asked', 'booked', 'warned', 'active', 'over', 'cancelled', 'released', 'refused', 'expired')),
    -- Machines and devices that were chosen.
    parts text not null check (json_valid(parts)),
    warned_at integer,
    unused_since integer,
    -- Sessions that were told that they make way for its cores and memory.
    told text not null default '[]' check (json_valid(told)),
    primary key (reservation, number),
    check (from_at < to_at)
) strict, without rowid;

CREATE INDEX reservation_asked on reservation_time (from_at)
where state = 'asked' and number = 1;

CREATE INDEX reservation_live on reservation_time (from_at)
where state in ('booked', 'warned', 'active');

CREATE INDEX reservation_now on reservation_time (from_at)
where state in ('warned', 'active');

CREATE TABLE resource_group (
    id blob primary key,
    name text not null unique,
    -- What people read; empty: the name.
    title text not null,
    -- Domains, projects and users who may use it; null: everybody.
    access text,
    interactive integer not null check (interactive in (0, 1)),
    batch integer not null check (batch in (0, 1)),
    -- Null: as the settings say.
    generation integer not null
, ordering text check (ordering in ('turns', 'fifo', 'lifo', 'drf', 'fair')), backfill text check (backfill in ('strict', 'timed')), cpu_overcommit integer not null default 100 check (cpu_overcommit between 100 and 800), calendar text, preemption text not null default 'off' check (preemption in ('off', 'priority')), spreading text check (spreading in ('pack', 'spread', 'roundrobin'))) strict, without rowid;

CREATE TABLE role_grant (
    user blob not null references user (id),
    role text not null check (role in ('auditor', 'administrator')),
    -- A domain; empty for the whole site.
    domain blob not null,
    -- Null: until it is taken away.
    expires_at integer,
    primary key (user, domain, role)
) strict, without rowid;

CREATE INDEX role_grant_by_end on role_grant (expires_at) where expires_at is not null;

CREATE TABLE roster (
    id blob primary key,
    -- Who took it in.
    actor text not null,
    owner blob not null references user (id),
    applied_at integer not null,
    undone_at integer,
    -- Each row with what it was before, as JSON.
    changes text not null
) strict;

CREATE TABLE second_factor (
    user blob primary key references user (id),
    -- The secret of its codes, sealed.
    secret text not null,
    confirmed_at integer not null,
    -- The last time step whose code was taken; codes of it and of earlier ones prove nothing.
    used_step integer not null
) strict, without rowid;

CREATE TABLE "self_test_report" (
    id blob primary key,
    device text not null,
    driver text not null,
    at integer not null,
    passed integer not null check (passed in (0, 1)),
    -- JSON, byte for byte what the signature is of.
    statement text not null,
    signature blob not null
) strict;

CREATE INDEX self_test_report_device on self_test_report (device, at);

CREATE TABLE session (
    id blob primary key,
    name text not null,
    owner blob not null references "user" (id),
    labels text not null,
    kind text not null check (kind in ('interactive', 'batch')),
    image blob,
    image_reference text not null,
    command text not null,
    env text not null,
    cpu integer not null,
    memory integer not null,
    shm integer not null,
    gpu integer not null,
    timeout_seconds integer,
    max_runtime_seconds integer,
    start_at integer,
    depends_on text not null,
    state text not null
        check (state in ('pending', 'scheduled', 'preparing', 'running', 'stopping', 'ended')),
    desired text not null check (desired in ('run', 'stop', 'kill')),
    paused integer not null check (paused in (0, 1)),
    restart integer not null check (restart in (0, 1)),
    incarnation integer not null check (incarnation > 0),
    generation integer not null check (generation > 0),
    created_at integer not null,
    queued_at integer not null,
    scheduled_at integer,
    started_at integer,
    stopping_at integer,
    ended_at integer,
    outcome text check (outcome in ('succeeded', 'failed', 'stopped', 'refused', 'lost')),
    exit_code integer,
    reason text, gpu_memory integer, mig text, incidents text not null default '[]', device_affinity text, document_gone integer not null default 0 check (document_gone in (0, 1)), domain blob not null default x'00000000000070008000000000000001', project blob not null default x'00000000000070008000000000000002', held_by text, queued_before integer not null default 0, launch blob, description text, backfilled integer not null default 0 check (backfilled in (0, 1)), resource_group blob references resource_group (id), priority integer not null default 10 check (priority between 0 and 100), yields integer not null default 0 check (yields in (0, 1)), preempted_count integer not null default 0 check (preempted_count >= 0), mounts text not null default '[]', disk integer check (disk is null or disk > 0), egress text, start_up text not null default '{}', containers integer not null default 1 check (containers between 1 and 20), sudo integer not null default 0 check (sudo in (0, 1)), ulimits text not null default '', apps text not null default '',
    check ((state = 'ended') = (outcome is not null))
) strict;

CREATE INDEX session_by_group on session (resource_group) where resource_group is not null;

CREATE INDEX session_cpu on session (cpu, id);

CREATE INDEX session_created on session (created_at, id);

CREATE INDEX session_ended on session (ended_at, outcome, owner) where state = 'ended';

CREATE INDEX session_ended_at on session (coalesce(ended_at, 0), id);

CREATE INDEX session_ended_of on session (owner, document_gone desc, ended_at) where state = 'ended';

CREATE INDEX session_gpu on session (gpu, id);

CREATE INDEX session_launch on session (id, launch) where state <> 'ended' and launch is not null;

CREATE INDEX session_limited on session (owner, started_at)
where state = 'running' and max_runtime_seconds is not null;

CREATE INDEX session_live on session (created_at, id, generation, state) where state <> 'ended';

CREATE INDEX session_live_by_group on session (resource_group, id, state)
where resource_group is not null and state <> 'ended';

CREATE UNIQUE INDEX session_live_name on session (owner, name) where state <> 'ended';

CREATE INDEX session_memory on session (memory, id);

CREATE INDEX session_name on session (lower(name), id);

CREATE INDEX session_owner on session (owner, created_at);

CREATE INDEX session_standing on session (
    case state when 'ended' then 0 when 'pending' then 1 else 2 end,
    created_at,
    owner,
    rtrim(name, '0123456789'),
    coalesce(launch, id),
    id
);

CREATE INDEX session_waiting on session (owner, octet_length(command) + octet_length(env))
where state = 'pending';

CREATE INDEX session_with_apps on session (id) where apps <> '' and state = 'running';

CREATE TABLE session_connection (
    session blob not null references session (id) on delete cascade,
    incarnation integer not null,
    container integer not null,
    host text not null,
    port integer not null check (port between 1 and 65535),
    outcome text not null,
    count integer not null,
    sent integer not null,
    received integer not null,
    first_at integer not null,
    last_at integer not null, last_end integer not null default 0, told_ends integer not null default 0,
    primary key (session, incarnation, container, host, port, outcome)
) strict, without rowid;

CREATE TABLE sign_in_link (
    user blob primary key references user (id) on delete cascade,
    hash blob not null unique,
    -- Who made it: it holds while they may still change the account.
    maker blob not null references user (id) on delete cascade,
    actor text not null,
    created_at integer not null,
    expires_at integer not null
) strict, without rowid;

CREATE INDEX sign_in_link_by_end on sign_in_link (expires_at);

CREATE INDEX sign_in_link_by_maker on sign_in_link (maker);

CREATE TABLE sign_up (
    id blob primary key,
    domain blob not null references domain (id),
    name text not null,
    full_name text not null,
    email text not null,
    -- A hash, as that of a user.
    password text not null,
    -- What they said about themselves.
    note text not null,
    -- Address that they asked from.
    source text not null,
    asked_at integer not null,
    -- Null while it waits.
    declined_at integer,
    declined_by text
) strict, without rowid;

CREATE INDEX sign_up_by_domain on sign_up (domain, asked_at);

CREATE TABLE ssh_host_key (
    id integer primary key check (id = 1),
    -- The seed of an Ed25519 key, sealed.
    secret text not null,
    created_at integer not null
) strict;

CREATE TABLE ssh_key (
    id blob primary key,
    user blob not null references user (id) on delete cascade,
    name text not null,
    -- As SSH calls it, such as ssh-ed25519.
    kind text not null,
    bits integer not null check (bits > 0),
    -- The key as it is sent, and its SHA-256, by which it is found.
    public_key blob not null,
    digest blob not null unique,
    created_at integer not null,
    expires_at integer,
    used_at integer,
    used_from text,
    check ((used_at is null) = (used_from is null))
) strict, without rowid;

CREATE INDEX ssh_key_by_user on ssh_key (user);

CREATE TABLE startup_script (
    user blob primary key references user (id) on delete cascade,
    script text not null,
    bytes integer not null check (bytes > 0),
    -- A session ends where it fails.
    ends_session integer not null check (ends_session in (0, 1)),
    changed_at integer not null
) strict, without rowid;

CREATE TABLE statement_line (
    month text not null references closed_month (month),
    position integer not null check (position > 0),
    -- Said by the statement too, to be found by; null where the line sums more than one.
    domain blob,
    project blob,
    owner blob,
    -- JSON, byte for byte what the digest is of.
    statement text not null,
    -- SHA-256 of the statement: readers are told of it without reading every line.
    digest blob not null check (length(digest) = 32),
    primary key (month, position)
) strict, without rowid;

CREATE TABLE storage (
    owner blob primary key,
    used integer not null check (used >= 0),
    max_bytes integer not null check (max_bytes > 0),
    at integer not null,
    -- How near the limit is, and since when it is so near or nearer: its owner is told once.
    level text not null check (level in ('free', 'near', 'close', 'full')),
    level_since integer not null
) strict, without rowid;

CREATE INDEX storage_warned on storage (level_since) where level <> 'free';

CREATE TABLE token (
    id blob primary key,
    user blob not null references "user" (id),
    name text not null,
    hash blob not null unique,
    scopes text not null,
    created_at integer not null,
    expires_at integer,
    used_at integer,
    used_from text
, networks text not null default '[]' check (json_valid(networks))) strict;

CREATE INDEX token_user on token (user);

CREATE TABLE usage (
    -- Hours since 1970 UTC.
    hour integer not null,
    domain blob not null,
    project blob not null,
    owner blob not null,
    session integer not null,
    gpu integer not null,
    cpu integer not null,
    memory integer not null,
    starts integer not null,
    waited integer not null,
    primary key (hour, project, owner)
) strict, without rowid;

CREATE INDEX usage_owner on usage (owner, hour, domain, gpu);

CREATE INDEX usage_project on usage (project, hour, domain, gpu);

CREATE TABLE "user" (
    id blob primary key,
    name text not null,
    language text not null,
    theme text not null,
    time_zone text not null,
    suspended integer not null check (suspended in (0, 1)),
    password text not null,
    created_at integer not null,
    removed_at integer,
    generation integer not null
, served_at integer, ended_bytes integer not null default 0, ended_rows integer not null default 0, domain blob not null default x'00000000000070008000000000000001', notices_read integer not null default 0, notices_read_at integer not null default 0, full_name text not null default '', email text, must_change integer not null default 0 check (must_change in (0, 1)), departs_at integer, networks text not null default '[]' check (json_valid(networks)), password_set_at integer, expires_at integer, sign_in_places text not null default '[]' check (json_valid(sign_in_places)), signed_in_at integer, limit_request text check (limit_request is null or json_valid(limit_request))) strict;

CREATE INDEX user_asks on user (id) where limit_request is not null;

CREATE INDEX user_by_end on user (expires_at) where expires_at is not null;

CREATE INDEX user_departs on user (departs_at)
where departs_at is not null;

CREATE UNIQUE INDEX user_email on user (email)
where email is not null and removed_at is null;

CREATE UNIQUE INDEX user_name on user (name) where removed_at is null;

CREATE TABLE variable (
    user blob not null references user (id) on delete cascade,
    name text not null,
    value text not null,
    bytes integer not null check (bytes >= 0),
    changed_at integer not null,
    primary key (user, name)
) strict, without rowid;

CREATE TABLE volume (
    id blob primary key,
    name text not null unique,
    -- The directory that it is mounted on. Two that are mounted there in turns have the same one.
    path text not null,
    -- Domains and projects whose users make folders there, as JSON; with none of both: all users.
    access text not null,
    created_at integer not null,
    generation integer not null
, mapped_uid integer check (mapped_uid between 1000 and 999999999), mapped_gid integer check (mapped_gid between 1000 and 999999999), folder_limit integer check (folder_limit > 0)) strict, without rowid;

CREATE TABLE webhook (
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

CREATE TRIGGER session_ended_changed after update on session
when old.state = 'ended' or new.state = 'ended' begin
    update "user"
    set ended_rows = ended_rows + (new.state = 'ended') - (old.state = 'ended'),
        ended_bytes = ended_bytes
            + (new.state = 'ended')
                * (octet_length(new.command) + octet_length(new.env) + octet_length(new.labels))
            - (old.state = 'ended')
                * (octet_length(old.command) + octet_length(old.env) + octet_length(old.labels))
    where id = new.owner;
end;

CREATE TRIGGER session_ended_removed after delete on session when old.state = 'ended' begin
    update "user"
    set ended_rows = ended_rows - 1,
        ended_bytes = ended_bytes
            - octet_length(old.command) - octet_length(old.env) - octet_length(old.labels)
    where id = old.owner;
end;

CREATE TRIGGER session_ended_written after insert on session when new.state = 'ended' begin
    update "user"
    set ended_rows = ended_rows + 1,
        ended_bytes = ended_bytes
            + octet_length(new.command) + octet_length(new.env) + octet_length(new.labels)
    where id = new.owner;
end;

INSERT INTO domain (id, name, title, state, generation, sign_up) VALUES (X'00000000000070008000000000000001', 'default', '', 'active', 1, NULL);

INSERT INTO ledger_clock (id, boot, uptime, ledger) VALUES (1, X'00000000000000000000000000000000', 0, 0);

INSERT INTO policy (id, name, limits, generation, egress, sudo, no_inner_door, no_home, require_limit) VALUES (X'00000000000070008000000000000003', 'default', '{"waiting":1000,"waiting_bytes":16777216}', 1, NULL, 0, 0, 0, 0);

INSERT INTO policy_use (subject_kind, subject, policy) VALUES ('site', X'', X'00000000000070008000000000000003');

INSERT INTO price (id, currency, gpu, core, gib, generation) VALUES (1, '', 0, 0, 0, 1);

INSERT INTO project (id, domain, name, title, state, generation, reservation_quota) VALUES (X'00000000000070008000000000000002', X'00000000000070008000000000000001', 'default', '', 'active', 1, 0);

INSERT INTO queue_rule (id, ordering, half_life_hours, generation, backfill) VALUES (1, 'turns', 168, 1, 'strict');

INSERT INTO resource_group (id, name, title, access, interactive, batch, generation, ordering, backfill, cpu_overcommit, calendar, preemption, spreading) VALUES (X'00000000000070008000000000000004', 'default', '', NULL, 1, 1, 1, NULL, NULL, 100, NULL, 'off', NULL);

