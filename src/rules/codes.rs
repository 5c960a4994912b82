//! The stable codes of refusals, reasons and notes, as constants: what a program compares. Made of
//! `messages.toml` at build; nothing outside this room writes a code as text.

include!(concat!(env!("OUT_DIR"), "/codes.rs"));

/// What the codes of one family begin with.
pub mod family {
    /// Why a session stands where it does.
    pub const PLACEMENT: &str = "placement.";
    /// How a session ended.
    pub const SESSION: &str = "session.";
    /// What a machine cannot do for any session: `node.refuses.` and the name of what it lacks.
    pub const NODE_REFUSES: &str = "node.refuses.";
    /// What a machine cannot do for some sessions: `node.lacks.` and the name of what it lacks.
    pub const NODE_LACKS: &str = "node.lacks.";
    /// What a machine says of its own record.
    pub const NODE_RECORD: &str = "node.record-";
    pub const BACKUP: &str = "backup.";
    pub const SETTING: &str = "setting.";
    pub const CLOCK: &str = "clock.";
}
