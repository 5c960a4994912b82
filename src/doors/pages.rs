//! The web console: parses forms and addresses, asks `server::actions`, renders pages and live fragments.
//! Never decides what a user may do, and never talks to the catalog or a node.

pub mod about;
pub mod access_keys;
pub mod allowances;
pub mod announced;
pub mod announcements;
pub mod approvals;
pub mod apps;
pub mod assets;
pub mod attention;
pub mod audit;
pub mod authentication;
pub mod awaited;
pub mod branding;
pub mod break_glass;
pub mod budgets;
pub mod charts;
pub mod choice_field;
mod client_program;
pub mod commits;
pub mod components;
pub mod courses;
pub mod departure;
pub mod dialog;
pub mod docs;
pub mod error_codes;
mod event_words;
pub mod events;
pub mod fair_share;
mod file_form;
pub mod floor_plan;
pub mod folder_browsing;
pub mod folder_files;
pub mod folder_owners;
pub mod folder_selection;
pub mod folder_shares;
pub mod folder_snapshots;
pub mod folders;
pub mod form_faults;
pub mod gpus;
mod gpus_failure;
pub mod history;
pub mod holidays;
mod hues;
pub mod idle_rules;
pub mod images;
pub mod invitations;
mod joined_blocks;
pub mod launch;
pub mod layout;
pub mod live;
pub mod login;
mod made_secrets;
mod made_slips;
pub mod me;
pub mod nodes;
mod notice_mail;
pub mod notices;
mod offered_choices;
pub mod overview;
pub mod palette;
pub mod policies;
pub mod presenter;
pub mod presets;
pub mod problem;
pub mod projects;
mod provider;
mod qr;
pub mod queue;
pub mod reference;
pub mod request_context;
pub mod reservations;
pub mod resource_groups;
pub mod responses;
pub mod role_forms;
pub mod rosters;
mod saml;
pub mod second_factor;
pub mod self_tests;
pub mod session;
pub mod session_charts;
mod session_verbs;
pub mod sessions;
pub mod settings;
pub mod setup;
pub mod sign_in_links;
pub mod sign_ins;
pub mod sign_ups;
pub mod ssh_keys;
pub mod start_up;
pub mod statements;
pub mod storage_use;
pub mod system;
pub mod table;
mod table_answer;
mod table_choices;
mod table_csv;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod trust;
pub mod typed;
pub mod usage;
pub mod user;
pub mod user_forms;
pub mod user_roles;
pub mod users;
pub mod volumes;
pub mod waiting_request;
pub mod webhooks;
pub mod wizard;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use base::link::streams::Streams;
use rules::names::ContainerName;
use rules::refusals;
use server::access::Caller;
use server::{Failure, Server};
use tower_http::CompressionLevel;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate as _, SizeAbove};

use super::origin;
use super::peer::Peer;
use super::text::Text;
use layout::{Nav, PageLayout, SignedInUser};
use request_context::RequestContext;

/// What every handler has.
#[derive(Clone)]
pub struct PagesContext {
    server: Server,
    streams: Arc<dyn Streams>,
    /// The machine's name.
    host: Arc<str>,
    /// Reads the operations of the REST API, for its page.
    describe: fn() -> reference::ApiReference,
    /// What it read: some megabytes, so only once the page was asked for.
    described: Arc<OnceLock<Arc<reference::ApiReference>>>,
    /// Where logs ended when they were last looked at, so that the next look begins near there.
    log_ends: Arc<Mutex<BTreeMap<ContainerName, u64>>>,
    open_pages: Arc<live::OpenPages>,
    made_secrets: Arc<made_secrets::MadeSecrets>,
    made_slips: Arc<made_slips::MadeSlips>,
    /// The day on the overview.
    kept_day: Arc<history::KeptViews>,
    program: Arc<client_program::ClientProgram>,
}

impl PagesContext {
    /// All there is to know of the API. The first call costs reading the document.
    fn reference(&self) -> Arc<reference::ApiReference> {
        let known = self.described.get_or_init(|| Arc::new((self.describe)()));
        known.clone()
    }
}

