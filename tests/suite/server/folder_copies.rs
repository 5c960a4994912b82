//! Copies of large files by the command line over a way that breaks: what came is sent once, by the copy that goes on and by the
//! next one; what was begun of another version of the file is not gone on with.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::the_box::{As, TheBox};

/// More than two pieces of what the command line sends.
const SIZE: u64 = 24 << 20;
/// Where a way breaks: within a piece, and not at its begin.
const BREAKS_AT: u64 = 11 << 20;
/// What requests and answers have beside the bytes of the file, and what was on its way when the way broke.
const BESIDE: u64 = 1 << 20;
/// Longer than a copy takes on a loaded machine, with the time that it waits for a way that is mended.
const HANG: Duration = Duration::from_secs(90);

/// A way to the server of a box that counts the bytes it carries, and breaks once.
struct BreakingWay {
    /// Where its socket lies.
    run: PathBuf,
    passed: Arc<AtomicU64>,
}

/// What the connections of a way share.
#[derive(Clone)]
struct CarriedBytes {
    passed: Arc<AtomicU64>,
    breaks_at: u64,
    is_broken: Arc<AtomicBool>,
}

impl CarriedBytes {
    /// Carries bytes until one side ends, or the way breaks.
    async fn carry(&self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if to.write_all(&buffer[..count]).await.is_err() {
                return;
            }
            let more = count as u64;
            let passed = self.passed.fetch_add(more, Ordering::AcqRel) + more;
            if passed >= self.breaks_at && !self.is_broken.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

impl BreakingWay {
    /// Leads to the socket in `place` from a directory below it, and breaks after so many bytes; then it is mended, or stays
    /// broken.
    fn lead(place: &Path, name: &str, breaks_at: u64, is_mended: bool) -> Self {
        let run = place.join(name);
        std::fs::create_dir(&run).expect("made");
        let listener = UnixListener::bind(run.join("fardel.sock")).expect("a socket");
        let server = place.join("fardel.sock");
        let carried = CarriedBytes {
            passed: Arc::default(),
            breaks_at,
            is_broken: Arc::default(),
        };
        let passed = Arc::clone(&carried.passed);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if carried.is_broken.load(Ordering::Acquire) && !is_mended {
                    continue;
                }
                let upstream = UnixStream::connect(&server).await.expect("served");
                let carried = carried.clone();
                tokio::spawn(async move {
                    let (sent, answers) = client.into_split();
                    let (answered, sends) = upstream.into_split();
                    tokio::select! {
                        () = carried.carry(sent, sends) => {}
                        () = carried.carry(answered, answers) => {}
                    }
                });
            }
        });
        Self { run, passed }
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Acquire)
    }

    /// A command line that goes this way.
    fn command(&self, place: &Path, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fardel"));
        command
            .args(line.split(' '))
            .current_dir(place)
            .env_clear()
            .env("FARDEL_RUN", &self.run)
            .env("FARDEL_CONFIG", "/nonexistent")
            .env("HOME", place)
            .env("LANG", "C")
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end, which is a good one.
    async fn done(&self, place: &Path, line: &str) {
        let output = timeout(HANG, self.command(place, line).output()).await;
        let output = output.expect("it hangs").expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{line}: {said}");
    }
}

/// Bytes of a large file, another one for each seed, in which no piece is like the one before it.
fn large(seed: u64) -> Vec<u8> {
    let words = (0..SIZE / 8).map(|at| (at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// How far the only upload into the folder `data` is; None where there is none.
async fn under_way(the_box: &TheBox) -> Option<u64> {
    let told = the_box.get(&As::Root, "/api/v1/folders/data/uploads").await;
    assert_eq!(told.status, 200, "{}", told.short());
    let told = told.json();
    let all = told["items"].as_array().expect("a list");
    assert!(all.len() <= 1, "a second one was begun: {told}");
    all.first().map(|one| one["offset"].as_u64().unwrap_or(0))
}

/// Lets a copy begin a file on a way that stays broken, and ends it there; gives how much of it the server has.
async fn broken_off(the_box: &TheBox, place: &Path, name: &str) -> u64 {
    let way = BreakingWay::lead(place, name, BREAKS_AT, false);
    let mut copy = way.command(place, "folder cp large.bin data:/");
    let copy = copy.stdout(Stdio::null()).stderr(Stdio::null());
    let mut copy = copy.spawn().expect("it runs");
    let came = async {
        loop {
            let now = under_way(the_box).await.unwrap_or(0);
            if way.passed() >= BREAKS_AT && now >= BREAKS_AT - BESIDE {
                return now;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let came = timeout(HANG, came).await.expect("it never breaks");
    copy.kill().await.expect("it waits for its server");
    assert!(came < SIZE, "all {came} bytes came");
    came
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_breaks_off_goes_on_where_it_stopped() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    let place = the_box.folder.path();
    let whole = BreakingWay::lead(place, "whole", u64::MAX, true);
    whole.done(place, "folder create data").await;
    let bytes = large(1);
    std::fs::write(place.join("large.bin"), &bytes).expect("written");

    // The connection breaks, and the same copy goes on: in both directions.
    let up = BreakingWay::lead(place, "up", BREAKS_AT, true);
    up.done(place, "folder cp large.bin data:/first.bin").await;
    assert!(
        up.passed() > SIZE && up.passed() < SIZE + BESIDE,
        "{} bytes up",
        up.passed()
    );
    let down = BreakingWay::lead(place, "down", BREAKS_AT, true);
    down.done(place, "folder cp data:/first.bin back.bin").await;
    assert!(
        down.passed() > SIZE && down.passed() < SIZE + BESIDE,
        "{} bytes down",
        down.passed()
    );
    assert!(std::fs::read(place.join("back.bin")).expect("there") == bytes);

    // The copy ends with its terminal, and the next one sends what is left.
    let came = broken_off(&the_box, place, "cut").await;
    let rest = BreakingWay::lead(place, "rest", u64::MAX, true);
    rest.done(place, "folder cp large.bin data:/").await;
    let passed = rest.passed();
    assert!(passed < SIZE - came + BESIDE, "{passed} after {came}");
    assert_eq!(under_way(&the_box).await, None);
    whole
        .done(place, "folder cp data:/large.bin again.bin")
        .await;
    assert!(std::fs::read(place.join("again.bin")).expect("there") == bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_changed_file_begins_at_its_first_byte() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    let place = the_box.folder.path();
    let whole = BreakingWay::lead(place, "whole", u64::MAX, true);
    whole.done(place, "folder create data").await;
    std::fs::write(place.join("large.bin"), large(1)).expect("written");
    broken_off(&the_box, place, "cut").await;
    // As long as before, and changed since.
    let changed = large(2);
    std::fs::write(place.join("large.bin"), &changed).expect("written");
    let before = whole.passed();
    whole.done(place, "folder cp large.bin data:/").await;
    assert!(
        whole.passed() - before >= SIZE,
        "a part of it is of another version"
    );
    whole
        .done(place, "folder cp data:/large.bin back.bin")
        .await;
    assert!(std::fs::read(place.join("back.bin")).expect("there") == changed);
}
