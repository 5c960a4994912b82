//! Events from the command line: the journal searched, and followed live.

use api::events::{EventSearchPage, EventView};
use serde_json::Value;

use super::answer::Answer;
use super::args::{EventCommand, EventLs, Format};
use super::client::HttpClient;
use super::error::{CliError, INTERRUPTED};
use super::output::{self, OutputStyle};
use super::{columns, complain, print, terminal, values};

/// Events asked for at once while a search is read to its end.
const PAGE: u32 = 500;

pub(super) async fn event(
    client: &HttpClient,
    view: &OutputStyle,
    request: EventCommand,
) -> Result<u8, CliError> {
    match request {
        EventCommand::Ls(wanted) => search(client, view, &wanted).await,
        EventCommand::Watch {
            since,
            topics,
            limit,
        } => watch(client, view, since, &topics, limit).await,
    }
}

/// Prints what a search finds, newest first, page after page up to the wanted number.
async fn search(client: &HttpClient, view: &OutputStyle, wanted: &EventLs) -> Result<u8, CliError> {
    if wanted.limit == 0 {
        return Err(CliError::usage("-n 0 shows no event.").hint("For example: -n 100."));
    }
    let time = |typed: &Option<String>, end| match typed {
        Some(typed) => values::moment(typed, end, view.now).map(|at| at.to_string()),
        None => Ok(String::new()),
    };
    let asked = [
        ("kind", wanted.kind.clone()),
        ("object", wanted.object.clone()),
        ("user", wanted.user.clone()),
        ("since", time(&wanted.since, false)?),
        ("until", time(&wanted.until, true)?),
        ("q", quoted(&wanted.words)),
    ];
    let mut body = found(client, &asked, wanted.limit).await?;
    let none = body["items"].as_array().is_none_or(Vec::is_empty);
    if view.for_humans() && none {
        complain("No events match.\n");
        return Ok(0);
    }
    let for_tables = matches!(view.format, Format::Table | Format::Wide | Format::Csv);
    if for_tables && !view.quiet {
        values::named(&mut body);
    }
    print(&view.list(&body, columns::FOUND_EVENTS)?);
    Ok(0)
}

/// The first `limit` events, as one body of the API.
async fn found(
    client: &HttpClient,
    asked: &[(&str, String)],
    limit: u32,
) -> Result<Value, CliError> {
    let mut all: Option<Value> = None;
    let mut cursor = String::new();
    let mut left = limit;
    loop {
        let mut parts = asked.to_vec();
        parts.push(("limit", left.min(PAGE).to_string()));
        parts.push(("cursor", cursor));
        let path = format!("/api/v1/events/search{}", values::query(&parts));
        let Answer { body, read } = client.read::<EventSearchPage>(&path).await?;
        left = left.saturating_sub(u32::try_from(read.items.len()).unwrap_or(u32::MAX));
        let joined = match all.take() {
            None => body,
            Some(before) => values::joined(before, body),
        };
        match read.next_cursor {
            Some(next) if left > 0 => cursor = next,
            _ => return Ok(joined),
        }
        all = Some(joined);
    }
}

/// Words as the API takes them: what holds blanks stands in quotation marks.
fn quoted(words: &[String]) -> String {
    let one = |word: &String| match word.contains(' ') {
        true => format!("\"{word}\""),
        false => word.clone(),
    };
    words.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Follows the journal. Tables print one line a change, everything else one JSON object a line.
async fn watch(
    client: &HttpClient,
    view: &OutputStyle,
    since: Option<u64>,
    topics: &[String],
    limit: Option<u64>,
) -> Result<u8, CliError> {
    let query = values::query(&[("topics", topics.join(","))]);
    let mut position = since;
    let mut seen = 0;
    loop {
        let headers = position
            .map(|p| vec![("Last-Event-ID".to_owned(), p.to_string())])
            .unwrap_or_default();
        let mut flow = client
            .flow(&format!("/api/v1/events{query}"), headers)
            .await?;
        let mut pending = String::new();
        loop {
            let piece = tokio::select! {
                piece = flow.next() => piece,
                signal = terminal::interrupted() => return signal.map(|()| INTERRUPTED),
            };
            let Ok(Some(bytes)) = piece else { break };
            pending.push_str(&String::from_utf8_lossy(&bytes));
            while let Some(end) = pending.find("\n\n") {
                let block: String = pending.drain(..end + 2).collect();
                let Some((name, data)) = block_read(&block) else {
                    continue;
                };
                if name == "reset" {
                    complain("some changes are no longer kept; going on from here\n");
                    continue;
                }
                // The leave to listen has ended; asking again says why.
                if name == "end" {
                    continue;
                }
                let Ok(body) = serde_json::from_str::<Value>(&data) else {
                    continue;
                };
                let change = Answer::<EventView>::of(body)?;
                position = Some(change.read.sequence);
                if matches!(view.format, Format::Table | Format::Wide) {
                    let line = format!(
                        "{}  {:<20}  {:<12}  {}",
                        change.read.at,
                        change.read.code,
                        change.read.actor,
                        columns::what(&change.read),
                    );
                    print(&format!("{}\n", output::shown(&line)));
                } else {
                    print(&format!("{}\n", change.body));
                }
                seen += 1;
                if limit.is_some_and(|l| seen >= l) {
                    return Ok(0);
                }
            }
        }
        // The server went away; it is asked again from the last number on.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
}

/// The name and the data of one event block; None for a comment such as the heartbeat.
fn block_read(block: &str) -> Option<(String, String)> {
    let mut name = "message".to_owned();
    let mut data = Vec::new();
    for line in block.lines() {
        let Some((field, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut name),
            "data" => data.push(value),
            _ => {}
        }
    }
    (!data.is_empty() || name == "reset").then(|| (name, data.join("\n")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_are_joined_and_words_with_blanks_stay_together() {
        let page = |sequence: u64, id: &str, next: Value| {
            json!({
                "items": [{"sequence": sequence, "object": id}],
                "names": {id: format!("{id}-1")},
                "next_cursor": next,
                "estimated_total": sequence,
            })
        };
        let mut all = values::joined(page(9, "a", "c".into()), page(4, "b", Value::Null));
        assert_eq!(
            (&all["estimated_total"], &all["next_cursor"]),
            (&json!(9), &Value::Null)
        );
        values::named(&mut all);
        assert_eq!(all["items"][0]["name"], "a-1");
        assert_eq!(all["items"][1]["name"], "b-1");
        let words = ["oom".to_owned(), "two words".to_owned()];
        assert_eq!(quoted(&words), "oom \"two words\"");
    }

    #[test]
    fn events_are_read_and_heartbeats_are_not_events() {
        assert_eq!(block_read(": beat\n\n"), None);
        assert_eq!(
            block_read("id: 4\nevent: change\ndata: {\"a\":\ndata: 1}\n\n"),
            Some(("change".into(), "{\"a\":\n1}".into()))
        );
    }
}
