//! Scenario: writes into a folder that lies in the pool, in turns with the same writes on the disk that the pool itself lies on.
//! Both meet the same kernel and the same load, so that their ratio is a figure where either one alone is none.
//!
//! Sequential writes are to reach 0.9 of what the disk takes without the pool, and synced ones all of it.

use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::order::Order;
use super::random::Random;
use super::root::Root;
use super::run_with_figures;
use super::upgrade::Packages;
use crate::failure::Failure;
use crate::figures;

/// Turns of each side. Fewer: one that met other work of the machine moves the median.
const ROUNDS: usize = 9;
/// Bytes of a sequential write, in pieces of a MiB. Larger: the pool of the bed grows meanwhile.
const STREAM: usize = 128;
const PIECE: usize = 1 << 20;
/// Writes of one block, each synced before the next.
const SYNCED: usize = 300;
const BLOCK: usize = 4096;
/// Blocks of the file that is written over and over.
const BLOCKS: usize = 64;
const KEPT: &str = "kept";

/// What each ratio may not be below.
const SEQUENTIAL: f64 = 0.9;
const DURABLE: f64 = 1.0;

/// Runs it, prints what was measured, and fails where a ratio is missed; takes the last of the packages.
pub(super) fn run(root: &Root, packages: &Packages) -> Result<(), Failure> {
    // A disk in memory would never make a write wait, and the pool is there for those that do.
    let disk = root.disk("pool")?;
    let remove = || match fs::remove_file(&disk) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::new(format!("{}: {error}", disk.display())))
        }
        _ => Ok(()),
    };
    remove()?;
    let mut order = Order::new(root, include_str!("pool.sh"));
    order.disk = Some(disk.clone());
    order.shares.push(super::own_program()?);
    packages.give(&mut order);
    let (code, measured) = run_with_figures(&order, None)?;
    remove()?;
    match code {
        0 => figures::judged(&measured),
        code => Err(Failure::new(format!("the scenario ended with {code}"))),
    }
}

/// Writes to both directories in turns and prints the figures on one line.
pub(super) fn measure(native: &Path, pooled: &Path) -> Result<(), Failure> {
    let noise = noise();
    let mut all = Measured::default();
    for place in [native, pooled] {
        let path = place.join(KEPT);
        let mut work = Work::begin(&path)?;
        work.write(&noise[..BLOCKS * BLOCK])?;
        work.sync()?;
    }
    // Streams come last: what they leave free on the disk itself has been written to, and new files are to lie where nothing was
    // yet. In the pool nothing lies there either, but zeros.
    in_turns(native, pooled, &mut all.new, &mut |place, round| {
        synced(&place.join(format!("new-{round}")), &noise, false)
    })?;
    in_turns(native, pooled, &mut all.again, &mut |place, _| {
        synced(&place.join(KEPT), &noise, true)
    })?;
    in_turns(native, pooled, &mut all.reused, &mut |place, _| {
        reused(&place.join("reused"), &noise)
    })?;
    in_turns(native, pooled, &mut all.streams, &mut |place, _| {
        streamed(&place.join("stream"), &noise)
    })?;
    println!("{}", all.told());
    Ok(())
}

/// Has each side take its turns. Who comes second meets what the first one left, so that they change places.
fn in_turns(
    native: &Path,
    pooled: &Path,
    sides: &mut Sides,
    work: &mut dyn FnMut(&Path, usize) -> Result<f64, Failure>,
) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        let mut turns = [(native, false), (pooled, true)];
        if round % 2 == 1 {
            turns.reverse();
        }
        for (place, is_pooled) in turns {
            sides.note(is_pooled, work(place, round)?);
        }
    }
    Ok(())
}

/// Bytes that no disk makes fewer of.
fn noise() -> Vec<u8> {
    let mut random = Random::new(1);
    let words = (0..PIECE / 8).map(|_| random.next().to_le_bytes());
    words.flatten().collect()
}

