//! The session: what it is, its six phases, the wish of its owner, and the moves that are legal.
//! Never decides where a session goes (`placement`) nor what a report means (`progress`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::incident::{EnforcementAction, MemoryIncident};
use crate::names::{ContainerName, ImageId, NodeId, SessionId, SessionName, UserId};
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::resources::{Demand, DeviceShare};
use crate::tenancy::{DomainId, ProjectId, Scope};
use crate::units::Timestamp;

/// Whether a person works in it or a command ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    Interactive,
    Batch,
}

/// Where a session stands. The order is the order of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Accepted; no place yet.
    Pending,
    /// Has a place; the node has not answered yet.
    Scheduled,
    /// The node is making its container.
    Preparing,
    Running,
    /// Told to end; its container may still live and still holds its resources.
    Stopping,
    Ended,
}

impl SessionState {
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Scheduled,
        Self::Preparing,
        Self::Running,
        Self::Stopping,
        Self::Ended,
    ];

    /// The word used in tables, JSON and pages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.word() == word)
    }

    /// True while a container may exist, so that the resources are held.
    pub fn holds_resources(self) -> bool {
        !matches!(self, Self::Pending | Self::Ended)
    }

    /// True where `to` may follow directly. `Ended → Pending` is a restart.
    pub fn may_become(self, to: Self) -> bool {
        match self {
            Self::Pending => matches!(to, Self::Scheduled | Self::Ended),
            Self::Scheduled => matches!(
                to,
                Self::Preparing | Self::Running | Self::Stopping | Self::Ended
            ),
            Self::Preparing => matches!(to, Self::Running | Self::Stopping | Self::Ended),
            Self::Running => matches!(to, Self::Stopping | Self::Ended),
            Self::Stopping => matches!(to, Self::Ended),
            Self::Ended => matches!(to, Self::Pending),
        }
    }
}

/// What the owner wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredState {
    Run,
    /// End it: TERM, then KILL when the grace is over.
    Stop,
    /// End it at once.
    Kill,
}

impl DesiredState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Stop => "stop",
            Self::Kill => "kill",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Self::Run, Self::Stop, Self::Kill]
            .into_iter()
            .find(|w| w.word() == word)
    }
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Its command ended with 0.
    Succeeded,
    /// Its command ended with another code, by a signal, or by a limit.
    Failed,
    /// Its owner, or an administrator, stopped it.
    Stopped,
    /// It never got a container: impossible, or what it depended on failed.
    Refused,
    /// Its container is gone and its end is unknown (power cut, killed supervisor).
    Lost,
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Refused => "refused",
            Self::Lost => "lost",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Succeeded,
            Self::Failed,
            Self::Stopped,
            Self::Refused,
            Self::Lost,
        ]
        .into_iter()
        .find(|o| o.word() == word)
    }
}

/// Which file system a session starts from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "from")]
pub enum SessionEnvironment {
    /// The machine's own programs, by the allow-list.
    Host,
    /// An imported image; `reference` is what people call it.
    Image { id: ImageId, reference: String },
}

impl SessionEnvironment {
    /// What people call it: `host`, or the image's reference.
    pub fn word(&self) -> &str {
        match self {
            Self::Host => "host",
            Self::Image { reference, .. } => reference,
        }
    }
}

/// What a person asked for; never changes after launch but for name, labels and demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpec {
    pub kind: SessionKind,
    pub environment: SessionEnvironment,
    /// Program and arguments; empty means the environment's own (an interactive shell on `host`).
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub demand: Demand,
    /// Seconds a batch command may run; past it the session fails with `session.timeout`.
    pub timeout_seconds: Option<u64>,
    /// Seconds any session may run; past it the session is stopped with `session.longest-run`.
    pub longest_run_seconds: Option<u64>,
    pub start_at: Option<Timestamp>,
    /// Starts only after all of these ended well.
    pub depends_on: Vec<SessionId>,
}

