//! Where programs of an image find the driver's libraries: the loader's cache (`/etc/ld.so.cache`) lists
//! those that are shown inside, as programs expect that ask `ldconfig -p`, and copies that the image
//! brings in the usual folders are covered by them. Runs nothing of an image, follows its links inside
//! only, and survives whatever bytes stand in its files.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2};

use crate::gpu::{FileOrder, FileUse};

/// Where the driver's libraries are shown; see `gpu::driver`.
const SHOWN_IN: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/", "/usr/lib64/"];

/// Where images keep copies of the driver's libraries, below the root. A star stands for any ending.
const COPIES_IN: [&str; 14] = [
    "usr/local/cuda*/compat",
    "usr/local/cuda*/compat/lib",
    "usr/local/cuda*/lib64",
    "usr/local/cuda*/lib64/stubs",
    "opt/cuda*/compat",
    "opt/cuda*/lib64",
    "usr/local/nvidia/lib",
    "usr/local/nvidia/lib64",
    "usr/local/lib",
    "usr/lib",
    "lib",
    "lib64",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
];

/// A cache larger than this is left alone. Distributions' have 20 to 200 KiB.
const MAX_BYTES: u64 = 8 << 20;
/// Names that are looked at in one folder of an image.
const MAX_NAMES: usize = 16_384;
/// Copies that are covered. Each is a mount.
const MAX_COPIES: usize = 64;

const CACHE: &str = "etc/ld.so.cache";
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// What stands in front of the table in caches of old distributions.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const HEAD: usize = 48;
const ENTRY: usize = 24;
/// "libc6,x86-64", as `ldconfig` counts it.
const FLAGS: u32 = 0x0303;
/// Set where an entry's `capabilities` are a number in an extension of the file.
const EXTENDED: u64 = 1 << 62;

/// One line of `ldconfig -p`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CacheEntry {
    name: Vec<u8>,
    path: Vec<u8>,
    flags: u32,
    version: u32,
    capabilities: u64,
}

/// Something to be covered: a file of the host, and the path inside of what it stands over.
pub(super) type Cover = (std::path::PathBuf, String);

/// The driver's libraries among the files of an order: by name the place where each is shown.
fn libraries(files: &[FileOrder]) -> BTreeMap<String, &FileOrder> {
    let mut all = BTreeMap::new();
    for file in files.iter().filter(|file| file.for_what == FileUse::Run) {
        let name = SHOWN_IN
            .iter()
            .find_map(|folder| file.at.strip_prefix(folder))
            .filter(|name| name.contains(".so") && !name.contains('/'));
        if let Some(name) = name {
            all.entry(name.to_owned()).or_insert(file);
        }
    }
    all
}

/// Lists the driver's libraries in the loader's cache of a finished root. An image without a cache, or with
/// one of another kind, stays as it is: its programs look in the folders themselves.
pub(super) fn list(root: &Path, files: &[FileOrder]) -> io::Result<()> {
    let ours = libraries(files);
    if ours.is_empty() {
        return Ok(());
    }
    let root = open_root(root)?;
    let Some(cache) = cache(root.as_fd()) else {
        return Ok(());
    };
    let added: Vec<(&str, &str)> = ours
        .iter()
        .map(|(name, file)| (name.as_str(), file.at.as_str()))
        .collect();
    let Some(merged) = merged(&cache, &added) else {
        return Ok(());
    };
    // The session's own copy: a package manager inside may write it again.
    let file = open(
        root.as_fd(),
        CACHE,
        OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK | OFlags::CLOEXEC,
    )?;
    File::from(file).write_all(&merged)
}

