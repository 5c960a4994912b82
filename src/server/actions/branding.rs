//! How the site looks, as administrators of the site set it: name, logo, one hue of the design, and short texts, on pages
//! before and after sign-in. No markup and no style comes from here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use api::branding::{BrandingPatchBody, BrandingView};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::branding::{
    MAX_BRAND_NAME, MAX_FOOTER_LENGTH, MAX_LOGO_PIXELS, MAX_SIGN_IN_TEXT, brand_text, check_hue,
    check_logo,
};
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::Scope;

use super::allowed;
use crate::access::Caller;
use crate::catalog::branding::BrandingRow;
use crate::catalog::events::NewEvent;
use crate::catalog::{Lane, Rows};
use crate::{Failure, Server};

/// What each page shows, so that none of them asks the rows: read when a commit changed it and at the first page after a
/// start.
#[derive(Default)]
pub(crate) struct KeptBranding {
    /// Revision of the newest commit that changed it.
    changed_in: AtomicU64,
    /// The row, and a revision that it is not older than.
    kept: Mutex<Option<(u64, Arc<BrandingRow>)>>,
}

impl KeptBranding {
    /// Called inside the commit that changes it, so that also a caller who went away meanwhile is seen.
    fn changed(&self, rows: &Rows<'_>) -> Result<(), Failure> {
        self.changed_in
            .fetch_max(rows.revision()? + 1, Ordering::AcqRel);
        Ok(())
    }

    fn newest(&self, server: &Server) -> Result<Arc<BrandingRow>, Failure> {
        let (revision, _) = server.catalog().state_version();
        let needed = self.changed_in.load(Ordering::Acquire);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, row)) = &*kept
            && *of >= needed
        {
            return Ok(Arc::clone(row));
        }
        let read = server
            .catalog()
            .read_now("read how the site looks", |view| view.branding())?;
        let row = Arc::new(read);
        *kept = Some((revision, Arc::clone(&row)));
        Ok(row)
    }
}

/// How the site looks, for pages before and after sign-in. As the product does where it cannot be read. Costs no query but
/// after a change.
pub fn around(server: &Server) -> BrandingView {
    // A look is no reason to refuse a page; the fault shows where it matters.
    let row = server.kept_branding().newest(server);
    row.map(|row| shown(&row)).unwrap_or_default()
}

/// The logo, a PNG file; None where the site has none of its own. Open to every reader: it is shown before sign-in.
pub fn logo(server: &Server) -> Option<Vec<u8>> {
    let row = server.kept_branding().newest(server).ok()?;
    row.logo.clone()
}

/// How the site looks.
///
/// Errors: `denied` without `system:read`.
pub async fn get(server: &Server, caller: &Caller) -> Result<BrandingView, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let row = server.kept_branding().newest(server)?;
    Ok(shown(&row))
}

/// Changes how the site looks; open pages show it when they are opened again.
///
/// Errors: `denied` without `system:write`; `branding.text-too-long`, `branding.hidden-characters`, `branding.hue`,
/// `branding.logo-too-large`, `branding.logo-no-png`, `branding.stale`.
pub async fn change(
    server: &Server,
    caller: &Caller,
    patch: BrandingPatchBody,
    if_match: Option<u64>,
) -> Result<BrandingView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let text = |typed: &Option<String>, most: usize, pointer: &str| {
        let checked = typed
            .as_deref()
            .map(|typed| brand_text(typed, most, pointer));
        checked.transpose()
    };
    let name = text(&patch.name, MAX_BRAND_NAME, "/name")?;
    let footer = text(&patch.footer, MAX_FOOTER_LENGTH, "/footer")?;
    let footer_ko = text(&patch.footer_ko, MAX_FOOTER_LENGTH, "/footer_ko")?;
    let sign_in = text(&patch.sign_in, MAX_SIGN_IN_TEXT, "/sign_in")?;
    let sign_in_ko = text(&patch.sign_in_ko, MAX_SIGN_IN_TEXT, "/sign_in_ko")?;
    let hue = patch.hue.map(|hue| hue.map(check_hue).transpose());
    let hue = hue.transpose()?;
    let logo = patch
        .logo
        .map(|logo| logo.map(|text| decoded(&text)).transpose());
    let logo = logo.transpose()?;
    put(server, caller, if_match, move |was| BrandingRow {
        name: name.unwrap_or_else(|| was.name.clone()),
        logo: logo.unwrap_or_else(|| was.logo.clone()),
        hue: hue.unwrap_or(was.hue),
        footer: footer.unwrap_or_else(|| was.footer.clone()),
        footer_ko: footer_ko.unwrap_or_else(|| was.footer_ko.clone()),
        sign_in: sign_in.unwrap_or_else(|| was.sign_in.clone()),
        sign_in_ko: sign_in_ko.unwrap_or_else(|| was.sign_in_ko.clone()),
        generation: was.generation,
    })
    .await
}