/// One session, as the catalog keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: SessionId,
    pub name: SessionName,
    pub owner: UserId,
    #[serde(default)]
    pub domain: DomainId,
    #[serde(default)]
    pub project: ProjectId,
    pub labels: BTreeMap<String, String>,
    pub order: SessionSpec,
    pub phase: SessionState,
    pub wish: DesiredState,
    /// The owner wants it frozen.
    pub paused: bool,
    /// After it ended: start it once more.
    pub restart: bool,
    /// Which start this is; 1 is the first.
    pub incarnation: u32,
    /// Raised by every write to the row; writers compare it first.
    pub generation: u64,
    pub node: Option<NodeId>,
    pub devices: Vec<DeviceShare>,
    /// What its machine may still hold it to, until it has said that it holds it to `devices`; empty
    /// once it has.
    pub unconfirmed: Vec<DeviceShare>,
    /// The only device that it may have a share of, by the device's own name; None: any. A card's self-test
    /// sets it, and then a cordon does not keep it away.
    #[serde(default)]
    pub only_on: Option<String>,
    /// It ended, and its command, variables and labels are no longer kept: its owner has ended sessions with
    /// many bytes of them. Such a one never begins again.
    #[serde(default)]
    pub document_gone: bool,
    pub created_at: Timestamp,
    /// Since when it waits in the queue: its creation, or its latest restart.
    pub queued_at: Timestamp,
    pub scheduled_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub stopping_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    /// 0–255, signals as 128 + number; only once ended with a known end.
    pub exit_code: Option<i32>,
    /// Why it waits, why it ended: the latest word on it.
    pub reason: Option<Reason>,
    /// What its machine's watchdog answered to its present start, oldest first: each once, and of many
    /// the latest.
    #[serde(default)]
    pub incidents: Vec<MemoryIncident>,
}

/// One write to one session row, conditional on the generation it was decided from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseChange {
    pub session: SessionId,
    pub seen: u64,
    pub to: SessionState,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    pub exit_code: Option<i32>,
    pub reason: Option<Reason>,
}

/// Incidents that a session remembers of each subject. At least as many as a machine says again of one
/// container, so that none is taken for new twice.
const MAX_INCIDENTS: usize = 16;

impl Session {
    /// A session as its launch leaves it: wanted, waiting, in its first incarnation.
    pub fn launched(
        id: SessionId,
        name: SessionName,
        owner: UserId,
        order: SessionSpec,
        at: Timestamp,
    ) -> Self {
        Self {
            id,
            name,
            owner,
            domain: DomainId::DEFAULT,
            project: ProjectId::DEFAULT,
            labels: BTreeMap::new(),
            order,
            phase: SessionState::Pending,
            wish: DesiredState::Run,
            paused: false,
            restart: false,
            incarnation: 1,
            generation: 1,
            node: None,
            devices: Vec::new(),
            unconfirmed: Vec::new(),
            only_on: None,
            document_gone: false,
            created_at: at,
            queued_at: at,
            scheduled_at: None,
            started_at: None,
            stopping_at: None,
            ended_at: None,
            outcome: None,
            exit_code: None,
            reason: None,
            incidents: Vec::new(),
        }
    }

    /// Whose it is.
    pub fn scope(&self) -> Scope {
        Scope {
            domain: Some(self.domain),
            project: Some(self.project),
            owner: Some(self.owner),
        }
    }

    pub fn container(&self) -> ContainerName {
        ContainerName {
            session: self.id,
            incarnation: self.incarnation,
        }
    }

    pub fn is_live(&self) -> bool {
        self.phase != SessionState::Ended
    }

    /// When it must be over by the limits its owner set; None without a limit or before its start.
    pub fn deadline(&self) -> Option<(Timestamp, &'static str)> {
        let started = self.started_at?;
        let (seconds, code) = self.order.limit()?;
        Some((started.plus_seconds(seconds), code))
    }
}

impl Session {
    /// Turns the wish: what has no place yet ends at once, what has one starts to stop. A second
    /// call with a stronger wish only strengthens it. Returns whether anything changed.
    pub fn stop(&mut self, wish: DesiredState, because: Reason, now: Timestamp) -> bool {
        if self.phase == SessionState::Ended
            || wish == DesiredState::Run
            || self.wish == DesiredState::Kill
            || self.wish == wish
        {
            return false;
        }
        if self.wish == DesiredState::Run {
            self.reason = Some(because);
        }
        self.wish = wish;
        self.paused = false;
        if self.phase == SessionState::Pending {
            self.end(Outcome::Stopped, None, now);
        } else {
            self.phase = SessionState::Stopping;
            self.stopping_at.get_or_insert(now);
        }
        true
    }

