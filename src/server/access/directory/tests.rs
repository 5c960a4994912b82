//! Sign-ins by a directory that answers, lies, or is dead: a small one, written here.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rules::grants::{Grant, GrantRole, GrantScope, HeldGrant};
use rules::tenancy::ProjectId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::tests::{GOOD, HERE, with_settings};
use super::super::{NewSignIn, sign_in};
use super::*;
use crate::catalog::Lane;
use crate::code;

const SECRET: &str = "of the service";

#[derive(Clone)]
pub(crate) struct TestEntry {
    name: &'static str,
    password: &'static str,
    attributes: Vec<(&'static str, Vec<String>)>,
}

pub(crate) type TestEntries = Arc<Mutex<Vec<TestEntry>>>;

pub(crate) fn entry_of(name: &'static str, password: &'static str, groups: &[&str]) -> TestEntry {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    TestEntry {
        name,
        password,
        attributes: vec![
            ("UID", vec![name.to_owned()]),
            ("mail", vec![format!("{name}@example.org")]),
            ("cn", vec![format!("{name} of the directory")]),
            ("entryUUID", vec![format!("id-of-{name}")]),
            ("memberOf", groups),
        ],
    }
}

/// Its bind is never answered.
const SLOW: &str = "slow";
/// What a search finds of it comes a byte at a time.
const DRIPPING: &str = "dripping";
/// Between two of those bytes: the whole takes many times as long as a sign-in may.
const DRIP: Duration = Duration::from_millis(50);
/// How much later than it should a loaded machine may tell that the time is over: who waits for a second try is later.
const LATE: Duration = MAX_ASKING;
/// A search that finds it fails.
const BROKEN: &str = "broken";

/// The entry, which the directory cannot read.
pub(crate) fn broken(mut entry: TestEntry) -> TestEntry {
    entry.attributes.push((BROKEN, Vec::new()));
    entry
}

impl TestEntry {
    fn is(&self, mark: &str) -> bool {
        self.attributes.iter().any(|(name, _)| *name == mark)
    }
}

/// One element of BER: its tag, the length in four bytes, what is in it.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag, 0x84];
    bytes.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
    bytes.extend(content);
    bytes
}

/// The tag, the content, and what follows.
fn first(bytes: &[u8]) -> (u8, &[u8], &[u8]) {
    let (tag, short) = (bytes[0], usize::from(bytes[1]));
    let (start, length) = match short {
        0..128 => (2, short),
        more => {
            let end = 2 + (more - 128);
            let length = bytes[2..end].iter();
            (
                end,
                length.fold(0, |sum, byte| sum * 256 + usize::from(*byte)),
            )
        }
    };
    (tag, &bytes[start..start + length], &bytes[start + length..])
}

async fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 2];
    stream.read_exact(&mut bytes).await.ok()?;
    let mut length = usize::from(bytes[1]);
    if length >= 128 {
        let mut more = vec![0; length - 128];
        stream.read_exact(&mut more).await.ok()?;
        length = more
            .iter()
            .fold(0, |sum, byte| sum * 256 + usize::from(*byte));
        bytes.extend(more);
    }
    let mut content = vec![0; length];
    stream.read_exact(&mut content).await.ok()?;
    bytes.extend(content);
    Some(bytes)
}

fn result(tag: u8, code: u8) -> Vec<u8> {
    let content = [element(0x0a, &[code]), element(4, b""), element(4, b"")];
    element(tag, &content.concat())
}

fn found(entry: &TestEntry) -> Vec<u8> {
    let attributes: Vec<u8> = entry
        .attributes
        .iter()
        .flat_map(|(name, values)| {
            let values: Vec<u8> = values
                .iter()
                .flat_map(|value| element(4, value.as_bytes()))
                .collect();
            element(
                0x30,
                &[element(4, name.as_bytes()), element(0x31, &values)].concat(),
            )
        })
        .collect();
    let dn = format!("uid={},dc=x", entry.name);
    element(
        0x64,
        &[element(4, dn.as_bytes()), element(0x30, &attributes)].concat(),
    )
}

