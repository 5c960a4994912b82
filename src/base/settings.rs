//! Turns files, environment and flags into one checked value or one readable refusal, and says of each
//! key where its value comes from. A later source wins: built-in, `/etc/fardel/fardel.toml`,
//! `conf.d/*.toml`, environment, flags. Holds no secret: a key that needs one names a file. Only `edit`
//! writes a file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rules::refusal::Refusal;
use rules::refusals;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

mod directory;
pub mod edit;
mod file;
mod hand_over;
mod mail;
mod places;
mod registries;
mod sample;
#[cfg(test)]
mod tests;

pub use file::{parse, read_file};
pub use sample::sample;

/// Everything that can be set, checked. One row of `KEYS` each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Where state lies: catalog, images, containers, logs.
    pub data: PathBuf,
    /// Where sockets and run state lie; emptied by a reboot.
    pub run: PathBuf,
    /// Where pages and the API are served.
    pub listen: SocketAddr,
    /// Where plain HTTP is answered by the way to HTTPS, and by nothing else.
    pub listen_http: Option<SocketAddr>,
    /// Where users' own apps are served: the first of the ports, each an origin of its own.
    pub listen_apps: Option<SocketAddr>,
    /// Below which name apps have names of their own, at the console's port; unset: they have ports.
    pub apps_name: Option<String>,
    /// Where SSH leads into sessions.
    pub listen_ssh: Option<SocketAddr>,
    /// Whether pages and API are served encrypted.
    pub tls: TlsMode,
    /// Offer the machine's own programs as the environment `host`.
    pub host_environment: bool,
    /// Sessions have the home of their owner by themselves, and the owner's folders whose names begin with a dot.
    pub homes: bool,
    /// Cores sessions may have in all, as text like `3.5`; None: all the machine has.
    pub cpu: Option<String>,
    /// Memory sessions may have in all, as text like `48g`; None: all but a reserve.
    pub memory: Option<String>,
    /// First size of the pool for folders, as text like `64g`, or `none`; None: as the disk is.
    pub pool_size: Option<String>,
    /// What a session that names no disk may write outside its folders, as text like `20g`, or `none`.
    pub session_disk: String,
    /// Devices that do not exist, for demonstrations, as text like `H100:8`; None: those there are.
    pub simulate_gpus: Option<String>,
    /// Where the vendor's driver of devices is found: `/`, or a tree of its own.
    pub driver_root: PathBuf,
    /// What becomes of a device's time that its owner does not use: `hard` (idle) or `elastic`.
    pub gpu_mode: String,
    /// How many units one whole device counts as.
    pub gpu_units: u32,
    /// The smallest share of a device that may be asked for, as text like `0.1`.
    pub gpu_least: String,
    /// Shares are multiples of this, as text like `0.05`.
    pub gpu_step: String,
    /// Where shares go: `pack` or `spread`.
    pub gpu_spreading: String,
    /// The most of devices that one person holds at once, as text like `2`; None: no limit.
    pub gpu_each: Option<String>,
    /// Whether every user has a second factor: `optional` or `required`.
    pub second_factor: String,
    /// Browsers that one user may be signed in with at once; 0: no rule.
    pub sign_ins: u32,
    /// What becomes of a sign-in beyond that: `end-oldest` or `refuse`.
    pub sign_ins_full: String,
    /// Fewest characters of a new password.
    pub password_length: u32,
    /// Kinds of characters that a new password has to have; 0: any.
    pub password_classes: u32,
    /// Days after which a user chooses a new password; 0: never.
    pub password_days: u32,
    /// Last passwords of a user that are refused as new ones; 0: none.
    pub password_history: u32,
    /// Users change a password that an administrator set before anything else.
    pub password_change_first: bool,
    /// Directory that checks passwords of users without a local account, as ldaps://HOST or ldap://HOST; unset: none.
    pub ldap_url: Option<String>,
    /// With ldap://, TLS begins before anything is sent; false only for a directory on this machine.
    pub ldap_start_tls: bool,
    /// Certificate of the authority of the directory, as PEM; unset: the authorities that this machine trusts.
    pub ldap_ca_file: Option<PathBuf>,
    /// Name below which users are looked for.
    pub ldap_base: Option<String>,
    /// Name to bind with: with %u that of each user, else that of a service account; unset: users are looked for without one.
    pub ldap_bind: Option<String>,
    /// File with the password of the service account in its first line, mode 0600.
    pub ldap_password_file: Option<PathBuf>,
    /// Filter that finds the one entry of a user; %u is what they typed.
    pub ldap_filter: String,
    /// Attribute with the user name.
    pub ldap_name: String,
    /// Attribute with the e-mail address.
    pub ldap_email: String,
    /// Attribute with the full name.
    pub ldap_full_name: String,
    /// Attribute with the groups of a user.
    pub ldap_member_of: String,
    /// Roles in projects that groups give, as GROUP -> PROJECT:ROLE with semicolons between; unset: users join the project default.
    pub ldap_groups: Option<String>,
    /// Domain that users of the directory belong to.
    pub ldap_domain: String,
    /// Identity provider (OpenID Connect) by which users sign in, as it names itself; unset: none.
    pub oidc_issuer: Option<String>,
    /// What sign-in pages call the identity provider.
    pub oidc_name: String,
    /// What the identity provider calls this site: the client identifier.
    pub oidc_client: Option<String>,
    /// File with the client's secret in its first line, mode 0600; unset: a client without one.
    pub oidc_secret_file: Option<PathBuf>,
    /// Certificate of the authority of the identity provider, as PEM; unset: the authorities that this machine trusts.
    pub oidc_ca_file: Option<PathBuf>,
    /// Address of this site in browsers, to which the identity provider sends users back.
    pub oidc_origin: Option<String>,
    /// Scopes that are asked for, with blanks between.
    pub oidc_scope: String,
    /// Claim with the user name.
    pub oidc_user: String,
    /// Claim with the groups of a user; ldap_groups says which roles they give.
    pub oidc_groups: String,
    /// Identity provider (SAML 2.0) by which users sign in, as it names itself; unset: none.
    pub saml_issuer: Option<String>,
    /// What sign-in pages call the identity provider of SAML.
    pub saml_name: String,
    /// Address of the identity provider of SAML to which browsers are led, by its redirect binding.
    pub saml_sso_url: Option<String>,
    /// Certificates, as PEM, by whose keys the identity provider of SAML signs; no other key is believed.
    pub saml_certificate_file: Option<PathBuf>,
    /// Address of this site in browsers, to which the identity provider of SAML sends users back.
    pub saml_origin: Option<String>,
    /// What the identity provider of SAML calls this site; unset: the address of its metadata.
    pub saml_entity_id: Option<String>,
    /// Attribute of SAML with the user name; NameID: the name identifier itself.
    pub saml_user: String,
    /// Attribute of SAML with the e-mail address.
    pub saml_email: String,
    /// Attribute of SAML with the full name.
    pub saml_full_name: String,
    /// Attribute of SAML with the groups of a user; ldap_groups says which roles they give.
    pub saml_groups: String,
    /// Hours; a lead's booking that starts sooner is a request. 0: none is for that reason.
    pub reservation_notice_hours: u32,
    /// Days that logs and rows of ended sessions are kept.
    pub keep_days: u32,
    /// Days that rows of the audit log are kept.
    pub audit_keep_days: u32,
    /// File that rows of the audit log are appended to; unset: none.
    pub audit_to_file: Option<PathBuf>,
    /// Syslog receiver that rows of the audit log are sent to, as tcp://HOST, tls://HOST, udp://HOST or unix:///PATH; unset: none.
    pub audit_to_syslog: Option<String>,
    /// Address of HTTP that rows of the audit log are posted to; unset: none.
    pub audit_to_http: Option<String>,
    /// File with the bearer token for that address in its first line, mode 0600; unset: none is sent.
    pub audit_token_file: Option<PathBuf>,
    /// Certificate of the authority of both receivers, as PEM; unset: the authorities that this machine trusts.
    pub audit_ca_file: Option<PathBuf>,
    /// Mail server that takes notices, as HOST or HOST:PORT; unset: none is mailed.
    pub mail_server: Option<String>,
    /// How the connection to it is protected: `starttls`, `tls` or `none`.
    pub mail_security: String,
    /// Name to sign in with at the mail server; unset: without one.
    pub mail_user: Option<String>,
    /// File with the password for that name in its first line, mode 0600.
    pub mail_password_file: Option<PathBuf>,
    /// Address that mail comes from.
    pub mail_from: Option<String>,
    /// Certificate of the authority of the mail server, as PEM; unset: the authorities that this machine trusts.
    pub mail_ca_file: Option<PathBuf>,
    /// Address of this site in browsers, for the links of mail; unset: oidc_origin, else an address of this machine.
    pub mail_origin: Option<String>,
    /// Certificate of the authority of the addresses of webhooks, as PEM; unset: the authorities that this machine trusts.
    pub webhook_ca_file: Option<PathBuf>,
    /// Registries that images may be pulled from: hosts between commas; None: none.
    pub registries: Option<String>,
    /// Certificate of the authority of these registries; None: the authorities that this machine trusts.
    pub registry_ca_file: Option<PathBuf>,
    /// Names and passwords for these registries, as docker login writes them; None: none is sent.
    pub registry_credentials_file: Option<PathBuf>,
    /// Names and public keys whose signature lets a bundle of an environment in; None: none does.
    pub environment_keys_file: Option<PathBuf>,
    /// Write the log as JSON lines.
    pub log_json: bool,
    /// Where the server puts backups; None: it makes none.
    pub backup_dir: Option<PathBuf>,
    /// Hours between two scheduled backups; 0: none is scheduled.
    pub backup_every_hours: u32,
    /// How many of them are kept; older ones are removed.
    pub backup_keep: u32,
    /// File with their passphrase, which only the server's user may read.
    pub backup_passphrase_file: Option<PathBuf>,
}

