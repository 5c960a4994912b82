//! Notices on their way to readers by mail: what goes to whom, and what becomes of it while the mail server is dead or refuses.

use std::sync::Arc;

use api::mail::MailChoicesBody;
use base::settings::SettingsLayer;
use rules::tenancy::Scope;
use rules::users::Role;

use super::*;
use crate::actions::mail::{MailText, MailWriter};
use crate::catalog::events::NewEvent;
use crate::catalog::mail::{FailedMail, MAX_FAILED_MAIL, MAX_WAITING_MAIL, MAX_WAITING_OF_USER};
use crate::mail::tests::{Answers, FakeMailServer};

/// Says the key, the kind and the name of each notice, a line each.
struct PlainWriter;

impl MailWriter for PlainWriter {
    fn of_notices(&self, _: &MailReader<'_>, all: &[OwnNotice], more: usize) -> MailText {
        let lines = all.iter().map(|notice| {
            let name = notice.name.clone().unwrap_or_default();
            format!("{} {} {name}\n", notice.key, notice.topic().word())
        });
        MailText {
            subject: format!("{} and {more}", all.len()),
            body: lines.collect(),
        }
    }

    fn trial(&self, _: &MailReader<'_>) -> MailText {
        MailText {
            subject: "test".to_owned(),
            body: "test\n".to_owned(),
        }
    }
}

fn server_with(address: std::net::SocketAddr) -> Server {
    let layer = SettingsLayer {
        mail_server: Some(address.to_string()),
        mail_security: Some("none".to_owned()),
        mail_from: Some("fardel@gpu.lab".to_owned()),
        ..SettingsLayer::default()
    };
    let server = Server::for_tests_with(layer);
    server.bring_mail_writer(Arc::new(PlainWriter));
    server
}

/// A user with an address; the caller as whom they choose.
fn user(server: &Server, name: &str) -> Caller {
    let address = EmailAddress::parse(&format!("{name}@lab.example")).unwrap();
    let name = rules::names::UserName::parse(name).unwrap();
    let now = server.clock().now();
    let user = rules::users::User {
        email: Some(address),
        ..access::new_user(name, Role::User, now)
    };
    let written = user.clone();
    server
        .catalog()
        .write_now(Lane::Requests, "a user", move |rows| {
            rows.insert_user(&written, "!")
        })
        .unwrap();
    access::reader(&user, now)
}

fn happened(server: &Server, owner: UserId, code: &'static str, times: usize) {
    server
        .catalog()
        .write_now(Lane::Loops, "note", move |rows| {
            for _ in 0..times {
                rows.note_alone(NewEvent {
                    actor: "node",
                    topic: "sessions",
                    object: "x",
                    scope: Scope {
                        owner: Some(owner),
                        ..Scope::SITE
                    },
                    code,
                    before: "",
                    after: "",
                })?;
            }
            Ok(())
        })
        .unwrap();
}

async fn choose(server: &Server, caller: &Caller, topics: &[NoticeTopic]) {
    let wanted = MailChoicesBody {
        kinds: Some(topics.to_vec()),
    };
    crate::actions::mail::choose(server, caller, wanted)
        .await
        .unwrap();
}

fn later(server: &Server, seconds: u64) {
    let now = server.clock().now();
    server.clock().set(now.plus_seconds(seconds));
}

async fn send_all(server: &Server) {
    while send_next(server).await.unwrap() == Sent::Part {}
}

fn waiting(server: &Server) -> u64 {
    let read = server
        .catalog()
        .read_now("count", |view| view.waiting_mail());
    read.unwrap()
}

fn lost(server: &Server) -> u64 {
    let read = server
        .catalog()
        .read_now("look", |view| view.output_progress(NoticeOutput::Mail));
    read.unwrap().unwrap().lost
}

