//! Fourteen callers at every route: a session, a folder and a project of one user, asked for by everybody who stands
//! near or far of them. What a caller may not know is hidden, what they may not do is denied, and everything else is done.
//!
//! Promise (Isolation and access): Each route does, denies or hides what the table of roles says, for fourteen kinds of callers.

use fardel::doors::api::openapi::{DocumentedRoute, Needs, ROUTES};
use rules::permissions::Permission;
use serde_json::{Value, json};

use super::roles::{Things, ask};
use super::the_box::{As, PASSWORD, TheBox};

/// Who asks, seen from mina's session in the project vision of the domain default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Nobody,
    Suspended,
    Owner,
    /// Member of the same project.
    Fellow,
    /// The same until tomorrow.
    Guest,
    /// The same until a moment ago.
    Expired,
    /// Of the same domain, in another project.
    Neighbour,
    Lead,
    DomainAuditor,
    DomainAdministrator,
    /// User of another domain.
    Stranger,
    /// Administrator of the other domain.
    StrangeAdministrator,
    SiteAuditor,
    Administrator,
}

use Caller::{
    Administrator, DomainAdministrator, DomainAuditor, Expired, Fellow, Guest, Lead, Neighbour,
    Nobody, Owner, SiteAuditor, StrangeAdministrator, Stranger, Suspended,
};

const CALLERS: [Caller; 14] = [
    Nobody,
    Suspended,
    Neighbour,
    Expired,
    Stranger,
    StrangeAdministrator,
    Fellow,
    Guest,
    DomainAuditor,
    SiteAuditor,
    Owner,
    Lead,
    DomainAdministrator,
    Administrator,
];

/// What an answer comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// Neither of the others: done, or refused for a reason that has nothing to do with who asks.
    Through,
    SignIn,
    Denied,
    /// As if it did not exist.
    Hidden,
}

fn came(status: u16, code: &str) -> Came {
    match (status, code) {
        (401, _) => Came::SignIn,
        (403, _) => Came::Denied,
        (
            404,
            "session.not-found" | "project.not-found" | "domain.not-found" | "user.not-found"
            | "folder.not-found",
        ) => Came::Hidden,
        _ => Came::Through,
    }
}

/// Through for those of `done`, denied for those of `seen`, hidden for the rest.
fn among(caller: Caller, done: &[Caller], seen: &[Caller]) -> Came {
    match (done.contains(&caller), seen.contains(&caller)) {
        (true, _) => Came::Through,
        (false, true) => Came::Denied,
        (false, false) => Came::Hidden,
    }
}

