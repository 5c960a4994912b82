//! What slices of this machine's card are worth: memory on every path, what a launch costs, shares alone
//! and beside others, how soon a changed share is felt. The libraries, the pages and the turns are the
//! product's own; containers are left out, so that it also measures where none can be made. Takes plain
//! memory, never more than is free, and changes no setting of the card.

pub mod slices;
pub mod targets;

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::gpu::arbiter::Mode;
use crate::gpu::driver::Driver;
use crate::gpu::hooks::{CUDA_HOOK, GPU_TEST, PLACE};
use crate::gpu::inject::{InjectedSlice, Pages};
use crate::gpu::region::{DeviceTerms, MODE_OFF};
use crate::gpu::time_slicing::{Seat, TimeSlicer};
use base::figures::{quantile, round};
use rules::names::{ContainerName, SessionId};
use rules::self_test::PATHS;
use serde_json::{Value, json};

/// Where the vendor's library lies besides the usual places of distributions.
const ELSEWHERE: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/local/nvidia/lib/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
];
const LIBRARY: &str = "libcuda.so.1";
const WHOLE: u32 = 1000;
/// Slices whose edge is looked for; those that do not fit what is free are left out.
const LIMITS: [u64; 3] = [1 << 30, 10 << 30, 38_547_321_651];
/// Shares of one session alone, and of several beside each other, in thousandths.
const ALONE: [u32; 4] = [100, 250, 500, 750];
const MIXES: [&[u32]; 2] = [&[300, 700], &[350, 300, 200, 150]];
/// What is not counted at the beginning of a measurement: contexts are made, one or the other is alone.
const SETTLING: Duration = Duration::from_secs(1);
const LAUNCHES: &str = "20000";

/// Bytes that a slice yields on every path. `driver`: the library, where it is not in a usual place.
///
/// Errors, of all three: no driver or no card; a program that does not say what it should.
pub fn memory(driver: Option<&Path>) -> io::Result<Value> {
    let bench = CardBench::prepare(driver)?;
    Ok(bench.about(json!({"rows": bench.memory()?})))
}

/// What a launch costs, measured so many times.
pub fn launches(driver: Option<&Path>, times: usize) -> io::Result<Value> {
    let bench = CardBench::prepare(driver)?;
    Ok(bench.about(bench.launches(times)?))
}

/// What shares are worth, each mix for so long.
pub fn shares(driver: Option<&Path>, each: Duration) -> io::Result<Value> {
    let bench = CardBench::prepare(driver)?;
    let mut figure = bench.shares(each.as_secs())?;
    figure["resize"] = bench.resize()?;
    Ok(bench.about(figure))
}

/// Whether a driver is found without being named.
pub fn has_driver() -> bool {
    found().is_ok()
}

struct CardBench {
    driver: PathBuf,
    card: BenchCard,
    work: PathBuf,
}

#[derive(Debug, Clone)]
struct BenchCard {
    uuid: [u8; 16],
    total: u64,
    free: u64,
    name: String,
}

/// Who has a slice, in place of a container.
struct BenchTenant {
    place: PathBuf,
    pages: Arc<Pages>,
    terms: DeviceTerms,
    name: ContainerName,
}

impl CardBench {
    fn prepare(driver: Option<&Path>) -> io::Result<Self> {
        let driver = match driver {
            Some(driver) => driver.canonicalize()?,
            None => found()?,
        };
        let work = place_of_the_same_length();
        fs::create_dir(&work)?;
        let mut bench = Self {
            driver,
            work,
            card: BenchCard {
                uuid: [0; 16],
                total: 0,
                free: 0,
                name: String::new(),
            },
        };
        let program = bench.program();
        fs::write(&program, GPU_TEST)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let said = finished(&mut bench.native(&["card"]))?;
        bench.card = BenchCard::read(&said).ok_or_else(|| unexpected(&said))?;
        Ok(bench)
    }

    /// A figure with what it was taken on.
    fn about(&self, mut figure: Value) -> Value {
        figure["driver"] = json!(self.driver);
        figure["card"] = json!(self.card.name);
        figure["bytes"] = json!(self.card.total);
        figure["free_bytes"] = json!(self.card.free);
        figure
    }

