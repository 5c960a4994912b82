//! Launching: from what a person typed to rows, all copies in one commit or none. Preview and
//! duplicate live here too, since they read and write the same request.

use api::sessions::{LaunchRequest, Resources, SessionView};
use rules::names::{SessionId, SessionName, UserId};
use rules::permissions::{Permission, may};
use rules::placement::{self, Explanation};
use rules::refusal::Refusal;
use rules::session::{self, DesiredState, Outcome, SessionEnvironment, SessionKind, SessionState};
use rules::units::{GpuShare, Timestamp};
use rules::world::ClusterSnapshot;
use std::collections::BTreeMap;

use super::discreet;
use super::find::find;
use super::view;
use crate::access::Caller;
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
    order: session::SessionSpec,
    only_on: Option<String>,
    copies: u32,
    /// The word a made-up name begins with.
    word: String,
}

/// Made-up names tried before giving up; each has 30 random bits.
const NAMES_TRIED: u32 = 8;

/// Launches one session, or `copies` of them, all in one commit or none.
///
/// Errors: what is wrong with the request, by field; `session.name-taken`; what no machine here
/// could ever hold; `idempotency.key-reused`; `disk.full`.
pub async fn launch(
    server: &Server,
    caller: &Caller,
    request: LaunchRequest,
    key: Option<IdempotencyKey>,
) -> Result<Launched, Failure> {
    may(
        &caller.subject,
        Permission::SessionsWrite,
        Some(caller.subject.user),
    )?;
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
        .write(Lane::People, "launch sessions", move |rows| {
            let launched = once(rows, key.as_ref(), || {
                if let SessionEnvironment::Image { id, reference } = &draft.order.environment
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
    Err(Refusal::too_often(
        "queue.full",
        format!("This server has {MAX_LIVE} live sessions, which is its limit."),
    )
    .with("most", MAX_LIVE)
    .hint("Launch more once some have ended.")
    .retry_after(60))
}

/// Sessions of one person that wait at once. Higher: one person's sweep makes every decision slow for
/// everybody. Lower: a sweep has to be launched in parts.
pub(super) const MAX_WAITING: u32 = 1_000;

/// Bytes of commands and variables of one person's sessions that wait, all together. Every pass reads them:
/// higher, and two requests for 500 long copies take the server's memory. Lower: a sweep of long commands has
/// to be launched in parts.
pub(super) const MAX_WAITING_BYTES: u64 = 16 << 20;

/// Refuses where one person would have too many sessions that wait, or too large ones, with `more` of that
/// order.
pub(super) fn refuse_own_full_queue(
    rows: &Rows<'_>,
    owner: UserId,
    more: u32,
    order: &session::SessionSpec,
) -> Result<(), Failure> {
    let waiting = rows.waiting_of(owner)?;
    if waiting + more <= MAX_WAITING {
        let bytes = rows.waiting_bytes_of(owner)? + u64::from(more) * order.bytes();
        if bytes <= MAX_WAITING_BYTES {
            return Ok(());
        }
        return Err(Refusal::too_often(
            "queue.own-too-large",
            format!(
                "Commands and variables of your waiting sessions would have {bytes} bytes together; {MAX_WAITING_BYTES} is the most."
            ),
        )
        .with("bytes", bytes)
        .with("most", MAX_WAITING_BYTES)
        .hint("Put long scripts into a file of the image, or launch more once some have started.")
        .retry_after(60)
        .into());
    }
    Err(Refusal::too_often(
        "queue.own-full",
        format!("{waiting} of your sessions wait already; at most {MAX_WAITING} may."),
    )
    .with("waiting", waiting)
    .with("most", MAX_WAITING)
    .hint("Launch more once some have started.")
    .retry_after(60)
    .into())
}

/// What would happen if this were launched now: the same checks, nothing written.
pub async fn preview(
    server: &Server,
    caller: &Caller,
    request: LaunchRequest,
) -> Result<Explanation, Failure> {
    may(
        &caller.subject,
        Permission::SessionsWrite,
        Some(caller.subject.user),
    )?;
    let (caller, now) = (caller.clone(), server.clock().now());
    server
        .catalog()
        .read("preview a launch", move |view| {
            let world = view.world()?;
            let draft = draft(view, &caller, request, now)?;
            if let Some(name) = &draft.name {
                for number in 1..=draft.copies {
                    let name = name.copy(number, draft.copies)?;
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
                    environment: draft.order.environment,
                    demand: draft.order.demand,
                    start_at: draft.order.start_at,
                    depends_on: draft.order.depends_on,
                    copies: draft.copies,
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
    Err(Refusal::conflict(
        "session.document-gone",
        format!(
            "The command, variables and labels of {} are no longer kept: its owner has newer ended sessions with many bytes of them.",
            session.name
        ),
    )
    .with("session", &session.name)
    .hint("Launch a new session with a command of its own."))
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
        let demand = row.order.demand;
        Ok(LaunchRequest {
            name: free_name(view, caller, row.name.as_str())?,
            kind: row.order.kind,
            image: row.order.environment.word().to_owned(),
            command: row.order.command,
            env: row.order.env,
            labels: row.labels,
            resources: Resources {
                cpu: Some(demand.cpu),
                memory: Some(demand.memory),
                shm: Some(demand.shm),
                gpu: Some(demand.gpu).filter(|gpu| *gpu > GpuShare::ZERO),
                gpu_memory: demand.gpu_memory,
                mig: demand.mig,
            },
            copies: 1,
            timeout_seconds: row.order.timeout_seconds,
            longest_run_seconds: row.order.longest_run_seconds,
            // A start in the past, and dependencies that are over, are not asked for again.
            start_at: None,
            depends_on: Vec::new(),
            only_on: None,
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
        let called = view.sessions_called(candidate.as_str(), Some(caller.subject.user))?;
        if called.iter().all(|s| s.phase == SessionState::Ended) {
            return Ok(Some(candidate.to_string()));
        }
    }
    Ok(None)
}

fn no_image(reference: &str) -> Refusal {
    Refusal::invalid(
        "image.not-found",
        format!("There is no image called {}.", reference.escape_debug()),
    )
    .with("image", reference.escape_debug())
    .at("/image")
    .hint("host, or one of the list of images, would work.")
}

fn draft(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    request: LaunchRequest,
    now: Timestamp,
) -> Result<CheckedLaunch, Failure> {
    if !(1..=session::MAX_COPIES).contains(&request.copies) {
        return Err(Refusal::invalid(
            "copies.out-of-range",
            format!("A launch makes 1 to {} copies.", session::MAX_COPIES),
        )
        .with("most", session::MAX_COPIES)
        .at("/copies")
        .into());
    }
    let name = match request.name.as_deref().map(str::trim) {
        None | Some("") => None,
        Some(text) => {
            let name = SessionName::parse(text)?;
            // The longest of the names has to fit too.
            name.copy(request.copies, request.copies)?;
            Some(name)
        }
    };
    session::check_labels(&request.labels)?;
    if request.resources.gpu == Some(GpuShare::ZERO) {
        return Err(Refusal::invalid("gpu.zero", "0 of a device is no device.")
            .at("/resources/gpu")
            .hint("0.01 or more would work; leave it out for a session without one.")
            .into());
    }
    let (environment, runs_something) = environment(view, &request.image)?;
    let depends_on = dependencies(view, caller, &request.depends_on, name.as_ref())?;
    if request.kind == SessionKind::Interactive && request.timeout_seconds.is_some() {
        return Err(Refusal::invalid(
            "timeout.batch-only",
            "A time limit of the command is for batch sessions.",
        )
        .at("/timeout_seconds")
        .hint("longest_run_seconds limits any session.")
        .into());
    }
    if request
        .start_at
        .is_some_and(|start| start > now.plus_seconds(session::MAX_RUN_SECONDS))
    {
        return Err(Refusal::invalid(
            "start-at.too-far",
            "That start is more than ten years away.",
        )
        .at("/start_at")
        .into());
    }
    let word = environment.word().to_owned();
    let order = session::SessionSpec {
        kind: request.kind,
        environment,
        command: request.command,
        env: request.env,
        demand: request.resources.demand(),
        timeout_seconds: request.timeout_seconds,
        longest_run_seconds: request.longest_run_seconds,
        start_at: request.start_at,
        depends_on,
    };
    order.check()?;
    if order.kind == SessionKind::Batch && order.command.is_empty() && !runs_something {
        return Err(Refusal::invalid(
            "command.missing",
            "A batch session needs a command, and this image has none of its own.",
        )
        .at("/command")
        .hint("[\"python3\", \"train.py\"] would work.")
        .into());
    }
    // Whether it could ever start depends on the machines alone, so no session is read for it.
    let machines = ClusterSnapshot {
        nodes: view.nodes()?,
        policy: view.policy(),
        ..ClusterSnapshot::default()
    };
    placement::possible(&machines, &order.demand, &order.environment)?;
    Ok(CheckedLaunch {
        name,
        labels: request.labels,
        order,
        only_on: request.only_on,
        copies: request.copies,
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
    session::text("image", "/image", typed, rules::image::MAX_REFERENCE_LENGTH)?;
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
        return Err(Refusal::invalid(
            "dependency.too-many",
            format!(
                "A session depends on at most {} others.",
                session::MAX_DEPENDENCIES
            ),
        )
        .with("most", session::MAX_DEPENDENCIES)
        .at("/depends_on")
        .into());
    }
    let mut ids = Vec::new();
    for text in typed {
        let text = text.trim();
        let found = match find(view, caller, Permission::SessionsRead, text) {
            Ok(session) => session,
            Err(Failure::Refusal(refusal)) if refusal.code == "session.not-found" => {
                let refusal = if own_name.is_some_and(|name| name.as_str() == text) {
                    Refusal::invalid("dependency.cycle", "A session cannot depend on itself.")
                } else {
                    let shown: String =
                        text.chars().take(80).flat_map(char::escape_debug).collect();
                    Refusal::invalid(
                        "dependency.not-found",
                        format!("There is no session called {shown} to wait for."),
                    )
                    .with("called", &shown)
                    .hint("The name or id of one of your sessions would work.")
                };
                return Err(refusal.at("/depends_on").into());
            }
            Err(failure) => return Err(failure),
        };
        if found
            .outcome
            .is_some_and(|outcome| outcome != Outcome::Succeeded)
        {
            return Err(Refusal::invalid(
                "dependency.failed",
                format!(
                    "{} did not end well, so this would never start.",
                    found.name
                ),
            )
            .with("session", &found.name)
            .at("/depends_on")
            .hint("Restart that session first, or leave it out.")
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
                if refusal.code == "session.name-taken"
                    && draft.name.is_none()
                    && draft.copies == 1
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
    refuse_own_full_queue(rows, owner, draft.copies, &draft.order)?;
    let now = rows.now;
    // Ids break ties in the queue, so that copies start in the order of their numbers.
    let mut ids: Vec<SessionId> = (0..draft.copies)
        .map(|_| SessionId::make(now, base::observe::random()))
        .collect();
    ids.sort_unstable();
    let mut written = Vec::with_capacity(ids.len());
    for (id, number) in ids.into_iter().zip(1..) {
        let row = session::Session {
            id,
            name: name.copy(number, draft.copies)?,
            owner,
            labels: draft.labels.clone(),
            order: draft.order.clone(),
            phase: SessionState::Pending,
            wish: DesiredState::Run,
            paused: false,
            restart: false,
            incarnation: 1,
            generation: 1,
            node: None,
            devices: Vec::new(),
            unconfirmed: Vec::new(),
            incidents: Vec::new(),
            only_on: draft.only_on.clone(),
            document_gone: false,
            created_at: now,
            queued_at: now,
            scheduled_at: None,
            started_at: None,
            stopping_at: None,
            ended_at: None,
            outcome: None,
            exit_code: None,
            reason: None,
        };
        rows.insert_session(&row, actor)?;
        written.push(row);
    }
    Ok(written)
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
