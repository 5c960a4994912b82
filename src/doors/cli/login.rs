//! Which server the command line talks to, as whom, and whom it believes: flags, variables, the remembered
//! sign-in, the local socket, in this order. Never writes a secret to anything but the one file it keeps.

use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::users::SignedIn;
use base::tls::client::{CertificateCapture, trusting};
use hyper::Method;
use rules::refusal::Refusal;
use rules::refusals;
use rules::users::User;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::address::ServerAddress;
use super::answer::Answer;
use super::args::{Global, Login, Password};
use super::client::{Extra, HttpClient, UNTRUSTED};
use super::error::{CliError, FAILED};
use super::output::OutputStyle;
use super::{Surroundings, complain, language, print};

/// What `fardel login` remembers.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    server: String,
    user: String,
    token: String,
    #[serde(default)]
    token_id: String,
    /// PEM of the authority that a user compared; empty where the machine's own ones do.
    #[serde(default)]
    authority: String,
}

/// The client for this command.
///
/// A flag wins over everything; then `FARDEL_RUN` (a caller that names a directory means the server
/// there), then the remembered sign-in, then this machine's own socket.
pub(super) fn client(global: &Global, around: &Surroundings) -> Result<HttpClient, CliError> {
    let given = given_token(global, around)?;
    let (address, known) = match (&global.server, &global.run) {
        (Some(server), _) => {
            let address = ServerAddress::parse(server)?;
            let known = remembered_of(around, &address);
            (address, known)
        }
        (None, Some(run)) => (ServerAddress::Socket(run.join("fardel.sock")), None),
        (None, None) => match remembered(around) {
            Some(known) => (ServerAddress::parse(&known.server)?, Some(known)),
            None => (ServerAddress::Socket(around.socket.clone()), None),
        },
    };
    let authority = known.as_ref().map(|known| known.authority.as_str());
    let tls = trust(&address, global, authority)?;
    Ok(HttpClient {
        address,
        tls,
        token: given.or(known.map(|known| known.token)),
        explain: global.explain,
        language: language(around.variable).to_owned(),
    })
}

/// Whom to believe at this address: the file of `--ca` alone, or the authority that was compared at
/// sign-in, or the ones this machine trusts. None where nothing is encrypted.
fn trust(
    address: &ServerAddress,
    global: &Global,
    compared: Option<&str>,
) -> Result<Option<Arc<ClientConfig>>, CliError> {
    if !address.is_secure() {
        return Ok(None);
    }
    let given = global.ca.as_deref().map(secret_from).transpose()?;
    let pem = given.as_deref().or(compared).filter(|pem| !pem.is_empty());
    believe(pem).map(Some)
}

fn believe(pem: Option<&str>) -> Result<Arc<ClientConfig>, CliError> {
    trusting(pem, pem.is_none()).map_err(|error| match error {
        base::tls::TlsError::Refused(refusal) => {
            CliError::usage(refusal.text.clone()).hint(refusal.hint.clone())
        }
        fault => CliError::new(FAILED, "tls.unusable", fault.to_string()),
    })
}

