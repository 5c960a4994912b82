//! A page's stream of changes: each part again when it differs from what was sent, as partials that the page
//! morphs into place. State, not differences: a client that comes back after a gap gets the current state, so
//! nothing can be lost or doubled. Pages bring their parts; what several streams show alike is rendered once.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use rules::names::{UserId, UserName};
use rules::permissions::Subject;
use server::access::{Caller, Lease, lease};
use server::actions::{attention, notices, sessions};
use tokio::sync::watch;
use tokio::time::Instant;

use super::PagesContext;
use super::layout::Theme;
use super::request_context::RequestContext;
use crate::doors::text::Language;
use crate::doors::text::visible::visible;

/// One part of a page: the element it fills, and its markup.
pub type LiveFragment = (&'static str, String);

/// All parts of a page.
pub struct LiveParts {
    pub fragments: Vec<LiveFragment>,
    /// They show what stands in no row and no measurement, such as a log: the page is rendered every two seconds.
    pub clocked: bool,
}

impl From<Vec<LiveFragment>> for LiveParts {
    fn from(fragments: Vec<LiveFragment>) -> Self {
        Self {
            fragments,
            clocked: false,
        }
    }
}

/// Between two looks at a page on which something happened lately: ages are told in seconds, and a log may grow.
/// Lower costs a rendering a page.
const TICK: Duration = Duration::from_secs(2);
/// As long after the last commit ages of under a minute may stand on a page.
const SECONDS_SHOWN: Duration = Duration::from_secs(65);
/// Between two looks at a page on which nothing happened lately. Longer: a node that falls silent is seen later.
/// Shorter: idle pages cost more.
const QUIET_TICK: Duration = Duration::from_secs(15);
/// After a commit, the wait for the next ones: a launch is four commits within milliseconds.
const GATHER: Duration = Duration::from_millis(60);
/// By this much longer for each different page that a user has open, so that all of theirs together are rendered at most
/// a hundred times a second. Lower: a flood of commits takes processor time from answers. Higher: for a user with many
/// pages each follows later.
const GATHER_PER_PAGE: Duration = Duration::from_millis(10);
/// A page rests for as many times as long as its rendering took, at most for a tick. Lower: pages with a long queue take
/// a thread.
const REST: u32 = 10;
/// Bytes of markup that are kept for the other streams of the same page; a larger rendering is made for each stream. Higher:
/// a user with all their streams open has the server keep more. Lower: the same page in two tabs is rendered twice.
const MAX_KEPT_BYTES: usize = 64 << 10;
/// Bytes of an address that streams share. A longer one has a page of its own.
const MAX_SHARED_ADDRESS: usize = 1 << 10;
/// Silence after which the page is told that the stream lives.
const BEAT: Duration = Duration::from_secs(15);

/// What the catalog and the measurements were when a page was rendered.
type LiveMark = (u64, u64);

/// The pages that are open now, of each user by what makes their parts differ.
#[derive(Default)]
pub struct OpenPages(Mutex<HashMap<UserId, PagesOfUser>>);

type PagesOfUser = HashMap<Arc<PageKey>, Weak<OpenPage>>;

/// All that the parts of a page depend on beside rows and time. Readers who differ in one of these share nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PageKey {
    /// Path and query.
    address: String,
    subject: Subject,
    name: UserName,
    language: Language,
    zone: String,
    theme: Theme,
    keys: bool,
    authority: String,
    secure: bool,
    /// Of an address that is too long to be shared: the number of its stream.
    own: Option<u64>,
}

/// One page that is open, once or several times.
struct OpenPage {
    pages: Arc<OpenPages>,
    key: Arc<PageKey>,
    /// Held while it is rendered: who comes meanwhile waits and takes the same.
    newest: tokio::sync::Mutex<Option<RenderedPage>>,
}

/// When a page was rendered, and as of what.
#[derive(Clone, Copy)]
struct Rendering {
    mark: LiveMark,
    at: Instant,
    took: Duration,
    clocked: bool,
}

#[derive(Clone)]
struct RenderedPage {
    of: Rendering,
    /// None where they are too large to be kept for other streams.
    fragments: Option<Arc<[RenderedFragment]>>,
}

struct RenderedFragment {
    target: &'static str,
    html: String,
    mark: u64,
}

impl OpenPages {
    /// The page of this key; the same one for all streams that have it open.
    fn enter(self: &Arc<Self>, key: PageKey) -> Arc<OpenPage> {
        let mut pages = self.pages();
        let own = pages.entry(key.subject.user).or_default();
        if let Some(open) = own.get(&key).and_then(Weak::upgrade) {
            return open;
        }
        let key = Arc::new(key);
        let page = Arc::new(OpenPage {
            pages: Arc::clone(self),
            key: Arc::clone(&key),
            newest: tokio::sync::Mutex::default(),
        });
        own.insert(key, Arc::downgrade(&page));
        page
    }

