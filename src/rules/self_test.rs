//! What a card's self-test found, and whether that is good enough: the figures that the test's program says
//! inside sessions, read and judged. Pure; runs nothing, and believes no line that is not as it should be.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::devices::DRIVER_BLOCK;
use crate::units::{Bytes, GpuShare, Timestamp};

/// The ways in which programs get memory of a card.
pub const PATHS: [&str; 9] = [
    "plain",
    "pitched",
    "managed",
    "default-pool",
    "own-pool",
    "physical",
    "array",
    "array-3d",
    "mipmapped",
];
/// How many processes fill a slice together.
pub const PROCESSES: [u32; 2] = [1, 4];
/// The ways in which programs reach the driver, as the test's program calls them, and what each is tried
/// with in the environment beside it.
pub const WAYS: [(&str, &[(&str, &str)]); 10] = [
    ("dlopen", &[]),
    ("lazy", &[]),
    ("deepbind", &[]),
    ("own-space", &[]),
    ("looked-up", &[]),
    ("looked-up-per-thread", &[]),
    ("looked-up-async", &[]),
    ("looked-up-lookup", &[]),
    // Without any variable.
    ("emptied", &[]),
    // What other limiters, and container tools of the vendor's, listen to.
    (
        "variables",
        &[
            ("CUDA_DEVICE_MEMORY_LIMIT", "0"),
            ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/tmp/elsewhere"),
            ("CUDA_VISIBLE_DEVICES", "0"),
            ("GPU_CORE_UTILIZATION_POLICY", "DISABLE"),
            ("NVIDIA_VISIBLE_DEVICES", "all"),
        ],
    ),
];

/// A limit is exact when no block of the driver is missing.
const BLOCK: u64 = DRIVER_BLOCK.0;
/// The driver's pools grow by blocks of this size (H200, driver 580.159): less than one block stays over.
const POOL_BLOCK: u64 = 32 << 20;
/// The driver's own word for memory that ran out.
const OUT_OF_MEMORY: u64 = 2;
/// What a launch may cost more with our library than without it.
const LAUNCH_NANOSECONDS: u64 = 150;
/// How far from its share of the time a session may be, in hundredths of a percentage point.
const SHARE_ERROR: u64 = 200;
/// The first second of both, in which one of them is still alone.
const SETTLING_MILLIS: u64 = 1000;
/// Kernels that have to be counted before a ratio of them means anything.
const MIN_KERNELS: u64 = 1000;

/// How one part of the test came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestVerdict {
    Held,
    /// It did not hold, or did not answer as it should.
    Failed,
}

/// One part of the test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestFinding {
    /// `memory`, `way`, `control`, `cards`, `launch`, `share`, `neighbour`, `trespass`.
    pub code: String,
    /// Which one of them: a path, a way; empty where there is one only.
    pub subject: String,
    /// In figures.
    pub measured: String,
    pub wanted: String,
    pub verdict: TestVerdict,
}

/// All that a test says, as it is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The layout of this; 1.
    pub version: u32,
    pub passed: bool,
    pub device: String,
    pub model: String,
    pub memory: Bytes,
    pub machine: String,
    /// Version of the driver that the card ran with.
    pub driver: String,
    pub fardel: String,
    #[serde(alias = "box_id")]
    pub installation_id: String,
    pub by: String,
    pub began_at: Timestamp,
    pub ended_at: Timestamp,
    pub findings: Vec<TestFinding>,
}

impl Statement {
    pub fn failed(&self) -> usize {
        let failed = |finding: &&TestFinding| finding.verdict == TestVerdict::Failed;
        self.findings.iter().filter(failed).count()
    }
}

/// Whether the driver that a card runs with now has passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelfTestStatus {
    /// There is nothing to test: the card is simulated.
    #[default]
    None,
    /// This card was never tested with this driver.
    Untested,
    Passed,
    Failed,
}

impl SelfTestStatus {
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Untested => "untested",
            Self::Passed => "passed",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for TestVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Failed => "FAILED",
        })
    }
}

