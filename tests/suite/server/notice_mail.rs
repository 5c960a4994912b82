//! Notices on their way out of a whole server by mail: a session fails, and its owner reads so in a mail that says what their
//! notices in the console say.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::the_box::TheBox;

/// Longer than all waits of the product together on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Recipients and texts of the mails that were taken.
type Taken = Arc<Mutex<Vec<(String, String)>>>;

async fn take(stream: TcpStream, taken: &Taken) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    stream.write_all(b"220 mail.test\r\n").await?;
    let mut recipient = String::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let answer: &[u8] = if line.starts_with("RCPT TO:") {
            line.trim_end().clone_into(&mut recipient);
            b"250 fine\r\n"
        } else if line.starts_with("DATA") {
            b"354 go on\r\n"
        } else {
            b"250 fine\r\n"
        };
        stream.write_all(answer).await?;
        if !answer.starts_with(b"354") {
            continue;
        }
        let mut message = String::new();
        while !message.ends_with("\r\n.\r\n") {
            if stream.read_line(&mut message).await? == 0 {
                return Ok(());
            }
        }
        let (_, body) = message.split_once("\r\n\r\n").expect("a body");
        let body = body.trim_end_matches(".\r\n").replace("\r\n", "");
        let text = STANDARD.decode(body).expect("base64");
        let text = String::from_utf8(text).expect("UTF-8");
        let mail = (std::mem::take(&mut recipient), text);
        taken.lock().expect("whole").push(mail);
        stream.write_all(b"250 queued\r\n").await?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_of_a_failed_session_is_told_by_mail_and_no_other_user_is() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let taken = Taken::default();
    let receiver = Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = take(stream, &receiver).await;
        }
    });
    let address: &'static str = Box::leak(address.into_boxed_str());
    let settings: &'static [(&str, &str)] = Box::leak(Box::new([
        ("FARDEL_MAIL_SERVER", address),
        ("FARDEL_MAIL_SECURITY", "none"),
        ("FARDEL_MAIL_FROM", "fardel@gpu.lab"),
        ("FARDEL_MAIL_ORIGIN", "https://gpu.lab"),
    ]));
    let the_box = TheBox::with(settings, Vec::new()).await;
    let house = tokio::spawn(server::keep_house(&the_box.server));
    for name in ["mina", "jae"] {
        let body = json!({"email": format!("{name}@lab.example")}).to_string();
        let path = format!("/api/v1/users/{name}");
        let request = TheBox::request(&the_box.admin, "PATCH", &path)
            .header("content-type", "application/json")
            .header("if-match", "*")
            .body(Body::from(body))
            .expect("a request");
        let set = the_box.send(request).await;
        assert_eq!(set.status, 200, "{}", set.short());
    }
    let trial = json!({"address": "ada@lab.example"});
    let trial = the_box
        .post(&the_box.admin, "/api/v1/mail/test", trial)
        .await;
    assert_eq!(trial.json()["works"], true, "{}", trial.json());
    // What happened before the server first looked is not mailed: another one fails until a mail comes.
    let began = Instant::now();
    let failed = |taken: &Taken| {
        let taken = taken.lock().expect("whole");
        taken.iter().any(|(_, text)| text.contains("failed"))
    };
    let mut number = 0;
    while !failed(&taken) {
        assert!(began.elapsed() < TIMEOUT, "{:?}", taken.lock());
        number += 1;
        let name = format!("fails-{number}");
        let launch = json!({"name": name, "kind": "batch", "command": ["exit", "3"]});
        the_box.launch(&the_box.mina, launch).await;
        the_box.until(&the_box.mina, &name, "ended").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let mails = taken.lock().expect("whole").clone();
    for (recipient, text) in &mails {
        match recipient.as_str() {
            "RCPT TO:<mina@lab.example>" => {
                assert!(text.contains("https://gpu.lab/sessions/"), "{text}");
                assert!(text.contains("https://gpu.lab/me"), "{text}");
            }
            "RCPT TO:<ada@lab.example>" => assert!(!text.contains("fails-"), "{text}"),
            other => panic!("{other} got {text}"),
        }
    }
    let status = the_box.get(&the_box.admin, "/api/v1/mail").await.json();
    assert_eq!(
        (&status["lost"], &status["problem"]),
        (&json!(0), &json!(""))
    );
    house.abort();
}