/// Whether pages and API are served encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsMode {
    /// Everywhere but on loopback, which other machines cannot reach.
    #[default]
    Auto,
    On,
    /// For a proxy in front that speaks TLS; passwords cross the network between the two as they are.
    Off,
}

impl TlsMode {
    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Auto, Self::On, Self::Off]
            .into_iter()
            .find(|tls| tls.word() == word)
    }
}

/// One setting: its key in the file, its variable, what it may hold, its default and what it does.
#[derive(Debug)]
pub struct SettingKey {
    pub key: &'static str,
    pub variable: &'static str,
    pub kind: SettingType,
    /// As the settings file would say it; empty where it is unset by default.
    pub default: &'static str,
    /// A value that would work, for the sample file; stands for the default where that is empty.
    pub example: &'static str,
    /// A running server takes a new value only when it starts again.
    pub needs_restart: bool,
    /// One sentence without its full stop.
    pub about: &'static str,
}

/// What a setting may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingType {
    Text,
    Flag,
    Count,
}

/// Every setting, in the order the documentation lists them. Each has a field of the same name in
/// `SettingsLayer` and in `Settings`; a test holds the three together.
pub const KEYS: &[SettingKey] = &[
    SettingKey {
        key: "data",
        variable: "FARDEL_DATA",
        kind: SettingType::Text,
        default: "\"/var/lib/fardel\"",
        example: "",
        needs_restart: true,
        about: "directory of the state: catalog, images, logs",
    },
    SettingKey {
        key: "run",
        variable: "FARDEL_RUN",
        kind: SettingType::Text,
        default: "\"/run/fardel\"",
        example: "",
        needs_restart: true,
        about: "directory of sockets and run state; unset: /run/fardel for the default data directory, and a separate one for each other data directory",
    },
    SettingKey {
        key: "listen",
        variable: "FARDEL_LISTEN",
        kind: SettingType::Text,
        default: "\"127.0.0.1:7860\"",
        example: "",
        needs_restart: true,
        about: "address and port of pages and API",
    },
    SettingKey {
        key: "listen_http",
        variable: "FARDEL_LISTEN_HTTP",
        kind: SettingType::Text,
        default: "",
        example: "\"0.0.0.0:80\"",
        needs_restart: true,
        about: "address and port that redirect plain HTTP to HTTPS; unset: only the port of listen does",
    },
    SettingKey {
        key: "listen_apps",
        variable: "FARDEL_LISTEN_APPS",
        kind: SettingType::Text,
        default: "",
        example: "\"0.0.0.0:8443\"",
        needs_restart: true,
        about: "address and first of 100 ports of session apps, each a separate origin; unset: none",
    },
    SettingKey {
        key: "apps_name",
        variable: "FARDEL_APPS_NAME",
        kind: SettingType::Text,
        default: "",
        example: "\"apps.fardel.example.org\"",
        needs_restart: false,
        about: "name below which session apps have names of their own, in DNS and in the certificate as *.NAME; unset: ports",
    },
    SettingKey {
        key: "listen_ssh",
        variable: "FARDEL_LISTEN_SSH",
        kind: SettingType::Text,
        default: "",
        example: "\"0.0.0.0:7822\"",
        needs_restart: true,
        about: "address and port of SSH into sessions; unset: none",
    },
    SettingKey {
        key: "tls",
        variable: "FARDEL_TLS",
        kind: SettingType::Text,
        default: "\"auto\"",
        example: "",
        needs_restart: true,
        about: "TLS of pages and API: auto (except on loopback), on, or off behind a TLS proxy",
    },
    SettingKey {
        key: "host_environment",
        variable: "FARDEL_HOST_ENVIRONMENT",
        kind: SettingType::Flag,
        default: "true",
        example: "",
        needs_restart: true,
        about: "offer the machine's own programs as the environment host",
    },
    SettingKey {
        key: "homes",
        variable: "FARDEL_HOMES",
        kind: SettingType::Flag,
        default: "true",
        example: "",
        needs_restart: false,
        about: "each session has the home folder of its owner, and the owner's folders whose names begin with a dot",
    },
    SettingKey {
        key: "cpu",
        variable: "FARDEL_CPU",
        kind: SettingType::Text,
        default: "",
        example: "\"3.5\"",
        needs_restart: true,
        about: "cores that sessions may have in all; unset: all of the machine",
    },
    SettingKey {
        key: "memory",
        variable: "FARDEL_MEMORY",
        kind: SettingType::Text,
        default: "",
        example: "\"48g\"",
        needs_restart: true,
        about: "memory that sessions may have in all; unset: all but a reserve",
    },
    SettingKey {
        key: "pool_size",
        variable: "FARDEL_POOL_SIZE",
        kind: SettingType::Text,
        default: "",
        example: "\"64g\"",
        needs_restart: true,
        about: "size of the pool for folders, a file that is made with the first folder where the disk has no quota of its own, or none; unset: a quarter of what is free",
    },
    SettingKey {
        key: "session_disk",
        variable: "FARDEL_SESSION_DISK",
        kind: SettingType::Text,
        default: "\"20g\"",
        example: "",
        needs_restart: false,
        about: "what a session that names no disk may write outside its folders where limits are held and no policy says any; none: no limit",
    },
    SettingKey {
        key: "simulate_gpus",
        variable: "FARDEL_SIMULATE_GPUS",
        kind: SettingType::Text,
        default: "",
        example: "\"H100:8\"",
        needs_restart: true,
        about: "simulated GPUs for demonstrations: sessions get no device, and every page says so; unset: the machine's own",
    },
    SettingKey {
        key: "driver_root",
        variable: "FARDEL_DRIVER_ROOT",
        kind: SettingType::Text,
        default: "\"/\"",
        example: "",
        needs_restart: true,
        about: "root directory of the vendor's GPU driver, for machines that keep it elsewhere",
    },
    SettingKey {
        key: "gpu_mode",
        variable: "FARDEL_GPU_MODE",
        kind: SettingType::Text,
        default: "\"hard\"",
        example: "",
        needs_restart: true,
        about: "GPU time that a session leaves unused: hard (it stays idle) or elastic (other sessions get it)",
    },
    SettingKey {
        key: "gpu_units",
        variable: "FARDEL_GPU_UNITS",
        kind: SettingType::Count,
        default: "1",
        example: "",
        needs_restart: true,
        about: "number of units of one whole GPU; 1: shares are decimals of a GPU",
    },
    SettingKey {
        key: "gpu_least",
        variable: "FARDEL_GPU_LEAST",
        kind: SettingType::Text,
        default: "\"0.01\"",
        example: "",
        needs_restart: true,
        about: "smallest share of a GPU that a session may have",
    },
    SettingKey {
        key: "gpu_step",
        variable: "FARDEL_GPU_STEP",
        kind: SettingType::Text,
        default: "\"0.01\"",
        example: "",
        needs_restart: true,
        about: "shares of a GPU are multiples of this",
    },
    SettingKey {
        key: "gpu_spreading",
        variable: "FARDEL_GPU_SPREADING",
        kind: SettingType::Text,
        default: "\"pack\"",
        example: "",
        needs_restart: true,
        about: "placement of GPU shares: pack (keeps whole GPUs free), spread (fewer sessions on each) or roundrobin (nodes take turns)",
    },
    SettingKey {
        key: "gpu_each",
        variable: "FARDEL_GPU_EACH",
        kind: SettingType::Text,
        default: "",
        example: "\"2\"",
        needs_restart: true,
        about: "maximum of GPUs that one user may hold at once; unset: no limit",
    },
    SettingKey {
        key: "second_factor",
        variable: "FARDEL_SECOND_FACTOR",
        kind: SettingType::Text,
        default: "\"optional\"",
        example: "",
        needs_restart: false,
        about: "second factor of users: optional, or required three days after this was set",
    },
    SettingKey {
        key: "sign_ins",
        variable: "FARDEL_SIGN_INS",
        kind: SettingType::Count,
        default: "0",
        example: "",
        needs_restart: false,
        about: "browsers that one user may be signed in with at once; 0: at most 100, and a further sign-in ends the oldest",
    },
    SettingKey {
        key: "sign_ins_full",
        variable: "FARDEL_SIGN_INS_FULL",
        kind: SettingType::Text,
        default: "\"end-oldest\"",
        example: "",
        needs_restart: false,
        about: "a sign-in beyond that number: end-oldest (the oldest browser is signed out) or refuse",
    },
    SettingKey {
        key: "password_length",
        variable: "FARDEL_PASSWORD_LENGTH",
        kind: SettingType::Count,
        default: "10",
        example: "",
        needs_restart: false,
        about: "fewest characters of a new password, 10 to 64",
    },
    SettingKey {
        key: "password_classes",
        variable: "FARDEL_PASSWORD_CLASSES",
        kind: SettingType::Count,
        default: "0",
        example: "",
        needs_restart: false,
        about: "kinds of characters in a new password, of lower-case letters, upper-case letters, digits and others; 0: any",
    },
    SettingKey {
        key: "password_days",
        variable: "FARDEL_PASSWORD_DAYS",
        kind: SettingType::Count,
        default: "0",
        example: "",
        needs_restart: false,
        about: "days after which users choose a new password; 0: never",
    },
    SettingKey {
        key: "password_history",
        variable: "FARDEL_PASSWORD_HISTORY",
        kind: SettingType::Count,
        default: "0",
        example: "",
        needs_restart: false,
        about: "last passwords that a user may not choose again, at most 10; 0: none",
    },
    SettingKey {
        key: "password_change_first",
        variable: "FARDEL_PASSWORD_CHANGE_FIRST",
        kind: SettingType::Flag,
        default: "false",
        example: "",
        needs_restart: false,
        about: "users change a password that an administrator set before anything else",
    },
    SettingKey {
        key: "ldap_url",
        variable: "FARDEL_LDAP_URL",
        kind: SettingType::Text,
        default: "",
        example: "\"ldaps://dc1.example.org\"",
        needs_restart: false,
        about: "directory that checks passwords of users without a local account, as ldaps://HOST or ldap://HOST; unset: none",
    },
    SettingKey {
        key: "ldap_start_tls",
        variable: "FARDEL_LDAP_START_TLS",
        kind: SettingType::Flag,
        default: "true",
        example: "",
        needs_restart: false,
        about: "with ldap://, TLS begins before anything is sent; false only for a directory on this machine",
    },
    SettingKey {
        key: "ldap_ca_file",
        variable: "FARDEL_LDAP_CA_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/ldap-ca.pem\"",
        needs_restart: false,
        about: "certificate of the authority of the directory, as PEM; unset: the authorities that this machine trusts",
    },
    SettingKey {
        key: "ldap_base",
        variable: "FARDEL_LDAP_BASE",
        kind: SettingType::Text,
        default: "",
        example: "\"dc=example,dc=org\"",
        needs_restart: false,
        about: "name below which users are looked for",
    },
    SettingKey {
        key: "ldap_bind",
        variable: "FARDEL_LDAP_BIND",
        kind: SettingType::Text,
        default: "",
        example: "\"uid=%u,ou=people,dc=example,dc=org\"",
        needs_restart: false,
        about: "name to bind with: with %u that of each user, else that of a service account; unset: users are looked for without one",
    },
    SettingKey {
        key: "ldap_password_file",
        variable: "FARDEL_LDAP_PASSWORD_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/ldap.password\"",
        needs_restart: false,
        about: "file with the password of the service account in its first line, mode 0600",
    },
    SettingKey {
        key: "ldap_filter",
        variable: "FARDEL_LDAP_FILTER",
        kind: SettingType::Text,
        default: "\"(uid=%u)\"",
        example: "",
        needs_restart: false,
        about: "filter that finds the one entry of a user; %u is what they typed",
    },
    SettingKey {
        key: "ldap_name",
        variable: "FARDEL_LDAP_NAME",
        kind: SettingType::Text,
        default: "\"uid\"",
        example: "",
        needs_restart: false,
        about: "attribute with the user name",
    },
    SettingKey {
        key: "ldap_email",
        variable: "FARDEL_LDAP_EMAIL",
        kind: SettingType::Text,
        default: "\"mail\"",
        example: "",
        needs_restart: false,
        about: "attribute with the e-mail address",
    },
    SettingKey {
        key: "ldap_full_name",
        variable: "FARDEL_LDAP_FULL_NAME",
        kind: SettingType::Text,
        default: "\"cn\"",
        example: "",
        needs_restart: false,
        about: "attribute with the full name",
    },
    SettingKey {
        key: "ldap_member_of",
        variable: "FARDEL_LDAP_MEMBER_OF",
        kind: SettingType::Text,
        default: "\"memberOf\"",
        example: "",
        needs_restart: false,
        about: "attribute with the groups of a user",
    },
    SettingKey {
        key: "ldap_groups",
        variable: "FARDEL_LDAP_GROUPS",
        kind: SettingType::Text,
        default: "",
        example: "\"vision -> vision:lead; staff -> default:member\"",
        needs_restart: false,
        about: "roles in projects that groups give, as GROUP -> PROJECT:ROLE with semicolons between; unset: users join the project default",
    },
    SettingKey {
        key: "ldap_domain",
        variable: "FARDEL_LDAP_DOMAIN",
        kind: SettingType::Text,
        default: "\"default\"",
        example: "",
        needs_restart: false,
        about: "domain that users of the directory belong to",
    },
    SettingKey {
        key: "oidc_issuer",
        variable: "FARDEL_OIDC_ISSUER",
        kind: SettingType::Text,
        default: "",
        example: "\"https://id.example.org\"",
        needs_restart: false,
        about: "identity provider (OpenID Connect) by which users sign in, as it names itself; unset: none",
    },
    SettingKey {
        key: "oidc_name",
        variable: "FARDEL_OIDC_NAME",
        kind: SettingType::Text,
        default: "\"single sign-on\"",
        example: "",
        needs_restart: false,
        about: "what sign-in pages call the identity provider",
    },
    SettingKey {
        key: "oidc_client",
        variable: "FARDEL_OIDC_CLIENT",
        kind: SettingType::Text,
        default: "",
        example: "\"fardel\"",
        needs_restart: false,
        about: "what the identity provider calls this site: the client identifier",
    },
    SettingKey {
        key: "oidc_secret_file",
        variable: "FARDEL_OIDC_SECRET_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/oidc.secret\"",
        needs_restart: false,
        about: "file with the client's secret in its first line, mode 0600; unset: a client without one",
    },
    SettingKey {
        key: "oidc_ca_file",
        variable: "FARDEL_OIDC_CA_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/oidc-ca.pem\"",
        needs_restart: false,
        about: "certificate of the authority of the identity provider, as PEM; unset: the authorities that this machine trusts",
    },
    SettingKey {
        key: "oidc_origin",
        variable: "FARDEL_OIDC_ORIGIN",
        kind: SettingType::Text,
        default: "",
        example: "\"https://fardel.example.org\"",
        needs_restart: false,
        about: "address of this site in browsers, to which the identity provider sends users back",
    },
    SettingKey {
        key: "oidc_scope",
        variable: "FARDEL_OIDC_SCOPE",
        kind: SettingType::Text,
        default: "\"openid profile email\"",
        example: "",
        needs_restart: false,
        about: "scopes that are asked for, with blanks between",
    },
    SettingKey {
        key: "oidc_user",
        variable: "FARDEL_OIDC_USER",
        kind: SettingType::Text,
        default: "\"preferred_username\"",
        example: "",
        needs_restart: false,
        about: "claim with the user name",
    },
    SettingKey {
        key: "oidc_groups",
        variable: "FARDEL_OIDC_GROUPS",
        kind: SettingType::Text,
        default: "\"groups\"",
        example: "",
        needs_restart: false,
        about: "claim with the groups of a user; ldap_groups says which roles they give",
    },
    SettingKey {
        key: "saml_issuer",
        variable: "FARDEL_SAML_ISSUER",
        kind: SettingType::Text,
        default: "",
        example: "\"https://id.example.org/saml\"",
        needs_restart: false,
        about: "identity provider (SAML 2.0) by which users sign in, as it names itself; unset: none",
    },
    SettingKey {
        key: "saml_name",
        variable: "FARDEL_SAML_NAME",
        kind: SettingType::Text,
        default: "\"single sign-on by SAML\"",
        example: "",
        needs_restart: false,
        about: "what sign-in pages call the identity provider of SAML",
    },
    SettingKey {
        key: "saml_sso_url",
        variable: "FARDEL_SAML_SSO_URL",
        kind: SettingType::Text,
        default: "",
        example: "\"https://id.example.org/saml/sso\"",
        needs_restart: false,
        about: "address of the identity provider of SAML to which browsers are led, by its redirect binding",
    },
    SettingKey {
        key: "saml_certificate_file",
        variable: "FARDEL_SAML_CERTIFICATE_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/saml.pem\"",
        needs_restart: false,
        about: "certificates, as PEM, by whose keys the identity provider of SAML signs; no other key is believed",
    },
    SettingKey {
        key: "saml_origin",
        variable: "FARDEL_SAML_ORIGIN",
        kind: SettingType::Text,
        default: "",
        example: "\"https://fardel.example.org\"",
        needs_restart: false,
        about: "address of this site in browsers, to which the identity provider of SAML sends users back",
    },
    SettingKey {
        key: "saml_entity_id",
        variable: "FARDEL_SAML_ENTITY_ID",
        kind: SettingType::Text,
        default: "",
        example: "\"https://fardel.example.org\"",
        needs_restart: false,
        about: "what the identity provider of SAML calls this site; unset: the address of its metadata",
    },
    SettingKey {
        key: "saml_user",
        variable: "FARDEL_SAML_USER",
        kind: SettingType::Text,
        default: "\"uid\"",
        example: "",
        needs_restart: false,
        about: "attribute of SAML with the user name; NameID: the name identifier itself",
    },
    SettingKey {
        key: "saml_email",
        variable: "FARDEL_SAML_EMAIL",
        kind: SettingType::Text,
        default: "\"mail\"",
        example: "",
        needs_restart: false,
        about: "attribute of SAML with the e-mail address",
    },
    SettingKey {
        key: "saml_full_name",
        variable: "FARDEL_SAML_FULL_NAME",
        kind: SettingType::Text,
        default: "\"displayName\"",
        example: "",
        needs_restart: false,
        about: "attribute of SAML with the full name",
    },
    SettingKey {
        key: "saml_groups",
        variable: "FARDEL_SAML_GROUPS",
        kind: SettingType::Text,
        default: "\"groups\"",
        example: "",
        needs_restart: false,
        about: "attribute of SAML with the groups of a user; ldap_groups says which roles they give",
    },
    SettingKey {
        key: "reservation_notice_hours",
        variable: "FARDEL_RESERVATION_NOTICE_HOURS",
        kind: SettingType::Count,
        default: "24",
        example: "",
        needs_restart: false,
        about: "hours; a booking of a lead that starts sooner is a request, which an administrator decides; 0: a booking may start at once",
    },
    SettingKey {
        key: "keep_days",
        variable: "FARDEL_KEEP_DAYS",
        kind: SettingType::Count,
        default: "30",
        example: "",
        needs_restart: true,
        about: "days that logs and rows of ended sessions are kept",
    },
    SettingKey {
        key: "audit_keep_days",
        variable: "FARDEL_AUDIT_KEEP_DAYS",
        kind: SettingType::Count,
        default: "1095",
        example: "",
        needs_restart: false,
        about: "days that rows of the audit log are kept",
    },
    SettingKey {
        key: "audit_to_file",
        variable: "FARDEL_AUDIT_TO_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/var/log/fardel/audit.jsonl\"",
        needs_restart: false,
        about: "file that rows of the audit log are appended to, as JSON lines; unset: none",
    },
    SettingKey {
        key: "audit_to_syslog",
        variable: "FARDEL_AUDIT_TO_SYSLOG",
        kind: SettingType::Text,
        default: "",
        example: "\"tls://10.1.0.9\"",
        needs_restart: false,
        about: "syslog receiver that rows of the audit log are sent to, as tls://HOST, tcp://HOST, udp://HOST or unix:///PATH; unset: none",
    },
    SettingKey {
        key: "audit_to_http",
        variable: "FARDEL_AUDIT_TO_HTTP",
        kind: SettingType::Text,
        default: "",
        example: "\"https://10.1.0.9/audit\"",
        needs_restart: false,
        about: "address that rows of the audit log are posted to, as JSON lines; unset: none",
    },
    SettingKey {
        key: "audit_token_file",
        variable: "FARDEL_AUDIT_TOKEN_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/audit.token\"",
        needs_restart: false,
        about: "file with the bearer token for that address in its first line, mode 0600; unset: no token is sent",
    },
    SettingKey {
        key: "audit_ca_file",
        variable: "FARDEL_AUDIT_CA_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/audit-ca.pem\"",
        needs_restart: false,
        about: "certificate of the authority of the receivers of the audit log, as PEM; unset: the authorities that this machine trusts",
    },
    SettingKey {
        key: "mail_server",
        variable: "FARDEL_MAIL_SERVER",
        kind: SettingType::Text,
        default: "",
        example: "\"10.1.0.7\"",
        needs_restart: false,
        about: "mail server that takes notices, as HOST or HOST:PORT; unset: none is mailed",
    },
    SettingKey {
        key: "mail_security",
        variable: "FARDEL_MAIL_SECURITY",
        kind: SettingType::Text,
        default: "\"starttls\"",
        example: "",
        needs_restart: false,
        about: "how the connection to the mail server is protected: starttls, tls or none",
    },
    SettingKey {
        key: "mail_user",
        variable: "FARDEL_MAIL_USER",
        kind: SettingType::Text,
        default: "",
        example: "\"fardel\"",
        needs_restart: false,
        about: "name to sign in with at the mail server; unset: without one",
    },
    SettingKey {
        key: "mail_password_file",
        variable: "FARDEL_MAIL_PASSWORD_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/mail.password\"",
        needs_restart: false,
        about: "file with the password for that name in its first line, mode 0600",
    },
    SettingKey {
        key: "mail_from",
        variable: "FARDEL_MAIL_FROM",
        kind: SettingType::Text,
        default: "",
        example: "\"fardel@lab.example\"",
        needs_restart: false,
        about: "address that mail comes from; a mail server needs one",
    },
    SettingKey {
        key: "mail_ca_file",
        variable: "FARDEL_MAIL_CA_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/mail-ca.pem\"",
        needs_restart: false,
        about: "certificate of the authority of the mail server, as PEM; unset: the authorities that this machine trusts",
    },
    SettingKey {
        key: "mail_origin",
        variable: "FARDEL_MAIL_ORIGIN",
        kind: SettingType::Text,
        default: "",
        example: "\"https://gpu.lab.example\"",
        needs_restart: false,
        about: "address of this site in browsers, for the links of mail; unset: oidc_origin, else an address of this machine",
    },
    SettingKey {
        key: "webhook_ca_file",
        variable: "FARDEL_WEBHOOK_CA_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/webhook-ca.pem\"",
        needs_restart: false,
        about: "certificate of the authority of the addresses of webhooks, as PEM; unset: the authorities that this machine trusts",
    },
    SettingKey {
        key: "registries",
        variable: "FARDEL_REGISTRIES",
        kind: SettingType::Text,
        default: "",
        example: "\"registry.lab.example, http://10.0.0.5:5000\"",
        needs_restart: false,
        about: "registries that images may be pulled from, between commas; http:// before one without TLS; unset: none",
    },
    SettingKey {
        key: "registry_ca_file",
        variable: "FARDEL_REGISTRY_CA_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/registry-ca.pem\"",
        needs_restart: false,
        about: "certificate of the authority of these registries, as PEM; unset: the authorities that this machine trusts",
    },
    SettingKey {
        key: "registry_credentials_file",
        variable: "FARDEL_REGISTRY_CREDENTIALS_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/registry-credentials.json\"",
        needs_restart: false,
        about: "file with names and passwords for these registries, as docker login writes them, closed to other users",
    },
    SettingKey {
        key: "environment_keys_file",
        variable: "FARDEL_ENVIRONMENT_KEYS_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/environment-keys\"",
        needs_restart: false,
        about: "file with a name and a public key on each line, whose signature lets a bundle of an environment in; unset: none",
    },
    SettingKey {
        key: "log_json",
        variable: "FARDEL_LOG_JSON",
        kind: SettingType::Flag,
        default: "false",
        example: "",
        needs_restart: true,
        about: "write the log as JSON lines",
    },
    SettingKey {
        key: "backup_dir",
        variable: "FARDEL_BACKUP_DIR",
        kind: SettingType::Text,
        default: "",
        example: "\"/var/backups/fardel\"",
        needs_restart: false,
        about: "directory of the server's encrypted backups; unset: no backups",
    },
    SettingKey {
        key: "backup_every_hours",
        variable: "FARDEL_BACKUP_EVERY_HOURS",
        kind: SettingType::Count,
        default: "24",
        example: "",
        needs_restart: false,
        about: "hours between two scheduled backups; 0: none is scheduled",
    },
    SettingKey {
        key: "backup_keep",
        variable: "FARDEL_BACKUP_KEEP",
        kind: SettingType::Count,
        default: "7",
        example: "",
        needs_restart: false,
        about: "number of backups that are kept in the directory",
    },
    SettingKey {
        key: "backup_passphrase_file",
        variable: "FARDEL_BACKUP_PASSPHRASE_FILE",
        kind: SettingType::Text,
        default: "",
        example: "\"/etc/fardel/backup.passphrase\"",
        needs_restart: false,
        about: "file with the passphrase of backups in its first line, mode 0600",
    },
];

