//! Mails notices to their readers: looks through the journal behind its commits for readers with something new, queues what
//! they chose, and sends what is due. A mail says what its reader's own notices say at that moment, and nothing else: what they
//! may not see any more is not sent. Each arrives at least once. Delays no commit; a dead mail server holds nothing but mail.

use std::collections::BTreeSet;
use std::time::Duration;

use api::notices::NoticeTopic;
use base::observe::chain;
use base::settings::Settings;
use rules::names::{EmailAddress, UserId};
use rules::units::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::access::{self, Caller};
use crate::actions::branding;
use crate::actions::mail::{MailReader, chosen, origin, writer};
use crate::actions::notices::{self, NoticeKind, OwnNotice};
use crate::catalog::mail::{DueMail, NewMailNotice};
use crate::catalog::outputs::{NoticeOutput, OutputProgress, ToldReaders};
use crate::catalog::{Lane, ReadTransaction};
use crate::mail::{self, MailFault, MailMessage, RefusedFor};
use crate::{Failure, Server};

/// Events of one look. Higher: more readers are looked at in one read. Lower: a burst takes more looks.
const MAX_EVENTS: u32 = 500;
/// Between a commit and the look: what happens together goes in one mail.
const GATHERED: Duration = Duration::from_secs(2);
/// Between two looks while no commit comes: limits come near, and what was put off is due.
const LOOK: Duration = Duration::from_secs(30);
/// Between two mails. Longer: a class of users waits. Shorter: the mail server calls it a flood.
const BETWEEN_MAILS: Duration = Duration::from_millis(50);
/// Longest time of sending in one round. Longer: behind a slow mail server, what is new waits to be queued and what is too
/// old to be given up. Shorter: a long queue is looked through more often.
const SENDING: Duration = Duration::from_secs(60);
/// Between two looks for what is too old.
const AGED: Duration = Duration::from_secs(3_600);
/// Longest pause after failures of the mail server, and the longest until a mail is tried again that it refused for now.
const MAX_PAUSE_SECONDS: u64 = 900;
/// Notices in one mail; the others are counted, and stand in the console.
const MAX_IN_MAIL: usize = 20;

/// What one step of sending came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// There may be more.
    Part,
    All,
}

/// Mails what there is and what comes, until it is dropped or the catalog's writer has ended.
pub(crate) async fn keep(server: Server) {
    let mut revision = server.catalog().revision();
    let mut work = MailWork::default();
    loop {
        // Before the look: a commit during it is looked at too.
        revision.mark_unchanged();
        let wait = work.round(&server).await;
        match tokio::time::timeout(wait, revision.changed()).await {
            Ok(Err(_)) => return,
            Ok(Ok(())) => tokio::time::sleep(GATHERED).await,
            Err(_) => {}
        }
    }
}

/// What is remembered between two rounds.
#[derive(Default)]
struct MailWork {
    /// Failures of the mail server in a row, and until when it is left alone.
    failures: u32,
    rest: Option<Instant>,
    aged: Option<Instant>,
}

impl MailWork {
    /// One round: queues what is new, and sends what is due while the mail server takes it. Gives how long to wait for a
    /// commit.
    async fn round(&mut self, server: &Server) -> Duration {
        if let Err(failure) = gather(server).await {
            tracing::warn!(error = %chain(&failure), "notices could not be queued for mail");
        }
        let now = Instant::now();
        if self.aged.is_none_or(|aged| now >= aged + AGED) {
            self.aged = Some(now);
            if let Err(failure) = age(server).await {
                tracing::warn!(error = %chain(&failure), "old mail could not be forgotten");
            }
        }
        if let Some(rest) = self.rest.filter(|rest| now < *rest) {
            return rest.duration_since(now).min(LOOK);
        }
        loop {
            match send_next(server).await {
                Ok(Sent::Part) => {
                    self.take_well();
                    if now.elapsed() > SENDING {
                        return Duration::ZERO;
                    }
                    tokio::time::sleep(BETWEEN_MAILS).await;
                }
                Ok(Sent::All) => return LOOK,
                Err(fault) => {
                    self.failures = self.failures.saturating_add(1);
                    let pause = Duration::from_secs(pause_seconds(self.failures));
                    self.rest = Some(Instant::now() + pause);
                    note(server, &fault);
                    return pause.min(LOOK);
                }
            }
        }
    }