/// MB a second of one new file, until all of it is on the disk. Removes it.
fn streamed(path: &Path, noise: &[u8]) -> Result<f64, Failure> {
    // What an earlier turn left to the disk is its own.
    rustix::fs::sync();
    let mut work = Work::begin(path)?;
    let began = Instant::now();
    for _ in 0..STREAM {
        work.write(noise)?;
    }
    work.sync()?;
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_file(path).map_err(fault(path))?;
    Ok((STREAM * PIECE) as f64 / seconds / 1e6)
}

/// Writes a second of one block each, which is on the disk before the next: to the end of a new file, or again over the blocks of
/// one that is there.
fn synced(path: &Path, noise: &[u8], is_again: bool) -> Result<f64, Failure> {
    rustix::fs::sync();
    let mut work = match is_again {
        true => Work::go_on(path)?,
        false => Work::begin(path)?,
    };
    let began = Instant::now();
    for number in 0..SYNCED {
        if is_again && number % BLOCKS == 0 {
            work.rewind()?;
        }
        work.write(&noise[..BLOCK])?;
        work.sync()?;
    }
    Ok(SYNCED as f64 / began.elapsed().as_secs_f64())
}

/// As a new file that is synced, where one of as many blocks was removed a moment ago: a disk gives the next one the same.
fn reused(path: &Path, noise: &[u8]) -> Result<f64, Failure> {
    let mut before = Work::begin(path)?;
    for _ in 0..(SYNCED * BLOCK).div_ceil(PIECE) {
        before.write(noise)?;
    }
    before.sync()?;
    fs::remove_file(path).map_err(fault(path))?;
    drop(before);
    let rate = synced(path, noise, false)?;
    fs::remove_file(path).map_err(fault(path))?;
    Ok(rate)
}

/// A file that is written, and its path for what is said of it.
struct Work<'a> {
    file: File,
    path: &'a Path,
}

impl<'a> Work<'a> {
    fn begin(path: &'a Path) -> Result<Self, Failure> {
        let file = File::create_new(path).map_err(fault(path))?;
        Ok(Self { file, path })
    }

    fn go_on(path: &'a Path) -> Result<Self, Failure> {
        let file = File::options().write(true).open(path);
        let file = file.map_err(fault(path))?;
        Ok(Self { file, path })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(fault(self.path))
    }

    fn rewind(&mut self) -> Result<(), Failure> {
        self.file.rewind().map_err(fault(self.path))
    }

    fn sync(&self) -> Result<(), Failure> {
        self.file.sync_all().map_err(fault(self.path))
    }
}

fn fault(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(format!("{}: {error}", path.display()))
}

/// What both sides took, a sample for each turn.
#[derive(Default)]
struct Sides {
    native: Vec<f64>,
    pooled: Vec<f64>,
}

impl Sides {
    fn note(&mut self, is_pooled: bool, sample: f64) {
        match is_pooled {
            true => self.pooled.push(sample),
            false => self.native.push(sample),
        }
    }

    /// The median of what each turn took beside the other's turn next to it: a machine that is slower for a while is so for both.
    /// None where nothing was measured.
    fn ratio(&self) -> Option<f64> {
        let turns = self.pooled.iter().zip(&self.native);
        let ratios: Vec<f64> = turns.map(|(pooled, native)| pooled / native).collect();
        median(&ratios).map(rounded)
    }

    fn rows(&self, unit: &str) -> Value {
        let side = |samples: &[f64]| {
            let all: Vec<f64> = samples.iter().copied().map(rounded).collect();
            json!({"median": median(samples).map(rounded), "samples": all})
        };
        json!({
            "unit": unit, "pool": side(&self.pooled), "native": side(&self.native),
            "ratio": self.ratio(),
        })
    }
}

/// What each kind of writes took.
#[derive(Default)]
struct Measured {
    streams: Sides,
    new: Sides,
    reused: Sides,
    again: Sides,
}

