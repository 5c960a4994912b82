//! Rows of what the sessions of a user start with: dotfiles, a script, variables. Contents and values are sealed. What may
//! be kept, and which session gets it, is `rules::start_up`'s.

use std::collections::BTreeMap;

use rules::names::UserId;
use rules::start_up::{Dotfile, StartUp, StartUpChoice, StartUpScript};
use rules::units::Timestamp;
use rusqlite::OptionalExtension as _;

use super::reader::ReadTransaction;
use super::sealing::SealedRow;
use super::value;
use super::writer::Rows;
use crate::{Failure, ServerFault};

/// A row of a list: a file by its path, or a variable by its name, without what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptRow {
    pub(crate) name: String,
    /// Of a file; 0 of a variable.
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
    pub(crate) changed_at: Timestamp,
}

/// The script as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptRow {
    pub(crate) script: StartUpScript,
    pub(crate) changed_at: Timestamp,
}

/// What a sealed value is in: part of what its tag covers.
const FILE: &str = "dotfile";
const SCRIPT: &str = "startup script";
const VARIABLE: &str = "variable";

impl ReadTransaction<'_> {
    /// The files of a user by path; there are a few.
    pub(crate) fn dotfiles(&self, user: UserId) -> Result<Vec<KeptRow>, Failure> {
        self.kept_rows(
            "select path as name, mode, bytes, changed_at from dotfile where user = ?1 order by path",
            user,
        )
    }

    /// The variables of a user by name, without their values; there are a few.
    pub(crate) fn own_variables(&self, user: UserId) -> Result<Vec<KeptRow>, Failure> {
        self.kept_rows(
            "select name, 0 as mode, bytes, changed_at from variable where user = ?1 order by name",
            user,
        )
    }

    fn kept_rows(&self, statement: &str, user: UserId) -> Result<Vec<KeptRow>, Failure> {
        let mut statement = self.connection.prepare_cached(statement)?;
        let rows = statement.query_map([user.0.as_bytes()], |row| {
            Ok(KeptRow {
                name: row.get("name")?,
                mode: row.get("mode")?,
                bytes: value::unsigned(row, "bytes")?,
                changed_at: value::time(row, "changed_at")?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(crate) fn has_variables(&self, user: UserId) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached("select exists (select 1 from variable where user = ?1)")?
            .query_row([user.0.as_bytes()], |row| row.get(0))?)
    }

    /// One file of a user with its content.
    pub(crate) fn dotfile(&self, user: UserId, path: &str) -> Result<Option<Dotfile>, Failure> {
        let found: Option<(u32, String)> = self
            .connection
            .prepare_cached("select mode, content from dotfile where user = ?1 and path = ?2")?
            .query_row((user.0.as_bytes(), path), |row| {
                Ok((row.get("mode")?, row.get("content")?))
            })
            .optional()?;
        let Some((mode, sealed)) = found else {
            return Ok(None);
        };
        Ok(Some(Dotfile {
            path: path.to_owned(),
            mode,
            content: self.opened(user, FILE, path, &sealed)?,
        }))
    }

    /// The script of a user.
    pub(crate) fn startup_script(&self, user: UserId) -> Result<Option<ScriptRow>, Failure> {
        let found: Option<(String, bool, Timestamp)> = self
            .connection
            .prepare_cached(
                "select script, ends_session, changed_at
                 from startup_script
                 where user = ?1",
            )?
            .query_row([user.0.as_bytes()], |row| {
                Ok((
                    row.get("script")?,
                    row.get("ends_session")?,
                    value::time(row, "changed_at")?,
                ))
            })
            .optional()?;
        let Some((sealed, ends_session, changed_at)) = found else {
            return Ok(None);
        };
        Ok(Some(ScriptRow {
            script: StartUpScript {
                text: self.opened(user, SCRIPT, "", &sealed)?,
                ends_session,
            },
            changed_at,
        }))
    }

    /// What a session of this owner and choice is given when it starts now. Costs one visit of each row.
    pub(crate) fn start_up(&self, user: UserId, choice: StartUpChoice) -> Result<StartUp, Failure> {
        if choice == StartUpChoice::Nothing {
            return Ok(StartUp::default());
        }
        let mut files = Vec::new();
        for row in self.dotfiles(user)? {
            files.extend(self.dotfile(user, &row.name)?);
        }
        let variables = match choice {
            StartUpChoice::Variables => self.values(user)?,
            StartUpChoice::Files | StartUpChoice::Nothing => BTreeMap::new(),
        };
        let all = StartUp {
            files,
            script: self.startup_script(user)?.map(|row| row.script),
            variables,
        };
        Ok(all.under(choice))
    }

    /// The values of a user's variables. For sessions that start, and for nothing that answers a request.
    fn values(&self, user: UserId) -> Result<BTreeMap<String, String>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select name, value from variable where user = ?1")?;
        let rows = statement.query_map([user.0.as_bytes()], |row| {
            Ok((
                row.get::<_, String>("name")?,
                row.get::<_, String>("value")?,
            ))
        })?;
        let sealed: Vec<(String, String)> = rows.collect::<Result<_, _>>()?;
        let mut values = BTreeMap::new();
        for (name, sealed) in sealed {
            let opened = self.opened(user, VARIABLE, &name, &sealed)?;
            values.insert(name, opened);
        }
        Ok(values)
    }

    fn opened(
        &self,
        user: UserId,
        kind: &'static str,
        name: &str,
        sealed: &str,
    ) -> Result<String, Failure> {
        let of = SealedRow::StartUp {
            user: user.0.as_bytes(),
            kind,
            name,
        };
        let opened = self.seal.open(&of, sealed);
        Ok(opened.map_err(|broken| ServerFault::new("read what sessions start with", broken))?)
    }
}

impl Rows<'_> {
    pub(crate) fn put_dotfile(&self, user: UserId, file: &Dotfile) -> Result<(), Failure> {
        let sealed = self.shut_start_up(user, FILE, &file.path, &file.content);
        self.connection
            .prepare_cached(
                "insert into dotfile (user, path, mode, content, bytes, changed_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6)
                 on conflict (user, path) do update
                 set mode = ?3, content = ?4, bytes = ?5, changed_at = ?6",
            )?
            .execute((
                user.0.as_bytes(),
                &file.path,
                file.mode,
                sealed,
                value::signed(file.content.len() as u64),
                self.now.as_millis(),
            ))?;
        Ok(())
    }

    /// False where there is no such file.
    pub(crate) fn forget_dotfile(&self, user: UserId, path: &str) -> Result<bool, Failure> {
        let gone = self
            .connection
            .prepare_cached("delete from dotfile where user = ?1 and path = ?2")?
            .execute((user.0.as_bytes(), path))?;
        Ok(gone > 0)
    }

    pub(crate) fn put_startup_script(
        &self,
        user: UserId,
        script: &StartUpScript,
    ) -> Result<(), Failure> {
        let sealed = self.shut_start_up(user, SCRIPT, "", &script.text);
        self.connection
            .prepare_cached(
                "insert into startup_script (user, script, bytes, ends_session, changed_at)
                 values (?1, ?2, ?3, ?4, ?5)
                 on conflict (user) do update
                 set script = ?2, bytes = ?3, ends_session = ?4, changed_at = ?5",
            )?
            .execute((
                user.0.as_bytes(),
                sealed,
                value::signed(script.text.len() as u64),
                script.ends_session,
                self.now.as_millis(),
            ))?;
        Ok(())
    }

    /// False where there is none.
    pub(crate) fn forget_startup_script(&self, user: UserId) -> Result<bool, Failure> {
        let gone = self
            .connection
            .prepare_cached("delete from startup_script where user = ?1")?
            .execute([user.0.as_bytes()])?;
        Ok(gone > 0)
    }

    pub(crate) fn put_variable(
        &self,
        user: UserId,
        name: &str,
        of_it: &str,
    ) -> Result<(), Failure> {
        let sealed = self.shut_start_up(user, VARIABLE, name, of_it);
        self.connection
            .prepare_cached(
                "insert into variable (user, name, value, bytes, changed_at)
                 values (?1, ?2, ?3, ?4, ?5)
                 on conflict (user, name) do update
                 set value = ?3, bytes = ?4, changed_at = ?5",
            )?
            .execute((
                user.0.as_bytes(),
                name,
                sealed,
                value::signed(of_it.len() as u64),
                self.now.as_millis(),
            ))?;
        Ok(())
    }

    /// False where there is no such variable.
    pub(crate) fn forget_variable(&self, user: UserId, name: &str) -> Result<bool, Failure> {
        let gone = self
            .connection
            .prepare_cached("delete from variable where user = ?1 and name = ?2")?
            .execute((user.0.as_bytes(), name))?;
        Ok(gone > 0)
    }

    /// Removes all that sessions of a user start with.
    pub(crate) fn forget_start_up(&self, user: UserId) -> Result<(), Failure> {
        for statement in [
            "delete from dotfile where user = ?1",
            "delete from startup_script where user = ?1",
            "delete from variable where user = ?1",
        ] {
            self.connection
                .prepare_cached(statement)?
                .execute([user.0.as_bytes()])?;
        }
        Ok(())
    }

    fn shut_start_up(&self, user: UserId, kind: &'static str, name: &str, text: &str) -> String {
        let of = SealedRow::StartUp {
            user: user.0.as_bytes(),
            kind,
            name,
        };
        self.seal.shut(&of, text)
    }
}
