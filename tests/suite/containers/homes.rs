//! The home of a session's owner and their dot-folders, which no launch asks for, in real containers.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use node::runtime::{ContainerSpec, MountOrder, RuntimePhase, UserOrder};
use rules::start_up::Dotfile;

use super::ground::Ground;

/// As the store makes one: closed to all but user 1000.
fn home(ground: &Ground) -> PathBuf {
    let home = ground.directory.path().join("home");
    fs::create_dir(&home).expect("made");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("its mode");
    chown(&home, Some(1000), Some(1000)).expect("its owner");
    home
}

fn folder(ground: &Ground, name: &str) -> PathBuf {
    let folder = ground.directory.path().join(name);
    fs::create_dir(&folder).expect("made");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("its mode");
    folder
}

fn by_itself(from: &Path, at: &str) -> MountOrder {
    MountOrder {
        from: from.to_owned(),
        at: at.to_owned(),
        by_itself: true,
        ..MountOrder::default()
    }
}

fn order(ground: &Ground, script: &str, mounts: &[MountOrder]) -> ContainerSpec {
    let mut order = ground.shell(script);
    order.user = UserOrder::Usual;
    order.mounts = mounts.to_vec();
    order
}

/// Promise (Disk, backup and upgrade): Each session has the home folder of its owner at the home of its user, and their dot-folders in it; what
/// one session leaves there the next one finds.
#[test]
fn what_a_session_leaves_in_its_home_the_next_one_finds() {
    const NAME: &str = "what_a_session_leaves_in_its_home_the_next_one_finds";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let (home, local) = (home(&ground), folder(&ground, "local"));
    let mounts = [
        by_itself(&home, "/home/work"),
        by_itself(&local, "/home/work/.local"),
    ];
    let first = "pwd; echo kept > note; echo tool > ~/.local/tool; stat -c %u note ~/.local/tool";
    let (record, said) = ground.run(&order(&ground, first, &mounts));
    assert_eq!((record.code, said.trim()), (0, "/home/work\n1000\n1000"));
    assert_eq!(
        fs::read_to_string(local.join("tool")).expect("read"),
        "tool\n"
    );
    assert_eq!(fs::metadata(home.join("note")).expect("there").uid(), 1000);
    // Its place in the home is a directory of the home alone.
    assert!(
        fs::read_dir(home.join(".local"))
            .expect("there")
            .next()
            .is_none()
    );
    // The next one is root of an image, with another range of ids.
    let mut second = ground.shell("echo $HOME; cd; cat note .local/tool; stat -c %u note");
    second.mounts = mounts.to_vec();
    let (record, said) = ground.run(&second);
    assert_eq!((record.code, said.trim()), (0, "/root\nkept\ntool\n1000"));
}

/// The kernel keeps what came into the container with the home: it is covered.
#[test]
fn a_folder_that_lies_in_a_home_is_taken_out_of_a_session_that_runs() {
    const NAME: &str = "a_folder_that_lies_in_a_home_is_taken_out_of_a_session_that_runs";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let (home, local) = (home(&ground), folder(&ground, "0a-local"));
    fs::write(local.join("tool"), "tool").expect("written");
    let mounts = [
        by_itself(&home, "/home/work"),
        by_itself(&local, "/home/work/.local"),
    ];
    let script = "cat ~/.local/tool && echo ready
        while [ -e ~/.local/tool ]; do sleep 0.05; done
        touch ~/.local/late 2>/dev/null && exit 1
        touch ~/kept && exit 77";
    let name = ground.start(&order(&ground, script, &mounts));
    let until = Instant::now() + Duration::from_secs(60);
    while !ground.log(&name).contains("ready") {
        let is_over = matches!(ground.standing(&name), RuntimePhase::Ended(_));
        let is_late = Instant::now() >= until;
        assert!(!is_over && !is_late, "{}", ground.log(&name));
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..2 {
        let detached = ground.runtime.detach(&name, "0a-local");
        detached.expect("it is out");
    }
    let record = ground.ended(&name);
    assert_eq!(record.code, 77, "{}", ground.log(&name));
    assert!(home.join("kept").exists(), "its home stays");
    assert!(!local.join("late").exists(), "it was still reached");
}

/// Proves too: `what_a_session_leaves_in_its_home_the_next_one_finds`
#[test]
fn no_link_in_a_home_leads_a_dot_folder_away() {
    const NAME: &str = "no_link_in_a_home_leads_a_dot_folder_away";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let (home, local) = (home(&ground), folder(&ground, "local"));
    fs::write(local.join("passwd"), "planted").expect("written");
    symlink("/etc", home.join(".local")).expect("a link");
    let mounts = [
        by_itself(&home, "/home/work"),
        by_itself(&local, "/home/work/.local"),
    ];
    let look = "grep -c planted /etc/passwd; readlink ~/.local";
    let (record, said) = ground.run(&order(&ground, look, &mounts));
    assert_eq!(record.code, 0, "{said}");
    let told = "fardel: no folder is mounted at /home/work/.local";
    assert!(said.contains(told), "{said}");
    assert!(said.trim().ends_with("0\n/etc"), "{said}");
}

#[test]
fn a_home_gives_way_and_a_session_starts_without_it() {
    const NAME: &str = "a_home_gives_way_and_a_session_starts_without_it";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let (home, data) = (home(&ground), folder(&ground, "set"));
    let asked = MountOrder {
        from: data,
        at: "/home/work/data".to_owned(),
        ..MountOrder::default()
    };
    let mounts = [by_itself(&home, "/home/work"), asked];
    let (record, said) = ground.run(&order(&ground, "echo x > ~/data/x", &mounts));
    assert_eq!(record.code, 0, "{said}");
    assert!(
        said.contains("is left to the folder at /home/work/data"),
        "{said}"
    );
    assert!(fs::read_dir(&home).expect("there").next().is_none());
    // A home is closed to the user of this one.
    let mut other = ground.shell("echo started");
    other.user = UserOrder::Named("7:7".to_owned());
    other.mounts = mounts[..1].to_vec();
    let (record, said) = ground.run(&other);
    assert_eq!(record.code, 0, "{said}");
    assert!(
        said.contains("belongs to user 1000") && said.contains("started"),
        "{said}"
    );
}

#[test]
fn a_home_keeps_its_files_over_dotfiles() {
    const NAME: &str = "a_home_keeps_its_files_over_dotfiles";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let home = home(&ground);
    fs::write(home.join(".bashrc"), "own").expect("written");
    let mounts = [by_itself(&home, "/home/work")];
    let mut order = order(&ground, "cat ~/.bashrc; stat -c ' %u %a' ~/.netrc", &mounts);
    let file = |path: &str| Dotfile {
        path: path.into(),
        mode: 0o600,
        content: "of the console".into(),
    };
    order.start_up.files = vec![file(".bashrc"), file(".netrc")];
    let (record, said) = ground.run(&order);
    assert_eq!(record.code, 0, "{said}");
    assert!(
        said.contains("/home/work/.bashrc is left as the home folder has it"),
        "{said}"
    );
    assert!(said.trim().ends_with("own 1000 600"), "{said}");
}