    fn take_well(&mut self) {
        self.failures = 0;
        self.rest = None;
    }
}

/// How long to wait after so many failures in a row, at least one.
fn pause_seconds(failures: u32) -> u64 {
    let doubled = failures.saturating_sub(1).min(10);
    (5_u64 << doubled).min(MAX_PAUSE_SECONDS)
}

/// Notes why mail does not go out, and logs the first time.
fn note(server: &Server, fault: &MailFault) {
    let why = chain(fault);
    let now = server.clock().now();
    if server.mail().put_trouble(now, why.clone()) {
        tracing::warn!(error = %why, "mail does not go out");
    }
}

/// What one look found: the readers with something new, and how far it looked.
struct GatheredNotices {
    new: Vec<NewMailNotice>,
    seen: u64,
    seen_at: Timestamp,
}

/// Queues what is new for each reader who chose it. Without a mail server nothing is queued, and what waited is forgotten;
/// with a new one what happened before is not mailed.
async fn gather(server: &Server) -> Result<(), Failure> {
    let is_set = mail::place(&server.settings()).is_some();
    let progress = server.catalog().read_now("look how far mail is", |view| {
        view.output_progress(NoticeOutput::Mail)
    })?;
    let mut progress = match (is_set, progress) {
        (false, None) => return Ok(()),
        (false, Some(_)) => {
            server.mail().put_well();
            let what = "forget mail that waits";
            let catalog = server.catalog();
            return catalog
                .write_of_server(Lane::Loops, what, |rows| rows.forget_mail())
                .await;
        }
        (true, None) => begin(server).await?,
        (true, Some(progress)) => progress,
    };
    loop {
        let now = server.clock().now();
        let (found, is_part) = server
            .catalog()
            .read("look for notices to mail", move |view| {
                let told = view.told_readers(progress.seen, MAX_EVENTS)?;
                let is_part = told.is_part;
                Ok((news(view, &progress, told, now)?, is_part))
            })
            .await?;
        let (seen, seen_at) = (found.seen, found.seen_at);
        if !found.new.is_empty() || seen != progress.seen {
            server
                .catalog()
                .write_of_server(Lane::Loops, "queue notices for mail", move |rows| {
                    rows.queue_mail(&found.new)?;
                    rows.put_output_seen(NoticeOutput::Mail, seen, seen_at)
                })
                .await?;
        }
        progress = OutputProgress {
            seen,
            seen_at,
            ..progress
        };
        if !is_part {
            return Ok(());
        }
    }
}

/// Begins behind the newest event.
async fn begin(server: &Server) -> Result<OutputProgress, Failure> {
    server
        .catalog()
        .write_of_server(Lane::Loops, "begin to mail notices", |rows| {
            let progress = OutputProgress {
                seen: rows.event_range()?.1,
                seen_at: rows.now,
                ..OutputProgress::default()
            };
            rows.put_output_seen(NoticeOutput::Mail, progress.seen, progress.seen_at)?;
            Ok(progress)
        })
        .await
}

/// What is new for the readers of these events, for owners of sessions that end soon and for those whose folders are nearly
/// full. Costs the notices of each of these readers who has an address.
fn news(
    view: &ReadTransaction<'_>,
    progress: &OutputProgress,
    told: ToldReaders,
    now: Timestamp,
) -> Result<GatheredNotices, Failure> {
    let mut readers: BTreeSet<UserId> = told.owners.iter().copied().collect();
    if told.concerns_leads {
        readers.extend(view.users_with_roles()?);
    }
    if told.concerns_live {
        readers.extend(view.owners_of_live()?);
    }
    if told.concerns_asked {
        readers.extend(view.users_asked_since(progress.seen_at)?);
    }
    for user in view.owners_ending_before(notices::told_until(now))? {
        if has_new_end(view, user, now)? {
            readers.insert(user);
        }
    }
    for (user, warning) in view.warned_of_storage(progress.seen_at)? {
        let topics = chosen(view.mail_choice(user)?);
        if topics.contains(&NoticeTopic::Storage)
            && !view.knows_mail(user, &notices::storage_key(None, &warning))?
        {
            readers.insert(user);
        }
    }
    for (lead, project, warning) in view.leads_warned_of_storage(progress.seen_at)? {
        let topics = chosen(view.mail_choice(lead)?);
        if topics.contains(&NoticeTopic::Storage)
            && !view.knows_mail(lead, &notices::storage_key(Some(project), &warning))?
        {
            readers.insert(lead);
        }
    }
    let mut new = Vec::new();
    for user in readers {
        let Some((caller, _)) = reader(view, user, now)? else {
            continue;
        };
        let topics = chosen(view.mail_choice(user)?);
        for notice in notices::of(view, &caller, now)? {
            let topic = notice.topic();
            let is_wanted = is_fresh(&notice, progress, now) && topics.contains(&topic);
            // One that is known, such as a limit that comes near, costs no commit at each look.
            if is_wanted && !view.knows_mail(user, &notice.key)? {
                new.push(NewMailNotice {
                    user,
                    topic,
                    key: notice.key,
                });
            }
        }
    }
    let seen_at = match told.seen > progress.seen {
        true => told.seen_at,
        false => progress.seen_at,
    };
    Ok(GatheredNotices {
        new,
        seen: told.seen,
        seen_at,
    })
}

