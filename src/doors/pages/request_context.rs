//! What every request for a page brings: language, theme, time zone, whether it wants a fragment, and where it
//! came from. Cookies of taste are read here; the cookie of the sign-in belongs to `server::access`.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, header};
use jiff::tz::TimeZone;
use rules::units::Timestamp;
use server::actions::sessions::MenuCounts;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use super::components;
use super::form_faults::RefusedForm;
use super::layout::Theme;
use crate::doors::peer::Encrypted;
use crate::doors::text::{Language, Text};

/// One request, as pages need it.
#[derive(Clone, Debug)]
pub struct RequestContext {
    pub text: Text,
    pub theme: Theme,
    pub clock: LocalClock,
    /// Whether single keys are shortcuts.
    pub keys: bool,
    /// Keys of the announcements that the reader closed, with dots between them; as the browser sent it.
    pub closed: String,
    /// Path and query.
    pub path: String,
    /// The page's own script asks for one block instead of the page.
    pub fragment: bool,
    /// The host and port the browser used.
    pub authority: String,
    /// This answer's own number in the content policy.
    pub nonce: String,
    pub request: Option<String>,
    /// The connection is encrypted.
    pub secure: bool,
    /// The numbers of the menu, known once the caller is.
    pub counts: MenuCell,
    /// The form that this answer shows again, since it was refused.
    pub refused: Option<RefusedForm>,
}

/// Where the proof of the caller leaves the numbers of the menu for the page that is made later.
#[derive(Clone, Debug, Default)]
pub struct MenuCell(Arc<OnceLock<MenuCounts>>);

impl MenuCell {
    pub fn set(&self, counts: MenuCounts) {
        // A second proof of the same request finds the same numbers.
        let _ = self.0.set(counts);
    }

    /// Zeros for strangers, and for fragments, which have no menu.
    pub fn get(&self) -> MenuCounts {
        self.0.get().copied().unwrap_or_default()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(RequestContext::in_parts(parts))
    }
}

/// The id of one request: for the log, the answer, and the user who reports trouble.
#[derive(Clone, Debug)]
pub struct PageRequestId(pub String);

impl RequestContext {
    /// The same for an answer that shows a refused form again.
    pub fn refusing(&self, form: RefusedForm) -> RequestContext {
        RequestContext {
            refused: Some(form),
            ..self.clone()
        }
    }

    /// Reads a request that is being taken apart.
    pub fn in_parts(parts: &Parts) -> RequestContext {
        let path = parts
            .uri
            .path_and_query()
            .map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned());
        RequestContext {
            request: parts
                .extensions
                .get::<PageRequestId>()
                .map(|id| id.0.clone()),
            ..RequestContext::of(&parts.headers, &parts.extensions, path)
        }
    }

    /// The path alone. The query of a sign-in link is a secret: no log is told of it.
    pub fn address(&self) -> &str {
        let parts = self.path.split_once('?');
        parts.map_or(self.path.as_str(), |(address, _)| address)
    }

    /// Path and query without the word about what was just done: where a switch leads back to.
    pub fn place(&self) -> &str {
        match self.path.find("notice=") {
            Some(at) => self.path[..at].trim_end_matches(['?', '&']),
            None => &self.path,
        }
    }

    /// Reads headers alone; unknown values count as absent.
    pub fn of(headers: &HeaderMap, connection: &Extensions, path: String) -> RequestContext {
        let secure = connection.get::<Encrypted>().is_some();
        let taste = |name: &str| taste_of(headers, secure, name);
        let language = taste("fardel_language")
            .and_then(Language::from_code)
            .unwrap_or_else(|| {
                Language::accepted(
                    headers
                        .get(header::ACCEPT_LANGUAGE)
                        .and_then(|v| v.to_str().ok())
                        .unwrap_or_default(),
                )
            });
        let text = Text::new(language);
        let zone = taste("fardel_zone").unwrap_or_default();
        RequestContext {
            text,
            theme: taste("fardel_theme")
                .and_then(Theme::from_code)
                .unwrap_or_default(),
            clock: LocalClock::of(text, zone),
            keys: taste("fardel_keys") != Some("off"),
            closed: taste("fardel_closed").unwrap_or_default().to_owned(),
            path,
            fragment: headers.contains_key("hx-request"),
            authority: headers
                .get(header::HOST)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            nonce: nonce(),
            request: None,
            secure,
            counts: connection.get::<MenuCell>().cloned().unwrap_or_default(),
            refused: None,
        }
    }
}

/// 128 bits from the operating system, in base64.
fn nonce() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(rand::random::<[u8; 16]>())
}

/// The value of one cookie; none when it is not sent.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

