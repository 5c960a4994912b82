//! Backups of what a box decides by: catalog and the key of what is sealed in it, settings, certificates
//! with their keys. One encrypted file a backup; verifying rehearses the restore; restoring changes nothing until one rename. Images, folders
//! and logs of sessions are not in it. Takes no part in serving, so that it works without a server too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Component, Path, PathBuf};

use base::settings;
use rules::names::{ContainerName, NodeId};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::{Bytes, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

mod seal;

use crate::catalog::acceptance;
use crate::catalog::copy::{self, Inspection};
use crate::catalog::sealing;
use crate::{Failure, ServerFault};
use seal::{About, Opener, Sealer};
pub use seal::{Passphrase, SealHeader};

/// Where the things are that a backup is made of, and go to when one is restored.
#[derive(Debug, Clone)]
pub struct BackupPaths {
    pub data: PathBuf,
    /// The settings file; `conf.d` lies beside it.
    pub settings: PathBuf,
}

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupMade {
    pub path: PathBuf,
    pub size: Bytes,
}

/// What a rehearsal of the restore found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub header: SealHeader,
    /// Names of the files inside.
    pub files: Vec<String>,
    pub catalog: Inspection,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub verified: Verified,
    /// Where the state lies that was there before; None where there was none.
    pub aside: Option<PathBuf>,
    /// Settings files that lie beside the ones in force, because those say something else.
    pub settings_beside: Vec<PathBuf>,
    /// Sessions that ran when the backup was made and whose containers this machine does not have; they
    /// ended as lost, or wait to start again where they may.
    pub lost: u64,
}

/// One file inside, in front of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BackupMember {
    name: String,
    size: u64,
    mode: u32,
}

const CATALOG: &str = "catalog.sqlite";
const KEYS: &str = "tls/";
const SETTINGS: &str = "settings/";
/// Small files of the state that are put in place of the ones there, if they are in the backup.
const STATE: [&str; 1] = [INSTALLATION];
/// How far the wizard has got.
pub(crate) const INSTALLATION: &str = "installation.json";
/// Longest description of a member.
const MAX_NAME_LENGTH: u32 = 4096;
/// Bytes that stay free on the disk of the state while a copy of the catalog lies on it.
const SPARE: u64 = 128 << 20;
/// In front of the names of directories that a backup or a restore works in.
const WORK: &str = ".backup-work-";

/// Makes a backup in the new file `to`, mode 0600; a server may run meanwhile.
///
/// Takes reading the catalog twice, and for a moment as much room as it has on the disk of the state.
///
/// Errors: `backup.exists`, `state.missing`, `disk.full`, `backup.unwritable`; `state.key-missing`,
/// `state.key-foreign`, `state.key-unreadable` where no server would start with it. Nothing is left of `to`.
pub fn create(
    places: &BackupPaths,
    passphrase: &Passphrase,
    to: &Path,
    now: Timestamp,
) -> Result<BackupMade, Failure> {
    if to.exists() {
        return Err(refusals::backup_exists(to.display()).into());
    }
    let work = WorkDirectory::begin(&places.data)?;
    let needed = std::fs::metadata(copy::file(&places.data)).map_or(0, |m| m.len()) + SPARE;
    room(&places.data, needed)?;
    let scratch = work.0.join(CATALOG);
    let copied = copy::copy(&places.data, &scratch)?;
    copy::look_for_key(&scratch, copied.version, &places.data)?;
    let mut members = vec![(
        BackupMember {
            name: CATALOG.to_owned(),
            size: copied.size,
            mode: 0o600,
        },
        Content::File(scratch),
    )];
    members.extend(small_files(places)?);
    let length = members
        .iter()
        .map(|(member, _)| written_size(member))
        .sum::<u64>()
        + 4;

    let partial = beside(to, ".partial");
    let mut partial = Partial(Some(partial));
    let path = partial.0.clone().unwrap_or_default();
    let unwritable = |error: io::Error| -> Failure {
        match error
            .raw_os_error()
            .map(rustix::io::Errno::from_raw_os_error)
        {
            Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
                refusals::disk_full_no_backup(to.display()).into()
            }
            _ => refusals::backup_unwritable(to.display(), &error).into(),
        }
    };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .map_err(unwritable)?;
    let about = About {
        made_at: now,
        catalog_version: copied.version,
        installation_id: copied.installation_id,
        length,
    };
    let mut sealer = Sealer::begin(BufWriter::with_capacity(1 << 20, file), passphrase, about)
        .map_err(|fault| match fault.source.downcast::<io::Error>() {
            Ok(error) => unwritable(*error),
            Err(source) => ServerFault {
                what: fault.what,
                source,
            }
            .into(),
        })?;
    let sealed = members
        .iter()
        .try_for_each(|(member, content)| write_member(&mut sealer, member, content))
        .and_then(|()| sealer.write_all(&0u32.to_be_bytes()))
        .and_then(|()| sealer.finish())
        .and_then(|buffer| buffer.into_inner().map_err(io::IntoInnerError::into_error))
        .and_then(|file| file.sync_all());
    sealed.map_err(unwritable)?;
    std::fs::rename(&path, to).map_err(unwritable)?;
    partial.0 = None;
    sync_directory(to.parent().unwrap_or(Path::new("."))).map_err(unwritable)?;
    let size = std::fs::metadata(to).map_err(unwritable)?.len();
    Ok(BackupMade {
        path: to.to_owned(),
        size: Bytes(size),
    })
}

