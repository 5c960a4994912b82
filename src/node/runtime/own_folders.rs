//! The home of a session's owner and their dot-folders in it, which no launch asks for: finds their places for the user of
//! the container, and shows them on the stage. Never stops a start where they have no place, and follows no link that
//! another session left in the home: what is not mounted is told.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rules::folder::{HOME_TARGET, home_of, is_at_or_below};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

use super::container_user::ContainerUser;
use super::dotfiles::{ActingOwner, FileOwner};
use super::order::MountOrder;
use super::rootfs::{GroundError, HOST_USER_ID, RootStage};

/// Of a place that is made in the home.
const PLACE: u32 = 0o755;

/// What is shown on the stage of a container.
#[derive(Debug, Default)]
pub(super) struct ShownOwnFolders {
    /// From, at, read-only: as a specification has them.
    pub binds: Vec<(PathBuf, String, bool)>,
    /// The home on the stage; None where it is not mounted, or only to be read.
    pub home: Option<PathBuf>,
    /// A sentence for each that is not mounted.
    pub told: Vec<String>,
}

/// Takes the home of the container's user for `/home/work` in the mounts that no launch asked for, and leaves out those that
/// cannot be there. `directory`: where the image says that its command works; a home that covered it would keep the container
/// from starting. Gives a sentence for each of them. O(mounts²), of few.
pub(super) fn settle(
    mounts: &mut Vec<MountOrder>,
    user: &mut ContainerUser,
    directory: Option<&str>,
) -> Vec<String> {
    let mut told = Vec::new();
    if !mounts.iter().any(|mount| mount.by_itself) {
        return told;
    }
    // A home is closed to all but its owner, and root inside.
    if ![0, HOST_USER_ID].contains(&user.uid) {
        mounts.retain(|mount| !mount.by_itself);
        told.push(format!(
            "the home folder is not mounted: it belongs to user {HOST_USER_ID}, and this image runs as user {}",
            user.uid
        ));
        return told;
    }
    user.home = home_of(&user.home).to_owned();
    let asked: Vec<String> = mounts
        .iter()
        .filter(|mount| !mount.by_itself)
        .map(|mount| mount.at.clone())
        .collect();
    mounts.retain_mut(|mount| {
        if !mount.by_itself {
            return true;
        }
        let below = mount.at.strip_prefix(HOME_TARGET).unwrap_or_default();
        mount.at = format!("{}{below}", user.home);
        if mount.away {
            told.push(format!(
                "no folder is mounted at {}: it cannot be opened now",
                mount.at
            ));
            return false;
        }
        let directory = directory.map(|directory| directory.trim_end_matches('/'));
        let would_hide =
            |directory: &&str| *directory != mount.at && is_at_or_below(directory, &mount.at);
        if let Some(directory) = directory.filter(would_hide) {
            told.push(format!(
                "no folder is mounted at {}: this image works in {directory}",
                mount.at
            ));
            return false;
        }
        let covers =
            |other: &&String| is_at_or_below(other, &mount.at) || is_at_or_below(&mount.at, other);
        match asked.iter().find(covers) {
            Some(other) => told.push(format!("{} is left to the folder at {other}", mount.at)),
            None => return true,
        }
        false
    });
    told
}

/// Shows those of `mounts` that no launch asked for, the home before what lies in it, as their order has them; one that cannot be
/// mounted is told. `user_home`: where the container's user has it.
pub(super) fn show(
    stage: &RootStage,
    mounts: &[MountOrder],
    user_home: &str,
    ids: BorrowedFd<'_>,
) -> Result<ShownOwnFolders, GroundError> {
    let mut shown = ShownOwnFolders::default();
    let mut home: Option<PathBuf> = None;
    for (number, mount) in mounts.iter().enumerate() {
        if !mount.by_itself {
            continue;
        }
        let below = mount.at.strip_prefix(user_home);
        let name = below.and_then(|below| below.strip_prefix('/'));
        if let (Some(home), Some(name)) = (&home, name) {
            let covered = match place_in(home, name) {
                Ok(place) => stage
                    .cover(mount, ids, place.as_fd())
                    .map_err(|error| why_not(mount, &error)),
                Err(error) => Err(format!("no folder is mounted at {}: {error}", mount.at)),
            };
            shown.told.extend(covered.err());
            continue;
        }
        if !stage.takes_directory(&mount.at)? {
            shown.told.push(format!(
                "no folder is mounted at {}: a link or a file is in this path of the image",
                mount.at
            ));
            continue;
        }
        let place = match stage.show_mount(&format!("m{number}"), mount, ids) {
            Ok(place) => place,
            Err(error) => {
                shown.told.push(why_not(mount, &error));
                continue;
            }
        };
        let bind = (place.clone(), mount.at.clone(), mount.read_only);
        shown.binds.push(bind);
        if mount.at == user_home {
            shown.home = Some(place.clone()).filter(|_| !mount.read_only);
            home = Some(place);
        }
    }
    Ok(shown)
}

