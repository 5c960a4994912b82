//! An app: a program in a session that its user opens in a browser. Says which are known, how one is named and started,
//! and what an image may say of its own. Runs nothing: nothing that is described here is executed outside a container.

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::refusals;

/// Characters of an app's name: it becomes part of an address.
pub const MAX_APP_NAME: usize = 32;
/// Apps of one image. Higher: a page lists more than a user looks through. Lower: an image with many tools hides some.
pub const MAX_IMAGE_APPS: usize = 32;
/// Bytes of what an image says of its apps. Higher: an import keeps more of a stranger's text in the catalog.
pub const MAX_APPS_LABEL: usize = 64 << 10;
/// Words of a command. Higher: a command that no user can read. Lower: an app with many settings needs a script.
pub const MAX_APP_WORDS: usize = 64;
/// Bytes of one word of a command, of a path and of a title.
pub const MAX_APP_TEXT: usize = 400;
/// Seconds that an app may take until it answers. Longer: a user looks at a page that never comes to an end.
pub const MAX_READY_SECONDS: u32 = 600;
/// The label of an image that lists its apps as JSON.
pub const APPS_LABEL: &str = "fardel.apps";

/// Lower-case letters, digits and hyphens; begins with a letter, so that no name is a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AppName(String);

impl AppName {
    /// Errors: `app.name-invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let known = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let is_good = text.len() <= MAX_APP_NAME
            && text.starts_with(|letter: char| letter.is_ascii_lowercase())
            && text.ends_with(known)
            && text.chars().all(|letter| known(letter) || letter == '-');
        match is_good {
            true => Ok(Self(text.to_owned())),
            false => Err(refusals::app_name_invalid()),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for AppName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which app is meant: one that is described, or what listens on a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AppChoice {
    Named(AppName),
    Port(u16),
}

impl AppChoice {
    /// Reads `jupyter` or `8080`. Errors: `app.name-invalid`, `port.invalid`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        if !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit()) {
            let port = text.parse().ok().filter(|port| *port > 0);
            return port.map(Self::Port).ok_or_else(refusals::port_invalid);
        }
        AppName::parse(text).map(Self::Named)
    }
}

impl std::fmt::Display for AppChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(name) => name.fmt(f),
            Self::Port(port) => port.fmt(f),
        }
    }
}

/// How an app is started and opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppDefinition {
    pub choice: AppChoice,
    /// What people read; empty: the name.
    pub title: String,
    /// For readers in Korean; empty: they read the other one.
    pub title_ko: String,
    /// The program that must exist for the app to be offered; empty where nothing is started.
    pub program: String,
    /// Program and arguments, with templates; empty: its user starts it.
    pub command: Vec<String>,
    /// Commands that end well before it starts, with templates.
    pub before: Vec<Vec<String>>,
    /// Variables of all of them, with templates.
    pub environment: Vec<(String, String)>,
    /// Where it listens, inside.
    pub port: u16,
    /// What is asked to see whether it answers.
    pub health: String,
    /// What is opened first.
    pub open: String,
    pub ready_seconds: u32,
}

/// One app as an image lists it.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AppSource {
    name: String,
    #[serde(default)]
    title: TitleSource,
    #[serde(default)]
    program: String,
    #[serde(default)]
    command: Vec<String>,
    port: u16,
    #[serde(default = "root")]
    health: String,
    #[serde(default = "root")]
    open: String,
    #[serde(default = "usual_ready_seconds")]
    ready_seconds: u32,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct TitleSource {
    en: String,
    ko: String,
}

fn root() -> String {
    "/".to_owned()
}

/// Until it is taken for one that does not come.
fn usual_ready_seconds() -> u32 {
    120
}

/// What templates stand for.
#[derive(Debug, Clone, Copy)]
pub struct AppTemplates<'a> {
    pub port: u16,
    pub session: &'a str,
}

impl AppTemplates<'_> {
    /// `{port}` and `{session}` replaced; other braces are text.
    pub fn fill(&self, text: &str) -> String {
        text.replace("{port}", &self.port.to_string())
            .replace("{session}", self.session)
    }
}

