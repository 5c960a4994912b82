//! What a session's page says of it beside the console: facts, limits, settings, and the verbs that fit its state.

use std::collections::BTreeMap;

use api::events::EventView;
use api::gpus::Gpu;
use api::sessions::SessionView;
use rules::devices::WHOLE;
use rules::egress::NetworkMode;
use rules::folder::MountAccess;
use rules::names::FolderId;
use rules::placement::MAX_PREEMPTIONS;
use rules::policy::SharePolicy;
use rules::session::{SessionKind, SessionState};
use rules::units::Timestamp;
use rules::workload::container::{MAIN, role};
use rules::workload::precedence::USUAL_PRIORITY;

use super::super::components::{self, Alert, IconFact};
use super::super::request_context::RequestContext;
use super::super::sessions::held;
use super::super::{gpus, launch, presenter, ssh_keys};
use crate::doors::launch_texts;
use crate::doors::text::{Text, codes};

/// The verbs that fit the state and the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verbs {
    pub pause: bool,
    pub resume: bool,
    pub restart: bool,
    pub limits: bool,
    pub rename: bool,
    pub stop: bool,
    pub cancel: bool,
    /// It waits: put it on hold, or release it.
    pub hold: bool,
    pub release: bool,
    pub remove: bool,
    /// Make an image of it.
    pub commit: bool,
}

/// A share of devices that can grow and shrink, and what it is worked out from while the user types.
pub struct Fraction {
    pub typed: String,
    /// Memory of the fraction where it was set apart from the share; empty: the same part.
    pub memory: String,
    /// One such device, in GiB and multiprocessors; empty before the session has one.
    pub gib: String,
    pub sms: u32,
    pub now: String,
}

impl Verbs {
    /// Whether the session is over, so that nothing in it can be lost.
    pub fn over(&self) -> bool {
        self.remove
    }

    /// Whether the menu beside the two main verbs holds anything.
    pub fn more(&self) -> bool {
        self.rename || self.pause || self.remove
    }
}

/// Whether it has a part of one device beside, or instead of, whole ones.
pub(super) fn has_fraction(session: &SessionView) -> bool {
    session.resources.mig.is_none() && !session.resources.gpu.0.is_multiple_of(WHOLE.0)
}

pub(super) fn fraction(t: Text, session: &SessionView, all: &[Gpu]) -> Option<Fraction> {
    if !has_fraction(session) {
        return None;
    }
    let given = session.resources;
    let on = |gpu: &&Gpu| session.devices.iter().any(|part| part.uuid == gpu.id);
    let gpu = all.iter().find(on);
    Some(Fraction {
        typed: given.gpu.to_string(),
        memory: given
            .gpu_memory
            .map_or_else(String::new, launch::typed_memory),
        gib: gpu.map_or_else(String::new, |gpu| launch::gib(gpu.memory)),
        sms: gpu.map_or(0, |gpu| gpu.sms),
        now: gpu.map_or_else(String::new, |gpu| launch::worth(t, gpu, given.gpu)),
    })
}

/// What its machine has against a session that runs.
pub(super) fn watched(t: Text, session: &SessionView) -> Option<Alert> {
    let reason = session.reason.as_ref()?;
    let title = match reason.code.as_str() {
        rules::codes::GPU_OVER_LIMIT_WARNED | rules::codes::GPU_OVER_LIMIT_FROZEN => {
            t.gpu_over_alert()
        }
        rules::codes::DISK_PAUSED | rules::codes::DISK_FILES_PAUSED => t.disk_alert(),
        _ => return None,
    };
    let runs = session.state == SessionState::Running;
    runs.then(|| {
        Alert::bad(title)
            .detail(codes::reason(t, reason))
            .code(reason.code.clone())
    })
}

