//! What the caller's own sessions start with: dotfiles, a script, variables. Nothing of it is another user's to read, and
//! the value of a variable is given to no request at all.

use api::start_up::{
    DotfileContentView, DotfileView, NewDotfileBody, NewStartupScriptBody, NewVariableBody,
    OwnVariableView, StartupScriptView,
};
use rules::names::UserId;
use rules::start_up::{
    Dotfile, MAX_DOTFILES, MAX_DOTFILES_BYTES, MAX_OWN_VARIABLES, MAX_VARIABLES_BYTES,
    StartUpScript, check_beside, check_content, check_script, check_variable_name,
    check_variable_value, dotfile_mode, dotfile_path,
};

use super::*;
use crate::access::tokens;
use crate::catalog::start_up::KeptRow;

/// The caller's files, by path.
pub async fn dotfiles(server: &Server, caller: &Caller) -> Result<Vec<DotfileView>, Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    server.catalog().read_now("list dotfiles", |view| {
        Ok(view.dotfiles(user)?.into_iter().map(shown).collect())
    })
}

/// One of the caller's files with what is in it. Errors: `dotfile.not-found`.
pub async fn dotfile(
    server: &Server,
    caller: &Caller,
    path: &str,
) -> Result<DotfileContentView, Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    server.catalog().read_now("read a dotfile", |view| {
        let file = view
            .dotfile(user, path)?
            .ok_or_else(refusals::dotfile_not_found)?;
        Ok(DotfileContentView {
            path: file.path,
            mode: octal(file.mode),
            content: file.content,
        })
    })
}

/// Keeps a file, in the place of one of that path.
///
/// Errors: those of `may_set`; `dotfile.path-invalid`, `dotfile.mode-invalid`, `dotfile.too-large`, `dotfile.not-text`,
/// `dotfile.in-the-way`, `dotfile.too-many`, `dotfile.total`.
pub async fn put_dotfile(
    server: &Server,
    caller: &Caller,
    wanted: NewDotfileBody,
) -> Result<DotfileView, Failure> {
    let user = may_set(caller)?;
    let file = Dotfile {
        path: dotfile_path(&wanted.path)?,
        mode: dotfile_mode(&wanted.mode)?,
        content: wanted.content,
    };
    check_content(&file.content)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "keep a dotfile", move |rows| {
            tokens::still_admitted(rows, &caller)?;
            let known = rows.dotfiles(user)?;
            let others = || known.iter().filter(|row| row.name != file.path);
            check_beside(&file.path, others().map(|row| row.name.as_str()))?;
            if others().count() >= MAX_DOTFILES {
                return Err(refusals::dotfile_too_many(MAX_DOTFILES).into());
            }
            let taken: u64 = others().map(|row| row.bytes).sum();
            if taken + file.content.len() as u64 > MAX_DOTFILES_BYTES as u64 {
                let refusal = refusals::dotfile_total(MAX_DOTFILES_BYTES >> 10);
                return Err(refusal.at("/content").into());
            }
            rows.put_dotfile(user, &file)?;
            note_start_up(rows, &caller, "dotfile.changed", &file.path)?;
            Ok(DotfileView {
                mode: octal(file.mode),
                bytes: file.content.len() as u64,
                path: file.path,
                changed_at: rows.now,
            })
        })
        .await
}

/// Removes a file; sessions that have it keep it. Errors: those of `may_set`; `dotfile.not-found`.
pub async fn remove_dotfile(server: &Server, caller: &Caller, path: &str) -> Result<(), Failure> {
    let user = may_set(caller)?;
    let (caller, path) = (caller.clone(), path.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "remove a dotfile", move |rows| {
            if !rows.forget_dotfile(user, &path)? {
                return Err(refusals::dotfile_not_found().into());
            }
            note_start_up(rows, &caller, "dotfile.removed", &path)
        })
        .await
}

/// The caller's script. Errors: `startup-script.not-found`.
pub async fn script(server: &Server, caller: &Caller) -> Result<StartupScriptView, Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    server.catalog().read_now("read a start-up script", |view| {
        let row = view
            .startup_script(user)?
            .ok_or_else(refusals::startup_script_not_found)?;
        Ok(StartupScriptView {
            script: row.script.text,
            ends_session: row.script.ends_session,
            changed_at: row.changed_at,
        })
    })
}

