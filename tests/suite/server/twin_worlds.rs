//! Twin worlds: two servers that are equal but for the rows of one domain. Whatever a user of another domain asks, both
//! answer the same bytes: every GET of the API, every page, every stream.
//!
//! Promise (Isolation and access): What stands in one domain changes no byte of what a user of another domain reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use axum::body::Body;
use axum::http::Method;
use base::observe::Clock;
use fardel::doors::api::openapi::{DocumentedRoute, ROUTES, SuccessReply, method};
use http_body_util::BodyExt as _;
use regex::{Captures, Regex};
use rules::permissions::Permission;
use rules::units::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::page_routes::{UNASKED, pages};
use super::roles::days_ahead;
use super::the_box::{As, PASSWORD, TheBox};

/// What the things of the other domain are called in the two worlds, by letters that stand nowhere else.
const WORDS: [&str; 2] = ["zanzibar", "kookaburra"];

/// What pages are asked about besides being opened: those that the console serves are found from its routers, each with
/// `WORD` and the things of the other domain put in.
const QUERIES: [&str; 28] = [
    "/sessions?q=WORD",
    "/sessions?q=owner:WORD.user",
    "/sessions?q=project:WORD-lab",
    "/sessions?q=replicas:SESSION",
    "/sessions?group=off&sort=name",
    "/sessions/new?from=SESSION",
    "/sessions/stop?id=SESSION",
    "/queue?q=owner:WORD.user",
    "/usage?by=member",
    "/usage?by=domain",
    "/statements?whose=user:WORD.user",
    "/history?of=user:WORD.user",
    "/events?q=user:WORD.user",
    "/events?q=WORD",
    "/courses?q=WORD",
    "/folders/FOLDER/search?q=WORD",
    "/folders/FOLDER/edit?path=WORD",
    "/folders/FOLDER/entry?path=WORD",
    "/folders/FOLDER/remove?path=WORD",
    "/folders/FOLDER/selection?id=WORD",
    "/presets?q=WORD",
    "/budgets?q=WORD",
    "/audit?q=user:WORD.user",
    "/palette?q=WORD",
    "/choices/domains?domain=WORD",
    "/choices/projects?project=WORD",
    "/choices/users?user=WORD",
    "/users?q=WORD",
];
/// What a route is asked for: things of the other domain, or what neither world has.
const ASKED_FOR: [(&str, &str); 37] = [
    ("/sessions/{id}", "/sessions/SESSION"),
    ("/queue/{id}", "/queue/SESSION"),
    ("/projects/{id}", "/projects/PROJECT"),
    ("/domains/{id}", "/domains/default"),
    ("/users/import/{id}", "/users/import/NOTHING"),
    ("/users/{id}", "/users/WORD.user"),
    ("/folders/{id}", "/folders/FOLDER"),
    ("/courses/{id}", "/courses/COURSE"),
    ("/budgets/{id}", "/budgets/BUDGET"),
    ("/presets/{id}", "/presets/PRESET"),
    ("/reservations/{id}", "/reservations/RESERVATION"),
    ("/announcements/{id}", "/announcements/ANNOUNCEMENT"),
    ("/idle-rules/{id}", "/idle-rules/IDLE-RULE"),
    ("/policies/{id}", "/policies/POLICY"),
    ("/allowances/{id}", "/allowances/ALLOWANCE"),
    ("/resource-groups/{id}", "/resource-groups/WORD"),
    ("/groups/{id}", "/groups/WORD"),
    ("/storage/{id}", "/storage/NOTHING"),
    ("/images/{id}", "/images/NOTHING"),
    ("/environments/{which}", "/environments/WORD"),
    ("/gpus/{id}", "/gpus/GPU-0"),
    ("/nodes/{name}", "/nodes/box"),
    ("/system/webhooks/{id}", "/system/webhooks/NOTHING"),
    ("/me/keys/{id}", "/me/keys/NOTHING"),
    ("/me/ssh-keys/{id}", "/me/ssh-keys/NOTHING"),
    ("/me/tokens/{id}", "/me/tokens/NOTHING"),
    ("/apps/{port}", "/apps/8080"),
    ("/ports/{port}", "/ports/8080"),
    ("/apps/{app}", "/apps/8080"),
    ("{invitation}", "INVITATION"),
    ("{user}", "WORD.user"),
    ("{share}", "SESSION"),
    ("{number}", "1"),
    ("{verb}", "stop"),
    ("/backups/{name}", "/backups/WORD"),
    ("/{name}", "/WORD"),
    ("/{id}", "/SESSION"),
];
/// A stream that is no page.
const JOURNAL: &str = "/api/v1/events?since=12";

