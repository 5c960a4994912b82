//! A stick as an administrator carries one: a disk of its own with a signed bundle of an environment and the key that it is
//! signed with. Built of a recipe of this tree by the product, and kept under a hash of what goes in. Never written to by a
//! guest.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::{Folder, root};
use crate::failure::Failure;
use crate::program::Program;

/// The environment that it holds; the guest's script says its name, too.
const RECIPE: &str = "packaging/environments/python-jupyter.toml";
const LOCK: &str = "packaging/environments/python-jupyter.lock";
/// What decides the form of a bundle. A stick of an older form would try what no stick of this version has.
const FORM: [&str; 3] = [
    "src/store/images/build.rs",
    "src/store/images/environment.rs",
    "src/base/signing.rs",
];
/// What a file system keeps for itself beside its files.
const SPARE_BYTES: u64 = 32 << 20;
/// What a build takes in its folder: the tree, its layers and its wheels.
const WORK_BYTES: u64 = 3 << 30;

/// Finds the stick, or makes it: some minutes, and 250 MB of Debian's mirror and of the registry of Python.
pub(super) fn ready(binary: &Path) -> Result<PathBuf, Failure> {
    let cache = root::cache()?;
    let image = cache.join(format!("stick-{}.img", hash()?));
    fs::create_dir_all(&cache).map_err(fault(&cache))?;
    // Two runs that both miss it make it once.
    let place = cache.join("stick.lock");
    let lock = fs::File::create(&place).map_err(fault(&place))?;
    lock.lock().map_err(fault(&place))?;
    if image.exists() {
        return Ok(image);
    }
    for entry in fs::read_dir(&cache).map_err(fault(&cache))?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_stick = name.ends_with(".img") || name.ends_with(".part");
        if name.starts_with("stick-") && is_stick {
            fs::remove_file(entry.path()).map_err(fault(&entry.path()))?;
        }
    }
    make(binary, &image)?;
    Ok(image)
}

fn make(binary: &Path, image: &Path) -> Result<(), Failure> {
    println!("making the stick; it is kept for the next run");
    let work = Folder::make("stick", WORK_BYTES)?;
    let files = work.path().join("files");
    fs::create_dir(&files).map_err(fault(&files))?;
    let key = work.path().join("lab");
    Program::named(binary)
        .words("environment key")
        .argument(&key)
        .run()?;
    let public = work.path().join("lab.pub");
    fs::copy(&public, files.join("lab.pub")).map_err(fault(&public))?;
    let bundle = files.join("environment.tar");
    Program::named(binary)
        .words("environment build --key")
        .argument(&key)
        .words("--out")
        .argument(&bundle)
        .argument(RECIPE)
        .run()?;
    let bytes = fs::metadata(&bundle).map_err(fault(&bundle))?.len();
    let part = image.with_extension("part");
    fs::File::create(&part)
        .and_then(|file| file.set_len(bytes + bytes / 10 + SPARE_BYTES))
        .map_err(fault(&part))?;
    Program::named("mkfs.ext4")
        .words("-q -F -m 0 -d")
        .argument(&files)
        .argument(&part)
        .run()?;
    println!("the stick holds a bundle of {} MB", bytes / 1_000_000);
    fs::rename(&part, image).map_err(fault(&part))
}

/// Of all that goes into it, this file included: its steps are inputs too.
fn hash() -> Result<String, Failure> {
    let mut hasher = DefaultHasher::new();
    include_str!("stick.rs").hash(&mut hasher);
    for path in [RECIPE, LOCK].iter().chain(&FORM) {
        let text = fs::read(path).map_err(fault(Path::new(path)))?;
        text.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn fault(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_the_stick_lies_in_this_tree() {
        crate::enter_root().unwrap();
        assert_eq!(hash().unwrap().len(), 16);
    }
}
