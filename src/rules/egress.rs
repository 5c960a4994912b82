//! Which connections a session may open to the outside: networks, targets, and what an address is. Pure; resolves no name
//! and opens nothing.
//!
//! A name is judged before it is resolved, and each address after it: what a name server answers opens no address that the
//! policy does not list.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::ContainerName;
use crate::refusal::Refusal;
use crate::refusals;
use crate::units::Timestamp;

/// Targets of one policy. Higher: each session of it has more listeners. Lower: sites write policies for single programs.
pub const MAX_TARGETS: usize = 64;

/// Rows of one session's connections that are kept. Higher: a session that tries many hosts takes room in each report and
/// in the catalog. Lower: the session's page forgets hosts that it still speaks to.
pub const MAX_ROWS: usize = 32;

/// Connections of one container that are over and are still told of. Higher: each report is larger. Lower: of a program that
/// connects in bursts, some are in the counts of their host alone.
pub const MAX_ENDS: usize = 32;

/// Where the proxy listens inside.
pub const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 127, 0, 1), 4281);

/// The longest name of a host, by the rules of DNS.
const MAX_NAME: usize = 253;

/// What a session reaches outside.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// Nothing.
    #[default]
    None,
    /// The targets of its policy, each by its name.
    List,
    /// The targets of its policy through a proxy, which takes patterns of names too.
    Proxy,
}

impl NetworkMode {
    pub const ALL: [Self; 3] = [Self::None, Self::List, Self::Proxy];

    /// As requests and rows write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::List => "list",
            Self::Proxy => "proxy",
        }
    }

    /// The network of a word; None for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

/// One target: `NAME:PORT`, `*.NAME:PORT`, `ADDRESS:PORT`, `NETWORK/BITS:PORT` or `NAME=ADDRESS:PORT`; an IPv6 address
/// stands in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EgressTarget {
    pub host: TargetHost,
    pub port: u16,
}

/// The host of a target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetHost {
    /// Resolved when a connection is opened.
    Name(String),
    /// All names below this one; for proxies.
    Below(String),
    /// A name that is never resolved: it has this address.
    Pinned { name: String, address: IpAddr },
    /// Addresses of a network; one address where it has all bits.
    Network { address: IpAddr, bits: u8 },
}

impl EgressTarget {
    /// Reads one target. Errors: `egress.target-invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let invalid = || {
            let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
            refusals::egress_target_invalid(&shown)
        };
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(invalid)?;
        // `parse` takes a sign, too.
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port: u16 = port.parse().map_err(|_| invalid())?;
        let host = host_of(&host.to_ascii_lowercase()).ok_or_else(invalid)?;
        match is_number && port > 0 {
            true => Ok(Self { host, port }),
            false => Err(invalid()),
        }
    }

    /// What a session calls it, in a list; None for a pattern and for more than one address.
    pub fn name(&self) -> Option<String> {
        match &self.host {
            TargetHost::Name(name) | TargetHost::Pinned { name, .. } => Some(name.clone()),
            TargetHost::Below(_) => None,
            TargetHost::Network { address, bits } => (*bits == width(*address))
                .then(|| format!("ip-{}", address.to_string().replace(['.', ':'], "-"))),
        }
    }
}

fn host_of(text: &str) -> Option<TargetHost> {
    if let Some((name, address)) = text.split_once('=') {
        return Some(TargetHost::Pinned {
            name: host_name(name)?,
            address: address_of(address)?,
        });
    }
    if let Some(name) = text.strip_prefix("*.") {
        return Some(TargetHost::Below(host_name(name)?));
    }
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    match (address_of(address), bits) {
        (Some(address), bits) => {
            let all = width(address);
            let bits = bits.unwrap_or(all);
            // A network without bits would list every address.
            (1..=all)
                .contains(&bits)
                .then_some(TargetHost::Network { address, bits })
        }
        (None, None) => host_name(text).map(TargetHost::Name),
        (None, Some(_)) => None,
    }
}

/// An address; an IPv6 one in brackets, and an IPv4 one that is written as IPv6 as what it is.
fn address_of(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address: IpAddr = match bare {
        Some(six) => six.parse::<Ipv6Addr>().ok()?.into(),
        None => text.parse::<Ipv4Addr>().ok()?.into(),
    };
    Some(address.to_canonical())
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// A name in small letters that a host can have, without a dot at its end; None for every other text, and for one whose last
/// part is a number: programs take it for an address.
pub fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.starts_with(|first: char| first.is_ascii_digit())
        && last
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'x');
    // The session's own.
    let own = matches!(
        name.as_str(),
        "localhost" | "ip6-localhost" | "ip6-loopback"
    );
    (name.len() <= MAX_NAME && name.split('.').all(label) && !is_number && !own).then_some(name)
}

