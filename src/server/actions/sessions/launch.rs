//! Launching: from what a user typed to rows, all replicas in one commit or none. Preview and
//! duplicate live here too, since they read and write the same request.

use api::sessions::{LaunchRequest, Resources, SessionView};
use rules::names::{SessionId, SessionName, UserId};
use rules::permissions::{Permission, own};
use rules::placement::{self, Explanation};
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{self, Outcome, SessionEnvironment, SessionKind, SessionState};
use rules::units::{GpuShare, Timestamp};
use rules::world::ClusterSnapshot;
use std::collections::BTreeMap;

use super::discreet;
use super::find::find;
use super::view;
use crate::access::Caller;
use crate::actions::allowed;
use crate::actions::system::refuse_unwell;
use crate::actions::{IdempotencyKey, once, own_key};
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// What a launch gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Launched {
    /// One a copy, in order.
    pub sessions: Vec<SessionView>,
    /// This is the first answer to the same Idempotency-Key again; nothing new was launched.
    pub replayed: bool,
}

/// A request that was understood, checked and looked up.
struct CheckedLaunch {
    /// None: to be made up.
    name: Option<SessionName>,
    labels: BTreeMap<String, String>,
    spec: session::SessionSpec,
    device_affinity: Option<String>,
    replicas: u32,
    /// The word a made-up name begins with.
    word: String,
}

/// Made-up names tried before giving up; each has 30 random bits.
const NAMES_TRIED: u32 = 8;

/// Launches one session, or `replicas` of them, all in one commit or none.
///
/// Errors: what is wrong with the request, by field; `session.name-taken`; what no machine here
/// could ever hold; `idempotency.key-reused`; `disk.full`.
pub async fn launch(
    server: &Server,
    caller: &Caller,
    request: LaunchRequest,
    key: Option<IdempotencyKey>,
) -> Result<Launched, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let key = own_key(caller, key)?;
    refuse_unwell(server)?;
    refuse_full_queue(server)?;
    let draft = server.catalog().read_now("understand a launch", |view| {
        draft(view, caller, request, server.clock().now())
    })?;
    let owner = caller.subject.user;
    let name = caller.name.clone();
    server
        .catalog()
        .write(Lane::Requests, "launch sessions", move |rows| {
            let launched = once(rows, key.as_ref(), || {
                if let SessionEnvironment::Image { id, reference } = &draft.spec.environment
                    && rows.image(*id)?.is_none()
                {
                    return Err(no_image(reference).into());
                }
                let written = insert(rows, &draft, owner, name.as_str())?;
                let nodes = rows.nodes()?;
                Ok(written
                    .iter()
                    .map(|row| view::session(row, name.clone(), &nodes, rows.policy()))
                    .collect())
            })?;
            Ok(Launched {
                sessions: launched.value,
                replayed: launched.replayed,
            })
        })
        .await
}

/// Live sessions the box takes. Every pass reads them all: higher makes decisions slow for everybody
/// (100,000 rows take a good part of a second), lower turns a large sweep of batch jobs away.
const MAX_LIVE: usize = 50_000;

fn refuse_full_queue(server: &Server) -> Result<(), Refusal> {
    if server.catalog().live_lately() < MAX_LIVE {
        return Ok(());
    }
    Err(refusals::queue_full(MAX_LIVE).retry_after(60))
}

/// Sessions of one user that wait at once. Higher: one user's sweep makes every decision slow for
/// everybody. Lower: a sweep has to be launched in parts.
pub(super) const MAX_WAITING: u32 = 1_000;

/// Bytes of commands and variables of one user's sessions that wait, all together. Every pass reads them:
/// higher, and two requests for 500 long replicas take the server's memory. Lower: a sweep of long commands has
/// to be launched in parts.
pub(super) const MAX_WAITING_BYTES: u64 = 16 << 20;