/// Each reader gets what they chose of their own notices, in one mail and once; what happened before the mail server was set
/// is not mailed, and what they read in the console neither.
#[tokio::test]
async fn each_reader_gets_what_they_chose_of_their_own_once() {
    let fake = FakeMailServer::start(Vec::new()).await;
    let server = server_with(fake.address);
    let (mina, jae) = (user(&server, "mina"), user(&server, "jae"));
    happened(&server, mina.subject.user, "session.running", 1);
    gather(&server).await.unwrap();
    choose(&server, &mina, &[NoticeTopic::Started]).await;
    choose(&server, &jae, &[]).await;
    happened(&server, mina.subject.user, "session.running", 2);
    happened(&server, mina.subject.user, "session.gpu-warned", 1);
    happened(&server, jae.subject.user, "session.running", 1);
    gather(&server).await.unwrap();
    let (revision, _) = server.catalog().state_version();
    gather(&server).await.unwrap();
    let (newest, _) = server.catalog().state_version();
    assert_eq!(
        revision, newest,
        "a look that finds nothing new commits nothing"
    );
    assert_eq!(waiting(&server), 2);
    send_all(&server).await;
    let taken = fake.taken();
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!(taken[0].envelope[1], "RCPT TO:<mina@lab.example>");
    assert_eq!(taken[0].text.matches(" started ").count(), 2);
    assert!(!taken[0].text.contains("gpu-warned"), "{}", taken[0].text);
    gather(&server).await.unwrap();
    send_all(&server).await;
    assert_eq!(fake.taken().len(), 1, "none comes twice");
    happened(&server, mina.subject.user, "session.running", 1);
    notices::mark_read(&server, &mina).await.unwrap();
    gather(&server).await.unwrap();
    assert_eq!(waiting(&server), 0, "they know it");
}

/// What a user has to know of what is theirs is mailed when it happens, and not with the next thing that happens to them.
#[tokio::test]
async fn what_concerns_an_account_is_mailed_when_it_happens() {
    let fake = FakeMailServer::start(Vec::new()).await;
    let server = server_with(fake.address);
    let mina = user(&server, "mina");
    gather(&server).await.unwrap();
    for (code, kind) in [
        ("folder.break-glass", " break-glass "),
        ("user.signed-in-elsewhere", " sign-in "),
        ("user.limit-declined", " budget "),
    ] {
        let before = fake.taken().len();
        happened(&server, mina.subject.user, code, 1);
        // One mail a minute is enough for a reader.
        later(&server, 120);
        gather(&server).await.unwrap();
        send_all(&server).await;
        let taken = fake.taken();
        assert_eq!(taken.len(), before + 1, "{code}");
        assert!(taken[before].text.contains(kind), "{}", taken[before].text);
    }
    // Who signed in with a stolen password reads the notices first: of that their user is mailed all the same.
    for (code, more) in [("user.limit-declined", 0), ("user.signed-in-elsewhere", 1)] {
        let before = fake.taken().len();
        happened(&server, mina.subject.user, code, 1);
        notices::mark_read(&server, &mina).await.unwrap();
        later(&server, 120);
        gather(&server).await.unwrap();
        send_all(&server).await;
        assert_eq!(fake.taken().len(), before + more, "{code}");
    }
}

/// A folder that is offered waits for an answer, so who is asked is mailed, and its owner is not.
#[tokio::test]
async fn a_user_who_is_offered_a_folder_is_mailed() {
    use crate::actions::folders::{self, sharing};
    let fake = FakeMailServer::start(Vec::new()).await;
    let server = server_with(fake.address);
    let (mina, jae) = (user(&server, "mina"), user(&server, "jae"));
    gather(&server).await.unwrap();
    choose(&server, &mina, &[NoticeTopic::Storage]).await;
    choose(&server, &jae, &[NoticeTopic::Storage]).await;
    let folder = api::folders::NewFolderBody {
        name: "data".to_owned(),
        volume: None,
        project: None,
        members: None,
    };
    folders::create(&server, &mina, folder, None).await.unwrap();
    let asked = api::folders::NewFolderShareBody {
        user: Some("jae".to_owned()),
        ..Default::default()
    };
    sharing::create(&server, &mina, "data", asked, None)
        .await
        .unwrap();
    gather(&server).await.unwrap();
    send_all(&server).await;
    let taken = fake.taken();
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!(taken[0].envelope[1], "RCPT TO:<jae@lab.example>");
    assert!(taken[0].text.contains("storage data"), "{}", taken[0].text);
}

