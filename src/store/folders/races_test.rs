//! A session changes directories and files for links to places outside, as fast as it can, while the server works in the
//! folder: each operation reads and changes what lies in the folder, or is refused, and nothing outside is read or touched.
//! `FARDEL_RACES=10000` says how many rounds all operations run together; the nightly does.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rules::folder_path::FolderPath;
use rules::names::FolderId;
use rules::units::Timestamp;
use rustix::fs::{RenameFlags, renameat_with};
use uuid::Uuid;

use super::archive::ArchiveFormat;
use super::failure::FolderError;
use super::listing::EntryQuery;
use super::search::SearchQuery;
use super::staging::DeclaredFile;
use super::versions::TextVersion;
use super::{FolderStore, mounted_directory};

const ID: FolderId = FolderId(Uuid::from_u128(0xab));
const OTHER: FolderId = FolderId(Uuid::from_u128(0xcd));
const NOW: Timestamp = Timestamp::from_millis(4_000_000_000_000);
/// Rounds of each operation in every run.
const ROUNDS: u64 = 300;
/// How long an operation waits for both ends of a race, on a machine that gives the other thread no turn.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What lies outside: contents of its files, and how names in each of its directories begin.
const SECRET: &str = "contents-from-outside";
const NAME: &str = "name-from-outside";
/// What lies in the folder.
const OWN: &str = "own";

/// What one operation is called, whether the race refuses it at times, and what it does in one round.
struct FolderRace {
    name: &'static str,
    may_be_refused: bool,
    round: fn(&RacedFolder, u64) -> Result<(), FolderError>,
}

const fn race(
    name: &'static str,
    round: fn(&RacedFolder, u64) -> Result<(), FolderError>,
) -> FolderRace {
    FolderRace {
        name,
        may_be_refused: true,
        round,
    }
}

const RACES: [FolderRace; 18] = [
    race("list", list),
    race("read", read),
    race("make a directory", make_directory),
    race("move out", move_out),
    race("move in", move_in),
    race("copy out", copy_out),
    race("copy in", copy_in),
    race("place an upload", place),
    race("place an upload over a file", place_over),
    race("write a text", write_text),
    race("write a new text", write_new_text),
    race("archive", archive),
    race("trash", trash),
    race("remove for good", remove_for_good),
    race("restore", restore),
    race("count", count),
    // These begin at the top, which no session changes.
    FolderRace {
        name: "search",
        may_be_refused: false,
        round: search,
    },
    FolderRace {
        name: "copy a whole folder",
        may_be_refused: false,
        round: copy_whole,
    },
];

/// A folder with a directory `d`, one in it, and files; and a place outside that looks the same.
struct RacedFolder {
    directory: tempfile::TempDir,
    store: FolderStore,
    /// The directory that sessions mount.
    place: PathBuf,
    /// `d` and `d/e`, however they are called at the moment.
    outer: File,
    inner: File,
    outside: PathBuf,
    /// Held while names are changed for their links, and while a link is laid once more.
    turn: Mutex<()>,
}

impl RacedFolder {
    fn lay() -> Self {
        // Memory, where there is some: what is raced for is the walk of a path, and no disk slows it down.
        let memory = Path::new("/dev/shm");
        let directory = match tempfile::tempdir_in(memory) {
            Ok(directory) => directory,
            Err(_) => tempfile::tempdir().expect("a directory"),
        };
        let data = directory.path().join("data");
        fs::create_dir(&data).expect("made");
        let store = FolderStore::open(&data).expect("a store");
        store.create(ID, false, None).expect("made");
        store.create(OTHER, false, None).expect("made");
        let place = mounted_directory(&data, ID);
        let outside = directory.path().join("outside");
        for (at, text) in [(place.join("d"), OWN), (outside.clone(), SECRET)] {
            fs::create_dir_all(at.join("e")).expect("made");
            fs::write(at.join("text"), text).expect("written");
            fs::write(at.join("e").join("own"), text).expect("written");
        }
        for number in 0..40 {
            let below = ["", "e"][number % 2];
            let name = format!("{NAME}-{number}");
            fs::write(outside.join(below).join(name), SECRET).expect("written");
        }
        symlink(&outside, place.join("d-link")).expect("a link");
        symlink(outside.join("e"), place.join("d/e-link")).expect("a link");
        symlink(outside.join("text"), place.join("d/text-link")).expect("a link");
        let open = |path: &str| File::open(place.join(path)).expect("there");
        let (outer, inner) = (open("d"), open("d/e"));
        Self {
            directory,
            store,
            place,
            outer,
            inner,
            outside,
            turn: Mutex::default(),
        }
    }

