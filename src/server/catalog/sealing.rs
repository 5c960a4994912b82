//! Values that cannot be read out of a file of the catalog: environments of sessions, what machines are told of
//! them, answers kept for keys, secrets of second factors, of access keys and of the host key, what sessions of a user
//! start with. They are sealed on their way into a row and opened on their way out, with a key that lies in a file of
//! its own beside the catalog. Knows nothing of what the values mean.
//!
//! A sealed value is `s1:` and, in base64, a nonce of 12 bytes, the text under ChaCha20-Poly1305, and a tag
//! of 16 bytes. The tag also covers whose value it is, so that rows cannot be swapped. A plain value is JSON
//! and never begins so.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::observe::{Clock, random};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use rules::messages::Assignment;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::Session;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _};
use serde::de::DeserializeOwned;

use super::request_key::RequestKey as AnswerKey;
use super::{CatalogPlace, files, value};
use crate::Failure;

/// The keys of this box, one a line in hexadecimal. A restored backup brings its own beside them.
pub(crate) const KEY_FILE: &str = "seal.key";
/// Keys in one file. Each restore of another box's backup adds one, and none ever leaves: a catalog kept
/// aside needs its own. Higher: nothing is gained. Lower: a box that is restored often refuses a restore.
const MAX_KEYS: usize = 256;
/// Rows sealed in one commit when a catalog of an earlier version is opened. Higher: a kill in between loses
/// more work. Lower: more syncs to disk before the server answers.
const MAX_SEAL_BATCH: u32 = 500;
const KEY: usize = 32;
/// In front of a sealed value.
const MARK: &str = "s1:";
/// Bytes that sealing adds to a text, before base64.
pub(super) const ADDED: usize = NONCE_LEN + 16 + MARK.len() + 1;

pub(crate) const MISSING: &str = rules::codes::STATE_KEY_MISSING;
pub(crate) const FOREIGN: &str = rules::codes::STATE_KEY_FOREIGN;
pub(crate) const UNREADABLE: &str = rules::codes::STATE_KEY_UNREADABLE;
/// All that can be wrong with the key.
pub(crate) const CODES: [&str; 3] = [MISSING, FOREIGN, UNREADABLE];

/// A sealed value was changed, or stands in the row of another.
#[derive(Debug, thiserror::Error)]
#[error("a sealed value is not what was sealed in its row")]
pub(super) struct SealBroken;

