//! What a session on a real server may write outside its folders where its launch says nothing: as much as the site says.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::installation::Installation;
use super::{TIMEOUT, http, wait_until};

/// Writes more than there is, and says how large its disk is and how much of it came.
const FILLS: &str = "cd /var/tmp
    head -c 300000000 /dev/zero > big 2>/dev/null
    echo \"size $(df -B1 --output=size / | tail -n 1) wrote $(stat -c %s big) end\"";

/// A session of a size, or of none; what it said at its end.
fn filled(installation: &Installation, name: &str, disk: Option<u64>) -> String {
    let mut body = json!({
        "name": name, "kind": "batch", "image": "host", "command": ["sh", "-c", FILLS],
        "resources": {"cpu": 0.5, "memory": 128 << 20},
    });
    if let Some(disk) = disk {
        body["resources"]["disk"] = json!(disk);
    }
    let socket = installation.socket();
    let answer = http::call(&socket, "POST", "/api/v1/sessions", None, Some(&body));
    let answer = answer.expect("an answer");
    assert!(answer.is_good(), "{}", answer.json());
    let id = answer.json()["id"].as_str().expect("an id").to_owned();
    let get = |path: &str| installation.get(path).expect("an answer");
    let show = || -> Value { get(&format!("/api/v1/sessions/{id}")).json() };
    wait_until(TIMEOUT, || show()["state"] == "ended").unwrap_or_else(|()| panic!("{}", show()));
    let log = get(&format!("/api/v1/sessions/{id}/logs")).body;
    String::from_utf8_lossy(&log).into_owned()
}

/// The number behind a word.
fn number(said: &str, word: &str) -> u64 {
    let mut behind = said.split_whitespace().skip_while(|one| *one != word);
    let next = behind.nth(1).and_then(|one| one.parse().ok());
    next.unwrap_or_else(|| panic!("{word}: {said}"))
}

#[test]
fn a_session_that_names_no_disk_writes_what_the_site_says() {
    let name = "a_session_that_names_no_disk_writes_what_the_site_says";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    if !Path::new("/dev/loop-control").exists() {
        return skips::skip(name, "there are no loop devices");
    }
    let usual = PathBuf::from("96m");
    installation.settings.push(("FARDEL_SESSION_DISK", usual));
    installation.start();
    for (name, disk, most) in [
        ("usual", None, 96_u64 << 20),
        ("named", Some(160 << 20), 160 << 20),
    ] {
        let said = filled(&installation, name, disk);
        let (size, wrote) = (number(&said, "size"), number(&said, "wrote"));
        assert!(size <= most && size > most / 2, "{name}: {said}");
        assert!(wrote <= most && wrote > most / 2, "{name}: {said}");
    }
    assert!(installation.term().success());
}
