//! Route × role: what every route answers to nobody, to a user, to the owner, to an administrator, to
//! a token without the scope, to one that expired, and from a foreign page. A route of the table
//! without a row here, and a row without a route, fail.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use fardel::doors::api::openapi::{DocumentedRoute, Needs, ROUTES, SuccessReply};
use rules::permissions::Permission;
use serde_json::json;

use super::the_box::{As, TheBox};

/// What the paths of routes are about.
pub(super) struct Things<'a> {
    pub(super) session: &'a str,
    pub(super) project: &'a str,
    pub(super) user: &'a str,
    pub(super) folder: &'a str,
}

/// A path of the table with its parameters filled in for a session of mina's.
fn filled(route: &DocumentedRoute, things: &Things<'_>) -> String {
    let Things {
        session,
        project,
        user,
        folder,
    } = things;
    route
        .path
        .replace("/sessions/{id}", &format!("/sessions/{session}"))
        .replace("/projects/{id}", &format!("/projects/{project}"))
        .replace("/domains/{id}", "/domains/default")
        .replace("{user}", user)
        .replace("{sign_in}", "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f")
        .replace("{invitation}", "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f")
        .replace("/users/{id}", &format!("/users/{user}"))
        .replace("/folders/{id}", &format!("/folders/{folder}"))
        .replace("{upload}", "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f")
        .replace("/tokens/{id}", "/tokens/no-such-token")
        .replace("{port}", "8080")
        .replace("{app}", "8080")
        .replace("{share}", "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f")
        .replace("{number}", "1")
        .replace("{id}", "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f")
}

