//! What users say of a session in words of their own, and the bounds on it. Carried as a whole from the launch to the
//! row, and shown. Neither the scheduler nor a machine reads it; a rule for idle sessions may look at the labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::spec::{MAX_LABEL_LENGTH, MAX_LABELS, TextField, hidden, plain, text};
use crate::refusal::Refusal;
use crate::refusals;

/// Characters of one text. Higher: a session's page begins with a page of prose, and rows grow. Lower: what a run is
/// to find out cannot be said.
pub const MAX_REMARK_LENGTH: usize = 500;

/// The remarks on one session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remarks {
    pub labels: BTreeMap<String, String>,
    /// What it is for, in one line; None where nothing is said.
    #[serde(default)]
    pub description: Option<String>,
}

impl Remarks {
    /// Gives them as they are kept.
    ///
    /// Errors: the first fault, at its field: `label.*`, `remark.*`.
    pub fn checked(self) -> Result<Self, Refusal> {
        check_labels(&self.labels)?;
        Ok(Self {
            description: remark(self.description, "/description")?,
            ..self
        })
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        let labels = self.labels.iter();
        let labels = labels.map(|(name, value)| name.len() + value.len());
        labels.sum::<usize>() + self.description.as_ref().map_or(0, String::len)
    }
}

/// Refuses bad labels: too many, too long, control characters or direction marks.
pub fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if labels.len() > MAX_LABELS {
        return Err(refusals::label_too_many(MAX_LABELS).at("/labels"));
    }
    for (name, value) in labels {
        if name.is_empty() {
            return Err(refusals::label_empty().at("/labels"));
        }
        for part in [name, value] {
            text(TextField::Label, "/labels", part, MAX_LABEL_LENGTH)?;
            plain(TextField::Label, "/labels", part)?;
        }
    }
    Ok(())
}

/// A text as it is kept: without blanks around it; None where nothing is said.
///
/// Errors: `remark.too-long`, `remark.hidden-characters`, each at `pointer`.
pub fn remark(typed: Option<String>, pointer: &str) -> Result<Option<String>, Refusal> {
    let said = typed.unwrap_or_default();
    let said = said.trim();
    let length = said.chars().count();
    if length > MAX_REMARK_LENGTH {
        return Err(refusals::remark_too_long(length, MAX_REMARK_LENGTH).at(pointer));
    }
    if said.chars().any(hidden) {
        return Err(refusals::remark_hidden_characters().at(pointer));
    }
    Ok(Some(said.to_owned()).filter(|said| !said.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_kept_by_the_rule_for_remarks() {
        let said = |typed: &str| {
            let remarks = Remarks {
                description: Some(typed.to_owned()),
                ..Remarks::default()
            };
            remarks.checked()
        };
        let kept = said(" a sweep ").expect("a description");
        assert_eq!(kept.description.as_deref(), Some("a sweep"));
        assert_eq!(kept.bytes(), "a sweep".len());
        assert_eq!(said(" "), Ok(Remarks::default()));
        let refusal = said(&"x".repeat(MAX_REMARK_LENGTH + 1)).expect_err("refused");
        assert_eq!(refusal.pointer.as_deref(), Some("/description"));
    }

    #[test]
    fn a_remark_is_kept_trimmed_short_and_plain() {
        let said = |typed: &str| remark(Some(typed.to_owned()), "/x");
        assert_eq!(said(" first try "), Ok(Some("first try".to_owned())));
        assert_eq!(said("  "), Ok(None));
        assert_eq!(remark(None, "/x"), Ok(None));
        let longest = "가".repeat(MAX_REMARK_LENGTH);
        assert_eq!(said(&longest), Ok(Some(longest.clone())));
        for (wrong, code) in [
            (format!("{longest}x"), "remark.too-long"),
            ("two\nlines".to_owned(), "remark.hidden-characters"),
            ("a\u{202e}b".to_owned(), "remark.hidden-characters"),
            ("a\0b".to_owned(), "remark.hidden-characters"),
        ] {
            let refusal = said(&wrong).expect_err("refused");
            assert_eq!(
                (refusal.code.as_str(), refusal.pointer.as_deref()),
                (code, Some("/x"))
            );
        }
    }
}
