//! What this machine is called and which addresses it has, from the kernel and /etc/hosts. Asks no name
//! server, ever.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most addresses in one certificate. A machine with more serves the rest by name.
const MAX_NAMES: usize = 64;

/// Host names and addresses under which people reach this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNames {
    /// What the machine calls itself; `fardel` where it does not say.
    pub host: String,
    /// Lower case; `localhost` among them.
    pub hosts: BTreeSet<String>,
    /// Loopback among them.
    pub addresses: BTreeSet<IpAddr>,
}

impl HostNames {
    /// Looks now. Costs three small files.
    pub fn of_this_machine() -> Self {
        let host = nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok())
            .unwrap_or_default();
        let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let addresses = crate::addresses::open_at(every)
            .iter()
            .map(SocketAddr::ip)
            .collect();
        let listed = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        Self::from_parts(&host, addresses, &listed)
    }

    /// With the names of apps, where they have some below this one, and that of the console beside them.
    pub fn with_apps(mut self, below: Option<&str>) -> Self {
        if let Some(below) = below {
            let console = rules::app_origin::console_host(below);
            self.hosts
                .extend([console.to_owned(), format!("*.{below}")]);
        }
        self
    }

    fn from_parts(host: &str, found: Vec<IpAddr>, listed: &str) -> Self {
        let host = host.to_ascii_lowercase();
        let host = if is_name(&host) {
            host
        } else {
            "fardel".to_owned()
        };
        let mut addresses = BTreeSet::from([
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ]);
        addresses.extend(found.into_iter().filter(|a| reachable(*a)).take(MAX_NAMES));
        let short = host.split('.').next().unwrap_or(&host).to_owned();
        let mut hosts = BTreeSet::from(["localhost".to_owned(), format!("{short}.local")]);
        hosts.extend([short, host.clone()]);
        for line in listed.lines() {
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            let Some(ip) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else {
                continue;
            };
            // Debian writes a machine's full name beside 127.0.1.1.
            if addresses.contains(&ip) || ip.is_loopback() {
                let names = words.map(str::to_ascii_lowercase);
                hosts.extend(names.filter(|name| is_name(name) && !name.starts_with("ip6-")));
            }
        }
        Self {
            host,
            hosts,
            addresses,
        }
    }

    /// Every name and address as text, names first.
    pub fn all(&self) -> Vec<String> {
        let addresses = self.addresses.iter().map(ToString::to_string);
        self.hosts.iter().cloned().chain(addresses).collect()
    }

    /// Addresses that other machines can use.
    pub fn outward(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().copied().filter(|a| !a.is_loopback())
    }
}

/// Link-local addresses need an interface's name beside them, which no browser can write.
fn reachable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => !four.is_unspecified() && !four.is_link_local(),
        IpAddr::V6(six) => !six.is_unspecified() && !six.is_unicast_link_local(),
    }
}

/// Whether text can stand as a host name in a certificate.
pub(super) fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.len() <= 253 && text.split('.').all(label) && text.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_kernel_and_the_hosts_file() {
        let found = ["10.1.4.20", "fe80::1", "fd00::5", "169.254.3.4", "0.0.0.0"];
        let names = HostNames::from_parts(
            "GPU-01",
            found.map(|a| a.parse().expect("an address")).to_vec(),
            "127.0.1.1 gpu-01.lab.internal gpu-01 # own\n10.1.4.20 ai.lab\n10.9.9.9 other\n::1 ip6-loopback\n",
        );
        assert_eq!(names.host, "gpu-01");
        assert_eq!(
            names.all(),
            [
                "ai.lab",
                "gpu-01",
                "gpu-01.lab.internal",
                "gpu-01.local",
                "localhost",
                "10.1.4.20",
                "127.0.0.1",
                "::1",
                "fd00::5"
            ]
        );
        assert_eq!(HostNames::from_parts("höst", Vec::new(), "").host, "fardel");
    }

    #[test]
    fn names_of_apps_stand_in_the_certificate() {
        let names = || HostNames::from_parts("gpu-01", Vec::new(), "");
        assert_eq!(names().with_apps(None), names());
        let with = names().with_apps(Some("apps.box.lab"));
        assert_eq!(with.host, "gpu-01");
        let more: Vec<_> = with.hosts.difference(&names().hosts).cloned().collect();
        assert_eq!(more, ["*.apps.box.lab", "box.lab"]);
    }

    #[test]
    fn this_machine_has_loopback() {
        let names = HostNames::of_this_machine();
        assert!(names.all().contains(&"127.0.0.1".to_owned()), "{names:?}");
        assert!(names.hosts.contains("localhost"));
    }

    #[test]
    fn a_machine_of_many_addresses_has_a_certificate_for_the_first_of_them() {
        let found: Vec<IpAddr> = (1..=70_u8).map(|last| [10, 0, 0, last].into()).collect();
        let names = HostNames::from_parts("gpu-01", found.clone(), "");
        let outward: Vec<IpAddr> = names.outward().collect();
        assert_eq!(outward, found[..64]);
        assert_eq!(names.addresses.len(), 66, "with loopback");
    }
}
