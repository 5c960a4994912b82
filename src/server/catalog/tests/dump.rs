//! All rows of a catalog as text, so that two states can be compared whole.

use std::collections::BTreeMap;

use rusqlite::types::ValueRef;

use super::super::Catalog;

/// Tables that tell what happened rather than what is.
const TELLING: [&str; 6] = [
    "event",
    "audit",
    "audit_checkpoint",
    "idempotency",
    "installation",
    "roster",
];
/// How often a row was written.
const VERSION: &str = "generation";

/// The rows of each table in an order of their own, without their versions.
pub(crate) fn rows(catalog: &Catalog) -> BTreeMap<String, Vec<String>> {
    let dumped = catalog.read_now("dump all rows", |view| {
        let mut tables = view.connection.prepare(
            "select name
             from sqlite_master
             where type = 'table' and name not like 'sqlite_%'",
        )?;
        let names = tables.query_map([], |row| row.get(0))?;
        let names = names.collect::<Result<Vec<String>, _>>()?;
        let mut dumped = BTreeMap::new();
        for name in names {
            if TELLING.contains(&name.as_str()) {
                continue;
            }
            let query = format!("select * from \"{name}\"");
            let mut statement = view.connection.prepare(&query)?;
            let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let mut found = statement.query([])?;
            let mut lines = Vec::new();
            while let Some(row) = found.next()? {
                let mut line = String::new();
                for (at, column) in columns.iter().enumerate() {
                    if column != VERSION {
                        line.push_str(&format!("{column}={} ", told(row.get_ref(at)?)));
                    }
                }
                lines.push(line);
            }
            lines.sort();
            dumped.insert(name, lines);
        }
        Ok(dumped)
    });
    dumped.unwrap()
}

fn told(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => rules::audit::hex(bytes),
    }
}
