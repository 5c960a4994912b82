//! Limits of each process in a session that a launch may raise: memory that it locks, and its stack. What it locks counts
//! against the memory of the session like all other memory, so no policy bounds it. Pure; never sets a limit.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::refusals;
use crate::units::{Bytes, quoted};

/// Stacks that a launch may ask for. Higher: a process with many threads maps more than its machine has. Lower: programs
/// with deep recursion end.
pub const MAX_STACK: Bytes = Bytes::gib(1);
/// Below this, hardly any program starts.
pub const MIN_STACK: Bytes = Bytes::mib(1);

/// Limits of processes; the usual ones where nothing is said. As text: `memlock=unlimited,stack=64m`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProcessLimits {
    /// A process may lock as much memory as its session has.
    pub memlock: bool,
    /// Bytes of the stack of its first thread, and of others by default.
    pub stack: Option<Bytes>,
}

impl ProcessLimits {
    /// The usual limits: nothing is raised.
    pub const USUAL: Self = Self {
        memlock: false,
        stack: None,
    };
    /// What NVIDIA recommends for the frameworks of its registry.
    pub const NGC: Self = Self {
        memlock: true,
        stack: Some(Bytes::mib(64)),
    };

    /// Reads `memlock=unlimited,stack=64m`, with `-1` for unlimited too; `default` and nothing are the usual ones.
    ///
    /// Errors: `ulimits.invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let wrong = || refusals::ulimits_invalid(quoted(text), MIN_STACK, MAX_STACK);
        let mut read = Self::USUAL;
        let text = text.trim();
        if text.is_empty() || text == "default" {
            return Ok(read);
        }
        for part in text.split(',') {
            match part.trim().split_once('=') {
                Some(("memlock", "unlimited" | "-1")) => read.memlock = true,
                Some(("memlock", "default")) => read.memlock = false,
                Some(("stack", "default")) => read.stack = None,
                Some(("stack", size)) => {
                    let size = Bytes::parse(size).map_err(|_| wrong())?;
                    if !(MIN_STACK..=MAX_STACK).contains(&size) {
                        return Err(wrong());
                    }
                    read.stack = Some(size);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(read)
    }

    /// Whether nothing is raised.
    pub fn is_usual(&self) -> bool {
        *self == Self::USUAL
    }
}

impl fmt::Display for ProcessLimits {
    /// As `parse` reads it; nothing for the usual ones.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.memlock {
            parts.push("memlock=unlimited".to_owned());
        }
        if let Some(Bytes(bytes)) = self.stack {
            let (size, unit) = match bytes {
                whole if whole.is_multiple_of(1 << 20) => (whole >> 20, "m"),
                other => (other, ""),
            };
            parts.push(format!("stack={size}{unit}"));
        }
        f.write_str(&parts.join(","))
    }
}

impl From<ProcessLimits> for String {
    fn from(limits: ProcessLimits) -> Self {
        limits.to_string()
    }
}

impl TryFrom<String> for ProcessLimits {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|refusal| refusal.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_processes_are_read_as_they_are_written() {
        for (text, limits, written) in [
            ("", ProcessLimits::USUAL, ""),
            (" default ", ProcessLimits::USUAL, ""),
            (
                "memlock=-1, stack=67108864",
                ProcessLimits::NGC,
                "memlock=unlimited,stack=64m",
            ),
            (
                "stack=1048577",
                ProcessLimits {
                    memlock: false,
                    stack: Some(Bytes(1_048_577)),
                },
                "stack=1048577",
            ),
            ("stack=2m,stack=default", ProcessLimits::USUAL, ""),
        ] {
            let read = ProcessLimits::parse(text).expect("limits");
            assert_eq!((read, read.to_string().as_str()), (limits, written));
            assert_eq!(ProcessLimits::parse(written), Ok(read));
        }
    }

    #[test]
    fn what_is_no_limit_of_a_process_has_a_code() {
        for text in [
            "memlock",
            "memlock=4g",
            "nofile=10",
            "stack=",
            "stack=1023k",
            "stack=1025m",
            "stack=unlimited",
            ",",
        ] {
            let refusal = ProcessLimits::parse(text).expect_err(text);
            assert_eq!(refusal.code, crate::codes::ULIMITS_INVALID, "{text}");
        }
    }
}
