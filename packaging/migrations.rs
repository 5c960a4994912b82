//! Lists the schema steps of the catalog: every file of `src/server/catalog/migrations`, in the order of the numbers
//! that their names begin with. A name without a number, a number that two files have, or a gap stops the build.
//! Never reads what a step says.

use std::collections::BTreeMap;
use std::path::PathBuf;

fn main() {
    let room = PathBuf::from(
        std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets the manifest directory"),
    );
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets the output directory"));
    let folder = room.join("catalog/migrations");
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rerun-if-changed=../../packaging/migrations.rs");
    let mut steps: BTreeMap<u32, PathBuf> = BTreeMap::new();
    let files = std::fs::read_dir(&folder)
        .unwrap_or_else(|fault| panic!("{}: {fault}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path());
    for file in files.filter(|path| path.extension().is_some_and(|ending| ending == "sql")) {
        let name = file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let number = name.split_once('_').and_then(|(n, _)| n.parse().ok());
        let Some(number) = number else {
            println!("cargo::error={name}: a step is called NNNN_what.sql");
            return;
        };
        if let Some(other) = steps.insert(number, file) {
            println!(
                "cargo::error={name}: {} has this number too",
                other.display()
            );
            return;
        }
    }
    // A catalog knows how many steps it has taken: one that fills a gap later would never be taken.
    if let Some((due, _)) = (1..).zip(steps.keys()).find(|(due, has)| due != *has) {
        println!("cargo::error=no step has the number {due:04}");
        return;
    }
    let list: String = steps
        .values()
        .map(|file| format!("    include_str!({:?}),\n", file.display().to_string()))
        .collect();
    std::fs::write(out.join("steps.rs"), format!("&[\n{list}]\n")).expect("OUT_DIR is writable");
}