async fn serve(mut stream: TcpStream, entries: TestEntries) {
    while let Some(bytes) = message(&mut stream).await {
        let (_, content, _) = first(&bytes);
        let (_, id, rest) = first(content);
        let (tag, operation, _) = first(rest);
        let known = entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut is_dripping = false;
        let answers = match tag {
            0x60 => {
                let (_, _, rest) = first(operation);
                let (_, name, rest) = first(rest);
                let (_, password, _) = first(rest);
                let named =
                    |entry: &TestEntry| name == format!("uid={},dc=x", entry.name).as_bytes();
                if known.iter().any(|entry| entry.is(SLOW) && named(entry)) {
                    std::future::pending::<()>().await;
                }
                let own = known
                    .iter()
                    .any(|entry| named(entry) && password == entry.password.as_bytes());
                let service = name == b"cn=service" && password == SECRET.as_bytes();
                vec![result(0x61, if own || service { 0 } else { 49 })]
            }
            0x63 => {
                let asked = |entry: &&TestEntry| {
                    let mut wanted = vec![4, 3, b'u', b'i', b'd', 4];
                    wanted.push(u8::try_from(entry.name.len()).unwrap());
                    wanted.extend(entry.name.as_bytes());
                    // As a directory compares names.
                    operation
                        .to_ascii_lowercase()
                        .windows(wanted.len())
                        .any(|window| window == wanted)
                };
                let asked: Vec<&TestEntry> = known.iter().filter(asked).collect();
                let code = u8::from(asked.iter().any(|entry| entry.is(BROKEN)));
                is_dripping = asked.iter().any(|entry| entry.is(DRIPPING));
                let mut answers: Vec<Vec<u8>> = asked.into_iter().map(found).collect();
                answers.push(result(0x65, code));
                answers
            }
            // It knows no StartTLS, and goes on unencrypted with whoever does.
            0x77 => vec![result(0x78, 52)],
            _ => return,
        };
        for answer in answers {
            let message = element(0x30, &[element(2, id), answer].concat());
            let piece = if is_dripping { 1 } else { message.len() };
            for bytes in message.chunks(piece) {
                if is_dripping {
                    tokio::time::sleep(DRIP).await;
                }
                if stream.write_all(bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// A directory with these entries; gives its port.
pub(crate) async fn directory(entries: &TestEntries) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let entries = Arc::clone(entries);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&entries)));
        }
    });
    port
}

/// A server that asks the directory at `port`, with the local administrator mina.
pub(crate) async fn asking(folder: &Path, port: u16) -> Server {
    asking_over(folder, port, false).await
}

async fn asking_over(folder: &Path, port: u16, start_tls: bool) -> Server {
    let password = folder.join("password");
    std::fs::write(&password, format!("{SECRET}\n")).unwrap();
    let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&password, only_owner).unwrap();
    let text = format!(
        "ldap_url = 'ldap://127.0.0.1:{port}'\n\
         ldap_start_tls = {start_tls}\n\
         ldap_base = 'dc=x'\n\
         ldap_bind = 'cn=service'\n\
         ldap_password_file = '{}'\n\
         ldap_groups = 'heads -> default:lead; staff -> default:member'\n",
        password.display(),
    );
    std::fs::write(folder.join("fardel.toml"), text).unwrap();
    with_settings(folder).await.0
}

pub(crate) async fn by(server: &Server, name: &str, password: &str) -> Result<NewSignIn, Failure> {
    sign_in(server, name, password, HERE).await
}

pub(crate) fn role(server: &Server, name: &str) -> Option<GrantRole> {
    let scope = GrantScope::Project(ProjectId::DEFAULT);
    let user = server
        .catalog()
        .read_now("look at a user", |view| view.user_named(name))
        .unwrap()
        .unwrap();
    let held = user.grants.iter().find(|held| held.grant.scope == scope);
    held.map(|held| held.grant.role)
}

