//! Gives every part a clock, random numbers and a log. The only place that reads the time of day and the
//! kernel's random source for the product's decisions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rand::TryRng as _;
use rules::units::Timestamp;

/// Tells the time. Cheap to clone; the hand-set kind is for tests and the simulation.
#[derive(Clone)]
pub struct Clock(ClockSource);

#[derive(Clone)]
enum ClockSource {
    System,
    Set(Arc<AtomicI64>),
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    /// The machine's own clock.
    pub fn system() -> Self {
        Self(ClockSource::System)
    }

    /// A clock that stands still until `set` moves it.
    pub fn set_by_hand(at: Timestamp) -> Self {
        Self(ClockSource::Set(Arc::new(AtomicI64::new(at.as_millis()))))
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            ClockSource::System => {
                let since = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            ClockSource::Set(at) => Timestamp::from_millis(at.load(Ordering::Acquire)),
        }
    }

    /// Moves a hand-set clock; does nothing to the machine's own.
    pub fn set(&self, at: Timestamp) {
        if let ClockSource::Set(cell) = &self.0 {
            cell.store(at.as_millis(), Ordering::Release);
        }
    }
}

/// Random bytes from the kernel.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rngs::SysRng
        .try_fill_bytes(&mut bytes)
        .expect("the kernel's random source answers once the machine has booted");
    bytes
}

/// Starts the log on standard error: `FARDEL_LOG` filters (default `info`), JSON when `json`.
/// Called once by a role; a second call changes nothing.
pub fn start_log(json: bool) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("FARDEL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let _ = if json {
        log.json().try_init()
    } else {
        log.try_init()
    };
}

/// An error with every cause behind it, for the log: `outer: inner: innermost`.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
