//! Scopes: what one limit of bytes covers: all folders of one owner, a user or a project, or one folder with a limit of its own.
//! Says where a scope lies and what there is to know of it. Only the keeper that a role brings asks the kernel to hold a limit.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rules::folder::ScopeOwner;
use rules::storage::{PoolUse, StorageEnforcement};
use rules::units::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub mod pool;

/// Where scopes lie below a data directory.
const SCOPES: [&str; 2] = ["folders", ".scopes"];
const TRIAL: &str = ".trial";
/// The file system of a scope, where it has one of its own.
const IMAGE: &str = "image";
/// Where it is mounted, and where the folders of the scope lie in any case.
const FILES: &str = "files";
/// Among the folders, one that no user has: where nothing more fits it becomes the next one.
pub const SPARE: &str = ".spare";
/// What the scope is to be held to, and what it took when that was asked last.
const LIMIT: &str = "limit.json";
const USE: &str = "use.json";
/// The number of the scope, where the disk itself counts by numbers.
const PROJECT: &str = "project.json";
/// The same, where the scope lies in the pool.
const POOLED: &str = "pooled.json";
/// The number of what is kept of earlier states of its files, where it has one.
const HISTORY: &str = "history.json";

/// Where what single sessions write lies below a data directory, and their images beside it.
const SESSIONS: &str = "containers";
const SCRATCH: &str = ".scratch";

/// Where one scope lies. Its directories belong to root alone, so no session changes a path in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScopePlace {
    directory: PathBuf,
    files: PathBuf,
}

impl ScopePlace {
    /// That of a limit, whether it is there or not.
    pub fn of(data: &Path, owner: impl Into<ScopeOwner>) -> Self {
        let [folders, scopes] = SCOPES;
        let owner = owner.into().to_string();
        Self::at(data.join(folders).join(scopes).join(owner))
    }

    /// That of what one session writes outside its folders: its files are where the session's own layers are in any case.
    pub fn of_session(data: &Path, name: &str) -> Self {
        let sessions = data.join(SESSIONS);
        Self {
            directory: sessions.join(SCRATCH).join(name),
            files: sessions.join(name),
        }
    }

    fn at(directory: PathBuf) -> Self {
        let files = directory.join(FILES);
        Self { directory, files }
    }

    /// One that no user has, to try out what a machine can do.
    pub fn trial(data: &Path) -> Self {
        let [folders, scopes] = SCOPES;
        Self::at(data.join(folders).join(scopes).join(TRIAL))
    }

