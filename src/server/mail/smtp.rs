//! Speaks to a mail server (RFC 5321): one connection a mail. STARTTLS comes before anything is said of the mail, and what
//! the server said in front of it counts for nothing behind it. Each line and each answer has a bound.

use base::settings::Settings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::mail::MailSecurity;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::io::{AsyncWriteExt as _, BufReader};

use super::{MAX_DELIVERY, MailFault, MailMessage, MailStep, set};
use crate::hand_over::receiver::{Protection, ReceiverPlan, ReceiverStream};

/// Bytes of one line of an answer; RFC 5321 has 512. A longer one is of no mail server.
const MAX_LINE_BYTES: u64 = 2_048;
/// Lines of one answer. A server offers some twenty.
const MAX_ANSWER_LINES: usize = 100;
/// Characters of an answer that are told.
const LETTERS_TOLD: usize = 200;

/// Hands over one mail; gives the answer by which the server took it.
pub(super) async fn deliver(
    settings: &Settings,
    message: &MailMessage<'_>,
) -> Result<String, MailFault> {
    let (server, security, from) = set(settings).ok_or(MailFault::Unset)?;
    let (host, port) = (server.host.as_str(), server.port);
    let protection = match security {
        MailSecurity::StartTls | MailSecurity::Tls => Protection::Tls,
        MailSecurity::Plain => Protection::None,
    };
    let user = settings.mail_user.as_deref().map(str::trim);
    let password_file = user.and(settings.mail_password_file.clone());
    let ca_file = settings.mail_ca_file.clone();
    let plan = ReceiverPlan::read(protection, ca_file, password_file, MAX_DELIVERY).await?;
    let own_name = own_name(&plan.own_name);
    let stream: Box<dyn ReceiverStream> = match security {
        MailSecurity::StartTls => {
            let mut talk = Dialogue::with(plan.connect(host, port).await?);
            talk.answer(MailStep::Greeting, &[220]).await?;
            let offered = talk.hello(&own_name).await?;
            if !offered.iter().any(|line| line == "STARTTLS") {
                return Err(MailFault::NoTls);
            }
            talk.say(MailStep::Tls, "STARTTLS", &[220]).await?;
            Box::new(plan.protect(host, talk.into_stream()?).await?)
        }
        MailSecurity::Tls | MailSecurity::Plain => plan.open(host, port).await?,
    };
    let mut talk = Dialogue::with(stream);
    if security != MailSecurity::StartTls {
        talk.answer(MailStep::Greeting, &[220]).await?;
    }
    let offered = talk.hello(&own_name).await?;
    if let (Some(user), Some(password)) = (user, &plan.token) {
        let signs_in = |line: &String| {
            let mut words = line.split([' ', '=']);
            words.next() == Some("AUTH") && words.any(|word| word == "PLAIN")
        };
        if !offered.iter().any(signs_in) {
            return Err(MailFault::NoSignIn);
        }
        let secret = STANDARD.encode(format!("\0{user}\0{}", password.reveal()));
        talk.say(MailStep::SignIn, &format!("AUTH PLAIN {secret}"), &[235])
            .await?;
    }
    let sender = format!("MAIL FROM:<{from}>");
    talk.say(MailStep::Sender, &sender, &[250]).await?;
    let recipient = format!("RCPT TO:<{}>", message.to);
    talk.say(MailStep::Recipient, &recipient, &[250, 251, 252])
        .await?;
    talk.say(MailStep::Content, "DATA", &[354]).await?;
    talk.send(&stuffed(&message.written(&from))).await?;
    let taken = talk.answer(MailStep::Content, &[250]).await?;
    // It has the mail: how it takes leave says nothing of that.
    let _ = talk.send("QUIT\r\n").await;
    Ok(told(&taken.join(" ")))
}

