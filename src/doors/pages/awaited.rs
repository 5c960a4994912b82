//! What must end before a waiting session can start, by name: sessions that hold what it lacks, those that end first in
//! front, and the sessions that it waits behind or after. Names nothing that the reader may not see. Pure.

use rules::names::SessionId;
use rules::placement::explain::{Explanation, Verdict};
use rules::resources::{Demand, DeviceShare};
use rules::units::{GpuShare, Timestamp};
use server::actions::sessions::{HeldSlice, NodeOverview};

use super::request_context::LocalClock;
use super::{components, presenter};
use crate::doors::text::Text;

/// One session whose end may make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedSession {
    pub href: String,
    pub name: String,
    /// Whose it is, all that it holds and when it ends: `kim · 1 GPU · 4 cores · 16 GiB · ends by 22:33`.
    pub facts: String,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwaitedSessions {
    pub sessions: Vec<AwaitedSession>,
    /// How many more there are, and how many of other users; empty where all are named.
    pub more: String,
    /// Whether some or all of them are in its way; empty where there is only one.
    pub lead: String,
}

/// Sessions that a page names. Higher: what ends first is lost among the rest.
const MAX_NAMED: usize = 6;

/// All that a slice holds, which its end gives back; none where it has nothing of what is lacking.
fn held(t: Text, slice: &HeldSlice, demand: &Demand, lacks: &Lacks) -> Option<String> {
    let fits = |part: &DeviceShare| part.part.is_some() == demand.mig.is_some();
    let helps = lacks.devices && slice.devices.iter().any(fits) || lacks.cpu || lacks.memory;
    if !helps {
        return None;
    }
    let (partitions, shares): (Vec<&DeviceShare>, Vec<&DeviceShare>) =
        slice.devices.iter().partition(|part| part.part.is_some());
    let mut words = Vec::new();
    if !shares.is_empty() {
        let share = shares.iter().map(|part| part.share).sum::<GpuShare>();
        words.push(presenter::gpu_amount(t, share));
    }
    words.extend(partitions.iter().map(|_| t.gpu_partition().to_owned()));
    words.push(t.common_cores(slice.cpu));
    words.push(components::size(slice.memory.0));
    Some(words.join(" · "))
}

/// What is short, by the blockers.
#[derive(Default)]
struct Lacks {
    devices: bool,
    cpu: bool,
    memory: bool,
    /// Only what its own user holds is in the way.
    own: bool,
}

impl Lacks {
    fn of(answer: &Explanation) -> Self {
        let mut all = Self::default();
        for blocker in &answer.blockers {
            match blocker.code.as_str() {
                rules::codes::GPU_QUOTA => (all.devices, all.own) = (true, true),
                rules::codes::CPU_SHORT => all.cpu = true,
                rules::codes::MEMORY_SHORT => all.memory = true,
                code if code.starts_with("gpu.") => all.devices = true,
                _ => {}
            }
        }
        all
    }
}

