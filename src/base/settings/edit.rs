//! Changes one key in the text of a settings file and leaves every other line as it is, comments too; and writes such a
//! file whole or not at all. Never decides whether a value is good: the sources are read with the new text first.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use rules::refusal::Refusal;
use rules::refusals;
use toml::{Table, Value};

use super::{
    EffectiveSetting, KEYS, LoadedSettings, SettingKey, SettingSource, SettingType,
    SettingsSources, file, files, literal, read_file,
};

/// Keys that only the machine's own file may set: addresses that would lock the administrator out, and places that
/// the server writes to as root, files that it reads as root with where it sends what stands in them, and attributes of a
/// directory, which the console would show: one of them could be a secret. And simulated GPUs: with a model that is none
/// the server does not start.
const FILE_ONLY: [&str; 40] = [
    "data",
    "run",
    "listen",
    "listen_http",
    "listen_apps",
    "apps_name",
    "listen_ssh",
    "tls",
    "host_environment",
    "simulate_gpus",
    "driver_root",
    "backup_dir",
    "backup_passphrase_file",
    "ldap_url",
    "ldap_ca_file",
    "ldap_password_file",
    "ldap_name",
    "ldap_email",
    "ldap_full_name",
    "ldap_member_of",
    "oidc_issuer",
    "oidc_ca_file",
    "oidc_secret_file",
    "saml_issuer",
    "saml_sso_url",
    "saml_certificate_file",
    "audit_to_file",
    "audit_to_syslog",
    "audit_to_http",
    "audit_token_file",
    "audit_ca_file",
    "mail_server",
    "mail_security",
    "mail_password_file",
    "mail_ca_file",
    "webhook_ca_file",
    "registries",
    "registry_ca_file",
    "registry_credentials_file",
    "environment_keys_file",
];

/// Keys of the form of backups.
const OF_BACKUPS: [&str; 4] = [
    "backup_dir",
    "backup_every_hours",
    "backup_keep",
    "backup_passphrase_file",
];

/// Texts of settings files that are not written yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// What the files say of the key now, as they write it; empty where they say nothing.
    pub before: String,
    pub after: String,
    texts: Vec<(PathBuf, String)>,
}

/// Whether the console may change a key at all; a variable or a flag may still stand above it.
pub fn is_editable(key: &str) -> bool {
    !FILE_ONLY.contains(&key)
}

/// The row of a key.
///
/// Errors: `setting.unknown`.
pub fn key_named(name: &str) -> Result<&'static SettingKey, Refusal> {
    let mut known = KEYS.iter();
    known
        .find(|key| key.key == name)
        .ok_or_else(|| refusals::setting_key_unknown(name))
}

/// What a person typed, as a settings file writes it; None for empty text, which unsets the key.
///
/// Errors: `setting.value-no-flag`, `setting.value-no-count`, at `/value`.
pub fn written(key: &SettingKey, typed: &str) -> Result<Option<String>, Refusal> {
    let typed = typed.trim();
    if typed.is_empty() {
        return Ok(None);
    }
    let value = match key.kind {
        SettingType::Text => Value::String(typed.to_owned()),
        SettingType::Flag => match typed {
            "true" => Value::Boolean(true),
            "false" => Value::Boolean(false),
            _ => return Err(refusals::setting_value_no_flag().at("/value")),
        },
        SettingType::Count => match typed.parse::<u32>() {
            Ok(number) => Value::Integer(number.into()),
            Err(_) => return Err(refusals::setting_value_no_count().at("/value")),
        },
    };
    Ok(Some(value.to_string()))
}

impl SettingsSources {
    /// The files with one key set to `value`, as a file writes it, or set by no file; and what would be in force then.
    ///
    /// Errors: `setting.file-only`, `setting.set-elsewhere` where a variable or flag wins, `setting.file-unusual`, and
    /// those of reading the sources with the new value, at `/value`.
    pub fn plan(
        &self,
        key: &SettingKey,
        value: Option<&str>,
    ) -> Result<(PlannedChange, LoadedSettings), Refusal> {
        if !is_editable(key.key) {
            return Err(refusals::setting_file_only(key.key, self.file().display()));
        }
        self.planned(key, value)
    }

    /// As `plan`, also for the two places of backups, which the form of backups checks before.
    pub fn plan_backups(
        &self,
        key: &SettingKey,
        value: &str,
    ) -> Result<(PlannedChange, LoadedSettings), Refusal> {
        if !OF_BACKUPS.contains(&key.key) {
            return Err(refusals::setting_file_only(key.key, self.file().display()));
        }
        self.planned(key, Some(value))
    }