/// Most bytes of a form. A launch has at most 256 KiB of text, each byte of it escaped as three.
const MAX_FORM_BYTES: usize = 1 << 20;

/// How hard pages are compressed, of 1 to 9. Higher: a click takes more of the processor; 6 takes twice as much as 2 for a tenth
/// less. Lower: without trees of its own for each page, a third more bytes.
const GZIP_LEVEL: i32 = 2;

/// Every page, its fragments and its files. `host` is the machine's name, top left and in every title;
/// `reference` reads what the REST API's page lists, once it is asked for.
pub fn router(
    server: Server,
    streams: Arc<dyn Streams>,
    host: &str,
    reference: fn() -> reference::ApiReference,
) -> Router {
    server.bring_mail_writer(Arc::new(notice_mail::ConsoleMail {
        site: host.to_owned(),
    }));
    let console = PagesContext {
        server,
        streams,
        host: host.into(),
        describe: reference,
        described: Arc::default(),
        log_ends: Arc::default(),
        open_pages: Arc::default(),
        made_secrets: Arc::default(),
        made_slips: Arc::default(),
        kept_day: Arc::default(),
        program: Arc::default(),
    };
    console.program.digest_soon();
    let routes = Router::new()
        .route("/", get(overview::show))
        .route("/live", get(overview::live))
        .route("/setup", get(setup::show).post(setup::submit))
        .route("/setup/{step}", get(wizard::show).post(wizard::submit))
        .route("/setup/test/run", post(wizard::run))
        .route("/login", get(login::show).post(login::submit))
        .route("/login/code", post(login::submit_code))
        .route("/logout", post(login::leave))
        .route("/preferences", post(me::preferences))
        .route("/palette", get(palette::show))
        .route("/sessions", get(sessions::list))
        .route("/sessions/live", get(sessions::list_live))
        .route("/sessions/new", get(launch::show).post(launch::submit))
        .route("/sessions/new/preview", post(launch::preview))
        .route("/sessions/new/sizes", post(launch::resize))
        .route("/sessions/new/live", get(launch::live))
        .route("/sessions/{id}", get(session::show))
        .route("/sessions/{id}/live", get(session::show_live))
        .route("/sessions/{id}/terminal", get(session::terminal))
        .route("/sessions/{id}/logs", get(session::logs))
        .route("/sessions/{id}/metrics", get(session::metrics))
        .route("/sessions/{id}/processes", get(session::processes))
        .route(
            "/sessions/{id}/{verb}",
            get(session::act::back).post(session::act::act),
        )
        .route("/queue/{id}", get(waiting_request::show))
        .route(
            "/queue/{id}/{verb}",
            get(waiting_request::again).post(waiting_request::act),
        )
        .route("/history", get(history::show))
        .route("/usage", get(usage::show))
        .route("/usage/export", get(usage::export))
        .route("/history/export", get(history::export))
        .route("/gpus", get(gpus::list))
        .route("/gpus/live", get(gpus::list_live))
        .route("/gpus.csv", get(gpus::table::export))
        .route("/gpus/{id}", get(gpus::show))
        .route("/gpus/{id}/live", get(gpus::show_live))
        .route("/gpus/{id}/partitions", post(gpus::partitions::act))
        .route(
            "/gpus/{id}/partitions/preview",
            post(gpus::partitions::preview),
        )
        .route(
            "/gpus/{id}/test",
            get(self_tests::show).post(self_tests::begin),
        )
        .route("/gpus/{id}/test/live", get(self_tests::live))
        .route("/gpus/{id}/{verb}", post(gpus::act))
        .route("/system", get(system::first))
        .route(
            "/system/checks",
            get(system::checks).post(system::check_again),
        )
        .route("/system/settings", get(settings::show))
        .route("/system/settings/{key}", post(settings::change))
        .route("/system/settings/reload", post(system::reload))
        .route("/system/settings/test", post(system::try_sources))
        .route("/system/settings/mail-test", post(system::try_mail))
        .route("/system/settings/mail-retry", post(system::retry_mail))
        .route(
            "/system/backups",
            get(system::backups).post(system::back_up),
        )
        .route("/system/backups/schedule", post(system::schedule))
        .route("/system/backups/{name}", get(system::backup_file))
        .route("/system/support", get(system::support).post(system::bundle))
        .route("/docs", get(docs::first))
        .route("/docs/{name}", get(docs::show))
        .route("/docs/errors/{code}", get(error_codes::show))
        .route("/notices", get(notices::show))
        .route("/notices/live", get(notices::live))
        .route("/notices/read", post(notices::mark_read))
        .route("/nodes", get(nodes::first))
        .route("/nodes/{name}", get(nodes::show))
        .route("/nodes/{name}/live", get(nodes::live))
        .route("/nodes/{name}/maintenance", post(nodes::maintenance))
        .route("/api/docs", get(reference::show))
        .route("/api/docs/{schema}", get(reference::schema))
        .route("/about", get(about::show))
        .route("/downloads/fardel", get(client_program::download))
        .route("/trust", get(trust::show))
        .route("/trust/fardel.crt", get(trust::der))
        .route("/trust/fardel.pem", get(trust::pem))
        .route("/system/tls", get(tls::show))
        .route("/system/tls/request", post(tls::request))
        .route("/system/tls/certificate", post(tls::import))
        .route("/system/tls/reset", post(tls::reset))
        .merge(session_verbs::router())
        .merge(table_choices::router())
        .merge(offered_choices::router())
        .merge(queue::router())
        .merge(events::router())
        .merge(user_forms::router())
        .merge(departure::router())
        .merge(rosters::router())
        .merge(invitations::router())
        .merge(allowances::router())
        .merge(policies::router())
        .merge(courses::router())
        .merge(apps::router())
        .merge(folders::router())
        .merge(folder_browsing::router())
        .merge(folder_files::router())
        .merge(folder_selection::router())
        .merge(folder_owners::router())
        .merge(folder_snapshots::router())
        .merge(folder_shares::router())
        .merge(presets::router())
        .merge(resource_groups::router())
        .merge(budgets::router())
        .merge(reservations::router())
        .merge(fair_share::router())
        .merge(statements::router())
        .merge(holidays::router())
        .merge(announced::router())
        .merge(announcements::router())
        .merge(idle_rules::router())
        .merge(audit::router())
        .merge(volumes::router())
        .merge(webhooks::router())
        .merge(branding::router())
        .merge(approvals::router())
        .merge(break_glass::router())
        .merge(role_forms::router())
        .route("/users/{id}", get(user::show))
        .merge(users::router())
        .merge(sign_ups::router())
        .merge(projects::router())
        .merge(images::router())
        .merge(commits::router())
        .merge(me::router())
        .merge(access_keys::router())
        .merge(ssh_keys::router())
        .merge(start_up::router())
        .merge(provider::router())
        .merge(saml::router())
        .merge(second_factor::router())
        .merge(sign_ins::router())
        .merge(sign_in_links::router())
        .fallback(nothing_here)
        .method_not_allowed_fallback(no_page_here)
        .with_state(console.clone());
    // A layer lies around each route of the router that it is given: here around two, of which one is all pages.
    Router::new()
        .fallback_service(routes)
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .layer(middleware::from_fn_with_state(console, guard))
        .route("/a/{build}/{*name}", get(assets::serve))
        .layer(CatchPanicLayer::new())
        .layer(compression())
        .layer(middleware::from_fn(origin::headers))
}