/// The table of SECURITY.md, route by route; None for what needs no sign-in.
fn expected(caller: Caller, route: &DocumentedRoute) -> Option<Came> {
    let permission = match route.needs {
        Needs::Nothing => return None,
        _ if matches!(caller, Nobody | Suspended) => return Some(Came::SignIn),
        Needs::SignIn => return Some(Came::Through),
        Needs::Verb(permission) => permission,
    };
    let at = |what: &str| route.path.contains(what);
    let chiefs = [DomainAdministrator, StrangeAdministrator, Administrator];
    let sees_session = [Lead, DomainAuditor, DomainAdministrator, SiteAuditor];
    let or_denied = |done: &[Caller]| among(caller, done, &CALLERS);
    Some(match permission {
        Permission::SessionsRead if at("/sessions/{id}") => among(
            caller,
            &[&sees_session[..], &[Owner, Administrator]].concat(),
            &[],
        ),
        Permission::SessionsWrite if at("/sessions/{id}") => among(
            caller,
            &[Owner, Lead, DomainAdministrator, Administrator],
            &sees_session,
        ),
        // Administrators open what is another user's with a reason; a folder is its owner's without one.
        Permission::SessionsEnter if route.operation == "enterByBreakGlass" => among(
            caller,
            &[Owner, DomainAdministrator, Administrator],
            &sees_session,
        ),
        Permission::SessionsEnter if route.operation == "readByBreakGlass" => among(
            caller,
            &[Owner, DomainAdministrator, Administrator],
            &[DomainAuditor, SiteAuditor],
        ),
        Permission::SessionsEnter if at("/sessions/{id}") => among(
            caller,
            &[Owner],
            &[&sees_session[..], &[Administrator]].concat(),
        ),
        // This folder is a user's.
        Permission::SessionsRead if at("/folders/{id}") => among(
            caller,
            &[
                Owner,
                DomainAuditor,
                SiteAuditor,
                DomainAdministrator,
                Administrator,
            ],
            &[],
        ),
        // Its files are its owner's alone.
        Permission::SessionsWrite if of_folder_files(route.path) => among(
            caller,
            &[Owner],
            &[
                DomainAuditor,
                SiteAuditor,
                DomainAdministrator,
                Administrator,
            ],
        ),
        // So is sharing it, giving it away and taking it out of sessions; administrators see its shares and take them back.
        Permission::SessionsWrite
            if [
                "shareFolder",
                "offerFolder",
                "withdrawFolder",
                "detachFolder",
            ]
            .contains(&route.operation) =>
        {
            among(
                caller,
                &[Owner],
                &[
                    DomainAuditor,
                    SiteAuditor,
                    DomainAdministrator,
                    Administrator,
                ],
            )
        }
        // Its owner gives it a part of their own limit, an administrator of the site more.
        Permission::SessionsWrite if route.operation == "limitFolder" => among(
            caller,
            &[Owner, Administrator],
            &[DomainAuditor, SiteAuditor, DomainAdministrator],
        ),
        // Who sees it by a role has no share of it to leave.
        Permission::SessionsWrite if route.operation == "leaveFolder" => among(
            caller,
            &[
                Owner,
                DomainAuditor,
                SiteAuditor,
                DomainAdministrator,
                Administrator,
            ],
            &[],
        ),
        Permission::SessionsWrite if at("/folders/{id}") => among(
            caller,
            &[Owner, DomainAdministrator, Administrator],
            &[DomainAuditor, SiteAuditor],
        ),
        Permission::ProjectsRead if at("/projects/{id}") => among(
            caller,
            &[&sees_session[..], &[Owner, Fellow, Guest, Administrator]].concat(),
            &[],
        ),
        // What goes before the queue of all domains without asking, the site says.
        Permission::ProjectsWrite if route.operation == "setReservationQuota" => among(
            caller,
            &[Administrator],
            &[
                DomainAdministrator,
                Lead,
                Owner,
                Fellow,
                Guest,
                DomainAuditor,
                SiteAuditor,
            ],
        ),
        Permission::ProjectsWrite if at("/projects/{id}") => among(
            caller,
            &[Lead, DomainAdministrator, Administrator],
            &[Owner, Fellow, Guest, DomainAuditor, SiteAuditor],
        ),
        Permission::ProjectsRead | Permission::ProjectsWrite if at("/domains/{id}") => {
            let strange = [Stranger, StrangeAdministrator].contains(&caller);
            let changes = permission == Permission::ProjectsWrite;
            match strange {
                true => Came::Hidden,
                false if changes => or_denied(&[DomainAdministrator, Administrator]),
                false => Came::Through,
            }
        }
        Permission::ProjectsWrite => match route.operation {
            "createDomain" | "createPreset" | "bookReservation" => or_denied(&[Administrator]),
            "createProject" | "createCourse" | "createBudget" | "changeBudget" | "removeBudget" => {
                or_denied(&chiefs)
            }
            // A lead brings users into their own project.
            _ => or_denied(&[&chiefs[..], &[Lead]].concat()),
        },
        Permission::SessionsRead
        | Permission::SessionsWrite
        | Permission::SessionsEnter
        | Permission::ProjectsRead
        | Permission::ImagesRead
        | Permission::Me => Came::Through,
        // Everybody reads their own acts; an export is of more than those.
        Permission::AuditRead if ["listAudit", "listBreakGlass"].contains(&route.operation) => {
            Came::Through
        }
        Permission::AuditRead => {
            or_denied(&[&chiefs[..], &[Lead, DomainAuditor, SiteAuditor]].concat())
        }
        // The account is of the domain default.
        Permission::UsersRead | Permission::UsersWrite
            if at("/users/{id}")
                && caller == StrangeAdministrator
                && !["changeUser", "putGrant", "revokeGrant"].contains(&route.operation) =>
        {
            Came::Hidden
        }
        Permission::UsersRead => or_denied(&[&chiefs[..], &[DomainAuditor, SiteAuditor]].concat()),
        Permission::UsersWrite => match route.operation {
            // What reaches the whole site.
            "changeUser" | "putGrant" | "drawSetupLink" => or_denied(&[Administrator]),
            _ => or_denied(&chiefs),
        },
        Permission::ImagesWrite => or_denied(&chiefs),
        // Those of a domain belong to its administrators; without a domain it is one of the site.
        Permission::SystemRead if at("/announcements") => {
            or_denied(&[&chiefs[..], &[DomainAuditor, SiteAuditor]].concat())
        }
        Permission::SystemWrite if at("/announcements/{id}") => or_denied(&chiefs),
        Permission::SystemRead => or_denied(&[SiteAuditor, Administrator]),
        Permission::SystemWrite => or_denied(&[Administrator]),
    })
}

