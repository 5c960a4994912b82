//! Accounts, tokens and sign-in. A user itself is `rules::users::User`.

use rules::names::TokenId;
use rules::units::Timestamp;
use rules::users::Role;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::secret::SecretText;
use crate::sessions::Owner;
use crate::values::RoleShape;

/// What a user may set about themselves; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Preferences)]
#[serde(deny_unknown_fields, default)]
pub struct UserPreferences {
    /// `en`, `ko`, or empty for what the browser asks.
    pub language: Option<String>,
    /// `light`, `dark` or `system`.
    pub theme: Option<String>,
    /// IANA name such as `Asia/Seoul`; empty means UTC.
    pub time_zone: Option<String>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Token)]
pub struct TokenView {
    #[schema(value_type = String, format = Uuid)]
    pub id: TokenId,
    pub name: String,
    /// What it may do.
    pub scopes: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Null: good until it is revoked.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// To the minute.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub used_at: Option<Timestamp>,
    pub used_from: Option<String>,
    /// Networks that it may be used from; empty: everywhere.
    #[serde(default)]
    pub networks: Vec<String>,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = NewUser)]
#[serde(deny_unknown_fields)]
pub struct NewUserBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    #[serde(default = "ordinary")]
    #[schema(value_type = RoleShape)]
    pub role: Role,
    #[schema(value_type = String, format = Password, min_length = 10)]
    pub password: SecretText,
    /// Name of the domain; left out: the caller's own.
    #[serde(default)]
    pub domain: Option<String>,
}

fn ordinary() -> Role {
    Role::User
}

/// What becomes of the running sessions of a user who leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DepartingSessions {
    #[default]
    Stop,
    /// They run until `until` at most.
    Finish,
}

/// What is left out: running sessions stop now.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = DepartureRequest)]
#[serde(deny_unknown_fields, default)]
pub struct DepartureBody {
    pub sessions: DepartingSessions,
    /// For `finish`: within 90 days.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// Whom the folders of a user who leaves are offered to, or who gets the reservations.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = FolderHandOver)]
#[serde(deny_unknown_fields)]
pub struct FolderHandOverBody {
    /// Name of a user of the same domain.
    pub to: String,
}

/// What a departure ends, or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Departure)]
pub struct DepartureView {
    pub user: Owner,
    /// Sessions that have a place: they stop, or run until then at most.
    pub running: u64,
    /// Sessions that wait: they are cancelled.
    pub waiting: u64,
    pub sign_ins: u64,
    pub tokens: u64,
    pub invitations: u64,
    /// Roles on projects, domains and the site.
    pub roles: u64,
    /// SSH keys and access keys.
    #[serde(default)]
    pub keys: u64,
    /// Folders, which go to the trash with the account.
    #[serde(default)]
    pub folders: u64,
    /// Those of them that are offered to another owner: what is taken before stays there.
    #[serde(default)]
    pub offered: u64,
    /// Reservations for them, which are cancelled unless they are handed over before.
    #[serde(default)]
    pub reservations: u64,
    /// Images of their own, which stay.
    #[serde(default)]
    pub images: u64,
    /// Names of the projects that they lead.
    #[serde(default)]
    pub leads: Vec<String>,
    /// From when on the account is removed, once its last session is over.
    #[schema(value_type = String, format = DateTime)]
    pub departs_at: Timestamp,
}

/// What is left out stays.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = UserPatch)]
#[serde(deny_unknown_fields, default)]
pub struct UserPatchBody {
    #[schema(value_type = Option<RoleShape>)]
    pub role: Option<Role>,
    /// What people call them; empty: nothing.
    #[schema(max_length = 254)]
    pub full_name: Option<String>,
    /// Signs in as the name does; empty: none.
    #[schema(max_length = 254)]
    pub email: Option<String>,
    /// Networks that they may come from, such as `10.1.0.0/16`; an empty list: everywhere.
    #[schema(value_type = Option<Vec<NetworkShape>>, max_items = 16)]
    pub networks: Option<Vec<String>>,
    /// When the account of a guest ends; a null takes the end away.
    #[serde(
        deserialize_with = "crate::sessions::present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Option<Timestamp>>,
}

/// An address, or a network in CIDR form; JSON Schema has no format for it.
#[derive(ToSchema)]
#[schema(as = Network, pattern = "^[0-9A-Fa-f:.]{2,39}(/[0-9]{1,3})?$")]
#[allow(dead_code, reason = "written into the OpenAPI document only")]
struct NetworkShape(String);

#[derive(Deserialize, ToSchema)]
#[schema(as = NewPassword)]
#[serde(deny_unknown_fields)]
pub struct NewPasswordBody {
    #[schema(value_type = String, format = Password, min_length = 10)]
    pub password: SecretText,
    /// Whether all tokens of the user are revoked too; they are unless this is false.
    pub revoke_tokens: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = SuspendRequest)]
