//! Two domains on one machine: whatever a user of one asks, no answer and no page has a word of the other. Names,
//! titles, labels, commands and addresses of the other domain hold a word that stands nowhere else.
//!
//! Promise (Isolation and access): No answer of the API and no page shows a user of one domain a name of another domain.

use axum::http::Method;
use fardel::doors::api::openapi::{DocumentedRoute, ROUTES, SuccessReply, method};
use rules::permissions::Permission;
use serde_json::json;

use super::the_box::{As, PASSWORD, TheBox};

/// Stands in everything of the other domain.
const WORD: &str = "zanzibar";

/// Pages that list or show what belongs to somebody.
const PAGES: [&str; 17] = [
    "/",
    "/sessions",
    "/sessions?q=zanz",
    "/sessions?q=owner:zanzibar.user",
    "/sessions.csv",
    "/sessions/new",
    "/queue",
    "/gpus",
    "/gpus.csv",
    "/history",
    "/history?of=user:zanzibar.user",
    "/images",
    "/events",
    "/events?q=user:zanzibar.user",
    "/events.csv",
    "/projects",
    "/notices",
];

async fn made(the_box: &TheBox, path: &str, body: serde_json::Value) -> serde_json::Value {
    let answer = the_box.post(&the_box.admin, path, body).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.short());
    answer.json()
}

async fn cookie(the_box: &TheBox, name: &str) -> As {
    let from = std::net::IpAddr::from([192, 0, 2, 9]);
    let signed_in = server::access::sign_in(&the_box.server, name, PASSWORD, from)
        .await
        .expect("a sign-in");
    As::Cookie(signed_in.cookie)
}

/// Ids and names in the other domain, put in the place of a route's parameters.
struct OtherDomain {
    session: String,
    project: String,
}

impl OtherDomain {
    /// A user with a project of two sessions, one of which waits for the other.
    async fn fill(the_box: &TheBox) -> Self {
        let user = format!("{WORD}.user");
        let body = json!({"name": user, "password": PASSWORD});
        made(the_box, "/api/v1/users", body).await;
        let body = json!({"name": format!("{WORD}-lab"), "title": format!("The {WORD} lab")});
        let project = made(the_box, "/api/v1/projects", body).await;
        let project = project["id"].as_str().expect("an id").to_owned();
        let member = format!("/api/v1/projects/{project}/members/{user}");
        let set = the_box
            .with_body(
                &the_box.admin,
                "PUT",
                &member,
                json!({"role": "member"}).to_string(),
            )
            .await;
        assert_eq!(set.status, 200, "{}", set.short());
        let caller = the_box.token(&user, &Permission::ALL, None).await;
        let launch = |name: &str, after: Vec<String>| {
            json!({
                "name": format!("{WORD}-{name}"),
                "project": project,
                "kind": "batch",
                "command": ["sleep", WORD],
                "labels": {WORD: WORD},
                "env": {"WHERE": WORD},
                "depends_on": after,
            })
        };
        let first = the_box.launch(&caller, launch("first", Vec::new())).await;
        let session = first["id"].as_str().expect("an id").to_owned();
        the_box
            .launch(&caller, launch("second", vec![session.clone()]))
            .await;
        Self { session, project }
    }

    fn path(&self, route: &DocumentedRoute) -> String {
        let path = route
            .path
            .replace("/sessions/{id}", &format!("/sessions/{}", self.session))
            .replace("/projects/{id}", &format!("/projects/{}", self.project))
            .replace("/users/{id}", &format!("/users/{WORD}.user"))
            .replace("{port}", "8080");
        path.replace("{id}", &self.session).replace("{name}", WORD)
    }
}

/// True for what is read whole and asks for no upgrade.
fn is_read(route: &DocumentedRoute) -> bool {
    method(route) == Method::GET
        && route.answer != SuccessReply::Events
        && !["attach", "exec", "openPort"].contains(&route.operation)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_of_one_domain_reads_a_name_of_another() {
    let the_box = TheBox::open().await;
    let other = OtherDomain::fill(&the_box).await;
    made(&the_box, "/api/v1/domains", json!({"name": "biology"})).await;
    let names = ["bio.member", "bio.auditor", "bio.chief"];
    for name in names {
        let body = json!({"name": name, "password": PASSWORD, "domain": "biology"});
        made(&the_box, "/api/v1/users", body).await;
    }
    for (name, role) in [("bio.auditor", "auditor"), ("bio.chief", "administrator")] {
        let body = json!({"role": role, "domain": "biology"});
        let path = format!("/api/v1/users/{name}/grants");
        let set = the_box
            .with_body(&the_box.admin, "PUT", &path, body.to_string())
            .await;
        assert_eq!(set.status, 200, "{}", set.short());
    }
    let mut asked = 0;
    for name in names {
        let token = the_box.token(name, &Permission::ALL, None).await;
        for route in ROUTES.iter().filter(|route| is_read(route)) {
            let path = other.path(route);
            let answer = the_box.get(&token, &path).await;
            let body = String::from_utf8_lossy(&answer.bytes).into_owned();
            let body = body.replace(&path, "");
            assert!(!body.contains(WORD), "{name} reads of {path}: {body}");
            asked += 1;
        }
        let browser = cookie(&the_box, name).await;
        let own = [
            format!("/sessions/{}", other.session),
            format!("/queue/{}", other.session),
            format!("/projects/{}", other.project),
            format!("/users/{WORD}.user"),
        ];
        for path in PAGES.map(str::to_owned).iter().chain(&own) {
            let answer = the_box.get(&browser, path).await;
            let body = String::from_utf8_lossy(&answer.bytes).into_owned();
            // What was typed comes back; nothing else may.
            let typed = ["zanz", "owner:zanzibar.user", "user:zanzibar.user"];
            let body = typed.iter().rev().fold(body, |body, typed| {
                let escaped = typed.replace(':', "%3A");
                body.replace(typed, "").replace(&escaped, "")
            });
            let rest = body.replace(path.as_str(), "");
            assert!(!rest.contains("ibar"), "{name} reads in {path}: {rest}");
            asked += 1;
        }
    }
    assert!(asked > 100, "only {asked} answers were read");
}

/// The search finds what is there: the same answers, read by an administrator, are full of the word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_of_the_site_reads_the_names_of_every_domain() {
    let the_box = TheBox::open().await;
    let other = OtherDomain::fill(&the_box).await;
    let mut found = Vec::new();
    for route in ROUTES.iter().filter(|route| is_read(route)) {
        let answer = the_box.get(&the_box.admin, &other.path(route)).await;
        if String::from_utf8_lossy(&answer.bytes).contains(WORD) {
            found.push(route.operation);
        }
    }
    for operation in [
        "listSessions",
        "getSession",
        "listSessionEvents",
        "listQueue",
        "listUsers",
        "getUser",
        "listProjects",
        "getProject",
        "listMembers",
    ] {
        assert!(
            found.contains(&operation),
            "{operation} is not in {found:?}"
        );
    }
}
