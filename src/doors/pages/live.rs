//! A page's stream of changes: each part again when it differs from what was sent, as partials that the page
//! morphs into place. State, not differences: a client that comes back after a gap gets the current state, so
//! nothing can be lost or doubled. Pages bring their parts; what several streams show alike is rendered once.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use server::access::{Caller, Lease, lease};
use tokio::sync::watch;
use tokio::time::Instant;

use super::PagesContext;
use super::request_context::RequestContext;
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
/// By this much longer for each different page that is open, so that all of them together are rendered at most a
/// hundred times a second. Lower: a flood of commits takes processor time from answers. Higher: with many people a
/// page follows later.
const GATHER_PER_PAGE: Duration = Duration::from_millis(10);
/// A page rests for as many times as long as its rendering took. Lower: pages with a long queue take a thread.
const REST: u32 = 10;
/// Silence after which the page is told that the stream lives.
const BEAT: Duration = Duration::from_secs(15);

/// What the catalog and the measurements were when a page was rendered.
type LiveMark = (u64, u64);

/// The pages that are open now, by what makes their parts differ.
#[derive(Default)]
pub struct OpenPages(Mutex<HashMap<String, Weak<OpenPage>>>);

/// One page that is open, once or several times.
struct OpenPage {
    pages: Arc<OpenPages>,
    key: String,
    /// Held while it is rendered: who comes meanwhile waits and takes the same.
    newest: tokio::sync::Mutex<Option<RenderedPage>>,
}

#[derive(Clone)]
struct RenderedPage {
    mark: LiveMark,
    at: Instant,
    took: Duration,
    clocked: bool,
    fragments: Arc<[RenderedFragment]>,
}

struct RenderedFragment {
    target: &'static str,
    html: String,
    mark: u64,
}

impl OpenPages {
    /// The page of this key; the same one for all who have it open.
    fn enter(self: &Arc<Self>, key: String) -> Arc<OpenPage> {
        let mut pages = self.pages();
        if let Some(open) = pages.get(&key).and_then(Weak::upgrade) {
            return open;
        }
        let page = Arc::new(OpenPage {
            pages: Arc::clone(self),
            key: key.clone(),
            newest: tokio::sync::Mutex::default(),
        });
        pages.insert(key, Arc::downgrade(&page));
        page
    }

    fn pages(&self) -> MutexGuard<'_, HashMap<String, Weak<OpenPage>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        let mut pages = self.pages.pages();
        // Another may have come under the same key since the last stream of this one ended.
        if pages
            .get(&self.key)
            .is_some_and(|page| page.strong_count() == 0)
        {
            pages.remove(&self.key);
        }
    }
}

impl OpenPage {
    /// When it may be rendered again, by what there is open and by what its last rendering took.
    fn rest(&self, last: &RenderedPage) -> Instant {
        let open = u32::try_from(self.pages.pages().len()).unwrap_or(u32::MAX);
        let rest = GATHER_PER_PAGE.saturating_mul(open).max(last.took * REST);
        last.at + rest.clamp(GATHER, TICK)
    }

