//! Clears away what ended containers leave on the disk, in a thread that no caller waits for: what a container
//! wrote may take minutes to remove, and a neighbour's kill may not. Putting something here is one rename; what
//! cannot be moved is removed by the same thread where it lies. What a server leaves unfinished the next one
//! goes on with. Decides nothing about what may go.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use store::trees::{Thrown, Trash};

/// How long something that cannot be removed waits until it is tried again. Shorter: a disk that went
/// read-only is written to all the time. Longer: what was mended is not seen to be.
const TRIED_AGAIN: Duration = Duration::from_secs(600);

/// How much lower than the server's own the thread's claim to a processor is.
const NICER: i32 = 10;

/// The way into the trash, and the thread that empties it.
pub(super) struct Clearing {
    trash: Arc<Trash>,
    bell: Sender<()>,
}

impl Clearing {
    /// Opens the trash at `place` and begins to remove what an earlier server left in it. The thread ends with
    /// this value, at the latest when the tree is gone that it is removing.
    pub(super) fn begin(place: &Path) -> io::Result<Self> {
        let trash = Arc::new(Trash::open(place)?);
        let (bell, rung) = channel();
        let theirs = Arc::clone(&trash);
        std::thread::Builder::new()
            .name("clearing".to_owned())
            .spawn(move || clear(&theirs, &rung))?;
        Ok(Self { trash, bell })
    }

    /// Takes the entry at `path` away from there, to be removed later; fine where there is nothing. False
    /// where it can only be removed where it lies, which has begun: its name is free once this says true.
    pub(super) fn throw(&self, path: &Path) -> io::Result<bool> {
        let thrown = self.trash.throw(path)?;
        if thrown != Thrown::Nothing {
            // A thread that is gone left word in the log; the next server goes on.
            let _ = self.bell.send(());
        }
        Ok(thrown != Thrown::Stays)
    }
}

fn clear(trash: &Arc<Trash>, rung: &Receiver<()>) {
    // Only slower where that is refused.
    let _ = rustix::process::nice(NICER);
    let wanted = || Arc::strong_count(trash) > 1;
    loop {
        match trash.empty(wanted) {
            Ok(kept) => {
                if let Some((path, error)) = kept.first_key_value() {
                    let (path, count) = (path.display(), kept.len());
                    tracing::warn!(%path, %error, count, "what containers left cannot be removed now");
                }
            }
            Err(error) => tracing::warn!(%error, "what containers left cannot be listed now"),
        }
        match rung.recv_timeout(TRIED_AGAIN) {
            Ok(()) => while rung.try_recv().is_ok() {},
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Instant;

    fn gone(trash: &Path) -> bool {
        let until = Instant::now() + Duration::from_secs(60);
        while fs::read_dir(trash).is_ok_and(|mut left| left.next().is_some()) {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    #[test]
    fn what_an_earlier_server_left_is_cleared_and_what_is_thrown_later_too() {
        let bench = tempfile::tempdir().expect("a directory");
        let (trash, tree) = (bench.path().join("trash"), bench.path().join("tree"));
        fs::create_dir_all(trash.join("left/in")).expect("made");
        fs::write(trash.join("left/in/file"), "x").expect("written");
        let clearing = Clearing::begin(&trash).expect("it opens");
        assert!(gone(&trash));
        fs::create_dir_all(tree.join("in")).expect("made");
        assert!(clearing.throw(&tree).expect("thrown"));
        assert!(!tree.exists() && gone(&trash));
        assert!(clearing.throw(&tree).expect("nothing is there"));
    }
    #[test]
    fn what_cannot_be_moved_is_removed_by_the_same_thread_where_it_lies() {
        const NAME: &str = "what_cannot_be_moved_is_removed_by_the_same_thread_where_it_lies";
        let bench = tempfile::tempdir().expect("a directory");
        let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
            return skips::skip(NAME, "there is no /dev/shm");
        };
        let moved = fs::rename(
            tempfile::tempdir_in(elsewhere.path()).expect("made").keep(),
            bench.path().join("moved"),
        );
        if moved.is_ok() {
            return skips::skip(NAME, "/dev/shm is no file system of its own");
        }
        let clearing = Clearing::begin(&bench.path().join("trash")).expect("it opens");
        let tree = elsewhere.path().join("tree");
        fs::create_dir_all(tree.join("in")).expect("made");
        assert!(!clearing.throw(&tree).expect("it is taken"), "not here");
        let until = Instant::now() + Duration::from_secs(60);
        while !clearing.throw(&tree).expect("thrown again") {
            assert!(Instant::now() < until, "it stays");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!tree.exists());
    }
}
