//! `/system/tls`: which certificate this machine shows, a request for one from another authority, and
//! putting such a one in. Keys that are typed here go to `server::actions` and are shown nowhere.

use api::certificates::{
    CertificateOrigin, CertificateRequestInput, CertificateStatus, CertificateUpload,
};
use api::secret::SecretText;
use askama::Template;
use axum::Form;
use axum::extract::{Multipart, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::refusals;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::certificates;

use super::authentication::PageCaller;
use super::components::{self, Alert};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/tls.html")]
pub struct TlsPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    /// None where nothing is encrypted.
    pub served: Option<ServedView>,
    /// A request that was made just now.
    pub request: Option<String>,
    pub names: String,
    pub organisation: String,
    pub certificate: String,
    pub name: String,
}

/// What is served, in words.
pub struct ServedView {
    pub site: bool,
    pub subject: String,
    pub issuer: String,
    pub names: Vec<String>,
    pub from: String,
    pub until: String,
    pub left: String,
    pub tone: &'static str,
    pub fingerprint: String,
    /// What the certificate from before was for.
    pub previous: Option<String>,
    /// The names in a request whose certificate has not come yet.
    pub requested: Option<String>,
}

/// What was typed, for a page that says no.
#[derive(Default)]
pub struct TlsFields {
    pub names: Option<String>,
    pub organisation: String,
    pub certificate: String,
    pub name: String,
}

/// `GET /system/tls`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    page(
        &console,
        &visit,
        &caller,
        StatusCode::OK,
        None,
        None,
        TlsFields::default(),
    )
    .await
}

async fn page(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    status: StatusCode,
    alert: Option<Alert>,
    request: Option<String>,
    typed: TlsFields,
) -> Response {
    let f = layout(console, visit, caller, Nav::System);
    let shown = match certificates::show(&console.server, caller).await {
        Ok(shown) => Some(shown),
        Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::TLS_OFF => None,
        Err(failure) => return responses::failure(console, visit, Some(f), &failure),
    };
    let names = typed.names.unwrap_or_else(|| {
        let outward =
            |name: &&String| *name != "localhost" && !name.starts_with("127.") && *name != "::1";
        let names = shown.iter().flat_map(|shown| &shown.names).filter(outward);
        names.cloned().collect::<Vec<_>>().join("\n")
    });
    let page = TlsPage {
        t: visit.text,
        alert,
        served: shown.map(|shown| served(console, visit, shown)),
        request,
        names,
        organisation: typed.organisation,
        certificate: typed.certificate,
        name: typed.name,
        f,
    };
    responses::page(console, visit, status, &page)
}

fn served(console: &PagesContext, visit: &RequestContext, shown: CertificateStatus) -> ServedView {
    let now = console.server.clock().now();
    let certificate = shown.certificate;
    let seconds = certificate.not_after.seconds_since(now);
    let tone = match seconds / 86_400 {
        0 => "bad",
        1..30 => "warn",
        _ => "ok",
    };
    ServedView {
        site: shown.kind == CertificateOrigin::Site,
        from: visit.clock.day(certificate.not_before),
        until: visit.clock.day(certificate.not_after),
        left: match seconds / 86_400 {
            0 => components::span(visit.text, seconds),
            days => visit.text.common_days(days),
        },
        tone,
        subject: certificate.subject,
        issuer: certificate.issuer,
        names: certificate.names,
        fingerprint: certificate.fingerprint,
        previous: shown.previous.map(|facts| {
            let until = visit.clock.day(facts.not_after);
            visit.text.tls_previous(facts.subject, until)
        }),
        requested: shown.requested.map(|names| names.join(", ")),
    }
}

/// Where the forms of the page are sent.
const REQUEST: &str = "/system/tls/request";
const IMPORT: &str = "/system/tls/certificate";
const RESET: &str = "/system/tls/reset";

/// A page that says why not, with what was typed, in the form that is sent to `action`.
async fn no(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    action: &str,
    failure: Failure,
    typed: TlsFields,
) -> Response {
    match failure {
        Failure::Refusal(refusal) => {
            let status = responses::status(&refusal);
            let told = RefusedForm::new(visit.text, action, &refusal);
            let field = match (action, refusal.code.as_str()) {
                (REQUEST, rules::codes::TLS_ORGANISATION_INVALID) => "organisation",
                (REQUEST, _) => "names",
                (IMPORT, code) if code.starts_with("tls.key") => "key-file",
                (IMPORT, rules::codes::TLS_CERTIFICATE_NAME) => "name",
                (IMPORT, _) => "certificate",
                _ => "",
            };
            let visit = visit.refusing(told.at(field));
            page(console, &visit, caller, status, None, None, typed).await
        }
        fault => {
            let f = layout(console, visit, caller, Nav::System);
            responses::failure(console, visit, Some(f), &fault)
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct CertificateRequestForm {
    names: String,
    organisation: String,
}

/// `POST /system/tls/request`
pub async fn request(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(wanted): Form<CertificateRequestForm>,
) -> Response {
    let words = wanted.names.split([',', ' ', '\n', '\r', '\t']);
    let names = words
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    let asked = CertificateRequestInput {
        names,
        organisation: wanted.organisation.clone(),
    };
    let typed = TlsFields {
        names: Some(wanted.names),
        organisation: wanted.organisation,
        ..TlsFields::default()
    };
    match certificates::request(&console.server, &caller, asked).await {
        Ok(pem) => {
            page(
                &console,
                &visit,
                &caller,
                StatusCode::OK,
                None,
                Some(pem),
                typed,
            )
            .await
        }
        Err(failure) => no(&console, &visit, &caller, REQUEST, failure, typed).await,
    }
}

/// `POST /system/tls/certificate`: text or files; a file wins over text.
pub async fn import(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    mut form: Multipart,
) -> Response {
    let mut typed = TlsFields::default();
    let mut key = String::new();
    loop {
        let field = match form.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) => break,
            Err(error) => {
                let refusal = refusals::body_unreadable(&error);
                return no(&console, &visit, &caller, IMPORT, refusal.into(), typed).await;
            }
        };
        let name = field.name().unwrap_or_default().to_owned();
        // A file of other bytes than text holds no PEM; what it lacks is said below.
        let text = field
            .bytes()
            .await
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        match name.as_str() {
            "certificate" | "certificate-file" => typed.certificate = text,
            "key" | "key-file" => key = text,
            "name" => typed.name = text,
            _ => {}
        }
    }
    let brought = CertificateUpload {
        certificate: typed.certificate.clone(),
        key: Some(key)
            .filter(|key| !key.trim().is_empty())
            .map(SecretText::new),
        name: Some(typed.name.clone()).filter(|name| !name.trim().is_empty()),
    };
    // A key among the certificates is not shown again.
    if typed.certificate.contains("PRIVATE KEY") {
        typed.certificate = String::new();
    }
    match certificates::import(&console.server, &caller, brought).await {
        Ok(_) => responses::see_with("/system/tls", "certificate", ""),
        Err(failure) => no(&console, &visit, &caller, IMPORT, failure, typed).await,
    }
}

#[derive(Deserialize)]
pub struct Back {
    to: CertificateOrigin,
}

/// `POST /system/tls/reset`
pub async fn reset(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(back): Form<Back>,
) -> Response {
    match certificates::reset(&console.server, &caller, back.to).await {
        Ok(_) => responses::see_with("/system/tls", "certificate", ""),
        Err(failure) => {
            no(
                &console,
                &visit,
                &caller,
                RESET,
                failure,
                TlsFields::default(),
            )
            .await
        }
    }
}
