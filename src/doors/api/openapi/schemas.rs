//! The shapes of bodies, for the OpenAPI document only: what `server::actions` reads and writes, said
//! once more in the words of the API. Tests hold them to real answers; nothing is parsed by them.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::ToSchema;

/// One session.
#[derive(ToSchema)]
pub(super) struct Session {
    #[schema(format = Uuid)]
    id: String,
    /// Letters, digits and hyphens; unique among the live sessions of its owner.
    name: String,
    owner: Owner,
    state: State,
    wish: Wish,
    kind: Kind,
    /// `host`, or the reference of an image.
    image: String,
    /// Program and arguments; empty: what the image runs by itself.
    command: Vec<String>,
    env: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    resources: Resources,
    timeout_seconds: Option<u64>,
    longest_run_seconds: Option<u64>,
    #[schema(format = DateTime)]
    start_at: Option<String>,
    depends_on: Vec<String>,
    /// False where it ended and its command, variables and labels are no longer kept: its owner's ended sessions
    /// keep 64 MiB of them.
    document_kept: bool,
    paused: bool,
    /// Which start this is; 1 is the first.
    incarnation: u32,
    /// Name of the machine it is, or was, on.
    node: Option<String>,
    devices: Vec<Grant>,
    /// Devices here do not exist: the session gets no device, even with a share.
    simulated: bool,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    scheduled_at: Option<String>,
    #[schema(format = DateTime)]
    started_at: Option<String>,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    outcome: Option<Outcome>,
    /// 0 to 255, a signal as 128 and its number; only once it ended with a known end.
    exit_code: Option<i32>,
    reason: Option<Reason>,
    /// Version of the session, and its ETag.
    generation: u64,
}

/// Whose it is.
#[derive(ToSchema)]
pub(super) struct Owner {
    #[schema(format = Uuid)]
    id: String,
    name: String,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "a shape of the document; no value of it is made")]
pub(super) enum State {
    Pending,
    Scheduled,
    Preparing,
    Running,
    Stopping,
    Ended,
}

/// What its owner wants of it.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "a shape of the document; no value of it is made")]
pub(super) enum Wish {
    Run,
    Stop,
    Kill,
}

#[derive(ToSchema, Deserialize)]
#[schema(rename_all = "lowercase")]
pub(super) enum Kind {
    Interactive,
    Batch,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "a shape of the document; no value of it is made")]
pub(super) enum Outcome {
    Succeeded,
    Failed,
    Stopped,
    Refused,
    Lost,
}

/// What a session has: cores and devices with at most two decimals, bytes.
#[derive(ToSchema)]
pub(super) struct Resources {
    cpu: f64,
    memory: u64,
    shm: u64,
    /// 2.5 is two whole devices and half of a third.
    gpu: f64,
    /// Bytes; absent where the fraction has the same part of its card's memory.
    #[schema(required = false)]
    gpu_memory: Option<u64>,
    #[schema(required = false)]
    mig: Option<String>,
}

/// A share of one device, in hundredths.
#[derive(ToSchema)]
pub(super) struct DeviceShare {
    index: u32,
    share: f64,
    memory: u64,
    /// Number of the partition, where one was given.
    #[schema(required = false)]
    part: Option<u32>,
    /// The device does not exist.
    simulated: bool,
}

/// A share of one device as a session has it.
#[derive(ToSchema)]
pub(super) struct Grant {
    index: u32,
    /// The device's own name; empty where its machine no longer reports it.
    uuid: String,
    model: String,
    share: f64,
    /// The same in the administrator's units.
    units: String,
    memory: u64,
    /// Multiprocessors whose time the share is worth, of `sms_total`; 0 where unknown.
    sms: u32,
    sms_total: u32,
    profile: Option<String>,
    /// Its machine has confirmed that it holds the session to this.
    confirmed: bool,
    /// The device does not exist, and the session has none.
    simulated: bool,
}

/// All devices there are.
#[derive(ToSchema)]
pub(super) struct Gpus {
    items: Vec<Gpu>,
    others: Vec<OtherAccelerators>,
    policy: SharePolicy,
    /// About what a program's context takes of its slice, bytes; not yet measured on hardware.
    context_overhead: u64,
    /// At least one of them does not exist.
    simulated: bool,
}

/// Accelerators of one family that a machine has and sessions cannot have: discovery tested, never run on
/// hardware.
#[derive(ToSchema)]
pub(super) struct OtherAccelerators {
    node: String,
    node_name: String,
    family: String,
    number: u32,
}

