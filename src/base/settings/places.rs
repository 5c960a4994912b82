//! Where the run directory of a state is when no source names one. Each state has its own: a second server
//! beside the machine's would otherwise meet the first one's lock, or its containers. Makes nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The run directory of the state in `data`, where `own_data` and `own_run` are the machine's own places.
///
/// Beside `own_run` and named by a digest of the path, so that it is short enough for a socket; below `data`
/// where `own_run` is below `own_data`. It is `own_run` for the machine's own state, and for one that has
/// lived there so far: its containers may still run.
pub(super) fn run_of(data: &Path, own_data: &Path, own_run: &Path) -> PathBuf {
    let resolved_data = resolved(data);
    if resolved_data == resolved(own_data) || lives_in(own_run, &resolved_data) {
        return own_run.to_owned();
    }
    if let Ok(below) = own_run.strip_prefix(own_data) {
        return data.join(below);
    }
    let digest = Sha256::digest(resolved_data.as_os_str().as_encoded_bytes());
    let mut name = own_run.file_name().unwrap_or_default().to_owned();
    let mut mark = String::from("-");
    for byte in &digest[..4] {
        let _ = write!(mark, "{byte:02x}");
    }
    name.push(mark);
    own_run.with_file_name(name)
}

/// Whether the server that used `run` last had its state in `data`, as it wrote there.
fn lives_in(run: &Path, data: &Path) -> bool {
    std::fs::read(run.join("owner.json"))
        .ok()
        .and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok())
        .is_some_and(|owner| owner["data"].as_str().map(Path::new) == Some(data))
}

/// The path without symbolic links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (Err(_), Some(parent), Some(name)) => resolved(parent).join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_one_run_directory_by_whatever_path_it_is_named() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (own_data, own_run) = (at("lib/fardel"), at("run/fardel"));
        let run = |data: &Path| run_of(data, &own_data, &own_run);
        assert_eq!(run(&own_data), own_run);
        let before = run(&at("a/state"));
        let name = before.strip_prefix(at("run")).unwrap().to_str().unwrap();
        assert_eq!(name.len(), "fardel-01234567".len(), "{name}");
        assert_ne!(before, run(&at("b/state")));
        // Made meanwhile, and named by another way.
        std::fs::create_dir_all(at("a/state")).unwrap();
        std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
        assert_eq!(run(&at("a/state")), before);
        assert_eq!(run(&at("link/state")), before);
        // Below the data directory where the usual one is.
        let home = |data: &Path| run_of(data, &own_data, &own_data.join("run"));
        assert_eq!(home(&at("a/state")), at("a/state/run"));
    }

    #[test]
    fn a_state_goes_on_in_the_run_directory_that_it_lives_in() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().canonicalize().unwrap().join(name);
        let (own_data, own_run) = (at("lib"), at("run"));
        for made in [&own_run, &at("a"), &at("b")] {
            std::fs::create_dir(made).unwrap();
        }
        let owner = serde_json::json!({"node": "x", "data": at("a"), "process": 1});
        std::fs::write(own_run.join("owner.json"), owner.to_string()).unwrap();
        let run = |data: &Path| run_of(data, &own_data, &own_run);
        assert_eq!(run(&at("a")), own_run);
        assert_ne!(run(&at("b")), own_run);
    }
}
