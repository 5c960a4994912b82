//! What becomes of a container that holds more of a device's memory than it may, however it came by it: it is
//! warned, then frozen, then stopped; and let go on where it may hold what it holds after all. A pure function
//! of time and of what the driver says; the caller does what it answers and writes it down. Never
//! accuses a container without a fresh figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::arbiter::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// Part of a limit that may be passed: contexts grow by themselves. 1/50 is 2 %.
const LEEWAY: u64 = 50;
/// How often to look.
pub const POLL_INTERVAL: Nanos = SECOND / 4;
/// How long the limit is passed before a word is said; with the time until the first look, two seconds.
/// Shorter: a figure taken in the middle of an allocation accuses. Longer: neighbours are short of
/// memory for longer.
const WARNED_AFTER: Nanos = 2 * SECOND - POLL_INTERVAL;
/// From the warning to the freeze: time to let go of memory.
const FROZEN_AFTER: Nanos = 2 * SECOND;
/// From the freeze to the end: time for somebody to look. It holds its memory all the while.
const STOPPED_AFTER: Nanos = 10 * SECOND;
/// How long a frozen container has to hold no more than it may before it goes on: a figure that came late is
/// no proof. Only somebody else can bring that about, who gives it more or ends a process of it. Longer: it
/// stands still, though an administrator has just helped it.
const THAWED_AFTER: Nanos = 2 * SECOND;

/// Memory of one device that one process holds, as the driver itself counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// As the host numbers processes.
    pub pid: u32,
    /// The device's own number, as in the control pages.
    pub device: [u8; 16],
    /// Contexts, modules and everything else included.
    pub bytes: u64,
}

/// Whoever knows what the driver counts. Never asked from where somebody waits for an answer.
pub trait Truth: Send + Sync {
    /// Every process that holds memory of a device of this machine, in any order; None while the driver
    /// does not answer. May take as long as the driver does.
    fn held(&self) -> Option<Vec<ProcessMemory>>;
}

/// What is to be done with a container now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchdogAction {
    Warn,
    Freeze,
    Stop,
    /// It holds no more than it may again, after a warning, or after it was frozen: then it goes on.
    Clear,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    /// Time over the limit since the last answer.
    over: Nanos,
    /// Time not over it, of one that is frozen.
    under: Nanos,
    answered: Option<WatchdogAction>,
    looked: Nanos,
}

/// The cases of one device.
#[derive(Debug, Clone, Default)]
pub struct Watchdog<Id> {
    cases: BTreeMap<Id, Case>,
}

impl<Id: Ord> Watchdog<Id> {
    pub fn new() -> Self {
        Self {
            cases: BTreeMap::new(),
        }
    }

    /// One look at a container: the bytes that its processes hold as the driver says, and what they may
    /// hold. `used` is None while the driver does not answer: then time stands still for this case.
    /// Each answer is given once. Costs O(log containers).
    pub fn look(
        &mut self,
        now: Nanos,
        id: Id,
        used: Option<u64>,
        limit: u64,
    ) -> Option<WatchdogAction> {
        let over = used.map(|used| used > limit.saturating_add(limit / LEEWAY));
        let case = match over {
            Some(false) => {
                let case = self.cases.get_mut(&id)?;
                if case.answered == Some(WatchdogAction::Stop) {
                    return None;
                }
                // What is frozen cannot let go of anything by itself: its figure may only be late.
                if case.answered == Some(WatchdogAction::Freeze) {
                    case.under += now.saturating_sub(case.looked);
                    case.looked = now;
                    if case.under < THAWED_AFTER {
                        return None;
                    }
                }
                let warned = case.answered.is_some();
                self.cases.remove(&id);
                return warned.then_some(WatchdogAction::Clear);
            }
            None => {
                if let Some(case) = self.cases.get_mut(&id) {
                    case.looked = now;
                }
                return None;
            }
            Some(true) => self.cases.entry(id).or_insert(Case {
                over: 0,
                under: 0,
                answered: None,
                looked: now,
            }),
        };
        case.under = 0;
        case.over += now.saturating_sub(case.looked);
        case.looked = now;
        let (after, answer) = match case.answered {
            None => (WARNED_AFTER, WatchdogAction::Warn),
            Some(WatchdogAction::Warn) => (FROZEN_AFTER, WatchdogAction::Freeze),
            Some(WatchdogAction::Freeze) => (STOPPED_AFTER, WatchdogAction::Stop),
            Some(WatchdogAction::Stop | WatchdogAction::Clear) => return None,
        };
        if case.over < after {
            return None;
        }
        case.over = 0;
        case.answered = Some(answer);
        Some(answer)
    }

    /// What was answered last to each that is not cleared, for whoever has to go on later.
    pub fn answered(&self) -> impl Iterator<Item = (&Id, WatchdogAction)> {
        self.cases
            .iter()
            .filter_map(|(id, case)| Some((id, case.answered?)))
    }

    /// Goes on where another one stood when it gave this answer; the time since counts for nothing.
    pub fn go_on(&mut self, now: Nanos, id: Id, answered: WatchdogAction) {
        self.cases.insert(
            id,
            Case {
                over: 0,
                under: 0,
                answered: Some(answered),
                looked: now,
            },
        );
    }

