//! How are shares that are drawn as one block named, coloured and filled? Turns the groups of the floor plan into
//! blocks of a bar.

use super::components::{self, Block, BlockKind};
use super::floor_plan::{self, PlanShare};
use crate::doors::text::Text;

/// A block with whose it is; the name is empty where the reader may not know it.
pub(super) struct OwnedBlock {
    pub block: Block,
    pub owner: String,
    /// Never joined with others.
    pub alone: bool,
}

/// The blocks of a bar of `whole`, small ones joined by owner; `amount` writes a weight, `in_use` how much of it is in
/// use, in per cent. Keeps the order of the large ones.
pub(super) fn join(
    t: Text,
    whole: u64,
    blocks: Vec<OwnedBlock>,
    amount: impl Fn(u64) -> String,
    in_use: impl Fn(u8) -> String,
) -> Vec<Block> {
    let shares: Vec<PlanShare<'_>> = blocks
        .iter()
        .map(|one| PlanShare {
            owner: &one.owner,
            weight: one.block.weight,
            alone: one.alone || one.block.kind == BlockKind::Mine,
        })
        .collect();
    let held: u64 = shares.iter().map(|share| share.weight).sum();
    let groups = floor_plan::grouped(whole.max(held), &shares);
    groups
        .into_iter()
        .map(|group| match group.members[..] {
            [only] => blocks[only].block.clone(),
            _ => joined(t, &group.members, group.weight, &blocks, &amount, &in_use),
        })
        .collect()
}

fn joined(
    t: Text,
    members: &[usize],
    weight: u64,
    blocks: &[OwnedBlock],
    amount: impl Fn(u64) -> String,
    in_use: impl Fn(u8) -> String,
) -> Block {
    let all = || members.iter().map(|place| &blocks[*place]);
    let count = members.len() as u64;
    let first = &blocks[members[0]];
    let owners: std::collections::BTreeSet<&str> = all().map(|one| one.owner.as_str()).collect();
    let (name, note) = match (first.owner.as_str(), owners.len()) {
        ("", 1) => (
            t.plan_others().to_owned(),
            t.plan_small_others(amount(weight), count),
        ),
        (owner, 1) => (t.plan_small(count), format!("{} · {owner}", amount(weight))),
        (_, several) => (
            t.plan_small(count),
            t.plan_small_of(amount(weight), several as u64),
        ),
    };
    let busy: Option<u64> = all()
        .map(|one| Some(u64::from(one.block.busy?) * one.block.weight))
        .sum();
    let busy = busy.map(|busy| components::percent(busy as f64 / 100.0, weight as f64));
    Block {
        hue: match owners.len() {
            1 => first.block.hue,
            _ => 8,
        },
        busy,
        fill: first.block.fill,
        label: busy.map_or_else(String::new, in_use),
        note,
        ..Block::plain(BlockKind::Session, name, weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, owner: &str, weight: u64, busy: Option<u8>) -> OwnedBlock {
        OwnedBlock {
            block: Block {
                hue: 3,
                busy,
                href: Some(format!("/sessions/{name}")),
                ..Block::plain(BlockKind::Session, name.to_owned(), weight)
            },
            owner: owner.to_owned(),
            alone: false,
        }
    }

    #[test]
    fn a_joined_block_says_how_many_it_stands_for_and_what_they_hold() {
        let t = Text::default();
        let mut blocks = vec![one("vit", "mina", 500, Some(50))];
        blocks.extend((0..3).map(|_| one("nb", "mina", 10, Some(60))));
        blocks.extend([one("a", "jae", 5, Some(0)), one("b", "sora", 5, None)]);
        blocks.extend([one("", "", 20, None), one("", "", 40, None)]);
        let used = |percent: u8| format!("{percent}% used");
        let joined = join(t, 1000, blocks, |weight| weight.to_string(), used);
        let seen: Vec<_> = joined
            .iter()
            .map(|block| {
                (
                    block.name.as_str(),
                    block.note.as_str(),
                    block.busy,
                    block.hue,
                )
            })
            .collect();
        let expected = [
            ("vit", "", Some(50), 3),
            ("3 small", "30 · mina", Some(60), 3),
            ("others", "60 · 2 sessions", None, 3),
            ("2 small", "10 · 2 owners", None, 8),
        ];
        assert_eq!(seen, expected);
        assert_eq!([&*joined[1].label, &*joined[2].label], ["60% used", ""]);
        assert!(joined[0].href.is_some() && joined[1..].iter().all(|block| block.href.is_none()));
    }

    #[test]
    fn the_session_of_the_page_is_never_joined() {
        let mut blocks: Vec<OwnedBlock> = (0..4).map(|_| one("nb", "mina", 1, None)).collect();
        blocks[2].block.kind = BlockKind::Mine;
        let number = |weight: u64| weight.to_string();
        let joined = join(Text::default(), 1000, blocks, number, |_| String::new());
        let kinds: Vec<BlockKind> = joined.iter().map(|block| block.kind).collect();
        assert_eq!(kinds, [BlockKind::Mine, BlockKind::Session]);
    }
}
