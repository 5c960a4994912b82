//! `fardel console`: the screen of the machine itself, for users in front of it without a
//! browser. Anyone may look; every change asks for an administrator's password.
//! Every item is also a plain command (`fardel console network show`), for scripts and serial lines.
//! Speaks to the server as the command line does; never touches the catalog or a container.

mod machine;

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use base::settings::Settings;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use node::host_network::{self as network, AddressPlan, NetworkTools};
use node::program;
use ratatui::DefaultTerminal;
use rules::refusal::Refusal;
use rules::refusals;
use serde_json::{Value, json};

use crate::doors::cli::args::{ConsoleVerb, Format, Global, NetworkVerb, PowerVerb};
use crate::doors::cli::refused::refused_with;
use crate::doors::cli::{self, Surroundings};
use crate::doors::console::{self as door, ConsoleStatus, Field, KeyEffect, MENU};

/// How often the first screen looks again. Lower: more work for a screen that is rarely read.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long one proof of being an administrator is good.
const PROOF_LASTS: Duration = Duration::from_secs(300);
/// Lines of the log that are shown.
const LOG_LINES: &str = "500";

/// Does a verb, or opens the screen where there is none.
pub fn main(
    global: &Global,
    settings: &Settings,
    around: &Surroundings,
    verb: Option<ConsoleVerb>,
) -> ExitCode {
    let own = ConsoleRole { settings, around };
    let done = match verb {
        None => own.screen(),
        Some(verb) => own.plain(global, verb),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => refused_with(global, &refusal, 1),
    }
}

struct ConsoleRole<'a> {
    settings: &'a Settings,
    around: &'a Surroundings,
}

/// What the open screen remembers between keys.
struct Screen<'a> {
    own: &'a ConsoleRole<'a>,
    terminal: DefaultTerminal,
    /// When an administrator proved who they are.
    proven: Option<std::time::Instant>,
    /// A setup link that was drawn here.
    setup: Option<String>,
}

fn broken(error: &io::Error) -> Refusal {
    refusals::console_screen(error)
}

impl ConsoleRole<'_> {
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Refusal> {
        cli::ask_local(self.around, method, path, body, None)
    }

    fn with_network<T>(&self, act: impl FnOnce(&NetworkTools<'_>) -> T) -> T {
        act(&NetworkTools {
            root: Path::new("/"),
            run: &self.settings.run,
            command: &program::run,
        })
    }

    fn plain(&self, global: &Global, verb: ConsoleVerb) -> Result<(), Refusal> {
        let as_json = matches!(global.output, Format::Json | Format::Jsonl);
        let lines = match verb {
            ConsoleVerb::Show => {
                let seen = machine::seen(self, None);
                if as_json {
                    vec![machine::as_json(&seen).to_string()]
                } else {
                    machine::as_lines(&seen)
                }
            }
            ConsoleVerb::Network(NetworkVerb::Show) => {
                let found = network::interfaces(Path::new("/"));
                if as_json {
                    vec![json!({"items": found}).to_string()]
                } else {
                    machine::network_lines(&found)
                }
            }
            ConsoleVerb::Network(NetworkVerb::Set {
                interface,
                address,
                gateway,
                dns,
                dhcp,
            }) => {
                let plan = match (dhcp, address) {
                    (true, _) => AddressPlan::Dhcp,
                    (false, Some(address)) => AddressPlan::Static {
                        address,
                        gateway,
                        dns,
                    },
                    (false, None) => {
                        return Err(refusals::network_nothing_said());
                    }
                };
                self.with_network(|place| network::set(place, &interface, &plan))?;
                vec![
                    format!(
                        "{interface} is changed, for {} seconds.",
                        network::CONFIRM_TIMEOUT_SECONDS
                    ),
                    "fardel console network keep makes it stay; without that it is taken back."
                        .to_owned(),
                ]
            }
            ConsoleVerb::Network(NetworkVerb::Keep) => {
                self.with_network(network::keep)?;
                vec!["The change stays.".to_owned()]
            }
            ConsoleVerb::Network(NetworkVerb::Revert) => {
                self.with_network(network::revert)?;
                vec!["The change is taken back.".to_owned()]
            }
            ConsoleVerb::Services => machine::services(),
            ConsoleVerb::Restart => {
                machine::restart()?;
                vec!["The server starts again; sessions go on.".to_owned()]
            }
            ConsoleVerb::Logs => machine::logs(LOG_LINES)?,
            ConsoleVerb::Power { what } => {
                machine::power(what == PowerVerb::Reboot)?;
                vec!["The machine goes down now.".to_owned()]
            }
        };
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let _ = io::stdout().lock().write_all(text.as_bytes());
        Ok(())
    }

    fn screen(&self) -> Result<(), Refusal> {
        let terminal = ratatui::try_init().map_err(|error| broken(&error))?;
        let mut screen = Screen {
            own: self,
            terminal,
            proven: None,
            setup: None,
        };
        let done = screen.home();
        ratatui::restore();
        done
    }
}