    /// The scope that a path leads through; None where it leads through none. Looks at names alone.
    pub fn around(path: &Path) -> Option<Self> {
        let [folders, scopes] = SCOPES;
        let mut directory = PathBuf::new();
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            directory.push(part);
            let next = parts.peek().map(|next| next.as_os_str());
            if part.as_os_str() != folders || next != Some(scopes.as_ref()) {
                continue;
            }
            directory.extend(parts.next());
            let owner = parts.next()?;
            ScopeOwner::parse(owner.as_os_str().to_str()?)?;
            directory.push(owner);
            return match parts.next() {
                Some(Component::Normal(files)) if files == FILES => Some(Self::at(directory)),
                _ => None,
            };
        }
        None
    }

    /// All that were ever made below a data directory, in no order.
    pub fn all(data: &Path) -> io::Result<Vec<(ScopeOwner, Self)>> {
        let [folders, scopes] = SCOPES;
        let entries = match fs::read_dir(data.join(folders).join(scopes)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if let Some(owner) = name.to_str().and_then(ScopeOwner::parse) {
                all.push((owner, Self::at(entry.path())));
            }
        }
        Ok(all)
    }

    /// Everything that is kept of the scope lies below it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file with the scope's own file system.
    pub fn image(&self) -> PathBuf {
        self.directory.join(IMAGE)
    }

    /// Where the folders of the scope lie.
    pub fn files(&self) -> PathBuf {
        self.files.clone()
    }

    /// Makes the directories of the scope, and keeps them over a loss of power; fine where they are.
    pub fn make(&self) -> io::Result<()> {
        for path in [&self.directory, &self.files] {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        for above in self.directory.ancestors().take(3) {
            File::open(above)?.sync_all()?;
        }
        Ok(())
    }

    /// Whether something lies among the folders that is neither the file system's own nor emptied trash.
    pub fn has_folders(&self) -> io::Result<bool> {
        for entry in fs::read_dir(&self.files)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == SPARE {
                continue;
            }
            let is_own = name == "lost+found" || name.as_encoded_bytes().starts_with(b".");
            if !is_own || fs::read_dir(entry.path())?.next().is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a file system is mounted where the folders lie. Costs two looks.
    pub fn is_mounted(&self) -> bool {
        let device = |path: &Path| path.symlink_metadata().map(|found| found.dev());
        match (device(&self.directory), device(&self.files)) {
            (Ok(outside), Ok(inside)) => outside != inside,
            _ => false,
        }
    }

    /// Whether its folders can be seen as they are: nothing has to be mounted first. Not where the disk does not say whether
    /// there is something.
    pub fn is_reachable(&self) -> bool {
        let has_none = |path: PathBuf| path.try_exists().is_ok_and(|is_there| !is_there);
        self.is_mounted() || (has_none(self.image()) && has_none(self.directory.join(POOLED)))
    }

    /// What the scope is to be held to; None where nothing was said.
    pub fn limit(&self) -> io::Result<Option<Bytes>> {
        read(&self.directory.join(LIMIT))
    }

    /// Keeps what the scope is to be held to, over a loss of power.
    pub fn keep_limit(&self, limit: Bytes) -> io::Result<()> {
        write(&self.directory, LIMIT, &limit)
    }

    /// The number that everything in the scope carries; None where it has none.
    pub fn project(&self) -> io::Result<Option<u32>> {
        read(&self.directory.join(PROJECT))
    }

    /// Keeps the number of the scope.
    pub fn keep_project(&self, project: u32) -> io::Result<()> {
        write(&self.directory, PROJECT, &project)
    }

    /// The number that everything in the scope carries in the pool; None where it does not lie there.
    pub fn pooled(&self) -> io::Result<Option<u32>> {
        read(&self.directory.join(POOLED))
    }

    /// Whether the scope lies in the pool. Costs one look.
    pub fn is_pooled(&self) -> bool {
        self.directory.join(POOLED).exists()
    }

    /// Keeps that the scope lies in the pool, with its number there.
    pub fn keep_pooled(&self, project: u32) -> io::Result<()> {
        write(&self.directory, POOLED, &project)
    }

    /// The same of what has to last no longer than one session: a loss of power may forget it.
    pub fn note_pooled(&self, project: u32) -> io::Result<()> {
        fs::write(self.directory.join(POOLED), serde_json::to_vec(&project)?)
    }

    /// The number that earlier states of its files carry; None where they have none of their own.
    pub fn history(&self) -> io::Result<Option<u32>> {
        read(&self.directory.join(HISTORY))
    }

    /// Keeps the number of earlier states.
    pub fn keep_history(&self, project: u32) -> io::Result<()> {
        write(&self.directory, HISTORY, &project)
    }

    /// What the scope took when that was kept last.
    pub fn kept_use(&self) -> io::Result<Option<ScopeUse>> {
        read(&self.directory.join(USE))
    }

    /// Keeps what the scope takes, for the time that it is not mounted.
    pub fn keep_use(&self, taken: &ScopeUse) -> io::Result<()> {
        write(&self.directory, USE, taken)
    }
}

/// What is used of a scope, as its file system says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeUse {
    pub used: Bytes,
    pub limit: Bytes,
    /// Files and directories, and how many there may be; 0 where that is not bounded.
    pub files: u64,
    pub max_files: u64,
    /// Unix milliseconds.
    pub at: i64,
}

/// While one is held, its scope stays as it is.
#[derive(Debug, Clone, Default)]
pub struct ScopeLease {
    token: Arc<()>,
}

impl ScopeLease {
    /// Whether another one of the same scope is held.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.token) > 1
    }
}

/// Holds scopes to their limits.
pub trait ScopeKeeper: fmt::Debug + Send + Sync {
    /// How limits are held here. The first answer may take a moment: it is tried out.
    fn enforcement(&self) -> StorageEnforcement;

    /// Whether what single sessions write outside their folders is held to limits. A disk that counts by itself may hold folders
    /// and lack what the disk of a session is made with.
    fn holds_sessions(&self) -> bool {
        self.enforcement().is_enforced()
    }

    /// Makes the folders of a scope reachable at its `files`, and keeps them so while the lease is held. `limit`: how large a
    /// scope is that does not exist yet; one that exists is held to what was kept.
    ///
    /// Errors: `NotFound` where there is none and no limit was named.
    fn enter(&self, scope: &ScopePlace, limit: Option<Bytes>) -> io::Result<ScopeLease>;

    /// Holds a scope to another limit from now on; keeps it for the next time where there is nothing to hold now.
    fn hold_to(&self, scope: &ScopePlace, limit: Bytes) -> io::Result<()>;

    /// What is used of a scope, now where it can be seen, else as it was when it was seen last; None where it never was.
    fn measure(&self, scope: &ScopePlace) -> io::Result<Option<ScopeUse>>;

    /// Removes a scope in which no folder lies, with everything that was kept of it; leaves every other.
    fn remove_empty(&self, scope: &ScopePlace) -> io::Result<()>;

    /// Has what is made in an empty directory of a scope count on a limit of its own, where the disk counts by numbers: earlier
    /// states of files take none of the room of the files. Does nothing elsewhere. `place`: the directory, which is entered.
    fn count_apart(&self, _scope: &ScopePlace, _place: &Path) -> io::Result<()> {
        Ok(())
    }

    /// The pool that scopes lie in, as it is now; None where there is none. Costs a small read of each scope.
    fn pool(&self) -> io::Result<Option<PoolUse>> {
        Ok(None)
    }

