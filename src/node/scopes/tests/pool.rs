//! The pool on a real disk: needs root, loop devices, and a kernel whose XFS counts by projects.

use rules::storage::{MIN_POOL, StorageLevel, level};
use store::quota::pool::PoolPlace;

use super::*;
use crate::scopes::pool::first_writes::FirstWritesEnd;

/// A machine with a small pool; everything is unmounted when this goes.
struct PoolGround {
    scopes: Arc<NodeScopes>,
    directory: tempfile::TempDir,
}

fn pooled(data: &Path) -> Arc<NodeScopes> {
    let clock = Clock::set_by_hand(Timestamp::from_millis(1_000));
    let scopes = NodeScopes::of(data.to_owned(), clock);
    scopes.set_pool(PoolSetting::Size(MIN_POOL));
    Arc::new(scopes)
}

impl PoolGround {
    /// Nothing where this machine cannot, after saying so.
    fn lay(test: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skips::skip(test, "needs root to mount a file system");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let scopes = pooled(directory.path());
        match scopes.pool.is_offered() {
            Ok(true) => {}
            Ok(false) => {
                skips::skip(test, "this disk has no room for a pool");
                return None;
            }
            Err(error) => {
                skips::skip(test, &error.to_string());
                return None;
            }
        }
        assert_eq!(scopes.enforcement(), StorageEnforcement::Pool);
        Some(Self { scopes, directory })
    }

    fn scope(&self, owner: UserId) -> ScopePlace {
        ScopePlace::of(self.directory.path(), owner)
    }

    fn folders(&self) -> FolderStore {
        let keeper: Arc<dyn ScopeKeeper> = Arc::clone(&self.scopes) as _;
        FolderStore::limited(self.directory.path(), keeper).expect("a store")
    }

    fn restart(&mut self) {
        self.scopes.close(&BTreeSet::new());
        self.scopes = pooled(self.directory.path());
    }

    fn room(&self) -> PoolUse {
        self.scopes.pool().expect("seen").expect("there is one")
    }
}

impl Drop for PoolGround {
    fn drop(&mut self) {
        self.scopes.close(&BTreeSet::new());
    }
}

#[test]
fn a_pool_holds_each_owner_to_the_block_and_the_neighbour_goes_on() {
    const NAME: &str = "a_pool_holds_each_owner_to_the_block_and_the_neighbour_goes_on";
    let Some(ground) = PoolGround::lay(NAME) else {
        return;
    };
    assert_eq!(ground.scopes.pool().expect("seen"), None, "not made yet");
    let (kim, lee) = (ground.scope(KIM), ground.scope(LEE));
    let _kim = ground.scopes.enter(&kim, Some(LIMIT)).expect("made");
    let _lee = ground.scopes.enter(&lee, Some(LIMIT)).expect("made");
    for scope in [&kim, &lee] {
        assert!(scope.is_mounted() && !scope.image().exists());
        assert_eq!(shown_size(scope), LIMIT.0);
    }
    let numbers = [&kim, &lee].map(|one| one.pooled().expect("kept"));
    assert_eq!(numbers, [Some(project::FIRST), Some(project::FIRST + 1)]);
    let written = fill(&kim.files().join("all"));
    assert!(written <= LIMIT.0, "{written}");
    assert!(written >= LIMIT.0 - (64 << 10), "{written}");
    let taken = ground.scopes.measure(&kim).expect("seen").expect("known");
    assert_eq!((taken.limit, taken.at), (LIMIT, 1_000));
    assert!(taken.used <= LIMIT && taken.used.0 >= written, "{taken:?}");
    assert_eq!(level(taken.used, LIMIT), StorageLevel::Full);
    assert_eq!(taken.max_files, LIMIT.0 / (16 << 10));
    fs::write(lee.files().join("mine"), vec![1; 8 << 20]).expect("the neighbour has room");
    fs::rename(kim.files().join("all"), kim.files().join("other")).expect("renamed");
    fs::remove_file(kim.files().join("other")).expect("removed");
    fs::write(kim.files().join("next"), "text").expect("there is room again");
    // All of it was set aside.
    let room = ground.room();
    assert_eq!((room.size, room.promised), (MIN_POOL, LIMIT + LIMIT));
    let image = PoolPlace::of(ground.directory.path()).image();
    let blocks = std::os::unix::fs::MetadataExt::blocks(&image.metadata().expect("there"));
    assert!(blocks * 512 >= MIN_POOL.0, "{blocks}");
}