pub(super) fn verbs(session: &SessionView, may_write: bool) -> Verbs {
    if !may_write {
        return Verbs::default();
    }
    let (state, live) = (session.state, session.state != SessionState::Ended);
    Verbs {
        pause: state == SessionState::Running && !session.paused,
        resume: state == SessionState::Running && session.paused,
        restart: matches!(state, SessionState::Running | SessionState::Ended)
            && session.document_kept,
        limits: matches!(state, SessionState::Pending | SessionState::Running)
            && session.containers == 1,
        rename: true,
        stop: live && state != SessionState::Pending,
        cancel: state == SessionState::Pending,
        hold: state == SessionState::Pending && session.held_by.is_none(),
        release: state == SessionState::Pending && session.held_by.is_some(),
        remove: !live,
        commit: state == SessionState::Running && session.image != "host",
    }
}

pub(super) fn facts(
    t: Text,
    session: &SessionView,
    policy: SharePolicy,
    events: &[EventView],
    now: Timestamp,
) -> Vec<IconFact> {
    let given = session.resources;
    let mut all = vec![
        IconFact {
            icon: match session.kind {
                SessionKind::Interactive => "notebook-pen",
                SessionKind::Batch => "play",
            },
            text: presenter::kind(t, session).to_owned(),
        },
        IconFact {
            icon: "package",
            text: session.image.clone(),
        },
    ];
    if let Some(start) = session.started_at {
        let seconds = session.ended_at.unwrap_or(now).seconds_since(start);
        // Minutes, so that a running clock is no reason to draw the page again every second.
        all.push(IconFact {
            icon: "clock",
            text: match session.ended_at {
                None if seconds < 60 => t.session_under_minute().to_owned(),
                _ => components::span(t, seconds),
            },
        });
    }
    let on_hold = time_on_hold(events) / 1000;
    if let Some(seconds) = session.waited_seconds {
        all.push(IconFact {
            icon: "hourglass",
            text: t.session_waited(components::span(t, seconds)),
        });
    }
    if on_hold > 0 {
        all.push(IconFact {
            icon: "pause",
            text: t.session_was_held(components::span(t, on_hold)),
        });
    }
    if let Some(share) = presenter::devices(t, &given, policy) {
        all.push(IconFact {
            icon: "microchip",
            text: match held(t, session, SharePolicy::default()) {
                none if none.is_empty() => share,
                held => format!("{share} · {held}"),
            },
        });
    }
    all.push(IconFact {
        icon: "cpu",
        text: t.where_given(given.cpu, components::size(given.memory.0)),
    });
    if let Some(node) = &session.node {
        all.push(IconFact {
            icon: "server",
            text: node.clone(),
        });
    }
    // Where they stand inside is what a user types first.
    let there = session.mounts.iter();
    let there = there.filter(|mount| !mount.detached || mount.stuck);
    for mount in there.take(3) {
        all.push(IconFact {
            icon: "folder",
            text: match mount.access == MountAccess::Ro || mount.over_limit {
                true => t.session_folder_at_read_only(mount.name.as_str(), mount.at.as_str()),
                false => t.session_folder_at(mount.name.as_str(), mount.at.as_str()),
            },
        });
    }
    for (name, value) in session.labels.iter().take(4) {
        all.push(IconFact {
            icon: "link",
            text: format!("{name}={value}"),
        });
    }
    all
}

/// Milliseconds that it was on hold before its latest place, as the lines of its history tell; 0 while it has no place, and
/// where the history does not reach back.
fn time_on_hold(events: &[EventView]) -> u64 {
    let (mut held, mut told) = (0, 0);
    let mut since: Option<Timestamp> = None;
    for event in events {
        match event.code.as_str() {
            "session.accepted" | rules::codes::SESSION_RESTARTED => {
                (held, told, since) = (0, 0, None)
            }
            rules::codes::SESSION_HELD => since = Some(event.at),
            "session.released" | "session.scheduled" => {
                held += since.take().map_or(0, |from| event.at.millis_since(from));
                if event.code == "session.scheduled" {
                    told = held;
                }
            }
            _ => {}
        }
    }
    told
}