impl TryFrom<String> for EgressTarget {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|refusal| refusal.code)
    }
}

impl From<EgressTarget> for String {
    fn from(target: EgressTarget) -> Self {
        target.to_string()
    }
}

impl fmt::Display for EgressTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |address: &IpAddr| match address {
            IpAddr::V4(four) => four.to_string(),
            IpAddr::V6(six) => format!("[{six}]"),
        };
        match &self.host {
            TargetHost::Name(name) => write!(f, "{name}:{}", self.port),
            TargetHost::Below(name) => write!(f, "*.{name}:{}", self.port),
            TargetHost::Pinned { name, address } => {
                write!(f, "{name}={}:{}", told(address), self.port)
            }
            TargetHost::Network { address, bits } if *bits == width(*address) => {
                write!(f, "{}:{}", told(address), self.port)
            }
            TargetHost::Network { address, bits } => {
                write!(f, "{}/{bits}:{}", told(address), self.port)
            }
        }
    }
}

/// What a policy says of networks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressPolicy {
    /// Networks that a launch may choose; the first is that of a launch that names none.
    pub networks: Vec<NetworkMode>,
    pub targets: Vec<EgressTarget>,
}

impl EgressPolicy {
    /// Reads what an administrator wrote; None where it says nothing of networks.
    ///
    /// Errors: `egress.network-unknown`, `egress.target-invalid`, `egress.too-many`.
    pub fn read(networks: &[String], targets: &[String]) -> Result<Option<Self>, Refusal> {
        let mut read = Self::default();
        for word in networks {
            let mode = NetworkMode::parse(word.trim());
            let mode =
                mode.ok_or_else(|| refusals::egress_network_unknown().at("/egress/networks"))?;
            if !read.networks.contains(&mode) {
                read.networks.push(mode);
            }
        }
        if targets.len() > MAX_TARGETS {
            return Err(refusals::egress_too_many(MAX_TARGETS).at("/egress/targets"));
        }
        for text in targets {
            let target = EgressTarget::parse(text).map_err(|one| one.at("/egress/targets"))?;
            if !read.targets.contains(&target) {
                read.targets.push(target);
            }
        }
        if read.networks.is_empty() && !read.targets.is_empty() {
            return Err(refusals::egress_network_unknown().at("/egress/networks"));
        }
        Ok((!read.networks.is_empty()).then_some(read))
    }

    /// `list proxy: warehouse.plant:3306`, as audit rows say it.
    pub fn told(&self) -> String {
        let networks: Vec<&str> = self.networks.iter().map(|mode| mode.word()).collect();
        let targets: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
        match targets.is_empty() {
            true => networks.join(" "),
            false => format!("{}: {}", networks.join(" "), targets.join(" ")),
        }
    }
}

/// The network of a launch that asks for `asked`, by the policy that holds for it.
///
/// Errors: `egress.not-allowed`.
pub fn chosen(
    policy: Option<&EgressPolicy>,
    asked: Option<NetworkMode>,
) -> Result<Option<SessionEgress>, Refusal> {
    let allowed = policy.map_or(&[][..], |policy| &policy.networks);
    let usual = allowed.first().copied().unwrap_or_default();
    let mode = asked.unwrap_or(usual);
    // What reaches nothing needs no policy.
    if mode != NetworkMode::None && !allowed.contains(&mode) {
        return Err(refusals::egress_not_allowed(mode.word()).at("/network"));
    }
    let targets = policy.map_or_else(Vec::new, |policy| policy.targets.clone());
    Ok((mode != NetworkMode::None).then_some(SessionEgress {
        mode,
        targets,
        refused: Vec::new(),
    }))
}

/// What one session reaches, as its launch left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEgress {
    pub mode: NetworkMode,
    pub targets: Vec<EgressTarget>,
    /// Those of them that the policies list no more. Nothing is opened there; a list keeps its places inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<EgressTarget>,
}

/// What an address is, for those who must not reach every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// Of the Internet.
    Public,
    /// Of a site.
    Private,
    /// Of the machine that asks.
    Loopback,
    /// Of the wire; clouds answer questions about the machine there.
    LinkLocal,
    /// Of no one host: unspecified, multicast, broadcast, reserved.
    Never,
}

/// The kind of an address. An IPv4 address inside an IPv6 one counts as what it is inside.
pub fn kind_of(address: IpAddr) -> AddressKind {
    match address.to_canonical() {
        IpAddr::V4(four) => kind_of_four(four),
        IpAddr::V6(six) => kind_of_six(six),
    }
}

