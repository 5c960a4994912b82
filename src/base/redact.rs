//! Takes what is secret out of a text. Errs on the side of taking out: a value that is harmless and
//! gone costs a question, a password that went along costs a box.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// A pattern, the word that stands in its place, and the group that is replaced (0: all of it).
struct Rule {
    pattern: Regex,
    word: &'static str,
    group: usize,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    [
        (r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)", "private key", 0),
        (r"\$(?:argon2(?:id|i|d)?|2[abxy]|5|6|y|scrypt|pbkdf2[a-z0-9-]*)\$[^\s\x22']+", "password hash", 0),
        (r"AGE-SECRET-KEY-1[A-Z0-9]+", "private key", 0),
        (r"\bfardel_[A-Za-z0-9_-]{16,}", "token", 0),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", "token", 0),
        (r"\b[A-HJ-NP-Z2-9]{4}(?:-[A-HJ-NP-Z2-9]{4}){3}\b", "setup code", 0),
        (r"/(?:login/link|join)\?code=([A-Za-z0-9_-]+)", "link", 1),
        (r"(?i)\b(?:proxy-)?authorization\b\s*[:=]\s*([^\r\n]+)", "credentials", 1),
        (r"(?i)\b(?:set-)?cookie\b\s*[:=]\s*([^\r\n]+)", "cookie", 1),
        (r"://([^/\s:@]+:[^/\s@]+)@", "credentials", 1),
        (
            r#"(?i)\b[a-z0-9_.-]*(?:password|passwd|passphrase|secret(?:[_-]?key)?|api[_-]?key|private[_-]?key|access[_-]?key|auth[_-]?token|[_-]token|\btoken)\b["']?\s*[:=]\s*(?:Bearer\s+)?("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',;}&]+)"#,
            "value",
            1,
        ),
    ]
    .into_iter()
    .map(|(pattern, word, group)| Rule {
        pattern: Regex::new(pattern).expect("every pattern is compiled by a test"),
        word,
        group,
    })
    .collect()
});

/// The text without its secrets, and how many places were taken out. Costs one pass a rule.
pub fn secrets(text: &str) -> (String, usize) {
    let mut clean = text.to_owned();
    let mut count = 0;
    for rule in RULES.iter() {
        let replaced = rule.pattern.replace_all(&clean, |found: &Captures<'_>| {
            let whole = found.get(0).map_or("", |m| m.as_str());
            let Some(part) = found.get(rule.group) else {
                return whole.to_owned();
            };
            if part.as_str().starts_with("[taken out")
                || matches!(part.as_str(), "null" | "true" | "false" | "\"\"")
            {
                return whole.to_owned();
            }
            count += 1;
            let start = part.start() - found.get(0).map_or(0, |m| m.start());
            let quoted = if part.as_str().starts_with('"') {
                "\""
            } else {
                ""
            };
            format!(
                "{}{quoted}[taken out: {}]{quoted}{}",
                &whole[..start],
                rule.word,
                &whole[start + part.len()..]
            )
        });
        if let std::borrow::Cow::Owned(replaced) = replaced {
            clean = replaced;
        }
    }
    (clean, count)
}