    /// Takes one phase change over. Returns false, and changes nothing, where the row was written
    /// since the change was decided or the move is not legal.
    pub fn apply(&mut self, change: &PhaseChange, now: Timestamp) -> bool {
        if change.seen != self.generation || !self.phase.may_become(change.to) {
            return false;
        }
        self.started_at = change.started_at.or(self.started_at);
        if change.reason.is_some() {
            self.reason = change.reason.clone();
        }
        if change.to == SessionState::Ended {
            self.exit_code = change.exit_code;
            let outcome = change.outcome.unwrap_or(Outcome::Lost);
            self.end(outcome, change.exit_code, change.ended_at.unwrap_or(now));
        } else {
            self.phase = change.to;
        }
        true
    }

    /// Notes what its machine's watchdog answered. Returns false, and changes nothing, for what it knows
    /// already and for what is said of another start.
    pub fn note(&mut self, incident: &MemoryIncident) -> bool {
        let known = self.incidents.iter().any(|each| each.id == incident.id);
        if known || incident.container != self.container() || self.phase == SessionState::Ended {
            return false;
        }
        self.incidents.push(incident.clone());
        let subject = incident.answer.subject();
        let all = self.incidents.iter().enumerate();
        let mut same = all
            .filter(|(_, each)| each.answer.subject() == subject)
            .map(|(at, _)| at);
        if let (Some(oldest), true) = (same.next(), same.count() >= MAX_INCIDENTS) {
            self.incidents.remove(oldest);
        }
        // A wish to end it has its own reason.
        if self.wish == DesiredState::Run {
            self.reason = Some(incident.reason());
        }
        true
    }

    /// The answer that ended it, where its machine stopped it for what it held.
    pub fn stopped_by_watchdog(&self) -> Option<&MemoryIncident> {
        self.incidents
            .iter()
            .find(|each| each.answer == EnforcementAction::Stopped)
    }

    /// What is kept for it on devices: its grant, or the larger of old and new while a change of it has
    /// not been confirmed.
    pub fn holds(&self) -> std::borrow::Cow<'_, [DeviceShare]> {
        if self.unconfirmed.is_empty() {
            self.devices.as_slice().into()
        } else {
            crate::resources::either(&self.devices, &self.unconfirmed).into()
        }
    }

    /// Changes its grant while it runs. What it had stays kept until its machine confirms the new one.
    pub fn regrant(&mut self, devices: Vec<DeviceShare>) {
        if devices != self.devices {
            self.unconfirmed = self.holds().into_owned();
            self.devices = devices;
        }
    }

    /// Gives it a place.
    pub fn place(
        &mut self,
        node: NodeId,
        devices: Vec<DeviceShare>,
        because: Reason,
        now: Timestamp,
    ) {
        self.phase = SessionState::Scheduled;
        self.node = Some(node);
        self.devices = devices;
        self.reason = Some(because);
        self.scheduled_at = Some(now);
    }

    /// Ends it. The place stays written as history; nothing is held any more.
    pub fn end(&mut self, outcome: Outcome, exit_code: Option<i32>, at: Timestamp) {
        self.phase = SessionState::Ended;
        self.outcome = Some(outcome);
        self.exit_code = exit_code;
        self.ended_at = Some(at);
        self.unconfirmed = Vec::new();
        self.paused = false;
        if self.restart {
            self.begin_again(at);
        }
    }

    /// Starts an ended session once more, under the next incarnation.
    pub fn begin_again(&mut self, at: Timestamp) {
        self.phase = SessionState::Pending;
        self.wish = DesiredState::Run;
        self.restart = false;
        self.incarnation += 1;
        self.incidents = Vec::new();
        self.node = None;
        self.devices = Vec::new();
        self.unconfirmed = Vec::new();
        self.queued_at = at;
        self.scheduled_at = None;
        self.started_at = None;
        self.stopping_at = None;
        self.ended_at = None;
        self.outcome = None;
        self.exit_code = None;
        self.reason = None;
    }
}

