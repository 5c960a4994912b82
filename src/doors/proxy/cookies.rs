//! Which app sets which cookies. Browsers send each cookie of a host to all of its ports, so each is for the app that set it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rules::app_port::{AppPort, AppPortCookie};
use rules::units::Timestamp;

/// Names of cookies that are remembered of one app. Higher: memory that an app chooses. Lower: a cookie of one app reaches
/// another one.
const MAX_COOKIES: usize = 64;
/// Letters of a name that is remembered.
const MAX_COOKIE_NAME: usize = 256;

/// The names of the cookies that apps set, by port.
#[derive(Default)]
pub(super) struct AppCookies(Mutex<HashMap<u16, CookiesOfPort>>);

/// Those of the app that has a port now.
#[derive(Default)]
struct CookiesOfPort {
    passed_at: Option<Timestamp>,
    names: BTreeSet<String>,
}

impl AppCookies {
    /// Those that were kept before this server started.
    pub(super) fn kept(kept: Vec<AppPortCookie>) -> Self {
        let mut all: HashMap<u16, CookiesOfPort> = HashMap::new();
        for cookie in kept {
            let port = all.entry(cookie.port).or_default();
            port.passed_at = cookie.passed_at;
            port.names.insert(cookie.name);
        }
        Self(Mutex::new(all))
    }

    /// An app is visited at a port: one that had the port before has none any more.
    pub(super) fn visited(&self, at: &AppPort) {
        let mut all = self.locked();
        let port = all.entry(at.port).or_default();
        if port.passed_at != at.passed_at {
            *port = CookiesOfPort {
                passed_at: at.passed_at,
                names: BTreeSet::new(),
            };
        }
    }

    /// Remembers that the app at a port sets cookies; gives those that are new, which are to be kept.
    pub(super) fn note(&self, port: u16, names: Vec<String>) -> Vec<String> {
        if names.is_empty() {
            return names;
        }
        let mut all = self.locked();
        let known = &mut all.entry(port).or_default().names;
        let mut new = Vec::new();
        for name in names {
            let has_room = known.len() < MAX_COOKIES && name.len() <= MAX_COOKIE_NAME;
            if has_room && known.insert(name.clone()) {
                new.push(name);
            }
        }
        new
    }

    /// Whether a cookie was set by the app at another port and not by the one at this port.
    pub(super) fn is_of_another(&self, port: u16, cookie: &str) -> bool {
        let all = self.locked();
        let sets = |known: &CookiesOfPort| known.names.contains(cookie);
        !all.get(&port).is_some_and(sets) && all.values().any(sets)
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<u16, CookiesOfPort>> {
        // It is whole after every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rules::app::AppChoice;
    use rules::names::UserId;
    use uuid::Uuid;

    use super::*;

    fn at(port: u16, passed_at: Option<i64>) -> AppPort {
        let start = Timestamp::from_millis(0);
        AppPort {
            port,
            owner: UserId(Uuid::nil()),
            app: AppChoice::Port(8888),
            session: None,
            inner_port: 8888,
            opened_at: start,
            used_at: start,
            passed_at: passed_at.map(Timestamp::from_millis),
        }
    }

    #[test]
    fn a_cookie_of_one_app_is_not_for_another() {
        let kept = AppPortCookie {
            port: 1,
            name: "kept".into(),
            passed_at: None,
        };
        let cookies = AppCookies::kept(vec![kept]);
        cookies.visited(&at(1, None));
        assert_eq!(cookies.note(1, vec!["sid".into(), "both".into()]).len(), 2);
        assert_eq!(cookies.note(2, vec!["both".into()]), ["both"]);
        assert!(cookies.note(2, vec!["both".into()]).is_empty(), "known");
        for (port, cookie, expected) in [
            (1, "sid", false),
            (2, "sid", true),
            (3, "sid", true),
            (2, "both", false),
            (2, "unknown", false),
            (1, "kept", false),
            (2, "kept", true),
        ] {
            let seen = cookies.is_of_another(port, cookie);
            assert_eq!(seen, expected, "{port} {cookie}");
        }
        cookies.visited(&at(1, Some(5)));
        assert!(!cookies.is_of_another(2, "sid"), "another app has the port");
    }

    #[test]
    fn an_app_names_so_many_cookies() {
        let cookies = AppCookies::default();
        let long = "x".repeat(MAX_COOKIE_NAME + 1);
        assert!(cookies.note(1, vec![long]).is_empty());
        let names = (0..=MAX_COOKIES).map(|number| number.to_string());
        assert_eq!(cookies.note(1, names.collect()).len(), MAX_COOKIES);
    }
}