    fn program(&self) -> PathBuf {
        self.work.join("test")
    }

    /// A command without a slice, on the driver itself.
    fn native(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command
            .args(words)
            .env_clear()
            .env("FARDEL_CUDA", &self.driver)
            .env("LD_LIBRARY_PATH", self.libraries());
        command
    }

    fn libraries(&self) -> &Path {
        self.driver.parent().unwrap_or(Path::new("/"))
    }

    /// A command that has a slice.
    fn with(&self, tenant: &BenchTenant, words: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command
            .args(words)
            .env_clear()
            .env("LD_LIBRARY_PATH", self.libraries_of(tenant));
        command
    }

    /// Where programs with a slice find libraries: ours before the driver's.
    fn libraries_of(&self, tenant: &BenchTenant) -> OsString {
        let mut libraries = tenant.place.join("hook").into_os_string();
        let own = Some(self.libraries().as_os_str().to_owned());
        for more in own.into_iter().chain(std::env::var_os("LD_LIBRARY_PATH")) {
            libraries.push(":");
            libraries.push(more);
        }
        libraries
    }

    fn tenant(&self, memory: u64, share_milli: u32) -> io::Result<BenchTenant> {
        let place = place_of_the_same_length();
        let terms = DeviceTerms {
            uuid: self.card.uuid,
            mem_limit: memory,
            mem_overhead: 0,
            share_milli,
            mode: MODE_OFF,
        };
        let slice = InjectedSlice { card: 0, terms };
        let pages = Pages::make(&place, &[slice]).map_err(io::Error::other)?;
        let random = base::observe::random::<16>();
        let tenant = BenchTenant {
            pages: Arc::new(pages),
            terms,
            name: ContainerName {
                session: SessionId(uuid::Uuid::from_bytes(random)),
                incarnation: 1,
                index: 0,
            },
            place,
        };
        symlink(&self.driver, tenant.place.join(LIBRARY))?;
        fs::create_dir(tenant.place.join("hook"))?;
        let hook = replaced(CUDA_HOOK, PLACE, &tenant.place.to_string_lossy());
        fs::write(tenant.place.join("hook").join(LIBRARY), hook)?;
        Ok(tenant)
    }

    /// Bytes that a slice yields on every path, the code of the refusal, and what is charged when all is
    /// given back.
    fn memory(&self) -> io::Result<Value> {
        let mut rows = Vec::new();
        // A context, code and what others hold meanwhile need room as well.
        let fits = |limit: &&u64| **limit + (2 << 30) <= self.card.free;
        for limit in LIMITS.iter().filter(fits) {
            for path in PATHS {
                let tenant = self.tenant(*limit, WHOLE)?;
                let said = finished(&mut self.with(&tenant, &["measure", path, "1"]))?;
                let [total, before, taken, code, full, after] =
                    numbers(&said, "memory").ok_or_else(|| unexpected(&said))?;
                let left = tenant.pages.account()?.sum(0).total;
                rows.push(json!({
                    "limit": limit, "path": path, "told": total, "free_before": before,
                    "taken": taken, "below_limit": limit.saturating_sub(taken),
                    "above_limit": taken.saturating_sub(*limit), "code": code,
                    "free_when_full": full, "free_after": after, "charged_after": left,
                }));
            }
        }
        Ok(Value::Array(rows))
    }

    /// Nanoseconds for each launch of an empty kernel: on the driver itself, with our library, and with our
    /// library and turns. Interleaved.
    fn launches(&self, times: usize) -> io::Result<Value> {
        let (memory, words) = (self.card.free / 4, ["launch", LAUNCHES]);
        let (mut native, mut hooked, mut turned) = (Vec::new(), Vec::new(), Vec::new());
        let whole = self.tenant(memory, WHOLE)?;
        let half = self.tenant(memory, WHOLE / 2)?;
        let _turns = seated(Mode::Elastic, &[&half, &self.tenant(memory, WHOLE / 2)?])?;
        let median = |mut command: Command| -> io::Result<f64> {
            let said = finished(&mut command)?;
            let [nanoseconds] = numbers(&said, "launch").ok_or_else(|| unexpected(&said))?;
            Ok(nanoseconds as f64)
        };
        for _ in 0..times {
            native.push(median(self.native(&words))?);
            hooked.push(median(self.with(&whole, &words))?);
            turned.push(median(self.with(&half, &words))?);
        }
        let shown = |samples: &[f64]| {
            json!({
                "p50": quantile(samples, 0.5), "least": quantile(samples, 0.0),
                "most": quantile(samples, 1.0), "samples": samples,
            })
        };
        Ok(json!({
            "unit": "ns", "native": shown(&native), "hook": shown(&hooked), "hook_and_turns": shown(&turned),
            "added_by_the_hook": quantile(&hooked, 0.5).zip(quantile(&native, 0.5)).map(|(a, b)| a - b),
        }))
    }

