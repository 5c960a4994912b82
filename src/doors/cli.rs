//! The command line: an HTTP client like any other, with the words of users. Reads arguments, calls
//! the API, prints the answer, returns an exit code. Never touches the catalog or a container.

mod address;
mod allowances;
mod announcements;
mod answer;
mod approvals;
mod apps;
pub mod args;
mod audit;
mod audit_verify;
mod branding;
mod break_glass;
mod budgets;
mod certificates;
mod client;
mod code;
mod columns;
mod courses;
pub(crate) mod environments;
mod error;
mod events;
mod explain;
mod fair_share;
mod folder_browsing;
mod folder_files;
mod folders;
mod format;
mod gpus;
mod history;
mod holidays;
mod idle_rules;
mod images;
mod invitations;
mod korean;
mod launch;
pub mod login;
mod mail;
mod manual;
mod nodes;
mod notices;
mod output;
mod policies;
mod presets;
mod queue_wait;
pub(crate) mod refused;
mod rehearsal;
mod reservations;
mod resource_groups;
mod rosters;
mod second_factor;
mod sessions;
mod settings;
mod sign_ups;
mod snapshots;
mod ssh;
mod start_up;
mod statement_verify;
mod statements;
mod storage;
mod system;
mod tenancy;
mod terminal;
mod usage;
mod users;
mod values;
mod volumes;
mod webhooks;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches};
use rules::refusal::Refusal;
use rules::refusal::RefusalKind;
use rules::refusals;
use rules::units::Timestamp;

use args::{Command, CommandLine, Format};
use error::{CliError, FAILED};
use output::OutputStyle;

/// What `fardel why` prints of an explanation without devices.
#[cfg(test)]
pub(super) fn why_text(said: &rules::placement::Explanation) -> String {
    explain::text(said, &[])
}

/// What a command may know of the process it runs in; roles read it, doors only use it.
#[derive(Clone)]
pub struct Surroundings {
    /// The environment.
    pub variable: fn(&str) -> Option<String>,
    /// The socket of this machine's server, after file, variables and flags.
    pub socket: PathBuf,
}

/// Reads the arguments, program name first.
///
/// Errors: help, version or a mistake, already worded by clap; its own exit code is right (0 or 2).
pub fn parse(
    arguments: Vec<std::ffi::OsString>,
    variable: fn(&str) -> Option<String>,
) -> Result<CommandLine, clap::Error> {
    let matches = description(variable).try_get_matches_from(arguments)?;
    CommandLine::from_arg_matches(&matches)
}

/// The whole command line as clap describes it, in the caller's language.
pub fn description(variable: fn(&str) -> Option<String>) -> clap::Command {
    let command = CommandLine::command();
    if language(variable) == "ko" {
        korean::summaries(command)
    } else {
        command
    }
}

/// Does one command of the client and gives its exit code. Everything about trouble has been said.
pub fn run(words: CommandLine, around: &Surroundings) -> u8 {
    let view = view(&words.global);
    let color = std::io::stderr().is_terminal() && wants_color(&words.global, around);
    let as_json = matches!(words.global.output, Format::Json | Format::Jsonl);
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!(
                "error: the async runtime cannot be started: {error}\n"
            ));
            return FAILED;
        }
    };
    let done = runtime.block_on(execute(words, around, &view));
    // A read of the keyboard may still be waiting; it must not hold the process.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(trouble) => {
            complain(&trouble.written(as_json, color));
            trouble.exit
        }
    }
}

/// One call of this machine's own server for the text console, as root or with a token; the answer's
/// JSON, null where it has none.
///
/// Errors: the server's refusal with its code and hint; `server.not-reachable` and its like where none
/// answers.
pub fn ask_local(
    around: &Surroundings,
    method: &str,
    path: &str,
    body: Option<&serde_json::Value>,
    token: Option<&str>,
) -> Result<serde_json::Value, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| refusals::console_no_loop(&error))?;
    let client = client::HttpClient {
        address: address::ServerAddress::Socket(around.socket.clone()),
        token: token.map(str::to_owned),
        tls: None,
        explain: false,
        language: language(around.variable).to_owned(),
    };
    let method = hyper::Method::from_bytes(method.as_bytes()).unwrap_or(hyper::Method::GET);
    let extra = match body {
        Some(body) => client::Extra::json(body).header("Idempotency-Key", client::fresh_key()),
        None => client::Extra::default(),
    };
    runtime
        .block_on(async { client.call(method, path, extra).await?.json() })
        .map_err(|trouble| {
            Refusal::from_parts(
                RefusalKind::Unavailable,
                trouble.code,
                trouble.text,
                trouble.hint,
            )
        })
}