/// `disk_is_held`: the machine holds the session to its disk.
pub(super) fn limits(
    t: Text,
    session: &SessionView,
    policy: SharePolicy,
    disk_is_held: bool,
) -> Vec<(String, String)> {
    let given = session.resources;
    // Equal parts, as containers of one session have them, stand in one row.
    let mut grants: Vec<(String, usize)> = Vec::new();
    for part in &session.devices {
        let mut words = t.gpu_grant(
            part.index,
            match part.profile {
                Some(profile) => profile.to_string(),
                None => gpus::share(part.share),
            },
            components::size(part.memory.0),
            t.gpu_sms_of(part.sms, part.sms_total),
        );
        for (tell, word) in [
            (part.simulated, t.gpu_simulated()),
            (!part.confirmed, t.gpu_pending()),
        ] {
            if tell {
                words.push_str(&format!(" · {word}"));
            }
        }
        match grants.iter_mut().find(|(known, _)| *known == words) {
            Some((_, number)) => *number += 1,
            None => grants.push((words, 1)),
        }
    }
    let grants = grants.into_iter().map(|(words, number)| match number {
        1 => (t.gpu_share().to_owned(), words),
        _ => (t.gpu_share().to_owned(), format!("{number} × {words}")),
    });
    let mut all: Vec<(String, String)> = grants.collect();
    if all.is_empty()
        && let Some(asked) = presenter::devices(t, &given, policy)
    {
        all.push((t.gpu_share().to_owned(), asked));
    }
    if session.containers > 1 {
        let roles = (MAIN..session.containers).map(role).collect::<Vec<_>>();
        all.push((t.session_containers().to_owned(), roles.join(", ")));
    }
    all.extend([
        (
            t.where_cpu_memory().to_owned(),
            t.where_given(given.cpu, components::size(given.memory.0)),
        ),
        (t.where_shm().to_owned(), components::size(given.shm.0)),
        (t.where_network().to_owned(), network(t, session.network)),
    ]);
    if session.sudo {
        let granted = t.where_sudo_granted().to_owned();
        all.push((t.where_sudo().to_owned(), granted));
    }
    let disk = match (given.disk, disk_is_held) {
        (None, _) => t.common_unlimited().to_owned(),
        (Some(disk), true) => components::size(disk.0),
        (Some(disk), false) => t.where_disk_not_held(components::size(disk.0)),
    };
    all.push((t.where_disk().to_owned(), disk));
    if let Some(seconds) = session.max_runtime_seconds.or(session.timeout_seconds) {
        all.push((
            t.where_max_runtime().to_owned(),
            components::span(t, seconds),
        ));
    }
    if session.yields || session.priority != USUAL_PRIORITY {
        all.push((
            t.launch_priority().to_owned(),
            match session.yields {
                true => t.where_yields(session.priority),
                false => session.priority.to_string(),
            },
        ));
    }
    if session.preempted_count > 0 {
        let (count, most) = (session.preempted_count, MAX_PREEMPTIONS);
        all.push((
            t.where_preempted().to_owned(),
            t.where_preempted_times(count, most),
        ));
    }
    all
}

/// Why a session has no terminal for its reader: what it is, and what there is instead.
pub(super) fn no_terminal(
    t: Text,
    session: &SessionView,
    may_enter: bool,
) -> (&'static str, &'static str) {
    match session.state {
        SessionState::Running if !may_enter => (t.terminal_denied(), t.terminal_denied_lead()),
        SessionState::Running => (t.terminal_paused(), t.terminal_paused_lead()),
        SessionState::Pending
        | SessionState::Scheduled
        | SessionState::Preparing
        | SessionState::Stopping
        | SessionState::Ended => (t.terminal_none(), t.terminal_none_lead()),
    }
}

/// Why no process of it is shown.
pub(super) fn no_processes(
    t: Text,
    session: &SessionView,
    may_enter: bool,
) -> (&'static str, &'static str) {
    match session.state == SessionState::Running && !may_enter {
        true => (t.terminal_denied(), t.terminal_denied_lead()),
        false => (t.processes_none(), t.processes_none_lead()),
    }
}

