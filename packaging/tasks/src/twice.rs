//! The release and its package once more, cold, from a clone in another place: the bytes must be the same,
//! so that whoever has the source can check what they were given. Never compares a tree with changes
//! that nobody committed: a clone has none of them.

use std::fs;
use std::path::Path;

use crate::deb;
use crate::failure::Failure;
use crate::program::{self, Program};

/// Builds all of it a second time, in `target/twice`, and compares. Costs a cold build (8 minutes on two
/// cores) and 3 GB while it runs.
pub(crate) fn compare(binary: &Path) -> Result<(), Failure> {
    let changed = Program::named("git").words("status --porcelain").output()?;
    if !changed.trim().is_empty() {
        return Err(Failure::new(format!(
            "a clone would be of the last commit, and there are changes:\n{}",
            changed.trim_end()
        )));
    }
    let place = program::target_directory()?.join("twice");
    remove(&place)?;
    let same = in_another_place(binary, &place);
    remove(&place)?;
    same
}

fn in_another_place(binary: &Path, place: &Path) -> Result<(), Failure> {
    Program::named("git")
        .words("clone --quiet --no-hardlinks .")
        .argument(place)
        .run()?;
    let target = place.join("target");
    let cargo = |words| {
        Program::cargo()
            .words(words)
            .inside(place)
            .variable("CARGO_TARGET_DIR", &target)
    };
    cargo("build --release --locked --quiet").run()?;
    let again = target.join("x86_64-unknown-linux-gnu/release/fardel");
    identical("binaries", binary, &again)?;
    // By the clone's own tasks: the package, too, must not know where it is made.
    let said = cargo("ci deb").output()?;
    let again = said
        .lines()
        .next_back()
        .ok_or_else(|| Failure::new("the clone names no package"))?;
    let package = deb::make(binary, &deb::DebOptions::default())?;
    identical("packages", &package, Path::new(again))
}

fn identical(what: &str, one: &Path, other: &Path) -> Result<(), Failure> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
    };
    let (bytes, again) = (read(one)?, read(other)?);
    let differ = bytes
        .iter()
        .zip(&again)
        .filter(|(one, other)| one != other)
        .count();
    if bytes != again {
        return Err(Failure::new(format!(
            "two builds gave two {what}: {} and {} bytes, {differ} of them other ones",
            bytes.len(),
            again.len()
        )));
    }
    println!("two {what} from two places: the same {} bytes", bytes.len());
    Ok(())
}

fn remove(place: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::new(format!("{}: {error}", place.display())))
        }
        _ => Ok(()),
    }
}