/// Users of the domain that looks, and what they are there.
const LOOKING: [&str; 5] = [
    "bio.member",
    "bio.viewer",
    "bio.lead",
    "bio.auditor",
    "bio.chief",
];

/// When the worlds are filled and read. Both by one clock that moves with what is made: what is told of a time is equal.
static NOW: LazyLock<Timestamp> = LazyLock::new(|| Clock::system().now());

/// When they begin: in a month that is over by then, days before its end.
static BEGAN: LazyLock<Timestamp> = LazyLock::new(|| {
    let back =
        |from: Timestamp, days: i64| Timestamp::from_millis(from.as_millis() - days * 86_400_000);
    let began = back(*NOW, 40);
    let day: u64 = began.to_string()[8..10].parse().expect("a day");
    match day > 26 {
        true => back(began, 7),
        false => began,
    }
});

struct World {
    the_box: TheBox,
    session: String,
    project: String,
    folder: String,
    /// Ids of what else stands in the other domain, by the words of `ASKED_FOR`.
    things: BTreeMap<&'static str, String>,
}

impl World {
    /// A server with two domains: one full of `word`, and one that is the same in every world.
    async fn open(word: &'static str) -> Self {
        let mut world = Self {
            the_box: TheBox::by_clock(Clock::set_by_hand(*BEGAN), &[], Vec::new()).await,
            session: String::new(),
            project: String::new(),
            folder: String::new(),
            things: BTreeMap::new(),
        };
        let user = format!("{word}.user");
        world.user(&user, None).await;
        let named = json!({"full_name": word, "email": format!("{word}@lab.example")});
        world.patch(&format!("/api/v1/users/{user}"), named).await;
        world.project = world.add_project(None, &format!("{word}-lab"), word).await;
        world.member(&world.project, &user, "member").await;
        let cells = world.found_biology().await;
        world.use_a_past_month(&user, &cells).await;
        let path = format!("/api/v1/projects/{}/invitations", world.project);
        let invited = json!({"email": format!("{word}.new@lab.example")});
        let invited = world.made(&path, invited).await;
        world.keep("INVITATION", &invited["invitation"]);
        let path = format!("/api/v1/users/{user}/sign-in-link");
        world.made(&path, json!({})).await;
        let announced = json!({"text": word, "text_ko": word, "domain": "default"});
        let announced = world.made("/api/v1/announcements", announced).await;
        world.keep("ANNOUNCEMENT", &announced);
        let project = world.project.clone();
        for (scope, of) in [("domain", "default"), ("project", project.as_str())] {
            let preset = json!({"name": word, "title": word, "resources": {"cpu": 1}, scope: of});
            let preset = world.made("/api/v1/presets", preset).await;
            world.keep("PRESET", &preset);
        }
        let course = json!({
            "name": word, "title": word, "project": world.project, "rules": word, "image": word,
            "from": days_ahead(1), "to": days_ahead(30),
        });
        let course = world.made("/api/v1/courses", course).await;
        world.keep("COURSE", &course);
        let course = format!("/api/v1/courses/{}", world.things["COURSE"]);
        world.patch(&course, json!({"state": "open"})).await;
        let told = json!({"text": word});
        world.made(&format!("{course}/message"), told).await;
        let group = json!({"name": word, "title": word});
        world.made("/api/v1/resource-groups", group).await;
        let access = json!({"projects": [world.project], "users": [user]});
        let path = format!("/api/v1/resource-groups/{word}/access");
        world.put(&path, access).await;
        let budget = json!({"project": world.project, "gpu_hours": "9", "month": "2999-01"});
        let budget = world.made("/api/v1/budgets", budget).await;
        world.keep("BUDGET", &budget);
        let reserved = json!({
            "name": word, "project": world.project, "resources": {"cpu": 1},
            "from": days_ahead(2), "to": days_ahead(3),
        });
        let reserved = world.made("/api/v1/reservations", reserved).await;
        world.keep("RESERVATION", &reserved);
        let idle = json!({
            "name": word, "level": "project", "subject": world.project, "exempt": word,
            "below": {"cpu": 0.1},
        });
        let idle = world.made("/api/v1/idle-rules", idle).await;
        world.keep("IDLE-RULE", &idle);
        let policy = json!({"name": word, "limits": {"sessions": 90}});
        let policy = world.made("/api/v1/policies", policy).await;
        world.keep("POLICY", &policy);
        let holds_for = json!({"level": "project", "subject": world.project});
        let path = format!("/api/v1/policies/{word}/uses");
        world.put(&path, holds_for).await;
        let until = world.the_box.server.clock().now().plus_seconds(9 * 86_400);
        let raised = json!({
            "level": "user", "subject": user, "limits": {"waiting": 2000}, "until": until.to_string(), "reason": word,
        });
        let raised = world.made("/api/v1/allowances", raised).await;
        world.keep("ALLOWANCE", &raised);
        let caller = world.the_box.token(&user, &Permission::ALL, None).await;
        world.let_time_pass();
        let folder = json!({"name": word});
        let folder = world.the_box.post(&caller, "/api/v1/folders", folder).await;
        assert!(folder.status.is_success(), "{}", folder.short());
        world.folder = folder.json()["id"].as_str().expect("an id").to_owned();
        let path = format!("/api/v1/folders/{}/mkdir", world.folder);
        let below = world.the_box.post(&caller, &path, json!({"path": word}));
        let below = below.await;
        assert!(below.status.is_success(), "{}", below.short());
        let launch = |name: &str, after: Vec<String>| {
            json!({
                "name": format!("{word}-{name}"),
                "project": world.project,
                "kind": "batch",
                "command": ["sleep", word],
                "labels": {word: word},
                "env": {"WHERE": word},
                "depends_on": after,
            })
        };
        let first = world.launch(&caller, launch("first", Vec::new())).await;
        let second = launch("second", vec![first.clone()]);
        world.session = first;
        world.launch(&caller, second).await;
        world.fill_biology(&cells).await;
        let month = BEGAN.to_string()[..7].to_owned();
        let closed = json!({"month": month, "time_zone": "UTC"});
        world.made("/api/v1/months", closed).await;
        world
    }

