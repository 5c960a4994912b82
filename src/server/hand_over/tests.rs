//! The audit log on its way to places that take it, are dead, answer with errors, or come back.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base::observe::Clock;
use base::settings::SettingsSources;
use rules::tenancy::Scope;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::catalog::audit::{ActingUser, CheckpointRow, NewAct};

pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

/// A server with these settings and a few acts.
fn with(folder: &Path, settings: &str) -> Server {
    let file = folder.join("fardel.toml");
    std::fs::write(&file, settings).unwrap();
    let file = file.display().to_string();
    let sources = SettingsSources::new(Default::default(), move |name| {
        (name == "FARDEL_CONFIG").then(|| file.clone())
    });
    let clock = Clock::set_by_hand(Timestamp::from_millis(1_800_000_000_000));
    let server = Server::in_memory(sources.read().unwrap(), clock).unwrap();
    acts(&server, 3);
    server
}

fn acts(server: &Server, count: usize) {
    server
        .catalog()
        .write_now(Lane::Requests, "some acts", move |rows| {
            for _ in 0..count {
                rows.record(NewAct {
                    actor: ActingUser::Unauthenticated,
                    act: "test.act",
                    topic: "system",
                    object: "x",
                    scope: Scope::SITE,
                    before: "",
                    after: "",
                    reason: "",
                })?;
            }
            Ok(())
        })
        .unwrap();
}

fn newest(server: &Server) -> u64 {
    let read = server
        .catalog()
        .read_now("newest", |view| view.newest_act());
    read.unwrap().0
}

/// Forgets rows as retention does.
fn forget_up_to(server: &Server, sequence: u64) {
    let now = server.clock().now();
    server
        .catalog()
        .write_now(Lane::Loops, "forget some acts", move |rows| {
            rows.put_checkpoint(&CheckpointRow {
                sequence,
                at: now,
                hash: [0; 32],
                statement: String::new(),
                signature: vec![1],
            })?;
            rows.forget_acts(now.plus_seconds(1), 1_000)
        })
        .unwrap();
}

async fn all(server: &Server, target: AuditTarget) {
    while hand_over(server, target, MAX_BATCH_ROWS).await.unwrap() == Handed::Part {}
}

fn only_standing(server: &Server) -> TargetStanding {
    let mut all = standings(server).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn numbers<'a>(statements: impl Iterator<Item = &'a str>) -> Vec<u64> {
    statements
        .map(|text| {
            let told: serde_json::Value = serde_json::from_str(text).unwrap();
            told["sequence"].as_u64().unwrap()
        })
        .collect()
}

/// Reads frames with their lengths in front, and closes behind the last.
async fn syslog_receiver(listener: TcpListener, seen: Seen) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let mut rest = text.as_str();
        while let Some((length, behind)) = rest.split_once(' ') {
            let (message, next) = behind.split_at(length.parse().unwrap());
            seen.lock().unwrap().push(message.to_owned());
            rest = next;
        }
    }
}

