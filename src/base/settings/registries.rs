//! What the registries have to be that images may be pulled from: hosts, each with TLS or named as one without. Asks none.

use rules::refusal::Refusal;
use rules::refusals;
use rules::registry::allowed_registries;

use super::SettingsLayer;

/// Errors: `setting.registries-invalid` for a list that is none.
pub(super) fn check(layer: &SettingsLayer, from: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    let text = layer.registries.as_deref().unwrap_or_default();
    match allowed_registries(text) {
        Some(_) => Ok(()),
        None => Err(refusals::setting_registries_invalid(
            from("registries"),
            format_args!("{text:?}"),
        )),
    }
}
