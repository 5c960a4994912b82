//! What a user may do with announcements: administrators of the site write those of the site and of domains,
//! administrators of a domain those of their own; every user reads those that hold for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::announcements::{AnnouncementPatchBody, AnnouncementView, NewAnnouncementBody};
use rules::announcement::{Announcement, AnnouncementLevel, announced};
use rules::names::AnnouncementId;
use rules::permissions::{Extent, Permission, Subject, may, reach};
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::{DomainId, Scope};
use rules::units::Timestamp;

use super::tenancy::find_domain;
use super::{IdempotencyKey, Once, allowed, once, own_key};
use crate::access::Caller;
use crate::catalog::announcements::AnnouncementRecord;
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Announcements of the site, and of each domain, that are not over. Higher: readers see a wall of banners. Lower: a
/// year's maintenance cannot be planned at once.
const MAX_ANNOUNCEMENTS: usize = 50;
/// Those that are over and are kept beside them. Higher: texts of a minute each fill the disk. Lower: what was
/// announced last month is not seen.
const MAX_OVER: usize = 50;
/// Characters of a text that an event keeps.
const TOLD: usize = 80;

/// What pages show around themselves, so that none of them asks the rows: read when a commit changed an announcement
/// and at the next page after a start.
#[derive(Default)]
pub(crate) struct KeptAnnouncements {
    /// Revision of the newest commit that changed one.
    changed_in: AtomicU64,
    /// Rows, and a revision that they are not older than.
    kept: Mutex<Option<(u64, KeptRows)>>,
}

type KeptRows = Arc<Vec<AnnouncementRecord>>;

impl KeptAnnouncements {
    /// Called inside the commit that changes one, so that also a caller who went away meanwhile is seen.
    fn changed(&self, rows: &Rows<'_>) -> Result<(), Failure> {
        self.changed_in
            .fetch_max(rows.revision()? + 1, Ordering::AcqRel);
        Ok(())
    }

    /// Every row as of the newest change. Costs no query but after a change.
    fn newest(&self, server: &Server) -> Result<KeptRows, Failure> {
        let (revision, _) = server.catalog().state_version();
        let needed = self.changed_in.load(Ordering::Acquire);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, rows)) = &*kept
            && *of >= needed
        {
            return Ok(Arc::clone(rows));
        }
        let read = server
            .catalog()
            .read_now("read announcements", |view| view.announcements())?;
        let rows = Arc::new(read);
        *kept = Some((revision, Arc::clone(&rows)));
        Ok(rows)
    }
}

/// The announcements that the caller may change or audit, also those to come and those that are over, the latest
/// beginning first: all for administrators and auditors of the site, else those of the domains that they administer
/// or audit.
///
/// Errors: `role.administrator-needed` for all other users.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<AnnouncementView>, Failure> {
    let domains = managed(
        &caller.subject,
        Permission::SystemRead,
        Permission::UsersRead,
    )?;
    let rows = server.kept_announcements().newest(server)?;
    let seen = rows
        .iter()
        .filter(|row| domains.covers(row.announcement.domain));
    Ok(seen.cloned().map(show).collect())
}

/// One of `list`, by id. Errors: as `list`; `announcement.not-found`.
pub async fn get(server: &Server, caller: &Caller, id: &str) -> Result<AnnouncementView, Failure> {
    let all = list(server, caller).await?;
    let id = id.parse::<AnnouncementId>().ok();
    let found = all
        .into_iter()
        .find(|one| id.is_some_and(|id| id.0 == one.id));
    found.ok_or_else(|| refusals::announcement_not_found().into())
}

/// What holds now for the caller, warnings first, then the latest beginning. Costs no query but after a change.
///
/// Errors: `denied` without `me`.
pub async fn current(server: &Server, caller: &Caller) -> Result<Vec<AnnouncementView>, Failure> {
    allowed(caller, Permission::Me)?;
    held(server, Some(caller.subject.domain))
}

/// The same for the surroundings of a page; of who has not signed in, what is shown before. Nothing where it cannot be
/// read.
pub fn around(server: &Server, caller: Option<&Caller>) -> Vec<AnnouncementView> {
    if caller.is_some_and(|caller| allowed(caller, Permission::Me).is_err()) {
        return Vec::new();
    }
    // A banner is no reason to refuse a page; the fault shows where it matters.
    held(server, caller.map(|caller| caller.subject.domain)).unwrap_or_default()
}

fn held(server: &Server, reader: Option<DomainId>) -> Result<Vec<AnnouncementView>, Failure> {
    let now = server.clock().now();
    let rows = server.kept_announcements().newest(server)?;
    let read = |row: &&AnnouncementRecord| {
        row.announcement.holds_at(now) && row.announcement.is_for(reader)
    };
    let mut all: Vec<AnnouncementView> = rows.iter().filter(read).cloned().map(show).collect();
    all.sort_by_key(|one| one.level != AnnouncementLevel::Warning);
    Ok(all)
}