/// Whose value it is; covered by the tag.
pub(super) enum SealedRow<'a> {
    Session(&'a [u8; 16]),
    Node(&'a [u8; 16]),
    Answer(&'a AnswerKey),
    SecondFactor(&'a [u8; 16]),
    AccessKey(&'a [u8; 16]),
    Webhook(&'a [u8; 16]),
    /// The one key by which this box is known over SSH.
    SshHostKey,
    /// Of what a user's sessions start with, one by its kind and name.
    StartUp {
        user: &'a [u8; 16],
        kind: &'static str,
        name: &'a str,
    },
}

impl SealedRow<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Session(id) => [b"session ".as_slice(), id.as_slice()].concat(),
            Self::Node(id) => [b"node ".as_slice(), id.as_slice()].concat(),
            Self::SecondFactor(user) => [b"second factor ".as_slice(), user.as_slice()].concat(),
            Self::AccessKey(token) => [b"access key ".as_slice(), token.as_slice()].concat(),
            Self::Webhook(id) => [b"webhook ".as_slice(), id.as_slice()].concat(),
            Self::SshHostKey => b"ssh host key".to_vec(),
            // Neither kinds nor names have a line break.
            Self::StartUp { user, kind, name } => {
                let named = format!("{kind}\n{name}");
                [b"start-up ".as_slice(), user.as_slice(), named.as_bytes()].concat()
            }
            // Routes have no line break.
            Self::Answer(key) => {
                let name = format!("{}\n{}", key.route, key.key);
                [
                    b"answer ",
                    key.principal.0.as_bytes().as_slice(),
                    name.as_bytes(),
                ]
                .concat()
            }
        }
    }
}

/// What seals and opens the values of one box. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Seal(Arc<SealKeys>);

struct SealKeys {
    cipher: LessSafeKey,
    /// Of a label of its own under the same key.
    marks: hmac::Key,
    id: [u8; 16],
}

impl Seal {
    /// A key that is kept nowhere, for a catalog in memory.
    fn drawn() -> Self {
        Self::of(&random())
    }

    fn of(key: &[u8; KEY]) -> Self {
        let cipher = UnboundKey::new(&CHACHA20_POLY1305, key).expect("a key has 32 bytes");
        Self(Arc::new(SealKeys {
            cipher: LessSafeKey::new(cipher),
            marks: hmac::Key::new(
                hmac::HMAC_SHA256,
                derived(key, b"digests of requests").as_ref(),
            ),
            id: id_of(key),
        }))
    }

    /// Seals `text` for one row.
    ///
    /// The nonce is drawn each time. A session's environment is sealed once, a machine's orders when they
    /// change and an answer when it is given: at 25 a second that is 2^32 values in five years, and the
    /// chance that two of them ever had one nonce is below 2^-32.
    pub(super) fn shut(&self, of: &SealedRow<'_>, text: &str) -> String {
        let nonce: [u8; NONCE_LEN] = random();
        let mut sealed = text.as_bytes().to_vec();
        self.0
            .cipher
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(of.bytes()),
                &mut sealed,
            )
            .expect("a value of a row is shorter than 256 GiB");
        let mut written = MARK.to_owned();
        STANDARD_NO_PAD.encode_string([nonce.as_slice(), &sealed].concat(), &mut written);
        written
    }

    /// Opens what `shut` gave. A plain value comes back as it is: one of an earlier version, or one that
    /// holds nothing to hide.
    pub(super) fn open(&self, of: &SealedRow<'_>, text: &str) -> Result<String, SealBroken> {
        let Some(sealed) = text.strip_prefix(MARK) else {
            return Ok(text.to_owned());
        };
        let mut sealed = STANDARD_NO_PAD.decode(sealed).map_err(|_| SealBroken)?;
        if sealed.len() < NONCE_LEN {
            return Err(SealBroken);
        }
        let mut rest = sealed.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&sealed).map_err(|_| SealBroken)?;
        let plain = self
            .0
            .cipher
            .open_in_place(nonce, Aad::from(of.bytes()), &mut rest)
            .map_err(|_| SealBroken)?;
        String::from_utf8(plain.to_vec()).map_err(|_| SealBroken)
    }

    /// An environment as it stands in its column: sealed, unless there is nothing in it.
    pub(super) fn environment(&self, session: &Session) -> String {
        let text = value::text(&session.spec.env);
        if session.spec.env.is_empty() {
            return text;
        }
        self.shut(&SealedRow::Session(session.id.0.as_bytes()), &text)
    }

    /// What a machine is told as it stands in its column: sealed, unless no environment is in it.
    pub(super) fn orders(&self, told: &Assignment) -> String {
        let text = value::text(&told.containers);
        if told.containers.iter().all(|order| order.env.is_empty()) {
            return text;
        }
        self.shut(&SealedRow::Node(told.node.0.as_bytes()), &text)
    }

    /// Reads a column of JSON that may be sealed.
    pub(super) fn json<T: DeserializeOwned>(
        &self,
        of: &SealedRow<'_>,
        column: usize,
        text: &str,
    ) -> rusqlite::Result<T> {
        let unread = |error: Box<dyn std::error::Error + Send + Sync>| {
            rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error)
        };
        if !text.starts_with(MARK) {
            return serde_json::from_str(text).map_err(|error| unread(error.into()));
        }
        let opened = self
            .open(of, text)
            .map_err(|broken| unread(broken.into()))?;
        serde_json::from_str(&opened).map_err(|error| unread(error.into()))
    }

    /// The digest of a request as it is kept: bodies cannot be tried against it without the key.
    pub(super) fn mark(&self, digest: &[u8; 32]) -> [u8; 32] {
        let mut marked = [0; 32];
        marked.copy_from_slice(hmac::sign(&self.0.marks, digest).as_ref());
        marked
    }

    /// Looks whether the key still lies in `data`.
    ///
    /// Errors: `state.key-missing`, `state.key-foreign`, `state.key-unreadable`.
    pub(super) fn look(&self, data: &Path) -> Result<(), Refusal> {
        match read(data)? {
            None => Err(missing(data)),
            Some(keys) if keys.iter().any(|key| id_of(key) == self.0.id) => Ok(()),
            Some(_) => Err(foreign(data)),
        }
    }
}

