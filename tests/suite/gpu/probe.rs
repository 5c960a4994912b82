//! The helper that loads the vendor's library, with the fake one: what it tells, and that neither a hang
//! nor a crash nor nonsense of it costs more than an answer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use node::gpu::probe::{PROBE, Probe, ProbeError, ProbeTimeouts, number_of};

use super::rig::{MIB, Rig, state};
use crate::programs::install;

const TIMEOUTS: ProbeTimeouts = ProbeTimeouts {
    first: Duration::from_secs(20),
    later: Duration::from_millis(1500),
};

fn copy(rig: &Rig) -> PathBuf {
    rig.place.join("helper/gpu_probe")
}

fn probe(rig: &Rig) -> Probe {
    Probe::new(&rig.place.join("libnvidia-ml.so.1"), None, &copy(rig)).with_patience(TIMEOUTS)
}

/// Waits out the pause after a failure; the probe's answer then.
fn again<T>(mut ask: impl FnMut() -> Result<T, ProbeError>) -> Result<T, ProbeError> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match ask() {
            Err(ProbeError::Resting(_)) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(50));
            }
            told => return told,
        }
    }
}

#[test]
fn the_helper_tells_what_the_driver_knows_of_each_card() {
    let rig = Rig::with(3, 8192 * MIB, 64 * MIB);
    rig.state.nvml_mig.store(0b100, SeqCst);
    let parts = &rig.state.nvml_part[2];
    parts[0].store(state::PEOPLED | 3, SeqCst);
    parts[5].store(state::PEOPLED | 1, SeqCst);
    rig.state.nvml_worn.store(0b010, SeqCst);
    let mut probe = probe(&rig);
    let told = probe.cards().expect("it answers");
    assert_eq!((told.cards.len(), told.faults.len()), (3, 0));
    for (at, card) in told.cards.iter().enumerate() {
        let uuid = card.uuid.as_deref().and_then(number_of);
        assert_eq!(uuid, Some(state::uuid(at)));
        assert_eq!(card.memory, Some(8192 * MIB));
        assert_eq!((card.cores, card.ability), (Some(132 * 128), Some((9, 0))));
        assert_eq!(card.pci, Some(format!("00000000:{:02X}:00.0", 0x41 + at)));
        assert_eq!(
            card.remapped_rows.map(|rows| rows[2]),
            Some(u32::from(at == 1))
        );
    }
    let links = |at: usize| {
        let links = told.cards[at].links.iter();
        links
            .map(|link| (link.pci.clone(), link.switch))
            .collect::<Vec<_>>()
    };
    assert_eq!(links(0), [(Some("00000000:42:00.0".into()), Some(false))]);
    assert_eq!((links(1).len(), links(2).len()), (1, 0));
    assert_eq!(told.cards[0].parts, None);
    let parts = told.cards[2].parts.as_deref().expect("it is partitioned");
    assert_eq!(parts.len(), 2);
    assert_eq!(parts[1].instances, Some((6, 0)));
    assert_eq!(parts[0].multiprocessors, Some(60));
    assert_eq!(parts[0].memory, Some(4096 * MIB));
    assert!(
        parts[0]
            .model
            .as_deref()
            .is_some_and(|name| name.ends_with(" 3g.4gb"))
    );
    // A fault is told once, by the card that had it.
    rig.state.nvml_fault.store(79 * 256 + 1, SeqCst);
    let told = probe.cards().expect("it answers");
    let faults = told
        .faults
        .iter()
        .map(|fault| (number_of(&fault.uuid), fault.number));
    assert_eq!(faults.collect::<Vec<_>>(), [(Some(state::uuid(1)), 79)]);
    assert_eq!(probe.cards().expect("it answers").faults, []);
}

/// The sizes that a card is cut into, as the driver lists them.
fn sizes(probe: &mut Probe) -> Option<Vec<String>> {
    let told = probe.cards().expect("it answers");
    let parts = told.cards[0].parts.as_ref()?.iter();
    let word = |name: &String| name.split(' ').next_back().map(str::to_owned);
    Some(
        parts
            .map(|part| part.model.as_ref().and_then(word).expect("a name"))
            .collect(),
    )
}

