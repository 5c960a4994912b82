//! The ladder of schema versions: numbered steps, forward only, all that are due in one transaction, with
//! a copy of the file before the first. A state of a newer version is refused by name.

use rules::refusals;
use rusqlite::Connection;

use super::{CatalogPlace, files};
use crate::{Failure, ServerFault};

/// Every step, in order; step N takes version N-1 to N. A released step never changes again.
pub(super) const STEPS: &[&str] = &[
    include_str!("migrations/0001_founding.sql"),
    include_str!("migrations/0002_devices.sql"),
    include_str!("migrations/0003_cuts.sql"),
    include_str!("migrations/0004_incidents.sql"),
    include_str!("migrations/0005_proofs.sql"),
    include_str!("migrations/0006_cut_orders.sql"),
    include_str!("migrations/0007_turns.sql"),
    include_str!("migrations/0008_sealed.sql"),
    include_str!("migrations/0009_ended.sql"),
    include_str!("migrations/0010_tenancy.sql"),
    include_str!("migrations/0011_containers.sql"),
    include_str!("migrations/0012_listing.sql"),
    include_str!("migrations/0013_words.sql"),
    include_str!("migrations/0014_policies.sql"),
    include_str!("migrations/0015_container_outcomes.sql"),
    include_str!("migrations/0016_session_table.sql"),
    include_str!("migrations/0017_maintenance.sql"),
    include_str!("migrations/0018_holds.sql"),
    include_str!("migrations/0019_grants.sql"),
    include_str!("migrations/0020_rosters.sql"),
    include_str!("migrations/0021_waits.sql"),
    include_str!("migrations/0022_invitations.sql"),
    include_str!("migrations/0023_departures.sql"),
    include_str!("migrations/0024_usage.sql"),
    include_str!("migrations/0025_fair_share.sql"),
    include_str!("migrations/0026_waiting.sql"),
    include_str!("migrations/0027_members.sql"),
    include_str!("migrations/0028_allowances.sql"),
    include_str!("migrations/0029_announcements.sql"),
    include_str!("migrations/0030_live_sessions.sql"),
    include_str!("migrations/0031_presets.sql"),
    include_str!("migrations/0032_idle_rules.sql"),
    include_str!("migrations/0033_audit.sql"),
    include_str!("migrations/0034_signing_in.sql"),
    include_str!("migrations/0035_audit_batches.sql"),
    include_str!("migrations/0036_launch.sql"),
    include_str!("migrations/0037_budgets.sql"),
    include_str!("migrations/0038_reservations.sql"),
    include_str!("migrations/0039_launches.sql"),
    include_str!("migrations/0040_directories.sql"),
    include_str!("migrations/0041_budget_use.sql"),
    include_str!("migrations/0042_reservations.sql"),
];

/// Marks the file as a catalog of ours: "frdl".
const APPLICATION: i32 = 0x6672_646c;

/// Brings the schema up to the newest version: all steps that are due, or none of them.
///
/// Errors: `state.newer` for a file of a newer version, `state.foreign` for a database of another
/// program.
pub(super) fn climb(connection: &mut Connection, place: &CatalogPlace) -> Result<(), Failure> {
    climb_to(connection, place, STEPS)
}

pub(super) fn climb_to(
    connection: &mut Connection,
    place: &CatalogPlace,
    steps: &[&str],
) -> Result<(), Failure> {
    let number = |connection: &Connection, name: &str| {
        connection.query_row(&format!("pragma {name}"), [], |row| row.get::<_, i32>(0))
    };
    let unreadable = |error| files::unreadable(place, error);
    let version = number(connection, "user_version").map_err(unreadable)?;
    let application = number(connection, "application_id").map_err(unreadable)?;
    let tables: i32 = connection
        .query_row("select count(*) from sqlite_schema", [], |row| row.get(0))
        .map_err(unreadable)?;
    if application != APPLICATION && (tables > 0 || version > 0) {
        return Err(refusals::state_foreign(path(place)).into());
    }
    let reached = usize::try_from(version).unwrap_or(0);
    if reached > steps.len() {
        return Err(refusals::state_newer(path(place), reached, steps.len()).into());
    }
    if reached > 0 && reached < steps.len() {
        copy(connection, place, reached)?;
    }
    let name = |at: usize| format!("catalog migration {}", at + 1);
    let fault = |at: usize| {
        move |error| match files::unreadable(place, error) {
            Failure::Fault(fault) => Failure::Fault(ServerFault::new(name(at), fault)),
            refusal @ Failure::Refusal(_) => refusal,
        }
    };
    if reached == steps.len() {
        return Ok(());
    }
    let transaction = connection.transaction().map_err(fault(reached))?;
    for (at, step) in steps.iter().enumerate().skip(reached) {
        transaction.execute_batch(step).map_err(fault(at))?;
    }
    transaction
        .execute_batch(&format!(
            "pragma user_version = {}; pragma application_id = {APPLICATION};",
            steps.len()
        ))
        .map_err(fault(steps.len() - 1))?;
    transaction.commit().map_err(fault(steps.len() - 1))
}

/// Keeps the file as it is now beside itself, whole or not at all; replaces the copy of an earlier upgrade
/// from the same version, which was rolled back.
fn copy(connection: &Connection, place: &CatalogPlace, version: usize) -> Result<(), Failure> {
    let CatalogPlace::Directory(directory) = place else {
        return Ok(());
    };
    let kept = directory.join(format!("{}{version}", prefix()));
    let partial = directory.join(format!("{}.version-{version}.partial", files::FILE));
    let what = || format!("copy the catalog to {}", kept.display());
    if partial.exists() {
        std::fs::remove_file(&partial).map_err(|error| ServerFault::new(what(), error))?;
    }
    // SQLite would make it readable for others; an empty file it takes as it is.
    files::make_file(&partial)?;
    connection
        .execute("vacuum into ?1", [partial.display().to_string()])
        .map_err(|error| files::unreadable(place, error))?;
    std::fs::rename(&partial, &kept).map_err(|error| ServerFault::new(what(), error))?;
    Ok(())
}

/// In front of the version, in the names of kept copies.
pub(super) fn prefix() -> String {
    format!("{}.version-", files::FILE)
}

fn path(place: &CatalogPlace) -> String {
    match place {
        CatalogPlace::Memory => "The catalog in memory".to_owned(),
        CatalogPlace::Directory(directory) => directory.join(files::FILE).display().to_string(),
    }
}
