//! `/storage`: how the box's own disk holds folders to their limits, with its pool and a form that makes it larger; the volumes
//! that folders lie on, with their room and their state, a form that adds one, and the question before one is forgotten.
//! Decides nothing.

use api::storage::{PoolSizeBody, PoolView};
use api::volumes::{NewVolumeBody, VolumeView};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::permissions::Permission;
use rules::storage::StorageEnforcement;
use rules::units::Bytes;
use rules::volume::VolumeState;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::{pool, volumes};

use super::authentication::PageCaller;
use super::components;
use super::dialog::{self, DialogForm, DialogPage};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::storage_use::{self, StorageUseRows};
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

const PATH: &str = "/storage";
const POOL: &str = "/storage/pool";

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/volumes.html")]
pub struct VolumesPage {
    pub t: Text,
    pub f: PageLayout,
    pub rows: Vec<VolumeLine>,
    /// What was typed; None for those who only look.
    pub form: Option<NewVolumeForm>,
    /// The box's own disk; None for those who may not know.
    pub own: Option<OwnDiskRow>,
    /// What users take; None for those who may not know.
    pub used: Option<StorageUseRows>,
}

/// How the box's own disk holds folders to their limits.
pub struct OwnDiskRow {
    pub held: &'static str,
    /// The pool; None where there is none.
    pub pool: Option<PoolRow>,
    /// Folders are to lie in a pool that is not made yet.
    pub is_to_come: bool,
}

/// The pool, in words.
pub struct PoolRow {
    pub room: String,
    pub percent: u8,
    pub disk: String,
    /// The largest that it can be made; empty where it cannot grow, and for those who may not make it.
    pub most: String,
    /// What was typed.
    pub typed: String,
}

/// The field of a new size, as it was typed.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct PoolSizeForm {
    pub bytes: String,
}

/// What was typed on this page.
#[derive(Default)]
struct Typed {
    volume: NewVolumeForm,
    size: PoolSizeForm,
}

/// One volume.
pub struct VolumeLine {
    pub here: String,
    pub name: String,
    /// Empty for those who may not know it.
    pub path: String,
    pub state: &'static str,
    /// The class of its pill.
    pub tone: &'static str,
    /// What would mend it; empty while it is ready.
    pub note: &'static str,
    /// Empty where it could not be asked.
    pub room: String,
    pub percent: u8,
    /// Who makes folders there; empty for those who may not know it.
    pub access: String,
    pub folders: String,
    /// It can be forgotten.
    pub goes: bool,
}

/// The fields of a new volume, as they were typed.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct NewVolumeForm {
    pub name: String,
    pub path: String,
    /// Names of domains, with blanks or commas between.
    pub domains: String,
    /// Names of projects, the same way.
    pub projects: String,
    /// Of a file system without id-mapped mounts.
    pub mapped_user: String,
    /// What each new folder may take, as a size.
    pub folder_limit: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/storage", get(show).post(make))
        .route("/storage/pool", post(grow))
        .route("/storage/{id}/remove", get(ask).post(remove))
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    match read(&console, &visit, &caller, Typed::default()).await {
        Ok(page) => responses::page(&console, &visit, StatusCode::OK, &page),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Storage, &failure),
    }
}

async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    typed: Typed,
) -> Result<VolumesPage, Failure> {
    let all = volumes::list(&console.server, caller).await?;
    let used = storage_use::read(console, visit, caller).await?;
    let may_change = caller.subject.can(Permission::SystemWrite);
    let own = match caller.subject.can(Permission::SystemRead) {
        true => {
            let size = may_change.then_some(typed.size);
            // A pool that cannot be reached takes nothing else from the page.
            let seen = pool::get(&console.server, caller).await.ok();
            seen.map(|seen| own_disk(visit, &seen, size))
        }
        false => None,
    };
    let rows = all.into_iter().map(|one| line(visit, one, may_change));
    Ok(VolumesPage {
        t: visit.text,
        f: layout(console, visit, caller, Nav::Storage),
        rows: rows.collect(),
        form: may_change.then_some(typed.volume),
        own,
        used,
    })
}

/// `typed`: None for those who may not make the pool larger.
fn own_disk(visit: &RequestContext, seen: &PoolView, typed: Option<PoolSizeForm>) -> OwnDiskRow {
    let t = visit.text;
    let size = |bytes: Option<u64>| components::size(bytes.unwrap_or_default());
    let pool = seen.size.map(|all| {
        let can_grow = seen.most.is_some_and(|most| most > all) && typed.is_some();
        PoolRow {
            room: t.volumes_pool_room(size(seen.used), size(seen.size), size(seen.promised)),
            percent: components::percent(seen.used.unwrap_or_default() as f64, all as f64),
            disk: t.volumes_pool_disk(size(seen.disk_free), size(seen.disk_total)),
            most: match can_grow {
                true => size(seen.most),
                false => String::new(),
            },
            typed: typed.unwrap_or_default().bytes,
        }
    });
    OwnDiskRow {
        held: match seen.enforcement {
            StorageEnforcement::Native => t.volumes_held_native(),
            StorageEnforcement::Pool => t.volumes_held_pool(),
            StorageEnforcement::Image => t.volumes_held_image(),
            StorageEnforcement::Counted => t.volumes_counted(),
        },
        is_to_come: seen.enforcement == StorageEnforcement::Pool && pool.is_none(),
        pool,
    }
}

