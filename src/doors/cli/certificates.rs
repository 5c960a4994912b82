//! Whom to trust, and the server's certificates, from the command line.

use std::io::Read as _;
use std::path::Path;

use api::certificates::{CertificateAuthority, CertificateOrigin, CertificateStatus};
use serde_json::json;

use super::answer::Answer;
use super::args::TlsCommand;
use super::client::HttpClient;
use super::error::CliError;
use super::output::{OutputStyle, dash, text};
use super::{complain, print};

/// Prints the fingerprint for users and the certificate for files: `fardel trust > fardel.pem`.
pub(super) async fn trust(client: &HttpClient, view: &OutputStyle) -> Result<u8, CliError> {
    let Answer { body, read } = client.read::<CertificateAuthority>("/api/v1/trust").await?;
    if view.for_humans() {
        complain(&format!("{}\nSHA-256 {}\n", read.subject, read.fingerprint));
        if !read.in_use {
            complain("A certificate of the site is served at present, which this did not sign.\n");
        }
        print(&read.pem);
        return Ok(0);
    }
    print(&view.said(&body, &read.fingerprint)?);
    Ok(0)
}

pub(super) async fn tls(
    client: &HttpClient,
    view: &OutputStyle,
    request: TlsCommand,
) -> Result<u8, CliError> {
    match request {
        TlsCommand::Show => shown(view, &client.read("/api/v1/tls").await?),
        TlsCommand::Csr { name, organisation } => {
            let body = json!({"names": name, "organisation": organisation});
            let answer = client.post("/api/v1/tls/request", &body).await?;
            if view.for_humans() {
                complain(
                    "The key stays on the server. Have this signed, then: fardel tls import FILE\n",
                );
                print(&text(&answer, "request"));
                return Ok(0);
            }
            print(&view.said(&answer, text(&answer, "request").trim_end())?);
            Ok(0)
        }
        TlsCommand::Import { file, key, name } => {
            let key = key.as_deref().map(read).transpose()?;
            let body = json!({"certificate": read(&file)?, "key": key, "name": name});
            shown(view, &client.send("/api/v1/tls/certificate", &body).await?)
        }
        TlsCommand::Reset { previous } => {
            let to = if previous { "site" } else { "own" };
            shown(
                view,
                &client.send("/api/v1/tls/reset", &json!({"to": to})).await?,
            )
        }
    }
}

/// A file, or standard input for `-`.
fn read(file: &Path) -> Result<String, CliError> {
    let failed = |error: std::io::Error| {
        CliError::usage(format!("{} cannot be read: {error}.", file.display()))
    };
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    // Other bytes than text hold no PEM; the server says what would work.
    let bytes = std::fs::read(file).map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn shown(view: &OutputStyle, answer: &Answer<CertificateStatus>) -> Result<u8, CliError> {
    let status = &answer.read;
    let certificate = &status.certificate;
    let whose = match status.kind {
        CertificateOrigin::Site => "the site's",
        CertificateOrigin::Own => "this machine's own",
    };
    let mut lines = format!(
        "served     {whose}\nfor        {}\nsigned by  {}\nnames      {}\ngood       {} to {}\nSHA-256    {}\nauthority  {}\n",
        dash(&certificate.subject),
        dash(&certificate.issuer),
        certificate.names.join(", "),
        certificate.not_before,
        certificate.not_after,
        certificate.fingerprint,
        status.authority.fingerprint,
    );
    if let Some(previous) = &status.previous {
        lines.push_str(&format!(
            "before     {}, good until {}: fardel tls reset --previous\n",
            dash(&previous.subject),
            previous.not_after
        ));
    }
    if let Some(requested) = &status.requested {
        lines.push_str(&format!("requested  {}\n", requested.join(", ")));
    }
    print(&view.said(&answer.body, lines.trim_end())?);
    Ok(0)
}
