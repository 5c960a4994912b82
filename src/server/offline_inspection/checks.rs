//! Checks of what the box knows: its catalog, its backups, its settings file. Reads the files as they are,
//! beside a running server too; changes none of them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use base::observe::chain;
use base::settings::Settings;
use rules::doctor::DoctorCheck;
use rules::units::Timestamp;

use crate::offline_inspection;

/// Every one of these checks. `file` is the settings file; `continuity` says how the machine's own record
/// stands to the catalog, which the caller has found. Costs reading the whole catalog.
pub fn all(
    settings: &Settings,
    file: &Path,
    continuity: Option<DoctorCheck>,
    now: Timestamp,
) -> Vec<DoctorCheck> {
    let mut checks = catalog(&settings.data);
    checks.extend(continuity);
    checks.push(settings_file(file));
    checks.push(backups(settings, now));
    checks.push(backup_disk(settings));
    checks
}

fn catalog(data: &Path) -> Vec<DoctorCheck> {
    const SCHEMA: &str = "schema";
    const SOUND: &str = "catalog-sound";
    const ROWS: &str = "findings";
    let restore =
        "Stop the server, then: fardel backup restore FILE --replace (the newest good backup).";
    let sight = match offline_inspection::catalog(data) {
        Ok(Some(sight)) => sight,
        Ok(None) => return vec![DoctorCheck::ok(SOUND, "There is no catalog yet.")],
        Err(failure) => {
            return vec![DoctorCheck::fail(
                SOUND,
                format!("{}.", chain(&failure).trim_end_matches('.')),
                restore,
            )];
        }
    };
    let known = offline_inspection::newest_version();
    let mut checks = vec![if sight.version > known {
        DoctorCheck::fail(
            SCHEMA,
            format!(
                "The catalog is of version {}, this program knows {known}.",
                sight.version
            ),
            "Start the newer program again, or go back: fardel upgrade rollback.",
        )
    } else if sight.version < known {
        DoctorCheck::ok(
            SCHEMA,
            format!(
                "The catalog is of version {}; the next start raises it to {known} and keeps a copy.",
                sight.version
            ),
        )
    } else {
        DoctorCheck::ok(
            SCHEMA,
            format!("The catalog is of version {known}, the newest."),
        )
    }];
    checks.push(match sight.damage.first() {
        Some(first) => {
            DoctorCheck::fail(SOUND, format!("The catalog is damaged: {first}."), restore)
        }
        None => DoctorCheck::ok(SOUND, "Every page of the catalog was read and is sound."),
    });
    if let Some(findings) = sight.findings {
        checks.push(match findings.first() {
            Some(first) => DoctorCheck::fail(
                ROWS,
                format!("{} broken rule(s) in the catalog: {}", findings.len(), first.text),
                "Make a support bundle (fardel support bundle) and a backup, then restart the server.",
            ),
            None => DoctorCheck::ok(ROWS, "No rule of the catalog is broken."),
        });
    }
    checks
}

fn settings_file(file: &Path) -> DoctorCheck {
    const ID: &str = "settings-file";
    let shown = file.display();
    match fs::metadata(file) {
        Err(_) => DoctorCheck::ok(
            ID,
            format!("There is no {shown}; every setting is at its default, or a variable."),
        ),
        Ok(found) if found.mode() & 0o022 != 0 => DoctorCheck::fail(
            ID,
            format!(
                "{shown} can be written by others (mode {:o}).",
                found.mode() & 0o7777
            ),
            format!("chmod 0640 {shown}"),
        ),
        Ok(_) => DoctorCheck::ok(ID, format!("{shown} is good and closed to others.")),
    }
}

fn backups(settings: &Settings, now: Timestamp) -> DoctorCheck {
    const ID: &str = "backups";
    let Some(found) = offline_inspection::backups(settings) else {
        return DoctorCheck::warn(
            ID,
            "The server makes no backups by itself.",
            "Set backup_dir and backup_passphrase_file in the settings, then: fardel config reload.",
        );
    };
    if let Some(refusal) = found.passphrase {
        return DoctorCheck::fail(ID, refusal.text, refusal.hint);
    }
    let every = u64::from(settings.backup_every_hours) * 3600;
    // Those from the future were made before the clock was set back.
    match found.made_at.iter().filter(|at| **at <= now).max() {
        None => DoctorCheck::warn(
            ID,
            "There is no backup yet.",
            "The running server makes one within minutes; or now: fardel backup now.",
        ),
        Some(newest) if now.seconds_since(*newest) > 2 * every => DoctorCheck::fail(
            ID,
            format!(
                "The newest backup is of {newest}; one is due every {} hours.",
                settings.backup_every_hours
            ),
            "fardel backup now says what stands in the way.",
        ),
        Some(newest) => DoctorCheck::ok(
            ID,
            format!("{} backup(s), the newest of {newest}.", found.made_at.len()),
        ),
    }
}

