//! What the sessions of a user start with: files in the home, a script that runs once before the command, and variables.
//! Says what of it may be kept, and which session gets what. Holds no row and reads no file.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::ContainerName;
use crate::reason::Reason;
use crate::reasons;
use crate::refusal::Refusal;
use crate::refusals;

/// Files of one user. Higher: each start writes more of them. Lower: users of several tools have no room.
pub const MAX_DOTFILES: usize = 32;
/// Bytes of one file. Higher: what belongs into a folder is kept in the catalog. Lower: an editor's settings do not fit.
pub const MAX_DOTFILE_BYTES: usize = 64 << 10;
/// Bytes of all files of one user. They travel with each order of a session that starts: higher, and a class that starts
/// together makes orders of many megabytes.
pub const MAX_DOTFILES_BYTES: usize = 256 << 10;
/// Bytes of the path of a file, and directories in it.
pub const MAX_DOTFILE_PATH: usize = 255;
pub const MAX_DOTFILE_DEPTH: usize = 8;
/// Bytes of the script.
pub const MAX_SCRIPT_BYTES: usize = 64 << 10;
/// How long the script may run. Longer: a session whose script hangs holds its GPU for nothing. Shorter: packages cannot
/// be installed.
pub const SCRIPT_SECONDS: u32 = 120;
/// Variables of one user.
pub const MAX_OWN_VARIABLES: usize = 64;
/// Bytes of one value, and of all names and values of one user.
pub const MAX_VARIABLE_BYTES: usize = 8 << 10;
pub const MAX_VARIABLES_BYTES: usize = 64 << 10;
/// Bytes of the name of a variable.
pub const MAX_VARIABLE_NAME: usize = 64;

/// Names that the runtime sets, or by which a program is made to load something else.
const RESERVED: [&str; 12] = [
    "BASH_ENV",
    "CUDA_VISIBLE_DEVICES",
    "ENV",
    "GCONV_PATH",
    "HOME",
    "HOSTNAME",
    "LOGNAME",
    "PATH",
    "PWD",
    "SHELL",
    "TERM",
    "USER",
];
const RESERVED_BEGINNINGS: [&str; 3] = ["FARDEL_", "LD_", "NVIDIA_"];

/// What of its owner's a session starts with; decided at its launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartUpChoice {
    /// Nothing: it was launched so, or for its owner by another user, who decides what it runs.
    #[default]
    Nothing,
    /// Files and script. It was launched while its owner had no variables.
    Files,
    /// Variables too: only its owner enters it.
    Variables,
}

impl StartUpChoice {
    /// Rule: the command of a session that another user launched is that user's, and reads all that the session has.
    pub fn of_launch(is_for_another: bool, is_wanted: bool, has_variables: bool) -> Self {
        match (is_for_another || !is_wanted, has_variables) {
            (true, _) => Self::Nothing,
            (false, false) => Self::Files,
            (false, true) => Self::Variables,
        }
    }
}

/// What a session has of its owner's start-up, and what became of the script.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStartUp {
    #[serde(default)]
    pub choice: StartUpChoice,
    /// The start whose script failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<u32>,
}

/// A file below the home of a session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dotfile {
    /// Below the home, without a leading slash.
    pub path: String,
    /// Permission bits alone.
    pub mode: u32,
    pub content: String,
}

/// What runs once inside before the command, as the session's user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartUpScript {
    pub text: String,
    /// The session ends where the script fails; else it goes on.
    pub ends_session: bool,
}

/// All that a session starts with.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartUp {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Dotfile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<StartUpScript>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

impl StartUp {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.script.is_none() && self.variables.is_empty()
    }

    /// The part of it that a session of this choice gets.
    #[must_use]
    pub fn under(mut self, choice: StartUpChoice) -> Self {
        match choice {
            StartUpChoice::Nothing => Self::default(),
            StartUpChoice::Files => {
                self.variables.clear();
                self
            }
            StartUpChoice::Variables => self,
        }
    }
}

// Contents are the user's own: no log line has them.
impl fmt::Debug for Dotfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Dotfile({:?}, {:o}, {} bytes)",
            self.path,
            self.mode,
            self.content.len()
        )
    }
}

impl fmt::Debug for StartUpScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StartUpScript({} bytes)", self.text.len())
    }
}

impl fmt::Debug for StartUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartUp")
            .field("files", &self.files)
            .field("script", &self.script)
            .field("variables", &self.variables.len())
            .finish()
    }
}

/// A script that failed, as the node of its container tells it; said again until the container is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartUpFailure {
    pub container: ContainerName,
    /// None: it ran for longer than it may, and was killed.
    pub exit_code: Option<i32>,
    /// The command did not run, and the container is over.
    pub ends_session: bool,
}

