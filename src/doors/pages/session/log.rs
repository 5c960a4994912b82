//! The end of a session's log as a page shows it: read from the node, without colours and cursor moves.

use rules::names::ContainerName;

use super::super::{PagesContext, responses};

/// Bytes of a log that a page shows; the rest is a download away. While lines arrive the page gets all of it
/// every two seconds.
const LOG_SHOWN: usize = 64 << 10;

/// Logs whose ends are remembered. Forgetting costs one longer look.
const LOGS_REMEMBERED: usize = 1000;

/// Lines of a log under the summary of an ended session.
const LAST_LINES: usize = 12;

/// The end of what the main process wrote; empty where nothing can be read.
///
/// The first look at a log reads what is kept of it (some megabytes); later ones begin near its end.
pub(super) async fn read_log(console: &PagesContext, container: ContainerName) -> String {
    let known = {
        let ends = console
            .log_ends
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        ends.get(&container).copied().unwrap_or_default()
    };
    let since = known.saturating_sub(LOG_SHOWN as u64);
    let Ok(mut log) = console.streams.logs(container, since, false).await else {
        return String::new();
    };
    let mut kept: Vec<u8> = Vec::new();
    let mut end = known;
    let mut whole = since == 0;
    while let Some(chunk) = log.output.recv().await {
        end = chunk.offset + chunk.bytes.len() as u64;
        kept.extend_from_slice(&chunk.bytes);
        if kept.len() > 2 * LOG_SHOWN {
            kept.drain(..kept.len() - LOG_SHOWN);
            whole = false;
        }
    }
    if kept.len() > LOG_SHOWN {
        kept.drain(..kept.len() - LOG_SHOWN);
        whole = false;
    }
    if !whole && let Some(line) = kept.iter().position(|byte| *byte == b'\n') {
        kept.drain(..=line);
    }
    let mut ends = console
        .log_ends
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if ends.len() >= LOGS_REMEMBERED {
        ends.clear();
    }
    ends.insert(container, end);
    drop(ends);
    plain(&String::from_utf8_lossy(&kept))
}

/// Terminal output as text: colours and cursor moves left out, a line that was written over kept as it ended.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.peek() {
                Some('[') => {
                    chars.next();
                    for c in chars.by_ref() {
                        if ('@'..='~').contains(&c) {
                            break;
                        }
                    }
                }
                Some(']') => {
                    while let Some(c) = chars.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {
                    chars.next();
                }
            },
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.truncate(out.rfind('\n').map_or(0, |at| at + 1)),
            '\u{8}' => {
                if !out.ends_with('\n') {
                    out.pop();
                }
            }
            c if c.is_control() && c != '\n' && c != '\t' => {}
            c => out.push(c),
        }
    }
    out
}

pub(super) fn filtered(log: &str, q: &str) -> String {
    if q.is_empty() {
        return log.to_owned();
    }
    let wanted = q.to_lowercase();
    log.lines()
        .filter(|line| line.to_lowercase().contains(&wanted))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Where what is searched for in a log stands, with long lines wrapped or whole.
pub(super) fn log_address((id, container): (&str, &str), q: &str, wraps: bool) -> String {
    let mut asked = Vec::new();
    if !container.is_empty() {
        asked.push(format!("container={}", responses::encoded(container)));
    }
    if !q.is_empty() {
        asked.push(format!("q={}", responses::encoded(q)));
    }
    if !wraps {
        asked.push("wrap=off".to_owned());
    }
    let mark = if asked.is_empty() { "" } else { "?" };
    format!("/sessions/{id}/logs{mark}{}", asked.join("&"))
}

pub(super) fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_stays_when_lines_are_wrapped_or_left_whole() {
        for (q, wraps, address) in [
            ("", true, "/sessions/1/logs"),
            ("", false, "/sessions/1/logs?wrap=off"),
            ("a b", true, "/sessions/1/logs?q=a%20b"),
            ("a&b", false, "/sessions/1/logs?q=a%26b&wrap=off"),
        ] {
            assert_eq!(log_address(("1", ""), q, wraps), address);
        }
        let of_another = "/sessions/1/logs?container=sub1&q=a";
        assert_eq!(log_address(("1", "sub1"), "a", true), of_another);
    }

    #[test]
    fn terminal_output_becomes_text() {
        for (raw, text) in [
            ("\u{1b}[32mok\u{1b}[0m\r\n", "ok\n"),
            ("10%\r20%\r100%\n", "100%\n"),
            ("\u{1b}]0;title\u{7}$ ls\r\n", "$ ls\n"),
            ("ab\u{8}c\n", "ac\n"),
            ("a\0b\tc", "ab\tc"),
        ] {
            assert_eq!(plain(raw), text, "{raw:?}");
        }
    }
}
