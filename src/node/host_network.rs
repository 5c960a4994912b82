//! The machine's own addresses: what they are, and how they are changed through systemd-networkd
//! with a way back. A change is rolled back after a minute unless a user who still
//! reaches the machine keeps it. Never touches a network that something else manages.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use nix::ifaddrs::getifaddrs;
use rules::refusal::Refusal;
use rules::refusals;
use serde::{Deserialize, Serialize};

/// Seconds until a change is taken back.
pub const CONFIRM_TIMEOUT_SECONDS: u32 = 60;
/// The timer that takes it back; one change at a time.
const TIMER: &str = "fardel-network-revert";

/// One card or bond, with what it has now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    pub name: String,
    pub mac: String,
    /// Whether a cable or a peer is there.
    pub link: bool,
    /// `10.1.4.20/24`; empty where it has none.
    pub addresses: Vec<String>,
}

/// How a card gets its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressPlan {
    Dhcp,
    Static {
        /// `10.1.4.20/24`
        address: String,
        gateway: Option<String>,
        dns: Vec<String>,
    },
}

/// Where files are and who runs commands; tests bring their own.
pub struct NetworkTools<'a> {
    /// `/` of the machine.
    pub root: &'a Path,
    /// `/run/fardel`.
    pub run: &'a Path,
    /// Runs a command; its output where it went well, else a sentence.
    pub command: &'a dyn Fn(&[&str]) -> Result<String, String>,
}

/// A change that waits to be kept. Until then its file lies where a restart of the machine clears it
/// away, in front of the one that stays.
#[derive(Debug, Serialize, Deserialize)]
struct PendingNetworkChange {
    waits: PathBuf,
    stays: PathBuf,
    interface: String,
}

/// All cards but the loopback, by name. Empty where the machine has none.
pub fn interfaces(root: &Path) -> Vec<Interface> {
    let Ok(entries) = fs::read_dir(root.join("sys/class/net")) else {
        return Vec::new();
    };
    let known = getifaddrs()
        .map(Iterator::collect::<Vec<_>>)
        .unwrap_or_default();
    let mut found: Vec<Interface> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name != "lo")
        .map(|name| {
            let fact = |what: &str| {
                fs::read_to_string(root.join("sys/class/net").join(&name).join(what))
                    .map(|text| text.trim().to_owned())
                    .unwrap_or_default()
            };
            let addresses = known
                .iter()
                .filter(|address| address.interface_name == name)
                .filter_map(|address| {
                    let ip = ip_of(address.address.as_ref()?)?;
                    let mask = address.netmask.as_ref().and_then(ip_of);
                    let own = !matches!(ip, IpAddr::V6(six) if six.is_unicast_link_local());
                    own.then(|| format!("{ip}/{}", mask.map_or(32, bits)))
                })
                .collect();
            Interface {
                mac: fact("address"),
                link: fact("carrier") == "1",
                addresses,
                name,
            }
        })
        .collect();
    // Virtual interfaces of the kernel and of containers are no network cards.
    found.retain(|card| {
        let place = root.join("sys/class/net").join(&card.name);
        let kind = fs::read_to_string(place.join("uevent")).unwrap_or_default();
        let made = ["DEVTYPE=bond", "DEVTYPE=vlan"]
            .iter()
            .any(|kind_of| kind.contains(kind_of));
        made || place.join("device").exists() || !card.addresses.is_empty()
    });
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn ip_of(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(four), _) => Some(IpAddr::V4(four.ip())),
        (_, Some(six)) => Some(IpAddr::V6(six.ip())),
        _ => None,
    }
}

fn bits(mask: IpAddr) -> u32 {
    match mask {
        IpAddr::V4(four) => u32::from(four).count_ones(),
        IpAddr::V6(six) => u128::from(six).count_ones(),
    }
}

/// Who manages the network here; Ok where it is systemd-networkd.
///
/// Errors: `network.managed-elsewhere` with the name of who does.
pub fn manager(place: &NetworkTools<'_>) -> Result<(), Refusal> {
    let active = |unit: &str| (place.command)(&["systemctl", "is-active", unit]).is_ok();
    if active("systemd-networkd") {
        return Ok(());
    }
    let who = if active("NetworkManager") {
        "NetworkManager (nmtui)"
    } else if fs::read_to_string(place.root.join("etc/network/interfaces")).is_ok_and(|text| {
        text.lines()
            .any(|line| line.trim_start().starts_with("iface ") && !line.contains(" lo "))
    }) {
        "ifupdown (/etc/network/interfaces)"
    } else {
        "something other than systemd-networkd"
    };
    Err(refusals::network_managed_elsewhere(who))
}

