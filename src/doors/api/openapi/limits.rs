//! What a shape cannot say by its types: patterns, lengths and rules across fields, so that a client knows
//! before it asks. Never checks anything: the actions do, and a rule that only they can tell (a name that is
//! taken, a password that is too common, a length in bytes) is not here.

use rules::announcement::MAX_ANNOUNCEMENT_LENGTH;
use rules::branding::{HUES, MAX_BRAND_NAME, MAX_FOOTER_LENGTH, MAX_LOGO_BYTES, MAX_SIGN_IN_TEXT};
use rules::code_run::MAX_CODE_BYTES;
use rules::commit::{MAX_EXCLUDED, MAX_EXCLUDED_LENGTH};
use rules::egress::NetworkMode;
use rules::fair_share::QueueOrder;
use rules::folder::{HOME, MAX_FOLDER_NAME};
use rules::idleness::{EXTEND_SECONDS, MAX_EXEMPT_LENGTH};
use rules::image::MAX_REFERENCE_LENGTH;
use rules::permissions::Permission;
use rules::policy::BackfillMode;
use rules::preset::MAX_PRESET_TITLE;
use rules::resources::{MAX_DISK, MIN_DISK};
use rules::session::{
    MAX_ARGUMENT_LENGTH, MAX_ARGUMENTS, MAX_DEPENDENCIES, MAX_LABEL_LENGTH, MAX_LABELS,
    MAX_RUN_SECONDS, MAX_VARIABLES,
};
use rules::webhook::{MAX_WEBHOOK_ADDRESS, MAX_WEBHOOK_KIND, MAX_WEBHOOK_KINDS};
use serde_json::{Map, Value, json};

/// Characters that a user does not see, those above U+FFFF left out: not every dialect of patterns can
/// write them.
const HIDDEN: &str = r"\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb";
/// The format by which a type of `api` says that a text is plain. The document has the pattern in its place.
const PLAIN_TEXT: &str = "plain-text";
/// Blanks besides the hidden ones.
const BLANKS: &str = r" \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000";
/// Text that may end up in a C string.
const NO_NUL: &str = r"^[^\u0000]*$";
const SESSION_NAME: &str = "^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$";
const VARIABLE_NAME: &str = "^[A-Za-z_][A-Za-z0-9_]{0,255}$";
const VARIABLE: &str = r"^[^=\u0000]+=[^\u0000]*$";
const PROFILE: &str = r"^[1-7]g\.[1-9][0-9]{0,2}gb(\+me)?$";
/// A host, a path and a tag; an id of an image fits too.
const IMAGE: &str = r"^([a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*(:[0-9]+)?/)?[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*(/[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*)*(:[A-Za-z0-9._-]{1,128})?$";
const HOST_NAME: &str = r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$";
/// Topics of the journal in either number, and nothing between two commas.
const TOPICS: &str = "^ *((session|image|user|project|node|gpu|operation|system)s? *)?(, *((session|image|user|project|node|gpu|operation|system)s? *)?)*$";
/// An address, or nothing.
const EMAIL: &str = r"^(|[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*)$";
/// A PNG file of 1 to 2,048 pixels a side in base64: the sides stand behind the beginning that all have.
const PNG: &str = r"^iVBORw0KGgoAAAANSUhEUgAA((A[B-Za-z0-9+/][AEIMQUYcgkosw048]|AA[EIMQUYcgkosw048]|B[A-Za-z0-9+/][AEIMQUYcgkosw048])A|CAAA)AA(A[B-Za-z0-9+/]|[B-Za-f][A-Za-z0-9+/]|gA)([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";
/// A day from 1970 on, or a time of one: local, or with `Z` or an offset.
const TYPED_TIME: &str = r"^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?)?$";
/// The name of an app, or a port.
const APP: &str = "^([a-z]([a-z0-9-]{0,30}[a-z0-9])?|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$";
/// A month, or nothing.
const MONTH: &str = "^(|(19[7-9][0-9]|[2-8][0-9]{3})-(0[1-9]|1[0-2]))$";
/// An address over TLS. Neither programs of this machine, which may go without, nor hosts that are an IP address are said
/// here: generated requests would name machines of strangers.
const WEBHOOK: &str = r"^https://([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?|([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)(:([1-9][0-9]{0,3}|[1-5][0-9]{4}))?([/?][!$%&'()*+,./0-9:;=?@A-Z\[\]_a-z~-]*)?$";
/// A name of a host that no address looks like, and a port.
const TARGET: &str =
    r"^[a-z]([a-z0-9-]{0,30}[a-z0-9])?(\.[a-z]([a-z0-9-]{0,30}[a-z0-9])?){1,3}:[1-9][0-9]{0,3}$";
/// The line of an Ed25519 key. Keys of the other kinds are taken too and not said here: hardly any text that looks like one
/// is one.
const SSH_KEY: &str =
    r"^ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-P][A-Za-z0-9+/]{42}( [!-~]{1,60})?$";
