//! Writes the files of a user into the home of a session before anything of it runs, with the session's own ids. Follows no
//! link, leaves what a mounted folder covers alone, and what a session changed in the home folder; never stops a start: what cannot be
//! written is told.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rules::start_up::Dotfile;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, XattrFlags, fchmod, fgetxattr, fsetxattr, mkdirat,
    openat, openat2, unlinkat,
};
use rustix::io::Errno;

use super::order::MountOrder;

/// Of a directory that is made on the way.
const DIRECTORY: u32 = 0o700;
/// Says of a dotfile in a home that a session got it, and when: one that a session changed later is not replaced.
const MARK: &str = "user.fardel.dotfile";

/// Whose the files are, in numbers of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileOwner {
    pub uid: u32,
    pub gid: u32,
}

impl FileOwner {
    /// Whose a directory is, as the container's ids show it.
    pub(super) fn of_directory(directory: &Path) -> io::Result<Self> {
        let found = fs::metadata(directory)?;
        Ok(Self {
            uid: found.uid(),
            gid: found.gid(),
        })
    }
}

/// What is written instead of the image's own: files below `home` of the root at `root`. Gives a sentence for each that
/// is not there afterwards. Costs a few calls a file.
pub(super) fn write(
    root: &Path,
    home: &str,
    files: &[Dotfile],
    mounts: &[MountOrder],
    owner: FileOwner,
) -> Vec<String> {
    if files.is_empty() {
        return Vec::new();
    }
    let home = match open_home(root, home) {
        Ok(opened) => (opened, home.trim_end_matches('/')),
        Err(error) => return vec![format!("no dotfile could be written into {home}: {error}")],
    };
    let (opened, home) = home;
    let mut told = Vec::new();
    let acting = ActingOwner::of(owner);
    for file in files {
        let place = format!("{home}/{}", file.path);
        if let Some(mount) = mounts.iter().find(|mount| overlaps(&mount.at, &place)) {
            told.push(format!("{place} is left to the folder at {}", mount.at));
        } else if let Err(error) = put(opened.as_fd(), file, Present::GivesWay) {
            told.push(format!("{place} could not be written: {error}"));
        }
    }
    drop(acting);
    told
}

/// The same into the home folder, which is mounted at `mounted` on the stage and at `home` in the container: as its owner, and
/// only where it has no such file, or what an earlier session got. What a user changed there in a session stays.
pub(super) fn write_mounted(
    mounted: &Path,
    home: &str,
    files: &[Dotfile],
    mounts: &[MountOrder],
) -> Vec<String> {
    if files.is_empty() {
        return Vec::new();
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, mounted, flags, Mode::empty()).map_err(io::Error::from);
    let (opened, owner) =
        match opened.and_then(|opened| Ok((opened, FileOwner::of_directory(mounted)?))) {
            Ok(found) => found,
            Err(error) => return vec![format!("no dotfile could be written into {home}: {error}")],
        };
    let mut told = Vec::new();
    let acting = ActingOwner::of(owner);
    for file in files {
        let place = format!("{home}/{}", file.path);
        let mut others = mounts.iter().filter(|mount| mount.at != home);
        if let Some(mount) = others.find(|mount| overlaps(&mount.at, &place)) {
            told.push(format!("{place} is left to the folder at {}", mount.at));
            continue;
        }
        match put(opened.as_fd(), file, Present::Stays) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                told.push(format!("{place} is left as the home folder has it"));
            }
            Err(error) => told.push(format!("{place} could not be written: {error}")),
        }
    }
    drop(acting);
    told
}

/// What becomes of a file that has the name of a dotfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Present {
    GivesWay,
    Stays,
}

/// Whether one of two paths is the other, or lies below it.
fn overlaps(one: &str, other: &str) -> bool {
    let below = |path: &str, above: &str| {
        path.strip_prefix(above.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    below(one, other) || below(other, one)
}

fn open_home(root: &Path, home: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags, Mode::empty())?;
    let name = home.trim_matches('/');
    if name.is_empty() {
        return Err(io::Error::other("the user has no home"));
    }
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(&root, name, flags, Mode::empty(), resolve)?)
}

