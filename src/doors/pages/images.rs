//! `/images`, `/images/{id}` and importing.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use api::operations::{OperationState, OperationView};
use api::sessions::ListQuery;
use askama::Template;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Form, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use rules::image as images_rules;
use rules::image_limits::ImageLimits;
use rules::names::UploadId;
use rules::permissions::{Permission, may};
use rules::process_limits::ProcessLimits;
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use serde::Deserialize;
use server::access::Caller;
use server::actions::images::{self, ImportSource, registry, uploads};
use server::actions::operations;
use server::actions::sessions;
use server::{Failure, ServerFault};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use super::authentication::PageCaller;
use super::components::{self, Alert, Choice, IconFact};
use super::file_form::{FileField, FileForm};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::{RequestContext, taste, taste_of};
use super::table::{DataTable, FilterBar, TableState};
use super::table_answer::{ListPage, answer, shorter};
use super::typed::{exact, point};
use super::{PagesContext, layout, live as stream, presenter, responses};
use crate::doors::text::{Text, codes};

pub mod environments;
mod list;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/images.html", blocks = ["summary", "list", "jobs"])]
pub struct ImagesPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub summary: String,
    pub may_import: bool,
    pub filter: FilterBar,
    pub table: DataTable,
    /// Nothing was imported yet.
    pub only_host: bool,
    pub import_name: String,
    /// An archive that has arrived and waits for a name that can be taken: its id, and the file's name.
    pub import_upload: Option<(String, String)>,
    pub jobs: Vec<ImportRow>,
    /// Whether an import is over and can be cleared from the list.
    pub clearable: bool,
    /// Registries that images may be pulled from; empty without the permission.
    pub registries: Vec<String>,
    pub pull_image: String,
    pub pull_reference: String,
}

impl ListPage for ImagesPage {
    fn list(&self) -> askama::Result<String> {
        self.as_list().render()
    }

    fn stream(&self) -> Option<&str> {
        self.f.live.as_deref()
    }
}

pub struct ImportRow {
    pub id: String,
    pub name: String,
    pub state: String,
    pub tone: &'static str,
    pub percent: u8,
    pub step: String,
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/image.html")]
pub struct ImageDetailPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    pub id: String,
    pub value: String,
    pub name: String,
    pub what: String,
    pub may_remove: bool,
    /// Whether it is shared, where it was made of a session and the caller may change that.
    pub sharing: Option<bool>,
    /// What deleting would do, in words.
    pub impact: String,
    pub facts: Vec<IconFact>,
    pub starts: Vec<(String, String)>,
    pub used_by: Vec<ImageUse>,
    pub labels: Vec<(String, String)>,
    /// How another machine pulls it; None for an image that the registry cannot give.
    pub pull: Option<String>,
    /// Whether the reader may give it other limits.
    pub may_limit: bool,
    /// Who says the limits, in words; empty where there can be none.
    pub limits_by: &'static str,
    pub limits: Vec<ImageLimitField>,
}

/// One limit of an image in the form.
pub struct ImageLimitField {
    pub key: &'static str,
    pub label: &'static str,
    pub value: String,
}

pub struct ImageUse {
    pub href: String,
    pub name: String,
    pub tone: &'static str,
    pub state: String,
}

/// Largest archive that the form sends at once, for browsers without script. Larger ones go in pieces.
const MAX_ARCHIVE_BYTES: usize = 64 << 30;
/// Imports listed; older ones are in the journal.
const JOBS: usize = 8;

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/images", get(show))
        .route("/images/live", get(live))
        .route("/images.csv", get(list::export))
        .route("/images/remove", get(list::ask).post(list::remove))
        .route("/images/imports/clear", post(clear))
        .route(
            "/images/import",
            post(import).layer(DefaultBodyLimit::max(MAX_ARCHIVE_BYTES)),
        )
        .route("/images/pull", post(pull))
        .route("/environments", get(environments::show))
        .route(
            "/environments/import",
            post(environments::import).layer(DefaultBodyLimit::max(MAX_ARCHIVE_BYTES)),
        )
        .route("/environments/{which}", get(environments::one))
        .route("/environments/{which}/remove", post(environments::remove))
        .route("/images/{id}", get(one))
        .route("/images/{id}/remove", post(remove))
        .route("/images/{id}/share", post(share))
        .route("/images/{id}/unshare", post(unshare))
        .route("/images/{id}/limits", post(set_limits))
}