impl AddressPlan {
    /// Errors: `network.address-invalid`, `network.gateway-invalid`, `network.dns-invalid`.
    pub fn check(&self) -> Result<(), Refusal> {
        let AddressPlan::Static {
            address,
            gateway,
            dns,
        } = self
        else {
            return Ok(());
        };
        let read = address.split_once('/').and_then(|(ip, length)| {
            Some((ip.parse::<Ipv4Addr>().ok()?, length.parse::<u32>().ok()?))
        });
        let Some((ip, length)) = read.filter(|(ip, length)| {
            (1..=31).contains(length)
                && !ip.is_unspecified()
                && !ip.is_loopback()
                && !ip.is_multicast()
                && !ip.is_broadcast()
        }) else {
            return Err(refusals::network_address_invalid(address));
        };
        if let Some(gateway) = gateway {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            let inside = gateway.parse::<Ipv4Addr>().is_ok_and(|gateway| {
                u32::from(gateway) & mask == u32::from(ip) & mask && gateway != ip
            });
            if !inside {
                return Err(refusals::network_gateway_invalid(gateway, address));
            }
        }
        match dns.iter().find(|server| server.parse::<IpAddr>().is_err()) {
            None => Ok(()),
            Some(server) => Err(refusals::network_dns_invalid(server)),
        }
    }

    fn unit(&self, interface: &str) -> String {
        let mut text =
            format!("# Written by fardel console.\n[Match]\nName={interface}\n\n[Network]\n");
        match self {
            AddressPlan::Dhcp => text.push_str("DHCP=yes\n"),
            AddressPlan::Static {
                address,
                gateway,
                dns,
            } => {
                text.push_str(&format!("DHCP=no\nAddress={address}\n"));
                for line in gateway.iter().map(|g| format!("Gateway={g}\n")) {
                    text.push_str(&line);
                }
                for line in dns.iter().map(|d| format!("DNS={d}\n")) {
                    text.push_str(&line);
                }
            }
        }
        text
    }
}

/// Changes a card, with the timer that takes it back set first. `keep` makes it stay.
///
/// Errors: `network.managed-elsewhere`, `network.interface-unknown`, `network.change-open` while an
/// earlier change waits, what `AddressPlan::check` refuses, `network.not-applied` with everything put back.
pub fn set(place: &NetworkTools<'_>, interface: &str, plan: &AddressPlan) -> Result<(), Refusal> {
    plan.check()?;
    let known = interfaces(place.root);
    if !known.iter().any(|known| known.name == interface) {
        let names: Vec<&str> = known.iter().map(|known| known.name.as_str()).collect();
        return Err(refusals::network_interface_unknown(
            interface,
            names.join(", "),
        ));
    }
    manager(place)?;
    if kept(place).exists() {
        return Err(refusals::network_change_open());
    }
    let file = |folder: &str, rank: &str| {
        let name = format!("{folder}/systemd/network/{rank}-fardel-{interface}.network");
        place.root.join(name)
    };
    let change = PendingNetworkChange {
        waits: file("run", "04"),
        stays: file("etc", "05"),
        interface: interface.to_owned(),
    };
    let failed = |what: String| refusals::network_not_applied(&what);
    let text = serde_json::to_string(&change).map_err(|error| failed(error.to_string()))?;
    write(&kept(place), &text).map_err(|error| failed(error.to_string()))?;
    // The way back comes first: from here on a lost line mends itself.
    let after = format!("--on-active={CONFIRM_TIMEOUT_SECONDS}");
    let own = std::env::current_exe().map_or_else(
        |_| "/usr/bin/fardel".to_owned(),
        |path| path.display().to_string(),
    );
    let armed = (place.command)(&[
        "systemd-run",
        "--quiet",
        "--collect",
        &after,
        "--timer-property=AccuracySec=1s",
        &format!("--unit={TIMER}"),
        &own,
        "console",
        "network",
        "revert",
    ]);
    if let Err(said) = armed {
        let _ = fs::remove_file(kept(place));
        return Err(failed(said));
    }
    let applied = write(&change.waits, &plan.unit(interface))
        .map_err(|error| error.to_string())
        .and_then(|()| apply(place, interface));
    if let Err(said) = applied {
        revert(place)?;
        return Err(failed(said));
    }
    Ok(())
}

