//! Compiles `web/i18n/en.toml` and `ko.toml`, and `launch_texts.toml` with both languages of a sentence beside each
//! other, into one method per sentence. A key or a placeholder that one language has and the other lacks stops the
//! build, with the name of what is missing.
//! Never falls back to another language: there is nothing to fall back from.
//!
//! A sentence may hold `{name}`; `{count|session|sessions}` (English number, `count` is a whole number);
//! and `{name:을/를}` (the value followed by the Korean particle its last sound asks for).

use std::collections::{BTreeMap, BTreeSet};

type Catalogue = BTreeMap<String, String>;

enum Piece {
    Words(String),
    Value(String),
    Number {
        of: String,
        one: String,
        many: String,
    },
    Particle {
        of: String,
        after_consonant: String,
        after_vowel: String,
    },
}

/// The Rust source of `impl Text`, or every fault found.
pub(crate) fn compile(english: &str, korean: &str, both: &str) -> Result<String, Vec<String>> {
    let mut faults = Vec::new();
    let mut en = read("en.toml", english, &mut faults);
    let mut ko = read("ko.toml", korean, &mut faults);
    read_both(both, &mut en, &mut ko, &mut faults);
    for key in en.keys().filter(|key| !ko.contains_key(*key)) {
        faults.push(format!("ko.toml lacks {key}"));
    }
    for key in ko.keys().filter(|key| !en.contains_key(*key)) {
        faults.push(format!("en.toml lacks {key}"));
    }
    let mut code = String::from("impl Text {\n");
    for (key, english) in &en {
        let Some(korean) = ko.get(key) else { continue };
        match (pieces(english), pieces(korean)) {
            (Ok(en), Ok(ko)) => method(key, english, &en, &ko, &mut code, &mut faults),
            (en, ko) => {
                faults.extend(en.err().map(|fault| format!("en.toml {key}: {fault}")));
                faults.extend(ko.err().map(|fault| format!("ko.toml {key}: {fault}")));
            }
        }
    }
    code.push_str("}\n");
    if faults.is_empty() {
        Ok(code)
    } else {
        Err(faults)
    }
}

fn read(file: &str, text: &str, faults: &mut Vec<String>) -> Catalogue {
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(fault) => {
            faults.push(format!("{file}: {fault}"));
            return Catalogue::new();
        }
    };
    let mut found = Catalogue::new();
    for (section, entries) in table {
        let Some(entries) = entries.as_table() else {
            faults.push(format!("{file}: {section} stands outside a section"));
            continue;
        };
        for (key, value) in entries {
            match value.as_str() {
                Some(text) => {
                    found.insert(format!("{section}.{key}"), text.to_owned());
                }
                None => faults.push(format!("{file}: {section}.{key} is not a string")),
            }
        }
    }
    found
}

