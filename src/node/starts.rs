//! How many containers a machine starts together: one for each processor while they begin, so that a
//! start takes no longer beside a flood of others, and more once those in front take too long. Never
//! starts anything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rules::names::ContainerName;

/// Containers one machine starts together at most, those that hang among them. Higher: unpacking and mounting
/// starve running sessions. Lower: starts that hang keep the others waiting.
const MAX_CONCURRENT_STARTS: usize = 16;
/// How long a start counts as beginning; a healthy one takes a tenth of it. Longer: a start that hangs
/// keeps the next one waiting. Shorter: a slow disk makes all of them begin together.
const BEGINNING: Duration = Duration::from_secs(1);

/// Starts under way.
#[derive(Debug)]
pub(crate) struct Starts {
    under_way: BTreeMap<ContainerName, Option<Instant>>,
    beginning: usize,
    /// One was put off since the last look.
    put_off: bool,
}

impl Starts {
    /// For a machine with so many processors: one container begins at a time for each, and at least one.
    pub(crate) fn on(processors: usize) -> Self {
        Self {
            under_way: BTreeMap::new(),
            beginning: processors.clamp(1, MAX_CONCURRENT_STARTS),
            put_off: false,
        }
    }

    /// Takes in which containers are being made now. Those that it did not see begin count as old.
    pub(crate) fn look(&mut self, preparing: impl Iterator<Item = ContainerName>) {
        let mut before = std::mem::take(&mut self.under_way);
        self.put_off = false;
        self.under_way = preparing
            .map(|name| (name, before.remove(&name).flatten()))
            .collect();
    }

    /// Whether one more may begin now; then it counts as begun. O(starts under way), at most 16.
    pub(crate) fn begins(&mut self, name: ContainerName, now: Instant) -> bool {
        let may = self.under_way.len() < MAX_CONCURRENT_STARTS
            && self.ends_of_beginning().filter(|end| *end > now).count() < self.beginning;
        if may {
            self.under_way.insert(name, Some(now));
        }
        self.put_off |= !may;
        may
    }

    /// It was not started after all.
    pub(crate) fn forget(&mut self, name: ContainerName) {
        self.under_way.remove(&name);
    }

    /// Until one that was put off may begin though nothing changes; None where none was, or where as many
    /// are under way as may be: then one of them changes first.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        if !self.put_off || self.under_way.len() >= MAX_CONCURRENT_STARTS {
            return None;
        }
        let mut ends: Vec<Instant> = self.ends_of_beginning().collect();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        // From this end on, fewer than may be are beginning.
        let end = ends.get(self.beginning - 1)?;
        Some(end.saturating_duration_since(now))
    }

    fn ends_of_beginning(&self) -> impl Iterator<Item = Instant> {
        let begun = self.under_way.values().flatten();
        begun.map(|begun| *begun + BEGINNING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<ContainerName> {
        (0..count)
            .map(|number| {
                let name = format!("{number:032x}-1");
                name.parse().expect("a container's name")
            })
            .collect()
    }

    #[test]
    fn one_begins_for_each_processor_and_the_next_after_it() {
        let (all, now) = (names(4), Instant::now());
        let mut starts = Starts::on(2);
        assert!(starts.begins(all[0], now) && starts.begins(all[1], now));
        assert_eq!(starts.wait(now), None, "none was put off");
        assert!(!starts.begins(all[2], now));
        assert_eq!(starts.wait(now), Some(BEGINNING));
        starts.look([all[1]].into_iter());
        assert!(starts.begins(all[2], now) && !starts.begins(all[3], now));
    }

    #[test]
    fn starts_that_hang_keep_the_next_waiting_for_a_moment_only() {
        let (all, now) = (names(MAX_CONCURRENT_STARTS + 1), Instant::now());
        let mut starts = Starts::on(1);
        let mut then = now;
        for name in &all[..MAX_CONCURRENT_STARTS - 1] {
            assert!(starts.begins(*name, then) && !starts.begins(all[MAX_CONCURRENT_STARTS], then));
            then += starts.wait(then).expect("one was put off");
        }
        assert!(starts.begins(all[MAX_CONCURRENT_STARTS - 1], then));
        assert!(
            !starts.begins(all[MAX_CONCURRENT_STARTS], then),
            "that is the most"
        );
    }

    #[test]
    fn what_an_earlier_server_began_keeps_none_waiting() {
        let (all, now) = (names(3), Instant::now());
        let mut starts = Starts::on(1);
        starts.look(all[..2].iter().copied());
        assert!(starts.begins(all[2], now));
        assert_eq!(Starts::on(0).beginning, 1);
    }
}