    fn pages(&self) -> MutexGuard<'_, HashMap<UserId, PagesOfUser>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        let mut pages = self.pages.pages();
        let Some(own) = pages.get_mut(&self.key.subject.user) else {
            return;
        };
        // Another may have come under the same key since the last stream of this one ended.
        if own
            .get(&self.key)
            .is_some_and(|page| page.strong_count() == 0)
        {
            own.remove(&self.key);
        }
        if own.is_empty() {
            pages.remove(&self.key.subject.user);
        }
    }
}

impl OpenPage {
    /// When it may be rendered again, by what its readers have open and by what its last rendering took.
    fn rest(&self, last: &Rendering) -> Instant {
        let pages = self.pages.pages();
        let open = pages.get(&self.key.subject.user).map_or(0, HashMap::len);
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        let rest = GATHER_PER_PAGE.saturating_mul(open).max(last.took * REST);
        last.at + rest.clamp(GATHER, TICK)
    }

    /// The parts as of `mark` or later, or those of the last rendering where it is too early for another. None
    /// where `parts` gives none. `seen` is the rendering that the stream has already: without fragments, nothing is
    /// newer than that.
    async fn parts<F, L, P>(
        &self,
        mark: LiveMark,
        seen: Option<Instant>,
        parts: &F,
    ) -> Option<RenderedPage>
    where
        F: Fn() -> L,
        L: Future<Output = Option<P>>,
        P: Into<LiveParts>,
    {
        let mut newest = self.newest.lock().await;
        if let Some(last) = &*newest {
            let same = last.of.mark == mark && last.of.at.elapsed() < TICK;
            let known = last.fragments.is_some() || seen == Some(last.of.at);
            if known && (same || Instant::now() < self.rest(&last.of)) {
                return Some(last.clone());
            }
        }
        let at = Instant::now();
        let LiveParts { fragments, clocked } = parts().await?.into();
        let fragments = fragments.into_iter().map(|(target, html)| {
            let html = visible(html);
            let mut hasher = DefaultHasher::new();
            html.hash(&mut hasher);
            RenderedFragment {
                target,
                mark: hasher.finish(),
                html,
            }
        });
        let fragments: Arc<[RenderedFragment]> = fragments.collect();
        let of = Rendering {
            mark,
            at,
            clocked,
            took: at.elapsed(),
        };
        let bytes: usize = fragments.iter().map(|fragment| fragment.html.len()).sum();
        *newest = Some(RenderedPage {
            of,
            fragments: (bytes <= MAX_KEPT_BYTES).then(|| Arc::clone(&fragments)),
        });
        Some(RenderedPage {
            of,
            fragments: Some(fragments),
        })
    }
}

struct LiveStream<F> {
    parts: F,
    page: Arc<OpenPage>,
    revision: watch::Receiver<u64>,
    measured: watch::Receiver<u64>,
    /// The last rendering that it looked at; None before the first look.
    last: Option<Rendering>,
    sent: BTreeMap<&'static str, u64>,
    silent_since: Instant,
    committed_at: Instant,
    /// None once the reader was told that they may see no more.
    lease: Option<Lease>,
}

impl<F> LiveStream<F> {
    fn mark(&mut self) -> LiveMark {
        let revision = *self.revision.borrow_and_update();
        (revision, *self.measured.borrow_and_update())
    }

    /// Waits until there may be something new to look at; false once the server is gone.
    async fn changed(&mut self) -> bool {
        let Some(last) = self.last else {
            return true;
        };
        let clocked = last.clocked || self.committed_at.elapsed() < SECONDS_SHOWN;
        let tick = if clocked { TICK } else { QUIET_TICK };
        let wait = tick.min(BEAT.saturating_sub(self.silent_since.elapsed()));
        let seen = last.mark;
        // A page that was too fresh to be rendered again is looked at once it has rested.
        let stale = seen != (*self.revision.borrow(), *self.measured.borrow());
        if !stale {
            let changed = tokio::select! {
                changed = self.revision.changed() => changed,
                changed = self.measured.changed() => changed,
                () = tokio::time::sleep(wait) => return true,
            };
            if changed.is_err() {
                return false;
            }
        }
        if seen.0 != *self.revision.borrow() {
            self.committed_at = Instant::now();
        }
        let rested = self.page.rest(&last);
        tokio::time::sleep_until(rested.max(Instant::now() + GATHER)).await;
        true
    }
}

