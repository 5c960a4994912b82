//! Rows of access keys: tokens that are proven by signatures. A signature needs the secret itself, so it is sealed, not
//! hashed. What a key proves is `access`'s.

use std::collections::BTreeMap;

use api::secret::SecretText;
use rules::names::{TokenId, UserId};
use rusqlite::OptionalExtension as _;

use super::reader::ReadTransaction;
use super::sealing::SealedRow;
use super::value;
use super::writer::Rows;
use crate::{Failure, ServerFault};

impl ReadTransaction<'_> {
    /// The token behind the key of this name, and the secret that signs. Errors: a fault where it is not what was sealed.
    pub(crate) fn access_key(&self, key: &str) -> Result<Option<(TokenId, SecretText)>, Failure> {
        let found: Option<(TokenId, String)> = self
            .connection
            .prepare_cached("select token, secret from access_key where key = ?1")?
            .query_row([key], |row| {
                Ok((TokenId(value::id(row, "token")?), row.get("secret")?))
            })
            .optional()?;
        let Some((token, sealed)) = found else {
            return Ok(None);
        };
        let secret = self
            .seal
            .open(&SealedRow::AccessKey(token.0.as_bytes()), &sealed)
            .map_err(|broken| ServerFault::new("read an access key", broken))?;
        Ok(Some((token, SecretText::new(secret))))
    }

    /// The names of a user's access keys, by their tokens. Opens no secret.
    pub(crate) fn access_key_names(
        &self,
        user: UserId,
    ) -> Result<BTreeMap<TokenId, String>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select access_key.token, access_key.key
             from token
             join access_key on access_key.token = token.id
             where token.user = ?1",
        )?;
        let rows = statement.query_map([user.0.as_bytes()], |row| {
            Ok((TokenId(value::id(row, "token")?), row.get("key")?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Makes a token an access key.
    pub(crate) fn insert_access_key(
        &self,
        token: TokenId,
        key: &str,
        secret: &SecretText,
    ) -> Result<(), Failure> {
        let sealed = self
            .seal
            .shut(&SealedRow::AccessKey(token.0.as_bytes()), secret.reveal());
        self.connection
            .prepare_cached("insert into access_key (token, key, secret) values (?1, ?2, ?3)")?
            .execute((token.0.as_bytes(), key, sealed))?;
        Ok(())
    }
}
