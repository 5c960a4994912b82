//! `/trust`: the authority to trust, before sign-in. Shows the fingerprint of this machine's own
//! authority, gives its certificate away, and says what to do with it. Never shows anything else of the box.

use api::certificates::CertificateAuthority;
use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rules::refusal::Refusal;
use rules::refusal::RefusalKind;
use server::Failure;
use server::actions::certificates;
use server::actions::users::ssh_keys;

use super::authentication::OptionalPageCaller;
use super::layout::PageLayout;
use super::request_context::RequestContext;
use super::{PagesContext, components, docs, guest, responses};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/trust.html")]
pub struct TrustPage {
    pub t: Text,
    pub f: PageLayout,
    /// None where nothing is encrypted.
    pub authority: Option<AuthorityView>,
    /// The fingerprint by which the server is known over SSH; None where it takes no SSH connections.
    pub ssh: Option<String>,
    pub systems: Vec<System>,
    /// Where a sign-in goes on, or where a signed-in user goes back to.
    pub back: &'static str,
}

/// The authority as users compare it.
pub struct AuthorityView {
    pub subject: String,
    /// The whole fingerprint, to copy.
    pub fingerprint: String,
    /// Eight groups of four pairs, to read aloud.
    pub groups: Vec<String>,
    /// A site's certificate is served instead.
    pub put_aside: bool,
}

/// One sort of computer and what to do there.
pub struct System {
    pub title: String,
    /// Made by our own renderer from our own text.
    pub steps: String,
    /// The visitor's own.
    pub open: bool,
}

impl From<CertificateAuthority> for AuthorityView {
    fn from(authority: CertificateAuthority) -> Self {
        let pairs: Vec<&str> = authority.fingerprint.split(':').collect();
        Self {
            subject: authority.subject,
            groups: pairs.chunks(4).map(|group| group.join(" ")).collect(),
            fingerprint: authority.fingerprint.clone(),
            put_aside: !authority.in_use,
        }
    }
}

/// `GET /trust`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    OptionalPageCaller(caller): OptionalPageCaller,
    headers: HeaderMap,
) -> Response {
    let authority = match certificates::trust(&console.server).await {
        Ok(authority) => Some(AuthorityView::from(authority)),
        Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::TLS_OFF => None,
        Err(failure) => return responses::failure(&console, &visit, None, &failure),
    };
    let ssh = match ssh_keys::ssh_server(&console.server).await {
        Ok(server) => Some(server.fingerprint),
        Err(Failure::Refusal(_)) => None,
        Err(failure) => return responses::failure(&console, &visit, None, &failure),
    };
    let agent = headers
        .get(header::USER_AGENT)
        .and_then(|v| v.to_str().ok());
    let page = TrustPage {
        t: visit.text,
        systems: systems(visit.text, &visit.authority, agent.unwrap_or_default()),
        f: guest(&console, &visit),
        authority,
        ssh,
        back: if caller.is_some() { "/" } else { "/login" },
    };
    responses::page(&console, &visit, StatusCode::OK, &page)
}

/// The chapter of the manual, one piece for each of its headings, with this machine's name in it.
pub fn systems(t: Text, machine: &str, agent: &str) -> Vec<System> {
    let likely = likely(agent);
    let mut sections = docs::sections("trust", t.language);
    for (_, text) in &mut sections {
        *text = text.replace("THIS-MACHINE", machine);
    }
    sections
        .into_iter()
        .map(|(title, text)| System {
            open: likely.is_some_and(|likely| title.starts_with(likely)),
            steps: docs::markup(&text),
            title,
        })
        .collect()
}

/// The heading for a browser's own words about itself, as they begin in both languages.
fn likely(agent: &str) -> Option<&'static str> {
    // In this order: Android's say Linux too, and an iPad's say Mac.
    let table = [
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPhone"),
        ("Windows", "Windows"),
        ("Mac OS", "macOS"),
        ("Firefox", "Firefox"),
        ("Fedora", "Fedora"),
        ("Linux", "Debian"),
        ("curl", "Python"),
        ("Wget", "Python"),
    ];
    let found = table.iter().find(|(word, _)| agent.contains(word));
    found.map(|(_, heading)| *heading)
}

/// `GET /trust/fardel.crt`: DER, for what opens a file by clicking on it.
pub async fn der(State(console): State<PagesContext>, visit: RequestContext) -> Response {
    match certificates::trust(&console.server).await {
        Ok(authority) => file("application/x-x509-ca-cert", "fardel.crt", authority.der),
        Err(failure) => none(&console, &visit, &failure),
    }
}

/// `GET /trust/fardel.pem`: PEM, for programs.
pub async fn pem(State(console): State<PagesContext>, visit: RequestContext) -> Response {
    match certificates::trust(&console.server).await {
        Ok(authority) => file(
            "application/x-pem-file",
            "fardel.pem",
            authority.pem.into_bytes(),
        ),
        Err(failure) => none(&console, &visit, &failure),
    }
}

fn file(kind: &'static str, name: &str, bytes: Vec<u8>) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let name = format!("attachment; filename=\"{name}\"");
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    (headers, bytes).into_response()
}

fn none(console: &PagesContext, visit: &RequestContext, failure: &Failure) -> Response {
    match failure {
        Failure::Refusal(refusal) if refusal.code == rules::codes::TLS_OFF => {
            // Without a certificate there is no such page.
            let nothing = Refusal {
                kind: RefusalKind::NotFound,
                ..refusal.clone()
            };
            responses::refused(console, visit, None, &nothing)
        }
        failure => responses::failure(console, visit, None, failure),
    }
}