/// Copies of the driver's libraries that an image brings in the usual folders and in those that its cache
/// names, each with what is to be shown over it; at most `MAX_COPIES`.
pub(super) fn copies(root: &Path, files: &[FileOrder]) -> io::Result<Vec<Cover>> {
    let ours = libraries(files);
    if ours.is_empty() {
        return Ok(Vec::new());
    }
    let root = open_root(root)?;
    // `libcuda` → what is shown under any of its names.
    let by_stem: BTreeMap<&str, &FileOrder> = ours
        .iter()
        .filter_map(|(name, file)| Some((name.split_once(".so")?.0, *file)))
        .collect();
    let mut folders: Vec<String> = COPIES_IN
        .iter()
        .flat_map(|pattern| matching(root.as_fd(), pattern))
        .collect();
    for entry in cache(root.as_fd())
        .and_then(|bytes| entries(&bytes))
        .unwrap_or_default()
    {
        let known = |name: &str| {
            name.split_once(".so")
                .is_some_and(|(stem, _)| by_stem.contains_key(stem))
        };
        let Ok(path) = String::from_utf8(entry.path) else {
            continue;
        };
        if let Some((folder, name)) = path.trim_start_matches('/').rsplit_once('/')
            && known(name)
        {
            folders.push(folder.to_owned());
        }
    }
    let taken: BTreeSet<&str> = files.iter().map(|file| file.at.as_str()).collect();
    let (mut seen, mut covers) = (BTreeSet::new(), Vec::new());
    for folder in folders {
        let Some((identity, names)) = names_in(root.as_fd(), &folder) else {
            continue;
        };
        if !seen.insert(identity) {
            continue;
        }
        // `/lib` may lead to `/usr/lib`, where ours stand already.
        let own_folder = SHOWN_IN.iter().find(|shown| {
            names_in(root.as_fd(), shown.trim_matches('/'))
                .is_some_and(|(other, _)| other == identity)
        });
        for name in names {
            let Some((stem, _)) = name.split_once(".so") else {
                continue;
            };
            let Some(file) = by_stem.get(stem) else {
                continue;
            };
            let ours_already =
                own_folder.is_some_and(|shown| taken.contains(format!("{shown}{name}").as_str()));
            let at = format!("/{folder}/{name}");
            if ours_already || taken.contains(at.as_str()) || !is_file(root.as_fd(), &at) {
                continue;
            }
            if covers.len() == MAX_COPIES {
                return Ok(covers);
            }
            covers.push((file.from.clone(), at));
        }
    }
    Ok(covers)
}

fn open_root(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(root, flags, Mode::empty())?)
}

fn open(root: BorrowedFd<'_>, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let path = path.trim_start_matches('/');
    Ok(openat2(root, path, flags, Mode::empty(), resolve)?)
}

fn is_file(root: BorrowedFd<'_>, path: &str) -> bool {
    open(root, path, OFlags::PATH | OFlags::CLOEXEC)
        .and_then(|file| Ok(rustix::fs::fstat(file)?))
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
}

/// The image's cache; None where it has none, or none that could be one.
fn cache(root: BorrowedFd<'_>) -> Option<Vec<u8>> {
    if !is_file(root, CACHE) {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(root, CACHE, flags).ok()?);
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_BYTES).then_some(bytes)
}

/// Folders that a pattern stands for. At most one star, in the middle of a path.
fn matching(root: BorrowedFd<'_>, pattern: &str) -> Vec<String> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![pattern.to_owned()];
    };
    let (above, beginning) = before.rsplit_once('/').unwrap_or((".", before));
    let (_, names) = names_in(root, above).unwrap_or_default();
    names
        .into_iter()
        .filter(|name| name.starts_with(beginning))
        .map(|name| format!("{above}/{name}{after}"))
        .collect()
}

/// Which folder that is, and the names in it.
fn names_in(root: BorrowedFd<'_>, folder: &str) -> Option<((u64, u64), Vec<String>)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = open(root, folder, flags).ok()?;
    let stat = rustix::fs::statat(&folder, "", AtFlags::EMPTY_PATH).ok()?;
    let mut names: Vec<String> = Dir::read_from(&folder)
        .ok()?
        .take(MAX_NAMES)
        .filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned))
        .collect();
    names.sort();
    Some(((stat.st_dev, stat.st_ino), names))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

/// What a cache lists; None for bytes that are none. Lines that lead out of the file are left out.
fn entries(bytes: &[u8]) -> Option<Vec<CacheEntry>> {
    let table = if bytes.starts_with(OLD_MAGIC) {
        // A table of another layout, then this one at the next multiple of eight.
        let old = usize::try_from(number(bytes, 12)?).ok()?;
        let end = old.checked_mul(12)?.checked_add(16)?;
        bytes.get(end.checked_next_multiple_of(8)?..)?
    } else {
        bytes
    };
    if !table.starts_with(MAGIC) {
        return None;
    }
    let count = usize::try_from(number(table, MAGIC.len())?).ok()?;
    if count > table.len().saturating_sub(HEAD) / ENTRY {
        return None;
    }
    let text = |at: u32| {
        let rest = table.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().take(4096).position(|byte| *byte == 0)?;
        Some(rest[..end].to_vec())
    };
    let entry = |number_of: usize| {
        let at = HEAD + number_of * ENTRY;
        let low = u64::from(number(table, at + 16)?);
        let high = u64::from(number(table, at + 20)?);
        Some(CacheEntry {
            flags: number(table, at)?,
            name: text(number(table, at + 4)?)?,
            path: text(number(table, at + 8)?)?,
            version: number(table, at + 12)?,
            capabilities: high << 32 | low,
        })
    };
    Some((0..count).filter_map(entry).collect())
}