/// Keeps the change that waits.
///
/// Errors: `network.no-change` where none waits; `network.not-kept` with the change still waiting.
pub fn keep(place: &NetworkTools<'_>) -> Result<(), Refusal> {
    let change = waiting(place)?;
    fs::read_to_string(&change.waits)
        .and_then(|text| write(&change.stays, &text))
        .map_err(|error| refusals::network_not_kept(&error))?;
    disarm(place);
    // The one that stays says the same, so nothing has to be read again.
    let _ = fs::remove_file(&change.waits);
    fs::remove_file(kept(place)).map_err(|error| not_forgotten(&error))
}

/// Takes the change that waits back.
///
/// Errors: `network.no-change` where none waits; `network.not-applied` where the old way fails too.
pub fn revert(place: &NetworkTools<'_>) -> Result<(), Refusal> {
    let change = waiting(place)?;
    let put_back = match fs::remove_file(&change.waits) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    disarm(place);
    put_back
        .map_err(|error| error.to_string())
        .and_then(|()| apply(place, &change.interface))
        .map_err(|said| refusals::network_not_reverted(&said))?;
    fs::remove_file(kept(place)).map_err(|error| not_forgotten(&error))
}

fn waiting(place: &NetworkTools<'_>) -> Result<PendingNetworkChange, Refusal> {
    let text = fs::read_to_string(kept(place)).map_err(|_| no_change())?;
    serde_json::from_str(&text).map_err(|error| refusals::network_change_unreadable(&error))
}

/// Whether a change waits to be kept.
pub fn waits(place: &NetworkTools<'_>) -> bool {
    kept(place).exists()
}

fn no_change() -> Refusal {
    refusals::network_no_change()
}

fn not_forgotten(error: &std::io::Error) -> Refusal {
    refusals::network_not_forgotten(error)
}

fn kept(place: &NetworkTools<'_>) -> PathBuf {
    place.run.join("network-change.json")
}

fn disarm(place: &NetworkTools<'_>) {
    // Gone already where the timer itself runs this.
    let _ = (place.command)(&["systemctl", "stop", &format!("{TIMER}.timer")]);
}

fn apply(place: &NetworkTools<'_>, interface: &str) -> Result<(), String> {
    (place.command)(&["networkctl", "reload"])?;
    (place.command)(&["networkctl", "reconfigure", interface])?;
    Ok(())
}

