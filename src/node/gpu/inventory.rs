//! The cards of this machine, made of three sights: the kernel's list, what the driver says, and what was
//! known before. A card keeps its number as long as the machine is up, also while it is gone, since
//! containers hold shares by that number. Decides how a card is; asks nobody and changes nothing.

use std::time::{Duration, Instant};

use rules::devices::{Health, MigPart, MigProfile};
use rules::messages::DeviceUse;
use rules::resources::Device;
use rules::units::Bytes;
use serde::{Deserialize, Serialize};

use super::driver::KernelCard;
use super::probe::{CardTold, DriverReport, FaultTold, FigureTold};
use super::shares::{Real, RealPart};

/// Faults after which a card gives wrong answers or none until it is reset, by the vendor's numbers:
/// double-bit error, halted controller, failed row replacement, off the bus, uncontained error,
/// firmware that does not answer or failed.
const FATAL: [u64; 7] = [48, 62, 64, 79, 95, 119, 120];
/// Faults that say that a card wears: controller warning, replaced row, link error, many single-bit
/// errors, contained error. All others are made by programs, and say nothing of the card.
const WEARING: [u64; 5] = [61, 63, 74, 92, 94];
/// How long a wearing fault is told.
const TOLD_FOR: Duration = Duration::from_secs(24 * 3600);

/// Bits of the reasons for which a card goes slower than it could and that somebody can mend: heat, twice,
/// and the power supply's brake.
const SLOWED: u64 = 0x20 | 0x40 | 0x80;
/// Looks in a row before a card counts as slowed, or no longer. Fewer: a moment of heat makes a row in the
/// catalog, and the next moment another.
const SURE: u8 = 3;

/// What can be seen of the cards now.
pub struct CardStatus<'a> {
    /// As the kernel lists them.
    pub listed: &'a [KernelCard],
    /// None while the driver does not answer.
    pub told: Option<&'a DriverReport>,
    /// Why the driver cannot be used for anything, in one sentence; None where it can.
    pub broken: Option<&'a str>,
    /// The socket of a place on the bus.
    pub numa: &'a dyn Fn(&str) -> Option<u32>,
}

/// The cards in the order of their numbers. Written down by whoever looks, and read by the next server of
/// the same start of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    cards: Vec<InventoryEntry>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct InventoryEntry {
    pci: String,
    minor: u32,
    device: Device,
    /// The numbers of each partition's instances, in the order of the device's partitions.
    instances: Vec<(u32, u32)>,
    #[serde(skip)]
    marks: CardMarks,
}

/// What is remembered of a card from one look to the next.
#[derive(Debug, Clone, Default, PartialEq)]
struct CardMarks {
    gone: bool,
    fatal: Option<u64>,
    wearing: Option<(u64, Instant)>,
    slowed: u8,
    is_slowed: bool,
}

impl Inventory {
    /// Every card that was ever there since the machine started, by number.
    pub fn devices(&self) -> Vec<Device> {
        self.cards
            .iter()
            .map(|entry| entry.device.clone())
            .collect()
    }

    /// The same as whoever hands them out has to know them. A card whose name is not known yet is left
    /// out: nothing can be held to a share of it.
    pub fn real(&self) -> Vec<Real> {
        let named = self
            .cards
            .iter()
            .filter(|entry| !entry.device.uuid.is_empty());
        named
            .map(|entry| Real {
                index: entry.device.index,
                minor: entry.minor,
                uuid: entry.device.uuid.clone(),
                parts: (0..)
                    .zip(entry.device.mig.iter().zip(&entry.instances))
                    .map(|(number, (part, instances))| RealPart {
                        number,
                        uuid: part.uuid.clone(),
                        gpu_instance: instances.0,
                        compute_instance: instances.1,
                    })
                    .collect(),
            })
            .collect()
    }

    /// What the cards are doing, by their numbers; those that do not say are left out.
    pub fn uses(&self, figures: &[FigureTold]) -> Vec<DeviceUse> {
        let known = figures.iter().filter_map(|told| {
            let uuid = told.uuid.as_deref()?;
            let entry = self.cards.iter().find(|entry| entry.device.uuid == uuid)?;
            Some(DeviceUse {
                device: entry.device.index,
                memory: told.memory.map(Bytes),
                busy_percent: told.busy,
                celsius: told.celsius,
                milliwatts: told.milliwatts,
            })
        });
        known.collect()
    }