/// Shows the fingerprint of a server that nothing here trusts, and gives its authority once a user has
/// compared it or `--fingerprint` named it. Sends nothing to that server.
async fn compare(client: &HttpClient, request: &Login) -> Result<String, CliError> {
    let unusable =
        |fault: base::tls::TlsError| CliError::new(FAILED, "tls.unusable", fault.to_string());
    let look = CertificateCapture::new();
    let stranger = HttpClient {
        tls: Some(look.config().map_err(unusable)?),
        token: None,
        ..client.clone()
    };
    stranger.greet().await?;
    let Some((pem, facts)) = look.authority() else {
        return Err(CliError::new(
            FAILED,
            UNTRUSTED,
            "The server showed no certificate.",
        ));
    };
    let plain = |text: &str| -> String {
        let digits = text.chars().filter(char::is_ascii_hexdigit);
        digits.map(|c| c.to_ascii_uppercase()).collect()
    };
    if let Some(expected) = &request.fingerprint {
        if plain(expected) == plain(&facts.fingerprint) {
            return Ok(pem);
        }
        return Err(CliError::new(
            FAILED,
            "server.other-fingerprint",
            format!("{} shows {}, and not the fingerprint that was given.", client.address, facts.fingerprint),
        )
        .hint("The connection may be intercepted, or the server was installed again: ask its administrator."));
    }
    complain(&format!(
        "{} is not known here yet. Its authority is {} with this SHA-256 fingerprint:\n\n  {}\n\n\
         Compare it with the machine's own screen, with `fardel trust` there, or ask its administrator.\n",
        client.address, facts.subject, facts.fingerprint
    ));
    if !std::io::stdin().is_terminal() {
        return Err(CliError::new(
            FAILED,
            UNTRUSTED,
            "There is no terminal to compare the fingerprint on.",
        )
        .hint("Give --fingerprint SHA256 or --ca FILE."));
    }
    match asked("Is it the same? [yes/no] ")?.to_lowercase().as_str() {
        "yes" | "y" | "네" | "예" => Ok(pem),
        _ => Err(CliError::new(
            FAILED,
            UNTRUSTED,
            "Not signed in; nothing was sent.",
        )),
    }
}

fn remembered_of(around: &Surroundings, address: &ServerAddress) -> Option<Remembered> {
    remembered(around).filter(|r| ServerAddress::parse(&r.server).is_ok_and(|a| a == *address))
}

fn given_token(global: &Global, around: &Surroundings) -> Result<Option<String>, CliError> {
    if let Some(file) = &global.token_file {
        return secret_from(file).map(Some);
    }
    Ok((around.variable)("FARDEL_TOKEN").filter(|t| !t.is_empty()))
}

