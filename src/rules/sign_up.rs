//! Which addresses may ask for an account of a domain, and what a request says. Never looks anything up.

use serde::{Deserialize, Serialize};

use crate::names::EmailAddress;
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::hidden;
use crate::units::quoted;

/// Hosts that one rule names. Higher: a page shows a list too long to read. Lower: a university with many mail hosts does not
/// go in.
pub const MAX_SIGN_UP_HOSTS: usize = 20;
/// Characters of what a stranger says about themselves.
pub const MAX_SIGN_UP_NOTE: usize = 300;

/// The addresses that may ask: all, or those of these hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SignUpRule(Vec<String>);

impl SignUpRule {
    /// Reads `*`, or hosts such as `@lab.example, @cs.lab.example`; letters in either case are one.
    ///
    /// Errors: `sign-up.rule-invalid`, at `/addresses`.
    pub fn parse(typed: &str) -> Result<Self, Refusal> {
        let wrong = |word: &str| refusals::sign_up_rule_invalid(quoted(word)).at("/addresses");
        let words = typed.split(|c: char| c == ',' || c.is_whitespace());
        let words = words.filter(|word| !word.is_empty());
        let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
        if words.is_empty() || words.len() > MAX_SIGN_UP_HOSTS {
            return Err(wrong(typed));
        }
        if words == ["*"] {
            return Ok(Self(words));
        }
        for word in &words {
            // A host is what an address ends with.
            let host = word.strip_prefix('@').ok_or_else(|| wrong(word))?;
            EmailAddress::parse(&format!("a@{host}")).map_err(|_| wrong(word))?;
        }
        Ok(Self(words))
    }

    /// Whether an address may ask. O(hosts).
    pub fn admits(&self, email: &EmailAddress) -> bool {
        let address = email.as_str().to_ascii_lowercase();
        let host = address.rfind('@').map_or("", |at| &address[at..]);
        self.0.iter().any(|word| word == "*" || word == host)
    }

    /// As `parse` reads it.
    pub fn told(&self) -> String {
        self.0.join(", ")
    }
}

/// What a stranger says about themselves, trimmed. Errors: `sign-up.note-invalid`.
pub fn note(typed: &str) -> Result<String, Refusal> {
    let typed = typed.trim();
    let good = typed.chars().count() <= MAX_SIGN_UP_NOTE && !typed.chars().any(hidden);
    match good {
        true => Ok(typed.to_owned()),
        false => Err(refusals::sign_up_note_invalid(MAX_SIGN_UP_NOTE).at("/note")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(rule: &str, address: &str) -> bool {
        let rule = SignUpRule::parse(rule).expect("a rule");
        rule.admits(&EmailAddress::parse(address).expect("an address"))
    }

    #[test]
    fn a_rule_admits_its_own_hosts_alone() {
        for (rule, address, expected) in [
            ("*", "mina@anywhere.example", true),
            ("@lab.example", "mina@lab.example", true),
            ("@LAB.example", "Mina@Lab.Example", true),
            ("@a.example, @lab.example", "mina@lab.example", true),
            ("@lab.example", "mina@notlab.example", false),
            ("@lab.example", "mina@sub.lab.example", false),
            ("@lab.example", "mina@lab.example.org", false),
        ] {
            assert_eq!(admits(rule, address), expected, "{rule} {address}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        let many = vec!["@lab.example"; MAX_SIGN_UP_HOSTS + 1].join(",");
        for typed in [
            "",
            " , ",
            "lab.example",
            "* @lab.example",
            "@",
            "@a b",
            &many,
        ] {
            let refused = SignUpRule::parse(typed).expect_err(typed);
            assert_eq!(refused.code, "sign-up.rule-invalid", "{typed}");
        }
        let rule = SignUpRule::parse("@a.example @b.example").expect("a rule");
        assert_eq!(SignUpRule::parse(&rule.told()), Ok(rule));
        assert!(note(&"a".repeat(MAX_SIGN_UP_NOTE + 1)).is_err());
        assert!(note("a\u{202e}b").is_err());
    }
}