    fn keep(&mut self, word: &'static str, thing: &Value) {
        let id = thing["id"].as_str().expect("an id").to_owned();
        self.things.insert(word, id);
    }

    /// The domain that looks, its users and its project, whose id it gives.
    async fn found_biology(&self) -> String {
        self.made("/api/v1/domains", json!({"name": "biology"}))
            .await;
        for name in LOOKING {
            self.user(name, Some("biology")).await;
        }
        let cells = self.add_project(Some("biology"), "cells", "Cells").await;
        for (name, role) in [
            ("bio.member", "member"),
            ("bio.viewer", "viewer"),
            ("bio.lead", "lead"),
        ] {
            self.member(&cells, name, role).await;
        }
        for (name, role) in [("bio.auditor", "auditor"), ("bio.chief", "administrator")] {
            self.grant(name, role, Some("biology")).await;
        }
        cells
    }

    /// Both domains use a month that is closed later. A session of neither runs on over the days since: where it ends, the
    /// machine reports again.
    async fn use_a_past_month(&self, user: &str, cells: &str) {
        let body = |project: &str| {
            json!({
                "name": "past", "project": project, "kind": "batch", "command": ["sleep"],
                "resources": {"cpu": 0.5},
            })
        };
        let mut used = Vec::new();
        for (name, project) in [(user, self.project.as_str()), ("bio.member", cells)] {
            let caller = self.the_box.token(name, &Permission::ALL, None).await;
            let session = self.launch(&caller, body(project)).await;
            used.push((caller, session));
        }
        let mina = &self.the_box.mina;
        let own = json!({"kind": "batch", "command": ["sleep"], "resources": {"cpu": 0.5}});
        let stays = self.launch(mina, own).await;
        let clock = self.the_box.server.clock();
        clock.set(clock.now().plus_seconds(3_600));
        for (caller, session) in &used {
            self.kill(caller, session).await;
        }
        clock.set(*NOW);
        self.kill(mina, &stays).await;
    }

