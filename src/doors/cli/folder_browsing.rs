//! The commands that look through folders and write texts in them: find, du, cat and write.

use std::io::{Read as _, Write as _};

use hyper::Method;
use serde_json::{Value, json};

use super::client::{Extra, HttpClient, encoded};
use super::error::CliError;
use super::folder_files::{FolderPlace, whole_list};
use super::output::OutputStyle;
use super::{columns, print};

/// Bytes that are read of standard input: one more than the server takes, which says so.
const MAX_INPUT: u64 = (1 << 20) + 1;

pub(super) async fn find(
    client: &HttpClient,
    view: &OutputStyle,
    place: &str,
    words: &str,
) -> Result<u8, CliError> {
    let place = FolderPlace::parse_any(place);
    let search = format!("{}&q={}&limit=500", place.query("search"), encoded(words));
    let join = |whole: &mut Value, page: &Value| {
        let more = page["looked"].as_u64().unwrap_or(0);
        whole["looked"] = (whole["looked"].as_u64().unwrap_or(0) + more).into();
        let is_whole = whole["whole"] == true && page["whole"] == true;
        whole["whole"] = is_whole.into();
    };
    let mut whole = whole_list(client, &search, join).await?;
    whole["stopped"] = Value::Null;
    print(&view.list(&whole, columns::FOUND_ENTRIES)?);
    if whole["whole"] == false {
        eprintln!(
            "Some directories were left out: they cannot be read, or are too large or too deep."
        );
    }
    Ok(0)
}

pub(super) async fn usage(
    client: &HttpClient,
    view: &OutputStyle,
    place: &str,
    fresh: bool,
) -> Result<u8, CliError> {
    let place = FolderPlace::parse_any(place);
    let path = format!("{}&fresh={fresh}", place.query("usage"));
    let counted = client.get(&path).await?;
    print(&view.list(&counted, columns::SUBFOLDERS)?);
    if counted["whole"] == false {
        eprintln!("There is more than was counted: these sizes are too small.");
    }
    Ok(0)
}

pub(super) async fn cat(client: &HttpClient, place: &str) -> Result<u8, CliError> {
    let place = FolderPlace::parse_entry(place)?;
    let mut flow = client.flow(&place.query("files"), Vec::new()).await?;
    let mut out = std::io::stdout();
    while let Some(bytes) = flow.next().await? {
        // Who reads it may have enough of it.
        if out.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = out.flush();
    Ok(0)
}

/// What a text takes the place of.
pub(super) enum WrittenOver {
    Nothing,
    /// The version with this ETag.
    Version(String),
    Any,
}

pub(super) async fn write(
    client: &HttpClient,
    view: &OutputStyle,
    place: &str,
    over: WrittenOver,
) -> Result<u8, CliError> {
    let place = FolderPlace::parse_entry(place)?;
    let mut bytes = Vec::new();
    let read = std::io::stdin()
        .lock()
        .take(MAX_INPUT)
        .read_to_end(&mut bytes);
    read.map_err(|error| CliError::usage(format!("Standard input cannot be read: {error}.")))?;
    let is_cut = bytes.len() as u64 == MAX_INPUT;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // A character that the bound cut in two: the server says that it is too large.
        Err(error) if is_cut && error.utf8_error().error_len().is_none() => {
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        }
        Err(error) => {
            let error = error.utf8_error();
            return Err(CliError::usage(format!(
                "Standard input is no text: {error}."
            )));
        }
    };
    let body = json!({"path": place.path, "text": text});
    let path = place.address("text");
    let written = match over {
        WrittenOver::Nothing => client.post(&path, &body).await?,
        WrittenOver::Version(tag) => {
            let extra = Extra::json(&body).header("If-Match", tag);
            client.call(Method::PUT, &path, extra).await?.json()?
        }
        WrittenOver::Any => {
            let extra = Extra::json(&body).header("If-Match", "*");
            client.call(Method::PUT, &path, extra).await?.json()?
        }
    };
    let tag = written["etag"].as_str().unwrap_or_default();
    let said = format!("{}:/{}  written, {tag}", place.folder, place.path);
    print(&view.said(&written, &said)?);
    Ok(0)
}