/// Answers one request for each of `answers`.
pub(crate) async fn web_receiver(listener: TcpListener, answers: Vec<&'static str>, seen: Seen) {
    for answer in answers {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = String::new();
        let mut piece = [0; 4096];
        loop {
            let count = stream.read(&mut piece).await.unwrap();
            text.push_str(std::str::from_utf8(&piece[..count]).unwrap());
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head.lines().find_map(|line| {
                let line = line.to_ascii_lowercase();
                line.strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length.unwrap() {
                break;
            }
        }
        seen.lock().unwrap().push(text);
        let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// A receiver that was dead gets every row in order once it is back, in batches, and none twice.
#[tokio::test]
async fn a_dead_receiver_gets_every_row_in_order_once_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let text = format!("audit_to_syslog = 'tcp://{address}'\n");
    let server = with(folder.path(), &text);
    acts(&server, 2 * MAX_BATCH_ROWS as usize);
    let target = AuditTarget::Syslog;
    assert!(hand_over(&server, target, MAX_BATCH_ROWS).await.is_err());
    let standing = only_standing(&server);
    assert_eq!(standing.place, format!("tcp://{address}"));
    assert_eq!((standing.delivered, standing.waiting), (0, newest(&server)));
    let seen = Seen::default();
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(syslog_receiver(listener, Arc::clone(&seen)));
    assert_eq!(
        hand_over(&server, target, MAX_BATCH_ROWS).await.unwrap(),
        Handed::Part
    );
    all(&server, target).await;
    acts(&server, 1);
    all(&server, target).await;
    let messages = seen.lock().unwrap().clone();
    let texts = messages
        .iter()
        .map(|message| message.split_once('\u{feff}').unwrap().1);
    let expected: Vec<u64> = (1..=newest(&server)).collect();
    assert_eq!(numbers(texts), expected);
    let standing = only_standing(&server);
    assert_eq!(
        (standing.delivered, standing.waiting, standing.lost),
        (newest(&server), 0, 0)
    );
    assert!(standing.delivered_at.is_some());
}

/// A receiver that takes connections and closes them at once has no row: a full one, or a program in front of a dead one.
#[tokio::test]
async fn a_receiver_that_closes_at_once_has_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!("audit_to_syslog = 'tcp://{address}'\n");
    let server = with(folder.path(), &text);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream);
        }
    });
    // It closes before the rows are on their way, or behind them.
    for _ in 0..20 {
        assert!(
            hand_over(&server, AuditTarget::Syslog, MAX_BATCH_ROWS)
                .await
                .is_err()
        );
    }
    assert_eq!(only_standing(&server).delivered, 0);
}

/// What retention removes before a place has it is counted while the place is dead, and known afterwards.
#[tokio::test]
async fn rows_that_are_forgotten_before_a_place_has_them_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let later = folder.path().join("later");
    let file = later.join("audit.jsonl");
    let text = format!("audit_to_file = '{}'\n", file.display());
    let server = with(folder.path(), &text);
    acts(&server, 10);
    let target = AuditTarget::File;
    assert!(hand_over(&server, target, MAX_BATCH_ROWS).await.is_err());
    forget_up_to(&server, 4);
    let standing = only_standing(&server);
    assert_eq!((standing.waiting, standing.lost), (newest(&server) - 4, 4));
    assert!(standing.has_lost_lately);
    std::fs::create_dir(&later).unwrap();
    all(&server, target).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let expected: Vec<u64> = (5..=newest(&server)).collect();
    assert_eq!(numbers(text.lines()), expected);
    assert_eq!(only_standing(&server).lost, 4);
    // It had these.
    forget_up_to(&server, 6);
    let standing = only_standing(&server);
    assert_eq!((standing.lost, standing.has_lost_lately), (4, true));
    // A week later the count stands, and is no news any more.
    let clock = server.clock();
    clock.set(clock.now().plus_seconds(LOSS_TOLD_SECONDS - 1));
    assert!(only_standing(&server).has_lost_lately);
    clock.set(clock.now().plus_seconds(1));
    let standing = only_standing(&server);
    assert_eq!((standing.lost, standing.has_lost_lately), (4, false));
    // Until more is lost.
    std::fs::remove_dir_all(&later).unwrap();
    acts(&server, 2);
    assert!(hand_over(&server, target, MAX_BATCH_ROWS).await.is_err());
    forget_up_to(&server, newest(&server) - 1);
    let standing = only_standing(&server);
    assert_eq!((standing.lost, standing.has_lost_lately), (5, true));
}

