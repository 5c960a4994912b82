//! Which port of this machine an app is opened at. A port is an origin of its own in browsers, with storage that its app
//! fills: so it stays with the same app of the same owner, and passes to another one only after a rest.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::app::AppChoice;
use crate::names::{SessionId, UserId};
use crate::refusal::Refusal;
use crate::refusals;
use crate::units::Timestamp;

/// Ports for apps, from the one of the settings on. Higher: more ports of the machine that others cannot have. Lower: fewer
/// apps are open at once.
pub const APP_PORTS: u16 = 100;
/// Numbers of apps that have names: a name takes nothing of the machine.
pub const APP_NUMBERS: RangeInclusive<u16> = 10_000..=59_999;
/// Seconds that a port rests before another app gets it. Longer: ports run out. Shorter: a page of the app before is still
/// open in its reader's browser.
const REST_SECONDS: u64 = 24 * 3600;
/// Which part of the ports the apps of one owner may have: a quarter.
const OWNER_PART: usize = 4;
/// Numbers that one owner has at most. Higher: who opens thousands makes each opening of others slower. Lower: old apps lose
/// their number, and with it what browsers keep of them.
const MAX_OWN: usize = 100;

/// One port, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppPort {
    pub port: u16,
    /// Of the session that it leads to, or led to last.
    pub owner: UserId,
    pub app: AppChoice,
    /// None: it leads nowhere.
    pub session: Option<SessionId>,
    /// Where the app listens in the session.
    pub inner_port: u16,
    pub opened_at: Timestamp,
    pub used_at: Timestamp,
    /// When another app had it before this one; what that one left in browsers is cleared.
    pub passed_at: Option<Timestamp>,
}

/// A cookie that the app at a port sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppPortCookie {
    pub port: u16,
    pub name: String,
    /// When another app had the port.
    pub passed_at: Option<Timestamp>,
}

/// What is to be opened.
#[derive(Debug, Clone)]
pub struct AppPortRequest {
    pub owner: UserId,
    pub app: AppChoice,
    pub session: SessionId,
    pub inner_port: u16,
    pub now: Timestamp,
    /// The ports for apps; where they have names, their numbers.
    pub ports: RangeInclusive<u16>,
    /// Whether one passes to another app after a rest. Numbers of names do not: what an app left in browsers at its name
    /// could answer before we do.
    pub can_pass: bool,
    /// Ports that cannot be opened: other programs have them.
    pub unusable: BTreeSet<u16>,
}

/// The ports for apps, where `first` is the first of them.
pub fn app_ports(first: u16) -> RangeInclusive<u16> {
    first..=first.saturating_add(APP_PORTS - 1)
}

/// The port that an app is opened at. `lives`: whether a session can still have pages open.
///
/// Errors: `app.ports-many`, `app.ports-used-up`.
pub fn app_port(
    known: &[AppPort],
    wanted: &AppPortRequest,
    lives: impl Fn(SessionId) -> bool,
) -> Result<AppPort, Refusal> {
    let ports = &wanted.ports;
    let usable =
        |port: &AppPort| ports.contains(&port.port) && !wanted.unusable.contains(&port.port);
    let is_own = |port: &&AppPort| port.owner == wanted.owner && port.app == wanted.app;
    let rests = |port: &&AppPort| port.session.is_none_or(|session| !lives(session));
    let known: Vec<&AppPort> = known.iter().filter(|port| usable(port)).collect();
    let open = known
        .iter()
        .find(|port| port.app == wanted.app && port.session == Some(wanted.session));
    let own = known.iter().filter(|port| is_own(port) && rests(port));
    if let Some(port) = open.or(own.max_by_key(|port| port.used_at)) {
        return Ok(leading(port.port, port.opened_at, port.passed_at, wanted));
    }
    let passes = |port: &&&AppPort| {
        let rested = wanted.now.seconds_since(port.used_at) >= REST_SECONDS;
        wanted.can_pass && rested && rests(port)
    };
    let count = wanted.ports.clone().count();
    let most = (count / OWNER_PART).clamp(1, MAX_OWN);
    let held = known
        .iter()
        .filter(|port| port.owner == wanted.owner && !passes(port));
    if held.count() >= most {
        // A number may lead to another app of its owner: the name has the app's before it, so it is another one.
        let own = known
            .iter()
            .filter(|port| !wanted.can_pass && port.owner == wanted.owner && rests(port))
            .min_by_key(|port| port.used_at);
        let own = own.ok_or_else(|| refusals::app_ports_many(most))?;
        return Ok(leading(own.port, wanted.now, None, wanted));
    }
    let taken: BTreeSet<u16> = known.iter().map(|port| port.port).collect();
    let is_free = |port: &u16| !wanted.unusable.contains(port) && !taken.contains(port);
    if let Some(port) = ports.clone().find(is_free) {
        return Ok(leading(port, wanted.now, None, wanted));
    }
    let oldest = known.iter().filter(passes).min_by_key(|port| port.used_at);
    let port = oldest.ok_or_else(|| refusals::app_ports_used_up(count))?;
    Ok(leading(port.port, wanted.now, Some(wanted.now), wanted))
}

