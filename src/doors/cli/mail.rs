//! The commands on notices by mail: what you get, how mail of the site stands, a retry of what was refused, and a trial of
//! the mail server.

use api::mail::{MailChoicesView, MailStatusView, MailTrial};
use api::notices::NoticeTopic;
use hyper::Method;
use serde_json::json;

use super::answer::Answer;
use super::args::MailCommand;
use super::client::{Extra, HttpClient};
use super::error::CliError;
use super::output::OutputStyle;
use super::print;

const OWN: &str = "/api/v1/me/mail";
const SITE: &str = "/api/v1/mail";

pub(super) async fn mail(
    client: &HttpClient,
    view: &OutputStyle,
    request: MailCommand,
) -> Result<u8, CliError> {
    match request {
        MailCommand::Choices => {
            let answer = client.read::<MailChoicesView>(OWN).await?;
            print(&view.said(&answer.body, &chosen(&answer.read))?);
        }
        MailCommand::Choose {
            kinds,
            none: _,
            default,
        } => {
            let kinds = match default {
                true => None,
                false => Some(kinds),
            };
            let extra = Extra::json(&json!({"kinds": kinds}));
            let answer = client.call(Method::PUT, OWN, extra).await?;
            let answer = Answer::<MailChoicesView>::of(answer.json()?)?;
            print(&view.said(&answer.body, &chosen(&answer.read))?);
        }
        MailCommand::Status => {
            let answer = client.read::<MailStatusView>(SITE).await?;
            print(&view.said(&answer.body, &standing(&answer.read))?);
        }
        MailCommand::Retry => {
            let path = format!("{SITE}/retry");
            let answer = client.send::<MailStatusView>(&path, &json!({})).await?;
            print(&view.said(&answer.body, &standing(&answer.read))?);
        }
        MailCommand::Test { address } => {
            let body = json!({"address": address});
            let path = format!("{SITE}/test");
            let answer = client.send::<MailTrial>(&path, &body).await?;
            let said = match answer.read.works {
                true => format!("{address}  works: {}", answer.read.answer),
                false => format!("{address}  {}", answer.read.problem),
            };
            print(&view.said(&answer.body, &said)?);
            return Ok(u8::from(!answer.read.works));
        }
    }
    Ok(0)
}

/// Every kind with its mark, and where mail goes.
fn chosen(choices: &MailChoicesView) -> String {
    let mut lines = String::new();
    for topic in NoticeTopic::ALL {
        let mark = if choices.kinds.contains(&topic) {
            "x"
        } else {
            " "
        };
        lines.push_str(&format!("[{mark}] {}\n", topic.word()));
    }
    let to = match (&choices.address, choices.enabled) {
        (_, false) => "This site sends no mail.".to_owned(),
        (None, true) => "Your account has no e-mail address.".to_owned(),
        (Some(address), true) => format!("Mail goes to {address}."),
    };
    format!("{lines}{to}\n")
}

/// How mail stands, a line each.
fn standing(status: &MailStatusView) -> String {
    let Some(server) = &status.server else {
        return "No mail server is set.\n".to_owned();
    };
    let mut lines = format!(
        "server   {server}\nwaiting  {}\nfailed   {}\nlost     {}\n",
        status.waiting, status.failed, status.lost
    );
    if !status.failure.is_empty() {
        lines.push_str(&format!("refused  {}\n", status.failure));
    }
    if let Some(at) = status.sent_at {
        lines.push_str(&format!("sent     {at}\n"));
    }
    if let Some(since) = status.problem_since {
        lines.push_str(&format!("problem  since {since}: {}\n", status.problem));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_told_with_their_marks() {
        let told = chosen(&MailChoicesView {
            address: Some("mina@lab.example".to_owned()),
            enabled: true,
            kinds: vec![NoticeTopic::Failed],
            by_default: false,
        });
        assert!(told.contains("[x] failed\n"), "{told}");
        assert!(told.contains("[ ] will-end\n"), "{told}");
        assert!(told.ends_with("Mail goes to mina@lab.example.\n"), "{told}");
    }
}