#[test]
fn the_helper_partitions_an_unused_card_wholly_or_not_at_all() {
    let rig = Rig::with(1, 8192 * MIB, 8192 * MIB);
    let mut probe = probe(&rig);
    let card = probe.cards().expect("it answers").cards[0]
        .uuid
        .clone()
        .expect("a name");
    let partition = |probe: &mut Probe, sizes: &[&str]| {
        let sizes: Vec<String> = sizes.iter().map(|size| (*size).to_owned()).collect();
        probe
            .partition(&card, &sizes)
            .map_err(|fault| fault.to_string())
    };
    assert_eq!(sizes(&mut probe), None);
    // Small ones first, as somebody may say it: the large one finds its place all the same.
    assert_eq!(
        partition(&mut probe, &["1g.1gb", "3g.4gb", "2g.2gb"]),
        Ok(())
    );
    let stands = Some(vec!["3g.4gb".into(), "2g.2gb".into(), "1g.1gb".into()]);
    let mut found = sizes(&mut probe);
    found
        .as_mut()
        .expect("it is partitioned")
        .sort_by(|a, b| b.cmp(a));
    assert_eq!(found, stands);
    // Another cut, without being whole between.
    assert_eq!(partition(&mut probe, &["4g.4gb"]), Ok(()));
    assert_eq!(sizes(&mut probe), Some(vec!["4g.4gb".into()]));

    // Somebody uses it: nothing changes.
    let holder = super::views::Holder::of(&rig, 64 * MIB);
    let refused = partition(&mut probe, &["7g.8gb"]).expect_err("in use");
    assert!(refused.contains("in use"), "{refused}");
    assert_eq!(sizes(&mut probe), Some(vec!["4g.4gb".into()]));
    drop(holder);

    // The driver refuses the last of them: the first does not stay.
    rig.state.nvml_grudges.store(1, SeqCst);
    let refused = partition(&mut probe, &["3g.4gb", "1g.1gb"]).expect_err("refused");
    assert!(refused.contains("making a 1g.1gb"), "{refused}");
    assert_eq!(sizes(&mut probe), Some(Vec::new()));
    let refused = partition(&mut probe, &["5g.9gb"]).expect_err("no such size");
    assert!(refused.contains("its driver offers no 5g.9gb"), "{refused}");

    // A card that takes it on only with a reset is not reset, and says so.
    rig.state.nvml_resets.store(1, SeqCst);
    let refused = partition(&mut probe, &[]).expect_err("a reset");
    assert!(refused.contains("next reset"), "{refused}");
    rig.state.nvml_resets.store(0, SeqCst);
    assert_eq!(partition(&mut probe, &[]), Ok(()));
    assert_eq!(sizes(&mut probe), None);
}

#[test]
fn the_helper_tells_who_holds_what_by_the_hosts_numbers() {
    let rig = Rig::with(2, 8192 * MIB, 4096 * MIB);
    let mut probe = probe(&rig);
    assert_eq!(probe.held().expect("it answers"), []);
    let held = super::views::Holder::of(&rig, 704 * MIB);
    let told = probe.held().expect("it answers");
    let told: Vec<_> = told.iter().filter(|held| held.bytes > 0).collect();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].pid, told[0].device), (held.pid(), state::uuid(0)));
    assert_eq!(told[0].bytes, 704 * MIB);
    let figures = probe.figures().expect("it answers");
    assert_eq!(figures.len(), 2);
    assert_eq!(
        (figures[0].memory, figures[1].memory),
        (Some(704 * MIB), Some(0))
    );
    assert_eq!(
        (figures[1].celsius, figures[1].milliwatts),
        (Some(41), Some(310_520))
    );
    assert_eq!(figures[0].busy, Some(97));
    // A card that is gone says so, and the other goes on telling.
    rig.state.nvml_lost.store(0b10, SeqCst);
    let told = probe.cards().expect("it answers");
    assert_eq!(told.cards[1].error.as_deref(), Some("lost"));
    assert_eq!(told.cards[0].error, None);
    assert_eq!(probe.figures().expect("it answers").len(), 1);
    assert_eq!(probe.held().expect("it answers").len(), 1);
}

#[test]
fn the_helper_has_the_driver_hold_a_control_group_and_no_older_driver_is_asked() {
    let rig = Rig::with(2, 8192 * MIB, 4096 * MIB);
    let mut probe = probe(&rig);
    let told = probe.cards().expect("it answers");
    assert!(told.limits);
    let card = told.cards[1].uuid.clone().expect("its number");
    let group = rig.place.join("group");
    std::fs::create_dir(&group).expect("made");
    let stands = || std::fs::read_to_string(rig.place.join("limits")).expect("it was set");
    probe.limit(&card, &group, Some(MIB)).expect("it is taken");
    assert_eq!(stands(), format!("2 0 {MIB} {}\n", group.display()));
    probe.limit(&card, &group, None).expect("it is taken");
    assert_eq!(stands(), format!("2 0 {} {}\n", u64::MAX, group.display()));
    // What it refuses is said, and sets nothing.
    for (card, group, bytes) in [
        (card.as_str(), group.as_path(), Some(8193 * MIB)),
        (card.as_str(), Path::new("/nothing/of/the/kind"), Some(MIB)),
        (
            "GPU-00000000-0000-0000-0000-000000000009",
            group.as_path(),
            None,
        ),
    ] {
        let refused = probe.limit(card, group, bytes).expect_err("it refuses");
        assert!(matches!(refused, ProbeError::Library(_)), "{refused}");
    }
    assert!(stands().starts_with(&format!("2 0 {} ", u64::MAX)));
    // An older one lacks the name.
    let path = rig.place.join("libnvidia-ml.so.1");
    let mut bytes = std::fs::read(&path).expect("it was installed");
    let wanted = b"\0nvmlDeviceSetMemoryLimits_v1\0";
    let mut found = bytes.windows(wanted.len()).position(|at| at == wanted);
    while let Some(at) = found {
        bytes[at + 1] = b'x';
        found = bytes.windows(wanted.len()).position(|at| at == wanted);
    }
    let older = rig.place.join("older");
    std::fs::create_dir(&older).expect("made");
    std::fs::write(older.join("libnvidia-ml.so.1"), bytes).expect("written");
    let mut older =
        Probe::new(&older.join("libnvidia-ml.so.1"), None, &copy(&rig)).with_patience(TIMEOUTS);
    assert!(!older.cards().expect("it answers").limits);
    let refused = older.limit(&card, &group, None).expect_err("there is none");
    assert!(refused.to_string().contains("no such call"), "{refused}");
}