/// The first right password makes the account of a user of a directory; each later one brings
/// name, address and roles up to date. Local accounts sign in by their own passwords.
#[tokio::test]
async fn a_directory_admits_founds_and_renews_its_users() {
    let entries = TestEntries::default();
    *entries.lock().unwrap() = vec![entry_of("kim", "of kim", &["cn=staff,dc=x"])];
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    assert_eq!(code(by(&server, "kim", "wrong").await), "sign-in.wrong");
    assert_eq!(code(by(&server, "kim", "").await), "sign-in.wrong");
    assert_eq!(code(by(&server, "*", "of kim").await), "sign-in.wrong");
    assert_eq!(code(by(&server, "kim ", "of kim").await), "sign-in.wrong");
    let signed_in = by(&server, "kim", "of kim").await.unwrap();
    let first = signed_in.caller.subject.user;
    assert_eq!(role(&server, "kim"), Some(GrantRole::Member));
    *entries.lock().unwrap() = vec![entry_of("kim", "of kim", &["cn=staff,dc=x", "heads"])];
    let again = by(&server, "kim", "of kim").await.unwrap();
    assert_eq!(again.caller.subject.user, first);
    assert_eq!(role(&server, "kim"), Some(GrantRole::Lead));
    *entries.lock().unwrap() = vec![entry_of("kim", "of kim", &[])];
    by(&server, "kim", "of kim").await.unwrap();
    assert_eq!(role(&server, "kim"), None);
    assert_eq!(code(by(&server, "mina", GOOD).await), "done");
    assert_eq!(tried(&server, "mina").await, Some(Ok(())));
    // Another entry by the same name is another user, and gets nothing of the first one's.
    let mut other = entry_of("kim", "of another", &["heads"]);
    other.attributes[3].1 = vec!["id-of-another".to_owned()];
    *entries.lock().unwrap() = vec![other];
    assert_eq!(
        code(by(&server, "kim", "of another").await),
        "sign-in.wrong"
    );
}

#[tokio::test]
async fn who_vanished_is_disabled_or_has_too_many_groups_is_refused() {
    let entries = TestEntries::default();
    let mut off = entry_of("lee", "of lee", &[]);
    off.attributes
        .push(("userAccountControl", vec!["514".to_owned()]));
    let many = vec!["cn=g,dc=x"; MAX_GROUPS + 1];
    let local = entry_of("mina", "of the other mina", &[]);
    let all = vec![
        off,
        entry_of("park", "of park", &many),
        entry_of("kim", "of kim", &[]),
        local,
    ];
    *entries.lock().unwrap() = all;
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    assert_eq!(code(by(&server, "lee", "of lee").await), "sign-in.wrong");
    for (attribute, value) in [
        ("nsAccountLock", "TRUE"),
        ("pwdAccountLockedTime", "000001010000Z"),
        ("accountExpires", "116444736010000000"),
    ] {
        let mut shut = entry_of("choi", "of choi", &[]);
        shut.attributes.push((attribute, vec![value.to_owned()]));
        entries.lock().unwrap().push(shut);
        let refused = code(by(&server, "choi", "of choi").await);
        assert_eq!(refused, "sign-in.wrong", "{attribute}");
        entries.lock().unwrap().pop();
    }
    let guessed = code(by(&server, "park", "wrong").await);
    assert_eq!(guessed, "sign-in.wrong", "a guesser is told nothing");
    let park = code(by(&server, "park", "of park").await);
    assert_eq!(park, rules::codes::DIRECTORY_TOO_MANY_GROUPS);
    // A local account is never another's.
    for name in ["mina", "Mina"] {
        let mina = code(by(&server, name, "of the other mina").await);
        assert_eq!(mina, "sign-in.wrong", "{name}");
    }
    assert_eq!(code(by(&server, "kim", "of kim").await), "done");
    entries.lock().unwrap().clear();
    assert_eq!(code(by(&server, "kim", "of kim").await), "sign-in.wrong");
}

/// A role that somebody gave for a time lasts while a group gives it, and a name that belongs to a part of the server, or
/// only looks like one of this site, makes no account.
#[tokio::test]
async fn a_group_gives_its_role_for_good_and_no_entry_a_reserved_name() {
    let entries = TestEntries::default();
    let named = |asked, name: &str| {
        let mut entry = entry_of(asked, "good", &[]);
        entry.attributes[0].1 = vec![name.to_owned()];
        entry
    };
    let all = vec![
        entry_of("kim", "of kim", &["staff"]),
        named("lee", "system"),
        named("park", "\u{212a}ira"),
    ];
    *entries.lock().unwrap() = all;
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    let kim = by(&server, "kim", "of kim").await.unwrap();
    let id = kim.caller.subject.user;
    let for_a_time = HeldGrant {
        grant: Grant {
            role: GrantRole::Member,
            scope: GrantScope::Project(ProjectId::DEFAULT),
        },
        expires_at: Some(server.clock().now().plus_seconds(60)),
    };
    let write = move |rows: &crate::catalog::Rows<'_>| rows.put_grant(id, &for_a_time);
    let catalog = server.catalog();
    catalog
        .write(Lane::Requests, "give a role", write)
        .await
        .unwrap();
    by(&server, "kim", "of kim").await.unwrap();
    let user = catalog.read_now("look at a user", |view| view.user(id));
    let grants = user.unwrap().unwrap().grants;
    let held = grants.iter().find(|held| held.grant == for_a_time.grant);
    assert_eq!(held.map(|held| held.expires_at), Some(None));
    for name in ["lee", "park"] {
        let refused = code(by(&server, name, "good").await);
        assert_eq!(refused, rules::codes::DIRECTORY_ENTRY_UNUSABLE, "{name}");
    }
}