/// True for those who may write one: of the site, or of a domain.
pub fn may_write(caller: &Caller) -> bool {
    written(&caller.subject).is_ok()
}

/// Why one who sees these announcements can write no other in these places, which are names of domains and empty for the
/// site; None while one of them has room.
pub fn no_room(known: &[AnnouncementView], places: &[String], now: Timestamp) -> Option<Refusal> {
    let is_full = |place: &String| {
        let is_own = |one: &&AnnouncementView| {
            let is_over = one.until.is_some_and(|until| until <= now);
            !is_over && one.domain.as_deref().unwrap_or_default() == place.as_str()
        };
        known.iter().filter(is_own).count() >= MAX_ANNOUNCEMENTS
    };
    let all_full = !places.is_empty() && places.iter().all(is_full);
    all_full.then(|| refusals::announcement_too_many(MAX_ANNOUNCEMENTS))
}

/// True for those whom `list` answers.
pub fn may_list(caller: &Caller) -> bool {
    let (site, domain) = (Permission::SystemRead, Permission::UsersRead);
    managed(&caller.subject, site, domain).is_ok()
}

/// Writes an announcement; readers see it from its beginning on.
///
/// Errors: `announcement.text-missing`, `announcement.text-too-long`, `announcement.hidden-characters`,
/// `announcement.start`, `announcement.end`, `announcement.before-sign-in`, `announcement.too-many`,
/// `domain.not-found`, `role.administrator-needed`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    asked: NewAnnouncementBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<AnnouncementView>, Failure> {
    written(&caller.subject)?;
    let key = own_key(caller, key)?;
    let text = needed(&asked.text)?;
    let text_ko = announced(asked.text_ko.as_deref().unwrap_or_default(), "/text_ko")?;
    let (kept, caller) = (server.clone(), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "write an announcement", move |rows| {
            once(rows, key.as_ref(), || {
                let subject = &caller.subject;
                let named = asked.domain.as_deref().map(str::trim);
                let domain = named
                    .filter(|name| !name.is_empty())
                    .map(|name| {
                        find_domain(rows, subject, name).map_err(|failure| failure.at("/domain"))
                    })
                    .transpose()?;
                let announcement = Announcement {
                    id: AnnouncementId::make(rows.now, base::observe::random()),
                    domain: domain.as_ref().map(|domain| domain.id),
                    level: asked.level,
                    text,
                    text_ko,
                    from: asked.from.unwrap_or(rows.now),
                    until: asked.until,
                    before_sign_in: asked.before_sign_in,
                    generation: 1,
                };
                may_change(subject, announcement.domain)?;
                announcement.check_place()?;
                announcement.check_times(rows.now)?;
                make_room(rows, announcement.domain)?;
                rows.insert_announcement(&announcement)?;
                kept.kept_announcements().changed(rows)?;
                let made = AnnouncementRecord {
                    announcement,
                    domain_name: domain.map(|domain| domain.name.to_string()),
                };
                let told = told(&made);
                note(rows, &caller, &made, "announcement.added", "", &told)?;
                Ok(show(made))
            })
        })
        .await
}

/// Changes an announcement; its domain stays. Who closed the banner sees it again.
///
/// Errors: as `create`; `announcement.not-found`, `announcement.stale`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    id: &str,
    patch: AnnouncementPatchBody,
    if_match: Option<u64>,
) -> Result<AnnouncementView, Failure> {
    let text = patch.text.as_deref().map(needed).transpose()?;
    let text_ko = patch
        .text_ko
        .as_deref()
        .map(|text| announced(text, "/text_ko"))
        .transpose()?;
    let (kept, caller, id) = (server.clone(), caller.clone(), id.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "change an announcement", move |rows| {
            let before = find(rows, &caller.subject, &id)?;
            let was = &before.announcement;
            if if_match.is_some_and(|seen| seen != was.generation) {
                return Err(refusals::announcement_stale(was.generation).into());
            }
            let changed = Announcement {
                level: patch.level.unwrap_or(was.level),
                text: text.unwrap_or_else(|| was.text.clone()),
                text_ko: text_ko.unwrap_or_else(|| was.text_ko.clone()),
                from: patch.from.unwrap_or(was.from),
                until: patch.until.unwrap_or(was.until),
                before_sign_in: patch.before_sign_in.unwrap_or(was.before_sign_in),
                ..was.clone()
            };
            if changed == *was {
                return Ok(show(before));
            }
            changed.check_place()?;
            // Times that stay are past by themselves.
            if (changed.from, changed.until) != (was.from, was.until) {
                changed.check_times(rows.now)?;
            }
            if was.is_over(rows.now) && !changed.is_over(rows.now) {
                make_room(rows, was.domain)?;
            }
            rows.put_announcement(&changed)?;
            kept.kept_announcements().changed(rows)?;
            let after = AnnouncementRecord {
                announcement: Announcement {
                    generation: was.generation + 1,
                    ..changed
                },
                domain_name: before.domain_name.clone(),
            };
            let (was, is) = (told(&before), told(&after));
            note(rows, &caller, &after, "announcement.changed", &was, &is)?;
            Ok(show(after))
        })
        .await
}