/// Bounds on the free text of a launch. A row must stay small: the whole world is read at once.
pub const MAX_ARGUMENT_LENGTH: usize = 128 << 10;
pub const MAX_ARGUMENTS: usize = 4096;
pub const MAX_VARIABLES: usize = 512;
pub const MAX_LABELS: usize = 64;
pub const MAX_LABEL_LENGTH: usize = 256;
pub const MAX_COPIES: u32 = 500;
pub const MAX_DEPENDENCIES: usize = 64;
/// All text of one order together, bytes.
pub const MAX_SPEC_BYTES: usize = 256 << 10;
/// Longest limit or delay a person may set: ten years.
pub const MAX_RUN_SECONDS: u64 = 10 * 366 * 86_400;

impl SessionSpec {
    /// Seconds that it may run by the limits its owner set, and the code of the limit that comes first.
    pub fn limit(&self) -> Option<(u64, &'static str)> {
        let timeout = match self.kind {
            SessionKind::Batch => self.timeout_seconds.map(|s| (s, "session.timeout")),
            SessionKind::Interactive => None,
        };
        let longest = self.longest_run_seconds.map(|s| (s, "session.longest-run"));
        [timeout, longest].into_iter().flatten().min()
    }

    /// Bytes of its command and its variables.
    pub fn bytes(&self) -> u64 {
        let words = self.command.iter().map(String::len);
        let variables = self
            .env
            .iter()
            .map(|(name, value)| name.len() + value.len());
        words.chain(variables).map(|bytes| bytes as u64).sum()
    }

    /// Refuses what can never be right: NUL bytes, broken variable names, too much text.
    pub fn check(&self) -> Result<(), Refusal> {
        self.demand.check()?;
        if self.command.len() > MAX_ARGUMENTS {
            return Err(Refusal::invalid(
                "command.too-long",
                format!("A command has at most {MAX_ARGUMENTS} words."),
            )
            .with("most", MAX_ARGUMENTS)
            .at("/command"));
        }
        if self.command.first().is_some_and(String::is_empty) {
            return Err(Refusal::invalid(
                "command.empty",
                "The first word of a command is the program to run.",
            )
            .at("/command")
            .hint("[\"python3\", \"train.py\"] would work."));
        }
        if self.kind == SessionKind::Batch
            && self.command.is_empty()
            && self.environment == SessionEnvironment::Host
        {
            return Err(
                Refusal::invalid("command.missing", "A batch session needs a command.")
                    .at("/command")
                    .hint("[\"python3\", \"train.py\"] would work."),
            );
        }
        let mut total = 0;
        for word in &self.command {
            text("command", "/command", word, MAX_ARGUMENT_LENGTH)?;
            total += word.len();
        }
        if self.env.len() > MAX_VARIABLES {
            return Err(Refusal::invalid(
                "env.too-many",
                format!("A session has at most {MAX_VARIABLES} variables."),
            )
            .with("most", MAX_VARIABLES)
            .at("/env"));
        }
        for (name, value) in &self.env {
            let named = !name.is_empty()
                && name.len() <= MAX_LABEL_LENGTH
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !name.starts_with(|c: char| c.is_ascii_digit());
            if !named {
                return Err(Refusal::invalid(
                    "env.name-invalid",
                    "The name of a variable has letters, digits and underscores, and starts with no digit.",
                )
                .at("/env")
                .hint("OMP_NUM_THREADS would work."));
            }
            text("env", "/env", value, MAX_ARGUMENT_LENGTH)?;
            total += name.len() + value.len();
        }
        if total > MAX_SPEC_BYTES {
            return Err(Refusal::too_large(
                "session.too-large",
                format!("Command and variables together have {total} bytes; {MAX_SPEC_BYTES} is the most."),
            ).with("bytes", total).with("most", MAX_SPEC_BYTES)
            .hint("Put long scripts into a file of the image."));
        }
        for (seconds, pointer) in [
            (self.timeout_seconds, "/timeout_seconds"),
            (self.longest_run_seconds, "/longest_run_seconds"),
        ] {
            if let Some(seconds) = seconds
                && !(1..=MAX_RUN_SECONDS).contains(&seconds)
            {
                return Err(Refusal::invalid(
                    "seconds.out-of-range",
                    format!("A limit has 1 to {MAX_RUN_SECONDS} seconds."),
                )
                .with("most", MAX_RUN_SECONDS)
                .at(pointer));
            }
        }
        if self.depends_on.len() > MAX_DEPENDENCIES {
            return Err(Refusal::invalid(
                "dependency.too-many",
                format!("A session depends on at most {MAX_DEPENDENCIES} others."),
            )
            .with("most", MAX_DEPENDENCIES)
            .at("/depends_on"));
        }
        Ok(())
    }
}