/// What marks a cookie that browsers take from this host over TLS only, and from no other port or host.
const OWN: &str = "__Host-";

/// The value of a cookie of taste. Over TLS only one that is surely ours; a proxy that speaks TLS for us
/// lets the browser keep that one too.
pub(super) fn taste_of<'a>(headers: &'a HeaderMap, secure: bool, name: &str) -> Option<&'a str> {
    let own = cookie(headers, &format!("{OWN}{name}"));
    match secure {
        true => own,
        false => own.or_else(|| cookie(headers, name)),
    }
}

/// A cookie of taste: readable by our own script, kept for a year.
pub fn taste(visit: &RequestContext, name: &str, value: &str) -> String {
    let (own, secure) = if visit.secure {
        (OWN, "; Secure")
    } else {
        ("", "")
    };
    format!("{own}{name}={value}; Path=/; Max-Age=31536000; SameSite=Lax{secure}")
}

/// Formats times in a user's zone and language.
#[derive(Clone, Debug)]
pub struct LocalClock {
    text: Text,
    zone: TimeZone,
    /// The browser has told no zone yet: it is UTC until it has.
    is_assumed: bool,
}

impl LocalClock {
    /// The zone by its IANA name; UTC for an empty or unknown one.
    pub fn of(text: Text, zone: &str) -> LocalClock {
        // `%2F` as cookies of some browsers write the slash.
        let name = zone.replace("%2F", "/");
        let known = TimeZone::get(&name).ok();
        LocalClock {
            text,
            is_assumed: known.is_none(),
            zone: known.unwrap_or(TimeZone::UTC),
        }
    }

    /// The zone's name as users choose it.
    pub fn name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    fn local(&self, at: Timestamp) -> jiff::Zoned {
        jiff::Timestamp::from_millisecond(at.as_millis())
            .unwrap_or_default()
            .to_zoned(self.zone.clone())
    }

    /// `14:02`
    pub fn minute(&self, at: Timestamp) -> String {
        self.local(at).strftime("%H:%M").to_string()
    }

    /// `14:02:11`
    pub fn second(&self, at: Timestamp) -> String {
        self.local(at).strftime("%H:%M:%S").to_string()
    }

    /// `14:02` today, with the date on another day.
    pub fn near(&self, at: Timestamp, now: Timestamp) -> String {
        let (then, today) = (self.local(at), self.local(now));
        if then.date() == today.date() {
            self.minute(at)
        } else {
            self.date(at)
        }
    }

    /// `21 Nov 14:02`, `11월 21일 14:02`; with the year when it is not this one it still is unambiguous
    /// within eleven months, which is longer than anything here is shown for.
    pub fn date(&self, at: Timestamp) -> String {
        let then = self.local(at);
        match self.text.language {
            Language::English => then.strftime("%-d %b %H:%M").to_string(),
            Language::Korean => then.strftime("%-m월 %-d일 %H:%M").to_string(),
        }
    }

    /// A time of a page that may be the first that a browser sees: where its zone is not known yet, the markup says UTC,
    /// and the script writes the time of the browser's own clock there.
    pub fn element(&self, at: Timestamp) -> components::Markup {
        let told = components::escaped(&self.date(at));
        components::Markup::finished(match self.is_assumed {
            true => format!("<time datetime=\"{at}\" data-utc>{told} UTC</time>"),
            false => format!("<time datetime=\"{at}\">{told}</time>"),
        })
    }

    /// `21 Nov 2026`, `2026년 11월 21일`
    pub fn day(&self, at: Timestamp) -> String {
        let then = self.local(at);
        match self.text.language {
            Language::English => then.strftime("%-d %b %Y").to_string(),
            Language::Korean => then.strftime("%Y년 %-m월 %-d일").to_string(),
        }
    }

    /// `21 Nov 2026 14:02 – 16:20`, `2026년 11월 21일 14:02 – 16:20`: from when to when, which may be years ahead.
    pub fn period(&self, from: Timestamp, to: Timestamp) -> String {
        let (day, begin) = (self.day(from), self.minute(from));
        format!("{day} {begin} – {}", self.near(to, from))
    }

    /// The last day before an end, as `day`.
    pub fn last_day(&self, end: Timestamp) -> String {
        self.day(Timestamp::from_millis(end.as_millis() - 1))
    }

    /// `3 h 12 min ago`, `just now`.
    pub fn ago(&self, at: Timestamp, now: Timestamp) -> String {
        match now.seconds_since(at) {
            0..5 => self.text.common_now().to_owned(),
            seconds => self.text.common_ago(components::span(self.text, seconds)),
        }
    }