fn derived(key: &[u8; KEY], label: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), label)
}

/// Names a key and tells nothing of it.
fn id_of(key: &[u8; KEY]) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&derived(key, b"name of the key").as_ref()[..16]);
    id
}

/// The seal of a catalog whose schema is the newest; draws a key for one that has none, and writes it to disk
/// before the catalog names it.
///
/// Errors: `state.key-missing`, `state.key-foreign` where something is sealed with a key that is not there;
/// `state.key-unreadable`, `state.unwritable`.
pub(super) fn take(connection: &Connection, place: &CatalogPlace) -> Result<Seal, Failure> {
    let CatalogPlace::Directory(data) = place else {
        return Ok(Seal::drawn());
    };
    if let Some(seal) = known(connection, data)? {
        return Ok(seal);
    }
    // Nothing that is read back is sealed with another key; answers of one are only repeated no more.
    let key = match read(data)?.as_deref() {
        Some([.., newest]) => *newest,
        _ => {
            let key = random();
            write(data, &[key])?;
            key
        }
    };
    connection
        .execute_batch("delete from idempotency where substr(answer, 1, 3) = 's1:'")
        .and_then(|()| {
            connection.execute(
                "update installation set seal_key = ?1 where id = 1",
                [id_of(&key).as_slice()],
            )
        })
        .map_err(|error| files::unreadable(place, error))?;
    Ok(Seal::of(&key))
}

/// The seal for a look at a catalog whose schema is the newest; changes nothing.
///
/// Errors: `state.key-missing`, `state.key-foreign`, `state.key-unreadable`.
pub(super) fn for_a_look(connection: &Connection, data: &Path) -> Result<Seal, Failure> {
    Ok(known(connection, data)?.unwrap_or_else(Seal::drawn))
}

/// The seal that the catalog names; None where it names none, or one that nothing needs.
fn known(connection: &Connection, data: &Path) -> Result<Option<Seal>, Failure> {
    let unread = |error| files::unreadable(&CatalogPlace::Directory(data.to_owned()), error);
    let named: Option<Vec<u8>> = connection
        .query_row(
            "select seal_key from installation where id = 1",
            [],
            |row| row.get(0),
        )
        .optional()
        .map_err(unread)?
        .flatten();
    let Some(named) = named else {
        return Ok(None);
    };
    let keys = read(data)?;
    let own = keys.iter().flatten().find(|key| id_of(key) == *named);
    if let Some(key) = own {
        return Ok(Some(Seal::of(key)));
    }
    let needed: bool = connection
        .query_row(
            "select exists (select 1 from session where substr(env, 1, 3) = 's1:')
                    or exists (select 1 from assignment where substr(containers, 1, 3) = 's1:')
                    or exists (select 1 from second_factor)
                    or exists (select 1 from access_key)
                    or exists (select 1 from webhook)
                    or exists (select 1 from ssh_host_key)
                    or exists (select 1 from dotfile)
                    or exists (select 1 from startup_script)
                    or exists (select 1 from variable)",
            [],
            |row| row.get(0),
        )
        .map_err(unread)?;
    if !needed {
        return Ok(None);
    }
    Err(match keys {
        None => missing(data),
        Some(_) => foreign(data),
    }
    .into())
}