/// Refuses bad labels: too many, too long, control characters or direction marks.
pub fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if labels.len() > MAX_LABELS {
        return Err(Refusal::invalid(
            "label.too-many",
            format!("A session has at most {MAX_LABELS} labels."),
        )
        .with("most", MAX_LABELS)
        .at("/labels"));
    }
    for (name, value) in labels {
        if name.is_empty() {
            return Err(Refusal::invalid("label.empty", "A label needs a name.")
                .at("/labels")
                .hint("team=vision would work."));
        }
        for part in [name, value] {
            text("label", "/labels", part, MAX_LABEL_LENGTH)?;
            plain("label", "/labels", part)?;
        }
    }
    Ok(())
}

/// Refuses text that is too long or holds a NUL byte (which ends a C string inside).
pub fn text(noun: &str, pointer: &str, value: &str, longest: usize) -> Result<(), Refusal> {
    if value.len() > longest {
        return Err(Refusal::invalid(
            format!("{noun}.too-long"),
            format!(
                "This text has {} bytes; {longest} is the most.",
                value.len()
            ),
        )
        .with("bytes", value.len())
        .with("longest", longest)
        .at(pointer));
    }
    if value.contains('\0') {
        return Err(
            Refusal::invalid(format!("{noun}.nul"), "Text cannot hold a NUL character.")
                .at(pointer)
                .hint("Remove it."),
        );
    }
    Ok(())
}

/// Whether a character turns the reading direction of what stands around it.
pub fn turns_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character is invisible: a control, a mark of direction, a space without width, a tag.
pub fn hidden(c: char) -> bool {
    c.is_control()
        || turns_direction(c)
        || matches!(c, '\u{00ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Refuses control characters and marks that turn the reading direction: what a person reads on a
/// page must be what is stored.
pub fn plain(noun: &str, pointer: &str, value: &str) -> Result<(), Refusal> {
    if value.chars().any(hidden) {
        return Err(Refusal::invalid(
            format!("{noun}.hidden-characters"),
            "This text holds invisible control characters or direction marks.",
        )
        .at(pointer)
        .hint("Type it again instead of pasting it."));
    }
    Ok(())
}

/// Names a cycle among dependencies, as the ids along it; None where there is none.
///
/// `edges` gives what each session depends on. Costs one visit a session and an edge.
pub fn cycle(
    start: SessionId,
    edges: impl Fn(SessionId) -> Vec<SessionId>,
) -> Option<Vec<SessionId>> {
    let mut path = vec![start];
    let mut todo = vec![edges(start)];
    let mut done = std::collections::BTreeSet::new();
    while let Some(next) = todo.last_mut() {
        match next.pop() {
            Some(id) if id == start => {
                path.push(id);
                return Some(path);
            }
            Some(id) if path.contains(&id) || done.contains(&id) => {}
            Some(id) => {
                path.push(id);
                todo.push(edges(id));
            }
            None => {
                todo.pop();
                if let Some(id) = path.pop() {
                    done.insert(id);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> SessionId {
        SessionId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn only_a_restart_leaves_the_end() {
        for to in SessionState::ALL {
            assert_eq!(
                SessionState::Ended.may_become(to),
                to == SessionState::Pending
            );
        }
    }

    #[test]
    fn no_phase_follows_itself() {
        for phase in SessionState::ALL {
            assert!(!phase.may_become(phase));
        }
    }

    #[test]
    fn a_cycle_is_named() {
        let edges = |s: SessionId| match s.0.as_u128() {
            1 => vec![id(2), id(3)],
            2 => vec![id(3)],
            3 => vec![id(1)],
            _ => vec![],
        };
        assert!(cycle(id(1), edges).is_some());
        assert_eq!(cycle(id(4), edges), None);
    }
}