/// Keeps a script, in the place of the one before.
///
/// Errors: those of `may_set`; `startup-script.empty`, `startup-script.too-large`, `startup-script.not-text`.
pub async fn put_script(
    server: &Server,
    caller: &Caller,
    wanted: NewStartupScriptBody,
) -> Result<StartupScriptView, Failure> {
    let user = may_set(caller)?;
    check_script(&wanted.script)?;
    let script = StartUpScript {
        text: wanted.script,
        ends_session: wanted.ends_session,
    };
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "keep a start-up script", move |rows| {
            tokens::still_admitted(rows, &caller)?;
            rows.put_startup_script(user, &script)?;
            note_start_up(rows, &caller, "startup-script.changed", "")?;
            Ok(StartupScriptView {
                script: script.text,
                ends_session: script.ends_session,
                changed_at: rows.now,
            })
        })
        .await
}

/// Removes the script. Errors: those of `may_set`; `startup-script.not-found`.
pub async fn remove_script(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let user = may_set(caller)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "remove a start-up script", move |rows| {
            if !rows.forget_startup_script(user)? {
                return Err(refusals::startup_script_not_found().into());
            }
            note_start_up(rows, &caller, "startup-script.removed", "")
        })
        .await
}

/// The caller's variables by name, without their values.
pub async fn variables(server: &Server, caller: &Caller) -> Result<Vec<OwnVariableView>, Failure> {
    allowed(caller, Permission::Me)?;
    let user = caller.subject.user;
    server.catalog().read_now("list variables", |view| {
        let rows = view.own_variables(user)?.into_iter();
        Ok(rows
            .map(|row| OwnVariableView {
                name: row.name,
                changed_at: row.changed_at,
            })
            .collect())
    })
}

/// Keeps a variable, in the place of one of that name.
///
/// Errors: those of `may_set`; `variable.name-invalid`, `variable.name-reserved`, `variable.too-large`,
/// `variable.not-text`, `variable.too-many`, `variable.total`.
pub async fn put_variable(
    server: &Server,
    caller: &Caller,
    wanted: NewVariableBody,
) -> Result<OwnVariableView, Failure> {
    let user = may_set(caller)?;
    let name = wanted.name.trim().to_owned();
    check_variable_name(&name)?;
    check_variable_value(wanted.value.reveal())?;
    let (caller, kept) = (caller.clone(), wanted.value);
    server
        .catalog()
        .write(Lane::Requests, "keep a variable", move |rows| {
            tokens::still_admitted(rows, &caller)?;
            let known = rows.own_variables(user)?;
            let others = || known.iter().filter(|row| row.name != name);
            if others().count() >= MAX_OWN_VARIABLES {
                return Err(refusals::variable_too_many(MAX_OWN_VARIABLES).into());
            }
            let taken: usize = others()
                .map(|row| row.name.len() + usize::try_from(row.bytes).unwrap_or(usize::MAX))
                .sum();
            if taken + name.len() + kept.reveal().len() > MAX_VARIABLES_BYTES {
                let refusal = refusals::variable_total(MAX_VARIABLES_BYTES >> 10);
                return Err(refusal.at("/value").into());
            }
            rows.put_variable(user, &name, kept.reveal())?;
            note_start_up(rows, &caller, "variable.changed", &name)?;
            Ok(OwnVariableView {
                name,
                changed_at: rows.now,
            })
        })
        .await
}

/// Removes a variable; sessions that have it keep it. Errors: those of `may_set`; `variable.not-found`.
pub async fn remove_variable(server: &Server, caller: &Caller, name: &str) -> Result<(), Failure> {
    let user = may_set(caller)?;
    let (caller, name) = (caller.clone(), name.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "remove a variable", move |rows| {
            if !rows.forget_variable(user, &name)? {
                return Err(refusals::variable_not_found().into());
            }
            note_start_up(rows, &caller, "variable.removed", &name)
        })
        .await
}

/// Whose start-up the caller may set. What it holds runs in the caller's sessions: a token that may not enter them may not
/// set it.
///
/// Errors: root has no account; `token.scope-missing`.
fn may_set(caller: &Caller) -> Result<UserId, Failure> {
    allowed(caller, Permission::Me)?;
    allowed(caller, Permission::SessionsRead)?;
    allowed(caller, Permission::SessionsEnter)?;
    if caller.subject.user == ROOT {
        return Err(not_an_account().into());
    }
    Ok(caller.subject.user)
}

/// Names what was changed, and never what is in it.
fn note_start_up(rows: &Rows<'_>, caller: &Caller, code: &str, of: &str) -> Result<(), Failure> {
    let user = caller.subject.user;
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "users",
        object: &user.to_string(),
        scope: Scope::user(user),
        code,
        before: "",
        after: of,
    })
}

fn shown(row: KeptRow) -> DotfileView {
    DotfileView {
        path: row.name,
        mode: octal(row.mode),
        bytes: row.bytes,
        changed_at: row.changed_at,
    }
}

fn octal(mode: u32) -> String {
    format!("{mode:03o}")
}
