//! The query language of lists: `state:running outcome:failed owner:jae project:vision group:lab image:host name:vit
//! label:k=v kind:batch replicas:ID` and free words. Words with the same name widen, different names narrow.

use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{Outcome, SessionKind, SessionState, plain, text};

use crate::catalog::listing::{SessionFilter, SortKey};

/// Bytes of a query.
pub(super) const MAX_QUERY_LENGTH: usize = 1024;
const MAX_WORDS: usize = 32;

/// Reads a query. Empty text lets every session through.
pub(super) fn parse(query: &str) -> Result<SessionFilter, Refusal> {
    text(
        rules::session::TextField::Query,
        "/q",
        query,
        MAX_QUERY_LENGTH,
    )?;
    plain(rules::session::TextField::Query, "/q", query)?;
    let words = split(query)?;
    if words.len() > MAX_WORDS {
        return Err(refusals::query_too_many_words(MAX_WORDS).at("/q"));
    }
    let mut filter = SessionFilter::default();
    for word in words {
        let Some((name, value)) = word.split_once(':') else {
            filter.words.push(word);
            continue;
        };
        if value.is_empty() {
            return Err(refusals::query_value_missing(name).at("/q"));
        }
        match name {
            "state" => match value {
                "live" => filter.states.extend(
                    SessionState::ALL
                        .into_iter()
                        .filter(|p| *p != SessionState::Ended),
                ),
                "waiting" => filter.states.push(SessionState::Pending),
                _ => filter
                    .states
                    .push(SessionState::parse(value).ok_or_else(|| {
                        let all: Vec<&str> = SessionState::ALL
                            .into_iter()
                            .map(SessionState::word)
                            .collect();
                        refusals::query_state_unknown(value.escape_debug(), all.join(", ")).at("/q")
                    })?),
            },
            "outcome" => {
                filter.outcomes.push(Outcome::parse(value).ok_or_else(|| {
                    refusals::query_outcome_unknown(value.escape_debug()).at("/q")
                })?)
            }
            "replicas" => filter
                .replicas
                .push(value.parse().map_err(|refusal: Refusal| refusal.at("/q"))?),
            "kind" => filter.kinds.push(match value {
                "interactive" => SessionKind::Interactive,
                "batch" => SessionKind::Batch,
                _ => {
                    return Err(refusals::query_kind_unknown(value.escape_debug()).at("/q"));
                }
            }),
            "owner" => filter.owners.push(value.to_owned()),
            "project" => filter.projects.push(value.to_owned()),
            "group" => filter.groups.push(value.to_owned()),
            "image" => filter.images.push(value.to_owned()),
            "name" => filter.names.push(value.to_owned()),
            "label" => filter.labels.push(match value.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (value.to_owned(), None),
            }),
            _ => {
                return Err(refusals::query_word_unknown(name.escape_debug()).at("/q"));
            }
        }
    }
    Ok(filter)
}

/// Splits at blanks; double quotes keep blanks together.
///
/// Errors: `query.quote-open`, at `/q`.
pub(super) fn split(query: &str) -> Result<Vec<String>, Refusal> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for letter in query.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(letter),
        }
    }
    if quoted {
        return Err(refusals::query_quote_open().at("/q"));
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// Reads an order such as `-created_at`: the key, and whether it descends.
pub(super) fn sort(text: Option<&str>) -> Result<(SortKey, bool), Refusal> {
    let text = match text {
        None | Some("") => "-created_at",
        Some(text) => text,
    };
    let (key, descending) = match text.strip_prefix('-') {
        Some(key) => (key, true),
        None => (text, false),
    };
    let key = match key {
        "created_at" => SortKey::Created,
        "started_at" => SortKey::Started,
        "ended_at" => SortKey::Ended,
        "name" => SortKey::Name,
        _ => {
            return Err(refusals::sort_unknown().at("/sort"));
        }
    };
    Ok((key, descending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_read_as_documented() {
        let filter =
            parse(r#"state:running state:pending owner:jae label:team=vision label:x "two words""#)
                .unwrap();
        assert_eq!(
            filter.states,
            [SessionState::Running, SessionState::Pending]
        );
        assert_eq!(filter.owners, ["jae"]);
        assert_eq!(
            filter.labels,
            [
                ("team".to_owned(), Some("vision".to_owned())),
                ("x".to_owned(), None)
            ]
        );
        assert_eq!(filter.words, ["two words"]);
        assert_eq!(parse("").unwrap(), SessionFilter::default());
    }

    #[test]
    fn what_is_not_in_the_language_is_refused_by_name() {
        let code = |query: &str| parse(query).map_err(|refusal| refusal.code).unwrap_err();
        for (query, wanted) in [
            ("state:asleep", "query.state-unknown"),
            ("kind:odd", "query.kind-unknown"),
            ("outcome:odd", "query.outcome-unknown"),
            ("colour:red", "query.word-unknown"),
            ("state:", "query.value-missing"),
            ("\"open", "query.quote-open"),
            ("a\0b", "query.nul"),
            ("\u{202e}x", "query.hidden-characters"),
            (&"x".repeat(2000), "query.too-long"),
            (&"x ".repeat(40), "query.too-many-words"),
        ] {
            assert_eq!(code(query), wanted, "{query:?}");
        }
        assert_eq!(
            sort(Some("colour")).map_err(|refusal| refusal.code),
            Err("sort.unknown".into())
        );
    }
}