/// Lets the site look as the product does. Errors: `denied` without `system:write`; `branding.stale`.
pub async fn reset(
    server: &Server,
    caller: &Caller,
    if_match: Option<u64>,
) -> Result<BrandingView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    put(server, caller, if_match, |was| BrandingRow {
        generation: was.generation,
        ..BrandingRow::default()
    })
    .await
}

async fn put(
    server: &Server,
    caller: &Caller,
    if_match: Option<u64>,
    becomes: impl FnOnce(&BrandingRow) -> BrandingRow + Send + 'static,
) -> Result<BrandingView, Failure> {
    let (kept, actor) = (server.clone(), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "change how the site looks", move |rows| {
            let was = rows.branding()?;
            if if_match.is_some_and(|seen| seen != was.generation) {
                return Err(refusals::branding_stale(was.generation).into());
            }
            let is = BrandingRow {
                generation: was.generation + 1,
                ..becomes(&was)
            };
            rows.put_branding(&is)?;
            kept.kept_branding().changed(rows)?;
            rows.note(NewEvent {
                actor: actor.name.as_str(),
                topic: "system",
                object: "branding",
                scope: Scope::SITE,
                code: "branding.changed",
                before: &told(&was),
                after: &told(&is),
            })?;
            Ok(shown(&is))
        })
        .await
}

/// A logo out of its base64. Errors: `branding.logo-no-png`, `branding.logo-too-large`, at `/logo`.
fn decoded(text: &str) -> Result<Vec<u8>, Refusal> {
    let bytes = STANDARD
        .decode(text.trim())
        .map_err(|_| refusals::branding_logo_no_png(MAX_LOGO_PIXELS).at("/logo"))?;
    check_logo(&bytes)?;
    Ok(bytes)
}

fn shown(row: &BrandingRow) -> BrandingView {
    BrandingView {
        name: row.name.clone(),
        has_logo: row.logo.is_some(),
        hue: row.hue,
        footer: row.footer.clone(),
        footer_ko: row.footer_ko.clone(),
        sign_in: row.sign_in.clone(),
        sign_in_ko: row.sign_in_ko.clone(),
        generation: row.generation,
    }
}

/// What an event keeps: the name, and what else is the site's own.
fn told(row: &BrandingRow) -> String {
    let mut parts = Vec::new();
    if !row.name.is_empty() {
        parts.push(row.name.clone());
    }
    if row.logo.is_some() {
        parts.push("logo".to_owned());
    }
    parts.extend(row.hue.map(|hue| format!("hue {hue}")));
    for (word, text) in [
        ("footer", &row.footer),
        ("footer_ko", &row.footer_ko),
        ("sign_in", &row.sign_in),
        ("sign_in_ko", &row.sign_in_ko),
    ] {
        if !text.is_empty() {
            parts.push(word.to_owned());
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests;