    /// A way to `d/e` itself that no swap leads elsewhere.
    fn inner(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.inner.as_raw_fd()))
    }

    /// Changes directories and a file for links until it is over, each at another pace. Goes through descriptors: it never
    /// follows a link of its own.
    fn swap(&self, over: &AtomicBool, swaps: &AtomicU64) {
        let top = File::open(&self.place).expect("there");
        let mut step = 0_u64;
        while !over.load(Ordering::Relaxed) {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            if exchange(&top, "d") {
                swaps.fetch_add(1, Ordering::Relaxed);
            }
            if step.is_multiple_of(3) {
                exchange(&self.outer, "e");
            }
            if step.is_multiple_of(5) {
                exchange(&self.outer, "text");
            }
            drop(turn);
            // Who waits for the turn gets one.
            std::thread::yield_now();
            step += 1;
        }
    }
}

/// Swaps what has this name in a directory with its link there. False where the server took one of them.
fn exchange(directory: &File, name: &str) -> bool {
    let link = format!("{name}-link");
    let flags = RenameFlags::EXCHANGE;
    renameat_with(directory, name, directory, link.as_str(), flags).is_ok()
}

fn path(text: &str) -> FolderPath {
    FolderPath::parse(text).expect(text)
}

fn named(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn list(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let of = ["d", "d/e"][usize::from(round % 2 == 1)];
    let query = EntryQuery {
        limit: 100,
        ..EntryQuery::default()
    };
    let page = ground.store.list(ID, &path(of), &query)?;
    let names: BTreeSet<_> = page.entries.iter().map(|one| named(&one.name)).collect();
    assert!(!names.iter().any(|name| name.contains(NAME)), "{names:?}");
    Ok(())
}

fn read(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let of = ["d/text", "d/e/own"][usize::from(round % 2 == 1)];
    let mut open = ground.store.file(ID, &path(of))?;
    let mut text = String::new();
    io::Read::read_to_string(&mut open.file, &mut text).expect("readable");
    assert_eq!(text, OWN);
    Ok(())
}

fn make_directory(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let made = ground
        .store
        .make_directory(ID, &path(&format!("d/e/n{round}")));
    let there = ground.inner().join(format!("n{round}"));
    if let Ok(found) = there.symlink_metadata() {
        // Half made it would be root's alone.
        assert_ne!(found.mode() & 0o777, 0o700, "{made:?}");
        fs::remove_dir(there).expect("empty");
    }
    made
}

fn move_out(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    fs::write(ground.inner().join("own"), OWN).expect("written");
    let to = path(&format!("taken{round}"));
    ground.store.move_entry(ID, &path("d/e/own"), &to)
}

fn move_in(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let name = format!("given{round}");
    fs::write(ground.place.join(&name), OWN).expect("written");
    let to = path(&format!("d/e/{name}"));
    ground.store.move_entry(ID, &path(&name), &to)
}

fn copy_out(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let of = ["d/e", "d/e/own"][usize::from(round % 2 == 1)];
    let to = path(&format!("copy{round}"));
    ground.store.copy_entry(ID, &path(of), &to, &|| Ok(()))
}

fn copy_in(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let name = format!("given{round}");
    fs::write(ground.place.join(&name), OWN).expect("written");
    let to = path(&format!("d/e/{name}"));
    ground.store.copy_entry(ID, &path(&name), &to, &|| Ok(()))
}

fn sent(ground: &RacedFolder, at: &str, overwrite: bool) -> Result<(), FolderError> {
    let store = &ground.store;
    let declared = DeclaredFile {
        path: at.to_owned(),
        bytes: Some(OWN.len() as u64),
        overwrite,
        modified_at: Some(Timestamp::from_millis(1_000_000_000_000)),
        version: None,
        by: None,
    };
    // Staging lies where no session comes: it never meets the race.
    let staged = store.stage(ID, &path(at), declared, NOW);
    let upload = staged.expect("begun").id;
    let mut writer = store.append(ID, upload, 0, None).expect("begun");
    writer.write(OWN.as_bytes()).expect("written");
    writer.finish(true).expect("kept");
    let placed = store.place(ID, upload);
    if placed.is_err() {
        store.unstage(ID, upload).expect("it stays until then");
    }
    placed.map(|whole| assert!(whole, "all of it came"))
}

fn place(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    sent(ground, &format!("d/e/up{round}"), false)
}

fn place_over(ground: &RacedFolder, _: u64) -> Result<(), FolderError> {
    sent(ground, "d/e/own", true)
}

fn write_text(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let of = ["d/text", "d/e/own"][usize::from(round % 2 == 1)];
    let store = &ground.store;
    let written = store.write_text(ID, &path(of), OWN, &TextVersion::Any);
    // A text may have taken the place of the link itself: then there is nothing to swap any more.
    let _turn = ground.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let outer = PathBuf::from(format!("/proc/self/fd/{}", ground.outer.as_raw_fd()));
    let is_link = |name: &str| {
        let found = outer.join(name).symlink_metadata();
        found.is_ok_and(|found| found.is_symlink())
    };
    if !is_link("text") && !is_link("text-link") {
        fs::remove_file(outer.join("text-link")).expect("there");
        symlink(ground.outside.join("text"), outer.join("text-link")).expect("a link");
    }
    written.map(|_| ())
}

fn write_new_text(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let at = path(&format!("d/e/t{round}"));
    let written = ground.store.write_text(ID, &at, OWN, &TextVersion::New);
    written.map(|_| ())
}

fn archive(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let of = ["", "d", "d/e"][usize::try_from(round % 3).expect("small")];
    let format = match round % 2 {
        0 => ArchiveFormat::Tar,
        _ => ArchiveFormat::Zip,
    };
    let mut archive = ground.store.archive(ID, &[path(of)], "data", format)?;
    let mut all = Vec::new();
    while let Some(piece) = archive.next_piece().expect("read") {
        all.extend(piece);
    }
    // Files are stored as they are.
    for foreign in [SECRET, NAME] {
        let found = all
            .windows(foreign.len())
            .any(|window| window == foreign.as_bytes());
        assert!(!found, "{foreign} is in an archive of {of:?}");
    }
    Ok(())
}

fn trash(ground: &RacedFolder, _: u64) -> Result<(), FolderError> {
    fs::write(ground.inner().join("own"), OWN).expect("written");
    ground.store.remove_entry(ID, &path("d/e/own"), NOW)
}

fn remove_for_good(ground: &RacedFolder, _: u64) -> Result<(), FolderError> {
    fs::write(ground.inner().join("own"), OWN).expect("written");
    ground.store.remove_for_good(ID, &path("d/e/own"))
}

fn restore(ground: &RacedFolder, round: u64) -> Result<(), FolderError> {
    let store = &ground.store;
    let name = format!("r{round}");
    fs::write(ground.inner().join(&name), OWN).expect("written");
    store.remove_entry(ID, &path(&format!("d/e/{name}")), NOW)?;
    let item = store.removed(ID)?[0].id;
    let restored = store.restore_entry(ID, item);
    if restored.is_err() {
        let purged = store.purge_removed(ID, Some(&[item]), NOW);
        purged.expect("what did not come back is in the trash");
    }
    restored.map(|_| ())
}

fn count(ground: &RacedFolder, _: u64) -> Result<(), FolderError> {
    let counted = ground.store.subfolders(ID, &path("d"), NOW, true)?;
    for one in &counted.largest {
        // One file, and the links that lead outside count as themselves.
        assert!(one.taken.entries <= 4, "{counted:?}");
    }
    Ok(())
}

fn search(ground: &RacedFolder, _: u64) -> Result<(), FolderError> {
    let query = SearchQuery {
        words: "-from-outside".to_owned(),
        limit: 100,
        ..SearchQuery::default()
    };
    let page = ground.store.search(ID, &path(""), &query)?;
    assert!(page.found.is_empty(), "{:?}", page.found);
    Ok(())
}

fn copy_whole(ground: &RacedFolder, _: u64) -> Result<(), FolderError> {
    match ground.store.copy(ID, OTHER, &mut |_| Ok(())) {
        // A name that is swapped while its directory is listed may come twice.
        Err(FolderError::Fault { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
            Ok(())
        }
        copied => copied,
    }
}

/// All that a touch of a tree changes: names, contents, owners, modes and times.
fn seen(top: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(at) = waiting.pop() {
        let found = at.symlink_metadata().expect("there");
        let text = match found.is_dir() {
            true => {
                let below = fs::read_dir(&at).expect("a directory");
                waiting.extend(below.map(|one| one.expect("an entry").path()));
                String::new()
            }
            false => fs::read_to_string(&at).expect("a text"),
        };
        let (mode, user, group) = (found.mode(), found.uid(), found.gid());
        let (changed, nanos) = (found.ctime(), found.ctime_nsec());
        let modified = (found.mtime(), found.mtime_nsec());
        all.insert(format!(
            "{} {mode:o} {user} {group} {changed}.{nanos} {modified:?} {text}",
            at.display()
        ));
    }
    all
}

/// The files below a directory that hold what lies outside, or are called so; links are not followed.
fn leaked(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(at) = waiting.pop() {
        let kind = at.symlink_metadata().expect("there").file_type();
        let name = at.file_name().unwrap_or_default();
        if name.to_string_lossy().contains(NAME) {
            found.push(at.clone());
        }
        if kind.is_dir() {
            let below = fs::read_dir(&at).expect("a directory");
            waiting.extend(below.map(|one| one.expect("an entry").path()));
        } else if kind.is_file() && fs::read_to_string(&at).is_ok_and(|text| text.contains(SECRET))
        {
            found.push(at);
        }
    }
    found
}

#[test]
fn no_operation_follows_a_directory_or_a_file_that_becomes_a_link() {
    let all = std::env::var("FARDEL_RACES").ok();
    let all = all.map(|text| text.parse::<u64>().expect("a number"));
    let rounds = all.map_or(ROUNDS, |all| all.div_ceil(RACES.len() as u64));
    for FolderRace {
        name,
        may_be_refused,
        round,
    } in RACES
    {
        let ground = RacedFolder::lay();
        let before = seen(&ground.outside);
        let (over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut done, mut refused, mut faults) = (0_u64, 0_u64, BTreeSet::new());
        std::thread::scope(|scope| {
            // However a round ends, the other thread does, too.
            let _over = RaceEnd(&over);
            scope.spawn(|| ground.swap(&over, &swaps));
            let since = Instant::now();
            let mut number = 0;
            loop {
                let is_met = done > 0 && (refused > 0 || !may_be_refused);
                let is_raced = is_met && swaps.load(Ordering::Relaxed) > 0;
                if number >= rounds && (is_raced || since.elapsed() >= TIMEOUT) {
                    break;
                }
                match round(&ground, number) {
                    Ok(()) => done += 1,
                    Err(error) if error.code().is_some() => refused += 1,
                    Err(error) => {
                        faults.insert(format!("{error:?}"));
                    }
                }
                number += 1;
            }
        });
        let swaps = swaps.into_inner();
        println!("{name}: {done} done, {refused} refused, {swaps} swaps");
        assert!(faults.is_empty(), "{name}: {faults:?}");
        assert!(done > 0 && swaps > 0, "{name}: there was no race");
        assert!(
            refused > 0 || !may_be_refused,
            "{name}: no link was ever met"
        );
        assert_eq!(seen(&ground.outside), before, "{name} touched it");
        let inside = ground.directory.path().join("data");
        assert_eq!(leaked(&inside), Vec::<PathBuf>::new(), "{name}");
    }
}

/// Ends the other thread.
struct RaceEnd<'a>(&'a AtomicBool);

impl Drop for RaceEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
