//! A message as mail is written (RFC 5322, RFC 2045, RFC 2047): plain text in base64, so that no line is long and none begins
//! with a dot, and a subject that no line end or other control character leaves. Sends nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::tz::TimeZone;
use rules::names::EmailAddress;
use rules::units::Timestamp;

/// Characters of a subject; the body says all.
const LETTERS_OF_SUBJECT: usize = 200;
/// Bytes of one encoded word of a subject: with its frame it stays below the 75 characters of RFC 2047.
const BYTES_OF_WORD: usize = 36;
/// Characters of a line in base64, by RFC 2045.
const LINE: usize = 76;

/// One mail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MailMessage<'a> {
    pub(crate) to: &'a EmailAddress,
    pub(crate) subject: &'a str,
    pub(crate) body: &'a str,
    pub(crate) at: Timestamp,
    /// Tells it from others: a mail that comes twice has the same. Letters and digits.
    pub(crate) id: &'a str,
}

impl MailMessage<'_> {
    /// The whole message with its headers; each line ends with CR and LF.
    pub(super) fn written(&self, from: &EmailAddress) -> String {
        let date = jiff::Timestamp::from_millisecond(self.at.as_millis())
            .unwrap_or_default()
            .to_zoned(TimeZone::UTC)
            .strftime("%a, %d %b %Y %H:%M:%S +0000")
            .to_string();
        let host = from.as_str().split('@').next_back().unwrap_or_default();
        let headers = [
            format!("From: <{from}>"),
            format!("To: <{}>", self.to),
            format!("Subject: {}", subject(self.subject)),
            format!("Date: {date}"),
            format!("Message-ID: <{}@{host}>", self.id),
            "Auto-Submitted: auto-generated".to_owned(),
            "MIME-Version: 1.0".to_owned(),
            "Content-Type: text/plain; charset=utf-8".to_owned(),
            "Content-Transfer-Encoding: base64".to_owned(),
        ];
        let mut message = headers.join("\r\n");
        message.push_str("\r\n\r\n");
        let body = STANDARD.encode(self.body.replace('\n', "\r\n"));
        let mut rest = body.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(LINE));
            message.push_str(line);
            message.push_str("\r\n");
            rest = more;
        }
        message
    }
}

/// A subject as a header has it: as it is where it is short and of printable ASCII, else in encoded words, one a line.
fn subject(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(LETTERS_OF_SUBJECT)
        .collect();
    let is_plain = |letter: char| letter == ' ' || letter.is_ascii_graphic();
    if clean.len() <= LINE - 16 && clean.chars().all(is_plain) && !clean.contains("=?") {
        return clean;
    }
    let mut words = Vec::new();
    let mut word = String::new();
    for letter in clean.chars() {
        if word.len() + letter.len_utf8() > BYTES_OF_WORD {
            words.push(std::mem::take(&mut word));
        }
        word.push(letter);
    }
    words.push(word);
    let words = words
        .iter()
        .map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word)));
    words.collect::<Vec<String>>().join("\r\n ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(subject: &str, body: &str) -> String {
        let address = |text| EmailAddress::parse(text).unwrap();
        let to = address("mina@lab.example");
        let message = MailMessage {
            to: &to,
            subject,
            body,
            at: Timestamp::from_millis(1_800_000_000_000),
            id: "7f",
        };
        message.written(&address("fardel@gpu.lab"))
    }

    #[test]
    fn a_message_has_headers_and_its_text_in_base64() {
        let message = written(
            "[gpu] train failed",
            "train failed\nhttps://gpu.lab/sessions/1\n",
        );
        let (head, body) = message.split_once("\r\n\r\n").unwrap();
        let expected = "From: <fardel@gpu.lab>\r\nTo: <mina@lab.example>\r\nSubject: [gpu] train failed\r\n\
            Date: Fri, 15 Jan 2027 08:00:00 +0000\r\nMessage-ID: <7f@gpu.lab>\r\n\
            Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n\
            Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64";
        assert_eq!(head, expected);
        let text = STANDARD.decode(body.replace("\r\n", "")).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "train failed\r\nhttps://gpu.lab/sessions/1\r\n");
    }

    #[test]
    fn no_subject_makes_a_header_and_no_line_is_long() {
        let long = "실패했습니다 ".repeat(60);
        for bad in [
            "x\r\nBcc: all@lab.example",
            "x\nSubject: y\n\nbody",
            "\u{85}x\u{0}",
            "=?UTF-8?B?Cg==?=",
            long.as_str(),
        ] {
            let message = written(bad, &"긴 줄 ".repeat(500));
            let (head, _) = message.split_once("\r\n\r\n").unwrap();
            let names: Vec<&str> = head
                .split("\r\n")
                .filter(|line| !line.starts_with(' '))
                .map(|line| line.split(':').next().unwrap_or_default())
                .collect();
            let expected = [
                "From",
                "To",
                "Subject",
                "Date",
                "Message-ID",
                "Auto-Submitted",
                "MIME-Version",
                "Content-Type",
                "Content-Transfer-Encoding",
            ];
            assert_eq!(names, expected, "{bad:?}");
            for line in message.split("\r\n") {
                assert!(line.len() <= 78, "{line}");
                assert!(line.is_ascii() && !line.contains(['\r', '\n']), "{line:?}");
                assert!(!line.starts_with('.'), "{line}");
            }
        }
    }

    #[test]
    fn an_encoded_subject_is_read_back_as_it_was() {
        let text = "[서버] 학습 세션이 실패했습니다 · train=?";
        let encoded = subject(text);
        let words = encoded.split("\r\n ").map(|word| {
            let inside = word.strip_prefix("=?UTF-8?B?")?.strip_suffix("?=")?;
            String::from_utf8(STANDARD.decode(inside).ok()?).ok()
        });
        let read: Option<String> = words.collect();
        assert_eq!(read.as_deref(), Some(text));
    }
}