/// The id of a run of code.
const RUN_ID: &str = "^[A-Za-z0-9._-]{1,64}$";
/// A path below the home, of at most `MAX_DOTFILE_DEPTH` names.
const DOTFILE_PATH: &str = r"^(~/)?(\.{0,2}[!-\-0-\[\]-~][!-.0-\[\]-~]*|\.{3}[!-.0-\[\]-~]*)(/(\.{0,2}[!-\-0-\[\]-~][!-.0-\[\]-~]*|\.{3}[!-.0-\[\]-~]*)){0,7}$";
/// A text in which something stands.
const SCRIPT: &str = r"^[^\u0000]*[!-~][^\u0000]*$";
/// Hours with at most two decimals, up to `MAX_BUDGET_HUNDREDTHS`.
const GPU_HOURS: &str = "^0*([0-9]{1,9}([.][0-9]{1,2})?|1000000000([.]0{1,2})?)$";
/// Hours from 1 to a year's, or nothing.
const HALF_LIFE: &str = "^(|0*([1-9][0-9]{0,2}|[1-7][0-9]{3}|8[0-6][0-9]{2}|87[0-5][0-9]|8760))$";
/// A price of nothing.
const FREE: &str = "^(0{1,7}([.]0{1,6})?)?$";
/// The fields of `Limits`.
const LIMITS: [&str; 15] = [
    "waiting",
    "waiting_bytes",
    "sessions",
    "gpu",
    "cpu",
    "memory",
    "gpu_each",
    "cpu_each",
    "memory_each",
    "disk_each",
    "runtime_seconds",
    "priority",
    "sign_ins",
    "folder_bytes",
    "images",
];
/// The fields of `IdleThresholds`.
const THRESHOLDS: [&str; 4] = ["gpu_percent", "cpu", "terminals", "keys"];
/// Shares have two decimals and seven digits before them.
const MAX_SHARE: f64 = 9_999_999.99;
/// About what a program's context takes of its slice of a device.
const MIN_SLICE: u64 = rules::devices::CONTEXT_OVERHEAD.0;

fn plain() -> String {
    format!("^[^{HIDDEN}]*$")
}

/// Plain text that is more than blanks.
fn named() -> String {
    format!("^[^{HIDDEN}]*[^{HIDDEN}{BLANKS}][^{HIDDEN}]*$")
}

/// Plain text without `/` and `:`, with no blank at its ends, and neither `.` nor `..`.
fn folder_name() -> String {
    let (inner, last) = (format!("[^{HIDDEN}/:]"), format!("[^{HIDDEN}{BLANKS}/:]"));
    let plain = format!("[^{HIDDEN}{BLANKS}./:]");
    format!("^({plain}({inner}*{last})?|\\.({plain}|{inner}+{last}))$")
}

/// The name of a folder that a user makes: the home folder makes itself.
fn own_folder() -> Value {
    json!({"pattern": folder_name(), "maxLength": MAX_FOLDER_NAME, "not": {"const": HOME}})
}

/// A path below a folder, or none: names that are more than dots, short enough in letters of any length.
fn below_folder() -> String {
    let name = format!("[^/%{HIDDEN}]{{0,20}}[^/%.{HIDDEN}][^/%{HIDDEN}]{{0,20}}");
    format!("^({name}(/{name}){{0,15}})?$")
}

/// The same, and not none.
fn in_folder() -> Value {
    json!({"pattern": below_folder(), "minLength": 1})
}

/// An archive or a bundle lies in an upload or, for root on the machine, at a path.
fn one_archive() -> Value {
    json!({
        "if": {"required": ["upload"], "properties": {"upload": {"type": "string"}}},
        "then": {"properties": {"path": {"type": "null"}}},
        "else": {"required": ["path"], "properties": {"path": {"type": "string"}}},
    })
}

fn image() -> Value {
    json!({"pattern": IMAGE, "maxLength": MAX_REFERENCE_LENGTH})
}

/// Text for users. The actions count bytes: as many characters fit only where each is one.
fn text(longest: usize) -> Value {
    json!({"pattern": plain(), "maxLength": longest})
}

/// One of these words; an empty one is one that was left out.
fn word_or_none<'a>(words: impl IntoIterator<Item = &'a str>) -> Value {
    let words: Vec<&str> = [""].into_iter().chain(words).collect();
    json!({"type": "string", "enum": words})
}

/// Words of a search.
fn words() -> Value {
    json!({"type": "string", "pattern": plain(), "maxLength": 1024})
}

fn password() -> Value {
    json!({"pattern": NO_NUL, "minLength": 10, "maxLength": 1024})
}

fn webhook_address() -> Value {
    json!({"pattern": WEBHOOK, "maxLength": MAX_WEBHOOK_ADDRESS})
}

fn ssh_key() -> Value {
    json!({"pattern": SSH_KEY, "maxLength": 256})
}

fn gpu_hours() -> Value {
    json!({"pattern": GPU_HOURS})
}

fn typed_time() -> Value {
    json!({"pattern": TYPED_TIME})
}

/// A day, a moment, or nothing.
fn day_or_moment() -> Value {
    json!({"anyOf": [{"format": "date"}, {"format": "date-time"}, {"maxLength": 0}]})
}

/// Letters of the names of time zones.
fn time_zone() -> Value {
    json!({"pattern": "^[A-Za-z0-9_+/-]*$", "maxLength": 64, "examples": ["Asia/Seoul"]})
}

/// At least one of these numbers is given. Field by field: generators of requests seldom meet what a `not` leaves.
fn given(numbers: &[&str]) -> Value {
    numbers
        .iter()
        .map(|name| json!({"required": [name], "properties": {(*name): {"type": "number"}}}))
        .collect()
}

fn webhook_kinds() -> Value {
    json!({
        "minItems": 1,
        "maxItems": MAX_WEBHOOK_KINDS,
        "items": {"pattern": "^[a-z]([a-z.-]*[a-z])?$", "maxLength": MAX_WEBHOOK_KIND},
    })
}