    async fn kill(&self, caller: &As, session: &str) {
        let path = format!("/api/v1/sessions/{session}/kill");
        let killed = self.the_box.post(caller, &path, json!({})).await;
        assert!(killed.status.is_success(), "{}", killed.short());
        self.the_box.until(caller, session, "ended").await;
    }

    /// What is made later is later: many lists are in the order of times.
    fn let_time_pass(&self) {
        let clock = self.the_box.server.clock();
        clock.set(Timestamp::from_millis(clock.now().as_millis() + 10));
    }

    async fn fill_biology(&self, cells: &str) {
        let announced = json!({"text": "Cells divide.", "domain": "biology"});
        self.made("/api/v1/announcements", announced).await;
        let preset = json!({"name": "cell", "resources": {"cpu": 1}, "domain": "biology"});
        self.made("/api/v1/presets", preset).await;
        let caller = self
            .the_box
            .token("bio.member", &Permission::ALL, None)
            .await;
        let launch = |name: &str, after: Vec<String>| json!({"name": name, "project": cells, "kind": "batch", "command": ["sleep"], "depends_on": after});
        let first = self.launch(&caller, launch("division", Vec::new())).await;
        self.launch(&caller, launch("count", vec![first])).await;
    }

    async fn made(&self, path: &str, body: Value) -> Value {
        self.let_time_pass();
        let answer = self.the_box.post(&self.the_box.admin, path, body).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.short());
        answer.json()
    }

    async fn put(&self, path: &str, body: Value) {
        self.let_time_pass();
        let request = TheBox::request(&self.the_box.admin, "PUT", path)
            .header("content-type", "application/json")
            .header("if-match", "*")
            .body(Body::from(body.to_string()));
        let set = self.the_box.send(request.expect("a request")).await;
        assert_eq!(set.status, 200, "{path}: {}", set.short());
    }

    async fn patch(&self, path: &str, body: Value) {
        self.let_time_pass();
        let request = TheBox::request(&self.the_box.admin, "PATCH", path)
            .header("content-type", "application/merge-patch+json")
            .header("if-match", "*")
            .body(Body::from(body.to_string()));
        let set = self.the_box.send(request.expect("a request")).await;
        assert_eq!(set.status, 200, "{path}: {}", set.short());
    }

    /// What the plan of a roster says that asks for a name and an address of the other domain.
    async fn plan(&self, who: &As) -> String {
        let word = WORDS[0];
        let text = format!(
            "name,email,project\n{word}.user,,cells\nbio.member,{word}@lab.example,cells\n"
        );
        let path = "/api/v1/rosters?dry_run=true";
        let request = TheBox::request(who, "POST", path)
            .header("content-type", "text/csv")
            .body(Body::from(text));
        let answer = self.the_box.send(request.expect("a request")).await;
        masked(&String::from_utf8_lossy(&answer.bytes))
    }

    async fn user(&self, name: &str, domain: Option<&str>) {
        let body = json!({"name": name, "password": PASSWORD, "domain": domain});
        self.made("/api/v1/users", body).await;
    }

    async fn add_project(&self, domain: Option<&str>, name: &str, title: &str) -> String {
        let body = json!({"domain": domain, "name": name, "title": title});
        let project = self.made("/api/v1/projects", body).await;
        project["id"].as_str().expect("an id").to_owned()
    }

    async fn member(&self, project: &str, user: &str, role: &str) {
        let path = format!("/api/v1/projects/{project}/members/{user}");
        self.put(&path, json!({"role": role})).await;
    }

    async fn grant(&self, user: &str, role: &str, domain: Option<&str>) {
        let path = format!("/api/v1/users/{user}/grants");
        self.put(&path, json!({"role": role, "domain": domain}))
            .await;
    }

    /// Launches, waits until the session runs or cannot yet, and gives its id.
    async fn launch(&self, caller: &As, body: Value) -> String {
        let waits = body["depends_on"]
            .as_array()
            .is_some_and(|after| !after.is_empty());
        self.let_time_pass();
        let session = self.the_box.launch(caller, body).await;
        let id = session["id"].as_str().expect("an id").to_owned();
        if !waits {
            self.the_box.until(caller, &id, "running").await;
        }
        id
    }

    /// `path` with what is asked for put in: the things of the other domain in this world, or what no world has.
    fn filled(&self, path: &str, real: bool) -> String {
        // Each has an id of its own, as things have.
        let unknown = |number: usize| format!("019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e{number:02x}");
        let own = [
            ("SESSION", &self.session),
            ("PROJECT", &self.project),
            ("FOLDER", &self.folder),
        ];
        let kept = self.things.iter().map(|(word, id)| (*word, id));
        let all = kept.chain(own).enumerate();
        let path = all.fold(path.to_owned(), |path, (number, (word, id))| match real {
            true => path.replace(word, id),
            false => path.replace(word, &unknown(number)),
        });
        path.replace("NOTHING", &unknown(0xff))
            .replace("WORD", WORDS[0])
    }

    async fn cookie(&self, name: &str) -> As {
        self.let_time_pass();
        let from = std::net::IpAddr::from([192, 0, 2, 9]);
        let signed_in = server::access::sign_in(&self.the_box.server, name, PASSWORD, from)
            .await
            .expect("a sign-in");
        As::Cookie(signed_in.cookie)
    }

    async fn get(&self, who: &As, path: &str) -> String {
        let answer = self.the_box.get(who, path).await;
        let text = String::from_utf8_lossy(&answer.bytes);
        masked(&format!("{} {text}", answer.status))
    }

    /// What a stream says first: until it is silent for a moment.
    async fn stream(&self, who: &As, path: &str) -> String {
        let request = TheBox::request(who, "GET", path).body(Body::empty());
        let router = self.the_box.router.clone();
        let response = router.oneshot(request.expect("a request")).await;
        let response = response.expect("an answer");
        let mut said = format!("{}\n", response.status());
        let mut body = response.into_body();
        let mut wait = FIRST_WORD;
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(wait, body.frame()).await {
            if let Ok(bytes) = frame.into_data() {
                said.push_str(&String::from_utf8_lossy(&bytes));
                wait = SILENCE;
            }
        }
        masked(&said)
    }

    /// Everything that a user reads, masked, by what was asked. `real` asks for the things of the other domain of this
    /// world, else the same questions are about what does not exist.
    async fn read_by(&self, name: &str, real: bool) -> BTreeMap<String, String> {
        let mut read = BTreeMap::new();
        self.let_time_pass();
        let token = self.the_box.token(name, &Permission::ALL, None).await;
        for route in ROUTES.iter().filter(|route| is_read(route)) {
            let path = self.filled(&parameters(route.path), real);
            let key = format!("{name} GET {}", route.path);
            read.insert(key, self.get(&token, &path).await);
        }
        // An administrator of a domain is told of names that are taken: accounts are of the site.
        if name != "bio.chief" {
            read.insert(format!("{name} POST WORD rosters"), self.plan(&token).await);
        }
        let browser = self.cookie(name).await;
        for path in pages_asked() {
            let filled = self.filled(&path, real);
            let said = match path.ends_with("/live") {
                true => self.stream(&browser, &filled).await,
                false => self.get(&browser, &filled).await,
            };
            read.insert(format!("{name} {path}"), said);
        }
        let said = self.stream(&token, &self.filled(JOURNAL, real)).await;
        read.insert(format!("{name} {JOURNAL}"), said);
        read
    }
}