fn kind_of_four(four: Ipv4Addr) -> AddressKind {
    let [first, second, third, _] = four.octets();
    match (first, second, third) {
        (0 | 224..=255, ..) => AddressKind::Never,
        (127, ..) => AddressKind::Loopback,
        (169, 254, _) => AddressKind::LinkLocal,
        // One cloud answers questions about the machine at a public address.
        _ if four == Ipv4Addr::new(168, 63, 129, 16) => AddressKind::LinkLocal,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => AddressKind::Private,
        // Protocols, documentation, benchmarks.
        (192, 0, 0 | 2) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => {
            AddressKind::Private
        }
        _ => AddressKind::Public,
    }
}

/// The IPv4 address that an IPv6 one leads to; None for all others.
pub fn translated(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(six) = address else {
        return None;
    };
    let (high, low) = match six.segments() {
        // This one, and none.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => return None,
        // Once meant for IPv4, and by translators (RFC 6052, RFC 3056).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    Some(Ipv4Addr::from_bits(
        (u32::from(high) << 16) | u32::from(low),
    ))
}

fn kind_of_six(six: Ipv6Addr) -> AddressKind {
    if let Some(four) = translated(six.into()) {
        return kind_of_four(four);
    }
    match six.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressKind::Never,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressKind::Loopback,
        // Translators of a site, and tunnels that carry what they like.
        [0x64, 0xff9b, ..] | [0x2001, 0, ..] => AddressKind::Private,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] | [0x2001, 0xdb8, ..] => AddressKind::Private,
        [0xff00..=0xffff, ..] => AddressKind::Never,
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        _ => AddressKind::Never,
    }
}

/// Why a connection is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EgressOutcome {
    /// It was opened.
    Opened,
    /// No target lists it.
    NotListed,
    /// What it resolved to is an address that only its own entry would open.
    AddressRefused,
    /// The name has no address.
    Unresolved,
    /// Nothing answered there.
    Unreachable,
    /// The session has as many connections as it may have.
    TooMany,
}

impl EgressOutcome {
    pub const ALL: [Self; 6] = [
        Self::Opened,
        Self::NotListed,
        Self::AddressRefused,
        Self::Unresolved,
        Self::Unreachable,
        Self::TooMany,
    ];

    /// As rows and answers write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::NotListed => "not-listed",
            Self::AddressRefused => "address-refused",
            Self::Unresolved => "unresolved",
            Self::Unreachable => "unreachable",
            Self::TooMany => "too-many",
        }
    }

    /// The outcome of a word; None for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.word() == word)
    }
}

/// One place where a session finds a target of its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenPoint {
    pub at: SocketAddrV4,
    /// What the session calls it.
    pub name: String,
    pub target: EgressTarget,
}

impl SessionEgress {
    /// What is left of it while its session goes on and the policies that hold for it say this now. A list gets nothing
    /// that it was not launched with: the names of its targets were written when it started. A proxy takes what is said now.
    #[must_use]
    pub fn under(&self, policy: Option<&EgressPolicy>) -> Self {
        let allowing = policy.filter(|policy| policy.networks.contains(&self.mode));
        let listed = allowing.map_or(&[][..], |policy| &policy.targets);
        if let (NetworkMode::Proxy, Some(policy)) = (self.mode, allowing) {
            return Self {
                mode: self.mode,
                targets: policy.targets.clone(),
                refused: Vec::new(),
            };
        }
        let gone = self.targets.iter().filter(|one| !listed.contains(one));
        Self {
            mode: self.mode,
            targets: self.targets.clone(),
            refused: gone.cloned().collect(),
        }
    }

    /// Its targets that the policies still list.
    pub fn open_targets(&self) -> impl Iterator<Item = &EgressTarget> {
        let all = self.targets.iter();
        all.filter(move |one| !self.refused.contains(one))
    }

    /// Whether a target is one of its own that the policies still list.
    pub fn opens(&self, target: &EgressTarget) -> bool {
        self.open_targets().any(|one| one == target)
    }