fn finding(code: &str, subject: &str, measured: String, wanted: &str, held: bool) -> TestFinding {
    TestFinding {
        code: code.into(),
        subject: subject.into(),
        measured,
        wanted: wanted.into(),
        verdict: if held {
            TestVerdict::Held
        } else {
            TestVerdict::Failed
        },
    }
}

/// A part of the test that did not answer.
pub fn silent(code: &str, subject: &str, why: &str) -> TestFinding {
    // A panic's last line says how to see more of it.
    let line = why
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty() && !line.starts_with("note: "));
    let why: String = line
        .unwrap_or("no answer")
        .trim()
        .chars()
        .take(200)
        .collect();
    finding(code, subject, why, "an answer", false)
}

/// The numbers behind a word at the beginning of a line.
fn numbers(said: &str, word: &str, count: usize) -> Option<Vec<u64>> {
    let line = said.lines().find_map(|line| {
        let rest = line.trim().strip_prefix(word)?;
        rest.starts_with(' ').then_some(rest)
    })?;
    let all: Option<Vec<u64>> = line
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    all.filter(|all| all.len() == count)
}

/// `memory TOTAL BEFORE TAKEN CODE FULL AFTER` of a slice of so many bytes: no byte more than the slice, no
/// block less than was free, refused with the driver's own code, all of it given back.
pub fn memory(path: &str, processes: u32, slice: Bytes, said: &str) -> TestFinding {
    let subject = format!("{path} × {processes}");
    let Some(all) = numbers(said, "memory", 6) else {
        return silent("memory", &subject, said);
    };
    let [total, before, taken, code, full, after] = all[..] else {
        return silent("memory", &subject, said);
    };
    let block = match path {
        "default-pool" | "own-pool" => POOL_BLOCK,
        _ => BLOCK,
    };
    let held = total <= slice.0
        && before <= total
        && taken <= before
        && full < block
        && code == OUT_OF_MEMORY
        && before.saturating_sub(after) < BLOCK
        && taken > 0;
    let measured = format!(
        "{taken} of {before} bytes free, then code {code}, {full} left; {after} free afterwards"
    );
    let wanted = "all that is free and no more, code 2, all given back";
    finding("memory", &subject, measured, wanted, held)
}

/// `got BYTES code CODE` on one way to the driver.
pub fn way(name: &str, slice: Bytes, said: &str) -> TestFinding {
    let words: Vec<&str> = said
        .lines()
        .find(|line| line.starts_with("got "))
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let (Some(got), Some(code)) = (
        words.get(1).and_then(|word| word.parse::<u64>().ok()),
        words.get(3).and_then(|word| word.parse::<i64>().ok()),
    ) else {
        return silent("way", name, said);
    };
    let held = got > 0 && got <= slice.0 && code == 2;
    finding(
        "way",
        name,
        format!("{got} bytes, then code {code}"),
        &format!("at most {} bytes, code 2", slice.0),
        held,
    )
}

/// `control refused` and `cards N…`: what must not open, and which cards are there. `own` is the number of
/// cards that the session has.
pub fn fence(own: usize, said: &str) -> Vec<TestFinding> {
    let word = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    let control = match word("control ") {
        Some(word) => finding(
            "control",
            "",
            word.trim().to_owned(),
            "refused",
            word.trim() == "refused",
        ),
        None => silent("control", "", said),
    };
    let cards = match word("cards") {
        Some(list) => {
            let count = list.split_whitespace().count();
            let measured = format!("{count} of 32");
            finding("cards", "", measured, &format!("{own}"), count == own)
        }
        None => silent("cards", "", said),
    };
    vec![control, cards]
}

