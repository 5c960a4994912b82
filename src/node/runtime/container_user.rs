//! Finds out who a container's user is, from the container's own `/etc/passwd` and `/etc/group`.
//! Never asks the machine's name service. Pure: callers bring the text of the two files.

/// A user of the container, in the container's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerUser {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, ascending.
    pub groups: Vec<u32>,
    pub home: String,
}

/// A user who cannot be found.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum ContainerUserError {
    #[error("the environment has no user {0:?}; give a number, or a name from its /etc/passwd")]
    NoUser(String),
    #[error("the environment has no group {0:?}; give a number, or a name from its /etc/group")]
    NoGroup(String),
    #[error("{0} is outside the session's id range")]
    OutOfRange(u32),
}

/// Reads `name`, `uid`, `name:group` or `uid:gid`.
///
/// A bare number without an entry is a user with group 0 and home `/`, as every runtime treats it.
/// `ids` is the size of the session's range.
pub(super) fn find(
    wanted: &str,
    passwd: &str,
    group: &str,
    ids: u32,
) -> Result<ContainerUser, ContainerUserError> {
    let (user, group_wanted) = match wanted.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (wanted, None),
    };
    let entry = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| {
            fields.len() >= 6
                && (fields[0] == user || (user.parse::<u32>().is_ok() && fields[2] == user))
        });
    let (name, uid, own_gid, home) = match entry {
        Some(fields) => {
            let number = |text: &str| {
                text.parse::<u32>()
                    .map_err(|_| ContainerUserError::NoUser(user.to_owned()))
            };
            (
                Some(fields[0]),
                number(fields[2])?,
                number(fields[3])?,
                fields[5].to_owned(),
            )
        }
        None => (
            None,
            user.parse::<u32>()
                .map_err(|_| ContainerUserError::NoUser(user.to_owned()))?,
            0,
            String::new(),
        ),
    };
    let gid = match group_wanted {
        None | Some("") => own_gid,
        Some(text) => group
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.len() >= 3 && fields[0] == text)
            .and_then(|fields| fields[2].parse().ok())
            .or_else(|| text.parse().ok())
            .ok_or_else(|| ContainerUserError::NoGroup(text.to_owned()))?,
    };
    let mut groups: Vec<u32> = match name {
        // A group given by hand replaces the whole membership.
        Some(name) if group_wanted.is_none() => group
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .filter(|fields| fields.len() >= 4 && fields[3].split(',').any(|member| member == name))
            .filter_map(|fields| fields[2].parse().ok())
            .filter(|each| *each < ids)
            .collect(),
        _ => Vec::new(),
    };
    groups.sort_unstable();
    groups.dedup();
    for number in [uid, gid] {
        if number >= ids {
            return Err(ContainerUserError::OutOfRange(number));
        }
    }
    let home = if home.starts_with('/') {
        home
    } else {
        "/".to_owned()
    };
    Ok(ContainerUser {
        uid,
        gid,
        groups,
        home,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nwork:x:1000:1000::/home/work:/bin/bash\nodd:x:70000:0::/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nwork:x:1000:\nvideo:x:44:work,root\n";

    fn who(wanted: &str) -> Result<ContainerUser, ContainerUserError> {
        find(wanted, PASSWD, GROUP, 65_536)
    }

    #[test]
    fn names_and_numbers_mean_the_same_user() {
        let work = who("work").expect("listed");
        assert_eq!(
            work,
            ContainerUser {
                uid: 1000,
                gid: 1000,
                groups: vec![44],
                home: "/home/work".into()
            }
        );
        assert_eq!(who("1000"), Ok(work));
    }

    #[test]
    fn an_unlisted_number_is_a_user_without_a_home() {
        assert_eq!(
            who("4711"),
            Ok(ContainerUser {
                uid: 4711,
                gid: 0,
                groups: vec![],
                home: "/".into()
            })
        );
    }

    #[test]
    fn a_group_by_hand_replaces_the_membership() {
        assert_eq!(
            who("work:video"),
            Ok(ContainerUser {
                uid: 1000,
                gid: 44,
                groups: vec![],
                home: "/home/work".into()
            })
        );
        assert_eq!(
            who("0:7"),
            Ok(ContainerUser {
                uid: 0,
                gid: 7,
                groups: vec![],
                home: "/root".into()
            })
        );
    }

    #[test]
    fn strangers_and_numbers_outside_the_range_are_refused() {
        assert_eq!(
            who("nobody-here"),
            Err(ContainerUserError::NoUser("nobody-here".into()))
        );
        assert_eq!(
            who("work:nogroup"),
            Err(ContainerUserError::NoGroup("nogroup".into()))
        );
        assert_eq!(who("odd"), Err(ContainerUserError::OutOfRange(70_000)));
        assert_eq!(
            who("4294967295"),
            Err(ContainerUserError::OutOfRange(u32::MAX))
        );
    }
}