/// An answer that differs is asked for again: what the worlds are made of differs each time, and how far a stream has come
/// by the moment it falls silent does not.
const ROUNDS: usize = 3;
/// A stream that has said all it knows says nothing for this long.
const SILENCE: Duration = Duration::from_millis(150);
/// How long a stream may take before it says anything, on a machine that does other things.
const FIRST_WORD: Duration = Duration::from_secs(5);

/// A path of a router with what it is asked for.
fn parameters(path: &str) -> String {
    ASKED_FOR
        .iter()
        .fold(path.to_owned(), |path, (found, put)| {
            path.replace(found, put)
        })
}

/// Every page that the console serves, and every query. A page of another kind than those of `ASKED_FOR` is a failure, and
/// so is one of `UNASKED` that is not served.
fn pages_asked() -> BTreeSet<String> {
    let served = pages();
    let gone: Vec<&&str> = UNASKED
        .iter()
        .filter(|path| !served.contains(**path))
        .collect();
    assert!(gone.is_empty(), "not served: {gone:?}");
    let asked = served
        .iter()
        .filter(|path| !UNASKED.contains(&path.as_str()));
    let opened = asked.map(|path| {
        let filled = parameters(path);
        assert!(
            !filled.contains('{'),
            "nothing says what {path} is asked for"
        );
        filled
    });
    let queries = QUERIES.iter().map(|path| (*path).to_owned());
    opened.chain(queries).collect()
}

