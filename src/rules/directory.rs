//! Directories (LDAP, Active Directory) that check passwords of users: where one is, how a name goes into its
//! questions, and which roles its groups give. Pure; `server::access` asks one.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::grants::GrantRole;
use crate::names::TenantName;
use crate::units::Timestamp;

/// Stands for the name that a user typed.
const NAME: &str = "%u";
/// Lines of the table of groups. More: each sign-in compares every group with every line.
pub const MAX_GROUP_RULES: usize = 100;
/// Groups of one user that are looked at. More: a sign-in reads and compares for seconds.
pub const MAX_GROUPS: usize = 1_000;

/// Of the time of Active Directory.
const STEPS_IN_MILLISECOND: i64 = 10_000;
/// From the beginning of that time to 1970.
const MILLISECONDS_FROM_1601: i64 = 11_644_473_600_000;
/// When an account of OpenLDAP was locked that only an administrator unlocks.
const LOCKED_FOR_GOOD: &str = "000001010000Z";

/// Where a directory is, and whether TLS begins with the first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryUrl {
    pub encrypted: bool,
    /// A name or an address, an IPv6 one without its brackets.
    pub host: String,
    pub port: u16,
}

impl DirectoryUrl {
    /// Reads `ldaps://HOST`, `ldaps://HOST:PORT` or the same with `ldap`; None for everything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once("://")?;
        let (encrypted, usual) = match scheme {
            "ldaps" => (true, 636),
            "ldap" => (false, 389),
            _ => return None,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = host_and_port(rest)?;
        Some(Self {
            encrypted,
            host,
            port: port.unwrap_or(usual),
        })
    }
}

/// Reads `HOST` or `HOST:PORT`; an IPv6 address stands in brackets, and comes without them.
pub(crate) fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            match after {
                "" => (host, None),
                after => (host, Some(after.strip_prefix(':')?)),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let letter = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
    if host.is_empty() || !host.chars().all(letter) {
        return None;
    }
    let port = match port {
        None => None,
        Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
    };
    Some((host.to_owned(), port))
}

/// Whether `text` takes the typed name in.
pub fn takes_name(text: &str) -> bool {
    text.contains(NAME)
}

/// A filter with the typed name in it, every byte of which is no more than a letter of a value.
pub fn filter(template: &str, name: &str) -> String {
    template.replace(NAME, &escaped(name))
}

/// A bind name with the typed name in it; in a distinguished name it is one value and nothing else.
pub fn bind_name(template: &str, name: &str) -> String {
    template.replace(NAME, &escaped(name))
}

/// Letters that mean nothing anywhere stay; of all others each byte is written as a number. Filters (RFC 4515) and
/// distinguished names (RFC 4514) write it the same way.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'@' => {
                text.push(char::from(byte));
            }
            other => {
                // Writing into a text cannot fail.
                let _ = write!(text, "\\{other:02x}");
            }
        }
    }
    text
}

/// One line of the table: who is in the group has the role in the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRule {
    /// The whole distinguished name, or its first value; in small letters.
    group: String,
    pub project: TenantName,
    pub role: GrantRole,
}

/// Reads `GROUP -> PROJECT:ROLE; GROUP -> PROJECT`; without a role it is `member`. None where a part is neither, where a
/// role is none of a project, or where there are more than 100 lines.
pub fn group_rules(text: &str) -> Option<Vec<GroupRule>> {
    let mut rules = Vec::new();
    for line in text.split(';').map(str::trim) {
        if line.is_empty() {
            continue;
        }
        let (group, place) = line.rsplit_once("->")?;
        let (project, role) = match place.trim().split_once(':') {
            Some((project, role)) => (project.trim(), GrantRole::parse(role.trim())?),
            None => (place.trim(), GrantRole::Member),
        };
        let group = group.trim().to_lowercase();
        if group.is_empty() || !role.is_of_project() {
            return None;
        }
        rules.push(GroupRule {
            group,
            project: TenantName::parse(project).ok()?,
            role,
        });
    }
    (rules.len() <= MAX_GROUP_RULES).then_some(rules)
}

/// The role in each project that these groups give; of several in one project the one that may most. Costs the groups
/// times the lines.
pub fn roles_of_groups(groups: &[String], rules: &[GroupRule]) -> BTreeMap<TenantName, GrantRole> {
    let mut roles: BTreeMap<TenantName, GrantRole> = BTreeMap::new();
    for group in groups {
        let whole = group.trim().to_lowercase();
        let first = first_value(&whole);
        for rule in rules {
            if rule.group != whole && Some(rule.group.as_str()) != first {
                continue;
            }
            let held = roles.entry(rule.project.clone()).or_insert(rule.role);
            if rank(rule.role) > rank(*held) {
                *held = rule.role;
            }
        }
    }
    roles
}

/// `staff` of `cn=staff,ou=groups,dc=example`; None of a text that is no distinguished name. A value with an escaped
/// comma is compared by the whole name only.
fn first_value(group: &str) -> Option<&str> {
    let (_, rest) = group.split_once('=')?;
    let value = rest.split_once(',').map_or(rest, |(value, _)| value);
    (!value.contains('\\')).then_some(value.trim())
}

fn rank(role: GrantRole) -> u8 {
    match role {
        GrantRole::Viewer => 0,
        GrantRole::Member => 1,
        GrantRole::Lead => 2,
        GrantRole::Auditor | GrantRole::Administrator => 3,
    }
}

