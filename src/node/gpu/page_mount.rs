//! Keeps the page that a container writes from growing: it lies on a file system of its own, as large as
//! the page and no larger, mounted over its name. The mount outlives the server, as the page does. Without
//! root there are no containers, and the page is an ordinary file.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Makes the file `page` one that holds `bytes` and not one more, in its new directory; leaves one that is
/// there as it is. A program that writes beyond its end is told that there is no space.
pub(super) fn bound(page: &Path, bytes: usize) -> io::Result<()> {
    if page.exists() || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let own = beside(page);
    DirBuilder::new().recursive(true).mode(0o700).create(&own)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    // One inode is the root, the other the page.
    let options = format!("size={bytes},nr_inodes=2,mode=0700");
    let (from, kind) = (Some("page"), Some("tmpfs"));
    mount(from, &own, kind, flags, Some(options.as_str()))?;
    let inside = own.join("page");
    drop(File::create(&inside)?);
    drop(File::create(page)?);
    mount(
        Some(&inside),
        page,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )?;
    umount2(&own, MntFlags::MNT_DETACH)?;
    fs::remove_dir(own)
}

/// Lets go of what `bound` made, whole or in part; the files belong to the owner of the directory.
pub(super) fn release(page: &Path) {
    for mounted in [page, &beside(page)] {
        // What is not mounted need not be let go of.
        let _ = umount2(mounted, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    }
}

/// Where the file system is mounted until the page is in its place.
fn beside(page: &Path) -> PathBuf {
    let mut name = OsString::from(page);
    name.push(".own");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_page_takes_what_it_is_for_and_nothing_beyond() {
        const NAME: &str = "a_page_takes_what_it_is_for_and_nothing_beyond";
        const BYTES: usize = 512 * 1024;
        if !rustix::process::geteuid().is_root() {
            return skips::skip(NAME, "needs root to mount a file system");
        }
        let folder = tempfile::tempdir().expect("a directory");
        let page = folder.path().join("7/account");
        bound(&page, BYTES).expect("bounded");
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(&page)
                .expect("there")
        };
        let file = open();
        file.write_all_at(&vec![7; BYTES], 0)
            .expect("as large as the page");
        for at in [BYTES, 1 << 30] {
            let refused = file.write_at(b"more", at as u64).expect_err("no larger");
            assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC), "at {at}");
        }
        // A server that comes later finds what stands in it.
        bound(&page, BYTES).expect("as it is");
        let mut first = [0];
        open().read_exact_at(&mut first, 0).expect("readable");
        assert_eq!(first, [7]);
        release(&page);
        fs::remove_dir_all(folder.path().join("7")).expect("nothing is mounted there");
    }
}