async fn execute(
    words: CommandLine,
    around: &Surroundings,
    view: &OutputStyle,
) -> Result<u8, CliError> {
    let CommandLine { global, command } = words;
    match command {
        Command::Completion { shell } => return manual::completion(shell).map(|()| 0),
        Command::Man(man) => return manual::page(&man, description(around.variable)).map(|()| 0),
        Command::Login(request) => {
            return login::login(&request, &global, around, view)
                .await
                .map(|()| 0);
        }
        Command::Audit(args::AuditCommand::Verify { file, key }) => {
            return audit::verify(view, &file, &key);
        }
        Command::Statement(args::StatementArguments {
            verb: Some(args::StatementCommand::Verify { file, key }),
            ..
        }) => {
            return statements::verify(view, &file, &key);
        }
        Command::Logout => return login::logout(&global, around, view).await.map(|()| 0),
        _ => {}
    }
    let client = login::client(&global, around)?;
    match command {
        Command::Run(request) => launch::run(&client, view, around, request).await,
        Command::Ps(request) => sessions::list(&client, view, &request).await,
        Command::Session(request) => sessions::session(&client, view, around, request).await,
        Command::Exec(request) => terminal::exec(&client, view, around, request).await,
        Command::Code(request) => code::code(&client, view, request).await,
        Command::Logs(request) => terminal::logs(&client, &request).await,
        Command::Attach(request) => terminal::attach(&client, view, &request).await,
        Command::Stop(several) => {
            sessions::session(&client, view, around, args::SessionCommand::Stop(several)).await
        }
        Command::Kill(several) => {
            sessions::session(&client, view, around, args::SessionCommand::Kill(several)).await
        }
        Command::Keep(several) => idle_rules::keep(&client, view, &several.sessions).await,
        Command::Rm(removal) => {
            sessions::session(&client, view, around, args::SessionCommand::Rm(removal)).await
        }
        Command::Why(request) => sessions::why(&client, view, &request.session).await,
        Command::Queue(args::QueueLs {
            verb: None | Some(args::QueueCommand::Ls),
        }) => sessions::queue(&client, view).await,
        Command::Image(request) => images::image(&client, view, request).await,
        Command::Environment(request) => environments::environment(&client, view, request).await,
        Command::Job(request) => images::job(&client, view, request).await,
        Command::User(request) => users::user(&client, view, request).await,
        Command::Policy(request) => policies::policy(&client, view, request).await,
        Command::Allowance(request) => allowances::allowance(&client, view, request).await,
        Command::Budget(request) => budgets::budget(&client, view, request).await,
        Command::Course(request) => courses::course(&client, view, request).await,
        Command::App(request) => apps::app(&client, view, request).await,
        Command::Folder(request) => folders::folder(&client, view, request).await,
        Command::Snapshot(request) => snapshots::snapshot(&client, view, request).await,
        Command::Preset(request) => presets::preset(&client, view, request).await,
        Command::Group(request) => resource_groups::group(&client, view, request).await,
        Command::Reservation(request) => reservations::reservation(&client, view, request).await,
        Command::Volume(request) => volumes::volume(&client, view, request).await,
        Command::Storage(request) => storage::storage(&client, view, request).await,
        Command::Announcement(request) => announcements::announcement(&client, view, request).await,
        Command::IdleRule(request) => idle_rules::idle_rule(&client, view, request).await,
        Command::FairShare(request) => fair_share::fair_share(&client, view, request).await,
        Command::Limits { user, project } => {
            policies::limits(&client, view, user.as_deref(), project.as_deref()).await
        }
        Command::Approval(request) => approvals::approval(&client, view, request).await,
        Command::BreakGlass(request) => break_glass::break_glass(&client, view, request).await,
        Command::SignUp(request) => sign_ups::sign_up(&client, view, request).await,
        Command::Invitation(request) => invitations::invitation(&client, view, request).await,
        Command::Roster(request) => rosters::roster(&client, view, request).await,
        Command::Domain(request) => tenancy::domain(&client, view, request).await,
        Command::Project(request) => tenancy::project(&client, view, request).await,
        Command::Role(request) => tenancy::role(&client, view, request).await,
        Command::Token(request) => users::token(&client, view, request).await,
        Command::Key(request) => users::key(&client, view, request).await,
        Command::SshKey(request) => ssh::key(&client, view, request).await,
        Command::Dotfile(request) => start_up::dotfile(&client, view, request).await,
        Command::Startup(request) => start_up::startup(&client, view, request).await,
        Command::Variable(request) => start_up::variable(&client, view, request).await,
        Command::SshConfig { alias } => ssh::config(&client, view, &alias).await,
        Command::SignIn(request) => users::sign_in(&client, view, request).await,
        Command::Me(request) => users::me(&client, view, request).await,
        Command::SetupLink => users::setup_link(&client, view).await,
        Command::Drain { timeout } => sessions::drain(&client, view, &timeout).await,
        Command::Gpu(request) => gpus::gpu(&client, view, request).await,
        Command::Top => system::top(&client, view).await,
        Command::Audit(request) => audit::audit(&client, view, request).await,
        Command::Event(request) => events::event(&client, view, request).await,
        Command::Notices { read } => notices::notices(&client, view, read).await,
        Command::Mail(request) => mail::mail(&client, view, request).await,
        Command::Holiday(request) => holidays::holiday(&client, view, request).await,
        Command::Branding(request) => branding::branding(&client, view, request).await,
        Command::Webhook(request) => webhooks::webhook(&client, view, request).await,
        Command::Node(request) => nodes::node(&client, view, request).await,
        Command::History(request) => history::history(&client, view, &request).await,
        Command::Usage(request) => usage::usage(&client, view, &request).await,
        Command::Rehearse(args::RehearseArguments {
            verb: Some(args::RehearseCommand::History(request)),
            ..
        }) => rehearsal::history(&client, view, &request).await,
        Command::Statement(request) => statements::statement(&client, view, &request).await,
        Command::Month(request) => statements::month(&client, view, request).await,
        Command::Price(request) => statements::price(&client, view, request).await,
        Command::Api(request) => system::api(&client, request).await,
        Command::Config(
            verb @ (args::Config::Ls
            | args::Config::Get { .. }
            | args::Config::Set { .. }
            | args::Config::Unset { .. }
            | args::Config::Undo { .. }
            | args::Config::Reload
            | args::Config::Test),
        ) => settings::config(&client, view, verb).await,
        Command::Backup(args::Backup::Ls) => system::backups(&client, view).await,
        Command::Backup(args::Backup::Now) => system::back_up(&client, view).await,
        Command::Backup(args::Backup::Download { name, file }) => {
            system::download_backup(&client, view, &name, file).await
        }
        Command::Trust => certificates::trust(&client, view).await,
        Command::Tls(request) => certificates::tls(&client, view, request).await,
        Command::Version => system::version(&client, view).await,
        Command::Backup(_)
        | Command::Upgrade(_)
        | Command::State(_)
        | Command::Serve(_)
        | Command::Doctor(_)
        | Command::Config(_)
        | Command::Console(_)
        | Command::Support(_)
        | Command::Rehearse(_)
        | Command::Bench(_)
        | Command::Completion { .. }
        | Command::Man(_)
        | Command::Login(_)
        | Command::Logout => Err(CliError::new(
            FAILED,
            "command.not-here",
            "This command is not one of the client's.",
        )),
    }
}