    /// What each gets of the card's work, beside what one gets alone without a slice: alone, together
    /// without slices, and together in either mode.
    fn shares(&self, seconds: u64) -> io::Result<Value> {
        let native = self.together(None, &[WHOLE], seconds)?[0];
        let row = |how: &str, wanted: &[u32], got: &[f64]| {
            let whole: f64 = got.iter().sum();
            let (mut errors, mut each) = (Vec::new(), Vec::new());
            for (share, rate) in wanted.iter().zip(got) {
                let achieved = rate / native;
                each.push(json!({
                    "share": f64::from(*share) / 1000.0, "achieved": part(achieved),
                    "of_the_work_done": part(rate / whole),
                }));
                errors.push((achieved * 100.0 - f64::from(*share) / 10.0).abs());
            }
            json!({
                "how": how, "tenants": each, "of_the_whole_card": part(whole / native),
                "worst_error_points": quantile(&errors, 1.0).map(round),
            })
        };
        let mut rows = Vec::new();
        for share in ALONE {
            let got = self.together(Some(Mode::Hard), &[share], seconds)?;
            rows.push(row("alone, hard", &[share], &got));
        }
        for mix in MIXES {
            for (how, mode) in [
                ("together, no slices", None),
                ("together, hard", Some(Mode::Hard)),
                ("together, elastic", Some(Mode::Elastic)),
            ] {
                let got = self.together(mode, mix, seconds)?;
                rows.push(row(how, mix, &got));
            }
        }
        Ok(json!({"kernels_a_second_alone": round(native), "rows": rows}))
    }

    /// Kernels a second that each got done while all were at work. Without a mode no session has a slice.
    fn together(&self, mode: Option<Mode>, shares: &[u32], seconds: u64) -> io::Result<Vec<f64>> {
        let memory = self.card.free / 8;
        let tenants: Vec<BenchTenant> = shares
            .iter()
            .map(|share| self.tenant(memory, *share))
            .collect::<io::Result<_>>()?;
        let all: Vec<&BenchTenant> = tenants.iter().collect();
        let _turns = mode.map(|mode| seated(mode, &all)).transpose()?;
        let duration = seconds.to_string();
        let words = ["spin", duration.as_str(), "together"];
        let mut children: Vec<(Child, BufReader<ChildStdout>)> = Vec::new();
        for tenant in &tenants {
            let mut command = match mode {
                Some(_) => self.with(tenant, &words),
                None => self.native(&words),
            };
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let said = child.stdout.take().map(BufReader::new);
            children.push((child, said.ok_or_else(|| unexpected("nothing"))?));
        }
        // All begin at once: contexts are ready seconds apart.
        for (_, said) in &mut children {
            let mut line = String::new();
            said.read_line(&mut line)?;
            if line.trim() != "ready" {
                return Err(unexpected(&line));
            }
        }
        for (child, _) in &mut children {
            if let Some(mut input) = child.stdin.take() {
                input.write_all(b"\n")?;
            }
        }
        let mut windows = Vec::new();
        for (mut child, mut said) in children {
            let mut text = String::new();
            said.read_to_string(&mut text)?;
            let status = child.wait()?;
            if !status.success() {
                return Err(io::Error::other(format!("a tenant ended with {status}")));
            }
            windows.push(read_windows(&text));
        }
        let from = windows
            .iter()
            .filter_map(|all| Some(all.first()?.from))
            .max();
        let until = windows
            .iter()
            .filter_map(|all| Some(all.last()?.until))
            .min();
        let (Some(from), Some(until)) = (from, until) else {
            return Err(io::Error::other("a tenant did nothing at all"));
        };
        let from = from + u64::try_from(SETTLING.as_millis()).unwrap_or(u64::MAX);
        windows.iter().map(|all| rate(all, from, until)).collect()
    }

