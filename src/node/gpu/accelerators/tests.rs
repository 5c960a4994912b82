//! Every family on a made-up machine: its nodes, what the machine says of it, and what goes inside.

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::*;

/// A made-up machine, gone afterwards.
struct AcceleratorFixture(tempfile::TempDir);

impl AcceleratorFixture {
    /// None where nodes cannot be made; said as a skip of that test.
    fn make(test: &str) -> Option<Self> {
        let machine = Self(tempfile::tempdir().expect("a directory"));
        if let Err(error) = machine.try_node("dev/probe", 1, 3) {
            skips::skip(test, &format!("device nodes cannot be made: {error}"));
            return None;
        }
        Some(machine)
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn try_node(&self, path: &str, major: u32, minor: u32) -> std::io::Result<()> {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("below the root"))?;
        let mode = Mode::from_raw_mode(0o600);
        Ok(mknodat(
            CWD,
            &path,
            FileType::CharacterDevice,
            mode,
            makedev(major, minor),
        )?)
    }

    fn node(&self, path: &str, major: u32, minor: u32) {
        self.try_node(path, major, minor).expect("a node");
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// A device on the bus, and a link to it where a class lists it.
    fn on_the_bus(&self, pci: &str, class: &str, facts: &[(&str, &str)]) {
        let device = self.root().join("sys/devices/pci0000:40").join(pci);
        fs::create_dir_all(&device).expect("made");
        for (name, text) in facts {
            fs::write(device.join(name), text).expect("written");
        }
        let class = self.root().join(class);
        fs::create_dir_all(class.parent().expect("below the root")).expect("made");
        std::os::unix::fs::symlink(&device, class).expect("a link");
    }

    fn of(&self, family: &str) -> Vec<Accelerator> {
        discover(self.root())
            .into_iter()
            .filter(|found| found.family.name == family)
            .collect()
    }

    fn edits(&self, found: &[Accelerator], chosen: &[usize]) -> Edits {
        let devices: Vec<&Accelerator> = chosen.iter().map(|at| &found[*at]).collect();
        Accelerator::edits(&devices, self.root())
    }
}

fn places(edits: &Edits) -> Vec<(&str, u32, u32)> {
    edits
        .nodes
        .iter()
        .map(|node| (node.at.as_str(), node.major, node.minor))
        .collect()
}

#[test]
fn render_nodes_are_told_apart_by_their_vendor() {
    let Some(machine) = AcceleratorFixture::make("render_nodes_are_told_apart_by_their_vendor")
    else {
        return;
    };
    machine.file("etc/group", "root:x:0:\nvideo:x:44:mina\nrender:x:105:\n");
    machine.node("dev/kfd", 235, 0);
    for (number, vendor, pci) in [
        (128, "0x1002", "0000:41:00.0"),
        (129, "0x8086", "0000:42:00.0"),
        (130, "0x1002", "0000:43:00.0"),
        (131, "0x10de", "0000:44:00.0"),
    ] {
        machine.node(&format!("dev/dri/renderD{number}"), 226, number);
        machine.node(&format!("dev/dri/card{}", number - 128), 226, number - 128);
        let class = format!("sys/class/drm/renderD{number}/device");
        let facts = [
            ("vendor", vendor),
            ("mem_info_vram_total", "206141652992\n"),
            ("numa_node", "1\n"),
        ];
        machine.on_the_bus(pci, &class, &facts);
        let card = format!("sys/devices/pci0000:40/{pci}/drm/card{}/dev", number - 128);
        machine.file(&card, "226:0\n");
    }
    let amd = machine.of("amd");
    let seen: Vec<_> = amd
        .iter()
        .map(|found| (found.index, found.pci.as_str(), found.memory, found.numa))
        .collect();
    let memory = Some(206_141_652_992);
    assert_eq!(
        seen,
        [
            (0, "0000:41:00.0", memory, Some(1)),
            (2, "0000:43:00.0", memory, Some(1))
        ]
    );
    let edits = machine.edits(&amd, &[1]);
    assert_eq!(
        places(&edits),
        [
            ("/dev/dri/renderD130", 226, 130),
            ("/dev/dri/card2", 226, 2),
            ("/dev/kfd", 235, 0)
        ]
    );
    assert_eq!(edits.groups, [44, 105]);
    assert_eq!(machine.of("intel").len(), 1);
    // Another vendor's is nobody's here.
    assert_eq!(discover(machine.root()).len(), 3);
    // A device that fell off the bus is no longer there.
    fs::remove_file(machine.root().join("dev/dri/renderD130")).expect("gone");
    assert_eq!(machine.of("amd").len(), 1);
}

#[test]
fn every_family_of_named_nodes_is_found_and_gets_what_it_needs() {
    let Some(machine) =
        AcceleratorFixture::make("every_family_of_named_nodes_is_found_and_gets_what_it_needs")
    else {
        return;
    };
    let two = |names: &[&str], major: u32| {
        for number in 0..2 {
            for (minor, name) in names.iter().enumerate() {
                let path = name.replace('#', &number.to_string());
                machine.node(&path, major, number * 10 + minor as u32);
            }
        }
    };
    two(&["dev/accel/accel#", "dev/accel/accel_controlD#"], 261);
    machine.on_the_bus(
        "0000:51:00.0",
        "sys/class/accel/accel1/device",
        &[("numa_node", "0")],
    );
    let gaudi = machine.of("gaudi");
    assert_eq!(
        (gaudi.len(), gaudi[1].pci.as_str(), gaudi[1].numa),
        (2, "0000:51:00.0", Some(0))
    );
    let edits = machine.edits(&gaudi, &[1]);
    assert_eq!(
        places(&edits),
        [
            ("/dev/accel/accel1", 261, 10),
            ("/dev/accel/accel_controlD1", 261, 11)
        ]
    );
    assert_eq!(edits.environment["HABANA_VISIBLE_DEVICES"], "1");

    two(&["dev/npu#", "dev/npu#_mgmt", "dev/npu#pe0"], 240);
    let warboy = machine.of("warboy");
    assert_eq!(warboy.len(), 2, "{warboy:?}");
    assert_eq!(machine.edits(&warboy, &[0]).nodes.len(), 3);

    two(
        &["dev/rngd/npu#mgmt", "dev/rngd/npu#pe0", "dev/rngd/npu#pe7"],
        241,
    );
    let rngd = machine.of("rngd");
    let edits = machine.edits(&rngd, &[0]);
    assert_eq!((rngd.len(), edits.nodes.len()), (2, 3));
    assert!(edits.calls.contains(&"io_uring_setup"));

    two(&["dev/rbln#"], 242);
    machine.node("dev/rsd0", 243, 0);
    let edits = machine.edits(&machine.of("rebellions"), &[1]);
    // The second of the machine is the first inside.
    assert_eq!(
        places(&edits),
        [("/dev/rbln0", 242, 10), ("/dev/rsd0", 243, 0)]
    );
    assert!(edits.locked_memory && edits.host_ipc);
    assert_eq!(edits.capabilities, ["CAP_IPC_LOCK"]);

    two(&["dev/ipu#", "dev/ipu#_ex"], 244);
    assert!(machine.edits(&machine.of("ipu"), &[0]).locked_memory);

    two(&["dev/xfpga/xvc_pri.m#.0"], 245);
    fs::create_dir_all(machine.root().join("opt/hyperdex")).expect("made");
    let edits = machine.edits(&machine.of("lpu"), &[0, 1]);
    assert_eq!(edits.nodes.len(), 2);
    assert_eq!(
        (edits.mounts[0].at.as_str(), edits.mounts[0].read_only),
        ("/opt/hyperdex", true)
    );

    two(&["dev/accel#"], 246);
    let edits = machine.edits(&machine.of("tpu"), &[1]);
    assert_eq!(places(&edits), [("/dev/accel0", 246, 10)]);
    assert_eq!(edits.environment["TPU_VISIBLE_DEVICES"], "0");

    two(&["dev/tenstorrent/#"], 247);
    let edits = machine.edits(&machine.of("tenstorrent"), &[1]);
    assert_eq!(places(&edits), [("/dev/tenstorrent/0", 247, 10)]);

    let tried: std::collections::BTreeSet<&str> = discover(machine.root())
        .iter()
        .map(|found| found.family.name)
        .collect();
    let rows = FAMILIES
        .iter()
        .filter(|family| matches!(family.find, Find::Nodes { .. }));
    for family in rows {
        assert!(
            tried.contains(family.name),
            "{} is tried nowhere",
            family.name
        );
    }
}

#[test]
fn plain_files_links_and_other_names_are_no_devices() {
    let Some(machine) =
        AcceleratorFixture::make("plain_files_links_and_other_names_are_no_devices")
    else {
        return;
    };
    machine.file("dev/npu0", "no device");
    machine.node("dev/npu1x", 240, 1);
    machine.node("dev/npu-2", 240, 2);
    std::os::unix::fs::symlink("/dev/null", machine.root().join("dev/npu3")).expect("a link");
    machine.node("dev/accel/accel_controlD0", 261, 1);
    assert_eq!(discover(machine.root()), []);
    assert_eq!(discover(Path::new("/nonexistent")), []);
    assert_eq!(Accelerator::edits(&[], machine.root()), Edits::default());
}

#[test]
fn what_a_vendor_describes_is_taken_and_what_wants_to_run_is_refused() {
    let Some(machine) = AcceleratorFixture::make(
        "what_a_vendor_describes_is_taken_and_what_wants_to_run_is_refused",
    ) else {
        return;
    };
    machine.node("dev/vendor/npu0", 250, 7);
    machine.file(
        "etc/cdi/vendor.json",
        r#"{"cdiVersion": "0.7.0", "kind": "vendor.com/npu",
            "containerEdits": {"env": ["VENDOR=1"], "mounts": [
                {"hostPath": "/opt/vendor", "containerPath": "/opt/vendor", "options": ["ro", "bind"]}]},
            "devices": [
                {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/vendor/npu0"}],
                    "additionalGids": [44]}},
                {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/npu0",
                    "hostPath": "/dev/vendor/npu9", "major": 250, "minor": 9}]}},
                {"name": "run", "containerEdits": {"hooks": [{"hookName": "createContainer",
                    "path": "/usr/bin/vendor-hook"}]}},
                {"name": "gone", "containerEdits": {"deviceNodes": [{"path": "/dev/vendor/npu8"}]}},
                {"name": "disk", "containerEdits": {"deviceNodes": [{"path": "/dev/sda", "type": "b"}]}},
                {"name": "out", "containerEdits": {"mounts": [
                    {"hostPath": "/opt", "containerPath": "/opt/../../etc"}]}}]}"#,
    );
    machine.file(
        "var/run/cdi/newer.json",
        r#"{"cdiVersion": "0.7.0", "kind": "vendor.com/npu", "devices": [
            {"name": "1", "containerEdits": {"env": ["NEWER=yes"]}}]}"#,
    );
    machine.file("etc/cdi/broken.json", "{");
    machine.file(
        "etc/cdi/future.json",
        r#"{"cdiVersion": "2.0.0", "kind": "a.b/c"}"#,
    );
    machine.file(
        "etc/cdi/kind.json",
        r#"{"cdiVersion": "1.1.0", "kind": "nothing"}"#,
    );
    machine.file("etc/cdi/notes.txt", "not ours");
    let (found, left) = cdi::discover(machine.root());
    let names: Vec<&str> = found.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["0", "1"]);
    let first = &found[0];
    assert_eq!(first.kind, "vendor.com/npu");
    assert_eq!(places(&first.edits), [("/dev/vendor/npu0", 250, 7)]);
    assert_eq!(first.edits.environment["VENDOR"], "1");
    assert_eq!(first.edits.groups, [44]);
    assert!(first.edits.mounts[0].read_only);
    assert_eq!(
        found[1].edits.environment["NEWER"], "yes",
        "the later folder counts"
    );
    let why = |what: &str| {
        let one = left.iter().find(|left| left.what.ends_with(what));
        one.map(|left| left.why.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    assert!(why("=run").contains("program on the host"));
    assert!(why("=gone").contains("not there"));
    assert!(why("=disk").contains("no character device"));
    assert!(why("=out").contains("no place inside"));
    assert!(why("future.json").contains("2.0.0"));
    assert!(!why("broken.json").is_empty() && !why("kind.json").is_empty());
    assert_eq!(left.len(), 7, "{left:?}");
}