fn backup_disk(settings: &Settings) -> DoctorCheck {
    const ID: &str = "backup-disk";
    let Some(directory) = &settings.backup_dir else {
        return DoctorCheck::ok(ID, "No directory of backups is set.");
    };
    match (fs::metadata(directory), fs::metadata(&settings.data)) {
        (Ok(there), Ok(here)) if there.dev() == here.dev() => DoctorCheck::warn(
            ID,
            format!(
                "{} lies on the same disk as the state.",
                directory.display()
            ),
            "Set backup_dir to another disk, or copy the backups away: one dead disk must not take both.",
        ),
        (Err(error), _) if error.kind() != std::io::ErrorKind::NotFound => DoctorCheck::fail(
            ID,
            format!("{} cannot be looked at ({error}).", directory.display()),
            "Plug that disk in or mount it again, or set backup_dir to another directory.",
        ),
        _ => DoctorCheck::ok(ID, format!("Backups go to {}.", directory.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;
    use crate::backup::{self, BackupPaths, Passphrase};
    use base::observe::Clock;
    use base::settings::SettingsLayer;
    use rules::doctor::CheckState;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    struct PlantedState {
        folder: tempfile::TempDir,
        settings: Settings,
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    impl PlantedState {
        fn new(with_backups: bool) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::write(at("passphrase"), "four random words here\n").unwrap();
            mode(&at("passphrase"), 0o600);
            fs::write(at("fardel.toml"), "").unwrap();
            mode(&at("fardel.toml"), 0o640);
            let layer = SettingsLayer {
                data: Some(at("data")),
                backup_dir: with_backups.then(|| at("backups")),
                backup_passphrase_file: with_backups.then(|| at("passphrase")),
                ..SettingsLayer::default()
            };
            let settings = Settings::read(layer, |name| {
                (name == "FARDEL_CONFIG").then(|| "/nonexistent".to_owned())
            })
            .unwrap();
            drop(Server::start(settings.clone(), Clock::system()).unwrap());
            fs::create_dir_all(at("backups")).unwrap();
            Self { folder, settings }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn finds(&self, id: &str, state: CheckState, words: &str) {
            let found = all(
                &self.settings,
                &self.path("fardel.toml"),
                None,
                Clock::system().now(),
            );
            let check = found.into_iter().find(|check| check.id == id);
            let check = check.unwrap_or_else(|| panic!("no check {id}"));
            assert_eq!(check.state, state, "{id}: {}", check.found);
            assert!(check.found.contains(words), "{id}: {}", check.found);
            assert_eq!(
                check.state == CheckState::Ok,
                check.fix.is_empty(),
                "{id}: {}",
                check.fix
            );
        }

        fn back_up(&self, hours_ago: i64) {
            let now = Clock::system().now().as_millis() - hours_ago * 3_600_000;
            let places = BackupPaths {
                data: self.settings.data.clone(),
                settings: self.path("fardel.toml"),
            };
            let secret = Passphrase::read(&self.path("passphrase")).unwrap();
            let to = self.path(&format!("backups/fardel-{hours_ago}.backup"));
            backup::create(&places, &secret, &to, Timestamp::from_millis(now)).unwrap();
        }
    }

    #[test]
    fn a_catalog_is_read_whole_beside_its_server_and_damage_is_found() {
        let planted = PlantedState::new(false);
        let server = Server::start(planted.settings.clone(), Clock::system()).unwrap();
        planted.finds("catalog-sound", CheckState::Ok, "sound");
        planted.finds("findings", CheckState::Ok, "No rule");
        planted.finds("schema", CheckState::Ok, "newest");
        drop(server);
        let file = planted.settings.data.join("catalog.sqlite");
        let mut bytes = fs::read(&file).unwrap();
        // The version stands at byte 60 of the file.
        let known = std::mem::replace(&mut bytes[63], 99);
        fs::write(&file, &bytes).unwrap();
        planted.finds("schema", CheckState::Fail, "version 99");
        bytes[63] = known;
        let middle = bytes.len() / 2;
        bytes[middle..].fill(0x5a);
        fs::write(&file, &bytes).unwrap();
        planted.finds("catalog-sound", CheckState::Fail, "catalog");
        fs::write(&file, "no catalog at all, whatever its name says").unwrap();
        planted.finds("catalog-sound", CheckState::Fail, "");
    }

    #[test]
    fn backups_that_are_missing_old_or_locked_away_are_found() {
        PlantedState::new(false).finds("backups", CheckState::Warn, "no backups by itself");
        let planted = PlantedState::new(true);
        planted.finds("backups", CheckState::Warn, "no backup yet");
        planted.finds("backup-disk", CheckState::Warn, "same disk");
        planted.back_up(72);
        planted.finds("backups", CheckState::Fail, "newest backup is of");
        planted.back_up(3);
        planted.finds("backups", CheckState::Ok, "2 backup(s)");
        mode(&planted.path("passphrase"), 0o644);
        planted.finds(
            "backups",
            CheckState::Fail,
            "Others on this machine may read",
        );
    }

    #[test]
    fn a_settings_file_that_others_may_write_is_found() {
        let planted = PlantedState::new(false);
        planted.finds("settings-file", CheckState::Ok, "closed to others");
        mode(&planted.path("fardel.toml"), 0o666);
        planted.finds("settings-file", CheckState::Fail, "mode 666");
    }
}
