//! Prints what the server said: JSON and YAML as it came, tables fitted to the terminal. Never asks
//! the server for anything.

use comfy_table::{Table, presets};
use rules::units::{Bytes, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::read;
use super::args::Format;
use super::error::CliError;

/// Where and how results are printed.
#[derive(Debug, Clone)]
pub(super) struct OutputStyle {
    pub format: Format,
    /// Columns of the terminal; None where output goes elsewhere.
    pub width: Option<u16>,
    pub quiet: bool,
    pub now: Timestamp,
    /// Titles chosen by the caller; empty: the usual ones.
    pub columns: Vec<String>,
}

/// One column of a table: its title and how it reads a row.
pub(super) struct Column<T> {
    title: &'static str,
    /// Columns with a higher rank are dropped first when the terminal is narrow; 9 is shown only
    /// by `-o wide`.
    rank: u8,
    give: fn(&T, &OutputStyle) -> String,
}

/// A column by its title, its rank and what it says of a row.
pub(super) const fn column<T>(
    title: &'static str,
    rank: u8,
    give: fn(&T, &OutputStyle) -> String,
) -> Column<T> {
    Column { title, rank, give }
}

/// Only in `-o wide`, or when asked for by name.
const WIDE_ONLY: u8 = 9;

impl OutputStyle {
    /// Prints a list body (`{items, …}`) or a bare array.
    pub(super) fn list<T: DeserializeOwned>(
        &self,
        body: &Value,
        columns: &[Column<T>],
    ) -> Result<String, CliError> {
        let items = items(body);
        Ok(match self.format {
            Format::Json => format!("{body:#}\n"),
            Format::Jsonl => items.iter().map(|i| format!("{i}\n")).collect(),
            Format::Yaml => yaml(body)?,
            Format::Name => names(items),
            _ if self.quiet => names(items),
            Format::Csv => self.csv(&rows(items)?, &self.chosen(columns)?)?,
            Format::Table | Format::Wide => self.table(&rows(items)?, &self.chosen(columns)?),
        })
    }

    /// Prints one object: its columns below each other, or as JSON and so on.
    pub(super) fn one<T: DeserializeOwned>(
        &self,
        body: &Value,
        columns: &[Column<T>],
    ) -> Result<String, CliError> {
        let row = std::slice::from_ref(body);
        Ok(match self.format {
            Format::Json => format!("{body:#}\n"),
            Format::Jsonl => format!("{body}\n"),
            Format::Yaml => yaml(body)?,
            Format::Name => names(row),
            _ if self.quiet => names(row),
            Format::Csv => self.csv(&rows(row)?, &self.chosen(columns)?)?,
            Format::Table | Format::Wide => {
                let chosen = self.chosen(columns)?;
                let row: T = read(body)?;
                let title = chosen.iter().map(|c| c.title.len()).max().unwrap_or(0);
                let mut text = String::new();
                for column in chosen {
                    let value = (column.give)(&row, self);
                    if value.is_empty() || value == "-" {
                        continue;
                    }
                    let name = column.title.to_ascii_lowercase();
                    text.push_str(&format!("{name:title$}  {}\n", shown(&value)));
                }
                text
            }
        })
    }

    /// Prints the bare object where a machine reads, else the given sentence.
    pub(super) fn said(&self, body: &Value, sentence: &str) -> Result<String, CliError> {
        Ok(match self.format {
            Format::Json => format!("{body:#}\n"),
            Format::Jsonl => format!("{body}\n"),
            Format::Yaml => yaml(body)?,
            Format::Name => names(std::slice::from_ref(body)),
            _ if self.quiet => names(std::slice::from_ref(body)),
            Format::Csv | Format::Table | Format::Wide => {
                format!("{}\n", shown_lines(sentence.trim_end()))
            }
        })
    }

    /// How long it is since then; the time itself in a file, which is read later.
    pub(super) fn since(&self, at: Timestamp) -> String {
        match self.format {
            Format::Csv => at.to_string(),
            _ => age(at, self.now),
        }
    }

    /// The same as a sentence has it.
    pub(super) fn ago(&self, at: Timestamp) -> String {
        match self.format {
            Format::Csv => at.to_string(),
            _ => format!("{} ago", age(at, self.now)),
        }
    }

    /// True where a user reads.
    pub(super) fn for_humans(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide) && !self.quiet
    }

    fn chosen<'a, T>(&self, columns: &'a [Column<T>]) -> Result<Vec<&'a Column<T>>, CliError> {
        if self.columns.is_empty() {
            return Ok(columns
                .iter()
                .filter(|c| c.rank < WIDE_ONLY || self.format == Format::Wide)
                .collect());
        }
        self.columns
            .iter()
            .map(|wanted| {
                columns
                    .iter()
                    .find(|c| c.title.eq_ignore_ascii_case(wanted.trim()))
                    .ok_or_else(|| {
                        let known: Vec<_> = columns
                            .iter()
                            .map(|c| c.title.to_ascii_lowercase())
                            .collect();
                        CliError::usage(format!("There is no column {wanted}."))
                            .hint(format!("Columns here: {}.", known.join(", ")))
                    })
            })
            .collect()
    }

    fn table<T>(&self, items: &[T], columns: &[&Column<T>]) -> String {
        let cells: Vec<Vec<String>> = items
            .iter()
            .map(|row| {
                columns
                    .iter()
                    .map(|c| shown(&(c.give)(row, self)))
                    .collect()
            })
            .collect();
        let mut kept: Vec<usize> = (0..columns.len()).collect();
        loop {
            let table = drawn(&kept, columns, &cells);
            let widest = table.lines().map(width).max().unwrap_or(0);
            let fits = match self.width {
                Some(width) if self.format == Format::Table => widest <= usize::from(width),
                _ => true,
            };
            let droppable = kept
                .iter()
                .copied()
                .filter(|&i| columns[i].rank > 0)
                .max_by_key(|&i| (columns[i].rank, i));
            match droppable {
                Some(drop) if !fits && self.columns.is_empty() => kept.retain(|&i| i != drop),
                _ => return table,
            }
        }
    }

    fn csv<T>(&self, items: &[T], columns: &[&Column<T>]) -> Result<String, CliError> {
        let broken =
            |e: csv::Error| CliError::new(super::error::FAILED, "csv.failed", e.to_string());
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer
            .write_record(columns.iter().map(|c| head_of_file(c.title)))
            .map_err(broken)?;
        for row in items {
            writer
                .write_record(columns.iter().map(|c| safe_cell(&(c.give)(row, self))))
                .map_err(broken)?;
        }
        let bytes = writer.into_inner().unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The title of a column in a file, where a column of spans holds times.
fn head_of_file(title: &str) -> String {
    match title {
        "AGE" => "created".to_owned(),
        "WAITS" => "waits since".to_owned(),
        other => other.to_ascii_lowercase(),
    }
}

/// Spreadsheets take a cell that begins with one of these for a formula.
fn safe_cell(text: &str) -> String {
    if text.len() > 1 && text.starts_with(['=', '+', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

fn drawn<T>(kept: &[usize], columns: &[&Column<T>], cells: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(kept.iter().map(|&i| columns[i].title));
    for row in cells {
        table.add_row(kept.iter().map(|&i| row[i].as_str()));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text: String = table
        .to_string()
        .lines()
        .flat_map(|line| [line.trim_end(), "\n"])
        .collect();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Cells of a terminal that a line takes; wide for Hangul and other East Asian letters.
fn width(line: &str) -> usize {
    line.chars()
        .map(|c| match c {
            '\u{1100}'..='\u{115f}'
            | '\u{2e80}'..='\u{a4cf}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{f900}'..='\u{faff}'
            | '\u{ff00}'..='\u{ff60}'
            | '\u{1f300}'..='\u{1faff}' => 2,
            _ => 1,
        })
        .sum()
}

/// What came from others may hold control sequences and marks of direction; a terminal must not act on them.
pub(super) fn shown(text: &str) -> String {
    let safe = |c| {
        if rules::session::hidden(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(safe).collect()
}

/// The same of a text of several lines.
fn shown_lines(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

fn items(body: &Value) -> &[Value] {
    body.get("items")
        .or(Some(body))
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn rows<T: DeserializeOwned>(items: &[Value]) -> Result<Vec<T>, CliError> {
    items.iter().map(read).collect()
}

fn names(items: &[Value]) -> String {
    items
        .iter()
        .filter_map(|i| {
            ["name", "reference", "id"]
                .iter()
                .find_map(|k| i.get(k).and_then(Value::as_str))
        })
        .map(|n| format!("{}\n", shown(n)))
        .collect()
}

fn yaml(body: &Value) -> Result<String, CliError> {
    serde_yaml_ng::to_string(body)
        .map_err(|e| CliError::new(super::error::FAILED, "yaml.failed", e.to_string()))
}

/// A text field, by a path such as `owner.name`; `-` where there is none.
pub(super) fn text(row: &Value, path: &str) -> String {
    let mut value = row;
    for step in path.split('.') {
        value = &value[step];
    }
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A text, or `-` for an empty one.
pub(super) fn dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

/// A value, or `-` where there is none.
pub(super) fn maybe(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| dash(&value.to_string()))
}

/// A number of bytes as users say it, or `-` where it is unknown.
pub(super) fn bytes(amount: Option<Bytes>) -> String {
    maybe(amount)
}

/// A number of bytes as users say it.
pub(super) fn size(value: &Value) -> String {
    value
        .as_u64()
        .map_or_else(|| "-".to_owned(), |n| rules::units::Bytes(n).to_string())
}

/// How long ago, or for how long: `12s`, `5m`, `3h`, `4d`.
pub(super) fn age(from: Timestamp, to: Timestamp) -> String {
    span(to.seconds_since(from))
}

/// A number of seconds in its largest sensible unit, with the next one while it is small.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        600..3600 => format!("{}m", seconds / 60),
        3600..36_000 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        36_000..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COLUMNS: &[Column<Value>] = &[
        column("NAME", 0, |r, _| text(r, "name")),
        column("STATE", 1, |r, _| text(r, "state")),
        column("IMAGE", 3, |r, _| text(r, "image")),
        column("ID", 9, |r, _| text(r, "id")),
    ];

    fn view(format: Format, width: Option<u16>) -> OutputStyle {
        OutputStyle {
            format,
            width,
            quiet: false,
            now: Timestamp::from_millis(0),
            columns: Vec::new(),
        }
    }

    fn body() -> Value {
        json!({"items": [
            {"name": "vit", "state": "running", "image": "host", "id": "1"},
            {"name": "학습-2", "state": "ended", "image": "=x,\"y\"", "id": "2"},
        ], "next_cursor": null, "estimated_total": 2})
    }

    fn print(format: Format, width: Option<u16>) -> String {
        view(format, width)
            .list(&body(), COLUMNS)
            .expect("printable")
    }

    #[test]
    fn a_table_drops_columns_in_a_fixed_order() {
        let wide = print(Format::Table, None);
        assert_eq!(wide.lines().next(), Some("NAME    STATE    IMAGE"));
        assert_eq!(
            print(Format::Table, Some(20)).lines().next(),
            Some("NAME    STATE")
        );
        assert_eq!(print(Format::Table, Some(5)).lines().next(), Some("NAME"));
        assert!(print(Format::Wide, Some(5)).contains("ID"));
    }

    #[test]
    fn machines_get_the_body_as_it_came() {
        let json: Value = serde_json::from_str(&print(Format::Json, None)).expect("JSON");
        assert_eq!(json, body());
        assert_eq!(print(Format::Jsonl, None).lines().count(), 2);
        assert_eq!(print(Format::Name, None), "vit\n학습-2\n");
        let back: Value = serde_yaml_ng::from_str(&print(Format::Yaml, None)).expect("YAML");
        assert_eq!(back, body());
        assert!(print(Format::Csv, None).contains("\"'=x,\"\"y\"\"\""));
    }

    #[test]
    fn a_file_holds_times_where_a_table_holds_spans() {
        let columns: &[Column<Value>] = &[
            column("AGE", 0, |_, v| v.since(Timestamp::from_millis(-60_000))),
            column("SEEN", 0, |_, v| v.ago(Timestamp::from_millis(-60_000))),
        ];
        let body = json!({"items": [{}]});
        let told = |format| view(format, None).list(&body, columns).expect("printable");
        assert!(told(Format::Table).ends_with("1m00s  1m00s ago\n"));
        let at = "1969-12-31T23:59:00.000Z";
        assert_eq!(told(Format::Csv), format!("created,seen\n{at},{at}\n"));
    }

    #[test]
    fn control_sequences_of_others_do_not_reach_the_terminal() {
        let body = json!({"items": [{"name": "a\u{1b}[2Jb\u{202e}", "state": "x", "image": "y"}]});
        let text = view(Format::Table, None)
            .list(&body, COLUMNS)
            .expect("printable");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    }

    #[test]
    fn an_unknown_column_names_the_known_ones() {
        let mut view = view(Format::Table, None);
        view.columns = vec!["state".into(), "colour".into()];
        let trouble = view.list(&body(), COLUMNS).unwrap_err();
        assert_eq!(trouble.exit, 2);
        assert!(trouble.hint.contains("name, state, image, id"));
    }

    #[test]
    fn spans_are_short() {
        for (seconds, text) in [
            (0, "0s"),
            (75, "1m15s"),
            (4000, "1h06m"),
            (90_000, "25h"),
            (864_000, "10d"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }
}
