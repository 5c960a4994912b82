//! Announcements: short texts that the readers of the console see for a time.

use rules::announcement::{Announcement, AnnouncementLevel};
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::values::AnnouncementLevelShape;

/// One announcement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Announcement)]
pub struct AnnouncementView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    /// Name of the domain whose users read it; null: those of the whole site.
    pub domain: Option<String>,
    #[schema(value_type = AnnouncementLevelShape)]
    pub level: AnnouncementLevel,
    /// Plain text, never markup.
    pub text: String,
    /// For readers in Korean; empty: they read `text`.
    pub text_ko: String,
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// Null: until it is removed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// Shown on the sign-in page as well.
    pub before_sign_in: bool,
    /// Version, and ETag.
    pub generation: u64,
}

impl AnnouncementView {
    /// `domain` is the name of its domain.
    pub fn new(announcement: Announcement, domain: Option<String>) -> Self {
        Self {
            id: announcement.id.0,
            domain,
            level: announcement.level,
            text: announcement.text,
            text_ko: announcement.text_ko,
            from: announcement.from,
            until: announcement.until,
            before_sign_in: announcement.before_sign_in,
            generation: announcement.generation,
        }
    }
}

/// What is left out: of the whole site, from now on until it is removed, after sign-in.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewAnnouncement)]
#[serde(deny_unknown_fields)]
pub struct NewAnnouncementBody {
    /// One paragraph of plain text, at most 500 characters.
    pub text: String,
    /// The same for readers in Korean.
    #[serde(default)]
    pub text_ko: Option<String>,
    #[serde(default = "info")]
    #[schema(value_type = AnnouncementLevelShape)]
    pub level: AnnouncementLevel,
    /// Name or id of the domain whose users read it.
    #[serde(default)]
    pub domain: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub from: Option<Timestamp>,
    /// At most 366 days after it begins.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// Of the whole site only.
    #[serde(default)]
    pub before_sign_in: bool,
}

fn info() -> AnnouncementLevel {
    AnnouncementLevel::Info
}

/// A merge patch: what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = AnnouncementPatch)]
#[serde(default, deny_unknown_fields)]
pub struct AnnouncementPatchBody {
    pub text: Option<String>,
    /// Empty: readers in Korean read `text`.
    pub text_ko: Option<String>,
    #[schema(value_type = Option<AnnouncementLevelShape>)]
    pub level: Option<AnnouncementLevel>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub from: Option<Timestamp>,
    /// A null lets it stay until it is removed.
    #[serde(deserialize_with = "crate::sessions::present")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Option<Timestamp>>,
    pub before_sign_in: Option<bool>,
}
