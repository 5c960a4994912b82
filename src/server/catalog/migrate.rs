//! The ladder of schema versions: numbered steps, forward only, all that are due in one transaction, with
//! a copy of the file before the first. A state of a newer version is refused by name.

use rules::refusals;
use rusqlite::Connection;

use super::{CatalogPlace, files};
use crate::{Failure, ServerFault};

/// Every step, in order; step N takes version N-1 to N. `packaging/migrations.rs` makes the list of the files in
/// `migrations`, by their numbers. A released step never changes again.
pub(super) const STEPS: &[&str] = include!(concat!(env!("OUT_DIR"), "/steps.rs"));

/// The schema that the steps end at, and the rows that they leave in a new catalog; a test compares it with them. A new
/// catalog is made of it at once: the steps make half of its tables several times.
const FOUNDED: &str = include_str!("schema.sql");

/// Marks the file as a catalog of ours: "frdl".
const APPLICATION: i32 = 0x6672_646c;

/// Brings the schema up to the newest version: all steps that are due, or none of them.
///
/// Errors: `state.newer` for a file of a newer version, `state.foreign` for a database of another
/// program.
pub(super) fn climb(connection: &mut Connection, place: &CatalogPlace) -> Result<(), Failure> {
    climb_by(connection, place, STEPS, Some(FOUNDED))
}

/// As [`climb`], by these steps alone.
#[cfg(test)]
pub(super) fn climb_to(
    connection: &mut Connection,
    place: &CatalogPlace,
    steps: &[&str],
) -> Result<(), Failure> {
    climb_by(connection, place, steps, None)
}

/// Takes the steps that are due; a new catalog is made of `founded` where there is one.
fn climb_by(
    connection: &mut Connection,
    place: &CatalogPlace,
    steps: &[&str],
    founded: Option<&str>,
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
    match founded.filter(|_| reached == 0) {
        Some(founded) => transaction.execute_batch(founded).map_err(fault(0))?,
        None => {
            for (at, step) in steps.iter().enumerate().skip(reached) {
                transaction.execute_batch(step).map_err(fault(at))?;
            }
        }
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