/// The sessions whose ends a request waits for. Those that it is queued behind come first, then those that hold what it
/// lacks on the nodes that could hold it: known ends in their order, then those without a time limit, largest first.
/// `owner` is whose request it is; None where nothing waits.
pub fn awaited(
    t: Text,
    clock: &LocalClock,
    machines: &[NodeOverview],
    answer: &Explanation,
    demand: &Demand,
    owner: Option<&str>,
    now: Timestamp,
) -> Option<AwaitedSessions> {
    if answer.verdict != Verdict::Wait {
        return None;
    }
    let mut told = AwaitedSessions::default();
    let mut known: Vec<SessionId> = Vec::new();
    for blocker in &answer.blockers {
        let Some((id, name)) = blocker.ends_with.zip(blocker.params.get("session")) else {
            continue;
        };
        if !known.contains(&id) {
            known.push(id);
            told.sessions.push(AwaitedSession {
                href: format!("/sessions/{id}"),
                name: name.clone(),
                facts: match blocker.code.as_str() {
                    rules::codes::QUEUE_BEHIND | rules::codes::QUEUE_KEPT => t.queue_in_front(),
                    _ => t.queue_ends_first(),
                }
                .to_owned(),
            });
        }
    }
    let before = told.sessions.len();
    let lacks = Lacks::of(answer);
    // An end on a machine of another resource group makes no room, but for what its own user holds.
    let counts = |machine: &&NodeOverview| {
        let mut rooms = answer.rooms.iter();
        lacks.own || answer.rooms.is_empty() || rooms.any(|room| room.node == machine.id)
    };
    let could = machines
        .iter()
        .filter(counts)
        .filter(|machine| presenter::could_hold(machine, demand));
    let mut holders: Vec<(&HeldSlice, String)> = could
        .flat_map(|machine| &machine.slices)
        .filter(|slice| {
            !lacks.own || slice.owner.as_ref().map(|owner| owner.name.as_str()) == owner
        })
        .filter_map(|slice| Some((slice, held(t, slice, demand, &lacks)?)))
        .collect();
    holders.sort_by_key(|(slice, _)| {
        let share: u32 = slice.devices.iter().map(|part| part.share.0).sum();
        let size = (share, slice.cpu, slice.memory);
        (slice.until.is_none(), slice.until, std::cmp::Reverse(size))
    });
    let mut others = 0_u64;
    let mut named: Vec<AwaitedSession> = Vec::new();
    for (slice, held) in holders {
        let Some((id, name)) = slice.id.zip(slice.name.as_ref()) else {
            others += 1;
            continue;
        };
        if known.contains(&id) {
            continue;
        }
        known.push(id);
        let ends = match slice.until {
            Some(at) => t.queue_ends_by(clock.near(at, now)),
            None => t.queue_no_limit().to_owned(),
        };
        let whose = slice.owner.as_ref();
        let whose = whose.map_or_else(String::new, |owner| format!("{} · ", owner.name));
        named.push(AwaitedSession {
            href: format!("/sessions/{id}"),
            name: name.clone(),
            facts: format!("{whose}{held} · {ends}"),
        });
    }
    told.lead = lead(t, before as u64, named.len() as u64 + others);
    let room = MAX_NAMED.saturating_sub(told.sessions.len());
    let beyond = named.len().saturating_sub(room);
    named.truncate(room);
    told.sessions.extend(named);
    let mut more = Vec::new();
    if beyond > 0 {
        more.push(t.attention_more(beyond));
    }
    if others > 0 {
        more.push(t.queue_ends_others(others));
    }
    told.more = more.join(" · ");
    (!told.sessions.is_empty() || others > 0).then_some(told)
}

/// Of those that it is queued behind or starts after it waits for every one, of those that hold what it lacks for enough.
fn lead(t: Text, before: u64, holders: u64) -> String {
    match (before, holders) {
        (0 | 1, 0) | (0, 1) => String::new(),
        (_, 0) => t.queue_ends_all().to_owned(),
        (0, _) => t.queue_ends_enough().to_owned(),
        (before, _) => t.queue_ends_both(before),
    }
}

#[cfg(test)]
mod tests {
    use api::sessions::Owner;
    use rules::blocker::PlacementBlocker;
    use rules::blockers;
    use rules::names::{NodeId, SessionName, UserId, UserName};
    use rules::session::SessionState;
    use rules::units::{Bytes, CpuShare};

    use super::super::request_context::RequestContext;
    use super::*;

    fn slice(name: &str, shown: bool, devices: u32, until: Option<u64>) -> HeldSlice {
        let id = name
            .bytes()
            .fold(0, |sum, byte| sum * 256 + u128::from(byte));
        HeldSlice {
            id: shown.then(|| SessionId(uuid::Uuid::from_u128(id))),
            name: shown.then(|| name.to_owned()),
            owner: shown.then(|| Owner {
                id: UserId(uuid::Uuid::nil()),
                name: UserName::parse("kim").expect("letters"),
            }),
            container: None,
            mine: shown,
            state: SessionState::Running,
            paused: false,
            cpu: CpuShare(100),
            memory: Bytes::gib(1),
            devices: (0..devices)
                .map(|index| DeviceShare {
                    share: GpuShare(100),
                    index,
                    memory: Bytes::gib(80),
                    part: None,
                    simulated: true,
                })
                .collect(),
            cpu_busy: None,
            memory_busy: None,
            until: until.map(|seconds| Timestamp::default().plus_seconds(seconds)),
        }
    }