/// Whether a route is about the files of a folder.
fn of_folder_files(path: &str) -> bool {
    let below = path.strip_prefix("/api/v1/folders/{id}/");
    let first = below.and_then(|below| below.split('/').next());
    first.is_some_and(|first| {
        [
            "entries",
            "files",
            "archive",
            "mkdir",
            "move",
            "remove",
            "removed",
            "uploads",
            "clone",
            "search",
            "usage",
            "copy",
            "text",
            "snapshots",
        ]
        .contains(&first)
    })
}

async fn made(the_box: &TheBox, path: &str, body: Value) {
    let answer = the_box.post(&the_box.admin, path, body).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.short());
}

async fn put(the_box: &TheBox, path: &str, body: Value) {
    let set = the_box.with_body(&the_box.admin, "PUT", path, body.to_string());
    let set = set.await;
    assert_eq!(set.status, 200, "{path}: {}", set.short());
}

/// Everybody, by token, in the order of `CALLERS`.
async fn everybody(the_box: &TheBox) -> Vec<(Caller, As)> {
    made(the_box, "/api/v1/projects", json!({"name": "vision"})).await;
    made(the_box, "/api/v1/domains", json!({"name": "biology"})).await;
    let account =
        |name: &str, domain: &str| json!({"name": name, "password": PASSWORD, "domain": domain});
    for (name, domain) in [
        ("suspended", "default"),
        ("fellow", "default"),
        ("guest", "default"),
        ("expired", "default"),
        ("lead", "default"),
        ("auditor", "default"),
        ("chief", "default"),
        ("inspector", "default"),
        ("stranger", "biology"),
        ("strange.chief", "biology"),
    ] {
        made(the_box, "/api/v1/users", account(name, domain)).await;
    }
    let now = the_box.server.clock().now();
    let member = |name: &str| format!("/api/v1/projects/vision/members/{name}");
    for (name, role, end) in [
        ("mina", "member", None),
        ("fellow", "member", None),
        ("guest", "member", Some(now.plus_seconds(86_400))),
        ("expired", "member", Some(now.plus_seconds(2))),
        ("lead", "lead", None),
    ] {
        let end = end.map(|end| end.to_string());
        put(
            the_box,
            &member(name),
            json!({"role": role, "expires_at": end}),
        )
        .await;
    }
    for (name, role, domain) in [
        ("auditor", "auditor", Some("default")),
        ("chief", "administrator", Some("default")),
        ("strange.chief", "administrator", Some("biology")),
        ("inspector", "auditor", None),
    ] {
        let path = format!("/api/v1/users/{name}/grants");
        put(the_box, &path, json!({"role": role, "domain": domain})).await;
    }
    let mut all = Vec::new();
    for caller in CALLERS {
        let name = match caller {
            Nobody => {
                all.push((caller, As::Nobody));
                continue;
            }
            Suspended => "suspended",
            Owner => "mina",
            Fellow => "fellow",
            Guest => "guest",
            Expired => "expired",
            Neighbour => "jae",
            Lead => "lead",
            DomainAuditor => "auditor",
            DomainAdministrator => "chief",
            Stranger => "stranger",
            StrangeAdministrator => "strange.chief",
            SiteAuditor => "inspector",
            Administrator => "ada",
        };
        all.push((caller, the_box.token(name, &Permission::ALL, None).await));
    }
    made(
        the_box,
        "/api/v1/users/suspended/suspend",
        json!({"suspended": true}),
    )
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    all
}

