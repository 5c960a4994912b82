//! Files that hold keys: written whole or not at all, for their owner's eyes only, and refused when they
//! were left open to others. Never reads what is in them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use rules::refusal::Refusal;
use rules::refusals;

use super::{TlsError, fault};

/// Most bytes of a key with its chain. A chain of four with RSA keys of 4096 bits has about 10 KiB.
pub(super) const MAX_FILE_BYTES: usize = 128 << 10;

/// Makes the folder of the keys where it is missing.
pub(super) fn folder(path: &Path) -> Result<(), TlsError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(fault("make the folder of certificates"))
}

/// Reads a key file; None where there is none.
///
/// Errors: `tls.key-owner` and `tls.key-exposed` for a file that others own or may read,
/// `tls.key-not-a-file`.
pub(super) fn read(path: &Path) -> Result<Option<String>, TlsError> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_NONBLOCK.bits())
        .open(path);
    let shown = path.display();
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(owner(path, "another user").into());
        }
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) => {
            return Err(not_a_file(path).into());
        }
        Err(error) => return Err(fault("open a key file")(error)),
    };
    let about = file.metadata().map_err(fault("look at a key file"))?;
    if !about.is_file() {
        return Err(not_a_file(path).into());
    }
    let own = nix::unistd::geteuid().as_raw();
    if about.uid() != own && about.uid() != 0 {
        return Err(owner(path, &format!("the user with the number {}", about.uid())).into());
    }
    let mode = about.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(refusals::tls_key_exposed(&shown, format_args!("{mode:04o}")).into());
    }
    let mut bytes = Vec::new();
    (&mut file)
        .take(MAX_FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(fault("read a key file"))?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(not_a_file(path).into());
    }
    // A file of other bytes is damaged, and the parser reports it.
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn owner(path: &Path, whom: &str) -> Refusal {
    let shown = path.display();
    refusals::tls_key_owner(&shown, whom, nix::unistd::geteuid())
}

fn not_a_file(path: &Path) -> Refusal {
    let shown = path.display();
    refusals::tls_key_not_a_file(&shown)
}

/// Writes a file whole: after a crash it is the old one or the new one. Readable by its owner only.
pub(super) fn write(path: &Path, text: &str) -> Result<(), TlsError> {
    let new = path.with_extension("new");
    let done = (|| {
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        settle(path)
    })();
    if done.is_err() {
        // The unfinished file is useless; the old one is still valid.
        let _ = std::fs::remove_file(&new);
    }
    done.map_err(fault("write a key file"))
}

/// Moves a file onto another name; does nothing where it is missing.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), TlsError> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => settle(to),
    }
    .map_err(fault("rename a key file"))
}

pub(super) fn remove(path: &Path) -> Result<(), TlsError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => settle(path),
    }
    .map_err(fault("remove a key file"))
}

/// Brings a name that was changed to the disk.
fn settle(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn code(read: Result<Option<String>, TlsError>) -> String {
        match read {
            Err(TlsError::Refused(refusal)) => refusal.code,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_key_is_for_its_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("k.pem");
        assert!(read(&path).expect("missing is fine").is_none());
        write(&path, "one").expect("written");
        let mode = path.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        write(&path, "two").expect("written over");
        assert_eq!(read(&path).expect("readable").as_deref(), Some("two"));

        for mode in [0o640, 0o604, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(code(read(&path)), "tls.key-exposed", "{mode:o}");
        }
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a folder in its place");
        assert_eq!(code(read(&path)), "tls.key-not-a-file");
        std::fs::remove_dir(&path).expect("removed");
        std::os::unix::fs::symlink("/etc/hostname", &path).expect("a link in its place");
        assert_eq!(code(read(&path)), "tls.key-not-a-file");
    }

    #[test]
    fn a_key_of_somebody_else_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            skips::skip(
                "a_key_of_somebody_else_is_refused",
                "only root can give a file away",
            );
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("k.pem");
        write(&path, "key").expect("written");
        std::os::unix::fs::chown(&path, Some(12_345), None).expect("given away");
        assert_eq!(code(read(&path)), "tls.key-owner");
    }

    #[test]
    fn a_key_file_is_read_up_to_its_largest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        for size in [128 << 10, (128 << 10) + 1] {
            std::fs::write(&path, vec![b'x'; size]).expect("written");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("set");
            let read = super::read(&path);
            if size == 128 << 10 {
                assert_eq!(read.expect("taken").map(|text| text.len()), Some(size));
            } else {
                assert_eq!(code(read), "tls.key-not-a-file");
            }
        }
    }
}