/// Rows are posted again until a status says that they were taken; the token stands in a header, and in a file that only
/// its owner may read.
#[tokio::test]
async fn rows_are_posted_until_a_status_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "of the test\n").unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o600);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!(
        "audit_to_http = 'http://{address}/take?by=me'\naudit_token_file = '{}'\n",
        token.display()
    );
    let server = with(folder.path(), &text);
    let seen = Seen::default();
    let answers = vec!["500 No", "302 Found", "204 Taken", "200 Fine"];
    tokio::spawn(web_receiver(listener, answers, Arc::clone(&seen)));
    let target = AuditTarget::Http;
    for status in [500, 302] {
        let fault = hand_over(&server, target, MAX_BATCH_ROWS)
            .await
            .unwrap_err();
        assert!(matches!(fault, HandOverFault::Status(wrong) if wrong == status));
        assert_eq!(only_standing(&server).delivered, 0);
    }
    all(&server, target).await;
    let standing = only_standing(&server);
    assert_eq!(standing.place, format!("http://{address}"));
    assert_eq!(standing.delivered, newest(&server));
    let works = Ok("status 200".to_owned());
    assert_eq!(tried(&server).await, [(target, works)]);
    let requests = seen.lock().unwrap().clone();
    assert_eq!(requests[0], requests[2], "the same rows come again");
    let (head, body) = requests[2].split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /take?by=me HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nauthorization: Bearer of the test"));
    let expected: Vec<u64> = (1..=newest(&server)).collect();
    assert_eq!(numbers(body.lines()), expected);
    mode(0o640);
    acts(&server, 1);
    let fault = hand_over(&server, target, MAX_BATCH_ROWS)
        .await
        .unwrap_err();
    assert!(matches!(fault, HandOverFault::File(_)), "{fault}");
}

/// A file is opened, a socket takes a datagram, and of a name that is not known that is said.
#[tokio::test]
async fn a_trial_says_what_comes_back_of_each_place() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("log");
    let log = tokio::net::UnixDatagram::bind(&socket).unwrap();
    let file = folder.path().join("audit.jsonl");
    let text = format!(
        "audit_to_syslog = 'unix://{}'\naudit_to_http = 'https://not-in-hosts.test'\n\
         audit_to_file = '{}'\n",
        socket.display(),
        file.display()
    );
    let server = with(folder.path(), &text);
    let said = tried(&server).await;
    assert_eq!(said[0].1, Ok("can be written".to_owned()));
    let datagrams = "sent; datagrams are not confirmed".to_owned();
    assert_eq!(said[1].1, Ok(datagrams));
    let unknown = HandOverFault::Unknown.to_string();
    assert_eq!(said[2].1, Err(unknown));
    let mut trial = [0; 512];
    let count = log.recv(&mut trial).await.unwrap();
    let trial = String::from_utf8_lossy(&trial[..count]).into_owned();
    assert!(trial.ends_with("fardel config test"), "{trial}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    all(&server, AuditTarget::Syslog).await;
    let mut first = [0; 4096];
    let count = log.recv(&mut first).await.unwrap();
    let first = String::from_utf8_lossy(&first[..count]).into_owned();
    assert!(first.contains(" sequence=\"1\" "), "{first}");
}

#[test]
fn pauses_grow_to_a_minute() {
    let seconds = |failures| pause(failures).as_secs();
    assert_eq!([1, 2, 3, 6, 7].map(seconds), [1, 2, 4, 32, 60]);
    assert_eq!(seconds(u32::MAX), 60);
}

#[test]
fn batches_shrink_for_a_slow_receiver_and_grow_again() {
    let late = || Err(HandOverFault::Late);
    assert_eq!(rows_after(MAX_BATCH_ROWS, &late()), MAX_BATCH_ROWS / 2);
    assert_eq!(rows_after(1, &late()), 1);
    assert_eq!(rows_after(1, &Ok(Handed::Part)), 11);
    assert_eq!(rows_after(MAX_BATCH_ROWS, &Ok(Handed::All)), MAX_BATCH_ROWS);
    assert_eq!(rows_after(50, &Err(HandOverFault::Unknown)), 50);
}
