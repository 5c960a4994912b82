//! Reasons and refusals in the reader's language. English sentences are written where a rule is; Korean ones
//! stand in `web/i18n/ko-codes.toml` under the same stable code. Never invents: a code or a value that is
//! missing there gives the English sentence. A refusal never loses a figure on the way: where the Korean
//! sentence lacks one that the English has, the English stands behind it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use rules::placement::PlacementBlocker;
use rules::reason::Reason;
use rules::refusal::Refusal;

use super::{Language, Text, josa};

static KOREAN: LazyLock<BTreeMap<String, Template>> = LazyLock::new(|| {
    toml::from_str(include_str!("../../../web/i18n/ko-codes.toml"))
        .expect("the file is checked by a test")
});

/// What a code says. Where a code is met with different values there are several sentences, the one that
/// names most first: the first whose values are all there is said.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum Template {
    One(String),
    Several(Vec<String>),
}

impl Template {
    fn sentences(&self) -> &[String] {
        match self {
            Self::One(sentence) => std::slice::from_ref(sentence),
            Self::Several(sentences) => sentences,
        }
    }
}

/// Why something is as it is, in one sentence.
pub fn reason(text: Text, reason: &Reason) -> String {
    sentence(text, &reason.code, &reason.text, &reason.params)
}

/// What something waits for, in one sentence.
pub fn blocker(text: Text, blocker: &PlacementBlocker) -> String {
    sentence(text, &blocker.code, &blocker.text, &blocker.params)
}

/// What was wrong, and what would work. In English both parts of the refusal, in Korean one text with both.
pub fn refusal(text: Text, refusal: &Refusal) -> String {
    let english = refusal.to_string();
    let said = sentence(text, &refusal.code, &english, &refusal.values);
    let told: Vec<&str> = figures(&said).collect();
    if figures(&english).all(|figure| told.contains(&figure)) {
        return said;
    }
    format!("{said} ({english})")
}

/// The numbers in a sentence, as they are written: `0.35`, `512`.
fn figures(sentence: &str) -> impl Iterator<Item = &str> {
    sentence
        .split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .map(|word| word.trim_matches('.'))
        .filter(|word| !word.is_empty())
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
            let name = KOREAN.get(&format!("check.{id}"))?.sentences().first()?;
            let fix = KOREAN
                .get(&format!("check.{id}.fix"))?
                .sentences()
                .first()?;
            Some((name, fix))
        }
    }
}