#[test]
fn a_helper_that_hangs_dies_or_talks_nonsense_is_replaced_and_costs_one_answer() {
    let rig = Rig::new(64 * MIB);
    let mut probe = probe(&rig);
    probe.cards().expect("it answers");
    for (trouble, name) in [
        (state::HANGS, "hangs"),
        (state::CRASHES, "dies"),
        (state::TALKS_NONSENSE, "talks nonsense"),
    ] {
        let before = probe.pid().expect("it runs");
        rig.state.nvml_trouble.store(trouble, SeqCst);
        let asked = Instant::now();
        let fault = probe.cards().expect_err(name);
        assert!(
            asked.elapsed() < TIMEOUTS.later + Duration::from_secs(2),
            "{name}"
        );
        match trouble {
            state::HANGS => assert!(matches!(fault, ProbeError::Silent(_)), "{fault}"),
            state::CRASHES => {
                assert!(fault.to_string().contains("dies as it was told"), "{fault}");
            }
            _ => assert!(matches!(fault, ProbeError::Rubbish), "{fault}"),
        }
        // Nothing of it is left, and nobody is asked again at once.
        assert_eq!(probe.pid(), None, "{name}");
        assert!(!Path::new(&format!("/proc/{before}")).exists(), "{name}");
        let asked = Instant::now();
        assert!(
            matches!(probe.held(), Err(ProbeError::Resting(1))),
            "{name}"
        );
        assert!(asked.elapsed() < Duration::from_millis(500), "{name}");
        rig.state.nvml_trouble.store(0, SeqCst);
        again(|| probe.cards()).expect(name);
        assert_ne!(probe.pid(), Some(before), "{name}");
    }
    // A library that refuses is no fault of the helper, which is kept.
    let before = probe.pid();
    rig.state.nvml_trouble.store(state::REFUSES, SeqCst);
    assert!(matches!(probe.cards(), Err(ProbeError::Library(_))));
    rig.state.nvml_trouble.store(0, SeqCst);
    probe.cards().expect("it answers");
    assert_eq!(probe.pid(), before);
}

#[test]
fn without_the_vendors_library_the_helper_says_so_and_the_printed_table_is_read() {
    let rig = Rig::new(64 * MIB);
    let missing = rig.place.join("missing.so.1");
    let mut probe = Probe::new(&missing, None, &copy(&rig)).with_patience(TIMEOUTS);
    let fault = probe.cards().expect_err("there is no library");
    assert!(
        matches!(&fault, ProbeError::Library(text) if !text.is_empty()),
        "{fault}"
    );
    // It is opened as soon as it is there.
    std::fs::copy(rig.place.join("libnvidia-ml.so.1"), &missing).expect("it can be copied");
    assert_eq!(probe.cards().expect("it answers").cards.len(), 1);

    // A helper that cannot run at all: the library ends the process that loads it.
    let smi = rig.place.join("nvidia-smi");
    let name = "GPU-00112233-4455-6677-8899-aabbccddeeff";
    let table = format!(
        "#!/bin/sh\n[ -z \"$HOME\" ] || exit 1\ncase $1 in\n\
         *compute-apps*) echo '{name}, 4711, 704' ;;\n\
         *utilization*) echo '{name}, 3712, 97, 61, 310.52' ;;\n\
         *) echo '{name}, NVIDIA H200, 00000000:41:00.0, 143771, Disabled, 0' ;;\nesac\n"
    );
    install(&smi, table.as_bytes());
    rig.state.nvml_trouble.store(state::CRASHES, SeqCst);
    let library = rig.place.join("libnvidia-ml.so.1");
    let mut probe = Probe::new(&library, Some(&smi), &copy(&rig)).with_patience(TIMEOUTS);
    let told = probe.cards().expect("the table is read");
    assert_eq!(told.cards[0].model.as_deref(), Some("NVIDIA H200"));
    let held = probe.held().expect("the table is read");
    assert_eq!((held[0].pid, held[0].bytes), (4711, 704 * MIB));
    let figures = probe.figures().expect("the table is read");
    assert_eq!(figures[0].milliwatts, Some(310_520));
    // Once the helper has answered, its silence is a sick driver: nobody else is sent there.
    rig.state.nvml_trouble.store(0, SeqCst);
    let told = again(|| match probe.cards() {
        Ok(told) if told.cards[0].model.as_deref() == Some("NVIDIA H200") => {
            Err(ProbeError::Resting(0))
        }
        told => told,
    });
    assert_eq!(told.expect("it answers").cards[0].cores, Some(132 * 128));
    rig.state.nvml_trouble.store(state::CRASHES, SeqCst);
    assert!(probe.cards().is_err());
}

