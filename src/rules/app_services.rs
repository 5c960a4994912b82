//! Services as images made for Backend.AI describe them. A label lists them, `jupyterlab:http:8090,vscode:http:8180`; a file of
//! each, `/etc/backend.ai/service-defs/NAME.json`, says how it starts. Where it is a program that we know, our description
//! starts it. Runs nothing; what is described here runs inside the container alone, as the session's user.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::app::{AppChoice, AppDefinition, AppName, MAX_APP_WORDS, MAX_IMAGE_APPS, built_in};

/// The label of such an image.
pub const SERVICES_LABEL: &str = "ai.backend.service-ports";
/// The label that says where its language is: `/usr/bin/python`.
pub const RUNTIME_LABEL: &str = "ai.backend.runtime-path";
/// Steps before the program of a service. Higher: opening an app runs a stranger's script of any length. Lower: a service
/// with several files of settings does not start.
pub const MAX_SERVICE_STEPS: usize = 16;
/// Bytes of all its words, variables and files together, with their templates filled. Higher: templates that name each other
/// fill memory. Lower: a service with a long file of settings does not start.
pub const MAX_SERVICE_TEXT: usize = 64 << 10;
/// Bytes of the program of a service. Higher: no path is longer.
const MAX_SERVICE_PROGRAM: usize = 4095;

/// Services by another name than the program has here, so that an app is called the same in all images.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("jupyterlab", "jupyter"),
    ("jupyter", "notebook"),
    ("vscode", "code"),
    ("mlflow-ui", "mlflow"),
];

/// The file of one service. What else stands in it says nothing to us.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceSource {
    command: Vec<String>,
    env: BTreeMap<String, String>,
    prestart: Vec<ServiceStep>,
}

/// What is done before the program starts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ServiceStep {
    #[serde(flatten)]
    act: StepAct,
    /// What later texts call the file that it wrote.
    #[serde(default, rename = "ref")]
    reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "action", content = "args", rename_all = "snake_case")]
enum StepAct {
    WriteFile {
        filename: String,
        body: Vec<String>,
        #[serde(default)]
        append: bool,
    },
    WriteTempfile {
        body: Vec<String>,
    },
    Mkdir {
        path: String,
    },
    RunCommand {
        command: Vec<String>,
    },
    Log {},
}

/// What an image says of its services beside the label that lists them.
#[derive(Debug, Clone, Default)]
pub struct ServiceFiles {
    /// By the name of each, as `service_name` gives it.
    pub sources: BTreeMap<String, ServiceSource>,
    /// What `{runtime_path}` stands for; empty: nothing.
    pub runtime_path: String,
}

/// The name of a service as labels and files write it, in letters of an app's name.
pub fn service_name(theirs: &str) -> String {
    theirs.to_ascii_lowercase().replace('_', "-")
}

/// The apps that such a label lists. What is no web page, or cannot be read, is left out: the label is not ours. One whose
/// file cannot be read or has a template that we do not know is a port that its user serves.
pub fn apps_of_services(label: &str, files: &ServiceFiles) -> Vec<AppDefinition> {
    let known = built_in();
    let mut all: Vec<AppDefinition> = Vec::new();
    for (name, port) in services(label).take(MAX_IMAGE_APPS) {
        let other = OTHER_NAMES.iter().find(|(theirs, _)| *theirs == name);
        let ours = other.map_or(name.as_str(), |(_, ours)| *ours);
        let Ok(ours) = AppName::parse(ours) else {
            continue;
        };
        let choice = AppChoice::Named(ours);
        let app = match known.iter().find(|known| known.choice == choice) {
            Some(known) => AppDefinition {
                port,
                ..known.clone()
            },
            None => {
                let plain = AppDefinition {
                    choice,
                    ..AppDefinition::of_port(port)
                };
                let source = files.sources.get(&name);
                let started = source.and_then(|source| source.start(&plain, &files.runtime_path));
                started.unwrap_or(plain)
            }
        };
        if all.iter().all(|before| before.choice != app.choice) {
            all.push(app);
        }
    }
    all
}

impl ServiceSource {
    /// The app with what starts it; None where there is no command, or one that cannot be carried. Costs what it writes, at most
    /// `MAX_SERVICE_TEXT` bytes.
    fn start(&self, app: &AppDefinition, runtime_path: &str) -> Option<AppDefinition> {
        let mut templates = ServiceTemplates {
            values: BTreeMap::from([("ports[0]".to_owned(), "{port}".to_owned())]),
            left: MAX_SERVICE_TEXT,
        };
        if !runtime_path.is_empty() {
            let path = runtime_path.to_owned();
            templates.values.insert("runtime_path".to_owned(), path);
        }
        if self.prestart.len() > MAX_SERVICE_STEPS {
            return None;
        }
        let mut before = Vec::new();
        for (number, step) in self.prestart.iter().enumerate() {
            let (command, file) = step.act.command(&mut templates, &app.choice, number)?;
            before.extend(command);
            if let (Some(reference), Some(file)) = (&step.reference, file) {
                templates.values.insert(reference.clone(), file);
            }
        }
        let command = templates.words(&self.command)?;
        if self.env.len() > MAX_APP_WORDS {
            return None;
        }
        let mut environment = Vec::new();
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return None;
            }
            environment.push((name.clone(), templates.fill(value)?));
        }
        Some(AppDefinition {
            program: command.first().cloned()?,
            command,
            before,
            environment,
            ..app.clone()
        })
    }
}