/// Seals what an earlier version wrote readable, in commits of bounded size, and has the pages that held it
/// rewritten, also those that hold nothing any more. Does nothing once it was done. Costs reading all sessions
/// once and writing the whole file once.
pub(super) fn seal_old_rows(
    connection: &mut Connection,
    seal: &Seal,
    clock: &Clock,
) -> rusqlite::Result<()> {
    let (done, revision): (Option<i64>, i64) = connection.query_row(
        "select sealed_at, revision from installation where id = 1",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if done.is_some() {
        return Ok(());
    }
    let sealed = seal_sessions(connection, seal)?
        + seal_orders(connection, seal)?
        + seal_answers(connection, seal)?;
    // Nothing was ever written to a catalog that was founded a moment ago.
    if revision > 0 {
        tracing::info!(sealed, "what stood readable in the catalog is sealed");
        const LEFT: &str = "free pages of the catalog may still hold what is sealed now; the next start tries again";
        match rewrite(connection) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!("another process reads the catalog; {LEFT}");
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(%error, "{LEFT}");
                return Ok(());
            }
        }
    }
    connection.execute(
        "update installation set sealed_at = ?1 where id = 1",
        [clock.now().as_millis()],
    )?;
    Ok(())
}

/// Writes every page of the catalog that is in use to a new place and forgets the others. False where a
/// reader kept the log from being emptied: file and log then still hold what they held.
///
/// The copy that this makes goes to SQLite's directory for temporary files and not to memory, which a large
/// catalog may not fit into. It is removed when it is made, and all secrets in it are sealed already.
fn rewrite(connection: &Connection) -> rusqlite::Result<bool> {
    connection.execute_batch("pragma temp_store = file")?;
    let rewritten = connection.execute_batch("vacuum");
    connection.execute_batch("pragma temp_store = memory")?;
    rewritten?;
    // That it was busy is a row and no error.
    connection.query_row("pragma wal_checkpoint(truncate)", [], |row| {
        Ok(row.get::<_, i64>(0)? == 0)
    })
}

fn seal_sessions(connection: &mut Connection, seal: &Seal) -> rusqlite::Result<usize> {
    let (mut sealed, mut after) = (0, Vec::new());
    loop {
        let batch = connection.transaction()?;
        let rows: Vec<([u8; 16], String)> = batch
            .prepare_cached(
                "select id, env
                 from session
                 where id > ?1
                 and env <> '{}'
                 and substr(env, 1, 3) <> 's1:'
                 order by id
                 limit ?2",
            )?
            .query_map((&after, MAX_SEAL_BATCH), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<Result<_, _>>()?;
        for (id, env) in &rows {
            batch
                .prepare_cached("update session set env = ?2 where id = ?1")?
                .execute((id, seal.shut(&SealedRow::Session(id), env)))?;
        }
        batch.commit()?;
        let Some((last, _)) = rows.last() else {
            return Ok(sealed);
        };
        after = last.to_vec();
        sealed += rows.len();
    }
}

/// One row a machine.
fn seal_orders(connection: &mut Connection, seal: &Seal) -> rusqlite::Result<usize> {
    let batch = connection.transaction()?;
    let rows: Vec<([u8; 16], String)> = batch
        .prepare(
            "select node, containers
             from assignment
             where containers like '%\"env\":{\"%'
             and substr(containers, 1, 3) <> 's1:'",
        )?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (node, containers) in &rows {
        batch
            .prepare_cached("update assignment set containers = ?2 where node = ?1")?
            .execute((node, seal.shut(&SealedRow::Node(node), containers)))?;
    }
    batch.commit()?;
    Ok(rows.len())
}

fn seal_answers(connection: &mut Connection, seal: &Seal) -> rusqlite::Result<usize> {
    let mut sealed = 0;
    loop {
        let batch = connection.transaction()?;
        let rows: Vec<(AnswerKey, String)> = batch
            .prepare_cached(
                "select principal, route, key, digest, answer
                 from idempotency
                 where substr(answer, 1, 3) <> 's1:'
                 limit ?1",
            )?
            // An answer may have megabytes.
            .query_map([MAX_SEAL_BATCH / 50], |row| {
                let key = AnswerKey {
                    principal: rules::names::UserId(value::id(row, 0)?),
                    route: row.get(1)?,
                    key: row.get(2)?,
                    digest: row.get(3)?,
                };
                Ok((key, row.get(4)?))
            })?
            .collect::<Result<_, _>>()?;
        for (key, answer) in &rows {
            batch
                .prepare_cached(
                    "update idempotency
                     set answer = ?4, digest = ?5
                     where principal = ?1 and route = ?2 and key = ?3",
                )?
                .execute((
                    key.principal.0.as_bytes(),
                    &key.route,
                    &key.key,
                    seal.shut(&SealedRow::Answer(key), answer),
                    seal.mark(&key.digest),
                ))?;
        }
        batch.commit()?;
        if rows.is_empty() {
            return Ok(sealed);
        }
        sealed += rows.len();
    }
}

fn file(data: &Path) -> PathBuf {
    data.join(KEY_FILE)
}

/// The keys in `data`, oldest first; None where there is no file. Never empty.
fn read(data: &Path) -> Result<Option<Vec<[u8; KEY]>>, Refusal> {
    let path = file(data);
    let unreadable =
        |why: &dyn std::fmt::Display| refusals::state_key_unreadable(path.display(), why);
    let text = match fs::File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => {
            let mut text = String::new();
            let most = (MAX_KEYS * (2 * KEY + 1)) as u64;
            opened
                .and_then(|file| {
                    io::Read::read_to_string(&mut io::Read::take(file, most + 1), &mut text)
                })
                .map_err(|error| unreadable(&error))?;
            text
        }
    };
    let keys: Option<Vec<_>> = text.lines().map(key).collect();
    match keys {
        Some(keys) if (1..=MAX_KEYS).contains(&keys.len()) => Ok(Some(keys)),
        _ => Err(unreadable(&"it holds no key")),
    }
}

