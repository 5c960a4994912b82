//! Users whose password a directory checks (LDAP, Active Directory). The first right password makes the account, each later
//! one brings name, address and roles up to date. Nobody waits for a directory longer than two seconds, and accounts of
//! this site never ask one.

use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::secret::SecretText;
use base::connection_fault;
use base::settings::Settings;
use ldap3::{
    Ldap, LdapConnAsync, LdapConnSettings, LdapError, SearchEntry, SearchOptions, StdStream,
};
use rules::directory::{
    DirectoryUrl, EntryLocks, MAX_GROUPS, bind_name, filter, is_disabled, takes_name,
};
use rules::reason::Reason;
use rules::reasons;
use rules::refusal::RefusalKind;
use rules::refusals;
use rules::units::Timestamp;
use rules::users::{User, UserSource};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::external_user::{ExternalEntry, ExternalRules, take_up};
use super::password::PasswordCheck;
use crate::{Failure, Server};

mod wire;

use wire::DirectoryWire;

/// Seconds after which a sign-in may ask again that a dead directory refused.
const RETRY_SECONDS: u64 = 10;
/// Longest time from the first byte to the answer. Longer: people wait for a directory that is dead. Shorter: one behind a
/// slow line admits nobody.
pub(crate) const MAX_ASKING: Duration = Duration::from_secs(2);
/// Sign-ins that ask at once. More: a dead directory holds more of them for two seconds each. Fewer: a class that signs in
/// at once is told to come back.
const MAX_ASKED_AT_ONCE: usize = 16;
/// Bytes of the password file and of the file with the authority.
const MAX_FILE_BYTES: u64 = 128 << 10;
/// Letters of a name that a directory is asked for.
const MAX_TYPED_NAME: usize = 254;
/// Result codes of a bind (RFC 4511) that say no: wrong credentials, no such entry, none that can be one.
const NOT_ADMITTED: [u32; 6] = [19, 32, 34, 48, 49, 53];

/// Who may ask now.
pub(crate) struct DirectoryTurns(Semaphore);

impl Default for DirectoryTurns {
    fn default() -> Self {
        Self(Semaphore::new(MAX_ASKED_AT_ONCE))
    }
}

/// Why a directory gave no answer about a user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryFault {
    #[error("{}", reasons::connection_file(.0).text)]
    File(String),
    #[error("{}", reasons::connection_name_unknown().text)]
    Unknown,
    #[error("{}", reasons::connection_account_refused(.0).text)]
    Service(u32),
    #[error("{}", reasons::connection_result(.0).text)]
    Answer(u32),
    #[error("the entry has too many groups")]
    TooManyGroups,
    #[error("{}", reasons::connection_too_long().text)]
    TooLong,
    #[error("{}", reasons::connection_timed_out().text)]
    Late,
    #[error("the conversation with the directory was broken off")]
    Broken,
    #[error("{}", connection_fault::told(.0).text)]
    Connection(std::io::Error),
    #[error("{}", of_protocol(.0).text)]
    Protocol(LdapError),
}

// No sources: the sentences have what stands behind them.
impl From<std::io::Error> for DirectoryFault {
    fn from(error: std::io::Error) -> Self {
        Self::Connection(error)
    }
}

impl From<LdapError> for DirectoryFault {
    fn from(error: LdapError) -> Self {
        Self::Protocol(error)
    }
}

fn of_protocol(error: &LdapError) -> Reason {
    match error {
        LdapError::Io { source } => connection_fault::told(source),
        other => reasons::connection_unreadable(base::observe::chain(other)),
    }
}

/// Whether the password of a user went to a directory. From then on a try counts whatever comes back, or nothing: who made a
/// directory slow would have as many guesses as they like.
#[derive(Debug, Clone, Default)]
pub(super) struct PasswordSent(Arc<AtomicBool>);

