//! What the places have to be that the audit log is handed over to: an address each, and for HTTP one that hides the token
//! from others.

use rules::hand_over::SyslogAddress;
use rules::provider::WebAddress;
use rules::refusal::Refusal;
use rules::refusals;

use super::SettingsLayer;
use crate::addresses::is_own_host;

/// Errors: `setting.audit-invalid` for an address that is none, and for HTTP elsewhere without TLS.
pub(super) fn check(layer: &SettingsLayer, from: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    let wrong = |key: &str, value: &str| {
        refusals::setting_audit_invalid(from(key), key, format_args!("{value:?}"))
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default().trim().to_owned();
    let syslog = text(&layer.audit_to_syslog);
    if !syslog.is_empty() && SyslogAddress::parse(&syslog).is_none() {
        return Err(wrong("audit_to_syslog", &syslog));
    }
    let http = text(&layer.audit_to_http);
    if !http.is_empty() {
        let protected =
            WebAddress::parse(&http).filter(|parsed| parsed.encrypted || is_own_host(&parsed.host));
        if protected.is_none() {
            return Err(wrong("audit_to_http", &http));
        }
    }
    Ok(())
}