fn sentence(text: Text, code: &str, english: &str, values: &BTreeMap<String, String>) -> String {
    match text.language {
        Language::English => english.to_owned(),
        Language::Korean => KOREAN
            .get(code)
            .and_then(|template| {
                let mut sentences = template.sentences().iter();
                sentences.find_map(|sentence| filled(sentence, values))
            })
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

    #[test]
    fn a_refusal_is_told_in_korean_with_its_values_and_no_figure_is_lost() {
        let korean = Text::new(Language::Korean);
        let room = Refusal::capacity("resize.no-room", "Device 3 of a has no room for that.")
            .hint("Up to 0.25 and 20 GiB would work now.");
        let device = room
            .clone()
            .with("device", 3)
            .with("node", "a")
            .with("share", "0.25")
            .with("memory", "20 GiB");
        assert_eq!(
            refusal(korean, &device),
            "a의 3번 GPU에는 다른 조각 옆에 그만큼의 자리가 없습니다. 지금은 0.25와 20 GiB까지 늘릴 수 있습니다."
        );
        assert_eq!(refusal(Text::default(), &device), device.to_string());
        // As an older node says it: without values.
        assert_eq!(
            refusal(korean, &room),
            format!("그만큼 늘릴 자리가 머신에 없습니다. ({room})")
        );
        let without = Refusal::conflict("gpu.cut-already", "GPU is whole.");
        assert_eq!(refusal(korean, &without), "이미 그렇게 나뉘어 있습니다.");
        let unknown = Refusal::invalid("whale.ate", "It ate 3.");
        assert_eq!(refusal(korean, &unknown), "It ate 3.");
    }

    /// One refusal as its source writes it.
    struct SourceRefusal {
        at: String,
        code: String,
        /// The sentence and the hint, with what is filled into them as `{…}`.
        english: Vec<String>,
        values: Vec<String>,
    }

    /// The refusals that the product's sources write with a code of their own.
    fn written() -> Vec<SourceRefusal> {
        let mut all = Vec::new();
        let mut folders = vec![std::path::PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src"
        ))];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder of the sources") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.to_string_lossy().into_owned();
                if !name.ends_with(".rs") || name.contains("tests") || name.ends_with("codes.rs") {
                    continue;
                }
                let source = std::fs::read_to_string(&path).expect("a source");
                let product = source.split("#[cfg(test)]").next().expect("one part");
                all.extend(refusals_of(&name, product));
            }
        }
        all
    }

    fn refusals_of(name: &str, source: &str) -> Vec<SourceRefusal> {
        let mut all = Vec::new();
        for (at, _) in source.match_indices("Refusal::") {
            let rest = &source[at + "Refusal::".len()..];
            let Some((kind, _)) = rest.split_once('(') else {
                continue;
            };
            if !kind.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                continue;
            }
            let (mut strings, mut values) = (Vec::new(), Vec::new());
            // The constructor and the calls that are chained to it.
            let mut rest = &rest[kind.len()..];
            let mut word = "";
            while let Some((inside, after)) = call(rest) {
                let texts: Vec<String> = quoted(inside);
                match word {
                    "with" => values.extend(texts.into_iter().take(1)),
                    "at" => {}
                    _ => strings.extend(texts),
                }
                let Some(next) = after.trim_start().strip_prefix('.') else {
                    break;
                };
                let Some((name, _)) = next.split_once('(') else {
                    break;
                };
                (word, rest) = (name, &next[name.len()..]);
            }
            if strings.is_empty() || !strings[0].contains('.') || strings[0].contains(' ') {
                continue;
            }
            let line = source[..at].lines().count();
            all.push(SourceRefusal {
                at: format!("{name}:{line}"),
                code: strings.remove(0),
                english: strings,
                values,
            });
        }
        all
    }

    /// What stands between a parenthesis and its partner, and what comes after it.
    fn call(source: &str) -> Option<(&str, &str)> {
        let (mut depth, mut text, mut escaped) = (0_u32, false, false);
        for (at, c) in source.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' if text => escaped = true,
                '"' => text = !text,
                '(' if !text => depth += 1,
                ')' if !text => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some((&source[1..at], &source[at + 1..]));
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn quoted(source: &str) -> Vec<String> {
        let (mut all, mut text, mut escaped) = (Vec::new(), None::<String>, false);
        for c in source.chars() {
            match (&mut text, c) {
                (Some(inside), _) if escaped => {
                    inside.push(c);
                    escaped = false;
                }
                (Some(_), '\\') => escaped = true,
                (Some(_), '"') => all.extend(text.take()),
                (Some(inside), _) => inside.push(c),
                (None, '"') => text = Some(String::new()),
                (None, _) => {}
            }
        }
        all
    }

    /// The names in a template's braces.
    fn named(sentence: &str) -> Vec<&str> {
        let inside = sentence.split('{').skip(1);
        inside
            .filter_map(|part| part.split('}').next()?.split(':').next())
            .collect()
    }

    /// Where people launch, resize, ask for shares, cut, sign in and set: every value of an English sentence
    /// is brought for the Korean one, but the words that are English themselves.
    const WHOLE: [&str; 18] = [
        "src/rules/cut.rs",
        "src/rules/devices.rs",
        "src/rules/placement/feasibility.rs",
        "src/rules/placement/fit.rs",
        "src/rules/policy.rs",
        "src/rules/permissions.rs",
        "src/rules/resources.rs",
        "src/rules/session.rs",
        "src/rules/units.rs",
        "src/server/access.rs",
        "src/server/access/attempts.rs",
        "src/server/actions/gpus.rs",
        "src/server/actions/gpus/prove.rs",
        "src/server/actions/sessions/change.rs",
        "src/server/actions/sessions/launch.rs",
        "src/server/actions/people.rs",
        "src/server/actions/query.rs",
        "src/base/settings/file.rs",
    ];
    /// Their values are English words (a phase, a verb, a kind of value), and no figures.
    const WORDS: [(&str, usize); 4] = [
        ("session.not-running", 1),
        ("person.self", 1),
        ("sign-in.locked", 1),
        ("setting.wrong-type", 1),
    ];

    #[test]
    fn no_korean_refusal_drops_a_value_that_the_english_has() {
        let all = written();
        assert!(all.len() > 200, "{} refusals were read only", all.len());
        let mut wrong = Vec::new();
        for refusal in &all {
            let Some(template) = KOREAN.get(&refusal.code) else {
                continue;
            };
            let (at, code) = (&refusal.at, &refusal.code);
            let sentences = template.sentences();
            for value in &refusal.values {
                if !sentences
                    .iter()
                    .any(|korean| named(korean).contains(&value.as_str()))
                {
                    wrong.push(format!("{at}: {code} says {value} in English only"));
                }
            }
            if !WHOLE.iter().any(|file| at.contains(file)) {
                continue;
            }
            let korean = sentences.iter().find(|korean| {
                let has = |name: &&str| refusal.values.iter().any(|value| value == name);
                named(korean).iter().all(has)
            });
            let Some(korean) = korean else {
                wrong.push(format!(
                    "{at}: {code} has no Korean sentence for its values"
                ));
                continue;
            };
            let english = refusal.english.join(" ");
            // What is said twice is brought once; what has no name of its own counts by itself.
            let mut filled = named(&english);
            filled.sort_unstable();
            let unnamed = filled.iter().filter(|name| name.is_empty()).count();
            filled.retain(|name| !name.is_empty());
            filled.dedup();
            let spared = WORDS.iter().find(|(word, _)| word == code);
            let needed = filled.len() + unnamed - spared.map_or(0, |(_, number)| *number);
            if refusal.values.len() < needed {
                wrong.push(format!(
                    "{at}: {code} fills {needed} values into {english:?} and brings {:?}",
                    refusal.values
                ));
            }
            let fixed: String = english
                .split('{')
                .map(|part| part.split_once('}').map_or(part, |(_, after)| after))
                .collect::<Vec<_>>()
                .join(" ");
            let told: Vec<&str> = figures(korean).collect();
            for figure in figures(&fixed).filter(|figure| !told.contains(figure)) {
                wrong.push(format!("{at}: {code} drops {figure}: {korean}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Every code that `rules` can give a person has a Korean sentence, but those that are findings for
    /// administrators and programmers.
    #[test]
    fn every_code_of_the_rules_is_translated() {
        let mut missing = Vec::new();
        for file in [
            "rules/devices.rs",
            "rules/policy.rs",
            "rules/placement/feasibility.rs",
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
