//! `/palette`: what `Ctrl K` finds, as options of a list box in groups: places, commands, sessions, chapters of the
//! manual. A command is a link to the page that asks before it acts, or a preference of this browser. Never ends
//! anything itself.

use std::fmt::Write as _;

use api::sessions::{ListQuery, SessionView};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::permissions::Permission;
use rules::session::SessionState;
use serde::Deserialize;
use server::access::Caller;
use server::actions::sessions;

use super::authentication::PageCaller;
use super::components::{escaped, icon};
use super::layout::Theme;
use super::request_context::RequestContext;
use super::{PagesContext, docs, presenter, responses};
use crate::doors::text::{Language, Text};

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct PaletteQuery {
    q: String,
}

/// Sessions shown at once. More than a screen is not read.
const MAX_RESULTS: u32 = 8;
/// Chapters of the manual shown at once, for the same reason.
const MAX_CHAPTERS: usize = 5;

/// A page, and the words by which it is found besides its name.
struct Place {
    href: &'static str,
    icon: &'static str,
    name: &'static str,
    /// In English, for every language.
    words: &'static str,
    /// Only administrators may open it.
    administrators: bool,
}

fn places(t: Text) -> Vec<Place> {
    let place = |href, icon, name, words| Place {
        href,
        icon,
        name,
        words,
        administrators: false,
    };
    let system = |href, icon, name, words| Place {
        administrators: true,
        ..place(href, icon, name, words)
    };
    vec![
        place(
            "/sessions/new",
            "plus",
            t.launch_title(),
            "launch new run start",
        ),
        place(
            "/",
            "layout-dashboard",
            t.nav_overview(),
            "overview home dashboard",
        ),
        place(
            "/sessions",
            "square-terminal",
            t.nav_sessions(),
            "sessions list",
        ),
        place("/queue", "list-ordered", t.nav_queue(), "queue waiting"),
        place("/gpus", "microchip", t.nav_gpus(), "gpus cards devices"),
        place(
            "/history",
            "chart-line",
            t.nav_history(),
            "history usage statistics charts",
        ),
        place(
            "/usage",
            "scroll-text",
            t.usage_title(),
            "usage gpu-hours core-hours month",
        ),
        place("/events", "history", t.events_title(), "events journal"),
        place(
            "/audit",
            "notebook-pen",
            t.audit_title(),
            "audit log acts access",
        ),
        place(
            "/notices",
            "bell",
            t.notices_title(),
            "notices notifications",
        ),
        system("/users", "users", t.nav_users(), "users accounts people"),
        system(
            "/projects",
            "layers",
            t.projects_title(),
            "projects members leads groups",
        ),
        system(
            "/fair-share",
            "sliders-horizontal",
            t.fair_title(),
            "fair share order backfill queue rules",
        ),
        system(
            "/policies",
            "shield-check",
            t.policies_title(),
            "policies limits quota",
        ),
        system(
            "/allowances",
            "clock",
            t.allowances_title(),
            "allowances limits",
        ),
        place(
            "/budgets",
            "gauge",
            t.budgets_title(),
            "budgets gpu-hours quota",
        ),
        place(
            "/statements",
            "scroll-text",
            t.statements_title(),
            "statements closed month billing prices",
        ),
        place(
            "/courses",
            "book-open",
            t.courses_title(),
            "courses class students term",
        ),
        place(
            "/folders",
            "folder",
            t.folders_title(),
            "folders files data home volumes",
        ),
        place(
            "/presets",
            "boxes",
            t.presets_title(),
            "presets sizes flavors",
        ),
        place(
            "/reservations",
            "hourglass",
            t.reservations_title(),
            "reservations book calendar",
        ),
        place(
            "/holidays",
            "hourglass",
            t.holidays_title(),
            "holidays days off calendar",
        ),
        system(
            "/idle-rules",
            "hourglass",
            t.idle_title(),
            "idle rules reclaim unused sessions",
        ),
        system(
            "/storage",
            "save",
            t.volumes_title(),
            "storage volumes disks nfs mount",
        ),
        system(
            "/announcements",
            "megaphone",
            t.announcements_title(),
            "announcements banner maintenance",
        ),
        system(
            "/system/branding",
            "pencil",
            t.branding_title(),
            "branding logo name look footer",
        ),
        system(
            "/system/webhooks",
            "activity",
            t.webhooks_title(),
            "webhooks hooks events outside",
        ),
        system(
            "/nodes",
            "hard-drive",
            t.node_title(),
            "node machine maintenance disks",
        ),
        place(
            "/groups",
            "server",
            t.groups_title(),
            "resource groups nodes access",
        ),
        place(
            "/images",
            "package",
            t.nav_images(),
            "images environments import",
        ),
        place(
            "/environments",
            "package",
            t.environments_title(),
            "environments bundle stick import signed",
        ),
        system(
            "/system/checks",
            "server",
            t.palette_checks(),
            "system checks doctor",
        ),
        system(
            "/system/settings",
            "settings-2",
            t.palette_settings(),
            "system settings config",
        ),
        system(
            "/system/backups",
            "save",
            t.palette_backups(),
            "system backups restore",
        ),
        system(
            "/system/tls",
            "file-key",
            t.palette_certificate(),
            "system certificate tls https",
        ),
        system(
            "/system/support",
            "folder",
            t.palette_support(),
            "system support bundle",
        ),
        place(
            "/me",
            "user",
            t.nav_me(),
            "account password tokens preferences",
        ),
        place(
            "/me/ssh-keys",
            "square-terminal",
            t.ssh_keys_title(),
            "ssh keys connect own computer",
        ),
        place(
            "/me/startup",
            "play",
            t.start_up_title(),
            "session start-up dotfiles script variables",
        ),
        place("/docs", "book-open", t.nav_docs(), "manual help docs"),
        place(
            "/api/docs",
            "code-xml",
            t.nav_api(),
            "api reference rest curl",
        ),
        place(
            "/about",
            "scroll-text",
            t.nav_about(),
            "about version licences",
        ),
    ]
}