    /// Makes the pool so large, while it is in use; at once where it is so large already.
    ///
    /// Errors: `NotFound` where there is none, `StorageFull` where the disk has no room: it is as large as before then.
    fn grow_pool(&self, _size: Bytes) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Holds nothing to anything: every folder is a plain directory, and none lies in a scope.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingKeeper;

impl ScopeKeeper for CountingKeeper {
    fn enforcement(&self) -> StorageEnforcement {
        StorageEnforcement::Counted
    }

    fn enter(&self, scope: &ScopePlace, _: Option<Bytes>) -> io::Result<ScopeLease> {
        match scope.files().is_dir() && scope.is_reachable() {
            true => Ok(ScopeLease::default()),
            // A folder that another start of the server put into an image is not lost, only out of reach.
            false => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the file system of these folders is not mounted",
            )),
        }
    }

    fn hold_to(&self, scope: &ScopePlace, limit: Bytes) -> io::Result<()> {
        scope.keep_limit(limit)
    }

    fn measure(&self, scope: &ScopePlace) -> io::Result<Option<ScopeUse>> {
        scope.kept_use()
    }

    fn remove_empty(&self, _: &ScopePlace) -> io::Result<()> {
        Ok(())
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file so that a reader, and a server after a loss of power, sees the old one or the new one, whole.
fn write<T: Serialize>(directory: &Path, name: &str, value: &T) -> io::Result<()> {
    let beside = directory.join(format!("{name}.new"));
    let mut file = File::create(&beside)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    fs::rename(beside, directory.join(name))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use rules::names::{FolderId, UserId};
    use rules::tenancy::ProjectId;
    use uuid::Uuid;

    use super::*;

    const OWNER: UserId = UserId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ab));

    #[test]
    fn a_path_tells_the_scope_that_it_leads_through() {
        let scope = ScopePlace::of(Path::new("/data"), OWNER);
        let inside = scope.files().join("x/data/a");
        assert_eq!(ScopePlace::around(&inside), Some(scope.clone()));
        assert_eq!(ScopePlace::around(&scope.files()), Some(scope.clone()));
        let of_project = ScopePlace::of(Path::new("/data"), ProjectId(OWNER.0));
        assert_ne!(of_project, scope);
        assert_eq!(
            ScopePlace::around(&of_project.files().join("x")),
            Some(of_project)
        );
        let of_folder = ScopePlace::of(Path::new("/data"), FolderId(OWNER.0));
        assert_ne!(of_folder, scope);
        assert_eq!(
            ScopePlace::around(&of_folder.files().join("x")),
            Some(of_folder)
        );
        for other in [
            scope.directory().to_owned(),
            scope.image(),
            PathBuf::from("/data/folders/ab/x/data"),
            PathBuf::from("/data/folders/.scopes/me/files/x"),
            PathBuf::from("/folders/.scopes"),
            PathBuf::from("/data"),
        ] {
            assert_eq!(ScopePlace::around(&other), None, "{}", other.display());
        }
    }

    #[test]
    fn what_is_kept_of_a_scope_is_read_again() {
        let data = tempfile::tempdir().expect("a directory");
        let scope = ScopePlace::of(data.path(), OWNER);
        assert!(ScopePlace::all(data.path()).expect("none").is_empty());
        assert_eq!(scope.limit().expect("nothing is kept"), None);
        scope.make().expect("made");
        scope.make().expect("made again");
        assert!(!scope.is_mounted());
        let all = ScopePlace::all(data.path()).expect("a list");
        assert_eq!(all, [(OWNER.into(), scope.clone())]);
        scope.keep_limit(Bytes::gib(1)).expect("kept");
        assert_eq!(scope.limit().expect("kept"), Some(Bytes::gib(1)));
        let taken = ScopeUse {
            used: Bytes::mib(7),
            limit: Bytes::gib(1),
            files: 3,
            max_files: 100,
            at: 5,
        };
        scope.keep_use(&taken).expect("kept");
        assert_eq!(scope.kept_use().expect("kept"), Some(taken));
        let plain = CountingKeeper;
        assert_eq!(plain.measure(&scope).expect("kept"), Some(taken));
        fs::write(scope.image(), "a file system").expect("written");
        let error = plain.enter(&scope, Some(Bytes::gib(1))).expect_err("none");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        fs::remove_file(scope.image()).expect("removed");
        assert!(scope.is_reachable());
        assert_eq!(scope.pooled().expect("nothing is kept"), None);
        scope.keep_pooled(7).expect("kept");
        assert_eq!(scope.pooled().expect("kept"), Some(7));
        assert!(
            !scope.is_reachable(),
            "a directory in place of its files looks as if they were gone"
        );
        let error = plain.enter(&scope, None).expect_err("not mounted");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_lease_knows_whether_it_is_the_last() {
        let lease = ScopeLease::default();
        assert!(!lease.is_shared());
        let other = lease.clone();
        assert!(lease.is_shared());
        drop(other);
        assert!(!lease.is_shared());
    }
}
