//! Turns what the rules say (sessions, rooms, explanations) into the pieces pages show: pills, racks, previews,
//! timelines, endings. Pure: same answer for the same input, nothing is asked for.

use std::collections::BTreeMap;

use rules::names::{NodeId, SessionId, UserId};
use rules::placement::explain::{Explanation, Room, Verdict};
use rules::resources::Demand;
use rules::session::{Outcome, Phase, Session, SessionKind};
use rules::units::{Bytes, CpuShare, Timestamp};

use super::launch::Preview;
use super::parts::{self, Block, Check, Kind, Markup, Row};
use super::sessions::{End, Step, Wait};
use super::visit::Clock;
use crate::doors::text::{Text, codes};

/// What a session uses now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Cores in use.
    pub cpu: f64,
    pub memory: Bytes,
}

/// How its state looks: class of the pill, and the word.
pub fn state(t: Text, session: &Session) -> (&'static str, &'static str) {
    match session.phase {
        Phase::Pending => ("warn", t.state_waiting()),
        Phase::Scheduled | Phase::Preparing => ("acc", t.state_preparing()),
        Phase::Running if session.paused => ("", t.state_paused()),
        Phase::Running => ("ok", t.state_running()),
        Phase::Stopping if session.restart => ("acc", t.state_restarting()),
        Phase::Stopping => ("warn", t.state_stopping()),
        Phase::Ended => match session.outcome {
            Some(Outcome::Succeeded) => ("", t.state_finished()),
            Some(Outcome::Stopped) => ("", t.state_stopped()),
            Some(Outcome::Failed | Outcome::Refused) => ("bad", t.state_failed()),
            Some(Outcome::Lost) | None => ("bad", t.state_lost()),
        },
    }
}

/// Everything needed to draw racks: who sees, who is who, and what is used.
pub struct Scene<'a> {
    pub t: Text,
    /// Sessions the viewer may see; others' share is drawn without a name.
    pub sessions: &'a [Session],
    pub names: &'a BTreeMap<UserId, String>,
    pub loads: &'a BTreeMap<SessionId, Load>,
    /// The session whose page this is.
    pub mine: Option<SessionId>,
}

/// Which of the two racks of a machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Cpu,
    Memory,
}

