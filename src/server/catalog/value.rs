//! How values stand in columns: ids as bytes, times as milliseconds, lists and maps as JSON. A value
//! that cannot be read back is a fault, never a default.

use rules::units::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Row, RowIndex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// Why a column could not be read back.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a word this version knows")]
struct UnknownWord(String);

pub(super) fn id(row: &Row<'_>, column: impl RowIndex) -> rusqlite::Result<Uuid> {
    Ok(Uuid::from_bytes(row.get(column)?))
}

pub(super) fn id_or_none(row: &Row<'_>, column: impl RowIndex) -> rusqlite::Result<Option<Uuid>> {
    Ok(row
        .get::<_, Option<[u8; 16]>>(column)?
        .map(Uuid::from_bytes))
}

pub(super) fn time(row: &Row<'_>, column: impl RowIndex) -> rusqlite::Result<Timestamp> {
    Ok(Timestamp::from_millis(row.get(column)?))
}

pub(super) fn time_or_none(
    row: &Row<'_>,
    column: impl RowIndex,
) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row
        .get::<_, Option<i64>>(column)?
        .map(Timestamp::from_millis))
}

/// A number that was stored by `signed`.
pub(super) fn unsigned(row: &Row<'_>, column: impl RowIndex) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
}

pub(super) fn unsigned_or_none(
    row: &Row<'_>,
    column: impl RowIndex,
) -> rusqlite::Result<Option<u64>> {
    Ok(row
        .get::<_, Option<i64>>(column)?
        .map(|number| u64::try_from(number).unwrap_or(0)))
}

/// SQLite keeps signed numbers only; what is larger counts as the largest.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn json<T: DeserializeOwned>(
    row: &Row<'_>,
    column: impl RowIndex,
) -> rusqlite::Result<T> {
    let index = column.idx(row.as_ref())?;
    let text = row.get_ref(index)?.as_str()?;
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(index, Type::Text, error.into()))
}

pub(super) fn json_or_none<T: DeserializeOwned>(
    row: &Row<'_>,
    column: impl RowIndex,
) -> rusqlite::Result<Option<T>> {
    let index = column.idx(row.as_ref())?;
    if row.get_ref(index)? == rusqlite::types::ValueRef::Null {
        return Ok(None);
    }
    json(row, index).map(Some)
}

/// A word read back by its own parser.
pub(super) fn word<T>(
    row: &Row<'_>,
    column: impl RowIndex,
    parse: impl FnOnce(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let index = column.idx(row.as_ref())?;
    let text = row.get_ref(index)?.as_str()?;
    parse(text).ok_or_else(|| {
        let unknown = UnknownWord(text.to_owned());
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, unknown.into())
    })
}

pub(super) fn word_or_none<T>(
    row: &Row<'_>,
    column: impl RowIndex,
    parse: impl FnOnce(&str) -> Option<T>,
) -> rusqlite::Result<Option<T>> {
    let index = column.idx(row.as_ref())?;
    match row.get_ref(index)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => word(row, index, parse).map(Some),
    }
}

/// A pattern for `like … escape '\'` that finds `part` anywhere, in capital or small letters of ASCII.
pub(super) fn containing(part: &str) -> String {
    let mut pattern = String::with_capacity(part.len() + 2);
    pattern.push('%');
    for letter in part.chars() {
        if matches!(letter, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('%');
    pattern
}

/// As JSON text. Values of ours have string keys only, so this cannot fail.
pub(super) fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("values of the catalog have string keys")
}