/// The commands that open this session from the user's own computer, with their numbers, for one that they can enter now.
/// A session of another user is called by its id: its name may be that of one of the reader's own. `ssh` is the port of SSH.
pub(super) fn remote(
    visit: &RequestContext,
    session: &SessionView,
    own: bool,
    ssh: Option<u16>,
) -> Vec<(usize, String)> {
    let scheme = if visit.secure { "https" } else { "http" };
    let called = match own {
        true => session.name.to_string(),
        false => session.id.to_string(),
    };
    let enter = match session.kind {
        SessionKind::Interactive => format!("fardel attach {called}"),
        SessionKind::Batch => format!("fardel exec -it {called} sh"),
    };
    let by_ssh = ssh.map(|port| {
        let called = match own {
            true => called.clone(),
            false => format!("{}+{}", session.owner.name, session.name),
        };
        ssh_keys::command(&called, visit, port)
    });
    [
        format!("fardel login {scheme}://{}", visit.authority),
        enter,
    ]
    .into_iter()
    .chain(by_ssh)
    .enumerate()
    .collect()
}

fn network(t: Text, mode: NetworkMode) -> String {
    let words = match mode {
        NetworkMode::None => t.where_loopback(),
        NetworkMode::List => t.where_network_list(),
        NetworkMode::Proxy => t.where_network_proxy(),
    };
    words.to_owned()
}

/// The request that it was launched with. `owners` are those of folders that are not of the session's owner.
pub(super) fn settings(
    t: Text,
    session: &SessionView,
    owners: &BTreeMap<FolderId, String>,
) -> Vec<(String, String)> {
    let shown = launch_texts::shown::<Text>().into_iter();
    let shown = shown.map(|text| ((text.title)(t).to_owned(), (text.give)(session, &t)));
    let mut all: Vec<(String, String)> = shown.filter(|(_, said)| !said.is_empty()).collect();
    if !session.document_kept {
        all.push((
            t.settings_command().to_owned(),
            t.settings_gone().to_owned(),
        ));
    }
    if !session.command.is_empty() {
        let line: Vec<String> = session
            .command
            .iter()
            .map(|word| presenter::quoted(word))
            .collect();
        all.push((t.settings_command().to_owned(), line.join(" ")));
    }
    let mounts = session.mounts.iter();
    all.extend(mounts.map(|mount| {
        let mut told = match owners.get(&mount.folder) {
            Some(owner) => format!("{owner}/{mount}"),
            None => mount.to_string(),
        };
        if mount.by_itself {
            told.push_str(&format!(" · {}", t.settings_mount_by_itself()));
        }
        if mount.over_limit {
            told.push_str(&format!(" · {}", t.settings_mount_held()));
        }
        if mount.stuck {
            told.push_str(&format!(" · {}", t.settings_mount_stuck()));
        } else if mount.detached {
            told.push_str(&format!(" · {}", t.settings_mount_detached()));
        }
        (t.settings_mount().to_owned(), told)
    }));
    if !session.targets.is_empty() {
        all.push((t.settings_target().to_owned(), session.targets.join("\n")));
    }
    all.extend(
        session
            .env
            .iter()
            .map(|(name, value)| (t.settings_env(name), value.clone())),
    );
    all.extend(
        session
            .labels
            .iter()
            .map(|(name, value)| (t.settings_label(name), value.clone())),
    );
    all
}

#[cfg(test)]
mod tests {
    use rules::units::Bytes;

    use super::*;

    #[test]
    fn a_disk_is_told_with_whether_it_is_held() {
        let t = Text::default();
        let mut session = running(false);
        let mut told = |disk: Option<u64>, is_held| {
            session.resources.disk = disk.map(Bytes::gib);
            let rows = limits(t, &session, SharePolicy::default(), is_held);
            let row = rows.into_iter().find(|(name, _)| name == t.where_disk());
            row.map(|(_, value)| value)
        };
        assert_eq!(told(Some(20), true).as_deref(), Some("20 GiB"));
        assert_eq!(
            told(Some(20), false).as_deref(),
            Some("20 GiB, not enforced here")
        );
        assert_eq!(told(None, false).as_deref(), Some("no limit"));
    }