/// Why a folder is not mounted, in words that name no path of the machine; its log has the whole.
fn why_not(mount: &MountOrder, error: &GroundError) -> String {
    let at = &mount.at;
    tracing::warn!(%at, %error, "a session starts without a folder");
    match error {
        GroundError::NoIdMap { .. } => {
            format!("no folder is mounted at {at}: its file system has no id-mapped mounts")
        }
        _ => format!("no folder is mounted at {at}: it cannot be opened now"),
    }
}

/// A directory of that name in a home, which is made where it is missing, as its owner. Errors: also where a link or a file
/// has the name.
fn place_in(home: &Path, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, home, flags, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let acting = ActingOwner::of(FileOwner::of_directory(home)?);
    let made = mkdirat(&opened, name, Mode::from_raw_mode(PLACE));
    drop(acting);
    match made {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(openat2(&opened, name, flags, Mode::empty(), resolve)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn mount(at: &str, by_itself: bool) -> MountOrder {
        MountOrder {
            from: "/nowhere".into(),
            at: at.into(),
            by_itself,
            ..MountOrder::default()
        }
    }

    fn user(uid: u32, home: &str) -> ContainerUser {
        ContainerUser {
            uid,
            gid: uid,
            groups: Vec::new(),
            home: home.to_owned(),
        }
    }

    fn settled(asked: &str, uid: u32, home: &str) -> (Vec<String>, String, usize) {
        let mut mounts = vec![
            mount(asked, false),
            mount("/home/work", true),
            mount("/home/work/.local", true),
        ];
        let mut user = user(uid, home);
        let told = settle(&mut mounts, &mut user, None);
        let places = mounts.into_iter().map(|mount| mount.at).collect();
        (places, user.home, told.len())
    }

    #[test]
    fn a_home_is_mounted_where_the_user_of_the_container_has_theirs() {
        let told = |places: &[&str], home: &str, told| {
            let places: Vec<String> = places.iter().map(ToString::to_string).collect();
            (places, home.to_owned(), told)
        };
        assert_eq!(
            settled("/data", 0, "/root"),
            told(&["/data", "/root", "/root/.local"], "/root", 0)
        );
        assert_eq!(
            settled("/data", 1000, "/"),
            told(
                &["/data", "/home/work", "/home/work/.local"],
                "/home/work",
                0
            )
        );
        // A folder that the launch asked for stands in the way of one, or of both.
        assert_eq!(
            settled("/root/data", 0, "/root"),
            told(&["/root/data", "/root/.local"], "/root", 1)
        );
        assert_eq!(settled("/root", 0, "/root"), told(&["/root"], "/root", 2));
        // Another user could not read it.
        assert_eq!(
            settled("/data", 70, "/var/db"),
            told(&["/data"], "/var/db", 1)
        );
        let mut none = vec![mount("/data", false)];
        assert!(settle(&mut none, &mut user(70, "/"), None).is_empty());
        assert_eq!(none.len(), 1);
    }

    #[test]
    fn a_home_covers_no_directory_in_which_an_image_works() {
        let left = |directory: &str, is_away| {
            let mut mounts = vec![mount("/home/work", true), mount("/home/work/.local", true)];
            mounts[1].away = is_away;
            let told = settle(&mut mounts, &mut user(1000, "/home/user"), Some(directory));
            let places: Vec<String> = mounts.into_iter().map(|mount| mount.at).collect();
            (places.join(" "), told.len())
        };
        let both = "/home/user /home/user/.local";
        for directory in ["/home/user", "/home/user/", "/home/username", "/", "/app"] {
            assert_eq!(left(directory, false), (both.to_owned(), 0), "{directory}");
        }
        let alone = ("/home/user/.local".to_owned(), 1);
        assert_eq!(left("/home/user/app", false), alone);
        // A file server that is away leaves the rest.
        assert_eq!(left("/app", true), ("/home/user".to_owned(), 1));
    }

    #[test]
    fn a_place_in_a_home_is_a_directory_of_the_home_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path().join("home");
        fs::create_dir_all(home.join(".config")).expect("made");
        assert!(place_in(&home, ".config").is_ok() && place_in(&home, ".local").is_ok());
        assert!(home.join(".local").is_dir());
        symlink("/", home.join(".out")).expect("a link");
        symlink(".config", home.join(".in")).expect("a link");
        fs::write(home.join(".file"), "text").expect("written");
        for name in [".out", ".in", ".file"] {
            assert!(place_in(&home, name).is_err(), "{name}");
        }
    }
}