fn view(global: &args::Global) -> OutputStyle {
    let terminal = std::io::stdout().is_terminal();
    OutputStyle {
        format: global.output,
        width: terminal
            .then(|| crossterm::terminal::size().ok().map(|(columns, _)| columns))
            .flatten(),
        quiet: global.quiet,
        now: now(),
        columns: global.columns.clone(),
    }
}

fn wants_color(global: &args::Global, around: &Surroundings) -> bool {
    !global.no_color && (around.variable)("NO_COLOR").is_none_or(|v| v.is_empty())
}

fn now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}

/// `ko` or `en`, as the usual variables say.
fn language(variable: fn(&str) -> Option<String>) -> &'static str {
    let language = ["LC_ALL", "LC_MESSAGES", "LANG"]
        .iter()
        .find_map(|name| variable(name).filter(|v| !v.is_empty()))
        .unwrap_or_default();
    if language.starts_with("ko") {
        "ko"
    } else {
        "en"
    }
}

/// Writes results. A reader that went away (`| head`) ends the output, not the program.
fn print(text: &str) {
    print_bytes(text.as_bytes());
}

fn print_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Writes remarks and trouble.
fn complain(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<CommandLine, clap::Error> {
        let words = std::iter::once("fardel").chain(line.split(' '));
        parse(words.map(Into::into).collect(), |_| None)
    }

    #[test]
    fn the_description_has_no_contradiction() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn flags_may_stand_before_and_after_the_image() {
        for line in [
            "run --cpu 2 host -- sh -c x",
            "run host --cpu 2 -- sh -c x",
            "run host --cpu 2 sh -c x",
        ] {
            match read(line).expect(line).command {
                Command::Run(run) => {
                    assert_eq!(run.order.cpu.as_deref(), Some("2"), "{line}");
                    assert_eq!(run.order.command, ["sh", "-c", "x"], "{line}");
                }
                other => panic!("{line} was read as {other:?}"),
            }
        }
    }

    #[test]
    fn exec_passes_flags_of_the_command_on() {
        match read("exec -it train ls -la /").expect("valid").command {
            Command::Exec(exec) => {
                assert!(exec.interactive && exec.tty);
                assert_eq!(exec.command, ["ls", "-la", "/"]);
            }
            other => panic!("read as {other:?}"),
        }
    }

    #[test]
    fn every_command_has_a_summary_in_both_languages() {
        fn visit(command: &clap::Command, path: &str) {
            for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
                let path = format!("{path} {}", inner.get_name());
                assert!(inner.get_about().is_some(), "{path} says nothing");
                let ko = inner
                    .get_about()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(
                    ko.chars().any(|c| ('\u{ac00}'..='\u{d7a3}').contains(&c)),
                    "{path} has no Korean summary"
                );
                visit(inner, &path);
            }
        }
        visit(&korean::summaries(CommandLine::command()), "fardel");
    }
}
