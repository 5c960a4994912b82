//! Reasons and refusals in the reader's language. English sentences are written where a rule is; Korean ones
//! stand in `web/i18n/ko-codes.toml` under the same stable code. Never invents: a code or a value that is
//! missing there gives the English sentence.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use rules::placement::Blocker;
use rules::refusal::Refusal;
use rules::session::Reason;

use super::{Language, Text, josa};

static KOREAN: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    toml::from_str(include_str!("../../../web/i18n/ko-codes.toml"))
        .expect("the file is checked by a test")
});

/// Why something is as it is, in one sentence.
pub fn reason(text: Text, reason: &Reason) -> String {
    sentence(text, &reason.code, &reason.text, &reason.params)
}

/// What something waits for, in one sentence.
pub fn blocker(text: Text, blocker: &Blocker) -> String {
    sentence(text, &blocker.code, &blocker.text, &blocker.params)
}

/// What was wrong, and what would work. In English both parts of the refusal, in Korean one text with both.
pub fn refusal(text: Text, refusal: &Refusal) -> String {
    sentence(text, &refusal.code, &refusal.to_string(), &BTreeMap::new())
}

/// The same for one wrong field.
pub fn field(text: Text, code: &str, english: &str) -> String {
    sentence(text, code, english, &BTreeMap::new())
}

/// What a check of the machine looks at, and what to do where it is not well, for readers of another language
/// than the sentences themselves; none in English, and for a check that is not known.
pub fn check(text: Text, id: &str) -> Option<(&'static str, &'static str)> {
    match text.language {
        Language::English => None,
        Language::Korean => {
            let name = KOREAN.get(&format!("check.{id}"))?;
            let fix = KOREAN.get(&format!("check.{id}.fix"))?;
            Some((name, fix))
        }
    }
}

fn sentence(text: Text, code: &str, english: &str, values: &BTreeMap<String, String>) -> String {
    match text.language {
        Language::English => english.to_owned(),
        Language::Korean => KOREAN
            .get(code)
            .and_then(|template| filled(template, values))
            .unwrap_or_else(|| english.to_owned()),
    }
}

/// The template with its values; none where a value is missing.
fn filled(template: &str, values: &BTreeMap<String, String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let (inside, after) = after.split_once('}')?;
        match inside.split_once(':') {
            Some((name, particle)) => {
                let (after_consonant, after_vowel) = particle.split_once('/')?;
                out.push_str(&josa(values.get(name)?, after_consonant, after_vowel));
            }
            None => out.push_str(values.get(inside)?),
        }
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_in_korean_with_its_values() {
        let killed = Reason::new(
            "session.out-of-memory",
            "It was killed at its memory limit of 1 GiB.",
        )
        .with("limit", "1 GiB");
        let korean = Text::new(Language::Korean);
        assert_eq!(
            reason(korean, &killed),
            "메모리 한도 1 GiB를 넘어 종료되었습니다."
        );
        assert_eq!(reason(Text::default(), &killed), killed.text);
        let without = Reason::new("session.out-of-memory", "It was killed.");
        assert_eq!(
            reason(korean, &without),
            "It was killed.",
            "a missing value never leaves a gap"
        );
        let unknown = Reason::new("session.eaten", "Eaten by a whale.");
        assert_eq!(reason(korean, &unknown), "Eaten by a whale.");
    }

    /// Every code that `rules` can give a person has a Korean sentence, but those that are findings for
    /// administrators and programmers.
    #[test]
    fn every_code_of_the_rules_is_translated() {
        let mut missing = Vec::new();
        for file in [
            "rules/devices.rs",
            "rules/placement/fit.rs",
            "rules/placement/order.rs",
            "rules/placement/explain.rs",
            "rules/progress.rs",
            "rules/session.rs",
            "rules/resources.rs",
            "rules/units.rs",
            "rules/permissions.rs",
            "server/access/setup.rs",
            "server/access/password.rs",
            "server/actions/images/uploads.rs",
            "server/actions/query.rs",
        ] {
            let path = format!("{}/src/{file}", env!("CARGO_MANIFEST_DIR"));
            let source =
                std::fs::read_to_string(&path).unwrap_or_else(|fault| panic!("{path}: {fault}"));
            let product = source
                .split("#[cfg(test)]")
                .next()
                .expect("one part at least");
            for quoted in product.split('"').skip(1).step_by(2) {
                let code = quoted.split_once('.').is_some_and(|(noun, what)| {
                    let word = |part: &str| {
                        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                    };
                    word(noun) && word(what)
                });
                if code && !KOREAN.contains_key(quoted) && quoted != "node.refuses" {
                    missing.push(format!("{file}: {quoted}"));
                }
            }
        }
        assert!(
            missing.is_empty(),
            "web/i18n/ko-codes.toml lacks:\n{}",
            missing.join("\n")
        );
    }
}