/// `launch NANOSECONDS`, several times without our library and with it, in turns. The least of each is compared:
/// on one machine the same launches took from 3.8 to 5.2 µs, and noise only adds.
pub fn launch(bare: &[String], hooked: &[String]) -> TestFinding {
    let least = |all: &[String]| {
        all.iter()
            .filter_map(|said| numbers(said, "launch", 1)?.first().copied())
            .min()
    };
    let (Some(bare_each), Some(hooked_each)) = (least(bare), least(hooked)) else {
        let why = bare.iter().chain(hooked).last();
        return silent("launch", "", why.map_or("", String::as_str));
    };
    let more = hooked_each.saturating_sub(bare_each);
    finding(
        "launch",
        "",
        format!("{bare_each} ns without our library, {hooked_each} ns with it"),
        &format!("at most {LAUNCH_NANOSECONDS} ns more"),
        more <= LAUNCH_NANOSECONDS,
    )
}

/// From when until when, in milliseconds of the calendar's clock, and how many kernels were done.
type KernelWindow = (u64, u64, u64);

/// `window FROM UNTIL COUNT` lines of two sessions that compute at the same time: whether what each got done
/// is in the ratio of their shares.
pub fn share(a: (GpuShare, &str), b: (GpuShare, &str)) -> TestFinding {
    let windows = |said: &str| -> Vec<KernelWindow> {
        said.lines()
            .filter_map(|line| {
                let all = numbers(line, "window", 3)?;
                Some((all[0], all[1], all[2]))
            })
            .collect()
    };
    let (of_a, of_b) = (windows(a.1), windows(b.1));
    let from = of_a.first().zip(of_b.first());
    let until = of_a.last().zip(of_b.last());
    let (Some(from), Some(until)) = (from, until) else {
        return silent("share", "", if of_a.is_empty() { a.1 } else { b.1 });
    };
    let from = from.0.0.max(from.1.0) + SETTLING_MILLIS;
    let until = until.0.1.min(until.1.1);
    let count = |all: &[KernelWindow]| -> u64 {
        let inside = all.iter().filter(|w| w.0 >= from && w.1 <= until);
        inside.map(|window| window.2).sum()
    };
    let (did_a, did_b) = (count(&of_a), count(&of_b));
    let (all, shares) = (did_a + did_b, u64::from(a.0.0) + u64::from(b.0.0));
    if all < MIN_KERNELS || shares == 0 {
        return silent(
            "share",
            "",
            &format!("{all} kernels at the same time are too few"),
        );
    }
    // Hundredths of a percentage point.
    let (got, wanted) = (did_a * 10_000 / all, u64::from(a.0.0) * 10_000 / shares);
    let points = |value: u64| format!("{}.{:02}", value / 100, value % 100);
    finding(
        "share",
        "",
        format!(
            "{} % of {all} kernels, {} points off",
            points(got),
            points(got.abs_diff(wanted))
        ),
        &format!(
            "{} %, within {} points",
            points(wanted),
            points(SHARE_ERROR)
        ),
        got.abs_diff(wanted) <= SHARE_ERROR,
    )
}

/// `looked TIMES wrong TIMES` of the neighbour, before and after all that was tried beside it.
pub fn neighbour(before: &str, after: &str) -> TestFinding {
    let read = |said: &str| -> Option<(u64, u64)> {
        let words: Vec<&str> = said.split_whitespace().collect();
        match words[..] {
            ["looked", looked, "wrong", wrong] => Some((looked.parse().ok()?, wrong.parse().ok()?)),
            _ => None,
        }
    };
    let (Some(first), Some(last)) = (read(before), read(after)) else {
        return silent("neighbour", "", after);
    };
    let looked = last.0.saturating_sub(first.0);
    finding(
        "neighbour",
        "",
        format!("{looked} looks at its memory, {} wrong", last.1),
        "0 wrong, and it goes on",
        looked > 0 && last.1 == 0,
    )
}