    /// Forgets every case but those that are `there`: of containers that are gone.
    pub fn keep(&mut self, there: impl Fn(&Id) -> bool) {
        self.cases.retain(|id, _| there(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1 << 30;
    const STEP: Nanos = POLL_INTERVAL;

    /// Looks four times a second at what `used` says, and gives every answer with its time.
    fn looks(seconds: u64, used: impl Fn(Nanos) -> Option<u64>) -> Vec<(u64, WatchdogAction)> {
        let mut dog = Watchdog::new();
        (0..=seconds * 4)
            .filter_map(|step| {
                let now = step * STEP;
                let answer = dog.look(now, 1, used(now), LIMIT)?;
                Some((now / (SECOND / 1000), answer))
            })
            .collect()
    }

    /// Proves too: `whoever_gets_past_the_hooks_is_warned_frozen_and_stopped_and_their_neighbour_is_not`
    #[test]
    fn whoever_holds_too_much_is_warned_frozen_and_stopped_in_that_order() {
        assert_eq!(
            looks(60, |_| Some(2 * LIMIT)),
            [
                (1750, WatchdogAction::Warn),
                (3750, WatchdogAction::Freeze),
                (13_750, WatchdogAction::Stop)
            ]
        );
    }

    #[test]
    fn a_moment_a_little_and_the_limit_itself_are_no_offence() {
        assert_eq!(looks(60, |_| Some(LIMIT)), []);
        assert_eq!(looks(60, |_| Some(LIMIT + LIMIT / 50)), []);
        // Over for a second and a half, again and again.
        let now_and_then = |now| {
            Some(if now % (3 * SECOND) < 6 * STEP {
                2 * LIMIT
            } else {
                0
            })
        };
        assert_eq!(looks(60, now_and_then), []);
        let one_byte = |_| Some(LIMIT + LIMIT / 50 + 1);
        assert_eq!(looks(3, one_byte), [(1750, WatchdogAction::Warn)]);
    }

    #[test]
    fn whoever_lets_go_after_the_warning_is_cleared_and_begins_anew() {
        let used = |now| {
            Some(if !(3 * SECOND..=10 * SECOND).contains(&now) {
                2 * LIMIT
            } else {
                0
            })
        };
        let answers = looks(13, used);
        assert_eq!(
            answers,
            [
                (1750, WatchdogAction::Warn),
                (3000, WatchdogAction::Clear),
                (12_000, WatchdogAction::Warn)
            ]
        );
    }

    /// Proves too: `whoever_gets_past_the_hooks_is_warned_frozen_and_stopped_and_their_neighbour_is_not`
    #[test]
    fn a_driver_that_does_not_answer_accuses_and_clears_nobody() {
        assert_eq!(looks(60, |_| None), []);
        // A second over, a minute of silence, and the case goes on where it was.
        let used = |now| (now <= SECOND || now > 61 * SECOND).then_some(2 * LIMIT);
        assert_eq!(looks(63, used), [(61_750, WatchdogAction::Warn)]);
    }

    #[test]
    fn what_is_frozen_is_not_let_off_by_a_late_figure_but_by_somebody() {
        let mut dog = Watchdog::new();
        let mut last = None;
        for step in 0..=16 {
            last = dog.look(step * STEP, 7, Some(2 * LIMIT), LIMIT).or(last);
        }
        assert_eq!(last, Some(WatchdogAction::Freeze));
        assert_eq!(dog.look(5 * SECOND, 7, Some(0), LIMIT), None);
        // Over again: what was under counts for nothing any more.
        assert_eq!(dog.look(6 * SECOND, 7, Some(2 * LIMIT), LIMIT), None);
        assert_eq!(
            dog.look(20 * SECOND, 7, Some(2 * LIMIT), LIMIT),
            Some(WatchdogAction::Stop)
        );
        // Killed, and not yet gone.
        assert_eq!(dog.look(30 * SECOND, 7, Some(0), LIMIT), None);
        assert_eq!(dog.look(40 * SECOND, 7, Some(0), LIMIT), None);
        dog.keep(|id| *id != 7);
        assert_eq!(dog.look(21 * SECOND, 7, Some(2 * LIMIT), LIMIT), None);
    }

    #[test]
    fn whoever_may_hold_it_after_all_goes_on() {
        let mut dog = Watchdog::new();
        dog.go_on(0, 7, WatchdogAction::Freeze);
        let answers: Vec<(u64, WatchdogAction)> = (1..=40)
            .filter_map(|step| {
                let now = step * STEP;
                // Given three times as much in the third second.
                let limit = if now < 3 * SECOND { LIMIT } else { 3 * LIMIT };
                Some((
                    now / (SECOND / 1000),
                    dog.look(now, 7, Some(2 * LIMIT), limit)?,
                ))
            })
            .collect();
        assert_eq!(answers, [(4750, WatchdogAction::Clear)]);
        assert_eq!(dog.answered().count(), 0);
    }

    #[test]
    fn another_one_goes_on_where_the_first_stood() {
        let mut first = Watchdog::new();
        let mut told = Vec::new();
        for step in 0..=8 {
            told.extend(first.look(step * STEP, 7, Some(2 * LIMIT), LIMIT));
        }
        assert_eq!(told, [WatchdogAction::Warn]);
        let mut next = Watchdog::new();
        for (id, answered) in first.answered() {
            next.go_on(0, *id, answered);
        }
        let answers: Vec<(u64, WatchdogAction)> = (1..=60)
            .filter_map(|step| {
                let now = step * STEP;
                Some((
                    now / (SECOND / 1000),
                    next.look(now, 7, Some(2 * LIMIT), LIMIT)?,
                ))
            })
            .collect();
        // Not warned again, and neither frozen nor stopped for the time in which nobody looked.
        assert_eq!(
            answers,
            [
                (2000, WatchdogAction::Freeze),
                (12_000, WatchdogAction::Stop)
            ]
        );
    }
}