/// Reads what stands in front of a backup; needs no passphrase and proves nothing about the rest.
///
/// Errors: `backup.unreadable`, `backup.foreign`, `backup.newer`, `backup.cut`, `backup.damaged`.
pub fn look(file: &Path) -> Result<SealHeader, Refusal> {
    let (opened, size) = open(file)?;
    seal::header(&mut BufReader::new(opened), size).map(|(header, _)| header)
}

/// Rehearses the restore of a backup in a scratch directory below `scratch`, which keeps nothing of it.
///
/// Errors: as `look`, and `backup.wrong-passphrase`, `disk.full`; refusals for a catalog that no server
/// would start with. What is wrong with the rows stands in the answer.
pub fn verify(file: &Path, passphrase: &Passphrase, scratch: &Path) -> Result<Verified, Failure> {
    let work = WorkDirectory::begin(scratch)?;
    unpack(file, passphrase, &work.0)
}

/// Puts a backup in force. The state in `places.data` must be empty, or is kept aside with `replace`.
///
/// Everything is unpacked and looked through first; then keys and settings are put in place, and the
/// rename of the catalog, last of all, makes it count. Whatever fails before leaves the old catalog.
///
/// Errors: as `verify`; `server.already-running`, `restore.state-exists`, `backup.unsound`,
/// `restore.too-many-keys`, `state.unwritable`.
pub fn restore(
    file: &Path,
    passphrase: &Passphrase,
    places: &BackupPaths,
    replace: bool,
    now: Timestamp,
) -> Result<Restored, Failure> {
    let _held = copy::hold(&places.data)?;
    let old = copy::file(&places.data);
    if old.exists() && !replace {
        return Err(refusals::restore_state_exists(places.data.display()).into());
    }
    let work = WorkDirectory::begin(&places.data)?;
    let verified = unpack(file, passphrase, &work.0)?;
    if !verified.catalog.is_sound() {
        let first = verified.catalog.damage.first().cloned().or_else(|| {
            verified
                .catalog
                .findings
                .first()
                .map(|finding| finding.text.clone())
        });
        return Err(refusals::backup_unsound(first.unwrap_or_default()).into());
    }
    let lost = copy::end_elsewhere(&work.0, &known_here(&places.data, &work.0)?)?;
    let failed = |what: &'static str| move |error: io::Error| ServerFault::new(what, error);
    let stamp = stamp(now);
    let aside = old
        .exists()
        .then(|| places.data.join(format!("before-restore-{stamp}")));
    // A key file that cannot be read opens nothing; it is kept as it is.
    let broken = sealing::is_unreadable(&places.data);
    if broken {
        let beside = || places.data.join(format!("seal-before-{stamp}"));
        move_away(
            &places.data.join(sealing::KEY_FILE),
            &aside.clone().unwrap_or_else(beside),
        )
        .map_err(failed("keep the old key file"))?;
    }
    // Before anything else, because it may be refused. Beside those that are there: the catalog that is in
    // force until the rename needs its own.
    sealing::bring(&work.0, &places.data)?;
    if let Some(aside) = &aside {
        make_private(aside).map_err(failed("make a place for the old state"))?;
        // A catalog too damaged to be settled keeps its log beside it.
        if copy::settle(&places.data).is_err() {
            for end in ["-wal", "-shm"] {
                move_away(&beside(&old, end), aside).map_err(failed("keep the old log"))?;
            }
        }
        std::fs::hard_link(&old, aside.join(CATALOG)).map_err(failed("keep the old catalog"))?;
        if !broken {
            sealing::bring(&places.data, aside)?;
        }
    }
    let keep = |path: &Path| match &aside {
        Some(aside) => move_away(path, aside),
        None => Ok(()),
    };
    // The machine's memory of its duty belongs to the box; another box's would be obeyed by nobody.
    keep_other_machine_away(&places.data, &verified, &work.0, &keep)?;
    keep(&places.data.join("samples.sqlite")).map_err(failed("keep the old samples"))?;
    for end in ["-wal", "-shm"] {
        keep(&places.data.join(format!("samples.sqlite{end}")))
            .map_err(failed("keep the old samples"))?;
    }
    let keys = work.0.join(KEYS);
    if keys.is_dir() {
        let home = places.data.join(KEYS);
        keep(&home).map_err(failed("keep the old keys"))?;
        if home.exists() {
            // Left by a restore that was broken off: the same keys, or somebody's only ones.
            move_away(&home, &places.data.join(format!("tls-before-{stamp}")))
                .map_err(failed("keep the keys that were there"))?;
        }
        std::fs::rename(&keys, &home).map_err(failed("put the keys in place"))?;
    }
    for name in STATE {
        let staged = work.0.join(name);
        if staged.exists() {
            let home = places.data.join(name);
            keep(&home).map_err(failed("keep the old record"))?;
            std::fs::rename(&staged, &home).map_err(failed("put the record in place"))?;
        }
    }
    let settings_beside = put_settings(&work.0, &places.settings, replace, now)?;
    let staged = work.0.join(CATALOG);
    File::open(&staged)
        .and_then(|file| file.sync_all())
        .map_err(failed("write the catalog to disk"))?;
    // Root puts it in force: the machine obeys it though it may have obeyed a newer one.
    let state = copy::claim(&work.0, None)?.state;
    acceptance::accept(&places.data, state).map_err(failed("accept the catalog"))?;
    std::fs::rename(&staged, &old).map_err(failed("put the catalog in place"))?;
    sync_directory(&places.data).map_err(failed("write the directory to disk"))?;
    Ok(Restored {
        verified,
        aside,
        settings_beside,
        lost,
    })
}