/// One source of settings; None leaves the source before it in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsLayer {
    pub data: Option<PathBuf>,
    pub run: Option<PathBuf>,
    pub listen: Option<String>,
    pub listen_http: Option<String>,
    pub listen_apps: Option<String>,
    pub apps_name: Option<String>,
    pub listen_ssh: Option<String>,
    pub tls: Option<String>,
    pub host_environment: Option<bool>,
    pub homes: Option<bool>,
    pub cpu: Option<String>,
    pub memory: Option<String>,
    pub pool_size: Option<String>,
    pub session_disk: Option<String>,
    pub simulate_gpus: Option<String>,
    pub driver_root: Option<PathBuf>,
    pub gpu_mode: Option<String>,
    pub gpu_units: Option<u32>,
    pub gpu_least: Option<String>,
    pub gpu_step: Option<String>,
    pub gpu_spreading: Option<String>,
    pub gpu_each: Option<String>,
    pub second_factor: Option<String>,
    pub sign_ins: Option<u32>,
    pub sign_ins_full: Option<String>,
    pub password_length: Option<u32>,
    pub password_classes: Option<u32>,
    pub password_days: Option<u32>,
    pub password_history: Option<u32>,
    pub password_change_first: Option<bool>,
    pub ldap_url: Option<String>,
    pub ldap_start_tls: Option<bool>,
    pub ldap_ca_file: Option<PathBuf>,
    pub ldap_base: Option<String>,
    pub ldap_bind: Option<String>,
    pub ldap_password_file: Option<PathBuf>,
    pub ldap_filter: Option<String>,
    pub ldap_name: Option<String>,
    pub ldap_email: Option<String>,
    pub ldap_full_name: Option<String>,
    pub ldap_member_of: Option<String>,
    pub ldap_groups: Option<String>,
    pub ldap_domain: Option<String>,
    pub oidc_issuer: Option<String>,
    pub oidc_name: Option<String>,
    pub oidc_client: Option<String>,
    pub oidc_secret_file: Option<PathBuf>,
    pub oidc_ca_file: Option<PathBuf>,
    pub oidc_origin: Option<String>,
    pub oidc_scope: Option<String>,
    pub oidc_user: Option<String>,
    pub oidc_groups: Option<String>,
    pub saml_issuer: Option<String>,
    pub saml_name: Option<String>,
    pub saml_sso_url: Option<String>,
    pub saml_certificate_file: Option<PathBuf>,
    pub saml_origin: Option<String>,
    pub saml_entity_id: Option<String>,
    pub saml_user: Option<String>,
    pub saml_email: Option<String>,
    pub saml_full_name: Option<String>,
    pub saml_groups: Option<String>,
    pub reservation_notice_hours: Option<u32>,
    pub keep_days: Option<u32>,
    pub audit_keep_days: Option<u32>,
    pub audit_to_file: Option<PathBuf>,
    pub audit_to_syslog: Option<String>,
    pub audit_to_http: Option<String>,
    pub audit_token_file: Option<PathBuf>,
    pub audit_ca_file: Option<PathBuf>,
    pub mail_server: Option<String>,
    pub mail_security: Option<String>,
    pub mail_user: Option<String>,
    pub mail_password_file: Option<PathBuf>,
    pub mail_from: Option<String>,
    pub mail_ca_file: Option<PathBuf>,
    pub mail_origin: Option<String>,
    pub webhook_ca_file: Option<PathBuf>,
    pub registries: Option<String>,
    pub registry_ca_file: Option<PathBuf>,
    pub registry_credentials_file: Option<PathBuf>,
    pub environment_keys_file: Option<PathBuf>,
    pub log_json: Option<bool>,
    pub backup_dir: Option<PathBuf>,
    pub backup_every_hours: Option<u32>,
    pub backup_keep: Option<u32>,
    pub backup_passphrase_file: Option<PathBuf>,
}

