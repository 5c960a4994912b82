//! The addresses at which this machine can be reached, as its kernel lists them. Asks no network and
//! no name service.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where a browser finds a server that listens on `listen`: that address itself, or, where it stands
/// for every network, each address of this machine, IPv4 first. Never empty: a machine without a
/// network is still found from its own screen.
pub fn open_at(listen: SocketAddr) -> Vec<SocketAddr> {
    if !listen.ip().is_unspecified() {
        return vec![listen];
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut found: Vec<IpAddr> = ipv4(&read("/proc/net/fib_trie"))
        .into_iter()
        .map(IpAddr::from)
        .collect();
    if listen.is_ipv6() {
        found.extend(
            ipv6(&read("/proc/net/if_inet6"))
                .into_iter()
                .map(IpAddr::from),
        );
    }
    if found.is_empty() {
        found.push(Ipv4Addr::LOCALHOST.into());
    }
    found
        .into_iter()
        .map(|address| SocketAddr::new(address, listen.port()))
        .collect()
}

/// Whether `host` is this machine itself, so that nobody else hears what is sent there.
pub fn is_own_host(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The addresses of `host`: itself, this machine's own for `localhost`, else what `hosts` says, the text of /etc/hosts. IPv4
/// first; empty for a name that stands nowhere.
pub fn of_host(host: &str, hosts: &str) -> Vec<IpAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return vec![address];
    }
    let line = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        let named = words.any(|name| name.eq_ignore_ascii_case(host));
        named.then_some(address)
    };
    let mut found: Vec<IpAddr> = match host.eq_ignore_ascii_case("localhost") {
        // No file says that it is elsewhere: what is sent there may be unencrypted.
        true => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        false => hosts.lines().filter_map(line).collect(),
    };
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

/// In the kernel's table of routes an address of our own is a line `|-- A` whose next line says
/// `/32 host LOCAL`.
fn ipv4(table: &str) -> BTreeSet<Ipv4Addr> {
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    lines
        .windows(2)
        .filter(|pair| pair[1] == "/32 host LOCAL")
        .filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse().ok())
        .filter(|address: &Ipv4Addr| !address.is_loopback() && !address.is_link_local())
        .collect()
}

/// Lines of `if_inet6`: the address in 32 hexadecimal digits, then index, prefix, scope (00 is
/// global), flags and name.
fn ipv6(table: &str) -> BTreeSet<Ipv6Addr> {
    table
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [address, _, _, "00", ..] = words.as_slice() else {
                return None;
            };
            u128::from_str_radix(address, 16).ok().map(Ipv6Addr::from)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_read_and_networks_and_loopback_are_not() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.4.0\n        /24 link UNICAST\n     \
            |-- 10.1.4.20\n        /32 host LOCAL\n     |-- 10.1.4.255\n        /32 link BROADCAST\n     \
            |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.1.4.20\n        /32 host LOCAL\n";
        let expected: Vec<Ipv4Addr> = vec![Ipv4Addr::new(10, 1, 4, 20)];
        assert_eq!(ipv4(table).into_iter().collect::<Vec<_>>(), expected);
        let table = "fe800000000000000000000000000001 02 40 20 80 eth0\n\
            20010db8000000000000000000000007 02 40 00 80 eth0\n\
            00000000000000000000000000000001 01 80 10 80 lo\n";
        let found: Vec<String> = ipv6(table).iter().map(Ipv6Addr::to_string).collect();
        assert_eq!(found, ["2001:db8::7"]);
    }

    #[test]
    fn a_named_address_is_itself_and_every_network_is_never_nowhere() {
        let named: SocketAddr = "127.0.0.1:7860".parse().unwrap();
        assert_eq!(open_at(named), [named]);
        let every = open_at("0.0.0.0:7860".parse().unwrap());
        assert!(!every.is_empty());
        assert!(
            every
                .iter()
                .all(|a| a.port() == 7860 && !a.ip().is_unspecified())
        );
    }

    #[test]
    fn a_host_is_found_without_a_name_service() {
        let hosts =
            "# 10.0.0.1 dc0\n10.1.0.4 dc1.example DC1 # main\nfd00::4 dc1\n9.9.9.9 localhost\n";
        let of = |host| of_host(host, hosts);
        let shown = |found: Vec<IpAddr>| found.iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(shown(of("dc1")), ["10.1.0.4", "fd00::4"]);
        assert_eq!(shown(of("::1")), ["::1"]);
        assert_eq!(shown(of("localhost")), ["127.0.0.1", "::1"]);
        assert!(of("dc0").is_empty());
    }
}