/// Removes an announcement: no user sees it any more. Errors: `announcement.not-found`, `role.administrator-needed`.
pub async fn remove(server: &Server, caller: &Caller, id: &str) -> Result<(), Failure> {
    let (kept, caller, id) = (server.clone(), caller.clone(), id.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "remove an announcement", move |rows| {
            let row = find(rows, &caller.subject, &id)?;
            rows.forget_announcement(row.announcement.id)?;
            kept.kept_announcements().changed(rows)?;
            let told = told(&row);
            note(rows, &caller, &row, "announcement.removed", &told, "")
        })
        .await
}

/// Whose announcements a subject manages.
enum Managed {
    All,
    Of(Vec<DomainId>),
}

impl Managed {
    fn covers(&self, domain: Option<DomainId>) -> bool {
        match self {
            Self::All => true,
            Self::Of(domains) => domain.is_some_and(|domain| domains.contains(&domain)),
        }
    }
}

/// All with the one permission on the site, else those of the domains with the other.
fn managed(
    subject: &Subject,
    on_site: Permission,
    on_domain: Permission,
) -> Result<Managed, Refusal> {
    let Err(refusal) = may(subject, on_site, &Scope::SITE) else {
        return Ok(Managed::All);
    };
    match reach(subject, on_domain).extent() {
        Extent::Some { domains, .. } if !domains.is_empty() => Ok(Managed::Of(domains.clone())),
        _ => Err(refusal),
    }
}

fn written(subject: &Subject) -> Result<Managed, Refusal> {
    managed(subject, Permission::SystemWrite, Permission::UsersWrite)
}

fn may_change(subject: &Subject, domain: Option<DomainId>) -> Result<(), Refusal> {
    match domain {
        None => may(subject, Permission::SystemWrite, &Scope::SITE),
        Some(domain) => may(subject, Permission::UsersWrite, &Scope::domain(domain)),
    }
}

/// The announcement that is meant, where the subject may change it. One of another domain is not theirs to know.
fn find(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    id: &str,
) -> Result<AnnouncementRecord, Failure> {
    let domains = written(subject)?;
    let row = match id.parse::<AnnouncementId>() {
        Ok(id) => view.announcement(id)?,
        Err(_) => None,
    };
    let row = row.ok_or_else(refusals::announcement_not_found)?;
    let domain = row.announcement.domain;
    if domain.is_some() && !domains.covers(domain) {
        return Err(refusals::announcement_not_found().into());
    }
    may_change(subject, domain)?;
    Ok(row)
}

fn needed(typed: &str) -> Result<String, Refusal> {
    let text = announced(typed, "/text")?;
    match text.is_empty() {
        true => Err(refusals::announcement_text_missing().at("/text")),
        false => Ok(text),
    }
}

/// Refuses one more than are allowed, and drops the oldest of those that are over.
fn make_room(rows: &Rows<'_>, domain: Option<DomainId>) -> Result<(), Failure> {
    let all = rows.announcements()?.into_iter();
    let own = all.filter(|row| row.announcement.domain == domain);
    let (mut over, open): (Vec<_>, Vec<_>) =
        own.partition(|row| row.announcement.is_over(rows.now));
    if open.len() >= MAX_ANNOUNCEMENTS {
        return Err(refusals::announcement_too_many(MAX_ANNOUNCEMENTS).into());
    }
    over.sort_by_key(|row| row.announcement.until);
    let beyond = over.len().saturating_sub(MAX_OVER);
    for row in &over[..beyond] {
        rows.forget_announcement(row.announcement.id)?;
    }
    Ok(())
}

fn show(row: AnnouncementRecord) -> AnnouncementView {
    AnnouncementView::new(row.announcement, row.domain_name)
}

/// The span of its times and the beginning of its text.
fn told(row: &AnnouncementRecord) -> String {
    let Announcement {
        text, from, until, ..
    } = &row.announcement;
    let until = until.map_or_else(String::new, |until| Timestamp::to_string(&until));
    let begin: String = text.chars().take(TOLD).collect();
    let more = if begin.len() < text.len() { "…" } else { "" };
    format!("{from}/{until} {begin}{more}")
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    row: &AnnouncementRecord,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "system",
        object: row.domain_name.as_deref().unwrap_or("site"),
        scope: row.announcement.domain.map_or(Scope::SITE, Scope::domain),
        code,
        before,
        after,
    })
}

#[cfg(test)]
mod tests;
