//! Which colour stands for which user on a page? Distinct as long as the page names fewer users than there are colours,
//! and the same on every page for a name that no other one of the page wants the colour of. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::gpus::Gpu;
use server::actions::sessions::NodeOverview;

/// Colours of users, from 1 on; the one behind them is for what carries no name.
const HUES: u8 = 7;

/// A colour from 1 to 7 that stays with a name; 8 is for what carries no name.
pub(super) fn hue(name: &str) -> u8 {
    let sum = name.bytes().fold(7_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    u8::try_from(sum % u32::from(HUES)).expect("below 7") + 1
}

/// The colours of the users of one page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hues(BTreeMap<String, u8>);

impl Hues {
    /// Each name has its own colour; of two that want the same one, the second in the alphabet gets a free one.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Hues {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let mut given: BTreeMap<String, u8> = BTreeMap::new();
        let mut taken: BTreeSet<u8> = BTreeSet::new();
        let mut later = Vec::new();
        for name in names {
            if taken.insert(hue(name)) {
                given.insert(name.to_owned(), hue(name));
            } else {
                later.push(name);
            }
        }
        for name in later {
            let free = (1..=HUES).find(|hue| !taken.contains(hue));
            let own = free.unwrap_or_else(|| hue(name));
            taken.insert(own);
            given.insert(name.to_owned(), own);
        }
        Hues(given)
    }

    /// The colours of all who have something on these machines.
    pub fn on(machines: &[NodeOverview]) -> Hues {
        Hues::of(on(machines))
    }

    /// The colours of all who have something on these devices.
    pub fn on_gpus(gpus: &[Gpu]) -> Hues {
        let slices = gpus.iter().flat_map(|gpu| &gpu.slices);
        Hues::of(slices.filter_map(|slice| Some(slice.owner.as_ref()?.name.as_str())))
    }

    /// The same, and of users beside them, who wait or have ended.
    pub fn with<'a>(
        machines: &'a [NodeOverview],
        others: impl IntoIterator<Item = &'a str>,
    ) -> Hues {
        Hues::of(on(machines).chain(others))
    }

    pub fn get(&self, name: &str) -> u8 {
        self.0.get(name).copied().unwrap_or_else(|| hue(name))
    }
}

fn on(machines: &[NodeOverview]) -> impl Iterator<Item = &str> {
    let slices = machines.iter().flat_map(|machine| &machine.slices);
    slices.filter_map(|slice| Some(slice.owner.as_ref()?.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 12] = [
        "mina", "jae", "sora", "hana", "boss", "kim", "lee", "ann", "jo", "ed", "minji", "yuna",
    ];

    #[test]
    fn users_of_a_page_have_distinct_colours_while_there_are_enough() {
        for from in 0..NAMES.len() {
            for count in 0..=usize::from(HUES) {
                let names: Vec<&str> = NAMES
                    .iter()
                    .cycle()
                    .skip(from)
                    .take(count)
                    .copied()
                    .collect();
                let hues = Hues::of(names.iter().copied());
                let distinct: BTreeSet<u8> = names.iter().map(|name| hues.get(name)).collect();
                assert_eq!(distinct.len(), count, "{names:?}");
                assert!(distinct.iter().all(|hue| (1..=HUES).contains(hue)));
            }
        }
        let all = Hues::of(NAMES);
        let distinct: BTreeSet<u8> = NAMES.iter().map(|name| all.get(name)).collect();
        assert_eq!(distinct.len(), usize::from(HUES), "all colours are used");
    }

    #[test]
    fn a_colour_stays_with_a_name_that_nobody_disputes() {
        for name in NAMES {
            assert_eq!(Hues::of([name]).get(name), hue(name));
            assert_eq!(Hues::default().get(name), hue(name));
        }
        let twice = Hues::of(["mina", "mina"]);
        assert_eq!(twice, Hues::of(["mina"]));
    }
}