/// A cache with `added` (name and path) in it, in the place of what it listed under those names. None
/// for bytes that are no cache.
///
/// Lines for special processors go: they say where they lead in an extension of the file that is not
/// carried over, and each of them stands beside one for every processor.
fn merged(bytes: &[u8], added: &[(&str, &str)]) -> Option<Vec<u8>> {
    let mut all = entries(bytes)?;
    all.retain(|entry| {
        entry.capabilities & EXTENDED == 0
            && !added.iter().any(|(name, _)| name.as_bytes() == entry.name)
    });
    all.extend(added.iter().map(|(name, path)| CacheEntry {
        name: name.as_bytes().to_vec(),
        path: path.as_bytes().to_vec(),
        flags: FLAGS,
        version: 0,
        capabilities: 0,
    }));
    // The loader searches by halves, from the last name to the first.
    all.sort_by(|a, b| by_name(&b.name, &a.name));
    let strings_at = HEAD + all.len() * ENTRY;
    let (mut table, mut strings) = (Vec::new(), Vec::new());
    for entry in &all {
        let mut place = |text: &[u8]| {
            let at = u32::try_from(strings_at + strings.len()).ok();
            strings.extend_from_slice(text);
            strings.push(0);
            at
        };
        table.extend(entry.flags.to_le_bytes());
        table.extend(place(&entry.name)?.to_le_bytes());
        table.extend(place(&entry.path)?.to_le_bytes());
        table.extend(entry.version.to_le_bytes());
        table.extend(entry.capabilities.to_le_bytes());
    }
    let mut file = MAGIC.to_vec();
    file.extend(u32::try_from(all.len()).ok()?.to_le_bytes());
    file.extend(u32::try_from(strings.len()).ok()?.to_le_bytes());
    // Little-endian, no extension.
    file.extend([2, 0, 0, 0]);
    file.resize(HEAD, 0);
    file.append(&mut table);
    file.append(&mut strings);
    Some(file)
}

/// The order of names in a cache: by bytes, but numbers by their value, and before any other character.
fn by_name(a: &[u8], b: &[u8]) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        match (a.first(), b.first()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => match (x.is_ascii_digit(), y.is_ascii_digit()) {
                (true, true) => {
                    let order = value(&mut a).cmp(&value(&mut b));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                (true, false) => return Ordering::Greater,
                (false, true) => return Ordering::Less,
                // As the loader compares them: signed.
                (false, false) if x != y => return x.cast_signed().cmp(&y.cast_signed()),
                (false, false) => {
                    a = &a[1..];
                    b = &b[1..];
                }
            },
        }
    }
}

