//! Environments that come as bundles: list, show, import with a resumable upload, remove. Packing and building are
//! a role's, for they read and write image stores.

use std::path::Path;

use api::operations::OperationView;
use hyper::Method;
use rules::environment::BundleManifest;
use serde_json::json;

use super::answer::Answer;
use super::args::EnvironmentCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::{CliError, FAILED};
use super::output::OutputStyle;
use super::{columns, images, print};

pub(super) async fn environment(
    client: &HttpClient,
    view: &OutputStyle,
    request: EnvironmentCommand,
) -> Result<u8, CliError> {
    match request {
        EnvironmentCommand::Ls => {
            let body = client.get("/api/v1/environments").await?;
            print(&view.list(&body, columns::ENVIRONMENTS)?);
        }
        EnvironmentCommand::Get { environment } => {
            let body = client.get(&place(&environment)).await?;
            let wide = OutputStyle {
                format: super::Format::Wide,
                ..view.clone()
            };
            let table = wide.one(&body["environment"], columns::ENVIRONMENTS)?;
            let text = format!("{table}\n{}", super::output::text(&body, "licences"));
            print(&view.said(&body, text.trim_end())?);
        }
        EnvironmentCommand::Import {
            file,
            accept_unsigned,
            allow_older,
            detach,
        } => {
            let body = json!({
                "upload": images::sent(client, view, &file).await?,
                "accept_unsigned": accept_unsigned,
                "allow_older": allow_older,
            });
            let operation: Answer<OperationView> =
                client.send("/api/v1/environments/import", &body).await?;
            return images::followed(client, view, operation, detach, "imported").await;
        }
        EnvironmentCommand::Rm { environments } => {
            for environment in environments {
                let (path, none) = (place(&environment), Extra::default());
                client.call(Method::DELETE, &path, none).await?;
                let body = json!({"name": environment});
                print(&view.said(&body, &format!("{environment}  removed"))?);
            }
        }
        EnvironmentCommand::Pack(_)
        | EnvironmentCommand::Build(_)
        | EnvironmentCommand::Key { .. } => {
            // The role that reads the arguments does these itself.
            return Err(CliError::new(
                FAILED,
                "command.not-here",
                "This command is not one of the client's.",
            ));
        }
    }
    Ok(0)
}

fn place(environment: &str) -> String {
    format!("/api/v1/environments/{}", encoded(environment))
}

/// What is said of a bundle that was written: its file, its name and version, the public key of who signed it.
pub(crate) fn bundle_line(
    file: &Path,
    manifest: &BundleManifest,
    signer: Option<String>,
) -> String {
    let signer = signer.map(|key| format!("signed by {key}"));
    format!(
        "{}  {} {}, images: {}, {}",
        file.display(),
        manifest.name,
        manifest.version,
        manifest.images.len(),
        signer.as_deref().unwrap_or("not signed")
    )
}
