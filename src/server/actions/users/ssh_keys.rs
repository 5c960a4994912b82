//! The caller's public keys for SSH, and how the server is reached by it. A key names one user of the whole site. Keeps
//! no private key.

use api::ssh::{NewSshKeyBody, SshKeyView, SshServerView};
use rules::names::SshKeyId;
use rules::session::{TextField, plain, text};

use super::*;
use crate::access::ssh_host_key;
use crate::access::ssh_key::{SshPublicKey, fingerprint};
use crate::access::tokens;
use crate::catalog::ssh_keys::SshKeyRow;

/// Public keys of one user. Higher: users lose track of which of their computers get in. Lower: a user with many computers
/// carries a private key around.
const MAX_SSH_KEYS: usize = 20;
/// Bytes of the name of a key.
const MAX_NAME_LENGTH: usize = 64;

/// The caller's public keys, newest first.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<SshKeyView>, Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    server.catalog().read_now("list SSH keys", |view| {
        Ok(view.ssh_keys(user)?.into_iter().map(shown).collect())
    })
}

/// Why a user with so many public keys can add no other; None while there is room.
pub fn no_room(known: usize) -> Option<Refusal> {
    (known >= MAX_SSH_KEYS).then(|| refusals::ssh_key_too_many(MAX_SSH_KEYS))
}

/// Adds a public key: who has its private part enters the caller's sessions.
///
/// Errors: root has no account; `token.scope-missing` for a token that may not do what a key may; those of reading a key, `ssh-key.name-invalid`, `ssh-key.taken` where any user has it,
/// `ssh-key.too-many`, `expires-at.past`, `expires-at.after-maker`, `network.bound`; `sign-in.ended`, `token.revoked` and `user.suspended`
/// where what the caller asks by has ended meanwhile.
pub async fn add(
    server: &Server,
    caller: &Caller,
    wanted: NewSshKeyBody,
) -> Result<SshKeyView, Failure> {
    allowed(caller, Permission::Me)?;
    // A key may both: a token that may not makes nothing that may.
    allowed(caller, Permission::SessionsRead)?;
    allowed(caller, Permission::SessionsEnter)?;
    if caller.subject.user == ROOT {
        return Err(not_an_account().into());
    }
    let now = server.clock().now();
    let key =
        SshPublicKey::parse(&wanted.public_key).map_err(|refusal| refusal.at("/public_key"))?;
    let name = name(wanted.name.as_deref(), &key)?;
    if wanted.expires_at.is_some_and(|end| end <= now) {
        return Err(refusals::expires_at_past().at("/expires_at").into());
    }
    let mut row = SshKeyRow {
        id: SshKeyId::make(now, base::observe::random()),
        user: caller.subject.user,
        name,
        kind: key.kind.to_owned(),
        bits: key.bits,
        digest: key.digest(),
        public_key: key.blob,
        created_at: now,
        expires_at: wanted.expires_at,
        used_at: None,
        used_from: None,
    };
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "add an SSH key", move |rows| {
            // What the caller asks by may have been ended since: nothing that it adds outlives it.
            tokens::still_admitted(rows, &caller)?;
            tokens::refuse_bound(rows, &caller)?;
            row.expires_at = tokens::end_with_maker(rows, &caller, row.expires_at)?;
            if let Some(full) = no_room(rows.ssh_keys(row.user)?.len()) {
                return Err(full.into());
            }
            if rows.ssh_key_by_digest(&row.digest)?.is_some() {
                return Err(refusals::ssh_key_taken().at("/public_key").into());
            }
            rows.insert_ssh_key(&row)?;
            note_key(rows, &caller.name, &row, "ssh-key.added")?;
            Ok(shown(row))
        })
        .await
}

/// Removes a public key at once, and ends what it opened. Errors: `ssh-key.not-found`.
pub async fn remove(server: &Server, caller: &Caller, id: SshKeyId) -> Result<(), Failure> {
    allowed(caller, Permission::Me)?;
    let (user, actor) = (caller.subject.user, caller.name.clone());
    server
        .catalog()
        .write(Lane::Requests, "remove an SSH key", move |rows| {
            let row = rows
                .ssh_keys(user)?
                .into_iter()
                .find(|row| row.id == id)
                .ok_or_else(refusals::ssh_key_not_found)?;
            rows.forget_ssh_key(id)?;
            note_key(rows, &actor, &row, "ssh-key.removed")
        })
        .await
}

/// How sessions are reached by SSH, and by what the server is known there. Public, so that users can look before they
/// believe.
///
/// Errors: `ssh.off`.
pub async fn ssh_server(server: &Server) -> Result<SshServerView, Failure> {
    let listens = server.settings().listen_ssh;
    let known = server
        .catalog()
        .read_now("read the host key of SSH", ssh_host_key::known)?;
    let (Some(address), Some(key)) = (listens, known) else {
        return Err(refusals::ssh_off().into());
    };
    Ok(SshServerView {
        port: address.port(),
        fingerprint: key.fingerprint(),
        host_key: key.line(),
    })
}

/// What a key is called: as wanted, else what stands behind it, else its kind.
fn name(wanted: Option<&str>, key: &SshPublicKey) -> Result<String, Refusal> {
    let wanted = wanted.map(str::trim).filter(|name| !name.is_empty());
    let name = wanted.unwrap_or(&key.comment);
    let checked = text(TextField::Token, "/name", name, MAX_NAME_LENGTH)
        .and_then(|()| plain(TextField::Token, "/name", name));
    match (checked, wanted) {
        (Ok(()), _) if !name.is_empty() => Ok(name.to_owned()),
        (Err(_), Some(_)) => Err(refusals::ssh_key_name_invalid(MAX_NAME_LENGTH).at("/name")),
        // A comment that is no name does not keep the key out.
        _ => Ok(key.kind.to_owned()),
    }
}

fn note_key(rows: &Rows<'_>, actor: &UserName, row: &SshKeyRow, code: &str) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: actor.as_str(),
        topic: "users",
        object: &row.id.to_string(),
        scope: Scope::user(row.user),
        code,
        before: "",
        after: &row.name,
    })
}

fn shown(row: SshKeyRow) -> SshKeyView {
    SshKeyView {
        id: row.id,
        name: row.name,
        kind: row.kind,
        bits: row.bits,
        fingerprint: fingerprint(&row.digest),
        created_at: row.created_at,
        expires_at: row.expires_at,
        used_at: row.used_at,
        used_from: row.used_from,
    }
}
