//! Settings: how each stands, and changes of one. Decides nothing; values are written as JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Setting)]
pub struct SettingView {
    pub key: String,
    /// In force now; null where nothing is set.
    #[schema(value_type = serde_json::Value)]
    pub value: Option<Value>,
    /// In force where no source says anything.
    #[schema(value_type = serde_json::Value)]
    pub default: Option<Value>,
    /// `built-in`, the file's path, the variable's name, or `flag`.
    pub source: String,
    /// The variable that sets it.
    pub variable: String,
    /// A new value is in force only when the server starts again.
    pub needs_restart: bool,
    /// What it does.
    pub about: String,
    /// What a source says by now and a restart takes up; null where nothing waits.
    pub waiting: Option<WaitingSetting>,
    /// It may be changed here: no variable or flag stands above the files, and it is none that only the machine's own
    /// file may set.
    pub may_change: bool,
    /// What an undo would set; null where there is nothing to undo.
    pub undo: Option<EarlierSetting>,
}

/// A value that waits for a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WaitingSetting {
    #[schema(value_type = serde_json::Value)]
    pub value: Option<Value>,
    pub source: String,
}

/// A value from before the last change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EarlierSetting {
    /// Null: its default.
    #[schema(value_type = serde_json::Value)]
    pub value: Option<Value>,
}

/// A new value of a setting.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[schema(as = SettingRequest)]
#[serde(deny_unknown_fields)]
pub struct SettingBody {
    /// A text, a number, true or false, as the setting wants; empty text or null sets its default.
    #[serde(deserialize_with = "scalar")]
    #[schema(value_type = serde_json::Value)]
    pub value: Value,
}

/// A list or an object is the value of no setting.
fn scalar<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<Value, D::Error> {
    match Value::deserialize(reader)? {
        Value::Array(_) | Value::Object(_) => Err(serde::de::Error::custom(
            "this is no text, no number and neither true nor false",
        )),
        scalar => Ok(scalar),
    }
}

impl SettingBody {
    /// The value as people type it; empty for the default.
    pub fn typed(&self) -> String {
        match &self.value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// What came of asking the directory, the identity provider and the places that the audit log is handed over to, where
/// they are set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignInSourceTrials {
    pub items: Vec<SignInSourceTrial>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignInSourceTrial {
    /// `ldap`, `oidc`, `saml`, `audit-file`, `audit-syslog` or `audit-http`.
    pub source: String,
    /// It answered as it should.
    pub works: bool,
    /// What came back, in English; empty where nothing is to be said of it.
    pub answer: String,
    /// What is wrong, in English; empty where it works.
    pub problem: String,
}

/// What a change of a setting did, or would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SettingChange {
    pub key: String,
    /// What the sources said before; null where nothing was set.
    #[schema(value_type = serde_json::Value)]
    pub before: Option<Value>,
    /// What they say with the change, a default too.
    #[schema(value_type = serde_json::Value)]
    pub after: Option<Value>,
    /// `after` waits until the server starts again.
    pub needs_restart: bool,
    /// It was only checked: nothing was written.
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::SettingBody;

    #[test]
    fn a_value_is_a_text_a_number_a_truth_or_nothing() {
        let typed = |json: &str| {
            let body = serde_json::from_str::<SettingBody>(json);
            body.map(|body| body.typed())
        };
        assert_eq!(typed(r#"{"value": "x"}"#).unwrap(), "x");
        assert_eq!(typed(r#"{"value": null}"#).unwrap(), "");
        assert_eq!(typed(r#"{"value": 7}"#).unwrap(), "7");
        assert!(typed(r#"{"value": [7]}"#).is_err());
        assert!(typed(r#"{"value": {}}"#).is_err());
        assert!(typed("{}").is_err());
    }
}