/// The administrator's rules for shares of devices.
#[derive(ToSchema)]
pub(super) struct SharePolicy {
    /// How many units one whole device counts as.
    units: u32,
    least: f64,
    step: f64,
    spreading: Spreading,
    /// The most that one person holds at once.
    each: Option<f64>,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "a shape of the document; no value of it is made")]
pub(super) enum Spreading {
    Pack,
    Spread,
}

/// One device with all that holds a part of it.
#[derive(ToSchema)]
pub(super) struct Gpu {
    /// Its own name for itself.
    id: String,
    index: u32,
    #[schema(format = Uuid)]
    node: String,
    node_name: String,
    model: String,
    memory: u64,
    /// Multiprocessors; 0 where unknown.
    sms: u32,
    numa: Option<u32>,
    /// Devices of one number are linked to each other.
    link: Option<u32>,
    health: GpuHealth,
    /// Version of the driver that runs it; empty where unknown, and for simulated ones.
    driver: String,
    /// What enforces the sessions' limits of its memory: `nobody`, `hook`, `hook-and-kernel`,
    /// `hook-and-driver` or `hardware`.
    hold: String,
    /// Whether this driver has passed the card's self-test: `none` where there is nothing to test,
    /// `untested`, `passed` or `failed`.
    proof: String,
    #[schema(format = DateTime)]
    proved_at: Option<String>,
    /// Its machine answers.
    answers: bool,
    simulated: bool,
    cordoned: bool,
    note: String,
    #[schema(format = DateTime)]
    changed_at: Option<String>,
    changed_by: Option<String>,
    share_used: f64,
    memory_used: u64,
    /// The largest share that a new session could get of it now; 0 where it takes no new sessions.
    share_free: f64,
    memory_free: u64,
    /// The least share in which a program starts.
    least: Option<f64>,
    doing: Option<GpuDoing>,
    partitions: Vec<Partition>,
    /// The profiles it can be cut into; empty where it cannot be cut.
    profiles: Vec<String>,
    planned: Option<PlannedCut>,
    slices: Vec<GpuSlice>,
}

/// What a device is doing for all processes; null where unknown.
#[derive(ToSchema)]
pub(super) struct GpuDoing {
    device: u32,
    /// Bytes in use, the driver's own included.
    memory: Option<u64>,
    /// Per cent of the time in which something ran.
    busy_percent: Option<u32>,
    celsius: Option<u32>,
    milliwatts: Option<u32>,
}

/// A cut that an administrator wants and that is not made yet; the device takes no new sessions until then.
#[derive(ToSchema)]
pub(super) struct PlannedCut {
    /// Empty: whole.
    profiles: Vec<String>,
    since: String,
    /// Why its machine could not cut it so when it last tried; null while nothing is wrong.
    trouble: Option<Reason>,
    /// What is typed on the device's machine instead; empty for a simulated device.
    commands: Vec<String>,
}

/// What a cut comes to.
#[derive(ToSchema)]
pub(super) struct Cut {
    gpu: Gpu,
    partitions: Vec<PlacedPartition>,
    /// Names of the sessions that end.
    ends: Vec<String>,
    /// Of these, those that wait for another device.
    requeued: Vec<String>,
    dry_run: bool,
}