    fn planned(
        &self,
        key: &SettingKey,
        value: Option<&str>,
    ) -> Result<(PlannedChange, LoadedSettings), Refusal> {
        let now = self.read()?;
        let standing = standing(&now, key);
        let before = match &standing.source {
            SettingSource::Variable(_) | SettingSource::Flag => {
                return Err(refusals::setting_set_elsewhere(
                    key.key,
                    standing.source.to_string(),
                ));
            }
            SettingSource::BuiltIn => String::new(),
            SettingSource::File(_) => {
                let value = standing.value.as_ref();
                value.map(Value::to_string).unwrap_or_default()
            }
        };
        let texts = match (value, &standing.source) {
            (Some(value), SettingSource::File(path)) => vec![changed(path, key.key, Some(value))?],
            (Some(value), _) => vec![changed(&self.file(), key.key, Some(value))?],
            (None, _) => without(&self.file(), key.key)?,
        };
        let planned = self
            .read_as(&|path| {
                let mut texts = texts.iter();
                let (_, text) = texts.find(|(changed, _)| changed == path)?;
                Some(text.as_str())
            })
            .map_err(|refusal| refusal.at("/value"))?;
        let change = PlannedChange {
            before,
            after: value.unwrap_or_default().to_owned(),
            texts,
        };
        Ok((change, planned))
    }
}

fn standing<'a>(now: &'a LoadedSettings, key: &SettingKey) -> &'a EffectiveSetting {
    let mut standings = now.standings.iter();
    standings
        .find(|standing| standing.key == key.key)
        .expect("there is one for each key")
}

impl PlannedChange {
    /// Writes each file beside itself and puts it in its place, with the mode that it had.
    ///
    /// Errors: `setting.file-unwritable`; files before the one that failed are changed.
    pub fn write(&self) -> Result<(), Refusal> {
        for (path, text) in &self.texts {
            put(path, text)
                .map_err(|error| refusals::setting_file_unwritable(path.display(), error))?;
        }
        Ok(())
    }
}

fn put(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let mut file = std::fs::File::create(&beside)?;
    if let Ok(known) = std::fs::metadata(path) {
        file.set_permissions(known.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    std::fs::File::open(folder)?.sync_all()
}

/// The files that set the key, without it.
fn without(file: &Path, key: &str) -> Result<Vec<(PathBuf, String)>, Refusal> {
    let mut texts = Vec::new();
    for path in files(file) {
        if read_file(&path)?.contains_key(key) {
            texts.push(changed(&path, key, None)?);
        }
    }
    Ok(texts)
}

fn changed(path: &Path, key: &str, value: Option<&str>) -> Result<(PathBuf, String), Refusal> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(refusals::setting_file_unreadable(path.display(), &error)),
    };
    let source = path.display().to_string();
    let mut wanted: Table = file::parse(&text, &source)?;
    wanted.remove(key);
    if let Some(value) = value.and_then(literal) {
        wanted.insert(key.to_owned(), value);
    }
    let edited = edited(&text, key, value);
    // A value over several lines, or a quoted key, is for an editor.
    match file::parse(&edited, &source) {
        Ok(table) if table == wanted => Ok((path.to_owned(), edited)),
        _ => Err(refusals::setting_file_unusual(key, source)),
    }
}

/// The text with the key's line changed, removed, or put behind the commented sample of it, else at the end.
fn edited(text: &str, key: &str, value: Option<&str>) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = lines.iter().position(|line| sets(line, key));
    match (at, value) {
        (Some(at), Some(value)) => {
            let comment = comment(&lines[at]).to_owned();
            lines[at] = match comment.as_str() {
                "" => format!("{key} = {value}"),
                comment => format!("{key} = {value} {comment}"),
            };
        }
        (Some(at), None) => {
            lines.remove(at);
        }
        (None, Some(value)) => {
            let sample = lines.iter().position(|line| {
                let bare = line.trim_start().strip_prefix('#');
                bare.is_some_and(|line| sets(line, key))
            });
            let at = sample.map_or(lines.len(), |at| at + 1);
            lines.insert(at, format!("{key} = {value}"));
        }
        (None, None) => {}
    }
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn sets(line: &str, key: &str) -> bool {
    let rest = line.trim_start().strip_prefix(key);
    rest.is_some_and(|rest| rest.trim_start().starts_with('='))
}