/// Writes whole or not at all.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = path.with_extension("new");
    fs::write(&beside, text)?;
    fs::File::open(&beside)?.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct NetworkFixture {
        folder: tempfile::TempDir,
        said: RefCell<Vec<String>>,
        /// The command that fails.
        broken: &'static str,
    }

    impl NetworkFixture {
        fn new(broken: &'static str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let card = folder.path().join("sys/class/net/eno1");
            fs::create_dir_all(card.join("device")).unwrap();
            fs::create_dir_all(folder.path().join("sys/class/net/ifb0")).unwrap();
            fs::write(card.join("address"), "02:00:00:00:00:01\n").unwrap();
            fs::write(card.join("carrier"), "1\n").unwrap();
            fs::create_dir_all(folder.path().join("sys/class/net/lo")).unwrap();
            Self {
                folder,
                said: RefCell::default(),
                broken,
            }
        }

        fn with<T>(&self, act: impl FnOnce(&NetworkTools<'_>) -> T) -> T {
            let command = |words: &[&str]| {
                let line = words.join(" ");
                self.said.borrow_mut().push(line.clone());
                if !self.broken.is_empty() && line.contains(self.broken) {
                    return Err(format!("{line} says: no"));
                }
                Ok(String::new())
            };
            act(&NetworkTools {
                root: self.folder.path(),
                run: &self.folder.path().join("run"),
                command: &command,
            })
        }

        /// What is in force: a change that waits lies in front of what stays.
        fn file(&self) -> Option<String> {
            let read = |path: &str| fs::read_to_string(self.folder.path().join(path)).ok();
            read("run/systemd/network/04-fardel-eno1.network").or_else(|| self.stays())
        }

        /// What is left after a restart of the machine.
        fn stays(&self) -> Option<String> {
            let path = "etc/systemd/network/05-fardel-eno1.network";
            fs::read_to_string(self.folder.path().join(path)).ok()
        }

        fn heard(&self, part: &str) -> bool {
            self.said.borrow().iter().any(|line| line.contains(part))
        }
    }

    fn plan() -> AddressPlan {
        AddressPlan::Static {
            address: "10.1.4.20/24".into(),
            gateway: Some("10.1.4.1".into()),
            dns: vec!["10.1.4.1".into()],
        }
    }

    #[test]
    fn a_change_waits_and_is_kept_or_taken_back() {
        let machine = NetworkFixture::new("");
        machine.with(|place| {
            let cards = interfaces(place.root);
            assert_eq!(cards.len(), 1, "{cards:?}");
            assert_eq!(cards[0].name, "eno1");
            set(place, "eno1", &plan()).unwrap();
        });
        let text = machine.file().unwrap();
        assert!(
            text.contains("Address=10.1.4.20/24\nGateway=10.1.4.1\nDNS=10.1.4.1\n"),
            "{text}"
        );
        assert_eq!(machine.stays(), None, "a restart would keep it");
        let said = machine.said.borrow().clone();
        let at = |part: &str| said.iter().position(|line| line.contains(part)).unwrap();
        assert!(
            at("systemd-run") < at("networkctl reload"),
            "the way back comes first: {said:?}"
        );
        // A second change has to wait for the first.
        let refused = machine
            .with(|place| set(place, "eno1", &AddressPlan::Dhcp))
            .unwrap_err();
        assert_eq!(refused.code, "network.change-open");
        machine.with(|place| keep(place).unwrap());
        assert!(machine.heard("systemctl stop fardel-network-revert.timer"));
        assert_eq!(machine.stays(), Some(text.clone()));
        // From the kept one to another and back: what was before is there again, to the letter.
        machine.with(|place| set(place, "eno1", &AddressPlan::Dhcp).unwrap());
        assert!(machine.file().unwrap().contains("DHCP=yes"));
        machine.with(|place| revert(place).unwrap());
        assert_eq!(machine.file().unwrap(), text);
        assert_eq!(machine.with(keep).unwrap_err().code, "network.no-change");
    }

    #[test]
    fn what_fails_changes_nothing() {
        for broken in ["systemd-run", "networkctl reconfigure"] {
            let machine = NetworkFixture::new(broken);
            let refused = machine.with(|place| set(place, "eno1", &plan()));
            // Taking back needs networkctl too; where that fails it says so.
            assert!(
                refused.unwrap_err().code.starts_with("network.not-applied"),
                "{broken}"
            );
            assert_eq!(machine.file(), None, "{broken}");
        }
        let machine = NetworkFixture::new("is-active systemd-networkd");
        let refused = machine
            .with(|place| set(place, "eno1", &plan()))
            .unwrap_err();
        assert_eq!(refused.code, "network.managed-elsewhere");
        assert!(refused.text.contains("NetworkManager"), "{}", refused.text);
        assert_eq!(machine.file(), None);
        let refused = machine
            .with(|place| set(place, "eth9", &plan()))
            .unwrap_err();
        assert!(refused.hint.contains("eno1"), "{}", refused.hint);
    }

    #[test]
    fn impossible_addresses_are_refused() {
        for (address, gateway, code) in [
            ("10.1.4.20", None, "network.address-invalid"),
            ("10.1.4.20/33", None, "network.address-invalid"),
            ("127.0.0.1/8", None, "network.address-invalid"),
            ("10.1.4.20/24", Some("10.1.5.1"), "network.gateway-invalid"),
            ("10.1.4.20/24", Some("10.1.4.20"), "network.gateway-invalid"),
        ] {
            let plan = AddressPlan::Static {
                address: address.into(),
                gateway: gateway.map(str::to_owned),
                dns: Vec::new(),
            };
            assert_eq!(
                plan.check().unwrap_err().code,
                code,
                "{address} {gateway:?}"
            );
        }
        assert_eq!(AddressPlan::Dhcp.check(), Ok(()));
        plan().check().unwrap();
    }
}
