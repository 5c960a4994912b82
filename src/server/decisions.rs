//! The decision log: each turn of the controller that decided something leaves what it looked at and what it decided, so that
//! any of them can be decided again. A thread of its own writes; no turn waits for it. Reading needs the files alone, with
//! or without a server beside them. Chooses no place; `rules::placement` does.
//!
//! A frame has four lines: its head, what changed in the world since the frame before, the decisions, and a hash over
//! these and the hash before. At least once an hour, and at the begin of each file, a frame has the whole world. A turn that
//! is left out, because the disk is slow or full, is counted in the head of the next frame.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use rules::audit::{AuditHash, NO_HASH, hex};
use rules::placement::{self, Decision};
use rules::refusals;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;
use rules::world_change::WorldChange;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use store::frames::{self, FrameReader, FrameRing};

use crate::Failure;

/// Below the directory of the state.
const DIRECTORY: &str = "decisions";
/// Longer: more frames are read to decide one again. Shorter: whole worlds take the room of decisions.
const WHOLE_AFTER_SECONDS: u64 = 3_600;
/// Turns that wait for the disk. Higher: more memory beside a slow disk, for a large site megabytes each. Lower: a disk that
/// is busy for a moment leaves turns out.
const MAX_UNWRITTEN: usize = 8;

/// One turn that decided something.
pub(crate) struct DecidedTurn {
    pub(crate) world: ClusterSnapshot,
    pub(crate) now: Timestamp,
    pub(crate) decisions: Vec<Decision>,
}

/// A turn on its way to the disk, and how many were left out right before it.
type ToldTurn = (DecidedTurn, u64);

/// Where turns are told to. Its thread ends once this is dropped and what was told is written.
pub(crate) struct DecisionLog {
    told: Option<SyncSender<ToldTurn>>,
    /// Turns that found no room since the last one that did.
    left_out: AtomicU64,
}

impl DecisionLog {
    /// Keeps a log in this directory of a state; None keeps none.
    pub(crate) fn open(data: Option<&Path>) -> Self {
        Self {
            told: data.and_then(Self::begin),
            left_out: AtomicU64::new(0),
        }
    }

    /// Begins the thread that writes.
    fn begin(data: &Path) -> Option<SyncSender<ToldTurn>> {
        let directory = data.join(DIRECTORY);
        let (told, turns) = sync_channel(MAX_UNWRITTEN);
        let begun = thread::Builder::new()
            .name("decisions".to_owned())
            .spawn(move || keep(&directory, &turns));
        match begun {
            Ok(_) => Some(told),
            Err(error) => {
                tracing::warn!(%error, "no decision log is kept");
                None
            }
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.told.is_some()
    }

    /// Writes a turn later; never waits. One that finds no room is left out and counted; the next one then says more.
    pub(crate) fn tell(&self, turn: DecidedTurn) {
        let Some(told) = &self.told else {
            return;
        };
        let left_out = self.left_out.load(Ordering::Relaxed);
        let left_out = match told.try_send((turn, left_out)) {
            Ok(()) => 0,
            Err(TrySendError::Full(_)) => {
                if left_out == 0 {
                    tracing::warn!("turns are left out of the decision log: the disk is slow");
                }
                left_out + 1
            }
            // The thread has said why it ended.
            Err(TrySendError::Disconnected(_)) => left_out,
        };
        self.left_out.store(left_out, Ordering::Relaxed);
    }
}

fn keep(directory: &Path, turns: &Receiver<ToldTurn>) {
    let mut writer = match DecisionWriter::open(directory) {
        Ok(writer) => writer,
        Err(error) => {
            tracing::warn!(%error, "the decision log cannot be opened");
            return;
        }
    };
    let mut is_well = true;
    while let Ok((turn, left_out)) = turns.recv() {
        writer.left_out += left_out;
        let written = writer.write(turn);
        if let Err(error) = &written {
            writer.left_out += 1;
            if is_well {
                tracing::warn!(%error, "the decision log cannot be written");
            }
        }
        is_well = written.is_ok();
    }
}

#[derive(Serialize, Deserialize)]
struct FrameHead {
    number: u64,
    at: Timestamp,
    /// The change is from an empty world.
    is_whole: bool,
    /// Turns between the frame before and this one that are not in the log.
    #[serde(default)]
    left_out: u64,
}

/// What the newest frame left.
struct NewestFrame {
    world: ClusterSnapshot,
    hash: AuditHash,
    whole_at: Timestamp,
}

struct DecisionWriter {
    ring: FrameRing,
    next: u64,
    /// None before the first frame of this process, and after an error.
    newest: Option<NewestFrame>,
    /// Turns since the newest frame that are not in the log.
    left_out: u64,
}

impl DecisionWriter {
    fn open(directory: &Path) -> io::Result<Self> {
        let ring = FrameRing::open(directory)?;
        Ok(Self {
            next: ring.newest().map_or(1, |number| number + 1),
            ring,
            newest: None,
            left_out: 0,
        })
    }