/// The comment behind a value, with its sign; empty where there is none.
fn comment(line: &str) -> &str {
    let value = line.split_once('=').map_or("", |(_, value)| value);
    let signs = value.match_indices('#').map(|(at, _)| at);
    let mut ends = signs.filter(|at| literal(&value[..*at]).is_some());
    ends.next().map_or("", |at| value[at..].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{SettingsLayer, sample};

    #[test]
    fn a_key_is_changed_in_its_line_and_every_other_line_stays() {
        for (text, value, expected) in [
            ("", Some("7"), "backup_keep = 7\n"),
            (
                "# mine\nbackup_keep = 3 # three\nlog_json = true\n",
                Some("7"),
                "# mine\nbackup_keep = 7 # three\nlog_json = true\n",
            ),
            (
                "#backup_keep = 7\nlog_json = true",
                Some("9"),
                "#backup_keep = 7\nbackup_keep = 9\nlog_json = true\n",
            ),
            ("  backup_keep=3\n# x\n", None, "# x\n"),
            (
                "backup_keep_days = 1\n",
                Some("2"),
                "backup_keep_days = 1\nbackup_keep = 2\n",
            ),
        ] {
            assert_eq!(edited(text, "backup_keep", value), expected, "{text:?}");
        }
        let sign = "gpu_each = \"a # b\" # why\n";
        assert_eq!(
            edited(sign, "gpu_each", Some("\"2\"")),
            "gpu_each = \"2\" # why\n"
        );
    }

    fn sources(folder: &Path, text: &str) -> SettingsSources {
        let path = folder.join("fardel.toml");
        std::fs::write(&path, text).unwrap();
        SettingsSources::new(SettingsLayer::default(), move |name| match name {
            "FARDEL_CONFIG" => Some(path.display().to_string()),
            "FARDEL_KEEP_DAYS" => Some("5".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn a_change_is_validated_before_it_is_written_and_undone_by_the_value_before() {
        let folder = tempfile::tempdir().unwrap();
        let all = sample();
        let sources = sources(folder.path(), &all);
        let key = key_named("backup_keep").unwrap();
        let bad = sources.plan(key, Some("0")).unwrap_err();
        assert_eq!(bad.pointer.as_deref(), Some("/value"), "{bad}");
        let text = || std::fs::read_to_string(sources.file()).unwrap();
        assert_eq!(text(), all, "nothing is written for a bad value");

        let (change, _) = sources.plan(key, Some("12")).unwrap();
        change.write().unwrap();
        assert_eq!((change.before.as_str(), change.after.as_str()), ("", "12"));
        assert_eq!(sources.read().unwrap().settings.backup_keep, 12);
        let (change, _) = sources.plan(key, None).unwrap();
        change.write().unwrap();
        assert_eq!((change.before.as_str(), change.after.as_str()), ("12", ""));
        assert_eq!(text(), all, "as it was, to the byte");
    }

    #[test]
    fn what_a_variable_sets_or_the_file_alone_may_set_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path(), "");
        for (name, code) in [
            ("keep_days", "setting.set-elsewhere"),
            ("listen", "setting.file-only"),
            ("ldap_name", "setting.file-only"),
            ("ldap_email", "setting.file-only"),
            ("ldap_full_name", "setting.file-only"),
            ("ldap_member_of", "setting.file-only"),
        ] {
            let key = key_named(name).unwrap();
            assert_eq!(sources.plan(key, Some("9")).unwrap_err().code, code);
        }
        assert_eq!(key_named("nothing").unwrap_err().code, "setting.unknown");
        let flag = key_named("log_json").unwrap();
        assert_eq!(
            written(flag, "maybe").unwrap_err().code,
            "setting.value-no-flag"
        );
        let count = key_named("backup_keep").unwrap();
        assert_eq!(
            written(count, "-1").unwrap_err().code,
            "setting.value-no-count"
        );
        assert_eq!(written(count, " ").unwrap(), None);
    }

    #[test]
    fn a_file_that_spreads_a_value_over_lines_is_left_to_an_editor() {
        let folder = tempfile::tempdir().unwrap();
        let text = "gpu_each = \"\"\"\n2\"\"\"\n";
        let sources = sources(folder.path(), text);
        let key = key_named("gpu_each").unwrap();
        let refusal = sources.plan(key, Some("\"3\"")).unwrap_err();
        assert_eq!(refusal.code, "setting.file-unusual");
    }
}
