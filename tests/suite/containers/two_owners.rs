//! Two users on a box of their own, with real sessions and over the routes: what a session writes and what an upload brings
//! both stop at the limit of their owner's folders, and the neighbour goes on. `FARDEL_FOLDER_MIB` says how large the limit
//! is; at night it is 1 GiB, here and in a guest where the disk's own quota holds it, or a pool of `FARDEL_FOLDER_POOL`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt as _;
use rules::permissions::Permission;
use rules::users::Role;
use serde_json::{Value, json};
use server::access;
use server::actions::users::{self, tokens};
use store::quota::ScopePlace;
use tower::ServiceExt as _;

use super::folder_limits::UnmountedBelow;
use super::whole::Whole;
use crate::server::the_box::{As, PASSWORD, TheBox};

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(300);
/// MiB of the limit in every run. Lower: the tables of a file system are more of it.
const LIMIT_MIB: u64 = 256;
/// Bytes that a file system gives out at a time.
const BLOCK: u64 = 4096;
/// How each script ends that found everything as it should be: no failure of a program gives it.
const WELL: i64 = 77;

/// The doors of the box.
struct Doors(Router);

impl Doors {
    async fn send(&self, request: axum::http::request::Builder, body: Body) -> (u16, Value) {
        let request = request.body(body).expect("a request");
        let answer = self.0.clone().oneshot(request).await;
        let (parts, body) = answer.expect("the router answers").into_parts();
        let bytes = body.collect().await.expect("a whole body").to_bytes();
        let place = parts.headers.get("location");
        let offset = parts.headers.get("upload-offset");
        let told = [place, offset].map(|one| one.and_then(|one| one.to_str().ok()));
        let mut said = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!({}));
        if let Some(said) = said.as_object_mut() {
            for (name, told) in ["location", "offset"].into_iter().zip(told) {
                said.entry(name).or_insert_with(|| json!(told));
            }
        }
        (parts.status.as_u16(), said)
    }

    async fn ask(&self, who: &As, method: &str, path: &str, body: Value) -> (u16, Value) {
        let mut request =
            TheBox::request(who, method, path).header("content-type", "application/json");
        if method == "PATCH" {
            request = request.header("if-match", "*");
        }
        self.send(request, Body::from(body.to_string())).await
    }

    async fn done(&self, who: &As, method: &str, path: &str, body: Value) -> Value {
        let (status, said) = self.ask(who, method, path, body).await;
        assert!(status < 300, "{method} {path}: {status} {said}");
        said
    }

    async fn tus(
        &self,
        who: &As,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Vec<u8>,
    ) -> (u16, Value) {
        let mut request = TheBox::request(who, method, path)
            .header("tus-resumable", "1.0.0")
            .header("content-type", "application/offset+octet-stream");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        self.send(request, Body::from(body)).await
    }

    /// Begins a file and gives its place.
    async fn begin(&self, who: &As, folder: &str, bytes: u64) -> String {
        let path = format!("/api/v1/folders/{folder}/uploads");
        let headers = [
            ("upload-length", bytes.to_string()),
            // The name `sent`.
            ("upload-metadata", "filename c2VudA==".to_owned()),
        ];
        let (status, said) = self.tus(who, "POST", &path, &headers, Vec::new()).await;
        assert_eq!(status, 201, "{said}");
        said["location"].as_str().expect("a place").to_owned()
    }

    async fn append(&self, who: &As, place: &str, offset: u64, bytes: u64) -> (u16, Value) {
        let headers = [("upload-offset", offset.to_string())];
        let body = vec![5; usize::try_from(bytes).expect("small")];
        self.tus(who, "PATCH", place, &headers, body).await
    }

    async fn offset(&self, who: &As, place: &str) -> u64 {
        let (status, said) = self.tus(who, "HEAD", place, &[], Vec::new()).await;
        assert_eq!(status, 200, "{said}");
        let offset = said["offset"].as_str().expect("an offset");
        offset.parse().expect("a number")
    }

    /// Launches a session with the user's folder.
    async fn launch(&self, who: &As, name: &str, script: &str) -> String {
        let body = json!({
            "name": name, "kind": "batch", "image": "host", "command": ["sh", "-c", script],
            "mounts": [{"folder": "data", "at": "/data"}],
        });
        let made = self.done(who, "POST", "/api/v1/sessions", body).await;
        made["id"].as_str().expect("an id").to_owned()
    }

    /// How a session ended, once it has.
    async fn ended(&self, who: &As, session: &str) -> Value {
        let path = format!("/api/v1/sessions/{session}?wait=ended&patience=20");
        let until = Instant::now() + TIMEOUT;
        loop {
            let seen = self.done(who, "GET", &path, Value::Null).await;
            if seen["state"] == "ended" {
                return seen["exit_code"].clone();
            }
            assert!(Instant::now() < until, "it never ended: {seen}");
        }
    }
}