fn key(line: &str) -> Option<[u8; KEY]> {
    if line.len() != 2 * KEY || !line.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; KEY];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&line[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}

/// Writes the keys, whole or not at all, readable for the directory's owner alone; they are on disk afterwards.
fn write(data: &Path, keys: &[[u8; KEY]]) -> Result<(), Refusal> {
    let path = file(data);
    let draft = data.join("seal.key.new");
    let written = || -> io::Result<()> {
        if let Err(error) = fs::remove_file(&draft)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut to = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        for key in keys {
            let line: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(to, "{line}")?;
        }
        let owner = fs::metadata(data)?;
        if owner.uid() != to.metadata()?.uid() {
            std::os::unix::fs::fchown(&to, Some(owner.uid()), Some(owner.gid()))?;
        }
        to.sync_all()?;
        fs::rename(&draft, &path)?;
        fs::File::open(data)?.sync_all()
    };
    written().map_err(|error| files::unwritable(&path, &error))
}

/// Whether there is a file of keys in `data` that cannot be read. Costs reading it.
pub(crate) fn is_unreadable(data: &Path) -> bool {
    read(data).is_err()
}

/// Adds the keys in `from` to those in `into`, so that the catalogs of both can be opened there. Costs a
/// sync to disk.
///
/// Errors: `state.key-unreadable`, `state.unwritable`.
pub(crate) fn bring(from: &Path, into: &Path) -> Result<(), Failure> {
    let Some(new) = read(from)? else {
        return Ok(());
    };
    let old = read(into)?.unwrap_or_default();
    let mut keys = old.clone();
    keys.extend(new.into_iter().filter(|key| !old.contains(key)));
    if keys.len() > MAX_KEYS {
        return Err(refusals::restore_too_many_keys(file(into).display(), MAX_KEYS).into());
    }
    if keys != old {
        write(into, &keys)?;
    }
    Ok(())
}

fn missing(data: &Path) -> Refusal {
    refusals::state_key_missing(file(data).display())
}

fn foreign(data: &Path) -> Refusal {
    refusals::state_key_foreign(file(data).display())
}