/// Where the settings file lies unless `FARDEL_CONFIG` says otherwise.
pub const FILE: &str = "/etc/fardel/fardel.toml";

/// Reads one variable of the environment; None where it is unset.
type Variable = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where settings come from, so that a running server can read them again.
#[derive(Clone)]
pub struct SettingsSources {
    flags: SettingsLayer,
    variable: Variable,
}

impl std::fmt::Debug for SettingsSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources")
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

/// All settings as they were read at one moment.
#[derive(Debug, Clone)]
pub struct LoadedSettings {
    pub settings: Settings,
    /// One for each key, in the order of `KEYS`.
    pub standings: Vec<EffectiveSetting>,
    pub sources: SettingsSources,
}

/// One setting as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EffectiveSetting {
    pub key: &'static str,
    /// In force now; None where nothing is set.
    pub value: Option<Value>,
    /// In force where no source says anything.
    pub default: Option<Value>,
    pub source: SettingSource,
    pub variable: &'static str,
    pub needs_restart: bool,
    pub about: &'static str,
    /// What a source says by now and the server will take up only when it starts again: the value,
    /// or what it is without any source. None where nothing waits.
    pub waiting: Option<PendingValue>,
}

/// A value that waits for a restart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PendingValue {
    pub value: Option<Value>,
    pub source: SettingSource,
}