fn line(visit: &RequestContext, one: VolumeView, may_change: bool) -> VolumeLine {
    let t = visit.text;
    let (state, tone, note) = match one.state {
        VolumeState::Ready => (t.volumes_ready(), " ok", ""),
        VolumeState::Absent => (t.volumes_absent(), " bad", t.volumes_absent_note()),
        VolumeState::Hung => (t.volumes_hung(), " bad", t.volumes_hung_note()),
        VolumeState::ReadOnly => (t.volumes_read_only(), " warn", t.volumes_read_only_note()),
    };
    let (room, percent) = match (one.used, one.free, one.total) {
        (Some(used), Some(free), Some(total)) => (
            t.volumes_room(components::size(used), components::size(free)),
            components::percent(used as f64, total as f64),
        ),
        _ => (String::new(), 0),
    };
    let named: Vec<String> = one.domains.into_iter().chain(one.projects).collect();
    let access = match (&one.path, named.is_empty()) {
        (None, _) => String::new(),
        (Some(_), true) => t.volumes_everyone().to_owned(),
        (Some(_), false) => named.join(", "),
    };
    let access = match &one.mapped_user {
        Some(user) => format!("{access} · {}", t.volumes_mapped(user)),
        None => access,
    };
    let access = match one.folder_limit {
        Some(limit) => format!("{access} · {}", t.volumes_each(components::size(limit))),
        None => access,
    };
    VolumeLine {
        here: format!("{PATH}/{}", one.id),
        name: one.name,
        path: one.path.unwrap_or_default(),
        state,
        tone,
        note,
        room,
        percent,
        access,
        folders: t.volumes_folders(one.folders),
        goes: may_change && one.folders == 0,
    }
}

async fn make(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(form): Form<NewVolumeForm>,
) -> Response {
    let words = |text: &str| -> Vec<String> {
        let words = text.split([',', ' ', '\n', '\r', '\t']);
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    let limit = match form.folder_limit.trim() {
        "" => Ok(None),
        typed => Bytes::parse(typed).map(Some),
    };
    let asked = |limit: Option<Bytes>| NewVolumeBody {
        name: form.name.trim().to_owned(),
        path: form.path.trim().to_owned(),
        domains: words(&form.domains),
        projects: words(&form.projects),
        mapped_user: Some(form.mapped_user.trim().to_owned()).filter(|user| !user.is_empty()),
        cached: false,
        folder_limit: limit.map(|limit| limit.0),
    };
    let made = match limit {
        Ok(limit) => volumes::create(&console.server, &caller, asked(limit), None).await,
        Err(refusal) => Err(refusal.at("/folder_limit").into()),
    };
    let refusal = match made {
        Ok(made) => return responses::see_with(PATH, "volume-added", &made.value.name),
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::SystemWrite) => refusal,
        Err(failure) => return super::failed(&console, &visit, &caller, Nav::Storage, &failure),
    };
    let shown = RefusedForm::new(visit.text, PATH, &refusal).otherwise_at("path");
    let visit = visit.refusing(shown);
    let typed = Typed {
        volume: form,
        ..Typed::default()
    };
    match read(&console, &visit, &caller, typed).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Storage, &failure),
    }
}

/// `POST /storage/pool`: makes the pool larger.
async fn grow(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(form): Form<PoolSizeForm>,
) -> Response {
    let grown = match Bytes::parse(&form.bytes) {
        Ok(size) => {
            let asked = PoolSizeBody { bytes: size.0 };
            pool::grow(&console.server, &caller, asked).await
        }
        Err(refusal) => Err(refusal.at("/bytes").into()),
    };
    let refusal = match grown {
        Ok(pool) => {
            let size = components::size(pool.size.unwrap_or_default());
            return responses::see_with(PATH, "pool-grown", &size);
        }
        Err(Failure::Refusal(refusal)) if caller.subject.can(Permission::SystemWrite) => refusal,
        Err(failure) => return super::failed(&console, &visit, &caller, Nav::Storage, &failure),
    };
    let shown = RefusedForm::new(visit.text, POOL, &refusal).otherwise_at("bytes");
    let visit = visit.refusing(shown);
    let typed = Typed {
        size: form,
        ..Typed::default()
    };
    match read(&console, &visit, &caller, typed).await {
        Ok(page) => responses::page(&console, &visit, responses::status(&refusal), &page),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Storage, &failure),
    }
}

/// `GET /storage/{id}/remove`: what ends with it.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let volume = match volumes::get(&console.server, &caller, &id).await {
        Ok(volume) => volume,
        Err(failure) => return super::failed(&console, &visit, &caller, Nav::Storage, &failure),
    };
    let title = t.volumes_remove_title(&volume.name);
    let frame = layout(&console, &visit, &caller, Nav::Storage);
    let mut page = DialogPage::titled(frame, PATH.to_owned(), title, t.volumes_remove_lead());
    let action = format!("{PATH}/{}/remove", volume.id);
    page.form = Some(DialogForm::removal(action, t.volumes_remove()));
    dialog::answer(&console, &visit, Nav::Storage, page)
}

async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match volumes::remove(&console.server, &caller, &id).await {
        Ok(()) => responses::see_with(PATH, "volume-removed", ""),
        Err(failure) => super::failed(&console, &visit, &caller, Nav::Storage, &failure),
    }
}