/// The machine's own memory of its duty.
const DUTY: &str = "node.json";

/// What of it tells whose it is, and which containers it has.
#[derive(Deserialize)]
struct Duty {
    node: NodeId,
    places: BTreeMap<ContainerName, IgnoredAny>,
}

/// Containers that this machine was given by the very box that the catalog in `work` is of; empty on
/// another machine.
fn known_here(data: &Path, work: &Path) -> Result<BTreeSet<ContainerName>, Failure> {
    let own = copy::node_of(work)?;
    let duty = std::fs::read(data.join(DUTY))
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Duty>(&bytes).ok())
        .filter(|duty| duty.node == own);
    Ok(duty.map_or_else(BTreeSet::new, |duty| duty.places.into_keys().collect()))
}

/// Moves the machine's file away where it is another machine's than the catalog's.
fn keep_other_machine_away(
    data: &Path,
    verified: &Verified,
    work: &Path,
    keep: &dyn Fn(&Path) -> io::Result<()>,
) -> Result<(), Failure> {
    let path = data.join(DUTY);
    let Ok(bytes) = std::fs::read(&path) else {
        return Ok(());
    };
    let own = crate::catalog::copy::node_of(work)?;
    let same = serde_json::from_slice::<Duty>(&bytes).is_ok_and(|duty| duty.node == own);
    if same {
        return Ok(());
    }
    tracing::info!(made_on = %verified.header.installation_id, "node.json belonged to another node and is replaced");
    keep(&path)
        .and_then(|()| {
            if path.exists() {
                std::fs::remove_file(&path)
            } else {
                Ok(())
            }
        })
        .map_err(|error| ServerFault::new("keep the old machine's list", error).into())
}

enum Content {
    File(PathBuf),
    Bytes(Vec<u8>),
}