/// The text without these names, where they stand as words of their own, and how many were taken out.
pub fn users(text: &str, names: &[String]) -> (String, usize) {
    let wanted: Vec<String> = names.iter().map(|name| regex::escape(name)).collect();
    // A pattern that cannot be made would take nothing out; then the text does not go along at all.
    let Ok(pattern) = Regex::new(&format!(r"\b(?:{})\b", wanted.join("|"))) else {
        return (
            "[taken out: the names in this text could not be looked for]".to_owned(),
            1,
        );
    };
    if names.is_empty() {
        return (text.to_owned(), 0);
    }
    let count = pattern.find_iter(text).count();
    (
        pattern.replace_all(text, "[taken out: user]").into_owned(),
        count,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_secrets_are_gone_and_their_surroundings_stay() {
        for (line, secret, left) in [
            (
                "setup http://10.0.0.1:7860/setup?code=VQM2-9Y9Y-BGAT-Y9CW (once)",
                "VQM2-9Y9Y-BGAT-Y9CW",
                "(once)",
            ),
            (
                "made token fardel_Zm9vYmFyYmF6cXV1eA-_x1 for ci",
                "Zm9vYmFyYmF6cXV1eA",
                "for ci",
            ),
            (
                "Authorization: Bearer abc.def.ghi",
                "abc.def",
                "Authorization:",
            ),
            (
                "cookie: __Host-fardel=s3cr3tc00kie; theme=dark",
                "s3cr3tc00kie",
                "cookie:",
            ),
            (
                "hash $argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA next",
                "aGFzaA",
                "next",
            ),
            (
                r#"{"password": "a long walk", "name": "mina"}"#,
                "a long walk",
                "mina",
            ),
            (r#"{"password":"with \" quote","x":1}"#, "quote", "\"x\":1"),
            ("DB_PASSWORD=hunter2 PATH=/bin", "hunter2", "PATH=/bin"),
            (
                "WANDB_API_KEY: 0123456789abcdef",
                "0123456789abcdef",
                "WANDB_API_KEY",
            ),
            (
                "backup_passphrase = 'correct horse'",
                "correct horse",
                "backup_passphrase",
            ),
            (
                "pull from https://robot:pa55@registry.lan/v2",
                "pa55",
                "registry.lan/v2",
            ),
            (
                "-----BEGIN PRIVATE KEY-----\nMIIEvQ\nAAAA\n-----END PRIVATE KEY-----\nafter",
                "MIIEvQ",
                "after",
            ),
            (
                "-----BEGIN EC PRIVATE KEY-----\ncut0ff",
                "cut0ff",
                "taken out",
            ),
            ("HF_TOKEN=hf_AbCdEf x", "hf_AbCdEf", "HF_TOKEN"),
            ("BACKEND_SECRET_KEY=q1w2e3r4 python", "q1w2e3r4", "python"),
            (
                "see http://10.0.0.1/login/link?code=Zm9v-YmFy_x1 once",
                "Zm9v-YmFy_x1",
                "once",
            ),
            (
                "sent https://gpu.lab/join?code=QmFy-Zm9v_y2 to the class",
                "QmFy-Zm9v_y2",
                "to the class",
            ),
            (
                "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln end",
                "eyJzdWIi",
                "end",
            ),
            ("AGE-SECRET-KEY-1QQPZRY9X8 here", "QQPZRY9X8", "here"),
        ] {
            let (clean, count) = secrets(line);
            assert!(!clean.contains(secret), "{line} became {clean}");
            assert!(clean.contains(left), "{line} became {clean}");
            assert!(count >= 1, "{line}");
        }
    }

    #[test]
    fn names_are_taken_out_as_words() {
        let names = ["mina".to_owned(), "jae.kim".to_owned()];
        let (text, count) = users(
            "mina stopped it; jae.kim and jaexkim and minaret look on",
            &names,
        );
        assert_eq!(
            (text.as_str(), count),
            (
                "[taken out: user] stopped it; [taken out: user] and jaexkim and minaret look on",
                2
            )
        );
        assert_eq!(users("nobody", &[]), ("nobody".to_owned(), 0));
    }

    #[test]
    fn what_is_no_secret_stays() {
        for line in [
            "sha256:4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a",
            "session 01a1fec6-a758-7c96-a84b-198eb9e0ff6a ended with 137",
            r#"{"token": null, "secret": ""}"#,
            "setting.unknown-key: keep_dayz; did you mean keep_days?",
            "listens on 0.0.0.0:7860 since 2026-11-21T12:00:00Z",
        ] {
            assert_eq!(secrets(line), (line.to_owned(), 0));
        }
    }
}