impl StepAct {
    /// The command that does it inside, and the file that it writes; None for what cannot be carried.
    fn command(
        &self,
        templates: &mut ServiceTemplates,
        app: &AppChoice,
        number: usize,
    ) -> Option<(Option<Vec<String>>, Option<String>)> {
        Some(match self {
            Self::WriteFile {
                filename,
                body,
                append,
            } => {
                let file = templates.fill(filename)?;
                let text = templates.lines(body)?;
                (Some(writing(&file, &text, *append)), Some(file))
            }
            Self::WriteTempfile { body } => {
                let file = format!("/tmp/fardel-app-{app}-{number}");
                let text = templates.lines(body)?;
                (Some(writing(&file, &text, false)), Some(file))
            }
            Self::Mkdir { path } => {
                let path = templates.fill(path)?;
                let command = ["mkdir", "-p", "--", &path].map(str::to_owned);
                (Some(command.to_vec()), None)
            }
            Self::RunCommand { command } => (Some(templates.words(command)?), None),
            Self::Log {} => (None, None),
        })
    }
}

/// The command that writes a text into a file that its user alone may read.
fn writing(file: &str, text: &str, append: bool) -> Vec<String> {
    let sign = if append { ">>" } else { ">" };
    let script = format!("umask 077; printf %s \"$2\" {sign} \"$1\"");
    ["sh", "-c", &script, "sh", file, text]
        .map(str::to_owned)
        .to_vec()
}

/// What names in templates stand for, and how many bytes of filled texts a service may still have: a text that names another
/// one many times would else grow with each step.
struct ServiceTemplates {
    values: BTreeMap<String, String>,
    left: usize,
}

impl ServiceTemplates {
    /// The words of a command; None for none, too many, or a first one that names no program.
    fn words(&mut self, texts: &[String]) -> Option<Vec<String>> {
        if texts.is_empty() || texts.len() > MAX_APP_WORDS {
            return None;
        }
        let words: Vec<String> = texts
            .iter()
            .map(|text| self.fill(text))
            .collect::<Option<_>>()?;
        (1..=MAX_SERVICE_PROGRAM)
            .contains(&words[0].len())
            .then_some(words)
    }

    fn lines(&mut self, body: &[String]) -> Option<String> {
        let mut text = String::new();
        for line in body {
            text.push_str(&self.fill(line)?);
            self.left = self.left.checked_sub(1)?;
            text.push('\n');
        }
        Some(text)
    }

    /// A text with its templates filled as `str.format` of Python does it, two braces being one; None for a name that has no
    /// value, for a zero byte, and where no room is left.
    fn fill(&mut self, text: &str) -> Option<String> {
        let mut all = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            self.put(&mut all, &rest[..at])?;
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix(brace) {
                self.put(&mut all, brace)?;
                rest = behind;
                continue;
            }
            let (name, behind) = rest.split_once('}').filter(|_| brace == "{")?;
            let value = self.values.get(name)?.clone();
            self.put(&mut all, &value)?;
            rest = behind;
        }
        self.put(&mut all, rest)?;
        Some(all)
    }

    fn put(&mut self, all: &mut String, part: &str) -> Option<()> {
        self.left = self.left.checked_sub(part.len())?;
        if part.contains('\0') {
            return None;
        }
        all.push_str(part);
        Some(())
    }
}

