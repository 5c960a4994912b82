//! Each route that names a folder, asked by users whom it is shared with to be read, to be written to and to be managed, and by
//! one who has no share of it. A route without a row here, and a row without a route, fail.

use std::collections::BTreeSet;

use fardel::doors::api::openapi::{DocumentedRoute, Needs, ROUTES};
use rules::permissions::Permission;
use serde_json::json;

use super::roles::{Things, ask};
use super::the_box::{As, PASSWORD, TheBox};

/// Who asks. Each has the rights of those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Guest {
    Outsider,
    /// Of a share that is `ro`, `rw` and `rwd`.
    Reader,
    Writer,
    Keeper,
}

use Guest::{Keeper, Outsider, Reader, Writer};

const GUESTS: [(Guest, &str); 4] = [
    (Outsider, "outsider"),
    (Reader, "ro"),
    (Writer, "rw"),
    (Keeper, "rwd"),
];

/// The first guest who does what a route does; None: no guest, its owner alone or an administrator of the site.
type FirstGuest = Option<Guest>;

/// The table of rights, route by route.
const ROWS: [(&str, FirstGuest); 50] = [
    ("getFolder", Some(Reader)),
    ("changeFolder", Some(Keeper)),
    ("trashFolder", Some(Keeper)),
    ("restoreFolder", Some(Keeper)),
    ("purgeFolder", Some(Keeper)),
    ("adoptFolder", None),
    ("listFolderShares", Some(Keeper)),
    ("shareFolder", Some(Keeper)),
    ("unshareFolder", Some(Keeper)),
    ("listFolderSessions", Some(Keeper)),
    ("detachFolder", None),
    ("leaveFolder", Some(Reader)),
    ("cloneFolder", Some(Reader)),
    ("offerFolder", None),
    ("withdrawFolder", None),
    ("listFolderEntries", Some(Reader)),
    ("readFolderFile", Some(Reader)),
    ("archiveFolder", Some(Reader)),
    ("makeFolderDirectory", Some(Writer)),
    ("moveFolderEntry", Some(Writer)),
    ("removeFolderEntries", Some(Writer)),
    ("searchFolder", Some(Reader)),
    ("getFolderUsage", Some(Reader)),
    ("copyFolderEntry", Some(Writer)),
    ("readFolderText", Some(Reader)),
    ("createFolderText", Some(Writer)),
    ("writeFolderText", Some(Writer)),
    ("listRemovedEntries", Some(Reader)),
    ("emptyRemovedEntries", Some(Writer)),
    ("restoreRemovedEntries", Some(Writer)),
    ("purgeRemovedEntries", Some(Writer)),
    ("listFolderUploads", Some(Writer)),
    // What folders know of tus is told without a sign-in.
    ("describeFolderUploads", Some(Outsider)),
    ("createFolderUpload", Some(Writer)),
    ("getFolderUpload", Some(Writer)),
    ("appendFolderUpload", Some(Writer)),
    ("abortFolderUpload", Some(Writer)),
    ("writeFolderFile", Some(Writer)),
    ("moveFolderEntries", Some(Writer)),
    ("copyFolderEntries", Some(Writer)),
    ("limitFolder", None),
    ("readByBreakGlass", Some(Reader)),
    ("listFolderSnapshots", Some(Reader)),
    ("createFolderSnapshot", Some(Keeper)),
    ("setFolderSnapshotSchedule", Some(Keeper)),
    ("removeFolderSnapshot", Some(Keeper)),
    ("listFolderSnapshotEntries", Some(Reader)),
    ("readFolderSnapshotFile", Some(Reader)),
    ("cloneFolderSnapshot", Some(Reader)),
    ("restoreFolderSnapshot", Some(Writer)),
];

/// What an answer comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// Done, or refused for a reason that has nothing to do with who asks.
    Through,
    Denied,
    /// As if there were no folder.
    Hidden,
}

fn came(route: &DocumentedRoute, status: u16, code: &str) -> Came {
    match (status, code) {
        (403, _) => Came::Denied,
        (404, "folder.not-found") => Came::Hidden,
        // Nothing but headers answers a HEAD: what is hidden looks like an upload that is not there.
        (404, _) if route.method == "HEAD" => Came::Hidden,
        _ => Came::Through,
    }
}