impl Measured {
    fn told(&self) -> Value {
        let target = |what: &str, sides: &Sides, least: f64| {
            let measured = sides.ratio();
            json!({
                "what": what, "measured": measured, "target": format!("≥ {least}"),
                "met": measured.is_some_and(|ratio| ratio >= least),
            })
        };
        json!({
            "what": "writes into a folder in the pool, in turns with the same on the disk below it",
            "sequential": self.streams.rows("MB/s"),
            "synced": self.new.rows("writes/s"),
            "synced_where_a_file_was": self.reused.rows("writes/s"),
            "synced_again": self.again.rows("writes/s"),
            "targets": [
                target("pool: sequential writes, × native", &self.streams, SEQUENTIAL),
                target("pool: 4 KiB to the end of a new file, each synced, × native", &self.new, DURABLE),
                target("pool: 4 KiB to the end of a file where another was, each synced, × native", &self.reused, DURABLE),
                target("pool: 4 KiB over what is there, each synced, × native", &self.again, DURABLE),
            ],
        })
    }
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn rounded(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(native: &[f64], pooled: &[f64]) -> Sides {
        Sides {
            native: native.to_vec(),
            pooled: pooled.to_vec(),
        }
    }

    #[test]
    fn a_pool_that_is_slower_than_promised_is_told_and_one_turn_alone_is_none() {
        let measured = Measured {
            // The machine was slow for both in the second turn, and for one alone in the third.
            streams: sides(&[100.0, 10.0, 100.0], &[95.0, 9.5, 20.0]),
            new: sides(&[100.0, 100.0, 10.0], &[99.0, 98.0, 200.0]),
            reused: sides(&[1.0], &[1.5]),
            again: sides(&[1.0], &[2.0]),
        };
        let said = measured.told();
        let row = |number: usize| {
            (
                &said["targets"][number]["measured"],
                &said["targets"][number]["met"],
            )
        };
        assert_eq!(row(0), (&json!(0.95), &json!(true)));
        assert_eq!(row(1), (&json!(0.99), &json!(false)));
        assert_eq!(row(2), (&json!(1.5), &json!(true)));
        assert_eq!(row(3), (&json!(2.0), &json!(true)));
        let missed = figures::judged(&said).unwrap_err();
        assert!(missed.0.contains("new file"), "{}", missed.0);
        assert!(!missed.0.contains("sequential"), "{}", missed.0);
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let said = Measured::default().told();
        for row in said["targets"].as_array().unwrap() {
            assert_eq!(row["met"], false, "{row}");
        }
    }

    #[test]
    fn writes_go_where_they_are_said_to_and_sides_take_turns() {
        let place = std::env::temp_dir().join(format!("fardel-pool-test-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let noise = noise();
        assert_eq!(noise.len(), PIECE);
        let path = place.join("new");
        assert!(synced(&path, &noise, true).is_err(), "it is not there yet");
        assert!(synced(&path, &noise, false).unwrap() > 0.0);
        let length = || fs::metadata(&path).unwrap().len();
        assert_eq!(length(), (SYNCED * BLOCK) as u64);
        assert!(synced(&path, &noise, true).unwrap() > 0.0);
        assert_eq!(length(), (SYNCED * BLOCK) as u64, "no longer than before");
        assert!(synced(&path, &noise, false).is_err(), "it is there");
        assert!(reused(&place.join("reused"), &noise).unwrap() > 0.0);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "it is gone");
        fs::remove_dir_all(&place).unwrap();
        let mut both = Sides::default();
        let mut order = Vec::new();
        in_turns(&place, Path::new("/pool"), &mut both, &mut |side, round| {
            order.push((side == place, round));
            Ok(1.0)
        })
        .unwrap();
        assert_eq!(both.native.len(), ROUNDS);
        assert_eq!(both.pooled.len(), ROUNDS);
        assert_eq!(order[..4], [(true, 0), (false, 0), (false, 1), (true, 1)]);
    }
}