    /// Reads what `<input type=datetime-local>` sends, in this zone; none when it is not a time.
    pub fn read(&self, typed: &str) -> Option<Timestamp> {
        let local: jiff::civil::DateTime = typed.parse().ok()?;
        let zoned = local.to_zoned(self.zone.clone()).ok()?;
        Some(Timestamp::from_millis(zoned.timestamp().as_millisecond()))
    }

    /// What `<input type=datetime-local>` shows.
    pub fn write(&self, at: Timestamp) -> String {
        self.local(at).strftime("%Y-%m-%dT%H:%M").to_string()
    }
}

/// Zones offered; the browser's own is taken where none was chosen.
const ZONES: [&str; 12] = [
    "Asia/Seoul",
    "Asia/Tokyo",
    "Asia/Shanghai",
    "Asia/Singapore",
    "Asia/Kolkata",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/London",
    "America/New_York",
    "America/Chicago",
    "America/Los_Angeles",
    "UTC",
];

/// The zones that users choose from, with the one in force among them.
pub fn zones(zone: &str) -> Vec<components::Choice> {
    let mut zones: Vec<components::Choice> = ZONES
        .map(|name| components::Choice::new(name, name, name == zone))
        .into();
    if !ZONES.contains(&zone) {
        zones.insert(0, components::Choice::new(zone, zone, true));
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_where_the_reader_lives() {
        let at = Timestamp::parse("2026-11-21T14:02:11Z").expect("a time");
        let seoul = LocalClock::of(Text::new(Language::Korean), "Asia/Seoul");
        assert_eq!(seoul.second(at), "23:02:11");
        assert_eq!(seoul.date(at), "11월 21일 23:02");
        let later = Timestamp::parse("2026-11-21T15:30:00Z").expect("a time");
        let period = "2026년 11월 21일 23:02 – 11월 22일 00:30";
        assert_eq!(seoul.period(at, later), period);
        assert_eq!(
            seoul.read(&seoul.write(at)).map(|t| t.as_millis() / 60_000),
            Some(at.as_millis() / 60_000)
        );
        let nowhere = LocalClock::of(Text::default(), "Not/AZone");
        assert_eq!(nowhere.minute(at), "14:02");
        assert_eq!(nowhere.read("tomorrow"), None);
    }

    #[test]
    fn a_time_says_utc_where_the_zone_of_the_reader_is_not_known() {
        let at = Timestamp::parse("2026-11-21T14:02:11Z").expect("a time");
        let told = |zone| {
            let clock = LocalClock::of(Text::default(), zone);
            clock.element(at).to_string()
        };
        let own = "<time datetime=\"2026-11-21T14:02:11.000Z\"";
        assert_eq!(told(""), format!("{own} data-utc>21 Nov 14:02 UTC</time>"));
        for (zone, words) in [("Asia/Seoul", "23:02"), ("UTC", "14:02")] {
            assert_eq!(told(zone), format!("{own}>21 Nov {words}</time>"));
        }
    }

    #[test]
    fn the_address_for_a_log_has_no_query() {
        for (path, address) in [
            ("/login/link?code=abc?d", "/login/link"),
            ("/users", "/users"),
        ] {
            let (headers, plain) = (HeaderMap::new(), Extensions::new());
            let visit = RequestContext::of(&headers, &plain, path.into());
            assert_eq!(visit.address(), address);
        }
    }

    #[test]
    fn cookies_of_taste_win_over_the_browser() {
        let plain = Extensions::new();
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_LANGUAGE, "ko".parse().expect("value"));
        headers.insert(
            header::COOKIE,
            "a=b; fardel_language=en; fardel_theme=dark; fardel_keys=off"
                .parse()
                .expect("value"),
        );
        let visit = RequestContext::of(&headers, &plain, "/".into());
        assert_eq!(
            (visit.text.language, visit.theme, visit.keys),
            (Language::English, Theme::Dark, false)
        );
        headers.insert(
            header::COOKIE,
            "fardel_language=xx; fardel_theme=pink"
                .parse()
                .expect("value"),
        );
        let visit = RequestContext::of(&headers, &plain, "/".into());
        assert_eq!(
            (visit.text.language, visit.theme, visit.keys),
            (Language::Korean, Theme::System, true)
        );
        let mut tls = Extensions::new();
        tls.insert(Encrypted);
        headers.insert(
            header::COOKIE,
            "fardel_theme=dark; fardel_language=en; __Host-fardel_language=ko"
                .parse()
                .expect("value"),
        );
        let visit = RequestContext::of(&headers, &tls, "/".into());
        assert_eq!(
            (visit.text.language, visit.theme, visit.secure),
            (Language::Korean, Theme::System, true),
            "what another port may have planted is not read"
        );
    }
}
