//! What the sessions of a user start with: dotfiles, a script, variables. No answer has the value of a variable.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::secret::SecretText;

/// A file that sessions of its user have in their home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Dotfile)]
pub struct DotfileView {
    /// Below the home.
    pub path: String,
    /// Its permission bits in octal, such as `600`.
    pub mode: String,
    pub bytes: u64,
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Timestamp,
}

/// One of them with what is in it. Only its user gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DotfileContent)]
pub struct DotfileContentView {
    pub path: String,
    pub mode: String,
    pub content: String,
}

/// A file as it is to be.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewDotfile)]
#[serde(deny_unknown_fields)]
pub struct NewDotfileBody {
    /// Below the home, such as `.config/git/config`; `~/` may stand before it.
    #[schema(min_length = 1, max_length = 255)]
    pub path: String,
    /// Permission bits in octal; its owner may read it.
    #[serde(default = "private")]
    #[schema(pattern = "^0?[4-7][0-7]{2}$")]
    pub mode: String,
    /// Text, at most 64 KiB; 256 KiB of all files together.
    #[schema(max_length = 65_536)]
    pub content: String,
}

fn private() -> String {
    "600".to_owned()
}

/// The script that runs once in each session before its command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = StartupScript)]
pub struct StartupScriptView {
    pub script: String,
    /// A session ends where the script fails; else its command runs all the same.
    pub ends_session: bool,
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Timestamp,
}

/// The script as it is to be.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewStartupScript)]
#[serde(deny_unknown_fields)]
pub struct NewStartupScriptBody {
    /// Text, at most 64 KiB; `/bin/sh` runs it where its first line names nothing else.
    #[schema(min_length = 1, max_length = 65_536)]
    pub script: String,
    #[serde(default)]
    pub ends_session: bool,
}

/// A variable that sessions of its user have. Its value is told to nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OwnVariable)]
pub struct OwnVariableView {
    pub name: String,
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Timestamp,
}

/// A variable as it is to be.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewVariable)]
#[serde(deny_unknown_fields)]
pub struct NewVariableBody {
    /// Letters, digits and underscores; none that the session itself sets.
    #[schema(max_length = 64, pattern = "^[A-Za-z_][A-Za-z0-9_]*$")]
    pub name: String,
    /// At most 8 KiB. It is kept sealed, and never shown again.
    #[schema(value_type = String, max_length = 8_192)]
    pub value: SecretText,
}
