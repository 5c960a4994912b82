//! `/environments`: versions of environments that came as bundles, the form that imports one, and the page of one.

use api::environments::{EnvironmentDetailView, EnvironmentView};
use server::actions::images::environments;

use super::*;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/environments.html")]
pub struct EnvironmentsPage {
    pub t: Text,
    pub f: PageLayout,
    pub rows: Vec<EnvironmentLine>,
    pub may_import: bool,
    /// A bundle that has arrived and waits for a choice: its id, and the file's name.
    pub import_upload: Option<(String, String)>,
    pub accept_unsigned: bool,
    pub allow_older: bool,
}

/// A version in the list.
pub struct EnvironmentLine {
    pub href: String,
    pub name: String,
    pub version: String,
    pub about: String,
    pub is_newest: bool,
    /// Who signed it, in words.
    pub signer: String,
    pub imported: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/environment.html")]
pub struct EnvironmentDetailPage {
    pub t: Text,
    pub f: PageLayout,
    pub line: EnvironmentLine,
    pub may_remove: bool,
    /// The question before this version is removed.
    pub remove_title: String,
    pub images: Vec<EnvironmentImageLine>,
    pub packages: Vec<(String, String)>,
    /// How many packages are not shown.
    pub more: u64,
    pub licences: String,
}

/// An image of the version, with what is recommended for it in words.
pub struct EnvironmentImageLine {
    pub href: String,
    pub launch: String,
    pub reference: String,
    pub recommended: String,
}

/// Packages shown. Higher: a page of megabytes. Lower: usual images do not fit; the whole list is in the API.
const PACKAGES: usize = 500;

/// `GET /environments`
pub(super) async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match read(&console, &visit, &caller).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
) -> Result<EnvironmentsPage, Failure> {
    let now = console.server.clock().now();
    let all = environments::list(&console.server, caller).await?;
    Ok(EnvironmentsPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Images),
        rows: all.iter().map(|one| line(visit, one, now)).collect(),
        may_import: caller.subject.can(Permission::ImagesWrite),
        import_upload: None,
        accept_unsigned: false,
        allow_older: false,
    })
}

fn line(visit: &RequestContext, one: &EnvironmentView, now: Timestamp) -> EnvironmentLine {
    let t = visit.text;
    EnvironmentLine {
        href: place(one),
        name: one.name.clone(),
        version: one.version.clone(),
        about: one.about.clone(),
        is_newest: one.newest,
        signer: match &one.signer {
            Some(signer) => t.environments_signed_by(signer),
            None => t.environments_unsigned().to_owned(),
        },
        imported: visit.clock.ago(one.imported_at, now),
    }
}

fn place(one: &EnvironmentView) -> String {
    let which = format!("{}:{}", one.name, one.version);
    format!("/environments/{}", responses::encoded(&which))
}

/// `POST /environments/import`: the bundle comes with the form, or in pieces before it.
pub(super) async fn import(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    mut form: FileForm,
) -> Response {
    let mut typed = TypedImport::default();
    let taken = take(
        &console,
        &caller,
        &mut form,
        announced(&headers),
        &mut typed,
    )
    .await;
    let begun = match taken {
        Ok(upload) => {
            let (unsigned, older) = (typed.accept_unsigned, typed.allow_older);
            let source = ImportSource::Upload(upload);
            environments::import(&console.server, &caller, source, unsigned, older, None)
                .await
                .map(drop)
        }
        Err(failure) => Err(failure),
    };
    match begun {
        // The work is listed there, with its progress and what refused it.
        Ok(()) => responses::see("/images?notice=import"),
        Err(Failure::Refusal(refusal)) => {
            let form = RefusedForm::new(visit.text, "/environments/import", &refusal)
                .otherwise_at("archive");
            let visit = visit.refusing(form);
            match read(&console, &visit, &caller).await {
                Ok(page) => {
                    let page = EnvironmentsPage {
                        import_upload: arrived(&console, &caller, typed.upload).await,
                        accept_unsigned: typed.accept_unsigned,
                        allow_older: typed.allow_older,
                        ..page
                    };
                    responses::page(&console, &visit, responses::status(&refusal), &page)
                }
                Err(failure) => failed(&console, &visit, &caller, &failure),
            }
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `GET /environments/{which}`
pub(super) async fn one(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(which): Path<String>,
) -> Response {
    match environments::get(&console.server, &caller, &which).await {
        Ok(environment) => {
            let page = detail(&console, &visit, &caller, &environment);
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

fn detail(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    found: &EnvironmentDetailView,
) -> EnvironmentDetailPage {
    let t = visit.text;
    let now = console.server.clock().now();
    let images = found.environment.images.iter().map(|image| {
        let mut words = Vec::new();
        if let Some(bytes) = image.memory {
            words.push(t.environments_memory(components::size(bytes)));
        }
        if let Some(bytes) = image.shm {
            words.push(t.environments_shm(components::size(bytes)));
        }
        words.extend(image.ports.iter().map(|port| t.environments_port(port)));
        let name = responses::encoded(&image.reference);
        EnvironmentImageLine {
            href: format!("/images/{name}"),
            launch: format!("/sessions/new?image={name}"),
            reference: image.reference.clone(),
            recommended: words.join(" · "),
        }
    });
    // A text that is no list of packages shows none; the API gives it as it is.
    let listed: serde_json::Value = serde_json::from_str(&found.sbom).unwrap_or_default();
    let listed = listed["packages"].as_array().cloned().unwrap_or_default();
    let word = |package: &serde_json::Value, key: &str| {
        package[key].as_str().unwrap_or_default().to_owned()
    };
    let packages = listed.iter().take(PACKAGES);
    let line = line(visit, &found.environment, now);
    EnvironmentDetailPage {
        t,
        f: layout(console, visit, caller, Nav::Images),
        may_remove: caller.subject.can(Permission::ImagesWrite),
        remove_title: t.remove_title(format!("{} {}", line.name, line.version)),
        line,
        images: images.collect(),
        packages: packages
            .map(|package| (word(package, "name"), word(package, "versionInfo")))
            .collect(),
        more: listed.len().saturating_sub(PACKAGES) as u64,
        licences: found.licences.clone(),
    }
}

/// `POST /environments/{which}/remove`
pub(super) async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(which): Path<String>,
) -> Response {
    match environments::remove(&console.server, &caller, &which).await {
        Ok(gone) => {
            let name = format!("{} {}", gone.name, gone.version);
            responses::see_with("/environments", "remove", &name)
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
