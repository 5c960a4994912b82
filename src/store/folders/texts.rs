//! Writes small files of a folder whole: a new one, or one in the place of the version that its writer has seen. What is written
//! lies beside the folder's files until it is whole; one rename puts it in its place.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt as _, fchown};

use rules::folder_path::{FolderPath, MAX_FOLDER_TEXT};
use rules::names::FolderId;
use rules::refusals;
use rustix::fs::{CWD, RenameFlags};
use uuid::Uuid;

use super::beneath::{give, sync};
use super::failure::{FolderError, failed, fault};
use super::files;
use super::listing::changed_at;
use super::staging::{new_file, refuse_full_disk};
use super::versions::{TextVersion, WrittenText, owner_of};
use super::{FolderStore, make};

impl FolderStore {
    /// Writes a file whole.
    ///
    /// Errors: `folder.text-too-large`, `folder.file-stale`, `folder.entry-exists`, `folder.entry-not-found`, `folder.entry-link`,
    /// `folder.entry-not-file`, `folder.new-name-invalid`, `quota.exceeded`, `disk.full`: then what was there stays.
    pub fn write_text(
        &self,
        id: FolderId,
        path: &FolderPath,
        text: &str,
        version: &TextVersion,
    ) -> Result<WrittenText, FolderError> {
        let doing = "write a text of a folder";
        let bytes = text.len() as u64;
        if bytes > MAX_FOLDER_TEXT {
            return Err(refusals::folder_text_too_large(MAX_FOLDER_TEXT / 1024).into());
        }
        if *version == TextVersion::New {
            path.check_new()?;
        }
        let _turn = match version {
            // The rename itself refuses the second one.
            TextVersion::New => None,
            TextVersion::Known(_) | TextVersion::Any => Some(self.texts.enter(id, path)?),
        };
        let found = self.place_of(id)?;
        let top = found.top()?;
        let parent = top.directory(&path.parent())?;
        let owner = owner_of(&top, path, version)?;
        let replaced = owner.as_ref().map_or(0, |owner| owner.size);
        found.refuse_beyond_limit(bytes.max(1))?;
        refuse_full_disk(found.disk(&self.folders), bytes)?;
        let place = found.staging();
        let told = |error| found.told(fault(doing)(error));
        make(&place).map_err(told)?;
        let begun = place.join(format!("{}.new", Uuid::now_v7()));
        let written = new_file(&begun).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            give(parent.as_fd(), file.as_fd(), false, top.owner())?;
            if let Some(owner) = owner {
                // A program stays one, and what its owner alone reads stays so, and theirs.
                if rustix::process::geteuid().is_root() {
                    fchown(&file, Some(owner.user), Some(owner.group))?;
                }
                file.set_permissions(Permissions::from_mode(owner.mode))?;
            }
            file.sync_all()?;
            Ok(file)
        });
        let put = written.map_err(told).and_then(|file| {
            // Asked once more right before: sessions write meanwhile.
            owner_of(&top, path, version)?;
            let flags = match version {
                TextVersion::New => RenameFlags::NOREPLACE,
                TextVersion::Known(_) | TextVersion::Any => RenameFlags::empty(),
            };
            let moved = rustix::fs::renameat_with(CWD, &begun, &parent, path.name(), flags);
            moved.map_err(failed(doing, path))?;
            Ok(file)
        });
        let file = match put {
            Ok(file) => file,
            Err(error) => {
                let _ = fs::remove_file(&begun);
                return Err(found.told(error));
            }
        };
        found.note_written(bytes.saturating_sub(replaced));
        sync(parent.as_fd()).map_err(fault(doing))?;
        // Of the file that was written, whichever has its name by now.
        let stat = rustix::fs::fstat(&file).map_err(|error| fault(doing)(error.into()))?;
        Ok(WrittenText {
            tag: files::tag_of(&stat),
            modified_at: changed_at(&stat),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;
    use crate::folders::mounted_directory;

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));

    #[test]
    fn a_text_is_written_whole_and_never_over_a_version_that_its_writer_has_not_seen() {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        let path = |text: &str| FolderPath::parse(text).expect(text);
        let write = |name: &str, text: &str, version: TextVersion| {
            let done = store.write_text(ID, &path(name), text, &version);
            match done {
                Ok(written) => {
                    let file = store.file(ID, &path(name)).expect("there");
                    assert_eq!(written.tag, file.tag);
                    "done".to_owned()
                }
                Err(error) => error.code().unwrap_or("fault").to_owned(),
            }
        };
        assert_eq!(write("a", "", TextVersion::New), "done");
        assert_eq!(write("a", "x", TextVersion::New), "folder.entry-exists");
        let tag = store.file(ID, &path("a")).expect("a file").tag;
        let mode = Permissions::from_mode(0o750);
        fs::set_permissions(place.join("a"), mode).expect("set");
        fs::write(place.join("a"), "of a session").expect("written");
        let stale = write("a", "x", TextVersion::Known(tag));
        assert_eq!(stale, "folder.file-stale");
        let tag = store.file(ID, &path("a")).expect("a file").tag;
        let known = TextVersion::Known(tag);
        assert_eq!(write("a", "two\nlines\n", known.clone()), "done");
        let read = || fs::read_to_string(place.join("a")).expect("there");
        assert_eq!(read(), "two\nlines\n");
        let kept = place.join("a").metadata().expect("there").permissions();
        assert_eq!(kept.mode() & 0o777, 0o750);
        assert_eq!(write("a", "third", known.clone()), "folder.file-stale");
        assert_eq!(read(), "two\nlines\n");
        assert_eq!(write("a", "any", TextVersion::Any), "done");
        let missing = write("none", "x", TextVersion::Any);
        assert_eq!(missing, "folder.entry-not-found");
        symlink("/etc/hostname", place.join("out")).expect("a link");
        assert_eq!(write("out", "x", TextVersion::Any), "folder.entry-link");
        assert_eq!(write("out", "x", TextVersion::New), "folder.entry-exists");
        let first = store.texts.enter(ID, &path("a")).expect("the only one");
        let second = write("a", "second", TextVersion::Any);
        assert_eq!(second, "folder.file-stale");
        drop(first);
        if rustix::process::geteuid().is_root() {
            fchown(
                File::open(place.join("a")).expect("there"),
                Some(33),
                Some(34),
            )
            .expect("given");
        }
        assert_eq!(write("a", "third", TextVersion::Any), "done");
        if rustix::process::geteuid().is_root() {
            let seen = place.join("a").metadata().expect("there");
            assert_eq!((seen.uid(), seen.gid()), (33, 34));
        }
        let large = "x".repeat((1 << 20) + 1);
        let refused = write("large", &large, TextVersion::New);
        assert_eq!(refused, "folder.text-too-large");
        let staging = place.with_file_name("staging");
        assert_eq!(fs::read_dir(staging).expect("there").count(), 0);
    }
}
