//! The ladder of schema versions: numbered steps, forward only, one transaction each, with a copy of
//! the file before the first. A state of a newer version is refused by name.

use rules::refusal::Refusal;
use rusqlite::Connection;

use super::{Place, open};
use crate::{Failure, Fault};

/// Every step, in order; step N takes version N-1 to N. A released step never changes again.
pub(super) const STEPS: &[&str] = &[include_str!("migrations/0001_founding.sql")];

/// Marks the file as a catalog of ours: "frdl".
const APPLICATION: i32 = 0x6672_646c;

/// Brings the schema up to the newest version.
///
/// Errors: `state.newer` for a file of a newer version, `state.foreign` for a database of another
/// program.
pub(super) fn climb(connection: &mut Connection, place: &Place) -> Result<(), Failure> {
    climb_to(connection, place, STEPS)
}

pub(super) fn climb_to(
    connection: &mut Connection,
    place: &Place,
    steps: &[&str],
) -> Result<(), Failure> {
    let number = |connection: &Connection, name: &str| {
        connection.query_row(&format!("pragma {name}"), [], |row| row.get::<_, i32>(0))
    };
    let unreadable = |error| open::unreadable(place, error);
    let version = number(connection, "user_version").map_err(unreadable)?;
    let application = number(connection, "application_id").map_err(unreadable)?;
    let tables: i32 = connection
        .query_row("select count(*) from sqlite_schema", [], |row| row.get(0))
        .map_err(unreadable)?;
    if application != APPLICATION && (tables > 0 || version > 0) {
        return Err(Refusal::conflict(
            "state.foreign",
            format!("{} belongs to another program.", path(place)),
        )
        .hint("Set FARDEL_DATA (or --data) to a directory of its own.")
        .into());
    }
    let reached = usize::try_from(version).unwrap_or(0);
    if reached > steps.len() {
        return Err(Refusal::conflict(
            "state.newer",
            format!(
                "{} was written by a newer fardel (catalog version {reached}; this one knows {}).",
                path(place),
                steps.len()
            ),
        )
        .hint("Start the newer program again, or restore a backup from before the upgrade.")
        .into());
    }
    if reached > 0 && reached < steps.len() {
        copy(connection, place, reached)?;
    }
    for (at, step) in steps.iter().enumerate().skip(reached) {
        let name = format!("catalog migration {}", at + 1);
        let fault = |error| match open::unreadable(place, error) {
            Failure::Fault(fault) => Failure::Fault(Fault::new(name.clone(), fault)),
            refusal @ Failure::Refusal(_) => refusal,
        };
        let transaction = connection.transaction().map_err(fault)?;
        transaction.execute_batch(step).map_err(fault)?;
        transaction
            .execute_batch(&format!(
                "pragma user_version = {}; pragma application_id = {APPLICATION};",
                at + 1
            ))
            .map_err(fault)?;
        transaction.commit().map_err(fault)?;
    }
    Ok(())
}

/// Keeps the file as it is now beside itself, whole or not at all.
fn copy(connection: &Connection, place: &Place, version: usize) -> Result<(), Failure> {
    let Place::Directory(directory) = place else {
        return Ok(());
    };
    let kept = directory.join(format!("{}.version-{version}", open::FILE));
    if kept.exists() {
        return Ok(());
    }
    let partial = directory.join(format!("{}.version-{version}.partial", open::FILE));
    let what = || format!("copy the catalog to {}", kept.display());
    if partial.exists() {
        std::fs::remove_file(&partial).map_err(|error| Fault::new(what(), error))?;
    }
    connection
        .execute("vacuum into ?1", [partial.display().to_string()])
        .map_err(|error| open::unreadable(place, error))?;
    std::fs::rename(&partial, &kept).map_err(|error| Fault::new(what(), error))?;
    Ok(())
}

fn path(place: &Place) -> String {
    match place {
        Place::Memory => "The catalog in memory".to_owned(),
        Place::Directory(directory) => directory.join(open::FILE).display().to_string(),
    }
}
