//! `/system/settings`: what is in force, what it would be by default and who says so; and one key changed, reset or
//! undone. A refused value stays in its field. What the console may change, `server::actions::settings` decides.

use askama::Template;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::mail;
use server::actions::settings::{self, SettingStanding, SettingWrite::Real};

use super::authentication::PageCaller;
use super::components::{self, Alert, FormFieldError};
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, palette, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/settings.html")]
pub struct SettingsPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub q: String,
    pub only_changed: bool,
    pub groups: Vec<SettingGroup>,
    /// Other pages that have what is searched, by address and name.
    pub other_pages: Vec<(&'static str, &'static str)>,
    /// Notices that the mail server refused for good: a form below the trial sends them again.
    pub refused_mail: u64,
    /// The reader may send a trial and send again; auditors only look.
    pub may_send_mail: bool,
    pub waiting: usize,
    pub faults: Vec<FormFieldError>,
    /// The settings file in use, which Save changes.
    pub file: String,
}

/// Settings of one subject.
pub struct SettingGroup {
    /// Of its title, for links to it; no key of a setting is called so.
    pub id: String,
    pub title: &'static str,
    /// A form below it sends a test mail.
    pub tries_mail: bool,
    /// What came of the trial, said at its form, where the reader is; empty for all other pages.
    pub tried: String,
    pub rows: Vec<SettingRow>,
}

/// One setting.
pub struct SettingRow {
    pub key: String,
    /// What it is called in the reader's language.
    pub name: &'static str,
    pub about: &'static str,
    pub value: String,
    pub default: String,
    pub source: String,
    pub variable: String,
    /// What a source says by now and waits for a restart; empty where nothing does.
    pub waiting: String,
    pub needs_restart: bool,
    pub changed: bool,
    pub may_change: bool,
    /// What the field holds: what was typed, else what a source says.
    pub typed: String,
    /// Values of a choice; empty for free text.
    pub choices: Vec<(&'static str, bool)>,
    /// To what an undo of the last change leads, and how long it can; empty where there is none.
    pub undo: String,
    pub open: bool,
    /// What was just done to it, said in its row, which has the focus; empty for all others.
    pub said: String,
    /// Why it is not changed here.
    pub closed: String,
    /// The form of another page that changes it.
    pub elsewhere: Option<(&'static str, &'static str)>,
}

/// The groups, in their order, with their keys.
const GROUPS: [(&str, &[&str]); 12] = [
    (
        "sessions",
        &[
            "cpu",
            "memory",
            "pool_size",
            "session_disk",
            "host_environment",
            "homes",
            "reservation_notice_hours",
            "keep_days",
        ],
    ),
    (
        "gpus",
        &[
            "gpu_mode",
            "gpu_units",
            "gpu_least",
            "gpu_step",
            "gpu_spreading",
            "gpu_each",
            "simulate_gpus",
            "driver_root",
        ],
    ),
    (
        "backups",
        &[
            "backup_dir",
            "backup_every_hours",
            "backup_keep",
            "backup_passphrase_file",
        ],
    ),
    (
        "sign_in",
        &[
            "second_factor",
            "sign_ins",
            "sign_ins_full",
            "password_length",
            "password_classes",
            "password_days",
            "password_history",
            "password_change_first",
        ],
    ),
    (
        "directory",
        &[
            "ldap_url",
            "ldap_start_tls",
            "ldap_ca_file",
            "ldap_base",
            "ldap_bind",
            "ldap_password_file",
            "ldap_filter",
            "ldap_name",
            "ldap_email",
            "ldap_full_name",
            "ldap_member_of",
            "ldap_groups",
            "ldap_domain",
        ],
    ),
    (
        "provider",
        &[
            "oidc_issuer",
            "oidc_name",
            "oidc_client",
            "oidc_secret_file",
            "oidc_ca_file",
            "oidc_origin",
            "oidc_scope",
            "oidc_user",
            "oidc_groups",
            "saml_issuer",
            "saml_name",
            "saml_sso_url",
            "saml_certificate_file",
            "saml_origin",
            "saml_entity_id",
            "saml_user",
            "saml_email",
            "saml_full_name",
            "saml_groups",
        ],
    ),
    (
        "audit",
        &[
            "audit_keep_days",
            "audit_to_file",
            "audit_to_syslog",
            "audit_to_http",
            "audit_token_file",
            "audit_ca_file",
        ],
    ),
    (
        "mail",
        &[
            "mail_server",
            "mail_security",
            "mail_user",
            "mail_password_file",
            "mail_from",
            "mail_ca_file",
            "mail_origin",
        ],
    ),
    ("webhooks", &["webhook_ca_file"]),
    (
        "registries",
        &[
            "registries",
            "registry_ca_file",
            "registry_credentials_file",
            "environment_keys_file",
        ],
    ),
    (
        "network",
        &[
            "listen",
            "listen_http",
            "listen_apps",
            "apps_name",
            "listen_ssh",
            "tls",
        ],
    ),
    ("server", &["data", "run", "log_json"]),
];

/// What a settings page shows.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct SettingsQuery {
    q: String,
    changed: String,
    /// The key that was just changed.
    of: String,
    /// The word of what was just done.
    notice: String,
}