/// What people call what a page has, where its name does not say it: in the language of `t`.
fn synonyms(t: Text, href: &str) -> &'static str {
    match href {
        "/policies" => t.palette_words_policies(),
        "/allowances" => t.palette_words_allowances(),
        "/system/branding" => t.palette_words_branding(),
        "/system/backups" => t.palette_words_backups(),
        "/system/tls" => t.palette_words_certificate(),
        "/idle-rules" => t.palette_words_idle_rules(),
        "/folders" => t.palette_words_folders(),
        "/history" => t.palette_words_history(),
        "/users" => t.palette_words_users(),
        _ => "",
    }
}

impl Place {
    /// Whether `q` finds it, by words of either language.
    fn is_found(&self, q: &str) -> bool {
        let english = synonyms(Text::new(Language::English), self.href);
        let korean = synonyms(Text::new(Language::Korean), self.href);
        fits(self.name, &format!("{} {english} {korean}", self.words), q)
    }
}

/// Address and name of the pages that `q`, in small letters, finds, for who may open all of them.
pub(super) fn pages_found(t: Text, q: &str) -> Vec<(&'static str, &'static str)> {
    let all = places(t).into_iter();
    let found = all.filter(|place| place.is_found(q));
    found.map(|place| (place.href, place.name)).collect()
}

/// What can be asked of one session by name.
struct Verb {
    /// English words that name it, besides the word of the language.
    words: &'static str,
    word: &'static str,
    icon: &'static str,
    /// Whether a session in this state can be asked.
    fits: fn(SessionState) -> bool,
    name: fn(Text, &str) -> String,
    href: fn(&str) -> String,
}

fn verbs(t: Text) -> [Verb; 4] {
    [
        Verb {
            words: "stop cancel kill",
            word: t.verb_stop(),
            icon: "power",
            fits: |state| state != SessionState::Ended,
            name: |t, name| t.palette_stop(name),
            href: |id| format!("/sessions/{id}#stop"),
        },
        Verb {
            words: "logs",
            word: t.tab_logs(),
            icon: "scroll-text",
            fits: |_| true,
            name: |t, name| t.palette_logs(name),
            href: |id| format!("/sessions/{id}/logs"),
        },
        Verb {
            words: "metrics usage",
            word: t.tab_metrics(),
            icon: "activity",
            fits: |_| true,
            name: |t, name| t.palette_metrics(name),
            href: |id| format!("/sessions/{id}/metrics"),
        },
        Verb {
            words: "duplicate again copy",
            word: t.verb_duplicate(),
            icon: "copy",
            fits: |_| true,
            name: |t, name| t.palette_duplicate(name),
            href: |id| format!("/sessions/new?from={id}"),
        },
    ]
}

