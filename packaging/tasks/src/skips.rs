//! Compares the tests that could not run here with the committed list. Both ways: a test that fell
//! silent and a test that runs again are each worth a line in a commit.

use std::collections::BTreeMap;
use std::fs;

use crate::failure::Failure;

const LIST: &str = ".ci/skips.txt";

/// Whose list: root can run more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Root,
    OrdinaryUser,
    /// Root in the test machine, who runs the runtime's tests alone.
    Vm,
}

impl Who {
    fn heading(self) -> &'static str {
        match self {
            Who::Root => "[as root]",
            Who::OrdinaryUser => "[as an ordinary user]",
            Who::Vm => "[in the vm]",
        }
    }
}

/// Compares the file named by `FARDEL_SKIPS` with the committed list.
pub(crate) fn compare(who: Who) -> Result<(), Failure> {
    let Some(path) = std::env::var_os("FARDEL_SKIPS") else {
        return crate::leave_out(
            "list of skips",
            "FARDEL_SKIPS is not set, so no test noted any",
        );
    };
    // No test was skipped when there is no file.
    compare_noted(who, &fs::read_to_string(path).unwrap_or_default())
}

/// Compares lines `skipped: name: reason` with the committed list.
pub(crate) fn compare_noted(who: Who, noted: &str) -> Result<(), Failure> {
    let list = fs::read_to_string(LIST)
        .map_err(|error| Failure::new(format!("{LIST} cannot be read: {error}")))?;
    let differences = differences(&expected(&list, who), &skipped(noted));
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the skipped tests are not those of {LIST}, {}:\n{}",
        who.heading(),
        differences.join("\n"),
    )))
}

/// Names below a heading, comments aside, each with nothing.
fn expected(list: &str, who: Who) -> Vec<String> {
    list.lines()
        .map(str::trim)
        .skip_while(|line| *line != who.heading())
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// Name and reason of each skipped test.
fn skipped(noted: &str) -> BTreeMap<String, String> {
    noted
        .lines()
        .filter_map(|line| line.strip_prefix("skipped: "))
        .map(|line| line.split_once(": ").unwrap_or((line, "no reason")))
        .map(|(name, reason)| (name.to_owned(), reason.to_owned()))
        .collect()
}

fn differences(expected: &[String], skipped: &BTreeMap<String, String>) -> Vec<String> {
    let unexpected = skipped
        .iter()
        .filter(|(name, _)| !expected.contains(name))
        .map(|(name, reason)| format!("  + {name}   was skipped, and is not listed: {reason}"));
    let missing = expected
        .iter()
        .filter(|name| !skipped.contains_key(*name))
        .map(|name| format!("  - {name}   is listed, and was not skipped: take it off the list"));
    unexpected.chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# why\n[as root]\na\nb\n\n[as an ordinary user]\nc\n";

    #[test]
    fn the_same_names_are_no_difference() {
        let noted = skipped("skipped: b: no v2\nnoise\nskipped: a: no v2\nskipped: a: no v2\n");
        assert!(differences(&expected(LIST, Who::Root), &noted).is_empty());
    }

    #[test]
    fn a_new_skip_and_a_vanished_one_are_both_told_with_what_to_do() {
        let noted = skipped("skipped: a: no v2\nskipped: d: no disk: none at all\n");
        let told = differences(&expected(LIST, Who::Root), &noted);
        assert_eq!(
            told,
            [
                "  + d   was skipped, and is not listed: no disk: none at all",
                "  - b   is listed, and was not skipped: take it off the list",
            ]
        );
    }

    #[test]
    fn each_reader_has_a_list_of_its_own() {
        assert_eq!(expected(LIST, Who::OrdinaryUser), ["c"]);
    }
}