impl PasswordSent {
    /// To be called just before it goes.
    fn note(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(super) fn was_noted(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// How to ask, with what stands in files.
struct Plan {
    settings: Arc<Settings>,
    url: DirectoryUrl,
    tls: Option<Arc<rustls::ClientConfig>>,
    hosts: String,
    /// Of the service account; empty where each user binds by their own name.
    password: SecretText,
    sent: PasswordSent,
    /// When it was asked.
    now: Timestamp,
}

/// Whether a directory is asked for the password of this user, or of nobody known.
pub(super) fn checks(server: &Server, known: Option<&User>) -> bool {
    server.settings().ldap_url.is_some()
        && known.is_none_or(|user| user.source == UserSource::Directory)
}

/// Whether a name is that of an account that no directory checks, but for its capitals: a slip of its user sends the
/// password of this site to nobody.
pub(super) fn is_near_other(server: &Server, name: &str) -> Result<bool, Failure> {
    let near = server.catalog().read_now("find a user", |view| {
        view.user_named(&name.to_ascii_lowercase())
    })?;
    Ok(near.is_some_and(|user| user.source != UserSource::Directory))
}

/// Whether a failure says nothing about the password.
pub(super) fn said_nothing(failure: &Failure) -> bool {
    match failure {
        Failure::Refusal(refusal) => matches!(
            refusal.kind,
            RefusalKind::FailedDependency | RefusalKind::TooOften
        ),
        Failure::Fault(_) => true,
    }
}

/// The user whom the directory admits by this password, founded or brought up to date. `known` is the account that the name
/// is of here; `sent` says after a failure whether the directory was given the password.
///
/// Errors: `sign-in.wrong`, also for an entry that is disabled; `directory.unreachable` after two seconds;
/// `directory.busy`; `directory.too-many-groups`; `directory.entry-unusable`; `directory.user-removed`; `user.suspended`.
pub(super) async fn admitted(
    server: &Server,
    name: &str,
    password: &SecretText,
    known: Option<&User>,
    sent: &PasswordSent,
) -> Result<User, Failure> {
    // A directory reads blanks, capitals and wide letters as others: each way to write a name would have tries of its own.
    let plain = name.chars().all(|c| c.is_ascii_graphic());
    // An empty password would be no bind at all, and succeed.
    if password.reveal().is_empty() || name.is_empty() || !plain || name.len() > MAX_TYPED_NAME {
        return Err(refusals::sign_in_wrong().into());
    }
    let Ok(_turn) = server.directory_turns().0.try_acquire() else {
        return Err(refusals::directory_busy().retry_after(2).into());
    };
    let asked = (name.to_owned(), Some(password.clone()));
    let entry = match ask_noting(server, asked, sent.clone()).await {
        Ok(Some(entry)) => entry,
        Ok(None) => return Err(refusals::sign_in_wrong().into()),
        Err(DirectoryFault::TooManyGroups) => {
            return Err(refusals::directory_too_many_groups(MAX_GROUPS).into());
        }
        Err(fault) => {
            tracing::warn!(error = %base::observe::chain(&fault), "the directory was asked in vain");
            let refusal = refusals::directory_unreachable();
            return Err(refusal.retry_after(RETRY_SECONDS).into());
        }
    };
    take_up(server, entry, ExternalRules::of(server), known).await
}

/// Whether a password is that of a signed-in user of a directory; `sent` as for `admitted`. Errors: as `admitted`, but for a
/// wrong one.
pub(super) async fn proves(
    server: &Server,
    user: &User,
    password: &SecretText,
    sent: &PasswordSent,
) -> Result<PasswordCheck, Failure> {
    if !checks(server, Some(user)) {
        return Ok(PasswordCheck::Wrong);
    }
    let asked = server
        .catalog()
        .read_now("find a user's entry", |view| view.asked_of(user.id))?;
    let asked = asked.unwrap_or_else(|| user.name.to_string());
    match admitted(server, &asked, password, Some(user), sent).await {
        Ok(_) => Ok(PasswordCheck::Right),
        Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::SIGN_IN_WRONG => {
            Ok(PasswordCheck::Wrong)
        }
        Err(failure) => Err(failure),
    }
}

/// The entry of a name: with a password, of who it is right for; without one, whether it is there. None where it is not,
/// where it is disabled, and where the password is wrong.
pub(crate) async fn ask(
    server: &Server,
    asked: (String, Option<SecretText>),
) -> Result<Option<ExternalEntry>, DirectoryFault> {
    ask_noting(server, asked, PasswordSent::default()).await
}

async fn ask_noting(
    server: &Server,
    (name, password): (String, Option<SecretText>),
    sent: PasswordSent,
) -> Result<Option<ExternalEntry>, DirectoryFault> {
    let (settings, now) = (server.settings(), server.clock().now());
    // A task of its own: what a lying directory sends may break the conversation and nothing else.
    let mut conversation = JoinSet::new();
    conversation.spawn(async move {
        let plan = tokio::task::spawn_blocking(move || plan(settings, sent, now));
        let plan = plan.await.map_err(|_| DirectoryFault::Broken)??;
        converse(&plan, &name, password.as_ref()).await
    });
    match tokio::time::timeout(MAX_ASKING, conversation.join_next()).await {
        Ok(Some(Ok(answer))) => answer,
        Ok(Some(Err(_)) | None) => Err(DirectoryFault::Broken),
        Err(_) => Err(DirectoryFault::Late),
    }
}

/// Asks the directory about `name` and says what is wrong; None where no directory is set. Who is asked for need not be
/// there.
pub(crate) async fn tried(server: &Server, name: &str) -> Option<Result<(), String>> {
    server.settings().ldap_url.as_ref()?;
    Some(match ask(server, (name.to_owned(), None)).await {
        // 0: it was reached, and takes nobody's bind but that of a user with a password.
        Ok(_) | Err(DirectoryFault::Service(0) | DirectoryFault::TooManyGroups) => Ok(()),
        Err(fault) => Err(base::observe::chain(&fault)),
    })
}

/// Reads what stands in files.
fn plan(
    settings: Arc<Settings>,
    sent: PasswordSent,
    now: Timestamp,
) -> Result<Plan, DirectoryFault> {
    let url = settings.ldap_url.as_deref().and_then(DirectoryUrl::parse);
    let url = url.ok_or(DirectoryFault::Unknown)?;
    let unusable = |path: &Path, why: &dyn std::fmt::Display| {
        DirectoryFault::File(format!("{}: {why}", path.display()))
    };
    let read = |path: &Path| {
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| unusable(path, &error))?;
        let mode = file.metadata().map_err(|error| unusable(path, &error))?;
        file.take(MAX_FILE_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| unusable(path, &error))?;
        Ok::<_, DirectoryFault>((text, mode.mode()))
    };
    let password = match &settings.ldap_password_file {
        None => String::new(),
        Some(path) => {
            let (text, mode) = read(path)?;
            if mode & 0o077 != 0 {
                return Err(unusable(path, &"others than its owner may read it"));
            }
            text.lines().next().unwrap_or_default().to_owned()
        }
    };
    let encrypted = url.encrypted || settings.ldap_start_tls;
    let tls = match (encrypted, &settings.ldap_ca_file) {
        (false, _) => None,
        (true, Some(path)) => {
            let (pem, _) = read(path)?;
            let config = base::tls::client::trusting(Some(&pem), false);
            Some(config.map_err(|error| unusable(path, &error))?)
        }
        (true, None) => {
            let config = base::tls::client::trusting(None, true);
            Some(config.map_err(|error| DirectoryFault::File(error.to_string()))?)
        }
    };
    Ok(Plan {
        hosts: std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
        password: SecretText::new(password),
        sent,
        now,
        settings,
        url,
        tls,
    })
}

async fn converse(
    plan: &Plan,
    name: &str,
    password: Option<&SecretText>,
) -> Result<Option<ExternalEntry>, DirectoryFault> {
    let mut wire = DirectoryWire::default();
    let answer = talk(plan, &mut wire, name, password).await;
    match answer {
        Err(_) if wire.was_too_long() => Err(DirectoryFault::TooLong),
        answer => answer,
    }
}

async fn talk(
    plan: &Plan,
    wire: &mut DirectoryWire,
    name: &str,
    password: Option<&SecretText>,
) -> Result<Option<ExternalEntry>, DirectoryFault> {
    let settings = &plan.settings;
    let mut ldap = connect(plan, wire).await?;
    let bind = settings.ldap_bind.as_deref().unwrap_or_default();
    let by_own_name = takes_name(bind);
    match (by_own_name, password) {
        (true, Some(password)) => {
            plan.sent.note();
            if binds(&mut ldap, &bind_name(bind, name), password).await? != 0 {
                return Ok(None);
            }
        }
        // Without a password nobody can be looked for there.
        (true, None) => return Err(DirectoryFault::Service(0)),
        (false, _) if bind.is_empty() => {}
        (false, _) => match binds(&mut ldap, bind, &plan.password).await? {
            0 => {}
            other => return Err(DirectoryFault::Service(other)),
        },
    }
    let Some(found) = find(&mut ldap, settings, name).await? else {
        return Ok(None);
    };
    // An empty name would be no bind at all, and succeed.
    if found.dn.is_empty() {
        return Ok(None);
    }
    // By the entry's own name also where the user bound by the typed one: a directory may read that one as another's.
    if let Some(password) = password {
        plan.sent.note();
        if binds(&mut ldap, &found.dn, password).await? != 0 {
            return Ok(None);
        }
    }
    // The answer is there; a connection that does not end well changes nothing.
    let _ = ldap.unbind().await;
    // Not before: who does not know the password is told nothing of the entry.
    entry(plan, &found, name)
}

/// Opens the connection to the first address that answers.
async fn connect(plan: &Plan, wire: &mut DirectoryWire) -> Result<Ldap, DirectoryFault> {
    let mut last = DirectoryFault::Unknown;
    let mut stream = None;
    for address in base::addresses::of_host(&plan.url.host, &plan.hosts) {
        match TcpStream::connect((address, plan.url.port)).await {
            Ok(opened) => {
                stream = Some(opened);
                break;
            }
            Err(error) => last = error.into(),
        }
    }
    let stream = wire.carry(plan, stream.ok_or(last)?).await?;
    let settings = LdapConnSettings::new().set_std_stream(StdStream::Unix(stream));
    // The address of a stream that is open already is not looked at.
    let (connection, ldap) = LdapConnAsync::with_settings(settings, "ldapi://wire").await?;
    wire.run(async move {
        if let Err(error) = connection.drive().await {
            tracing::debug!(%error, "the connection to the directory ended");
        }
    });
    Ok(ldap)
}

/// Binds; gives the result code, 0 for yes. Errors: a result that is neither yes nor no.
async fn binds(ldap: &mut Ldap, name: &str, password: &SecretText) -> Result<u32, DirectoryFault> {
    let result = ldap.simple_bind(name, password.reveal()).await?;
    match result.rc {
        0 => Ok(0),
        no if NOT_ADMITTED.contains(&no) => Ok(no),
        other => Err(DirectoryFault::Answer(other)),
    }
}

/// The one entry of a name; None where there is none, or more than one.
async fn find(
    ldap: &mut Ldap,
    settings: &Settings,
    name: &str,
) -> Result<Option<SearchEntry>, DirectoryFault> {
    let attributes: Vec<String> = [
        settings.ldap_name.as_str(),
        &settings.ldap_email,
        &settings.ldap_full_name,
        &settings.ldap_member_of,
        "entryUUID",
        "objectGUID",
        "userAccountControl",
        "accountExpires",
        "nsAccountLock",
        "pwdAccountLockedTime",
    ]
    .into_iter()
    .map(|attribute| attribute.trim().to_owned())
    .collect();
    let base = settings.ldap_base.as_deref().unwrap_or_default().trim();
    let filter = filter(settings.ldap_filter.trim(), name);
    let options = SearchOptions::new().sizelimit(2).timelimit(2);
    let ldap3::SearchResult(entries, result) = ldap
        .with_search_options(options)
        .search(base, ldap3::Scope::Subtree, &filter, attributes)
        .await?;
    match result.rc {
        0 => {}
        // More than were asked for, however few a directory gives: it is nobody's name; and no such base.
        4 | 32 => return Ok(None),
        other => return Err(DirectoryFault::Answer(other)),
    }
    let mut entries = entries
        .into_iter()
        .filter(|entry| !entry.is_ref() && !entry.is_intermediate());
    match (entries.next(), entries.next()) {
        (Some(entry), None) => Ok(Some(SearchEntry::construct(entry))),
        _ => Ok(None),
    }
}

/// What a found entry says; None where it is disabled. Errors: too many groups.
fn entry(
    plan: &Plan,
    found: &SearchEntry,
    asked: &str,
) -> Result<Option<ExternalEntry>, DirectoryFault> {
    let values = |attribute: &str| values_of(&found.attrs, attribute);
    let first = |attribute: &str| values(attribute).first().cloned().unwrap_or_default();
    let settings = &plan.settings;
    let locks = EntryLocks {
        user_account_control: &first("userAccountControl"),
        account_expires: &first("accountExpires"),
        ns_account_lock: &first("nsAccountLock"),
        pwd_account_locked_time: &first("pwdAccountLockedTime"),
    };
    if is_disabled(locks, plan.now) {
        return Ok(None);
    }
    let member_of = settings.ldap_member_of.trim();
    // Active Directory gives so many values only in parts, each under a name with its range.
    let in_parts = format!("{};range=", member_of.to_ascii_lowercase());
    let has_parts = |name: &String| name.to_ascii_lowercase().starts_with(&in_parts);
    let groups = values(member_of);
    if groups.len() > MAX_GROUPS || found.attrs.keys().any(has_parts) {
        return Err(DirectoryFault::TooManyGroups);
    }
    let guid = found
        .bin_attrs
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("objectGUID"))
        .and_then(|(_, values)| values.first())
        .map(|bytes| hex(bytes));
    let guid = guid.unwrap_or_else(|| hex(first("objectGUID").as_bytes()));
    let subject = [first("entryUUID").to_lowercase(), guid]
        .into_iter()
        .find(|subject| !subject.is_empty())
        .unwrap_or_else(|| found.dn.to_lowercase());
    Ok(Some(ExternalEntry {
        source: UserSource::Directory,
        asked: asked.to_owned(),
        subject,
        // Letters that look alike stay what they are: no name of this site has them.
        name: first(settings.ldap_name.trim()).to_ascii_lowercase(),
        email: first(settings.ldap_email.trim()),
        full_name: first(settings.ldap_full_name.trim()),
        groups: groups.to_vec(),
    }))
}

/// Values of an attribute, whose name a directory may write in other letters.
fn values_of<'a>(attributes: &'a HashMap<String, Vec<String>>, name: &str) -> &'a [String] {
    attributes
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map_or(&[][..], |(_, values)| values.as_slice())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod tests;