/// What `df` says of a place, in bytes: all, used, what is still given out; and the device.
fn room(place: &Path) -> ([u64; 3], String) {
    let said = Command::new("df")
        .args(["-B1", "--output=size,used,avail,source"])
        .arg(place)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = said.lines().last().expect("a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| words[at].parse().expect("a number");
    ([number(0), number(1), number(2)], words[3].to_owned())
}

/// Asserts that a scope holds all that fits: not a block more is given out, and what is not used of its limit is what the
/// kernel keeps of it for itself and what its size misses by fitting.
fn assert_full(files: &Path, limit: u64) {
    let ([size, used, left], device) = room(files);
    assert!(
        size <= limit && used <= limit,
        "{size} and {used} of {limit}"
    );
    assert!(left < BLOCK, "{left} bytes are left");
    let Some(device) = device.strip_prefix("/dev/loop") else {
        return;
    };
    let kept = format!("/sys/fs/ext4/loop{device}/reserved_clusters");
    let kept = fs::read_to_string(kept).expect("the kernel says");
    let kept: u64 = kept.trim().parse().expect("a number");
    assert!(
        size - used <= (kept + 1) * BLOCK,
        "{used} of {size}, {kept} blocks are kept"
    );
    // What a file system may lack of its limit: 64 blocks, or an eight thousandth.
    let misses = (64 * BLOCK).max(limit / 8192);
    assert!(limit - size <= misses, "{size} of {limit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_and_an_upload_stop_at_the_limit_and_the_neighbour_goes_on() {
    const NAME: &str = "a_session_and_an_upload_stop_at_the_limit_and_the_neighbour_goes_on";
    let mib = std::env::var("FARDEL_FOLDER_MIB").ok();
    let mib = mib.map_or(LIMIT_MIB, |text| text.parse().expect("a number"));
    let limit = mib << 20;
    let Some(whole) = Whole::with_folders(NAME) else {
        return;
    };
    let data = whole.server.settings().data.clone();
    let _mounts = UnmountedBelow(data.canonicalize().expect("there"));
    let server = whole.server.clone();
    let doors = Doors(fardel::doors::router(
        server.clone(),
        Arc::clone(&whole.streams),
    ));
    let here: std::net::IpAddr = std::net::Ipv4Addr::LOCALHOST.into();
    let link = access::setup_link(&server).expect("it is not set up yet");
    let code = link.rsplit(['=', '/']).next().expect("a code").to_owned();
    let set_up = access::set_up(&server, &code, "ada", PASSWORD, here).await;
    set_up.expect("the code is right");
    let policy = json!({"limits": {"folder_bytes": limit}});
    let policies = "/api/v1/policies/default";
    doors.done(&As::Root, "PATCH", policies, policy).await;
    let root = access::local_root(&server);
    let mut owners = Vec::new();
    for name in ["mina", "jae"] {
        let made = users::create(&server, &root, name, Role::User, PASSWORD).await;
        made.expect("a new name");
        let signed_in = access::sign_in(&server, name, PASSWORD, here).await;
        let caller = signed_in.expect("the password is right").caller;
        let words: Vec<String> = Permission::ALL
            .iter()
            .map(|one| one.word().to_owned())
            .collect();
        let made = tokens::create(&server, &caller, "test", &words, None, &[]).await;
        let (_, secret) = made.expect("a valid token");
        let who = As::Token(secret.reveal().to_owned());
        let folder = json!({"name": "data"});
        let folder = doors.done(&who, "POST", "/api/v1/folders", folder).await;
        let folder = folder["id"].as_str().expect("an id").to_owned();
        let files = ScopePlace::of(&data, caller.subject.user).files();
        owners.push((who, folder, files));
    }
    let [(mina, folder, files), (jae, _, _)] = &owners[..] else {
        panic!("two users");
    };
    let place = store::folders::mounted_directory(&data, folder.parse().expect("an id"));
    if !files.is_dir() {
        whole.end().await;
        return skips::skip(NAME, "this machine holds no limit of folders");
    }

    // Read by the scenario of the guest, which knows what must hold them there.
    let held = Command::new("stat")
        .args(["--file-system", "--format=held by %T"])
        .arg(files)
        .output();
    println!(
        "{}",
        String::from_utf8_lossy(&held.expect("it runs").stdout)
    );

    // An upload is on its way when a session takes what is left.
    let quarter = limit / 4;
    let upload = doors.begin(mina, folder, 2 * quarter).await;
    let (status, said) = doors.append(mina, &upload, 0, quarter).await;
    assert_eq!(status, 204, "{said}");
    let fills = format!(
        "head -c {} /dev/zero > /data/big && exit 3
        [ $(df -B1 --output=size /data | tail -n 1) -le {limit} ] || exit 4
        [ $(df -B1 --output=avail /data | tail -n 1) -lt {BLOCK} ] || exit 5
        exit {WELL}",
        2 * limit
    );
    let fills = doors.launch(mina, "fills", &fills).await;
    let half = limit / 2;
    let neighbour = format!("head -c {half} /dev/zero > /data/mine && exit {WELL}");
    let neighbour = doors.launch(jae, "neighbour", &neighbour).await;
    assert_eq!(doors.ended(mina, &fills).await, WELL);
    assert_eq!(doors.ended(jae, &neighbour).await, WELL);
    assert_full(files, limit);
    let (status, said) = doors.append(mina, &upload, quarter, quarter).await;
    assert_eq!(
        (status, said["code"].as_str()),
        (409, Some("quota.exceeded"))
    );
    let offset = doors.offset(mina, &upload).await;
    assert!(offset - quarter < BLOCK, "{offset}");

    // Who is at the limit starts a session and makes room; the upload goes on, and stops by itself at the limit.
    let frees = format!("rm /data/big && sync && exit {WELL}");
    let frees = doors.launch(mina, "frees", &frees).await;
    assert_eq!(doors.ended(mina, &frees).await, WELL);
    let (status, said) = doors
        .append(mina, &upload, offset, 2 * quarter - offset)
        .await;
    assert_eq!(status, 204, "{said}");
    let sent = place.join("sent");
    assert_eq!(sent.metadata().expect("there").len(), 2 * quarter);
    let path = format!("/api/v1/folders/{folder}/move");
    let aside = json!({"from": "sent", "to": "first"});
    doors.done(mina, "POST", &path, aside).await;
    let second = doors.begin(mina, folder, quarter).await;
    let takes = format!(
        "left=$(df -B1 --output=avail /data | tail -n 1)
        head -c $((left - 3000000)) /dev/zero > /data/rest && sync && exit {WELL}"
    );
    let takes = doors.launch(mina, "takes", &takes).await;
    assert_eq!(doors.ended(mina, &takes).await, WELL);
    let (status, said) = doors.append(mina, &second, 0, quarter).await;
    assert_eq!(
        (status, said["code"].as_str()),
        (409, Some("quota.exceeded"))
    );
    let offset = doors.offset(mina, &second).await;
    assert!(offset > 2_000_000, "it took what there was: {offset}");
    assert_full(files, limit);
    let more = format!(
        "head -c {} /dev/zero > /data/more && exit {WELL}",
        limit / 8
    );
    let more = doors.launch(jae, "more", &more).await;
    assert_eq!(doors.ended(jae, &more).await, WELL);
    whole.end().await;
}