impl StartUpFailure {
    pub fn reason(&self) -> Reason {
        match (self.ends_session, self.exit_code) {
            (false, Some(code)) => reasons::session_start_up_failed(code),
            (false, None) => reasons::session_start_up_slow(SCRIPT_SECONDS),
            (true, Some(code)) => reasons::session_start_up_ended(code),
            (true, None) => reasons::session_start_up_ended_slow(SCRIPT_SECONDS),
        }
    }
}

/// The path of a file as it is kept: below the home, without `~/` before it.
///
/// Errors: `dotfile.path-invalid`.
pub fn dotfile_path(typed: &str) -> Result<String, Refusal> {
    let typed = typed.trim();
    let path = typed.strip_prefix("~/").unwrap_or(typed);
    let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
    let fits = path.len() <= MAX_DOTFILE_PATH
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && path.split('/').all(is_name)
        && path.split('/').count() <= MAX_DOTFILE_DEPTH;
    match fits {
        true => Ok(path.to_owned()),
        false => Err(refusals::dotfile_path_invalid(MAX_DOTFILE_DEPTH).at("/path")),
    }
}

/// The permission bits of a file, such as `600`. Its owner reads it.
///
/// Errors: `dotfile.mode-invalid`.
pub fn dotfile_mode(typed: &str) -> Result<u32, Refusal> {
    let typed = typed.trim();
    let octal = (3..=4).contains(&typed.len()) && typed.bytes().all(|b| b.is_ascii_digit());
    let mode = u32::from_str_radix(typed, 8).ok().filter(|_| octal);
    mode.filter(|mode| mode & !0o777 == 0 && mode & 0o400 != 0)
        .ok_or_else(|| refusals::dotfile_mode_invalid().at("/mode"))
}

/// Refuses what is no file of the start-up.
///
/// Errors: `dotfile.too-large`, `dotfile.not-text`.
pub fn check_content(content: &str) -> Result<(), Refusal> {
    if content.len() > MAX_DOTFILE_BYTES {
        return Err(refusals::dotfile_too_large(MAX_DOTFILE_BYTES >> 10).at("/content"));
    }
    match content.contains('\0') {
        true => Err(refusals::dotfile_not_text().at("/content")),
        false => Ok(()),
    }
}