    /// Writes one frame and gives its number. Costs one comparison a session, and a copy of each that changed.
    fn write(&mut self, turn: DecidedTurn) -> io::Result<u64> {
        let DecidedTurn {
            world,
            now,
            decisions,
        } = turn;
        let is_young = |newest: &NewestFrame| {
            newest.whole_at <= now && now.seconds_since(newest.whole_at) < WHOLE_AFTER_SECONDS
        };
        let begins = self.ring.begins_file();
        let newest = self.newest.take();
        let newest = newest.filter(|newest| !begins && is_young(newest));
        let head = FrameHead {
            number: self.next,
            at: now,
            is_whole: newest.is_none(),
            left_out: self.left_out,
        };
        let mut newest = newest.unwrap_or_else(|| NewestFrame {
            world: ClusterSnapshot::default(),
            hash: NO_HASH,
            whole_at: now,
        });
        let change = WorldChange::between(&newest.world, &world);
        let sessions = change.sessions_of(&world);
        // Let go before anything waits: the controller copies a list that is shared before it changes a session of it.
        drop(world);
        let mut text = line(&head)?;
        for part in [line(&change)?, line(&decisions)?] {
            text.push('\n');
            text.push_str(&part);
        }
        newest.hash = chained(&newest.hash, &text);
        text.push('\n');
        text.push_str(&hex(&newest.hash));
        self.ring.push(head.number, text.as_bytes())?;
        WorldChange { sessions, ..change }.apply(&mut newest.world);
        self.next += 1;
        self.left_out = 0;
        self.newest = Some(newest);
        Ok(head.number)
    }
}

fn line<T: Serialize>(value: &T) -> io::Result<String> {
    serde_json::to_string(value).map_err(io::Error::other)
}

/// The hash of a frame: of the one before and of its own first three lines.
fn chained(previous: &AuditHash, body: &str) -> AuditHash {
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(body.as_bytes());
    hash.finalize().into()
}

/// One decision of the log, as a list has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoggedDecision {
    pub number: u64,
    pub at: Timestamp,
    /// Sessions that got a place.
    pub placed: usize,
    /// Sessions that ended because they could never start.
    pub ended: usize,
    /// Turns right before it that are not in the log: the disk was slow or full.
    pub left_out: u64,
}

/// A decision that was decided again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayedDecision {
    pub number: u64,
    pub at: Timestamp,
    /// Whether both texts have the same bytes.
    pub same: bool,
    /// Decisions as they were written, as JSON.
    pub recorded: String,
    pub replayed: String,
}

/// A frame that was read.
struct ReadFrame {
    head: FrameHead,
    body: String,
    hash: String,
}

impl ReadFrame {
    /// Errors: text that is no frame.
    fn parse(text: Vec<u8>) -> io::Result<Self> {
        let text = String::from_utf8(text).map_err(io::Error::other)?;
        let (body, hash) = text.rsplit_once('\n').ok_or_else(incomplete)?;
        let head = body.lines().next().unwrap_or_default();
        Ok(Self {
            head: serde_json::from_str(head)?,
            body: body.to_owned(),
            hash: hash.to_owned(),
        })
    }

    fn line(&self, at: usize) -> io::Result<&str> {
        self.body.split('\n').nth(at).ok_or_else(incomplete)
    }
}

