//! The audit log at its size: a test of the server writes ten million rows, searches them and exports those of a domain; here
//! the program that is shipped verifies that export without a server, and finds each edit that is planted in it. Knows
//! lines of an export and nothing of what they say.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::program::Program;

/// Rows that the test writes.
const ROWS: u64 = 10_000_000;
/// Goal: the whole export is verified in this time.
const VERIFIED: Duration = Duration::from_secs(60);
/// What stands in front of the directory of the export in what the test says.
const EXPORTED: &str = " bytes exported to ";

/// One edit of a row.
#[derive(Debug, Clone, Copy)]
enum Edit {
    Changed,
    Missing,
    Swapped,
    Added,
}

/// Writes, searches, exports, verifies, edits. Takes 15 GB of disk and some twenty minutes.
pub(crate) fn at_size(binary: &Path) -> Result<(), Failure> {
    let told = Program::cargo()
        .words("test --release --locked -p server ten_million_acts -- --ignored --nocapture")
        .output()?;
    println!("{told}");
    let folder = told
        .lines()
        .find_map(|line| line.split_once(EXPORTED)?.1.split(" in ").next())
        .map(PathBuf::from)
        .ok_or_else(|| Failure::new("the test says nothing of its export"))?;
    let found = verified_and_edited(binary, &folder);
    // Gigabytes that nothing reads again.
    let _ = fs::remove_dir_all(&folder);
    found
}

fn verified_and_edited(binary: &Path, folder: &Path) -> Result<(), Failure> {
    let (export, key) = (folder.join("audit.jsonl"), folder.join("fardel.pem"));
    let began = Instant::now();
    let (is_whole, said) = verify(binary, &export, &key)?;
    let took = began.elapsed();
    println!("verified in {took:.1?}: {said}");
    if !is_whole {
        return Err(Failure::new(format!("a good export is refused: {said}")));
    }
    if took > VERIFIED {
        return Err(Failure::new(format!(
            "{ROWS} rows were verified in {took:.1?}, more than {VERIFIED:?}"
        )));
    }
    let bent = folder.join("bent.jsonl");
    for edit in [Edit::Changed, Edit::Missing, Edit::Swapped, Edit::Added] {
        for row in [1, ROWS / 2, ROWS - 1] {
            plant(&export, &bent, edit, row)?;
            let (is_whole, said) = verify(binary, &bent, &key)?;
            let is_found = said.contains("audit.broken-at") && said.contains(&format!("row {row}"));
            if is_whole || !is_found {
                let sentence = format!("{edit:?} at row {row} is not located: {said}");
                return Err(Failure::new(sentence));
            }
            println!("{edit:?} at row {row} is located");
        }
    }
    Ok(())
}

/// What the program says of an export, and whether it is whole.
fn verify(binary: &Path, export: &Path, key: &Path) -> Result<(bool, String), Failure> {
    let output = Program::named(binary)
        .words("audit verify")
        .argument(export)
        .words("--key")
        .argument(key)
        .into_command()
        .output()
        .map_err(|error| Failure::new(format!("the program cannot be started: {error}")))?;
    let text = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&text).trim().to_owned();
    Ok((output.status.success(), said))
}

/// Writes the export with one edit, up to some lines behind it: the verifier stops at the first row that is broken.
fn plant(export: &Path, bent: &Path, edit: Edit, row: u64) -> Result<(), Failure> {
    let fault = |error: std::io::Error| Failure::new(format!("{}: {error}", bent.display()));
    let mut lines = BufReader::new(File::open(export).map_err(fault)?);
    let mut written = BufWriter::new(File::create(bent).map_err(fault)?);
    let mut line = Vec::new();
    let mut next = |line: &mut Vec<u8>| -> Result<bool, Failure> {
        line.clear();
        Ok(lines.read_until(b'\n', line).map_err(fault)? > 0)
    };
    let head = format!("{{\"sequence\":{row},");
    while next(&mut line)? {
        if !line.starts_with(head.as_bytes()) {
            written.write_all(&line).map_err(fault)?;
            continue;
        }
        let mut other = Vec::new();
        match edit {
            Edit::Changed => other = changed(&line)?,
            Edit::Missing => {}
            Edit::Swapped => {
                next(&mut other)?;
                other.extend_from_slice(&line);
            }
            Edit::Added => {
                other.extend_from_slice(&line);
                other.extend_from_slice(&line);
            }
        }
        written.write_all(&other).map_err(fault)?;
        for _ in 0..3 {
            if next(&mut line)? {
                written.write_all(&line).map_err(fault)?;
            }
        }
        return written.flush().map_err(fault);
    }
    Err(Failure::new(format!("the export has no row {row}")))
}

/// The line with another first digit of its hash.
fn changed(line: &[u8]) -> Result<Vec<u8>, Failure> {
    let mark = b"\"hash\":\"";
    let at = line
        .windows(mark.len())
        .position(|window| window == mark)
        .map(|at| at + mark.len())
        .ok_or_else(|| Failure::new("a row has no hash"))?;
    let mut changed = line.to_vec();
    changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_stand_at_their_row() {
        let folder = std::env::temp_dir().join(format!("fardel-edits-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (export, bent) = (folder.join("a"), folder.join("b"));
        let row = |number: u64| format!("{{\"sequence\":{number},\"hash\":\"0{number}\"}}\n");
        let rows: Vec<String> = (1..=9).map(row).collect();
        fs::write(&export, format!("{{\"audit\":1}}\n{}", rows.concat())).unwrap();
        let read = |edit| {
            plant(&export, &bent, edit, 4).unwrap();
            let text = fs::read_to_string(&bent).unwrap();
            text.lines().skip(4).map(str::to_owned).collect::<Vec<_>>()
        };
        let line = |number: u64| row(number).trim_end().to_owned();
        assert_eq!(read(Edit::Missing), [line(5), line(6), line(7)]);
        assert_eq!(read(Edit::Swapped)[..2], [line(5), line(4)]);
        assert_eq!(read(Edit::Added)[..2], [line(4), line(4)]);
        let edited = read(Edit::Changed);
        assert_eq!(edited[0], line(4).replace("\"04\"", "\"14\""));
        assert!(plant(&export, &bent, Edit::Missing, 99).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
