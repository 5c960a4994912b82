//! What a session of a user starts with, in real containers: files in the home, the script before the command, variables.

use node::runtime::{ContainerSpec, StartUpEnd, UserOrder};
use rules::start_up::{Dotfile, StartUp, StartUpScript};

use super::ground::Ground;

fn with_script(ground: &Ground, command: &str, script: &str, ends_session: bool) -> ContainerSpec {
    let mut order = ground.shell(command);
    order.user = UserOrder::Usual;
    order.start_up.script = Some(StartUpScript {
        text: script.to_owned(),
        ends_session,
    });
    order
}

#[test]
fn a_session_has_its_dotfiles_and_its_script_ran_once_before_the_command() {
    const NAME: &str = "a_session_has_its_dotfiles_and_its_script_ran_once_before_the_command";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let look = "stat -c %a ~/.netrc ~/.config/tool/rc; cat ~/.netrc /tmp/ran; echo $KEY; touch ~/.config/own && echo mine";
    let script = "echo $KEY >> /tmp/ran; id -u > /tmp/who; test \"$(id -u)\" = \"$(stat -c %u ~/.netrc)\" && echo told";
    let mut order = with_script(&ground, look, script, true);
    order.environment.push(("KEY".into(), "a-value".into()));
    let file = |path: &str, mode| Dotfile {
        path: path.into(),
        mode,
        content: "machine x\n".into(),
    };
    order.start_up.files = vec![file(".netrc", 0o600), file(".config/tool/rc", 0o644)];
    let (record, said) = ground.run(&order);
    assert_eq!(
        (record.code, said.trim()),
        (0, "told\n600\n644\nmachine x\na-value\na-value\nmine")
    );
    assert!(ground.runtime.start_up_failures().is_empty());
    // Without it there is none of it.
    order.start_up = StartUp::default();
    order.name = ground.shell("true").name;
    let (_, said) = ground.run(&order);
    assert!(
        !said.contains("machine x") && !said.contains("told"),
        "{said}"
    );
}

#[test]
fn a_script_that_fails_is_told_and_ends_the_session_where_its_user_chose_that() {
    const NAME: &str = "a_script_that_fails_is_told_and_ends_the_session_where_its_user_chose_that";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    for ends_session in [false, true] {
        let order = with_script(&ground, "echo command", "echo trying; exit 3", ends_session);
        let (record, said) = ground.run(&order);
        assert!(said.contains("trying"), "{said}");
        assert_eq!(said.contains("command"), !ends_session, "{said}");
        assert_eq!(record.code, if ends_session { 3 } else { 0 });
        let failed = ground.runtime.start_up_failures();
        let end = failed.iter().find(|(name, _)| *name == order.name);
        let told = StartUpEnd {
            exit_code: Some(3),
            ends_session,
        };
        assert_eq!(end.map(|(_, end)| *end), Some(told));
    }
}

#[test]
fn no_descriptor_of_the_script_is_open_in_the_command() {
    const NAME: &str = "no_descriptor_of_the_script_is_open_in_the_command";
    let Some(ground) = Ground::lay(NAME) else {
        return;
    };
    let order = with_script(
        &ground,
        "(sleep 0.3; ls /proc/$$/fd) | wc -l",
        "true",
        false,
    );
    let (_, with) = ground.run(&order);
    let mut plain = ground.shell("(sleep 0.3; ls /proc/$$/fd) | wc -l");
    plain.user = UserOrder::Usual;
    let (_, without) = ground.run(&plain);
    assert_eq!(with.trim(), without.trim());
}