    /// Takes one look in.
    pub fn look(&mut self, sight: &CardStatus<'_>, now: Instant) {
        for card in sight.listed {
            let pci = place(&card.pci);
            // By its own name, wherever it is now; by its place while it has no name.
            let known = self.cards.iter().position(|entry| {
                let named = &entry.device.uuid;
                match named.is_empty() || card.uuid.is_empty() {
                    true => entry.pci == pci,
                    false => *named == card.uuid,
                }
            });
            let at = known.unwrap_or_else(|| {
                let index = u32::try_from(self.cards.len()).unwrap_or(u32::MAX);
                self.cards.push(InventoryEntry {
                    pci: pci.clone(),
                    minor: card.minor,
                    device: Device::new(index, card.model.clone()),
                    instances: Vec::new(),
                    marks: CardMarks::default(),
                });
                self.cards.len() - 1
            });
            let entry = &mut self.cards[at];
            entry.pci.clone_from(&pci);
            entry.minor = card.minor;
            if !card.uuid.is_empty() {
                entry.device.uuid.clone_from(&card.uuid);
            }
            entry.device.numa = (sight.numa)(&entry.pci);
        }
        for told in sight.told.iter().flat_map(|told| &told.cards) {
            if let Some(entry) = self.cards.iter_mut().find(|entry| entry.is(told)) {
                entry.learn(told);
            }
        }
        for fault in sight.told.iter().flat_map(|told| &told.faults) {
            let mut cards = self.cards.iter_mut();
            if let Some(entry) = cards.find(|entry| entry.device.uuid == fault.uuid) {
                entry.marks.take(fault, now);
            }
        }
        if let Some(told) = sight.told {
            self.link(told);
        }
        for entry in &mut self.cards {
            let health = entry.health(sight, now);
            entry.device.health = health;
        }
    }

    /// Numbers the groups of cards that reach each other by links of their own.
    fn link(&mut self, told: &DriverReport) {
        // Each card's group is at first itself; a link makes one of two.
        let mut groups: Vec<usize> = (0..self.cards.len()).collect();
        let join = |groups: &mut Vec<usize>, a: usize, b: usize| {
            let (from, to) = (groups[a].max(groups[b]), groups[a].min(groups[b]));
            groups
                .iter_mut()
                .filter(|g| **g == from)
                .for_each(|g| *g = to);
        };
        let mut at_switch: Option<usize> = None;
        let mut known = vec![false; self.cards.len()];
        for card in told.cards.iter().filter(|card| card.error.is_none()) {
            let Some(at) = self.cards.iter().position(|entry| entry.is(card)) else {
                continue;
            };
            known[at] = true;
            for link in &card.links {
                if link.switch == Some(true) {
                    join(&mut groups, at, *at_switch.get_or_insert(at));
                    continue;
                }
                let other = link.pci.as_deref().map(place);
                let other = self
                    .cards
                    .iter()
                    .position(|entry| Some(&entry.pci) == other.as_ref());
                if let Some(other) = other {
                    join(&mut groups, at, other);
                }
            }
        }
        for (at, entry) in self.cards.iter_mut().enumerate() {
            let many = groups.iter().filter(|group| **group == groups[at]).count() > 1;
            let number = u32::try_from(groups[at]).unwrap_or(u32::MAX);
            // Of a card that says nothing now, what was known stays.
            if known[at] || many {
                entry.device.link = many.then_some(number);
            }
        }
    }
}

impl InventoryEntry {
    fn is(&self, told: &CardTold) -> bool {
        match (&told.uuid, &told.pci) {
            (Some(uuid), _) if !self.device.uuid.is_empty() => self.device.uuid == *uuid,
            (_, Some(pci)) => self.pci == place(pci),
            _ => false,
        }
    }

    /// Takes what does not change while a card works.
    fn learn(&mut self, told: &CardTold) {
        if told.error.is_some() {
            return;
        }
        let device = &mut self.device;
        if let Some(uuid) = &told.uuid {
            device.uuid.clone_from(uuid);
        }
        if let Some(model) = &told.model {
            device.model.clone_from(model);
        }
        if let Some(memory) = told.memory {
            device.memory = Bytes(memory);
        }
        if let Some(sms) = told.cores.zip(told.ability).and_then(multiprocessors) {
            device.sms = sms;
        }
        let mut parts: Vec<_> = told
            .parts
            .iter()
            .flatten()
            .filter_map(|part| {
                // `NVIDIA H200 MIG 3g.71gb`; a partition of a partition has another word, and is not given.
                let word = part.model.as_deref()?.split_whitespace().next_back()?;
                let made = MigPart {
                    uuid: part.uuid.clone()?,
                    profile: MigProfile::parse(word).ok()?,
                    memory: Bytes(part.memory?),
                    sms: part.multiprocessors.unwrap_or(0),
                };
                Some((part.instances?, made))
            })
            .collect();
        // Their numbers stay the same while one of them goes and comes.
        parts.sort_by_key(|(instances, _)| *instances);
        (self.instances, device.mig) = parts.into_iter().unzip();
    }

