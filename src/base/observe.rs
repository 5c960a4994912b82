//! Gives every part a clock, random numbers and a log. The only place that reads the time of day and the
//! kernel's random source for the product's decisions.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::TryRng as _;
use rules::units::Timestamp;
use uuid::Uuid;

/// Tells the time. Cheap to clone; the hand-set kind is for tests and the simulation.
#[derive(Clone)]
pub struct Clock(ClockSource);

#[derive(Clone)]
enum ClockSource {
    System,
    Set(Arc<HandSet>),
}

struct HandSet {
    at: AtomicI64,
    uptime: AtomicI64,
    boot: AtomicU64,
}

/// How long the machine has run since its start, on a clock that cannot be set and counts on while it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uptime {
    /// Which start of the machine it is.
    pub boot: Uuid,
    pub millis: u64,
}

impl Uptime {
    /// Milliseconds from an earlier moment of the same start to this one; 0 where the machine started anew between.
    pub fn since(self, earlier: Self) -> u64 {
        match self.boot == earlier.boot {
            true => self.millis.saturating_sub(earlier.millis),
            false => 0,
        }
    }
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
        Self(ClockSource::Set(Arc::new(HandSet {
            at: AtomicI64::new(at.as_millis()),
            uptime: AtomicI64::new(at.as_millis()),
            boot: AtomicU64::new(1),
        })))
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            ClockSource::System => {
                let since = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            ClockSource::Set(hand) => Timestamp::from_millis(hand.at.load(Ordering::Acquire)),
        }
    }

    /// How long the machine has run. Where the kernel does not tell its start, each process counts as one.
    pub fn uptime(&self) -> Uptime {
        match &self.0 {
            ClockSource::System => {
                let since = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
                    .map_or(Duration::ZERO, Duration::from);
                Uptime {
                    boot: boot(),
                    millis: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
                }
            }
            ClockSource::Set(hand) => Uptime {
                boot: Uuid::from_u128(u128::from(hand.boot.load(Ordering::Acquire))),
                millis: u64::try_from(hand.uptime.load(Ordering::Acquire)).unwrap_or(0),
            },
        }
    }

    /// Lets time pass on a hand-set clock until it shows `at`; does nothing to the machine's own.
    pub fn set(&self, at: Timestamp) {
        if let ClockSource::Set(hand) = &self.0 {
            let passed = at.as_millis() - hand.at.load(Ordering::Acquire);
            hand.at.store(at.as_millis(), Ordering::Release);
            hand.uptime.fetch_add(passed.max(0), Ordering::AcqRel);
        }
    }

    /// Shows another time of day on a hand-set clock, and a time that has passed.
    pub fn set_both(&self, at: Timestamp, uptime: Timestamp) {
        if let ClockSource::Set(hand) = &self.0 {
            hand.at.store(at.as_millis(), Ordering::Release);
            hand.uptime.store(uptime.as_millis(), Ordering::Release);
        }
    }

    /// The machine of a hand-set clock starts anew.
    pub fn reboot(&self) {
        if let ClockSource::Set(hand) = &self.0 {
            hand.boot.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The kernel's number of this start of the machine.
fn boot() -> Uuid {
    static BOOT: OnceLock<Uuid> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let told = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        told.trim()
            .parse()
            .unwrap_or_else(|_| Uuid::from_bytes(random()))
    })
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
    // `russh` warns of what strangers send, in their words and as often as they like.
    let usual = || EnvFilter::new("info,russh=off");
    let filter = EnvFilter::try_from_env("FARDEL_LOG").unwrap_or_else(|_| usual());
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