/// Targets are by name here; addresses, networks and patterns are taken and not said: generated requests would name machines of
/// strangers.
fn egress() -> Value {
    json!({
        "properties": {
            "networks": {"items": {"enum": NetworkMode::ALL.map(NetworkMode::word)}},
            "targets": {"items": {"pattern": TARGET}},
        },
        "anyOf": [
            {"required": ["networks"], "properties": {"networks": {"minItems": 1}}},
            {"properties": {"targets": {"maxItems": 0}}},
        ],
    })
}

fn labels() -> Value {
    json!({
        "maxProperties": MAX_LABELS,
        "propertyNames": {"pattern": plain(), "minLength": 1, "maxLength": MAX_LABEL_LENGTH},
        "additionalProperties": {"pattern": plain(), "maxLength": MAX_LABEL_LENGTH},
    })
}

fn seconds() -> Value {
    json!({"minimum": 1, "maximum": MAX_RUN_SECONDS})
}

/// No `multipleOf`: validators that divide floating numbers say that 0.29 is no multiple of 0.01.
fn share() -> Value {
    json!({"minimum": 0.01, "maximum": MAX_SHARE})
}

/// A limit of shares; 0 gives none.
fn amount() -> Value {
    json!({"minimum": 0, "maximum": MAX_SHARE})
}