    fn health(&mut self, sight: &CardStatus<'_>, now: Instant) -> Health {
        let failing = |text: &str| Health::Failing {
            text: text.to_owned(),
        };
        if !sight.listed.iter().any(|card| place(&card.pci) == self.pci) {
            self.marks.gone = true;
            return failing("It is no longer on the bus.");
        }
        if let Some(broken) = sight.broken {
            return failing(broken);
        }
        let Some(told) = sight.told else {
            return self.unknown();
        };
        let own = told.cards.iter().find(|card| self.is(card));
        // A card that is lost may not even say which one it is.
        let nameless = |card: &&CardTold| card.uuid.is_none() && card.pci.is_none();
        let error = match own {
            Some(card) => card.error.as_deref(),
            None => Some(
                told.cards
                    .iter()
                    .filter(nameless)
                    .find_map(|card| card.error.as_deref())
                    .unwrap_or("it is not listed"),
            ),
        };
        match (error, own) {
            (Some("lost"), _) => {
                self.marks.gone = true;
                failing("It has fallen off the bus; the machine has to be restarted.")
            }
            (None, Some(card)) => {
                if self.marks.gone {
                    // It was taken out and reset, or the driver was loaded again.
                    self.marks = CardMarks::default();
                }
                self.marks.slow(card.slowed_by);
                self.judged(card, now)
            }
            (Some(_), _) | (None, None) => self.unknown(),
        }
    }

    fn unknown(&self) -> Health {
        match self.device.memory {
            // A share of it would be a share of nothing.
            Bytes::ZERO => Health::Failing {
                text: "How much memory it has is not known yet.".to_owned(),
            },
            _ => Health::Unknown,
        }
    }

    fn judged(&self, card: &CardTold, now: Instant) -> Health {
        let failing = |text: String| Health::Failing { text };
        let worn = |text: String| Health::Worn { text };
        if let Some(number) = self.marks.fatal {
            return failing(format!("It had a fault that needs a reset (Xid {number})."));
        }
        if card.remapped_rows.is_some_and(|[.., failed]| failed != 0) {
            return failing("It could not replace a bad row of its memory.".to_owned());
        }
        if card.parts.is_some() && self.device.mig.is_empty() {
            return failing("It is set to be partitioned, and none is known.".to_owned());
        }
        if self.device.memory == Bytes::ZERO {
            return self.unknown();
        }
        if card
            .remapped_rows
            .is_some_and(|[_, _, pending, _]| pending != 0)
            || card.retirement_pending == Some(true)
        {
            return worn("Bad rows of its memory are replaced with the next restart.".to_owned());
        }
        match card.uncorrected_errors {
            Some(1) => {
                return worn("Its memory had an error that could not be corrected.".to_owned());
            }
            Some(count) if count > 1 => {
                return worn(format!(
                    "Its memory had {count} errors that could not be corrected."
                ));
            }
            _ => {}
        }
        match self.marks.wearing {
            Some((number, at)) if now.saturating_duration_since(at) < TOLD_FOR => {
                return worn(format!(
                    "It had a fault that says that it wears (Xid {number})."
                ));
            }
            _ => {}
        }
        match self.marks.is_slowed {
            true => worn("It is slowed down by heat or by its power supply.".to_owned()),
            false => Health::Well,
        }
    }
}

impl CardMarks {
    fn take(&mut self, fault: &FaultTold, now: Instant) {
        if FATAL.contains(&fault.number) {
            self.fatal = Some(fault.number);
        } else if WEARING.contains(&fault.number) {
            self.wearing = Some((fault.number, now));
        }
    }

    fn slow(&mut self, reasons: Option<u64>) {
        match reasons.is_some_and(|reasons| reasons & SLOWED != 0) {
            true => self.slowed = (self.slowed + 1).min(SURE),
            false => self.slowed = self.slowed.saturating_sub(1),
        }
        match self.slowed {
            SURE => self.is_slowed = true,
            0 => self.is_slowed = false,
            _ => {}
        }
    }
}

/// A place on the bus as the kernel spells it: `0000:41:00.0`. The vendor has a longer domain and large
/// letters.
fn place(pci: &str) -> String {
    let pci = pci.to_ascii_lowercase();
    match pci.split_once(':') {
        Some((domain, rest)) => match u32::from_str_radix(domain, 16) {
            Ok(domain) => format!("{domain:04x}:{rest}"),
            Err(_) => pci,
        },
        None => pci,
    }
}

/// Multiprocessors of a card with so many processors of that generation, from the vendor's programming
/// guide ("Compute Capabilities"); None for a generation that is not known here.
fn multiprocessors((cores, ability): (u32, (u32, u32))) -> Option<u32> {
    let each = match ability {
        (3, _) => 192,
        (6 | 8, 0) | (7, _) => 64,
        (5 | 6 | 8 | 9 | 10 | 11 | 12, _) => 128,
        _ => return None,
    };
    Some(cores / each)
}

/// Which socket each place on the bus hangs on, as the kernel says below `root`.
pub fn numa(root: &std::path::Path, pci: &str) -> Option<u32> {
    let path = root.join("sys/bus/pci/devices").join(pci).join("numa_node");
    // -1 where the machine has one socket, or does not say.
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
