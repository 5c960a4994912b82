//! What the sessions of a user start with, as the user, a lead and an administrator meet it.

use api::secret::SecretText;
use api::sessions::LaunchRequest;
use api::start_up::{NewDotfileBody, NewStartupScriptBody, NewVariableBody};
use rules::start_up::{MAX_DOTFILES, MAX_OWN_VARIABLES, StartUpChoice};

use super::*;
use crate::actions::users::start_up::*;
use crate::actions::{break_glass, sessions};

const SECRET: &str = "hunter2-of-mina";

fn file(path: &str, content: &str) -> NewDotfileBody {
    NewDotfileBody {
        path: path.to_owned(),
        mode: "600".to_owned(),
        content: content.to_owned(),
    }
}

fn variable(name: &str, value: &str) -> NewVariableBody {
    NewVariableBody {
        name: name.to_owned(),
        value: SecretText::new(value),
    }
}

fn named(name: &str) -> LaunchRequest {
    LaunchRequest {
        name: Some(name.to_owned()),
        ..LaunchRequest::default()
    }
}

#[tokio::test]
async fn a_user_keeps_so_many_dotfiles_and_variables() {
    let (server, _, mina) = with_two().await;
    for number in 0..MAX_DOTFILES {
        let kept = put_dotfile(&server, &mina, file(&format!(".f{number}"), "x")).await;
        assert_eq!(kept.unwrap().mode, "600");
    }
    let more = put_dotfile(&server, &mina, file(".more", "x")).await;
    assert_eq!(code(more), "dotfile.too-many");
    // One that is there is replaced.
    let again = put_dotfile(&server, &mina, file("~/.f0", "longer")).await;
    assert_eq!(again.unwrap().bytes, 6);
    assert_eq!(
        dotfile(&server, &mina, ".f0").await.unwrap().content,
        "longer"
    );
    let large = "x".repeat(64 << 10);
    for path in [".f1", ".f2", ".f3"] {
        put_dotfile(&server, &mina, file(path, &large))
            .await
            .unwrap();
    }
    let beyond = put_dotfile(&server, &mina, file(".f4", &large)).await;
    assert_eq!(code(beyond), "dotfile.total");
    assert_eq!(
        code(remove_dotfile(&server, &mina, ".none").await),
        "dotfile.not-found"
    );
    assert_eq!(code(remove_dotfile(&server, &mina, ".f4").await), "done");
    let inside = put_dotfile(&server, &mina, file(".f5/x", "x")).await;
    assert_eq!(code(inside), "dotfile.in-the-way");

    for number in 0..MAX_OWN_VARIABLES {
        let kept = put_variable(&server, &mina, variable(&format!("V{number}"), "x")).await;
        assert_eq!(code(kept), "done");
    }
    let more = put_variable(&server, &mina, variable("MORE", "x")).await;
    assert_eq!(code(more), "variable.too-many");
    let large = "x".repeat(8 << 10);
    for number in 0..7 {
        let kept = put_variable(&server, &mina, variable(&format!("V{number}"), &large)).await;
        assert_eq!(code(kept), "done");
    }
    let beyond = put_variable(&server, &mina, variable("V7", &large)).await;
    assert_eq!(code(beyond), "variable.total");
    let gone = remove_variable(&server, &mina, "NONE").await;
    assert_eq!(code(gone), "variable.not-found");
}

/// Proves too: `the_machine_gets_what_a_session_starts_with_and_no_answer_tells_it`
#[tokio::test]
async fn a_session_of_ones_own_gets_all_of_it_and_no_other_does() {
    let (server, boss, mina) = with_two().await;
    put_dotfile(&server, &mina, file(".netrc", SECRET))
        .await
        .unwrap();
    let script = NewStartupScriptBody {
        script: format!("echo {SECRET}"),
        ends_session: true,
    };
    put_script(&server, &mina, script).await.unwrap();
    put_variable(&server, &mina, variable("KEY", SECRET))
        .await
        .unwrap();
    let launch = async |caller: &Caller, request: LaunchRequest| {
        let launched = sessions::launch(&server, caller, request, None).await;
        launched
            .map(|mut launched| launched.sessions.remove(0))
            .unwrap()
    };
    let own = launch(&mina, named("own")).await;
    assert!(own.start_up && own.own_variables);
    let left_out = LaunchRequest {
        without_start_up: true,
        ..named("bare")
    };
    let bare = launch(&mina, left_out).await;
    assert!(!bare.start_up && !bare.own_variables);
    // An administrator decides what this one runs.
    let for_mina = LaunchRequest {
        owner: Some("mina".to_owned()),
        ..named("lesson")
    };
    let lesson = launch(&boss, for_mina).await;
    assert_eq!(lesson.owner.name.as_str(), "mina");
    assert!(!lesson.start_up && !lesson.own_variables);

    // Nor do they get into the one that has them.
    let entered = sessions::enter(&server, &boss, &own.id.to_string()).await;
    assert_eq!(code(entered), "session.has-variables");
    for (which, expected) in [
        (own.id, "session.has-variables"),
        (bare.id, "done"),
        (lesson.id, "done"),
    ] {
        let asked = api::break_glass::BreakGlassBody {
            reason: "The disk is nearly full.".to_owned(),
            minutes: None,
        };
        let which = which.to_string();
        let opened = break_glass::enter_session(&server, &boss, &which, asked).await;
        assert_eq!(code(opened), expected);
    }
    for (caller, id) in [(&boss, bare.id), (&boss, lesson.id), (&mina, own.id)] {
        let entered = sessions::enter(&server, caller, &id.to_string()).await;
        assert_eq!(code(entered), "done");
    }
    assert!(dotfiles(&server, &boss).await.unwrap().is_empty());
    assert!(variables(&server, &boss).await.unwrap().is_empty());
    assert_eq!(
        code(script_of(&server, &boss).await),
        "startup-script.not-found"
    );

    let user = mina.subject.user;
    let given = |choice| {
        let read = server
            .catalog()
            .read_now("look", |view| view.start_up(user, choice));
        read.unwrap()
    };
    let all = given(StartUpChoice::Variables);
    assert_eq!(all.variables["KEY"], SECRET);
    assert_eq!((all.files.len(), all.script.is_some()), (1, true));
    assert!(given(StartUpChoice::Files).variables.is_empty());
    assert!(given(StartUpChoice::Nothing).is_empty());
    // No event says what is in it.
    let events = server
        .catalog()
        .read_now("look", |view| view.events_of(&user.to_string(), 100));
    assert!(!format!("{:?}", events.unwrap()).contains(SECRET));
    let shown = serde_json::to_string(&sessions::get(&server, &mina, "own").await.unwrap());
    assert!(!shown.unwrap().contains(SECRET));
}

async fn script_of(
    server: &Server,
    caller: &Caller,
) -> Result<api::start_up::StartupScriptView, Failure> {
    crate::actions::users::start_up::script(server, caller).await
}

#[tokio::test]
async fn a_token_that_enters_no_session_sets_nothing_that_runs_in_one() {
    let (server, _, mina) = with_two().await;
    let mut narrow = mina.clone();
    narrow.subject.scopes = Some(vec![Permission::Me]);
    for result in [
        code(put_dotfile(&server, &narrow, file(".a", "x")).await),
        code(put_variable(&server, &narrow, variable("A", "x")).await),
        code(remove_script(&server, &narrow).await),
    ] {
        assert_eq!(result, "token.scope-missing");
    }
    assert!(dotfiles(&server, &narrow).await.unwrap().is_empty());
}