fn secret_from(file: &Path) -> Result<String, CliError> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| CliError::usage(format!("{} cannot be read: {e}.", file.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn file(around: &Surroundings) -> PathBuf {
    let folder = (around.variable)("XDG_CONFIG_HOME")
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
        .unwrap_or_else(|| {
            let home = (around.variable)("HOME").unwrap_or_else(|| "/root".to_owned());
            Path::new(&home).join(".config")
        });
    folder.join("fardel").join("login.json")
}

fn remembered(around: &Surroundings) -> Option<Remembered> {
    let text = std::fs::read_to_string(file(around)).ok()?;
    serde_json::from_str(&text).ok()
}

fn remember(around: &Surroundings, known: &Remembered) -> Result<(), CliError> {
    let path = file(around);
    let failed = |e: std::io::Error| {
        CliError::new(
            FAILED,
            "login.not-kept",
            format!("{} cannot be written: {e}.", path.display()),
        )
        .hint("Set XDG_CONFIG_HOME to a directory of yours, or use FARDEL_TOKEN.")
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    // A new file from the start, so that no earlier permissions of it are kept.
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let mut out = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(failed)?;
    let text = serde_json::to_string_pretty(known).map_err(|e| failed(e.into()))?;
    out.write_all(text.as_bytes())
        .and_then(|()| out.sync_all())
        .and_then(|()| std::fs::rename(&new, &path))
        .map_err(failed)
}

/// Signs in, has a token made for this client, and remembers it.
pub(super) async fn login(
    request: &Login,
    global: &Global,
    around: &Surroundings,
    view: &OutputStyle,
) -> Result<(), CliError> {
    let place = request.address.as_ref().or(global.server.as_ref());
    let address = match place {
        Some(text) => ServerAddress::parse(text)?,
        None => ServerAddress::Socket(around.socket.clone()),
    };
    let before = remembered_of(around, &address).map(|known| known.authority);
    let mut client = HttpClient {
        tls: trust(&address, global, before.as_deref())?,
        address,
        token: given_token(global, around)?,
        explain: global.explain,
        language: language(around.variable).to_owned(),
    };
    let mut authority = match &global.ca {
        Some(file) if client.address.is_secure() => secret_from(file)?,
        _ => before.unwrap_or_default(),
    };
    if client.address.is_secure() {
        match client.greet().await {
            Ok(()) => {}
            Err(trouble) if trouble.code == UNTRUSTED && authority.is_empty() => {
                authority = compare(&client, request).await?;
                client.tls = Some(believe(Some(&authority))?);
            }
            Err(trouble) => return Err(trouble),
        }
    }
    let (token, token_id) = if let Some(token) = client.token.clone() {
        (token, String::new())
    } else {
        let name = match &request.name {
            Some(name) => name.clone(),
            None => asked("Name: ")?,
        };
        let password = password(&request.password, "Password: ")?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut body = json!({
            "name": name,
            "password": password,
            "code": request.code,
            "token_name": format!("cli on {}", host.trim()),
            "expires_seconds": super::values::seconds(&request.expires)?,
        });
        let post = async |body: &Value| {
            let sent = Extra::json(body);
            client.call(Method::POST, "/api/v1/sign-in", sent).await
        };
        let answer = match post(&body).await {
            Err(needed) if needed.code == rules::codes::SECOND_FACTOR_NEEDED => {
                body["code"] = code("Code: ")?.into();
                post(&body).await?
            }
            answer => answer?,
        }
        .json()?;
        let signed_in = Answer::<SignedIn>::of(answer)?.read;
        (signed_in.secret, signed_in.token.id.to_string())
    };
    client.token = Some(token.clone());
    let Answer { body: me, read } = client.read::<User>("/api/v1/me").await?;
    let user = read.name.to_string();
    remember(
        around,
        &Remembered {
            server: client.address.to_string(),
            user: user.clone(),
            token,
            token_id,
            authority,
        },
    )?;
    let sentence = format!("Signed in to {} as {user}.", client.address);
    print(&view.said(&me, &sentence)?);
    Ok(())
}

/// Revokes the remembered token and forgets it.
pub(super) async fn logout(
    global: &Global,
    around: &Surroundings,
    view: &OutputStyle,
) -> Result<(), CliError> {
    let Some(known) = remembered(around) else {
        print(&view.said(&json!({}), "You are not signed in.")?);
        return Ok(());
    };
    let mut told = true;
    if !known.token_id.is_empty() {
        let address = ServerAddress::parse(&known.server)?;
        let client = HttpClient {
            tls: trust(&address, global, Some(&known.authority))?,
            address,
            token: Some(known.token.clone()),
            explain: global.explain,
            language: language(around.variable).to_owned(),
        };
        let path = format!("/api/v1/me/tokens/{}", known.token_id);
        let revoked = client.call(Method::DELETE, &path, Extra::default()).await;
        if let Err(trouble) = revoked {
            told = false;
            complain(&format!(
                "warning: the token was not revoked at {}: {}\n",
                known.server, trouble.text
            ));
        }
    }
    std::fs::remove_file(file(around)).map_err(|e| {
        CliError::new(
            FAILED,
            "login.not-forgotten",
            format!("{} cannot be removed: {e}.", file(around).display()),
        )
    })?;
    let sentence = format!("Signed out of {}.", known.server);
    print(&view.said(&json!({"server": known.server, "revoked": told}), &sentence)?);
    Ok(())
}

/// A password from a file, from standard input, or from the keyboard without showing it.
pub(super) fn password(from: &Password, prompt: &str) -> Result<String, CliError> {
    if let Some(file) = &from.password_file {
        return secret_from(file);
    }
    if from.password_stdin || !std::io::stdin().is_terminal() {
        // One line: what follows may be a code.
        let mut line = String::new();
        std::io::stdin()
            .lock()
            .read_line(&mut line)
            .map_err(|e| CliError::usage(format!("Standard input cannot be read: {e}.")))?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    typed_unseen(prompt)
}

/// The code of a second factor from the keyboard.
pub(super) fn code(prompt: &str) -> Result<String, CliError> {
    if !std::io::stdin().is_terminal() {
        return Err(
            CliError::usage("A code of the second factor is needed.").hint("Give it with --code.")
        );
    }
    asked(prompt)
}

/// Asks twice where a user types a new password.
pub(super) fn new_password(from: &Password) -> Result<String, CliError> {
    let by_hand =
        from.password_file.is_none() && !from.password_stdin && std::io::stdin().is_terminal();
    let first = password(from, "New password: ")?;
    if by_hand && first != typed_unseen("Again: ")? {
        return Err(CliError::usage("The two passwords differ.").hint("Try again."));
    }
    Ok(first)
}

/// The passphrase of a backup from the keyboard, without showing it; asked twice for a new backup.
pub fn passphrase(twice: bool) -> Result<String, Refusal> {
    let told = |trouble: CliError| refusals::backup_passphrase_untyped(trouble.text);
    let first = typed_unseen("Passphrase: ").map_err(told)?;
    if twice && first != typed_unseen("Again: ").map_err(told)? {
        return Err(refusals::backup_passphrases_differ());
    }
    Ok(first)
}

pub(super) fn asked(prompt: &str) -> Result<String, CliError> {
    if !std::io::stdin().is_terminal() {
        return Err(CliError::usage("A name is needed.").hint("Give it with --name."));
    }
    complain(prompt);
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|e| CliError::usage(format!("The keyboard cannot be read: {e}.")))?;
    Ok(line.trim().to_owned())
}

pub(super) fn typed_unseen(prompt: &str) -> Result<String, CliError> {
    use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
    let failed =
        |e: nix::errno::Errno| CliError::usage(format!("The keyboard is not usable: {e}."));
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).map_err(failed)?;
    let mut silent = before.clone();
    silent.local_flags.remove(LocalFlags::ECHO);
    silent.local_flags.insert(LocalFlags::ECHONL);
    complain(prompt);
    tcsetattr(&stdin, SetArg::TCSAFLUSH, &silent).map_err(failed)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, SetArg::TCSAFLUSH, &before).map_err(failed)?;
    read.map_err(|e| CliError::usage(format!("The keyboard cannot be read: {e}.")))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn around(home: &'static str) -> Surroundings {
        // A plain function cannot capture; the test's directory is handed over by its name.
        fn variable(name: &str) -> Option<String> {
            (name == "XDG_CONFIG_HOME").then(|| {
                std::env::temp_dir()
                    .join("fardel-login-test")
                    .display()
                    .to_string()
            })
        }
        let _ = home;
        Surroundings {
            variable,
            socket: "/run/fardel/fardel.sock".into(),
        }
    }

    #[test]
    fn the_remembered_sign_in_is_for_its_owner_only_and_for_its_server_only() {
        let around = around("x");
        let known = Remembered {
            server: "http://192.0.2.1:7860".into(),
            user: "mina".into(),
            token: "secret".into(),
            token_id: String::new(),
            authority: String::new(),
        };
        remember(&around, &known).expect("writable");
        let mode = std::fs::metadata(file(&around))
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);

        let mut global = Global {
            output: super::super::Format::Table,
            server: None,
            run: None,
            token_file: None,
            ca: None,
            columns: Vec::new(),
            no_color: false,
            quiet: false,
            explain: false,
        };
        let own = client(&global, &around).expect("known");
        assert_eq!(
            (own.address.to_string(), own.token.as_deref()),
            (known.server.clone(), Some("secret"))
        );
        global.server = Some("https://192.0.2.2".into());
        let other = client(&global, &around).expect("known");
        assert_eq!(other.token, None, "a token went to another server");
        global.server = None;
        global.run = Some("/r".into());
        let local = client(&global, &around).expect("known");
        assert_eq!(
            local.address,
            ServerAddress::Socket("/r/fardel.sock".into())
        );
        std::fs::remove_dir_all(file(&around).parent().expect("a folder")).expect("removed");
    }
}
