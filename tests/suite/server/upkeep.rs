//! Settings, backups and the ground of the state with the real binary: what a running server does with
//! new settings, what a person types before and after a disaster, and what stops a start.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than a start takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

struct House {
    folder: tempfile::TempDir,
    server: Option<Child>,
}

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl House {
    fn new() -> Self {
        let house = Self {
            folder: tempfile::tempdir().expect("a directory"),
            server: None,
        };
        house.write("passphrase", "four random words here\n", 0o600);
        house.write("fardel.toml", "keep_days = 9\n", 0o640);
        house
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).expect("a file");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).expect("its mode");
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fardel"));
        command
            .args(line.split_whitespace())
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.folder.path())
            .env("LANG", "C")
            .env("FARDEL_CONFIG", self.path("fardel.toml"))
            .env("FARDEL_DATA", self.path("data"))
            .env("FARDEL_RUN", self.path("run"))
            .env("FARDEL_POOL_SIZE", "none")
            .env("FARDEL_SESSION_DISK", "none")
            .env("FARDEL_LISTEN", "127.0.0.1:0")
            .env("FARDEL_HOMES", "false")
            .env("FARDEL_BACKUP_PASSPHRASE_FILE", self.path("passphrase"))
            .stdin(Stdio::null());
        command
    }

    fn say(&self, line: &str) -> Said {
        self.finish(self.command(line))
    }

    fn finish(&self, mut command: Command) -> Said {
        let output = command.output().expect("the binary of this build starts");
        Said {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Refused with that code, in words, and with a way out.
    fn refused(&self, line: &str, code: &str) {
        let said = self.say(line);
        assert!(
            said.code.is_some_and(|code| code != 0),
            "{line} was not refused: {}",
            said.out
        );
        assert!(
            said.err.contains(&format!("code {code}")),
            "{line}: {}",
            said.err
        );
        assert!(
            said.err.lines().count() >= 3,
            "{line} says no way out: {}",
            said.err
        );
    }

    fn start(&mut self) {
        let log = fs::File::create(self.path("log")).expect("a log");
        let child = self
            .command("serve")
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the server starts");
        self.server = Some(child);
        let began = Instant::now();
        while self.say("-q top").code != Some(0) {
            assert!(
                began.elapsed() < TIMEOUT,
                "it does not serve: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn signal(&self, signal: i32) {
        let child = self.server.as_ref().expect("a server");
        // SAFETY: the child has not been waited for, so the number is still its own.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
    }

    fn until_log_says(&self, words: &str) {
        let began = Instant::now();
        while !self.log().contains(words) {
            assert!(
                began.elapsed() < TIMEOUT,
                "the log never says {words}: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(&mut self) {
        self.signal(libc::SIGTERM);
        if let Some(mut child) = self.server.take() {
            child.wait().expect("the server ends");
        }
    }

    fn in_force(&self, key: &str) -> Value {
        let said = self.say("api GET /settings");
        let body: Value = serde_json::from_str(&said.out).expect("JSON");
        let items = body["items"].as_array().expect("a list");
        items
            .iter()
            .find(|item| item["key"] == key)
            .expect("the key")
            .clone()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(child) = &mut self.server {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Proves too: `a_lost_machine_comes_back_by_one_command`
#[test]
fn a_running_server_goes_on_whatever_its_settings_file_becomes() {
    let mut house = House::new();
    house.start();
    assert_eq!(house.in_force("backup_keep")["value"], 7);
    for (text, code, words) in [
        ("keep_days = \n", "setting.syntax", "line 1"),
        (
            "keep_dais = 3\n",
            "setting.unknown",
            "Did you mean keep_days?",
        ),
        ("keep_days = \"three\"\n", "setting.wrong-type", "keep_days"),
        (
            "listen = \"here\"\n",
            "setting.listen-invalid",
            "127.0.0.1:7860",
        ),
    ] {
        // Variables win over the file; here the file must count.
        house.write("fardel.toml", text, 0o640);
        let said = house.say("ps -q");
        assert_eq!(said.code, Some(0), "{text}: {}", said.err);
        if code != "setting.listen-invalid" {
            assert!(said.err.starts_with("warning: "), "{}", said.err);
            house.refused("config reload", code);
            house.signal(libc::SIGHUP);
            house.until_log_says(&format!("code=\"{code}\""));
        }
        let mut check = house.command("config validate");
        check.env_remove("FARDEL_LISTEN");
        let said = house.finish(check);
        assert_ne!(said.code, Some(0), "{text}");
        assert!(
            said.err.contains(words) && said.err.contains("fardel.toml"),
            "{}",
            said.err
        );
    }
    assert_eq!(
        house.in_force("backup_keep")["value"],
        7,
        "a refused file changed something"
    );

    house.write("fardel.toml", "backup_keep = 3\nkeep_days = 8\n", 0o640);
    let said = house.say("config reload");
    assert!(
        said.out.contains("now in force: backup_keep"),
        "{}",
        said.out
    );
    assert!(
        said.out
            .contains("after a restart of the server: keep_days"),
        "{}",
        said.out
    );
    let keep = house.in_force("backup_keep");
    assert_eq!(keep["value"], 3);
    assert_eq!(
        keep["source"],
        house.path("fardel.toml").display().to_string()
    );
    let days = house.in_force("keep_days");
    assert_eq!(
        (&days["value"], &days["waiting"]["value"]),
        (&9.into(), &8.into())
    );
    house.stop();
    house.start();
    assert_eq!(house.in_force("keep_days")["value"], 8);
}

#[test]
fn a_backup_of_the_servers_own_is_carried_away_whole() {
    let mut house = House::new();
    let settings = format!(
        "backup_dir = \"{}\"\nbackup_passphrase_file = \"{}\"\n",
        house.path("made").display(),
        house.path("passphrase").display()
    );
    house.write("fardel.toml", &settings, 0o640);
    house.start();
    let said = house.say("backup now");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let list: Value = serde_json::from_str(&house.say("backup ls -o json").out).expect("JSON");
    let name = list["files"][0]["name"].as_str().expect("one was made");
    let said = house.say(&format!("backup download {name} carried"));
    assert_eq!(said.code, Some(0), "{}", said.err);
    let made = fs::read(house.path("made").join(name)).expect("the backup");
    assert!(fs::read(house.path("carried")).expect("a copy") == made);
    let mode = fs::metadata(house.path("carried"))
        .expect("it")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    assert_eq!(house.say("backup verify carried").code, Some(0));
    house.refused(&format!("backup download {name} carried"), "backup.exists");
    house.refused("backup download ../passphrase away", "backup.not-found");
    house.refused("backup download passphrase away", "backup.not-found");
    assert!(!house.path("away").exists(), "something was left");
    let events = house.say("event watch --since 0 --topics system --limit 2 -o json");
    assert!(
        events.out.contains("backup.taken"),
        "nobody noted it: {} {}",
        events.out,
        events.err
    );
    house.stop();
}

/// Promise (Disk, backup and upgrade): One command restores a lost server. A running server continues however
/// its settings file changes.
#[test]
fn a_lost_machine_comes_back_by_one_command() {
    let mut house = House::new();
    house.start();
    house.write("password", "a long walk by the river 7\n", 0o600);
    assert_eq!(
        house
            .say("user add mina --administrator --password-file password")
            .code,
        Some(0)
    );
    let said = house.say("backup create box.backup");
    assert_eq!(said.code, Some(0), "{}", said.err);
    house.refused("backup create box.backup", "backup.exists");
    house.refused(
        "backup restore box.backup --replace",
        "server.already-running",
    );
    house.stop();
    house.refused("backup restore box.backup", "restore.state-exists");

    fs::remove_dir_all(house.path("data")).expect("the disaster");
    // As a package leaves them: settings that say nothing, for a group to read. Only root may give them to one.
    house.write("fardel.toml", "# nothing yet\n", 0o640);
    let _ = std::os::unix::fs::chown(house.path("fardel.toml"), None, Some(4242));
    let group = |house: &House| {
        let told = fs::metadata(house.path("fardel.toml"));
        std::os::unix::fs::MetadataExt::gid(&told.expect("settings"))
    };
    let readers = group(&house);
    house.write("wrong", "four other words there\n", 0o600);
    house.refused(
        "backup restore box.backup --passphrase-file wrong",
        "backup.wrong-passphrase",
    );
    assert!(
        !house.path("data/catalog.sqlite").exists(),
        "half a restore"
    );
    let said = house.say("backup verify box.backup");
    assert!(
        said.out.contains("1 users") && said.out.contains("sound"),
        "{}{}",
        said.out,
        said.err
    );
    let said = house.say("backup restore box.backup");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(group(&house), readers, "its readers lost the settings");
    house.start();
    assert!(house.say("user ls").out.contains("mina"));
    assert_eq!(house.in_force("keep_days")["value"], 9);
    let findings = house.say("api GET /findings");
    assert!(findings.out.contains("\"items\": []"), "{}", findings.out);
}

#[test]
fn a_start_with_a_wrong_file_or_model_is_refused_before_a_state_is_made() {
    let house = House::new();
    for (line, code, way) in [
        (
            "serve --config missing.toml",
            "setting.file-missing",
            "config sample",
        ),
        (
            "serve --simulate-gpus 2",
            "gpu.simulation-invalid",
            "H100:2",
        ),
    ] {
        let said = house.say(line);
        assert_ne!(said.code, Some(0), "{line}");
        let is_told = said.err.contains(code) && said.err.contains(way);
        assert!(is_told, "{line}: {}", said.err);
    }
    assert!(!house.path("data/catalog.sqlite").exists());
}

#[test]
fn a_state_that_is_open_to_others_or_of_the_future_stops_the_start_with_a_way_out() {
    let mut house = House::new();
    house.start();
    house.stop();
    fs::set_permissions(house.path("data"), fs::Permissions::from_mode(0o777)).expect("its mode");
    let said = house.say("serve");
    assert_eq!(said.code, Some(1));
    assert!(
        said.err.contains("state.exposed") && said.err.contains("chmod 0750"),
        "{}",
        said.err
    );
    fs::set_permissions(house.path("data"), fs::Permissions::from_mode(0o700)).expect("its mode");

    let catalog = house.path("data/catalog.sqlite");
    let mut bytes = fs::read(&catalog).expect("the catalog");
    // The schema's version stands at byte 60 of the file.
    bytes[63] += 1;
    fs::write(&catalog, bytes).expect("a newer catalog");
    let said = house.say("serve");
    assert_eq!(said.code, Some(1));
    assert!(
        said.err.contains("state.newer") && said.err.contains("fardel upgrade rollback"),
        "{}",
        said.err
    );
    house.refused("upgrade rollback", "upgrade.nothing-kept");
}