/// Adds sentences with both languages, each a table with `en` and `ko`, to the catalogues of the two.
fn read_both(text: &str, en: &mut Catalogue, ko: &mut Catalogue, faults: &mut Vec<String>) {
    const FILE: &str = "launch_texts.toml";
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(fault) => {
            faults.push(format!("{FILE}: {fault}"));
            return;
        }
    };
    for (section, entries) in table {
        let Some(entries) = entries.as_table() else {
            faults.push(format!("{FILE}: {section} stands outside a section"));
            continue;
        };
        for (name, sentence) in entries {
            let key = format!("{section}.{name}");
            for (language, catalogue) in [("en", &mut *en), ("ko", &mut *ko)] {
                let Some(said) = sentence.get(language).and_then(toml::Value::as_str) else {
                    faults.push(format!("{FILE}: {key} has no {language}"));
                    continue;
                };
                if catalogue.insert(key.clone(), said.to_owned()).is_some() {
                    faults.push(format!("{FILE}: {key} stands in {language}.toml too"));
                }
            }
        }
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        if open > 0 {
            found.push(Piece::Words(rest[..open].to_owned()));
        }
        let Some(close) = rest[open..].find('}') else {
            return Err(format!("unclosed brace in {text:?}"));
        };
        let inside = &rest[open + 1..open + close];
        rest = &rest[open + close + 1..];
        if let Some((of, forms)) = inside.split_once('|') {
            let Some((one, many)) = forms.split_once('|') else {
                return Err(format!(
                    "{inside:?} needs two forms, as in {{n|session|sessions}}"
                ));
            };
            found.push(Piece::Number {
                of: of.into(),
                one: one.into(),
                many: many.into(),
            });
        } else if let Some((of, particle)) = inside.split_once(':') {
            let Some((after_consonant, after_vowel)) = particle.split_once('/') else {
                return Err(format!(
                    "{inside:?} needs two particles, as in {{name:을/를}}"
                ));
            };
            found.push(Piece::Particle {
                of: of.into(),
                after_consonant: after_consonant.into(),
                after_vowel: after_vowel.into(),
            });
        } else {
            found.push(Piece::Value(inside.to_owned()));
        }
    }
    if !rest.is_empty() {
        found.push(Piece::Words(rest.to_owned()));
    }
    let bad = found.iter().find_map(|piece| match piece {
        Piece::Words(_) => None,
        Piece::Value(of) | Piece::Number { of, .. } | Piece::Particle { of, .. } => {
            let fine = !of.is_empty() && of.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            (!fine).then(|| format!("placeholder {of:?} is not a lower-case name"))
        }
    });
    bad.map_or(Ok(found), Err)
}

fn names(pieces: &[Piece]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for piece in pieces {
        if let Piece::Value(of) | Piece::Number { of, .. } | Piece::Particle { of, .. } = piece
            && !found.contains(&of.as_str())
        {
            found.push(of);
        }
    }
    found
}

fn method(
    key: &str,
    english: &str,
    en: &[Piece],
    ko: &[Piece],
    code: &mut String,
    faults: &mut Vec<String>,
) {
    let parameters = names(en);
    let here: BTreeSet<&str> = parameters.iter().copied().collect();
    let there: BTreeSet<&str> = names(ko).into_iter().collect();
    for name in here.difference(&there) {
        faults.push(format!("ko.toml {key} lacks {{{name}}}"));
    }
    for name in there.difference(&here) {
        faults.push(format!("en.toml {key} lacks {{{name}}}"));
    }
    let name = key.replace(['.', '-'], "_");
    code.push_str(&format!("    /// {}\n", english.replace('\n', " ")));
    if parameters.is_empty() {
        code.push_str(&format!(
            "    pub fn {name}(self) -> &'static str {{ match self.language {{ Language::English => {:?}, Language::Korean => {:?} }} }}\n",
            words(en), words(ko),
        ));
        return;
    }
    let list: Vec<String> = parameters
        .iter()
        .map(|name| format!("{name}: impl ::std::fmt::Display"))
        .collect();
    code.push_str(&format!(
        "    pub fn {name}(self, {}) -> String {{ match self.language {{ Language::English => {}, Language::Korean => {} }} }}\n",
        list.join(", "), formatted(en), formatted(ko),
    ));
}

fn words(pieces: &[Piece]) -> String {
    pieces
        .iter()
        .map(|piece| {
            if let Piece::Words(words) = piece {
                words.as_str()
            } else {
                ""
            }
        })
        .collect()
}

fn formatted(pieces: &[Piece]) -> String {
    let mut template = String::new();
    let mut values = String::new();
    for piece in pieces {
        match piece {
            Piece::Words(words) => {
                template.push_str(words);
                continue;
            }
            Piece::Value(of) => values.push_str(&format!(", {of}")),
            Piece::Number { of, one, many } => {
                // Amounts are counted as they are written: 1 core, 0.5 cores.
                values.push_str(&format!(
                    ", if {of}.to_string() == \"1\" {{ {one:?} }} else {{ {many:?} }}"
                ));
            }
            Piece::Particle {
                of,
                after_consonant,
                after_vowel,
            } => {
                values.push_str(&format!(
                    ", josa(&{of}.to_string(), {after_consonant:?}, {after_vowel:?})"
                ));
            }
        }
        template.push_str("{}");
    }
    format!("format!({template:?}{values})")
}
