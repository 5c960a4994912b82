//! Clears away what ended containers leave on the disk, in a thread that nobody waits for: what a container
//! wrote may take minutes to remove, and a neighbour's kill may not. Putting something here is one rename;
//! what a server leaves unfinished the next one goes on with. Decides nothing about what may go.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use store::trees::Trash;

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

    /// Takes whatever is at `path` away from there, to be removed later; fine where there is nothing.
    pub(super) fn throw(&self, path: &Path) -> io::Result<()> {
        if self.trash.throw(path)? {
            // A thread that is gone left word in the log; the next server goes on.
            let _ = self.bell.send(());
        }
        Ok(())
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
        clearing.throw(&tree).expect("thrown");
        assert!(!tree.exists() && gone(&trash));
        clearing.throw(&tree).expect("nothing is there");
    }
}