/// Refuses where one user would have too many sessions that wait, or too large ones, with `more` of that
/// order.
pub(super) fn refuse_own_full_queue(
    rows: &Rows<'_>,
    owner: UserId,
    more: u32,
    spec: &session::SessionSpec,
) -> Result<(), Failure> {
    let waiting = rows.waiting_of(owner)?;
    if waiting + more <= MAX_WAITING {
        let bytes = rows.waiting_bytes_of(owner)? + u64::from(more) * spec.bytes();
        if bytes <= MAX_WAITING_BYTES {
            return Ok(());
        }
        return Err(refusals::queue_own_too_large(bytes, MAX_WAITING_BYTES)
            .retry_after(60)
            .into());
    }
    Err(refusals::queue_own_full(waiting, MAX_WAITING)
        .retry_after(60)
        .into())
}

/// What would happen if this were launched now: the same checks, nothing written.
pub async fn preview(
    server: &Server,
    caller: &Caller,
    request: LaunchRequest,
) -> Result<Explanation, Failure> {
    allowed(caller, Permission::SessionsWrite)?;
    let (caller, now) = (caller.clone(), server.clock().now());
    server
        .catalog()
        .read("preview a launch", move |view| {
            let world = view.world()?;
            let draft = draft(view, &caller, request, now)?;
            if let Some(name) = &draft.name {
                for number in 1..=draft.replicas {
                    let name = name.replica(number, draft.replicas)?;
                    let taken = world
                        .sessions
                        .iter()
                        .any(|s| s.owner == caller.subject.user && s.name == name);
                    if taken {
                        return Err(crate::catalog::sessions::name_taken(&name).into());
                    }
                }
            }
            let explained = placement::explain_draft(
                &world,
                &placement::RequestDraft {
                    environment: draft.spec.environment,
                    demand: draft.spec.demand,
                    start_at: draft.spec.start_at,
                    depends_on: draft.spec.depends_on,
                    replicas: draft.replicas,
                    owner: Some(caller.subject.user),
                },
                now,
            );
            Ok(discreet(explained, &world, &caller))
        })
        .await
}

/// Refuses what needs the launch document of a session where that is no longer kept.
pub(super) fn refuse_document_gone(session: &session::Session) -> Result<(), Refusal> {
    if !session.document_gone {
        return Ok(());
    }
    Err(refusals::session_document_gone(&session.name))
}

/// The request that would launch this session again, under a name that is free.
///
/// Errors: `session.not-found`; `session.document-gone`.
pub async fn duplicate(
    server: &Server,
    caller: &Caller,
    id: &str,
) -> Result<LaunchRequest, Failure> {
    server.catalog().read_now("duplicate a session", |view| {
        let row = find(view, caller, Permission::SessionsRead, id)?;
        refuse_document_gone(&row)?;
        let demand = row.spec.demand;
        Ok(LaunchRequest {
            name: free_name(view, caller, row.name.as_str())?,
            kind: row.spec.kind,
            image: row.spec.environment.word().to_owned(),
            command: row.spec.command,
            env: row.spec.env,
            labels: row.labels,
            resources: Resources {
                cpu: Some(demand.cpu),
                memory: Some(demand.memory),
                shm: Some(demand.shm),
                gpu: Some(demand.gpu).filter(|gpu| *gpu > GpuShare::ZERO),
                gpu_memory: demand.gpu_memory,
                mig: demand.mig,
            },
            replicas: 1,
            timeout_seconds: row.spec.timeout_seconds,
            max_runtime_seconds: row.spec.max_runtime_seconds,
            // A start in the past, and dependencies that are over, are not asked for again.
            start_at: None,
            depends_on: Vec::new(),
            device_affinity: None,
        })
    })
}

