//! A slice in a real container of the runtime: the driver below a made-up root, its libraries replaced by
//! fakes, everything else as on a machine with a card. Devices have numbers that nobody answers to.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use node::gpu::inject::{InjectedSlice, Injection, Pages, inject};
use node::gpu::region::{DeviceTerms, MODE_OFF};
use node::gpu::{FileOrder, FileUse};
use node::runtime::ContainerSpec;
use rules::self_test::{self, TestVerdict};

use super::rig::{MIB, PLACE, Rig, state, works};
use crate::containers::ground::Ground;

/// A slice of the only card: all of its time, and that much of its memory.
pub(super) fn slice_of(limit: u64) -> InjectedSlice {
    InjectedSlice {
        card: 0,
        terms: DeviceTerms {
            uuid: state::uuid(0),
            mem_limit: limit,
            mem_overhead: 0,
            share_milli: 1000,
            mode: MODE_OFF,
        },
    }
}

pub(super) const VERSION: &str = "999.99.01";

/// A machine with a driver and a card, as far as files tell.
pub(super) struct Machine {
    pub(super) ground: Ground,
    root: tempfile::TempDir,
    /// Its state is what the fake driver inside works on.
    pub(super) rig: Rig,
}

impl Machine {
    pub(super) fn make(test: &str) -> Option<Self> {
        let ground = Ground::lay(test)?;
        let root = tempfile::tempdir().expect("a directory");
        let file = |path: &str, bytes: &[u8]| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, bytes).expect("written");
        };
        let told = format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  made up\n");
        file("proc/driver/nvidia/version", told.as_bytes());
        file(
            "proc/driver/nvidia/params",
            b"DeviceFileMode: 438\nModifyDeviceFiles: 1\n",
        );
        file(
            "proc/devices",
            b"Character devices:\n195 nvidia\n509 nvidia-uvm\n",
        );
        for (made, name) in [
            ("fake_cuda.so", "libcuda"),
            ("fake_nvml.so", "libnvidia-ml"),
        ] {
            let bytes = fs::read(works().folder.join(made)).expect("it was compiled");
            file(
                &format!("usr/lib/x86_64-linux-gnu/{name}.so.{VERSION}"),
                &bytes,
            );
        }
        let rig = Rig::new(1024 * MIB);
        let everybody = fs::Permissions::from_mode(0o666);
        fs::set_permissions(rig.place.join("state"), everybody).expect("its mode");
        Some(Self { ground, root, rig })
    }

    pub(super) fn place(&self, name: &str) -> PathBuf {
        self.ground.directory.path().join("gpu").join(name)
    }

    /// What the runtime adds for one slice of so many bytes.
    pub(super) fn slice(&self, name: &str, limit: u64) -> (Injection, Pages) {
        inject(
            self.root.path(),
            &self.place("hooks"),
            &self.place(name),
            &[slice_of(limit)],
        )
        .expect("a whole driver")
    }

    /// An order with the slice, the test programs, and the fake driver's state.
    pub(super) fn order(&self, script: &str, injection: &Injection) -> ContainerSpec {
        let mut order = self.ground.shell(script);
        order.devices.clone_from(&injection.devices);
        order.files.clone_from(&injection.files);
        let mut show = |from: &Path, at: &str, for_what| {
            order.files.push(FileOrder {
                from: from.to_owned(),
                at: at.to_owned(),
                for_what,
            });
        };
        show(
            &self.rig.place.join("state"),
            &format!("{PLACE}/state"),
            FileUse::Write,
        );
        for program in ["conformance", "cases", "ways", "linked", "unlinked"] {
            show(
                &works().folder.join(program),
                &format!("/opt/{program}"),
                FileUse::Run,
            );
        }
        order.memory_bytes = 512 * MIB;
        order
    }

    pub(super) fn said(&self, script: &str, injection: &Injection) -> (i32, String) {
        let (record, said) = self.ground.run(&self.order(script, injection));
        (record.code, said)
    }
}

#[test]
fn a_slice_holds_inside_a_session_and_programs_find_it_by_themselves() {
    const NAME: &str = "a_slice_holds_inside_a_session_and_programs_find_it_by_themselves";
    let Some(machine) = Machine::make(NAME) else {
        return;
    };
    let limit = 256 * MIB;
    let (injection, pages) = machine.slice("one", limit);
    // No variable says where the library is: the loader of the image finds ours under the usual name.
    for path in ["plain", "physical", "array"] {
        let script = format!("/opt/conformance {path} 4 fork {limit} {}", 16 * MIB);
        let (code, said) = machine.said(&script, &injection);
        assert_eq!(code, 0, "{path}: {said}");
    }
    let left = pages.account().expect("the page is whole").sum(0).total;
    assert_eq!(left, 0, "bytes are still charged");
    // Without the page's limit the same program would have got all of the card.
    assert_eq!(machine.rig.truth(0), 0);
}

