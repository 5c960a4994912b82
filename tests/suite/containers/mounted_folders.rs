//! Folders inside real sessions: nothing above one is reached, not by root inside either, and two sessions with other ids and
//! another image see the same files of the same owners.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use node::runtime::{ContainerSpec, MountOrder, RootOrder, RuntimePhase, UserOrder};
use rules::names::FolderId;
use store::folders::{FolderStore, mounted_directory};
use uuid::Uuid;

use super::ground::Ground;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Root inside tries every way out of `/data` that the kernel has, and says of each that shows what lies above.
const WAYS_OUT: &str = r#"
import ctypes, errno, os, struct, time
libc = ctypes.CDLL(None, use_errno=True)
ways = []
def names(where='.'):
    try:
        return [name for name in os.listdir(where) if name in ('secret', 'folder-of-another')]
    except OSError:
        return []
def way(name, out):
    ways.append(name)
    if out:
        print('got out by', name, out, flush=True)

os.mkdir('/data/control')
open('/data/control/secret', 'w').close()
assert names('/data/control') == ['secret']

top = os.open('/data', os.O_RDONLY | os.O_DIRECTORY)
for up in range(1, 8):
    dots = '../' * up
    way('dots', names('/data/' + dots))
    for start in ('/proc/self/cwd/', '/proc/self/root/data/', '/proc/1/root/data/', '/proc/self/fd/%d/' % top):
        os.chdir('/data')
        way(start, names(start + dots))
    try:
        way('dots of a descriptor', names(os.open(dots, os.O_RDONLY | os.O_DIRECTORY, dir_fd=top)))
    except OSError:
        way('dots of a descriptor', [])
os.symlink('../../..', '/data/out')
way('a link', names('/data/out'))

class Handle(ctypes.Structure):
    _fields_ = [('bytes', ctypes.c_uint), ('kind', ctypes.c_int), ('file', ctypes.c_ubyte * 128)]
def opened(handle):
    fd = libc.open_by_handle_at(top, ctypes.byref(handle), os.O_RDONLY)
    assert fd >= 0 or ctypes.get_errno() in (errno.EPERM, errno.ENOSYS), ctypes.get_errno()
    return fd >= 0
own = Handle(bytes=128)
mount = ctypes.c_int()
if libc.name_to_handle_at(top, b'', ctypes.byref(own), ctypes.byref(mount), 0x1000) == 0:
    way('its own handle', opened(own))
# The top of an ext4, and of an xfs.
for node in (2, 128):
    other = Handle(bytes=8, kind=1)
    ctypes.memmove(other.file, struct.pack('II', node, 0), 8)
    way('the handle of a disk', opened(other))

os.mkdir('/data/point')
way('mount', libc.mount(b'/data', b'/data/point', None, 4096, None) == 0)
way('remount', libc.mount(None, b'/data', None, 32 | 4096, None) == 0)
way('unmount', libc.umount2(b'/data', 2) == 0)
way('open_tree', libc.syscall(428, top, b'..', 1) >= 0)
way('move_mount', libc.syscall(429, top, b'', -100, b'/data/point', 4) >= 0)
way('pivot_root', libc.syscall(155, b'/data', b'/data/point') == 0)
way('namespaces', libc.unshare(0x10000000 | 0x00020000) == 0)

