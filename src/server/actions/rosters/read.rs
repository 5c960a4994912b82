//! The bytes of a roster become rows of cells: UTF-8, UTF-16 with a mark, or CP949 as Korean spreadsheets write it; comma,
//! semicolon or tab; headings in English or Korean. Knows nothing of accounts. Pure.

use std::collections::BTreeMap;

use encoding_rs::{EUC_KR, UTF_8, UTF_16BE, UTF_16LE};
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::hidden;

/// Bytes of a roster. Higher: one request holds more memory. Lower: a large school needs several files.
pub(super) const MAX_BYTES: usize = 2 << 20;
/// Rows of a roster. Higher: one request hashes passwords for longer, some 40 ms each on two processors. Lower: a large
/// school needs several files.
pub(super) const MAX_ROWS: usize = 5_000;
/// Letters of one cell. Higher: nothing a roster has needs them. Lower: long names are refused.
const MAX_CELL: usize = 254;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Name,
    FullName,
    Email,
    Password,
    Project,
    Role,
    /// A policy to attach to the account.
    Policy,
    ExpiresAt,
    /// What the account holds of GPUs at most.
    Gpu,
}

impl Column {
    /// As headings, refusals and answers call it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::FullName => "full_name",
            Self::Email => "email",
            Self::Password => "password",
            Self::Project => "project",
            Self::Role => "role",
            Self::Policy => "policy",
            Self::ExpiresAt => "expires_at",
            Self::Gpu => "gpu",
        }
    }

    fn parse(heading: &str) -> Option<Self> {
        let heading = heading.trim().to_lowercase().replace([' ', '-'], "_");
        Some(match heading.as_str() {
            "name" | "username" | "user" | "login" | "아이디" | "계정" | "사용자" => {
                Self::Name
            }
            "full_name" | "fullname" | "이름" | "성명" => Self::FullName,
            "email" | "e_mail" | "mail" | "이메일" | "메일" => Self::Email,
            "password" | "비밀번호" => Self::Password,
            "project" | "프로젝트" => Self::Project,
            "role" | "역할" => Self::Role,
            "policy" | "정책" => Self::Policy,
            "gpu" | "gpus" => Self::Gpu,
            "expires_at" | "expires" | "만료" | "만료일" => Self::ExpiresAt,
            _ => return None,
        })
    }
}

/// One row: what each column says, without blanks around it; what it leaves out or leaves empty is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RosterLine {
    pub(super) number: u32,
    pub(super) cells: BTreeMap<Column, String>,
    /// What no cell can hold, by column; `None` for the row.
    pub(super) faults: Vec<(Option<Column>, Refusal)>,
}

impl RosterLine {
    pub(super) fn cell(&self, column: Column) -> &str {
        self.cells.get(&column).map_or("", String::as_str)
    }
}

/// The rows of a file. Blank rows are left out.
///
/// Errors: `roster.too-large`, `roster.encoding`, `roster.empty`, `roster.columns`.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<RosterLine>, Refusal> {
    if bytes.len() > MAX_BYTES {
        return Err(refusals::roster_too_large(MAX_BYTES >> 20, MAX_ROWS));
    }
    let text = decoded(bytes)?;
    if text.trim().is_empty() {
        return Err(refusals::roster_empty());
    }
    let heading = text.lines().next().unwrap_or_default();
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter(heading))
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let headings = reader
        .headers()
        .map_err(|_| refusals::roster_empty())?
        .clone();
    let columns: Vec<Option<Column>> = headings.iter().map(Column::parse).collect();
    let unknown: Vec<String> = headings
        .iter()
        .zip(&columns)
        .filter(|(heading, column)| column.is_none() && !heading.is_empty())
        .map(|(heading, _)| {
            heading
                .chars()
                .take(40)
                .flat_map(char::escape_debug)
                .collect()
        })
        .collect();
    let twice =
        (1..columns.len()).any(|at| columns[at].is_some() && columns[..at].contains(&columns[at]));
    let named = columns.contains(&Some(Column::Name)) || columns.contains(&Some(Column::Email));
    if !unknown.is_empty() || twice || !named {
        let told = match unknown.is_empty() {
            true => "-".to_owned(),
            false => unknown.join(", "),
        };
        return Err(refusals::roster_columns(told));
    }
    let mut lines = Vec::new();
    let mut count = LineCount {
        text: text.as_bytes(),
        byte: 0,
        line: 1,
    };
    for record in reader.records() {
        let record = record.map_err(|_| refusals::roster_encoding())?;
        let number = count.at(record.position().map_or(0, csv::Position::byte));
        if record.iter().all(str::is_empty) {
            continue;
        }
        if lines.len() == MAX_ROWS {
            return Err(refusals::roster_too_large(MAX_BYTES >> 20, MAX_ROWS));
        }
        lines.push(line(number, &columns, &record));
    }
    match lines.is_empty() {
        true => Err(refusals::roster_empty()),
        false => Ok(lines),
    }
}

/// Counts the lines of a text, forwards.
struct LineCount<'a> {
    text: &'a [u8],
    byte: usize,
    line: u32,
}