    fn history(lines: &[(&str, i64)]) -> Vec<EventView> {
        let event = |(code, second): &(&str, i64)| EventView {
            sequence: 0,
            at: Timestamp::from_millis(second * 1000),
            actor: "mina".into(),
            topic: "sessions".into(),
            object: String::new(),
            code: (*code).into(),
            before: String::new(),
            after: String::new(),
        };
        lines.iter().map(event).collect()
    }

    fn running(paused: bool) -> SessionView {
        serde_json::from_value(serde_json::json!({
            "id": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f", "name": "a",
            "owner": {"id": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e40", "name": "kim"},
            "state": "running", "desired": "run", "kind": "interactive", "image": "host", "command": [],
            "env": {}, "labels": {}, "depends_on": [], "paused": paused, "incarnation": 1,
            "resources": {"cpu": 0.1, "memory": 67_108_864, "shm": 1}, "devices": [],
            "created_at": "2026-11-22T09:00:00Z", "started_at": "2026-11-22T10:00:00Z",
            "generation": 1,
        }))
        .expect("a session")
    }

    #[test]
    fn who_may_not_enter_is_told_so_and_a_paused_session_is_said_to_be_paused() {
        let t = Text::default();
        let denied = (t.terminal_denied(), t.terminal_denied_lead());
        for paused in [true, false] {
            assert_eq!(no_terminal(t, &running(paused), false), denied);
            assert_eq!(no_processes(t, &running(paused), false), denied);
        }
        let paused = no_terminal(t, &running(true), true);
        assert_eq!(paused, (t.terminal_paused(), t.terminal_paused_lead()));
        let stopping = SessionView {
            state: SessionState::Stopping,
            ..running(false)
        };
        for may_enter in [true, false] {
            let told = no_terminal(t, &stopping, may_enter);
            assert_eq!(told, (t.terminal_none(), t.terminal_none_lead()));
            let told = no_processes(t, &stopping, may_enter);
            assert_eq!(told, (t.processes_none(), t.processes_none_lead()));
        }
    }

    #[test]
    fn settings_begin_with_project_and_description() {
        let t = Text::default();
        let mut session = running(false);
        let mut owners = BTreeMap::new();
        assert_eq!(settings(t, &session, &owners).len(), 1);
        session.description = Some("a first try".into());
        let shown = settings(t, &session, &owners);
        let titles: Vec<&str> = shown.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(titles, [t.sessions_project(), t.launch_text_description()]);
        assert_eq!(shown[1].1, "a first try");
        let mount: api::mounts::MountView = serde_json::from_value(serde_json::json!({
            "folder": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e41", "name": "data1", "subpath": "",
            "at": "/folders/data1", "access": "ro",
        }))
        .expect("a mount");
        owners.insert(mount.folder, "kim".into());
        session.mounts.push(mount);
        let shown = settings(t, &session, &owners);
        let last = shown.last().map(|(_, told)| told.as_str());
        assert_eq!(last, Some("kim/data1:/folders/data1:ro"));
    }

    #[test]
    fn time_on_hold_is_that_of_the_timeline_and_told_once_it_has_a_place() {
        let held = [
            ("session.accepted", 0),
            ("session.held", 10),
            ("session.renamed", 20),
            ("session.released", 85),
            ("session.scheduled", 90),
            ("session.running", 91),
        ];
        assert_eq!(time_on_hold(&history(&held)), 75_000);
        assert_eq!(time_on_hold(&history(&held[..4])), 0, "it has no place yet");
        let mut again = held.to_vec();
        again.extend([
            ("session.ended", 200),
            ("session.restarted", 300),
            ("session.scheduled", 302),
        ]);
        assert_eq!(time_on_hold(&history(&again)), 0);
    }
}