#[test]
fn from_inside_the_limit_cannot_be_written_and_a_cut_page_harms_nobody_else() {
    const NAME: &str = "from_inside_the_limit_cannot_be_written_and_a_cut_page_harms_nobody_else";
    let Some(machine) = Machine::make(NAME) else {
        return;
    };
    let limit = 256 * MIB;
    let (injection, pages) = machine.slice("one", limit);
    let attack = format!(
        "for file in {PLACE}/control {PLACE}/libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so.1; do \
           (echo x > $file) 2>&1; (rm $file) 2>&1; (mv $file /tmp/x) 2>&1; (chmod 666 $file) 2>&1; done; \
         (umount {PLACE}/control) 2>&1; (: > {PLACE}/account) && echo cut; ls /dev | tr '\\n' ' '"
    );
    let (_, said) = machine.said(&attack, &injection);
    let before: Vec<u8> = fs::read(machine.place("one/control")).expect("the page");
    assert_eq!(said.matches("ead-only file system").count(), 6, "{said}");
    let kept = said.matches("usy").count() + said.matches("ermission denied").count();
    assert_eq!(kept, 6, "{said}");
    assert!(said.contains("cut\n") && said.contains("nvidia0"), "{said}");
    assert_eq!(
        pages.control().device[0]
            .mem_limit
            .load(std::sync::atomic::Ordering::SeqCst),
        limit
    );
    assert_eq!(before.len(), 4096);
    // The host is told, and goes on; a neighbour notices nothing.
    assert!(pages.account().is_err(), "half a page was believed");
    let (other, pages) = machine.slice("two", limit);
    let script = format!("/opt/conformance plain 1 fork {limit} {}", 16 * MIB);
    let (code, said) = machine.said(&script, &other);
    assert_eq!(code, 0, "{said}");
    assert_eq!(pages.account().expect("whole").sum(0).total, 0);
}

#[test]
fn without_a_page_or_a_driver_there_is_no_session_and_no_device() {
    const NAME: &str = "without_a_page_or_a_driver_there_is_no_session_and_no_device";
    let Some(machine) = Machine::make(NAME) else {
        return;
    };
    let (injection, _pages) = machine.slice("one", 256 * MIB);
    fs::remove_file(machine.place("one/control")).expect("it was made");
    let order = machine.order("ls /dev; echo it runs", &injection);
    let name = machine.ground.start(&order);
    let record = machine.ground.ended(&name);
    assert_ne!(record.code, 0, "{record:?}");
    assert!(!machine.ground.log(&name).contains("it runs"));
    assert!(format!("{record:?}").contains("control"), "{record:?}");
    // A driver of another version than its libraries: nothing is handed out at all.
    fs::write(
        machine.root.path().join("proc/driver/nvidia/version"),
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  1000.1  upgraded\n",
    )
    .expect("written");
    let refused = inject(
        machine.root.path(),
        &machine.place("hooks"),
        &machine.place("three"),
        &[slice_of(MIB)],
    );
    let why = refused.err().expect("half a driver").to_string();
    assert!(why.contains("1000.1") && why.contains("libcuda"), "{why}");
    assert!(!machine.place("three").exists(), "something was left");
}

/// Proves too: `the_self_test_holds_a_slice_to_its_word_and_signs_what_it_found`
#[test]
fn the_self_tests_program_stands_in_every_slice_and_finds_it_held() {
    const NAME: &str = "the_self_tests_program_stands_in_every_slice_and_finds_it_held";
    let Some(machine) = Machine::make(NAME) else {
        return;
    };
    let (injection, _pages) = machine.slice("one", 256 * MIB);
    let slice = rules::units::Bytes(256 * MIB);
    let said = |words: &str| machine.said(&format!("{PLACE}/test {words}"), &injection).1;
    for path in ["plain", "own-pool", "physical"] {
        let finding = self_test::memory(path, 4, slice, &said(&format!("measure {path} 4")));
        assert_eq!(finding.verdict, TestVerdict::Held, "{finding:?}");
    }
    let words = format!("ways emptied libcuda.so.1 {} 20", 16 * MIB);
    let finding = self_test::way("emptied", slice, &said(&words));
    assert_eq!(finding.verdict, TestVerdict::Held, "{finding:?}");
    // It has one card, and neither the page nor another card opens.
    for finding in self_test::fence(1, &said("fence")) {
        assert_eq!(finding.verdict, TestVerdict::Held, "{finding:?}");
    }
}