/// Words of a body that is taken by its route, as far as the role decides.
fn body(route: &DocumentedRoute) -> String {
    match route.body {
        Some("LaunchRequest") => json!({"command": ["true"], "kind": "batch"}).to_string(),
        Some("CommitRequest") => json!({"reference": "tools:1"}).to_string(),
        Some("CodeRunRequest") => json!({"mode": "restart"}).to_string(),
        Some("NewFolderCopy") => json!({"name": "copy"}).to_string(),
        Some("NewFolderFromSnapshot") => json!({"name": "earlier"}).to_string(),
        Some("FolderSnapshotRestore") => json!({"path": "a.txt"}).to_string(),
        Some("NewFolderSnapshotSchedule") => {
            json!({"hourly": 0, "daily": 1, "weekly": 0}).to_string()
        }
        Some("SessionPatch") => json!({"labels": {"a": "b"}}).to_string(),
        Some("NewUser") => {
            json!({"name": "new.one", "password": super::the_box::PASSWORD}).to_string()
        }
        Some("NewPassword") => json!({"password": "another-good-one-9"}).to_string(),
        Some("UserPatch") => json!({"role": "user"}).to_string(),
        Some("SuspendRequest") => json!({"suspended": false}).to_string(),
        Some("NewToken") => json!({"name": "t", "scopes": ["me"]}).to_string(),
        Some("NewSshKey") => json!({"public_key": "none"}).to_string(),
        Some("NewDotfile") => json!({"path": ".bashrc", "content": "umask 077"}).to_string(),
        Some("NewStartupScript") => json!({"script": "true"}).to_string(),
        // A variable would close the later sessions of its user to the others who ask.
        Some("NewVariable") => json!({"name": "PATH", "value": "x"}).to_string(),
        Some("Preferences") => json!({"language": "ko"}).to_string(),
        Some("PasswordChange") => {
            json!({"old": "wrong-password-1", "new": "another-good-one-9"}).to_string()
        }
        Some("SecondFactorCredentials") => json!({"password": "wrong-password-1"}).to_string(),
        Some("SecondFactorConfirmation") => json!({"ticket": "x", "code": "000000"}).to_string(),
        Some("SignInRequest") => json!({"name": "ada", "password": "wrong-password-1"}).to_string(),
        Some("SetupRequest") => json!({"code": "wrong", "name": "x", "password": "y"}).to_string(),
        Some("ImportRequest") => {
            json!({"upload": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"}).to_string()
        }
        Some("EnvironmentImport") => {
            json!({"upload": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"}).to_string()
        }
        Some("NewImageLimits") => json!({"min_cpu": 1}).to_string(),
        Some("ImagePull") => json!({"image": "registry.example/tiny:1"}).to_string(),
        Some("CertificateRequest") => json!({"names": ["gpu.lab"]}).to_string(),
        Some("CertificateImport") => json!({"certificate": "none"}).to_string(),
        Some("CertificateReset") => json!({"to": "own"}).to_string(),
        Some("PartitionRequest") => json!({"profiles": []}).to_string(),
        Some("CordonRequest" | "DrainRequest" | "TestRequest") => "{}".to_owned(),
        Some("NewDomain" | "NewProject") => json!({"name": "new"}).to_string(),
        Some("DomainPatch" | "ProjectPatch") => json!({"title": "A title"}).to_string(),
        Some("NewPolicy") => json!({"name": "new"}).to_string(),
        Some("PolicyPatch") => json!({"limits": {"sessions": 3}}).to_string(),
        Some("NewBudget") => {
            json!({"project": "default", "gpu_hours": "1", "month": "2999-01"}).to_string()
        }
        Some("BudgetPatch") => json!({"gpu_hours": "2"}).to_string(),
        Some("NewReservation") => json!({
            "name": "new", "maintenance": true, "resources": {"cpu": 1},
            "from": days_ahead(2), "to": days_ahead(3),
        })
        .to_string(),
        Some("ReservationPatch") => json!({"name": "newer"}).to_string(),
        Some("ReservationApproval") => "{}".to_owned(),
        Some("ReservationRefusal") => json!({"reason": "Full."}).to_string(),
        Some("NewReservationQuota") => json!({"gpu_hours": "10"}).to_string(),
        Some("NewCourse") => json!({
            "name": "new", "project": "default", "from": days_ahead(2), "to": days_ahead(3),
        })
        .to_string(),
        Some("CoursePatch") => json!({"title": "A title"}).to_string(),
        Some("CourseStart" | "CourseStop") => "{}".to_owned(),
        Some("CourseExtension") => json!({"minutes": 30}).to_string(),
        Some("NewCourseHandOut") => json!({"folder": "lesson"}).to_string(),
        Some("NewCourseSlot") => {
            json!({"day": "mon", "from": "09:00", "to": "12:00", "resources": {"cpu": 1}}).to_string()
        }
        Some("CourseMessage") => json!({"text": "Save your work."}).to_string(),
        Some("NewResourceGroup") => json!({"name": "new"}).to_string(),
        Some("ResourceGroupPatch") => json!({"title": "A title"}).to_string(),
        Some("ResourceGroupNodes") => json!({"nodes": []}).to_string(),
        Some("NewResourceGroupAccess") => json!({"everybody": true}).to_string(),
        Some("ResourceGroupWindows") => json!({"windows": []}).to_string(),
        Some("NewAppShare") => json!({}).to_string(),
        Some("NewFolderTransfer") => json!({"user": "jae"}).to_string(),
        Some("NewFolderShare") => json!({"user": "jae"}).to_string(),
        Some("NewVolume") => json!({"name": "big", "path": "/mnt/no-such-volume"}).to_string(),
        Some("VolumePatch") => json!({"name": "bigger"}).to_string(),
        Some("NewFolder") => json!({"name": "new"}).to_string(),
        Some("FolderPatch") => json!({"name": "newer"}).to_string(),
        Some("FolderLimit") => json!({"bytes": 2_u64 << 30}).to_string(),
        Some("PoolSize") => json!({"bytes": 64_u64 << 30}).to_string(),
        Some("FolderAdoption") => json!({"owner": "mina", "name": "back"}).to_string(),
        Some("NewFolderDirectory") => json!({"path": "new"}).to_string(),
        Some("FolderMove") => json!({"from": "new", "to": "newer"}).to_string(),
        Some("FolderCopy") => json!({"from": "newer", "to": "copy"}).to_string(),
        Some("NewFolderText") => json!({"path": "a.txt", "text": "text"}).to_string(),
        // None of them: what follows needs the directory where it is.
        Some("FolderSelection") => json!({"paths": [], "to": ""}).to_string(),
        Some("FolderRemoval") => json!({"paths": ["newer"]}).to_string(),
        Some("RemovedEntries") => {
            json!({"items": ["019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"]}).to_string()
        }
        Some("NewPreset") => json!({"name": "new", "resources": {"cpu": 1}}).to_string(),
        Some("PresetPatch") => json!({"position": 1}).to_string(),
        Some("NewIdleRule") => json!({"name": "new", "below": {"cpu": 0.1}}).to_string(),
        Some("IdleRulePatch") => json!({"window_seconds": 7200}).to_string(),
        Some("NewAnnouncement" | "AnnouncementPatch") => json!({"text": "News."}).to_string(),
        Some("MailChoicesRequest") => json!({"kinds": ["failed"]}).to_string(),
        // They are off already: what follows meets no act that waits.
        Some("FourEyes") => json!({"on": false}).to_string(),
        Some("NewBreakGlass") => json!({"reason": "The disk is nearly full."}).to_string(),
        Some("SignUpApproval") => "{}".to_owned(),
        Some("NewSignUpRule") => json!({"addresses": "@lab.example"}).to_string(),
        Some("FolderDetachment") => json!({"sessions": ["no-such-session"]}).to_string(),
        Some("FolderHandOver") => json!({"to": "jae"}).to_string(),
        Some("NewHolidays") => json!({"list": "2026-12-25 Christmas"}).to_string(),
        Some("BrandingPatch") => json!({"hue": 3}).to_string(),
        Some("NewWebhook") => json!({
            "name": "new", "address": "https://127.0.0.1:9/x", "kinds": ["sessions"],
        })
        .to_string(),
        Some("WebhookPatch") => json!({"active": false}).to_string(),
        Some("MailTest") => json!({"address": "mina@lab.example"}).to_string(),
        Some("NewClosedMonth") => json!({"month": "2026-10"}).to_string(),
        Some("NewPrices") => json!({"currency": "KRW", "gpu_hour": "1500"}).to_string(),
        Some("FairSharePatch") => json!({"half_life_hours": 24}).to_string(),
        Some("NewAllowance") => json!({
            "level": "user", "subject": "jae", "limits": {"gpu": 2}, "until": "2999-01-01T00:00:00Z",
        })
        .to_string(),
        Some("NewLimitRequest") => {
            json!({"limits": {"waiting": 100_000}, "days": 3, "reason": "An exam."}).to_string()
        }
        Some("LimitRequestDecline") => "{}".to_owned(),
        Some("FairWeight") => json!({"level": "user", "subject": "jae", "weight": 2}).to_string(),
        Some("NewPolicyUse") => json!({"level": "user", "subject": "jae"}).to_string(),
        Some("DepartureRequest") => "{}".to_owned(),
        Some("NewInvitation" | "NewSignInLink") => "{}".to_owned(),
        Some("InvitationCode") => json!({"code": "no-such-code"}).to_string(),
        Some("NewMember") => json!({"role": "member"}).to_string(),
        Some("NewGrant") => json!({"role": "auditor"}).to_string(),
        Some("StopRequest") => "{}".to_owned(),
        Some("MaintenanceRequest") => json!({"maintenance": false}).to_string(),
        Some("SettingRequest") => json!({"value": 7}).to_string(),
        Some(other) => panic!("roles.rs does not know the body {other}"),
        None => String::new(),
    }
}

/// The local time in so many days, in UTC, as it is typed.
pub(super) fn days_ahead(days: u64) -> String {
    seconds_ahead(days * 86_400)
}

/// The same in so many seconds; the minute that has begun then.
pub(super) fn seconds_ahead(seconds: u64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.expect("the clock is right").as_secs() + seconds;
    let millis = i64::try_from(seconds * 1000).expect("a time");
    let at = rules::units::Timestamp::from_millis(millis).to_string();
    at[..16].to_owned()
}

/// Status and code of what a route answers a caller; the paths are of a session and a project.
pub(super) async fn ask(
    the_box: &TheBox,
    who: &As,
    route: &DocumentedRoute,
    things: &Things<'_>,
) -> (u16, String) {
    let path = filled(route, things);
    let mut request = TheBox::request(who, route.method, &path);
    if route.body.is_some() {
        request = request
            .header("content-type", "application/json")
            .header("if-match", "*");
    }
    if route.operation == "writeFolderFile" {
        request = request.header("if-match", "*");
    }
    if route.operation == "applyRoster" {
        request = request.header("content-type", "text/csv");
    }
    if route.path.contains("/uploads") {
        request = request
            .header("tus-resumable", "1.0.0")
            .header("upload-length", "10")
            .header("upload-offset", "0")
            .header("upload-metadata", "filename YS50eHQ=")
            .header("content-type", "application/offset+octet-stream");
    }
    let request = request.body(Body::from(body(route))).expect("a request");
    if route.answer == SuccessReply::Events && matches!(who, As::Token(_)) {
        use tower::ServiceExt;
        let router = the_box.router.clone();
        let response = router.oneshot(request).await.expect("an answer");
        let status = response.status().as_u16();
        // A stream has no end; what it begins with is the answer.
        if status == 200 {
            return (status, String::new());
        }
        use http_body_util::BodyExt;
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&bytes).expect("a problem");
        return (
            status,
            problem["code"].as_str().unwrap_or_default().to_owned(),
        );
    }
    let answer = the_box.send(request).await;
    let code = match answer.status.as_u16() {
        ok if ok < 400 => String::new(),
        // Nothing but headers answers a HEAD.
        401 if route.method == "HEAD" => "sign-in".to_owned(),
        403 if route.method == "HEAD" && who == &the_box.jae => {
            "role.administrator-needed".to_owned()
        }
        403 if route.method == "HEAD" => "token.scope-missing".to_owned(),
        _ if route.method == "HEAD" => String::new(),
        _ => answer.json()["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    };
    (answer.status.as_u16(), code)
}

/// Who asks every route, in this order: a later one meets what an earlier one did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Nobody,
    ExpiredToken,
    InventedToken,
    /// An administrator's, with every permission but the route's.
    TokenWithoutPermission,
    OtherUser,
    Owner,
    Administrator,
}

const CALLERS: [Caller; 7] = [
    Caller::Nobody,
    Caller::ExpiredToken,
    Caller::InventedToken,
    Caller::TokenWithoutPermission,
    Caller::OtherUser,
    Caller::Owner,
    Caller::Administrator,
];

/// What an answer must be, as far as the caller decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// This caller has nothing to ask of this route.
    NotAsked,
    /// 401, whatever the code.
    SignIn,
    /// Refused with this status and code.
    Refused(u16, &'static str),
    /// A secret in the request decides: 401, 403 or 409.
    Unproven,
    /// Open to every caller.
    Open,
    /// Neither 401 nor 403.
    NotRefused,
    /// Neither refused for who asks nor hidden.
    Allowed,
    /// Allowed, and of the statuses that a request without a matching thing gives.
    AllowedOrNothingThere,
}

impl Expected {
    fn holds(self, status: u16, code: &str) -> bool {
        let unproven = matches!(status, 401 | 403 | 409);
        match self {
            Self::NotAsked => true,
            Self::SignIn => status == 401,
            Self::Refused(expected, name) => (status, code) == (expected, name),
            Self::Unproven => unproven,
            Self::Open => !unproven,
            Self::NotRefused => status != 401 && status != 403,
            Self::Allowed => status != 401 && status != 403 && code != "session.not-found",
            Self::AllowedOrNothingThere => status < 400 || matches!(status, 404 | 409 | 422),
        }
    }
}

impl Caller {
    fn expects(self, route: &DocumentedRoute) -> Expected {
        let of_a_session = route.path.contains("/sessions/{id}");
        match (self, route.needs) {
            (Self::Nobody, Needs::Nothing) => match route.operation {
                "signIn" | "setUp" => Expected::Unproven,
                _ => Expected::Open,
            },
            (_, Needs::Nothing) => Expected::NotAsked,
            (Self::Nobody | Self::ExpiredToken | Self::InventedToken, _) => Expected::SignIn,
            (Self::TokenWithoutPermission, Needs::Verb(_)) => {
                Expected::Refused(403, "token.scope-missing")
            }
            (Self::OtherUser, Needs::Verb(permission)) => match permission {
                Permission::ImagesWrite
                | Permission::UsersRead
                | Permission::UsersWrite
                | Permission::SystemRead
                | Permission::SystemWrite => Expected::Refused(403, "role.administrator-needed"),
                // A member of the project may read it; making a project is for administrators.
                Permission::ProjectsWrite if route.path.contains("/projects/{id}") => {
                    Expected::Refused(403, "role.permission-missing")
                }
                Permission::ProjectsWrite => Expected::Refused(403, "role.administrator-needed"),
                // Their own acts are no export.
                Permission::AuditRead
                    if !["listAudit", "listBreakGlass"].contains(&route.operation) =>
                {
                    Expected::Refused(403, "audit.export-own")
                }
                _ if of_a_session => Expected::Refused(404, "session.not-found"),
                _ => Expected::AllowedOrNothingThere,
            },
            (Self::Owner, Needs::Verb(_)) if of_a_session => Expected::Allowed,
            (Self::Administrator, Needs::Verb(Permission::SessionsEnter))
                if of_a_session && route.operation == "commitSession" =>
            {
                Expected::Refused(403, "commit.owner-only")
            }
            // The session is mina's.
            (Self::Administrator, Needs::Verb(Permission::SessionsEnter))
                if of_a_session && route.operation != "enterByBreakGlass" =>
            {
                Expected::Refused(403, "break-glass.needed")
            }
            (Self::Administrator, Needs::Verb(_)) => Expected::NotRefused,
            _ => Expected::NotAsked,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_answers_each_role_as_the_table_says() {
    let the_box = TheBox::open().await;
    let past =
        rules::units::Timestamp::from_millis(the_box.server.clock().now().as_millis() + 3000);
    let expired = the_box.token("mina", &Permission::ALL, Some(past)).await;
    tokio::time::sleep(std::time::Duration::from_millis(3100)).await;
    let invented = As::Token("fardel_invented".into());
    let mut narrowed = BTreeMap::new();
    for permission in Permission::ALL {
        let others = Permission::ALL.into_iter().filter(|one| *one != permission);
        let others: Vec<Permission> = others.collect();
        narrowed.insert(permission, the_box.token("ada", &others, None).await);
    }
    let mut seen = 0;
    for route in ROUTES {
        let session = the_box
            .launch(
                &the_box.mina,
                json!({"name": "own", "command": ["sleep"], "kind": "batch"}),
            )
            .await["id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let things = Things {
            session: &session,
            project: "default",
            user: "nobody",
            folder: "no-such-folder",
        };
        for caller in CALLERS {
            let expected = caller.expects(route);
            if expected == Expected::NotAsked {
                continue;
            }
            let who = match (caller, route.needs) {
                (Caller::Nobody, _) => As::Nobody,
                (Caller::ExpiredToken, _) => expired.clone(),
                (Caller::InventedToken, _) => invented.clone(),
                (Caller::TokenWithoutPermission, Needs::Verb(permission)) => {
                    narrowed[&permission].clone()
                }
                (Caller::OtherUser, _) => the_box.jae.clone(),
                (Caller::Owner, _) => the_box.mina.clone(),
                (Caller::Administrator | Caller::TokenWithoutPermission, _) => {
                    the_box.admin.clone()
                }
            };
            let (status, code) = ask(&the_box, &who, route, &things).await;
            assert!(
                expected.holds(status, &code),
                "{} {} as {caller:?}: {status} {code} is not {expected:?}",
                route.method,
                route.path
            );
        }
        let _ = the_box
            .post(
                &the_box.admin,
                &format!("/api/v1/sessions/{session}/kill"),
                json!({}),
            )
            .await;
        let gone = the_box
            .get(&the_box.admin, &format!("/api/v1/sessions/{session}"))
            .await;
        if gone.status == 200 {
            the_box.until(&the_box.admin, &session, "ended").await;
        }
        seen += 1;
    }
    assert_eq!(seen, ROUTES.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_changes_nothing_from_a_foreign_page() {
    let the_box = TheBox::open().await;
    let As::Cookie(cookie) = the_box.browser.clone() else {
        panic!("the browser has a cookie");
    };
    for (origin, site, status) in [
        (Some("http://box:7860"), None, 201),
        (Some("http://box:7860"), Some("same-origin"), 201),
        (Some("http://evil.example"), None, 403),
        (Some("http://box:8443"), None, 403),
        (Some("null"), None, 403),
        (None, None, 403),
        (Some("http://box:7860"), Some("cross-site"), 403),
    ] {
        let mut request = TheBox::request(&As::Nobody, "POST", "/api/v1/sessions")
            .header("cookie", format!("other=1; fardel={cookie}"))
            .header("content-type", "application/json");
        for (name, value) in [("origin", origin), ("sec-fetch-site", site)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let body = json!({"kind": "batch", "command": ["exit", "0"]}).to_string();
        let answer = the_box
            .send(request.body(Body::from(body)).expect("a request"))
            .await;
        assert_eq!(answer.status, status, "{origin:?} {site:?}");
        if status == 403 {
            assert_eq!(answer.json()["code"], "origin.foreign");
        }
    }
    let all = the_box.get(&the_box.admin, "/api/v1/sessions").await.json();
    assert_eq!(
        all["estimated_total"], 2,
        "a refused request left something"
    );
}

#[tokio::test]
async fn the_local_socket_is_root_and_tcp_is_nobody() {
    let the_box = TheBox::open().await;
    assert_eq!(the_box.get(&As::Root, "/api/v1/users").await.status, 200);
    assert_eq!(the_box.get(&As::Nobody, "/api/v1/users").await.status, 401);
    // A token given on the local socket narrows even root.
    let As::Token(token) = &the_box.mina else {
        panic!("mina has a token");
    };
    let request = TheBox::request(&As::Root, "GET", "/api/v1/users")
        .header("authorization", format!("Bearer {token}"))
        .body(Body::empty())
        .expect("a request");
    assert_eq!(the_box.send(request).await.status, 403);
}
