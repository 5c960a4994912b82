//! Reasons and refusals in the reader's language. Both languages stand in the catalogue of `rules`; English
//! sentences come filled in with what they are about. Never invents: a code or a value that is missing there
//! gives the English sentence. A refusal never loses a figure on the way: where the Korean sentence lacks one
//! that the English has, the English stands behind it.

use std::collections::BTreeMap;

use rules::blocker::PlacementBlocker;
use rules::codes::family;
use rules::quota::LimitKey;
use rules::reason::Reason;
use rules::refusal::Refusal;
use rules::translations::{self, Translation};

use super::{Language, Text, josa};

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
    let said = match korean(text, &refusal.code, &refusal.text, &refusal.values) {
        Some(korean) => korean,
        None => english.clone(),
    };
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

/// What is wrong with the machine, and what would help; `hint` may be empty.
pub fn notice(text: Text, code: &str, english: &str, hint: &str) -> String {
    let values = BTreeMap::new();
    korean(text, code, english, &values).unwrap_or_else(|| match hint {
        "" => english.to_owned(),
        hint => format!("{english} {hint}"),
    })
}

/// The same for one wrong field.
pub fn field(text: Text, code: &str, english: &str) -> String {
    sentence(text, code, english, &BTreeMap::new())
}

/// What a check of the machine looks at, and what it found with what would mend it, for readers of another
/// language than the sentences themselves; the second is empty for words that no catalogue has. None in
/// English, and for a check that is not known.
pub fn check(text: Text, id: &str, found: &str) -> Option<(&'static str, &'static str)> {
    match text.language {
        Language::English => None,
        Language::Korean => {
            let entries = translations::of(&format!("check.{id}"));
            let name = entries.iter().find(|entry| entry.en.is_empty())?.ko;
            let told = entries.iter().find(|entry| says(entry, found));
            let fix = format!("check.{id}.fix");
            let told = told.or_else(|| translations::of(&fix).first());
            Some((name, told.map_or("", |entry| entry.ko)))
        }
    }
}

/// The values that the English words of a check name, such as a path, in their order; empty for words that no
/// catalogue has.
pub fn check_values(id: &str, found: &str) -> Vec<String> {
    let entries = translations::of(&format!("check.{id}"));
    let mut all = entries.iter().filter(|entry| !entry.en.is_empty());
    let values = all.find_map(|entry| captured(entry, found));
    values.unwrap_or_default()
}

fn sentence(text: Text, code: &str, english: &str, values: &BTreeMap<String, String>) -> String {
    korean(text, code, english, values).unwrap_or_else(|| english.to_owned())
}

/// The Korean sentence of the entry whose English this is; where none is, as in what an older release wrote,
/// the first of the code whose values are all there. None in English, and where a value is missing.
fn korean(
    text: Text,
    code: &str,
    english: &str,
    values: &BTreeMap<String, String>,
) -> Option<String> {
    if text.language == Language::English {
        return None;
    }
    // What a node lacks comes in its own words, with what would mend it; of that Korean has one text.
    let families = [family::NODE_LACKS, family::NODE_REFUSES];
    if let Some(lack) = families.iter().find_map(|name| code.strip_prefix(name)) {
        let told = translations::of(&format!("check.lacks.{lack}"));
        return told.first().map(|entry| entry.ko.to_owned());
    }
    let entries = translations::of(code);
    // Values that came without names stand in the English words.
    let own = entries.iter().find_map(|entry| {
        let named = named(entry.en).map(str::to_owned);
        let mut all: BTreeMap<String, String> = named.zip(captured(entry, english)?).collect();
        all.extend(values.clone());
        filled(entry.ko, &all).filter(|_| !entry.en.is_empty())
    });
    if own.is_some() {
        return own;
    }
    let sentences = entries.iter().map(|entry| entry.ko);
    let bare = entries.iter().map(|entry| entry.ko_bare);
    let mut all = sentences.chain(bare.filter(|sentence| !sentence.is_empty()));
    all.find_map(|sentence| filled(sentence, values))
}

/// An English sentence that a row keeps without its code, such as the reason in an event: the Korean of the entry that
/// says it, with the values that stand in it. As it is where no entry says it, and in English. Costs a look at each
/// entry.
pub fn stored(text: Text, english: &str) -> String {
    if text.language == Language::English || english.is_empty() {
        return english.to_owned();
    }
    let told = sources(english).into_iter().find_map(|entry| {
        let found = captured(entry, present(english))?;
        let names = named(entry.en).map(str::to_owned);
        let values = names.zip(found).collect();
        // A sentence whose Korean names other values than its English has a shorter one.
        filled(entry.ko, &values).or_else(|| match entry.ko_bare {
            "" => None,
            bare => filled(bare, &values),
        })
    });
    told.unwrap_or_else(|| english.to_owned())
}

