//! Grants on a machine that is made of files: what is in place afterwards, what every lack is called, what
//! the next server finds, and that pages of another version are left alone.

use rules::names::SessionId;
use rules::units::{Bytes, GpuShare};

use super::super::region::MODE_WINDOW;
use super::*;

const UUID: &str = "GPU-7f2b1c90-1111-2222-3333-444455556666";
const OTHER: &str = "GPU-7f2b1c90-1111-2222-3333-444455557777";

struct SharesFixture {
    folder: Folder,
    boot: BootId,
}

/// Pages outlive the server; these must not outlive the test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for held in fs::read_dir(self.path().join("run"))
            .into_iter()
            .flatten()
            .flatten()
        {
            page_mount::release(&held.path().join("account"));
        }
    }
}

impl SharesFixture {
    /// Two cards and a driver, as far as files tell.
    fn make() -> Self {
        let machine = Self {
            folder: Folder(tempfile::tempdir().expect("a directory")),
            boot: BootId(uuid::Uuid::from_u128(1)),
        };
        machine.driver("580.159.03");
        machine.file(
            "root/proc/devices",
            "Character devices:\n195 nvidia\n509 nvidia-uvm\n510 nvidia-caps\n",
        );
        for library in ["libcuda", "libnvidia-ml"] {
            machine.file(
                &format!("root/usr/lib64/{library}.so.580.159.03"),
                "no library at all",
            );
        }
        for (bus, minor, uuid) in [("41", 4, UUID), ("c1", 7, OTHER)] {
            machine.file(
                &format!("root/proc/driver/nvidia/gpus/0000:{bus}:00.0/information"),
                &format!("Model: NVIDIA H200\nGPU UUID: {uuid}\nDevice Minor: {minor}\n"),
            );
        }
        machine
    }

    fn driver(&self, version: &str) {
        let told = format!("NVRM version: NVIDIA UNIX Kernel Module  {version}  made up\n");
        self.file("root/proc/driver/nvidia/version", &told);
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.folder.path().join(path)).expect("it was there");
    }

    fn page(&self, name: ContainerName) -> PathBuf {
        self.folder.path().join("run").join(name.to_string())
    }

    /// A server, with these containers still running.
    fn server(&self, living: &[ContainerName]) -> Shares {
        let at = |name| self.folder.path().join(name);
        let places = SharePaths {
            driver: at("root"),
            hooks: at("data"),
            pages: at("run"),
        };
        let living = living.iter().copied().collect();
        Shares::open(places, Mode::Hard, self.boot, &living)
    }
}

fn name(number: u128) -> ContainerName {
    ContainerName {
        session: SessionId(uuid::Uuid::from_u128(number)),
        incarnation: 1,
        index: 0,
    }
}

fn share(index: u32, hundredths: u32, gib: u64) -> DeviceShare {
    DeviceShare {
        index,
        share: GpuShare(hundredths),
        memory: Bytes::gib(gib),
        part: None,
        simulated: false,
    }
}

fn control(shares: &Shares, name: ContainerName) -> Arc<Pages> {
    Arc::clone(&lock(&shares.held).get(&name).expect("it holds some").pages)
}

#[test]
fn a_grant_has_its_devices_its_pages_and_its_turns() {
    let machine = SharesFixture::make();
    let shares = machine.server(&[]);
    let wanted = [share(0, 35, 28), share(1, 100, 80)];
    let given = shares.grant(name(1), &wanted).expect("everything is there");
    let nodes: Vec<&str> = given.devices.iter().map(|node| node.at.as_str()).collect();
    assert_eq!(
        nodes,
        [
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia-uvm-tools",
            "/dev/nvidia4",
            "/dev/nvidia7"
        ]
    );
    let pages = control(&shares, name(1));
    let page = pages.control();
    let first = &page.device[page.find(&uuid(UUID).expect("a number")).expect("in it")];
    assert_eq!(first.mem_limit.load(SeqCst), Bytes::gib(28).0);
    assert_eq!(first.share_milli.load(SeqCst), 350);
    assert_eq!(first.mode.load(SeqCst), MODE_WINDOW);
    let whole = &page.device[page.find(&uuid(OTHER).expect("a number")).expect("in it")];
    assert_eq!(whole.mode.load(SeqCst), MODE_OFF);
    assert_ne!(page.heartbeat.load(SeqCst), 0);
    assert_eq!(shares.held()[&name(1)], wanted);
    shares.forget(name(1));
    assert!(!machine.page(name(1)).exists() && shares.held().is_empty());
}