impl SettingsQuery {
    /// The page with the same filter.
    fn place(&self) -> String {
        let mut parts = Vec::new();
        if !self.q.is_empty() {
            parts.push(format!("q={}", responses::encoded(&self.q)));
        }
        if self.changed == "1" {
            parts.push("changed=1".to_owned());
        }
        match parts.is_empty() {
            true => PATH.to_owned(),
            false => format!("{PATH}?{}", parts.join("&")),
        }
    }
}

const PATH: &str = "/system/settings";
/// Other pages that a search names. Higher: settings are far below. Lower: a word of several pages finds not the one.
const MAX_OTHER_PAGES: usize = 4;

/// What is to be done with one key.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct SettingForm {
    value: String,
    /// `reset` or `undo`; saves for anything else.
    act: String,
    /// The filter of the page, which stays.
    q: String,
    changed: String,
}

/// A refused form: the key, what was typed, and why.
type RefusedSetting<'a> = (&'a str, &'a str, &'a Refusal);

/// `GET /system/settings`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<SettingsQuery>,
) -> Response {
    shown(&console, &visit, &caller, &asked, None).await
}

/// `POST /system/settings/{key}`
pub async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(key): Path<String>,
    Form(form): Form<SettingForm>,
) -> Response {
    let server = &console.server;
    let asked = SettingsQuery {
        q: form.q,
        changed: form.changed,
        ..SettingsQuery::default()
    };
    let done = match form.act.as_str() {
        "undo" => settings::undo(server, &caller, &key, Real).await,
        "reset" => settings::change(server, &caller, &key, "", Real).await,
        _ => settings::change(server, &caller, &key, &form.value, Real).await,
    };
    match done {
        Ok(changed) => {
            let word = match changed.needs_restart {
                true => "setting-restart",
                false => "setting",
            };
            responses::see_with(&asked.place(), word, &key)
        }
        Err(Failure::Refusal(refusal))
            if refusal.pointer.as_deref() == Some("/value")
                || refusal.code.starts_with(rules::codes::family::SETTING) =>
        {
            let refused = (key.as_str(), form.value.as_str(), &refusal);
            shown(&console, &visit, &caller, &asked, Some(refused)).await
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::System);
    responses::failure(console, visit, Some(frame), failure)
}

async fn shown(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    asked: &SettingsQuery,
    refused: Option<RefusedSetting<'_>>,
) -> Response {
    let all = match settings::list(&console.server, caller).await {
        Ok(all) => all,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let file = match settings::file(&console.server, caller) {
        Ok(file) => file,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let refused_mail = match mail::status(&console.server, caller).await {
        Ok(standing) => standing.failed,
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let page = page(
        layout(console, visit, caller, Nav::System),
        &all,
        asked,
        refused,
        file,
    );
    let page = SettingsPage {
        refused_mail,
        may_send_mail: caller.subject.can(Permission::SystemWrite),
        ..page
    };
    let status = refused.map_or(StatusCode::OK, |(_, _, refusal)| responses::status(refusal));
    responses::page(console, visit, status, &page)
}

/// The page of these settings. A fault that belongs to no field stands above them all.
pub fn page(
    mut f: PageLayout,
    all: &[SettingStanding],
    asked: &SettingsQuery,
    refused: Option<RefusedSetting<'_>>,
    file: String,
) -> SettingsPage {
    let t = f.text;
    // Said in the row instead, where the reader is.
    let is_shown = GROUPS
        .iter()
        .any(|(_, keys)| keys.contains(&asked.of.as_str()));
    // A trial leads to the whole page, where no filter leaves its group out.
    let mut tried = match asked.notice.starts_with("mail-") && asked.q.is_empty() {
        true => f.notice.take().unwrap_or_default(),
        false => String::new(),
    };
    let mut said = match is_shown {
        true => f.notice.take(),
        false => None,
    };
    let words = asked.q.trim().to_lowercase();
    let only_changed = asked.changed == "1";
    let typed = |key: &str| {
        let of = refused.filter(|(wrong, ..)| *wrong == key);
        of.map(|(_, typed, _)| typed.to_owned())
    };
    let mut row = |key: &&str| {
        let standing = all.iter().find(|standing| standing.key == *key)?;
        let mut row = row(t, standing, typed(key));
        let text = format!("{} {} {} {}", row.name, row.key, row.about, row.value).to_lowercase();
        let is_found = words.split_whitespace().all(|word| text.contains(word));
        // What was just changed is shown, and says so, also where the filter leaves it out by now.
        if row.key == asked.of {
            row.said = said.take().unwrap_or_default();
        }
        (!row.said.is_empty() || is_found && (row.changed || !only_changed)).then_some(row)
    };
    let groups: Vec<SettingGroup> = GROUPS
        .iter()
        .map(|(name, keys)| SettingGroup {
            id: format!("group-{name}"),
            title: group(t, name),
            tries_mail: *name == "mail",
            tried: match *name {
                "mail" => std::mem::take(&mut tried),
                _ => String::new(),
            },
            rows: keys.iter().filter_map(&mut row).collect(),
        })
        .filter(|group| !group.rows.is_empty())
        .collect();
    let is_known = |key: &str| all.iter().any(|standing| standing.key == key);
    let (mut faults, mut alert) = (Vec::new(), None);
    if let Some((key, _, refusal)) = refused {
        let message = codes::refusal(t, refusal);
        match is_known(key) {
            true => faults.push(FormFieldError {
                field: key.to_owned(),
                message,
            }),
            false => alert = Some(Alert::bad(message).code(refusal.code.clone())),
        }
    }
    let mut other_pages = match words.is_empty() {
        true => Vec::new(),
        false => palette::pages_found(t, &words),
    };
    other_pages.retain(|(href, _)| *href != PATH);
    other_pages.truncate(MAX_OTHER_PAGES);
    SettingsPage {
        t,
        alert,
        q: asked.q.clone(),
        only_changed,
        groups,
        other_pages,
        refused_mail: 0,
        may_send_mail: true,
        waiting: all
            .iter()
            .filter(|standing| standing.waiting.is_some())
            .count(),
        faults,
        file,
        f,
    }
}

fn row(t: Text, standing: &SettingStanding, typed: Option<String>) -> SettingRow {
    let SettingStanding {
        key,
        value,
        default,
        waiting,
        ..
    } = standing;
    let word = |value: &Option<String>| match value {
        None => t.system_unset().to_owned(),
        Some(text) => text.clone(),
    };
    let wanted = waiting.as_ref().unwrap_or(value);
    let open = typed.is_some();
    let field = typed.unwrap_or_else(|| wanted.clone().unwrap_or_default());
    let choices: &[&'static str] = match *key {
        "gpu_mode" => &["hard", "elastic"],
        "gpu_spreading" => &["pack", "spread", "roundrobin"],
        "second_factor" => &["optional", "required"],
        "sign_ins_full" => &["end-oldest", "refuse"],
        "homes" | "log_json" | "password_change_first" | "ldap_start_tls" => &["true", "false"],
        _ => &[],
    };
    SettingRow {
        key: (*key).to_owned(),
        name: name(t, key),
        about: about(t, key),
        value: word(value),
        default: word(default),
        source: match standing.source.as_deref() {
            None => t.system_built_in().to_owned(),
            Some("flag") => t.setting_by_flag().to_owned(),
            Some(other) => other.to_owned(),
        },
        variable: standing.variable.to_owned(),
        waiting: waiting
            .as_ref()
            .map_or_else(String::new, |waiting| t.system_waits(word(waiting))),
        needs_restart: standing.needs_restart,
        changed: value != default || waiting.is_some(),
        may_change: standing.may_change,
        choices: choices
            .iter()
            .map(|choice| (*choice, *choice == field))
            .collect(),
        typed: field,
        undo: match standing.undo.as_deref() {
            None => String::new(),
            Some("") => t.setting_undo_default().to_owned(),
            Some(before) => t.setting_undo_to(before.trim_matches('"')),
        },
        open,
        said: String::new(),
        closed: match standing.source.as_deref() {
            Some("flag") => t.setting_set_by(t.setting_by_flag()),
            Some(name) if name.starts_with("FARDEL_") => t.setting_set_by(name),
            _ => t.setting_in_file().to_owned(),
        },
        elsewhere: match *key {
            "backup_dir" | "backup_passphrase_file" => Some(("/system/backups", t.backups_title())),
            _ => None,
        },
    }
}

fn group(t: Text, name: &str) -> &'static str {
    match name {
        "sessions" => t.nav_sessions(),
        "gpus" => t.nav_gpus(),
        "backups" => t.backups_title(),
        "sign_in" => t.setting_group_sign_in(),
        "directory" => t.setting_group_directory(),
        "provider" => t.setting_group_provider(),
        "audit" => t.audit_title(),
        "mail" => t.setting_group_mail(),
        "webhooks" => t.webhooks_title(),
        "registries" => t.setting_group_registries(),
        "network" => t.setting_group_network(),
        _ => t.setting_group_server(),
    }
}

/// What a setting is called, in the reader's language; empty for a key that has no words, which a test refuses.
fn name(t: Text, key: &str) -> &'static str {
    match key {
        "data" => t.setting_name_data(),
        "run" => t.setting_name_run(),
        "listen" => t.setting_name_listen(),
        "listen_http" => t.setting_name_listen_http(),
        "listen_apps" => t.setting_name_listen_apps(),
        "apps_name" => t.setting_name_apps_name(),
        "listen_ssh" => t.setting_name_listen_ssh(),
        "tls" => t.setting_name_tls(),
        "host_environment" => t.setting_name_host_environment(),
        "homes" => t.setting_name_homes(),
        "cpu" => t.setting_name_cpu(),
        "memory" => t.setting_name_memory(),
        "pool_size" => t.setting_name_pool_size(),
        "session_disk" => t.setting_name_session_disk(),
        "simulate_gpus" => t.setting_name_simulate_gpus(),
        "driver_root" => t.setting_name_driver_root(),
        "gpu_mode" => t.setting_name_gpu_mode(),
        "gpu_units" => t.setting_name_gpu_units(),
        "gpu_least" => t.setting_name_gpu_least(),
        "gpu_step" => t.setting_name_gpu_step(),
        "gpu_spreading" => t.setting_name_gpu_spreading(),
        "gpu_each" => t.setting_name_gpu_each(),
        "second_factor" => t.setting_name_second_factor(),
        "sign_ins" => t.setting_name_sign_ins(),
        "sign_ins_full" => t.setting_name_sign_ins_full(),
        "password_length" => t.setting_name_password_length(),
        "password_classes" => t.setting_name_password_classes(),
        "password_days" => t.setting_name_password_days(),
        "password_history" => t.setting_name_password_history(),
        "password_change_first" => t.setting_name_password_change_first(),
        "ldap_url" => t.setting_name_ldap_url(),
        "ldap_start_tls" => t.setting_name_ldap_start_tls(),
        "ldap_ca_file" => t.setting_name_ldap_ca_file(),
        "ldap_base" => t.setting_name_ldap_base(),
        "ldap_bind" => t.setting_name_ldap_bind(),
        "ldap_password_file" => t.setting_name_ldap_password_file(),
        "ldap_filter" => t.setting_name_ldap_filter(),
        "ldap_name" => t.setting_name_ldap_name(),
        "ldap_email" => t.setting_name_ldap_email(),
        "ldap_full_name" => t.setting_name_ldap_full_name(),
        "ldap_member_of" => t.setting_name_ldap_member_of(),
        "ldap_groups" => t.setting_name_ldap_groups(),
        "ldap_domain" => t.setting_name_ldap_domain(),
        "oidc_issuer" => t.setting_name_oidc_issuer(),
        "oidc_name" => t.setting_name_oidc_name(),
        "oidc_client" => t.setting_name_oidc_client(),
        "oidc_secret_file" => t.setting_name_oidc_secret_file(),
        "oidc_ca_file" => t.setting_name_oidc_ca_file(),
        "oidc_origin" => t.setting_name_oidc_origin(),
        "oidc_scope" => t.setting_name_oidc_scope(),
        "oidc_user" => t.setting_name_oidc_user(),
        "oidc_groups" => t.setting_name_oidc_groups(),
        "saml_issuer" => t.setting_name_saml_issuer(),
        "saml_name" => t.setting_name_saml_name(),
        "saml_sso_url" => t.setting_name_saml_sso_url(),
        "saml_certificate_file" => t.setting_name_saml_certificate_file(),
        "saml_origin" => t.setting_name_saml_origin(),
        "saml_entity_id" => t.setting_name_saml_entity_id(),
        "saml_user" => t.setting_name_saml_user(),
        "saml_email" => t.setting_name_saml_email(),
        "saml_full_name" => t.setting_name_saml_full_name(),
        "saml_groups" => t.setting_name_saml_groups(),
        "reservation_notice_hours" => t.setting_name_reservation_notice_hours(),
        "keep_days" => t.setting_name_keep_days(),
        "audit_keep_days" => t.setting_name_audit_keep_days(),
        "audit_to_file" => t.setting_name_audit_to_file(),
        "audit_to_syslog" => t.setting_name_audit_to_syslog(),
        "audit_to_http" => t.setting_name_audit_to_http(),
        "audit_token_file" => t.setting_name_audit_token_file(),
        "audit_ca_file" => t.setting_name_audit_ca_file(),
        "mail_server" => t.setting_name_mail_server(),
        "mail_security" => t.setting_name_mail_security(),
        "mail_user" => t.setting_name_mail_user(),
        "mail_password_file" => t.setting_name_mail_password_file(),
        "mail_from" => t.setting_name_mail_from(),
        "mail_ca_file" => t.setting_name_mail_ca_file(),
        "mail_origin" => t.setting_name_mail_origin(),
        "webhook_ca_file" => t.setting_name_webhook_ca_file(),
        "registries" => t.setting_name_registries(),
        "registry_ca_file" => t.setting_name_registry_ca_file(),
        "registry_credentials_file" => t.setting_name_registry_credentials_file(),
        "environment_keys_file" => t.setting_name_environment_keys_file(),
        "log_json" => t.setting_name_log_json(),
        "backup_dir" => t.setting_name_backup_dir(),
        "backup_every_hours" => t.setting_name_backup_every_hours(),
        "backup_keep" => t.setting_name_backup_keep(),
        "backup_passphrase_file" => t.setting_name_backup_passphrase_file(),
        _ => "",
    }
}

/// What settings are called, for keys with commas between them; a key without words stays as it is.
pub(super) fn titles(t: Text, keys: &str) -> String {
    let titles = keys.split(", ").map(|key| match name(t, key) {
        "" => key,
        name => name,
    });
    titles.collect::<Vec<_>>().join(", ")
}

/// What a setting does, in the reader's language; empty for a key that has no words, which a test refuses.
fn about(t: Text, key: &str) -> &'static str {
    match key {
        "data" => t.setting_data(),
        "run" => t.setting_run(),
        "listen" => t.setting_listen(),
        "listen_http" => t.setting_listen_http(),
        "listen_apps" => t.setting_listen_apps(),
        "apps_name" => t.setting_apps_name(),
        "listen_ssh" => t.setting_listen_ssh(),
        "tls" => t.setting_tls(),
        "host_environment" => t.setting_host_environment(),
        "homes" => t.setting_homes(),
        "cpu" => t.setting_cpu(),
        "memory" => t.setting_memory(),
        "pool_size" => t.setting_pool_size(),
        "session_disk" => t.setting_session_disk(),
        "simulate_gpus" => t.setting_simulate_gpus(),
        "driver_root" => t.setting_driver_root(),
        "gpu_mode" => t.setting_gpu_mode(),
        "gpu_units" => t.setting_gpu_units(),
        "gpu_least" => t.setting_gpu_least(),
        "gpu_step" => t.setting_gpu_step(),
        "gpu_spreading" => t.setting_gpu_spreading(),
        "gpu_each" => t.setting_gpu_each(),
        "second_factor" => t.setting_second_factor(),
        "sign_ins" => t.setting_sign_ins(),
        "sign_ins_full" => t.setting_sign_ins_full(),
        "password_length" => t.setting_password_length(),
        "password_classes" => t.setting_password_classes(),
        "password_days" => t.setting_password_days(),
        "password_history" => t.setting_password_history(),
        "password_change_first" => t.setting_password_change_first(),
        "ldap_url" => t.setting_ldap_url(),
        "ldap_start_tls" => t.setting_ldap_start_tls(),
        "ldap_ca_file" => t.setting_ldap_ca_file(),
        "ldap_base" => t.setting_ldap_base(),
        "ldap_bind" => t.setting_ldap_bind(),
        "ldap_password_file" => t.setting_ldap_password_file(),
        "ldap_filter" => t.setting_ldap_filter(),
        "ldap_name" => t.setting_ldap_name(),
        "ldap_email" => t.setting_ldap_email(),
        "ldap_full_name" => t.setting_ldap_full_name(),
        "ldap_member_of" => t.setting_ldap_member_of(),
        "ldap_groups" => t.setting_ldap_groups(),
        "ldap_domain" => t.setting_ldap_domain(),
        "oidc_issuer" => t.setting_oidc_issuer(),
        "oidc_name" => t.setting_oidc_name(),
        "oidc_client" => t.setting_oidc_client(),
        "oidc_secret_file" => t.setting_oidc_secret_file(),
        "oidc_ca_file" => t.setting_oidc_ca_file(),
        "oidc_origin" => t.setting_oidc_origin(),
        "oidc_scope" => t.setting_oidc_scope(),
        "oidc_user" => t.setting_oidc_user(),
        "oidc_groups" => t.setting_oidc_groups(),
        "saml_issuer" => t.setting_saml_issuer(),
        "saml_name" => t.setting_saml_name(),
        "saml_sso_url" => t.setting_saml_sso_url(),
        "saml_certificate_file" => t.setting_saml_certificate_file(),
        "saml_origin" => t.setting_saml_origin(),
        "saml_entity_id" => t.setting_saml_entity_id(),
        "saml_user" => t.setting_saml_user(),
        "saml_email" => t.setting_saml_email(),
        "saml_full_name" => t.setting_saml_full_name(),
        "saml_groups" => t.setting_saml_groups(),
        "reservation_notice_hours" => t.setting_reservation_notice_hours(),
        "keep_days" => t.setting_keep_days(),
        "audit_keep_days" => t.setting_audit_keep_days(),
        "audit_to_file" => t.setting_audit_to_file(),
        "audit_to_syslog" => t.setting_audit_to_syslog(),
        "audit_to_http" => t.setting_audit_to_http(),
        "audit_token_file" => t.setting_audit_token_file(),
        "audit_ca_file" => t.setting_audit_ca_file(),
        "mail_server" => t.setting_mail_server(),
        "mail_security" => t.setting_mail_security(),
        "mail_user" => t.setting_mail_user(),
        "mail_password_file" => t.setting_mail_password_file(),
        "mail_from" => t.setting_mail_from(),
        "mail_ca_file" => t.setting_mail_ca_file(),
        "mail_origin" => t.setting_mail_origin(),
        "webhook_ca_file" => t.setting_webhook_ca_file(),
        "registries" => t.setting_registries(),
        "registry_ca_file" => t.setting_registry_ca_file(),
        "registry_credentials_file" => t.setting_registry_credentials_file(),
        "environment_keys_file" => t.setting_environment_keys_file(),
        "log_json" => t.setting_log_json(),
        "backup_dir" => t.setting_backup_dir(),
        "backup_every_hours" => t.setting_backup_every_hours(),
        "backup_keep" => t.setting_backup_keep(),
        "backup_passphrase_file" => t.setting_backup_passphrase_file(),
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::text::Language;

    #[test]
    fn notices_call_a_setting_as_its_row_does() {
        for language in [Language::English, Language::Korean] {
            let t = Text::new(language);
            let told = super::super::notice(t, "/system/settings?notice=setting&of=keep_days")
                .expect("a notice");
            assert!(told.contains(t.setting_name_keep_days()), "{told}");
            assert!(!told.contains("keep_days"), "{told}");
            let told = super::super::notice(t, "/system/settings?notice=settings&of=cpu%2C+whale")
                .expect("a notice");
            let both = format!("{}, whale", t.setting_name_cpu());
            assert!(told.contains(&both), "{told}");
        }
    }

    #[test]
    fn a_failed_trial_is_said_with_a_warning() {
        let warns = |word: &str| {
            super::super::notice_warns(&format!("/system/settings?notice={word}&of=smtp"))
        };
        assert!(
            ["sources-fail", "webhook-fails", "mail-fails"]
                .into_iter()
                .all(warns)
        );
        assert!(
            !["sources-work", "mail-works", "setting"]
                .into_iter()
                .any(warns)
        );
    }

    #[test]
    fn every_setting_has_its_words_in_both_languages_and_stands_in_one_group() {
        let korean = Text::new(Language::Korean);
        for key in base::settings::KEYS {
            assert_eq!(about(Text::default(), key.key), key.about, "{}", key.key);
            for told in [about(korean, key.key), name(korean, key.key)] {
                let is_korean = told.chars().any(|c| ('가'..='힣').contains(&c));
                assert!(is_korean, "{}: {told}", key.key);
            }
            let english = name(Text::default(), key.key);
            assert!(!english.is_empty() && english != key.key, "{}", key.key);
            let groups = GROUPS.iter().filter(|(_, keys)| keys.contains(&key.key));
            assert_eq!(groups.count(), 1, "{}", key.key);
        }
    }
}