/// What an entry says of whether its account is shut; empty where it says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntryLocks<'a> {
    /// Active Directory: flags, of which the second bit is a disabled account.
    pub user_account_control: &'a str,
    /// Active Directory: steps of 100 nanoseconds since 1601.
    pub account_expires: &'a str,
    /// 389 Directory Server and FreeIPA.
    pub ns_account_lock: &'a str,
    /// OpenLDAP, with its password policy.
    pub pwd_account_locked_time: &'a str,
}

/// Whether a directory says that an account is disabled or expired. One that is locked for a time after wrong passwords is
/// neither.
pub fn is_disabled(locks: EntryLocks<'_>, now: Timestamp) -> bool {
    let flags = locks.user_account_control.trim().parse::<i64>();
    let expires = locks.account_expires.trim().parse::<i64>();
    let expired = expires.is_ok_and(|steps| {
        let since_1970 = steps / STEPS_IN_MILLISECOND - MILLISECONDS_FROM_1601;
        steps > 0 && steps != i64::MAX && since_1970 <= now.as_millis()
    });
    flags.is_ok_and(|flags| flags & 2 != 0)
        || expired
        || locks.ns_account_lock.trim().eq_ignore_ascii_case("TRUE")
        || locks.pwd_account_locked_time.trim() == LOCKED_FOR_GOOD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_directory_is_read_and_nothing_else_is() {
        let url = |text| DirectoryUrl::parse(text).map(|url| (url.encrypted, url.host, url.port));
        assert_eq!(
            url("ldaps://dc1.example"),
            Some((true, "dc1.example".to_owned(), 636))
        );
        assert_eq!(
            url("ldap://10.1.0.4:1389/"),
            Some((false, "10.1.0.4".to_owned(), 1389))
        );
        assert_eq!(
            url("ldap://[::1]:389"),
            Some((false, "::1".to_owned(), 389))
        );
        for bad in [
            "",
            "dc1",
            "http://dc1",
            "ldaps://",
            "ldap://a b",
            "ldap://a:0",
            "ldap://a:x",
            "ldap://a/b",
            "ldap://u@a",
        ] {
            assert_eq!(url(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_typed_name_is_a_value_whatever_it_holds() {
        assert_eq!(filter("(uid=%u)", "mina"), "(uid=mina)");
        assert_eq!(
            filter("(uid=%u)", "*)(uid=*"),
            "(uid=\\2a\\29\\28uid\\3d\\2a)"
        );
        assert_eq!(filter("(uid=%u)", "a\\\0"), "(uid=a\\5c\\00)");
        assert_eq!(filter("(cn=%u)", "é"), "(cn=\\c3\\a9)");
        let bind = bind_name("uid=%u,ou=people,dc=example", "a,ou=admins+x=\"#");
        assert_eq!(
            bind,
            "uid=a\\2cou\\3dadmins\\2bx\\3d\\22\\23,ou=people,dc=example"
        );
        assert_eq!(bind_name("%u@example.org", "mina"), "mina@example.org");
    }

    #[test]
    fn groups_give_roles_of_projects_and_never_more() {
        let rules = group_rules(
            "CN=Vision,OU=G,DC=x -> vision:lead; staff->default; ;pi -> vision : viewer",
        )
        .unwrap();
        let of = |groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            let roles = roles_of_groups(&groups, &rules);
            roles
                .into_iter()
                .map(|(project, role)| format!("{project}:{}", role.word()))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&["cn=vision,ou=g,dc=X"]), ["vision:lead"]);
        assert_eq!(of(&["cn=vision,ou=other,dc=x"]), [""; 0]);
        assert_eq!(
            of(&["cn=Staff,ou=g,dc=x", "pi"]),
            ["default:member", "vision:viewer"]
        );
        assert_eq!(of(&["pi", "cn=vision,ou=g,dc=x"]), ["vision:lead"]);
        for bad in [
            "staff",
            "-> x",
            "a -> X!",
            "a -> x:administrator",
            "a -> x:king",
            "a ->",
        ] {
            assert_eq!(group_rules(bad), None, "{bad}");
        }
        let many = |n: usize| vec!["a -> x"; n].join(";");
        assert!(group_rules(&many(MAX_GROUP_RULES)).is_some());
        assert!(group_rules(&many(MAX_GROUP_RULES + 1)).is_none());
    }

    #[test]
    fn each_kind_of_directory_says_who_is_disabled() {
        let now = Timestamp::from_millis(1_000);
        let none = EntryLocks::default();
        assert!(!is_disabled(none, now));
        let flags = |text| EntryLocks {
            user_account_control: text,
            ..none
        };
        assert!(is_disabled(flags("514"), now));
        assert!(!is_disabled(flags("512"), now));
        let expires = |text| EntryLocks {
            account_expires: text,
            ..none
        };
        // A second after 1970 began, and a millisecond later.
        assert!(is_disabled(expires("116444736010000000"), now));
        assert!(!is_disabled(expires("116444736010010000"), now));
        assert!(is_disabled(expires("1"), now));
        for never in ["0", "9223372036854775807", "-1", "soon"] {
            assert!(!is_disabled(expires(never), now), "{never}");
        }
        let locked = |text| EntryLocks {
            ns_account_lock: text,
            ..none
        };
        assert!(is_disabled(locked("TRUE"), now));
        assert!(is_disabled(locked("true"), now));
        assert!(!is_disabled(locked("FALSE"), now));
        let locked_at = |text| EntryLocks {
            pwd_account_locked_time: text,
            ..none
        };
        assert!(is_disabled(locked_at("000001010000Z"), now));
        assert!(!is_disabled(locked_at("20270115080000Z"), now));
    }
}
