//! Programs that go on without a client, as apps do: in real containers, through the death of the server that began them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use base::link::streams::{
    BoxFuture, ByteStream, ExecRequest, LogStream, Streams, TermStream, WindowSize,
};
use fardel::doors::peer::{OwnPort, Peer};
use fardel::doors::proxy;
use http_body_util::BodyExt as _;
use node::runtime::{ExecOrder, Runtime, RuntimeFault, RuntimeName};
use rules::names::ContainerName;
use rules::refusals::port_unreachable;
use serde_json::json;
use server::actions::apps;
use tower::ServiceExt as _;

use super::ground::{Ground, hear};
use crate::programs::install;
use crate::server::the_box::{PASSWORD, TheBox};

fn order(name: &str, script: &str) -> ExecOrder {
    ExecOrder {
        command: vec!["sh".into(), "-c".into(), script.to_owned()],
        environment: vec![],
        directory: None,
        user: None,
        terminal: None,
        guest: None,
        background: Some(name.to_owned()),
    }
}

fn idle(ground: &Ground) -> RuntimeName {
    let name = ground.start(&ground.shell("sleep 1000"));
    ground.running(&name);
    name
}

/// Its last output is kept.
///
/// Proves too: `a_new_server_learns_the_code_of_a_container_that_lived_on`
#[test]
fn a_program_in_the_background_outlives_its_server_and_is_joined_again() {
    const NAME: &str = "a_program_in_the_background_outlives_its_server_and_is_joined_again";
    let Some(mut ground) = Ground::lay(NAME) else {
        return;
    };
    let name = idle(&ground);
    // Its input is at its end: `read` comes back.
    let script = "read x; echo begun; until [ -e /tmp/go ]; do sleep 0.05; done; echo went; exit 7";
    let mut first = ground
        .runtime
        .exec(&name, &order("app", script))
        .expect("accepted");
    let frame = first.next().expect("whole").expect("it says something");
    assert_eq!(frame.payload, b"begun\n");
    drop(first);
    ground.crash();
    ground.reopen();
    ground.running(&name);
    let other = order("app", "echo another; exit 1");
    let mut again = ground.runtime.exec(&name, &other).expect("joined");
    let go = ExecOrder {
        background: None,
        ..order("", "touch /tmp/go")
    };
    let (_, _, code) = hear(&mut ground.runtime.exec(&name, &go).expect("accepted"));
    assert_eq!(code, Some(0));
    let (said, _, code) = hear(&mut again);
    assert_eq!((said.as_str(), code), ("begun\nwent\n", Some(7)));
    let (said, _, code) = hear(&mut ground.runtime.exec(&name, &other).expect("begun"));
    assert_eq!(
        (said.as_str(), code),
        ("another\n", Some(1)),
        "the one before is over"
    );
}

#[test]
fn a_session_has_so_many_programs_in_the_background() {
    let Some(ground) = Ground::lay("a_session_has_so_many_programs_in_the_background") else {
        return;
    };
    let name = idle(&ground);
    let begin = |number: usize| {
        let order = order(&format!("app-{number}"), "sleep 1000");
        ground.runtime.exec(&name, &order)
    };
    for number in 0..8 {
        // Its client goes at once.
        drop(begin(number).expect("accepted"));
    }
    assert!(matches!(begin(8), Err(RuntimeFault::Refused(_))));
    drop(begin(3).expect("joined"));
    // Programs that belong to a client have their places all the same.
    let own = ExecOrder {
        background: None,
        ..order("", "echo here")
    };
    let (said, _, code) = hear(&mut ground.runtime.exec(&name, &own).expect("accepted"));
    assert_eq!((said.as_str(), code), ("here\n", Some(0)));
}

#[test]
fn what_cannot_run_in_the_background_is_refused_to_each_who_asks() {
    let Some(ground) = Ground::lay("what_cannot_run_in_the_background_is_refused_to_each_who_asks")
    else {
        return;
    };
    let name = idle(&ground);
    let missing = ExecOrder {
        command: vec!["no-such-program".into()],
        ..order("app", "")
    };
    for _ in 0..2 {
        let refused = ground.runtime.exec(&name, &missing);
        let (said, code) = match refused {
            Err(fault) => (fault.to_string(), None),
            Ok(mut stream) => {
                let (_, errors, code) = hear(&mut stream);
                (errors, code)
            }
        };
        assert!(code != Some(0), "{said}");
    }
    // One that this machine has and the container has not is none, by its full path too.
    let mark = ground.directory.path().join("mark");
    let outside = ground.directory.path().join("outside");
    let script = format!("#!/bin/sh\ntouch {}\n", mark.display());
    install(&outside, script.as_bytes());
    let outside = outside.display().to_string();
    for (command, leaves_a_mark) in [
        (Some(vec![outside.clone()]), false),
        (Some(vec!["sh".into(), outside.clone()]), false),
        (None, true),
    ] {
        match command {
            Some(command) => {
                let order = ExecOrder {
                    command,
                    ..order("outside", "")
                };
                if let Ok(mut stream) = ground.runtime.exec(&name, &order) {
                    assert_ne!(hear(&mut stream).2, Some(0));
                }
            }
            None => {
                let ran = std::process::Command::new(&outside).status();
                assert!(ran.expect("this machine has it").success());
            }
        }
        assert_eq!(mark.exists(), leaves_a_mark, "{outside}");
    }
    let wanted = vec!["sh".into(), "no-such-program".into(), outside];
    let found = ground.runtime.programs(&name, wanted).expect("looked");
    assert_eq!(found, ["sh"]);
}

