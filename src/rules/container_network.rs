//! Several containers of one session: their private network, their addresses and names in it, and the variables by which
//! programs find one another. Never decides how many there are (`workload::validate`) nor makes a network (the node does).

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use crate::messages::NetworkSpec;
use crate::session::{Session, SessionContainer};
use crate::workload::container::{MAIN, role};

/// Bits of the network's part of an address. Every session has a network of its own in namespaces of its own, so all of
/// them have the same addresses.
pub const PREFIX_LENGTH: u8 = 24;

/// Whether the session has several containers.
pub fn is_several(session: &Session) -> bool {
    session.spec.containers > 1
}

/// The address of the container of that place.
pub fn address(index: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, 0, u8::try_from(index + 1).unwrap_or(u8::MAX))
}

/// Lines of `/etc/hosts`, one for each of so many containers.
pub fn hosts(members: u32) -> String {
    (MAIN..members)
        .map(|index| format!("{}\t{}\n", address(index), role(index)))
        .collect()
}

/// What programs do not ask a proxy for, of so many containers; names and the network itself.
pub fn no_proxy(members: u32) -> String {
    let names = (MAIN..members).map(role).collect::<Vec<_>>().join(",");
    format!("{names},10.88.0.0/{PREFIX_LENGTH}")
}

/// The network that joins the containers of a session; None where it has one.
pub(crate) fn network(session: &Session) -> Option<NetworkSpec> {
    is_several(session).then(|| NetworkSpec {
        name: session.id.0.simple().to_string(),
        members: session.spec.containers,
    })
}

/// How many there are, which one this is and how the others are called: in our words, and in those of Backend.AI. Empty
/// where there is one.
pub(crate) fn variables(
    session: &Session,
    container: &SessionContainer,
) -> BTreeMap<String, String> {
    if !is_several(session) {
        return BTreeMap::new();
    }
    let size = session.spec.containers;
    let (index, own) = (container.index, container.role());
    let hosts = (MAIN..size).map(role).collect::<Vec<_>>().join(",");
    // Numbers begin at 1 in each role.
    let (kind, number) = match index {
        MAIN => ("main", 1),
        index => ("sub", index),
    };
    let both = [
        ("SIZE", size.to_string()),
        ("HOSTS", hosts),
        ("HOST", own),
        ("ROLE", kind.to_owned()),
        ("IDX", number.to_string()),
    ];
    let mut all = BTreeMap::from([
        ("FARDEL_CLUSTER_RANK".to_owned(), index.to_string()),
        ("BACKENDAI_CLUSTER_LOCAL_RANK".to_owned(), index.to_string()),
        (
            "BACKENDAI_CLUSTER_REPLICAS".to_owned(),
            format!("main:1,sub:{}", size - 1),
        ),
    ]);
    for (name, value) in both {
        all.insert(format!("FARDEL_CLUSTER_{name}"), value.clone());
        all.insert(format!("BACKENDAI_CLUSTER_{name}"), value);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_has_an_address_and_a_name_of_its_own() {
        assert_eq!(hosts(2), "10.88.0.1\tmain1\n10.88.0.2\tsub1\n");
        let most = crate::workload::spec::MAX_CONTAINERS;
        let lines = hosts(most);
        let all: std::collections::BTreeSet<&str> = lines.split_whitespace().collect();
        assert_eq!(all.len(), 2 * most as usize);
        assert_eq!(no_proxy(2), "main1,sub1,10.88.0.0/24");
    }
}
