//! What a launch asked for: kind, environment, command, variables, resources, limits, and the bounds on each.
//! Never says where a session stands (`state`) nor where it runs (`container`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::{ImageId, SessionId};
use crate::refusal::Refusal;
use crate::refusals;
use crate::resources::Demand;
use crate::units::Timestamp;

/// Whether a person works in it or a command ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    Interactive,
    Batch,
}

/// Which file system a session starts from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "from")]
pub enum SessionEnvironment {
    /// The machine's own programs, by the allow-list.
    Host,
    /// An imported image; `reference` is what people call it.
    Image { id: ImageId, reference: String },
}

impl SessionEnvironment {
    /// What people call it: `host`, or the image's reference.
    pub fn word(&self) -> &str {
        match self {
            Self::Host => "host",
            Self::Image { reference, .. } => reference,
        }
    }
}

/// What a person asked for; never changes after launch but for name, labels and demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSpec {
    pub kind: SessionKind,
    pub environment: SessionEnvironment,
    /// Program and arguments; empty means the environment's own (an interactive shell on `host`).
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub demand: Demand,
    /// Seconds a batch command may run; past it the session fails with `session.timeout`.
    pub timeout_seconds: Option<u64>,
    /// Seconds any session may run; past it the session is stopped with `session.max-runtime`.
    pub max_runtime_seconds: Option<u64>,
    pub start_at: Option<Timestamp>,
    /// Starts only after all of these ended well.
    pub depends_on: Vec<SessionId>,
    /// How many containers it has, on one node. `demand` is that of all of them together: queue, limits and ledger count a
    /// session once.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub containers: u32,
}

fn one() -> u32 {
    1
}

fn is_one(containers: &u32) -> bool {
    *containers == 1
}

/// Bounds on the free text of a launch. A row must stay small: the whole world is read at once.
pub const MAX_ARGUMENT_LENGTH: usize = 128 << 10;
pub const MAX_ARGUMENTS: usize = 4096;
pub const MAX_VARIABLES: usize = 512;
pub const MAX_LABELS: usize = 64;
pub const MAX_LABEL_LENGTH: usize = 256;
pub const MAX_REPLICAS: u32 = 500;
/// Containers of one session. Higher: one start takes all supervisors of a node at once. Lower: no work over all cards of
/// a large node, one container each.
pub const MAX_CONTAINERS: u32 = 20;
pub const MAX_DEPENDENCIES: usize = 64;
/// All text of one spec together, bytes.
pub const MAX_SPEC_BYTES: usize = 256 << 10;
/// Longest limit or delay a person may set: ten years.
pub const MAX_RUN_SECONDS: u64 = 10 * 366 * 86_400;

impl SessionSpec {
    /// Seconds that it may run by the limits its owner set, and the code of the limit that comes first.
    pub fn limit(&self) -> Option<(u64, &'static str)> {
        let timeout = match self.kind {
            SessionKind::Batch => self.timeout_seconds.map(|s| (s, "session.timeout")),
            SessionKind::Interactive => None,
        };
        let max_runtime = self.max_runtime_seconds.map(|s| (s, "session.max-runtime"));
        [timeout, max_runtime].into_iter().flatten().min()
    }

    /// What each of its containers has: an equal part of `demand`.
    pub fn of_each(&self) -> Demand {
        self.demand.part_of(self.containers)
    }

    /// Bytes of its command and its variables.
    pub fn bytes(&self) -> u64 {
        let words = self.command.iter().map(String::len);
        let variables = self
            .env
            .iter()
            .map(|(name, value)| name.len() + value.len());
        words.chain(variables).map(|bytes| bytes as u64).sum()
    }
}

/// A text that people type, by what it is: each has refusals of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextField {
    Command,
    Env,
    Exec,
    Image,
    Label,
    Note,
    Query,
    Token,
    Upload,
}

impl TextField {
    fn too_long(self, bytes: usize, longest: usize) -> Refusal {
        match self {
            Self::Command => refusals::command_word_too_long(bytes, longest),
            Self::Env => refusals::env_too_long(bytes, longest),
            Self::Exec => refusals::exec_too_long(bytes, longest),
            Self::Image => refusals::image_too_long(bytes, longest),
            Self::Label => refusals::label_too_long(bytes, longest),
            Self::Note => refusals::note_too_long(bytes, longest),
            Self::Query => refusals::query_too_long(bytes, longest),
            Self::Token => refusals::token_too_long(bytes, longest),
            Self::Upload => refusals::upload_name_of_too_many_bytes(bytes, longest),
        }
    }