/// Where a value comes from. As text: `built-in`, the file's path, the variable's name, `flag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    BuiltIn,
    File(PathBuf),
    Variable(&'static str),
    Flag,
}

impl std::fmt::Display for SettingSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag => f.write_str("flag"),
        }
    }
}

impl Serialize for SettingSource {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl SettingsSources {
    pub fn new(
        flags: SettingsLayer,
        variable: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            flags,
            variable: Arc::new(variable),
        }
    }

    /// The settings file, whether it is there or not.
    pub fn file(&self) -> PathBuf {
        settings_file(&*self.variable)
    }

    /// Reads every source now. Missing files count as empty.
    ///
    /// Errors: a file that cannot be read or is no TOML, an unknown key (with the nearest known one),
    /// a value of the wrong type, an address that is none; each names the source.
    pub fn read(&self) -> Result<LoadedSettings, Refusal> {
        self.read_as(&|_| None)
    }

    /// The same as if some files held other text.
    fn read_as<'a>(
        &self,
        text: &dyn Fn(&Path) -> Option<&'a str>,
    ) -> Result<LoadedSettings, Refusal> {
        let (settings, standings) = read(&self.flags, &*self.variable, text)?;
        Ok(LoadedSettings {
            settings,
            standings,
            sources: self.clone(),
        })
    }
}

fn read<'a>(
    flags: &SettingsLayer,
    variable: &dyn Fn(&str) -> Option<String>,
    text: &dyn Fn(&Path) -> Option<&'a str>,
) -> Result<(Settings, Vec<EffectiveSetting>), Refusal> {
    let file = settings_file(variable);
    let mut standings = built_in(variable);
    for path in files(&file) {
        let values = match text(&path) {
            Some(text) => parse(text, &path.display().to_string())?,
            None => read_file(&path)?,
        };
        lay(&mut standings, values, &SettingSource::File(path));
    }
    let own_data = match file == Path::new(FILE) {
        true => path_of(&standings, "data"),
        false => default_places(variable).0,
    };
    for (at, key) in KEYS.iter().enumerate() {
        if let Some(value) = from_variable(key, variable)? {
            standings[at].value = Some(value);
            standings[at].source = SettingSource::Variable(key.variable);
        }
    }
    let before = standings.clone();
    lay(&mut standings, table(flags), &SettingSource::Flag);
    for (now, before) in standings.iter_mut().zip(before) {
        // The command line takes variables as if they were flags; say which it was.
        if now.value == before.value && matches!(before.source, SettingSource::Variable(_)) {
            now.source = before.source;
        }
    }
    let data = absolute(path_of(&standings, "data"));
    for standing in &mut standings {
        if standing.key == "run" && standing.source == SettingSource::BuiltIn {
            let run = places::run_of(&data, &own_data, &default_places(variable).1);
            let run = Some(Value::String(run.display().to_string()));
            standing.value.clone_from(&run);
            standing.default = run;
        }
    }
    Ok((settings(&standings)?, standings))
}