os.mkdir('/data/jail')
child = os.fork()
if child == 0:
    os.chroot('/data/jail')
    os.fchdir(top)
    found = []
    for _ in range(64):
        os.chdir('..')
        found += names()
    os.chroot('.')
    found += names('/')
    if found:
        print('got out by chroot', found, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
way('chroot', [])

# The server moves a directory out, as into a trash: what stands in it does not come out with it.
os.makedirs('/data/in/deep')
os.chdir('/data/in/deep')
deep = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
print('ready', flush=True)
while not os.path.exists('/data/go'):
    time.sleep(0.02)
for up in range(1, 8):
    try:
        way('a directory that was moved', names(os.open('../' * up, os.O_RDONLY | os.O_DIRECTORY, dir_fd=deep)))
    except OSError:
        way('a directory that was moved', [])
for _ in range(8):
    try:
        os.chdir('..')
    except OSError:
        break
    way('standing in one that was moved', names())
print('tried', len(ways), flush=True)
"#;

fn mounted(from: &Path, read_only: bool) -> Vec<MountOrder> {
    vec![MountOrder {
        from: from.to_owned(),
        subpath: String::new(),
        at: "/data".to_owned(),
        read_only,
        ..MountOrder::default()
    }]
}

/// Proves too: `nothing_of_the_machine_is_told_inside`
#[test]
fn root_inside_never_gets_above_a_mounted_folder() {
    const NAME: &str = "root_inside_never_gets_above_a_mounted_folder";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let above = ground.directory.path().join("above");
    let folder = above.join("folder");
    fs::create_dir_all(&folder).expect("made");
    fs::create_dir(above.join("folder-of-another")).expect("made");
    for at in [ground.directory.path(), &above] {
        fs::write(at.join("secret"), "secret").expect("written");
    }
    let has = ground.order(&["python3", "-c", "import ctypes"]);
    if ground.run(&has).0.code != 0 {
        return skips::skip(NAME, "needs python3 on this machine");
    }
    let mut order = ground.order(&["python3", "-c", WAYS_OUT]);
    order.mounts = mounted(&folder, false);
    let name = ground.start(&order);
    let until = Instant::now() + TIMEOUT;
    while !ground.log(&name).contains("ready") {
        let is_over = matches!(ground.standing(&name), RuntimePhase::Ended(_));
        let is_late = Instant::now() >= until;
        assert!(!is_over && !is_late, "{}", ground.log(&name));
        std::thread::sleep(Duration::from_millis(20));
    }
    let moved = above.join("moved");
    fs::rename(folder.join("in"), &moved).expect("moved");
    fs::write(folder.join("go"), "").expect("written");
    let record = ground.ended(&name);
    let said = ground.log(&name);
    assert_eq!(record.code, 0, "{said}");
    assert!(!said.contains("got out"), "{said}");
    assert!(said.contains("tried "), "{said}");
    let left = fs::read_dir(moved.join("deep")).expect("there").count();
    assert_eq!(left, 0, "nothing was made there");
}

/// What is mounted of others stays, and what is detached loses no byte.
#[test]
fn a_folder_is_taken_out_of_a_session_that_runs() {
    const NAME: &str = "a_folder_is_taken_out_of_a_session_that_runs";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let [folder, other] = ["0a-folder", "1b-folder"].map(|name| {
        let place = ground.directory.path().join(name);
        fs::create_dir(&place).expect("made");
        fs::write(place.join("seed"), "seed").expect("written");
        place
    });
    let mut order = ground.shell(
        "cat /data/seed /other/seed && echo ready
        while [ -e /data/seed ]; do sleep 0.05; done
        echo late > /data/late
        cat /other/seed && exit 77",
    );
    order.mounts = mounted(&folder, false);
    order.mounts.extend(mounted(&other, true));
    order.mounts[1].at = "/other".to_owned();
    let name = ground.start(&order);
    let until = Instant::now() + TIMEOUT;
    while !ground.log(&name).contains("ready") {
        let is_over = matches!(ground.standing(&name), RuntimePhase::Ended(_));
        let is_late = Instant::now() >= until;
        assert!(!is_over && !is_late, "{}", ground.log(&name));
        std::thread::sleep(Duration::from_millis(20));
    }
    let runtime = &ground.runtime;
    runtime.detach(&name, "none").expect("nothing of it there");
    runtime.detach(&name, "0a-folder").expect("taken out");
    runtime
        .detach(&name, "0a-folder")
        .expect("it is out already");
    let record = ground.ended(&name);
    assert_eq!(record.code, 77, "{}", ground.log(&name));
    let kept = fs::read_to_string(folder.join("seed")).expect("it stays");
    assert_eq!(kept, "seed");
    assert!(!folder.join("late").exists(), "it was still mounted");
    runtime.detach(&name, "0a-folder").expect_err("it is over");
}

/// A root that is not this machine's: these programs of it, with what they load, and its own users.
fn another_image(at: &Path) {
    fs::create_dir_all(at.join("bin")).expect("made");
    fs::create_dir_all(at.join("etc")).expect("made");
    fs::write(at.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").expect("written");
    fs::write(at.join("etc/group"), "root:x:0:\n").expect("written");
    for program in ["sh", "cat", "cp", "chown", "rm", "stat", "touch"] {
        let from = ["/bin", "/usr/bin"].map(|below| Path::new(below).join(program));
        let from = from.iter().find(|from| from.exists()).expect("a program");
        copied(from, &at.join("bin").join(program));
        let loads = Command::new("ldd").arg(from).output().expect("it runs");
        let loads = String::from_utf8_lossy(&loads.stdout).into_owned();
        let named = loads
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        for library in named.map(Path::new) {
            let place = at.join(library.strip_prefix("/").expect("from the root"));
            fs::create_dir_all(place.parent().expect("a directory")).expect("made");
            copied(library, &place);
        }
    }
}

/// Another process writes it, as `crate::programs` says why.
fn copied(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-L").args([from, to]).status();
    assert!(done.expect("it runs").success(), "{}", from.display());
}

/// What a line of Python says that is about an attribute of a file; None where it fails.
fn attribute(line: &str, of: &Path) -> Option<String> {
    let line = format!("import os, sys; {line}");
    let said = Command::new("python3").args(["-c", &line]).arg(of).output();
    let said = said.ok().filter(|said| said.status.success())?;
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}

#[test]
fn a_folder_is_the_same_in_sessions_of_other_ids_and_another_image() {
    const NAME: &str = "a_folder_is_the_same_in_sessions_of_other_ids_and_another_image";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let data = ground.directory.path().join("store");
    fs::create_dir(&data).expect("made");
    let store = FolderStore::open(&data).expect("a store");
    let id = FolderId(Uuid::from_u128(0xab));
    store.create(id, false, None).expect("made");
    let folder = mounted_directory(&data, id);
    let image = ground.directory.path().join("image");
    another_image(&image);
    let seed = folder.join("seed");
    fs::write(&seed, "seed").expect("written");
    fs::set_permissions(&seed, fs::Permissions::from_mode(0o604)).expect("set");
    if attribute(
        "os.setxattr(sys.argv[1], 'user.fardel.test', b'kept')",
        &seed,
    )
    .is_none()
    {
        return skips::skip(NAME, "needs python3, and attributes of files");
    }
    let here = |script: &str, read_only| {
        let mut order = ground.shell(script);
        order.mounts = mounted(&folder, read_only);
        order
    };
    let there = |script: &str, read_only| ContainerSpec {
        root: RootOrder {
            layers: vec![image.clone()],
            host_environment: false,
        },
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        environment: vec![("PATH".to_owned(), "/bin".to_owned())],
        user: UserOrder::Named("0".to_owned()),
        ..here(script, read_only)
    };
    let first = here(
        "cd /data && echo one > one && chmod 640 one && chown 1234:1235 one &&
        printf '#!/bin/sh\\necho it runs\\n' > run && chmod 750 run &&
        mkdir dir && chown 1000:1001 dir && chmod 2770 dir &&
        cp --preserve=all seed kept && ln -s one link && chown -h 7:8 link",
        false,
    );
    let look = "stat -c '%u:%g %a %n' one run dir link kept";
    let second = there(
        &format!(
            "cd /data && {look} && ./run && cat link && cp --preserve=all kept again &&
            echo two > two && chown 4321 two && test ! -e /usr/bin/dpkg"
        ),
        false,
    );
    assert!(first.ids.base + first.ids.size <= second.ids.base);
    let (record, said) = ground.run(&first);
    assert_eq!(record.code, 0, "{said}");
    let (record, said) = ground.run(&second);
    assert_eq!(record.code, 0, "{said}");
    assert_eq!(
        said,
        "1234:1235 640 one\n0:0 750 run\n1000:1001 2770 dir\n7:8 777 link\n0:0 604 kept\nit runs\none\n"
    );
    let (record, said) = ground.run(&here("stat -c '%u:%g' /data/two", true));
    assert_eq!((record.code, said.as_str()), (0, "4321:0\n"));
    // As on the disk: no number of a session is written there.
    let owner = |name: &str| {
        let found = folder.join(name).symlink_metadata().expect("there");
        (found.uid(), found.gid())
    };
    assert_eq!(owner("one"), (1234, 1235));
    assert_eq!(owner("two"), (4321, 0));
    for name in ["kept", "again"] {
        let read = "print(os.getxattr(sys.argv[1], 'user.fardel.test').decode(), end='')";
        let value = attribute(read, &folder.join(name));
        assert_eq!(value.as_deref(), Some("kept"), "{name}");
    }
    let before = listed(&folder);
    for step in [
        "touch new",
        "touch one",
        "echo more >> one",
        "rm one",
        "rm -r dir",
        "chown 0:0 one",
        "cp seed dir/seed",
        "echo x > two",
        ": > run",
    ] {
        let script = format!("cd /data && cat one > /dev/null && ./run > /dev/null && ({step})");
        for order in [here(&script, true), there(&script, true)] {
            let (record, said) = ground.run(&order);
            assert_ne!(record.code, 0, "{step}: {said}");
            assert!(said.contains("ead-only"), "{step}: {said}");
        }
    }
    assert_eq!(listed(&folder), before, "read-only holds for root inside");
}

/// Names with what a write to them changes.
fn listed(folder: &Path) -> Vec<(PathBuf, u32, u32, u64, i64)> {
    let all = fs::read_dir(folder).expect("a directory");
    let mut all: Vec<_> = all
        .map(|one| {
            let path = one.expect("an entry").path();
            let found = path.symlink_metadata().expect("there");
            (path, found.uid(), found.mode(), found.size(), found.mtime())
        })
        .collect();
    all.sort();
    all
}
