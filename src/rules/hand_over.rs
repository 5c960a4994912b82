//! Places outside that the audit log is handed over to: which there are, where a syslog receiver is, and how a row is
//! written for one (RFC 5424). Pure; `server::hand_over` sends.

use std::fmt::Write as _;

use crate::audit::AuditStatement;
use crate::directory::host_and_port;
use crate::units::Timestamp;

/// Facility 13 of RFC 5424, "log audit", times 8.
const FACILITY: u32 = 13 * 8;
/// Of an act that was refused.
const WARNING: u32 = 4;
/// Of every other act.
const NOTICE: u32 = 5;
/// The name of the structured data. The number is the one that RFC 5612 keeps for documentation: fardel has none of its own.
const STRUCTURED_DATA: &str = "fardel@32473";
/// Letters of a host name and of a message's sort, by RFC 5424.
const LETTERS_OF_HOST: usize = 255;
const LETTERS_OF_SORT: usize = 32;
/// Letters of one value of the structured data; the text of the row has it whole.
const LETTERS_OF_VALUE: usize = 256;
/// What stands in front of a text in UTF-8.
const MARK: char = '\u{feff}';
/// What a trial sends.
const TRIAL: &str = "fardel config test";

/// A sort of place outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuditTarget {
    File,
    Syslog,
    Http,
}

impl AuditTarget {
    pub const ALL: [Self; 3] = [Self::File, Self::Syslog, Self::Http];

    /// A stable word: `file`, `syslog`, `http`.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Syslog => "syslog",
            Self::Http => "http",
        }
    }
}

/// Where a syslog receiver is, and what carries messages there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogAddress {
    /// Host and port, as in the two below.
    Udp(String, u16),
    Tcp(String, u16),
    Tls(String, u16),
    /// Path of a socket of this machine that takes datagrams.
    Socket(String),
}

impl SyslogAddress {
    /// Reads `udp://HOST`, `tcp://HOST` or `tls://HOST`, each with a port or without, or `unix:///PATH`; None for everything
    /// else.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once("://")?;
        if scheme == "unix" {
            let is_path = rest.starts_with('/') && !rest.chars().any(char::is_control);
            return is_path.then(|| Self::Socket(rest.to_owned()));
        }
        let (host, port) = host_and_port(rest.strip_suffix('/').unwrap_or(rest))?;
        match scheme {
            "udp" => Some(Self::Udp(host, port.unwrap_or(514))),
            "tcp" => Some(Self::Tcp(host, port.unwrap_or(514))),
            "tls" => Some(Self::Tls(host, port.unwrap_or(6514))),
            _ => None,
        }
    }
}

/// A row as a message of RFC 5424: the fields that one filters by as structured data, then the text of the row. `text` is the
/// statement as it was written; control characters that JSON allows in a text are escaped. A message with more bytes than
/// `most` goes without the text.
pub fn syslog_message(
    statement: &AuditStatement,
    text: &str,
    host: &str,
    most: Option<usize>,
) -> String {
    let severity = if statement.reason.is_empty() {
        NOTICE
    } else {
        WARNING
    };
    let mut message = header(severity, statement.at, host, &statement.act);
    let _ = write!(
        message,
        " [{STRUCTURED_DATA} sequence=\"{}\"",
        statement.sequence
    );
    for (name, value) in [
        ("actor", &statement.actor),
        ("act", &statement.act),
        ("object", &statement.object),
        ("via", &statement.via),
        ("address", &statement.address),
        ("reason", &statement.reason),
    ] {
        let _ = write!(message, " {name}=\"{}\"", value_of(value));
    }
    message.push(']');
    let without = message.len();
    message.push(' ');
    message.push(MARK);
    for letter in text.chars() {
        if letter.is_control() {
            let _ = write!(message, "\\u{:04x}", u32::from(letter));
        } else {
            message.push(letter);
        }
    }
    if most.is_some_and(|most| message.len() > most) {
        message.truncate(without);
    }
    message
}

/// A message that says no more than that it can be sent.
pub fn syslog_trial(at: Timestamp, host: &str) -> String {
    let header = header(NOTICE, at, host, "test");
    format!("{header} - {MARK}{TRIAL}")
}

/// A line that says no more than that it can be posted: JSON, without a line end.
pub fn posted_trial() -> String {
    format!("{{\"test\":\"{TRIAL}\"}}")
}

/// All fields in front of the structured data.
fn header(severity: u32, at: Timestamp, host: &str, sort: &str) -> String {
    let host = field(host, LETTERS_OF_HOST);
    let sort = field(sort, LETTERS_OF_SORT);
    format!("<{}>1 {at} {host} fardel - {sort}", FACILITY + severity)
}