/// The code of an English sentence that a row keeps without it; empty where no entry says it. Costs a look at each entry.
pub fn stored_code(english: &str) -> &'static str {
    sources(english).first().map_or("", |entry| entry.code)
}

/// Sentences that rows of older releases keep, each with what is said in its place.
const FORMER: [(&str, &str); 1] = [(
    "It reached its maximum runtime.",
    "It reached its time limit.",
)];

/// The sentence as it is said today.
fn present(english: &str) -> &str {
    let mut former = FORMER.into_iter();
    former
        .find(|(said, _)| *said == english)
        .map_or(english, |(_, now)| now)
}

/// The entries that could have said a sentence. Of two that both could, the one that says more of it comes first.
fn sources(english: &str) -> Vec<&'static Translation> {
    let english = present(english);
    // Letters that are not a value's.
    let own = |entry: &Translation| -> usize {
        let named: usize = named(entry.en).map(|name| name.len() + 2).sum();
        entry.en.len() - named
    };
    let entries = translations::TRANSLATIONS.iter();
    let mut said: Vec<&Translation> = entries
        .filter(|entry| own(entry) >= MIN_OWN && says(entry, english))
        .collect();
    said.sort_by_key(|entry| std::cmp::Reverse(own(entry)));
    said
}

/// Letters of its own that an entry needs to be known by its English. Fewer: a sentence of nearly nothing but values says
/// everything. More: short sentences stay English.
const MIN_OWN: usize = 8;

/// The names in a template's braces, in their order.
fn named(sentence: &str) -> impl Iterator<Item = &str> {
    let inside = sentence.split('{').skip(1);
    let names = inside.filter_map(|part| part.split_once('}')?.0.split(':').next());
    names.filter(|name| is_value(name))
}

/// Whether an English sentence is that of an entry, with anything for its values.
fn says(entry: &Translation, english: &str) -> bool {
    !entry.en.is_empty() && captured(entry, english).is_some()
}

/// The values in an English sentence of an entry, in their order; None where it is no sentence of it.
fn captured(entry: &Translation, english: &str) -> Option<Vec<String>> {
    let mut values = Vec::new();
    let mut rest = english;
    let mut parts = entry.en.split('{').enumerate().peekable();
    while let Some((at, part)) = parts.next() {
        // Behind the value; what has no name in its braces is text.
        let fixed = match part.split_once('}') {
            Some((name, after)) if at > 0 && is_value(name) => after,
            _ => part,
        };
        let is_last = parts.peek().is_none();
        let found = match at {
            0 if is_last => (rest == fixed).then_some(0),
            0 => rest.starts_with(fixed).then_some(0),
            // A value may have the same characters, such as the period of a path.
            _ if is_last => rest.ends_with(fixed).then(|| rest.len() - fixed.len()),
            _ => rest.find(fixed),
        };
        let found = found?;
        if at > 0 && fixed.len() < part.len() {
            values.push(rest[..found].to_owned());
        }
        rest = &rest[found + fixed.len()..];
    }
    Some(values)
}

fn is_value(name: &str) -> bool {
    let mut letters = name.bytes();
    !name.is_empty() && letters.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// `2 GPU` of `2 GPUs`: Korean counts without a plural.
fn without_plural(value: &str) -> &str {
    match value.strip_suffix('s') {
        Some(one) if one.ends_with(" GPU") => one,
        Some(_) | None => value,
    }
}

/// The template with its values; none where a value is missing. Braces around no name are text.
fn filled(template: &str, values: &BTreeMap<String, String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let (inside, behind) = after.split_once('}')?;
        let (name, particle) = match inside.split_once(':') {
            Some((name, particle)) => (name, Some(particle)),
            None => (inside, None),
        };
        if !is_value(name) {
            out.push('{');
            rest = after;
            continue;
        }
        let value = without_plural(values.get(name)?);
        match particle {
            Some(particle) => {
                let (after_consonant, after_vowel) = particle.split_once('/')?;
                out.push_str(&josa(value, after_consonant, after_vowel));
            }
            None => out.push_str(value),
        }
        rest = behind;
    }
    out.push_str(rest);
    Some(out)
}