/// Environments to launch from: the machine's own first, then the chosen image, then those that most live sessions of
/// the caller's reach start from, then the others by name.
pub(super) async fn choices(
    console: &PagesContext,
    caller: &Caller,
    t: Text,
    chosen: &str,
) -> Result<Vec<Choice>, Failure> {
    let mut all = vec![Choice {
        note: t.launch_host_note().to_owned(),
        foot: t.launch_host_foot().to_owned(),
        icon: "server",
        ..Choice::new("host", "host", chosen == "host" || chosen.is_empty())
    }];
    // An order is no reason to refuse the page.
    let used = images::used(&console.server, caller).await;
    let used = used.unwrap_or_default();
    let mut known = images::list(&console.server, caller).await?;
    // An administrator sees those of others too, and starts nothing from them.
    known.retain(|image| image.is_open_to(caller.subject.user));
    for image in known {
        let is_chosen = chosen == image.reference || chosen == image.id.to_string();
        all.push(Choice {
            note: about(&image),
            foot: foot(t, &image),
            icon: "package",
            ..Choice::new(image.reference.clone(), image.reference, is_chosen)
        });
    }
    order(&mut all, &used);
    Ok(all)
}

/// How large it is, and what its sessions may ask for.
fn foot(t: Text, image: &images_rules::CatalogImage) -> String {
    let size = t.launch_on_disk(components::size(image.size.0));
    let bound = limit_fields(t, &image.limits).into_iter();
    let bound = bound.filter(|field| !field.value.is_empty());
    bound.fold(size, |all, field| {
        format!("{all} · {} {}", field.label, field.value)
    })
}

/// Sorts all but the first: what is chosen, then what is used most. Equal ones stay as they were.
fn order(all: &mut [Choice], used: &BTreeMap<String, u64>) {
    let sessions = |choice: &Choice| used.get(&choice.value).copied().unwrap_or_default();
    if let Some((_, images)) = all.split_first_mut() {
        images.sort_by_key(|choice| (!choice.chosen, Reverse(sessions(choice))));
    }
}

/// What an image says about itself, in a few words.
fn about(image: &images_rules::CatalogImage) -> String {
    [
        "org.opencontainers.image.description",
        "org.opencontainers.image.title",
        "description",
    ]
    .into_iter()
    .find_map(|name| image.labels.get(name))
    .map_or_else(
        || image.architecture.clone(),
        |text| text.chars().take(80).collect(),
    )
}

/// `GET /images`: the page, or the list alone for the page's own script.
async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedImages,
) -> Response {
    let place = TableState::read(list::PATH, &list::FILTERS, &asked);
    if let Some(short) = shorter(&visit, &place, &asked) {
        return short;
    }
    let page = read(&console, &visit, &caller, &headers, &asked).await;
    answer(&console, &visit, &place, page, |failure| {
        failed(&console, &visit, &caller, failure)
    })
}

type AskedImages = Query<Vec<(String, String)>>;

/// The cookie that says until when this browser cleared the list of imports.
const CLEARED: &str = "fardel_imports_cleared";

/// Imports that were over by then are not listed in this browser. A stream has it in its address, for streams of one
/// address are shared.
fn cleared(headers: &HeaderMap, visit: &RequestContext, asked: &[(String, String)]) -> Timestamp {
    let named = asked.iter().find(|(name, _)| name == "cleared");
    let millis = match named {
        Some((_, value)) => Some(value.as_str()),
        None => taste_of(headers, visit.secure, CLEARED),
    };
    let millis = millis.and_then(|text| text.parse().ok()).unwrap_or(0);
    Timestamp::from_millis(millis)
}

/// `POST /images/imports/clear`: leaves what is over out of the list from now on, in this browser.
async fn clear(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(_): PageCaller,
) -> Response {
    let now = console.server.clock().now().as_millis().to_string();
    let mut response = responses::see("/images");
    if let Ok(cookie) = HeaderValue::try_from(taste(&visit, CLEARED, &now)) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    failure: &Failure,
) -> Response {
    let f = layout(console, visit, caller, Nav::Images);
    responses::failure(console, visit, Some(f), failure)
}

