//! The OpenAPI document: served as committed, every route of the router in it, every shape that it
//! promises found in real answers.

use std::collections::BTreeSet;

use fardel::doors::api::openapi::{ROUTES, document};
use serde_json::{Value, json};

use super::roles::days_ahead;
use super::the_box::{As, TheBox};

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/openapi.json");

/// A change of the API is a change of this file, seen in review. `FARDEL_REFRESH=1` writes it anew.
#[test]
fn the_document_is_the_one_that_was_committed() {
    let now = format!("{:#}\n", document());
    if std::env::var_os("FARDEL_REFRESH").is_some() {
        std::fs::write(COMMITTED, &now).expect("the checkout can be written");
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
    let differs = committed
        .lines()
        .zip(now.lines())
        .position(|(was, is)| was != is);
    assert!(
        committed == now,
        "assets/openapi.json is not what the code says (first at line {}); if the change is meant: \
         FARDEL_REFRESH=1 cargo test --test suite the_document_is",
        differs.map_or(0, |line| line + 1),
    );
}

/// Every `.route(` of the API's router, as `METHOD path`.
fn routes_of_the_router() -> BTreeSet<String> {
    let source = include_str!("../../../src/doors/api.rs");
    let nest = source
        .find("Router::new()\n        .nest")
        .expect("the probes follow the API");
    let mut found = BTreeSet::new();
    for (at, _) in source.match_indices(".route(") {
        let rest = &source[at + ".route(".len()..];
        let mut depth = 1;
        let end = rest
            .find(|c: char| {
                match c {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                depth == 0
            })
            .expect("a route ends");
        let route = &rest[..end];
        let path = route.split('"').nth(1).expect("a path");
        let path = if at < nest {
            format!("/api/v1{path}")
        } else {
            path.to_owned()
        };
        for method in ["get", "head", "post", "put", "patch", "delete", "options"] {
            let called = format!("{method}(");
            let is_call = |at: usize| {
                route[..at]
                    .chars()
                    .next_back()
                    .is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
            };
            if route.match_indices(&called).any(|(at, _)| is_call(at)) {
                found.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    found
}

#[test]
fn every_route_of_the_router_has_a_row_and_every_row_a_route() {
    let rows: BTreeSet<String> = ROUTES
        .iter()
        .map(|r| format!("{} {}", r.method, r.path))
        .collect();
    let routes = routes_of_the_router();
    assert!(
        routes.len() > 40,
        "only {} routes were found in the source",
        routes.len()
    );
    let unlisted: Vec<_> = routes.difference(&rows).collect();
    let unserved: Vec<_> = rows.difference(&routes).collect();
    assert!(unlisted.is_empty(), "routes without a row: {unlisted:?}");
    assert!(unserved.is_empty(), "rows without a route: {unserved:?}");
    let operations: BTreeSet<_> = ROUTES.iter().map(|r| r.operation).collect();
    assert_eq!(operations.len(), ROUTES.len(), "two routes have one name");
}

/// Holds a value to a schema of the document: required fields there, no field unknown, types right.
fn fits(document: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().expect("a name");
        let inner = &document["components"]["schemas"][name];
        if inner.is_null() {
            wrong.push(format!("{at}: no schema {name}"));
            return;
        }
        return fits(document, inner, value, at, wrong);
    }
    if let Some(any) = schema["oneOf"].as_array() {
        let one_fits = any.iter().any(|schema| {
            let mut inner = Vec::new();
            fits(document, schema, value, at, &mut inner);
            inner.is_empty()
        });
        if !one_fits {
            wrong.push(format!("{at}: {value} fits none of its shapes"));
        }
        return;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    let own = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fitting = types.contains(&own) || (own == "integer" && types.contains(&"number"));
    if !fitting {
        wrong.push(format!("{at}: {own} instead of {types:?}"));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        wrong.push(format!("{at}: {value} is none of {allowed:?}"));
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        for (i, inner) in values.iter().enumerate() {
            fits(document, items, inner, &format!("{at}/{i}"), wrong);
        }
    }
    if let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object())
    {
        for (name, inner) in object {
            match properties.get(name) {
                Some(schema) => fits(document, schema, inner, &format!("{at}/{name}"), wrong),
                None => wrong.push(format!("{at}/{name}: not in the document")),
            }
        }
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !object.contains_key(name) {
                wrong.push(format!("{at}/{name}: required, but not there"));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_answers_have_the_shapes_of_the_document() {
    let the_box = TheBox::open().await;
    let served = the_box
        .get(&As::Nobody, "/api/v1/openapi.json")
        .await
        .json();
    assert_eq!(served, document());
    let made = the_box
        .launch(
            &the_box.mina,
            json!({"name": "shape", "labels": {"a": "b"}, "env": {"A": "B"}, "resources": {"cpu": 0.5}}),
        )
        .await;
    the_box.until(&the_box.mina, "shape", "running").await;
    the_box
        .launch(
            &the_box.mina,
            json!({"name": "waits", "depends_on": [made["id"]], "kind": "batch", "command": ["x"]}),
        )
        .await;
    let announced = json!({"text": "News.", "until": "2100-01-01T00:00:00Z"});
    let announced = the_box.post(&the_box.admin, "/api/v1/announcements", announced);
    assert_eq!(announced.await.status, 422, "it ends within a year");
    let announced = json!({"text": "News.", "before_sign_in": true});
    let announced = the_box.post(&the_box.admin, "/api/v1/announcements", announced);
    assert_eq!(announced.await.status, 201);
    let folder = the_box.post(&the_box.mina, "/api/v1/folders", json!({"name": "data"}));
    assert_eq!(folder.await.status, 201);
    let share = json!({"user": "jae"});
    let share = the_box.post(&the_box.mina, "/api/v1/folders/data/shares", share);
    assert_eq!(share.await.status, 201);
    let offer = json!({"user": "jae"});
    let offer = the_box.post(&the_box.mina, "/api/v1/folders/data/transfer", offer);
    assert_eq!(offer.await.status, 201);
    let below = json!({"path": "train"});
    let below = the_box.post(&the_box.mina, "/api/v1/folders/data/mkdir", below);
    assert_eq!(below.await.status, 201);
    let other = json!({"path": "old"});
    let other = the_box.post(&the_box.mina, "/api/v1/folders/data/mkdir", other);
    assert_eq!(other.await.status, 201);
    let other = json!({"paths": ["old"]});
    let other = the_box.post(&the_box.mina, "/api/v1/folders/data/remove", other);
    assert_eq!(other.await.status, 204);
    let preset = json!({"name": "half", "resources": {"cpu": 4, "gpu": 0.5}, "default": true});
    let preset = the_box.post(&the_box.admin, "/api/v1/presets", preset);
    assert_eq!(preset.await.status, 201);
    let course = json!({
        "name": "deep", "project": "default", "from": days_ahead(0), "to": days_ahead(90),
        "max_runtime_seconds": 3_600,
    });
    let course = the_box.post(&the_box.admin, "/api/v1/courses", course);
    assert_eq!(course.await.status, 201);
    let budget = json!({"project": "default", "gpu_hours": "9", "month": "2999-01"});
    let budget = the_box.post(&the_box.admin, "/api/v1/budgets", budget);
    assert_eq!(budget.await.status, 201);
    let reserved = json!({
        "name": "lecture", "maintenance": true, "resources": {"cpu": 1},
        "from": days_ahead(2), "to": days_ahead(3), "repeats": 2,
    });
    let reserved = the_box.post(&the_box.admin, "/api/v1/reservations", reserved);
    assert_eq!(reserved.await.status, 201);
    let hook = json!({
        "name": "pager", "address": "https://127.0.0.1:9/x", "kinds": ["sessions"],
    });
    let hook = the_box.post(&the_box.admin, "/api/v1/webhooks", hook).await;
    assert_eq!(hook.status, 201);
    let idle = json!({"name": "idle", "below": {"cpu": 0.1, "keys": 1}});
    let made = the_box.post(&the_box.admin, "/api/v1/idle-rules", idle.clone());
    assert_eq!(made.await.status, 201);
    let mut wrong = Vec::new();
    let mut held = 0;
    for (who, path, schema) in [
        (&the_box.mina, "/api/v1/sessions", "SessionPage"),
        (&the_box.mina, "/api/v1/sessions/shape", "Session"),
        (&the_box.mina, "/api/v1/sessions/shape/why", "Explanation"),
        (&the_box.mina, "/api/v1/sessions/waits/why", "Explanation"),
        (&the_box.mina, "/api/v1/sessions/shape/events", "EventPage"),
        (
            &the_box.mina,
            "/api/v1/sessions/shape/metrics",
            "SamplePage",
        ),
        (&the_box.mina, "/api/v1/queue", "WaitingPage"),
        (&the_box.mina, "/api/v1/images", "ImagePage"),
        (&the_box.admin, "/api/v1/users", "UserPage"),
        (&the_box.admin, "/api/v1/users/mina", "User"),
        (&the_box.mina, "/api/v1/me", "User"),
        (&the_box.mina, "/api/v1/me/tokens", "TokenPage"),
        (&the_box.admin, "/api/v1/operations", "OperationPage"),
        (&the_box.mina, "/api/v1/events/search", "EventSearch"),
        (&the_box.mina, "/api/v1/audit", "AuditPage"),
        (
            &the_box.admin,
            "/api/v1/audit/checkpoints",
            "AuditCheckpointPage",
        ),
        (&the_box.admin, "/api/v1/audit/targets", "AuditTargetPage"),
        (&the_box.mina, "/api/v1/me/notices", "NoticePage"),
        (&the_box.mina, "/api/v1/me/mail", "MailChoices"),
        (&the_box.admin, "/api/v1/mail", "MailStatus"),
        (&the_box.admin, "/api/v1/branding", "Branding"),
        (&the_box.mina, "/api/v1/holidays", "HolidayCalendarPage"),
        (&the_box.mina, "/api/v1/break-glass", "BreakGlassPage"),
        (&the_box.admin, "/api/v1/approvals", "ApprovalPage"),
        (&the_box.admin, "/api/v1/four-eyes", "FourEyes"),
        (&the_box.admin, "/api/v1/sign-ups", "SignUpPage"),
        (&the_box.admin, "/api/v1/sign-up-rules", "SignUpRulePage"),
        (&the_box.admin, "/api/v1/webhooks", "WebhookPage"),
        (&the_box.admin, "/api/v1/webhooks/pager", "Webhook"),
        (&the_box.mina, "/api/v1/nodes", "NodePage"),
        (&the_box.admin, "/api/v1/nodes/box", "NodeDetail"),
        (&the_box.admin, "/api/v1/settings", "SettingPage"),
        (&the_box.admin, "/api/v1/settings/tls", "Setting"),
        (&the_box.mina, "/api/v1/history", "History"),
        (&the_box.admin, "/api/v1/usage?by=member", "Usage"),
        (&the_box.admin, "/api/v1/months", "ClosedMonthPage"),
        (&the_box.admin, "/api/v1/months/check", "MonthCheckPage"),
        (&the_box.admin, "/api/v1/prices", "Prices"),
        (&the_box.admin, "/api/v1/fair-share", "FairShare"),
        (
            &the_box.admin,
            "/api/v1/fair-share/rehearsal",
            "QueueRehearsal",
        ),
        (&the_box.admin, "/api/v1/budgets", "BudgetPage"),
        (&the_box.admin, "/api/v1/courses", "CoursePage"),
        (&the_box.admin, "/api/v1/courses/deep", "Course"),
        (
            &the_box.admin,
            "/api/v1/courses/deep/members",
            "CourseMemberPage",
        ),
        (
            &the_box.admin,
            "/api/v1/courses/deep/attendance",
            "CourseAttendancePage",
        ),
        (&the_box.mina, "/api/v1/folders", "FolderPage"),
        (&the_box.mina, "/api/v1/folders/data", "Folder"),
        (
            &the_box.mina,
            "/api/v1/folders/data/shares",
            "FolderSharePage",
        ),
        (
            &the_box.mina,
            "/api/v1/folders/data/sessions",
            "FolderSessionPage",
        ),
        (
            &the_box.jae,
            "/api/v1/folder-invitations",
            "FolderInvitationPage",
        ),
        (
            &the_box.jae,
            "/api/v1/folder-transfers",
            "FolderTransferPage",
        ),
        (
            &the_box.mina,
            "/api/v1/folders/data/entries",
            "FolderEntryPage",
        ),
        (&the_box.mina, "/api/v1/folders/data/search", "FolderSearch"),
        (&the_box.mina, "/api/v1/folders/data/usage", "FolderUsage"),
        (
            &the_box.mina,
            "/api/v1/folders/data/snapshots",
            "FolderSnapshots",
        ),
        (
            &the_box.mina,
            "/api/v1/folders/data/removed",
            "RemovedEntryPage",
        ),
        (
            &the_box.mina,
            "/api/v1/folders/data/uploads",
            "FolderUploadPage",
        ),
        (&the_box.mina, "/api/v1/storage", "StoragePage"),
        (&the_box.mina, "/api/v1/presets", "PresetPage"),
        (&the_box.mina, "/api/v1/presets/half", "Preset"),
        (
            &the_box.mina,
            "/api/v1/resource-groups",
            "ResourceGroupPage",
        ),
        (
            &the_box.admin,
            "/api/v1/resource-groups/default",
            "ResourceGroup",
        ),
        (&the_box.mina, "/api/v1/reservations", "ReservationPage"),
        (&the_box.mina, "/api/v1/reservations/lecture", "Reservation"),
        (
            &the_box.admin,
            "/api/v1/projects/default/reservation-quota",
            "ReservationQuota",
        ),
        (&the_box.admin, "/api/v1/idle-rules", "IdleRulePage"),
        (&the_box.admin, "/api/v1/idle-rules/idle", "IdleRule"),
        (&the_box.admin, "/api/v1/announcements", "AnnouncementPage"),
        (
            &the_box.mina,
            "/api/v1/announcements/current",
            "AnnouncementPage",
        ),
        (&the_box.mina, "/api/v1/sessions/nobody", "Problem"),
        (&the_box.mina, "/api/v1/sessions?limit=0", "Problem"),
    ] {
        let body = the_box.get(who, path).await.json();
        let reference = json!({"$ref": format!("#/components/schemas/{schema}")});
        fits(&served, &reference, &body, path, &mut wrong);
        held += 1;
    }
    for (path, body, schema) in [
        ("/api/v1/sessions?dry_run=true", json!({}), "Explanation"),
        (
            "/api/v1/sessions/shape/duplicate",
            json!({}),
            "LaunchRequest",
        ),
        (
            "/api/v1/me/tokens",
            json!({"name": "t", "scopes": ["me"]}),
            "MadeToken",
        ),
        (
            "/api/v1/sign-in",
            json!({"name": "mina", "password": super::the_box::PASSWORD}),
            "SignedIn",
        ),
    ] {
        let answer = the_box.post(&the_box.mina, path, body).await;
        let reference = json!({"$ref": format!("#/components/schemas/{schema}")});
        fits(&served, &reference, &answer.json(), path, &mut wrong);
        held += 1;
    }
    let dry_run = "/api/v1/idle-rules/dry-run";
    let answer = the_box.post(&the_box.admin, dry_run, idle).await.json();
    let reference = json!({"$ref": "#/components/schemas/IdleDryRun"});
    fits(&served, &reference, &answer, dry_run, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(held, 75);
    // Every reference of the document leads somewhere.
    let text = served.to_string();
    for (at, _) in text.match_indices("#/components/schemas/") {
        let name: String = text[at + 21..]
            .chars()
            .take_while(|c| c.is_alphanumeric())
            .collect();
        assert!(
            !served["components"]["schemas"][&name].is_null(),
            "no schema {name}"
        );
    }
}

/// The actions hold to numbers of their own: those of the document are the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_of_the_length_in_the_document_is_taken_and_no_longer_one() {
    let the_box = TheBox::open().await;
    let document = document();
    // Varied letters, for a password must not be simple.
    let letters = |length: usize| -> String { ('a'..='z').cycle().take(length).collect() };
    let mut tried = 0;
    for (schema, field, path, body) in [
        (
            "NewToken",
            "name",
            "/api/v1/me/tokens",
            json!({"scopes": ["me"]}),
        ),
        (
            "NewUser",
            "password",
            "/api/v1/users",
            json!({"name": "long"}),
        ),
        ("LaunchRequest", "image", "/api/v1/sessions", json!({})),
    ] {
        let longest = document["components"]["schemas"][schema]["properties"][field]["maxLength"]
            .as_u64()
            .and_then(|longest| usize::try_from(longest).ok())
            .expect("a length");
        for (length, fits) in [(longest, true), (longest + 1, false)] {
            let mut body = body.clone();
            body[field] = letters(length).into();
            let answer = the_box.post(&the_box.admin, path, body).await;
            // What fits may name nothing that there is.
            let refused = answer.short();
            let wrong = refused.ends_with("too-long") || refused.ends_with("-invalid");
            assert_eq!(wrong, !fits, "{schema} {field} of {length}: {refused}");
            tried += 1;
        }
    }
    assert_eq!(tried, 6);
}