/// What a limit bounds, as every door calls it.
pub fn limit_name(t: Text, key: LimitKey) -> &'static str {
    match key {
        LimitKey::Waiting => t.users_limit_waiting(),
        LimitKey::WaitingBytes => t.users_limit_waiting_bytes(),
        LimitKey::Sessions => t.policies_sessions(),
        LimitKey::Gpu => t.policies_gpu(),
        LimitKey::Cpu => t.policies_cpu(),
        LimitKey::Memory => t.policies_memory(),
        LimitKey::GpuEach => t.policies_gpu_each(),
        LimitKey::CpuEach => t.policies_cpu_each(),
        LimitKey::MemoryEach => t.policies_memory_each(),
        LimitKey::DiskEach => t.policies_disk_each(),
        LimitKey::RuntimeSeconds => t.policies_runtime(),
        LimitKey::Priority => t.policies_priority(),
        LimitKey::SignIns => t.policies_sign_ins(),
        LimitKey::FolderBytes => t.policies_folder_bytes(),
        LimitKey::Images => t.policies_images(),
    }
}

#[cfg(test)]
mod tests {
    use rules::refusal::RefusalKind;
    use rules::{reasons, refusals};

    use super::*;

    #[test]
    fn a_reason_is_told_in_korean_with_its_values() {
        let killed = reasons::session_out_of_memory("1 GiB");
        let korean = Text::new(Language::Korean);
        assert_eq!(
            reason(korean, &killed),
            "메모리 한도 1 GiB를 넘어 종료되었습니다."
        );
        assert_eq!(reason(Text::default(), &killed), killed.text);
        let of = |code: &str, text: &str| Reason::from_parts(code.into(), text.into());
        assert_eq!(
            reason(korean, &of("session.out-of-memory", "It was killed.")),
            "It was killed.",
            "a missing value never leaves a gap"
        );
        let unknown = of("session.eaten", "Eaten by a whale.");
        assert_eq!(reason(korean, &unknown), "Eaten by a whale.");
    }

    #[test]
    fn gpus_are_counted_without_a_plural_in_korean() {
        let waits = rules::blockers::limit_user("2 GPUs", "1 GPU", "2.5 GPUs", "small");
        let korean = blocker(Text::new(Language::Korean), &waits);
        assert_eq!(
            korean,
            "2 GPU가 필요한데 소유자가 최대 2.5 GPU 가운데 1 GPU를 쓰고 있습니다. (정책 small)"
        );
        assert!(blocker(Text::default(), &waits).contains("2 GPUs"));
    }

    #[test]
    fn a_refusal_is_told_in_korean_with_its_values_and_no_figure_is_lost() {
        let korean = Text::new(Language::Korean);
        let device = refusals::resize_no_room_on_device(3, "a", "0.25", "20 GiB");
        assert_eq!(
            refusal(korean, &device),
            "a의 3번 GPU에는 다른 조각 옆에 그만큼의 자리가 없습니다. 지금은 0.25와 20 GiB까지 늘릴 수 있습니다."
        );
        assert_eq!(refusal(Text::default(), &device), device.to_string());
        // As an older node says it: without values.
        let bare = Refusal {
            values: BTreeMap::new(),
            ..device
        };
        assert_eq!(
            refusal(korean, &bare),
            format!("그만큼 늘릴 자리가 서버에 없습니다. ({bare})")
        );
        let of = |code: &str, text: &str| {
            let kind = RefusalKind::Conflict;
            Refusal::from_parts(kind, code.into(), text.into(), String::new())
        };
        let without = of("gpu.partitions-already", "GPU is whole.");
        assert_eq!(refusal(korean, &without), "이미 그렇게 나뉘어 있습니다.");
        let unknown = of("whale.ate", "It ate 3.");
        assert_eq!(refusal(korean, &unknown), "It ate 3.");
    }

    #[test]
    fn of_two_sentences_under_one_code_the_one_that_was_said_is_translated() {
        let korean = Text::new(Language::Korean);
        let (count, share) = (
            refusals::setting_below_one("a file", "backup_keep"),
            refusals::setting_share_too_small("a file", "gpu_step"),
        );
        assert_eq!(count.code, share.code);
        assert!(refusal(korean, &count).contains("1 이상"), "{count}");
        assert!(refusal(korean, &share).contains("0.01 이상"), "{share}");
    }

    #[test]
    fn a_check_is_told_in_korean_whatever_its_values_are() {
        let korean = Text::new(Language::Korean);
        for path in ["/var/lib/fardel", "/tmp/.hidden.d"] {
            let found = format!("Only 3 GiB free on {path}.");
            let (name, told) = check(korean, "disk", &found).expect("a known id");
            assert_eq!(name, "디스크 여유 공간");
            assert!(told.contains("여유 공간이 너무 적습니다"), "{told}");
        }
        let unknown = check(korean, "disk", "Eaten by a whale.");
        assert_eq!(unknown, Some(("디스크 여유 공간", "")));
        assert_eq!(check(Text::default(), "disk", ""), None);
    }