/// An account of the domain default that nobody is.
async fn target(the_box: &TheBox, number: usize) -> String {
    let name = format!("target{number}");
    made(
        the_box,
        "/api/v1/users",
        json!({"name": name, "password": PASSWORD}),
    )
    .await;
    name
}

async fn session(the_box: &TheBox) -> String {
    let body = json!({"name": "own", "project": "vision", "command": ["sleep"], "kind": "batch"});
    let session = the_box.launch(&the_box.mina, body).await;
    session["id"].as_str().expect("an id").to_owned()
}

async fn end(the_box: &TheBox, session: &str) {
    let path = format!("/api/v1/sessions/{session}");
    let kill = format!("{path}/kill");
    let _ = the_box.post(&the_box.admin, &kill, json!({})).await;
    if the_box.get(&the_box.admin, &path).await.status == 200 {
        the_box.until(&the_box.admin, session, "ended").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_answers_fourteen_callers_as_the_table_of_roles_says() {
    let the_box = TheBox::open().await;
    let all = everybody(&the_box).await;
    let folder = json!({"name": "own"});
    let folder = the_box.post(&the_box.mina, "/api/v1/folders", folder).await;
    let folder = folder.json()["id"].as_str().expect("an id").to_owned();
    let (mut asked, mut wrong) = (0, Vec::new());
    let mut accounts = 0;
    let mut user = target(&the_box, accounts).await;
    for route in ROUTES {
        let mut fresh = session(&the_box).await;
        for (caller, who) in &all {
            let Some(expected) = expected(*caller, route) else {
                continue;
            };
            // Nothing but headers answers a HEAD: what is hidden looks like an upload that is not there.
            let expected = match (route.method, expected) {
                ("HEAD", Came::Hidden) => Came::Through,
                (_, expected) => expected,
            };
            let things = Things {
                session: &fresh,
                project: "vision",
                user: &user,
                folder: &folder,
            };
            let (status, code) = ask(&the_box, who, route, &things).await;
            // Nothing but headers answers a HEAD.
            let came = match (route.method, status) {
                ("HEAD", 403) => Came::Denied,
                _ => came(status, &code),
            };
            if came != expected {
                let (method, path) = (route.method, route.path);
                wrong.push(format!(
                    "{method} {path} as {caller:?}: {status} {code}, not {expected:?}"
                ));
            }
            asked += 1;
            // What was done to it is done: the next caller meets another.
            if came == Came::Through && route.path.contains("/sessions/{id}") {
                end(&the_box, &fresh).await;
                fresh = session(&the_box).await;
            }
            if came == Came::Through && ["removeUser", "departUser"].contains(&route.operation) {
                accounts += 1;
                user = target(&the_box, accounts).await;
            }
        }
        end(&the_box, &fresh).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(asked > 1_000, "only {asked} answers were compared");
}