/// What became of a session that took memory past our library: what it got, and what ended or froze it,
/// after how many milliseconds.
pub fn trespass(slice: Bytes, said: &str, answer: Option<(&str, u64)>) -> TestFinding {
    let got = said.lines().find_map(|line| {
        line.strip_prefix("got ")?
            .split(' ')
            .next()?
            .parse::<u64>()
            .ok()
    });
    let Some(got) = got else {
        return silent("trespass", "", said);
    };
    let wanted = "refused, or answered by the watchdog";
    if got <= slice.0 {
        let measured = format!("{got} bytes: the kernel or the driver refused the rest");
        return finding("trespass", "", measured, wanted, true);
    }
    match answer {
        Some((what, after)) => {
            let measured = format!("{got} bytes; {what} after {after} ms");
            finding("trespass", "", measured, wanted, true)
        }
        None => {
            let measured = format!("{got} bytes, and nobody did anything");
            finding("trespass", "", measured, wanted, false)
        }
    }
}

/// The shares of the two sessions of a test on a card: the one that tries things has twice the other's.
/// None where the card is too small for both.
///
/// The smaller one holds `MIN_SLICE`: contexts of four processes fit the larger one. Multiples of the
/// administrator's step, and no smaller than the least share that is given.
pub fn shares(
    device: &crate::resources::Device,
    policy: &crate::policy::SharePolicy,
) -> Option<(GpuShare, GpuShare)> {
    let step = policy.step.0.max(1);
    (1..=33)
        .map(GpuShare)
        .find(|share| {
            let enough = device.memory_of(*share) >= MIN_SLICE && share.0 >= MIN_SHARE;
            enough && share.0.is_multiple_of(step) && *share >= policy.least
        })
        .map(|share| (GpuShare(2 * share.0), share))
}