#[serde(deny_unknown_fields)]
pub struct SuspendBody {
    pub suspended: bool,
    /// With a suspension: whether the sessions of the user stop, too, those that wait among them.
    #[serde(default)]
    pub stop_sessions: bool,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = PasswordChange)]
#[serde(deny_unknown_fields)]
pub struct PasswordChangeBody {
    #[schema(value_type = String, format = Password)]
    pub old: SecretText,
    #[schema(value_type = String, format = Password)]
    pub new: SecretText,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = NewToken)]
#[serde(deny_unknown_fields)]
pub struct NewTokenBody {
    #[schema(min_length = 1, max_length = 64)]
    pub name: String,
    #[schema(min_items = 1)]
    pub scopes: Vec<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// Networks that it may be used from, such as `10.1.0.0/16`; an empty list: everywhere, or where the token of this request
    /// may.
    #[serde(default)]
    #[schema(value_type = Vec<NetworkShape>, max_items = 16)]
    pub networks: Vec<String>,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = SignInRequest)]
#[serde(deny_unknown_fields)]
pub struct SignInBody {
    pub name: String,
    #[schema(value_type = String, format = Password)]
    pub password: SecretText,
    /// Of an account with a second factor: the code that the app shows, or a recovery code.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = Password)]
    pub code: Option<SecretText>,
    /// What the token will be called.
    #[serde(default = "some_client")]
    pub token_name: String,
    #[serde(default)]
    pub expires_seconds: Option<u64>,
}

/// A key by which a program signs its requests. Its secret is given to its maker alone, this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AccessKey)]
pub struct AccessKeyView {
    #[schema(value_type = String, format = Uuid)]
    pub id: TokenId,
    /// Names the key in each request; no secret.
    pub key: String,
    pub name: String,
    pub scopes: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Null: it does not expire.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// To the minute.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub used_at: Option<Timestamp>,
    /// Address it was last used from.
    pub used_from: Option<String>,
    /// Networks that it may be used from; empty: everywhere.
    #[serde(default)]
    pub networks: Vec<String>,
}

/// A new access key with its secret, which is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeAccessKey {
    pub key: AccessKeyView,
    pub secret: String,
}

/// A link by which a user signs in once. What it carries is given to its maker alone, this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SignInLink)]
pub struct SignInLinkView {
    /// Name of the user who made it.
    pub actor: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

/// What is left out: it can be used within a day.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewSignInLink)]
#[serde(deny_unknown_fields)]
pub struct NewSignInLinkBody {
    /// Minutes that it can be used, up to seven days.
    #[serde(default)]
    #[schema(minimum = 10, maximum = 10_080)]
    pub valid_minutes: Option<u32>,
}

/// A new sign-in link, which is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeSignInLink {
    pub link: SignInLinkView,
    /// One for each address of the server.
    pub links: Vec<String>,
    /// What the links carry.
    pub code: String,
}

/// One signed-in browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SignIn)]
pub struct SignInView {
    pub id: Uuid,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// To the minute.
    #[schema(value_type = String, format = DateTime)]
    pub used_at: Timestamp,
    /// Ends then in any case, and after 12 hours without a request.
    #[schema(value_type = String, format = DateTime)]
    pub ends_at: Timestamp,
    /// Address it signed in from.
    pub source: String,
    /// Program and system, such as `Firefox, Windows`; empty where they are not known.
    pub browser: String,
    /// The caller's own browser.
    pub current: bool,
}

/// What a token is called whose client gives it no name.
pub fn some_client() -> String {
    "API client".to_owned()
}

#[derive(Deserialize, ToSchema)]
#[schema(as = SetupRequest)]
#[serde(deny_unknown_fields)]
pub struct SetupBody {
    /// From the one-time link that the server printed.
    #[schema(value_type = String, format = Password)]
    pub code: SecretText,
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    #[schema(value_type = String, format = Password, min_length = 10)]
    pub password: SecretText,
}

/// A new token with its secret, which is shown this once.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    pub token: TokenView,
    pub secret: String,
}

/// Who signed in, and their token with its secret.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SignedIn {
    pub user: Owner,
    pub token: TokenView,
    pub secret: String,
}