/// A partition that is to be; start and slices in eighths of the device's memory.
#[derive(ToSchema)]
pub(super) struct PlacedPartition {
    profile: String,
    memory: u64,
    sms: u32,
    start: u8,
    slices: u8,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CutRequest {
    /// Such as `3g.40gb`; empty: whole again. What it is already cut into takes a plan back.
    profiles: Vec<String>,
    /// Why; none keeps what was said.
    note: Option<String>,
    /// Only say what it would come to.
    #[schema(required = false)]
    dry_run: bool,
}

/// `unknown`, `well`, `worn` or `failing`, the last two with a sentence.
#[derive(ToSchema)]
pub(super) struct GpuHealth {
    state: String,
    #[schema(required = false)]
    text: Option<String>,
}

/// One hardware partition of a device.
#[derive(ToSchema)]
pub(super) struct Partition {
    id: String,
    profile: String,
    memory: u64,
    sms: u32,
    taken: bool,
}

/// What one session holds of a device; without session, name and owner where it is another user's.
#[derive(ToSchema)]
pub(super) struct GpuSlice {
    session: Option<String>,
    name: Option<String>,
    owner: Option<Owner>,
    mine: bool,
    state: State,
    paused: bool,
    share: f64,
    memory: u64,
    sms: u32,
    profile: Option<String>,
    confirmed: bool,
    /// Per cent of the share in which the device worked for it lately; above 100 where it was given what
    /// others left. Null where unknown, as of hardware partitions. Made up for a simulated device, as
    /// are the next two.
    load_percent: Option<f64>,
    /// Bytes in use, contexts included.
    memory_in_use: Option<u64>,
    /// Since when the device has had nothing to do for it; null while it works.
    #[schema(format = DateTime)]
    idle_since: Option<String>,
}

/// What a card's self-test found, with the proof that this box found it.
#[derive(ToSchema)]
pub(super) struct Proof {
    #[schema(format = Uuid)]
    id: String,
    result: ProofStatement,
    /// Byte for byte what is signed: the result as JSON.
    statement: String,
    /// ECDSA over P-256 with SHA-256, in DER, as base64.
    signature: String,
    /// The certificate of the box's authority, to check it with; PEM.
    authority: String,
    fingerprint: String,
}

#[derive(ToSchema)]
pub(super) struct ProofStatement {
    /// 1
    version: u32,
    passed: bool,
    device: String,
    model: String,
    memory: u64,
    machine: String,
    driver: String,
    fardel: String,
    box_id: String,
    by: String,
    #[schema(format = DateTime)]
    began_at: String,
    #[schema(format = DateTime)]
    ended_at: String,
    findings: Vec<ProofFinding>,
}

/// One part of a self-test.
#[derive(ToSchema)]
pub(super) struct ProofFinding {
    /// `memory`, `way`, `control`, `cards`, `launch`, `share`, `neighbour` or `trespass`.
    code: String,
    /// Which one of them; empty where there is one only.
    subject: String,
    measured: String,
    wanted: String,
    /// `held` or `failed`.
    verdict: String,
}

/// What a drain ended, or would end.
#[derive(ToSchema)]
pub(super) struct Drained {
    gpu: Gpu,
    ends: Vec<String>,
    /// Of these, those that wait for another device.
    requeued: Vec<String>,
    dry_run: bool,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CordonRequest {
    /// Why, in a few words.
    note: Option<String>,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DrainRequest {
    /// Why; none keeps the cordon's note.
    note: Option<String>,
    /// Only say what would end.
    #[schema(required = false)]
    dry_run: bool,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestRequest {
    /// The image that both sessions start from, with glibc 2.34 or newer; none: the machine's own programs.
    image: Option<String>,
}

/// Why something is as it is.
#[derive(ToSchema)]
pub(super) struct Reason {
    /// Stable, dotted.
    code: String,
    /// One English sentence.
    text: String,
    #[schema(required = false)]
    params: BTreeMap<String, String>,
}

/// What a new session is to be. Everything has a default; `{}` is a shell on the machine's own
/// programs.
#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchRequest {
    name: Option<String>,
    #[schema(required = false)]
    kind: Kind,
    /// `host`, or the reference or id of an image.
    #[schema(required = false)]
    image: String,
    #[schema(required = false)]
    command: Vec<String>,
    #[schema(required = false)]
    env: BTreeMap<String, String>,
    #[schema(required = false)]
    labels: BTreeMap<String, String>,
    #[schema(required = false)]
    resources: LaunchResources,
    #[schema(required = false, minimum = 1, maximum = 500)]
    copies: u32,
    #[schema(minimum = 1)]
    timeout_seconds: Option<u64>,
    #[schema(minimum = 1)]
    longest_run_seconds: Option<u64>,
    #[schema(format = DateTime)]
    start_at: Option<String>,
    /// Ids or names of sessions that have to end well first.
    #[schema(required = false)]
    depends_on: Vec<String>,
}

/// Amounts; what is left out gets its default.
#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchResources {
    /// Cores, at most two decimals.
    #[schema(minimum = 0.01)]
    cpu: Option<f64>,
    /// Bytes.
    #[schema(minimum = 16_777_216)]
    memory: Option<u64>,
    /// Bytes.
    shm: Option<u64>,
    /// Devices, at most two decimals: 0.35, 1, 2.5.
    #[schema(minimum = 0.01)]
    gpu: Option<f64>,
    /// Bytes of the fraction, where it is not to be the same part of the card as the share.
    gpu_memory: Option<u64>,
    /// One hardware partition instead of a share: `1g.10gb`.
    mig: Option<String>,
}

/// A merge patch. Limits are changed alone.
#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionPatch {
    name: Option<String>,
    /// A null removes a label.
    labels: Option<BTreeMap<String, Option<String>>>,
    resources: Option<ResourcesPatch>,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResourcesPatch {
    cpu: Option<f64>,
    memory: Option<u64>,
    /// The fraction grows and shrinks on its card; other devices need a restart.
    gpu: Option<f64>,
    gpu_memory: Option<u64>,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StopRequest {
    /// Kill at once instead of asking first.
    #[schema(required = false)]
    force: bool,
}

/// One page of sessions.
#[derive(ToSchema)]
pub(super) struct SessionPage {
    items: Vec<Session>,
    /// Asks for the next page; null at the end.
    next_cursor: Option<String>,
    /// 10,000 stands for that many or more.
    estimated_total: u64,
}

/// The one answer to "would it start?" and "why is it waiting?".
#[derive(ToSchema)]
pub(super) struct Explanation {
    verdict: Verdict,
    /// One English sentence that says it all.
    sentence: String,
    eta: Option<Eta>,
    /// Where it would go, or is.
    node: Option<String>,
    devices: Vec<DeviceShare>,
    reason: Option<Reason>,
    /// 1 is next.
    queue_position: Option<u32>,
    blockers: Vec<Blocker>,
    checks: Vec<Check>,
    alternatives: Vec<Alternative>,
    rooms: Vec<Room>,
    /// Devices here do not exist: sessions get none, also where a share is listed.
    simulated: bool,
}

#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "a shape of the document; no value of it is made")]
pub(super) enum Verdict {
    Now,
    Wait,
    Never,
    Settled,
}

/// When a waiting session would start.
#[derive(ToSchema)]
pub(super) struct Eta {
    p50_seconds: u64,
    p90_seconds: u64,
    basis: String,
}

/// Why a session has no place yet.
#[derive(ToSchema)]
pub(super) struct Blocker {
    code: String,
    text: String,
    #[schema(required = false)]
    params: BTreeMap<String, String>,
    /// The session whose end would remove it.
    #[schema(required = false)]
    ends_with: Option<String>,
}

/// One thing that was checked, before and after.
#[derive(ToSchema)]
pub(super) struct Check {
    code: String,
    #[schema(required = false)]
    device: Option<u32>,
    before: String,
    after: String,
    limit: String,
    ok: bool,
}

/// A nearby request with another answer.
#[derive(ToSchema)]
pub(super) struct Alternative {
    demand: Resources,
    verdict: Verdict,
    text: String,
}

/// How full one machine is.
#[derive(ToSchema)]
pub(super) struct Room {
    node: String,
    name: String,
    cpu: f64,
    cpu_used: f64,
    memory: u64,
    memory_used: u64,
    /// What is free of each device.
    devices: Vec<DeviceRoom>,
    chosen: bool,
}

#[derive(ToSchema)]
pub(super) struct DeviceRoom {
    index: u32,
    /// 0 where it takes no new sessions.
    free: f64,
    free_memory: u64,
}

/// One thing that happened.
#[derive(ToSchema)]
pub(super) struct Event {
    /// Place in the journal.
    sequence: u64,
    #[schema(format = DateTime)]
    at: String,
    /// A person's name, or the part of the server that did it.
    actor: String,
    /// `sessions`, `images`, `people`, `nodes`, `operations`.
    topic: String,
    /// Id of the thing.
    object: String,
    /// Stable, dotted, such as `session.running`.
    code: String,
    before: String,
    after: String,
}

#[derive(ToSchema)]
pub(super) struct EventPage {
    items: Vec<Event>,
    next_cursor: Option<String>,
    estimated_total: u64,
}

/// A waiting session and why it waits.
#[derive(ToSchema)]
pub(super) struct Waiting {
    session: Session,
    why: Explanation,
}

#[derive(ToSchema)]
pub(super) struct WaitingPage {
    items: Vec<Waiting>,
    next_cursor: Option<String>,
    estimated_total: u64,
}

/// Why a request was not done (RFC 9457).
#[derive(ToSchema)]
pub(super) struct Problem {
    /// Relative address of the manual's page about this code.
    r#type: String,
    title: String,
    status: u16,
    /// What was wrong.
    detail: String,
    /// Stable, dotted; never translated.
    code: String,
    /// Sort of refusal: malformed, unauthenticated, denied, not-found, conflict, stale, invalid,
    /// capacity, too-large, too-often, unavailable.
    kind: String,
    request_id: String,
    help: String,
    /// What would work.
    #[schema(required = false)]
    hint: String,
    #[schema(required = false)]
    errors: Vec<FieldProblem>,
    /// Seconds.
    #[schema(required = false)]
    retry_after: u64,
}

/// One field that was wrong.
#[derive(ToSchema)]
pub(super) struct FieldProblem {
    /// JSON pointer into the body.
    pointer: String,
    code: String,
    text: String,
}

/// One moment of a session's use.
#[derive(ToSchema)]
pub(super) struct Sample {
    #[schema(format = DateTime)]
    at: String,
    /// Cores used since the sample before.
    cpu: f64,
    /// 100 is all the session may use.
    cpu_percent_of_limit: f64,
    memory: u64,
    memory_percent_of_limit: f64,
    processes: u64,
    /// Of the time since the sample before, the part in which something in it waited for a processor;
    /// its own limit makes it wait too. Null where the kernel does not measure it.
    cpu_waiting_percent: Option<f64>,
    /// The same of waiting for memory to be freed or read back.
    memory_waiting_percent: Option<f64>,
    /// Null where it has no share of a device, or the load is unknown.
    gpu: Option<GpuSample>,
}

/// What a session did with its shares of devices, all of them together.
#[derive(ToSchema)]
pub(super) struct GpuSample {
    /// Per cent of its shares since the sample before; above 100 where it was given what others left. Null
    /// where unknown, as of hardware partitions.
    load_percent: Option<f64>,
    /// Bytes in use, contexts included.
    memory: Option<u64>,
    memory_percent_of_limit: Option<f64>,
    /// The devices do not exist, and this is made up.
    simulated: bool,
}

#[derive(ToSchema)]
pub(super) struct SamplePage {
    items: Vec<Sample>,
    next_cursor: Option<String>,
    estimated_total: u64,
}

/// A person.
#[derive(ToSchema)]
pub(super) struct User {
    #[schema(format = Uuid)]
    id: String,
    name: String,
    role: Role,
    /// `en`, `ko`, or empty for what the browser asks.
    language: String,
    /// `light`, `dark` or `system`.
    theme: String,
    /// IANA name; empty means UTC.
    time_zone: String,
    suspended: bool,
    #[schema(format = DateTime)]
    created_at: String,
    /// Version, and ETag.
    generation: u64,
}

#[derive(ToSchema, Deserialize)]
#[schema(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Administrator,
}

#[derive(ToSchema)]
pub(super) struct UserPage {
    items: Vec<User>,
    next_cursor: Option<String>,
    estimated_total: u64,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUser {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    name: String,
    #[schema(required = false)]
    role: Role,
    #[schema(format = Password, min_length = 10)]
    password: String,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserPatch {
    role: Role,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPassword {
    #[schema(format = Password, min_length = 10)]
    password: String,
    /// Whether all tokens of the user are revoked too; they are unless this is false.
    revoke_tokens: Option<bool>,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuspendRequest {
    suspended: bool,
}

/// What stands in a certificate.
#[derive(ToSchema, Deserialize)]
pub(super) struct Certificate {
    subject: String,
    issuer: String,
    /// Host names and addresses it speaks for
    names: Vec<String>,
    not_before: String,
    not_after: String,
    /// SHA-256, as 9F:2C:…
    fingerprint: String,
    /// It may sign others
    authority: bool,
}

#[derive(ToSchema, Deserialize)]
pub(super) struct Authority {
    /// SHA-256, as 9F:2C:…
    fingerprint: String,
    subject: String,
    not_after: String,
    pem: String,
    /// It signed what is served now
    in_use: bool,
}

/// The certificate that is served, and what is kept beside it.
#[derive(ToSchema, Deserialize)]
pub(super) struct Tls {
    kind: TlsKind,
    certificate: Certificate,
    authority: Certificate,
    /// What this machine is called and can be reached by
    names: Vec<String>,
    previous: Option<Certificate>,
    /// Names of a request whose certificate has not come
    requested: Option<Vec<String>>,
}

#[derive(ToSchema, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TlsKind {
    Own,
    Site,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CertificateRequest {
    /// Host names and addresses; left out: what the machine is called
    #[schema(required = false)]
    names: Vec<String>,
    /// Who runs the machine
    #[schema(required = false)]
    organisation: String,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CertificateImport {
    /// PEM: the machine's own certificate first, then who signed it
    certificate: String,
    /// PEM; left out where it belongs to the request that was made here
    #[schema(format = Password)]
    key: Option<String>,
    /// What people call this machine, where it does not know that itself
    name: Option<String>,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CertificateReset {
    #[schema(required = false)]
    to: TlsKind,
}

/// What a person may set about themselves; what is left out stays.
#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preferences {
    language: Option<String>,
    theme: Option<String>,
    time_zone: Option<String>,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PasswordChange {
    #[schema(format = Password)]
    old: String,
    #[schema(format = Password)]
    new: String,
}

/// A token, without its secret.
#[derive(ToSchema)]
pub(super) struct Token {
    #[schema(format = Uuid)]
    id: String,
    name: String,
    /// What it may do.
    scopes: Vec<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    #[schema(format = DateTime)]
    used_at: Option<String>,
    used_from: Option<String>,
}

#[derive(ToSchema)]
pub(super) struct TokenPage {
    items: Vec<Token>,
    next_cursor: Option<String>,
    estimated_total: u64,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    #[schema(min_items = 1)]
    scopes: Vec<String>,
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// A new token with its secret, which is shown this once.
#[derive(ToSchema)]
pub(super) struct MadeToken {
    token: Token,
    secret: String,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignInRequest {
    name: String,
    #[schema(format = Password)]
    password: String,
    /// What the token will be called.
    #[schema(required = false)]
    token_name: String,
    expires_seconds: Option<u64>,
}

#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetupRequest {
    /// From the one-time link that the server printed.
    code: String,
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    name: String,
    #[schema(format = Password, min_length = 10)]
    password: String,
}

/// Who signed in, and their token with its secret.
#[derive(ToSchema)]
pub(super) struct SignedIn {
    user: Owner,
    token: Token,
    secret: String,
}

/// One imported image.
#[derive(ToSchema)]
pub(super) struct Image {
    #[schema(format = Uuid)]
    id: String,
    /// What people call it: `name:tag`.
    reference: String,
    /// Digest of its configuration, `sha256:…`.
    digest: String,
    /// Bytes.
    size: u64,
    architecture: String,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    imported_at: String,
    labels: BTreeMap<String, String>,
    /// What it runs by itself: entry point, then default arguments.
    entrypoint: Vec<String>,
    command: Vec<String>,
    env: Vec<String>,
    user: String,
    working_directory: String,
    stop_signal: String,
    generation: u64,
}

#[derive(ToSchema)]
pub(super) struct ImagePage {
    items: Vec<Image>,
    next_cursor: Option<String>,
    estimated_total: u64,
}

/// Where an archive comes from: one of `upload` and, for root on the machine, `path`.
#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportRequest {
    #[schema(format = Uuid)]
    upload: Option<String>,
    path: Option<String>,
    /// What to call it, `name:tag`; otherwise as the archive says.
    reference: Option<String>,
}

/// One piece of long work.
#[derive(ToSchema)]
pub(super) struct Operation {
    #[schema(format = Uuid)]
    id: String,
    /// `image.import`.
    kind: String,
    #[schema(format = Uuid)]
    person: String,
    /// `pending`, `running`, `succeeded`, `failed` or `cancelled`.
    state: String,
    /// What it is doing.
    step: String,
    /// Bytes read, of `total`.
    done: u64,
    total: u64,
    cancelable: bool,
    /// What it gave, once it succeeded.
    result: serde_json::Value,
    /// Why it did not, once it failed: code, text and hint.
    refusal: serde_json::Value,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    generation: u64,
}

#[derive(ToSchema)]
pub(super) struct OperationPage {
    items: Vec<Operation>,
    next_cursor: Option<String>,
    estimated_total: u64,
}

/// One upload under way.
#[derive(ToSchema)]
pub(super) struct Upload {
    #[schema(format = Uuid)]
    id: String,
    name: String,
    size: u64,
    /// Bytes that have come.
    offset: u64,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    expires_at: String,
}

#[derive(ToSchema)]
pub(super) struct UploadPage {
    items: Vec<Upload>,
    next_cursor: Option<String>,
    estimated_total: u64,
}
