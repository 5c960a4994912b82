//! A scope that fills up while the server works in it: each verb is done whole, or refused by name with everything as it was,
//! and goes on once there is room.

use store::folders::failure::FolderError;
use store::folders::staging::StagingWriter;
use store::folders::versions::TextVersion;

use super::*;

const ID: FolderId = FolderId(Uuid::from_u128(1));
const OTHER: FolderId = FolderId(Uuid::from_u128(2));
const NOW: Timestamp = Timestamp::from_millis(1_000);
const FULL: &str = "quota.exceeded";
const MIB: usize = 1 << 20;

/// A folder of kim's below her limit.
struct FullGround {
    ground: Ground,
    folders: FolderStore,
    /// What sessions see of the folder.
    place: PathBuf,
}

impl FullGround {
    fn lay(test: &str) -> Option<Self> {
        let ground = Ground::lay(test)?;
        let keeper: Arc<dyn ScopeKeeper> = Arc::clone(&ground.scopes) as _;
        let folders = FolderStore::limited(ground.directory.path(), keeper).expect("a store");
        let limit = FolderLimit {
            owner: KIM.into(),
            bytes: LIMIT,
        };
        for id in [ID, OTHER] {
            folders.create(id, false, Some(limit)).expect("made");
        }
        let place = mounted_directory(ground.directory.path(), ID);
        Some(Self {
            ground,
            folders,
            place,
        })
    }

    fn write(&self, name: &str, bytes: usize) {
        let file = self.place.join(name);
        fs::write(&file, vec![3; bytes]).expect("there is room");
        File::open(file).expect("there").sync_all().expect("kept");
    }

    /// A session writes until so much is left.
    fn leave(&self, left: usize) {
        let room = rustix::fs::statvfs(&self.place).expect("mounted");
        let free = usize::try_from(room.f_bavail * room.f_frsize).expect("small");
        self.write("session", free.checked_sub(left).expect("there is more"));
    }

    /// A session writes until nothing is left.
    fn fill(&self) {
        fill(&self.place.join("session"));
    }

    fn make_room(&self) {
        fs::remove_file(self.place.join("session")).expect("it was written");
    }

    /// What lies beside the folder's files, where no session comes.
    fn count(&self, beside: &str) -> usize {
        match fs::read_dir(self.place.with_file_name(beside)) {
            Ok(all) => all.count(),
            Err(_) => 0,
        }
    }

    fn stage(&self, at: &str, bytes: usize) -> Uuid {
        let staged = self.folders.stage(ID, &path(at), declared(at, bytes), NOW);
        staged.expect("begun").id
    }

    fn append(&self, upload: Uuid, offset: u64) -> StagingWriter {
        let writer = self.folders.append(ID, upload, offset, None);
        writer.expect("begun")
    }

    fn used(&self) -> u64 {
        let kim = self.ground.scope(KIM);
        let taken = self.ground.scopes.measure(&kim).expect("mounted");
        taken.expect("known").used.0
    }
}

fn path(text: &str) -> FolderPath {
    FolderPath::parse(text).expect(text)
}

fn declared(at: &str, bytes: usize) -> DeclaredFile {
    DeclaredFile {
        path: at.to_owned(),
        bytes: Some(bytes as u64),
        overwrite: false,
        modified_at: None,
        version: None,
        by: None,
    }
}

fn code<T>(done: Result<T, FolderError>) -> String {
    match done {
        Ok(_) => "done".to_owned(),
        Err(error) => error.code().unwrap_or("fault").to_owned(),
    }
}

