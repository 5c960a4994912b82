//! Compiles `src/rules/messages.toml`, the catalogue of what the product tells people, into one typed
//! constructor per sentence, one constant per code, and the table that translations are looked up in.
//! A fault of the catalogue (no Korean, a value that no sentence of the entry has, a code that is none)
//! stops the build with the name of the entry. Never reads anything but the catalogue.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

/// An entry that has no constructor: the Korean name of a check, or what would mend one that hands on words
/// of another part.
const NOTE: &str = "note";
/// What the codes of checks begin with, and the names of their entries.
const CHECK: &str = "check.";
const CHECK_NAME: &str = "check_";
/// How a check comes out, with the function that makes it.
const CHECKS: [(&str, &str); 3] = [(WELL, "ok"), ("warning", "warn"), ("failure", "fail")];
const REASON: &str = "reason";
const BLOCKER: &str = "blocker";
const NOTICE: &str = "notice";
const WELL: &str = "well";
/// The kinds that are no refusals and have a constructor, with what it makes and the file that holds them.
const OTHERS: [(&str, &str, &str); 3] = [
    (REASON, "Reason", "reasons.rs"),
    (BLOCKER, "PlacementBlocker", "blockers.rs"),
    (NOTICE, "Notice", "notices.rs"),
];
/// A kind as the catalogue writes it, with the `RefusalKind` of its refusals.
const REFUSALS: [(&str, &str); 12] = [
    ("malformed", "Malformed"),
    ("unauthenticated", "Unauthenticated"),
    ("denied", "Denied"),
    ("not-found", "NotFound"),
    ("conflict", "Conflict"),
    ("stale", "Stale"),
    ("invalid", "Invalid"),
    ("capacity", "Capacity"),
    ("too-large", "TooLarge"),
    ("too-often", "TooOften"),
    ("unavailable", "Unavailable"),
    ("failed-dependency", "FailedDependency"),
];

/// One sentence of the catalogue.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    code: String,
    kind: String,
    #[serde(default)]
    en: String,
    /// What would work; empty where nothing would.
    #[serde(default)]
    hint: String,
    /// Says both in Korean.
    ko: String,
    /// Said where values are missing: older releases stored such sentences.
    #[serde(default)]
    ko_bare: String,
    /// Values that go along although the Korean sentence does not name them.
    #[serde(default)]
    values: Vec<String>,
    /// Values that only the English sentences name.
    #[serde(default)]
    english_only: Vec<String>,
}

#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a build script reads its source and talks to cargo; the room's lints are for the room"
)]
fn main() {
    let room = PathBuf::from(
        std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory"),
    );
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets the output directory"));
    let file = room.join("messages.toml");
    println!("cargo::rerun-if-changed={}", file.display());
    println!("cargo::rerun-if-changed=../../packaging/messages.rs");
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|fault| panic!("{}: {fault}", file.display()));
    let messages: BTreeMap<String, Message> = match toml::from_str(&text) {
        Ok(messages) => messages,
        Err(fault) => {
            println!(
                "cargo::error=messages.toml: {}",
                fault.to_string().replace('\n', " ")
            );
            return;
        }
    };
    let faults: Vec<String> = messages
        .iter()
        .flat_map(|(name, m)| faults(name, m))
        .collect();
    for fault in &faults {
        println!("cargo::error=messages.toml: {fault}");
    }
    if !faults.is_empty() {
        return;
    }
    let others = OTHERS.map(|(kind, made, file)| {
        let is_of = |message: &Message| message.kind == kind;
        (file, constructors(&messages, made, is_of))
    });
    let refusals = |message: &Message| is_refusal(&message.kind);
    for (name, source) in [
        ("codes.rs", codes(&messages)),
        ("refusals.rs", constructors(&messages, "Refusal", refusals)),
        ("checks.rs", checks(&messages)),
        ("translations.rs", table(&messages)),
    ]
    .into_iter()
    .chain(others)
    {
        std::fs::write(out.join(name), source).expect("OUT_DIR is writable");
    }
}

/// The names in a sentence's braces, in their order, each once. Other braces are text.
fn names(sentence: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in sentence.split('{').skip(1) {
        let inside = part.split_once('}').map_or("", |(inside, _)| inside);
        let name = inside.split_once(':').map_or(inside, |(name, _)| name);
        let is_name = !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if is_name && !all.iter().any(|known| known == name) {
            all.push(name.to_owned());
        }
    }
    all
}

