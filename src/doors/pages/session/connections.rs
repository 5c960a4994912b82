//! What a session connects to outside, as rows of its page. Counts nothing; its node does.

use api::sessions::ConnectionView;
use rules::egress::EgressOutcome;
use rules::units::Timestamp;

use super::super::components;
use super::super::request_context::LocalClock;
use crate::doors::text::Text;

/// Rows that the page shows; the others are in the API.
const SHOWN: usize = 12;

/// Connections to one host that came out the same.
pub struct ConnectionLine {
    pub host: String,
    /// How it came out, and its tone.
    pub said: &'static str,
    pub tone: &'static str,
    pub count: u64,
    pub bytes: String,
    pub when: String,
}

/// The latest first.
pub(super) fn lines(
    t: Text,
    (clock, now): (&LocalClock, Timestamp),
    all: &[ConnectionView],
) -> Vec<ConnectionLine> {
    let shown = all.iter().take(SHOWN);
    shown
        .map(|one| {
            let outcome = EgressOutcome::parse(&one.outcome);
            ConnectionLine {
                host: format!("{}:{}", one.host, one.port),
                said: match outcome {
                    Some(EgressOutcome::Opened) => t.connections_opened(),
                    Some(EgressOutcome::NotListed) => t.connections_not_listed(),
                    Some(EgressOutcome::AddressRefused) => t.connections_address(),
                    Some(EgressOutcome::Unresolved) => t.connections_unresolved(),
                    Some(EgressOutcome::Unreachable) | None => t.connections_unreachable(),
                    Some(EgressOutcome::TooMany) => t.connections_too_many(),
                },
                tone: match outcome {
                    Some(EgressOutcome::Opened) => "",
                    _ => "w",
                },
                count: one.count,
                bytes: components::size(one.sent.saturating_add(one.received)),
                when: clock.near(one.last_at, now),
            }
        })
        .collect()
}