impl AppDefinition {
    /// What listens on a port, started by its user.
    pub fn of_port(port: u16) -> Self {
        Self {
            choice: AppChoice::Port(port),
            title: String::new(),
            title_ko: String::new(),
            program: String::new(),
            command: Vec::new(),
            before: Vec::new(),
            environment: Vec::new(),
            port,
            health: root(),
            open: root(),
            ready_seconds: usual_ready_seconds(),
        }
    }

    /// Errors: `app.name-invalid`, `app.description-invalid`.
    fn of_image(source: AppSource) -> Result<Self, Refusal> {
        let name = AppName::parse(&source.name)?;
        let plain = |text: &str| text.len() <= MAX_APP_TEXT && !text.chars().any(char::is_control);
        let texts = [&source.title.en, &source.title.ko, &source.program];
        let words_are_plain = source.command.iter().chain(texts).all(|word| plain(word));
        let is_good = words_are_plain
            && source.command.len() <= MAX_APP_WORDS
            && source.command.first().is_none_or(|word| !word.is_empty())
            && source.port > 0
            && (1..=MAX_READY_SECONDS).contains(&source.ready_seconds)
            && is_path(&source.health)
            && is_path(&source.open);
        if !is_good {
            return Err(refusals::app_description_invalid(&name));
        }
        let program = match source.program.is_empty() {
            true => source.command.first().cloned().unwrap_or_default(),
            false => source.program,
        };
        Ok(Self {
            choice: AppChoice::Named(name),
            title: source.title.en,
            title_ko: source.title.ko,
            program,
            command: source.command,
            before: Vec::new(),
            environment: Vec::new(),
            port: source.port,
            health: source.health,
            open: source.open,
            ready_seconds: source.ready_seconds,
        })
    }
}

/// Whether a text is a path on an origin, and leads to no other one.
pub fn is_path(text: &str) -> bool {
    let visible = |letter: u8| (0x21..0x7f).contains(&letter) && letter != b'\\';
    text.len() <= MAX_APP_TEXT
        && text.starts_with('/')
        && !text.starts_with("//")
        && text.bytes().all(visible)
}