#[test]
fn a_limit_in_a_pool_goes_up_and_down_and_the_next_server_knows_it() {
    const NAME: &str = "a_limit_in_a_pool_goes_up_and_down_and_the_next_server_knows_it";
    let Some(mut ground) = PoolGround::lay(NAME) else {
        return;
    };
    let kim = ground.scope(KIM);
    drop(ground.scopes.enter(&kim, Some(LIMIT)).expect("made"));
    fs::write(kim.files().join("kept"), vec![3; 48 << 20]).expect("written");
    let lower = MIN_FOLDER_BYTES;
    ground.scopes.hold_to(&kim, lower).expect("lower");
    let refused = fs::write(kim.files().join("more"), vec![3; 1 << 20]);
    let kind = refused.expect_err("beyond the limit").kind();
    assert_eq!(kind, io::ErrorKind::StorageFull);
    let wide = Bytes::mib(96);
    ground.scopes.hold_to(&kim, wide).expect("higher");
    fs::write(kim.files().join("more"), vec![3; 16 << 20]).expect("there is room");
    // What a session that still runs holds of it, when the server has let go.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let session = open_tree(rustix::fs::CWD, kim.files(), flags).expect("a mount");
    ground.restart();
    assert!(!kim.is_mounted() && !kim.is_reachable());
    let made = rustix::fs::openat(
        &session,
        "later",
        OFlags::CREATE | OFlags::WRONLY,
        Mode::from_raw_mode(0o600),
    );
    drop(made.expect("the session goes on"));
    let taken = ground.scopes.measure(&kim).expect("seen").expect("known");
    assert!(taken.used.0 >= 64 << 20, "{taken:?}");
    assert_eq!(taken.limit, wide);
    let _lease = ground.scopes.enter(&kim, None).expect("it is there");
    assert!(kim.files().join("later").is_file(), "it is one file system");
    let kept = fs::read(kim.files().join("kept")).expect("kept");
    assert_eq!(kept, vec![3; 48 << 20]);
    // The next scope has the next number.
    let lee = ground.scope(LEE);
    drop(ground.scopes.enter(&lee, Some(LIMIT)).expect("made"));
    assert_eq!(lee.pooled().expect("kept"), Some(project::FIRST + 1));
    drop(session);
}

#[test]
fn a_pool_grows_while_it_is_in_use_and_by_itself_when_it_is_short() {
    const NAME: &str = "a_pool_grows_while_it_is_in_use_and_by_itself_when_it_is_short";
    let Some(mut ground) = PoolGround::lay(NAME) else {
        return;
    };
    let nothing = ground.scopes.grow_pool(Bytes::gib(1));
    let kind = nothing.expect_err("there is none").kind();
    assert_eq!(kind, io::ErrorKind::NotFound);
    let kim = ground.scope(KIM);
    let lease = ground.scopes.enter(&kim, Some(LIMIT)).expect("made");
    let mut open = File::create(kim.files().join("open")).expect("made");
    let before = ground.room();
    let larger = Bytes::mib(640);
    ground.scopes.grow_pool(larger).expect("the disk has room");
    open.write_all(b"it is in use").expect("written");
    let after = ground.room();
    assert_eq!(after.size, larger);
    let seen = pool_room(ground.directory.path()).expect("there is one");
    assert_eq!(seen, (larger, Some(Bytes(larger.0 - after.used.0))));
    let more = (after.size.0 - after.used.0) - (before.size.0 - before.used.0);
    assert!(more >= 120 << 20, "{before:?} {after:?}");
    ground
        .scopes
        .grow_pool(MIN_POOL)
        .expect("it is larger already");
    assert_eq!(ground.room().size, larger, "it never shrinks");
    ground
        .scopes
        .grow_pool(Bytes(1 << 50))
        .expect_err("no disk is so large");
    assert_eq!(ground.room().size, larger, "as large as before");
    // What a loss of power in between leaves: the file is longer than its file system.
    drop((open, lease));
    ground.restart();
    let image = PoolPlace::of(ground.directory.path()).image();
    let file = File::options()
        .write(true)
        .open(image)
        .expect("there is one");
    file.set_len(Bytes::mib(768).0).expect("longer");
    drop(file);
    drop(ground.scopes.enter(&kim, None).expect("mounted"));
    let grown = ground.room();
    assert_eq!(grown.size, Bytes::mib(768));
    assert!(grown.size.0 - grown.used.0 > after.size.0 - after.used.0 + (100 << 20));
    // Whether it may grow by itself depends on the disk; that it is asked loses nothing.
    ground.scopes.tend_pool();
    assert!(ground.room().size >= Bytes::mib(768));
}