/// Whether a limit came near of which mail does not know: a class that ends together is not read whole at each commit.
fn has_new_end(view: &ReadTransaction<'_>, user: UserId, now: Timestamp) -> Result<bool, Failure> {
    let topics = chosen(view.mail_choice(user)?);
    if !topics.contains(&NoticeTopic::WillEnd) {
        return Ok(false);
    }
    for row in view.ending_before(user, notices::told_until(now), notices::MAX_SHOWN)? {
        if !view.knows_mail(user, &notices::end_key(&row))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The reader as the rules see them, and where their mail goes; None for one who has no address or may not sign in.
fn reader(
    view: &ReadTransaction<'_>,
    user: UserId,
    now: Timestamp,
) -> Result<Option<(Caller, EmailAddress)>, Failure> {
    let Some(user) = view.user(user)? else {
        return Ok(None);
    };
    let address = user.email.clone().filter(|_| !user.suspended);
    Ok(address.map(|address| (access::reader(&user, now), address)))
}

/// Whether mail says a notice. Who read that a user signed in may be another, who has their password.
fn is_told(notice: &OwnNotice) -> bool {
    notice.unread || matches!(notice.about, NoticeKind::SignedIn(_))
}

/// Whether a notice is told since the last look. What follows from rows is queued once by its key.
fn is_fresh(notice: &OwnNotice, progress: &OutputProgress, now: Timestamp) -> bool {
    is_told(notice)
        && match (&notice.about, notice.event) {
            (NoticeKind::WillEnd(ends) | NoticeKind::AccountEnds(ends), _) => *ends > now,
            // Told in the console alone.
            (NoticeKind::LimitRaised(..), _) => false,
            (_, Some(event)) => event > progress.seen,
            (_, None) => notice.at >= progress.seen_at,
        }
}

async fn age(server: &Server) -> Result<(), Failure> {
    if mail::place(&server.settings()).is_none() {
        return Ok(());
    }
    server
        .catalog()
        .write_of_server(Lane::Loops, "forget old mail", |rows| rows.age_mail())
        .await
}

/// Sends the mail that is due first. Errors: what is wrong with the mail server; the mail waits.
async fn send_next(server: &Server) -> Result<Sent, MailFault> {
    let settings = server.settings();
    if mail::place(&settings).is_none() {
        return Ok(Sent::All);
    }
    let now = server.clock().now();
    let due = server
        .catalog()
        .read("look for mail that is due", move |view| {
            let Some(due) = view.due_mail(now)? else {
                return Ok(None);
            };
            let reader = reader(view, due.user, now)?;
            let mut all = Vec::new();
            if let Some((caller, _)) = &reader {
                all = notices::of(view, caller, now)?;
                all.retain(|notice| {
                    let is_due = due.keys.contains(&notice.key) && is_told(notice);
                    is_due && !is_over(notice, now)
                });
            }
            Ok(Some((due, reader, all)))
        })
        .await?;
    let Some((due, reader, all)) = due else {
        return Ok(Sent::All);
    };
    let Some((caller, address)) = reader.filter(|_| !all.is_empty()) else {
        // Their notices do not have it any more: it was read, decided, or is not theirs to see.
        settle(server, due).await?;
        return Ok(Sent::Part);
    };
    let sent = send(server, &settings, &caller, &address, &due, &all, now).await;
    match sent {
        Ok(()) => {
            settle_sent(server, due).await?;
            if server.mail().put_well() {
                tracing::info!("mail goes out again");
            }
            Ok(Sent::Part)
        }
        Err(fault) => match fault.concerns() {
            RefusedFor::All => {
                // It may be this mail after all, at which the server hangs up: the next try is another user's.
                pass_over(server, due).await?;
                Err(fault)
            }
            RefusedFor::MailForGood => {
                tracing::warn!(user = %caller.name, error = %chain(&fault), "a mail was refused for good");
                fail(server, due, chain(&fault)).await?;
                Ok(Sent::Part)
            }
            RefusedFor::MailForNow => {
                let tries = u32::try_from(due.tries).unwrap_or(u32::MAX);
                let until = now.plus_seconds(pause_seconds(tries.saturating_add(1)));
                put_off(server, due, until).await?;
                Ok(Sent::Part)
            }
        },
    }
}

/// Whether a notice that waited says what is past.
fn is_over(notice: &OwnNotice, now: Timestamp) -> bool {
    matches!(
        &notice.about,
        NoticeKind::WillEnd(at)
            | NoticeKind::AccountEnds(at)
            | NoticeKind::ReservationWarned(at)
            | NoticeKind::CourseWarned(at)
            if *at <= now
    )
}

async fn send(
    server: &Server,
    settings: &Settings,
    caller: &Caller,
    address: &EmailAddress,
    due: &DueMail,
    all: &[OwnNotice],
    now: Timestamp,
) -> Result<(), MailFault> {
    let origin = origin(settings);
    let reader = MailReader {
        language: &caller.language,
        time_zone: &caller.time_zone,
        origin: &origin,
        site: &branding::around(server).name,
        now,
    };
    let writer = writer(server).map_err(Failure::from)?;
    let (shown, more) = all.split_at(all.len().min(MAX_IN_MAIL));
    let text = writer.of_notices(&reader, shown, more.len());
    let id = id_of(server, due);
    let message = MailMessage {
        to: address,
        subject: &text.subject,
        body: &text.body,
        at: now,
        id: &id,
    };
    mail::deliver(settings, &message).await?;
    Ok(())
}

/// Names a mail: one that is sent again, since no answer came back, has the same.
fn id_of(server: &Server, due: &DueMail) -> String {
    let mut digest = Sha256::new();
    digest.update(server.installation_id().as_bytes());
    digest.update(due.user.0.as_bytes());
    for key in &due.keys {
        digest.update(key.as_bytes());
        digest.update(b"\n");
    }
    let digest: [u8; 32] = digest.finalize().into();
    rules::audit::hex(&digest[..16])
}

async fn settle(server: &Server, due: DueMail) -> Result<(), Failure> {
    server
        .catalog()
        .write_of_server(Lane::Loops, "settle mail", move |rows| {
            rows.settle_mail(&due)?;
            Ok(())
        })
        .await
}

async fn settle_sent(server: &Server, due: DueMail) -> Result<(), Failure> {
    server
        .catalog()
        .write_of_server(Lane::Loops, "note what was mailed", move |rows| {
            rows.settle_mail(&due)?;
            rows.note_output_sent(NoticeOutput::Mail)
        })
        .await
}

/// A relay that is set up wrongly refuses each mail for good: they are kept until it is mended.
async fn fail(server: &Server, due: DueMail, why: String) -> Result<(), Failure> {
    server
        .catalog()
        .write_of_server(Lane::Loops, "note that mail was refused", move |rows| {
            rows.fail_mail(&due, &why)
        })
        .await
}

async fn put_off(server: &Server, due: DueMail, until: Timestamp) -> Result<(), Failure> {
    server
        .catalog()
        .write_of_server(Lane::Loops, "put mail off", move |rows| {
            rows.put_off_mail(&due, until)
        })
        .await
}

async fn pass_over(server: &Server, due: DueMail) -> Result<(), Failure> {
    server
        .catalog()
        .write_of_server(Lane::Loops, "pass mail over", move |rows| {
            rows.pass_over_mail(&due)
        })
        .await
}

#[cfg(test)]
mod tests;