async fn live(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): AskedImages,
) -> Response {
    let (shared, request, reader) = (console.clone(), visit.clone(), caller.clone());
    stream::stream(&shared, &request, &reader, move || {
        let (console, visit, caller) = (console.clone(), visit.clone(), caller.clone());
        let (headers, asked) = (headers.clone(), asked.clone());
        async move {
            let page = read(&console, &visit, &caller, &headers, &asked)
                .await
                .ok()?;
            let fragments = vec![
                ("counts", stream::menu_counts(&console, &caller).await?),
                ("summary", page.as_summary().render().ok()?),
                ("list", page.as_list().render().ok()?),
                ("jobs", page.as_jobs().render().ok()?),
            ];
            // How far it is stands in no row.
            let clocked = true;
            Some(stream::LiveParts { fragments, clocked })
        }
    })
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<ImagesPage, Failure> {
    let t = visit.text;
    let server = &console.server;
    let now = server.clock().now();
    let cleared = cleared(headers, visit, asked);
    let list = list::read(console, visit, caller, headers, asked).await?;
    let may_import = caller.subject.can(Permission::ImagesWrite);
    let jobs = if may_import {
        operations::list(server, caller).await?
    } else {
        Vec::new()
    };
    let jobs: Vec<OperationView> = jobs
        .into_iter()
        .filter(|job| job.ended_at.is_none_or(|at| at > cleared))
        .collect();
    let live = format!("{}&cleared={}", list.live, cleared.as_millis());
    Ok(ImagesPage {
        t,
        f: PageLayout {
            live: Some(live),
            ..layout(console, visit, caller, Nav::Images)
        },
        alert: None,
        summary: list.summary,
        may_import,
        filter: list.filter,
        table: list.table,
        only_host: list.only_host,
        import_name: String::new(),
        import_upload: None,
        registries: match may_import {
            true => registry::hosts(server, caller)?,
            false => Vec::new(),
        },
        pull_image: String::new(),
        pull_reference: String::new(),
        clearable: jobs.iter().any(|job| job.ended_at.is_some()),
        jobs: jobs
            .iter()
            .take(JOBS)
            .map(|job| shown_job(t, visit, job, now))
            .collect(),
    })
}

/// The first letters of a digest, enough to tell two apart.
fn short(digest: &str) -> String {
    digest.chars().take(19).collect()
}

fn shown_job(t: Text, visit: &RequestContext, job: &OperationView, now: Timestamp) -> ImportRow {
    let percent = components::percent(job.done as f64, job.total as f64);
    let (state, tone, percent) = match job.state {
        OperationState::Pending => (t.jobs_waiting().to_owned(), "d", 0),
        OperationState::Running => (t.jobs_running(percent), "a", percent),
        OperationState::Succeeded => (t.jobs_done().to_owned(), "o", 100),
        OperationState::Failed => (t.jobs_failed().to_owned(), "b", 100),
        OperationState::Cancelled => (t.jobs_cancelled().to_owned(), "d", 100),
    };
    let step = match (&job.refusal, job.ended_at) {
        (Some(refusal), _) => codes::refusal(t, refusal),
        (None, Some(at)) => visit.clock.ago(at, now),
        (None, None) if job.total > 0 => format!(
            "{} · {} / {}",
            job.step,
            components::size(job.done),
            components::size(job.total)
        ),
        (None, None) => job.step.clone(),
    };
    // What it gave is a list of images; their names say more than the id of the work.
    let name = job
        .result
        .as_ref()
        .and_then(|result| {
            result
                .to_string()
                .split("\"reference\":\"")
                .nth(1)?
                .split('"')
                .next()
                .map(str::to_owned)
        })
        .unwrap_or_else(|| match job.file.as_str() {
            "" => visit.clock.near(job.created_at, now),
            file => file.to_owned(),
        });
    ImportRow {
        id: job.id.to_string(),
        name,
        state,
        tone,
        percent,
        step,
    }
}

/// `POST /images/import` without script: the whole archive in one request.
async fn import(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    mut form: FileForm,
) -> Response {
    let announced = announced(&headers);
    let mut typed = TypedImport::default();
    let taken = match take(&console, &caller, &mut form, announced, &mut typed).await {
        Ok(upload) => {
            let reference = Some(typed.name.trim().to_owned()).filter(|name| !name.is_empty());
            let source = ImportSource::Upload(upload);
            images::import(&console.server, &caller, source, reference)
                .await
                .map(drop)
        }
        Err(failure) => Err(failure),
    };
    match taken {
        Ok(()) => responses::see("/images?notice=import"),
        Err(Failure::Refusal(refusal)) => {
            let form = RefusedForm::new(visit.text, "/images/import", &refusal);
            let form = match refusal.pointer.as_deref() {
                Some("/reference") => form.at("name"),
                _ => form.at("archive"),
            };
            let visit = visit.refusing(form);
            match read(&console, &visit, &caller, &headers, &[]).await {
                Ok(page) => {
                    let page = ImagesPage {
                        import_name: typed.name,
                        import_upload: arrived(&console, &caller, typed.upload).await,
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

/// How long the whole form is, as its browser says; 0 where it says nothing.
fn announced(headers: &HeaderMap) -> u64 {
    headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
        .unwrap_or_default()
}

/// What the form of a pull says.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedPull {
    image: String,
    reference: String,
}

/// `POST /images/pull`: begins to pull an image of another registry.
async fn pull(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Form(typed): Form<TypedPull>,
) -> Response {
    let reference = Some(typed.reference.trim().to_owned()).filter(|text| !text.is_empty());
    let begun = registry::pull(&console.server, &caller, &typed.image, reference, None).await;
    match begun {
        Ok(_) => responses::see("/images?notice=import"),
        Err(Failure::Refusal(refusal)) => {
            let form = RefusedForm::new(visit.text, "/images/pull", &refusal).otherwise_at("image");
            let visit = visit.refusing(form);
            match read(&console, &visit, &caller, &headers, &[]).await {
                Ok(page) => {
                    let page = ImagesPage {
                        pull_image: typed.image,
                        pull_reference: typed.reference,
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

/// What a form of an import brought.
#[derive(Default)]
struct TypedImport {
    name: String,
    /// The archive, once it is here as a whole.
    upload: Option<UploadId>,
    /// Of a bundle: it is taken without a signature.
    accept_unsigned: bool,
    /// Of a bundle: it may be older than what is here.
    allow_older: bool,
}

/// An upload that is here as a whole, to be named in a form that is shown again.
async fn arrived(
    console: &PagesContext,
    caller: &Caller,
    upload: Option<UploadId>,
) -> Option<(String, String)> {
    let id = upload?;
    let known = uploads::head(&console.server, caller, id).await.ok()?;
    (known.offset == known.size).then(|| (id.to_string(), known.name))
}

/// The upload of the archive. Passes it on piece by piece, as it comes; memory holds one piece.
async fn take(
    console: &PagesContext,
    caller: &Caller,
    form: &mut FileForm,
    announced: u64,
    typed: &mut TypedImport,
) -> Result<UploadId, Failure> {
    let server = &console.server;
    let mut has_field = false;
    while let Some(mut field) = form.next_field().await? {
        match field.name() {
            "name" => typed.name = text(field).await?,
            "accept_unsigned" => typed.accept_unsigned = text(field).await? == "yes",
            "allow_older" => typed.allow_older = text(field).await? == "yes",
            // An archive that came before, in pieces or with a form that was refused; a file wins over it.
            "upload" => {
                let id: Option<UploadId> = text(field).await?.trim().parse().ok();
                typed.upload = typed.upload.or(id);
            }
            "archive" => {
                has_field = true;
                let file = match field.file_name() {
                    "" => "archive.tar".to_owned(),
                    name => name.to_owned(),
                };
                // How long the file is stands nowhere in the form, so it is gathered in a file of our own first.
                let (mut gathered, mut size) =
                    (tokio::fs::File::from_std(tempfile(server)?), 0_u64);
                while let Some(piece) = field.chunk().await? {
                    size += piece.len() as u64;
                    if announced > 0 && size > announced {
                        return Err(broken_size().into());
                    }
                    gathered
                        .write_all(&piece)
                        .await
                        .map_err(|error| ServerFault::new("keep an uploaded archive", error))?;
                }
                if size == 0 {
                    continue;
                }
                let made = uploads::create(server, caller, size, &file, None).await?;
                gathered
                    .rewind()
                    .await
                    .map_err(|error| ServerFault::new("read an uploaded archive", error))?;
                let mut offset = 0;
                while offset < size {
                    let mut piece =
                        vec![0; PIECE.min(usize::try_from(size - offset).unwrap_or(PIECE))];
                    gathered
                        .read_exact(&mut piece)
                        .await
                        .map_err(|error| ServerFault::new("read an uploaded archive", error))?;
                    let length = piece.len() as u64;
                    uploads::append(server, caller, made.id, offset, piece.into()).await?;
                    offset += length;
                }
                typed.upload = Some(made.id);
            }
            _ => while field.chunk().await?.is_some() {},
        }
    }
    let missing = || {
        let refusal = match has_field {
            true => refusals::upload_no_archive_chosen(),
            false => refusals::upload_missing(),
        };
        refusal.at("/archive")
    };
    Ok(typed.upload.ok_or_else(missing)?)
}

/// What is typed into a field of the form.
async fn text(field: FileField<'_>) -> Result<String, Refusal> {
    let text = field.text(MAX_TYPED_BYTES).await?;
    text.ok_or_else(|| refusals::body_too_large().at("/reference"))
}

/// Bytes of what is typed. Higher: more memory for each form. Lower: long names of images are refused as too large a form.
const MAX_TYPED_BYTES: usize = 4 << 10;

/// Bytes handed on at once.
const PIECE: usize = 4 << 20;

fn broken_size() -> Refusal {
    refusals::upload_longer_than_announced()
}

/// A file without a name beside the uploads, gone with its last user in any case.
fn tempfile(server: &server::Server) -> Result<std::fs::File, Failure> {
    let fault = |error| Failure::from(ServerFault::new("make room for an upload", error));
    let path = server
        .settings()
        .data
        .join(format!("form-{}", uuid::Uuid::now_v7()));
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(fault)?;
    std::fs::remove_file(&path).map_err(fault)?;
    Ok(file)
}

async fn one(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match read_image(&console, &visit, &caller, &id).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

async fn read_image(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
) -> Result<ImageDetailPage, Failure> {
    let t = visit.text;
    let server = &console.server;
    let now = server.clock().now();
    let embedded = id == "host";
    let image = if embedded {
        None
    } else {
        Some(images::get(server, caller, id).await?)
    };
    let name = image
        .as_ref()
        .map_or("host", |image| image.reference.as_str())
        .to_owned();
    let pull = match embedded || !registry::can_give(server, caller, id).await? {
        true => None,
        false => Some(format!("docker pull {}/{name}", visit.authority)),
    };
    let wanted = ListQuery {
        q: "state:live".into(),
        limit: Some(500),
        ..ListQuery::default()
    };
    let users: Vec<ImageUse> = sessions::list(server, caller, &wanted)
        .await?
        .items
        .iter()
        .filter(|session| session.image == name)
        .map(|session| {
            let (tone, state) = presenter::state(t, session);
            ImageUse {
                href: format!("/sessions/{}", session.id),
                name: session.name.to_string(),
                tone,
                state: state.to_owned(),
            }
        })
        .collect();
    let kept = image
        .as_ref()
        .filter(|image| image.is_kept_by(&caller.subject));
    let may_remove = kept.is_some();
    let sharing = kept
        .filter(|image| image.is_shared_by(&caller.subject))
        .map(|image| image.shared);
    let size = image
        .as_ref()
        .map_or_else(String::new, |image| components::size(image.size.0));
    let mut starts = Vec::new();
    let mut facts = Vec::new();
    if let Some(image) = &image {
        let words = |words: &[String]| {
            words
                .iter()
                .map(|word| presenter::quoted(word))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let shown = |text: String| {
            if text.is_empty() {
                t.common_none().to_owned()
            } else {
                text
            }
        };
        starts = vec![
            (
                t.image_entrypoint().to_owned(),
                shown(words(&image.entrypoint)),
            ),
            (t.image_command().to_owned(), shown(words(&image.command))),
            (t.image_user().to_owned(), shown(image.user.clone())),
            (
                t.image_directory().to_owned(),
                shown(image.working_directory.clone()),
            ),
        ];
        starts.extend(image.env.iter().filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        }));
        facts = vec![
            IconFact {
                icon: "hard-drive",
                text: size.clone(),
            },
            IconFact {
                icon: "cpu",
                text: image.architecture.clone(),
            },
            IconFact {
                icon: "clock",
                text: visit.clock.ago(image.imported_at, now),
            },
            IconFact {
                icon: "shield-check",
                text: short(&image.digest),
            },
        ];
        if !image.shared {
            facts.push(IconFact {
                icon: "user",
                text: match image.owner == Some(caller.subject.user) {
                    true => t.image_private().to_owned(),
                    false => t.image_private_of_other().to_owned(),
                },
            });
        }
    } else {
        facts.push(IconFact {
            icon: "server",
            text: t.images_embedded_note().to_owned(),
        });
    }
    let may_limit = image.as_ref().is_some_and(|image| {
        let scope = Scope::domain(image.domain);
        may(&caller.subject, Permission::ImagesWrite, &scope).is_ok()
    });
    let limits_by = match image.as_ref().map(|image| image.limits_set) {
        None => "",
        Some(true) => t.image_limits_set(),
        Some(false) => t.image_limits_of_labels(),
    };
    let limits = image.as_ref().map(|image| limit_fields(t, &image.limits));
    let impact = match users.len() {
        0 => t.image_impact_none(&size),
        count => t.image_impact(count as u64, &size),
    };
    Ok(ImageDetailPage {
        t,
        f: layout(console, visit, caller, Nav::Images),
        alert: None,
        id: image
            .as_ref()
            .map_or_else(|| "host".to_owned(), |image| image.id.to_string()),
        value: responses::encoded(&name),
        what: match image.as_ref().map(|image| image.owner.is_some()) {
            None => t.images_embedded(),
            Some(true) => t.image_of_session(),
            Some(false) => t.images_imported(),
        }
        .to_owned(),
        may_remove,
        sharing,
        impact,
        facts,
        starts,
        used_by: users,
        labels: image
            .map(|image| image.labels.into_iter().collect())
            .unwrap_or_default(),
        pull,
        name,
        may_limit,
        limits_by,
        limits: limits.unwrap_or_default(),
    })
}

/// Every limit that an image can have, as a form shows it.
fn limit_fields(t: Text, limits: &ImageLimits) -> Vec<ImageLimitField> {
    let size = |bytes: Option<Bytes>| bytes.map_or_else(String::new, |bytes| exact(bytes.0));
    let cpu = |cores: Option<CpuShare>| cores.map_or_else(String::new, |cores| cores.to_string());
    let gpu = |share: Option<GpuShare>| share.map_or_else(String::new, |share| share.to_string());
    [
        ("min_cpu", t.image_min_cpu(), cpu(limits.min_cpu)),
        ("max_cpu", t.image_max_cpu(), cpu(limits.max_cpu)),
        ("min_memory", t.image_min_memory(), size(limits.min_memory)),
        ("max_memory", t.image_max_memory(), size(limits.max_memory)),
        ("min_gpu", t.image_min_gpu(), gpu(limits.min_gpu)),
        ("max_gpu", t.image_max_gpu(), gpu(limits.max_gpu)),
        ("shm", t.image_shm(), size(limits.shm)),
        (
            "ulimits",
            t.launch_text_ulimits(),
            limits.ulimits.to_string(),
        ),
    ]
    .map(|(key, label, value)| ImageLimitField { key, label, value })
    .into()
}

/// The limits as they were typed; empty boxes are none.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TypedImageLimits {
    min_cpu: String,
    max_cpu: String,
    min_memory: String,
    max_memory: String,
    min_gpu: String,
    max_gpu: String,
    shm: String,
    ulimits: String,
    /// Something where the labels are to say them.
    of_labels: String,
}

impl TypedImageLimits {
    /// Errors: those of an amount that cannot be read, at its field.
    fn read(&self) -> Result<Option<ImageLimits>, Refusal> {
        if !self.of_labels.is_empty() {
            return Ok(None);
        }
        Ok(Some(ImageLimits {
            min_cpu: amount("/min_cpu", &self.min_cpu, CpuShare::parse)?,
            max_cpu: amount("/max_cpu", &self.max_cpu, CpuShare::parse)?,
            min_memory: amount("/min_memory", &self.min_memory, Bytes::parse)?,
            max_memory: amount("/max_memory", &self.max_memory, Bytes::parse)?,
            min_gpu: amount("/min_gpu", &self.min_gpu, GpuShare::parse)?,
            max_gpu: amount("/max_gpu", &self.max_gpu, GpuShare::parse)?,
            shm: amount("/shm", &self.shm, Bytes::parse)?,
            ulimits: ProcessLimits::parse(&self.ulimits)
                .map_err(|refusal| refusal.at("/ulimits"))?,
        }))
    }
}

fn amount<T>(
    pointer: &str,
    typed: &str,
    parse: impl Fn(&str) -> Result<T, Refusal>,
) -> Result<Option<T>, Refusal> {
    match typed.trim() {
        "" => Ok(None),
        typed => parse(&point(typed))
            .map(Some)
            .map_err(|refusal| refusal.at(pointer)),
    }
}

/// `POST /images/{id}/limits`: limits in the place of those of the labels.
async fn set_limits(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(typed): Form<TypedImageLimits>,
) -> Response {
    let set = match typed.read() {
        Ok(limits) => images::set_limits(&console.server, &caller, &id, limits).await,
        Err(refusal) => Err(refusal.into()),
    };
    let refusal = match set {
        Ok(image) => return responses::see(&format!("/images/{}?notice=limits", image.id)),
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return failed(&console, &visit, &caller, &fault),
    };
    // Who may not see it gets the same answer as where there is none.
    let page = match read_image(&console, &visit, &caller, &id).await {
        Ok(page) if page.may_limit => page,
        Ok(_) => return failed(&console, &visit, &caller, &refusal.into()),
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let form =
        RefusedForm::new(visit.text, &format!("/images/{}/limits", page.id), &refusal).with([
            ("min_cpu", typed.min_cpu.as_str()),
            ("max_cpu", typed.max_cpu.as_str()),
            ("min_memory", typed.min_memory.as_str()),
            ("max_memory", typed.max_memory.as_str()),
            ("min_gpu", typed.min_gpu.as_str()),
            ("max_gpu", typed.max_gpu.as_str()),
            ("shm", typed.shm.as_str()),
            ("ulimits", typed.ulimits.as_str()),
        ]);
    let status = responses::status(&refusal);
    responses::page(&console, &visit.refusing(form), status, &page)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Confirmed {
    typed: String,
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(confirmed): Form<Confirmed>,
) -> Response {
    let page = match read_image(&console, &visit, &caller, &id).await {
        Ok(page) => page,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let removed = if confirmed.typed.trim() == page.name {
        images::remove(&console.server, &caller, &id).await
    } else {
        Err(refusals::confirm_image_name_differs().at("/typed").into())
    };
    match removed {
        Ok(image) => responses::see_with("/images", "remove", &image.reference),
        Err(Failure::Refusal(refusal)) => {
            let action = format!("/images/{id}/remove");
            let form = RefusedForm::new(visit.text, &action, &refusal)
                .with([("typed", confirmed.typed.as_str())]);
            responses::page(
                &console,
                &visit.refusing(form),
                responses::status(&refusal),
                &page,
            )
        }
        Err(fault) => failed(&console, &visit, &caller, &fault),
    }
}

/// `POST /images/{id}/share`
async fn share(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    shared(&console, &visit, &caller, &id, true).await
}

/// `POST /images/{id}/unshare`
async fn unshare(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    shared(&console, &visit, &caller, &id, false).await
}

async fn shared(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    shared: bool,
) -> Response {
    match images::share(&console.server, caller, id, shared).await {
        Ok(image) => responses::see(&format!("/images/{}", image.id)),
        Err(failure) => failed(console, visit, caller, &failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_comes_first_then_the_chosen_image_then_what_is_used_most() {
        let choice = |name: &str| Choice::new(name, name, name == "d");
        let mut all = ["host", "a", "b", "c", "d"].map(choice);
        let used = [("host", 9), ("b", 1), ("c", 3)];
        order(&mut all, &used.map(|(name, n)| (name.to_owned(), n)).into());
        let names = all.map(|choice| choice.name);
        assert_eq!(names, ["host", "d", "c", "b", "a"]);
    }
}
