//! Typed identifiers and the names users give to things. Parsing happens here once; behind the
//! door no code checks a name again. Never makes an id out of thin air: time and random bytes are arguments.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::refusal::Refusal;
use crate::refusals;
use crate::units::Timestamp;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $invalid:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Makes a UUIDv7 from a time and ten random bytes; ids made later sort later.
            pub fn make(now: Timestamp, random: [u8; 10]) -> Self {
                let millis = u64::try_from(now.as_millis()).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = Refusal;
            fn from_str(text: &str) -> Result<Self, Refusal> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| refusals::$invalid())
            }
        }
    };
}

id!(/// One session, for its whole life and all its restarts.
    SessionId, session_id_invalid);
id!(/// One user or robot with a sign-in.
    UserId, user_id_invalid);
id!(/// One machine that runs containers.
    NodeId, node_id_invalid);
id!(/// One imported environment image.
    ImageId, image_id_invalid);
id!(/// One API token.
    TokenId, token_id_invalid);
id!(/// One public key that a user signs in with over SSH.
    SshKeyId, ssh_key_id_invalid);
id!(/// One long-running piece of work, such as an import.
    OperationId, operation_id_invalid);
id!(/// One roster that was taken in.
    RosterId, roster_id_invalid);
id!(/// One policy: a named set of limits.
    PolicyId, policy_id_invalid);
id!(/// One allowance: limits that are raised for a while.
    AllowanceId, allowance_id_invalid);
id!(/// One budget: GPU-hours of a project or a user.
    BudgetId, budget_id_invalid);
id!(/// One preset: amounts with a name.
    PresetId, preset_id_invalid);
id!(/// One folder: a directory that outlives sessions.
    FolderId, folder_id_invalid);
id!(/// One share of a folder, with a user or a project.
    FolderShareId, folder_share_id_invalid);
id!(/// One app that its owner shares with a user or a project.
    AppShareId, app_share_id_invalid);
id!(/// One volume: a mounted file system that folders lie on.
    VolumeId, volume_id_invalid);
id!(/// One course: a project with a term.
    CourseId, course_id_invalid);
id!(/// One link by which accounts join a project.
    InvitationId, invitation_id_invalid);
id!(/// One request of a stranger for an account.
    SignUpId, sign_up_id_invalid);
id!(/// One act of an administrator that waits for a second one.
    ApprovalId, approval_id_invalid);
id!(/// One look of an administrator into what is another user's.
    BreakGlassId, break_glass_id_invalid);
id!(/// One announcement.
    AnnouncementId, announcement_id_invalid);
id!(/// One address outside that is told of events.
    WebhookId, webhook_id_invalid);
id!(/// One rule that ends idle sessions.
    IdleRuleId, idle_rule_id_invalid);
id!(/// One reservation, with all its weeks.
    ReservationId, reservation_id_invalid);
id!(/// One resumable upload.
    UploadId, upload_id_invalid);
id!(/// One resource group: nodes that serve sessions of their own.
    ResourceGroupId, resource_group_id_invalid);
id!(/// One start of a machine's operating system.
    BootId, boot_id_invalid);
id!(/// One answer of a machine's watchdog to one container.
    IncidentId, incident_id_invalid);

/// Names one container: a session, which of its starts this is, and which of its containers. A restart gets
/// the next incarnation, so a start can never be doubled.
///
/// As text `SESSION-INCARNATION`, and `SESSION-INCARNATION-INDEX` for all but the main container: names
/// without an index stand on disk and in cgroups since the first version, and a running supervisor keeps its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerName {
    pub session: SessionId,
    pub incarnation: u32,
    /// 0 is the main container.
    pub index: u32,
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.session.0.simple(), self.incarnation)?;
        match self.index {
            0 => Ok(()),
            index => write!(f, "-{index}"),
        }
    }
}

impl FromStr for ContainerName {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let wrong = || refusals::container_name_invalid();
        let (session, incarnation) = text.split_once('-').ok_or_else(wrong)?;
        if session.len() != 32 {
            return Err(wrong());
        }
        let (incarnation, index) = match incarnation.split_once('-') {
            None => (incarnation, 0),
            // One spelling each: the main container has no index in its name.
            Some((incarnation, text)) => match text.parse::<u32>() {
                Ok(index @ 1..) if index.to_string() == text => (incarnation, index),
                _ => return Err(wrong()),
            },
        };
        Ok(Self {
            session: SessionId(Uuid::try_parse(session).map_err(|_| wrong())?),
            incarnation: incarnation.parse().map_err(|_| wrong())?,
            index,
        })
    }
}

impl TryFrom<String> for ContainerName {
    type Error = Refusal;
    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<ContainerName> for String {
    fn from(name: ContainerName) -> String {
        name.to_string()
    }
}

/// Longest name of a session, in characters: it is also the host name inside (RFC 1123 label).
pub const MAX_NAME_LENGTH: usize = 63;

/// The name a user gives a session: letters, digits and hyphens, a letter or digit at both ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SessionName(String);

impl SessionName {
    /// Checks and keeps a name; upper case is kept as typed.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        label(text).map(Self)
    }