impl Message {
    /// The parameters of its constructor: of the English sentences, then what only Korean names, then the rest.
    fn parameters(&self) -> Vec<String> {
        let mut all = names(&self.en);
        let later = [names(&self.hint), names(&self.ko), self.values.clone()];
        for name in later.into_iter().flatten() {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        all
    }

    /// The values that go along with the sentences.
    fn carried(&self) -> BTreeSet<String> {
        names(&self.ko)
            .into_iter()
            .chain(self.values.iter().cloned())
            .collect()
    }
}

/// The function that makes a check of that kind; none for other kinds.
fn check(kind: &str) -> Option<&'static str> {
    let mut all = CHECKS.iter();
    all.find(|(known, _)| *known == kind).map(|(_, made)| *made)
}

fn is_refusal(kind: &str) -> bool {
    REFUSALS.iter().any(|(known, _)| *known == kind)
}

/// What is wrong with one entry; empty where it is well.
fn faults(name: &str, message: &Message) -> Vec<String> {
    let mut all = Vec::new();
    let word = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
    };
    if !word(&message.code) {
        all.push(format!(
            "{name}: the code {:?} has other characters than a-z 0-9 . -",
            message.code
        ));
    }
    let is_other = |(kind, ..): &(&str, &str, &str)| *kind == message.kind;
    let is_check = check(&message.kind).is_some();
    let constructed = is_check || is_refusal(&message.kind) || OTHERS.iter().any(is_other);
    if !constructed && message.kind != NOTE {
        all.push(format!("{name}: {:?} is no kind", message.kind));
    }
    if constructed == message.en.is_empty() {
        all.push(format!(
            "{name}: a note has no English sentence, every other entry has one"
        ));
    }
    let is_note = message.kind == NOTE;
    let is_named = message.code.starts_with(CHECK) && name.starts_with(CHECK_NAME);
    if is_note && !message.code.starts_with(CHECK) {
        all.push(format!("{name}: a note is about a check; write a notice"));
    }
    if is_check && !is_named {
        all.push(format!(
            "{name}: a check is named {CHECK_NAME}…, its code {CHECK}…"
        ));
    }
    if is_check && !message.carried().is_empty() {
        all.push(format!(
            "{name}: no value goes along with a {}, so Korean names none",
            message.kind
        ));
    }
    let has_hint = !message.hint.is_empty();
    if [REASON, BLOCKER, WELL].contains(&message.kind.as_str()) && has_hint {
        all.push(format!("{name}: a {} has no hint", message.kind));
    }
    if is_check && message.kind != WELL && !has_hint {
        all.push(format!(
            "{name}: a {} says what would mend it",
            message.kind
        ));
    }
    if message.ko.is_empty() {
        all.push(format!("{name}: it has no Korean sentence"));
    }
    let (korean, carried) = (names(&message.ko), message.carried());
    let listed: BTreeSet<&String> = message.english_only.iter().collect();
    for value in names(&message.en).into_iter().chain(names(&message.hint)) {
        if !carried.contains(&value) && !listed.contains(&value) {
            all.push(format!(
                "{name}: ko does not say {{{value}}}; say it, or list it in english_only"
            ));
        }
    }
    for value in message.english_only.iter().chain(&message.values) {
        if korean.contains(value) {
            all.push(format!(
                "{name}: ko says {{{value}}}, so it needs no listing"
            ));
        }
    }
    for value in names(&message.ko_bare) {
        if !carried.contains(&value) {
            all.push(format!(
                "{name}: ko_bare says {{{value}}}, which does not go along"
            ));
        }
    }
    all
}

fn constant(code: &str) -> String {
    code.replace(['.', '-'], "_").to_uppercase()
}

fn codes(messages: &BTreeMap<String, Message>) -> String {
    let codes: BTreeSet<&str> = messages.values().map(|m| m.code.as_str()).collect();
    let mut source = String::new();
    for code in &codes {
        writeln!(source, "pub const {}: &str = {code:?};", constant(code)).expect("text grows");
    }
    writeln!(
        source,
        "/// Every code, sorted.\npub const ALL: &[&str] = &{codes:?};"
    )
    .expect("text grows");
    // A set is printed in braces.
    source.replace("&{\"", "&[\"").replace("\"};", "\"];")
}

