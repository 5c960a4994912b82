//! Volumes over the routes, on file systems that the test mounts: what is not mounted, or is another file system, takes no
//! byte, and what is back goes on; and who knows of a volume.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::body::Body;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rules::permissions::Permission;
use serde_json::{Value, json};

use super::the_box::{Answer, As, PASSWORD, TheBox};

const VOLUMES: &str = "/api/v1/volumes";
/// Longer than two looks at a volume.
const LOOKS: Duration = Duration::from_secs(60);

/// Lets go of what is mounted on some directories, however the test ends.
struct Unmounted(Vec<PathBuf>);

impl Drop for Unmounted {
    fn drop(&mut self) {
        for place in &self.0 {
            // One may be mounted over another.
            while umount2(place, MntFlags::MNT_DETACH).is_ok() {}
        }
    }
}

fn tmpfs(place: &Path) -> nix::Result<()> {
    let (none, kind) = (None::<&str>, Some("tmpfs"));
    mount(
        none,
        place,
        kind,
        MsFlags::empty(),
        Some("size=256m,mode=0700"),
    )
}

/// A new directory of the box on which a file system is mounted; none where nothing can be, and the test says so.
fn mounted(the_box: &TheBox, name: &str, test: &str) -> Option<(PathBuf, Unmounted)> {
    let place = the_box.folder.path().join(name);
    fs::create_dir(&place).expect("made");
    let unmounted = Unmounted(vec![place.clone()]);
    if let Err(error) = tmpfs(&place) {
        skips::skip(test, &format!("nothing can be mounted: {error}"));
        return None;
    }
    Some((place, unmounted))
}

fn bind(from: &Path, place: &Path) {
    let none = None::<&str>;
    mount(Some(from), place, none, MsFlags::MS_BIND, none).expect("mounted once more");
}

fn names(place: &Path) -> usize {
    fs::read_dir(place).expect("a directory").count()
}

/// Makes a volume.
async fn make_volume(the_box: &TheBox, asked: Value) {
    let made = the_box.post(&the_box.admin, VOLUMES, asked).await;
    assert_eq!(made.status, 201, "{}", made.short());
}

/// Makes a folder of mina's on a volume; its id.
async fn make_folder(the_box: &TheBox, name: &str, volume: &str) -> String {
    let asked = json!({"name": name, "volume": volume});
    let made = the_box.post(&the_box.mina, "/api/v1/folders", asked).await;
    assert_eq!(made.status, 201, "{}", made.short());
    assert_eq!(made.json()["volume"], volume);
    made.json()["id"].as_str().expect("an id").to_owned()
}