/// What a mail says is read when it is sent: of what its reader may not see any more nothing is said, and no
/// notice of another user is ever in it.
#[tokio::test]
async fn no_mail_names_what_its_reader_may_not_see() {
    let fake = FakeMailServer::start(Vec::new()).await;
    let server = server_with(fake.address);
    let (mina, jae) = (user(&server, "mina"), user(&server, "jae"));
    gather(&server).await.unwrap();
    choose(&server, &mina, &NoticeTopic::ALL).await;
    choose(&server, &jae, &NoticeTopic::ALL).await;
    happened(&server, jae.subject.user, "session.running", 1);
    gather(&server).await.unwrap();
    // A row that names another's notice, as a fault of the queue would: it finds nothing to say.
    let (theirs, stolen) = server
        .catalog()
        .read_now("look", |view| {
            let due = view.due_mail(server.clock().now())?.expect("one is due");
            let key = due.keys.first().cloned().expect("a key");
            Ok((due.user, key))
        })
        .unwrap();
    assert_eq!(theirs, jae.subject.user);
    let planted = NewMailNotice {
        user: mina.subject.user,
        key: stolen,
        topic: NoticeTopic::Started,
    };
    server
        .catalog()
        .write_now(Lane::Loops, "plant", move |rows| {
            rows.queue_mail(&[planted])
        })
        .unwrap();
    send_all(&server).await;
    let taken = fake.taken();
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!(taken[0].envelope[1], "RCPT TO:<jae@lab.example>");
    assert_eq!((waiting(&server), lost(&server)), (0, 0));
}

#[tokio::test]
async fn mail_waits_for_a_dead_server_and_what_is_too_much_is_counted() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let server = server_with(address);
    let mina = user(&server, "mina");
    gather(&server).await.unwrap();
    choose(&server, &mina, &[NoticeTopic::Started]).await;
    happened(&server, mina.subject.user, "session.running", 3);
    gather(&server).await.unwrap();
    let fault = send_next(&server).await.unwrap_err();
    assert_eq!(fault.concerns(), RefusedFor::All, "{fault}");
    assert_eq!((waiting(&server), lost(&server)), (3, 0));
    note(&server, &fault);
    let root = access::local_root(&server);
    let status = crate::actions::mail::status(&server, &root);
    let status = status.await.unwrap();
    assert_eq!((status.waiting, status.lost), (3, 0));
    assert!(!status.problem.is_empty());
    // It is back, at the same place, as a trial shows.
    let back = FakeMailServer::start_at(address, Vec::new()).await;
    let asked = api::mail::MailTestBody {
        address: "ada@lab.example".to_owned(),
    };
    let root = access::local_root(&server);
    let trial = crate::actions::mail::test(&server, &root, asked).await;
    assert!(trial.unwrap().works);
    assert_eq!(server.mail().trouble(), None);
    send_all(&server).await;
    assert_eq!(back.taken().len(), 2);
    assert_eq!(waiting(&server), 0);
    // More than are kept of one user, then too old.
    let many: Vec<NewMailNotice> = (0..MAX_WAITING_OF_USER + 5)
        .map(|number| NewMailNotice {
            user: mina.subject.user,
            key: format!("many {number}"),
            topic: NoticeTopic::Started,
        })
        .collect();
    server
        .catalog()
        .write_now(Lane::Loops, "queue", move |rows| rows.queue_mail(&many))
        .unwrap();
    assert_eq!((waiting(&server), lost(&server)), (MAX_WAITING_OF_USER, 5));
    later(&server, 73 * 3_600);
    age(&server).await.unwrap();
    assert_eq!(waiting(&server), 0);
    assert_eq!(lost(&server), MAX_WAITING_OF_USER + 5);
}

/// A mail that is refused for now is tried again later and delays no other; one that is refused for good is kept with
/// the reason, and goes out when an administrator says so.
#[tokio::test]
async fn a_refused_mail_is_tried_again_and_delays_no_other() {
    let not_now: Answers = vec![("RCPT", "450 later\r\n")];
    let never: Answers = vec![("RCPT", "550 unknown\r\n")];
    let fake = FakeMailServer::start(vec![not_now, Vec::new(), Vec::new(), never]).await;
    let server = server_with(fake.address);
    let (mina, jae) = (user(&server, "mina"), user(&server, "jae"));
    gather(&server).await.unwrap();
    choose(&server, &mina, &[NoticeTopic::Started]).await;
    choose(&server, &jae, &[NoticeTopic::Started]).await;
    happened(&server, mina.subject.user, "session.running", 1);
    happened(&server, jae.subject.user, "session.running", 1);
    gather(&server).await.unwrap();
    send_all(&server).await;
    assert_eq!((fake.taken().len(), waiting(&server)), (1, 1));
    later(&server, 6);
    send_all(&server).await;
    assert_eq!((fake.taken().len(), waiting(&server)), (2, 0));
    later(&server, 60);
    happened(&server, jae.subject.user, "session.running", 1);
    gather(&server).await.unwrap();
    send_all(&server).await;
    assert_eq!((fake.taken().len(), waiting(&server)), (2, 0));
    let root = access::local_root(&server);
    let status = crate::actions::mail::status(&server, &root);
    let status = status.await.unwrap();
    assert_eq!((status.failed, status.lost), (1, 0));
    assert!(status.failure.contains("550 unknown"), "{}", status.failure);
    let retried = crate::actions::mail::retry(&server, &root).await.unwrap();
    assert_eq!((retried.failed, retried.waiting), (0, 1));
    assert_eq!(retried.failure, "");
    send_all(&server).await;
    assert_eq!((fake.taken().len(), waiting(&server)), (3, 0));
}