    /// The parts as of `mark` or later, or those of the last rendering where it is too early for another. None
    /// where `parts` gives none.
    async fn parts<F, L, P>(&self, mark: LiveMark, parts: &F) -> Option<RenderedPage>
    where
        F: Fn() -> L,
        L: Future<Output = Option<P>>,
        P: Into<LiveParts>,
    {
        let mut newest = self.newest.lock().await;
        if let Some(last) = &*newest {
            let same = last.mark == mark && last.at.elapsed() < TICK;
            if same || Instant::now() < self.rest(last) {
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
        let rendered = RenderedPage {
            mark,
            at,
            clocked,
            fragments: fragments.collect(),
            took: at.elapsed(),
        };
        *newest = Some(rendered.clone());
        Some(rendered)
    }
}

struct LiveStream<F> {
    parts: F,
    page: Arc<OpenPage>,
    revision: watch::Receiver<u64>,
    measured: watch::Receiver<u64>,
    /// What was rendered last of the page; None before the first look.
    last: Option<RenderedPage>,
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
        let Some(last) = self.last.as_ref() else {
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
        let rested = self.page.rest(last);
        tokio::time::sleep_until(rested.max(Instant::now() + GATHER)).await;
        true
    }
}

/// Streams what `parts` gives, whenever it differs. Ends when `parts` gives none: the thing is gone, or the
/// reader's leave to see it. The last event of a reader whose sign-in ended is `end`.
///
/// Streams of one address with the same rights, language, zone and taste share what is rendered. Nothing is
/// rendered while neither rows nor measurements change, but for ages, every two seconds within a minute after
/// the last commit, else every fifteen.
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
            let rendered = state.page.parts(mark, &state.parts).await?;
            let mut markup = String::new();
            for RenderedFragment { target, html, mark } in &*rendered.fragments {
                if state.sent.insert(target, *mark) != Some(*mark) {
                    markup.push_str(&format!(
                        "<hx-partial hx-target=\"#{target}\" hx-swap=\"innerMorph\">{html}</hx-partial>"
                    ));
                }
            }
            let revision = rendered.mark.0;
            state.last = Some(rendered);
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

/// All that the parts of a page depend on beside rows and time.
fn key(visit: &RequestContext, caller: &Caller) -> String {
    format!(
        "{}\n{:?} {}\n{:?} {} {:?} {} {} {}",
        visit.path,
        caller.subject,
        caller.name,
        visit.text.language,
        visit.clock.name(),
        visit.theme,
        visit.keys,
        visit.authority,
        visit.secure,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    fn aged(page: &OpenPage, by: Duration) {
        let mut newest = page.newest.try_lock().expect("nobody renders");
        let last = newest.as_mut().expect("it was rendered");
        last.at = last.at.checked_sub(by).expect("a machine that runs longer");
    }

    #[tokio::test]
    async fn what_several_streams_show_alike_is_rendered_once() {
        let pages = Arc::new(OpenPages::default());
        let count = AtomicUsize::new(0);
        let (one, two) = (pages.enter("a".into()), pages.enter("a".into()));
        let first = one.parts((1, 0), &counted(&count)).await.unwrap();
        let second = two.parts((1, 0), &counted(&count)).await.unwrap();
        assert!(Arc::ptr_eq(&first.fragments, &second.fragments));
        let other = pages.enter("b".into());
        other.parts((1, 0), &counted(&count)).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2, "once for each page");
        drop((one, two));
        assert_eq!(
            pages.pages().len(),
            1,
            "a page nobody has open is forgotten"
        );
    }

    #[tokio::test]
    async fn a_flood_of_commits_renders_a_page_no_oftener_than_it_rests() {
        let pages = Arc::new(OpenPages::default());
        let count = AtomicUsize::new(0);
        let page = pages.enter("a".into());
        let first = page.parts((1, 0), &counted(&count)).await.unwrap();
        assert!(page.rest(&first) >= first.at + GATHER);
        let crowd: Vec<_> = (0..500)
            .map(|number| pages.enter(number.to_string()))
            .collect();
        assert_eq!(
            page.rest(&first),
            first.at + TICK,
            "never longer than a tick"
        );
        let early = page.parts((2, 0), &counted(&count)).await.unwrap();
        assert_eq!(early.mark, (1, 0), "too early: the last one again");
        drop(crowd);
        aged(&page, TICK);
        let rested = page.parts((2, 0), &counted(&count)).await.unwrap();
        assert_eq!((rested.mark, count.load(Ordering::Relaxed)), ((2, 0), 2));
        aged(&page, TICK);
        page.parts((2, 0), &counted(&count)).await.unwrap();
        assert_eq!(
            count.load(Ordering::Relaxed),
            3,
            "ages move without commits"
        );
    }

    #[tokio::test]
    async fn a_page_without_parts_is_over_and_leaves_nothing_behind() {
        let pages = Arc::new(OpenPages::default());
        let page = pages.enter("a".into());
        let none = || std::future::ready(None::<Vec<LiveFragment>>);
        assert!(page.parts((1, 0), &none).await.is_none());
        assert!(page.newest.lock().await.is_none());
    }
}
