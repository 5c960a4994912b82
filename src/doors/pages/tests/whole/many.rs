//! Forms of a site with more projects and domains than a page lists: fifty are offered, and one is typed.

use axum::http::StatusCode;
use rules::grants::GrantRole;
use server::actions::tenancy;

use super::super::super::choice_field::MAX_LISTED;
use super::PagesFixture;
use super::refused::at_its_field;

/// Domains, and projects of which the administrator is a member.
const COUNT: usize = 120;

async fn crowded() -> (PagesFixture, String) {
    let house = PagesFixture::open();
    let cookie = house.set_up().await;
    let server = &house.server;
    let root = server::access::local_root(server);
    for n in 0..COUNT {
        let name = format!("lab-{n:03}");
        let made = tenancy::create_domain(server, &root, &name, "", None).await;
        made.expect("a domain");
        let domain = Some("default");
        let made = tenancy::create_project(server, &root, domain, &name, "", None).await;
        let id = made.expect("a project").value.id.to_string();
        let role = GrantRole::Member;
        let member = tenancy::put_member(server, &root, &id, "mina", role, None).await;
        member.expect("a member");
    }
    (house, cookie)
}

#[tokio::test]
async fn a_form_offers_fifty_of_very_many_and_takes_what_is_typed() {
    let (house, cookie) = crowded().await;
    for (path, field) in [
        ("/sessions/new", "project"),
        ("/announcements", "domain"),
        ("/users/mina", "domain"),
        ("/projects/new", "domain"),
        ("/courses", "project"),
        ("/presets", "scope"),
        ("/reservations", "holder"),
        ("/users/import", "project"),
    ] {
        let body = house.get(&cookie, path).await.body;
        let input = format!("<input class=\"inp\" id=\"{field}\" name=\"{field}\"");
        assert!(body.contains(&input), "{path}: {body}");
        let list = format!("<datalist id=\"{field}-offered\">");
        let (_, list) = body.split_once(&list).expect(path);
        let (list, _) = list.split_once("</datalist>").expect(path);
        // What an empty field means is one of the fifty.
        let offered = list.matches("<option ").count();
        assert!(
            (MAX_LISTED - 1..=MAX_LISTED).contains(&offered),
            "{path}: {offered}"
        );
        // Where what is typed finds no others, it says that there are more.
        let (_, behind) = body.split_once(&input).expect(path);
        let (tag, _) = behind.split_once('>').expect(path);
        let told = body.contains("The first 50 are suggested");
        assert_eq!(told, !tag.contains("hx-get="), "{path}: {body}");
    }
    let user = house.get(&cookie, "/users/mina").await.body;
    let (before, _) = user.split_once("/grants\" method").expect("a form");
    let id = before.rsplit('/').next().unwrap_or_default();
    let grants = format!("/users/{id}/grants");
    for (path, field, form) in [
        (
            "/sessions/new",
            "project",
            [("cpu", "1"), ("memory", "1"), ("act", "launch")].as_slice(),
        ),
        (
            "/announcements",
            "domain",
            &[("text", "News."), ("level", "info")],
        ),
        (grants.as_str(), "domain", &[("role", "auditor")]),
        ("/projects/new", "domain", &[("name", "fresh")]),
    ] {
        let with = |value| {
            let mut sent = form.to_vec();
            sent.push((field, value));
            sent
        };
        let answer = house.post(&cookie, path, &with("no-such")).await;
        at_its_field(path, &answer, field);
        assert!(answer.body.contains(" value=\"no-such\""), "{path}");
        let answer = house.post(&cookie, path, &with("lab-119")).await;
        assert_eq!(
            answer.status,
            StatusCode::SEE_OTHER,
            "{path}: {}",
            answer.body
        );
    }
}

#[tokio::test]
async fn what_is_typed_finds_domains_and_projects_beyond_the_fifty() {
    let (house, cookie) = crowded().await;
    for (path, count) in [
        ("/choices/domains", MAX_LISTED),
        ("/choices/domains?domain=lab", MAX_LISTED),
        ("/choices/domains?domain=LAB-11", 10),
        ("/choices/projects?project=lab-119", 1),
        ("/choices/projects?project=nothing", 0),
        ("/choices/users?user=min", 1),
    ] {
        let answer = house.get(&cookie, path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        let found = answer.body.matches("<option ").count();
        assert_eq!(found, count, "{path}: {}", answer.body);
    }
    let stranger = house.get("", "/choices/domains").await;
    assert_eq!(stranger.status, StatusCode::SEE_OTHER);
}