/// A field of a header: printable letters of ASCII without blanks, a dash for none.
fn field(text: &str, most: usize) -> String {
    let letters = text.chars().take(most);
    let plain: String = letters
        .map(|letter| {
            if letter.is_ascii_graphic() {
                letter
            } else {
                '?'
            }
        })
        .collect();
    if plain.is_empty() {
        "-".to_owned()
    } else {
        plain
    }
}

/// A value of the structured data: what would end it is escaped, control characters are replaced.
fn value_of(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for letter in text.chars().take(LETTERS_OF_VALUE) {
        match letter {
            '"' | '\\' | ']' => {
                value.push('\\');
                value.push(letter);
            }
            letter if letter.is_control() => value.push(char::REPLACEMENT_CHARACTER),
            letter => value.push(letter),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement() -> AuditStatement {
        AuditStatement {
            sequence: 17,
            at: Timestamp::from_millis(1_800_000_000_123),
            actor: "mina".to_owned(),
            actor_id: None,
            via: "token".to_owned(),
            credential: None,
            address: "192.0.2.9".to_owned(),
            act: "session.accepted".to_owned(),
            topic: "sessions".to_owned(),
            object: "train-1".to_owned(),
            owner: None,
            domain: None,
            project: None,
            before: String::new(),
            after: String::new(),
            reason: String::new(),
            request: "r".to_owned(),
            salt: "00".to_owned(),
        }
    }

    fn written(statement: &AuditStatement) -> String {
        syslog_message(statement, &statement.canonical(), "gpu-01", None)
    }

    #[test]
    fn a_row_is_a_message_of_rfc_5424_with_its_text() {
        let row = statement();
        let expected = format!(
            "<109>1 2027-01-15T08:00:00.123Z gpu-01 fardel - session.accepted [fardel@32473 \
             sequence=\"17\" actor=\"mina\" act=\"session.accepted\" object=\"train-1\" via=\"token\" \
             address=\"192.0.2.9\" reason=\"\"] \u{feff}{}",
            row.canonical()
        );
        assert_eq!(written(&row), expected);
        let refused = AuditStatement {
            reason: "denied".to_owned(),
            ..row
        };
        assert!(written(&refused).starts_with("<108>1 "));
    }

    #[test]
    fn no_value_ends_its_field_its_message_or_its_line() {
        let row = AuditStatement {
            object: "a\"] [x y=\"\\z\n\r\u{7f}\u{85}한".to_owned(),
            act: "한 act\n".to_owned(),
            ..statement()
        };
        let message = written(&row);
        assert!(!message.chars().any(char::is_control), "{message:?}");
        let object = "object=\"a\\\"\\] [x y=\\\"\\\\z\u{fffd}\u{fffd}\u{fffd}\u{fffd}한\"";
        assert!(message.contains(object), "{message}");
        assert!(message.contains(" fardel - ??act? ["), "{message}");
        // The text is JSON with the same value: a control character is only written otherwise.
        let (_, text) = message.split_once('\u{feff}').expect("the text");
        assert!(text.contains("\\u007f\\u0085한"), "{text}");
    }

    #[test]
    fn a_message_that_no_datagram_holds_goes_without_its_text_and_values_are_cut() {
        let row = AuditStatement {
            object: "x".repeat(70_000),
            ..statement()
        };
        let text = row.canonical();
        let short = syslog_message(&row, &text, "", Some(60_000));
        assert!(short.len() < 1_000 && short.ends_with("reason=\"\"]"));
        assert!(short.contains(" - fardel - session.accepted "), "{short}");
        assert!(syslog_message(&row, &text, "", None).len() > 70_000);
    }

    #[test]
    fn receivers_are_named_by_what_carries_messages_there() {
        use SyslogAddress::{Socket, Tcp, Tls, Udp};
        let host = || "10.1.0.4".to_owned();
        for (text, address) in [
            ("udp://10.1.0.4", Some(Udp(host(), 514))),
            (" tcp://10.1.0.4:601/ ", Some(Tcp(host(), 601))),
            ("tls://10.1.0.4", Some(Tls(host(), 6514))),
            ("tcp://[::1]:9", Some(Tcp("::1".to_owned(), 9))),
            ("unix:///dev/log", Some(Socket("/dev/log".to_owned()))),
            ("unix://dev/log", None),
            ("10.1.0.4", None),
            ("http://10.1.0.4", None),
            ("tcp://", None),
            ("tcp://a:0", None),
            ("tcp://a/b", None),
        ] {
            assert_eq!(SyslogAddress::parse(text), address, "{text}");
        }
    }

    #[test]
    fn trials_say_that_they_are_trials() {
        let at = Timestamp::from_millis(1_800_000_000_123);
        assert_eq!(
            syslog_trial(at, "gpu-01"),
            "<109>1 2027-01-15T08:00:00.123Z gpu-01 fardel - test - \u{feff}fardel config test"
        );
        assert_eq!(posted_trial(), "{\"test\":\"fardel config test\"}");
    }
}