/// Takes the number at the beginning; the loader's own numbers go round at 32 bits.
fn value(text: &mut &[u8]) -> i32 {
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    digits.iter().fold(0i32, |sum, digit| {
        sum.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [(&str, &str); 2] = [
        ("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
        (
            "libnvidia-ml.so.1",
            "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        ),
    ];

    /// What the machine's own `ldconfig` reads in a cache.
    fn read_back(cache: &[u8]) -> String {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("cache");
        std::fs::write(&path, cache).expect("written");
        let output = std::process::Command::new("/sbin/ldconfig")
            .arg("-p")
            .arg("-C")
            .arg(&path)
            .output()
            .expect("ldconfig is part of every glibc system");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn the_machines_own_cache_with_ours_is_read_by_its_own_ldconfig() {
        let own = std::fs::read("/etc/ld.so.cache").expect("a glibc system has one");
        let made = merged(&own, &OURS).expect("it is a cache");
        let (before, after) = (read_back(&own), read_back(&made));
        for (name, path) in OURS {
            let line = format!("\t{name} (libc6,x86-64) => {path}\n");
            assert_eq!(after.matches(&line).count(), 1, "{after}");
        }
        let special = |line: &&str| line.contains("hwcap");
        for line in before.lines().skip(1).filter(|line| !special(line)) {
            let generator = line.starts_with("Cache generated by");
            assert!(generator || after.contains(line), "{line} is gone");
        }
        // Put in once more, they stand there once.
        let again = merged(&made, &OURS).expect("it is a cache");
        assert_eq!(again, made);
        // The order in which `ldconfig` itself wrote them.
        let names: Vec<Vec<u8>> = entries(&own)
            .expect("it is one")
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert!(names.is_sorted_by(|a, b| by_name(a, b) != Ordering::Less));
    }

    #[test]
    fn what_an_image_lists_under_these_names_is_listed_no_more() {
        let image = merged(
            &merged(MAGIC_ONLY, &[]).expect("an empty cache"),
            &[
                ("libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"),
                ("libz.so.1", "/lib/libz.so.1"),
            ],
        )
        .expect("a cache");
        let mut old = OLD_MAGIC.to_vec();
        old.resize(12, 0);
        old.extend(1u32.to_le_bytes());
        old.resize(32, 7);
        old.extend(&image);
        for cache in [image, old] {
            let made = entries(&merged(&cache, &OURS).expect("a cache")).expect("a cache");
            let told: Vec<String> = made
                .iter()
                .map(|entry| String::from_utf8_lossy(&entry.path).into_owned())
                .collect();
            assert_eq!(told, ["/lib/libz.so.1", OURS[1].1, OURS[0].1]);
        }
    }

    const MAGIC_ONLY: &[u8] =
        b"glibc-ld.so.cache1.1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    #[test]
    fn any_bytes_are_survived() {
        let own = std::fs::read("/etc/ld.so.cache").expect("a glibc system has one");
        for end in (0..own.len()).step_by(97) {
            let _ = merged(&own[..end], &OURS);
        }
        for at in (0..own.len().min(4096)).chain((4096..own.len()).step_by(31)) {
            let mut bytes = own.clone();
            bytes[at] ^= 0xff;
            let _ = merged(&bytes, &OURS);
        }
        let mut many = MAGIC_ONLY.to_vec();
        many[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(merged(&many, &OURS), None);
        assert_eq!(merged(b"", &OURS), None);
        let mut old = OLD_MAGIC.to_vec();
        old.resize(12, 0);
        old.extend(u32::MAX.to_le_bytes());
        assert_eq!(merged(&old, &OURS), None);
    }

    #[test]
    fn copies_in_an_image_are_found_by_name_and_whatever_is_no_file_is_left() {
        let image = tempfile::tempdir().expect("a directory");
        let put = |path: &str| {
            let path = image.path().join(path);
            std::fs::create_dir_all(path.parent().expect("below")).expect("made");
            std::fs::write(path, "a copy").expect("written");
        };
        put("usr/local/cuda-12.4/compat/libcuda.so.550.1");
        put("usr/local/cuda-12.4/compat/libcudadebugger.so.550.1");
        put("usr/lib/x86_64-linux-gnu/libcuda.so.1");
        put("usr/lib/x86_64-linux-gnu/libcuda.so.550.1");
        put("srv/mine/libcuda.so.1");
        let link = |to: &str, at: &str| {
            std::os::unix::fs::symlink(to, image.path().join(at)).expect("a link");
        };
        link(
            "libcuda.so.550.1",
            "usr/local/cuda-12.4/compat/libcuda.so.1",
        );
        link("cuda-12.4", "usr/local/cuda");
        link("/etc/passwd", "usr/local/cuda-12.4/compat/libcuda.so.2");
        link("usr/lib", "lib");
        std::fs::create_dir_all(image.path().join("usr/local/nvidia/lib/libcuda.so.1"))
            .expect("made");
        let file = |name: &str| FileOrder {
            from: "/hooks/cuda.so".into(),
            at: format!("/usr/lib/x86_64-linux-gnu/{name}"),
            for_what: FileUse::Run,
        };
        let files = [file("libcuda.so.1"), file("libcuda.so")];
        let found: Vec<String> = copies(image.path(), &files)
            .expect("it is a directory")
            .into_iter()
            .map(|(from, at)| {
                assert_eq!(from, Path::new("/hooks/cuda.so"));
                at
            })
            .collect();
        assert_eq!(
            found,
            [
                // Whichever of the two names of the folder is found first.
                "/usr/local/cuda/compat/libcuda.so.1",
                "/usr/local/cuda/compat/libcuda.so.550.1",
                "/usr/lib/x86_64-linux-gnu/libcuda.so.550.1",
            ]
        );
        assert!(copies(image.path(), &[]).expect("nothing").is_empty());
    }

    #[test]
    fn an_image_is_looked_through_within_its_bounds() {
        let image = tempfile::tempdir().expect("a directory");
        let at = |path: &str| image.path().join(path);
        std::fs::create_dir_all(at("usr/local/lib")).expect("made");
        std::fs::create_dir_all(at("etc")).expect("made");
        for number in 0..65 {
            let name = format!("usr/local/lib/libcuda.so.{number}");
            std::fs::write(at(&name), "a copy").expect("written");
        }
        let file = FileOrder {
            from: "/hooks/cuda.so".into(),
            at: "/usr/lib/x86_64-linux-gnu/libcuda.so.1".into(),
            for_what: FileUse::Run,
        };
        let found = copies(image.path(), &[file]).expect("it is a directory");
        assert_eq!(found.len(), 64);

        let root = open_root(image.path()).expect("there");
        std::fs::create_dir(at("many")).expect("made");
        for number in 0..16_384 {
            std::fs::File::create(at(&format!("many/{number}"))).expect("made");
        }
        let (_, names) = names_in(root.as_fd(), "many").expect("a folder");
        assert_eq!(names.len(), 16_384, "with . and ..");

        let table = std::fs::File::create(at(CACHE)).expect("made");
        table.set_len(8 << 20).expect("grown");
        assert_eq!(cache(root.as_fd()).map(|bytes| bytes.len()), Some(8 << 20));
        table.set_len((8 << 20) + 1).expect("grown");
        assert_eq!(cache(root.as_fd()), None);
    }
}
