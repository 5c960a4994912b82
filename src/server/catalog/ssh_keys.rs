//! Rows of public keys of users, and of the key by which this box is known over SSH, whose secret is sealed. What a key
//! proves is `access`'s.

use std::net::IpAddr;

use api::secret::SecretText;
use rules::names::{SshKeyId, UserId};
use rules::units::Timestamp;
use rules::users::User;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::sealing::SealedRow;
use super::value;
use super::writer::Rows;
use crate::{Failure, ServerFault};

/// One public key of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshKeyRow {
    pub(crate) id: SshKeyId,
    pub(crate) user: UserId,
    pub(crate) name: String,
    /// As SSH calls it.
    pub(crate) kind: String,
    pub(crate) bits: u32,
    /// As it is sent.
    pub(crate) public_key: Vec<u8>,
    /// Its SHA-256.
    pub(crate) digest: [u8; 32],
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) used_at: Option<Timestamp>,
    pub(crate) used_from: Option<String>,
}

const SSH_KEY: &str =
    "id, user, name, kind, bits, public_key, digest, created_at, expires_at, used_at, used_from";

impl ReadTransaction<'_> {
    /// Public keys of one user, newest first; there are a few.
    pub(crate) fn ssh_keys(&self, user: UserId) -> Result<Vec<SshKeyRow>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {SSH_KEY}
             from ssh_key
             where user = ?1
             order by created_at desc, id desc"
        ))?;
        let rows = statement.query_map([user.0.as_bytes()], ssh_key_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The public key with this SHA-256, and whose it is.
    pub(crate) fn ssh_key_by_digest(
        &self,
        digest: &[u8; 32],
    ) -> Result<Option<(SshKeyRow, User)>, Failure> {
        let found = self
            .connection
            .prepare_cached(&format!(
                "select {SSH_KEY}
                 from ssh_key
                 where digest = ?1"
            ))?
            .query_row([digest.as_slice()], ssh_key_row)
            .optional()?;
        self.with_owner(found)
    }

    /// The public key of this id, and whose it is.
    pub(crate) fn ssh_key_by_id(&self, id: SshKeyId) -> Result<Option<(SshKeyRow, User)>, Failure> {
        let found = self
            .connection
            .prepare_cached(&format!(
                "select {SSH_KEY}
                 from ssh_key
                 where id = ?1"
            ))?
            .query_row([id.0.as_bytes()], ssh_key_row)
            .optional()?;
        self.with_owner(found)
    }

    fn with_owner(&self, found: Option<SshKeyRow>) -> Result<Option<(SshKeyRow, User)>, Failure> {
        let Some(key) = found else {
            return Ok(None);
        };
        Ok(self.user(key.user)?.map(|user| (key, user)))
    }

    /// The secret of the key by which this box is known, if it was drawn. Errors: a fault where it is not what was sealed.
    pub(crate) fn ssh_host_secret(&self) -> Result<Option<SecretText>, Failure> {
        let sealed: Option<String> = self
            .connection
            .prepare_cached("select secret from ssh_host_key where id = 1")?
            .query_row([], |row| row.get("secret"))
            .optional()?;
        let Some(sealed) = sealed else {
            return Ok(None);
        };
        let secret = self
            .seal
            .open(&SealedRow::SshHostKey, &sealed)
            .map_err(|broken| ServerFault::new("read the host key of SSH", broken))?;
        Ok(Some(SecretText::new(secret)))
    }
}

impl Rows<'_> {
    pub(crate) fn insert_ssh_key(&self, row: &SshKeyRow) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into ssh_key
                     (id, user, name, kind, bits, public_key, digest, created_at, expires_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute((
                row.id.0.as_bytes(),
                row.user.0.as_bytes(),
                &row.name,
                &row.kind,
                row.bits,
                &row.public_key,
                row.digest.as_slice(),
                row.created_at.as_millis(),
                row.expires_at.map(Timestamp::as_millis),
            ))?;
        Ok(())
    }

    pub(crate) fn touch_ssh_key(&self, id: SshKeyId, from: IpAddr) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update ssh_key set used_at = ?2, used_from = ?3 where id = ?1")?
            .execute((id.0.as_bytes(), self.now.as_millis(), from.to_string()))?;
        Ok(())
    }

    pub(crate) fn forget_ssh_key(&self, id: SshKeyId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from ssh_key where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Removes every public key of a user.
    pub(crate) fn forget_ssh_keys(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from ssh_key where user = ?1")?
            .execute([user.0.as_bytes()])?;
        Ok(())
    }

    /// Keeps the key by which this box is known; to be called where there is none.
    pub(crate) fn insert_ssh_host_secret(&self, secret: &SecretText) -> Result<(), Failure> {
        let sealed = self.seal.shut(&SealedRow::SshHostKey, secret.reveal());
        self.connection
            .prepare_cached("insert into ssh_host_key (id, secret, created_at) values (1, ?1, ?2)")?
            .execute((sealed, self.now.as_millis()))?;
        Ok(())
    }
}

fn ssh_key_row(row: &Row<'_>) -> rusqlite::Result<SshKeyRow> {
    Ok(SshKeyRow {
        id: SshKeyId(value::id(row, "id")?),
        user: UserId(value::id(row, "user")?),
        name: row.get("name")?,
        kind: row.get("kind")?,
        bits: row.get("bits")?,
        public_key: row.get("public_key")?,
        digest: row.get("digest")?,
        created_at: value::time(row, "created_at")?,
        expires_at: value::time_or_none(row, "expires_at")?,
        used_at: value::time_or_none(row, "used_at")?,
        used_from: row.get("used_from")?,
    })
}