/// Whom an administrator removed, the directory does not bring back as a new account.
#[tokio::test]
async fn who_was_removed_here_does_not_come_back_by_the_directory() {
    let entries = TestEntries::default();
    *entries.lock().unwrap() = vec![entry_of("kim", "of kim", &[])];
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    let kim = by(&server, "kim", "of kim").await.unwrap();
    let id = kim.caller.subject.user;
    server
        .catalog()
        .write(Lane::Requests, "remove a user", move |rows| {
            rows.remove_user(id)
        })
        .await
        .unwrap();
    let refused = code(by(&server, "kim", "of kim").await);
    assert_eq!(refused, rules::codes::DIRECTORY_USER_REMOVED);
    // Somebody else who has the name in the directory by now is another user.
    let mut other = entry_of("kim", "of another", &[]);
    other.attributes[3].1 = vec!["id-of-another".to_owned()];
    *entries.lock().unwrap() = vec![other];
    let another = by(&server, "kim", "of another").await.unwrap();
    assert_ne!(another.caller.subject.user, id);
}

/// Where TLS is wanted no password crosses the network without it, whatever a directory answers; and one that sends more
/// than an entry can be is not read to its end.
#[tokio::test]
async fn a_directory_without_tls_or_without_an_end_admits_nobody() {
    let entries = TestEntries::default();
    *entries.lock().unwrap() = vec![entry_of("kim", "of kim", &[])];
    let port = directory(&entries).await;
    let folder = tempfile::tempdir().unwrap();
    let server = asking_over(folder.path(), port, true).await;
    let refused = code(by(&server, "kim", "of kim").await);
    assert_eq!(refused, rules::codes::DIRECTORY_UNREACHABLE);
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), port).await;
    assert_eq!(code(by(&server, "kim", "of kim").await), "done");
    let long = "x".repeat(5 << 20);
    *entries.lock().unwrap() = vec![entry_of("kim", "of kim", &[long.as_str()])];
    let refused = code(by(&server, "kim", "of kim").await);
    assert_eq!(refused, rules::codes::DIRECTORY_UNREACHABLE);
    let asked = ("kim".to_owned(), None);
    let answer = ask(&server, asked).await;
    assert!(matches!(answer, Err(DirectoryFault::TooLong)), "{answer:?}");
}

/// A directory that does not answer keeps nobody waiting for more than two seconds, and no
/// local account out.
#[tokio::test]
async fn a_dead_directory_keeps_nobody_waiting_and_no_local_account_out() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = asking(folder.path(), port).await;
    let begun = Instant::now();
    let refused = code(by(&server, "kim", "of kim").await);
    assert_eq!(refused, rules::codes::DIRECTORY_UNREACHABLE);
    assert!(begun.elapsed() < MAX_ASKING + LATE, "{:?}", begun.elapsed());
    let Err(Failure::Refusal(refusal)) = by(&server, "kim", "of kim").await else {
        panic!("a dead directory admits nobody");
    };
    assert_eq!(refusal.kind, RefusalKind::FailedDependency);
    assert_eq!(refusal.retry_after_seconds, Some(RETRY_SECONDS));
    assert_eq!(code(by(&server, "mina", GOOD).await), "done");
    // A trial is an answer, whatever comes of it.
    assert!(tried(&server, "mina").await.unwrap().is_err());
    drop(listener);
    let refused = code(by(&server, "kim", "of kim").await);
    assert_eq!(refused, rules::codes::DIRECTORY_UNREACHABLE);
}