/// What this machine calls itself to the mail server: letters of a host name, and never nothing.
fn own_name(name: &str) -> String {
    let letter = |c: &char| c.is_ascii_alphanumeric() || ".-".contains(*c);
    let name: String = name.chars().filter(letter).collect();
    match name.is_empty() {
        true => "localhost".to_owned(),
        false => name,
    }
}

/// A message as it goes behind DATA: a line that begins with a dot gets one more, and a dot alone ends it.
fn stuffed(message: &str) -> String {
    let mut out = String::with_capacity(message.len() + 8);
    for line in message.split_terminator("\r\n") {
        if line.starts_with('.') {
            out.push('.');
        }
        out.push_str(line);
        out.push_str("\r\n");
    }
    out.push_str(".\r\n");
    out
}

/// One connection to a mail server.
struct Dialogue<S> {
    stream: BufReader<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Dialogue<S> {
    fn with(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Greets the server; gives what it offers, a line each, in capital letters.
    async fn hello(&mut self, own_name: &str) -> Result<Vec<String>, MailFault> {
        let command = format!("EHLO {own_name}");
        let answer = self.say(MailStep::Hello, &command, &[250]).await?;
        let lines = answer.into_iter().skip(1);
        Ok(lines.map(|line| line.to_ascii_uppercase()).collect())
    }

    /// Says one line and gives the answer, where its code is one of these.
    async fn say(
        &mut self,
        step: MailStep,
        command: &str,
        good: &[u16],
    ) -> Result<Vec<String>, MailFault> {
        self.send(&format!("{command}\r\n")).await?;
        self.answer(step, good).await
    }

    async fn send(&mut self, text: &str) -> Result<(), MailFault> {
        self.stream.write_all(text.as_bytes()).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// The lines of an answer without its code. Errors: `Refused` for another code.
    async fn answer(&mut self, step: MailStep, good: &[u16]) -> Result<Vec<String>, MailFault> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            let code = line.get(..3).and_then(|code| code.parse::<u16>().ok());
            let code = code.ok_or(MailFault::Unreadable)?;
            let more = line.as_bytes().get(3) == Some(&b'-');
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            if more && lines.len() < MAX_ANSWER_LINES {
                continue;
            }
            return match (more, good.contains(&code)) {
                (true, _) => Err(MailFault::Unreadable),
                (false, true) => Ok(lines),
                (false, false) => Err(MailFault::Refused {
                    step,
                    code,
                    said: told(&lines.join(" ")),
                }),
            };
        }
    }

    /// One line of an answer without its end.
    async fn line(&mut self) -> Result<String, MailFault> {
        let mut bytes = Vec::new();
        let mut bounded = (&mut self.stream).take(MAX_LINE_BYTES);
        bounded.read_until(b'\n', &mut bytes).await?;
        match bytes.ends_with(b"\n") {
            true => Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned()),
            false => Err(MailFault::Unreadable),
        }
    }

    /// The connection, to begin TLS on it. Errors: `Unreadable` where more was said than was asked: it would count as said
    /// behind TLS.
    fn into_stream(self) -> Result<S, MailFault> {
        match self.stream.buffer().is_empty() {
            true => Ok(self.stream.into_inner()),
            false => Err(MailFault::Unreadable),
        }
    }
}

/// What a server said, as people are told: of printable letters, and not long.
fn told(text: &str) -> String {
    let printable = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter });
    printable.take(LETTERS_TOLD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_a_dot_does_not_end_a_message() {
        let message = "a\r\n.\r\n..b\r\nc\r\n";
        assert_eq!(stuffed(message), "a\r\n..\r\n...b\r\nc\r\n.\r\n");
    }

    #[test]
    fn what_a_server_says_is_told_without_its_control_characters() {
        assert_eq!(told("no\u{1b}[2J\r\nwhy"), "no [2J  why");
        assert_eq!(told(&"x".repeat(900)).len(), LETTERS_TOLD);
        assert_eq!(own_name("gpu 01\r\nMAIL"), "gpu01MAIL");
        assert_eq!(own_name("\u{d55c}"), "localhost");
    }
}
