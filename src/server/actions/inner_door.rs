//! What a session asks of itself through its inner door: what it is, what it used lately. Everything else that it may do is
//! an act on sessions like that of a user.

use api::inner_door::InnerSessionView;
use api::sessions::UsageSample;
use rules::names::ContainerName;
use rules::permissions::Permission;
use rules::units::Timestamp;
use rules::workload::container;

use super::idle_rules;
use super::sessions::find::find;
use super::sessions::samples;
use super::sessions::view::NameCache;
use crate::access::Caller;
use crate::{Failure, Server};

/// How far back its samples go. Longer: answers of a thousand lines, as often as a program asks. Shorter: a program that
/// asks once in ten minutes misses some.
const SAMPLED_MILLIS: i64 = 15 * 60 * 1_000;

/// The session of a container, with its limits and the end that is known of it. From inside it learns nothing of its machine,
/// and an app that fetches this for a visitor gives no variable away.
///
/// Errors: those of `sessions::get`.
pub async fn look(
    server: &Server,
    caller: &Caller,
    own: ContainerName,
) -> Result<InnerSessionView, Failure> {
    server.catalog().read_now("show a session itself", |view| {
        let id = own.session.to_string();
        let row = find(view, caller, Permission::SessionsRead, &id)?;
        let limit = row.spec.limit().map(|(seconds, _)| seconds);
        let ends_at = row.started_at().zip(limit);
        let mut session = NameCache::new(view)?.show(&row)?;
        session.node = None;
        // Why it has its place says what its node had free.
        session.reason = None;
        session.env.clear();
        for device in &mut session.devices {
            device.uuid.clear();
        }
        Ok(InnerSessionView {
            container: container::role(own.index),
            ends_at: ends_at.map(|(started, seconds)| started.plus_seconds(seconds)),
            idle: idle_rules::state_of(view, &row)?,
            session,
        })
    })
}

/// What its main container used in the last quarter of an hour, oldest first.
///
/// Errors: those of `sessions::get`.
pub async fn recent_samples(
    server: &Server,
    caller: &Caller,
    own: ContainerName,
) -> Result<Vec<UsageSample>, Failure> {
    let now = server.clock().now().as_millis();
    let since = Timestamp::from_millis(now.saturating_sub(SAMPLED_MILLIS));
    samples(server, caller, &own.session.to_string(), Some(since)).await
}