/// The path that a key stands at; empty where it is none, which is refused later.
fn path_of(standings: &[EffectiveSetting], key: &str) -> PathBuf {
    let standing = standings.iter().find(|standing| standing.key == key);
    standing
        .and_then(|standing| standing.value.as_ref()?.as_str())
        .map(PathBuf::from)
        .unwrap_or_default()
}

impl LoadedSettings {
    /// What is in force once a server that runs with `self` has seen `newer`: new values where a
    /// running server takes them, the old ones where it would have to start again.
    pub fn followed_by(&self, newer: &LoadedSettings) -> LoadedSettings {
        let standings: Vec<EffectiveSetting> = self
            .standings
            .iter()
            .zip(&newer.standings)
            .map(|(old, new)| {
                if !old.needs_restart {
                    return new.clone();
                }
                let waits = old.value != new.value;
                EffectiveSetting {
                    waiting: waits.then(|| PendingValue {
                        value: new.value.clone(),
                        source: new.source.clone(),
                    }),
                    source: if waits {
                        old.source.clone()
                    } else {
                        new.source.clone()
                    },
                    ..old.clone()
                }
            })
            .collect();
        // Each value was good in one of the two readings, so the mixture is; if two keys ever
        // depend on each other and the mixture is not, what runs stays as it is.
        let settings = settings(&standings).unwrap_or_else(|_| self.settings.clone());
        LoadedSettings {
            settings,
            standings,
            sources: newer.sources.clone(),
        }
    }

    /// Keys whose value in force differs between the two.
    pub fn changed(&self, newer: &LoadedSettings) -> Vec<&'static str> {
        self.standings
            .iter()
            .zip(&newer.standings)
            .filter(|(old, new)| old.value != new.value)
            .map(|(old, _)| old.key)
            .collect()
    }

    /// Keys whose new value waits for a restart.
    pub fn waiting(&self) -> Vec<&'static str> {
        let waits = self
            .standings
            .iter()
            .filter(|standing| standing.waiting.is_some());
        waits.map(|standing| standing.key).collect()
    }
}

impl From<Settings> for LoadedSettings {
    /// Settings that a program made by itself, as tests do: each counts as a flag.
    fn from(settings: Settings) -> Self {
        let flags = SettingsLayer {
            data: Some(settings.data.clone()),
            run: Some(settings.run.clone()),
            listen: Some(settings.listen.to_string()),
            listen_http: settings.listen_http.map(|address| address.to_string()),
            listen_apps: settings.listen_apps.map(|address| address.to_string()),
            apps_name: settings.apps_name.clone(),
            listen_ssh: settings.listen_ssh.map(|address| address.to_string()),
            tls: Some(settings.tls.word().to_owned()),
            host_environment: Some(settings.host_environment),
            homes: Some(settings.homes),
            cpu: settings.cpu.clone(),
            memory: settings.memory.clone(),
            pool_size: settings.pool_size.clone(),
            session_disk: Some(settings.session_disk.clone()),
            simulate_gpus: settings.simulate_gpus.clone(),
            driver_root: Some(settings.driver_root.clone()),
            gpu_mode: Some(settings.gpu_mode.clone()),
            gpu_units: Some(settings.gpu_units),
            gpu_least: Some(settings.gpu_least.clone()),
            gpu_step: Some(settings.gpu_step.clone()),
            gpu_spreading: Some(settings.gpu_spreading.clone()),
            gpu_each: settings.gpu_each.clone(),
            second_factor: Some(settings.second_factor.clone()),
            sign_ins: Some(settings.sign_ins),
            sign_ins_full: Some(settings.sign_ins_full.clone()),
            password_length: Some(settings.password_length),
            password_classes: Some(settings.password_classes),
            password_days: Some(settings.password_days),
            password_history: Some(settings.password_history),
            password_change_first: Some(settings.password_change_first),
            ldap_url: settings.ldap_url.clone(),
            ldap_start_tls: Some(settings.ldap_start_tls),
            ldap_ca_file: settings.ldap_ca_file.clone(),
            ldap_base: settings.ldap_base.clone(),
            ldap_bind: settings.ldap_bind.clone(),
            ldap_password_file: settings.ldap_password_file.clone(),
            ldap_filter: Some(settings.ldap_filter.clone()),
            ldap_name: Some(settings.ldap_name.clone()),
            ldap_email: Some(settings.ldap_email.clone()),
            ldap_full_name: Some(settings.ldap_full_name.clone()),
            ldap_member_of: Some(settings.ldap_member_of.clone()),
            ldap_groups: settings.ldap_groups.clone(),
            ldap_domain: Some(settings.ldap_domain.clone()),
            oidc_issuer: settings.oidc_issuer.clone(),
            oidc_name: Some(settings.oidc_name.clone()),
            oidc_client: settings.oidc_client.clone(),
            oidc_secret_file: settings.oidc_secret_file.clone(),
            oidc_ca_file: settings.oidc_ca_file.clone(),
            oidc_origin: settings.oidc_origin.clone(),
            oidc_scope: Some(settings.oidc_scope.clone()),
            oidc_user: Some(settings.oidc_user.clone()),
            oidc_groups: Some(settings.oidc_groups.clone()),
            saml_issuer: settings.saml_issuer.clone(),
            saml_name: Some(settings.saml_name.clone()),
            saml_sso_url: settings.saml_sso_url.clone(),
            saml_certificate_file: settings.saml_certificate_file.clone(),
            saml_origin: settings.saml_origin.clone(),
            saml_entity_id: settings.saml_entity_id.clone(),
            saml_user: Some(settings.saml_user.clone()),
            saml_email: Some(settings.saml_email.clone()),
            saml_full_name: Some(settings.saml_full_name.clone()),
            saml_groups: Some(settings.saml_groups.clone()),
            reservation_notice_hours: Some(settings.reservation_notice_hours),
            keep_days: Some(settings.keep_days),
            audit_keep_days: Some(settings.audit_keep_days),
            audit_to_file: settings.audit_to_file.clone(),
            audit_to_syslog: settings.audit_to_syslog.clone(),
            audit_to_http: settings.audit_to_http.clone(),
            audit_token_file: settings.audit_token_file.clone(),
            audit_ca_file: settings.audit_ca_file.clone(),
            mail_server: settings.mail_server.clone(),
            mail_security: Some(settings.mail_security.clone()),
            mail_user: settings.mail_user.clone(),
            mail_password_file: settings.mail_password_file.clone(),
            mail_from: settings.mail_from.clone(),
            mail_ca_file: settings.mail_ca_file.clone(),
            mail_origin: settings.mail_origin.clone(),
            webhook_ca_file: settings.webhook_ca_file.clone(),
            registries: settings.registries.clone(),
            registry_ca_file: settings.registry_ca_file.clone(),
            registry_credentials_file: settings.registry_credentials_file.clone(),
            environment_keys_file: settings.environment_keys_file.clone(),
            log_json: Some(settings.log_json),
            backup_dir: settings.backup_dir.clone(),
            backup_every_hours: Some(settings.backup_every_hours),
            backup_keep: Some(settings.backup_keep),
            backup_passphrase_file: settings.backup_passphrase_file.clone(),
        };
        let sources = SettingsSources::new(flags, |_| None);
        let mut standings = built_in(&|_| None);
        lay(&mut standings, table(&sources.flags), &SettingSource::Flag);
        LoadedSettings {
            settings,
            standings,
            sources,
        }
    }
}

impl Settings {
    /// Reads every source once; see `SettingsSources::read`.
    pub fn read(
        flags: SettingsLayer,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        read(&flags, &variable, &|_| None).map(|(settings, _)| settings)
    }

    /// The administrator's rules for shares of devices.
    pub fn share_policy(&self) -> rules::policy::SharePolicy {
        // They were checked when they were read.
        let share = |text: &str| rules::units::GpuShare::parse(text).ok();
        let usual = rules::policy::SharePolicy::default();
        rules::policy::SharePolicy {
            units: self.gpu_units,
            least: share(&self.gpu_least).unwrap_or(usual.least),
            step: share(&self.gpu_step).unwrap_or(usual.step),
            spreading: rules::policy::Spreading::parse(&self.gpu_spreading).unwrap_or_default(),
            each: self.gpu_each.as_deref().and_then(share),
            ..usual
        }
    }

    /// How large the pool for folders is at first.
    pub fn pool(&self) -> rules::storage::PoolSetting {
        // It was checked when it was read.
        let set = self.pool_size.as_deref().map(rules::storage::pool_setting);
        set.and_then(Result::ok).unwrap_or_default()
    }

    /// What a session that names no disk is held to; None: to nothing.
    pub fn usual_disk(&self) -> Option<rules::units::Bytes> {
        // It was checked when it was read.
        rules::resources::usual_disk(&self.session_disk).unwrap_or_default()
    }