    /// From a quarter of the card to a half while it computes: what it got before and after, and when the
    /// first tenth of a second had nine tenths of the new share.
    fn resize(&self) -> io::Result<Value> {
        let native = self.together(None, &[WHOLE], 3)?[0];
        let tenant = self.tenant(self.card.free / 4, 250)?;
        let mut turns = seated(Mode::Hard, &[&tenant])?;
        let mut command = self.with(&tenant, &["spin", "7"]);
        let child = command.stdout(Stdio::piped()).spawn()?;
        std::thread::sleep(Duration::from_secs(4));
        let terms = DeviceTerms {
            share_milli: 500,
            ..tenant.terms
        };
        take(&mut turns, &tenant, &terms)?;
        let changed = calendar();
        let output = child.wait_with_output()?;
        let windows = read_windows(&String::from_utf8_lossy(&output.stdout));
        let (first, last) = match (windows.first(), windows.last()) {
            (Some(first), Some(last)) => (first.from, last.until),
            _ => return Err(io::Error::other("it did nothing at all")),
        };
        let settled = windows
            .iter()
            .find(|window| window.from >= changed && window.per_second() >= 0.45 * native);
        Ok(json!({
            "from": 0.25, "achieved_before": part(rate(&windows, first + 1000, changed)? / native),
            "to": 0.5, "achieved_after": part(rate(&windows, changed + 500, last)? / native),
            "settled_ms": settled.map(|window| window.until - changed),
        }))
    }
}

impl Drop for CardBench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.work);
    }
}

impl Drop for BenchTenant {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.place);
    }
}

impl BenchCard {
    /// Reads `card UUID TOTAL FREE NAME…`, the first as 32 hexadecimal digits.
    fn read(said: &str) -> Option<Self> {
        let line = said.lines().find_map(|line| line.strip_prefix("card "))?;
        let mut words = line.splitn(4, ' ');
        let uuid = u128::from_str_radix(words.next()?, 16).ok()?;
        Some(Self {
            uuid: uuid.to_be_bytes(),
            total: words.next()?.parse().ok()?,
            free: words.next()?.parse().ok()?,
            name: words.next()?.to_owned(),
        })
    }
}

/// Everybody has turns at the card, as long as the answer lives.
fn seated(mode: Mode, tenants: &[&BenchTenant]) -> io::Result<TimeSlicer> {
    let mut turns = TimeSlicer::new(mode);
    for tenant in tenants {
        take(&mut turns, tenant, &tenant.terms)?;
    }
    Ok(turns)
}

fn take(turns: &mut TimeSlicer, tenant: &BenchTenant, terms: &DeviceTerms) -> io::Result<()> {
    let seat = Seat {
        pages: Arc::clone(&tenant.pages),
        at: 0,
        share_milli: terms.share_milli,
    };
    turns.take(tenant.name, seat)
}

/// How much one process got done in one stretch of the calendar's milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct WorkWindow {
    from: u64,
    until: u64,
    count: u64,
}

impl WorkWindow {
    fn per_second(&self) -> f64 {
        self.count as f64 * 1000.0 / (self.until.saturating_sub(self.from).max(1)) as f64
    }
}

fn read_windows(said: &str) -> Vec<WorkWindow> {
    let window = |line: &str| {
        let [from, until, count] = numbers(line, "window")?;
        Some(WorkWindow { from, until, count })
    };
    said.lines().filter_map(window).collect()
}