/// Refuses a file beside which another of the user's cannot lie: one is a directory of the other.
///
/// Errors: `dotfile.in-the-way`.
pub fn check_beside<'a>(
    path: &str,
    others: impl IntoIterator<Item = &'a str>,
) -> Result<(), Refusal> {
    let below = |one: &str, other: &str| {
        one.strip_prefix(other)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let mut others = others.into_iter();
    match others.find(|other| below(path, other) || below(other, path)) {
        Some(other) => Err(refusals::dotfile_in_the_way(other).at("/path")),
        None => Ok(()),
    }
}

/// Refuses what is no script.
///
/// Errors: `startup-script.empty`, `startup-script.too-large`, `startup-script.not-text`.
pub fn check_script(text: &str) -> Result<(), Refusal> {
    if text.trim().is_empty() {
        return Err(refusals::startup_script_empty().at("/script"));
    }
    if text.len() > MAX_SCRIPT_BYTES {
        return Err(refusals::startup_script_too_large(MAX_SCRIPT_BYTES >> 10).at("/script"));
    }
    match text.contains('\0') {
        true => Err(refusals::startup_script_not_text().at("/script")),
        false => Ok(()),
    }
}

/// The script as the kernel runs it: a line that names its interpreter comes first.
pub fn runnable(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    match text.starts_with("#!") {
        true => text,
        false => format!("#!/bin/sh\n{text}"),
    }
}

/// Refuses a name that no variable may have, or that is not the user's to set.
///
/// Errors: `variable.name-invalid`, `variable.name-reserved`.
pub fn check_variable_name(name: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = !name.is_empty()
        && name.len() <= MAX_VARIABLE_NAME
        && name.chars().all(plain)
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !is_name {
        return Err(refusals::variable_name_invalid(MAX_VARIABLE_NAME).at("/name"));
    }
    let begins = |beginning: &&str| name.starts_with(beginning);
    if RESERVED.contains(&name) || RESERVED_BEGINNINGS.iter().any(begins) {
        return Err(refusals::variable_name_reserved(name).at("/name"));
    }
    Ok(())
}

/// Refuses what is no value.
///
/// Errors: `variable.too-large`, `variable.not-text`. The refusals never repeat the value.
pub fn check_variable_value(value: &str) -> Result<(), Refusal> {
    if value.len() > MAX_VARIABLE_BYTES {
        return Err(refusals::variable_too_large(MAX_VARIABLE_BYTES >> 10).at("/value"));
    }
    match value.contains('\0') {
        true => Err(refusals::variable_not_text().at("/value")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T: fmt::Debug>(refused: Result<T, Refusal>) -> String {
        refused.expect_err("refused").code
    }

    #[test]
    fn a_path_of_a_dotfile_stays_below_the_home() {
        for (typed, kept) in [
            (".bashrc", ".bashrc"),
            ("~/.config/git/config", ".config/git/config"),
            (" .vimrc ", ".vimrc"),
        ] {
            assert_eq!(dotfile_path(typed).as_deref(), Ok(kept));
        }
        let deep = "a/".repeat(MAX_DOTFILE_DEPTH) + "b";
        let long = "x".repeat(MAX_DOTFILE_PATH + 1);
        for bad in [
            "",
            "/etc/passwd",
            "..",
            "../x",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            "a\nb",
            "a\0",
            "a\\b",
            &deep,
            &long,
        ] {
            assert_eq!(code(dotfile_path(bad)), "dotfile.path-invalid", "{bad:?}");
        }
    }

    #[test]
    fn a_mode_gives_no_program_of_another_user() {
        assert_eq!(dotfile_mode("600"), Ok(0o600));
        assert_eq!(dotfile_mode("0755"), Ok(0o755));
        for bad in ["", "4755", "2755", "1777", "077", "999", "6", "+600", "rw-"] {
            assert_eq!(code(dotfile_mode(bad)), "dotfile.mode-invalid", "{bad:?}");
        }
    }

    #[test]
    fn no_dotfile_is_a_directory_of_another() {
        assert!(check_beside(".config/a", [".config/b", ".configs"]).is_ok());
        assert_eq!(
            code(check_beside(".config", [".config/b"])),
            "dotfile.in-the-way"
        );
        assert_eq!(
            code(check_beside(".config/b/c", [".config/b"])),
            "dotfile.in-the-way"
        );
    }

    #[test]
    fn names_that_the_runtime_sets_are_refused() {
        assert!(check_variable_name("WANDB_API_KEY").is_ok());
        for bad in [
            "",
            "1A",
            "A-B",
            "A=B",
            "ä",
            &"A".repeat(MAX_VARIABLE_NAME + 1),
        ] {
            assert_eq!(
                code(check_variable_name(bad)),
                "variable.name-invalid",
                "{bad:?}"
            );
        }
        for taken in [
            "HOME",
            "PATH",
            "LD_PRELOAD",
            "FARDEL_SESSION",
            "NVIDIA_VISIBLE_DEVICES",
        ] {
            assert_eq!(
                code(check_variable_name(taken)),
                "variable.name-reserved",
                "{taken}"
            );
        }
    }

    #[test]
    fn who_launches_for_another_gets_nothing_of_theirs() {
        for has_variables in [false, true] {
            for wanted in [false, true] {
                let choice = StartUpChoice::of_launch(true, wanted, has_variables);
                assert_eq!(choice, StartUpChoice::Nothing);
            }
        }
        assert_eq!(
            StartUpChoice::of_launch(false, false, true),
            StartUpChoice::Nothing
        );
        assert_eq!(
            StartUpChoice::of_launch(false, true, false),
            StartUpChoice::Files
        );
        assert_eq!(
            StartUpChoice::of_launch(false, true, true),
            StartUpChoice::Variables
        );
    }

    #[test]
    fn a_session_of_files_alone_gets_no_variable_and_no_log_gets_any() {
        let all = StartUp {
            files: vec![Dotfile {
                path: ".netrc".into(),
                mode: 0o600,
                content: "password hunter2".into(),
            }],
            script: Some(StartUpScript {
                text: "echo hunter2".into(),
                ends_session: false,
            }),
            variables: BTreeMap::from([("TOKEN".into(), "hunter2".into())]),
        };
        assert!(!format!("{all:?}").contains("hunter2"));
        assert_eq!(all.clone().under(StartUpChoice::Variables), all);
        let files = all.clone().under(StartUpChoice::Files);
        assert!(files.variables.is_empty() && files.script.is_some());
        assert!(all.under(StartUpChoice::Nothing).is_empty());
    }

    #[test]
    fn a_script_names_its_interpreter() {
        assert_eq!(runnable("echo a\r\necho b"), "#!/bin/sh\necho a\necho b");
        assert_eq!(runnable("#!/bin/bash\necho a"), "#!/bin/bash\necho a");
        assert_eq!(code(check_script(" \n")), "startup-script.empty");
        let large = "x".repeat(MAX_SCRIPT_BYTES + 1);
        assert_eq!(code(check_script(&large)), "startup-script.too-large");
    }
}
