//! The inner door: what a session may ask of its server from inside, at one address of its own loopback. Names each act and
//! the permission that it needs; opens nothing and proves no caller.

use core::net::{Ipv4Addr, SocketAddrV4};

use crate::permissions::Permission;

/// Where it listens inside each container.
pub const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 127, 0, 1), 4280);

/// What a session may do there, with itself alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InnerAct {
    /// Who its owner is, what it is, its limits and when it ends.
    Look,
    /// What it used lately.
    Samples,
    /// Puts off the end that an idle rule has warned of.
    Keep,
    /// Ends the session.
    End,
}

impl InnerAct {
    pub const ALL: [Self; 4] = [Self::Look, Self::Samples, Self::Keep, Self::End];

    pub fn method(self) -> &'static str {
        match self {
            Self::Look | Self::Samples => "GET",
            Self::Keep | Self::End => "POST",
        }
    }

    pub fn path(self) -> &'static str {
        match self {
            Self::Look => "/session",
            Self::Samples => "/session/metrics",
            Self::Keep => "/session/keep",
            Self::End => "/session/end",
        }
    }

    /// What its owner has to hold on the session; a session as a caller holds it of itself.
    pub fn permission(self) -> Permission {
        match self {
            Self::Look | Self::Samples => Permission::SessionsRead,
            Self::Keep | Self::End => Permission::SessionsWrite,
        }
    }

    /// The act of a path; None where there is none.
    pub fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|act| act.path() == path)
    }
}

/// The permissions of a session as a caller: those that its acts need, and no other.
pub fn permissions() -> Vec<Permission> {
    let mut all: Vec<Permission> = InnerAct::ALL.map(InnerAct::permission).to_vec();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether a request names the door itself as its host. A name that a page of a stranger made lead here does not.
pub fn is_own_host(host: &str) -> bool {
    host.parse::<SocketAddrV4>() == Ok(ADDRESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_act_has_a_path_of_its_own_and_a_session_may_nothing_else() {
        for act in InnerAct::ALL {
            assert_eq!(InnerAct::at(act.path()), Some(act));
        }
        for other in [
            "",
            "/",
            "/session/",
            "/sessions",
            "/api/v1/me",
            "/session/keep/x",
        ] {
            assert_eq!(InnerAct::at(other), None, "{other}");
        }
        let wanted = [Permission::SessionsRead, Permission::SessionsWrite];
        assert_eq!(permissions(), wanted);
    }

    #[test]
    fn only_the_address_itself_is_its_host() {
        assert!(is_own_host("127.127.0.1:4280"));
        for other in [
            "",
            "127.127.0.1",
            "127.127.0.1:4281",
            "127.0.0.1:4280",
            "localhost:4280",
            "stranger.example:4280",
        ] {
            assert!(!is_own_host(other), "{other}");
        }
    }
}
