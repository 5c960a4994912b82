//! Values of flags as the API takes them: amounts, pairs, lengths of time, queries and paths. Sends nothing.

use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
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
    disk: Option<&str>,
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
    if let Some(disk) = disk {
        given.insert("disk".into(), json!(Bytes::parse(disk)?));
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
                        .hint(format!("Use --{flag} {word}=VALUE.")));
                }
            },
            _ => {
                return Err(
                    CliError::usage(format!("--{flag} {word:?} is not NAME=VALUE."))
                        .hint(format!("For example: --{flag} team=vision.")),
                );
            }
        }
    }
    Ok(Value::Object(given))
}

/// Reads `90`, `90s`, `30m`, `1h30m`, `2d` as seconds.
pub(super) fn seconds(words: &str) -> Result<u64, CliError> {
    let wrong = || {
        CliError::usage(format!("{words:?} is not a duration."))
            .hint("For example: 90s, 30m, 1h30m or 2d.")
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

/// Reads a time as users write it: `2h` or `7d` before `now`, a day, or RFC 3339. A day alone is one of UTC, and as an end
/// its last moment.
pub(super) fn moment(words: &str, ends: bool, now: Timestamp) -> Result<Timestamp, CliError> {
    if let Ok(at) = Timestamp::parse(words) {
        return Ok(at);
    }
    if let Ok(day) = words.parse::<jiff::civil::Date>() {
        let begin = Timestamp::parse(&format!("{day}T00:00:00Z"))?;
        return Ok(match ends {
            true => Timestamp::from_millis(begin.plus_seconds(86_400).as_millis() - 1),
            false => begin,
        });
    }
    let back = seconds(words)
        .ok()
        .and_then(|back| i64::try_from(back).ok());
    let back = back
        .and_then(|back| back.checked_mul(1000))
        .ok_or_else(|| {
            CliError::usage(format!("{words:?} is not a time."))
                .hint("For example: 2h, 7d, 2026-01-31 or 2026-01-31T18:00:00Z.")
        })?;
    Ok(Timestamp::from_millis(
        now.as_millis().saturating_sub(back).max(0),
    ))
}

/// The same for times to come: `2h` or `7d` is after `now`.
pub(super) fn ahead(words: &str, ends: bool, now: Timestamp) -> Result<Timestamp, CliError> {
    match seconds(words) {
        Ok(seconds) => Ok(now.plus_seconds(seconds)),
        Err(_) => moment(words, ends, now),
    }
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

/// Two pages as one: the items and names of both, the total of the first and the cursor of the second.
pub(super) fn joined(mut first: Value, mut second: Value) -> Value {
    if let (Some(all), Some(more)) = (
        first["items"].as_array_mut(),
        second["items"].as_array_mut(),
    ) {
        all.append(more);
    }
    // Not every list has names, and none gets them here.
    let names = |page: &mut Value| page.get_mut("names").map(Value::take);
    if let (Some(Value::Object(more)), Some(all)) = (
        names(&mut second),
        first.get_mut("names").and_then(Value::as_object_mut),
    ) {
        all.extend(more);
    }
    first["next_cursor"] = second["next_cursor"].take();
    first
}

/// Puts the name of its object into each item, for tables.
pub(super) fn named(body: &mut Value) {
    let names = body["names"].take();
    for event in body["items"].as_array_mut().into_iter().flatten() {
        let name = event["object"].as_str().map(|id| names[id].clone());
        event["name"] = name.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_users_write_them() {
        let at = |text: &str| Timestamp::parse(text).expect("a time");
        let now = at("2026-02-01T12:00:00Z");
        for (text, ends, wanted) in [
            ("2h", false, "2026-02-01T10:00:00Z"),
            ("1d", true, "2026-01-31T12:00:00Z"),
            ("2026-01-31", false, "2026-01-31T00:00:00Z"),
            ("2026-01-31", true, "2026-01-31T23:59:59.999Z"),
            ("2026-01-31T18:00:00+09:00", true, "2026-01-31T09:00:00Z"),
        ] {
            assert_eq!(moment(text, ends, now).ok(), Some(at(wanted)), "{text}");
        }
        for text in ["", "yesterday", "2026-13-01", "-2h", "99999999999999999d"] {
            assert!(moment(text, false, now).is_err(), "{text} was taken");
        }
        for (text, wanted) in [
            ("2h", "2026-02-01T14:00:00Z"),
            ("2026-02-03", "2026-02-03T23:59:59.999Z"),
            ("2026-02-03T18:00:00Z", "2026-02-03T18:00:00Z"),
        ] {
            assert_eq!(ahead(text, true, now).ok(), Some(at(wanted)), "{text}");
        }
        assert!(ahead("tomorrow", true, now).is_err());
    }

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