#[test]
fn whatever_is_missing_has_a_code_and_nothing_is_left() {
    let lacks = |spoil: &dyn Fn(&SharesFixture), wanted: &[DeviceShare]| {
        let machine = SharesFixture::make();
        spoil(&machine);
        let shares = machine.server(&[]);
        let reason = shares
            .grant(name(1), wanted)
            .expect_err("it lacks something");
        assert!(reason.text.ends_with('.'), "{}", reason.text);
        assert!(!machine.page(name(1)).exists(), "{}", reason.code);
        assert!(shares.held().is_empty(), "{}", reason.code);
        reason.code
    };
    let one = [share(0, 35, 28)];
    let nothing = |_: &SharesFixture| {};
    for (code, spoil) in [
        ("gpu.no-driver", &|machine: &SharesFixture| {
            machine.remove("root/proc/driver/nvidia/version") as _
        }),
        ("gpu.driver-version", &|machine: &SharesFixture| {
            machine.driver("1000.1")
        }),
        ("gpu.driver-unknown", &|machine: &SharesFixture| {
            machine.driver("later")
        }),
        ("gpu.no-device-number", &|machine: &SharesFixture| {
            machine.file("root/proc/devices", "")
        }),
        // A file where the folder should be: root may write anywhere else.
        ("gpu.no-hook", &|machine: &SharesFixture| {
            machine.file("data", "")
        }),
        ("gpu.no-page", &|machine: &SharesFixture| {
            machine.file("run", "")
        }),
    ] as [(&str, &dyn Fn(&SharesFixture)); 6]
    {
        assert_eq!(lacks(spoil, &one), code);
    }
    assert_eq!(lacks(&nothing, &[share(9, 35, 28)]), "gpu.device-unknown");
    assert_eq!(lacks(&nothing, &[share(0, 35, 0)]), "gpu.device-unknown");
    let twice = [share(0, 35, 28), share(0, 20, 10)];
    assert_eq!(lacks(&nothing, &twice), "gpu.device-twice");
    let part = DeviceShare {
        part: Some(0),
        ..share(0, 14, 10)
    };
    assert_eq!(lacks(&nothing, &[part]), "gpu.device-unknown");
}

#[test]
fn a_partition_has_its_own_nodes_and_number_or_nothing() {
    let machine = SharesFixture::make();
    let own = "MIG-7f2b1c90-9999-2222-3333-444455556666";
    let shares = machine.server(&[]);
    shares.know(vec![Real {
        index: 0,
        minor: 4,
        uuid: UUID.to_owned(),
        parts: vec![RealPart {
            number: 2,
            uuid: own.to_owned(),
            gpu_instance: 9,
            compute_instance: 0,
        }],
    }]);
    let wanted = [DeviceShare {
        part: Some(2),
        ..share(0, 14, 10)
    }];
    let refused = shares.grant(name(1), &wanted).expect_err("not listed");
    assert_eq!(refused.code, "gpu.part-unknown");
    assert!(!machine.page(name(1)).exists());
    machine.file(
        "root/proc/driver/nvidia-caps/mig-minors",
        "gpu4/gi9/access 12\ngpu4/gi9/ci0/access 13\n",
    );
    let given = shares.grant(name(1), &wanted).expect("now it is");
    let last: Vec<(&str, u32)> = given.devices[given.devices.len() - 3..]
        .iter()
        .map(|node| (node.at.as_str(), node.minor))
        .collect();
    assert_eq!(
        last,
        [
            ("/dev/nvidia4", 4),
            ("/dev/nvidia-caps/nvidia-cap12", 12),
            ("/dev/nvidia-caps/nvidia-cap13", 13)
        ]
    );
    let page = control(&shares, name(1));
    let at = page.control().find(&uuid(own).expect("a number"));
    let device = &page.control().device[at.expect("in the page")];
    assert_eq!(device.mode.load(SeqCst), MODE_OFF, "it is its own alone");
    assert_eq!(device.mem_limit.load(SeqCst), Bytes::gib(10).0);
}