/// Pages and their streams, with gzip. A stream that is open costs 0.3 MB for it; it sends a tenth of the bytes, and each
/// event at once: what is compressed is flushed as soon as nothing more is there.
fn compression() -> CompressionLayer<impl tower_http::compression::Predicate> {
    let worthwhile = SizeAbove::default().and(NotForContentType::IMAGES);
    CompressionLayer::new()
        .br(false)
        .quality(CompressionLevel::Precise(GZIP_LEVEL))
        .compress_when(worthwhile)
}

/// Middleware: names the request, and lets nothing in that another site sent, but the answer of a provider.
async fn guard(State(console): State<PagesContext>, mut request: Request, next: Next) -> Response {
    let id = uuid::Uuid::now_v7().to_string();
    request
        .extensions_mut()
        .insert(request_context::PageRequestId(id.clone()));
    request
        .extensions_mut()
        .insert(request_context::MenuCell::default());
    let act = super::problem::act(&request);
    let nowhere = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    let source = request.extensions().get::<Peer>().map(|p| p.address());
    let checked = match saml::is_answer(request.method(), request.uri().path()) {
        true => Ok(()),
        false => origin::check(request.method(), request.headers()),
    };
    let mut response = match checked {
        Ok(()) => {
            let answered = async {
                let response = next.run(request).await;
                if let Some(act) = act
                    && let Some(code) = responses::refused_code(&response)
                {
                    server::access::refused(&console.server, &act, &code);
                }
                response
            };
            server::access::as_request(source.unwrap_or(nowhere), &id, answered).await
        }
        Err(refusal) => {
            let path = request.uri().path().to_owned();
            let visit = RequestContext {
                request: Some(id.clone()),
                ..RequestContext::of(request.headers(), request.extensions(), path)
            };
            responses::refused(&console, &visit, None, &refusal)
        }
    };
    if let Ok(value) = axum::http::HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

/// An address that takes forms only, opened or shared as a page.
async fn no_page_here(
    State(console): State<PagesContext>,
    visit: RequestContext,
    authentication::OptionalPageCaller(caller): authentication::OptionalPageCaller,
) -> Response {
    let frame = caller.map(|caller| layout(&console, &visit, &caller, Nav::Nowhere));
    responses::no_page(&console, &visit, frame)
}

async fn nothing_here(
    State(console): State<PagesContext>,
    visit: RequestContext,
    authentication::OptionalPageCaller(caller): authentication::OptionalPageCaller,
) -> Response {
    let refusal = refusals::page_unknown();
    let frame = caller.map(|caller| layout(&console, &visit, &caller, Nav::Nowhere));
    responses::refused(&console, &visit, frame, &refusal)
}

/// True for those who have something to choose or to do among projects: more than one, or one to look after.
fn sees_projects(subject: &rules::permissions::Subject) -> bool {
    let of_project = |grant: &&rules::grants::Grant| grant.role.is_of_project();
    subject.can(rules::permissions::Permission::ProjectsWrite)
        || subject.grants.iter().filter(of_project).count() > 1
        || subject
            .grants
            .iter()
            .any(|grant| grant.role != rules::grants::GrantRole::Member)
}

/// The page for something that was not done, below this entry of the menu.
fn failed(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    here: Nav,
    failure: &Failure,
) -> Response {
    let frame = layout(console, visit, caller, here);
    responses::failure(console, visit, Some(frame), failure)
}

/// The surroundings for a signed-in user, with the menu's numbers as of this request.
fn layout(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    here: Nav,
) -> PageLayout {
    let t = visit.text;
    let counts = visit.counts.get();
    let banners = announced::banners(console, visit, Some(caller));
    let role = match caller.subject.is_site_administrator() {
        true => t.me_role_administrator(),
        false => t.me_role_user(),
    };
    PageLayout {
        user: Some(SignedInUser::new(caller.name.as_str(), role)),
        administrator: caller
            .subject
            .can(rules::permissions::Permission::SystemRead),
        projects: sees_projects(&caller.subject),
        audits: server::actions::audit::sees_others(caller),
        announces: server::actions::announcements::may_list(caller),
        courses: server::actions::courses::has_any(&console.server, caller),
        presets: server::actions::presets::may_write(caller),
        budgets: server::actions::budgets::may_write(caller),
        announcements: second_factor::demanded(console, visit, caller)
            .into_iter()
            .chain(banners.shown)
            .chain(budgets::banners(console, visit, caller))
            .chain(me::assigned_password(console, visit, caller, here))
            .collect(),
        more_announcements: banners.more,
        here,
        sessions: counts.live,
        waiting: counts.waiting,
        unread: server::actions::notices::unread(&console.server, caller),
        offered: server::actions::folders::sharing::count_offers(&console.server, caller),
        attention: server::actions::attention::count(&console.server, caller),
        maintenance: match here {
            Nav::Overview | Nav::Sessions | Nav::Launch | Nav::Queue => {
                server::actions::nodes::closed_now(&console.server, caller)
            }
            _ => Vec::new(),
        },
        ..guest(console, visit)
    }
}

/// The surroundings for everybody else.
fn guest(console: &PagesContext, visit: &RequestContext) -> PageLayout {
    let banners = announced::banners(console, visit, None);
    let look = branding::look(console, visit.text);
    PageLayout {
        text: visit.text,
        theme: visit.theme,
        here: Nav::Nowhere,
        host: match look.name.as_str() {
            "" => console.host.to_string(),
            name => name.to_owned(),
        },
        look,
        address: visit.authority.clone(),
        version: env!("CARGO_PKG_VERSION"),
        user: None,
        administrator: false,
        projects: false,
        audits: false,
        announces: false,
        courses: false,
        presets: false,
        budgets: false,
        announcements: banners.shown,
        more_announcements: banners.more,
        nonce: visit.nonce.clone(),
        path: visit.place().to_owned(),
        sessions: 0,
        waiting: 0,
        unread: 0,
        offered: 0,
        attention: 0,
        maintenance: Vec::new(),
        live: None,
        notice: notice(visit.text, &visit.path),
        notice_warns: notice_warns(&visit.path),
        keys: visit.keys,
        encrypted: visit.secure,
    }
}

/// Whether that sentence says that a trial failed.
fn notice_warns(path: &str) -> bool {
    ["sources-fail", "webhook-fails", "mail-fails"]
        .iter()
        .any(|word| path.contains(&format!("notice={word}")))
}

/// The sentence about what was just done, from the address that a form led to.
fn notice(t: Text, path: &str) -> Option<String> {
    let query = path.split_once('?')?.1;
    let value = |wanted: &str| {
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| *name == wanted)
            .map(|(_, v)| decoded(v))
    };
    let of = value("of").unwrap_or_default();
    Some(match value("notice")?.as_str() {
        "launched" => t.notice_launched(of),
        "launched-n" => t.notice_launched_n(of),
        "stop" => t.notice_stopped(of),
        "stop-n" => t.notice_stopped_n(of),
        "stop-some" => t.notice_stopped_some(of),
        "user-suspended" => t.users_suspended_now(of),
        "user-added" => t.users_added_now(of),
        "user-password" => t.users_password_now(of),
        "user-promoted" => t.users_promoted_now(of),
        "user-demoted" => t.users_demoted_now(of),
        "user-departed" => t.departure_done(of),
        "user-removed" => t.users_removed_now(of),
        "project-added" => t.projects_added_now(of),
        "project-changed" => t.projects_changed_now(of),
        "project-archived" => t.projects_archived_now(of),
        "project-restored" => t.projects_restored_now(of),
        "member-added" => t.projects_member_added(of),
        "member-removed" => t.projects_member_removed().to_owned(),
        "roster-undone" => t.rosters_undone_now(of.parse::<u64>().unwrap_or_default()),
        "roster-suspended" => t.rosters_suspended_now(of.parse::<u64>().unwrap_or_default()),
        "roster-restored" => t.rosters_restored_now(of.parse::<u64>().unwrap_or_default()),
        "allowance-added" => t.allowances_added_now(of),
        "allowance-ended" => t.allowances_ended_now().to_owned(),
        "limit-asked" => t.allowances_asked_now().to_owned(),
        "limit-withdrawn" => t.allowances_withdrawn_now().to_owned(),
        "limit-declined" => t.allowances_declined_now(of),
        "fair-changed" => t.fair_changed_now().to_owned(),
        "fair-weighed" => t.fair_weighed_now(of),
        "idle-rule-added" => t.idle_added_now(of),
        "idle-rule-changed" => t.idle_changed_now(of),
        "idle-rule-removed" => t.idle_removed_now().to_owned(),
        "keep" => t.idle_kept_now(of),
        "announcement-added" => t.announcements_added_now().to_owned(),
        "announcement-changed" => t.announcements_changed_now().to_owned(),
        "announcement-removed" => t.announcements_removed_now().to_owned(),
        "budget-added" => t.budgets_added_now(of),
        "budget-changed" => t.budgets_changed_now(of),
        "budget-removed" => t.budgets_removed_now().to_owned(),
        "reservation-booked" => t.reservations_booked_now(of),
        "reservation-asked" => t.reservations_asked_now(of),
        "reservation-approved" => t.reservations_approved_now(of),
        "reservation-refused" => t.reservations_refused_now(of),
        "reservation-withdrawn" => t.reservations_withdrawn_now(of),
        "quota-set" => t.projects_quota_set_now(of),
        "reservation-changed" => t.reservations_changed_now(of),
        "reservation-cancelled" => t.reservations_cancelled_now().to_owned(),
        "month-closed" => t.statements_closed_now(of),
        "prices-saved" => t.statements_prices_saved().to_owned(),
        "course-added" => t.courses_added_now(of),
        "course-changed" => t.courses_changed_now(of),
        "course-removed" => t.courses_removed_now().to_owned(),
        "course-started" => t.courses_done_started(of),
        "course-stopped" => t.courses_done_stopped(of),
        "course-extended" => t.courses_done_extended(of),
        "course-told" => t.courses_done_told(of),
        "folder-added" => t.folders_added_now(of),
        "folder-trashed" => t.folders_trashed_now(of),
        "folder-restored" => t.folders_restored_now(of),
        "folder-purged" => t.folders_purged_now(of),
        "folder-shared" => t.folder_shares_shared_now(of),
        "folder-detached" => t.folder_shares_detached_now(of),
        "folder-asked" => t.folder_shares_asked_now(of),
        "folder-copying" => t.folder_owner_copying_now(of),
        "folder-offered" => t.folder_owner_offered(of),
        "folder-taking" => t.folder_owner_taking_now(of),
        "folder-accepted" => t.folder_shares_accepted_now(of),
        "folder-directory" => t.folder_files_made_now(of),
        "folder-moved" => t.folder_files_moved_now(of),
        "folder-removed" => t.folder_files_removed_now(of),
        "folder-gone" => t.folder_files_gone_now(of),
        "folder-moved-n" => t.folder_selection_moved_now(of),
        "folder-copied-n" => t.folder_selection_copied_now(of),
        "folder-removed-n" => t.folder_selection_removed_now(of),
        "folder-gone-n" => t.folder_selection_gone_now(of),
        "folder-back" => t.folder_files_back_now().to_owned(),
        "folder-emptied" => t.folder_files_emptied_now().to_owned(),
        "folder-saved" => t.folder_browsing_saved_now(of),
        "folder-copied" => t.folder_browsing_copied_now(of),
        "folder-uploaded" => t.folder_files_done(of),
        "snapshot-making" => t.folder_snapshots_making_now().to_owned(),
        "snapshot-removed" => t.folder_snapshots_removed_now().to_owned(),
        "snapshot-restored" => t.folder_snapshots_restored_now(of),
        "snapshot-schedule" => t.folder_snapshots_schedule_now().to_owned(),
        "preset-added" => t.presets_added_now(of),
        "preset-changed" => t.presets_changed_now(of),
        "preset-removed" => t.presets_removed_now().to_owned(),
        "group-added" => t.groups_added_now(of),
        "group-changed" => t.groups_changed_now(of),
        "group-removed" => t.groups_removed_now().to_owned(),
        "policy-changed" => t.policies_changed_now(of),
        "policy-attached" => t.policies_attached_now(of),
        "policy-detached" => t.policies_detached_now(of),
        "policy-removed" => t.policies_removed_now(of),
        "invitation-revoked" => t.invitations_revoked_now().to_owned(),
        "joined" => t.join_done().to_owned(),
        "role-given" => t.users_roles_given(of),
        "role-taken" => t.users_roles_taken(of),
        "user-changed" => t.users_changed_now(of),
        "user-restored" => t.users_restored_now(of),
        "view-kept" => t.table_view_kept(of),
        "views-full" => t.table_views_full(of),
        "force" => t.notice_forced(of),
        "restart" => t.notice_restarted(of),
        "pause" => t.notice_paused(of),
        "resume" => t.notice_resumed(of),
        "rename" => t.notice_renamed(of),
        "gpu-cordon" => t.notice_gpu_cordon(of),
        "gpu-uncordon" => t.notice_gpu_uncordon(of),
        "gpu-drain" => gpus::drained(t, &of),
        "gpu-partitions" => t.notice_gpu_partitions(of),
        "gpu-partitions-planned" => t.notice_gpu_partitions_planned(of),
        "limits" => t.notice_limits().to_owned(),
        "hold" => t.notice_held(of),
        "release" => t.notice_released(of),
        "remove" => t.notice_removed(of),
        "images-removed" => t.images_removed_n(of),
        "images-removed-some" => t.images_removed_some(of),
        "cancel" => t.notice_cancelled(of),
        "cancel-n" => t.queue_cancelled_n(of),
        "import" => t.notice_import().to_owned(),
        "password" => t.me_password_done().to_owned(),
        "sign-in-ended" => t.users_sign_in_ended().to_owned(),
        "link-revoked" => t.sign_in_link_revoked_now(of),
        "factor-off" => t.factor_off_now().to_owned(),
        "factor-reset" => t.factor_reset_now(of),
        "key-gone" => t.access_keys_gone().to_owned(),
        "ssh-key-added" => t.ssh_keys_added(of),
        "ssh-key-gone" => t.ssh_keys_gone().to_owned(),
        "start-up-kept" => t.start_up_kept(of),
        "start-up-script" => t.start_up_kept_script().to_owned(),
        "start-up-gone" => t.start_up_gone().to_owned(),
        "token-gone" => t.me_token_gone().to_owned(),
        "settings" => t.notice_settings(settings::titles(t, &of)),
        "backup" => t.notice_backup(of),
        "backup-schedule" => t.notice_backup_schedule().to_owned(),
        "backup-schedule-off" => t.notice_backup_schedule_off().to_owned(),
        "setting" => t.notice_setting(settings::titles(t, &of)),
        "setting-restart" => t.notice_setting_restart(settings::titles(t, &of)),
        "maintenance" => t.notice_maintenance(of),
        "maintenance-over" => t.notice_maintenance_over(of),
        "settings-same" => t.notice_settings_same().to_owned(),
        "sources-work" => t.notice_sources_work(of),
        "sources-fail" => t.notice_sources_fail(of),
        "sources-none" => t.notice_sources_none().to_owned(),
        "branding" => t.branding_saved().to_owned(),
        "course-handed-out" => t.courses_handed_out_now(of),
        "course-slot" => t.courses_slot_booked_now(of),
        "approval-done" => t.approvals_done_now().to_owned(),
        "approval-declined" => t.approvals_declined_now().to_owned(),
        "approval-set" => t.approvals_set_now().to_owned(),
        "break-glass" => t.break_glass_opened_now(of),
        "break-glass-ended" => t.break_glass_ended_now().to_owned(),
        "folders-offered" => t.departure_offered_now(of),
        "reservations-handed-over" => t.departure_handed_over_now(of),
        "sign-up-approved" => t.sign_ups_approved_now().to_owned(),
        "sign-up-declined" => t.sign_ups_declined_now().to_owned(),
        "sign-up-reopened" => t.sign_ups_reopened_now().to_owned(),
        "sign-up-rule" => t.sign_ups_rule_now().to_owned(),
        "holidays" => t.holidays_saved().to_owned(),
        "volume-added" => t.volumes_added_now(of),
        "volume-removed" => t.volumes_removed_now().to_owned(),
        "pool-grown" => t.volumes_pool_grown_now(of),
        "webhook-on" => t.webhooks_on_now(of),
        "webhook-off" => t.webhooks_off_now(of),
        "webhook-removed" => t.webhooks_removed_now().to_owned(),
        "webhook-works" => t.webhooks_works_now(of),
        "webhook-fails" => t.webhooks_fails_now(of),
        "mail-works" => t.mail_test_works(of),
        "mail-retried" => t.mail_retried().to_owned(),
        "mail-fails" => t.mail_test_fails(of),
        "certificate" => t.notice_certificate().to_owned(),
        "saved" => t.me_saved().to_owned(),
        "out" => t.login_out().to_owned(),
        _ => return None,
    })
}

/// Text out of an address: `%20` and `+` undone, broken escapes kept as they are.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%')
            .then(|| tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok()))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
