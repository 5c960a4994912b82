//! Runs the built tests once more as a user without any rights. The console, the refusals and every
//! pure part must work there too; only what is the same for every user is not run again.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::Failure;
use crate::program::{self, Program};
use crate::skips::{self, Who};

/// `nobody` on every Debian; nothing on the machine belongs to it.
const UID: &str = "65534";

/// Tests in which nothing asks who runs them: simulations in virtual time, which are minutes of computing; how long a
/// server waits for silent connections, which is two minutes of waiting; rules that read the tree; and every route for
/// every caller.
const SAME_FOR_EVERYBODY: [&str; 6] = [
    "simulation::",
    "architecture::",
    "server::edges::",
    "server::twin_worlds::",
    "server::callers::",
    "server::roles::",
];

/// Packages whose tests none of that concerns: pure rules and types, and the gate itself.
const PURE: [&str; 3] = ["rules", "api", "tasks"];

/// So begins the name of the binary with the tests of doors and pages, which the suite asks as this user, too.
const DOORS: &str = "fardel-";

/// Seconds after which a test binary hangs: the longest takes a third of it beside the browsers.
const HANGS: &str = "1800";

/// Runs every test binary of [`built_tests`] but those of [`PURE`] packages and [`DOORS`] as `nobody`, with an empty home and its
/// own folder for temporary files, and compares what it skipped. What each says is printed when it has ended: others run beside it.
pub(crate) fn run_tests(tests: &[(PathBuf, PathBuf)]) -> Result<(), Failure> {
    if !program::is_root() {
        return crate::leave_out("tests as an ordinary user", "the gate runs as one already");
    }
    if !program::installed("setpriv") {
        return crate::leave_out("tests as an ordinary user", "setpriv is not installed");
    }
    let home = Home::make()?;
    let mut failed = Vec::new();
    let concerned = tests.iter().filter(|(executable, folder)| {
        let name = executable.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with(DOORS) && !PURE.iter().any(|package| folder.ends_with(package))
    });
    for (executable, folder) in concerned {
        if as_nobody(&home)
            .argument("test")
            .words("-x")
            .argument(executable)
            .output()
            .is_err()
        {
            return crate::leave_out(
                "tests as an ordinary user",
                &format!(
                    "{} is out of an ordinary user's reach",
                    executable.display()
                ),
            );
        }
        let output = home.0.join("output");
        let file = File::create(&output)
            .map_err(|error| Failure::new(format!("{}: {error}", output.display())))?;
        let ran = as_nobody(&home)
            .words("timeout --signal=ABRT")
            .argument(HANGS)
            .argument(executable)
            .words("--quiet")
            .words(
                &SAME_FOR_EVERYBODY
                    .map(|tests| format!("--skip {tests}"))
                    .join(" "),
            )
            .inside(folder)
            .writing(file)
            .run();
        let said = fs::read(&output).unwrap_or_default();
        println!(
            "{}\n{}",
            executable.display(),
            String::from_utf8_lossy(&said)
        );
        if let Err(failure) = ran {
            failed.push(format!("{}: {failure}", executable.display()));
        }
    }
    let noted = fs::read_to_string(home.skips()).unwrap_or_default();
    print!("{noted}");
    if !failed.is_empty() {
        return Err(Failure::new(failed.join("\n")));
    }
    skips::compare_noted(Who::OrdinaryUser, &noted)
}

/// Executable and package folder of each test binary; cargo starts tests in their package's folder.
pub(crate) fn built_tests() -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
    let messages = Program::cargo()
        .words("test --workspace --no-run --locked --message-format=json --quiet")
        .output()?;
    let mut found = Vec::new();
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if message["profile"]["test"] != true {
            continue;
        }
        let folder = message["manifest_path"]
            .as_str()
            .and_then(|path| Path::new(path).parent());
        if let (Some(executable), Some(folder)) = (message["executable"].as_str(), folder) {
            found.push((PathBuf::from(executable), folder.to_owned()));
        }
    }
    if found.is_empty() {
        return Err(Failure::new("cargo built no test binary"));
    }
    Ok(found)
}

fn as_nobody(home: &Home) -> Program {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Program::named("setpriv")
        .words("--reuid")
        .argument(UID)
        .words("--regid")
        .argument(UID)
        .words("--clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs -- env -i")
        .argument(format!("PATH={}", path.to_string_lossy()))
        .argument(format!("HOME={}", home.0.display()))
        .argument(format!("TMPDIR={}", home.0.display()))
        .argument(format!("FARDEL_SKIPS={}", home.skips().display()))
}

/// A folder that belongs to `nobody`, removed at the end.
struct Home(PathBuf);

impl Home {
    fn make() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("fardel-gate-nobody-{}", std::process::id()));
        fs::create_dir_all(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)))
            .map_err(|error| Failure::new(format!("{} cannot be made: {error}", path.display())))?;
        let home = Self(path);
        Program::named("chown")
            .argument(format!("{UID}:{UID}"))
            .argument(&home.0)
            .run()?;
        Ok(home)
    }

    fn skips(&self) -> PathBuf {
        self.0.join("skips")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            println!("{} stays behind: {error}", self.0.display());
        }
    }
}
