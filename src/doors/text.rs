//! Every sentence the product says, in English and Korean, as methods made from `web/i18n` at build time.
//! Never holds a sentence in code, and never guesses a language: callers bring one.

pub mod codes;
#[cfg(test)]
mod terms;
pub mod visible;

use std::fmt;

/// A language the catalogue has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    #[default]
    English,
    Korean,
}

impl Language {
    /// The two-letter code as HTML, cookies and headers write it.
    pub fn code(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Korean => "ko",
        }
    }

    /// The language of a code such as `ko` or `ko-KR`; none for one the catalogue lacks.
    pub fn from_code(code: &str) -> Option<Language> {
        match code.split(['-', '_']).next()?.to_ascii_lowercase().as_str() {
            "en" => Some(Language::English),
            "ko" => Some(Language::Korean),
            _ => None,
        }
    }

    /// The best of an `Accept-Language` header; English when it names none of ours.
    pub fn accepted(header: &str) -> Language {
        let mut best = (0.0_f32, Language::English);
        for part in header.split(',') {
            let mut pieces = part.trim().split(';');
            let Some(language) = pieces.next().and_then(Language::from_code) else {
                continue;
            };
            let weight = pieces
                .find_map(|p| p.trim().strip_prefix("q=").and_then(|q| q.parse().ok()))
                .unwrap_or(1.0);
            if weight > best.0 {
                best = (weight, language);
            }
        }
        best.1
    }

    /// The other one, for the switch in the top bar.
    pub fn other(self) -> Language {
        match self {
            Language::English => Language::Korean,
            Language::Korean => Language::English,
        }
    }

    /// How the language calls itself.
    pub fn own_name(self) -> &'static str {
        match self {
            Language::English => "English",
            Language::Korean => "한국어",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// The catalogue in one language; every method is one sentence. Copying costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pub language: Language,
}

impl Text {
    /// The catalogue in that language.
    pub fn new(language: Language) -> Text {
        Text { language }
    }
}

include!(concat!(env!("OUT_DIR"), "/sentences.rs"));

/// The word followed by the Korean particle that its last sound asks for.
///
/// `after_consonant` follows a closed syllable (을, 은, 이, 과, 으로), `after_vowel` an open one (를, 는, 가,
/// 와, 로). For 으로/로 a final ㄹ counts as open. Digits go by their Sino-Korean reading and Latin letters by
/// the sound they usually end with; other signs at the end are passed over. Empty words take the open form.
pub fn josa(word: &str, after_consonant: &str, after_vowel: &str) -> String {
    enum Sound {
        Open,
        Rieul,
        Closed,
    }
    let last = word.chars().rev().find_map(|c| {
        Some(match c {
            '가'..='힣' => match (c as u32 - 0xAC00) % 28 {
                0 => Sound::Open,
                8 => Sound::Rieul,
                _ => Sound::Closed,
            },
            '0' | '3' | '6' => Sound::Closed,
            '1' | '7' | '8' => Sound::Rieul,
            '2' | '4' | '5' | '9' => Sound::Open,
            // Most final consonants of foreign words gain a vowel in Korean (test 테스트, disk 디스크).
            'l' | 'L' => Sound::Rieul,
            'm' | 'M' | 'n' | 'N' => Sound::Closed,
            c if c.is_ascii_alphabetic() => Sound::Open,
            _ => return None,
        })
    });
    let closed = match last {
        Some(Sound::Closed) => true,
        Some(Sound::Rieul) => after_consonant != "으로",
        Some(Sound::Open) | None => false,
    };
    format!(
        "{word}{}",
        if closed { after_consonant } else { after_vowel }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particles_follow_the_last_sound() {
        let table = [
            ("세션", "을", "를", "세션을"),
            ("이미지", "을", "를", "이미지를"),
            ("노드", "은", "는", "노드는"),
            ("서울", "으로", "로", "서울로"),
            ("집", "으로", "로", "집으로"),
            ("GPU 1", "으로", "로", "GPU 1로"),
            ("GPU 2", "이", "가", "GPU 2가"),
            ("0.60", "으로", "로", "0.60으로"),
            ("train", "이", "가", "train이"),
            ("host", "을", "를", "host를"),
            ("model", "으로", "로", "model로"),
            ("(이미지)", "을", "를", "(이미지)를"),
            ("", "을", "를", "를"),
        ];
        for (word, consonant, vowel, expected) in table {
            assert_eq!(josa(word, consonant, vowel), expected, "{word}");
        }
    }

    #[test]
    fn the_best_accepted_language_wins() {
        let table = [
            ("ko-KR,ko;q=0.9,en-US;q=0.8", Language::Korean),
            ("en-US,en;q=0.9,ko;q=0.8", Language::English),
            ("fr;q=1, ko;q=0.3", Language::Korean),
            ("fr", Language::English),
            ("", Language::English),
        ];
        for (header, expected) in table {
            assert_eq!(Language::accepted(header), expected, "{header}");
        }
    }
}