/// Where in the schemas, and what is said there besides.
fn all() -> Vec<(&'static str, Value)> {
    let scopes: Vec<&str> = Permission::ALL.iter().map(|verb| verb.word()).collect();
    vec![
        (
            "/LaunchRequest/properties/name",
            json!({"pattern": SESSION_NAME}),
        ),
        ("/LaunchRequest/properties/image", image()),
        (
            "/LaunchRequest/properties/command",
            json!({
                "maxItems": MAX_ARGUMENTS,
                "items": {"pattern": NO_NUL, "maxLength": MAX_ARGUMENT_LENGTH},
                // The first word is the program to run.
                "not": {"minItems": 1, "prefixItems": [{"const": ""}]},
            }),
        ),
        (
            "/LaunchRequest/properties/env",
            json!({
                "maxProperties": MAX_VARIABLES,
                "propertyNames": {"pattern": VARIABLE_NAME},
                "additionalProperties": {"pattern": NO_NUL, "maxLength": MAX_ARGUMENT_LENGTH},
            }),
        ),
        ("/LaunchRequest/properties/labels", labels()),
        ("/LaunchRequest/properties/timeout_seconds", seconds()),
        ("/LaunchRequest/properties/max_runtime_seconds", seconds()),
        (
            "/LaunchRequest/properties/depends_on",
            json!({"maxItems": MAX_DEPENDENCIES}),
        ),
        (
            // A time limit of the command is for batch sessions, and what the machine's own programs are to do
            // in one has to be said.
            "/LaunchRequest",
            json!({
                "if": {"required": ["timeout_seconds"], "properties": {"timeout_seconds": {"type": "integer"}}},
                "then": {"required": ["kind"], "properties": {"kind": {"const": "batch"}}},
                "dependentSchemas": {
                    "kind": {
                        "if": {"properties": {"kind": {"const": "batch"}, "image": {"const": "host"}}},
                        "then": {"required": ["command"], "properties": {"command": {"minItems": 1}}},
                    },
                    "yields": {
                        "if": {"properties": {"yields": {"const": true}}},
                        "then": {"required": ["kind"], "properties": {"kind": {"const": "batch"}}},
                    },
                },
            }),
        ),
        ("/NewIdleRule/properties/exempt", text(MAX_EXEMPT_LENGTH)),
        ("/IdleRulePatch/properties/exempt", text(MAX_EXEMPT_LENGTH)),
        ("/IdleThresholds/properties/cpu", share()),
        (
            // A rule has a threshold. The site has no name. What may be kept is kept for 20 minutes at least.
            "/NewIdleRule",
            json!({
                "required": ["below"],
                "properties": {
                    "below": {"anyOf": given(&THRESHOLDS)},
                    "extend_seconds": {"maximum": EXTEND_SECONDS.end()},
                },
                "if": {"properties": {"level": {"const": "site"}}},
                "then": {"properties": {"subject": {"enum": ["", null]}}},
                "else": {
                    "required": ["subject"],
                    "properties": {"subject": {"type": "string", "minLength": 1}},
                },
                "dependentSchemas": {
                    "extend_seconds": {
                        "if": {"required": ["extend_times"], "properties": {"extend_times": {"const": 0}}},
                        "else": {"properties": {"extend_seconds": {"minimum": EXTEND_SECONDS.start()}}},
                    },
                },
            }),
        ),
        (
            "/IdleRulePatch/properties/below",
            json!({"anyOf": [{"type": "null"}, {"anyOf": given(&THRESHOLDS)}]}),
        ),
        (
            "/IdleRulePatch/properties/extend_seconds",
            json!({"maximum": EXTEND_SECONDS.end()}),
        ),
        ("/NewBudget/properties/month", json!({"pattern": MONTH})),
        ("/NewBudget/properties/from", day_or_moment()),
        ("/NewBudget/properties/until", day_or_moment()),
        ("/NewBudget/properties/gpu_hours", gpu_hours()),
        ("/BudgetPatch/properties/gpu_hours", gpu_hours()),
        ("/NewReservationQuota/properties/gpu_hours", gpu_hours()),
        ("/NewResourceGroup/properties/kinds", json!({"minItems": 1})),
        (
            "/ResourceGroupPatch/properties/kinds",
            json!({"minItems": 1}),
        ),
        ("/NewPreset/properties/title", text(MAX_PRESET_TITLE)),
        ("/NewPreset/properties/title_ko", text(MAX_PRESET_TITLE)),
        ("/PresetPatch/properties/title", text(MAX_PRESET_TITLE)),
        ("/PresetPatch/properties/title_ko", text(MAX_PRESET_TITLE)),
        ("/NewPreset/properties/max_runtime_seconds", seconds()),
        ("/PresetPatch/properties/max_runtime_seconds", seconds()),
        ("/NewCourse/properties/max_runtime_seconds", seconds()),
        ("/CoursePatch/properties/max_runtime_seconds", seconds()),
        ("/NewCourse/properties/from", typed_time()),
        ("/NewCourse/properties/to", typed_time()),
        ("/NewCourse/properties/time_zone", time_zone()),
        ("/CoursePatch/properties/from", typed_time()),
        ("/CoursePatch/properties/to", typed_time()),
        ("/CoursePatch/properties/time_zone", time_zone()),
        ("/NewReservation/properties/from", typed_time()),
        ("/NewReservation/properties/to", typed_time()),
        ("/NewReservation/properties/time_zone", time_zone()),
        ("/ReservationPatch/properties/from", typed_time()),
        ("/ReservationPatch/properties/to", typed_time()),
        ("/ReservationPatch/properties/time_zone", time_zone()),
        (
            // Whole devices.
            "/ReservedResources/properties/gpu",
            json!({"minimum": 0, "maximum": 9_999_999, "multipleOf": 1}),
        ),
        ("/ReservedResources/properties/cpu", amount()),
        ("/ResourceGroupWindows/properties/time_zone", time_zone()),
        ("/NewClosedMonth/properties/time_zone", time_zone()),
        (
            // What costs something costs it in a currency.
            "/NewPrices",
            json!({
                "if": {"required": ["currency"], "properties": {"currency": {"minLength": 1}}},
                "else": {"properties": {
                    "gpu_hour": {"pattern": FREE},
                    "core_hour": {"pattern": FREE},
                    "gib_hour": {"pattern": FREE},
                }},
            }),
        ),
        ("/NewCourse/properties/image", image()),
        ("/CoursePatch/properties/image", image()),
        (
            "/CourseMessage/properties/text",
            json!({"pattern": named()}),
        ),
        ("/LaunchResources/properties/cpu", share()),
        ("/LaunchResources/properties/gpu", share()),
        (
            "/LaunchResources/properties/gpu_memory",
            json!({"minimum": MIN_SLICE}),
        ),
        (
            "/ResourcesPatch/properties/gpu_memory",
            json!({"minimum": MIN_SLICE}),
        ),
        (
            "/LaunchResources/properties/disk",
            json!({"minimum": MIN_DISK.0, "maximum": MAX_DISK.0}),
        ),
        (
            "/LaunchResources/properties/mig",
            json!({"pattern": PROFILE}),
        ),
        (
            // Memory of a device comes with a fraction of it, and a partition without a share.
            "/LaunchResources",
            json!({
                "if": {"required": ["gpu_memory"], "properties": {"gpu_memory": {"type": "integer"}}},
                "then": {
                    "required": ["gpu"],
                    "properties": {"gpu": {"type": "number", "not": {"type": "integer"}}},
                },
                "dependentSchemas": {
                    "mig": {
                        "if": {"properties": {"mig": {"type": "string"}}},
                        "then": {"properties": {"gpu": {"type": "null"}}},
                    },
                },
            }),
        ),
        (
            "/SessionPatch/properties/name",
            json!({"pattern": SESSION_NAME}),
        ),
        ("/SessionPatch/properties/labels", labels()),
        ("/SessionPatch/properties/max_runtime_seconds", seconds()),
        (
            // Limits are changed alone, and each of them.
            "/SessionPatch",
            json!({
                "if": {"required": ["max_runtime_seconds"]},
                "then": {"properties": {
                    "name": {"type": "null"}, "labels": {"type": "null"}, "resources": {"type": "null"},
                    "priority": {"type": "null"},
                }},
                "else": {
                    "if": {"required": ["resources"], "properties": {"resources": {"type": "object"}}},
                    "then": {"properties": {
                        "name": {"type": "null"}, "labels": {"type": "null"}, "priority": {"type": "null"},
                    }},
                    "else": {
                        "if": {"required": ["priority"], "properties": {"priority": {"type": "integer"}}},
                        "then": {"properties": {"name": {"type": "null"}, "labels": {"type": "null"}}},
                    },
                },
            }),
        ),
        ("/ResourcesPatch/properties/cpu", share()),
        ("/ResourcesPatch/properties/gpu", share()),
        ("/UserPatch/properties/full_name", text(254)),
        ("/UserPatch/properties/email", json!({"pattern": EMAIL})),
        ("/BrandingPatch/properties/name", text(MAX_BRAND_NAME)),
        (
            "/BrandingPatch/properties/logo",
            json!({"pattern": PNG, "maxLength": MAX_LOGO_BYTES / 3 * 4}),
        ),
        (
            "/BrandingPatch/properties/hue",
            json!({"minimum": 1, "maximum": HUES}),
        ),
        ("/BrandingPatch/properties/footer", text(MAX_FOOTER_LENGTH)),
        (
            "/BrandingPatch/properties/footer_ko",
            text(MAX_FOOTER_LENGTH),
        ),
        ("/BrandingPatch/properties/sign_in", text(MAX_SIGN_IN_TEXT)),
        (
            "/BrandingPatch/properties/sign_in_ko",
            text(MAX_SIGN_IN_TEXT),
        ),
        (
            "/NewWebhook/properties/name",
            json!({"pattern": "^[a-z0-9][a-z0-9._-]{0,62}$"}),
        ),
        ("/NewWebhook/properties/address", webhook_address()),
        ("/NewWebhook/properties/kinds", webhook_kinds()),
        ("/NewPolicy/properties/egress", egress()),
        ("/PolicyPatch/properties/egress", egress()),
        ("/WebhookPatch/properties/address", webhook_address()),
        ("/WebhookPatch/properties/kinds", webhook_kinds()),
        (
            "/MailTest/properties/address",
            json!({"pattern": EMAIL, "minLength": 3, "maxLength": 254}),
        ),
        (
            "/NewInvitation/properties/email",
            json!({"pattern": EMAIL, "maxLength": 254}),
        ),
        (
            // An address is one user's.
            "/NewInvitation",
            json!({
                "if": {"required": ["email"], "properties": {"email": {"type": "string", "minLength": 1}}},
                "then": {"properties": {"max_uses": {"maximum": 1}}},
            }),
        ),
        (
            "/NewAllowance/properties/limits",
            json!({"anyOf": given(&LIMITS)}),
        ),
        ("/NewFolder/properties/name", own_folder()),
        ("/FolderPatch/properties/name", own_folder()),
        ("/FolderAdoption/properties/name", own_folder()),
        ("/NewFolderCopy/properties/name", own_folder()),
        ("/NewFolderFromSnapshot/properties/name", own_folder()),
        (
            // Only a project has members.
            "/NewFolder",
            json!({
                "if": {"required": ["members"], "properties": {"members": {"type": "string"}}},
                "then": {"required": ["project"], "properties": {"project": {"type": "string", "minLength": 1}}},
            }),
        ),
        (
            // To one user or one project.
            "/NewFolderTransfer",
            json!({"oneOf": [
                {"required": ["user"], "properties": {"user": {"type": "string", "minLength": 1}}},
                {"required": ["project"], "properties": {"project": {"type": "string", "minLength": 1}}},
            ]}),
        ),
        (
            // With one user or one project.
            "/NewFolderShare",
            json!({"oneOf": [
                {"required": ["user"], "properties": {"user": {"type": "string", "minLength": 1}}},
                {"required": ["project"], "properties": {"project": {"type": "string", "minLength": 1}}},
            ]}),
        ),
        ("/NewFolderDirectory/properties/path", in_folder()),
        ("/FolderMove/properties/from", in_folder()),
        ("/FolderMove/properties/to", in_folder()),
        ("/FolderCopy/properties/from", in_folder()),
        ("/FolderCopy/properties/to", in_folder()),
        ("/FolderSnapshotRestore/properties/path", in_folder()),
        ("/NewFolderText/properties/path", in_folder()),
        ("/NewFolderText/properties/text", json!({"pattern": NO_NUL})),
        ("/FolderRemoval/properties/paths/items", in_folder()),
        ("/FolderSelection/properties/paths/items", in_folder()),
        (
            "/FolderSelection/properties/to",
            json!({"pattern": below_folder()}),
        ),
        (
            "/RemovedEntries/properties/items/items",
            json!({"format": "uuid"}),
        ),
        ("/NewDomain/properties/title", text(100)),
        ("/DomainPatch/properties/title", text(100)),
        ("/NewProject/properties/title", text(100)),
        ("/ProjectPatch/properties/title", text(100)),
        (
            "/NewMember/properties/role",
            json!({"enum": ["member", "viewer", "lead"]}),
        ),
        (
            "/NewInvitation/properties/role",
            json!({"enum": ["member", "viewer", "lead"]}),
        ),
        (
            "/NewInvitation/properties/max_uses",
            json!({"minimum": 1, "maximum": 500}),
        ),
        (
            "/NewGrant/properties/role",
            json!({"enum": ["auditor", "administrator"]}),
        ),
        (
            "/SettingRequest/properties/value",
            json!({"type": ["string", "number", "boolean", "null"]}),
        ),
        (
            "/PartitionRequest/properties/profiles/items",
            json!({"pattern": PROFILE}),
        ),
        ("/TestRequest/properties/image", image()),
        ("/ImportRequest/properties/reference", image()),
        ("/CommitRequest/properties/reference", image()),
        (
            "/CommitRequest/properties/exclude",
            json!({"maxItems": MAX_EXCLUDED}),
        ),
        (
            "/CommitRequest/properties/exclude/items",
            json!({"pattern": "^/", "minLength": 2, "maxLength": MAX_EXCLUDED_LENGTH}),
        ),
        (
            "/CodeRunRequest/properties/code",
            json!({"pattern": NO_NUL, "maxLength": MAX_CODE_BYTES}),
        ),
        (
            "/CodeBatch/properties/clean",
            json!({"pattern": NO_NUL, "maxLength": MAX_CODE_BYTES}),
        ),
        (
            "/CodeBatch/properties/build",
            json!({"pattern": NO_NUL, "maxLength": MAX_CODE_BYTES}),
        ),
        (
            "/CodeBatch/properties/exec",
            json!({"pattern": NO_NUL, "maxLength": MAX_CODE_BYTES}),
        ),
        (
            "/CodeRunRequest/properties/run_id",
            json!({"pattern": RUN_ID}),
        ),
        ("/ImagePull/properties/reference", image()),
        (
            "/ImagePull/properties/image",
            json!({"minLength": 3, "maxLength": 512}),
        ),
        // One archive to read from.
        ("/ImportRequest", one_archive()),
        ("/EnvironmentImport", one_archive()),
        ("/NewUser/properties/password", password()),
        ("/NewPassword/properties/password", password()),
        ("/SetupRequest/properties/password", password()),
        ("/PasswordChange/properties/new", password()),
        (
            "/Preferences/properties/language",
            json!({"enum": ["", "en", "ko", null]}),
        ),
        (
            "/Preferences/properties/theme",
            json!({"enum": ["light", "dark", "system", null]}),
        ),
        ("/Preferences/properties/time_zone", time_zone()),
        ("/NewSshKey/properties/public_key", ssh_key()),
        (
            "/NewSshKey/properties/name",
            json!({"pattern": named(), "maxLength": 64}),
        ),
        (
            "/NewDotfile/properties/path",
            json!({"pattern": DOTFILE_PATH}),
        ),
        ("/NewDotfile/properties/content", json!({"pattern": NO_NUL})),
        (
            "/NewStartupScript/properties/script",
            json!({"pattern": SCRIPT}),
        ),
        ("/NewVariable/properties/value", json!({"pattern": NO_NUL})),
        ("/NewToken/properties/name", json!({"pattern": named()})),
        ("/NewToken/properties/scopes/items", json!({"enum": scopes})),
        ("/NewImageLimits/properties/min_cpu", amount()),
        ("/NewImageLimits/properties/max_cpu", amount()),
        ("/NewImageLimits/properties/min_gpu", amount()),
        ("/NewImageLimits/properties/max_gpu", amount()),
        ("/Limits/properties/gpu", amount()),
        ("/Limits/properties/cpu", amount()),
        ("/Limits/properties/gpu_each", amount()),
        ("/Limits/properties/cpu_each", amount()),
        ("/Limits/properties/runtime_seconds", seconds()),
        (
            "/DepartureRequest",
            json!({
                "if": {"required": ["sessions"], "properties": {"sessions": {"const": "finish"}}},
                "then": {"required": ["until"], "properties": {"until": {"type": "string"}}},
            }),
        ),
        (
            // The site has no name.
            "/NewPolicyUse",
            json!({
                "if": {"properties": {"level": {"const": "site"}}},
                "then": {"properties": {"subject": {"enum": ["", null]}}},
                "else": {"required": ["subject"], "properties": {"subject": {"type": "string"}}},
            }),
        ),
        (
            "/NewAnnouncement/properties/text",
            json!({"pattern": named(), "maxLength": MAX_ANNOUNCEMENT_LENGTH}),
        ),
        (
            "/NewAnnouncement/properties/text_ko",
            text(MAX_ANNOUNCEMENT_LENGTH),
        ),
        (
            "/AnnouncementPatch/properties/text",
            json!({"pattern": named(), "maxLength": MAX_ANNOUNCEMENT_LENGTH}),
        ),
        (
            "/AnnouncementPatch/properties/text_ko",
            text(MAX_ANNOUNCEMENT_LENGTH),
        ),
        (
            // Before the sign-in nobody has a domain.
            "/NewAnnouncement",
            json!({
                "if": {"required": ["before_sign_in"], "properties": {"before_sign_in": {"const": true}}},
                "then": {"properties": {"domain": {"type": "null"}}},
            }),
        ),
        (
            "/SignInRequest/properties/expires_seconds",
            json!({"minimum": 1, "maximum": 315_360_000}),
        ),
        (
            "/SignInRequest/properties/token_name",
            json!({"pattern": named(), "minLength": 1, "maxLength": 64}),
        ),
        (
            "/CertificateRequest/properties/names",
            json!({
                "maxItems": 50,
                "items": {"anyOf": [
                    {"pattern": HOST_NAME, "maxLength": 253},
                    {"format": "ipv4"},
                    {"format": "ipv6"},
                ]},
            }),
        ),
        (
            "/CertificateRequest/properties/organisation",
            json!({"pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$", "maxLength": 64}),
        ),
    ]
}

