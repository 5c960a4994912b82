//! Checks of what the box knows: its catalog, its backups, its settings file. Reads the files as they are,
//! beside a running server too; changes none of them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use base::observe::chain;
use base::settings::Settings;
use rules::checks;
use rules::doctor::{CheckState, DoctorCheck};
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
    let sight = match offline_inspection::catalog(data) {
        Ok(Some(sight)) => sight,
        Ok(None) => return vec![checks::catalog_sound_new()],
        Err(failure) => {
            return vec![checks::catalog_sound_unreadable(
                chain(&failure).trim_end_matches('.'),
            )];
        }
    };
    let known = offline_inspection::newest_version();
    let mut checks = vec![if sight.version > known {
        checks::schema_newer(sight.version, known)
    } else if sight.version < known {
        checks::schema_older(sight.version, known)
    } else {
        checks::schema_well(known)
    }];
    checks.push(match sight.damage.first() {
        Some(first) => checks::catalog_sound_damaged(first),
        None => checks::catalog_sound_well(),
    });
    if let Some(findings) = sight.findings {
        checks.push(match findings.first() {
            Some(first) => checks::findings_some(findings.len(), &first.text),
            None => checks::findings_none(),
        });
    }
    checks
}

fn settings_file(file: &Path) -> DoctorCheck {
    let shown = file.display();
    match fs::metadata(file) {
        Err(_) => checks::settings_file_none(shown),
        Ok(found) if found.mode() & 0o022 != 0 => {
            checks::settings_file_writable(shown, format!("{:o}", found.mode() & 0o7777))
        }
        Ok(_) => checks::settings_file_well(shown),
    }
}

fn backups(settings: &Settings, now: Timestamp) -> DoctorCheck {
    const ID: &str = "backups";
    let Some(found) = offline_inspection::backups(settings) else {
        return checks::backups_off();
    };
    if let Some(refusal) = found.passphrase {
        return DoctorCheck::from_parts(ID, CheckState::Fail, refusal.text, refusal.hint);
    }
    if settings.backup_every_hours == 0 {
        return checks::backups_unscheduled();
    }
    let every = u64::from(settings.backup_every_hours) * 3600;
    // Those from the future were made before the clock was set back.
    match found.made_at.iter().filter(|at| **at <= now).max() {
        None => checks::backups_none(),
        Some(newest) if now.seconds_since(*newest) > 2 * every => {
            checks::backups_old(newest, settings.backup_every_hours)
        }
        Some(newest) => checks::backups_well(found.made_at.len(), newest),
    }
}

fn backup_disk(settings: &Settings) -> DoctorCheck {
    let Some(directory) = &settings.backup_dir else {
        return checks::backup_disk_off();
    };
    match (fs::metadata(directory), fs::metadata(&settings.data)) {
        (Ok(there), Ok(here)) if there.dev() == here.dev() => {
            checks::backup_disk_same(directory.display())
        }
        (Err(error), _) if error.kind() != std::io::ErrorKind::NotFound => {
            checks::backup_disk_unreadable(directory.display(), error)
        }
        _ => checks::backup_disk_well(directory.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;
    use crate::backup::{self, BackupPaths, Passphrase};
    use base::observe::Clock;
    use base::settings::SettingsLayer;
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
        planted.finds("findings", CheckState::Ok, "catalog is consistent");
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
        PlantedState::new(false).finds("backups", CheckState::Warn, "No scheduled backups");
        let planted = PlantedState::new(true);
        planted.finds("backups", CheckState::Warn, "no backup yet");
        planted.finds("backup-disk", CheckState::Warn, "same disk");
        planted.back_up(72);
        planted.finds("backups", CheckState::Fail, "newest backup is of");
        planted.back_up(3);
        planted.finds("backups", CheckState::Ok, "2 backup(s)");
        let mut unscheduled = PlantedState::new(true);
        unscheduled.settings.backup_every_hours = 0;
        unscheduled.finds("backups", CheckState::Warn, "No backup is scheduled");
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
