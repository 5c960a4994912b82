//! The catalogue as a table: which sentences a code has, in English and Korean. For doors that translate
//! what rows and other processes hand them. Never fills a sentence in.

/// One entry of the catalogue; `{name}` in its sentences is a value, `{name:을/를}` a value and its particle.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    pub code: &'static str,
    /// What was wrong, or why; empty for a note, whose English is put together where its figures are.
    pub en: &'static str,
    /// What was wrong and what would work.
    pub ko: &'static str,
    /// Said where values are missing; empty where there is no such sentence.
    pub ko_bare: &'static str,
}

// Sorted by code; of one code, what names most values first.
include!(concat!(env!("OUT_DIR"), "/messages.rs"));

/// The entries of a code, what names most values first; empty for a code that the catalogue lacks.
/// Costs a binary search.
pub fn of(code: &str) -> &'static [Message] {
    let first = MESSAGES.partition_point(|message| message.code < code);
    let count = MESSAGES[first..].partition_point(|message| message.code == code);
    &MESSAGES[first..first + count]
}
