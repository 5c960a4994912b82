//! What the settings of a directory have to be together: encrypted wherever others could listen, and complete.

use rules::directory::{DirectoryUrl, group_rules, takes_name};
use rules::names::TenantName;
use rules::provider::WebAddress;
use rules::refusal::Refusal;
use rules::refusals;

use super::SettingsLayer;
use crate::addresses::is_own_host;

/// Letters of what a button calls a provider.
const LETTERS_OF_NAME: usize = 60;
/// Letters of an entity identifier and of an attribute, the most that SAML allows.
const LETTERS_OF_ENTITY: usize = 1_024;

/// Errors: `setting.ldap-invalid` for a value that says nothing, `setting.ldap-plain` for a directory elsewhere without
/// TLS, `setting.missing` for a directory without a base.
pub(super) fn check(layer: &SettingsLayer, from: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    let wrong = |key: &str, value: &str| {
        refusals::setting_ldap_invalid(from(key), key, format_args!("{value:?}"))
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default().trim().to_owned();
    let url = text(&layer.ldap_url);
    if !url.is_empty() {
        let parsed = DirectoryUrl::parse(&url).ok_or_else(|| wrong("ldap_url", &url))?;
        let protected = parsed.encrypted || layer.ldap_start_tls == Some(true);
        if !protected && !is_own_host(&parsed.host) {
            return Err(refusals::setting_ldap_plain(from("ldap_start_tls")));
        }
        if text(&layer.ldap_base).is_empty() {
            return Err(refusals::setting_missing("ldap_base"));
        }
    }
    let filter = text(&layer.ldap_filter);
    if !takes_name(&filter) || !filter.starts_with('(') || !filter.ends_with(')') {
        return Err(wrong("ldap_filter", &filter));
    }
    let attributes = [
        ("ldap_name", &layer.ldap_name),
        ("ldap_email", &layer.ldap_email),
        ("ldap_full_name", &layer.ldap_full_name),
        ("ldap_member_of", &layer.ldap_member_of),
    ];
    for (key, value) in attributes {
        let value = text(value);
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if value.is_empty() || !value.chars().all(letter) {
            return Err(wrong(key, &value));
        }
    }
    let groups = text(&layer.ldap_groups);
    if group_rules(&groups).is_none() {
        return Err(wrong("ldap_groups", &groups));
    }
    let domain = text(&layer.ldap_domain);
    if TenantName::parse(&domain).is_err() {
        return Err(wrong("ldap_domain", &domain));
    }
    provider(layer, from)?;
    saml(layer, from)
}

/// Errors: `setting.oidc-invalid` for a value that says nothing, and for an address without TLS that is elsewhere;
/// `setting.missing` for a provider without a client or a return address.
fn provider(layer: &SettingsLayer, from: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    let wrong = |key: &str, value: &str| {
        refusals::setting_oidc_invalid(from(key), key, format_args!("{value:?}"))
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default().trim().to_owned();
    let issuer = text(&layer.oidc_issuer);
    if !issuer.is_empty() {
        let protected = |text: &str| {
            WebAddress::parse(text).filter(|parsed| parsed.encrypted || is_own_host(&parsed.host))
        };
        if protected(&issuer).is_none_or(|parsed| parsed.path.contains('?')) {
            return Err(wrong("oidc_issuer", &issuer));
        }
        let origin = text(&layer.oidc_origin);
        if origin.is_empty() {
            return Err(refusals::setting_missing("oidc_origin"));
        }
        let plain = origin.strip_suffix('/').unwrap_or(&origin);
        if protected(&origin).is_none_or(|parsed| parsed.origin() != plain) {
            return Err(wrong("oidc_origin", &origin));
        }
        if text(&layer.oidc_client).is_empty() {
            return Err(refusals::setting_missing("oidc_client"));
        }
    }
    let scope = text(&layer.oidc_scope);
    if !scope.split(' ').any(|scope| scope == "openid") || scope.chars().any(char::is_control) {
        return Err(wrong("oidc_scope", &scope));
    }
    let claims = [
        ("oidc_user", &layer.oidc_user),
        ("oidc_groups", &layer.oidc_groups),
    ];
    for (key, value) in claims {
        let value = text(value);
        if value.is_empty() || !value.chars().all(|c| c.is_ascii_graphic()) {
            return Err(wrong(key, &value));
        }
    }
    let name = text(&layer.oidc_name);
    if !names_provider(&name) {
        return Err(wrong("oidc_name", &name));
    }
    Ok(())
}

/// Whether a button may call a provider so.
fn names_provider(name: &str) -> bool {
    !name.is_empty()
        && name.chars().count() <= LETTERS_OF_NAME
        && !name.chars().any(char::is_control)
}

/// Errors: `setting.saml-invalid` for a value that says nothing, and for an address without TLS that is elsewhere;
/// `setting.missing` for a provider without an address, a certificate or a return address.
fn saml(layer: &SettingsLayer, from: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    let wrong = |key: &str, value: &str| {
        refusals::setting_saml_invalid(from(key), key, format_args!("{value:?}"))
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default().trim().to_owned();
    let word = |text: &str| {
        !text.is_empty()
            && text.len() <= LETTERS_OF_ENTITY
            && text.chars().all(|c| c.is_ascii_graphic())
    };
    let issuer = text(&layer.saml_issuer);
    if !issuer.is_empty() {
        if !word(&issuer) {
            return Err(wrong("saml_issuer", &issuer));
        }
        let protected = |text: &str| {
            WebAddress::parse(text).filter(|parsed| parsed.encrypted || is_own_host(&parsed.host))
        };
        let place = text(&layer.saml_sso_url);
        if place.is_empty() {
            return Err(refusals::setting_missing("saml_sso_url"));
        }
        if protected(&place).is_none() {
            return Err(wrong("saml_sso_url", &place));
        }
        let origin = text(&layer.saml_origin);
        if origin.is_empty() {
            return Err(refusals::setting_missing("saml_origin"));
        }
        let plain = origin.strip_suffix('/').unwrap_or(&origin);
        if protected(&origin).is_none_or(|parsed| parsed.origin() != plain) {
            return Err(wrong("saml_origin", &origin));
        }
        if layer.saml_certificate_file.is_none() {
            return Err(refusals::setting_missing("saml_certificate_file"));
        }
    }
    let entity = text(&layer.saml_entity_id);
    if !entity.is_empty() && !word(&entity) {
        return Err(wrong("saml_entity_id", &entity));
    }
    let attributes = [
        ("saml_user", &layer.saml_user),
        ("saml_email", &layer.saml_email),
        ("saml_full_name", &layer.saml_full_name),
        ("saml_groups", &layer.saml_groups),
    ];
    for (key, value) in attributes {
        let value = text(value);
        if !word(&value) {
            return Err(wrong(key, &value));
        }
    }
    let name = text(&layer.saml_name);
    if !names_provider(&name) {
        return Err(wrong("saml_name", &name));
    }
    Ok(())
}