/// `vit` or `vit-2` → the first of `vit-2`, `vit-3` … that no live session of the caller has; None
/// where all of them are taken or too long.
fn free_name(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    name: &str,
) -> Result<Option<String>, Failure> {
    let stem = match name.rsplit_once('-') {
        Some((stem, number)) if number.chars().all(|c| c.is_ascii_digit()) => stem,
        _ => name,
    };
    for number in 2..100 {
        let Ok(candidate) = SessionName::parse(&format!("{stem}-{number}")) else {
            return Ok(None);
        };
        let called = view.sessions_called(&own(&caller.subject), candidate.as_str())?;
        if called.iter().all(|s| s.state() == SessionState::Ended) {
            return Ok(Some(candidate.to_string()));
        }
    }
    Ok(None)
}

fn no_image(reference: &str) -> Refusal {
    refusals::image_unknown(reference.escape_debug()).at("/image")
}

fn draft(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    request: LaunchRequest,
    now: Timestamp,
) -> Result<CheckedLaunch, Failure> {
    if !(1..=session::MAX_REPLICAS).contains(&request.replicas) {
        return Err(refusals::replicas_out_of_range(session::MAX_REPLICAS)
            .at("/replicas")
            .into());
    }
    let name = match request.name.as_deref().map(str::trim) {
        None | Some("") => None,
        Some(text) => {
            let name = SessionName::parse(text)?;
            // The longest of the names has to fit too.
            name.replica(request.replicas, request.replicas)?;
            Some(name)
        }
    };
    session::check_labels(&request.labels)?;
    if request.resources.gpu == Some(GpuShare::ZERO) {
        return Err(refusals::gpu_zero().at("/resources/gpu").into());
    }
    let (environment, runs_something) = environment(view, &request.image)?;
    let depends_on = dependencies(view, caller, &request.depends_on, name.as_ref())?;
    if request.kind == SessionKind::Interactive && request.timeout_seconds.is_some() {
        return Err(refusals::timeout_batch_only().at("/timeout_seconds").into());
    }
    if request
        .start_at
        .is_some_and(|start| start > now.plus_seconds(session::MAX_RUN_SECONDS))
    {
        return Err(refusals::start_at_too_far().at("/start_at").into());
    }
    let word = environment.word().to_owned();
    let spec = session::SessionSpec {
        kind: request.kind,
        environment,
        command: request.command,
        env: request.env,
        demand: request.resources.demand(),
        timeout_seconds: request.timeout_seconds,
        max_runtime_seconds: request.max_runtime_seconds,
        start_at: request.start_at,
        depends_on,
    };
    spec.check()?;
    if spec.kind == SessionKind::Batch && spec.command.is_empty() && !runs_something {
        return Err(refusals::command_missing_in_image().at("/command").into());
    }
    // Whether it could ever start depends on the machines alone, so no session is read for it.
    let machines = ClusterSnapshot {
        nodes: view.nodes()?,
        policy: view.policy(),
        ..ClusterSnapshot::default()
    };
    placement::possible(&machines, &spec.demand, &spec.environment)?;
    Ok(CheckedLaunch {
        name,
        labels: request.labels,
        spec,
        device_affinity: request.device_affinity,
        replicas: request.replicas,
        word,
    })
}

/// What a session starts from, and whether that runs something by itself.
fn environment(
    view: &ReadTransaction<'_>,
    typed: &str,
) -> Result<(SessionEnvironment, bool), Failure> {
    let typed = typed.trim();
    if typed == "host" {
        return Ok((SessionEnvironment::Host, false));
    }
    session::text(
        rules::session::TextField::Image,
        "/image",
        typed,
        rules::image::MAX_REFERENCE_LENGTH,
    )?;
    let found = match typed.parse::<rules::names::ImageId>() {
        Ok(id) => view.image(id)?,
        Err(_) => view.image_called(&rules::image::parse_reference(typed)?)?,
    };
    let image = found.ok_or_else(|| no_image(typed))?;
    let runs_something = !(image.entrypoint.is_empty() && image.command.is_empty());
    Ok((
        SessionEnvironment::Image {
            id: image.id,
            reference: image.reference,
        },
        runs_something,
    ))
}