    fn told(blocker: PlacementBlocker, slices: Vec<HeldSlice>) -> AwaitedSessions {
        let visit = RequestContext::of(
            &axum::http::HeaderMap::new(),
            &axum::http::Extensions::new(),
            "/".into(),
        );
        let machine = NodeOverview {
            id: NodeId(uuid::Uuid::nil()),
            name: "box".into(),
            seen_at: Timestamp::default(),
            silent: false,
            schedulable: true,
            host_environment: true,
            problems: Vec::new(),
            cpu: CpuShare(1600),
            cpu_room: CpuShare(1600),
            cpu_used: CpuShare(1600),
            cpu_busy: None,
            memory: Bytes::gib(64),
            memory_used: Bytes::gib(16),
            memory_busy: None,
            devices: Vec::new(),
            cordoned: Default::default(),
            slices,
        };
        let answer = Explanation {
            verdict: Verdict::Wait,
            sentence: blocker.text.clone(),
            eta: None,
            outlook: None,
            likely: None,
            replicas: None,
            node: None,
            devices: Vec::new(),
            reason: None,
            queue_position: Some(1),
            blockers: vec![blocker],
            checks: Vec::new(),
            alternatives: Vec::new(),
            rooms: Vec::new(),
            simulated: true,
        };
        let demand = Demand {
            cpu: CpuShare(100),
            ..Demand::default()
        };
        let (t, now) = (visit.text, Timestamp::default());
        awaited(
            t,
            &visit.clock,
            &[machine],
            &answer,
            &demand,
            Some("kim"),
            now,
        )
        .expect("it waits")
    }

    #[test]
    fn what_holds_devices_is_named_in_the_order_of_its_end_and_others_are_counted() {
        let short = blockers::gpu_short_whole("box", 0, GpuShare(100));
        let found = told(
            short,
            vec![
                slice("open", true, 1, None),
                slice("cpu-only", true, 0, None),
                slice("late", true, 1, Some(7200)),
                slice("hidden", false, 1, None),
                slice("soon", true, 2, Some(3600)),
            ],
        );
        let names: Vec<&str> = found.sessions.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["soon", "late", "open"]);
        assert!(
            found.sessions[0]
                .facts
                .starts_with("kim · 2 GPUs · 1 core · 1 GiB · ends by ")
        );
        assert_eq!(
            found.sessions[2].facts,
            "kim · 1 GPU · 1 core · 1 GiB · no time limit"
        );
        assert_eq!(found.lead, Text::default().queue_ends_enough());
        assert_eq!(found.more, "1 session of other users");
        assert!(!format!("{found:?}").contains("hidden"));
    }

    #[test]
    fn whoever_waits_behind_another_is_led_to_it() {
        let front = SessionId(uuid::Uuid::from_u128(7));
        let name = SessionName::parse("front").expect("letters");
        let behind = PlacementBlocker {
            ends_with: Some(front),
            ..blockers::queue_behind(&name)
        };
        let found = told(behind, Vec::new());
        assert_eq!(found.sessions.len(), 1);
        assert_eq!(found.sessions[0].href, format!("/sessions/{front}"));
        assert_eq!(found.lead, "", "there is only one");
    }

    #[test]
    fn the_lead_says_whether_all_or_enough_of_them_are_in_the_way() {
        let t = Text::default();
        for (before, holders, told) in [
            (0, 1, String::new()),
            (2, 0, t.queue_ends_all().to_owned()),
            (0, 2, t.queue_ends_enough().to_owned()),
            (1, 1, t.queue_ends_both(1)),
        ] {
            assert_eq!(lead(t, before, holders), told, "{before} and {holders}");
        }
    }
}
