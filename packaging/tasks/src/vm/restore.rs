//! Scenario: a machine is lost, and another takes its place. People and events go into one file on the
//! first guest and come out of it on a second one, by one command each way.

use super::order::Order;
use super::root::Root;
use super::upgrade::Packages;
use super::{Folder, run_to_the_end};
use crate::failure::Failure;

/// What the lost machine held.
pub(super) struct Held {
    users: &'static str,
    events: &'static str,
}

/// What the promise speaks of.
pub(super) const PROMISED: Held = Held {
    users: "10000",
    events: "1000000",
};

/// What either way may take, in seconds.
const MAX_SECONDS: &str = "120";

/// What may travel: the file, and what the second machine is compared with.
const CARRIED_BYTES: u64 = 1 << 30;

/// Runs it; the first package is enough.
pub(super) fn run(root: &Root, packages: &Packages, held: &Held) -> Result<(), Failure> {
    let carried = Folder::make("carried", CARRIED_BYTES)?;
    let mut old = Order::new(root, include_str!("restore-old.sh"));
    old.files = vec![
        ("browser.py", include_str!("browser.py")),
        ("history.py", include_str!("history.py")),
    ];
    old.arguments = [held.users, held.events, MAX_SECONDS]
        .map(str::to_owned)
        .to_vec();
    packages.give(&mut old);
    ended(run_to_the_end(&old, Some(carried.path()))?, "old")?;

    let mut new = Order::new(root, include_str!("restore-new.sh"));
    new.files.clone_from(&old.files);
    new.arguments = [held.users, MAX_SECONDS].map(str::to_owned).to_vec();
    packages.give(&mut new);
    // What was left there lies in a folder of that name.
    let out = carried.path().join("out");
    new.shares.push(("carried".to_owned(), out));
    ended(run_to_the_end(&new, None)?, "new")
}

fn ended(code: i32, which: &str) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => Err(Failure::new(format!(
            "the {which} machine's script ended with {code}"
        ))),
    }
}
