//! The commands on SSH: the public keys of who asks, and what a client needs to know of the server. Reads no private key.

use std::io::Read as _;
use std::path::Path;

use api::ssh::{SshKeyView, SshServerView};
use hyper::Method;
use rules::refusals;
use serde_json::{Map, Value, json};

use super::address::ServerAddress;
use super::args::SshKeyCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, print, values};

const PATH: &str = "/api/v1/me/ssh-keys";

pub(super) async fn key(
    client: &HttpClient,
    view: &OutputStyle,
    request: SshKeyCommand,
) -> Result<u8, CliError> {
    match request {
        SshKeyCommand::Ls => {
            print(&view.list(&client.get(PATH).await?, columns::SSH_KEYS)?);
        }
        SshKeyCommand::Add {
            file,
            name,
            expires,
        } => {
            let mut body = Map::new();
            body.insert("public_key".to_owned(), read(&file)?.trim().into());
            if let Some(name) = name {
                body.insert("name".to_owned(), name.into());
            }
            if let Some(expires) = expires {
                let end = super::now().plus_seconds(values::seconds(&expires)?);
                body.insert("expires_at".to_owned(), end.to_string().into());
            }
            let body = Value::Object(body);
            let made = client.send::<SshKeyView>(PATH, &body).await?;
            let told = format!("{}  {}", made.read.name, made.read.fingerprint);
            print(&view.said(&made.body, &told)?);
        }
        SshKeyCommand::Rm { keys } => {
            for key in keys {
                let path = format!("{PATH}/{}", encoded(&key));
                client.call(Method::DELETE, &path, Extra::default()).await?;
                print(&view.said(&json!({"id": key}), &format!("{key}  removed"))?);
            }
        }
    }
    Ok(0)
}

/// Prints what `ssh` wants to read in its own configuration.
pub(super) async fn config(
    client: &HttpClient,
    view: &OutputStyle,
    alias: &str,
) -> Result<u8, CliError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if alias.is_empty() || !alias.chars().all(plain) {
        return Err(CliError::usage(format!("{alias:?} is no name of a host."))
            .hint("For example: lab or gpu-1."));
    }
    let answer = client.read::<SshServerView>("/api/v1/ssh").await?;
    let host = match &client.address {
        ServerAddress::Socket(_) => "127.0.0.1",
        ServerAddress::Tcp { host, .. } => host.as_str(),
    };
    let told = block(alias, host, &answer.read);
    print(&view.said(&answer.body, &told)?);
    Ok(0)
}

/// AES in hardware takes half the processor time of what clients choose by themselves.
fn block(alias: &str, host: &str, server: &SshServerView) -> String {
    let SshServerView {
        port,
        fingerprint,
        host_key,
    } = server;
    [
        format!("# Then: ssh SESSION@{alias}"),
        format!("# {fingerprint}; for known_hosts: [{host}]:{port} {host_key}"),
        format!("Host {alias}"),
        format!("    HostName {host}"),
        format!("    Port {port}"),
        "    Ciphers aes256-gcm@openssh.com".to_owned(),
        "    ForwardAgent no".to_owned(),
    ]
    .join("\n")
}

/// A file, or standard input for `-`. A private key goes no further.
fn read(file: &Path) -> Result<String, CliError> {
    let failed = |error: std::io::Error| {
        CliError::usage(format!("{} cannot be read: {error}.", file.display()))
    };
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        text
    } else {
        // Other bytes than text are no key; the server says what would work.
        let bytes = std::fs::read(file).map_err(failed)?;
        String::from_utf8_lossy(&bytes).into_owned()
    };
    match text.contains("PRIVATE KEY") {
        true => Err(refusals::ssh_key_private().into()),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_leaves_this_computer_never() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("id_ed25519");
        std::fs::write(&file, "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n").expect("written");
        assert!(read(&file).is_err());
        std::fs::write(&file, "ssh-ed25519 AAAA mina@laptop\n").expect("written");
        let line = read(&file).ok();
        assert_eq!(line.as_deref(), Some("ssh-ed25519 AAAA mina@laptop\n"));
    }

    #[test]
    fn the_configuration_names_host_port_and_key() {
        let server = SshServerView {
            port: 7822,
            fingerprint: "SHA256:abc".to_owned(),
            host_key: "ssh-ed25519 AAAA".to_owned(),
        };
        assert_eq!(
            block("lab", "192.0.2.7", &server),
            "# Then: ssh SESSION@lab\n\
             # SHA256:abc; for known_hosts: [192.0.2.7]:7822 ssh-ed25519 AAAA\n\
             Host lab\n    HostName 192.0.2.7\n    Port 7822\n    Ciphers aes256-gcm@openssh.com\n    ForwardAgent no"
        );
    }
}