/// Errors: `AlreadyExists` where a file of that name stays.
fn put(home: BorrowedFd<'_>, file: &Dotfile, present: Present) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let mut directory = openat2(home, ".", flags, Mode::empty(), resolve)?;
    let (above, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    for part in above.split('/').filter(|part| !part.is_empty()) {
        match mkdirat(&directory, part, Mode::from_raw_mode(DIRECTORY)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        directory = openat2(&directory, part, flags, Mode::empty(), resolve)?;
    }
    if present == Present::GivesWay {
        // The image's own, or a link: the link itself goes, and what it leads to stays.
        match unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let make = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let begin = || openat2(&directory, name, make, Mode::from_raw_mode(0o600), resolve);
    let made = match begin() {
        Err(Errno::EXIST) => match earlier(directory.as_fd(), name, file, resolve) {
            Earlier::Same => return Ok(()),
            Earlier::Ours => {
                unlinkat(&directory, name, AtFlags::empty())?;
                begin()?
            }
            Earlier::Changed => return Err(Errno::EXIST.into()),
        },
        made => made?,
    };
    let mut made = File::from(made);
    let filled = made.write_all(file.content.as_bytes()).and_then(|()| {
        if present == Present::Stays {
            // Where the file system takes no mark, the file stays as it is from now on.
            let mark = written_at(&made.metadata()?);
            let _ = fsetxattr(&made, MARK, mark.as_bytes(), XattrFlags::empty());
        }
        Ok(fchmod(&made, Mode::from_raw_mode(file.mode & 0o777))?)
    });
    if filled.is_err() {
        // Half of one would stay in a home for good.
        let _ = unlinkat(&directory, name, AtFlags::empty());
    }
    filled
}

/// What has the name of a dotfile already.
enum Earlier {
    /// The very file.
    Same,
    /// What an earlier session got, and no session changed since.
    Ours,
    /// Any other.
    Changed,
}

/// Reads one byte more than the dotfile has at most.
fn earlier(
    directory: BorrowedFd<'_>,
    name: &str,
    file: &Dotfile,
    resolve: ResolveFlags,
) -> Earlier {
    // A pipe without a writer does not hold it up.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(opened) = openat2(directory, name, flags, Mode::empty(), resolve) else {
        return Earlier::Changed;
    };
    let opened = File::from(opened);
    let (Ok(found), Ok(length)) = (opened.metadata(), u64::try_from(file.content.len())) else {
        return Earlier::Changed;
    };
    if !found.is_file() {
        return Earlier::Changed;
    }
    let mut held = Vec::new();
    let is_same = found.len() == length
        && found.mode() & 0o777 == file.mode & 0o777
        && (&opened).take(length + 1).read_to_end(&mut held).is_ok()
        && held == file.content.as_bytes();
    let mut mark = [0u8; 64];
    match fgetxattr(&opened, MARK, &mut mark[..]) {
        _ if is_same => Earlier::Same,
        Ok(length) if mark.get(..length) == Some(written_at(&found).as_bytes()) => Earlier::Ours,
        _ => Earlier::Changed,
    }
}

/// When a file was written last, and how long it is, as its mark says it.
fn written_at(found: &Metadata) -> String {
    format!("{}.{} {}", found.mtime(), found.mtime_nsec(), found.len())
}

/// This process as another user in the eyes of the file system, until it is dropped. It has one thread.
pub(super) struct ActingOwner {
    /// Whether its files in `/proc` are its own, which a change of these ids ends.
    dumpable: i32,
}

impl ActingOwner {
    pub(super) fn of(owner: FileOwner) -> Self {
        // SAFETY: a question about this process; then both change this thread's ids for files alone, and cannot fail for root.
        unsafe {
            let unused: libc::c_ulong = 0;
            let dumpable = libc::prctl(libc::PR_GET_DUMPABLE, unused, unused, unused, unused);
            libc::setfsgid(owner.gid);
            libc::setfsuid(owner.uid);
            Self { dumpable }
        }
    }
}

impl Drop for ActingOwner {
    fn drop(&mut self) {
        // SAFETY: as above; the ids and the mark are those that this process began with.
        unsafe {
            libc::setfsuid(libc::geteuid());
            libc::setfsgid(libc::getegid());
            if self.dumpable == 1 {
                let (yes, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
                libc::prctl(libc::PR_SET_DUMPABLE, yes, unused, unused, unused);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn file(path: &str, mode: u32) -> Dotfile {
        Dotfile {
            path: path.into(),
            mode,
            content: format!("of {path}"),
        }
    }

    fn own() -> FileOwner {
        // SAFETY: two questions about this process.
        unsafe {
            FileOwner {
                uid: libc::geteuid(),
                gid: libc::getegid(),
            }
        }
    }

    #[test]
    fn dotfiles_lie_below_the_home_with_their_modes() {
        let root = tempfile::tempdir().expect("a directory");
        let home = root.path().join("home/work");
        fs::create_dir_all(&home).expect("made");
        fs::write(home.join(".bashrc"), "of the image").expect("written");
        let files = [file(".bashrc", 0o644), file(".config/git/config", 0o600)];
        let told = write(root.path(), "/home/work", &files, &[], own());
        assert_eq!(told, Vec::<String>::new());
        for (path, mode) in [(".bashrc", 0o644), (".config/git/config", 0o600)] {
            let written = home.join(path);
            assert_eq!(
                fs::read_to_string(&written).expect("read"),
                format!("of {path}")
            );
            let found = fs::metadata(&written).expect("there").permissions().mode();
            assert_eq!(found & 0o7777, mode, "{path}");
        }
    }

    #[test]
    fn no_link_of_an_image_leads_a_dotfile_out() {
        let outside = tempfile::tempdir().expect("a directory");
        let root = outside.path().join("root");
        let home = root.join("home/work");
        fs::create_dir_all(&home).expect("made");
        fs::write(outside.path().join("secret"), "secret").expect("written");
        symlink(outside.path(), home.join(".config")).expect("a link");
        symlink(outside.path().join("secret"), home.join(".netrc")).expect("a link");
        let files = [file(".config/secret", 0o600), file(".netrc", 0o600)];
        let told = write(&root, "/home/work", &files, &[], own());
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(".config/secret"), "{told:?}");
        let secret = fs::read_to_string(outside.path().join("secret")).expect("read");
        assert_eq!(secret, "secret");
        let written = fs::symlink_metadata(home.join(".netrc")).expect("there");
        assert!(written.is_file(), "the link itself was replaced");
        // A home behind a link is none.
        symlink("work", root.join("home/other")).expect("a link");
        let told = write(&root, "/home/other", &[file(".a", 0o600)], &[], own());
        assert_eq!(told.len(), 1);
        assert!(!home.join(".a").exists());
    }

    #[test]
    fn a_mounted_folder_keeps_its_own() {
        let root = tempfile::tempdir().expect("a directory");
        let home = root.path().join("home/work");
        fs::create_dir_all(&home).expect("made");
        let mount = |at: &str| MountOrder {
            from: "/nowhere".into(),
            at: at.into(),
            ..MountOrder::default()
        };
        let files = [file(".config/a", 0o600), file(".b", 0o600)];
        let told = write(
            root.path(),
            "/home/work",
            &files,
            &[mount("/home/work/.config")],
            own(),
        );
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(home.join(".b").exists() && !home.join(".config").exists());
        let told = write(root.path(), "/home/work", &files, &[mount("/home")], own());
        assert_eq!(told.len(), 2, "{told:?}");
    }

    #[test]
    fn the_home_folder_gets_what_it_does_not_have_yet() {
        let home = tempfile::tempdir().expect("a directory");
        fs::write(home.path().join(".bashrc"), "changed in a session").expect("written");
        fs::create_dir(home.path().join("real")).expect("made");
        symlink("real", home.path().join(".config")).expect("a link");
        let files = [
            file(".bashrc", 0o644),
            file(".netrc", 0o600),
            file(".config/a", 0o600),
            file(".local/b", 0o600),
        ];
        let mount = |at: &str| MountOrder {
            at: at.into(),
            by_itself: true,
            ..MountOrder::default()
        };
        let mounts = [mount("/root"), mount("/root/.local")];
        let told = write_mounted(home.path(), "/root", &files, &mounts);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("as the home folder has it"), "{told:?}");
        assert!(told[2].contains("folder at /root/.local"), "{told:?}");
        let read = |name: &str| fs::read_to_string(home.path().join(name)).expect("read");
        assert_eq!(read(".bashrc"), "changed in a session");
        assert_eq!(read(".netrc"), "of .netrc");
        assert!(!home.path().join("real/a").exists());
        // The next session finds what this one wrote, and says nothing of it.
        let told = write_mounted(home.path(), "/root", &files[1..2], &mounts);
        assert!(told.is_empty(), "{told:?}");
        // A new one takes its place, where the file system keeps marks, until a session changed it.
        let newer = [Dotfile {
            content: "newer".into(),
            ..file(".netrc", 0o600)
        }];
        let has_marks = fsetxattr(
            File::open(home.path()).expect("opened"),
            MARK,
            b"-",
            XattrFlags::empty(),
        );
        let told = write_mounted(home.path(), "/root", &newer, &mounts);
        assert_eq!(told.is_empty(), has_marks.is_ok(), "{told:?}");
        assert_eq!(read(".netrc") == "newer", has_marks.is_ok());
        fs::write(home.path().join(".netrc"), "own").expect("written");
        let told = write_mounted(home.path(), "/root", &newer, &mounts);
        assert_eq!((told.len(), read(".netrc")), (1, "own".to_owned()));
    }
}