impl Scene<'_> {
    /// CPU and memory of one machine, with a block per session, then what others hold, then what is free.
    pub fn racks(&self, room: &Room) -> [Row; 2] {
        [
            self.rack(room, Of::Cpu, None),
            self.rack(room, Of::Memory, None),
        ]
    }

    /// The same, small, with the place of a session that is about to be launched.
    pub fn racks_with(&self, room: &Room, ghost: Option<&Demand>) -> [Row; 2] {
        [
            self.rack(room, Of::Cpu, ghost),
            self.rack(room, Of::Memory, ghost),
        ]
    }

    pub fn owner(&self, session: &Session) -> &str {
        self.names.get(&session.owner).map_or("", String::as_str)
    }

    fn rack(&self, room: &Room, of: Of, ghost: Option<&Demand>) -> Row {
        let t = self.t;
        let (whole, used) = match of {
            Of::Cpu => (u64::from(room.cpu.0), u64::from(room.cpu_used.0)),
            Of::Memory => (room.memory.0, room.memory_used.0),
        };
        let amount = |value: u64| match of {
            Of::Cpu => share(CpuShare(u32::try_from(value).unwrap_or(u32::MAX))),
            Of::Memory => parts::size(value),
        };
        let mut shown = 0;
        let mut busy_now = 0.0;
        let mut blocks = Vec::new();
        for session in self.on(room.node) {
            let held = match of {
                Of::Cpu => u64::from(session.order.demand.cpu.0),
                Of::Memory => session.order.demand.memory.0,
            };
            shown += held;
            let load = self.loads.get(&session.id).copied().unwrap_or_default();
            let in_use = match of {
                Of::Cpu => load.cpu * 100.0,
                Of::Memory => load.memory.0 as f64,
            };
            busy_now += in_use;
            let busy = parts::percent(in_use, held as f64);
            let small = ghost.is_some();
            blocks.push(Block {
                kind: match () {
                    () if self.mine == Some(session.id) => Kind::Mine,
                    () if session.paused => Kind::Paused,
                    () => Kind::Session,
                },
                name: session.name.to_string(),
                note: format!("{} · {}", amount(held), self.owner(session)),
                hue: parts::hue(self.owner(session)),
                busy: (!small).then_some(busy),
                weight: held,
                href: (!small).then(|| format!("/sessions/{}", session.id)),
                label: if small {
                    String::new()
                } else {
                    t.plan_percent_busy(busy)
                },
            });
        }
        let others = used.saturating_sub(shown);
        if others > 0 {
            blocks.push(Block {
                kind: Kind::Session,
                name: t.plan_others().to_owned(),
                note: amount(others),
                hue: 8,
                busy: None,
                weight: others,
                href: None,
                label: String::new(),
            });
        }
        let mut left = whole.saturating_sub(used);
        if let Some(demand) = ghost {
            let wanted = match of {
                Of::Cpu => u64::from(demand.cpu.0),
                Of::Memory => demand.memory.0,
            };
            let fits = wanted.min(left);
            left -= fits;
            blocks.push(Block {
                kind: Kind::Ghost,
                name: t.preview_your_share(amount(wanted)),
                note: String::new(),
                hue: 0,
                busy: None,
                weight: fits,
                href: None,
                label: String::new(),
            });
        }
        if left > 0 {
            blocks.push(Block {
                kind: Kind::Free,
                name: t.common_free(amount(left)),
                note: String::new(),
                hue: 0,
                busy: None,
                weight: left,
                href: None,
                label: String::new(),
            });
        }
        let figure = match of {
            Of::Cpu => format!("{:.1}", busy_now / 100.0),
            Of::Memory => parts::size(busy_now as u64),
        };
        Row {
            name: match of {
                Of::Cpu => t.plan_cpu().to_owned(),
                Of::Memory => t.plan_memory().to_owned(),
            },
            note: match of {
                Of::Cpu => t.common_cores(room.cpu),
                Of::Memory => parts::size(room.memory.0),
            },
            blocks,
            busy: format!("{}%", parts::percent(busy_now, whole as f64)),
            trend: Markup::default(),
            figure,
            figure_of: match of {
                Of::Cpu => t.common_of_cores(room.cpu),
                Of::Memory => t.common_of(parts::size(room.memory.0)),
            },
            figure_note: t.common_free(amount(left)),
            left: if left == 0 {
                "–".to_owned()
            } else {
                amount(left)
            },
            closed: false,
            hit: ghost.is_some() && room.chosen,
        }
    }

    fn on(&self, node: NodeId) -> impl Iterator<Item = &Session> {
        self.sessions
            .iter()
            .filter(move |session| session.node == Some(node) && session.phase.holds_resources())
    }
}

/// CPU with two decimals, as racks write it: `6.00`, `0.50`.
pub fn share(cpu: CpuShare) -> String {
    format!("{}.{:02}", cpu.0 / 100, cpu.0 % 100)
}

/// The scheduler's answer as the launch page shows it. `demand` draws the ghost.
pub fn preview(scene: &Scene<'_>, answer: &Explanation, demand: &Demand, copies: u64) -> Preview {
    let t = scene.t;
    let go = if copies > 1 {
        t.launch_go_copies(copies)
    } else {
        t.launch_go().to_owned()
    };
    let (tone, icon, verdict) = match answer.verdict {
        Verdict::Now => (
            "",
            "circle-check",
            t.preview_starts_now(answer.node.as_deref().unwrap_or_default()),
        ),
        Verdict::Never => ("never", "circle-x", t.preview_never().to_owned()),
        Verdict::Wait | Verdict::Settled => ("wait", "hourglass", t.preview_waits().to_owned()),
    };
    Preview {
        tone,
        icon,
        verdict,
        detail: match answer.verdict {
            Verdict::Now => t.preview_starts_now_detail().to_owned(),
            _ => sentence(t, answer),
        },
        rows: answer
            .rooms
            .iter()
            .flat_map(|room| scene.racks_with(room, room.chosen.then_some(demand)))
            .collect(),
        checks: checks(t, answer),
        what_if: alternatives(t, answer),
        command_line: String::new(),
        go,
        blocked: answer.verdict == Verdict::Never,
    }
}