impl LineCount<'_> {
    /// The line on which the row stands that begins at a byte, or behind the ends of lines there.
    fn at(&mut self, byte: u64) -> u32 {
        let byte = usize::try_from(byte).unwrap_or(usize::MAX);
        let text = self.text;
        while let Some(letter) = text.get(self.byte) {
            if self.byte >= byte && !matches!(letter, b'\r' | b'\n') {
                break;
            }
            self.line += u32::from(*letter == b'\n');
            self.byte += 1;
        }
        self.line
    }
}

fn line(number: u32, columns: &[Option<Column>], record: &csv::StringRecord) -> RosterLine {
    let mut line = RosterLine {
        number,
        ..RosterLine::default()
    };
    if record
        .iter()
        .skip(columns.len())
        .any(|cell| !cell.is_empty())
    {
        line.faults
            .push((None, refusals::roster_cells_many(columns.len())));
    }
    for (column, cell) in columns.iter().zip(record) {
        let Some(column) = *column else { continue };
        if cell.chars().count() > MAX_CELL || cell.chars().any(hidden) {
            line.faults
                .push((Some(column), refusals::roster_cell(MAX_CELL)));
        // A password may begin as it likes; everything else is shown in tables that people open in spreadsheets.
        } else if column != Column::Password && cell.starts_with(['=', '+', '-', '@']) {
            line.faults.push((Some(column), refusals::roster_formula()));
        } else if !cell.is_empty() {
            line.cells.insert(column, cell.to_owned());
        }
    }
    line
}

fn decoded(bytes: &[u8]) -> Result<String, Refusal> {
    let encoding = match bytes {
        [0xff, 0xfe, ..] => UTF_16LE,
        [0xfe, 0xff, ..] => UTF_16BE,
        _ if std::str::from_utf8(bytes).is_ok() => UTF_8,
        // WHATWG's euc-kr is CP949.
        _ => EUC_KR,
    };
    let (text, _, broken) = encoding.decode(bytes);
    match broken || text.contains('\0') {
        true => Err(refusals::roster_encoding()),
        false => Ok(text.into_owned()),
    }
}

/// What separates the cells of a heading: what stands there most often.
fn delimiter(heading: &str) -> u8 {
    let count = |mark: u8| heading.bytes().filter(|byte| *byte == mark).count();
    [b',', b';', b'\t']
        .into_iter()
        .rev()
        .max_by_key(|mark| count(*mark))
        .unwrap_or(b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(bytes: &[u8]) -> Vec<(u32, String, String)> {
        let lines = read(bytes).expect("a roster");
        let told = |line: &RosterLine| {
            let (name, full) = (line.cell(Column::Name), line.cell(Column::FullName));
            (line.number, name.to_owned(), full.to_owned())
        };
        lines.iter().map(told).collect()
    }

    #[test]
    fn one_roster_reads_alike_in_every_encoding_and_with_every_delimiter() {
        let expected = [
            (2, "minji".to_owned(), "김민지".to_owned()),
            (4, "jae".to_owned(), "이재, 뷁".to_owned()),
        ];
        for mark in [',', ';', '\t'] {
            let text =
                format!("아이디{mark}이름\r\n minji {mark}김민지\r\n\r\njae{mark}\"이재, 뷁\"\r\n");
            let korean = EUC_KR.encode(&text).0.into_owned();
            assert!(std::str::from_utf8(&korean).is_err(), "it is CP949");
            let little: Vec<u8> = [0xfeff]
                .into_iter()
                .chain(text.encode_utf16())
                .flat_map(u16::to_le_bytes)
                .collect();
            let big: Vec<u8> = [0xfeff]
                .into_iter()
                .chain(text.encode_utf16())
                .flat_map(u16::to_be_bytes)
                .collect();
            let marked = [b"\xef\xbb\xbf".as_slice(), text.as_bytes()].concat();
            for bytes in [text.clone().into_bytes(), marked, korean, little, big] {
                assert_eq!(cells(&bytes), expected, "{bytes:?}");
            }
        }
    }

    #[test]
    fn what_is_no_roster_is_refused_by_name() {
        let code = |bytes: &[u8]| read(bytes).expect_err("refused").code;
        assert_eq!(code(b""), "roster.empty");
        assert_eq!(code(b"name\n"), "roster.empty");
        assert_eq!(code(b"name,shoe size\nkim,42\n"), "roster.columns");
        assert_eq!(code(b"name,name\nkim,kim\n"), "roster.columns");
        assert_eq!(code(b"role\nlead\n"), "roster.columns");
        assert_eq!(code(b"name\nki\xff\xffm\n"), "roster.encoding");
        for rows in [MAX_ROWS + 1, 100_000] {
            let many = format!("name\n{}", "kim\n".repeat(rows));
            assert!(many.len() <= MAX_BYTES, "refused for its rows");
            assert_eq!(code(many.as_bytes()), "roster.too-large", "{rows}");
        }
        assert_eq!(code(&vec![b'a'; MAX_BYTES + 1]), "roster.too-large");
    }

    #[test]
    fn cells_that_cannot_be_are_faults_of_their_row() {
        let bytes = "name,full_name\nkim,=1+1\nlee,a\u{202e}b\nho,x,y\n".as_bytes();
        let codes: Vec<String> = read(bytes)
            .expect("rows")
            .into_iter()
            .map(|line| line.faults[0].1.code.to_string())
            .collect();
        assert_eq!(
            codes,
            ["roster.formula", "roster.cell", "roster.cells-many"]
        );
    }
}
