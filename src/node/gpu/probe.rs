//! The host's end of `gpu_probe`, the helper that loads the vendor's management library. The vendor's
//! code can hang, die or talk nonsense: each question has a time-out, a helper that fails is killed and
//! another is started after a pause that grows, and what is not answered is not known. Where the helper
//! cannot run at all, `nvidia-smi` is read instead. Never loads a library, and decides nothing about a
//! device.

mod child;
pub mod smi;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::driver::Driver;
use super::watchdog::ProcessMemory;
use child::Child;

/// The helper, as the build script made it. Dynamic, needs glibc 2.34 or newer.
pub static PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gpu_probe"));

/// How long nothing is asked after so many failures in a row; the last pause repeats. Shorter: a sick driver
/// is kept busy with dying processes. Longer: a card that is well again reads unknown for longer.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(20),
    Duration::from_secs(60),
];

/// Helpers that were killed and are still there, because the kernel does not let go of them. More: a sick
/// driver fills the machine with processes that nobody can end.
const MAX_STUCK: usize = 3;

/// How long an answer may take.
#[derive(Debug, Clone, Copy)]
pub struct ProbeTimeouts {
    /// The first of a helper: the driver may have to wake eight cards first, which takes seconds each.
    pub first: Duration,
    /// Every other. Longer: a sick card delays what is told of the well ones.
    pub later: Duration,
}

impl Default for ProbeTimeouts {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(30),
            later: Duration::from_secs(5),
        }
    }
}

/// Why a question has no answer. Each says what was seen; none ends anything but the helper.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("it cannot be started")]
    Start(#[source] io::Error),
    #[error("it did not answer within {} ms and was ended", .0.as_millis())]
    Silent(Duration),
    #[error("it ended by itself{0}")]
    Ended(HelperOutput),
    #[error("what it said is no answer")]
    Rubbish,
    #[error("the driver's library says: {0}")]
    Library(String),
    #[error("it failed {0} times in a row and is tried again later")]
    Resting(usize),
    #[error("{0} of its predecessors cannot be ended by the kernel")]
    Stuck(usize),
}

/// The last words of a helper, to be put behind a sentence; nothing where it had none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperOutput(pub String);

impl fmt::Display for HelperOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "" => Ok(()),
            words => write!(f, " and said: {words}"),
        }
    }
}

/// What the driver says of all cards.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct DriverReport {
    pub cards: Vec<CardTold>,
    /// Faults since the last question.
    #[serde(default)]
    pub faults: Vec<FaultTold>,
    /// The library can hold control groups to a part of a card.
    #[serde(default)]
    pub limits: bool,
}

/// What the driver says of one card; None where it does not say.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CardTold {
    /// Why the rest is missing: `lost`, or the library's own words.
    pub error: Option<String>,
    pub uuid: Option<String>,
    pub model: Option<String>,
    pub pci: Option<String>,
    pub memory: Option<u64>,
    pub cores: Option<u32>,
    /// The generation of its processors.
    pub ability: Option<(u32, u32)>,
    pub links: Vec<LinkTold>,
    /// The partitions of a card that is cut; None where it is whole.
    pub parts: Option<Vec<PartTold>>,
    pub uncorrected_errors: Option<u64>,
    pub retirement_pending: Option<bool>,
    /// Corrected, uncorrected, waiting for a reset, failed.
    pub remapped_rows: Option<[u32; 4]>,
    pub slowed_by: Option<u64>,
}

/// A link that is up.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LinkTold {
    pub pci: Option<String>,
    pub switch: Option<bool>,
}

/// A hardware partition.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PartTold {
    pub uuid: Option<String>,
    /// Ends in the word for its size.
    pub model: Option<String>,
    pub memory: Option<u64>,
    pub multiprocessors: Option<u32>,
    /// The numbers of its two instances.
    pub instances: Option<(u32, u32)>,
}

/// A fault that the driver reports, by the vendor's number (Xid).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FaultTold {
    pub uuid: String,
    pub number: u64,
}

