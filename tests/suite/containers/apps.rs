//! Programs that go on without a client, as apps do: in real containers, through the death of the server that began them.

use node::runtime::{ExecOrder, RuntimeFault, RuntimeName};

use super::ground::{Ground, hear};

fn order(name: &str, script: &str) -> ExecOrder {
    ExecOrder {
        command: vec!["sh".into(), "-c".into(), script.to_owned()],
        environment: vec![],
        directory: None,
        user: None,
        terminal: None,
        background: Some(name.to_owned()),
    }
}

fn idle(ground: &Ground) -> RuntimeName {
    let name = ground.start(&ground.shell("sleep 1000"));
    ground.running(&name);
    name
}

/// Promise (Sessions survive failures): An app goes on when the server that started it ends, and its last output is kept.
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
    let wanted = ["sh", "no-such-program"].map(str::to_owned).to_vec();
    let found = ground.runtime.programs(&name, wanted).expect("looked");
    assert_eq!(found, ["sh"]);
}