/// Settings and keys, which are small.
fn small_files(places: &BackupPaths) -> Result<Vec<(BackupMember, Content)>, Failure> {
    let mut wanted = Vec::new();
    for path in settings::files(&places.settings) {
        let inside = match path.strip_prefix(places.settings.parent().unwrap_or(Path::new("/"))) {
            Ok(rest) if path != places.settings => format!("{SETTINGS}{}", rest.display()),
            _ => format!("{SETTINGS}fardel.toml"),
        };
        wanted.push((inside, path));
    }
    if let Ok(keys) = std::fs::read_dir(places.data.join(KEYS)) {
        let mut found: Vec<PathBuf> = keys.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.sort();
        for path in found.into_iter().filter(|path| path.is_file()) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            wanted.push((format!("{KEYS}{name}"), path));
        }
    }
    for name in STATE.into_iter().chain([sealing::KEY_FILE]) {
        wanted.push((name.to_owned(), places.data.join(name)));
    }
    let mut members = Vec::new();
    for (name, path) in wanted {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                return Err(refusals::backup_incomplete(path.display(), &error).into());
            }
        };
        let mode = std::fs::metadata(&path).map_or(0o600, |m| m.permissions().mode() & 0o777);
        let size = bytes.len() as u64;
        members.push((BackupMember { name, size, mode }, Content::Bytes(bytes)));
    }
    Ok(members)
}

fn described(member: &BackupMember) -> Vec<u8> {
    serde_json::to_vec(member).unwrap_or_default()
}

fn written_size(member: &BackupMember) -> u64 {
    4 + described(member).len() as u64 + member.size
}

fn write_member(to: &mut impl Write, member: &BackupMember, content: &Content) -> io::Result<()> {
    let description = described(member);
    let length = u32::try_from(description.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_be_bytes())?;
    to.write_all(&description)?;
    let written = match content {
        Content::Bytes(bytes) => to.write_all(bytes).map(|()| bytes.len() as u64)?,
        Content::File(path) => io::copy(&mut File::open(path)?, to)?,
    };
    if written != member.size {
        return Err(io::Error::other(format!(
            "{} changed its size",
            member.name
        )));
    }
    Ok(())
}

/// Opens every byte of a backup into `into` and looks through the catalog as a server would.
fn unpack(file: &Path, passphrase: &Passphrase, into: &Path) -> Result<Verified, Failure> {
    let (opened, size) = open(file)?;
    let (mut inside, header) = Opener::begin(opened, size, passphrase)?;
    if header.catalog_version > copy::newest_version() {
        let why = format!(
            "its catalog is of version {}, this program ({}) knows {}",
            header.catalog_version,
            env!("CARGO_PKG_VERSION"),
            copy::newest_version()
        );
        return Err(seal::newer(&why).into());
    }
    room(into, header.length + SPARE)?;
    let mut files = Vec::new();
    loop {
        let mut length = [0; 4];
        inside.read_exact(&mut length).map_err(told)?;
        let length = u32::from_be_bytes(length);
        if length == 0 {
            break;
        }
        if length > MAX_NAME_LENGTH {
            return Err(seal::damaged().into());
        }
        let mut description = vec![0; length as usize];
        inside.read_exact(&mut description).map_err(told)?;
        let member: BackupMember =
            serde_json::from_slice(&description).map_err(|_| seal::damaged())?;
        let path = into.join(checked(&member.name)?);
        if let Some(folder) = path.parent() {
            make_private(folder).map_err(told)?;
        }
        let mut target = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(member.mode & 0o777)
            .open(&path)
            .map_err(told)?;
        let copied = io::copy(&mut inside.by_ref().take(member.size), &mut target).map_err(told)?;
        if copied != member.size {
            return Err(seal::damaged().into());
        }
        target.sync_all().map_err(told)?;
        files.push(member.name);
    }
    if io::copy(&mut inside, &mut io::sink()).map_err(told)? != 0
        || !files.iter().any(|name| name == CATALOG)
    {
        return Err(seal::damaged().into());
    }
    let catalog = copy::inspect(into)?;
    Ok(Verified {
        header,
        files,
        catalog,
    })
}

/// A name inside a backup, if it is one of those that `create` gives.
fn checked(name: &str) -> Result<&Path, Refusal> {
    let path = Path::new(name);
    let known = name == CATALOG
        || STATE.contains(&name)
        || name == sealing::KEY_FILE
        || name.starts_with(KEYS)
        || name.starts_with(SETTINGS);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if known && plain && path.components().count() <= 3 {
        Ok(path)
    } else {
        Err(seal::damaged())
    }
}

