//! Which sentences a code has, in English and Korean: `messages.toml` as a table. For doors that translate
//! what rows and other processes hand them. Never fills a sentence in.

/// One entry of the catalogue; `{name}` in its sentences is a value, `{name:을/를}` a value and its particle.
#[derive(Debug, Clone, Copy)]
pub struct Translation {
    pub code: &'static str,
    /// What was wrong, or why; empty for a note, whose English is put together where its figures are.
    pub en: &'static str,
    /// What would work, in English; empty where nothing would.
    pub hint: &'static str,
    /// What was wrong and what would work.
    pub ko: &'static str,
    /// Said where values are missing; empty where there is no such sentence.
    pub ko_bare: &'static str,
}

// Sorted by code; of one code, what names most values first.
include!(concat!(env!("OUT_DIR"), "/translations.rs"));

/// The entries of a code, what names most values first; empty for a code that the catalogue lacks.
/// Costs a binary search.
pub fn of(code: &str) -> &'static [Translation] {
    let first = TRANSLATIONS.partition_point(|entry| entry.code < code);
    let count = TRANSLATIONS[first..].partition_point(|entry| entry.code == code);
    &TRANSLATIONS[first..first + count]
}