#[test]
fn a_running_container_is_held_to_other_shares_of_the_same_devices_only() {
    let machine = SharesFixture::make();
    let shares = machine.server(&[]);
    shares.grant(name(1), &[share(0, 35, 28)]).expect("a grant");
    assert!(shares.set_overhead(name(1), &uuid(UUID).expect("a number"), 77, 0));
    let page = control(&shares, name(1));
    let device = &page.control().device[0];
    shares
        .regrant(name(1), &[share(0, 50, 40)])
        .expect("larger");
    assert_eq!(device.mem_limit.load(SeqCst), Bytes::gib(40).0);
    assert_eq!(device.share_milli.load(SeqCst), 500);
    shares
        .regrant(name(1), &[share(0, 10, 8)])
        .expect("smaller");
    assert_eq!(device.mem_limit.load(SeqCst), Bytes::gib(8).0);
    assert_eq!(
        device.mem_overhead.load(SeqCst),
        77,
        "what the host saw stays"
    );
    assert_eq!(device.mode.load(SeqCst), MODE_WINDOW);
    for (other, code) in [
        (vec![share(1, 10, 8)], "gpu.other-device"),
        (vec![share(0, 10, 8), share(1, 10, 8)], "gpu.other-device"),
    ] {
        let refused = shares.regrant(name(1), &other).expect_err("others");
        assert_eq!(refused.code, code);
    }
    assert_eq!(device.mem_limit.load(SeqCst), Bytes::gib(8).0);
    let refused = shares.regrant(name(2), &[share(0, 10, 8)]);
    assert_eq!(refused.expect_err("nothing").code, "gpu.not-held");
    assert!(!shares.set_overhead(name(1), &[0; 16], 1, 0));
    assert!(!shares.set_overhead(name(2), &uuid(UUID).expect("a number"), 1, 0));
}

#[test]
fn the_next_server_goes_on_with_what_containers_hold_and_removes_the_rest() {
    let machine = SharesFixture::make();
    let first = machine.server(&[]);
    first.grant(name(1), &[share(0, 35, 28)]).expect("a grant");
    first.grant(name(2), &[share(0, 20, 16)]).expect("a grant");
    first
        .regrant(name(1), &[share(0, 30, 24)])
        .expect("resized");
    let page = control(&first, name(1));
    drop(first);
    // Nobody gives turns now: as if that had been so for a while.
    page.control().heartbeat.store(1, SeqCst);
    let second = machine.server(&[name(1)]);
    assert_eq!(second.held()[&name(1)], [share(0, 30, 24)]);
    assert!(second.problems().is_empty());
    assert!(!machine.page(name(2)).exists(), "the other one ended");
    assert_eq!(
        page.control().device[0].mem_limit.load(SeqCst),
        Bytes::gib(24).0
    );
    assert!(page.control().heartbeat.load(SeqCst) > 1, "turns are given");
    // Another start of the machine: containers ended with the last one.
    let later = SharesFixture {
        boot: BootId(uuid::Uuid::from_u128(2)),
        folder: machine.folder,
    };
    let third = later.server(&[name(1)]);
    assert!(third.held().is_empty() && !later.page(name(1)).exists());
}