/// Puts the settings files in place where they say nothing that the ones in force do not; otherwise
/// beside them. Returns the latter.
fn put_settings(
    work: &Path,
    home: &Path,
    replace: bool,
    now: Timestamp,
) -> Result<Vec<PathBuf>, Failure> {
    let staged = work.join(SETTINGS);
    let mut beside_them = Vec::new();
    let folder = home.parent().unwrap_or(Path::new("/"));
    for path in settings::files(&staged.join("fardel.toml")) {
        let Ok(bytes) = std::fs::read(&path) else {
            continue;
        };
        let target = match path.strip_prefix(&staged) {
            Ok(rest) if rest != Path::new("fardel.toml") => folder.join(rest),
            _ => home.to_owned(),
        };
        let failed = |error| ServerFault::new(format!("put {} in place", target.display()), error);
        if std::fs::read(&target).is_ok_and(|now| now == bytes) {
            continue;
        }
        let silent = settings::read_file(&target).is_ok_and(|values| values.is_empty());
        let mode = std::fs::metadata(&path).map_or(0o640, |m| m.permissions().mode() & 0o777);
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let group = std::fs::metadata(&target).map(|m| m.gid()).ok();
        let place = if silent || replace {
            if target.exists() {
                let kept = beside(&target, &format!(".before-restore-{}", stamp(now)));
                std::fs::rename(&target, kept).map_err(failed)?;
            }
            target.clone()
        } else {
            let place = beside(&target, ".from-backup");
            beside_them.push(place.clone());
            place
        };
        write_whole(&place, &bytes, mode).map_err(failed)?;
        // The package lets a group read them, which is not the group of whoever restores.
        std::os::unix::fs::chown(&place, None, group).map_err(failed)?;
    }
    Ok(beside_them)
}

/// A directory to work in, gone afterwards; those of processes that died are cleared away first.
struct WorkDirectory(PathBuf);

impl WorkDirectory {
    fn begin(folder: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| -> Failure {
            if error.kind() == io::ErrorKind::StorageFull {
                return full().into();
            }
            refusals::backup_no_scratch(folder.display(), &error).into()
        };
        for entry in std::fs::read_dir(folder).map_err(failed)?.flatten() {
            let name = entry.file_name();
            let Some(process) = name.to_str().and_then(|name| name.strip_prefix(WORK)) else {
                continue;
            };
            let process = process.split('-').next().unwrap_or_default();
            if !Path::new("/proc").join(process).exists() {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let draw = base::observe::random::<4>();
        let path = folder.join(format!(
            "{WORK}{}-{}",
            std::process::id(),
            u32::from_ne_bytes(draw)
        ));
        make_private(&path).map_err(failed)?;
        Ok(Self(path))
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "a scratch directory was left behind");
        }
    }
}

/// A file that is removed unless it was finished.
struct Partial(Option<PathBuf>);

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn open(file: &Path) -> Result<(File, u64), Refusal> {
    let unreadable = |error: io::Error| refusals::backup_unreadable(file.display(), &error);
    let opened = File::open(file).map_err(unreadable)?;
    let size = opened.metadata().map_err(unreadable)?.len();
    Ok((opened, size))
}

/// What a failed read or write of the unpacking means.
fn told(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return seal::damaged().into();
    }
    if error.kind() == io::ErrorKind::StorageFull {
        return full().into();
    }
    match error.downcast::<Refusal>() {
        Ok(refusal) => refusal.into(),
        Err(error) => ServerFault::new("unpack a backup", error).into(),
    }
}

fn full() -> Refusal {
    refusals::disk_full_for_restore()
}

/// Refuses where `folder` has less than `needed` bytes left.
fn room(folder: &Path, needed: u64) -> Result<(), Failure> {
    let Ok(found) = rustix::fs::statvfs(folder) else {
        return Ok(());
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free >= needed {
        return Ok(());
    }
    let mut refusal = full();
    refusal.text = format!(
        "There is not enough room in {}: {} are needed, {} are free.",
        folder.display(),
        Bytes(needed),
        Bytes(free)
    );
    Err(refusal.into())
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// `20261121T160000Z`, for names of files.
pub(crate) fn stamp(at: Timestamp) -> String {
    let text: String = at
        .to_string()
        .chars()
        .filter(|c| !matches!(c, '-' | ':'))
        .collect();
    format!(
        "{}Z",
        text.split('.')
            .next()
            .unwrap_or_default()
            .trim_end_matches('Z')
    )
}

fn make_private(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

fn move_away(path: &Path, to: &Path) -> io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    make_private(to)?;
    std::fs::rename(path, to.join(path.file_name().unwrap_or_default()))
}

fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let partial = beside(path, ".partial");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&partial, path)
}

fn sync_directory(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    File::open(folder)?.sync_all()
}