#[test]
fn an_upload_that_meets_the_limit_in_the_middle_goes_on_where_it_stopped() {
    const NAME: &str = "an_upload_that_meets_the_limit_in_the_middle_goes_on_where_it_stopped";
    let Some(full) = FullGround::lay(NAME) else {
        return;
    };
    let upload = full.stage("new", 8 * MIB);
    let mut writer = full.append(upload, 0);
    let piece = vec![9; MIB];
    for _ in 0..3 {
        writer.write(&piece).expect("there is room");
    }
    full.leave(MIB / 2);
    assert_eq!(code(writer.write(&piece)), FULL);
    drop(writer);
    // Of the piece came what fitted, as of a session's write.
    let told = full.folders.staged(ID, upload).expect("it stays").offset;
    assert!(told > 3 * MIB as u64 && told < 4 * MIB as u64, "{told}");
    let room = rustix::fs::statvfs(&full.place).expect("mounted");
    assert!(room.f_bavail <= 1, "{} blocks are left", room.f_bavail);
    let mut writer = full.append(upload, told);
    assert_eq!(code(writer.write(&piece)), FULL, "nothing fits");
    drop(writer);
    let again = full.folders.staged(ID, upload).expect("it stays").offset;
    assert_eq!(again, told);
    assert!(!full.place.join("new").exists());
    full.make_room();
    let mut writer = full.append(upload, told);
    let rest = vec![9; 8 * MIB - usize::try_from(told).expect("small")];
    writer.write(&rest).expect("there is room again");
    writer.finish(true).expect("kept");
    assert!(full.folders.place(ID, upload).expect("whole"));
    let read = fs::read(full.place.join("new")).expect("there");
    assert!(read.len() == 8 * MIB && read.iter().all(|byte| *byte == 9));
    // One that is whole finds no room for the directories above it: it stays, and is put there later.
    let deep: String = (0..60).map(|level| format!("level{level}/")).collect();
    let deep = format!("{deep}file");
    let upload = full.stage(&deep, 4);
    let mut writer = full.append(upload, 0);
    writer.write(b"text").expect("there is room");
    writer.finish(true).expect("kept");
    full.fill();
    assert_eq!(code(full.folders.place(ID, upload)), FULL);
    assert!(!full.place.join(&deep).exists());
    assert_eq!(full.folders.staged(ID, upload).expect("it stays").offset, 4);
    full.make_room();
    assert!(full.folders.place(ID, upload).expect("there is room"));
    let text = fs::read_to_string(full.place.join(&deep));
    assert_eq!(text.expect("there"), "text");
    assert_eq!(full.count("staging"), 0);
}

/// What is refused leaves no directory, and no file beside those of the folder.
#[test]
fn what_was_made_for_a_file_that_finds_no_room_goes_again() {
    const NAME: &str = "what_was_made_for_a_file_that_finds_no_room_goes_again";
    let Some(full) = FullGround::lay(NAME) else {
        return;
    };
    let folders = &full.folders;
    let deep: String = (0..60).map(|level| format!("level{level}/")).collect();
    let file = format!("{deep}file");
    let first = full.place.join("level0");
    let upload = full.stage(&file, 4);
    let mut writer = full.append(upload, 0);
    writer.write(b"text").expect("there is room");
    writer.finish(true).expect("kept");
    // For some of the directories.
    full.leave(100 << 10);
    assert_eq!(code(folders.place(ID, upload)), FULL);
    assert!(!first.exists());
    full.make_room();
    assert!(folders.place(ID, upload).expect("there is room"));

    folders.remove_entry(ID, &path(&file), NOW).expect("thrown");
    fs::remove_dir_all(&first).expect("removed");
    let item = folders.removed(ID).expect("a list")[0].id;
    full.leave(100 << 10);
    assert_eq!(code(folders.restore_entry(ID, item)), FULL);
    assert!(!first.exists());
    full.make_room();
    folders.restore_entry(ID, item).expect("there is room");
    assert!(full.place.join(&file).is_file());

    full.fill();
    let mut begun = 0;
    let refused = loop {
        let at = format!("more{begun}");
        match folders.stage(ID, &path(&at), declared(&at, 1), NOW) {
            // A block was left.
            Ok(_) => begun += 1,
            Err(refused) => break refused,
        }
        assert!(begun < 64, "it never meets the limit");
    };
    assert_eq!(refused.code(), Some(FULL));
    // Of each that was begun what was said and what has come.
    assert_eq!(full.count("staging"), 2 * begun);
}

#[test]
fn a_copy_that_meets_the_limit_in_the_middle_leaves_nothing() {
    const NAME: &str = "a_copy_that_meets_the_limit_in_the_middle_leaves_nothing";
    let Some(full) = FullGround::lay(NAME) else {
        return;
    };
    fs::create_dir(full.place.join("tree")).expect("made");
    for name in ["tree/a", "tree/b", "tree/c", "tree/d"] {
        full.write(name, 4 * MIB);
    }
    full.leave(10 * MIB);
    let before = full.used();
    let copied = || {
        let (from, to) = (path("tree"), path("copy"));
        full.folders.copy_entry(ID, &from, &to, &|| Ok(()))
    };
    assert_eq!(code(copied()), FULL);
    assert!(!full.place.join("copy").exists());
    assert_eq!(full.count("staging"), 0);
    // The same of a whole folder, whose row is what makes it one.
    let mut steps = 0;
    let cloned = full.folders.copy(ID, OTHER, &mut |_| {
        steps += 1;
        Ok(())
    });
    assert_eq!(code(cloned), FULL);
    assert!(steps > 0, "it had begun");
    full.folders.discard(OTHER).expect("removed");
    let left = full.used().saturating_sub(before);
    assert!(left <= 64 << 10, "{left} bytes are left of it");
    for name in ["tree/a", "tree/b", "tree/c", "tree/d"] {
        let size = full.place.join(name).metadata().expect("there").len();
        assert_eq!(size, 4 * MIB as u64, "{name}");
    }
    full.make_room();
    copied().expect("there is room");
    assert!(full.place.join("copy/d").is_file());
}