/// Why it waits or cannot run, in one sentence of the reader's language.
pub fn sentence(t: Text, answer: &Explanation) -> String {
    match (&answer.blockers[..], &answer.reason) {
        ([first, ..], _) => codes::blocker(t, first),
        ([], Some(reason)) => {
            let told = codes::reason(t, reason);
            // English: the whole sentence also says what would work.
            if told == reason.text {
                answer.sentence.clone()
            } else {
                told
            }
        }
        ([], None) => answer.sentence.clone(),
    }
}

/// What was checked, with numbers; for a waiting one, what is in the way.
pub fn checks(t: Text, answer: &Explanation) -> Vec<Check> {
    let node = answer.node.as_deref().unwrap_or_default();
    let mut all: Vec<Check> = answer
        .checks
        .iter()
        .map(|check| {
            let name = match check.code.as_str() {
                "cpu" => t.preview_check_cpu(node),
                "memory" => t.preview_check_memory(node),
                _ => t.preview_check_image().to_owned(),
            };
            Check::new(
                check.ok,
                name,
                t.preview_before_after(&check.before, &check.after, &check.limit),
            )
        })
        .collect();
    all.extend(answer.blockers.iter().map(|blocker| Check {
        icon: "hourglass",
        tone: "warn",
        name: codes::blocker(t, blocker),
        value: String::new(),
    }));
    all
}

/// Nearby requests that would start now.
pub fn alternatives(t: Text, answer: &Explanation) -> Vec<String> {
    answer
        .alternatives
        .iter()
        .map(|other| {
            t.preview_what_if_less(
                t.where_given(other.demand.cpu, parts::size(other.demand.memory.0)),
            )
        })
        .collect()
}

/// When it would start, with what that rests on; that it is unknown, where it is.
pub fn eta(t: Text, clock: &Clock, answer: &Explanation, now: Timestamp) -> String {
    match &answer.eta {
        Some(eta) => t.queue_eta_by(
            clock.near(now.plus_seconds(eta.p50_seconds), now),
            clock.near(now.plus_seconds(eta.p90_seconds), now),
        ),
        None => t.queue_eta_unknown().to_owned(),
    }
}

/// What a waiting session's console area says.
pub fn wait(t: Text, clock: &Clock, answer: &Explanation, now: Timestamp) -> Wait {
    let mut hints = vec![eta(t, clock, answer, now)];
    hints.extend(alternatives(t, answer));
    Wait {
        verdict: match answer.queue_position {
            Some(position) => t.queue_position(position),
            None => t.preview_never().to_owned(),
        },
        sentence: sentence(t, answer),
        checks: checks(t, answer),
        hints,
    }
}

/// The steps of one life with how long each took; the last open one has no length.
pub fn timeline(t: Text, clock: &Clock, session: &Session, node: Option<&str>) -> Vec<Step> {
    let mut moments: Vec<(Timestamp, &'static str, String)> =
        vec![(session.queued_at, "a", t.timeline_accepted().to_owned())];
    if let Some(at) = session.scheduled_at {
        moments.push((at, "a", t.timeline_placed(node.unwrap_or_default())));
    }
    if let Some(at) = session.started_at {
        moments.push((at, "", t.timeline_running().to_owned()));
    }
    if let Some(at) = session.stopping_at {
        moments.push((at, "w", t.timeline_stopping().to_owned()));
    }
    if let Some(at) = session.ended_at {
        moments.push((at, "i", t.timeline_ended().to_owned()));
    }
    let after: Vec<Option<Timestamp>> = moments
        .iter()
        .skip(1)
        .map(|(at, ..)| Some(*at))
        .chain([None])
        .collect();
    moments
        .into_iter()
        .zip(after)
        .map(|((at, tone, what), next)| Step {
            when: clock.second(at),
            tone,
            what,
            took: next.map_or_else(String::new, |next| parts::took(t, next.millis_since(at))),
        })
        .collect()
}

/// How it ended: verdict, reason, figures. `last_lines` is the end of its log.
pub fn end(t: Text, session: &Session, peak_memory: Option<Bytes>, last_lines: String) -> End {
    let reason = session.reason.as_ref();
    let out_of_memory = reason.is_some_and(|reason| reason.code == "session.out-of-memory");
    let (tone, icon, verdict) = match session.outcome {
        Some(Outcome::Succeeded) => ("", "circle-check", t.ended_finished().to_owned()),
        Some(Outcome::Stopped) => ("idle", "circle-stop", t.ended_stopped().to_owned()),
        Some(Outcome::Failed) if out_of_memory => {
            ("never", "circle-x", t.ended_killed_memory().to_owned())
        }
        Some(Outcome::Failed) => (
            "never",
            "circle-x",
            session
                .exit_code
                .map_or_else(|| t.state_failed().to_owned(), |code| t.ended_failed(code)),
        ),
        Some(Outcome::Refused) => ("never", "circle-x", t.ended_could_not_start().to_owned()),
        Some(Outcome::Lost) | None => ("never", "circle-x", t.state_lost().to_owned()),
    };
    let mut facts = Vec::new();
    if let Some(code) = session.exit_code {
        facts.push((t.ended_exit().to_owned(), code.to_string()));
    }
    if let (Some(start), Some(end)) = (session.started_at, session.ended_at) {
        facts.push((
            t.ended_ran().to_owned(),
            parts::took(t, end.millis_since(start)),
        ));
    }
    if let Some(peak) = peak_memory {
        facts.push((t.ended_peak_memory().to_owned(), parts::size(peak.0)));
    }
    End {
        tone,
        icon,
        verdict,
        reason: match reason {
            Some(_) if out_of_memory => {
                t.ended_killed_memory_lead(parts::size(session.order.demand.memory.0))
            }
            Some(reason) => codes::reason(t, reason),
            None => String::new(),
        },
        facts,
        last_lines,
    }
}

/// `Interactive` or `Batch job`.
pub fn kind(t: Text, session: &Session) -> &'static str {
    match session.order.kind {
        SessionKind::Interactive => t.session_interactive(),
        SessionKind::Batch => t.session_batch(),
    }
}