/// Memory of the smaller slice of a test. Smaller: four contexts leave nothing to measure in the larger one.
/// Larger: a busy card has no room for a test.
const MIN_SLICE: Bytes = Bytes::mib(1536);
/// Hundredths of the smaller slice: less of a card's time says little about shares.
const MIN_SHARE: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::SharePolicy;
    use crate::resources::Device;

    const MIB: u64 = 1 << 20;
    const SLICE: Bytes = Bytes::mib(256);

    fn held(finding: &TestFinding) -> bool {
        finding.verdict == TestVerdict::Held
    }

    /// Proves too: `the_self_test_holds_a_slice_to_its_word_and_signs_what_it_found`
    #[test]
    fn a_slice_is_exact_when_no_byte_more_and_no_block_less_was_had() {
        let all = 256 * MIB;
        let of = |text: String| held(&memory("plain", 4, SLICE, &text));
        assert!(of(format!("memory {all} {all} {all} 2 0 {all}\n")));
        // A context counts; what is left is less than a block.
        let free = all - 40 * MIB;
        let taken = free - MIB;
        assert!(of(format!("memory {all} {free} {taken} 2 {MIB} {free}")));
        for wrong in [
            // More than was free; more than the slice; another code; a block was left; not given back.
            format!("memory {all} {all} {} 2 0 {all}", all + 1),
            format!("memory {0} {0} {0} 2 0 {0}", all + MIB),
            format!("memory {all} {all} {all} -1 0 {all}"),
            format!("memory {all} {all} {all} 999 0 {all}"),
            format!("memory {all} {all} {} 2 {} {all}", all - 2 * MIB, 2 * MIB),
            format!("memory {all} {all} {all} 2 0 {}", all - 2 * MIB),
            format!("memory {all} {all} 0 2 0 {all}"),
            "memory".to_owned(),
            "thread panicked: a worker died".to_owned(),
            String::new(),
        ] {
            assert!(!of(wrong.clone()), "{wrong}");
        }
        // Of a pool, less than one of its own blocks stays over.
        let pool = |left: u64| {
            let said = format!("memory {all} {all} {} 2 {left} {all}", all - left);
            held(&memory("own-pool", 1, SLICE, &said))
        };
        assert!(pool(31 * MIB) && !pool(32 * MIB));
    }

    #[test]
    fn a_way_that_gets_more_than_the_slice_or_another_code_has_failed() {
        assert!(held(&way("deepbind", SLICE, "got 268435456 code 2\n")));
        for wrong in [
            "got 268435457 code 2",
            "got 268435456 code 0",
            "got 0 code 2",
            "got x code 2",
            "the library cannot be loaded",
        ] {
            assert!(!held(&way("deepbind", SLICE, wrong)), "{wrong}");
        }
    }

    #[test]
    fn a_page_that_opens_and_a_card_too_many_have_failed() {
        let verdicts = |said: &str| -> Vec<bool> { fence(1, said).iter().map(held).collect() };
        assert_eq!(verdicts("control refused\ncards 3\n"), [true, true]);
        assert_eq!(verdicts("control written\ncards 3 4\n"), [false, false]);
        assert_eq!(verdicts("cards\n"), [false, false]);
    }

    #[test]
    fn a_launch_may_cost_a_little_more_at_best() {
        let said =
            |all: &[u64]| -> Vec<String> { all.iter().map(|n| format!("launch {n}")).collect() };
        let bare = said(&[2100, 3100, 90_000]);
        assert!(held(&launch(&bare, &said(&[2250, 9250, 2900]))));
        assert!(!held(&launch(&bare, &said(&[2300, 2251, 2260]))));
        assert!(!held(&launch(&bare, &[])));
    }

    /// Proves too: `the_self_test_holds_a_slice_to_its_word_and_signs_what_it_found`
    #[test]
    fn shares_are_compared_while_both_compute() {
        let lines = |from: u64, count: u64, each: u64| -> String {
            (0..count)
                .map(|n| {
                    format!(
                        "window {} {} {each}\n",
                        from + n * 100,
                        from + n * 100 + 100
                    )
                })
                .collect()
        };
        let (a, b) = (lines(0, 100, 200), lines(500, 100, 100));
        let good = share((GpuShare(20), &a), (GpuShare(10), &b));
        assert!(held(&good), "{good:?}");
        assert!(good.measured.starts_with("66.66 %"), "{}", good.measured);
        // Even, where one has twice the other's.
        assert!(!held(&share((GpuShare(20), &b), (GpuShare(10), &b))));
        // Never at the same time; too few to tell.
        let late = lines(20_000, 100, 100);
        assert!(!held(&share((GpuShare(20), &a), (GpuShare(10), &late))));
        assert!(!held(&share((GpuShare(20), &a), (GpuShare(10), ""))));
    }

    #[test]
    fn a_neighbour_that_is_harmed_or_stands_still_has_failed() {
        assert!(held(&neighbour(
            "looked 10 wrong 0",
            "looked 300 wrong 0\n"
        )));
        assert!(!held(&neighbour("looked 10 wrong 0", "looked 300 wrong 1")));
        assert!(!held(&neighbour("looked 10 wrong 0", "looked 10 wrong 0")));
        assert!(!held(&neighbour("looked 10 wrong 0", "")));
    }

    #[test]
    fn a_trespass_is_refused_or_answered() {
        let over = "got 335544320 code 2";
        assert!(held(&trespass(SLICE, over, Some(("frozen", 4100)))));
        assert!(!held(&trespass(SLICE, over, None)));
        assert!(held(&trespass(SLICE, "got 268435456 code 2", None)));
        assert!(!held(&trespass(SLICE, "", Some(("frozen", 1)))));
    }

    #[test]
    fn the_sessions_of_a_test_keep_to_the_administrators_rules() {
        let card = |gib: u64| Device {
            memory: Bytes::gib(gib),
            ..Device::new(0, "card")
        };
        let usual = SharePolicy::default();
        assert_eq!(shares(&card(80), &usual), Some((GpuShare(10), GpuShare(5))));
        assert_eq!(shares(&card(8), &usual), Some((GpuShare(38), GpuShare(19))));
        assert_eq!(shares(&card(2), &usual), None);
        let coarse = SharePolicy {
            least: GpuShare(10),
            step: GpuShare(25),
            ..usual
        };
        assert_eq!(
            shares(&card(80), &coarse),
            Some((GpuShare(50), GpuShare(25)))
        );
    }
}