async fn until_state(the_box: &TheBox, state: &str) {
    let until = Instant::now() + LOOKS;
    loop {
        let listed = the_box.get(&the_box.admin, VOLUMES).await.json();
        if listed["items"][0]["state"] == state {
            return;
        }
        assert!(Instant::now() < until, "never {state}: {listed}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What `/metrics` says of the one volume, by the end of each name.
async fn figures(the_box: &TheBox) -> BTreeMap<String, u64> {
    let told = the_box.get(&As::Root, "/metrics").await;
    assert_eq!(told.status, 200);
    let told = String::from_utf8_lossy(&told.bytes).into_owned();
    let lines = told.lines().filter_map(|line| {
        let line = line.strip_prefix("fardel_volume_")?;
        let (name, value) = line.split_once("{volume=\"big\"} ")?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}

/// Promise (Disk, backup and upgrade): A volume that is not mounted, or another file system in its place, takes no byte; its folders are
/// refused by name, others go on, and it comes back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_is_gone_takes_no_byte_and_comes_back_by_itself() {
    let test = "a_volume_that_is_gone_takes_no_byte_and_comes_back_by_itself";
    let the_box = TheBox::open().await;
    let [first, second] = ["first", "second"].map(|name| the_box.folder.path().join(name));
    for place in [&first, &second] {
        fs::create_dir(place).expect("made");
    }
    let _unmounted = Unmounted(vec![first.clone(), second.clone()]);
    let cached = json!({"name": "big", "path": first, "cached": true});
    let refused = the_box.post(&the_box.admin, VOLUMES, cached).await;
    assert_eq!(refused.short(), "422 volume.cache-none");
    let big = json!({"name": "big", "path": first});
    let refused = the_box.post(&the_box.admin, VOLUMES, big.clone()).await;
    assert_eq!(refused.short(), "409 volume.not-mounted");
    assert_eq!(names(&first), 0, "nothing is written below");
    if let Err(error) = tmpfs(&first) {
        skips::skip(test, &format!("nothing can be mounted: {error}"));
        return;
    }
    let refused = the_box.post(&the_box.mina, VOLUMES, big.clone()).await;
    assert_eq!(refused.short(), "403 role.administrator-needed");
    fs::write(first.join("foreign"), "").expect("written");
    let refused = the_box.post(&the_box.admin, VOLUMES, big.clone()).await;
    assert_eq!(refused.short(), "409 volume.not-empty");
    fs::remove_file(first.join("foreign")).expect("removed");
    make_volume(&the_box, big).await;
    assert!(first.join(store::volumes::MARKER).is_file());
    bind(&first, &second);
    let twice = json!({"name": "other", "path": second});
    let refused = the_box.post(&the_box.admin, VOLUMES, twice).await;
    assert_eq!(refused.short(), "409 volume.known");

    let id = make_folder(&the_box, "data", "big").await;
    let shard = first.join("folders").join(&id[id.len() - 2..]).join(&id);
    let mkdir = format!("/api/v1/folders/{id}/mkdir");
    let make = async |name: &str| {
        let body = json!({"path": name});
        the_box.post(&the_box.mina, &mkdir, body).await.short()
    };
    assert!(make("a").await.starts_with("201"));
    assert!(shard.join("data/a").is_dir(), "it lies on the volume");
    let path = format!("{VOLUMES}/big");
    let used = the_box.with_body(&the_box.admin, "DELETE", &path, "").await;
    assert_eq!(used.short(), "409 volume.used");

    let house = tokio::spawn(server::keep_house(&the_box.server));
    until_state(&the_box, "ready").await;
    let room = figures(&the_box).await;
    assert_eq!(room["ready"], 1);
    assert!(room["free_bytes"] > 0, "{room:?}");
    assert_eq!(room["used_bytes"] + room["free_bytes"], room["bytes"]);
    umount2(&first, MntFlags::MNT_DETACH).expect("it was mounted");
    assert_eq!(make("b").await, "503 volume.absent");
    assert_eq!(names(&first), 0, "nothing is written below");
    until_state(&the_box, "absent").await;
    let room = figures(&the_box).await;
    assert_eq!(room["ready"], 0, "{room:?}");
    assert!(!room.contains_key("free_bytes"), "nothing is made up");
    let asked = json!({"name": "new", "volume": "big"});
    let refused = the_box.post(&the_box.mina, "/api/v1/folders", asked).await;
    assert_eq!(refused.short(), "503 volume.absent");
    let plain = json!({"name": "plain"});
    let made = the_box.post(&the_box.mina, "/api/v1/folders", plain).await;
    assert_eq!(made.status, 201, "others go on: {}", made.short());
    let body = json!({"kind": "batch", "command": ["true"], "mounts": [{"folder": "data"}]});
    let refused = the_box.post(&the_box.mina, "/api/v1/sessions", body).await;
    assert_eq!(refused.short(), "503 volume.absent");

    tmpfs(&first).expect("mounted");
    assert_eq!(make("b").await, "503 volume.absent", "it is another one");
    assert_eq!(names(&first), 0, "nothing is written on it");
    umount2(&first, MntFlags::MNT_DETACH).expect("it was mounted");
    bind(&second, &first);
    until_state(&the_box, "ready").await;
    assert!(make("b").await.starts_with("201"));
    assert!(shard.join("data/a").is_dir() && shard.join("data/b").is_dir());
    house.abort();
    let _ = house.await;
}

/// What the checks of the box say of folders, by their codes.
async fn findings(the_box: &TheBox) -> Vec<String> {
    let told = the_box.get(&the_box.admin, "/api/v1/findings").await;
    assert_eq!(told.status, 200, "{}", told.short());
    let told = told.json();
    let all = told["items"].as_array().expect("a list").iter();
    let codes = all.filter_map(|one| one["code"].as_str());
    let codes = codes.filter(|code| code.starts_with("folder."));
    codes.map(str::to_owned).collect()
}

/// As where a backup is restored on a new machine, and the volume is mounted there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_on_a_volume_are_found_again_where_nothing_on_this_disk_leads_there() {
    let test = "folders_on_a_volume_are_found_again_where_nothing_on_this_disk_leads_there";
    let the_box = TheBox::open().await;
    let Some((place, _unmounted)) = mounted(&the_box, "mounted", test) else {
        return;
    };
    let big = json!({"name": "big", "path": place});
    make_volume(&the_box, big).await;
    let mut folders = Vec::new();
    for name in ["kept", "lost"] {
        folders.push(make_folder(&the_box, name, "big").await);
    }
    let below = |top: &Path, id: &str| top.join("folders").join(&id[id.len() - 2..]).join(id);
    let data = the_box.server.settings().data.clone();
    let mkdir = format!("/api/v1/folders/{}/mkdir", folders[0]);
    let make = async |name: &str| {
        let body = json!({"path": name});
        the_box.post(&the_box.mina, &mkdir, body).await
    };
    assert_eq!(make("a").await.status, 201);
    assert_eq!(findings(&the_box).await, [""; 0]);
    for id in &folders {
        let link = below(&data, id);
        assert!(link.is_symlink(), "{}", link.display());
        fs::remove_file(link).expect("removed");
    }
    assert_ne!(make("b").await.status, 201);
    // Of the one not even the volume has the files any more.
    fs::remove_dir_all(below(&place, &folders[1])).expect("removed");
    let house = tokio::spawn(server::keep_house(&the_box.server));
    let until = Instant::now() + LOOKS;
    while make("b").await.status != 201 {
        assert!(Instant::now() < until, "it is not found again");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    house.abort();
    let _ = house.await;
    let kept = below(&place, &folders[0]).join("data");
    assert!(kept.join("a").is_dir() && kept.join("b").is_dir());
    assert_eq!(findings(&the_box).await, ["folder.without-directory"]);

    // A directory on the volume that is no folder, from longer ago than one takes to be made.
    let stray = uuid::Uuid::from_u128(0x57a7).to_string();
    let stray_data = below(&place, &stray).join("data");
    fs::create_dir_all(&stray_data).expect("made");
    fs::write(stray_data.join("file"), "all that is left").expect("written");
    let found = findings(&the_box).await;
    assert_eq!(
        found,
        ["folder.without-directory", "folder.directory-unknown"]
    );
    let asked = json!({"owner": "mina", "name": "back"});
    let path = format!("/api/v1/folders/{stray}/adopt");
    let adopted = the_box.post(&the_box.admin, &path, asked).await;
    assert!(adopted.status.is_success(), "{}", adopted.short());
    assert_eq!(adopted.json()["volume"], "big");
    let listed = format!("/api/v1/folders/{stray}/entries");
    let listed = the_box.get(&the_box.mina, &listed).await;
    assert_eq!(listed.json()["items"][0]["name"], "file");
}

/// What an answer says of the volume that was asked for by that word, without the number of the request.
fn said(answer: &Answer, asked: &str) -> (u16, String) {
    let mut body = answer.json();
    if let Some(body) = body.as_object_mut() {
        body.remove("request_id");
    }
    let text = body.to_string().replace(asked, "WORD");
    (answer.status.as_u16(), text)
}

/// What these acts on a volume give a caller, by its name or id.
async fn acts(the_box: &TheBox, who: &As, asked: &str) -> Vec<(u16, String)> {
    let path = format!("{VOLUMES}/{asked}");
    let patch = TheBox::request(who, "PATCH", &path)
        .header("content-type", "application/merge-patch+json")
        .header("if-match", "*")
        .body(Body::from(json!({"name": "mine"}).to_string()));
    let folder = json!({"name": "more", "volume": asked});
    let all = [
        the_box.get(who, &path).await,
        the_box.post(who, "/api/v1/folders", folder).await,
        the_box.send(patch.expect("a request")).await,
        the_box.with_body(who, "DELETE", &path, "").await,
    ];
    let codes = [
        "volume.not-found",
        "volume.not-found",
        "role.administrator-needed",
        "role.administrator-needed",
    ];
    for (answer, code) in all.iter().zip(codes) {
        assert!(
            answer.short().ends_with(code),
            "{asked}: {}",
            answer.short()
        );
    }
    all.iter().map(|answer| said(answer, asked)).collect()
}

/// A volume that is not theirs is told from one that there is not by no answer: neither by name nor by id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_of_a_project_is_none_for_those_outside() {
    let test = "a_volume_of_a_project_is_none_for_those_outside";
    let the_box = TheBox::open().await;
    let Some((place, _unmounted)) = mounted(&the_box, "shelves", test) else {
        return;
    };
    let made = async |path: &str, body: Value| {
        let made = the_box.post(&the_box.admin, path, body).await;
        assert!(made.status.is_success(), "{path}: {}", made.short());
        made.json()["id"].as_str().unwrap_or_default().to_owned()
    };
    made("/api/v1/projects", json!({"name": "vision"})).await;
    made("/api/v1/domains", json!({"name": "biology"})).await;
    let account = json!({"name": "stranger", "password": PASSWORD, "domain": "biology"});
    made("/api/v1/users", account).await;
    let stranger = the_box.token("stranger", &Permission::ALL, None).await;
    let member = "/api/v1/projects/vision/members/mina";
    let role = json!({"role": "member"}).to_string();
    let set = the_box.with_body(&the_box.admin, "PUT", member, role).await;
    assert_eq!(set.status, 200, "{}", set.short());
    let volume = json!({"name": "shelves", "path": place, "projects": ["default/vision"]});
    let id = made(VOLUMES, volume).await;
    let none = uuid::Uuid::from_u128(7).to_string();

    for who in [&the_box.jae, &stranger] {
        let listed = the_box.get(who, VOLUMES).await;
        assert_eq!(listed.status, 200, "{}", listed.short());
        assert_eq!(listed.json()["items"], json!([]));
        for (there, nowhere) in [("shelves", "shadows"), (id.as_str(), none.as_str())] {
            let there = acts(&the_box, who, there).await;
            assert_eq!(there, acts(&the_box, who, nowhere).await);
        }
    }

    let path = format!("{VOLUMES}/shelves");
    let hers = the_box.get(&the_box.mina, &path).await;
    assert_eq!(hers.status, 200, "{}", hers.short());
    let hers = hers.json();
    // Where it is mounted, and who else has it, the site alone sees.
    assert_eq!(
        (&hers["path"], &hers["projects"]),
        (&Value::Null, &json!([]))
    );
    let folder = make_folder(&the_box, "data", "shelves").await;
    let sites = the_box.get(&the_box.admin, &path).await.json();
    assert_eq!(sites["projects"], json!(["default/vision"]));
    assert_eq!(sites["folders"], 1);

    let left = the_box
        .with_body(&the_box.admin, "DELETE", member, "")
        .await;
    assert!(left.status.is_success(), "{}", left.short());
    let there = acts(&the_box, &the_box.mina, "shelves").await;
    assert_eq!(there, acts(&the_box, &the_box.mina, "shadows").await);
    // What she made there is hers still.
    let mkdir = format!("/api/v1/folders/{folder}/mkdir");
    let kept = the_box.post(&the_box.mina, &mkdir, json!({"path": "a"}));
    assert_eq!(kept.await.status, 201);
}

/// Where nothing but a count holds a limit, what is written through the server is held to it, and an owner sets none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_limits_a_folder_on_a_volume() {
    let test = "an_administrator_limits_a_folder_on_a_volume";
    let the_box = TheBox::open().await;
    let Some((place, _unmounted)) = mounted(&the_box, "shelves", test) else {
        return;
    };
    let (admin, mina) = (&the_box.admin, &the_box.mina);
    make_volume(&the_box, json!({"name": "shelves", "path": place})).await;
    let id = make_folder(&the_box, "data", "shelves").await;
    let limit = format!("/api/v1/folders/{id}/limit");
    let set = async |who: &As, bytes: Value| {
        let body = json!({"bytes": bytes}).to_string();
        the_box.with_body(who, "PUT", &limit, body).await
    };
    let bytes: u64 = 32 << 20;
    let refused = set(mina, json!(bytes)).await;
    assert_eq!(refused.short(), "409 folder.limit-volume");
    let given = set(admin, json!(bytes)).await;
    assert!(given.status.is_success(), "{}", given.short());
    assert_eq!(given.json()["limit"], bytes);
    assert_eq!(given.json()["state"], "ready", "nothing moves");
    let begin = async |name: &str, size: u64| {
        let request = TheBox::request(mina, "POST", &format!("/api/v1/folders/{id}/uploads"))
            .header("tus-resumable", "1.0.0")
            .header("upload-length", size.to_string())
            .header("upload-metadata", format!("filename {name}"))
            .body(Body::empty());
        let begun = the_box.send(request.expect("a request")).await;
        begun.short()
    };
    let refused = begin("YQ==", bytes + 1).await;
    assert!(refused.ends_with("quota.exceeded"), "{refused}");
    assert!(begin("Yg==", 1).await.starts_with("201"));
    let refused = set(mina, Value::Null).await;
    assert_eq!(refused.short(), "409 folder.limit-volume");
    let given = set(admin, Value::Null).await;
    assert!(given.status.is_success(), "{}", given.short());
    let begun = begin("Yw==", bytes + 1).await;
    assert!(begun.starts_with("201"), "{begun}");
}

/// What a volume says of new folders holds for each that is made there, copies too, and for none that is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_new_folder_on_a_volume_has_the_limit_that_the_volume_says() {
    let test = "each_new_folder_on_a_volume_has_the_limit_that_the_volume_says";
    let the_box = TheBox::open().await;
    let Some((place, _unmounted)) = mounted(&the_box, "shelves", test) else {
        return;
    };
    let mut asked = json!({"name": "shelves", "path": place, "folder_limit": 1});
    let refused = the_box.post(&the_box.admin, VOLUMES, asked.clone()).await;
    assert_eq!(refused.short(), "422 folder.limit-size");
    assert_eq!(names(&place), 0, "what is refused writes no marker");
    let bytes: u64 = 64 << 20;
    asked["folder_limit"] = json!(bytes);
    make_volume(&the_box, asked).await;
    let limit_of = async |id: &str| {
        let path = format!("/api/v1/folders/{id}");
        the_box.get(&the_box.mina, &path).await.json()["limit"].clone()
    };
    let first = make_folder(&the_box, "first", "shelves").await;
    assert_eq!(limit_of(&first).await, bytes);
    let set = async |bytes: u64| {
        let path = format!("{VOLUMES}/shelves");
        let patch = TheBox::request(&the_box.admin, "PATCH", &path)
            .header("content-type", "application/merge-patch+json")
            .header("if-match", "*")
            .body(Body::from(json!({"folder_limit": bytes}).to_string()));
        the_box.send(patch.expect("a request")).await
    };
    assert_eq!(set(7).await.short(), "422 folder.limit-size");
    let none = set(0).await;
    assert_eq!(none.json()["folder_limit"], Value::Null, "{}", none.short());
    let second = make_folder(&the_box, "second", "shelves").await;
    assert_eq!(limit_of(&second).await, Value::Null);
    assert_eq!(limit_of(&first).await, bytes, "it keeps its own");
}

/// A directory that is all that a restored catalog left of a folder on a volume.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_a_volume_becomes_a_folder_again() {
    let test = "a_directory_of_a_volume_becomes_a_folder_again";
    let the_box = TheBox::open().await;
    let Some((place, _unmounted)) = mounted(&the_box, "shelves", test) else {
        return;
    };
    make_volume(&the_box, json!({"name": "shelves", "path": place})).await;
    let id = uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ab).to_string();
    let adopt = format!("/api/v1/folders/{id}/adopt");
    let back = json!({"owner": "mina", "name": "back"});
    let none = the_box.post(&the_box.admin, &adopt, back.clone()).await;
    assert_eq!(none.short(), "404 folder.not-found");
    let data = place.join("folders/ab").join(&id).join("data");
    fs::create_dir_all(&data).expect("made");
    fs::write(data.join("file"), "all that is left").expect("written");
    let refused = the_box.post(&the_box.mina, &adopt, back.clone()).await;
    assert_eq!(refused.short(), "403 role.administrator-needed");
    let made = the_box.post(&the_box.admin, &adopt, back).await;
    assert!(made.status.is_success(), "{}", made.short());
    assert_eq!(made.json()["volume"], "shelves");
    let path = "/api/v1/folders/back/entries";
    let listed = the_box.get(&the_box.mina, path).await.json();
    assert_eq!(listed["items"][0]["name"], "file", "{listed}");

    // Another site that has the same volume keeps what is its own.
    until_state(&the_box, "ready").await;
    let made = make_folder(&the_box, "made", "shelves").await;
    let made = place
        .join("folders")
        .join(&made[made.len() - 2..])
        .join(&made)
        .join("site");
    let own = fs::read_to_string(made).expect("it names its site");
    let theirs = uuid::Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00cd).to_string();
    let directory = place.join("folders/cd").join(&theirs);
    fs::create_dir_all(directory.join("data")).expect("made");
    let other = uuid::Uuid::from_u128(7).to_string();
    fs::write(directory.join("site"), &other).expect("written");
    assert_eq!(findings(&the_box).await, [""; 0], "it is not astray");
    let adopt = format!("/api/v1/folders/{theirs}/adopt");
    let asked = json!({"owner": "mina", "name": "theirs"});
    let refused = the_box.post(&the_box.admin, &adopt, asked).await;
    assert_eq!(refused.short(), "409 folder.directory-other-site");
    let named = fs::read_to_string(directory.join("site")).expect("it stays");
    assert_eq!(named, other);
    let asked = json!({"owner": "mina", "name": "theirs", "of_other_site": true});
    let taken = the_box.post(&the_box.admin, &adopt, asked).await;
    assert!(taken.status.is_success(), "{}", taken.short());
    let named = fs::read_to_string(directory.join("site")).expect("it names a site");
    assert_eq!(named, own);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_mounts_folders_of_volumes_that_map_one_user_of_the_site() {
    let test = "a_session_mounts_folders_of_volumes_that_map_one_user_of_the_site";
    let the_box = TheBox::open().await;
    let [first, second] = ["first", "second"].map(|name| the_box.folder.path().join(name));
    for place in [&first, &second] {
        fs::create_dir(place).expect("made");
    }
    let _unmounted = Unmounted(vec![first.clone(), second.clone()]);
    for place in [&first, &second] {
        if let Err(error) = tmpfs(place) {
            skips::skip(test, &format!("nothing can be mounted: {error}"));
            return;
        }
    }
    for bad in ["0", "999", "5000:", "1000000000", "kim"] {
        let asked = json!({"name": "big", "path": first, "mapped_user": bad});
        let refused = the_box.post(&the_box.admin, VOLUMES, asked).await;
        assert_eq!(refused.short(), "422 volume.mapped-user", "{bad}");
    }
    for (name, place, user) in [("big", &first, "5000:5001"), ("other", &second, "6000")] {
        let asked = json!({"name": name, "path": place, "mapped_user": user});
        make_volume(&the_box, asked).await;
        make_folder(&the_box, &format!("on-{name}"), name).await;
    }
    let path = format!("{VOLUMES}/big");
    let shown = the_box.get(&the_box.admin, &path).await.json();
    assert_eq!(shown["mapped_user"], "5000:5001");
    let shown = the_box.get(&the_box.mina, &path).await.json();
    assert!(shown["mapped_user"].is_null(), "{shown}");
    // What the server makes there is that user's, too.
    let body = json!({"path": "a"});
    let made = the_box
        .post(&the_box.mina, "/api/v1/folders/on-big/mkdir", body)
        .await;
    assert!(made.short().starts_with("201"), "{}", made.short());
    let folder = the_box.get(&the_box.mina, "/api/v1/folders/on-big").await;
    let id = folder.json()["id"].as_str().expect("an id").to_owned();
    let shard = first.join("folders").join(&id[id.len() - 2..]).join(&id);
    let owner = fs::metadata(shard.join("data/a")).expect("there");
    assert_eq!((owner.uid(), owner.gid()), (5000, 5001));
    let both = json!({"kind": "batch", "command": ["true"],
        "mounts": [{"folder": "on-big"}, {"folder": "on-other"}]});
    let refused = the_box.post(&the_box.mina, "/api/v1/sessions", both).await;
    assert_eq!(refused.short(), "409 mount.mapped-users");
}
