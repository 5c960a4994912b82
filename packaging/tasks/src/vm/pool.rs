//! Scenario: writes into a folder that lies in the pool, in turns with the same writes on the disk that the pool itself lies on.
//! Both meet the same kernel and the same load, so that their ratio is a figure where either one alone is none.
//!
//! Promise (Data): sequential writes reach 0.9 of what the disk takes without the pool, and synced ones all of it.

use std::fs::{self, File};
use std::io::Write as _;
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

/// What each ratio may not be below.
const SEQUENTIAL: f64 = 0.9;
const DURABLE: f64 = 1.0;

/// Runs it, prints what was measured, and fails where a ratio is missed; takes the last of the packages.
pub(super) fn run(root: &Root, packages: &Packages) -> Result<(), Failure> {
    // A disk in memory would never make a write wait, and the pool is there for those that do.
    let disk = root.disk("pool")?;
    let remove = || match fs::remove_file(&disk) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
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
    let mut streams = Sides::default();
    let mut durable = Sides::default();
    for round in 0..ROUNDS {
        // Who comes second meets what the first one left to the disk.
        let mut sides = [(native, false), (pooled, true)];
        if round % 2 == 1 {
            sides.reverse();
        }
        for (place, is_pooled) in sides {
            streams.note(is_pooled, streamed(place, &noise)?);
            durable.note(is_pooled, synced(place, &noise)?);
        }
    }
    println!("{}", told(&streams, &durable));
    Ok(())
}

/// Bytes that no disk makes fewer of.
fn noise() -> Vec<u8> {
    let mut random = Random::new(1);
    let words = (0..PIECE / 8).map(|_| random.next().to_le_bytes());
    words.flatten().collect()
}

/// MB a second of one new file, until all of it is on the disk.
fn streamed(place: &Path, noise: &[u8]) -> Result<f64, Failure> {
    let seconds = timed(place, |file| {
        for _ in 0..STREAM {
            file.write_all(noise)?;
        }
        file.sync_all()
    })?;
    Ok((STREAM * PIECE) as f64 / seconds / 1e6)
}

/// Writes a second to the end of one new file, each of which is on the disk before the next.
fn synced(place: &Path, noise: &[u8]) -> Result<f64, Failure> {
    let seconds = timed(place, |file| {
        for _ in 0..SYNCED {
            file.write_all(&noise[..BLOCK])?;
            file.sync_all()?;
        }
        Ok(())
    })?;
    Ok(SYNCED as f64 / seconds)
}

/// How long the work on a new file takes. Removes the file, and leaves the disk nothing to do for who comes next.
fn timed(
    place: &Path,
    work: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> Result<f64, Failure> {
    let path = place.join("written");
    let fault = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    let mut file = File::create(&path).map_err(fault)?;
    let began = Instant::now();
    work(&mut file).map_err(fault)?;
    let seconds = began.elapsed().as_secs_f64();
    drop(file);
    fs::remove_file(&path).map_err(fault)?;
    rustix::fs::sync();
    Ok(seconds)
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

    /// Of the medians; none where nothing was measured.
    fn ratio(&self) -> Option<f64> {
        Some(rounded(median(&self.pooled)? / median(&self.native)?))
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

fn told(streams: &Sides, durable: &Sides) -> Value {
    let target = |what: &str, sides: &Sides, least: f64| {
        let measured = sides.ratio();
        json!({
            "what": what, "measured": measured, "target": format!("≥ {least}"),
            "met": measured.is_some_and(|ratio| ratio >= least),
        })
    };
    json!({
        "what": "writes into a folder in the pool, in turns with the same on the disk below it",
        "sequential": streams.rows("MB/s"),
        "synced": durable.rows("writes/s"),
        "targets": [
            target("sequential writes in the pool, × native", streams, SEQUENTIAL),
            target("writes of 4 KiB in the pool, each synced, × native", durable, DURABLE),
        ],
    })
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
    fn a_pool_that_is_slower_than_promised_is_told_and_one_round_alone_is_none() {
        let quick = sides(&[100.0, 10.0, 102.0], &[95.0, 94.0, 300.0]);
        let slow = sides(&[100.0, 101.0, 99.0], &[99.0, 98.0, 200.0]);
        let said = told(&quick, &slow);
        assert_eq!(said["targets"][0]["measured"], 0.95);
        assert_eq!(said["targets"][0]["met"], true);
        assert_eq!(said["targets"][1]["measured"], 0.99);
        assert_eq!(said["targets"][1]["met"], false);
        let missed = figures::judged(&said).unwrap_err();
        assert!(missed.0.contains("each synced"), "{}", missed.0);
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let said = told(&Sides::default(), &sides(&[1.0], &[1.0]));
        assert_eq!(said["targets"][0]["met"], false);
        assert_eq!(said["targets"][1]["met"], true);
    }

    #[test]
    fn both_kinds_of_writes_leave_nothing() {
        let place = std::env::temp_dir().join(format!("fardel-pool-test-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let noise = noise();
        assert_eq!(noise.len(), PIECE);
        let seconds = timed(&place, |file| file.write_all(&noise));
        assert!(seconds.unwrap() > 0.0);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
        fs::remove_dir(&place).unwrap();
        assert!(synced(&place, &noise).is_err(), "there is no such place");
    }
}