    #[test]
    fn a_sentence_that_a_row_keeps_is_told_in_korean_with_its_values() {
        let korean = Text::new(Language::Korean);
        let killed = reasons::session_out_of_memory("1 GiB");
        assert_eq!(stored(korean, &killed.text), reason(korean, &killed));
        assert_eq!(stored(Text::default(), &killed.text), killed.text);
        for placed in [
            reasons::placement_kept("vm"),
            reasons::placement_linked_devices("vm", "0, 1"),
            reasons::session_restarted(),
            reasons::session_timeout(),
            reasons::session_device_drained("boss", 0),
            reasons::session_device_drained_because("boss", 0, "a fan is loud."),
            reasons::session_device_partitioned("boss", 0),
            reasons::session_device_partitioned_because("boss", "for the class", 0),
        ] {
            let told = stored(korean, &placed.text);
            assert_eq!(told, reason(korean, &placed), "{}", placed.text);
        }
        for own in ["", "It ate 3.", "running"] {
            assert_eq!(stored(korean, own), own);
        }
    }

    #[test]
    fn why_a_connection_failed_is_told_in_korean_with_the_raw_words_behind() {
        let korean = Text::new(Language::Korean);
        for failed in [
            reasons::connection_name_unknown(),
            reasons::connection_refused("os error 111"),
            reasons::connection_timed_out(),
            reasons::connection_unreachable("os error 101"),
            reasons::connection_untrusted("UnknownIssuer"),
            reasons::connection_unreadable("it is: none"),
            reasons::connection_status(503),
            reasons::connection_result(52),
            reasons::connection_account_refused(49),
            reasons::connection_mail_greeting("554 go away"),
            reasons::connection_mail_refused("RCPT", "550 5.7.1: who are you"),
        ] {
            let told = stored(korean, &failed.text);
            assert_eq!(told, reason(korean, &failed));
            assert_ne!(told, failed.text);
            if let Some((_, raw)) = failed.text.split_once(": ") {
                assert!(told.ends_with(raw), "{told}");
            }
        }
    }

    #[test]
    fn a_warning_keeps_its_figures_in_korean() {
        let korean = Text::new(Language::Korean);
        for (code, english, figures) in [
            (
                "certificate.ends-soon",
                "The site's certificate is valid for 12 more days, until 2026-12-01.",
                &["12일", "2026-12-01"][..],
            ),
            (
                "disk.low",
                "Only 512.3 MiB is free on the disk of the data directory.",
                &["512.3 MiB"],
            ),
            (
                "memory.overcommitted",
                "On alpha, sessions were allocated 12 GiB of 8 GiB of memory.",
                &["alpha", "12 GiB", "8 GiB"],
            ),
        ] {
            let told = notice(korean, code, english, "");
            assert_ne!(told, english, "{code}");
            for figure in figures {
                assert!(told.contains(figure), "{code}: {told}");
            }
        }
    }

    #[test]
    fn what_a_node_lacks_is_told_in_korean() {
        let korean = Text::new(Language::Korean);
        let of =
            |code: &str| Reason::from_parts(code.into(), "the kernel lacks it: mend it.".into());
        for code in [
            "node.lacks.no-time-namespace",
            "node.lacks.few-open-files",
            "node.refuses.no-overlay",
            "node.refuses.no-idmapped-mounts",
            "node.refuses.missing-controllers",
        ] {
            let told = reason(korean, &of(code));
            assert!(told.ends_with("세요."), "{code}: {told}");
            assert_eq!(reason(Text::default(), &of(code)), of(code).text);
        }
        let unknown = of("node.lacks.wings");
        assert_eq!(reason(korean, &unknown), unknown.text);
    }

    /// That Korean has a sentence, and that each value stands in both languages or is listed, the build checks.
    #[test]
    fn every_korean_sentence_can_be_filled() {
        let text = "가나다";
        for entry in &translations::TRANSLATIONS {
            let values = |sentence: &str| {
                let names = named(sentence);
                names
                    .map(|name| (name.to_owned(), text.to_owned()))
                    .collect()
            };
            for sentence in [entry.ko, entry.ko_bare] {
                let filled = filled(sentence, &values(sentence));
                let filled = filled.unwrap_or_else(|| panic!("{}: {sentence}", entry.code));
                assert!(
                    !filled.contains(":을/") && !filled.contains(":이/"),
                    "{filled}"
                );
            }
        }
    }
}