/// The list box under construction: groups with headings, options with numbers of their own.
#[derive(Default)]
struct OptionList {
    out: String,
    options: usize,
    open: bool,
}

impl OptionList {
    /// Begins a group; one that gets no option leaves no trace.
    fn group(&mut self, heading: &str) -> usize {
        self.close();
        let before = self.out.len();
        let heading = escaped(heading);
        let _ = write!(
            self.out,
            "<div role=\"group\" aria-label=\"{heading}\"><p aria-hidden=\"true\">{heading}</p>"
        );
        self.open = true;
        before
    }

    fn close(&mut self) {
        if self.open {
            self.out.push_str("</div>");
            self.open = false;
        }
    }

    fn drop_if_empty(&mut self, before: usize, options: usize) {
        if self.options == options {
            self.out.truncate(before);
            self.open = false;
        }
    }

    fn link(&mut self, href: &str, sign: &str, name: &str, note: &str) {
        let _ = write!(
            self.out,
            "<a role=\"option\" id=\"palette-{}\" tabindex=\"-1\" aria-selected=\"false\" href=\"{}\">{}<span>{}</span><span class=\"m\">{}</span></a>",
            self.options,
            escaped(href),
            icon(sign),
            escaped(name),
            escaped(note)
        );
        self.options += 1;
    }

    /// A preference of this browser; the form stands beside the list.
    fn preference(&mut self, name: &str, value: &str, sign: &str, shown: &str) {
        let _ = write!(
            self.out,
            "<button role=\"option\" id=\"palette-{}\" tabindex=\"-1\" aria-selected=\"false\" form=\"palette-preferences\" name=\"{name}\" value=\"{value}\">{}<span>{}</span></button>",
            self.options,
            icon(sign),
            escaped(shown)
        );
        self.options += 1;
    }
}

/// Whether every word of `q` begins a word of `name` or `words`, or stands inside `name`.
fn fits(name: &str, words: &str, q: &str) -> bool {
    let name = name.to_lowercase();
    q.split_whitespace().all(|wanted| {
        name.contains(wanted)
            || words
                .split_whitespace()
                .any(|word| word.starts_with(wanted))
    })
}

/// The verb that the first or the last word of `q` begins, and the rest of it.
fn asked_verb<'a>(verbs: &'a [Verb], q: &str) -> Option<(&'a Verb, String)> {
    let words: Vec<&str> = q.split_whitespace().collect();
    let named = |typed: &str| {
        verbs.iter().find(|verb| {
            // One letter begins too many words.
            typed.chars().count() > 1
                && (verb.word.to_lowercase().starts_with(typed)
                    || verb.words.split(' ').any(|word| word.starts_with(typed)))
        })
    };
    let (first, last) = (words.first()?, words.last()?);
    if let Some(verb) = named(first) {
        return Some((verb, words[1..].join(" ")));
    }
    named(last).map(|verb| (verb, words[..words.len() - 1].join(" ")))
}