    fn nul(self) -> Refusal {
        match self {
            Self::Command => refusals::command_nul(),
            Self::Env => refusals::env_nul(),
            Self::Exec => refusals::exec_nul(),
            Self::Image => refusals::image_nul(),
            Self::Label => refusals::label_nul(),
            Self::Note => refusals::note_nul(),
            Self::Query => refusals::query_nul(),
            Self::Token => refusals::token_nul(),
            Self::Upload => refusals::upload_nul(),
        }
    }

    fn hidden_characters(self) -> Refusal {
        match self {
            Self::Label => refusals::label_hidden_characters(),
            Self::Note => refusals::note_hidden_characters(),
            Self::Query => refusals::query_hidden_characters(),
            Self::Token => refusals::token_hidden_characters(),
            Self::Upload => refusals::upload_hidden_characters(),
            Self::Command => refusals::command_hidden_characters(),
            Self::Env => refusals::env_hidden_characters(),
            Self::Exec => refusals::exec_hidden_characters(),
            Self::Image => refusals::image_hidden_characters(),
        }
    }
}

/// Refuses text that is too long or holds a NUL byte (which ends a C string inside).
pub fn text(field: TextField, pointer: &str, value: &str, longest: usize) -> Result<(), Refusal> {
    if value.len() > longest {
        return Err(field.too_long(value.len(), longest).at(pointer));
    }
    if value.contains('\0') {
        return Err(field.nul().at(pointer));
    }
    Ok(())
}

/// Whether a character turns the reading direction of what stands around it.
pub fn turns_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a text has such a mark. O(bytes): a mark is looked at where its first byte stands, which few texts have.
pub fn has_turned_direction(text: &str) -> bool {
    let marks_at = |at: usize| text.get(at..).and_then(|rest| rest.chars().next());
    let mut bytes = text.bytes().enumerate();
    bytes.any(|(at, byte)| matches!(byte, 0xd8 | 0xe2) && marks_at(at).is_some_and(turns_direction))
}

/// Whether a character is invisible: a control, a mark of direction, a space without width, a tag.
pub fn hidden(c: char) -> bool {
    c.is_control()
        || turns_direction(c)
        || matches!(c, '\u{00ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Refuses control characters and marks that turn the reading direction: what a person reads on a
/// page must be what is stored.
pub fn plain(field: TextField, pointer: &str, value: &str) -> Result<(), Refusal> {
    if value.chars().any(hidden) {
        return Err(field.hidden_characters().at(pointer));
    }
    Ok(())
}

/// Names a cycle among dependencies, as the ids along it; None where there is none.
///
/// `edges` gives what each session depends on. Costs one visit a session and an edge.
pub fn cycle(
    start: SessionId,
    edges: impl Fn(SessionId) -> Vec<SessionId>,
) -> Option<Vec<SessionId>> {
    let mut path = vec![start];
    let mut todo = vec![edges(start)];
    let mut done = std::collections::BTreeSet::new();
    while let Some(next) = todo.last_mut() {
        match next.pop() {
            Some(id) if id == start => {
                path.push(id);
                return Some(path);
            }
            Some(id) if path.contains(&id) || done.contains(&id) => {}
            Some(id) => {
                path.push(id);
                todo.push(edges(id));
            }
            None => {
                todo.pop();
                if let Some(id) = path.pop() {
                    done.insert(id);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> SessionId {
        SessionId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn a_cycle_is_named() {
        let edges = |s: SessionId| match s.0.as_u128() {
            1 => vec![id(2), id(3)],
            2 => vec![id(3)],
            3 => vec![id(1)],
            _ => vec![],
        };
        assert!(cycle(id(1), edges).is_some());
        assert_eq!(cycle(id(4), edges), None);
    }

    #[test]
    fn a_text_has_a_mark_of_direction_where_one_of_its_characters_is_one() {
        for c in (0..0x3000).filter_map(char::from_u32) {
            for text in [format!("{c}"), format!("a – {c}…"), format!("세션{c} é")] {
                let one_of = text.chars().any(turns_direction);
                assert_eq!(has_turned_direction(&text), one_of, "{text:?}");
            }
        }
        assert!(!has_turned_direction(""));
    }
}
