//! What the settings of the mail server have to be together: a password never crosses the network as it is, and a server
//! has an address that its mail comes from.

use rules::mail::{MailSecurity, MailServer};
use rules::names::EmailAddress;
use rules::provider::WebAddress;
use rules::refusal::Refusal;
use rules::refusals;

use super::SettingsLayer;
use crate::addresses::is_own_host;

/// Letters of the name that the server signs in with.
const LETTERS_OF_USER: usize = 254;

/// Errors: `setting.mail-invalid` for a value that says nothing, `setting.mail-plain` for a password that would go to another
/// machine without TLS, `setting.missing` for a server without a sender, or a name without a password.
pub(super) fn check(layer: &SettingsLayer, from: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    let wrong = |key: &str, value: &str| {
        refusals::setting_mail_invalid(from(key), key, format_args!("{value:?}"))
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default().trim().to_owned();
    let word = text(&layer.mail_security);
    let security = MailSecurity::parse(&word).ok_or_else(|| wrong("mail_security", &word))?;
    let sender = text(&layer.mail_from);
    if !sender.is_empty() && EmailAddress::parse(&sender).is_err() {
        return Err(wrong("mail_from", &sender));
    }
    let user = text(&layer.mail_user);
    if user.chars().count() > LETTERS_OF_USER || user.chars().any(char::is_control) {
        return Err(wrong("mail_user", &user));
    }
    let origin = text(&layer.mail_origin);
    if !origin.is_empty() {
        let plain = origin.strip_suffix('/').unwrap_or(&origin);
        if WebAddress::parse(&origin).is_none_or(|parsed| parsed.origin() != plain) {
            return Err(wrong("mail_origin", &origin));
        }
    }
    let server = text(&layer.mail_server);
    if server.is_empty() {
        return Ok(());
    }
    let parsed =
        MailServer::parse(&server, security).ok_or_else(|| wrong("mail_server", &server))?;
    if sender.is_empty() {
        return Err(refusals::setting_missing("mail_from"));
    }
    if !user.is_empty() {
        let file = layer.mail_password_file.as_ref();
        if file.is_none_or(|path| path.as_os_str().is_empty()) {
            return Err(refusals::setting_missing("mail_password_file"));
        }
        if security == MailSecurity::Plain && !is_own_host(&parsed.host) {
            return Err(refusals::setting_mail_plain(from("mail_security")));
        }
    }
    Ok(())
}
