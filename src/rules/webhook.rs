//! Webhooks: which events an address outside is told of, and how what it is told is signed. Pure; `server::hand_over` sends.

use crate::provider::WebAddress;
use crate::refusal::Refusal;
use crate::refusals;

/// Kinds of events of one webhook. Higher: each event is compared with more of them. Lower: a program that needs a few of
/// every topic is told of all.
pub const MAX_WEBHOOK_KINDS: usize = 20;
/// Characters of a kind; codes are shorter.
pub const MAX_WEBHOOK_KIND: usize = 64;
/// Letters of an address, as of the addresses of providers.
pub const MAX_WEBHOOK_ADDRESS: usize = 2_000;

/// Kinds that were asked for: topics such as `sessions`, codes such as `session.ended`, or their beginnings such as
/// `session`; each once, in order.
///
/// Errors: `webhook.kinds` at `/kinds` for none, too many, or one that is none.
pub fn check_kinds(asked: &[String]) -> Result<Vec<String>, Refusal> {
    let wrong = || refusals::webhook_kinds(MAX_WEBHOOK_KINDS).at("/kinds");
    let letter = |c: char| c.is_ascii_lowercase() || c == '-' || c == '.';
    let mut kinds: Vec<String> = asked.iter().map(|kind| kind.trim().to_owned()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let is_kind = |kind: &String| {
        (1..=MAX_WEBHOOK_KIND).contains(&kind.len())
            && kind.chars().all(letter)
            && !kind.starts_with('.')
            && !kind.ends_with('.')
    };
    match (1..=MAX_WEBHOOK_KINDS).contains(&kinds.len()) && kinds.iter().all(is_kind) {
        true => Ok(kinds),
        false => Err(wrong()),
    }
}

/// Whether an event is one of these kinds.
pub fn tells_of(kinds: &[String], topic: &str, code: &str) -> bool {
    kinds.iter().any(|kind| {
        topic == kind
            || code
                .strip_prefix(kind.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Reads an address that may be told of events. `is_own` says whether a host is this machine.
///
/// Errors: `webhook.address` at `/address` for one that is none, and for one elsewhere without TLS.
pub fn check_address(text: &str, is_own: impl Fn(&str) -> bool) -> Result<String, Refusal> {
    let text = text.trim();
    let protected =
        WebAddress::parse(text).filter(|address| address.encrypted || is_own(&address.host));
    match protected {
        Some(_) if text.len() <= MAX_WEBHOOK_ADDRESS => Ok(text.to_owned()),
        _ => Err(refusals::webhook_address().at("/address")),
    }
}

/// What is signed: the time that the header says, and the body as it goes.
pub fn signed_text(seconds: i64, body: &str) -> String {
    format!("{seconds}.{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_kind_is_a_topic_a_code_or_the_beginning_of_one() {
        let told = |kind: &str| tells_of(&kinds(&[kind]), "sessions", "session.ended");
        for kind in ["sessions", "session", "session.ended"] {
            assert!(told(kind), "{kind}");
        }
        for kind in ["users", "sess", "session.end", "session.ended.x", "ended"] {
            assert!(!told(kind), "{kind}");
        }
    }

    #[test]
    fn kinds_and_addresses_that_say_nothing_are_refused() {
        let good = check_kinds(&kinds(&["sessions", " budget.warned ", "sessions"]));
        assert_eq!(good.unwrap(), kinds(&["budget.warned", "sessions"]));
        let long = "a".repeat(MAX_WEBHOOK_KIND + 1);
        for bad in ["", ".", "session.", "SESSION", "a b", long.as_str()] {
            assert!(check_kinds(&kinds(&[bad])).is_err(), "{bad}");
        }
        assert!(check_kinds(&[]).is_err());
        let many: Vec<String> = (0..=MAX_WEBHOOK_KINDS)
            .map(|number| "a".repeat(number + 1))
            .collect();
        assert!(check_kinds(&many).is_err());
        let own = |host: &str| host == "127.0.0.1";
        for good in ["https://hooks.lab/x?y=z", "http://127.0.0.1:8080/x"] {
            assert_eq!(check_address(good, own).unwrap(), good);
        }
        for bad in [
            "http://hooks.lab/x",
            "hooks.lab",
            "ftp://hooks.lab",
            "https://u@h/",
        ] {
            assert!(check_address(bad, own).is_err(), "{bad}");
        }
    }
}
