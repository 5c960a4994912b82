//! The commands on what a user's sessions start with: dotfiles, a script, variables. The value of a variable comes from the
//! keyboard or from a file, and never from the command line, which others on the same computer can read.

use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

use api::start_up::{DotfileContentView, StartupScriptView};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::args::{DotfileCommand, StartupCommand, VariableCommand};
use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::output::OutputStyle;
use super::{columns, login, print, print_bytes};

const DOTFILES: &str = "/api/v1/me/dotfiles";
const SCRIPT: &str = "/api/v1/me/startup-script";
const VARIABLES: &str = "/api/v1/me/variables";

/// Bytes that are read of one file. The server's own bounds are lower, and say what would fit.
const MAX_READ: u64 = 1 << 20;

pub(super) async fn dotfile(
    client: &HttpClient,
    view: &OutputStyle,
    request: DotfileCommand,
) -> Result<u8, CliError> {
    match request {
        DotfileCommand::Ls => {
            print(&view.list(&client.get(DOTFILES).await?, columns::DOTFILES)?);
        }
        DotfileCommand::Cat { path } => {
            let path = format!("{DOTFILES}/{}", encoded(&path));
            let file = client.read::<DotfileContentView>(&path).await?;
            print_bytes(file.read.content.as_bytes());
        }
        DotfileCommand::Put { path, file, mode } => {
            let mut body = Map::new();
            body.insert("path".to_owned(), path.clone().into());
            body.insert("content".to_owned(), read(&file)?.into());
            if let Some(mode) = mode {
                body.insert("mode".to_owned(), mode.into());
            }
            let kept = put(client, DOTFILES, Value::Object(body)).await?;
            print(&view.said(&kept, &format!("{path}  saved"))?);
        }
        DotfileCommand::Rm { paths } => {
            for path in paths {
                let at = format!("{DOTFILES}/{}", encoded(&path));
                client.call(Method::DELETE, &at, Extra::default()).await?;
                print(&view.said(&json!({"path": path}), &format!("{path}  removed"))?);
            }
        }
    }
    Ok(0)
}

pub(super) async fn startup(
    client: &HttpClient,
    view: &OutputStyle,
    request: StartupCommand,
) -> Result<u8, CliError> {
    match request {
        StartupCommand::Cat => {
            let script = client.read::<StartupScriptView>(SCRIPT).await?;
            print_bytes(script.read.script.as_bytes());
        }
        StartupCommand::Set { file, or_end } => {
            let body = json!({"script": read(&file)?, "ends_session": or_end});
            let kept = put(client, SCRIPT, body).await?;
            print(&view.said(&kept, "The start-up script was saved.")?);
        }
        StartupCommand::Rm => {
            let extra = Extra::default();
            client.call(Method::DELETE, SCRIPT, extra).await?;
            print(&view.said(&json!({}), "The start-up script was removed.")?);
        }
    }
    Ok(0)
}

pub(super) async fn variable(
    client: &HttpClient,
    view: &OutputStyle,
    request: VariableCommand,
) -> Result<u8, CliError> {
    match request {
        VariableCommand::Ls => {
            print(&view.list(&client.get(VARIABLES).await?, columns::VARIABLES)?);
        }
        VariableCommand::Set { name, file } => {
            let value = match file {
                Some(file) => without_last_line_break(read(&file)?),
                None if std::io::stdin().is_terminal() => login::typed_unseen("Value: ")?,
                None => without_last_line_break(read(Path::new("-"))?),
            };
            let kept = put(client, VARIABLES, json!({"name": name, "value": value})).await?;
            print(&view.said(&kept, &format!("{name}  saved"))?);
        }
        VariableCommand::Rm { names } => {
            for name in names {
                let at = format!("{VARIABLES}/{}", encoded(&name));
                client.call(Method::DELETE, &at, Extra::default()).await?;
                print(&view.said(&json!({"name": name}), &format!("{name}  removed"))?);
            }
        }
    }
    Ok(0)
}

async fn put(client: &HttpClient, path: &str, body: Value) -> Result<Value, CliError> {
    let answer = client.call(Method::PUT, path, Extra::json(&body)).await?;
    answer.json()
}

/// A file, or standard input for `-`.
fn read(file: &Path) -> Result<String, CliError> {
    let failed = |error: std::io::Error| {
        CliError::usage(format!("{} cannot be read: {error}.", file.display()))
    };
    let mut text = String::new();
    match file == Path::new("-") {
        true => std::io::stdin()
            .take(MAX_READ)
            .read_to_string(&mut text)
            .map_err(failed)?,
        false => std::fs::File::open(file)
            .map_err(failed)?
            .take(MAX_READ)
            .read_to_string(&mut text)
            .map_err(failed)?,
    };
    Ok(text)
}

/// What `echo` and editors put behind a value is none of it.
fn without_last_line_break(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_loses_one_line_break_and_no_more() {
        for (read, value) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a")] {
            assert_eq!(without_last_line_break(read.to_owned()), value);
        }
    }
}