/// A part of the whole, to hundredths of a percentage point.
fn part(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// Kernels a second between two moments; of a stretch that one of them cuts, the part that lies between.
fn rate(windows: &[WorkWindow], from: u64, until: u64) -> io::Result<f64> {
    let (mut count, mut time) = (0.0, 0.0);
    for window in windows {
        let inside = window
            .until
            .min(until)
            .saturating_sub(window.from.max(from)) as f64;
        let whole = window.until.saturating_sub(window.from).max(1) as f64;
        count += window.count as f64 * inside / whole;
        time += inside;
    }
    if time == 0.0 {
        return Err(io::Error::other(
            "a tenant was not at work while the others were",
        ));
    }
    Ok(count * 1000.0 / time)
}

/// The numbers behind a word at the beginning of a line.
fn numbers<const N: usize>(said: &str, word: &str) -> Option<[u64; N]> {
    let line = said
        .lines()
        .find(|line| line.split(' ').next() == Some(word))?;
    let numbers: Vec<u64> = line
        .split(' ')
        .skip(1)
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    numbers.try_into().ok()
}

fn finished(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "the test's program ended with {}: {}",
        output.status,
        why.trim()
    )))
}

fn unexpected(said: &str) -> io::Error {
    io::Error::other(format!("the test's program says {:?}", said.trim()))
}

fn calendar() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The vendor's library on this machine, the file itself.
fn found() -> io::Result<PathBuf> {
    let known = Driver::find(Path::new("/")).ok();
    known
        .map(|driver| driver.computing_library().to_owned())
        .into_iter()
        .chain(ELSEWHERE.iter().map(PathBuf::from))
        .find_map(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            io::Error::other(
                "no driver of NVIDIA's was found; --driver FILE names its libcuda where it lies elsewhere",
            )
        })
}

/// A directory that does not exist yet, with a name as long as the place that is written into the library.
fn place_of_the_same_length() -> PathBuf {
    let head = "/tmp/fg";
    let digits = PLACE.len() - head.len();
    let number = u64::from_ne_bytes(base::observe::random::<8>());
    let name = format!("{number:0digits$x}");
    PathBuf::from(format!("{head}{}", &name[name.len() - digits..]))
}

/// A library with one text in it replaced by another of the same length.
fn replaced(bytes: &[u8], text: &str, by: &str) -> Vec<u8> {
    let (text, by) = (text.as_bytes(), by.as_bytes());
    assert_eq!(text.len(), by.len(), "nothing may move");
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while at + text.len() <= bytes.len() {
        if bytes[at..].starts_with(text) {
            bytes[at..at + by.len()].copy_from_slice(by);
            at += by.len();
        } else {
            at += 1;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_says_is_read_and_nothing_else() {
        let said = "noise\ncard 00112233445566778899aabbccddeeff 1024 512 NVIDIA H200\n";
        let card = BenchCard::read(said).expect("a card");
        assert_eq!(card.uuid[..3], [0x00, 0x11, 0x22]);
        assert_eq!(
            (card.total, card.free, card.name.as_str()),
            (1024, 512, "NVIDIA H200")
        );
        assert!(BenchCard::read("card zz 1 2 x").is_none() && BenchCard::read("cards").is_none());
        assert_eq!(numbers("launch 5\n", "launch"), Some([5]));
        assert_eq!(numbers::<2>("launch 5\n", "launch"), None);
        assert_eq!(numbers::<1>("launched 5\n", "launch"), None);
    }

    #[test]
    fn a_rate_counts_what_lies_between_two_moments() {
        let windows =
            read_windows("window 0 100 50\nwindow 100 200 10\nwindow 200 300 30\nwindow 300 x 1\n");
        assert_eq!(windows.len(), 3);
        assert_eq!(rate(&windows, 100, 300).expect("work"), 200.0);
        assert_eq!(rate(&windows, 150, 250).expect("work"), 200.0);
        assert!(rate(&windows, 300, 400).is_err());
    }

    #[test]
    fn the_libraries_place_is_replaced_without_moving_anything() {
        let place = place_of_the_same_length();
        let text = format!("a{PLACE}/control\0b{PLACE}");
        let made = replaced(text.as_bytes(), PLACE, &place.to_string_lossy());
        assert_eq!(made.len(), text.len());
        let made = String::from_utf8(made).expect("text");
        assert_eq!(made.matches(&*place.to_string_lossy()).count(), 2);
        assert!(!made.contains(PLACE));
    }
}