/// A sentence as the format string of `format!`.
fn format(sentence: &str, parameters: &[String]) -> String {
    let mut text = sentence.replace('{', "{{").replace('}', "}}");
    for name in parameters {
        text = text.replace(&format!("{{{{{name}}}}}"), &format!("{{{name}}}"));
    }
    text
}

/// The expression that makes a sentence.
fn sentence(text: &str, parameters: &[String]) -> String {
    if names(text).is_empty() {
        format!("{text:?}")
    } else {
        format!("format!({:?})", format(text, parameters))
    }
}

fn constructors(
    messages: &BTreeMap<String, Message>,
    made: &str,
    is_of: impl Fn(&Message) -> bool,
) -> String {
    let mut source = String::new();
    for (name, message) in messages.iter().filter(|(_, message)| is_of(message)) {
        // A notice carries its sentence alone; its readers find the values in it.
        let carried = match message.kind.as_str() {
            NOTICE => BTreeSet::new(),
            _ => message.carried(),
        };
        let parameters = message.parameters();
        let arguments: Vec<String> = parameters
            .iter()
            .map(|name| format!("{name}: impl Display"))
            .collect();
        let doc = format!("`{}`: {} {}", message.code, message.en, message.hint);
        write!(
            source,
            "#[doc = {:?}]\npub fn {name}({}) -> {made} {{\n",
            doc.trim_end(),
            arguments.join(", ")
        )
        .expect("text grows");
        for name in parameters.iter().filter(|name| carried.contains(*name)) {
            writeln!(source, "    let {name} = {name}.to_string();").expect("text grows");
        }
        let code = format!("crate::codes::{}", constant(&message.code));
        let text = sentence(&message.en, &parameters);
        match REFUSALS.iter().find(|(kind, _)| *kind == message.kind) {
            Some((_, kind)) => {
                write!(
                    source,
                    "    Refusal::new(RefusalKind::{kind}, {code}, {text})"
                )
            }
            None => write!(source, "    {made}::new({code}, {text})"),
        }
        .expect("text grows");
        if !message.hint.is_empty() {
            write!(
                source,
                "\n        .hint({})",
                sentence(&message.hint, &parameters)
            )
            .expect("text grows");
        }
        for name in parameters.iter().filter(|name| carried.contains(*name)) {
            write!(source, "\n        .with({name:?}, {name})").expect("text grows");
        }
        source.push_str("\n}\n");
    }
    source
}

/// One function for each way in which a check comes out, under the name of its entry without `check_`.
fn checks(messages: &BTreeMap<String, Message>) -> String {
    let mut source = String::new();
    for (name, message) in messages {
        let Some(made) = check(&message.kind) else {
            continue;
        };
        let (parameters, id) = (message.parameters(), &message.code[CHECK.len()..]);
        let arguments: Vec<String> = parameters
            .iter()
            .map(|name| format!("{name}: impl Display"))
            .collect();
        let doc = format!("`{id}`: {} {}", message.en, message.hint);
        let mut said = sentence(&message.en, &parameters);
        if message.kind != WELL {
            write!(said, ", {}", sentence(&message.hint, &parameters)).expect("text grows");
        }
        write!(
            source,
            "#[doc = {:?}]\npub fn {}({}) -> DoctorCheck {{\n    DoctorCheck::{made}({id:?}, {said})\n}}\n",
            doc.trim_end(),
            &name[CHECK_NAME.len()..],
            arguments.join(", ")
        )
        .expect("text grows");
    }
    source
}

/// All entries by code; of one code, what names most values first.
fn table(messages: &BTreeMap<String, Message>) -> String {
    let mut all: Vec<&Message> = messages.values().collect();
    all.sort_by_key(|m| (&m.code, std::cmp::Reverse(names(&m.ko).len())));
    let mut source = format!(
        "pub static TRANSLATIONS: [Translation; {}] = [\n",
        all.len()
    );
    for m in all {
        writeln!(
            source,
            "    Translation {{ code: {:?}, en: {:?}, hint: {:?}, ko: {:?}, ko_bare: {:?} }},",
            m.code, m.en, m.hint, m.ko, m.ko_bare
        )
        .expect("text grows");
    }
    source.push_str("];\n");
    source
}