    /// Whether every user has to have a second factor.
    pub fn requires_second_factor(&self) -> bool {
        self.second_factor == "required"
    }

    /// Whether pages and API are served encrypted.
    pub fn encrypted(&self) -> bool {
        match self.tls {
            TlsMode::Auto => !self.listen.ip().is_loopback(),
            TlsMode::On => true,
            TlsMode::Off => false,
        }
    }

    /// Where browsers open the console, as `https://10.1.4.20`: the address that was set, or every own
    /// one where it stands for all. Never empty.
    pub fn origins(&self) -> Vec<String> {
        let (scheme, usual) = if self.encrypted() {
            ("https", 443)
        } else {
            ("http", 80)
        };
        let shown = |address: SocketAddr| match (address, address.port() == usual) {
            (SocketAddr::V4(four), true) => format!("{scheme}://{}", four.ip()),
            (SocketAddr::V6(six), true) => format!("{scheme}://[{}]", six.ip()),
            (address, false) => format!("{scheme}://{address}"),
        };
        let open = crate::addresses::open_at(self.listen);
        open.into_iter().map(shown).collect()
    }

    /// The socket where root on the box needs no sign-in.
    pub fn socket(&self) -> PathBuf {
        self.run.join("fardel.sock")
    }
}

fn settings_file(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    variable("FARDEL_CONFIG").map_or_else(|| PathBuf::from(FILE), PathBuf::from)
}

/// The settings file and what lies in `conf.d` beside it, in the order they are read.
pub fn files(file: &Path) -> Vec<PathBuf> {
    let mut more: Vec<PathBuf> = std::fs::read_dir(file.with_file_name("conf.d"))
        .map(|entries| entries.filter_map(|e| e.ok().map(|e| e.path())).collect())
        .unwrap_or_default();
    more.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    more.sort();
    more.insert(0, file.to_owned());
    more
}

/// Every key at its default.
fn built_in(variable: &dyn Fn(&str) -> Option<String>) -> Vec<EffectiveSetting> {
    let (data, run) = default_places(variable);
    KEYS.iter()
        .map(|key| {
            let default = match key.key {
                "data" => Some(Value::String(data.display().to_string())),
                "run" => Some(Value::String(run.display().to_string())),
                _ => literal(key.default),
            };
            EffectiveSetting {
                key: key.key,
                value: default.clone(),
                default,
                source: SettingSource::BuiltIn,
                variable: key.variable,
                needs_restart: key.needs_restart,
                about: key.about,
                waiting: None,
            }
        })
        .collect()
}

/// A value as a settings file writes it; None for empty text.
pub fn literal(text: &str) -> Option<Value> {
    let mut table: Table = format!("value = {text}").parse().ok()?;
    table.remove("value")
}

fn lay(standings: &mut [EffectiveSetting], mut values: Table, source: &SettingSource) {
    for standing in standings {
        if let Some(value) = values.remove(standing.key) {
            standing.value = Some(value);
            standing.source = source.clone();
        }
    }
}

fn table(layer: &SettingsLayer) -> Table {
    // Text, flags and counts always are TOML, and None is left out.
    Table::try_from(layer).unwrap_or_default()
}

