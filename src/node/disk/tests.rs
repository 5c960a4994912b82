//! Who is paused for the room that went, where the marks are, and when anybody is measured at all.

use super::*;

const MIB: u64 = 1 << 20;

/// Name, bytes, files, written, beyond.
fn grown(all: &[(&str, u64, u64, u64, u64)]) -> BTreeMap<RuntimeName, DiskGrowth> {
    let of = |&(name, bytes, files, written, beyond): &(&str, u64, u64, u64, u64)| {
        let name = RuntimeName::parse(name).expect("a plain name");
        let grown = DiskGrowth {
            bytes,
            files,
            written,
            beyond,
            hides: false,
        };
        (name, grown)
    };
    all.iter().map(of).collect()
}

fn names(chosen: &[RuntimeName]) -> String {
    let names: Vec<&str> = chosen.iter().map(RuntimeName::as_str).collect();
    names.join(" ")
}

#[test]
fn whoever_grew_most_is_paused_and_nobody_who_did_not_grow() {
    let (big, small, still) = (
        ("big", 90, 0, 0, 0),
        ("small", 10, 0, 0, 0),
        ("still", 0, 0, 0, 0),
    );
    for (fell, all, wanted) in [
        (100, vec![big, small, still], "big"),
        (10, vec![small, still], "small"),
        (
            100,
            vec![("one", 50, 0, 0, 0), ("two", 40, 0, 0, 0), still],
            "one",
        ),
        (
            100,
            vec![
                ("one", 30, 0, 0, 0),
                ("two", 30, 0, 0, 0),
                ("three", 30, 0, 0, 0),
            ],
            "one three",
        ),
        // A file that has no name any more: the walk sees nothing, the kernel counts what was written.
        (
            100,
            vec![("thief", 0, 0, 100, 0), ("small", 5, 0, 5, 0)],
            "thief",
        ),
        // It was the machine itself.
        (100, vec![("small", 5, 0, 5, 0), still], ""),
        (100, vec![], ""),
        (0, vec![still], ""),
    ] {
        assert_eq!(names(&by_bytes(fell, &grown(&all))), wanted, "{all:?}");
    }
}

#[test]
fn whoever_makes_files_is_paused_though_they_are_empty() {
    let all = [("many", 0, 900, 0, 0), ("few", 500, 3, 500, 0)];
    assert_eq!(names(&by_files(1000, &grown(&all))), "many");
    let all = [("uncounted", 0, 0, 0, MAX_NAMES), ("few", 0, 3, 0, 0)];
    assert_eq!(names(&by_files(1000, &grown(&all))), "uncounted");
    assert_eq!(names(&by_files(1000, &grown(&[("few", 0, 3, 0, 0)]))), "");
}

#[test]
fn what_was_too_much_to_count_is_no_growth() {
    let known = |bytes, whole| SessionDiskUse {
        size: Size {
            bytes,
            entries: 7,
            whole,
        },
        written: bytes,
        ..NOTHING
    };
    let grew = DiskGrowth::between(&known(10, true), &known(30, true));
    assert_eq!((grew.bytes, grew.written, grew.beyond), (20, 20, 0));
    let grew = DiskGrowth::between(&known(10, true), &known(30, false));
    assert_eq!((grew.bytes, grew.written, grew.beyond), (0, 20, 7));
    let grew = DiskGrowth::between(&known(30, true), &known(10, true));
    assert_eq!((grew.bytes, grew.written), (0, 0), "it gave something back");
}

#[test]
fn a_folder_grows_from_when_it_is_seen_first() {
    let size = |bytes, entries, whole| Size {
        bytes,
        entries,
        whole,
    };
    let (small, large) = (size(10, 1, true), size(30, 5, true));
    let grown = FreeSpace {
        bytes: 20,
        files: 4,
    };
    assert_eq!(more_in_folder(Some(&small), &large), grown);
    for (then, now) in [
        (None, large),
        (Some(large), small),
        (Some(small), size(30, 5, false)),
        (Some(size(10, 1, false)), large),
    ] {
        let more = more_in_folder(then.as_ref(), &now);
        assert_eq!(more, FreeSpace::default(), "{then:?} {now:?}");
    }
}

