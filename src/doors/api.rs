//! The REST API below /api/v1 and the probes: parses JSON, calls `server::actions`, answers JSON. One
//! handler a route, one call a handler; every rule about who may do what is behind that call.

mod allowances;
mod announcements;
mod approvals;
mod apps;
mod audit;
mod authentication;
mod backend_ai;
mod body;
mod branding;
mod break_glass;
mod budgets;
mod certificates;
mod code_runs;
mod courses;
mod environments;
mod events;
mod fair_share;
mod folder_browsing;
mod folder_files;
mod folder_shares;
mod folder_snapshots;
mod folder_transfers;
mod folder_uploads;
mod folders;
mod followers;
mod gpus;
mod history;
mod holidays;
mod idle_rules;
mod images;
mod invitations;
mod mail;
mod middleware;
mod nodes;
mod notices;
pub mod openapi;
mod policies;
mod pool;
mod presets;
mod replay;
mod request_id;
mod reservations;
mod resource_groups;
mod responses;
mod rosters;
mod second_factors;
mod sessions;
mod settings;
mod sign_ins;
mod sign_ups;
mod ssh;
mod start_up;
mod statements;
mod storage;
mod streams;
mod system;
mod tenancy;
mod uploads;
mod usage;
mod users;
mod volumes;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, head, post, put};
use base::link::streams::Streams;
use server::Server;
use tower_http::catch_panic::CatchPanicLayer;

/// Most bytes of a JSON body. A launch has at most 256 KiB of text; the rest is room for quoting.
const MAX_JSON_BYTES: usize = 1 << 20;
/// Bytes of a body with a text of a folder: six for each of its bytes, as JSON may write them, and its path. Higher: more memory
/// for each request. Lower: texts of 1 MiB are refused.
const MAX_TEXT_BODY_BYTES: usize = 7 << 20;

/// Most bytes of a roster: what the action takes, and what shows that it was more.
const MAX_ROSTER_BYTES: usize = (2 << 20) + 1;

/// What every handler has.
#[derive(Clone)]
pub(super) struct ApiContext {
    server: Server,
    streams: Arc<dyn Streams>,
    followers: Arc<followers::LogFollowers>,
}