    /// The name of a session that is only thought of.
    pub(crate) fn drafted() -> Self {
        Self("new".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the `number`-th of `replicas`; the name itself where there is one.
    pub fn replica(&self, number: u32, replicas: u32) -> Result<Self, Refusal> {
        if replicas <= 1 {
            return Ok(self.clone());
        }
        Self::parse(&format!("{}-{number}", self.0))
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! read_by_parsing {
    ($name:ident) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

read_by_parsing!(SessionName);
read_by_parsing!(UserName);
read_by_parsing!(TenantName);
read_by_parsing!(EmailAddress);

/// The name a user signs in with: lower-case letters, digits, `.`, `_`, `-`; at most 63.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct UserName(String);

/// The part that puts sessions on hold for which a hard budget has no room.
pub const BUDGETS: &str = "budgets";

/// What parts of the server are called where they act by themselves. No new user is called so: their acts would be taken for
/// those of the server.
pub const PARTS_OF_SERVER: [&str; 14] = [
    "access",
    BUDGETS,
    "controller",
    "courses",
    "idle-rules",
    "limits",
    "node",
    "reservations",
    "restore",
    "retention",
    "schedule",
    "scheduler",
    "server",
    "system",
];

impl UserName {
    /// The name of a new user.
    ///
    /// Errors: `user.name-invalid`, `user.name-reserved`.
    pub fn of_new_user(text: &str) -> Result<Self, Refusal> {
        let name = Self::parse(text)?;
        name.for_new_user()?;
        Ok(name)
    }

    /// Whether a new user may be called so. Errors: `user.name-reserved`.
    pub fn for_new_user(&self) -> Result<(), Refusal> {
        match PARTS_OF_SERVER.contains(&self.as_str()) {
            true => Err(refusals::user_name_reserved(self).at("/name")),
            false => Ok(()),
        }
    }

    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let good = !text.is_empty()
            && text.len() <= MAX_NAME_LENGTH
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c))
            && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err(refusals::user_name_invalid().at("/name"))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An address of electronic mail, in lower case: ASCII, at most 254 letters, one `@` with something on both sides.
/// Proves nothing about whose it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EmailAddress(String);

/// Letters of an address.
///
/// Source: RFC 5321 section 4.5.3.1.3, without its angle brackets.
const MAX_EMAIL_LENGTH: usize = 254;

impl EmailAddress {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let text = text.to_ascii_lowercase();
        let letter = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
        let good = text.len() <= MAX_EMAIL_LENGTH
            && text.split_once('@').is_some_and(|(local, host)| {
                !local.is_empty()
                    && local.chars().all(letter)
                    && !host.is_empty()
                    && host
                        .split('.')
                        .all(|part| label(part).is_ok() && !part.is_empty())
            });
        match good {
            true => Ok(Self(text)),
            false => Err(refusals::user_email_invalid().at("/email")),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands in front of the `@`, as a user name where it can be one.
    pub fn handle(&self) -> Option<UserName> {
        let local = self.0.split('@').next()?;
        UserName::parse(local).ok()
    }
}

impl fmt::Display for EmailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a domain or a project: the letters of a user name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TenantName(String);

impl TenantName {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        match UserName::parse(text) {
            Ok(name) => Ok(Self(name.0)),
            Err(_) => Err(refusals::tenant_name_invalid().at("/name")),
        }
    }

    /// What the first project of a domain is called; its users begin there.
    pub fn first_project() -> Self {
        Self("default".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn label(text: &str) -> Result<String, Refusal> {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let good = text.len() <= MAX_NAME_LENGTH
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && edge(text.chars().next())
        && edge(text.chars().last());
    if good {
        Ok(text.to_owned())
    } else {
        Err(refusals::session_name_invalid().at("/name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_name_survives_its_text() {
        for index in [0, 1, 19] {
            let name = ContainerName {
                session: SessionId::make(Timestamp::from_millis(1_700_000_000_000), [7; 10]),
                incarnation: 3,
                index,
            };
            assert_eq!(name.to_string().parse::<ContainerName>().ok(), Some(name));
        }
    }

    #[test]
    fn a_name_without_an_index_is_the_main_container_as_it_was_before_there_were_indexes() {
        let before = "0188bc5f36807777b5f1aa0707070707-3";
        let name: ContainerName = before.parse().expect("a name of the first version");
        assert_eq!((name.incarnation, name.index), (3, 0));
        assert_eq!(name.to_string(), before);
        for bad in ["-0", "-01", "-+1", "-1-1", "-", "-x"] {
            let text = format!("{before}{bad}");
            assert!(text.parse::<ContainerName>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_part_of_the_server_gives_its_name_to_no_new_user() {
        for part in PARTS_OF_SERVER {
            let refused = UserName::of_new_user(part).map_err(|refusal| refusal.code);
            assert_eq!(refused, Err("user.name-reserved".to_owned()));
            assert!(UserName::parse(part).is_ok(), "one who was there before");
        }
        assert!(UserName::of_new_user("system2").is_ok());
        assert!(UserName::of_new_user("System").is_err());
    }

    #[test]
    fn hostile_names_are_refused() {
        for bad in [
            "",
            "-a",
            "a-",
            "a b",
            "../x",
            "a\0b",
            "\u{202e}abc",
            &"x".repeat(64),
            "é",
        ] {
            assert!(SessionName::parse(bad).is_err(), "{bad:?} was taken");
        }
        assert!(SessionName::parse("vit-ablation-2").is_ok());
    }
}