    /// Where its targets stand inside, one point for each name and port, the first target of each; empty but for a list.
    pub fn points(&self) -> Vec<ListenPoint> {
        let mut points: Vec<ListenPoint> = Vec::new();
        if self.mode != NetworkMode::List {
            return points;
        }
        let mut names: Vec<String> = Vec::new();
        for target in self.targets.iter().take(MAX_TARGETS) {
            let Some(name) = target.name() else {
                continue;
            };
            let known = names.iter().position(|one| *one == name);
            let place = known.unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            });
            let last = u8::try_from(place + 1).unwrap_or(u8::MAX);
            let at = SocketAddrV4::new(Ipv4Addr::new(127, 80, 0, last), target.port);
            if !points.iter().any(|point| point.at == at) {
                points.push(ListenPoint {
                    at,
                    name,
                    target: target.clone(),
                });
            }
        }
        points
    }

    /// Lines of `/etc/hosts`, one for each name of its list.
    pub fn hosts(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for point in self.points() {
            let line = format!("{}\t{}\n", point.at.ip(), point.name);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines.concat()
    }

    /// Variables that lead programs to the proxy; none but for a proxy.
    pub fn variables(&self) -> Vec<(String, String)> {
        if self.mode != NetworkMode::Proxy {
            return Vec::new();
        }
        let proxy = format!("http://{PROXY}");
        let local = "localhost,127.0.0.0/8,::1".to_owned();
        let mut all = Vec::new();
        for (name, value) in [
            ("HTTP_PROXY", &proxy),
            ("HTTPS_PROXY", &proxy),
            ("NO_PROXY", &local),
        ] {
            all.push((name.to_owned(), value.clone()));
            all.push((name.to_ascii_lowercase(), value.clone()));
        }
        all
    }

    /// The target that lists a host as a client of the proxy wrote it; None where none does. Costs one look at each target.
    pub fn listed(&self, host: &str, port: u16) -> Option<&EgressTarget> {
        let address = address_of(host).or_else(|| host.parse::<IpAddr>().ok());
        let address = address.map(|one| one.to_canonical());
        let name = match address {
            Some(_) => None,
            None => Some(host_name(host)?),
        };
        let is_meant = |target: &&EgressTarget| {
            target.port == port
                && match (&target.host, &name, address) {
                    (
                        TargetHost::Name(known) | TargetHost::Pinned { name: known, .. },
                        Some(name),
                        _,
                    ) => known == name,
                    (TargetHost::Below(end), Some(name), _) => name
                        .strip_suffix(end.as_str())
                        .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
                    (TargetHost::Network { address: of, bits }, _, Some(address)) => {
                        contains(*of, *bits, address)
                    }
                    _ => false,
                }
        };
        self.open_targets().find(is_meant)
    }

    /// Whether a connection that `target` lists may go to this address, now that it is known; `is_own`: the machine itself
    /// has it. A private address needs an entry of its own or of its network; one of the machine or of the wire an entry of
    /// its own.
    pub fn admits(&self, target: &EgressTarget, address: IpAddr, is_own: bool) -> bool {
        let address = address.to_canonical();
        let kind = kind_of(address);
        if kind == AddressKind::Never {
            return false;
        }
        if let TargetHost::Pinned { address: own, .. } = &target.host {
            return *own == address;
        }
        let listed = |least: u8| {
            self.open_targets().any(|one| match &one.host {
                TargetHost::Network { address: of, bits } => {
                    one.port == target.port && *bits >= least && contains(*of, *bits, address)
                }
                _ => false,
            })
        };
        match (kind, is_own) {
            (AddressKind::Public, false) => true,
            (AddressKind::Private, false) => listed(1),
            _ => listed(width(address)),
        }
    }
}

fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}

/// Connections of one container to one host that came out the same, together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRow {
    pub host: String,
    pub port: u16,
    pub outcome: EgressOutcome,
    pub count: u64,
    /// Bytes that the session sent.
    pub sent: u64,
    pub received: u64,
    pub last_at: Timestamp,
}

/// One connection that was opened and is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressEnd {
    /// Higher than that of each one of the same container that ended before, whichever relay carried it.
    pub number: u64,
    /// As its row has it.
    pub host: String,
    pub port: u16,
    /// Bytes that the session sent.
    pub sent: u64,
    pub received: u64,
    pub began_at: Timestamp,
    pub ended_at: Timestamp,
}

impl EgressEnd {
    /// `db:5432 sent=10 received=20 seconds=3`, as events say it.
    pub fn told(&self) -> String {
        let (began, ended) = (self.began_at.as_millis(), self.ended_at.as_millis());
        format!(
            "{}:{} sent={} received={} seconds={}",
            self.host,
            self.port,
            self.sent,
            self.received,
            ended.saturating_sub(began).max(0) / 1_000
        )
    }
}

/// Connections of one container since it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressReport {
    pub container: ContainerName,
    /// At most `MAX_ROWS`, the latest first.
    pub rows: Vec<EgressRow>,
    /// Those of them that ended last, at most `MAX_ENDS`, by their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<EgressEnd>,
}

#[cfg(test)]
mod tests;