/// A path as one value of a query.
pub fn query_value(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The apps that an image lists. Errors: `app.name-invalid`, `app.description-invalid`, `app.descriptions-many`.
pub fn apps_of_image(sources: Vec<AppSource>) -> Result<Vec<AppDefinition>, Refusal> {
    if sources.len() > MAX_IMAGE_APPS {
        return Err(refusals::app_descriptions_many(MAX_IMAGE_APPS));
    }
    let mut all: Vec<AppDefinition> = Vec::with_capacity(sources.len());
    for source in sources {
        let app = AppDefinition::of_image(source)?;
        if all.iter().any(|known| known.choice == app.choice) {
            return Err(refusals::app_description_invalid(&app.choice));
        }
        all.push(app);
    }
    Ok(all)
}

/// The apps that a session has: those of its image, then those that are built in and that the image does not name. Built-in
/// ones, and those of the image with a command, need their program.
pub fn offered(of_image: Vec<AppDefinition>, has: impl Fn(&str) -> bool) -> Vec<AppDefinition> {
    let mut all = of_image;
    for app in built_in() {
        if !all.iter().any(|known| known.choice == app.choice) {
            all.push(app);
        }
    }
    all.retain(|app| app.program.is_empty() || has(&app.program));
    all
}

/// One line of the built-in list.
struct BuiltInApp {
    name: &'static str,
    title: &'static str,
    /// Empty: the first word of the command.
    program: &'static str,
    command: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    port: u16,
    health: &'static str,
    open: &'static str,
    ready_seconds: u32,
}

const USUAL: BuiltInApp = BuiltInApp {
    name: "",
    title: "",
    program: "",
    command: &[],
    environment: &[],
    port: 0,
    health: "/",
    open: "/",
    ready_seconds: 120,
};

/// What is offered where an image has its program. Each listens on the loopback interface of its session alone, and asks
/// for no password of its own: the origin of a route is checked before a byte reaches it.
const BUILT_IN: &[BuiltInApp] = &[
    BuiltInApp {
        name: "jupyter",
        title: "JupyterLab",
        command: &[
            "jupyter-lab",
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            "--port={port}",
            "--ServerApp.port_retries=0",
            "--IdentityProvider.token=",
            // Its cookie would be shared with every other port of this address.
            "--ServerApp.disable_check_xsrf=True",
        ],
        port: 8888,
        health: "/api",
        open: "/lab",
        ..USUAL
    },
    BuiltInApp {
        name: "notebook",
        title: "Jupyter Notebook",
        command: &[
            "jupyter-notebook",
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            "--port={port}",
            "--ServerApp.port_retries=0",
            "--IdentityProvider.token=",
            "--ServerApp.disable_check_xsrf=True",
        ],
        port: 8889,
        health: "/api",
        open: "/tree",
        ..USUAL
    },
    BuiltInApp {
        name: "code",
        title: "code-server",
        command: &[
            "code-server",
            "--bind-addr=127.0.0.1:{port}",
            "--auth=none",
            // It compares a page's origin with the public name of its host, and gets its own inner one.
            "--trusted-origins=*",
            "--disable-telemetry",
            "--disable-update-check",
        ],
        port: 8890,
        health: "/healthz",
        ..USUAL
    },
    BuiltInApp {
        name: "tensorboard",
        title: "TensorBoard",
        command: &[
            "tensorboard",
            "--logdir=.",
            "--host=127.0.0.1",
            "--port={port}",
        ],
        port: 6006,
        ..USUAL
    },
    BuiltInApp {
        name: "mlflow",
        title: "MLflow",
        command: &["mlflow", "ui", "--host=127.0.0.1", "--port={port}"],
        port: 5000,
        health: "/health",
        ..USUAL
    },
    BuiltInApp {
        name: "streamlit",
        title: "Streamlit",
        command: &[
            "streamlit",
            "run",
            "app.py",
            "--server.headless=true",
            "--server.address=127.0.0.1",
            "--server.port={port}",
            "--browser.gatherUsageStats=false",
        ],
        port: 8501,
        health: "/_stcore/health",
        ..USUAL
    },
    BuiltInApp {
        name: "gradio",
        title: "Gradio",
        program: "gradio",
        command: &["python3", "app.py"],
        environment: &[
            ("GRADIO_SERVER_NAME", "127.0.0.1"),
            ("GRADIO_SERVER_PORT", "{port}"),
            ("GRADIO_ANALYTICS_ENABLED", "False"),
        ],
        port: 7860,
        ..USUAL
    },
    BuiltInApp {
        name: "rstudio",
        title: "RStudio",
        program: "rserver",
        // By its own settings it writes where root alone may, and serves the user that its package made.
        command: &[
            "sh",
            "-c",
            "d=/tmp/.rstudio; mkdir -p -m 700 $d; export USER=$(id -un); \
             printf 'provider=sqlite\\ndirectory=%s\\n' $d >$d/db; \
             exec rserver --server-daemonize=0 --server-user=$USER --server-data-dir=$d \
             --server-pid-file=$d/pid --database-config-file=$d/db --secure-cookie-key-file=$d/key \
             --auth-none=1 --www-address=127.0.0.1 --www-port={port}",
        ],
        port: 8787,
        ..USUAL
    },
    BuiltInApp {
        name: "marimo",
        title: "marimo",
        command: &[
            "marimo",
            "edit",
            "--headless",
            "--no-token",
            "--host=127.0.0.1",
            "--port={port}",
        ],
        port: 2718,
        health: "/health",
        ..USUAL
    },
    BuiltInApp {
        name: "desktop",
        title: "Desktop (VNC)",
        program: "websockify",
        // Its VNC server listens at a socket of the session's own user and at no port; a second start finds the first one.
        command: &[
            "sh",
            "-c",
            "export DISPLAY=:1; \
             Xvnc :1 -SecurityTypes None -rfbport -1 -rfbunixpath /tmp/.desktop-vnc -geometry 1440x900 & \
             (sleep 1; exec $(command -v startxfce4 || command -v openbox-session || \
             command -v x-window-manager || command -v xterm)) & \
             exec websockify --web /usr/share/novnc --unix-target /tmp/.desktop-vnc 127.0.0.1:{port}",
        ],
        port: 6080,
        health: "/vnc.html",
        open: "/vnc.html?autoconnect=1&resize=remote&reconnect=1",
        ..USUAL
    },
];

/// The built-in list.
pub fn built_in() -> Vec<AppDefinition> {
    let made = BUILT_IN.iter().map(|app| AppDefinition {
        choice: AppChoice::Named(AppName(app.name.to_owned())),
        title: app.title.to_owned(),
        title_ko: String::new(),
        program: match app.program {
            "" => app.command.first().copied().unwrap_or_default().to_owned(),
            program => program.to_owned(),
        },
        command: app.command.iter().map(|word| (*word).to_owned()).collect(),
        before: Vec::new(),
        environment: app
            .environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        port: app.port,
        health: app.health.to_owned(),
        open: app.open.to_owned(),
        ready_seconds: app.ready_seconds,
    });
    made.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_named_or_a_port() {
        for (text, expected) in [
            ("jupyter", "jupyter"),
            ("r-2", "r-2"),
            ("8080", "8080"),
            ("", "app.name-invalid"),
            ("Jupyter", "app.name-invalid"),
            ("-a", "app.name-invalid"),
            ("a-", "app.name-invalid"),
            ("a/b", "app.name-invalid"),
            ("a.b", "app.name-invalid"),
            ("8a", "app.name-invalid"),
            ("0", "port.invalid"),
            ("65536", "port.invalid"),
            ("99999999999999999999", "port.invalid"),
            (
                "abcdefghijabcdefghijabcdefghijab",
                "abcdefghijabcdefghijabcdefghijab",
            ),
            ("abcdefghijabcdefghijabcdefghijabc", "app.name-invalid"),
        ] {
            let found = match AppChoice::parse(text) {
                Ok(choice) => choice.to_string(),
                Err(refusal) => refusal.code,
            };
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn the_built_in_list_keeps_to_what_an_image_may_say() {
        let all = built_in();
        assert!(all.len() <= MAX_IMAGE_APPS);
        for (place, app) in all.iter().enumerate() {
            let name = app.choice.to_string();
            assert_eq!(AppChoice::parse(&name), Ok(app.choice.clone()));
            assert!(!app.command.is_empty() && !app.program.is_empty(), "{name}");
            assert!(is_path(&app.health) && is_path(&app.open), "{name}");
            assert!((1..=MAX_READY_SECONDS).contains(&app.ready_seconds));
            let same =
                |other: &&AppDefinition| other.choice == app.choice || other.port == app.port;
            assert_eq!(all.iter().filter(same).count(), 1, "{name} is not alone");
            assert_eq!(all.iter().position(|other| other == app), Some(place));
            let words = app
                .command
                .iter()
                .chain(app.environment.iter().map(|(_, value)| value));
            let told = words.filter(|word| word.contains("{port}")).count();
            assert!(told == 1, "{name} is told its port once");
        }
    }

    #[test]
    fn a_desktop_listens_at_the_port_of_its_pages_alone() {
        let mut all = built_in().into_iter();
        let desktop = all.find(|app| app.choice.to_string() == "desktop");
        let desktop = desktop.expect("it is offered");
        let templates = AppTemplates {
            port: 6080,
            session: "work",
        };
        let script = templates.fill(&desktop.command[2]);
        assert_eq!(desktop.command[..2], ["sh", "-c"]);
        // As long as an image may say it, on one line.
        assert!(
            script.len() <= MAX_APP_TEXT && !script.contains("  "),
            "{script}"
        );
        assert!(script.contains("Xvnc :1 -SecurityTypes None -rfbport -1 -rfbunixpath "));
        assert!(script.ends_with(" 127.0.0.1:6080"), "{script}");
        let socket = |flag: &str| {
            let rest = script.split(flag).nth(1).expect("it is named");
            rest.split(' ').nth(1).expect("a path").to_owned()
        };
        assert_eq!(socket("-rfbunixpath"), socket("--unix-target"));
        assert!(desktop.open.starts_with(&desktop.health));
    }

    #[test]
    fn rstudio_writes_where_the_sessions_own_user_may() {
        let mut all = built_in().into_iter();
        let rstudio = all.find(|app| app.choice.to_string() == "rstudio");
        let rstudio = rstudio.expect("it is offered");
        assert_eq!(rstudio.command[..2], ["sh", "-c"]);
        let script = &rstudio.command[2];
        assert!(
            script.len() <= MAX_APP_TEXT && !script.contains("  "),
            "{script}"
        );
        assert!(script.contains(r"'provider=sqlite\ndirectory=%s\n'"));
        for flag in ["data-dir", "pid-file", "config-file", "key-file"] {
            assert!(script.contains(&format!("{flag}=$d")), "{flag}: {script}");
        }
        assert!(script.ends_with(" --www-address=127.0.0.1 --www-port={port}"));
    }

    fn source(name: &str) -> AppSource {
        AppSource {
            name: name.to_owned(),
            title: TitleSource::default(),
            program: String::new(),
            command: vec!["serve".to_owned(), "{port}".to_owned()],
            port: 8000,
            health: root(),
            open: root(),
            ready_seconds: 1,
        }
    }

    type Breaks = fn(&mut AppSource);

    #[test]
    fn what_no_image_may_say_of_its_apps_is_refused() {
        assert_eq!(
            apps_of_image(vec![source("a"), source("b")]).map(|all| all.len()),
            Ok(2)
        );
        let broken: [(&str, Breaks); 9] = [
            ("app.name-invalid", |app| app.name = "../a".to_owned()),
            ("app.description-invalid", |app| app.port = 0),
            ("app.description-invalid", |app| app.ready_seconds = 0),
            ("app.description-invalid", |app| app.ready_seconds = 601),
            ("app.description-invalid", |app| {
                app.open = "//evil/".to_owned()
            }),
            ("app.description-invalid", |app| app.health = "x".to_owned()),
            ("app.description-invalid", |app| {
                app.command = vec![String::new()]
            }),
            ("app.description-invalid", |app| {
                app.command = vec!["a\nb".to_owned()];
            }),
            ("app.description-invalid", |app| {
                app.command = vec!["a".to_owned(); MAX_APP_WORDS + 1];
            }),
        ];
        for (code, change) in broken {
            let mut app = source("a");
            change(&mut app);
            let refused = apps_of_image(vec![app]).map_err(|refusal| refusal.code);
            assert_eq!(refused, Err(code.to_owned()));
        }
        let twice = apps_of_image(vec![source("a"), source("a")]);
        assert_eq!(
            twice.map_err(|refusal| refusal.code),
            Err("app.description-invalid".into())
        );
        let names = (0..=MAX_IMAGE_APPS).map(|number| source(&format!("a{number}")));
        let many = apps_of_image(names.collect()).map_err(|refusal| refusal.code);
        assert_eq!(many, Err("app.descriptions-many".into()));
    }

    #[test]
    fn an_app_of_the_image_stands_for_the_built_in_one_of_its_name() {
        let own = apps_of_image(vec![source("jupyter")]).expect("good");
        let all = offered(own, |program| {
            program == "serve" || program == "tensorboard"
        });
        let names: Vec<String> = all.iter().map(|app| app.choice.to_string()).collect();
        assert_eq!(names, ["jupyter", "tensorboard"]);
        assert_eq!(all[0].command[0], "serve");
    }

    #[test]
    fn a_path_is_one_value_of_a_query() {
        assert_eq!(
            query_value("/lab/tree/a b&c=%"),
            "/lab/tree/a%20b%26c%3D%25"
        );
    }

    #[test]
    fn templates_are_filled_and_other_braces_stay() {
        let templates = AppTemplates {
            port: 8888,
            session: "work",
        };
        let filled = templates.fill("--port={port} {session} {\"a\": {b}}");
        assert_eq!(filled, "--port=8888 work {\"a\": {b}}");
    }
}
