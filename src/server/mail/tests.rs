//! A mail server of the test on loopback, which says what a test tells it to; and what the own side makes of its answers.

use std::net::SocketAddr;
use std::sync::Arc;

use base::settings::{Settings, SettingsLayer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// What the server says to a command instead of what is usual: its first word, or `greeting` and `taken`, and the answer.
pub(crate) type Answers = Vec<(&'static str, &'static str)>;

/// A mail that the server took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TakenMail {
    /// `MAIL FROM:…` and `RCPT TO:…`, as they were said.
    pub(crate) envelope: Vec<String>,
    pub(crate) head: String,
    /// The text out of its base64, with line ends of the system.
    pub(crate) text: String,
}

/// A mail server until the test ends.
pub(crate) struct FakeMailServer {
    pub(crate) address: SocketAddr,
    taken: Arc<Mutex<Vec<TakenMail>>>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl FakeMailServer {
    /// One that gives these answers on its first connections, one list each, and the usual ones behind them.
    pub(crate) async fn start(answers: Vec<Answers>) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), answers).await
    }

    pub(crate) async fn start_at(address: SocketAddr, answers: Vec<Answers>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            taken: Arc::default(),
            heard: Arc::default(),
        };
        let (taken, heard) = (Arc::clone(&server.taken), Arc::clone(&server.heard));
        tokio::spawn(async move {
            let mut answers = answers.into_iter();
            while let Ok((stream, _)) = listener.accept().await {
                let answers = answers.next().unwrap_or_default();
                // A client that goes away ends its own connection alone.
                let _ = talk(stream, &answers, &taken, &heard).await;
            }
        });
        server
    }

    pub(crate) fn taken(&self) -> Vec<TakenMail> {
        self.taken.lock().unwrap().clone()
    }

    /// First words of what was said to it.
    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

async fn talk(
    stream: TcpStream,
    answers: &[(&'static str, &'static str)],
    taken: &Mutex<Vec<TakenMail>>,
    heard: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let said = |word: &str, usual: &'static str| {
        let other = answers.iter().find(|(known, _)| *known == word);
        other.map_or(usual, |(_, answer)| *answer)
    };
    let mut stream = BufReader::new(stream);
    let greeting = said("greeting", "220 mail.test\r\n");
    stream.write_all(greeting.as_bytes()).await?;
    let mut envelope = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let line = line.trim_end().to_owned();
        let word = line.split([' ', ':']).next().unwrap_or_default().to_owned();
        heard.lock().unwrap().push(word.clone());
        let answer = match word.as_str() {
            "EHLO" => said("EHLO", "250-mail.test\r\n250 8BITMIME\r\n"),
            "DATA" => said("DATA", "354 go on\r\n"),
            word => said(word, "250 fine\r\n"),
        };
        if ["MAIL", "RCPT"].contains(&word.as_str()) {
            envelope.push(line);
        }
        stream.write_all(answer.as_bytes()).await?;
        if !answer.starts_with("354") {
            continue;
        }
        let mut message = String::new();
        while !message.ends_with("\r\n.\r\n") {
            if stream.read_line(&mut message).await? == 0 {
                return Ok(());
            }
        }
        let answer = said("taken", "250 queued as 7\r\n");
        if answer.starts_with("250") {
            let (head, body) = message.split_once("\r\n\r\n").unwrap();
            let body = body.trim_end_matches(".\r\n").replace("\r\n", "");
            let text = String::from_utf8(STANDARD.decode(body).unwrap()).unwrap();
            taken.lock().unwrap().push(TakenMail {
                envelope: std::mem::take(&mut envelope),
                head: head.to_owned(),
                text: text.replace("\r\n", "\n"),
            });
        }
        stream.write_all(answer.as_bytes()).await?;
    }
}

fn settings(address: SocketAddr, security: &str) -> Settings {
    let layer = SettingsLayer {
        mail_server: Some(address.to_string()),
        mail_security: Some(security.to_owned()),
        mail_from: Some("fardel@gpu.lab".to_owned()),
        ..SettingsLayer::default()
    };
    Settings::read(layer, |_| None).unwrap()
}

async fn sent(address: SocketAddr, security: &str) -> Result<String, MailFault> {
    let to = EmailAddress::parse("mina@lab.example").unwrap();
    let message = MailMessage {
        to: &to,
        subject: "[gpu] train\r\nBcc: all@lab.example",
        body: "train failed\n.\nRCPT TO:<all@lab.example>\n",
        at: Timestamp::from_millis(1_800_000_000_000),
        id: "7f",
    };
    deliver(&settings(address, security), &message).await
}

