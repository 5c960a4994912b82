//! The first administrator: made once, by the holder of the code that the server printed at its
//! start. There is no default account.

use api::secret::SecretText;
use rules::names::UserName;
use rules::refusal::Refusal;
use rules::refusals;
use rules::users::Role;

use super::attempts::Attempt;
use super::password::{self, PasswordRules};
use super::secret::{draw_code, hash, plain_code, same};
use super::{NewSignIn, SignInFrom, admit, new_user};
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server};

/// Seconds that a code is good.
const GOOD_SECONDS: u64 = 3600;

/// Draws a new setup code and voids the one before it; None once setup is done, or where the code
/// could not be kept (logged). Good for one hour. The caller prints it once and forgets it.
pub fn setup_link(server: &Server) -> Option<String> {
    if !setup_open(server) {
        return None;
    }
    let code = draw_code();
    let hash = hash(&SecretText::new(plain_code(&code)));
    let ends = server.clock().now().plus_seconds(GOOD_SECONDS);
    let kept = server
        .catalog()
        .write_now(Lane::Requests, "keep a setup code", move |rows| {
            rows.put_setup_code(&hash, ends)
        });
    match kept {
        Ok(()) => Some(code),
        Err(failure) => {
            tracing::error!(error = %base::observe::chain(&failure), "a setup code could not be made");
            None
        }
    }
}

/// Whether the first administrator is still to be made.
pub fn setup_open(server: &Server) -> bool {
    let read = server
        .catalog()
        .read_now("look at setup", |view| view.setup());
    matches!(read, Ok(setup) if setup.done_at.is_none())
}

/// Makes the first administrator and signs them in.
///
/// Errors: `setup.done`, `setup.code-wrong`, `setup.code-expired`, `sign-in.locked` for wrong codes
/// that come too fast from one address; names and passwords as for everybody.
pub async fn set_up(
    server: &Server,
    code: &str,
    name: &str,
    password: impl Into<SecretText>,
    from: impl Into<SignInFrom<'_>>,
) -> Result<NewSignIn, Failure> {
    let (password, from) = (password.into(), from.into());
    let setup = server
        .catalog()
        .read_now("look at setup", |view| view.setup())?;
    if setup.done_at.is_some() {
        return Err(done().into());
    }
    let given = hash(&SecretText::new(plain_code(code)));
    let right = setup.hash.is_some_and(|hash| same(&hash, &given));
    if !right {
        // Eighty bits cannot be guessed: only the wrong ones wait.
        Attempt::of_setup(server, from.source).begin().await?;
        return Err(refusals::setup_code_wrong().at("/code").into());
    }
    let now = server.clock().now();
    if setup.expires_at.is_none_or(|end| end <= now) {
        return Err(refusals::setup_code_expired().at("/code").into());
    }
    let name = UserName::of_new_user(name)?;
    password::check_new(
        PasswordRules::of(server),
        &password,
        name.as_str(),
        "/password",
    )?;
    let hash = server.hasher().hash(&password).await?;
    let user = new_user(name, Role::Administrator, now);
    admit(server, user, from, move |rows, user| {
        // Two browsers with the same code: the first one wins.
        let setup = rows.setup()?;
        if setup.done_at.is_some() {
            return Err(done().into());
        }
        rows.insert_user(user, &hash)?;
        rows.finish_setup()?;
        rows.note(NewEvent {
            actor: user.name.as_str(),
            topic: "users",
            object: &user.id.to_string(),
            scope: rules::tenancy::Scope::domain(user.domain),
            code: rules::codes::SETUP_DONE,
            before: "",
            after: user.name.as_str(),
        })
    })
    .await
}

fn done() -> Refusal {
    refusals::setup_done()
}
