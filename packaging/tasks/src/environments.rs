//! The recipes that are built whole: Python with JupyterLab, R, and C++ with code-server, each twice by the release build.
//! Prints their sizes; a file that differs fails the stage by its name. Needs root and a network, and starts no session.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::leave_out;
use crate::program::{self, Program};

/// Where the recipes lie.
const RECIPES: &str = "packaging/environments";
/// The other two hold CUDA: 3 GB each to fetch, and no machine of the gate computes with it.
const BUILT: [&str; 3] = ["python-jupyter", "r", "cpp-code-server"];
/// The one that needs an archive beside it, and what makes that.
const WITH_ARCHIVE: &str = "cpp-code-server";
const ARCHIVE: &str = "code-server.sh";

pub(crate) fn build(binary: &Path) -> Result<(), Failure> {
    if !program::is_root() {
        return leave_out("environments", "only root makes a tree");
    }
    if !program::installed("mmdebstrap") {
        return leave_out("environments", "mmdebstrap is not installed");
    }
    let place = program::target_directory()?.join("environments");
    remove(&place)?;
    copy(&place)?;
    let built = BUILT.iter().try_for_each(|name| one(binary, &place, name));
    let removed = remove(&place);
    built.and(removed)
}

fn one(binary: &Path, place: &Path, name: &str) -> Result<(), Failure> {
    if name == WITH_ARCHIVE {
        Program::named("sh")
            .argument(place.join(ARCHIVE))
            .argument(place)
            .run()?;
    }
    let out = place.join(format!("{name}.tar"));
    Program::named(binary)
        .words("environment build --twice --out")
        .argument(&out)
        .argument(place.join(format!("{name}.toml")))
        .run()?;
    let bytes = fs::metadata(&out).map_err(|error| fault(&out, &error))?;
    println!(
        "{name}: {} MB, two builds are equal",
        bytes.len() / 1_000_000
    );
    fs::remove_file(&out).map_err(|error| fault(&out, &error))
}

/// Copies the recipes, so that an archive made for one is no file of the tree.
fn copy(place: &Path) -> Result<(), Failure> {
    fs::create_dir_all(place).map_err(|error| fault(place, &error))?;
    let recipes = Path::new(RECIPES);
    for entry in fs::read_dir(recipes).map_err(|error| fault(recipes, &error))? {
        let entry = entry.map_err(|error| fault(recipes, &error))?;
        let path = entry.path();
        fs::copy(&path, place.join(entry.file_name())).map_err(|error| fault(&path, &error))?;
    }
    Ok(())
}

fn remove(place: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(fault(place, &error)),
        _ => Ok(()),
    }
}

fn fault(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}