/// Nothing in a name makes a header, a recipient or an end: the server hears one mail for one user.
#[tokio::test]
async fn one_mail_goes_to_one_user_for_any_words() {
    let server = FakeMailServer::start(Vec::new()).await;
    assert_eq!(sent(server.address, "none").await.unwrap(), "queued as 7");
    let taken = server.taken();
    assert_eq!(taken.len(), 1);
    let envelope = [
        "MAIL FROM:<fardel@gpu.lab>".to_owned(),
        "RCPT TO:<mina@lab.example>".to_owned(),
    ];
    assert_eq!(taken[0].envelope, envelope);
    assert!(!taken[0].head.contains("\r\nBcc"), "{}", taken[0].head);
    let text = "train failed\n.\nRCPT TO:<all@lab.example>\n";
    assert_eq!(taken[0].text, text);
    let heard = server.heard();
    assert_eq!(heard[..4], ["EHLO", "MAIL", "RCPT", "DATA"]);
}

/// What a server says of a mail that it took goes into the journal and onto terminals: short, and without control characters.
#[tokio::test]
async fn an_answer_is_told_short_and_printable() {
    let answer = "250 queued \u{1b}]0;x\u{7}7\r\n";
    let server = FakeMailServer::start(vec![vec![("taken", answer)]]).await;
    let said = sent(server.address, "none").await;
    assert_eq!(said.unwrap(), "queued  ]0;x 7");
    let lines = format!("250-{}\r\n", "x".repeat(1_000)).repeat(9);
    let answer: &'static str = Box::leak(format!("{lines}250 done\r\n").into_boxed_str());
    let server = FakeMailServer::start(vec![vec![("taken", answer)]]).await;
    let said = sent(server.address, "none").await;
    assert_eq!(said.unwrap().len(), 200);
}

/// A server without STARTTLS, and one that refuses it, hear nothing of the mail.
#[tokio::test]
async fn without_tls_nothing_is_said_of_a_mail() {
    let offered = "250-mail.test\r\n250 STARTTLS\r\n";
    for (answers, expected) in [
        (vec![], "It offers no STARTTLS."),
        (
            vec![("EHLO", offered), ("STARTTLS", "454 not now\r\n")],
            "It answered STARTTLS with 454 not now",
        ),
        (
            vec![
                ("EHLO", offered),
                ("STARTTLS", "220 go\r\n250 said before\r\n"),
            ],
            "The answer cannot be read: SMTP",
        ),
    ] {
        let server = FakeMailServer::start(vec![answers]).await;
        let fault = sent(server.address, "starttls").await.unwrap_err();
        assert_eq!(fault.to_string(), expected);
        assert_eq!(fault.concerns(), RefusedFor::All);
        assert!(!server.heard().contains(&"MAIL".to_owned()));
        assert!(server.taken().is_empty());
    }
}

#[tokio::test]
async fn a_refusal_concerns_the_mail_or_the_server() {
    for (word, answer, expected) in [
        ("RCPT", "450 later\r\n", RefusedFor::MailForNow),
        ("RCPT", "550 unknown\r\n", RefusedFor::MailForGood),
        ("RCPT", "421 closing\r\n", RefusedFor::All),
        ("RCPT", "530 sign in first\r\n", RefusedFor::All),
        ("MAIL", "550 who are you\r\n", RefusedFor::All),
        ("taken", "554 spam\r\n", RefusedFor::MailForGood),
        (
            "taken",
            "451-wait\r\n451 please\r\n",
            RefusedFor::MailForNow,
        ),
        ("greeting", "HTTP/1.1 400 no\r\n", RefusedFor::All),
        ("greeting", "554 go away\r\n", RefusedFor::All),
    ] {
        let server = FakeMailServer::start(vec![vec![(word, answer)]]).await;
        let fault = sent(server.address, "none").await.unwrap_err();
        assert_eq!(fault.concerns(), expected, "{word} {answer}: {fault}");
        assert!(server.taken().is_empty());
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let dead = listener.local_addr().unwrap();
    drop(listener);
    let fault = sent(dead, "none").await.unwrap_err();
    assert_eq!(fault.concerns(), RefusedFor::All, "{fault}");
}
