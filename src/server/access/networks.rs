//! The networks that a user, a token or a key may come from, as addresses with a length (CIDR). Knows no user.

use std::net::IpAddr;

use rules::refusal::Refusal;
use rules::refusals;

/// Networks of one user, token or key. Higher: each request compares more. Lower: a user of many buildings cannot be bounded.
const MAX_NETWORKS: usize = 16;
/// Letters of a network: 39 of an IPv6 address, and its length.
const MAX_NETWORK_LENGTH: usize = 43;

/// Addresses that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    /// Bits that are alike.
    length: u32,
}

impl Network {
    /// One address, or `10.1.0.0/16`; what stands behind the length is left out.
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        // The same host has one name here.
        if address.to_canonical() != address {
            return None;
        }
        let bits = bits(address);
        let length = match length {
            None => bits,
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                digits.parse().ok().filter(|length| *length <= bits)?
            }
            Some(_) => return None,
        };
        Some(Self { address, length }.whole())
    }

    /// The network with nothing behind its length.
    fn whole(self) -> Self {
        let address = match self.address {
            IpAddr::V4(four) => IpAddr::V4((four.to_bits() & mask32(self.length)).into()),
            IpAddr::V6(six) => IpAddr::V6((six.to_bits() & mask128(self.length)).into()),
        };
        Self { address, ..self }
    }

    fn holds(self, source: IpAddr) -> bool {
        let source = source.to_canonical();
        bits(source) == bits(self.address)
            && Self {
                address: source,
                length: self.length,
            }
            .whole()
                == self
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn bits(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn mask32(length: u32) -> u32 {
    u32::MAX.checked_shl(32 - length).unwrap_or(0)
}

fn mask128(length: u32) -> u128 {
    u128::MAX.checked_shl(128 - length).unwrap_or(0)
}

/// Networks as they are kept, each once; empty for everywhere.
///
/// Errors: `network.invalid`, `network.too-many`, at `/networks`.
pub(crate) fn parse(typed: &[String]) -> Result<Vec<String>, Refusal> {
    let mut networks: Vec<String> = Vec::new();
    for text in typed {
        let text = text.trim();
        let network = Some(text).filter(|text| text.len() <= MAX_NETWORK_LENGTH);
        let network = network.and_then(Network::parse).ok_or_else(|| {
            let shown: String = text.chars().take(MAX_NETWORK_LENGTH).collect();
            refusals::network_invalid(shown.escape_debug()).at("/networks")
        })?;
        let network = network.to_string();
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    if networks.len() > MAX_NETWORKS {
        return Err(refusals::network_too_many(MAX_NETWORKS).at("/networks"));
    }
    Ok(networks)
}

/// Whether who comes from `source` is let in. What cannot be read lets nobody in.
pub(crate) fn admit(networks: &[String], source: IpAddr) -> bool {
    let mut known = networks.iter().filter_map(|text| Network::parse(text));
    networks.is_empty() || known.any(|network| network.holds(source))
}

/// Whether each of the inner networks lies in one of the outer: who is let in by those comes from these.
pub(crate) fn within(inner: &[String], outer: &[String]) -> bool {
    let read = |all: &[String]| -> Vec<Option<Network>> {
        all.iter().map(|text| Network::parse(text)).collect()
    };
    let outer = read(outer);
    read(inner).into_iter().all(|inner| {
        let mut outer = outer.iter().flatten();
        inner.is_some_and(|inner| {
            outer.any(|outer| outer.length <= inner.length && outer.holds(inner.address))
        })
    })
}

/// The network around an address, as a place that a user signs in from: it stays where an office or a provider gives its
/// hosts other addresses. None for this machine itself.
pub(super) fn place(source: IpAddr) -> Option<String> {
    let address = source.to_canonical();
    let length = match address {
        IpAddr::V4(_) => 24,
        IpAddr::V6(_) => 64,
    };
    (!address.is_loopback()).then(|| Network { address, length }.whole().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_network_around_an_address_and_none_is_this_machine() {
        for (source, expected) in [
            ("192.0.2.7", Some("192.0.2.0/24")),
            ("::ffff:192.0.2.200", Some("192.0.2.0/24")),
            ("2001:db8:0:1:2:3:4:5", Some("2001:db8:0:1::/64")),
            ("127.0.0.1", None),
            ("::1", None),
        ] {
            let found = place(source.parse().unwrap());
            assert_eq!(found.as_deref(), expected, "{source}");
        }
    }

    fn read(text: &str) -> Result<Vec<String>, Refusal> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn networks_are_kept_without_what_stands_behind_their_length() {
        let kept = read("10.1.2.3/16 10.1.0.0/16 192.0.2.7 2001:db8::1/32 ::/0 0.0.0.0/0").unwrap();
        assert_eq!(
            kept,
            [
                "10.1.0.0/16",
                "192.0.2.7/32",
                "2001:db8::/32",
                "::/0",
                "0.0.0.0/0"
            ]
        );
        for wrong in [
            "10.1.0.0/33",
            "10.1/16",
            "10.1.0.0/-1",
            "10.1.0.0/+8",
            "10.1.0.0/",
            "lab",
            "::ffff:10.0.0.0/104",
            "fe80::1%eth0",
            "2001:db8::/129",
        ] {
            assert_eq!(read(wrong).unwrap_err().code, "network.invalid", "{wrong}");
        }
        let many: Vec<String> = (0..17).map(|n| format!("10.{n}.0.0/16")).collect();
        assert_eq!(parse(&many).unwrap_err().code, "network.too-many");
        assert_eq!(parse(&many[..16]).unwrap().len(), 16);
    }

    #[test]
    fn networks_lie_in_wider_ones_of_their_family_alone() {
        let outer = read("10.1.0.0/16 2001:db8::/32").unwrap();
        for (inner, lies) in [
            ("10.1.2.0/24", true),
            ("10.1.0.0/16 2001:db8:1::/48", true),
            ("10.0.0.0/8", false),
            ("10.1.2.0/24 10.2.0.0/24", false),
            ("::/0", false),
            ("", true),
        ] {
            assert_eq!(within(&read(inner).unwrap(), &outer), lies, "{inner}");
        }
        assert!(!within(&["lab".to_owned()], &outer));
    }

    #[test]
    fn an_address_is_let_in_by_any_of_the_networks_and_by_none_of_them_everywhere() {
        let networks = read("10.1.0.0/16 2001:db8::/32 192.0.2.7").unwrap();
        for (source, let_in) in [
            ("10.1.255.255", true),
            ("10.2.0.0", false),
            ("::ffff:10.1.0.9", true),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(
                admit(&networks, source.parse().unwrap()),
                let_in,
                "{source}"
            );
        }
        assert!(admit(&[], "203.0.113.9".parse().unwrap()));
        assert!(!admit(&["lab".to_owned()], "203.0.113.9".parse().unwrap()));
        let all_four = read("0.0.0.0/0").unwrap();
        assert!(admit(&all_four, "203.0.113.9".parse().unwrap()));
        assert!(!admit(&all_four, "2001:db8::1".parse().unwrap()));
    }
}