/// `GET /palette?q=`: options, or one sentence where nothing is found.
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<PaletteQuery>,
) -> Response {
    let t = visit.text;
    let q = asked.q.trim().to_lowercase();
    let mut list = OptionList::default();

    let verbs = verbs(t);
    let verb = asked_verb(&verbs, &q);
    let commands = |list: &mut OptionList| {
        for theme in Theme::ALL {
            let shown = t.palette_theme(theme.name(t));
            if fits(&shown, &format!("theme {}", theme.code()), &q) {
                list.preference("theme", theme.code(), "sun-moon", &shown);
            }
        }
        let other = t.language.other();
        let shown = t.palette_language(other.own_name());
        if fits(&shown, "language english korean", &q) {
            list.preference("language", other.code(), "languages", &shown);
        }
    };

    let before = list.group(t.palette_places());
    let options = list.options;
    let administrator = caller.subject.can(Permission::SystemRead);
    for place in places(t) {
        if (administrator || !place.administrators) && place.is_found(&q) {
            list.link(place.href, place.icon, place.name, "");
        }
    }
    list.drop_if_empty(before, options);

    if let Some((verb, rest)) = &verb {
        let before = list.group(t.palette_commands());
        let options = list.options;
        for session in found(&console, &caller, rest).await {
            if (verb.fits)(session.state) {
                let (_, state) = presenter::state(t, &session);
                let href = (verb.href)(&session.id.to_string());
                list.link(
                    &href,
                    verb.icon,
                    &(verb.name)(t, session.name.as_str()),
                    state,
                );
            }
        }
        list.drop_if_empty(before, options);
    }

    let before = list.group(t.nav_sessions());
    let options = list.options;
    for session in found(&console, &caller, &q).await {
        let (_, state) = presenter::state(t, &session);
        list.link(
            &format!("/sessions/{}", session.id),
            "square-terminal",
            session.name.as_str(),
            state,
        );
    }
    list.drop_if_empty(before, options);

    let before = list.group(t.palette_preferences());
    let options = list.options;
    commands(&mut list);
    list.drop_if_empty(before, options);

    let before = list.group(t.nav_docs());
    let options = list.options;
    for hit in docs::hits(t, &q).into_iter().take(MAX_CHAPTERS) {
        list.link(&hit.href, "book-open", &hit.title, &hit.text);
    }
    list.drop_if_empty(before, options);
    list.close();

    let body = if list.options == 0 {
        format!("<p>{}</p>", escaped(&t.palette_none(asked.q.trim())))
    } else {
        list.out
    };
    responses::html(&visit, StatusCode::OK, body)
}

/// The newest sessions that `q` finds. A half-typed query may be none yet; then nothing is found, which is true.
async fn found(console: &PagesContext, caller: &Caller, q: &str) -> Vec<SessionView> {
    let wanted = ListQuery {
        q: q.to_owned(),
        limit: Some(MAX_RESULTS),
        ..ListQuery::default()
    };
    sessions::list_uncounted(&console.server, caller, &wanted)
        .await
        .map(|page| page.items)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_by_other_names_of_their_subject() {
        for (language, q, href) in [
            (Language::English, "runtime", "/policies"),
            (Language::English, "site name", "/system/branding"),
            (Language::English, "name of the site", "/system/branding"),
            (Language::English, "share folder", "/folders"),
            (Language::English, "who used gpu", "/history"),
            (Language::English, "raise limit", "/allowances"),
            (Language::English, "backup passphrase", "/system/backups"),
            (Language::English, "https key", "/system/tls"),
            (Language::English, "idle timeout", "/idle-rules"),
            (Language::Korean, "백업 예약", "/system/backups"),
            (Language::Korean, "사이트 이름", "/system/branding"),
            (Language::Korean, "폴더 공유", "/folders"),
            (Language::Korean, "실행 시간", "/policies"),
        ] {
            let found = pages_found(Text::new(language), q);
            assert!(found.iter().any(|(one, _)| *one == href), "{q}: {found:?}");
        }
        assert_eq!(pages_found(Text::default(), "zzzz nothing"), []);
    }

    #[test]
    fn a_verb_is_found_before_or_behind_the_name_in_both_languages() {
        for (language, q, word, rest) in [
            (Language::English, "stop train-7", "Stop", "train-7"),
            (Language::English, "train-7 log", "Logs", "train-7"),
            (Language::Korean, "train-7 중지", "중지", "train-7"),
            (Language::Korean, "stop train-7", "중지", "train-7"),
        ] {
            let verbs = verbs(Text::new(language));
            let (verb, left) = asked_verb(&verbs, q).expect(q);
            assert_eq!((verb.word, left.as_str()), (word, rest), "{q}");
        }
        assert!(asked_verb(&verbs(Text::default()), "s train").is_none());
        assert!(asked_verb(&verbs(Text::default()), "").is_none());
    }

    #[test]
    fn a_group_without_options_leaves_no_trace() {
        let mut list = OptionList::default();
        let before = list.group("Sessions");
        list.drop_if_empty(before, 0);
        list.close();
        assert_eq!(list.out, "");
        list.group("Go to");
        list.link("/queue", "list-ordered", "Queue", "");
        list.close();
        assert!(list.out.starts_with("<div role=\"group\"") && list.out.ends_with("</a></div>"));
    }
}