/// Has the mail server refuse so many notices for good, of each of these users in turn.
fn refuse(server: &Server, owners: Vec<UserId>, count: u64) {
    server
        .catalog()
        .write_now(Lane::Loops, "refuse", move |rows| {
            for (number, owner) in (0..count).zip(owners.iter().copied().cycle()) {
                let key = format!("refused {number}");
                rows.queue_mail(&[NewMailNotice {
                    user: owner,
                    key: key.clone(),
                    topic: NoticeTopic::Started,
                }])?;
                let due = DueMail {
                    user: owner,
                    keys: BTreeSet::from([key]),
                    tries: 0,
                };
                rows.fail_mail(&due, "550 relaying denied")?;
            }
            Ok(())
        })
        .unwrap();
}

fn failed(server: &Server) -> FailedMail {
    let read = server
        .catalog()
        .read_now("count", |view| view.failed_mail());
    read.unwrap()
}

/// What is refused for good is kept in bounds and for three days.
#[tokio::test]
async fn so_much_refused_mail_is_kept_and_what_is_more_is_counted() {
    let fake = FakeMailServer::start(Vec::new()).await;
    let server = server_with(fake.address);
    let owners = (0..6).map(|number| user(&server, &format!("user{number}")).subject.user);
    let owners: Vec<UserId> = owners.collect();
    gather(&server).await.unwrap();
    let refused = MAX_FAILED_MAIL + 5;
    refuse(&server, owners, refused);
    assert_eq!((failed(&server).count, lost(&server)), (MAX_FAILED_MAIL, 5));
    assert_eq!(failed(&server).why, "550 relaying denied");
    later(&server, 73 * 3_600);
    age(&server).await.unwrap();
    assert_eq!((failed(&server).count, lost(&server)), (0, refused));
}

/// A user whose address is wrong takes no room of others, neither refused nor queued again.
#[tokio::test]
async fn refused_mail_of_one_user_has_its_own_bound() {
    let fake = FakeMailServer::start(Vec::new()).await;
    let server = server_with(fake.address);
    let mina = user(&server, "mina");
    gather(&server).await.unwrap();
    refuse(&server, vec![mina.subject.user], MAX_WAITING_OF_USER + 5);
    assert_eq!(
        (failed(&server).count, lost(&server)),
        (MAX_WAITING_OF_USER, 5)
    );
    let new = NewMailNotice {
        user: mina.subject.user,
        key: "new".to_owned(),
        topic: NoticeTopic::Started,
    };
    server
        .catalog()
        .write_now(Lane::Loops, "queue", move |rows| rows.queue_mail(&[new]))
        .unwrap();
    let root = access::local_root(&server);
    let retried = crate::actions::mail::retry(&server, &root).await.unwrap();
    assert_eq!((retried.failed, retried.waiting), (0, MAX_WAITING_OF_USER));
    assert_eq!(lost(&server), 6);
}

/// A teacher who tells a class something over and over takes no room from what another user has to know.
#[tokio::test]
async fn notices_of_courses_are_given_up_before_all_others() {
    let server = Server::for_tests();
    let queue = |notices: Vec<NewMailNotice>| {
        let catalog = server.catalog();
        let queued = catalog.write_now(Lane::Loops, "queue", move |rows| rows.queue_mail(&notices));
        queued.unwrap();
    };
    let notice = |user: UserId, number: u64, topic| NewMailNotice {
        user,
        key: format!("event {number}"),
        topic,
    };
    let mina = user(&server, "mina").subject.user;
    queue(vec![notice(mina, 1, NoticeTopic::Failed)]);
    later(&server, 1);
    for number in 0..=MAX_WAITING_MAIL / MAX_WAITING_OF_USER {
        let student = user(&server, &format!("s{number}")).subject.user;
        let told = (0..MAX_WAITING_OF_USER).map(|at| notice(student, at, NoticeTopic::Course));
        queue(told.collect());
    }
    assert_eq!(waiting(&server), MAX_WAITING_MAIL);
    let now = server.clock().now();
    let due = server
        .catalog()
        .read_now("look", |view| view.due_mail(now))
        .unwrap();
    assert_eq!(due.map(|due| due.user), Some(mina), "the oldest is hers");
}