#[test]
fn files_without_a_name_are_growth_and_losing_the_name_is_none() {
    let known = |named, unnamed, whole| SessionDiskUse {
        size: Size {
            bytes: named,
            ..NOTHING.size
        },
        unnamed: Unnamed {
            bytes: unnamed,
            whole,
        },
        ..NOTHING
    };
    let grew = |then: &SessionDiskUse, now: &SessionDiskUse| {
        let grew = DiskGrowth::between(then, now);
        (grew.bytes, grew.hides)
    };
    let before = known(10, 0, true);
    assert_eq!(grew(&before, &known(10, 20, true)), (20, false));
    assert_eq!(
        grew(&before, &known(0, 10, true)),
        (0, false),
        "it was removed"
    );
    assert_eq!(grew(&before, &known(15, 20, false)), (5, true));
    assert_eq!(grew(&NOTHING, &known(1, 2, true)), (3, false));
    let flushed = SessionDiskUse {
        flushed: 50,
        written: 7,
        ..NOTHING
    };
    assert_eq!(DiskGrowth::between(&NOTHING, &flushed).written, 50);
}

#[test]
fn whoever_hides_what_is_open_is_paused_when_nothing_else_explains_it() {
    let mut all = grown(&[("hides", 0, 0, 1, 0), ("works", 5, 0, 5, 0)]);
    assert_eq!(names(&by_bytes(100, &all)), "", "no session hides anything");
    let name = RuntimeName::parse("hides").expect("a plain name");
    all.get_mut(&name).expect("there").hides = true;
    assert_eq!(names(&by_bytes(100, &all)), "hides");
    assert_eq!(names(&by_bytes(8, &all)), "works", "that is explained");
    assert_eq!(names(&by_bytes(0, &all)), "works");
}

#[test]
fn imports_and_uploads_stop_before_anybody_is_paused_for_them() {
    let imports = store::images::limits::ImportLimits::default().reserve_bytes;
    let uploads = store::uploads::UploadLimits::default().reserve_bytes;
    for gib in [1, 4, 100, 100_000] {
        let all = FreeSpace {
            bytes: gib << 30,
            files: gib << 16,
        };
        let marks = PauseThresholds::of(all);
        assert!(marks.pause.bytes < marks.go_on.bytes);
        assert!(marks.go_on.bytes < imports.min(uploads), "{gib} GiB");
        assert!(marks.go_on.files < all.files);
    }
}

#[test]
fn nobody_is_measured_while_the_disk_does_not_fill() {
    let room = |mib: u64| FreeSpace {
        bytes: mib * MIB,
        files: 1_000_000,
    };
    let marks = PauseThresholds::of(FreeSpace {
        bytes: 100 << 30,
        files: 6_000_000,
    });
    let mut eyes = DiskWatchState::default();
    assert!(eyes.is_due(room(9000), marks), "the first time");
    eyes.measured = Some((room(9000), Instant::now(), Duration::ZERO));
    assert!(!eyes.is_due(room(9000), marks));
    assert!(!eyes.is_due(room(2000), marks), "it was measured just now");
    assert!(eyes.is_due(room(400), marks), "there is none to spare");
    eyes.measured = Some((room(400), Instant::now(), Duration::ZERO));
    assert!(!eyes.is_due(room(400), marks), "nothing went");
    assert!(!eyes.is_due(room(500), marks), "it became more");
    assert!(eyes.is_due(room(398), marks));
    let files = FreeSpace {
        files: 1000,
        ..room(400)
    };
    assert!(eyes.is_due(files, marks));
    eyes.measured = Some((room(9000), Instant::now(), Duration::from_secs(60)));
    assert!(!eyes.is_due(room(400), marks), "it takes too long");
}

#[test]
fn what_a_session_writes_into_a_scope_is_seen_at_the_file_of_the_scope() {
    let data = tempfile::tempdir().expect("a directory");
    let owner = rules::names::UserId(uuid::Uuid::from_u128(7));
    let scope = ScopePlace::of(data.path(), owner);
    scope.make().expect("made");
    let [one, other] = ["a/data", "b/data"].map(|name| scope.files().join(name));
    assert_eq!(taken_by(one.clone()), one, "it has no file of its own");
    std::fs::write(scope.image(), "").expect("made");
    assert_eq!(taken_by(one), scope.image());
    assert_eq!(taken_by(other), scope.image(), "once, however many folders");
    let plain = data.path().join("folders/ab/c/data");
    assert_eq!(taken_by(plain.clone()), plain);
}