/// Adds every limit to the schema it belongs to.
pub(super) fn add(schemas: &mut Value) {
    for (at, limits) in all() {
        if let (Some(schema), Value::Object(limits)) = (schemas.pointer_mut(at), limits) {
            merge(schema, limits);
        }
    }
    spell_plain(schemas);
}

/// Gives each text that its type calls plain the pattern of plain text.
fn spell_plain(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(spell_plain),
        Value::Object(fields) => {
            if fields
                .get("format")
                .is_some_and(|format| *format == PLAIN_TEXT)
            {
                fields.remove("format");
                fields.insert("pattern".to_owned(), plain().into());
            }
            fields.values_mut().for_each(spell_plain);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn merge(into: &mut Value, from: Map<String, Value>) {
    let Some(into) = into.as_object_mut() else {
        return;
    };
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(there @ Value::Object(_)), Value::Object(more)) => merge(there, more),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// The schema of a parameter of a path, a query or a header, by the route's path and its name.
pub(super) fn parameter(path: &str, name: &str) -> Value {
    match name {
        "cols" | "rows" | "port" => json!({"type": "integer", "minimum": 1, "maximum": 65535}),
        "app" => json!({"type": "string", "pattern": APP}),
        "limit" => json!({"type": "integer", "minimum": 1, "maximum": 500}),
        "patience" => json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
        // An empty word is one that was left out.
        "month" => json!({"type": "string", "pattern": MONTH}),
        "from" | "until" if path.ends_with("/usage") || path.ends_with("/rehearsal") => {
            let mut schema = day_or_moment();
            schema["type"] = "string".into();
            schema
        }
        "id" if path.contains("/allowances/") || path.contains("/announcements/") => {
            json!({"type": "string", "format": "uuid"})
        }
        "order" if path.ends_with("/rehearsal") => {
            word_or_none(QueueOrder::ALL.map(QueueOrder::word))
        }
        "backfill" if path.ends_with("/rehearsal") => {
            word_or_none(BackfillMode::ALL.map(BackfillMode::word))
        }
        "half_life_hours" => json!({"type": "string", "pattern": HALF_LIFE}),
        "by" if path.ends_with("/usage") => word_or_none(["user", "project", "domain", "member"]),
        "dry_run" => json!({"type": "string", "enum": ["true", "false"]}),
        "command" => json!({
            "type": "array",
            "items": {"type": "string", "pattern": NO_NUL},
            "not": {"minItems": 1, "prefixItems": [{"const": ""}]},
        }),
        "env" => json!({"type": "array", "items": {"type": "string", "pattern": VARIABLE}}),
        "kind" | "act" | "object" | "user"
            if path.ends_with("/search") || path.ends_with("/audit") =>
        {
            words()
        }
        "cwd" | "user" => json!({"type": "string", "pattern": NO_NUL}),
        "wait" => json!({"type": "string", "enum": ["running", "ended"]}),
        "share" => json!({"type": "string", "format": "uuid"}),
        "number" if path.contains("/snapshots/") => {
            json!({"type": "integer", "minimum": 1, "maximum": u32::MAX})
        }
        // Names of files may have any byte; what no name has finds nothing.
        "q" if path.contains("/folders/") => json!({"type": "string"}),
        "q" => words(),
        "sort" if path.ends_with("/entries") => json!({"type": "string", "enum": [
            "", "name", "-name", "size", "-size", "modified_at", "-modified_at",
        ]}),
        // An empty word is one that was left out.
        "sort" => json!({"type": "string", "enum": [
            "", "created_at", "-created_at", "started_at", "-started_at", "ended_at", "-ended_at", "name", "-name",
        ]}),
        "role" => json!({"type": "string", "enum": ["auditor", "administrator"]}),
        "level" => json!({"type": "string", "enum": ["site", "domain", "project", "user"]}),
        "scope" => json!({"type": "string", "enum": ["", "mine", "all"]}),
        "range" => json!({"type": "string", "enum": ["", "hour", "day", "week", "month"]}),
        "of" => json!({"type": "string", "pattern": "^(|site|me|(gpu|user):[!-~]{1,64})$"}),
        // A place in the queue.
        "cursor" if path.ends_with("/queue") => {
            json!({"type": "string", "pattern": "^[0-9]{0,19}$"})
        }
        "cursor" => json!({"type": "string", "pattern": "^[A-Za-z0-9_-]*$", "maxLength": 2048}),
        "since" | "until"
            if path.ends_with("/metrics")
                || path.ends_with("/search")
                || path.contains("/audit") =>
        {
            json!({"type": "string", "format": "date-time"})
        }
        "since" | "Upload-Offset" => json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
        "Idempotency-Key" => json!({"type": "string", "pattern": "^[!-~]{1,200}$"}),
        // Of a file it names what the file system tells of it.
        "If-Match" if path.ends_with("/text") || path.ends_with("/files") => json!({
            "type": "string",
            "anyOf": [{"enum": ["*"]}, {"pattern": r#"^"[0-9a-f.-]{1,120}"$"#}],
        }),
        "fresh" | "sha256" => json!({"type": "boolean"}),
        "If-None-Match" => json!({"type": "string", "enum": ["*"]}),
        "Content-Digest" => json!({"type": "string", "examples": [
            "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:",
        ]}),
        // The star by itself: of a pattern that has quotes in it generators of requests make no header.
        "If-Match" => json!({
            "type": "string",
            "anyOf": [{"enum": ["*"]}, {"pattern": r#"^"[0-9]{1,18}"$"#}],
        }),
        "Tus-Resumable" => json!({"type": "string", "enum": ["1.0.0"]}),
        "Upload-Length" if path.contains("/folders/") => {
            json!({"type": "integer", "minimum": 0, "maximum": 1_u64 << 40})
        }
        "Upload-Metadata" => json!({"type": "string", "examples": ["filename YS50eHQ="]}),
        "path" => json!({"type": "string", "pattern": below_folder()}),
        "format" => json!({"type": "string", "enum": ["", "zip", "tar", "tar.zst"]}),
        "Upload-Length" => json!({"type": "integer", "minimum": 1, "maximum": 512_u64 << 30}),
        "topics" => json!({"type": "string", "pattern": TOPICS}),
        _ => json!({"type": "string"}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::budget::GpuHours;
    use rules::devices::MigProfile;
    use rules::folder::FolderName;
    use rules::image::parse_reference;
    use rules::names::{EmailAddress, SessionName};
    use rules::reservation::moment;
    use rules::session::hidden;
    use rules::start_up::dotfile_path;
    use rules::webhook::check_address;

    #[test]
    fn every_limit_belongs_to_a_schema() {
        let schemas = &super::super::document()["components"]["schemas"];
        for (at, _) in all() {
            assert!(schemas.pointer(at).is_some(), "no schema {at}");
        }
    }

    #[test]
    fn one_number_of_all_is_given() {
        let schemas = &super::super::document()["components"]["schemas"];
        for (name, numbers) in [("Limits", &LIMITS[..]), ("IdleThresholds", &THRESHOLDS[..])] {
            let fields = schemas[name]["properties"].as_object().expect(name);
            let mut fields: Vec<&str> = fields.keys().map(String::as_str).collect();
            let mut numbers = numbers.to_vec();
            fields.sort_unstable();
            numbers.sort_unstable();
            assert_eq!(fields, numbers, "{name}");
        }
    }

    #[test]
    fn a_text_that_its_type_calls_plain_has_the_pattern() {
        let document = super::super::document();
        let note = &document["components"]["schemas"]["CordonRequest"]["properties"]["note"];
        assert_eq!(note["pattern"], plain());
        assert_eq!(note["maxLength"], 256);
        assert!(!document.to_string().contains(PLAIN_TEXT));
    }

    fn takes(pattern: &str, text: &str) -> bool {
        regex::Regex::new(pattern).expect(pattern).is_match(text)
    }

    #[test]
    fn hidden_characters_are_those_that_the_actions_refuse() {
        let (plain, named) = (plain(), named());
        let (plain, named) = (
            regex::Regex::new(&plain).expect("a pattern"),
            regex::Regex::new(&named).expect("a pattern"),
        );
        for c in (0..=0xffff).filter_map(char::from_u32) {
            let text = c.to_string();
            assert_eq!(plain.is_match(&text), !hidden(c), "{c:?}");
            assert_eq!(
                named.is_match(&text),
                !hidden(c) && !c.is_whitespace(),
                "{c:?}"
            );
        }
    }

    #[test]
    fn names_fit_their_patterns_where_the_actions_take_them() {
        for path in [
            ".bashrc",
            "~/.config/git/config",
            "..a",
            "...",
            "..",
            "a/../b",
            "./a",
            "a//b",
            "/a",
            "a b",
            r"a\b",
            "",
            &("a/".repeat(7) + "b"),
            &("a/".repeat(8) + "b"),
        ] {
            let taken = dotfile_path(path).is_ok();
            assert_eq!(takes(DOTFILE_PATH, path), taken, "{path}");
        }
        for name in [
            "a",
            "A-1",
            "a-",
            "-a",
            "a_b",
            "",
            &"a".repeat(63),
            &"a".repeat(64),
        ] {
            let taken = SessionName::parse(name).is_ok();
            assert_eq!(takes(SESSION_NAME, name), taken, "{name}");
        }
        for address in [
            "",
            "kim@lab.example",
            "A.b+c@x",
            "a@",
            "@x",
            "a@-x",
            "a@x..y",
            "a b@x",
            "a@b@c",
        ] {
            let taken = address.is_empty() || EmailAddress::parse(address).is_ok();
            assert_eq!(takes(EMAIL, address), taken, "{address}");
        }
        for image in [
            "python-ml:1.2",
            "lab/vision:latest",
            "a",
            "a:B_9",
            "lab.example:5000/x/y:1",
            "",
            "A",
            "a:",
            "a..b",
            "/a",
            "a/",
            "a//b",
            "a b",
            "-a",
            "a:b c",
        ] {
            let taken = parse_reference(image).is_ok();
            assert_eq!(takes(IMAGE, image), taken, "{image}");
        }
        for name in [
            "data",
            "ImageNet 2012",
            "자료",
            "5*",
            "a.",
            "",
            ".",
            ".a",
            " a",
            "a ",
            "a\u{3000}",
            "a/b",
            "a:",
            "a\u{202e}b",
        ] {
            let taken = FolderName::parse(name).is_ok();
            assert_eq!(takes(&folder_name(), name), taken, "{name:?}");
        }
        for profile in [
            "1g.10gb",
            "7g.80gb",
            "1g.10gb+me",
            "",
            "0g.10gb",
            "8g.10gb",
            "1g.0gb",
            "1g.1000gb",
            "1g10gb",
        ] {
            let taken = MigProfile::parse(profile).is_ok();
            assert_eq!(takes(PROFILE, profile), taken, "{profile}");
        }
        for address in [
            "https://hooks.lab/x?y=z",
            "https://o:7/1S*",
            "https://hooks.lab:8443?y=[1]",
            "https://o/#x",
            "https://o/a b",
            "https://",
            "https://o:0/",
            "ftp://o",
        ] {
            let taken = check_address(address, |_| false).is_ok();
            assert_eq!(takes(WEBHOOK, address), taken, "{address}");
        }
        for hours in [
            "0",
            "120",
            "0.5",
            "120.50",
            "999999999.99",
            "1000000000",
            "1000000000.00",
            "0000000000000000000000001",
            "000000000000000000000000.25",
            "1000000000.01",
            "1000000001",
            "10000000000",
            "",
            ".5",
            "1.",
            "1.005",
            "-1",
            "1e3",
        ] {
            let taken = GpuHours::parse(hours).is_some();
            assert_eq!(takes(GPU_HOURS, hours), taken, "{hours}");
        }
        for hours in [
            "", "1", "24", "024", "999", "1000", "7999", "8699", "8759", "8760", "8761", "8770",
            "9000", "10000", "0", "00", "-1", "1.5", "a",
        ] {
            let taken = hours.is_empty()
                || hours
                    .parse::<u32>()
                    .is_ok_and(|hours| (1..=8_760).contains(&hours));
            assert_eq!(takes(HALF_LIFE, hours), taken, "{hours}");
        }
        let utc = jiff::tz::TimeZone::UTC;
        for time in [
            "2026-11-30T09:00",
            "2026-11-30",
            "2026-11-30T09:00:00.5Z",
            "2026-11-30T09:00+09:00",
            "",
            "noon",
            "1970-01-01",
            "1969-12-31",
            "0000-01-01",
            "2026-13-01",
            "2026-11-30T25:00",
            "09:00",
        ] {
            let taken = moment(time, &utc, "/from").is_ok();
            assert_eq!(takes(TYPED_TIME, time), taken, "{time}");
        }
        for (name, taken) in [
            ("A", true),
            ("_a9", true),
            ("9a", false),
            ("", false),
            ("a-b", false),
        ] {
            assert_eq!(takes(VARIABLE_NAME, name), taken, "{name}");
        }
    }
}