/// Sessions that start without pause make a mail a minute, not one each.
#[tokio::test]
async fn a_user_floods_no_mail_server() {
    let fake = FakeMailServer::start(Vec::new()).await;
    let server = server_with(fake.address);
    let mina = user(&server, "mina");
    gather(&server).await.unwrap();
    choose(&server, &mina, &[NoticeTopic::Started]).await;
    for _ in 0..30 {
        happened(&server, mina.subject.user, "session.running", 1);
        gather(&server).await.unwrap();
        send_all(&server).await;
        later(&server, 2);
    }
    assert_eq!((fake.taken().len(), waiting(&server)), (1, 29));
    later(&server, 2);
    send_all(&server).await;
    let taken = fake.taken();
    assert_eq!((taken.len(), waiting(&server)), (2, 0));
    assert_eq!(taken[1].text.matches(" started ").count(), 20);
}

/// A server that hangs up at one mail is not asked for it first again: another user's goes before.
#[tokio::test]
async fn a_mail_that_the_server_hangs_up_at_holds_no_other() {
    let hangs_up: Answers = vec![("DATA", "nonsense\r\n")];
    let fake = FakeMailServer::start(vec![hangs_up]).await;
    let server = server_with(fake.address);
    let (mina, jae) = (user(&server, "mina"), user(&server, "jae"));
    gather(&server).await.unwrap();
    choose(&server, &mina, &[NoticeTopic::Started]).await;
    choose(&server, &jae, &[NoticeTopic::Started]).await;
    happened(&server, mina.subject.user, "session.running", 1);
    gather(&server).await.unwrap();
    later(&server, 1);
    happened(&server, jae.subject.user, "session.running", 1);
    gather(&server).await.unwrap();
    later(&server, 1);
    let fault = send_next(&server).await.unwrap_err();
    assert_eq!(fault.concerns(), RefusedFor::All, "{fault}");
    send_next(&server).await.unwrap();
    let taken = fake.taken();
    assert_eq!(taken[0].envelope[1], "RCPT TO:<jae@lab.example>");
    send_all(&server).await;
    assert_eq!((fake.taken().len(), waiting(&server)), (2, 0));
}

/// Who chose nothing gets what needs an answer.
#[tokio::test]
async fn by_default_what_needs_an_answer_is_mailed() {
    let fake = FakeMailServer::start(Vec::new()).await;
    let server = server_with(fake.address);
    let mina = user(&server, "mina");
    gather(&server).await.unwrap();
    happened(&server, mina.subject.user, "session.running", 1);
    happened(&server, mina.subject.user, "session.idle-warned", 1);
    gather(&server).await.unwrap();
    send_all(&server).await;
    let taken = fake.taken();
    assert_eq!(taken.len(), 1);
    assert!(taken[0].text.contains(" idle-warned "), "{}", taken[0].text);
    assert!(!taken[0].text.contains(" started "), "{}", taken[0].text);
}

#[test]
fn a_warning_that_waited_until_its_time_is_not_mailed() {
    let at = Timestamp::from_millis(1_000_000);
    for about in [
        NoticeKind::WillEnd(at),
        NoticeKind::ReservationWarned(at),
        NoticeKind::CourseWarned(at),
    ] {
        let notice = OwnNotice {
            key: "event 7".to_owned(),
            event: Some(7),
            at,
            about,
            session: None,
            name: None,
            unread: true,
        };
        assert!(!is_over(&notice, Timestamp::from_millis(999_999)));
        assert!(is_over(&notice, at), "{notice:?}");
    }
}

#[test]
fn pauses_of_mail_grow_to_a_quarter_of_an_hour() {
    assert_eq!([1, 2, 3, 8, 9].map(pause_seconds), [5, 10, 20, 640, 900]);
    assert_eq!(pause_seconds(u32::MAX), 900);
    assert_eq!(pause_seconds(0), 5);
}