fn expected(route: &DocumentedRoute, guest: Guest, first: FirstGuest) -> Came {
    match (first, guest) {
        (Some(first), guest) if guest >= first && route.method == "HEAD" => Came::Hidden,
        (Some(first), guest) if guest >= first => Came::Through,
        // What an administrator of the site alone does is looked at before the folder.
        (None, _) if route.operation == "adoptFolder" => Came::Denied,
        (_, Outsider) => Came::Hidden,
        _ => Came::Denied,
    }
}

async fn made(the_box: &TheBox, who: &As, path: &str, body: serde_json::Value) -> String {
    let answer = the_box.post(who, path, body).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.short());
    let body = serde_json::from_slice::<serde_json::Value>(&answer.bytes);
    let id = body
        .ok()
        .and_then(|body| body["id"].as_str().map(str::to_owned));
    id.unwrap_or_default()
}

/// A folder of mina's with a directory and a file, shared with each guest.
async fn shared(the_box: &TheBox, guests: &[(Guest, As)], name: &str) -> String {
    let mina = &the_box.mina;
    let folder = made(the_box, mina, "/api/v1/folders", json!({"name": name})).await;
    let at = |what: &str| format!("/api/v1/folders/{folder}/{what}");
    made(the_box, mina, &at("mkdir"), json!({"path": "d"})).await;
    let text = json!({"path": "d/text", "text": "text"});
    made(the_box, mina, &at("text"), text).await;
    for ((guest, who), (_, word)) in guests.iter().zip(GUESTS) {
        if *guest == Outsider {
            continue;
        }
        let asked = json!({"user": format!("guest.{word}"), "right": word});
        let share = made(the_box, mina, &at("shares"), asked).await;
        let accept = format!("/api/v1/folder-invitations/{share}/accept");
        made(the_box, who, &accept, json!({})).await;
    }
    folder
}

/// What its owner sees of a folder and its files.
async fn seen(the_box: &TheBox, folder: &str) -> String {
    let at = format!("/api/v1/folders/{folder}");
    let known = the_box.get(&the_box.mina, &at).await.json();
    let mut all = format!("{} {} {}", known["name"], known["state"], known["owner"]);
    for more in ["entries", "entries?path=d", "removed", "uploads", "shares"] {
        let answer = the_box.get(&the_box.mina, &format!("{at}/{more}")).await;
        match answer.status.is_success() {
            true => all.push_str(&answer.json()["items"].to_string()),
            false => all.push_str(&answer.short()),
        }
    }
    all
}

/// Proves too: `a_colleague_reads_a_shared_folder_and_does_not_write`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_of_a_folder_asks_for_the_right_that_it_needs() {
    let the_box = TheBox::open().await;
    let mut guests = Vec::new();
    for (guest, word) in GUESTS {
        let name = format!("guest.{word}");
        let account = json!({"name": name, "password": PASSWORD});
        made(&the_box, &the_box.admin, "/api/v1/users", account).await;
        let token = the_box.token(&name, &Permission::ALL, None).await;
        guests.push((guest, token));
    }
    let (mut wrong, mut of_folders) = (Vec::new(), BTreeSet::new());
    let routes = ROUTES
        .iter()
        .filter(|route| route.path.contains("/folders/{id}"));
    for (number, route) in routes.enumerate() {
        of_folders.insert(route.operation);
        let row = ROWS.iter().find(|(name, _)| *name == route.operation);
        let Some((_, first)) = row else {
            wrong.push(format!("{} has no row", route.operation));
            continue;
        };
        if route.needs == Needs::Nothing {
            assert_eq!(*first, Some(Outsider), "{}", route.operation);
            continue;
        }
        let folder = shared(&the_box, &guests, &format!("own{number}")).await;
        for (guest, who) in &guests {
            let before = seen(&the_box, &folder).await;
            let things = Things {
                session: "no-such-session",
                project: "default",
                user: "mina",
                folder: &folder,
            };
            let (status, code) = ask(&the_box, who, route, &things).await;
            let (came, expected) = (came(route, status, &code), expected(route, *guest, *first));
            let (method, path) = (route.method, route.path);
            if came != expected || status >= 500 {
                wrong.push(format!(
                    "{method} {path} as {guest:?}: {status} {code}, not {expected:?}"
                ));
            }
            if came != Came::Through && seen(&the_box, &folder).await != before {
                wrong.push(format!("{method} {path} as {guest:?} changed something"));
            }
        }
    }
    let rows: BTreeSet<_> = ROWS.iter().map(|(name, _)| *name).collect();
    let left: Vec<_> = rows.difference(&of_folders).copied().collect();
    assert!(left.is_empty(), "rows without a route: {left:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