/// Checks all values together.
fn settings(standings: &[EffectiveSetting]) -> Result<Settings, Refusal> {
    let values: Table = standings
        .iter()
        .filter_map(|standing| Some((standing.key.to_owned(), standing.value.clone()?)))
        .collect();
    let layer = SettingsLayer::deserialize(values)
        .map_err(|error| refusals::setting_type_wrong(error.message()))?;
    let from = |key: &str| {
        standings
            .iter()
            .find(|standing| standing.key == key)
            .map(|standing| standing.source.to_string())
            .unwrap_or_default()
    };
    let missing = |key: &str| refusals::setting_missing(key);
    directory::check(&layer, &from)?;
    hand_over::check(&layer, &from)?;
    mail::check(&layer, &from)?;
    registries::check(&layer, &from)?;
    let address = |key: &str, text: String| {
        text.parse::<SocketAddr>().map_err(|_| {
            let (source, value) = (from(key), format!("{text:?}"));
            match key {
                "listen_http" => refusals::setting_listen_http_invalid(source, value),
                "listen_apps" => refusals::setting_listen_apps_invalid(source, value),
                "listen_ssh" => refusals::setting_listen_ssh_invalid(source, value),
                _ => refusals::setting_listen_invalid(source, value),
            }
        })
    };
    let listen = address("listen", layer.listen.ok_or_else(|| missing("listen"))?)?;
    let beside = |key: &str, text: Option<String>| {
        let text = text.filter(|text| !text.is_empty());
        text.map(|text| address(key, text)).transpose()
    };
    let listen_http = beside("listen_http", layer.listen_http)?;
    let listen_apps = beside("listen_apps", layer.listen_apps)?;
    let apps_name = layer.apps_name.map(|name| name.trim().to_ascii_lowercase());
    let apps_name = apps_name.filter(|name| !name.is_empty());
    if let Some(name) = &apps_name
        && !rules::app_origin::is_apps_name(name)
    {
        let value = format_args!("{name:?}");
        return Err(refusals::setting_apps_name_invalid(
            from("apps_name"),
            value,
        ));
    }
    let listen_ssh = beside("listen_ssh", layer.listen_ssh)?;
    let word = layer.tls.ok_or_else(|| missing("tls"))?;
    let tls = TlsMode::parse(&word)
        .ok_or_else(|| refusals::setting_tls_invalid(from("tls"), format_args!("{word:?}")))?;
    let named = |key: &str, refusal: Refusal| Refusal {
        text: format!("{}: {key}: {}", from(key), refusal.text),
        ..refusal
    };
    let at_least_one = |key: &str, value: Option<u32>| match value.ok_or_else(|| missing(key))? {
        0 => Err(refusals::setting_below_one(from(key), key)),
        value => Ok(value),
    };
    if let Some(cpu) = &layer.cpu {
        rules::units::CpuShare::parse(cpu).map_err(|refusal| named("cpu", refusal))?;
    }
    if let Some(memory) = &layer.memory {
        rules::units::Bytes::parse(memory).map_err(|refusal| named("memory", refusal))?;
    }
    if let Some(size) = &layer.pool_size {
        rules::storage::pool_setting(size).map_err(|refusal| named("pool_size", refusal))?;
    }
    if let Some(disk) = &layer.session_disk {
        rules::resources::usual_disk(disk).map_err(|refusal| named("session_disk", refusal))?;
    }
    let share = |key: &str, text: Option<&String>| {
        let text = text.ok_or_else(|| missing(key))?;
        let share = rules::units::GpuShare::parse(text).map_err(|refusal| named(key, refusal))?;
        if share == rules::units::GpuShare::ZERO {
            return Err(refusals::setting_share_too_small(from(key), key));
        }
        Ok(share)
    };
    share("gpu_least", layer.gpu_least.as_ref())?;
    share("gpu_step", layer.gpu_step.as_ref())?;
    if layer.gpu_each.is_some() {
        share("gpu_each", layer.gpu_each.as_ref())?;
    }
    let gpu_spreading = layer
        .gpu_spreading
        .ok_or_else(|| missing("gpu_spreading"))?;
    if rules::policy::Spreading::parse(&gpu_spreading).is_none() {
        return Err(refusals::setting_gpu_spreading_invalid(
            from("gpu_spreading"),
            format_args!("{gpu_spreading:?}"),
        ));
    }
    let gpu_mode = layer.gpu_mode.ok_or_else(|| missing("gpu_mode"))?;
    if !matches!(gpu_mode.as_str(), "hard" | "elastic") {
        return Err(refusals::setting_gpu_mode_invalid(
            from("gpu_mode"),
            format_args!("{gpu_mode:?}"),
        ));
    }
    let second_factor = layer
        .second_factor
        .ok_or_else(|| missing("second_factor"))?;
    if !matches!(second_factor.as_str(), "optional" | "required") {
        return Err(refusals::setting_second_factor_invalid(
            from("second_factor"),
            format_args!("{second_factor:?}"),
        ));
    }
    let sign_ins_full = layer
        .sign_ins_full
        .ok_or_else(|| missing("sign_ins_full"))?;
    if !matches!(sign_ins_full.as_str(), "end-oldest" | "refuse") {
        return Err(refusals::setting_sign_ins_full_invalid(
            from("sign_ins_full"),
            format_args!("{sign_ins_full:?}"),
        ));
    }
    let within = |key: &str, value: Option<u32>, least: u32, most: u32| {
        let value = value.ok_or_else(|| missing(key))?;
        match (least..=most).contains(&value) {
            true => Ok(value),
            false => Err(refusals::setting_beyond(from(key), key, value, least, most)),
        }
    };
    let gpu_units = layer.gpu_units.ok_or_else(|| missing("gpu_units"))?;
    if !(1..=100).contains(&gpu_units) {
        return Err(refusals::setting_out_of_range(from("gpu_units"), gpu_units));
    }
    Ok(Settings {
        data: absolute(layer.data.ok_or_else(|| missing("data"))?),
        run: absolute(layer.run.ok_or_else(|| missing("run"))?),
        listen,
        listen_http,
        listen_apps,
        apps_name,
        listen_ssh,
        tls,
        host_environment: layer
            .host_environment
            .ok_or_else(|| missing("host_environment"))?,
        homes: layer.homes.ok_or_else(|| missing("homes"))?,
        cpu: layer.cpu,
        memory: layer.memory,
        pool_size: layer.pool_size,
        session_disk: layer.session_disk.ok_or_else(|| missing("session_disk"))?,
        simulate_gpus: layer.simulate_gpus.filter(|text| !text.is_empty()),
        driver_root: absolute(layer.driver_root.ok_or_else(|| missing("driver_root"))?),
        gpu_mode,
        gpu_units,
        gpu_least: layer.gpu_least.ok_or_else(|| missing("gpu_least"))?,
        gpu_step: layer.gpu_step.ok_or_else(|| missing("gpu_step"))?,
        gpu_spreading,
        gpu_each: layer.gpu_each,
        second_factor,
        sign_ins: within("sign_ins", layer.sign_ins, 0, 100)?,
        sign_ins_full,
        password_length: within("password_length", layer.password_length, 10, 64)?,
        password_classes: within("password_classes", layer.password_classes, 0, 4)?,
        password_days: within("password_days", layer.password_days, 0, 3650)?,
        password_history: within("password_history", layer.password_history, 0, 10)?,
        password_change_first: layer
            .password_change_first
            .ok_or_else(|| missing("password_change_first"))?,
        ldap_url: layer.ldap_url.filter(|text| !text.trim().is_empty()),
        ldap_start_tls: layer
            .ldap_start_tls
            .ok_or_else(|| missing("ldap_start_tls"))?,
        ldap_ca_file: layer.ldap_ca_file.map(absolute),
        ldap_base: layer.ldap_base.filter(|text| !text.trim().is_empty()),
        ldap_bind: layer.ldap_bind.filter(|text| !text.trim().is_empty()),
        ldap_password_file: layer.ldap_password_file.map(absolute),
        ldap_filter: layer.ldap_filter.ok_or_else(|| missing("ldap_filter"))?,
        ldap_name: layer.ldap_name.ok_or_else(|| missing("ldap_name"))?,
        ldap_email: layer.ldap_email.ok_or_else(|| missing("ldap_email"))?,
        ldap_full_name: layer
            .ldap_full_name
            .ok_or_else(|| missing("ldap_full_name"))?,
        ldap_member_of: layer
            .ldap_member_of
            .ok_or_else(|| missing("ldap_member_of"))?,
        ldap_groups: layer.ldap_groups.filter(|text| !text.trim().is_empty()),
        ldap_domain: layer.ldap_domain.ok_or_else(|| missing("ldap_domain"))?,
        oidc_issuer: layer.oidc_issuer.filter(|text| !text.trim().is_empty()),
        oidc_name: layer.oidc_name.ok_or_else(|| missing("oidc_name"))?,
        oidc_client: layer.oidc_client.filter(|text| !text.trim().is_empty()),
        oidc_secret_file: layer.oidc_secret_file.map(absolute),
        oidc_ca_file: layer.oidc_ca_file.map(absolute),
        oidc_origin: layer.oidc_origin.filter(|text| !text.trim().is_empty()),
        oidc_scope: layer.oidc_scope.ok_or_else(|| missing("oidc_scope"))?,
        oidc_user: layer.oidc_user.ok_or_else(|| missing("oidc_user"))?,
        oidc_groups: layer.oidc_groups.ok_or_else(|| missing("oidc_groups"))?,
        saml_issuer: layer.saml_issuer.filter(|text| !text.trim().is_empty()),
        saml_name: layer.saml_name.ok_or_else(|| missing("saml_name"))?,
        saml_sso_url: layer.saml_sso_url.filter(|text| !text.trim().is_empty()),
        saml_certificate_file: layer.saml_certificate_file.map(absolute),
        saml_origin: layer.saml_origin.filter(|text| !text.trim().is_empty()),
        saml_entity_id: layer.saml_entity_id.filter(|text| !text.trim().is_empty()),
        saml_user: layer.saml_user.ok_or_else(|| missing("saml_user"))?,
        saml_email: layer.saml_email.ok_or_else(|| missing("saml_email"))?,
        saml_full_name: layer
            .saml_full_name
            .ok_or_else(|| missing("saml_full_name"))?,
        saml_groups: layer.saml_groups.ok_or_else(|| missing("saml_groups"))?,
        reservation_notice_hours: within(
            "reservation_notice_hours",
            layer.reservation_notice_hours,
            0,
            8760,
        )?,
        keep_days: layer.keep_days.ok_or_else(|| missing("keep_days"))?,
        audit_keep_days: at_least_one("audit_keep_days", layer.audit_keep_days)?,
        audit_to_file: layer
            .audit_to_file
            .filter(|path| !path.as_os_str().is_empty())
            .map(absolute),
        audit_to_syslog: layer.audit_to_syslog.filter(|text| !text.trim().is_empty()),
        audit_to_http: layer.audit_to_http.filter(|text| !text.trim().is_empty()),
        audit_token_file: layer.audit_token_file.map(absolute),
        audit_ca_file: layer.audit_ca_file.map(absolute),
        mail_server: layer.mail_server.filter(|text| !text.trim().is_empty()),
        mail_security: layer
            .mail_security
            .ok_or_else(|| missing("mail_security"))?,
        mail_user: layer.mail_user.filter(|text| !text.trim().is_empty()),
        mail_password_file: layer
            .mail_password_file
            .filter(|path| !path.as_os_str().is_empty())
            .map(absolute),
        mail_from: layer.mail_from.filter(|text| !text.trim().is_empty()),
        mail_ca_file: layer
            .mail_ca_file
            .filter(|path| !path.as_os_str().is_empty())
            .map(absolute),
        mail_origin: layer.mail_origin.filter(|text| !text.trim().is_empty()),
        webhook_ca_file: layer
            .webhook_ca_file
            .filter(|path| !path.as_os_str().is_empty())
            .map(absolute),
        registries: layer.registries.filter(|text| !text.trim().is_empty()),
        registry_ca_file: layer
            .registry_ca_file
            .filter(|path| !path.as_os_str().is_empty())
            .map(absolute),
        registry_credentials_file: layer
            .registry_credentials_file
            .filter(|path| !path.as_os_str().is_empty())
            .map(absolute),
        environment_keys_file: layer
            .environment_keys_file
            .filter(|path| !path.as_os_str().is_empty())
            .map(absolute),
        log_json: layer.log_json.ok_or_else(|| missing("log_json"))?,
        backup_dir: layer.backup_dir.map(absolute),
        backup_every_hours: layer
            .backup_every_hours
            .ok_or_else(|| missing("backup_every_hours"))?,
        backup_keep: at_least_one("backup_keep", layer.backup_keep)?,
        backup_passphrase_file: layer.backup_passphrase_file.map(absolute),
    })
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Root keeps state where a package would; other users below their home.
fn default_places(variable: &dyn Fn(&str) -> Option<String>) -> (PathBuf, PathBuf) {
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if root {
        return ("/var/lib/fardel".into(), "/run/fardel".into());
    }
    let home = variable("HOME").unwrap_or_else(|| "/tmp".to_owned());
    let data = variable("XDG_DATA_HOME")
        .map_or_else(|| Path::new(&home).join(".local/share"), PathBuf::from)
        .join("fardel");
    let run = variable("XDG_RUNTIME_DIR")
        .map_or_else(|| data.join("run"), |d| Path::new(&d).join("fardel"));
    (data, run)
}

/// What the environment says of one key; None where it is unset or empty.
fn from_variable(
    key: &SettingKey,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Value>, Refusal> {
    let Some(text) = variable(key.variable).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let wrong = |wanted: &str| {
        refusals::setting_variable_wrong_type(key.variable, format_args!("{text:?}"), wanted, &text)
    };
    Ok(Some(match (key.kind, text.as_str()) {
        (SettingType::Text, _) => Value::String(text),
        (SettingType::Flag, "true" | "1" | "yes" | "on") => Value::Boolean(true),
        (SettingType::Flag, "false" | "0" | "no" | "off") => Value::Boolean(false),
        (SettingType::Flag, _) => return Err(wrong("true or false")),
        (SettingType::Count, number) => match number.parse::<u32>() {
            Ok(number) => Value::Integer(number.into()),
            Err(_) => return Err(wrong("a whole number")),
        },
    }))
}