#[test]
fn a_text_a_move_and_a_restore_without_room_leave_everything_as_it_was() {
    const NAME: &str = "a_text_a_move_and_a_restore_without_room_leave_everything_as_it_was";
    let Some(full) = FullGround::lay(NAME) else {
        return;
    };
    let folders = &full.folders;
    fs::write(full.place.join("text"), "old").expect("written");
    // Names so long that a directory soon needs one more block for them.
    let names: Vec<_> = (0..300).map(|n| format!("{n:0200}")).collect();
    for below in ["from", "to"] {
        fs::create_dir(full.place.join(below)).expect("made");
    }
    for name in &names {
        File::create(full.place.join("from").join(name)).expect("made");
    }
    let deep: String = (0..60).map(|level| format!("level{level}/")).collect();
    let file = format!("{deep}file");
    fs::create_dir_all(full.place.join(&deep)).expect("made");
    fs::write(full.place.join(&file), "thrown").expect("written");
    folders.remove_entry(ID, &path(&file), NOW).expect("thrown");
    fs::remove_dir_all(full.place.join("level0")).expect("removed");
    let item = folders.removed(ID).expect("a list")[0].id;
    full.fill();

    let large = "x".repeat(MIB / 2);
    for version in [TextVersion::Any, TextVersion::New] {
        let at = match version {
            TextVersion::New => "other",
            TextVersion::Any | TextVersion::Known(_) => "text",
        };
        let written = folders.write_text(ID, &path(at), &large, &version);
        assert_eq!(code(written), FULL, "{at}");
    }
    let text = fs::read_to_string(full.place.join("text"));
    assert_eq!(text.expect("there"), "old");
    assert!(!full.place.join("other").exists());
    assert_eq!(full.count("staging"), 0);

    let mut refused = 0;
    for name in &names {
        let [from, to] = ["from", "to"].map(|below| format!("{below}/{name}"));
        let moved = code(folders.move_entry(ID, &path(&from), &path(&to)));
        let is_there = [&from, &to].map(|at| full.place.join(at).exists());
        match moved.as_str() {
            "done" => assert_eq!(is_there, [false, true]),
            FULL => {
                refused += 1;
                assert_eq!(is_there, [true, false]);
            }
            other => panic!("{other}"),
        }
    }
    assert!(refused > 0, "no move met the limit");

    assert_eq!(code(folders.restore_entry(ID, item)), FULL);
    assert!(!full.place.join(&file).exists());
    assert_eq!(folders.removed(ID).expect("a list")[0].id, item);
    full.make_room();
    let restored = folders.restore_entry(ID, item).expect("there is room");
    assert_eq!(restored, path(&file));
    let text = fs::read_to_string(full.place.join(&file));
    assert_eq!(text.expect("there"), "thrown");
    let written = folders.write_text(ID, &path("text"), &large, &TextVersion::Any);
    assert_eq!(code(written), "done");
}

#[test]
fn a_folder_that_does_not_fit_below_the_limit_of_its_next_owner_stays_where_it_is() {
    const NAME: &str =
        "a_folder_that_does_not_fit_below_the_limit_of_its_next_owner_stays_where_it_is";
    let Some(full) = FullGround::lay(NAME) else {
        return;
    };
    for name in ["a", "b", "c"] {
        full.write(name, 14 * MIB);
    }
    let limit = FolderLimit {
        owner: LEE.into(),
        bytes: MIN_FOLDER_BYTES,
    };
    let moved = full.folders.rehome(ID, KIM.into(), limit, &mut |_| Ok(()));
    assert_eq!(code(moved), FULL);
    let scope = store::folders::scope_of(full.ground.directory.path(), ID);
    assert_eq!(scope, Some(full.ground.scope(KIM)));
    for name in ["a", "b", "c"] {
        let size = full.place.join(name).metadata().expect("there").len();
        assert_eq!(size, 14 * MIB as u64, "{name}");
    }
    let given_up = full.folders.give_up_rehome(ID, KIM.into(), LEE.into());
    given_up.expect("cleared");
    let lee = full.ground.scope(LEE);
    let half = lee.files().join(ID.to_string());
    assert!(lee.is_mounted() && !half.exists(), "nothing of it is left");
}
