//! Reads one settings file and says what is wrong in it: the line, the key, the nearest known key.
//! Never merges; that is the parent's work.

use std::path::Path;

use rules::refusal::Refusal;
use rules::refusals;
use toml::{Table, Value};

use super::{KEYS, SettingType};

/// The values of one settings file; a missing file is empty.
pub fn read_file(path: &Path) -> Result<Table, Refusal> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Table::new()),
        Err(error) => {
            return Err(refusals::setting_file_unreadable(path.display(), &error));
        }
    };
    parse(&text, &path.display().to_string())
}

/// The values in the text of a settings file; `source` is named in errors.
pub fn parse(text: &str, source: &str) -> Result<Table, Refusal> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| {
            text.get(..span.start)
                .unwrap_or_default()
                .matches('\n')
                .count()
                + 1
        });
        refusals::setting_syntax(
            source,
            line,
            error.message().trim_end_matches('.'),
            error.message(),
        )
    })?;
    for (name, value) in &table {
        let Some(key) = KEYS.iter().find(|known| known.key == name) else {
            return Err(match nearest(name) {
                Some(known) => refusals::setting_unknown_but_near(source, name, known),
                None => refusals::setting_unknown(source, name),
            });
        };
        let (good, wanted) = match key.kind {
            SettingType::Text => (value.is_str(), "text in quotes"),
            SettingType::Flag => (value.is_bool(), "true or false"),
            SettingType::Count => (
                value.as_integer().is_some_and(|n| u32::try_from(n).is_ok()),
                "a whole number",
            ),
        };
        if !good {
            return Err(refusals::setting_wrong_type(
                source,
                name,
                shown(value),
                wanted,
                if key.default.is_empty() {
                    key.example
                } else {
                    key.default
                },
            ));
        }
    }
    Ok(table)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("the text {text:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a section".to_owned(),
        other => other.to_string(),
    }
}

/// The known key that differs least from `typed`, where one is near enough.
fn nearest(typed: &str) -> Option<&'static str> {
    KEYS.iter()
        .map(|known| (distance(typed, known.key), known.key))
        .min()
        .filter(|(distance, _)| *distance <= 3)
        .map(|(_, known)| known)
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
