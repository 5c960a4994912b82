//! Brings mail to the mail server of the site: writes a message as mail is written, and speaks to the server. Knows neither
//! notices nor users; whom it is for and what it says, callers bring.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::connection_fault;
use base::settings::Settings;
use rules::mail::{MailSecurity, MailServer};
use rules::names::EmailAddress;
use rules::reason::Reason;
use rules::reasons;
use rules::refusals;
use rules::units::Timestamp;

use crate::Failure;
use crate::hand_over::HandOverFault;

mod message;
mod smtp;

pub(crate) use message::MailMessage;

/// Longest time from the first step towards the mail server to its last answer. Longer: a dead one is noticed later. Shorter:
/// one that greets strangers slowly, as many do, takes nothing.
const MAX_DELIVERY: Duration = Duration::from_secs(30);

/// Why a mail was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MailFault {
    #[error("{}", refusals::mail_unset().text)]
    Unset,
    #[error("{}", reasons::connection_timed_out().text)]
    Late,
    #[error("{}", reasons::connection_no_tls().text)]
    NoTls,
    #[error("{}", reasons::connection_no_sign_in().text)]
    NoSignIn,
    #[error("{}", reasons::connection_unreadable("SMTP").text)]
    Unreadable,
    #[error("{}", refused(*.step, *.code, .said).text)]
    Refused {
        step: MailStep,
        code: u16,
        said: String,
    },
    #[error(transparent)]
    Way(#[from] HandOverFault),
    #[error("{}", connection_fault::told(.0).text)]
    Connection(std::io::Error),
    #[error(transparent)]
    Catalog(#[from] Failure),
}

// No source: the sentence has what stands behind it.
impl From<std::io::Error> for MailFault {
    fn from(error: std::io::Error) -> Self {
        Self::Connection(error)
    }
}

fn refused(step: MailStep, code: u16, said: &str) -> Reason {
    let answer = format!("{code} {said}");
    match step {
        MailStep::Greeting => reasons::connection_mail_greeting(answer),
        step => reasons::connection_mail_refused(step, answer),
    }
}

/// What was said to the mail server last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MailStep {
    Greeting,
    Hello,
    Tls,
    SignIn,
    Sender,
    Recipient,
    Content,
}

impl std::fmt::Display for MailStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Greeting => "the connection",
            Self::Hello => "EHLO",
            Self::Tls => "STARTTLS",
            Self::SignIn => "AUTH",
            Self::Sender => "MAIL",
            Self::Recipient => "RCPT",
            Self::Content => "DATA",
        })
    }
}

/// Whom a refusal concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedFor {
    /// This mail, for good: another try would come to the same.
    MailForGood,
    /// This mail, for now.
    MailForNow,
    /// Every mail.
    All,
}

impl MailFault {
    pub(crate) fn concerns(&self) -> RefusedFor {
        match self {
            Self::Refused {
                step: MailStep::Recipient | MailStep::Content,
                code,
                ..
            } => match code {
                // It closes, or wants a sign-in first: this says nothing of the mail.
                421 | 530 => RefusedFor::All,
                500.. => RefusedFor::MailForGood,
                _ => RefusedFor::MailForNow,
            },
            Self::Refused { .. }
            | Self::Unset
            | Self::Late
            | Self::NoTls
            | Self::NoSignIn
            | Self::Unreadable
            | Self::Way(_)
            | Self::Connection(_)
            | Self::Catalog(_) => RefusedFor::All,
        }
    }
}

/// Why the mail server takes nothing at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MailTrouble {
    pub(crate) since: Timestamp,
    pub(crate) why: String,
}

/// What is remembered of the mail server between two tries.
#[derive(Default)]
pub(crate) struct MailState(Mutex<Option<MailTrouble>>);

impl MailState {
    fn locked(&self) -> MutexGuard<'_, Option<MailTrouble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the mail server takes mail; true where it did not before.
    pub(crate) fn put_well(&self) -> bool {
        self.locked().take().is_some()
    }

    /// Notes why the mail server takes nothing; true where it took mail before.
    pub(crate) fn put_trouble(&self, now: Timestamp, why: String) -> bool {
        let mut trouble = self.locked();
        let known = trouble.as_ref().map(|trouble| trouble.since);
        let since = known.unwrap_or(now);
        *trouble = Some(MailTrouble { since, why });
        known.is_none()
    }

    pub(crate) fn trouble(&self) -> Option<MailTrouble> {
        self.locked().clone()
    }
}

/// The mail server as people are told of it, `HOST:PORT`; None where none is set.
pub(crate) fn place(settings: &Settings) -> Option<String> {
    let (server, _, _) = set(settings)?;
    Some(match server.host.contains(':') {
        true => format!("[{}]:{}", server.host, server.port),
        false => format!("{}:{}", server.host, server.port),
    })
}

/// The mail server, how it is reached, and whom mail comes from; None where no server is set.
fn set(settings: &Settings) -> Option<(MailServer, MailSecurity, EmailAddress)> {
    let security = MailSecurity::parse(settings.mail_security.trim())?;
    let server = MailServer::parse(settings.mail_server.as_deref()?, security)?;
    let from = EmailAddress::parse(settings.mail_from.as_deref()?.trim()).ok()?;
    Some((server, security, from))
}

/// Hands one mail to the mail server; gives its last answer once it has taken the mail.
pub(crate) async fn deliver(
    settings: &Settings,
    message: &MailMessage<'_>,
) -> Result<String, MailFault> {
    let sending = smtp::deliver(settings, message);
    match tokio::time::timeout(MAX_DELIVERY, sending).await {
        Ok(taken) => taken,
        Err(_) => Err(MailFault::Late),
    }
}

#[cfg(test)]
pub(crate) mod tests;
