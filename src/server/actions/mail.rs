//! Notices by mail, as users ask for them: which kinds each gets, how the mail server stands, and a trial of it. What a mail
//! says, a writer of the doors brings: the words of the console. Mail that is due, `jobs::mail` sends.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::mail::{MailChoicesBody, MailChoicesView, MailStatusView, MailTestBody, MailTrial};
use api::notices::NoticeTopic;
use base::observe::chain;
use base::settings::Settings;
use rules::names::{EmailAddress, UserId};
use rules::permissions::Permission;
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::users::User;

use super::allowed;
use super::notices::OwnNotice;
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::mail::FailedMail;
use crate::catalog::outputs::NoticeOutput;
use crate::catalog::users::ROOT;
use crate::catalog::{Lane, ReadTransaction};
use crate::mail::{self, MailMessage};
use crate::{Failure, Server, ServerFault};

/// What a trial and a retry note in the journal, and what a choice does.
const TESTED: &str = "mail.tested";
const RETRIED: &str = "mail.retried";
const CHOSEN: &str = "user.mail-chosen";

/// For whom a mail is written.
#[derive(Debug, Clone, Copy)]
pub struct MailReader<'a> {
    /// `en`, `ko`, or empty where the account has none.
    pub language: &'a str,
    /// IANA name; empty means UTC.
    pub time_zone: &'a str,
    /// Where the console is, without a slash at its end.
    pub origin: &'a str,
    /// What the site calls itself; empty: as its machine does.
    pub site: &'a str,
    pub now: Timestamp,
}

/// What a mail says: plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailText {
    pub subject: String,
    pub body: String,
}

/// Writes mail in the words of the console.
pub trait MailWriter: Send + Sync {
    /// Of these notices, which are at least one; `more` are not told, and stand in the console.
    fn of_notices(&self, reader: &MailReader<'_>, all: &[OwnNotice], more: usize) -> MailText;
    /// That says no more than that mail arrives.
    fn trial(&self, reader: &MailReader<'_>) -> MailText;
}

/// What the caller gets by mail.
///
/// Errors: `denied` without `me`; `user.root` for root on this machine, which has no account.
pub async fn choices(server: &Server, caller: &Caller) -> Result<MailChoicesView, Failure> {
    allowed(caller, Permission::Me)?;
    let (user, enabled) = (caller.subject.user, is_set(server));
    server
        .catalog()
        .read("look what is mailed", move |view| {
            shown(view, user, enabled)
        })
        .await
}

/// Sets what the caller gets by mail.
///
/// Errors: as `choices`.
pub async fn choose(
    server: &Server,
    caller: &Caller,
    wanted: MailChoicesBody,
) -> Result<MailChoicesView, Failure> {
    allowed(caller, Permission::Me)?;
    let (caller, enabled) = (caller.clone(), is_set(server));
    let wanted: Option<BTreeSet<NoticeTopic>> =
        wanted.kinds.map(|kinds| kinds.into_iter().collect());
    server
        .catalog()
        .write(Lane::Requests, "choose what is mailed", move |rows| {
            let user = account(rows, caller.subject.user)?;
            let before = rows.mail_choice(user.id)?;
            if before == wanted {
                return shown(rows, user.id, enabled);
            }
            match &wanted {
                Some(topics) => rows.put_mail_choice(user.id, topics)?,
                None => rows.forget_mail_choice(user.id)?,
            }
            let (was, is) = (told(before.as_ref()), told(wanted.as_ref()));
            rows.note_user(caller.name.as_str(), &user, CHOSEN, &was, &is)?;
            shown(rows, user.id, enabled)
        })
        .await
}

/// How mail of this site stands.
///
/// Errors: `denied` without `system:read`.
pub async fn status(server: &Server, caller: &Caller) -> Result<MailStatusView, Failure> {
    allowed(caller, Permission::SystemRead)?;
    standing(server)
}

/// The same for the server itself.
pub(super) fn standing(server: &Server) -> Result<MailStatusView, Failure> {
    let settings = server.settings();
    let place = mail::place(&settings);
    let (progress, waiting, failed) = match place {
        None => (None, 0, FailedMail::default()),
        Some(_) => server
            .catalog()
            .read_now("look how mail goes out", |view| {
                let progress = view.output_progress(NoticeOutput::Mail)?;
                Ok((progress, view.waiting_mail()?, view.failed_mail()?))
            })?,
    };
    let progress = progress.unwrap_or_default();
    let trouble = place.as_ref().and_then(|_| server.mail().trouble());
    Ok(MailStatusView {
        from: place.as_ref().and(settings.mail_from.clone()),
        server: place,
        waiting,
        failed: failed.count,
        failure: failed.why,
        lost: progress.lost,
        lost_at: progress.lost_at,
        sent_at: progress.sent_at,
        problem_since: trouble.as_ref().map(|trouble| trouble.since),
        problem: trouble.map(|trouble| trouble.why).unwrap_or_default(),
    })
}

/// Queues again what the mail server refused for good within 72 hours, and says how mail stands then.
///
/// Errors: `denied` without `system:write`; `mail.unset`.
pub async fn retry(server: &Server, caller: &Caller) -> Result<MailStatusView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let place = mail::place(&server.settings());
    let place = place.ok_or_else(refusals::mail_unset)?;
    let actor = caller.name.to_string();
    server
        .catalog()
        .write(Lane::Requests, "send refused mail again", move |rows| {
            let retried = rows.retry_mail()?;
            if retried == 0 {
                return Ok(());
            }
            rows.note(NewEvent {
                actor: &actor,
                topic: "system",
                object: &place,
                scope: Scope::SITE,
                code: RETRIED,
                before: "",
                after: &retried.to_string(),
            })
        })
        .await?;
    standing(server)
}

/// Sends one mail that is a trial, and says what the mail server answered. That it takes none is what comes of it, and no
/// refusal.
///
/// Errors: `denied` without `system:write`; `mail.unset`; `email.invalid` at `/address`.
pub async fn test(
    server: &Server,
    caller: &Caller,
    asked: MailTestBody,
) -> Result<MailTrial, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let to = EmailAddress::parse(asked.address.trim()).map_err(|wrong| wrong.at("/address"))?;
    let settings = server.settings();
    if mail::place(&settings).is_none() {
        return Err(refusals::mail_unset().into());
    }
    let now = server.clock().now();
    let reader = MailReader {
        language: &caller.language,
        time_zone: &caller.time_zone,
        origin: &origin(&settings),
        site: &super::branding::around(server).name,
        now,
    };
    let text = writer(server)?.trial(&reader);
    let id = format!("test{}", now.as_millis());
    let message = MailMessage {
        to: &to,
        subject: &text.subject,
        body: &text.body,
        at: now,
        id: &id,
    };
    let sent = mail::deliver(&settings, &message).await;
    if sent.is_ok() {
        server.mail().put_well();
    }
    let trial = MailTrial {
        works: sent.is_ok(),
        problem: sent
            .as_ref()
            .err()
            .map(|fault| chain(fault))
            .unwrap_or_default(),
        answer: sent.unwrap_or_default(),
    };
    let (actor, after) = (caller.name.to_string(), trial.clone());
    server
        .catalog()
        .write(Lane::Requests, "note a trial of mail", move |rows| {
            rows.note(NewEvent {
                actor: &actor,
                topic: "system",
                object: to.as_str(),
                scope: Scope::SITE,
                code: TESTED,
                before: "",
                after: match after.works {
                    true => &after.answer,
                    false => &after.problem,
                },
            })
        })
        .await?;
    Ok(trial)
}