/// True for what is read whole and asks for no upgrade.
fn is_read(route: &DocumentedRoute) -> bool {
    method(route) == Method::GET
        && route.answer != SuccessReply::Events
        && !["attach", "exec", "openPort"].contains(&route.operation)
}

/// What differs between two servers whoever's rows they hold: ids, times, ages, secrets of one answer, places in the
/// journal, and what a machine measures.
fn masked(text: &str) -> String {
    static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            // Made with a key of the site.
            (r#""digest":"[0-9a-f]+""#, "DIGEST"),
            // Signed with one: a place in a list, whose items are compared.
            (r#""next_cursor":"[A-Za-z0-9_-]+""#, "CURSOR"),
            // The chain of the audit log, which random bytes go into.
            (r#""(hash|previous)":"[0-9a-f]{64}""#, "HASH"),
            (r#"\\"(salt|hash)\\":\\"[0-9a-f]+\\""#, "SALT"),
            // Of lines of a closed month, which are salted: how many there are is compared.
            (r#""[0-9a-f]{64}""#, "DIGEST"),
            (r#""signature":"[A-Za-z0-9+/=]+""#, "SIGNATURE"),
            (r#"sequence\\":\d+"#, "NUMBER"),
            (r"[0-9.]+ [KMGT]iB is free on the disk", "DISK"),
            (r"([0-9A-F]{2}:){31}[0-9A-F]{2}", "FINGERPRINT"),
            (r"(?s)-----BEGIN CERTIFICATE-----.*?-----END", "PEM"),
            (r"fardel \S+ [0-9A-F]{4}\b", "AUTHORITY"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?Z", "TIME"),
            (r"\b\d\d:\d\d(:\d\d)?\b", "TIME"),
            (r"\b\d+ (ms|s|min)( ago)?\b|\bjust now\b", "AGE"),
            (r#""waited_seconds":[0-9.]+"#, "AGE"),
            (r#"nonce(="|-)[A-Za-z0-9+/=_-]+"#, "NONCE"),
            (r#"("sequence":|id="a-|\bid: |data-at=")\d+"#, "NUMBER"),
            (r#"data-announced="[0-9a-f]+"#, "MARK"),
            (r"mark=[0-9a-f]+|\bq-[0-9a-f]+", "MARK"),
            (
                r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-…",
                "ID…",
            ),
        ]
        .map(|(found, put)| (Regex::new(found).expect("a pattern"), put))
        .into()
    });
    static IDS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
            .expect("a pattern")
    });
    let mut ids: Vec<String> = Vec::new();
    let numbered = IDS.replace_all(text, |found: &Captures<'_>| {
        let id = found[0].to_owned();
        let place = ids
            .iter()
            .position(|known| *known == id)
            .unwrap_or_else(|| {
                ids.push(id);
                ids.len() - 1
            });
        format!("ID{place}")
    });
    MASKS
        .iter()
        .fold(numbered.into_owned(), |text, (found, put)| {
            found.replace_all(&text, *put).into_owned()
        })
}

/// The first place where two answers differ, with some letters before and behind.
fn difference(one: &str, other: &str) -> Option<String> {
    let at = one.chars().zip(other.chars()).position(|(a, b)| a != b);
    let at = match at {
        None if one.chars().count() == other.chars().count() => return None,
        at => at.unwrap_or_else(|| one.chars().count().min(other.chars().count())),
    };
    let around =
        |text: &str| -> String { text.chars().skip(at.saturating_sub(80)).take(200).collect() };
    Some(format!("\n  {}\n  {}", around(one), around(other)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twin_worlds_answer_the_other_domain_with_the_same_bytes() {
    let (one, other) = (World::open(WORDS[0]).await, World::open(WORDS[1]).await);
    let (mut asked, mut leaks) = (0, Vec::new());
    for name in LOOKING {
        let mut differing = BTreeMap::new();
        for round in 0..ROUNDS {
            let read = one.read_by(name, true).await;
            let same = other.read_by(name, false).await;
            asked += read.len();
            let mut told = BTreeMap::new();
            for (question, said) in &read {
                told.extend(difference(said, &same[question]).map(|told| (question.clone(), told)));
                // What was typed comes back; a name of the other domain does not.
                let typed = question.contains("WORD") || question.contains('{');
                let named = WORDS.iter().find(|word| !typed && said.contains(**word));
                leaks.extend(named.map(|word| format!("{question} names {word}")));
            }
            match round {
                0 => differing = told,
                _ => differing.retain(|question, _| told.contains_key(question)),
            }
            if differing.is_empty() {
                break;
            }
        }
        leaks.extend(
            differing
                .into_iter()
                .map(|(question, told)| format!("{question}: {told}")),
        );
    }
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
    assert!(asked > 1_000, "only {asked} answers were compared");
}

/// Without its filter each of these answers differs between the worlds: an auditor of the site reads with none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_its_filter_differs_between_twin_worlds() {
    let (one, other) = (World::open(WORDS[0]).await, World::open(WORDS[1]).await);
    for world in [&one, &other] {
        world.grant("bio.auditor", "auditor", None).await;
    }
    let read = one.read_by("bio.auditor", true).await;
    let same = other.read_by("bio.auditor", false).await;
    let blind: Vec<&str> = LEAKING
        .into_iter()
        .filter(|question| {
            let question = format!("bio.auditor {question}");
            difference(&read[&question], &same[&question]).is_none()
        })
        .collect();
    assert!(blind.is_empty(), "no difference in {blind:?}");
}

/// Answers that hold rows of one domain, so that each shows a missing filter.
const LEAKING: [&str; 77] = [
    "GET /api/v1/sessions",
    "GET /api/v1/sessions/{id}",
    "GET /api/v1/sessions/{id}/events",
    "GET /api/v1/sessions/{id}/why",
    "GET /api/v1/queue",
    "GET /api/v1/users",
    "GET /api/v1/users/{id}",
    "GET /api/v1/users/{id}/grants",
    "GET /api/v1/projects",
    "GET /api/v1/projects/{id}",
    "GET /api/v1/projects/{id}/members",
    "GET /api/v1/announcements",
    "/announcements",
    "GET /api/v1/budgets",
    "/budgets",
    "GET /api/v1/courses",
    "/courses",
    "/courses/COURSE",
    "GET /api/v1/folders",
    "GET /api/v1/folders/{id}/entries",
    "GET /api/v1/storage",
    "GET /api/v1/presets",
    "/presets",
    "GET /api/v1/resource-groups",
    "/groups",
    "GET /api/v1/reservations",
    "/reservations",
    "GET /api/v1/statements",
    "/statements",
    "/statements/export",
    "/statements/signed",
    "GET /api/v1/audit",
    "GET /api/v1/audit/export",
    "/audit",
    "/audit.csv",
    "/audit/export",
    "/",
    "/sessions",
    "/sessions?q=WORD",
    "/sessions?q=owner:WORD.user",
    "/sessions?q=project:WORD-lab",
    "/sessions.csv",
    "/sessions/SESSION",
    "/queue",
    "/queue.csv",
    "/events",
    "/events.csv",
    "/projects",
    "/projects/PROJECT",
    "/palette?q=WORD",
    "/users",
    "/users/WORD.user",
    "/live",
    "/sessions/live",
    "/queue/live",
    "/api/v1/events?since=12",
    "GET /api/v1/courses/{id}",
    "GET /api/v1/budgets/{id}",
    "GET /api/v1/presets/{id}",
    "GET /api/v1/reservations/{id}",
    "GET /api/v1/announcements/{id}",
    "GET /api/v1/idle-rules/{id}",
    "GET /api/v1/policies",
    "GET /api/v1/policies/{id}",
    "GET /api/v1/allowances",
    "GET /api/v1/allowances/{id}",
    "/budgets/BUDGET",
    "/reservations/RESERVATION",
    "/announcements/ANNOUNCEMENT",
    "/presets/PRESET",
    "/idle-rules",
    "/idle-rules/IDLE-RULE",
    "/policies",
    "/policies/POLICY",
    "/allowances",
    "/users.csv",
    "/projects/PROJECT/invitations",
];
