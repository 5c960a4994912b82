//! Which blocks does a bar of the floor plan draw, and how wide? Shares too small to be seen are summed by
//! owner, and what is free keeps its true width. Pure: knows neither words nor colours.

/// Thousandths of a bar below which a share is summed with others. Higher: sessions vanish in sums that could be
/// told apart. Lower: blocks on a phone are narrower than their own edge.
const SMALL: u64 = 20;

/// Thousandths of a whole bar.
pub const FULL: u16 = 1000;

/// One share on a bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanShare<'a> {
    /// Empty where the reader may not know it.
    pub owner: &'a str,
    pub weight: u64,
    /// Never summed with others: the session of this page, a hardware partition.
    pub alone: bool,
}

/// Shares that are drawn as one block: one share, the small ones of an owner, or those of several owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnBlock {
    /// Places of the shares in the list; never empty.
    pub members: Vec<usize>,
    pub weight: u64,
    /// Thousandths of the bar.
    pub width: u16,
}

/// A bar as it is drawn. Widths and `free` sum to `FULL`, unless there is nothing at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrawnBar {
    pub blocks: Vec<DrawnBlock>,
    /// What no share holds, and its width in thousandths.
    pub left: u64,
    pub free: u16,
}

/// The bar of a machine of `whole` with these shares. Shares of unknown owners become one block, those below a
/// fiftieth of the bar one for each owner, and what is still smaller than that one for all of them. At most 53
/// blocks beside those that stay alone. Costs shares × blocks.
///
/// The width of what is free is off by less than a thousandth while some block is wide enough to give way.
pub fn drawn(whole: u64, shares: &[PlanShare<'_>]) -> DrawnBar {
    let held: u64 = shares.iter().map(|share| share.weight).sum();
    let total = whole.max(held);
    let left = total - held;
    let mut blocks = grouped(total, shares);
    let weights: Vec<u64> = blocks
        .iter()
        .map(|block| block.weight)
        .chain([left])
        .collect();
    let widths = widths(&weights, Some(weights.len() - 1));
    for (block, width) in blocks.iter_mut().zip(&widths) {
        block.width = *width;
    }
    let free = widths.last().copied().unwrap_or_default();
    DrawnBar { blocks, left, free }
}

/// Which shares are drawn together: large ones in their order, then sums of small ones. Widths are left open.
pub fn grouped(total: u64, shares: &[PlanShare<'_>]) -> Vec<DrawnBlock> {
    let small =
        |weight: u64| u128::from(weight) * u128::from(FULL) < u128::from(total) * u128::from(SMALL);
    let mut blocks: Vec<DrawnBlock> = Vec::new();
    let mut sums: Vec<(&str, DrawnBlock)> = Vec::new();
    for (place, share) in shares.iter().enumerate() {
        let block = DrawnBlock {
            members: vec![place],
            weight: share.weight,
            width: 0,
        };
        if share.alone || (!share.owner.is_empty() && !small(share.weight)) {
            blocks.push(block);
            continue;
        }
        match sums.iter_mut().find(|(owner, _)| *owner == share.owner) {
            Some((_, sum)) => sum.take(block),
            None => sums.push((share.owner, block)),
        }
    }
    let mut rest: Option<DrawnBlock> = None;
    for (owner, sum) in sums {
        match (&mut rest, small(sum.weight) && !owner.is_empty()) {
            (_, false) => blocks.push(sum),
            (Some(rest), true) => rest.take(sum),
            (None, true) => rest = Some(sum),
        }
    }
    blocks.extend(rest);
    blocks
}

impl DrawnBlock {
    fn take(&mut self, other: Self) {
        self.members.extend(other.members);
        self.weight += other.weight;
    }
}

/// Thousandths that sum to `FULL` in proportion to the weights (largest remainder); at least 1 for a weight above
/// 0, taken from the widest but the one at `keep`. All 0 where every weight is 0.
pub fn widths(weights: &[u64], keep: Option<usize>) -> Vec<u16> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if total == 0 {
        return vec![0; weights.len()];
    }
    let full = u128::from(FULL);
    let exact = weights.iter().map(|weight| u128::from(*weight) * full);
    let mut widths: Vec<u16> = exact
        .clone()
        .map(|exact| u16::try_from(exact / total).unwrap_or(FULL))
        .collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    let rests: Vec<u128> = exact.map(|exact| exact % total).collect();
    order.sort_by(|a, b| rests[*b].cmp(&rests[*a]));
    let given: u16 = widths.iter().sum();
    for place in order.into_iter().take(usize::from(FULL - given)) {
        widths[place] += 1;
    }
    for place in 0..widths.len() {
        if weights[place] == 0 || widths[place] > 0 {
            continue;
        }
        let widest = |keep: Option<usize>| {
            (0..widths.len())
                .filter(|other| Some(*other) != keep && widths[*other] > 1)
                .max_by_key(|other| widths[*other])
        };
        if let Some(other) = widest(keep).or_else(|| widest(None)) {
            widths[other] -= 1;
            widths[place] = 1;
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random and are the same in every run.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, most: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % most.max(1)
        }
    }

    const OWNERS: [&str; 5] = ["", "mina", "jae", "sora", "hana"];

    #[test]
    fn widths_sum_to_the_machine_and_what_is_free_is_exact() {
        let mut dice = Dice(11);
        for world in 0..1_000 {
            let whole = 1 + dice.below(1 << 40);
            let count = [0, 1, 2, 50, 500][dice.below(5) as usize];
            let mut left = whole;
            let shares: Vec<PlanShare> = (0..count)
                .map(|_| {
                    let most =
                        [left, whole / 10, whole / 100, whole / 2_000][dice.below(4) as usize];
                    let weight = (1 + dice.below(most)).min(left);
                    left -= weight;
                    PlanShare {
                        owner: OWNERS[dice.below(5) as usize],
                        weight,
                        alone: dice.below(40) == 0,
                    }
                })
                .filter(|share| share.weight > 0)
                .collect();
            let bar = drawn(whole, &shares);
            let sum: u16 = bar.blocks.iter().map(|block| block.width).sum();
            assert_eq!(sum + bar.free, FULL, "world {world}");
            assert_eq!(bar.left, left, "world {world}");
            let weights: u64 = bar.blocks.iter().map(|block| block.weight).sum();
            assert_eq!(weights + bar.left, whole, "world {world}");
            let mut members: Vec<usize> =
                bar.blocks.iter().flat_map(|b| b.members.clone()).collect();
            members.sort_unstable();
            assert!(
                members.into_iter().eq(0..shares.len()),
                "world {world}: each share once"
            );
            let off = (f64::from(bar.free) - left as f64 / whole as f64 * 1000.0).abs();
            let gives_way = bar.blocks.iter().any(|block| block.width > 1);
            assert!(
                off <= 1.0 || !gives_way,
                "world {world}: free is off by {off}"
            );
            let alone = shares.iter().filter(|share| share.alone).count();
            assert!(
                bar.blocks.len() <= 53 + alone,
                "world {world}: {}",
                bar.blocks.len()
            );
            assert!(
                bar.blocks.iter().all(|block| block.width > 0),
                "world {world}: none vanishes"
            );
        }
    }

    fn shares<'a>(owners: &[(&'a str, u64)]) -> Vec<PlanShare<'a>> {
        let share = |(owner, weight): &(&'a str, u64)| PlanShare {
            owner,
            weight: *weight,
            alone: false,
        };
        owners.iter().map(share).collect()
    }

    #[test]
    fn small_shares_are_summed_by_owner_and_the_smallest_of_several_owners_together() {
        let mut all = vec![("mina", 300)];
        all.extend([("mina", 10); 4]);
        all.extend([("jae", 5), ("sora", 6), ("", 1), ("", 40)]);
        let bar = drawn(1000, &shares(&all));
        let seen: Vec<(Vec<usize>, u16)> = bar
            .blocks
            .iter()
            .map(|block| (block.members.clone(), block.width))
            .collect();
        let expected = [
            (vec![0], 300),
            (vec![1, 2, 3, 4], 40),
            (vec![7, 8], 41),
            (vec![5, 6], 11),
        ];
        assert_eq!(seen, expected);
        assert_eq!((bar.left, bar.free), (608, 608));
    }

    #[test]
    fn fifty_sessions_leave_the_free_room_its_width() {
        // 18.3 of 22.4 GiB are free: 4 GiB in 50 slices of as many owners.
        let names: Vec<String> = (0..50).map(|n| format!("user{n}")).collect();
        let owners: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 82)).collect();
        let bar = drawn(22_400, &shares(&owners));
        assert_eq!((bar.blocks.len(), bar.blocks[0].members.len()), (1, 50));
        assert_eq!((bar.left, bar.free), (18_300, 817));
    }

    #[test]
    fn more_than_the_machine_has_fills_the_bar() {
        let bar = drawn(100, &shares(&[("mina", 150), ("jae", 50)]));
        let widths: Vec<u16> = bar.blocks.iter().map(|block| block.width).collect();
        assert_eq!((widths, bar.left, bar.free), (vec![750, 250], 0, 0));
        assert_eq!(drawn(0, &[]), DrawnBar::default());
    }

    #[test]
    fn widths_fill_the_bar_and_none_vanishes() {
        let table: [(&[u64], Option<usize>, &[u16]); 6] = [
            (&[1, 1, 1], None, &[334, 333, 333]),
            (&[8, 0, 0], None, &[1000, 0, 0]),
            (&[1, 1_000_000], None, &[1, 999]),
            (&[1, 600_000, 400_000], Some(1), &[1, 600, 399]),
            (&[], None, &[]),
            (&[0, 0], None, &[0, 0]),
        ];
        for (weights, keep, expected) in table {
            assert_eq!(widths(weights, keep), expected, "{weights:?}");
        }
    }
}
