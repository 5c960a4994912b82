//! `/system/branding`: how the site looks, with a form for administrators; and `/branding/logo`, which every page shows. No
//! markup and no style is taken here: words, one hue of the design, and a PNG file.

use api::branding::{BrandingPatchBody, BrandingView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Multipart, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::branding::{HUES, MAX_BRAND_NAME, MAX_FOOTER_LENGTH, MAX_SIGN_IN_TEXT};
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::branding;

use super::authentication::PageCaller;
use super::components::{self, Choice};
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout, SiteLook};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::{Language, Text};

const PATH: &str = "/system/branding";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/branding.html")]
pub struct BrandingPage {
    pub t: Text,
    pub f: PageLayout,
    pub may_change: bool,
    pub fields: BrandingFields,
    pub hues: Vec<Choice>,
    pub has_logo: bool,
    /// Something is the site's own.
    pub is_own: bool,
    /// Most characters of the name, the footer and the text of the sign-in.
    pub longest: (usize, usize, usize),
}

/// The texts of the form, as they are or as they were typed.
#[derive(Clone, Debug, Default)]
pub struct BrandingFields {
    pub name: String,
    pub hue: String,
    pub footer: String,
    pub footer_ko: String,
    pub sign_in: String,
    pub sign_in_ko: String,
    /// Of the row that the form shows.
    pub generation: String,
}

/// What the question before a reset sent.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SentReset {
    /// Of the look that was asked about.
    generation: String,
}

/// What a form sent.
#[derive(Default)]
struct SentBranding {
    fields: BrandingFields,
    /// A file that was chosen.
    logo: Vec<u8>,
    takes_logo_away: bool,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/system/branding", get(show).post(change))
        .route("/system/branding/reset", get(ask_reset).post(reset))
        .route("/branding/logo", get(logo))
}

/// How the site looks to a reader in this language.
pub(super) fn look(console: &PagesContext, t: Text) -> SiteLook {
    let own = branding::around(&console.server);
    let words = |english: String, korean: String| match t.language {
        Language::Korean if !korean.is_empty() => korean,
        Language::Korean | Language::English => english,
    };
    SiteLook {
        logo: own
            .has_logo
            .then(|| format!("/branding/logo?v={}", own.generation)),
        hue: own.hue,
        footer: words(own.footer, own.footer_ko),
        sign_in: words(own.sign_in, own.sign_in_ko),
        name: own.name,
    }
}

/// `GET /branding/logo`: the bytes that an administrator brought, as a PNG and as nothing else.
async fn logo(State(console): State<PagesContext>) -> Response {
    let Some(bytes) = branding::logo(&console.server) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (header::CONTENT_TYPE, "image/png"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Its address has the version.
        (header::CACHE_CONTROL, "private, max-age=86400"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    (headers, bytes).into_response()
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match read(&console, &visit, &caller, None).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    typed: Option<BrandingFields>,
) -> Result<BrandingPage, Failure> {
    let t = visit.text;
    let own = branding::get(&console.server, caller).await?;
    let (has_logo, is_own) = (own.has_logo, is_own(&own));
    let fields = typed.unwrap_or_else(|| fields_of(own));
    Ok(BrandingPage {
        t,
        f: layout(console, visit, caller, Nav::System),
        may_change: caller.subject.can(Permission::SystemWrite),
        hues: hues(t, &fields.hue),
        fields,
        has_logo,
        is_own,
        longest: (MAX_BRAND_NAME, MAX_FOOTER_LENGTH, MAX_SIGN_IN_TEXT),
    })
}

fn is_own(own: &BrandingView) -> bool {
    let plain = BrandingView {
        generation: own.generation,
        ..BrandingView::default()
    };
    *own != plain
}

fn fields_of(own: BrandingView) -> BrandingFields {
    BrandingFields {
        name: own.name,
        hue: own.hue.map(|hue| hue.to_string()).unwrap_or_default(),
        footer: own.footer,
        footer_ko: own.footer_ko,
        sign_in: own.sign_in,
        sign_in_ko: own.sign_in_ko,
        generation: own.generation.to_string(),
    }
}

/// The product's own hue, then those of the design.
fn hues(t: Text, chosen: &str) -> Vec<Choice> {
    let usual = Choice::new("", t.branding_hue_usual(), chosen.is_empty());
    let others = (1..=HUES).map(|hue| {
        let value = hue.to_string();
        let is_chosen = value == chosen;
        Choice::new(value, hue_name(t, hue), is_chosen)
    });
    std::iter::once(usual).chain(others).collect()
}

fn hue_name(t: Text, hue: u8) -> &'static str {
    match hue {
        1 => t.branding_hue_amber(),
        2 => t.branding_hue_blue(),
        3 => t.branding_hue_teal(),
        4 => t.branding_hue_violet(),
        5 => t.branding_hue_green(),
        6 => t.branding_hue_rose(),
        7 => t.branding_hue_sky(),
        _ => t.branding_hue_grey(),
    }
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, Nav::System);
    responses::failure(console, visit, Some(frame), failure)
}