/// The sessions that `typed` names, each once. A new session can depend on existing ones only, so no
/// cycle can be made here but with itself.
fn dependencies(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    typed: &[String],
    own_name: Option<&SessionName>,
) -> Result<Vec<SessionId>, Failure> {
    if typed.len() > session::MAX_DEPENDENCIES {
        return Err(refusals::dependency_too_many(session::MAX_DEPENDENCIES)
            .at("/depends_on")
            .into());
    }
    let mut ids = Vec::new();
    for text in typed {
        let text = text.trim();
        let found = match find(view, caller, Permission::SessionsRead, text) {
            Ok(session) => session,
            Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::SESSION_NOT_FOUND => {
                let refusal = if own_name.is_some_and(|name| name.as_str() == text) {
                    refusals::dependency_cycle()
                } else {
                    let shown: String =
                        text.chars().take(80).flat_map(char::escape_debug).collect();
                    refusals::dependency_not_found(&shown)
                };
                return Err(refusal.at("/depends_on").into());
            }
            Err(failure) => return Err(failure),
        };
        if found
            .outcome()
            .is_some_and(|outcome| outcome != Outcome::Succeeded)
        {
            return Err(refusals::dependency_failed(&found.name)
                .at("/depends_on")
                .into());
        }
        if !ids.contains(&found.id) {
            ids.push(found.id);
        }
    }
    Ok(ids)
}

/// Writes the rows of a launch and gives them.
fn insert(
    rows: &Rows<'_>,
    draft: &CheckedLaunch,
    owner: UserId,
    actor: &str,
) -> Result<Vec<session::Session>, Failure> {
    let mut tried = 0;
    loop {
        tried += 1;
        let name = match &draft.name {
            Some(name) => name.clone(),
            None => make_name(&draft.word)?,
        };
        match insert_named(rows, draft, &name, owner, actor) {
            Err(Failure::Refusal(refusal))
                if refusal.code == rules::codes::SESSION_NAME_TAKEN
                    && draft.name.is_none()
                    && draft.replicas == 1
                    && tried < NAMES_TRIED => {}
            result => return result,
        }
    }
}

fn insert_named(
    rows: &Rows<'_>,
    draft: &CheckedLaunch,
    name: &SessionName,
    owner: UserId,
    actor: &str,
) -> Result<Vec<session::Session>, Failure> {
    refuse_own_full_queue(rows, owner, draft.replicas, &draft.spec)?;
    let (domain, project) = rows.home_project(owner)?.ok_or_else(no_project)?;
    let now = rows.now;
    // Ids break ties in the queue, so that replicas start in the order of their numbers.
    let mut ids: Vec<SessionId> = (0..draft.replicas)
        .map(|_| SessionId::make(now, base::observe::random()))
        .collect();
    ids.sort_unstable();
    let mut written = Vec::with_capacity(ids.len());
    for (id, number) in ids.into_iter().zip(1..) {
        let name = name.replica(number, draft.replicas)?;
        let mut row = session::Session::launched(id, name, owner, draft.spec.clone(), now);
        (row.domain, row.project) = (domain, project);
        row.labels.clone_from(&draft.labels);
        row.device_affinity.clone_from(&draft.device_affinity);
        rows.insert_session(&row, actor)?;
        written.push(row);
    }
    Ok(written)
}

/// Each user has been a member of a project since they were made.
fn no_project() -> crate::ServerFault {
    crate::ServerFault::new("find the project of a user", "they are a member of none")
}

/// `host` → `host-k7m3xq`: the last word of the image and thirty random bits.
fn make_name(image: &str) -> Result<SessionName, Refusal> {
    const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";
    let path = image.rsplit_once(':').map_or(image, |(path, _)| path);
    let word: String = path
        .rsplit('/')
        .next()
        .unwrap_or(path)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(40)
        .collect();
    let word = match word.trim_matches('-') {
        "" => "session",
        word => word,
    };
    let random: String = base::observe::random::<6>()
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte & 31)]))
        .collect();
    SessionName::parse(&format!("{word}-{random}"))
}