/// What a card is doing; None where the driver does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FigureTold {
    pub error: Option<String>,
    pub uuid: Option<String>,
    /// Bytes in use by everybody.
    pub memory: Option<u64>,
    /// Per cent of the time in which something ran.
    pub busy: Option<u32>,
    pub celsius: Option<u32>,
    pub milliwatts: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Figures {
    cards: Vec<FigureTold>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HeldTold {
    error: Option<String>,
    uuid: Option<String>,
    held: Vec<(u32, u64)>,
}

#[derive(Debug, Deserialize)]
struct AllHeld {
    cards: Vec<HeldTold>,
}

#[derive(Debug, Deserialize)]
struct ProbeAnswer<T> {
    number: Option<u64>,
    told: Option<T>,
    error: Option<String>,
}

/// Whoever is asked about the cards of one driver.
#[derive(Debug)]
pub struct Probe {
    library: PathBuf,
    /// Where the helper is written to where it cannot be run from memory.
    copy: PathBuf,
    smi: Option<PathBuf>,
    patience: ProbeTimeouts,
    helper: Option<Child>,
    asked: u64,
    failed: usize,
    not_before: Option<Instant>,
    stuck: Vec<Child>,
    /// The helper has answered at least once since this was made: the other way is then not needed.
    answered: bool,
    on_disk: bool,
}

impl Probe {
    /// Whoever is asked about this driver; `copy` names a file that may be made. Starts nothing yet.
    pub fn of(driver: &Driver, copy: &Path) -> Self {
        Self::new(driver.management_library(), driver.smi(), copy)
    }

    /// The same for a library, and a program to read where the helper cannot run.
    pub fn new(library: &Path, smi: Option<&Path>, copy: &Path) -> Self {
        Self {
            library: library.to_owned(),
            copy: copy.to_owned(),
            smi: smi.map(Path::to_owned),
            patience: ProbeTimeouts::default(),
            helper: None,
            asked: 0,
            failed: 0,
            not_before: None,
            stuck: Vec::new(),
            answered: false,
            on_disk: false,
        }
    }

    pub fn with_patience(mut self, patience: ProbeTimeouts) -> Self {
        self.patience = patience;
        self
    }

    /// The helper's process number; None while there is none.
    pub fn pid(&self) -> Option<u32> {
        self.helper.as_ref().map(Child::pid)
    }

    /// Whether the last helper was run from a file, because it could not be run from memory.
    pub fn ran_from_disk(&self) -> bool {
        self.on_disk
    }

    /// Ends the helper: the next question starts another, which looks at the machine afresh.
    pub fn restart(&mut self) {
        if let Some(helper) = self.helper.take() {
            self.bury(helper);
        }
    }

    /// What the driver says of its cards. Costs milliseconds, and at most the patience.
    pub fn cards(&mut self) -> Result<DriverReport, ProbeError> {
        match self.ask("cards") {
            Err(fault) => match self.other_way(&fault) {
                Some(program) => smi::cards(program, self.patience.first).map_err(|_| fault),
                None => Err(fault),
            },
            told => told,
        }
    }

    /// What each card is doing; cards that do not answer are left out.
    pub fn figures(&mut self) -> Result<Vec<FigureTold>, ProbeError> {
        let figures = match self.ask::<Figures>("figures") {
            Ok(figures) => figures.cards,
            Err(fault) => match self.other_way(&fault) {
                Some(program) => smi::figures(program, self.patience.first).map_err(|_| fault)?,
                None => return Err(fault),
            },
        };
        let told = figures.into_iter().filter(|card| card.error.is_none());
        Ok(told.collect())
    }

    /// What every process holds of every card, by the host's process numbers. No answer at all where one
    /// card does not answer: half a list would clear whoever is on the other half.
    pub fn held(&mut self) -> Result<Vec<ProcessMemory>, ProbeError> {
        let cards = match self.ask::<AllHeld>("held") {
            Ok(all) => all.cards,
            Err(fault) => {
                return match self.other_way(&fault) {
                    Some(program) => smi::held(program, self.patience.first).map_err(|_| fault),
                    None => Err(fault),
                };
            }
        };
        let mut all = Vec::new();
        for card in cards {
            // A card that is gone holds nothing for anybody.
            if card.error.as_deref() == Some("lost") {
                continue;
            }
            if let Some(error) = card.error {
                return Err(ProbeError::Library(error));
            }
            let device = card.uuid.as_deref().and_then(number_of);
            let device = device.ok_or(ProbeError::Rubbish)?;
            all.extend(card.held.into_iter().map(|(pid, bytes)| ProcessMemory {
                pid,
                device,
                bytes,
            }));
        }
        Ok(all)
    }

    /// The program to read instead: only where the helper never worked here. One that worked and fails has
    /// met a sick driver, and would not be the only one to hang.
    fn other_way(&self, fault: &ProbeError) -> Option<&Path> {
        let helper_cannot_run = matches!(
            fault,
            ProbeError::Start(_) | ProbeError::Ended(_) | ProbeError::Resting(_)
        );
        match helper_cannot_run && !self.answered {
            true => self.smi.as_deref(),
            false => None,
        }
    }

    /// Cuts the card of this name into these sizes, largest first, or makes it whole where there are none.
    /// Nothing may run on it. Takes seconds; what stands then is in `cards`.
    ///
    /// Errors: also the driver's own words for the step that it refused. The card then has no partition, or
    /// is as it was.
    pub fn partition(&mut self, card: &str, sizes: &[String]) -> Result<(), ProbeError> {
        let told = json!({"ask": "partition", "card": card, "sizes": sizes});
        let _: serde_json::Value = self.ask_for(told)?;
        Ok(())
    }

    fn ask<T: DeserializeOwned>(&mut self, question: &str) -> Result<T, ProbeError> {
        self.ask_for(json!({"ask": question}))
    }

    fn ask_for<T: DeserializeOwned>(
        &mut self,
        mut question: serde_json::Value,
    ) -> Result<T, ProbeError> {
        self.stuck.retain_mut(|child| !child.is_gone());
        if self.stuck.len() >= MAX_STUCK {
            return Err(ProbeError::Stuck(self.stuck.len()));
        }
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return Err(ProbeError::Resting(self.failed));
        }
        let (mut helper, patience) = match self.helper.take() {
            Some(helper) => (helper, self.patience.later),
            None => (self.start()?, self.patience.first),
        };
        self.asked += 1;
        question["number"] = self.asked.into();
        let line = format!("{question}\n");
        match helper.exchange(line.as_bytes(), patience) {
            Ok(answer) => match serde_json::from_slice::<ProbeAnswer<T>>(&answer) {
                Ok(answer) if answer.number == Some(self.asked) => {
                    self.helper = Some(helper);
                    self.failed = 0;
                    self.not_before = None;
                    self.answered = true;
                    match (answer.told, answer.error) {
                        (Some(told), _) => Ok(told),
                        (None, Some(error)) => Err(ProbeError::Library(error)),
                        (None, None) => Err(ProbeError::Rubbish),
                    }
                }
                _ => Err(self.failed(helper, ProbeError::Rubbish)),
            },
            Err(child::ProbeFault::Silent) => {
                Err(self.failed(helper, ProbeError::Silent(patience)))
            }
            Err(child::ProbeFault::Ended) => {
                let said = HelperOutput(helper.last_words());
                Err(self.failed(helper, ProbeError::Ended(said)))
            }
        }
    }

    /// Has the driver hold a control group to so many bytes of a card; None: to nothing any more. Costs as
    /// `cards`, and there is no other way.
    pub fn limit(
        &mut self,
        card: &str,
        group: &Path,
        bytes: Option<u64>,
    ) -> Result<(), ProbeError> {
        self.ask_for::<bool>(json!({
            "ask": "limit",
            "card": card,
            "group": group.to_string_lossy(),
            "bytes": bytes,
        }))
        .map(|_| ())
    }

    fn start(&mut self) -> Result<Child, ProbeError> {
        let started = Child::from_memory(PROBE, &self.library).or_else(|_| {
            self.on_disk = true;
            Child::from_file(PROBE, &self.copy, &self.library)
        });
        started.map_err(|error| {
            self.rest();
            ProbeError::Start(error)
        })
    }

    fn failed(&mut self, helper: Child, fault: ProbeError) -> ProbeError {
        self.bury(helper);
        self.rest();
        fault
    }

    fn rest(&mut self) {
        let pause = PAUSES[self.failed.min(PAUSES.len() - 1)];
        self.failed += 1;
        self.not_before = Some(Instant::now() + pause);
    }

    fn bury(&mut self, mut helper: Child) {
        helper.kill();
        if !helper.is_gone() {
            self.stuck.push(helper);
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.restart();
    }
}

/// A card's own number, from the name that the driver spells it with; None where that is no such name.
pub fn number_of(uuid: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = uuid
        .strip_prefix("GPU-")?
        .bytes()
        .filter(|byte| *byte != b'-')
        .map(|byte| {
            (byte as char)
                .to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
        })
        .collect::<Option<_>>()?;
    let mut number = [0; 16];
    if digits.len() != 2 * number.len() {
        return None;
    }
    for (byte, pair) in number.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cards_name_is_its_number_and_nothing_else_is_one() {
        let number = number_of("GPU-00112233-4455-6677-8899-aabbccddeeff").expect("a name");
        assert_eq!((number[0], number[1], number[15]), (0, 0x11, 0xff));
        for wrong in [
            "",
            "GPU-",
            "00112233-4455-6677-8899-aabbccddeeff",
            "GPU-00112233-4455-6677-8899-aabbccddeef",
            "GPU-00112233-4455-6677-8899-aabbccddeeffff",
            "GPU-0011223g-4455-6677-8899-aabbccddeeff",
            "GPU-????????-????-????-????-????????????",
        ] {
            assert_eq!(number_of(wrong), None, "{wrong}");
        }
    }
}