/// Every route of the API and the probes.
pub fn router(server: Server, streams: Arc<dyn Streams>) -> Router {
    let api = ApiContext {
        server,
        streams,
        followers: Arc::default(),
    };
    let v1 = Router::new()
        .route("/sessions", get(sessions::list).post(sessions::launch))
        .route(
            "/sessions/{id}",
            get(sessions::get)
                .patch(sessions::patch)
                .delete(sessions::delete),
        )
        .route("/sessions/{id}/stop", post(sessions::stop))
        .route("/sessions/{id}/kill", post(sessions::kill))
        .route("/sessions/{id}/restart", post(sessions::restart))
        .route("/sessions/{id}/pause", post(sessions::pause))
        .route("/sessions/{id}/resume", post(sessions::resume))
        .route("/sessions/{id}/keep", post(idle_rules::keep))
        .route("/sessions/{id}/hold", post(sessions::hold))
        .route("/sessions/{id}/release", post(sessions::release))
        .route("/sessions/{id}/commit", post(sessions::commit))
        .route("/sessions/{id}/duplicate", post(sessions::duplicate))
        .route("/sessions/{id}/why", get(sessions::why))
        .route("/sessions/{id}/events", get(sessions::events))
        .route("/sessions/{id}/connections", get(sessions::connections))
        .route("/sessions/{id}/metrics", get(sessions::metrics))
        .route("/sessions/{id}/logs", get(streams::logs))
        .route("/sessions/{id}/attach", get(streams::attach))
        .route("/sessions/{id}/exec", get(streams::exec))
        .route("/sessions/{id}/execute", post(code_runs::execute))
        .route("/sessions/{id}/ports/{port}", get(streams::port))
        .route("/sessions/{id}/break-glass", post(break_glass::session))
        .route("/sessions/{id}/apps", get(apps::list))
        .route("/sessions/{id}/apps/{app}", get(apps::get))
        .route("/sessions/{id}/apps/{app}/open", post(apps::open))
        .route(
            "/sessions/{id}/apps/{app}/shares",
            get(apps::list_shares).post(apps::share),
        )
        .route(
            "/sessions/{id}/apps/{app}/shares/{share}",
            delete(apps::unshare),
        )
        .route("/queue", get(sessions::queue))
        .route("/gpus", get(gpus::list))
        .route("/history", get(history::show))
        .route("/usage", get(usage::show))
        .route("/statements", get(statements::show))
        .route("/months", get(statements::months).post(statements::close))
        .route("/months/check", get(statements::check))
        .route(
            "/prices",
            get(statements::prices).put(statements::set_prices),
        )
        .route("/gpus/{id}", get(gpus::get))
        .route("/gpus/{id}/cordon", post(gpus::cordon))
        .route("/gpus/{id}/uncordon", post(gpus::uncordon))
        .route("/gpus/{id}/drain", post(gpus::drain))
        .route("/gpus/{id}/partitions", post(gpus::partition))
        .route("/gpus/{id}/test", post(gpus::test))
        .route("/gpus/{id}/self-test-report", get(gpus::self_test_report))
        .route("/environments", get(environments::list))
        .route("/environments/import", post(environments::import))
        .route(
            "/environments/{id}",
            get(environments::get).delete(environments::remove),
        )
        .route("/images", get(images::list))
        .route("/images/import", post(images::import))
        .route("/images/pull", post(images::pull))
        .route("/images/{id}", get(images::get).delete(images::remove))
        .route("/images/{id}/share", post(images::share))
        .route("/images/{id}/unshare", post(images::unshare))
        .route("/images/{id}/limits", put(images::set_limits))
        .route("/operations", get(images::list_operations))
        .route("/operations/{id}", get(images::get_operation))
        .route("/operations/{id}/cancel", post(images::cancel_operation))
        .route(
            "/uploads",
            get(uploads::list)
                .post(uploads::create)
                .options(uploads::options),
        )
        .route(
            "/uploads/{id}",
            head(uploads::head)
                .patch(uploads::append)
                .delete(uploads::abort)
                .layer(DefaultBodyLimit::disable()),
        )
        .route("/users", get(users::list).post(users::create))
        .route(
            "/users/{id}",
            get(users::get).patch(users::patch).delete(users::remove),
        )
        .route("/users/{id}/password", post(users::set_password))
        .route("/users/{id}/sign-ins", get(sign_ins::list_of))
        .route("/users/{id}/sign-ins/{sign_in}", delete(sign_ins::end_of))
        .route(
            "/users/{id}/sign-in-link",
            get(sign_ins::show_link)
                .post(sign_ins::make_link)
                .delete(sign_ins::revoke_link),
        )
        .route("/users/{id}/second-factor", delete(second_factors::reset))
        .route("/users/{id}/suspend", post(users::suspend))
        .route("/users/{id}/depart", post(users::depart))
        .route("/users/{id}/offer-folders", post(users::offer_folders))
        .route(
            "/users/{id}/hand-over-reservations",
            post(users::hand_over_reservations),
        )
        .route(
            "/users/{id}/grants",
            get(tenancy::list_grants)
                .put(tenancy::put_grant)
                .delete(tenancy::revoke_grant),
        )
        .route(
            "/rosters",
            get(rosters::list)
                .post(rosters::take)
                .layer(DefaultBodyLimit::max(MAX_ROSTER_BYTES)),
        )
        .route("/rosters/{id}/undo", post(rosters::undo))
        .route("/rosters/{id}/suspend", post(rosters::suspend))
        .route(
            "/domains",
            get(tenancy::list_domains).post(tenancy::create_domain),
        )
        .route(
            "/domains/{id}",
            get(tenancy::get_domain).patch(tenancy::change_domain),
        )
        .route(
            "/projects",
            get(tenancy::list_projects).post(tenancy::create_project),
        )
        .route(
            "/projects/{id}",
            get(tenancy::get_project).patch(tenancy::change_project),
        )
        .route("/projects/{id}/members", get(tenancy::list_members))
        .route(
            "/projects/{id}/members/{user}",
            put(tenancy::put_member).delete(tenancy::remove_member),
        )
        .route(
            "/projects/{id}/invitations",
            get(invitations::list).post(invitations::create),
        )
        .route(
            "/projects/{id}/invitations/{invitation}",
            delete(invitations::revoke),
        )
        .route("/policies", get(policies::list).post(policies::create))
        .route(
            "/policies/{id}",
            get(policies::get)
                .patch(policies::change)
                .delete(policies::remove),
        )
        .route(
            "/policies/{id}/uses",
            put(policies::attach).delete(policies::detach),
        )
        .route(
            "/allowances",
            get(allowances::list).post(allowances::create),
        )
        .route(
            "/allowances/{id}",
            get(allowances::get).delete(allowances::remove),
        )
        .route("/limit-requests", get(allowances::requests))
        .route("/limit-requests/{user}/decline", post(allowances::decline))
        .route(
            "/me/limit-request",
            get(allowances::own_request)
                .put(allowances::ask)
                .delete(allowances::withdraw),
        )
        .route("/effective-limits", get(policies::effective))
        .route(
            "/idle-rules",
            get(idle_rules::list).post(idle_rules::create),
        )
        .route("/idle-rules/dry-run", post(idle_rules::try_out))
        .route(
            "/idle-rules/{id}",
            get(idle_rules::get)
                .patch(idle_rules::change)
                .delete(idle_rules::remove),
        )
        .route(
            "/fair-share",
            get(fair_share::show).patch(fair_share::change),
        )
        .route("/fair-share/weights", put(fair_share::weigh))
        .route("/fair-share/rehearsal", get(fair_share::rehearse))
        .route("/budgets", get(budgets::list).post(budgets::create))
        .route(
            "/budgets/{id}",
            get(budgets::get)
                .patch(budgets::change)
                .delete(budgets::remove),
        )
        .route(
            "/reservations",
            get(reservations::list).post(reservations::book),
        )
        .route(
            "/reservations/{id}",
            get(reservations::get)
                .patch(reservations::change)
                .delete(reservations::cancel),
        )
        .route("/reservations/{id}/approve", post(reservations::approve))
        .route("/reservations/{id}/refuse", post(reservations::refuse))
        .route("/reservations/{id}/withdraw", post(reservations::withdraw))
        .route(
            "/projects/{id}/reservation-quota",
            get(reservations::quota).put(reservations::set_quota),
        )
        .route("/courses", get(courses::list).post(courses::create))
        .route(
            "/courses/{id}",
            get(courses::get)
                .patch(courses::change)
                .delete(courses::remove),
        )
        .route("/courses/{id}/members", get(courses::members))
        .route("/courses/{id}/attendance", get(courses::attendance))
        .route("/courses/{id}/start", post(courses::start))
        .route("/courses/{id}/stop", post(courses::stop))
        .route("/courses/{id}/extend", post(courses::extend))
        .route("/courses/{id}/message", post(courses::message))
        .route("/courses/{id}/hand-out", post(courses::hand_out))
        .route(
            "/courses/{id}/timetable",
            get(courses::timetable).post(courses::book_slot),
        )
        .route("/folders", get(folders::list).post(folders::create))
        .route("/folders/{id}", get(folders::get).patch(folders::change))
        .route("/folders/{id}/limit", put(folders::limit))
        .route("/folders/{id}/break-glass", post(break_glass::folder))
        .route("/folders/{id}/trash", post(folders::trash))
        .route("/folders/{id}/restore", post(folders::restore))
        .route("/folders/{id}/purge", post(folders::purge))
        .route("/folders/{id}/detach", post(folder_shares::detach))
        .route("/folders/{id}/adopt", post(folders::adopt))
        .route(
            "/folders/{id}/shares",
            get(folder_shares::list).post(folder_shares::create),
        )
        .route(
            "/folders/{id}/shares/{share}",
            delete(folder_shares::remove),
        )
        .route("/folders/{id}/sessions", get(folder_shares::sessions))
        .route("/folders/{id}/leave", post(folder_shares::leave))
        .route("/folders/{id}/clone", post(folder_transfers::copy))
        .route(
            "/folders/{id}/snapshots",
            get(folder_snapshots::list).post(folder_snapshots::create),
        )
        .route(
            "/folders/{id}/snapshots/schedule",
            put(folder_snapshots::set_schedule),
        )
        .route(
            "/folders/{id}/snapshots/{number}",
            delete(folder_snapshots::remove),
        )
        .route(
            "/folders/{id}/snapshots/{number}/entries",
            get(folder_snapshots::entries),
        )
        .route(
            "/folders/{id}/snapshots/{number}/files",
            get(folder_snapshots::file),
        )
        .route(
            "/folders/{id}/snapshots/{number}/clone",
            post(folder_snapshots::copy),
        )
        .route(
            "/folders/{id}/snapshots/{number}/restore",
            post(folder_snapshots::restore),
        )
        .route(
            "/folders/{id}/transfer",
            post(folder_transfers::offer).delete(folder_transfers::withdraw),
        )
        .route("/folder-transfers", get(folder_transfers::list))
        .route(
            "/folder-transfers/{id}/accept",
            post(folder_transfers::accept),
        )
        .route(
            "/folder-transfers/{id}/decline",
            post(folder_transfers::decline),
        )
        .route("/folder-invitations", get(folder_shares::invitations))
        .route(
            "/folder-invitations/{id}/accept",
            post(folder_shares::accept),
        )
        .route(
            "/folder-invitations/{id}/decline",
            post(folder_shares::decline),
        )
        .route("/folders/{id}/entries", get(folder_files::list))
        .route(
            "/folders/{id}/files",
            get(folder_files::read)
                .put(folder_uploads::put)
                .layer(DefaultBodyLimit::disable()),
        )
        .route("/folders/{id}/archive", get(folder_files::archive))
        .route(
            "/folders/{id}/entries/move",
            post(folder_files::move_entries),
        )
        .route(
            "/folders/{id}/entries/copy",
            post(folder_files::copy_entries),
        )
        .route("/folders/{id}/mkdir", post(folder_files::make_directory))
        .route("/folders/{id}/move", post(folder_files::move_entry))
        .route("/folders/{id}/remove", post(folder_files::remove))
        .route("/folders/{id}/search", get(folder_browsing::search))
        .route("/folders/{id}/usage", get(folder_browsing::usage))
        .route("/folders/{id}/copy", post(folder_browsing::copy))
        .route(
            "/folders/{id}/text",
            get(folder_browsing::text)
                .post(folder_browsing::create_text)
                .put(folder_browsing::write_text)
                .layer(DefaultBodyLimit::max(MAX_TEXT_BODY_BYTES)),
        )
        .route(
            "/folders/{id}/removed",
            get(folder_files::list_removed).delete(folder_files::empty_trash),
        )
        .route(
            "/folders/{id}/removed/restore",
            post(folder_files::restore_removed),
        )
        .route(
            "/folders/{id}/removed/purge",
            post(folder_files::purge_removed),
        )
        .route(
            "/folders/{id}/uploads",
            get(folder_uploads::list)
                .post(folder_uploads::create)
                .options(folder_uploads::options)
                .layer(DefaultBodyLimit::disable()),
        )
        .route(
            "/folders/{id}/uploads/{upload}",
            head(folder_uploads::head)
                .patch(folder_uploads::append)
                .delete(folder_uploads::abort)
                .layer(DefaultBodyLimit::disable()),
        )
        .route("/storage", get(storage::list))
        .route("/storage/pool", get(pool::get).put(pool::grow))
        .route("/presets", get(presets::list).post(presets::create))
        .route(
            "/presets/{id}",
            get(presets::get)
                .patch(presets::change)
                .delete(presets::remove),
        )
        .route(
            "/resource-groups",
            get(resource_groups::list).post(resource_groups::create),
        )
        .route(
            "/resource-groups/{id}",
            get(resource_groups::get)
                .patch(resource_groups::change)
                .delete(resource_groups::remove),
        )
        .route(
            "/resource-groups/{id}/nodes",
            put(resource_groups::set_nodes),
        )
        .route(
            "/resource-groups/{id}/access",
            put(resource_groups::set_access),
        )
        .route(
            "/resource-groups/{id}/windows",
            put(resource_groups::set_windows),
        )
        .route("/volumes", get(volumes::list).post(volumes::create))
        .route(
            "/volumes/{id}",
            get(volumes::get)
                .patch(volumes::change)
                .delete(volumes::remove),
        )
        .route(
            "/announcements",
            get(announcements::list).post(announcements::create),
        )
        .route("/announcements/current", get(announcements::current))
        .route(
            "/announcements/{id}",
            get(announcements::get)
                .patch(announcements::change)
                .delete(announcements::remove),
        )
        .route("/holidays", get(holidays::list).put(holidays::set))
        .route("/audit", get(audit::list))
        .route("/audit/export", get(audit::export))
        .route(
            "/audit/checkpoints",
            get(audit::checkpoints).post(audit::sign),
        )
        .route("/audit/targets", get(audit::targets))
        .route("/approvals", get(approvals::list))
        .route("/approvals/{id}/release", post(approvals::release))
        .route("/approvals/{id}/decline", post(approvals::decline))
        .route(
            "/four-eyes",
            get(approvals::four_eyes).put(approvals::set_four_eyes),
        )
        .route("/break-glass", get(break_glass::list))
        .route("/break-glass/{id}", delete(break_glass::end))
        .route("/sign-ups", get(sign_ups::list))
        .route("/sign-ups/{id}/approve", post(sign_ups::approve))
        .route("/sign-ups/{id}/decline", post(sign_ups::decline))
        .route("/sign-ups/{id}/reopen", post(sign_ups::reopen))
        .route(
            "/sign-up-rules",
            get(sign_ups::rules).put(sign_ups::set_rule),
        )
        .route("/invitations/accept", post(invitations::accept))
        .route("/me", get(users::me).patch(users::set_me))
        .route("/me/password", post(users::change_password))
        .route("/me/sign-ins", get(sign_ins::list))
        .route("/me/sign-ins/{sign_in}", delete(sign_ins::end))
        .route(
            "/me/second-factor",
            get(second_factors::get).post(second_factors::begin),
        )
        .route("/me/second-factor/confirm", post(second_factors::confirm))
        .route("/me/second-factor/remove", post(second_factors::turn_off))
        .route(
            "/me/second-factor/recovery-codes",
            post(second_factors::renew_recovery_codes),
        )
        .route(
            "/me/tokens",
            get(users::list_tokens).post(users::create_token),
        )
        .route("/me/tokens/{id}", delete(users::revoke_token))
        .route("/me/keys", get(users::list_keys).post(users::create_key))
        .route("/me/keys/{id}", delete(users::revoke_key))
        .route("/me/ssh-keys", get(ssh::list).post(ssh::add))
        .route("/me/ssh-keys/{id}", delete(ssh::remove))
        .route(
            "/me/dotfiles",
            get(start_up::dotfiles).put(start_up::put_dotfile),
        )
        .route(
            "/me/dotfiles/{path}",
            get(start_up::dotfile).delete(start_up::remove_dotfile),
        )
        .route(
            "/me/startup-script",
            get(start_up::script)
                .put(start_up::put_script)
                .delete(start_up::remove_script),
        )
        .route(
            "/me/variables",
            get(start_up::variables).put(start_up::put_variable),
        )
        .route("/me/variables/{name}", delete(start_up::remove_variable))
        .route("/me/notices", get(notices::list))
        .route("/me/notices/read", post(notices::mark_read))
        .route("/me/mail", get(mail::choices).put(mail::choose))
        .route(
            "/branding",
            get(branding::get)
                .patch(branding::change)
                .delete(branding::reset),
        )
        .route("/webhooks", get(webhooks::list).post(webhooks::create))
        .route(
            "/webhooks/{id}",
            get(webhooks::get)
                .patch(webhooks::change)
                .delete(webhooks::remove),
        )
        .route("/webhooks/{id}/test", post(webhooks::test))
        .route("/mail", get(mail::status))
        .route("/mail/retry", post(mail::retry))
        .route("/mail/test", post(mail::test))
        .route("/sign-in", post(users::sign_in))
        .route("/setup", post(users::set_up))
        .route("/setup/link", post(users::setup_links))
        .route("/events", get(events::follow))
        .route("/events/search", get(events::search))
        .route("/overview", get(system::overview))
        .route("/capabilities", get(system::capabilities))
        .route("/nodes", get(nodes::list))
        .route("/nodes/{name}", get(nodes::get))
        .route("/nodes/{name}/maintenance", post(nodes::maintain))
        .route("/settings", get(settings::list))
        .route("/settings/reload", post(settings::reload))
        .route("/settings/sign-in/test", post(settings::try_sources))
        .route(
            "/settings/{key}",
            get(settings::get)
                .put(settings::set)
                .delete(settings::unset),
        )
        .route("/settings/{key}/undo", post(settings::undo))
        .route("/backups", get(system::backups).post(system::back_up))
        .route("/backups/{name}", get(system::take_backup))
        .route("/findings", get(system::findings))
        .route("/diagnostics", get(system::diagnostics))
        .route("/support-bundles", post(system::support_bundle))
        .route("/trust", get(certificates::trust))
        .route("/ssh", get(ssh::server))
        .route("/tls", get(certificates::show))
        .route("/tls/request", post(certificates::request))
        .route("/tls/certificate", post(certificates::import))
        .route("/tls/reset", post(certificates::reset))
        .route("/openapi.json", get(openapi::serve))
        .route_layer(axum::middleware::from_fn_with_state(
            api.clone(),
            replay::once,
        ))
        .fallback(nothing_here);
    let routes = Router::new()
        .nest("/api/v1", v1)
        .route("/healthz", get(system::alive))
        .route("/readyz", get(system::ready))
        .route("/metrics", get(system::metrics))
        .route("/version", get(system::version))
        .with_state(api.clone());
    // A layer lies around each route of the router that it is given: here around one, which is all of them.
    Router::new()
        .fallback_service(routes)
        .layer(DefaultBodyLimit::max(MAX_JSON_BYTES))
        .layer(CatchPanicLayer::new())
        .layer(axum::middleware::from_fn_with_state(api, middleware::apply))
}

/// Whether [`router`] answers at this path.
pub fn serves(path: &str) -> bool {
    let below = path.strip_prefix("/api/v1");
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || ["/healthz", "/readyz", "/metrics", "/version"].contains(&path)
}

async fn nothing_here() -> axum::http::StatusCode {
    axum::http::StatusCode::NOT_FOUND
}