fn leading(
    port: u16,
    opened_at: Timestamp,
    passed_at: Option<Timestamp>,
    wanted: &AppPortRequest,
) -> AppPort {
    AppPort {
        port,
        owner: wanted.owner,
        app: wanted.app.clone(),
        session: Some(wanted.session),
        inner_port: wanted.inner_port,
        opened_at,
        used_at: wanted.now,
        passed_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn session(number: u128) -> SessionId {
        SessionId(Uuid::from_u128(number))
    }

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + hours * 3_600_000)
    }

    fn wanted(owner: u128, app: &str, of: u128, hours: i64) -> AppPortRequest {
        AppPortRequest {
            owner: UserId(Uuid::from_u128(owner)),
            app: AppChoice::parse(app).expect("a name"),
            session: session(of),
            inner_port: 8888,
            now: at(hours),
            ports: app_ports(8443),
            can_pass: true,
            unusable: BTreeSet::new(),
        }
    }

    /// Opens one app after another; sessions with a number from 100 on are over.
    fn opened(known: &mut Vec<AppPort>, wanted: &AppPortRequest) -> Result<AppPort, String> {
        let lives = |session: SessionId| session.0.as_u128() < 100;
        let port = app_port(known, wanted, lives).map_err(|refusal| refusal.code)?;
        known.retain(|other| other.port != port.port);
        known.push(port.clone());
        Ok(port)
    }

    #[test]
    fn an_app_keeps_its_port_and_no_two_share_one() {
        let mut known = Vec::new();
        let mut open = |wanted: &AppPortRequest| opened(&mut known, wanted).map(|port| port.port);
        assert_eq!(open(&wanted(1, "jupyter", 1, 0)), Ok(8443));
        assert_eq!(
            open(&wanted(1, "jupyter", 2, 0)),
            Ok(8444),
            "another session"
        );
        assert_eq!(open(&wanted(1, "code", 1, 0)), Ok(8445), "another app");
        assert_eq!(open(&wanted(2, "jupyter", 3, 0)), Ok(8446), "another owner");
        assert_eq!(open(&wanted(1, "jupyter", 1, 9)), Ok(8443));
        assert_eq!(open(&wanted(3, "jupyter", 100, 0)), Ok(8447));
        assert_eq!(
            open(&wanted(3, "jupyter", 4, 1)),
            Ok(8447),
            "the session before is over"
        );
        let mut taken = wanted(4, "code", 5, 1);
        taken.unusable = BTreeSet::from([8448, 8449]);
        assert_eq!(open(&taken), Ok(8450));
    }

    #[test]
    fn a_port_passes_to_another_app_only_after_a_day_without_use() {
        let mut known = Vec::new();
        for number in 0..u128::from(APP_PORTS) {
            let first = wanted(number, "jupyter", 100 + number, 0);
            let port = opened(&mut known, &first).expect("a port");
            assert_eq!(port.passed_at, None);
        }
        let early = wanted(900, "code", 1, 23);
        assert_eq!(opened(&mut known, &early), Err("app.ports-used-up".into()));
        let port = opened(&mut known, &wanted(900, "code", 1, 24)).expect("a port");
        assert_eq!(port.passed_at, Some(at(24)));
        let again = opened(&mut known, &wanted(900, "code", 1, 25)).expect("the same");
        assert_eq!((again.port, again.passed_at), (port.port, Some(at(24))));
        // One that is open is never given away.
        for port in &mut known {
            port.session = Some(session(1));
        }
        let late = opened(&mut known, &wanted(901, "code", 2, 999));
        assert_eq!(late, Err("app.ports-used-up".into()));
    }

    #[test]
    fn one_owner_takes_no_more_than_a_quarter_of_the_ports() {
        let mut known = Vec::new();
        for port in 1..=25 {
            let own = wanted(1, &port.to_string(), 1, 0);
            opened(&mut known, &own).expect("a port");
        }
        let more = wanted(1, "26", 1, 30);
        assert_eq!(opened(&mut known, &more), Err("app.ports-many".into()));
        assert!(opened(&mut known, &wanted(1, "25", 1, 30)).is_ok(), "open");
        assert!(opened(&mut known, &wanted(2, "26", 2, 30)).is_ok());
        // Those of a session that is over count until they have rested.
        for port in &mut known {
            port.session = Some(session(100));
        }
        let more = wanted(1, "26", 2, 23);
        assert_eq!(opened(&mut known, &more), Err("app.ports-many".into()));
        assert!(opened(&mut known, &wanted(1, "26", 2, 24)).is_ok());
    }

    #[test]
    fn a_number_of_a_name_never_passes_to_another_app() {
        let mut known = Vec::new();
        let named = |owner, app, of, hours| AppPortRequest {
            ports: 10_000..=10_001,
            can_pass: false,
            ..wanted(owner, app, of, hours)
        };
        for owner in 1..=2 {
            opened(&mut known, &named(owner, "jupyter", 100 + owner, 0)).expect("a number");
        }
        let late = opened(&mut known, &named(3, "jupyter", 1, 999));
        assert_eq!(late, Err("app.ports-used-up".into()));
        let own = opened(&mut known, &named(2, "jupyter", 2, 999)).expect("its own");
        assert_eq!((own.port, own.passed_at), (10_001, None));
    }

    #[test]
    fn one_owner_has_so_many_numbers_and_then_their_oldest_again() {
        let mut known = Vec::new();
        let named = |owner, app: usize, of| AppPortRequest {
            ports: APP_NUMBERS,
            can_pass: false,
            ..wanted(owner, &app.to_string(), of, app as i64)
        };
        for app in 1..=MAX_OWN {
            opened(&mut known, &named(1, app, 1)).expect("a number");
        }
        let more = named(1, MAX_OWN + 1, 1);
        assert_eq!(opened(&mut known, &more), Err("app.ports-many".into()));
        assert!(opened(&mut known, &named(2, 1, 2)).is_ok(), "another owner");
        for port in known.iter_mut().filter(|port| port.port < 10_010) {
            port.session = Some(session(100));
        }
        let again = opened(&mut known, &more).expect("one that rests");
        assert_eq!((again.port, again.passed_at), (10_000, None));
        assert_eq!(known.len(), MAX_OWN + 1);
    }
}