#[test]
fn earlier_states_of_files_in_a_pool_count_apart_from_the_files() {
    const NAME: &str = "earlier_states_of_files_in_a_pool_count_apart_from_the_files";
    let Some(ground) = PoolGround::lay(NAME) else {
        return;
    };
    let folders = ground.folders();
    let id = FolderId(Uuid::from_u128(1));
    let limit = FolderLimit {
        owner: KIM.into(),
        bytes: LIMIT,
    };
    folders.create(id, false, Some(limit)).expect("made");
    assert!(folders.shares_blocks(id).expect("tried"));
    let place = mounted_directory(ground.directory.path(), id);
    fs::write(place.join("a"), vec![5; 20 << 20]).expect("written");
    folders.take_snapshot(id, 1, &mut |_| Ok(())).expect("made");
    let kim = ground.scope(KIM);
    let used = |scope| {
        let taken = ground.scopes.measure(scope).expect("seen");
        taken.expect("known").used.0
    };
    assert!((20 << 20..24 << 20).contains(&used(&kim)), "{}", used(&kim));
    assert_eq!(kim.history().expect("kept"), Some(project::FIRST + 1));
    // Half of the limit is for earlier states, and nothing of a second one of these stays.
    folders
        .take_snapshot(id, 2, &mut |_| Ok(()))
        .expect_err("there is no room for it");
    folders.remove_snapshot(id, 2).expect("removed");
    fs::write(place.join("b"), vec![6; 40 << 20]).expect("the files have all of their room");
    folders.remove_snapshot(id, 1).expect("removed");
    fs::remove_file(place.join("b")).expect("removed");
    // The kernel gives the room of removed files back a moment later.
    let until = Instant::now() + Duration::from_secs(30);
    while let Err(error) = folders.take_snapshot(id, 3, &mut |_| Ok(())) {
        assert!(Instant::now() < until, "there is room again: {error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    ground.scopes.hold_to(&kim, Bytes::mib(128)).expect("more");
    folders
        .take_snapshot(id, 4, &mut |_| Ok(()))
        .expect("with the limit grows its half");
}

#[test]
fn a_full_scope_of_a_pool_takes_one_more_folder_and_goes_when_it_is_empty() {
    const NAME: &str = "a_full_scope_of_a_pool_takes_one_more_folder_and_goes_when_it_is_empty";
    let Some(ground) = PoolGround::lay(NAME) else {
        return;
    };
    let folders = ground.folders();
    let limit = Some(FolderLimit {
        owner: KIM.into(),
        bytes: LIMIT,
    });
    let [large, home] = [1, 2].map(|number| FolderId(Uuid::from_u128(number)));
    folders.create(large, false, limit).expect("made");
    fill(&mounted_directory(ground.directory.path(), large).join("all"));
    folders.create(home, true, limit).expect("the spare one");
    assert!(folders.has(home));
    for id in [large, home] {
        assert_eq!(folders.throw(id).expect("thrown"), Thrown::Away);
    }
    folders.empty(|| true).expect("emptied");
    let kim = ground.scope(KIM);
    let own = PoolPlace::of(ground.directory.path())
        .files()
        .join(kim.directory().file_name().expect("a name"));
    assert!(own.is_dir());
    ground
        .scopes
        .remove_empty(&kim)
        .expect("nothing lies in it");
    assert!(!kim.directory().exists() && !own.exists());
    assert_eq!(ground.room().promised, Bytes::ZERO);
    // What a loss of power left of one that was being made is no part of the next.
    fs::create_dir(&own).expect("made");
    fs::write(own.join(".left"), "text").expect("written");
    drop(ground.scopes.enter(&kim, Some(LIMIT)).expect("made"));
    assert!(kim.is_pooled() && !kim.files().join(".left").exists());
    // Folders of which nothing is kept, as after an older state of all scopes was put back, are not removed.
    let lost = PoolPlace::of(ground.directory.path())
        .files()
        .join(ground.scope(LEE).directory().file_name().expect("a name"));
    let folder = lost.join(large.to_string());
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("kept"), "text").expect("written");
    let root = ground.scopes.pool.open().expect("mounted");
    let refused = ground
        .scopes
        .pool
        .add(&root, &ground.scope(LEE), project::FIRST + 9, LIMIT);
    let kind = refused.expect_err("folders lie there").kind();
    assert_eq!(kind, io::ErrorKind::AlreadyExists);
    assert!(folder.join("kept").is_file());
}

/// Limits may add up to more than the pool: who meets its end learns that it is not their own limit.
#[test]
fn a_full_pool_is_told_apart_from_a_full_scope() {
    const NAME: &str = "a_full_pool_is_told_apart_from_a_full_scope";
    let Some(ground) = PoolGround::lay(NAME) else {
        return;
    };
    let folders = ground.folders();
    let id = FolderId(Uuid::from_u128(1));
    let limit = FolderLimit {
        owner: KIM.into(),
        bytes: Bytes::gib(1),
    };
    folders.create(id, false, Some(limit)).expect("made");
    let all = mounted_directory(ground.directory.path(), id).join("all");
    let written = fill(&all);
    assert!(written < MIN_POOL.0, "{written}");
    let path = FolderPath::parse("new").expect("a path");
    let upload = || {
        let declared = DeclaredFile {
            path: "new".to_owned(),
            bytes: Some(64 << 20),
            overwrite: false,
            version: None,
            modified_at: None,
            by: None,
        };
        let now = Timestamp::from_millis(1_000);
        let staged = folders.stage(id, &path, declared, now);
        let refused = staged.err();
        refused.and_then(|error| error.code().map(str::to_owned))
    };
    assert_eq!(upload().as_deref(), Some("pool.full"));
    ground
        .scopes
        .grow_pool(Bytes::mib(768))
        .expect("the disk has room");
    assert_eq!(upload(), None, "there is room");
}

/// Zeros that go to what is free are nobody's use.
#[test]
fn an_owner_fills_all_of_a_limit_while_the_pool_is_written_once() {
    const NAME: &str = "an_owner_fills_all_of_a_limit_while_the_pool_is_written_once";
    let Some(ground) = PoolGround::lay(NAME) else {
        return;
    };
    let kim = ground.scope(KIM);
    let _kim = ground.scopes.enter(&kim, Some(LIMIT)).expect("made");
    let before = ground.room();
    let written = std::thread::scope(|threads| {
        let writes = threads.spawn(|| ground.scopes.pool.write_first(false));
        let written = fill(&kim.files().join("all"));
        let (end, _) = writes.join().expect("no panic").expect("written");
        assert_eq!(end, FirstWritesEnd::Done);
        written
    });
    assert!(
        (LIMIT.0 - (64 << 10)..=LIMIT.0).contains(&written),
        "{written}"
    );
    let taken = ground.scopes.measure(&kim).expect("seen").expect("known");
    assert!((written..=LIMIT.0).contains(&taken.used.0), "{taken:?}");
    // What it held is free again, a moment later.
    let until = Instant::now() + Duration::from_secs(30);
    while ground.room().used.0 > before.used.0 + LIMIT.0 + (2 << 20) {
        assert!(Instant::now() < until, "{:?} {before:?}", ground.room());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_session_has_a_disk_in_the_pool_that_goes_with_it() {
    const NAME: &str = "a_session_has_a_disk_in_the_pool_that_goes_with_it";
    let Some(mut ground) = PoolGround::lay(NAME) else {
        return;
    };
    let place = |name: &str| {
        let scratch = ScopePlace::of_session(ground.directory.path(), name);
        fs::create_dir_all(scratch.files()).expect("made");
        scratch
    };
    let (one, two, three) = (place("s-1"), place("s-2"), place("s-3"));
    for scratch in [&one, &two] {
        let is_pooled = ground.scopes.open_scratch(scratch, LIMIT);
        assert!(is_pooled.expect("made"));
        assert_eq!(shown_size(scratch), LIMIT.0);
        assert!(!scratch.image().exists());
    }
    let numbers = [&one, &two].map(|scratch| scratch.pooled().expect("kept"));
    assert_ne!(numbers[0], numbers[1]);
    let written = fill(&one.files().join("all"));
    assert!((LIMIT.0 - (64 << 10)..=LIMIT.0).contains(&written));
    fs::write(two.files().join("mine"), vec![1; 8 << 20]).expect("it has its own");
    let full = ground.room();
    close_scratch(&one).expect("unmounted");
    assert!(ground.scopes.throw_scratch(&one).expect("thrown"));
    store::trees::remove(one.directory()).expect("removed");
    assert!(!ground.scopes.throw_scratch(&one).expect("nothing there"));
    ground.scopes.empty_removed().expect("emptied");
    let until = Instant::now() + Duration::from_secs(30);
    let root = PoolPlace::of(ground.directory.path()).files();
    let root = File::open(root).expect("it is mounted");
    let first = numbers[0].expect("a number");
    let counted = || project::taken(&root, first).expect("told") != (Bytes::ZERO, 0);
    while ground.room().used.0 > full.used.0 - (60 << 20) || counted() {
        assert!(Instant::now() < until, "its room does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(root);
    // The number is given again, and nothing of the first one counts on it.
    assert!(ground.scopes.open_scratch(&three, LIMIT).expect("made"));
    assert_eq!(three.pooled().expect("kept"), numbers[0]);
    fs::write(three.files().join("new"), vec![1; 48 << 20]).expect("there is room");
    // A loss of power between the two steps of an end: the next server knows no session of that name.
    close_scratch(&two).expect("unmounted");
    store::trees::remove(two.directory()).expect("removed");
    close_scratch(&three).expect("unmounted");
    ground.restart();
    assert_eq!(ground.scopes.enforcement(), StorageEnforcement::Pool);
    fs::create_dir_all(two.files()).expect("there");
    let four = ScopePlace::of_session(ground.directory.path(), "s-4");
    fs::create_dir_all(four.files()).expect("made");
    assert!(ground.scopes.open_scratch(&four, LIMIT).expect("made"));
    let pool = PoolPlace::of(ground.directory.path());
    let left = |name: &str| pool.files().join(".sessions").join(name).is_dir();
    assert!(!left("s-2") && left("s-3") && left("s-4"));
    close_scratch(&four).expect("unmounted");
}

#[test]
fn a_machine_without_room_for_a_pool_tries_none() {
    let data = tempfile::tempdir().expect("a directory");
    for setting in [PoolSetting::Never, PoolSetting::Size(Bytes(1 << 60))] {
        let scopes = NodeScopes::of(data.path().to_owned(), Clock::system());
        scopes.set_pool(setting);
        assert!(!scopes.pool.is_offered().expect("looked at"), "{setting:?}");
        assert_eq!(scopes.pool().expect("looked at"), None);
        assert_eq!(pool_room(data.path()), None);
        // There is nothing to do.
        scopes.tend_pool();
        scopes.close(&BTreeSet::new());
    }
    let untold = NodeScopes::of(data.path().to_owned(), Clock::system());
    assert!(!untold.pool.is_offered().expect("nothing was said"));
}
