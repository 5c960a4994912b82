//! Values of flags as the API takes them: amounts, pairs, lengths of time, queries and paths. Sends nothing.

use rules::units::{Bytes, CpuShare, GpuShare};
use serde_json::{Map, Value, json};

use super::Surroundings;
use super::client::encoded;
use super::error::CliError;

/// The path of one session.
pub(super) fn path(session: &str) -> String {
    format!("/api/v1/sessions/{}", encoded(session))
}

/// What was given of devices.
#[derive(Default)]
pub(super) struct GpuArguments<'a> {
    pub share: Option<&'a str>,
    pub memory: Option<&'a str>,
    pub mig: Option<&'a str>,
}

/// The amounts that were given, as the API takes them: numbers, bytes.
pub(super) fn resources(
    cpu: Option<&str>,
    mem: Option<&str>,
    shm: Option<&str>,
    gpu: &GpuArguments<'_>,
) -> Result<Map<String, Value>, CliError> {
    let mut given = Map::new();
    if let Some(cpu) = cpu {
        given.insert("cpu".into(), json!(CpuShare::parse(cpu)?));
    }
    if let Some(mem) = mem {
        given.insert("memory".into(), json!(Bytes::parse(mem)?));
    }
    if let Some(shm) = shm {
        given.insert("shm".into(), json!(Bytes::parse(shm)?));
    }
    if let Some(share) = gpu.share {
        let share = GpuShare::parse(share).map_err(|refusal| refusal.at("/resources/gpu"))?;
        given.insert("gpu".into(), json!(share));
    }
    if let Some(memory) = gpu.memory {
        given.insert("gpu_memory".into(), json!(Bytes::parse(memory)?));
    }
    if let Some(mig) = gpu.mig {
        given.insert("mig".into(), json!(rules::devices::MigProfile::parse(mig)?));
    }
    Ok(given)
}

/// `NAME=VALUE` words as an object; with `around`, a bare NAME passes the caller's own value on.
pub(super) fn pairs(
    words: &[String],
    around: Option<&Surroundings>,
    flag: &str,
) -> Result<Value, CliError> {
    let mut given = Map::new();
    for word in words {
        match (word.split_once('='), around) {
            (Some((name, value)), _) if !name.is_empty() => {
                given.insert(name.to_owned(), value.into());
            }
            (None, Some(around)) if !word.is_empty() => match (around.variable)(word) {
                Some(value) => {
                    given.insert(word.clone(), value.into());
                }
                None => {
                    return Err(CliError::usage(format!("{word} is not set here."))
                        .hint(format!("--{flag} {word}=VALUE would work.")));
                }
            },
            _ => {
                return Err(
                    CliError::usage(format!("--{flag} {word:?} is not NAME=VALUE."))
                        .hint(format!("--{flag} team=vision would work.")),
                );
            }
        }
    }
    Ok(Value::Object(given))
}

/// Reads `90`, `90s`, `30m`, `1h30m`, `2d` as seconds.
pub(super) fn seconds(words: &str) -> Result<u64, CliError> {
    let wrong = || {
        CliError::usage(format!("{words:?} is not a length of time."))
            .hint("90s, 30m, 1h30m or 2d would work.")
    };
    let mut total: u64 = 0;
    let mut number = String::new();
    for letter in words.trim().chars() {
        if letter.is_ascii_digit() {
            number.push(letter);
            continue;
        }
        let unit = match letter {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(wrong()),
        };
        let count: u64 = number.parse().map_err(|_| wrong())?;
        number.clear();
        total = count
            .checked_mul(unit)
            .and_then(|n| n.checked_add(total))
            .ok_or_else(wrong)?;
    }
    if !number.is_empty() {
        if total > 0 {
            return Err(wrong());
        }
        total = number.parse().map_err(|_| wrong())?;
    } else if words.trim().is_empty() {
        return Err(wrong());
    }
    Ok(total)
}

/// The query of a list, without empty parts.
pub(super) fn query(parts: &[(&str, String)]) -> String {
    let words: Vec<String> = parts
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    if words.is_empty() {
        String::new()
    } else {
        format!("?{}", words.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_as_users_write_them() {
        for (text, n) in [
            ("90", 90),
            ("90s", 90),
            ("30m", 1800),
            ("1h30m", 5400),
            ("2d", 172_800),
        ] {
            assert_eq!(seconds(text).ok(), Some(n), "{text}");
        }
        for text in ["", "m", "-1", "1y", "1h30", "99999999999999999999d"] {
            assert!(seconds(text).is_err(), "{text} was taken");
        }
    }
}