/// Reads what a form sent. Errors: `body.unreadable`.
async fn sent(form: &mut Multipart) -> Result<SentBranding, Refusal> {
    let mut all = SentBranding::default();
    loop {
        let field = match form.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) => return Ok(all),
            Err(error) => return Err(refusals::body_unreadable(&error)),
        };
        let name = field.name().unwrap_or_default().to_owned();
        let bytes = match field.bytes().await {
            Ok(bytes) => bytes,
            Err(error) => return Err(refusals::body_unreadable(&error)),
        };
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        match name.as_str() {
            "name" => all.fields.name = text(),
            "hue" => all.fields.hue = text(),
            "footer" => all.fields.footer = text(),
            "footer_ko" => all.fields.footer_ko = text(),
            "sign_in" => all.fields.sign_in = text(),
            "sign_in_ko" => all.fields.sign_in_ko = text(),
            "logo" => all.logo = bytes.to_vec(),
            "generation" => all.fields.generation = text(),
            "no_logo" => all.takes_logo_away = true,
            _ => {}
        }
    }
}

/// `POST /system/branding`
async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    mut form: Multipart,
) -> Response {
    let sent = match sent(&mut form).await {
        Ok(sent) => sent,
        Err(refusal) => return failed(&console, &visit, &caller, &refusal.into()),
    };
    let fields = sent.fields.clone();
    let patch = BrandingPatchBody {
        name: Some(fields.name.clone()),
        logo: match (sent.logo.is_empty(), sent.takes_logo_away) {
            (false, _) => Some(Some(STANDARD.encode(&sent.logo))),
            (true, true) => Some(None),
            (true, false) => None,
        },
        // What is no number is no hue of the design: 0 is refused as one.
        hue: Some(match fields.hue.trim() {
            "" => None,
            hue => Some(hue.parse().unwrap_or(0)),
        }),
        footer: Some(fields.footer.clone()),
        footer_ko: Some(fields.footer_ko.clone()),
        sign_in: Some(fields.sign_in.clone()),
        sign_in_ko: Some(fields.sign_in_ko.clone()),
    };
    let shown = fields.generation.parse().ok();
    let refusal = match branding::change(&console.server, &caller, patch, shown).await {
        Ok(_) => return responses::see_with(PATH, "branding", ""),
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::SystemWrite) => refusal,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let refused = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("name");
    let visit = visit.refusing(refused);
    match read(&console, &visit, &caller, Some(fields)).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

/// `GET /system/branding/reset`: the question first, for texts and logo are gone afterwards.
async fn ask_reset(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    let t = visit.text;
    let own = match branding::get(&console.server, &caller).await {
        Ok(own) if caller.subject.can(Permission::SystemWrite) => own,
        Ok(_) => {
            let word = Permission::SystemWrite.word();
            let refusal = refusals::role_administrator_needed(word);
            return failed(&console, &visit, &caller, &refusal.into());
        }
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let frame = layout(&console, &visit, &caller, Nav::System);
    let title = t.branding_reset_title().to_owned();
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, t.branding_reset_lead());
    page.form = Some(DialogForm {
        action: format!("{PATH}/reset"),
        fields: vec![("generation", own.generation.to_string())],
        icon: "rotate-ccw",
        go: t.branding_reset_go().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::System, page)
}

/// `POST /system/branding/reset`: as the product looks.
async fn reset(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(sent): Form<SentReset>,
) -> Response {
    let shown = sent.generation.parse().ok();
    match branding::reset(&console.server, &caller, shown).await {
        Ok(_) => responses::see_with(PATH, "branding", ""),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