/// Names and ports; of a service with several ports, in brackets, the first.
fn services(label: &str) -> impl Iterator<Item = (String, u16)> {
    label.split(',').filter_map(|entry| {
        let mut parts = entry.trim().splitn(3, ':');
        let (name, protocol, port) = (parts.next()?, parts.next()?, parts.next()?);
        let port = port.trim_start_matches('[').trim_end_matches(']');
        let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
        let is_page = matches!(protocol, "http" | "preopen");
        is_page.then(|| (service_name(name), port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_other_images_are_apps_by_our_names() {
        let label = "jupyter:http:8070, jupyterlab:http:8090,vscode:http:8180,ttyd:http:7681,\
             Tensor_Board:preopen:[6060,6061],sshd:tcp:2200,term:pty:1,jupyter:http:1";
        let apps = apps_of_services(label, &ServiceFiles::default());
        let named: Vec<_> = apps
            .iter()
            .map(|app| (app.choice.to_string(), app.port, app.program.as_str()))
            .collect();
        let expected = [
            ("notebook", 8070, "jupyter-notebook"),
            ("jupyter", 8090, "jupyter-lab"),
            ("code", 8180, "code-server"),
            ("ttyd", 7681, ""),
            ("tensor-board", 6060, ""),
        ];
        assert_eq!(
            named,
            expected.map(|(name, port, program)| (name.to_owned(), port, program))
        );
        let unreadable = [
            "",
            ":",
            "a:http",
            "a:http:0",
            "a:http:99999",
            "../a:http:1",
            "a b:http:1",
        ];
        for label in unreadable {
            let apps = apps_of_services(label, &ServiceFiles::default());
            assert!(apps.is_empty(), "{label:?}");
        }
        let many: Vec<String> = (1..=99)
            .map(|port| format!("a{port}:http:{port}"))
            .collect();
        let many = apps_of_services(&many.join(","), &ServiceFiles::default());
        assert_eq!(many.len(), MAX_IMAGE_APPS);
    }

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(|word| (*word).to_owned()).collect()
    }

    fn step(act: StepAct, reference: Option<&str>) -> ServiceStep {
        ServiceStep {
            act,
            reference: reference.map(str::to_owned),
        }
    }

    fn of(source: ServiceSource) -> AppDefinition {
        let files = ServiceFiles {
            sources: BTreeMap::from([("board".to_owned(), source)]),
            runtime_path: "/usr/bin/python".to_owned(),
        };
        let mut apps = apps_of_services("board:http:7000", &files);
        apps.pop().expect("an app")
    }

    #[test]
    fn a_file_of_a_service_says_how_it_starts() {
        let body = words(&["port = {ports[0]}", "set = {{}}"]);
        let app = of(ServiceSource {
            prestart: vec![
                step(StepAct::WriteTempfile { body }, Some("settings")),
                step(
                    StepAct::Mkdir {
                        path: "/tmp/board".to_owned(),
                    },
                    None,
                ),
                step(StepAct::Log {}, None),
            ],
            command: words(&["{runtime_path}", "-m", "board", "--config={settings}"]),
            env: BTreeMap::from([("BOARD_PORT".to_owned(), "{ports[0]}".to_owned())]),
        });
        assert_eq!(app.program, "/usr/bin/python");
        assert_eq!(app.command[3], "--config=/tmp/fardel-app-board-0");
        let env = ("BOARD_PORT".to_owned(), "{port}".to_owned());
        assert_eq!(app.environment, [env]);
        assert_eq!(app.before.len(), 2);
        assert_eq!(app.before[0][4], "/tmp/fardel-app-board-0");
        assert_eq!(app.before[0][5], "port = {port}\nset = {}\n");
        assert_eq!(app.before[1], ["mkdir", "-p", "--", "/tmp/board"]);
    }

    #[test]
    fn what_cannot_be_carried_is_a_port() {
        let run = |command: &[&str]| ServiceSource {
            command: words(command),
            ..ServiceSource::default()
        };
        let log = || step(StepAct::Log {}, None);
        for source in [
            run(&[]),
            run(&[""]),
            run(&["board", "{unknown}"]),
            run(&["board", "{"]),
            run(&["board", "}"]),
            run(&["board", "{ports[1]}"]),
            run(&["bo\0ard"]),
            run(&["board"; MAX_APP_WORDS + 1]),
            run(&["board", "x".repeat(MAX_SERVICE_TEXT).as_str()]),
            run(&["x".repeat(MAX_SERVICE_PROGRAM + 1).as_str()]),
            // Each names the one before many times.
            ServiceSource {
                prestart: ["x", "{x}", "{y}", "{z}"]
                    .into_iter()
                    .zip(["x", "y", "z", "end"])
                    .map(|(text, name)| {
                        let filename = text.repeat(10_000);
                        let written = StepAct::WriteFile {
                            filename,
                            body: Vec::new(),
                            append: false,
                        };
                        step(written, Some(name))
                    })
                    .collect(),
                ..run(&["board"])
            },
            ServiceSource {
                prestart: vec![step(
                    StepAct::RunCommand {
                        command: Vec::new(),
                    },
                    None,
                )],
                ..run(&["board"])
            },
            ServiceSource {
                env: BTreeMap::from([("A=B".to_owned(), String::new())]),
                ..run(&["board"])
            },
            ServiceSource {
                prestart: (0..=MAX_SERVICE_STEPS).map(|_| log()).collect(),
                ..run(&["board"])
            },
        ] {
            let app = of(source);
            assert_eq!((app.port, app.command.len()), (7000, 0));
        }
        assert_eq!(of(run(&["board"])).command, ["board"]);
    }
}