/// The ports of one real container.
struct RealPorts {
    runtime: Arc<Runtime>,
    name: RuntimeName,
}

fn elsewhere<T: Send + 'static>() -> BoxFuture<T> {
    Box::pin(async { Err(rules::refusals::container_not_running()) })
}

impl Streams for RealPorts {
    fn attach(&self, _: ContainerName, _: Option<WindowSize>) -> BoxFuture<TermStream> {
        elsewhere()
    }

    fn exec(&self, _: ContainerName, _: ExecRequest) -> BoxFuture<TermStream> {
        elsewhere()
    }

    fn logs(&self, _: ContainerName, _: u64, _: bool) -> BoxFuture<LogStream> {
        elsewhere()
    }

    fn dial(&self, _: ContainerName, port: u16) -> BoxFuture<ByteStream> {
        let (runtime, name) = (Arc::clone(&self.runtime), self.name.clone());
        Box::pin(async move {
            let dialled = tokio::task::spawn_blocking(move || runtime.dial(&name, port)).await;
            let socket = dialled.expect("no panic").map_err(port_unreachable)?;
            socket.set_nonblocking(true).map_err(port_unreachable)?;
            let socket = tokio::net::TcpStream::from_std(socket).map_err(port_unreachable)?;
            Ok(Box::new(socket) as ByteStream)
        })
    }
}

/// A server of Python's own in a container, opened by its port: through its origin with a cookie, and not without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_in_a_container_is_reached_through_its_origin_alone() {
    const NAME: &str = "an_app_in_a_container_is_reached_through_its_origin_alone";
    const PORT: u16 = 18_600;
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let name = ground.start(&ground.shell("exec python3 -m http.server --bind 127.0.0.1 8000"));
    ground.running(&name);
    let until = Instant::now() + Duration::from_secs(20);
    while ground.runtime.dial(&name, 8000).is_err() {
        if ground.log(&name).contains("not found") || Instant::now() > until {
            return skips::skip(NAME, "needs python3 on this machine");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let listening = ground.runtime.listening(&name).expect("looked");
    assert_eq!(listening, [8000]);
    let the_box = TheBox::with(&[("FARDEL_LISTEN_APPS", "127.0.0.1:18600")], Vec::new()).await;
    let streams: Arc<dyn Streams> = Arc::new(RealPorts {
        runtime: Arc::clone(&ground.runtime),
        name,
    });
    let origin = proxy::router(the_box.server.clone(), Arc::clone(&streams));
    the_box.launch(&the_box.mina, json!({"name": "work"})).await;
    the_box.until(&the_box.mina, "work", "running").await;
    let here: IpAddr = Ipv4Addr::LOCALHOST.into();
    let signed_in = server::access::sign_in(&the_box.server, "mina", PASSWORD, here).await;
    let signed_in = signed_in.expect("the password is right");
    let (server, caller) = (&the_box.server, &signed_in.caller);
    let opened = apps::open(server, &streams, caller, "work", "8000").await;
    assert_eq!(opened.expect("opened").address_port, Some(PORT));
    let (_, way) = apps::entry(server, &*streams, caller, "work", "8000", None)
        .await
        .expect("found");
    let way = way.expect("a way in");
    let (port, way) = (way.port, way.path);
    let ask = async |path: &str, cookie: &str| {
        let request = Request::get(path)
            .header("host", format!("box:{port}"))
            .header("cookie", cookie)
            .header("sec-fetch-site", "same-site")
            .header("sec-fetch-mode", "navigate")
            .header("sec-fetch-dest", "document")
            .extension(OwnPort(port))
            .extension(Peer::Tcp(([127, 0, 0, 1], 4000).into()))
            .body(Body::empty())
            .expect("a request");
        origin.clone().oneshot(request).await.expect("an answer")
    };
    let console = format!("fardel={}", signed_in.cookie);
    let entered = ask(&way, &console).await;
    assert_eq!(entered.status(), 303);
    let set = entered.headers()["set-cookie"].to_str().expect("text");
    let cookie = set.split(';').next().unwrap_or_default().to_owned();
    let shown = ask("/", &cookie).await;
    assert_eq!(shown.status(), 200);
    let page = shown.into_body().collect().await.expect("whole").to_bytes();
    assert!(page.starts_with(b"<!DOCTYPE"), "{page:?}");
    assert_eq!(ask("/", "a=b").await.status(), 303, "led to the console");
    assert!(
        std::net::TcpStream::connect("127.0.0.1:8000").is_err(),
        "nothing listens on the machine itself"
    );
}
