//! The commands on invitations: links by which accounts join a project.

use api::invitations::MadeInvitation;
use api::tenancy::MemberView;
use hyper::Method;
use serde_json::json;

use super::args::InvitationCommand;
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, complain, print, values};

pub(super) async fn invitation(
    client: &HttpClient,
    view: &OutputStyle,
    request: InvitationCommand,
) -> Result<u8, CliError> {
    match request {
        InvitationCommand::Ls { project } => {
            let body = client.get(&path(&project)).await?;
            print(&view.list(&body, columns::INVITATIONS)?);
        }
        InvitationCommand::Create {
            project,
            role,
            email,
            uses,
            valid,
            expires,
        } => {
            let after = |text: &str| -> Result<String, CliError> {
                Ok(super::now()
                    .plus_seconds(values::seconds(text)?)
                    .to_string())
            };
            let body = json!({
                "role": role,
                "email": email,
                "max_uses": uses,
                "expires_at": after(&valid)?,
                "member_until": expires.as_deref().map(after).transpose()?,
            });
            let path = path(&project);
            let made = client.send::<MadeInvitation>(&path, &body).await?;
            if view.for_humans() {
                complain("The link is shown this once.\n");
            }
            print(&view.said(&made.body, &made.read.links.join("\n"))?);
        }
        InvitationCommand::Revoke {
            project,
            invitation,
        } => {
            let path = format!("{}/{}", path(&project), encoded(&invitation));
            client.call(Method::DELETE, &path, Extra::default()).await?;
            let told = format!("{invitation}  revoked");
            print(&view.said(&json!({"id": invitation}), &told)?);
        }
        InvitationCommand::Accept { link } => {
            let code = link.rsplit_once("code=").map_or(&*link, |(_, code)| code);
            let body = json!({"code": code});
            let member = client.send::<MemberView>("/api/v1/invitations/accept", &body);
            let member = member.await?;
            let told = format!("{}  {}", member.read.user.name, member.read.role.word());
            print(&view.said(&member.body, &told)?);
        }
    }
    Ok(0)
}

fn path(project: &str) -> String {
    format!("/api/v1/projects/{}/invitations", encoded(project))
}
