//! A command of the administrator's own, run in several slices of one card at once. Judges nothing of what it
//! prints.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use base::figures::round;
use rules::units::GpuShare;
use serde_json::{Value, json};

use super::{BenchTenant, CardBench, seated};
use crate::gpu::arbiter::Mode;

/// A command to be run in several slices at once.
#[derive(Debug, Default)]
pub struct Slices {
    /// In thousandths.
    pub shares: Vec<u32>,
    /// Bytes of each.
    pub memory: u64,
    pub elastic: bool,
    pub command: Vec<String>,
}

impl Slices {
    /// What is missing, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        match self {
            slices if slices.shares.is_empty() => {
                Err("--slices says whose shares they are.".into())
            }
            slices if slices.memory == 0 => Err("--slice-memory says how much each has.".into()),
            slices if slices.command.is_empty() => Err("The command stands behind --.".into()),
            _ => Ok(()),
        }
    }
}

/// Reads `0.35,0.30` into thousandths.
pub fn read_shares(text: &str) -> Result<Vec<u32>, String> {
    let one = |text: &str| {
        let share = GpuShare::parse(text).map_err(|refusal| refusal.text)?;
        match share.0 {
            1..=100 => Ok(share.0 * 10),
            _ => Err(format!("{text} is no share of one card.")),
        }
    };
    text.split(',').map(one).collect()
}

/// Runs a command once in each slice, all at once, with this program's environment and `FARDEL_SLICE`, the
/// slice's number from 0; what each printed, its
/// exit code (None: ended by a signal) and seconds.
pub fn in_slices(driver: Option<&Path>, slices: &Slices) -> io::Result<Value> {
    let bench = CardBench::prepare(driver)?;
    let tenants: Vec<BenchTenant> = slices
        .shares
        .iter()
        .map(|share| bench.tenant(slices.memory, *share))
        .collect::<io::Result<_>>()?;
    let mode = if slices.elastic {
        Mode::Elastic
    } else {
        Mode::Hard
    };
    let _turns = seated(mode, &tenants.iter().collect::<Vec<_>>())?;
    let began = Instant::now();
    let run = &|(number, tenant): (usize, &BenchTenant)| -> io::Result<Value> {
        let output = Command::new(&slices.command[0])
            .args(&slices.command[1..])
            .env("LD_LIBRARY_PATH", bench.libraries_of(tenant))
            .env("FARDEL_SLICE", number.to_string())
            .stderr(Stdio::inherit())
            .output()?;
        Ok(json!({
            "share": f64::from(tenant.terms.share_milli) / 1000.0,
            "exit_code": output.status.code(),
            "seconds": round(began.elapsed().as_secs_f64()),
            "printed": String::from_utf8_lossy(&output.stdout),
        }))
    };
    let each: Vec<Value> = std::thread::scope(|scope| {
        let begun: Vec<_> = tenants
            .iter()
            .enumerate()
            .map(|tenant| scope.spawn(move || run(tenant)))
            .collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, io::Result<Value>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread that ran it panicked")))
        };
        begun.into_iter().map(ended).collect::<io::Result<_>>()
    })?;
    let seconds = round(began.elapsed().as_secs_f64());
    Ok(bench.about(json!({"seconds": seconds, "slices": each})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_users_write_them() {
        assert_eq!(read_shares("0.35,0.30,1"), Ok(vec![350, 300, 1000]));
        for wrong in ["", "0", "1.5", "0.35,", "2"] {
            assert!(read_shares(wrong).is_err(), "{wrong}");
        }
        let mut slices = Slices::default();
        assert!(slices.check().is_err());
        slices.shares = vec![500];
        slices.memory = 1 << 30;
        assert!(slices.check().is_err());
        slices.command = vec!["true".into()];
        assert_eq!(slices.check(), Ok(()));
    }
}