/// What is mailed to a user who chose this, or nothing.
pub(crate) fn chosen(choice: Option<BTreeSet<NoticeTopic>>) -> BTreeSet<NoticeTopic> {
    let usual = || {
        let all = NoticeTopic::ALL.into_iter();
        all.filter(|topic| topic.needs_answer()).collect()
    };
    choice.unwrap_or_else(usual)
}

/// Where the console is for readers of mail, without a slash at its end.
pub(crate) fn origin(settings: &Settings) -> String {
    let set = settings
        .mail_origin
        .as_ref()
        .or(settings.oidc_origin.as_ref());
    let own = || settings.origins().into_iter().next().unwrap_or_default();
    let origin = set.map_or_else(own, |origin| origin.trim().to_owned());
    origin.strip_suffix('/').unwrap_or(&origin).to_owned()
}

/// What writes mail. Errors: a fault where no door brought one.
pub(crate) fn writer(server: &Server) -> Result<Arc<dyn MailWriter>, ServerFault> {
    let brought = server.mail_writer();
    brought.ok_or_else(|| ServerFault::new("write a mail", "no door brought its words"))
}

fn is_set(server: &Server) -> bool {
    mail::place(&server.settings()).is_some()
}

/// The account of a caller. Errors: `user.root`, `user.gone`.
fn account(view: &ReadTransaction<'_>, user: UserId) -> Result<User, Failure> {
    if user == ROOT {
        return Err(refusals::user_root().into());
    }
    view.user(user)?.ok_or_else(|| refusals::user_gone().into())
}

fn shown(
    view: &ReadTransaction<'_>,
    user: UserId,
    enabled: bool,
) -> Result<MailChoicesView, Failure> {
    let user = account(view, user)?;
    let choice = view.mail_choice(user.id)?;
    Ok(MailChoicesView {
        address: user.email.map(|email| email.to_string()),
        enabled,
        by_default: choice.is_none(),
        kinds: chosen(choice).into_iter().collect(),
    })
}

/// A choice as an event keeps it; empty for none.
fn told(choice: Option<&BTreeSet<NoticeTopic>>) -> String {
    let Some(topics) = choice else {
        return String::new();
    };
    let words: Vec<&str> = topics.iter().map(|topic| topic.word()).collect();
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(", "),
    }
}