/// A directory that always sends something and never comes to an end holds a sign-in no longer than one that is silent.
#[tokio::test]
async fn a_dripping_directory_holds_a_sign_in_no_longer_and_no_local_account_out() {
    let entries = TestEntries::default();
    let mut kim = entry_of("kim", "of kim", &[]);
    kim.attributes.push((DRIPPING, Vec::new()));
    *entries.lock().unwrap() = vec![kim, entry_of("lee", "of lee", &[])];
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    let begun = Instant::now();
    let refused = code(by(&server, "kim", "of kim").await);
    assert_eq!(refused, rules::codes::DIRECTORY_UNREACHABLE);
    let took = begun.elapsed();
    assert!(took >= MAX_ASKING / 2, "it did not drip: {took:?}");
    assert!(took < MAX_ASKING * 2, "{took:?}");
    assert_eq!(code(by(&server, "mina", GOOD).await), "done");
    assert_eq!(code(by(&server, "lee", "of lee").await), "done");
    let asked = ask(&server, ("kim".to_owned(), None)).await;
    assert!(matches!(asked, Err(DirectoryFault::Late)), "{asked:?}");
}

/// Groups within groups are not followed, so that a circle of them is none here: what the directory says of the entry itself
/// counts.
#[tokio::test]
async fn a_circle_of_groups_gives_the_role_of_the_own_group_alone() {
    let entries = TestEntries::default();
    *entries.lock().unwrap() = vec![
        entry_of("kim", "of kim", &["cn=staff,dc=x"]),
        entry_of("staff", "of no user", &["cn=heads,dc=x"]),
        entry_of("heads", "of no user", &["cn=staff,dc=x", "cn=heads,dc=x"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    let begun = Instant::now();
    for _ in 0..2 {
        by(&server, "kim", "of kim").await.unwrap();
        assert_eq!(role(&server, "kim"), Some(GrantRole::Member));
    }
    let took = begun.elapsed();
    assert!(took < MAX_ASKING * 2, "{took:?}");
    // Named by the entry itself, the other one counts as well.
    let both = ["cn=staff,dc=x", "cn=heads,dc=x"];
    entries.lock().unwrap()[0] = entry_of("kim", "of kim", &both);
    by(&server, "kim", "of kim").await.unwrap();
    assert_eq!(role(&server, "kim"), Some(GrantRole::Lead));
}

/// A hundred thousand groups are refused like a thousand and one, and the account that was there stays as it was.
#[tokio::test]
async fn a_hundred_thousand_groups_of_one_entry_are_refused_and_change_nothing() {
    let entries = TestEntries::default();
    *entries.lock().unwrap() = vec![entry_of("kim", "of kim", &["staff"])];
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    by(&server, "kim", "of kim").await.unwrap();
    let many: Vec<String> = (0..100_000).map(|number| format!("cn=g{number}")).collect();
    let mut kim = entry_of("kim", "of kim", &["heads"]);
    kim.attributes[4].1.extend(many);
    *entries.lock().unwrap() = vec![kim];
    let begun = Instant::now();
    let refused = code(by(&server, "kim", "of kim").await);
    assert_eq!(refused, rules::codes::DIRECTORY_TOO_MANY_GROUPS);
    let took = begun.elapsed();
    assert!(took < MAX_ASKING * 2, "{took:?}");
    assert_eq!(role(&server, "kim"), Some(GrantRole::Member));
    assert_eq!(code(by(&server, "mina", GOOD).await), "done");
}

/// Guesses wait as others do where a directory is slow to say no: once it has the password, a try counts.
#[tokio::test]
async fn guesses_at_a_slow_directory_count() {
    let entries = TestEntries::default();
    let mut kim = entry_of("kim", "of kim", &[]);
    kim.attributes.push((SLOW, Vec::new()));
    *entries.lock().unwrap() = vec![kim];
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    let mut guesses = JoinSet::new();
    for _ in 0..6 {
        let server = server.clone();
        guesses.spawn(async move { code(by(&server, "kim", "wrong").await) });
    }
    for guess in guesses.join_all().await {
        assert_eq!(guess, rules::codes::DIRECTORY_UNREACHABLE);
    }
    let next = code(by(&server, "kim", "wrong").await);
    assert_eq!(next, rules::codes::SIGN_IN_LOCKED);
}

/// A directory that never had the password makes no try a failed one.
#[tokio::test]
async fn tries_at_a_dead_directory_do_not_count() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = asking(folder.path(), port).await;
    drop(listener);
    for _ in 0..8 {
        let refused = code(by(&server, "kim", "wrong").await);
        assert_eq!(refused, rules::codes::DIRECTORY_UNREACHABLE);
    }
}