/// The menu's numbers for a page that is open: live sessions, waiting ones, unread notices, what needs attention.
/// None where they cannot be had; the page keeps those it shows.
pub(super) async fn menu_counts(console: &PagesContext, caller: &Caller) -> Option<String> {
    let server = &console.server;
    let counts = sessions::menu_counts(server, caller).await.ok()?;
    let unread = notices::unread(server, caller);
    let attention = attention::count(server, caller);
    let (live, waiting) = (counts.live, counts.waiting);
    Some(format!("{live} {waiting} {unread} {attention}"))
}

/// Streams what `parts` gives, whenever it differs. Ends when `parts` gives none: the thing is gone, or the
/// reader's leave to see it. The last event of a reader whose sign-in ended is `end`.
///
/// Streams of one user and address with the same rights, language, zone and taste share what is rendered, up to 64 KiB.
/// Nothing is rendered while neither rows nor measurements change, but for ages: for each stream every two seconds within
/// a minute after the last commit, else every fifteen.
pub fn stream<F, L, P>(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    parts: F,
) -> Response
where
    F: Fn() -> L + Send + Sync + 'static,
    L: Future<Output = Option<P>> + Send,
    P: Into<LiveParts>,
{
    let server = &console.server;
    let state = LiveStream {
        parts,
        page: console.open_pages.enter(key(visit, caller)),
        revision: server::events::revision(server),
        measured: server::events::measured(server),
        last: None,
        sent: BTreeMap::new(),
        silent_since: Instant::now(),
        committed_at: Instant::now(),
        lease: Some(lease(server, caller)),
    };
    let events = stream::unfold(state, |mut state| async move {
        loop {
            let mut leave = state.lease.take()?;
            let changed = tokio::select! {
                biased;
                refusal = &mut leave => {
                    let end = Event::default().event("end").data(refusal.code);
                    return Some((Ok::<_, Infallible>(end), state));
                }
                changed = state.changed() => changed,
            };
            state.lease = Some(leave);
            if !changed {
                return None;
            }
            let mark = state.mark();
            let seen = state.last.map(|last| last.at);
            let rendered = state.page.parts(mark, seen, &state.parts).await?;
            let mut markup = String::new();
            for RenderedFragment { target, html, mark } in
                rendered.fragments.iter().flat_map(|all| all.iter())
            {
                if state.sent.insert(target, *mark) != Some(*mark) {
                    markup.push_str(&format!(
                        "<hx-partial hx-target=\"#{target}\" hx-swap=\"innerMorph\">{html}</hx-partial>"
                    ));
                }
            }
            let revision = rendered.of.mark.0;
            state.last = Some(rendered.of);
            if !markup.is_empty() {
                state.silent_since = Instant::now();
                let event = Event::default().id(revision.to_string()).data(markup);
                return Some((Ok::<_, Infallible>(event), state));
            }
            if state.silent_since.elapsed() >= BEAT {
                state.silent_since = Instant::now();
                return Some((Ok(Event::default().event("beat").data("1")), state));
            }
        }
    });
    let mut response = Sse::new(events).into_response();
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that gather answers would hold the stream back.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn key(visit: &RequestContext, caller: &Caller) -> PageKey {
    static OWN: AtomicU64 = AtomicU64::new(0);
    let shared = visit.path.len() <= MAX_SHARED_ADDRESS;
    PageKey {
        address: match shared {
            true => visit.path.clone(),
            false => String::new(),
        },
        own: (!shared).then(|| OWN.fetch_add(1, Ordering::Relaxed)),
        subject: caller.subject.clone(),
        name: caller.name.clone(),
        language: visit.text.language,
        zone: visit.clock.name().to_owned(),
        theme: visit.theme,
        keys: visit.keys,
        authority: visit.authority.clone(),
        secure: visit.secure,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use rules::tenancy::DomainId;
    use rules::users::Role;

    use super::*;

    /// A page whose one part says how often it was rendered.
    fn counted(
        count: &AtomicUsize,
    ) -> impl Fn() -> std::future::Ready<Option<Vec<LiveFragment>>> + '_ {
        || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Some(vec![("part", number.to_string())]))
        }
    }

    fn page_at(address: &str) -> PageKey {
        PageKey {
            address: address.to_owned(),
            subject: Subject {
                user: UserId(uuid::Uuid::nil()),
                grants: Role::User.grants(),
                domain: DomainId::DEFAULT,
                scopes: None,
            },
            name: UserName::parse("mina").expect("a name"),
            language: Language::default(),
            zone: "UTC".to_owned(),
            theme: Theme::default(),
            keys: true,
            authority: "box".to_owned(),
            secure: true,
            own: None,
        }
    }

    fn aged(page: &OpenPage, by: Duration) {
        let mut newest = page.newest.try_lock().expect("no rendering is under way");
        let last = newest.as_mut().expect("it was rendered");
        last.of.at = last
            .of
            .at
            .checked_sub(by)
            .expect("a machine that runs longer");
    }

    #[tokio::test]
    async fn what_several_streams_show_alike_is_rendered_once() {
        let pages = Arc::new(OpenPages::default());
        let count = AtomicUsize::new(0);
        let (one, two) = (pages.enter(page_at("a")), pages.enter(page_at("a")));
        let first = one.parts((1, 0), None, &counted(&count)).await.unwrap();
        let second = two.parts((1, 0), None, &counted(&count)).await.unwrap();
        assert!(Arc::ptr_eq(
            first.fragments.as_ref().unwrap(),
            second.fragments.as_ref().unwrap()
        ));
        let other = pages.enter(page_at("b"));
        other.parts((1, 0), None, &counted(&count)).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2, "once for each page");
        drop((one, two));
        assert_eq!(
            pages.pages()[&UserId(uuid::Uuid::nil())].len(),
            1,
            "a page that no stream has open is forgotten"
        );
    }

    #[tokio::test]
    async fn a_flood_of_commits_renders_a_page_no_oftener_than_it_rests() {
        let pages = Arc::new(OpenPages::default());
        let count = AtomicUsize::new(0);
        let page = pages.enter(page_at("a"));
        let first = page.parts((1, 0), None, &counted(&count)).await.unwrap();
        assert!(page.rest(&first.of) >= first.of.at + GATHER);
        let crowd: Vec<_> = (0..500)
            .map(|number| pages.enter(page_at(&number.to_string())))
            .collect();
        assert_eq!(
            page.rest(&first.of),
            first.of.at + TICK,
            "never longer than a tick"
        );
        let early = page.parts((2, 0), None, &counted(&count)).await.unwrap();
        assert_eq!(early.of.mark, (1, 0), "too early: the last one again");
        drop(crowd);
        aged(&page, TICK);
        let rested = page.parts((2, 0), None, &counted(&count)).await.unwrap();
        assert_eq!((rested.of.mark, count.load(Ordering::Relaxed)), ((2, 0), 2));
        aged(&page, TICK);
        page.parts((2, 0), None, &counted(&count)).await.unwrap();
        assert_eq!(
            count.load(Ordering::Relaxed),
            3,
            "ages move without commits"
        );
    }

    #[test]
    fn readers_who_differ_share_no_page() {
        let pages = Arc::new(OpenPages::default());
        let one = page_at("a");
        let mut others = vec![one.clone(); 8];
        others[0].subject.grants = Role::Administrator.grants();
        others[1].subject.scopes = Some(vec![rules::permissions::Permission::SessionsRead]);
        others[2].subject.user = UserId(uuid::Uuid::max());
        others[3].language = Language::Korean;
        others[4].zone = "Asia/Seoul".to_owned();
        others[5].authority = "other".to_owned();
        others[6].secure = false;
        others[7].own = Some(1);
        let first = pages.enter(one.clone());
        let open: Vec<_> = others.into_iter().map(|key| pages.enter(key)).collect();
        assert!(open.iter().all(|page| !Arc::ptr_eq(page, &first)));
        assert!(Arc::ptr_eq(&pages.enter(one), &first));
        drop((open, first));
        assert!(pages.pages().is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn a_large_page_is_kept_for_no_other_stream() {
        let pages = Arc::new(OpenPages::default());
        let page = pages.enter(page_at("a"));
        let large = || std::future::ready(Some(vec![("part", "x".repeat(MAX_KEPT_BYTES + 1))]));
        let first = page.parts((1, 0), None, &large).await.unwrap();
        assert!(first.fragments.is_some());
        let again = page.parts((1, 0), Some(first.of.at), &large).await;
        assert!(again.unwrap().fragments.is_none(), "it has that already");
        let second = page.parts((1, 0), None, &large).await.unwrap();
        assert!(second.fragments.is_some(), "made for the second stream");
        let kept = page.newest.lock().await;
        assert!(kept.as_ref().unwrap().fragments.is_none());
    }

    #[tokio::test]
    async fn a_page_without_parts_is_over_and_leaves_nothing_behind() {
        let pages = Arc::new(OpenPages::default());
        let page = pages.enter(page_at("a"));
        let none = || std::future::ready(None::<Vec<LiveFragment>>);
        assert!(page.parts((1, 0), None, &none).await.is_none());
        assert!(page.newest.lock().await.is_none());
    }
}