fn incomplete() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a line is missing")
}

/// The newest decisions in the log of this state, newest last.
///
/// Errors: `state.not-yours`, `rehearse.decision-damaged`.
pub fn newest(data: &Path, most: usize) -> Result<Vec<LoggedDecision>, Failure> {
    listed(&data.join(DIRECTORY), most).map_err(|error| unreadable(data, &error))
}

fn listed(directory: &Path, most: usize) -> io::Result<Vec<LoggedDecision>> {
    let mut read = VecDeque::new();
    let files = frames::files(directory)?;
    // The two newest files: after a new one began, the one before has the others.
    for path in &files[files.len().saturating_sub(2)..] {
        let mut reader = FrameReader::open(path)?;
        while let Some(frame) = reader.next()? {
            if read.len() == most {
                read.pop_front();
            }
            read.push_back(frame);
        }
    }
    let mut listed = Vec::new();
    for frame in read {
        // One that cannot be read keeps no other from the list; asked for, it says so.
        let Ok(frame) = frame.text().and_then(ReadFrame::parse) else {
            continue;
        };
        let decisions: Vec<Decision> = serde_json::from_str(frame.line(2)?)?;
        let is_placed = |one: &&Decision| matches!(one, Decision::Place { .. });
        let placed = decisions.iter().filter(is_placed).count();
        listed.push(LoggedDecision {
            number: frame.head.number,
            at: frame.head.at,
            placed,
            ended: decisions.len() - placed,
            left_out: frame.head.left_out,
        });
    }
    Ok(listed)
}

/// Decides again what was decided: the world of that moment is put together from the log, and the rules of this program
/// are asked.
///
/// Errors: `rehearse.decision-unknown`, `rehearse.decision-damaged`, `state.not-yours`.
pub fn replay(data: &Path, number: u64) -> Result<ReplayedDecision, Failure> {
    let found = decided_again(&data.join(DIRECTORY), number);
    let found = found.map_err(|error| unreadable(data, &error))?;
    found.ok_or_else(|| refusals::rehearse_decision_unknown(number).into())
}

fn decided_again(directory: &Path, number: u64) -> io::Result<Option<ReplayedDecision>> {
    let files = frames::files(directory)?;
    let begins_before =
        |path: &&PathBuf| frames::first_of(path).is_some_and(|first| first <= number);
    let Some(path) = files.iter().rev().find(begins_before) else {
        return Ok(None);
    };
    // Those since the newest whole world.
    let mut since: Vec<ReadFrame> = Vec::new();
    // What stands before a whole world is of no use, damaged or not.
    let mut damage = None;
    let mut newest = None;
    let mut reader = FrameReader::open(path)?;
    while newest != Some(number)
        && let Some(frame) = reader.next()?
    {
        newest = Some(frame.number);
        match frame.text().and_then(ReadFrame::parse) {
            Ok(frame) => {
                if frame.head.is_whole {
                    since.clear();
                    damage = None;
                }
                since.push(frame);
            }
            Err(error) => damage = Some(error),
        }
    }
    if newest != Some(number) {
        return Ok(None);
    }
    if let Some(error) = damage {
        return Err(error);
    }
    let Some(wanted) = since.last() else {
        return Ok(None);
    };
    let mut world = ClusterSnapshot::default();
    let mut hash = NO_HASH;
    for frame in &since {
        hash = chained(&hash, &frame.body);
        if hex(&hash) != frame.hash {
            let error = format!("frame {} is not as it was written", frame.head.number);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let change: WorldChange = serde_json::from_str(frame.line(1)?)?;
        change.apply(&mut world);
    }
    let recorded = wanted.line(2)?.to_owned();
    let replayed = line(&placement::decide(&world, wanted.head.at))?;
    Ok(Some(ReplayedDecision {
        number,
        at: wanted.head.at,
        same: recorded == replayed,
        recorded,
        replayed,
    }))
}

fn unreadable(data: &Path, error: &io::Error) -> Failure {
    let shown = data.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => refusals::state_not_yours(shown).into(),
        _ => refusals::rehearse_decision_damaged(shown, error).into(),
    }
}

#[cfg(test)]
mod tests;