impl Screen<'_> {
    fn home(&mut self) -> Result<(), Refusal> {
        loop {
            let seen = machine::seen(self.own, self.setup.clone());
            self.terminal
                .draw(|frame| door::home(frame, &seen))
                .map_err(|error| broken(&error))?;
            let Some(key) = self.key(POLL_INTERVAL)? else {
                continue;
            };
            let told = match key.code {
                KeyCode::F(1) | KeyCode::Char('?') => self.read("Help", &help()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    return Ok(());
                }
                // On the machine's own screen nothing lies behind this one; over a line one may leave.
                KeyCode::Char('q') if !on_the_screen() => return Ok(()),
                KeyCode::Char('1') => self.network(),
                KeyCode::Char('2') => self.passwords(),
                KeyCode::Char('3') => self.services(&seen),
                KeyCode::Char('4') => {
                    machine::logs(LOG_LINES).and_then(|lines| self.read_end("Logs", &lines))
                }
                KeyCode::Char('5') => self.bundle(),
                KeyCode::Char('6') => self.power(),
                KeyCode::Char('7') => self.shell(),
                KeyCode::Char('8') => self.draw_setup(),
                _ => Ok(()),
            };
            if let Err(refusal) = told {
                let mut lines = vec![refusal.text.clone(), String::new()];
                lines.extend(refusal.hint.lines().map(str::to_owned));
                lines.extend([String::new(), format!("({})", refusal.code)]);
                self.read("That did not work", &lines)?;
            }
        }
    }

    fn key(&self, patience: Duration) -> Result<Option<event::KeyEvent>, Refusal> {
        if !event::poll(patience).map_err(|error| broken(&error))? {
            return Ok(None);
        }
        match event::read().map_err(|error| broken(&error))? {
            Event::Key(key) if key.kind == KeyEventKind::Press => Ok(Some(key)),
            _ => Ok(None),
        }
    }

    fn read(&mut self, title: &str, lines: &[String]) -> Result<(), Refusal> {
        self.read_from(title, lines, 0)
    }

    /// A log is read from its end.
    fn read_end(&mut self, title: &str, lines: &[String]) -> Result<(), Refusal> {
        let height = usize::from(self.terminal.size().map_or(24, |size| size.height));
        self.read_from(
            title,
            lines,
            lines.len().saturating_sub(height.saturating_sub(4)),
        )
    }

    fn read_from(&mut self, title: &str, lines: &[String], mut top: usize) -> Result<(), Refusal> {
        loop {
            self.terminal
                .draw(|frame| door::text(frame, title, lines, top))
                .map_err(|error| broken(&error))?;
            let Some(key) = self.key(Duration::from_secs(60))? else {
                continue;
            };
            let last = lines.len().saturating_sub(1);
            match key.code {
                KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => return Ok(()),
                KeyCode::Down | KeyCode::Char('j') => top = (top + 1).min(last),
                KeyCode::Up | KeyCode::Char('k') => top = top.saturating_sub(1),
                KeyCode::PageDown | KeyCode::Char(' ') => top = (top + 15).min(last),
                KeyCode::PageUp => top = top.saturating_sub(15),
                KeyCode::Home => top = 0,
                KeyCode::End => top = last,
                _ => {}
            }
        }
    }

    fn choose(
        &mut self,
        title: &str,
        note: &[String],
        items: &[String],
    ) -> Result<Option<usize>, Refusal> {
        let mut at = 0;
        loop {
            self.terminal
                .draw(|frame| door::choose(frame, title, note, items, at))
                .map_err(|error| broken(&error))?;
            if let Some(key) = self.key(Duration::from_secs(60))? {
                match door::step_in_list(key, &mut at, items.len()) {
                    KeyEffect::Stay => {}
                    KeyEffect::Chosen(index) => return Ok(Some(index)),
                    KeyEffect::Back => return Ok(None),
                }
            }
        }
    }

    fn ask(
        &mut self,
        title: &str,
        note: &[String],
        mut fields: Vec<Field>,
    ) -> Result<Option<Vec<String>>, Refusal> {
        let mut at = 0;
        loop {
            self.terminal
                .draw(|frame| door::ask(frame, title, note, &fields, at))
                .map_err(|error| broken(&error))?;
            if let Some(key) = self.key(Duration::from_secs(60))? {
                match door::step_in_fields(key, &mut at, &mut fields) {
                    KeyEffect::Stay => {}
                    KeyEffect::Chosen(_) => {
                        return Ok(Some(fields.into_iter().map(|field| field.value).collect()));
                    }
                    KeyEffect::Back => return Ok(None),
                }
            }
        }
    }

    /// Whether an administrator has confirmed: once in five minutes. While the box is not set up,
    /// the user in front of it may.
    fn may(&mut self) -> Result<bool, Refusal> {
        if self.proven.is_some_and(|at| at.elapsed() < PROOF_LASTS) || machine::setup_open(self.own)
        {
            return Ok(true);
        }
        let note = ["Changing something here takes an administrator of this box.".to_owned()];
        let fields = vec![Field::new("Name", ""), Field::secret("Password")];
        let Some(said) = self.ask("Who are you?", &note, fields)? else {
            return Ok(false);
        };
        let (name, password) = (said[0].trim(), said[1].as_str());
        machine::prove(self.own, name, password)?;
        self.proven = Some(std::time::Instant::now());
        Ok(true)
    }

    fn network(&mut self) -> Result<(), Refusal> {
        let found = network::interfaces(Path::new("/"));
        let lines = machine::network_lines(&found);
        if self.own.with_network(network::waits) {
            return self.keep_or_revert();
        }
        let items: Vec<String> = found
            .iter()
            .map(|card| format!("change {}", card.name))
            .collect();
        let Some(index) = self.choose("Network", &lines, &items)? else {
            return Ok(());
        };
        self.own.with_network(network::manager)?;
        if !self.may()? {
            return Ok(());
        }
        let card = &found[index].name;
        let ways = ["automatic (DHCP)".to_owned(), "a fixed address".to_owned()];
        let plan = match self.choose(&format!("How does {card} get its address?"), &[], &ways)? {
            None => return Ok(()),
            Some(0) => AddressPlan::Dhcp,
            Some(_) => {
                let now = found[index].addresses.first().cloned().unwrap_or_default();
                let fields = vec![
                    Field::new("Address/length", &now),
                    Field::new("Gateway", ""),
                    Field::new("Name servers", ""),
                ];
                let Some(said) = self.ask(&format!("The address of {card}"), &[], fields)? else {
                    return Ok(());
                };
                AddressPlan::Static {
                    address: said[0].trim().to_owned(),
                    gateway: Some(said[1].trim().to_owned()).filter(|text| !text.is_empty()),
                    dns: said[2]
                        .split([',', ' '])
                        .filter(|text| !text.is_empty())
                        .map(str::to_owned)
                        .collect(),
                }
            }
        };
        self.own
            .with_network(|place| network::set(place, card, &plan))?;
        self.keep_or_revert()
    }

    fn keep_or_revert(&mut self) -> Result<(), Refusal> {
        let note = [
            format!(
                "The change is taken back by itself after {} seconds.",
                network::CONFIRM_TIMEOUT_SECONDS
            ),
            "Look whether the box answers at its new address, then keep it.".to_owned(),
        ];
        let items = ["keep it".to_owned(), "take it back now".to_owned()];
        match self.choose("Does it work?", &note, &items)? {
            Some(0) => self.own.with_network(network::keep),
            Some(_) => self.own.with_network(network::revert),
            None => Ok(()),
        }
    }

    fn passwords(&mut self) -> Result<(), Refusal> {
        let users = self.own.call("GET", "/api/v1/users", None)?;
        let names: Vec<String> = users["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|user| user["role"] == "administrator")
            .filter_map(|user| Some(user["name"].as_str()?.to_owned()))
            .collect();
        if names.is_empty() {
            return Err(refusals::setup_open());
        }
        // A user who forgot the password cannot sign in; one who holds the machine's own
        // root account can do it by command, and this screen says so.
        let note = ["Forgot every password? As root: fardel user passwd NAME".to_owned()];
        let Some(index) = self.choose("Whose password?", &note, &names)? else {
            return Ok(());
        };
        if !self.may()? {
            return Ok(());
        }
        let fields = vec![Field::secret("New password"), Field::secret("Once more")];
        let Some(said) = self.ask(&format!("A new password for {}", names[index]), &[], fields)?
        else {
            return Ok(());
        };
        if said[0] != said[1] {
            return Err(refusals::password_differs());
        }
        let path = format!("/api/v1/users/{}/password", names[index]);
        self.own
            .call("POST", &path, Some(&json!({"password": said[0]})))?;
        self.read(
            "Done",
            &[format!(
                "{} signs in with the new password from now on.",
                names[index]
            )],
        )
    }

    fn services(&mut self, seen: &ConsoleStatus) -> Result<(), Refusal> {
        let mut note = machine::services();
        note.extend(seen.silent.iter().cloned());
        let items = ["start the server again (sessions go on)".to_owned()];
        if self.choose("Services", &note, &items)?.is_none()
            || (seen.silent.is_none() && !self.may()?)
        {
            return Ok(());
        }
        machine::restart()?;
        self.read(
            "Done",
            &["The server starts again; sessions go on.".to_owned()],
        )
    }

    fn bundle(&mut self) -> Result<(), Refusal> {
        if !self.may()? {
            return Ok(());
        }
        let wanted = machine::bundle_place(&self.own.settings.data);
        let Some(said) = self.ask(
            "Support bundle",
            &machine::bundle_note(),
            vec![Field::new("File", &wanted)],
        )?
        else {
            return Ok(());
        };
        let lines = machine::bundle(said[0].trim())?;
        self.read("Support bundle", &lines)
    }

    fn power(&mut self) -> Result<(), Refusal> {
        let seen = self.own.call("GET", "/api/v1/overview", None);
        let running = seen
            .as_ref()
            .ok()
            .and_then(|seen| seen["counts"]["running"].as_u64());
        let note = [match running {
            Some(0) => "No session runs.".to_owned(),
            Some(1) => "One session runs and will end.".to_owned(),
            Some(n) => format!("{n} sessions run and will end."),
            None => "The server does not answer; what runs is unknown.".to_owned(),
        }];
        let items = ["start again".to_owned(), "switch off".to_owned()];
        let Some(index) = self.choose("Power", &note, &items)? else {
            return Ok(());
        };
        if !self.may()? {
            return Ok(());
        }
        machine::power(index == 0)?;
        self.read("Power", &["The machine goes down now.".to_owned()])
    }

    fn shell(&mut self) -> Result<(), Refusal> {
        if !self.may()? {
            return Ok(());
        }
        ratatui::restore();
        let shell = (self.own.around.variable)("SHELL").filter(|shell| !shell.is_empty());
        let ended = Command::new(shell.as_deref().unwrap_or("/bin/sh"))
            .arg("-l")
            .status();
        self.terminal = ratatui::try_init().map_err(|error| broken(&error))?;
        match ended {
            Ok(_) => Ok(()),
            Err(error) => Err(refusals::console_no_shell(&error)),
        }
    }

    fn draw_setup(&mut self) -> Result<(), Refusal> {
        let answer = self
            .own
            .call("POST", "/api/v1/setup/link", Some(&json!({})))?;
        let links: Vec<String> = answer["links"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|link| Some(link.as_str()?.to_owned()))
            .collect();
        if answer["open"] != true {
            self.setup = None;
            return self.read(
                "Setup",
                &[
                    "This box is set up. Sign in at:".to_owned(),
                    links.join("  "),
                ],
            );
        }
        self.setup = links.first().cloned();
        let mut lines = vec![
            "Open one of these in a browser, within the hour. It makes the first administrator, once;".to_owned(),
            "the code drawn before is void.".to_owned(),
            String::new(),
        ];
        lines.extend(links);
        self.read("Setup code", &lines)
    }
}

/// Whether this is the screen of the machine and not a remote line.
fn on_the_screen() -> bool {
    std::fs::read_link("/proc/self/fd/0").is_ok_and(|path| path == Path::new("/dev/tty1"))
}

fn help() -> Vec<String> {
    let mut lines: Vec<String> = [
        "This is the screen of the machine itself. Work happens in a browser, at the address on the",
        "first screen; here is what a user in front of the machine needs.",
        "",
    ]
    .map(str::to_owned)
    .to_vec();
    lines.extend(MENU.iter().map(|(key, name)| format!("{key}  {name}")));
    lines.extend(
        [
            "",
            "Anyone may look. Every change asks for an administrator's password.",
            "Every item is a command too: fardel console --help.",
        ]
        .map(str::to_owned),
    );
    lines
}