#[test]
fn where_nothing_runs_from_memory_the_helper_runs_from_a_file_of_ours() {
    let rig = Rig::new(64 * MIB);
    let place = copy(&rig);
    // Somebody else's file does not stand where ours will.
    std::fs::create_dir_all(place.parent().expect("below the place")).expect("made");
    std::fs::write(&place, "not ours").expect("written");
    let mut probe = probe(&rig);
    let (told, on_disk) = std::thread::spawn(move || {
        forbid_memory_files();
        let told = probe.cards();
        (told, probe.ran_from_disk())
    })
    .join()
    .expect("the thread ends");
    assert_eq!(told.expect("it answers").cards.len(), 1);
    assert!(on_disk);
    let written = std::fs::read(&place).expect("it was written");
    assert!(written == PROBE, "another file than ours was run");
    let mut probe = Probe::new(&rig.place.join("libnvidia-ml.so.1"), None, &place);
    probe.cards().expect("it answers");
    assert!(!probe.ran_from_disk(), "this thread may run from memory");
}

/// From here on the thread, and what it starts, cannot make a file in memory.
fn forbid_memory_files() {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;
    let steps = [
        // The number of the call: load, compare, refuse or allow.
        step(0x20, 0, 0, 0),
        step(0x15, 0, 1, libc::SYS_memfd_create as u32),
        step(0x06, 0, 0, refusal),
        step(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_ptr().cast_mut(),
    };
    // SAFETY: the filter lives through the call, and the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let done = libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        );
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn the_helper_inherits_nothing_and_needs_no_newer_c_library_than_it_says() {
    let rig = Rig::new(64 * MIB);
    let mut probe = probe(&rig);
    probe.cards().expect("it answers");
    let of = |what: &str| {
        let pid = probe.pid().expect("it runs");
        std::fs::read(format!("/proc/{pid}/{what}")).expect("it runs")
    };
    assert_eq!(of("environ"), b"", "it has an environment");
    let pid = probe.pid().expect("it runs");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    let open: Vec<_> = open
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|path| path.starts_with("/") && !path.starts_with("/memfd:gpu_probe"))
        // The runner of the tests may have left that one open for everybody.
        .filter(|path| !path.starts_with(&rig.place) && path != Path::new("/dev/null"))
        .collect();
    assert!(open.is_empty(), "it has {open:?} open");
    let versions = needed_versions();
    assert_eq!(versions.iter().max(), Some(&(2, 34)), "{versions:?}");
    let home = env!("CARGO_MANIFEST_DIR").as_bytes();
    assert!(!PROBE.windows(home.len()).any(|text| text == home));
    assert!(PROBE.len() < 700_000, "{} bytes", PROBE.len());
}

/// Versions of the C library that the helper names, as pairs.
fn needed_versions() -> Vec<(u32, u32)> {
    let text = String::from_utf8_lossy(PROBE);
    text.match_indices("GLIBC_")
        .filter_map(|(at, name)| {
            let rest = &text[at + name.len()..];
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let mut numbers = rest[..end].split('.').map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        })
        .collect()
}

#[test]
fn the_helper_leaves_with_whoever_asked_it() {
    let rig = Rig::new(64 * MIB);
    let mut first = probe(&rig);
    first.cards().expect("it answers");
    let pid = first.pid().expect("it runs");
    drop(first);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    // Without a question it ends by itself, with nothing said.
    let file = rig.place.join("gpu_probe");
    install(&file, PROBE);
    let ended = Command::new(&file)
        .arg(rig.place.join("libnvidia-ml.so.1"))
        .stdin(std::process::Stdio::null())
        .output()
        .expect("it runs");
    assert!(ended.status.success() && ended.stdout.is_empty());
    let ended = Command::new(&file).output().expect("it runs");
    assert_eq!(ended.status.code(), Some(2));
}