#[test]
fn pages_of_another_version_are_left_alone_and_named() {
    let machine = SharesFixture::make();
    let first = machine.server(&[]);
    first.grant(name(1), &[share(0, 35, 28)]).expect("a grant");
    drop(first);
    let record = machine.page(name(1)).join(RECORD);
    // As a later version may write it: the rest means nothing here.
    let text = format!(
        "{{\"version\":{},\"boot\":{},\"terms\":[]}}",
        region::VERSION + 1,
        serde_json::to_string(&machine.boot).expect("text")
    );
    fs::write(&record, &text).expect("written");
    let before = fs::read(machine.page(name(1)).join("control")).expect("the page");
    let second = machine.server(&[name(1)]);
    assert_eq!(second.problems()[&name(1)].code, "gpu.page-version");
    assert!(second.held().is_empty());
    for refused in [
        second
            .regrant(name(1), &[share(0, 50, 40)])
            .expect_err("resize"),
        second
            .grant(name(1), &[share(0, 50, 40)])
            .expect_err("start"),
    ] {
        assert_eq!(refused.code, "gpu.page-version");
    }
    let after = fs::read(machine.page(name(1)).join("control")).expect("the page");
    assert!(before == after && fs::read_to_string(&record).ok() == Some(text));
}

#[test]
fn a_page_of_another_version_is_neither_trusted_nor_written() {
    let machine = SharesFixture::make();
    let first = machine.server(&[]);
    first.grant(name(1), &[share(0, 35, 28)]).expect("a grant");
    drop(first);
    let path = machine.page(name(1)).join("control");
    let of_ours = fs::read(&path).expect("the page");
    let mut later = of_ours.clone();
    later[8..12].copy_from_slice(&(region::VERSION + 1).to_le_bytes());
    // Longer too, as a later layout may be.
    later.resize(2 * later.len(), 7);
    let mut rubbish = of_ours.clone();
    rubbish[..8].fill(0xa5);
    for (bytes, code) in [
        (later, "gpu.page-version"),
        (rubbish, "gpu.no-page"),
        (of_ours[..2000].to_vec(), "gpu.no-page"),
        (Vec::new(), "gpu.no-page"),
    ] {
        fs::write(&path, &bytes).expect("written");
        let second = machine.server(&[name(1)]);
        assert_eq!(second.problems()[&name(1)].code, code);
        assert!(second.held().is_empty() && second.tenants().is_empty());
        for refused in [
            second.regrant(name(1), &[share(0, 50, 40)]).err(),
            second.grant(name(1), &[share(0, 50, 40)]).err(),
        ] {
            assert_eq!(refused.expect("left alone").code, code);
        }
        // Others on that card are given theirs.
        second.grant(name(2), &[share(0, 20, 16)]).expect("a grant");
        second.forget(name(2));
        drop(second);
        assert!(fs::read(&path).expect("the page") == bytes, "{code}");
    }
    // The next server that knows them goes on where the first one ended.
    fs::write(&path, &of_ours).expect("written");
    let third = machine.server(&[name(1)]);
    assert_eq!(third.held()[&name(1)], [share(0, 35, 28)]);
}

#[test]
fn a_record_that_cannot_be_read_is_a_problem_with_a_name() {
    let machine = SharesFixture::make();
    let first = machine.server(&[]);
    first.grant(name(1), &[share(0, 35, 28)]).expect("a grant");
    drop(first);
    fs::write(machine.page(name(1)).join(RECORD), "{").expect("written");
    let second = machine.server(&[name(1)]);
    assert_eq!(second.problems()[&name(1)].code, "gpu.no-page");
    assert!(second.tenants().is_empty());
}

#[test]
fn whoever_compares_sees_limits_charges_and_overhead() {
    let machine = SharesFixture::make();
    let shares = machine.server(&[]);
    shares.grant(name(1), &[share(0, 35, 28)]).expect("a grant");
    let number = uuid(UUID).expect("a number");
    assert!(shares.set_overhead(name(1), &number, 300 << 20, 2));
    let tenants = shares.tenants();
    assert_eq!(
        tenants[0].devices,
        [TenantDevice {
            uuid: number,
            limit: Bytes::gib(28).0,
            contexts: 0,
            charged: Some(0),
            overhead: 300 << 20,
        }]
    );
    // Cut off from inside: the host says that it does not know, and goes on.
    fs::write(machine.page(name(1)).join("account"), "").expect("written");
    assert_eq!(shares.tenants()[0].devices[0].charged, None);
}
