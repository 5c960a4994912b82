//! Looks of administrators into what is another user's, with the reasons that they typed.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Why the session of another user is entered, or the files of a folder are read.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewBreakGlass)]
#[serde(default, deny_unknown_fields)]
pub struct BreakGlassBody {
    /// In 10 to 200 characters; its owner reads it.
    #[schema(min_length = 10, max_length = 200)]
    pub reason: String,
    /// For how long; 60 where it is left out.
    #[schema(minimum = 5, maximum = 240)]
    pub minutes: Option<u32>,
}

/// What was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BreakGlassKind {
    /// It may be entered.
    Session,
    /// Its files may be read.
    Folder,
}

impl BreakGlassKind {
    pub const ALL: [Self; 2] = [Self::Session, Self::Folder];

    /// As rows and answers write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Folder => "folder",
        }
    }

    /// None for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// One look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BreakGlass)]
pub struct BreakGlassView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    pub kind: BreakGlassKind,
    /// Id of the session or the folder.
    #[schema(value_type = String, format = Uuid)]
    pub object: Uuid,
    pub name: String,
    /// Name of the user whose it is, or of the project.
    pub owner: String,
    /// Name of the administrator.
    pub actor: String,
    pub reason: String,
    #[schema(value_type = String, format = DateTime)]
    pub began_at: Timestamp,
    /// Until then at most.
    #[schema(value_type = String, format = DateTime)]
    pub ends_at: Timestamp,
    /// Null while it is open.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
}