/// The command that would launch this from a shell.
pub fn command_line(session: &LaunchWords<'_>) -> String {
    let mut line = String::from("fardel run");
    match session.kind {
        SessionKind::Interactive => line.push_str(" -d"),
        SessionKind::Batch => line.push_str(" -d"),
    }
    let mut option = |name: &str, value: &str| {
        if !value.is_empty() {
            line.push_str(&format!(" {name} {}", quoted(value)));
        }
    };
    option("--name", session.name);
    option("--cpu", session.cpu);
    option("--mem", session.memory);
    for (name, value) in session.more {
        option(name, value);
    }
    line.push_str(&format!(" {}", quoted(session.image)));
    if !session.command.is_empty() {
        line.push_str(" --");
        for word in session.command {
            line.push_str(&format!(" {}", quoted(word)));
        }
    }
    line
}

/// What goes into a command line, as it was typed.
pub struct LaunchWords<'a> {
    pub kind: SessionKind,
    pub name: &'a str,
    pub image: &'a str,
    pub cpu: &'a str,
    /// With its unit, such as `8g`.
    pub memory: &'a str,
    pub more: &'a [(&'static str, String)],
    pub command: &'a [String],
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("a-b_c:1.2"), "a-b_c:1.2");
        assert_eq!(quoted("echo hi; exit 7"), "'echo hi; exit 7'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn what_others_hold_is_drawn_without_their_names() {
        let room = Room {
            node: NodeId(uuid::Uuid::nil()),
            name: "box".into(),
            cpu: CpuShare(1600),
            cpu_used: CpuShare(600),
            memory: Bytes::gib(64),
            memory_used: Bytes::gib(16),
            chosen: false,
        };
        let (names, loads) = (BTreeMap::new(), BTreeMap::new());
        let scene = Scene {
            t: Text::default(),
            sessions: &[],
            names: &names,
            loads: &loads,
            mine: None,
        };
        let [cpu, memory] = scene.racks(&room);
        assert_eq!(
            cpu.blocks.iter().map(|b| b.weight).collect::<Vec<_>>(),
            [600, 1000]
        );
        assert!(
            cpu.blocks[0].href.is_none() && memory.left == "48 GiB",
            "{:?}",
            memory.left
        );
        let [ghost, _] = scene.racks_with(
            &room,
            Some(&Demand {
                cpu: CpuShare(200),
                ..Demand::default()
            }),
        );
        assert_eq!(
            ghost.blocks.iter().map(|b| b.kind).collect::<Vec<_>>(),
            [Kind::Session, Kind::Ghost, Kind::Free]
        );
    }
}
