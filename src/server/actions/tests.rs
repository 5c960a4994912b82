//! The table of acts and roles: who may do what, over every act that is not about one session (those
//! stand in `actions/sessions/tests.rs`). An act that is added without a row is not found here, so
//! the routes of the doors are held to the same table by their own test.

mod domains;
mod edges;
mod told;

use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;

use base::link::streams::{BoxFuture, ByteStream, ExecRequest, LogStream, Streams, TermStream};
use rules::names::{ContainerName, OperationId, TokenId, UploadId};
use rules::permissions::{Permission, Subject};
use rules::users::Role;
use uuid::Uuid;

use super::*;
use crate::Server;
use crate::access::{self, Via};

type Act =
    for<'a> fn(&'a Server, &'a Caller) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

macro_rules! acts {
    ($(($verb:ident, $name:literal, |$server:ident, $caller:ident| $act:expr),)*) => {
        [$((Permission::$verb, $name, (|$server, $caller| {
            Box::pin(async move { $act.await.map(drop) })
        }) as Act),)*]
    };
}

async fn any_table(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let wanted = sessions::table::TableQuery::default();
    sessions::table::table(server, caller, &wanted)
        .await
        .map(drop)
}

async fn any_export(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let wanted = sessions::table::TableQuery::default();
    sessions::table::export(server, caller, &wanted)
        .await
        .map(drop)
}

async fn any_statement(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let wanted = api::statements::StatementQuery::default();
    statements::statement(server, caller, &wanted)
        .await
        .map(drop)
}

async fn any_prices(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let prices = api::statements::NewPricesBody::default();
    statements::set_prices(server, caller, &prices, None)
        .await
        .map(drop)
}

async fn any_event_file(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let wanted = api::events::EventSearchQuery::default();
    journal::search_all(server, caller, &wanted).await.map(drop)
}

async fn any_maintenance(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let wanted = api::nodes::MaintenanceBody {
        maintenance: false,
        message: String::new(),
    };
    nodes::maintain(server, caller, "x", &wanted)
        .await
        .map(drop)
}

/// No machine: nothing can be entered.
struct NoStreams;

fn nowhere<T: Send + 'static>() -> BoxFuture<T> {
    Box::pin(async { Err(rules::refusals::container_not_running()) })
}

impl Streams for NoStreams {
    fn attach(&self, _: ContainerName, _: Option<(u16, u16)>) -> BoxFuture<TermStream> {
        nowhere()
    }

    fn exec(&self, _: ContainerName, _: ExecRequest) -> BoxFuture<TermStream> {
        nowhere()
    }

    fn logs(&self, _: ContainerName, _: u64, _: bool) -> BoxFuture<LogStream> {
        nowhere()
    }

    fn dial(&self, _: ContainerName, _: u16) -> BoxFuture<ByteStream> {
        nowhere()
    }
}

async fn any_opened_app(server: &Server, caller: &Caller) -> Result<(), Failure> {
    let streams: Arc<dyn Streams> = Arc::new(NoStreams);
    apps::open(server, &streams, caller, "x", "8080")
        .await
        .map(drop)
}

const NOBODY: Uuid = Uuid::from_u128(7);

fn no_container() -> ContainerName {
    ContainerName {
        session: rules::names::SessionId(NOBODY),
        incarnation: 1,
        index: 0,
    }
}

/// A caller with an account of its own.
pub(super) fn caller_of(server: &Server, name: &str, role: Role) -> Caller {
    let name = rules::names::UserName::parse(name).unwrap();
    let user = crate::access::new_user(name, role, server.clock().now());
    let written = user.clone();
    server
        .catalog()
        .write_now(crate::catalog::Lane::Requests, "a user", move |rows| {
            rows.insert_user(&written, "!")
        })
        .unwrap();
    Caller {
        subject: Subject {
            user: user.id,
            grants: role.grants(),
            domain: rules::tenancy::DomainId::DEFAULT,
            scopes: None,
        },
        name: user.name,
        language: String::new(),
        theme: "system".into(),
        time_zone: String::new(),
        via: Via::LocalRoot,
        must_change_password: false,
        second_factor_due: None,
        source: None,
        request: String::new(),
    }
}

/// Promise (Isolation and access): Every action checks its permission first. For a user, the sessions of others
/// do not exist.
#[tokio::test]
async fn every_act_asks_for_its_capability_first() {
    let server = Server::for_tests();
    let acts = acts![
        (SessionsRead, "sessions.list", |s, c| sessions::list(
            s,
            c,
            &Default::default()
        )),
        (SessionsRead, "sessions.get", |s, c| sessions::get(
            s, c, "x"
        )),
        (SessionsRead, "sessions.why", |s, c| sessions::why(
            s, c, "x"
        )),
        (SessionsRead, "session_detail.read", |s, c| {
            session_detail::read(s, c, "x")
        }),
        (SessionsRead, "sessions.table", |s, c| { any_table(s, c) }),
        (SessionsRead, "sessions.table.export", |s, c| {
            any_export(s, c)
        }),
        (SessionsRead, "sessions.table.members", |s, c| {
            sessions::table::members(s, c, "x", true)
        }),
        (SessionsRead, "sessions.queue", |s, c| sessions::queue(
            s, c, None
        )),
        (SessionsRead, "sessions.queue_page", |s, c| {
            sessions::queue_page(s, c, 1)
        }),
        (SessionsRead, "sessions.queue_table", |s, c| {
            sessions::queue_table(s, c, Default::default(), 1, 50)
        }),
        (SessionsWrite, "sessions.hold", |s, c| sessions::hold(
            s, c, "x"
        )),
        (SessionsWrite, "sessions.release", |s, c| sessions::release(
            s, c, "x"
        )),
        (SessionsWrite, "sessions.set_time_limit", |s, c| {
            sessions::set_time_limit(s, c, "x", None, None)
        }),
        (SessionsWrite, "sessions.set_priority", |s, c| {
            sessions::set_priority(s, c, "x", 5, None)
        }),
        (SessionsRead, "sessions.queue_mark", |s, c| {
            sessions::queue_mark(s, c)
        }),
        (SessionsRead, "sessions.next_in_place", |s, c| {
            sessions::next_in_place(s, c, Vec::new())
        }),
        (SessionsRead, "sessions.events", |s, c| sessions::events(
            s, c, "x"
        )),
        (SessionsRead, "sessions.samples", |s, c| sessions::samples(
            s, c, "x", None
        )),
        (
            SessionsRead,
            "sessions.overview",
            |s, c| sessions::overview(s, c)
        ),
        (SessionsRead, "sessions.duplicate", |s, c| {
            sessions::duplicate(s, c, "x")
        }),
        (SessionsRead, "sessions.read_logs", |s, c| {
            sessions::read_logs(s, c, "x")
        }),
        (SessionsRead, "inner_door.look", |s, c| inner_door::look(
            s,
            c,
            no_container()
        )),
        (SessionsRead, "inner_door.recent_samples", |s, c| {
            inner_door::recent_samples(s, c, no_container())
        }),
        (SessionsEnter, "sessions.enter", |s, c| sessions::enter(
            s, c, "x"
        )),
        (SessionsEnter, "sessions.commit", |s, c| sessions::commit(
            s,
            c,
            "x",
            api::commits::CommitRequest::default(),
            None
        )),
        (SessionsEnter, "sessions.preview_commit", |s, c| {
            sessions::preview_commit(s, c, "x", api::commits::CommitRequest::default())
        }),
        (SessionsEnter, "code_runs.execute", |s, c| {
            code_runs::execute(s, &NoStreams, c, "x", Default::default())
        }),
        (SessionsEnter, "apps.list", |s, c| apps::list(
            s, &NoStreams, c, "x"
        )),
        (SessionsEnter, "apps.get", |s, c| apps::get(
            s, &NoStreams, c, "x", "8080"
        )),
        (SessionsEnter, "apps.entry", |s, c| apps::entry(
            s, &NoStreams, c, "x", "8080", None
        )),
        (SessionsEnter, "apps.open", |s, c| any_opened_app(s, c)),
        (SessionsEnter, "apps.shares.list", |s, c| {
            apps::shares::list(s, c, "x", "8080")
        }),
        (SessionsEnter, "apps.shares.create", |s, c| {
            apps::shares::create(s, c, "x", "8080", Default::default())
        }),
        (SessionsEnter, "apps.shares.remove", |s, c| {
            apps::shares::remove(s, c, "x", "8080", "y")
        }),
        (SessionsWrite, "sessions.launch", |s, c| sessions::launch(
            s,
            c,
            Default::default(),
            None
        )),
        (SessionsWrite, "sessions.preview", |s, c| sessions::preview(
            s,
            c,
            Default::default()
        )),
        (SessionsWrite, "sessions.stop", |s, c| sessions::stop(
            s, c, "x", true
        )),
        (SessionsWrite, "sessions.stop_saying", |s, c| {
            sessions::stop_saying(s, c, "x", true, "maintenance")
        }),
        (SessionsWrite, "sessions.restart", |s, c| sessions::restart(
            s, c, "x"
        )),
        (SessionsWrite, "sessions.rename", |s, c| sessions::rename(
            s, c, "x", "y", None
        )),
        (SessionsWrite, "sessions.set_labels", |s, c| {
            sessions::set_labels(s, c, "x", Default::default(), None)
        }),
        (SessionsWrite, "sessions.resize", |s, c| sessions::resize(
            s,
            c,
            "x",
            Default::default(),
            None
        )),
        (SessionsRead, "history.history", |s, c| history::history(
            s,
            c,
            "site",
            Default::default()
        )),
        (SessionsRead, "history.recent", |s, c| history::recent(s, c)),
        (
            SessionsRead,
            "statements.months",
            |s, c| statements::months(s, c)
        ),
        (SessionsRead, "statements.statement", |s, c| any_statement(
            s, c
        )),
        (SystemRead, "statements.next", |s, c| statements::next(s, c)),
        (SystemRead, "statements.prices", |s, c| statements::prices(
            s, c
        )),
        (SystemWrite, "statements.set_prices", |s, c| any_prices(
            s, c
        )),
        (SessionsRead, "history.users", |s, c| history::users(s, c)),
        (SessionsRead, "gpus.list", |s, c| gpus::list(s, c)),
        (SessionsRead, "gpus.policy", |s, c| gpus::policy(s, c)),
        (SessionsRead, "gpus.get", |s, c| gpus::get(s, c, "x")),
        (SystemWrite, "gpus.cordon", |s, c| gpus::cordon(
            s,
            c,
            "x",
            Default::default()
        )),
        (SystemWrite, "gpus.uncordon", |s, c| gpus::uncordon(
            s, c, "x"
        )),
        (SystemWrite, "gpus.partition", |s, c| gpus::partition(
            s,
            c,
            "x",
            Default::default()
        )),
        (SystemWrite, "gpus.drain", |s, c| gpus::drain(
            s,
            c,
            "x",
            Default::default()
        )),
        (SessionsWrite, "sessions.pause", |s, c| sessions::pause(
            s, c, "x"
        )),
        (SessionsWrite, "sessions.resume", |s, c| sessions::resume(
            s, c, "x"
        )),
        (SessionsWrite, "sessions.delete", |s, c| sessions::delete(
            s, c, "x"
        )),
        (ImagesRead, "images.list", |s, c| images::list(s, c)),
        (SessionsRead, "images.used", |s, c| images::used(s, c)),
        (SessionsRead, "storage.list", |s, c| storage::list(s, c)),
        (SessionsRead, "storage.own", |s, c| storage::own(s, c)),
        (SessionsRead, "volumes.list", |s, c| volumes::list(s, c)),
        (SessionsRead, "volumes.usable", |s, c| volumes::usable(s, c)),
        (SessionsRead, "volumes.get", |s, c| volumes::get(s, c, "x")),
        (ImagesRead, "images.get", |s, c| images::get(s, c, "x")),
        (ImagesRead, "operations.list", |s, c| operations::list(s, c)),
        (ImagesRead, "operations.get", |s, c| operations::get(
            s,
            c,
            OperationId(NOBODY)
        )),
        (ImagesWrite, "operations.cancel", |s, c| operations::cancel(
            s,
            c,
            OperationId(NOBODY)
        )),
        (ImagesWrite, "images.remove", |s, c| images::remove(
            s, c, "x"
        )),
        (ImagesWrite, "images.set_limits", |s, c| {
            images::set_limits(s, c, "x", None)
        }),
        (ImagesWrite, "images.share", |s, c| images::share(
            s, c, "x", true
        )),
        (ImagesWrite, "images.import", |s, c| {
            images::import(s, c, images::ImportSource::Path("relative".into()), None)
        }),
        (ImagesWrite, "uploads.create", |s, c| {
            images::uploads::create(s, c, 1, "\u{202e}", None)
        }),
        (ImagesWrite, "uploads.append", |s, c| {
            images::uploads::append(s, c, UploadId(NOBODY), 0, bytes::Bytes::new())
        }),
        (ImagesWrite, "uploads.head", |s, c| images::uploads::head(
            s,
            c,
            UploadId(NOBODY)
        )),
        (ImagesWrite, "uploads.list", |s, c| images::uploads::list(
            s, c
        )),
        (ImagesWrite, "uploads.abort", |s, c| images::uploads::abort(
            s,
            c,
            UploadId(NOBODY)
        )),
        (UsersRead, "users.list", |s, c| users::list(s, c)),
        (UsersRead, "users.get", |s, c| users::get(s, c, "x")),
        (UsersRead, "users.profile", |s, c| users::profile(s, c, "x")),
        (UsersWrite, "users.create", |s, c| users::create(
            s,
            c,
            "x",
            Role::User,
            "short"
        )),
        (UsersWrite, "users.set_password", |s, c| {
            users::set_password(s, c, "x", "short", users::TokensAfterReset::Revoked)
        }),
        (UsersWrite, "users.set_role", |s, c| users::set_role(
            s,
            c,
            "x",
            Role::User,
            None
        )),
        (UsersWrite, "users.suspend", |s, c| users::suspend(
            s, c, "x", true, None
        )),
        (UsersWrite, "users.remove", |s, c| users::remove(
            s, c, "x", None
        )),
        (Me, "users.me", |s, c| users::me(s, c)),
        (Me, "users.set_me", |s, c| users::set_me(
            s,
            c,
            Default::default()
        )),
        (Me, "users.change_password", |s, c| users::change_password(
            s, c, "x", "short"
        )),
        (Me, "users.sign_ins", |s, c| users::sign_ins(s, c)),
        (UsersRead, "users.sign_ins_of", |s, c| {
            users::sign_ins_of(s, c, "x")
        }),
        (UsersWrite, "users.end_sign_in_of", |s, c| {
            users::end_sign_in_of(s, c, "x", NOBODY)
        }),
        (Me, "users.end_sign_in", |s, c| users::end_sign_in(
            s, c, NOBODY
        )),
        (Me, "second_factor.show", |s, c| {
            users::second_factor::show(s, c)
        }),
        (Me, "second_factor.begin", |s, c| {
            users::second_factor::begin(s, c, "x", None)
        }),
        (Me, "second_factor.confirm", |s, c| {
            users::second_factor::confirm(s, c, "x", "x")
        }),
        (Me, "second_factor.renew_recovery_codes", |s, c| {
            users::second_factor::renew_recovery_codes(s, c, "x", None)
        }),
        (Me, "second_factor.turn_off", |s, c| {
            users::second_factor::turn_off(s, c, "x", None)
        }),
        (UsersRead, "sign_in_link.show", |s, c| {
            users::sign_in_link::show(s, c, "x")
        }),
        (UsersWrite, "sign_in_link.linkable", |s, c| {
            users::sign_in_link::linkable(s, c, "x")
        }),
        (UsersWrite, "sign_in_link.make", |s, c| {
            users::sign_in_link::make(s, c, "x", None)
        }),
        (UsersWrite, "sign_in_link.revoke", |s, c| {
            users::sign_in_link::revoke(s, c, "x")
        }),
        (UsersWrite, "second_factor.resettable", |s, c| {
            users::second_factor::resettable(s, c, "x")
        }),
        (UsersWrite, "second_factor.reset", |s, c| {
            users::second_factor::reset(s, c, "x")
        }),
        (Me, "access_keys.list", |s, c| {
            users::access_keys::list(s, c)
        }),
        (Me, "access_keys.create", |s, c| {
            users::access_keys::create(s, c, "", &[], None, &[])
        }),
        (Me, "access_keys.revoke", |s, c| {
            users::access_keys::revoke(s, c, TokenId(NOBODY))
        }),
        (Me, "tokens.list", |s, c| users::tokens::list(s, c)),
        (Me, "tokens.create", |s, c| users::tokens::create(
            s,
            c,
            "",
            &[],
            None,
            &[]
        )),
        (Me, "tokens.revoke", |s, c| users::tokens::revoke(
            s,
            c,
            TokenId(NOBODY)
        )),
        (SystemRead, "system.diagnose_within", |s, c| {
            system::diagnose_within(s, c, 0)
        }),
        (SystemRead, "system.findings", |s, c| system::findings_of(
            s, c
        )),
        (SystemRead, "system.metrics", |s, c| system::metrics(s, c)),
        (SystemRead, "certificates.show", |s, c| certificates::show(
            s, c
        )),
        (SystemWrite, "certificates.request", |s, c| {
            certificates::request(s, c, api::certificates::CertificateRequestInput::default())
        }),
        (SystemWrite, "certificates.import", |s, c| {
            let brought = api::certificates::CertificateUpload {
                certificate: String::new(),
                key: None,
                name: None,
            };
            certificates::import(s, c, brought)
        }),
        (SystemWrite, "certificates.reset", |s, c| {
            certificates::reset(s, c, api::certificates::CertificateOrigin::Own)
        }),
        (SystemRead, "installation.progress", |s, c| {
            installation::progress(s, c)
        }),
        (SystemRead, "backups.standing", |s, c| backups::standing(
            s, c
        )),
        (SystemWrite, "backups.make", |s, c| backups::make(s, c)),
        (SystemWrite, "backups.schedule", |s, c| {
            let wanted = backups::BackupSchedule {
                directory: String::new(),
                every_hours: None,
                keep: String::new(),
                passphrase: "".into(),
            };
            backups::schedule(s, c, wanted)
        }),
        (SystemWrite, "backups.unschedule", |s, c| {
            backups::unschedule(s, c)
        }),
        (SystemWrite, "settings.try_sign_in_sources", |s, c| {
            settings::try_sign_in_sources(s, c)
        }),
        (SystemWrite, "system.reload_settings", |s, c| {
            system::reload_settings(s, c)
        }),
        (SystemRead, "system.warnings", |s, c| system::warnings(s, c)),
        (SystemRead, "attention.attention", |s, c| {
            attention::attention(s, c)
        }),
        (SessionsRead, "journal.page", |s, c| journal::page(
            s,
            c,
            Default::default()
        )),
        (SessionsRead, "journal.latest_of_sessions", |s, c| {
            journal::latest_of_sessions(s, c)
        }),
        (SessionsRead, "journal.export", |s, c| journal::export(
            s,
            c,
            Default::default()
        )),
        (SessionsRead, "journal.search", |s, c| journal::search(
            s,
            c,
            &Default::default()
        )),
        (SessionsRead, "journal.search_all", |s, c| {
            any_event_file(s, c)
        }),
        (AuditRead, "audit.list", |s, c| audit::list(
            s,
            c,
            &Default::default()
        )),
        (AuditRead, "audit.page", |s, c| audit::page(
            s,
            c,
            &Default::default(),
            Default::default()
        )),
        (AuditRead, "audit.table", |s, c| audit::table(
            s,
            c,
            &Default::default()
        )),
        (AuditRead, "audit.checkpoints", |s, c| audit::checkpoints(
            s, c
        )),
        (AuditRead, "audit.newest_checkpoint", |s, c| {
            audit::newest_checkpoint(s, c)
        }),
        (SystemRead, "audit.targets", |s, c| audit::targets(s, c)),
        (Me, "audit.own", |s, c| audit::own(s, c, 1)),
        (Me, "notices.list", |s, c| notices::list(s, c)),
        (Me, "notices.views", |s, c| notices::views(s, c)),
        (Me, "notices.mark_read", |s, c| notices::mark_read(s, c)),
        (Me, "mail.choices", |s, c| mail::choices(s, c)),
        (Me, "mail.choose", |s, c| mail::choose(
            s,
            c,
            api::mail::MailChoicesBody { kinds: None }
        )),
        (SystemRead, "mail.status", |s, c| mail::status(s, c)),
        (SystemRead, "branding.get", |s, c| branding::get(s, c)),
        (SystemWrite, "branding.change", |s, c| branding::change(
            s,
            c,
            Default::default(),
            None
        )),
        (SystemWrite, "branding.reset", |s, c| branding::reset(
            s, c, None
        )),
        (SystemWrite, "volumes.create", |s, c| volumes::create(
            s,
            c,
            Default::default(),
            None
        )),
        (SystemWrite, "folders.adopt", |s, c| {
            folders::adoption::adopt(s, c, "x", Default::default())
        }),
        (SystemWrite, "volumes.change", |s, c| volumes::change(
            s,
            c,
            "x",
            Default::default(),
            None
        )),
        (SystemWrite, "volumes.remove", |s, c| volumes::remove(
            s, c, "x"
        )),
        (SystemRead, "webhooks.list", |s, c| webhooks::list(s, c)),
        (SystemRead, "webhooks.get", |s, c| webhooks::get(s, c, "x")),
        (SystemWrite, "webhooks.create", |s, c| webhooks::create(
            s,
            c,
            Default::default()
        )),
        (SystemWrite, "webhooks.change", |s, c| webhooks::change(
            s,
            c,
            "x",
            Default::default(),
            None
        )),
        (SystemWrite, "webhooks.remove", |s, c| webhooks::remove(
            s, c, "x"
        )),
        (SystemWrite, "webhooks.test", |s, c| webhooks::test(
            s, c, "x"
        )),
        (SystemRead, "approvals.list", |s, c| approvals::list(s, c)),
        (SystemRead, "approvals.four_eyes", |s, c| {
            approvals::four_eyes(s, c)
        }),
        (SystemWrite, "approvals.set_four_eyes", |s, c| {
            approvals::set_four_eyes(s, c, api::approvals::FourEyesBody { on: false })
        }),
        (SystemWrite, "approvals.release", |s, c| {
            approvals::release(s, c, "x")
        }),
        (SystemWrite, "approvals.decline", |s, c| {
            approvals::decline(s, c, "x")
        }),
        (SessionsEnter, "break_glass.enter_session", |s, c| {
            break_glass::enter_session(s, c, "x", Default::default())
        }),
        (SessionsEnter, "break_glass.read_folder", |s, c| {
            break_glass::read_folder(s, c, "x", Default::default())
        }),
        (AuditRead, "break_glass.list", |s, c| break_glass::list(
            s, c
        )),
        (SessionsEnter, "break_glass.end", |s, c| break_glass::end(
            s, c, "x"
        )),
        (SystemWrite, "mail.retry", |s, c| mail::retry(s, c)),
        (SystemWrite, "mail.test", |s, c| mail::test(
            s,
            c,
            api::mail::MailTestBody {
                address: "a@b".to_owned()
            }
        )),
        (SessionsRead, "nodes.in_maintenance", |s, c| {
            nodes::in_maintenance(s, c)
        }),
        (SystemWrite, "nodes.set_maintenance", |s, c| {
            nodes::set_maintenance(s, c, "x", true, "")
        }),
        (SystemRead, "nodes.facts", |s, c| nodes::facts(s, c, "x")),
        (SessionsRead, "nodes.list", |s, c| nodes::list(s, c)),
        (SystemRead, "nodes.get", |s, c| nodes::get(s, c, "x")),
        (SystemWrite, "nodes.maintain", |s, c| {
            any_maintenance(s, c)
        }),
        (SystemRead, "settings.list", |s, c| settings::list(s, c)),
        (SystemRead, "settings.views", |s, c| settings::views(s, c)),
        (SystemRead, "settings.get", |s, c| settings::get(s, c, "x")),
        (SystemWrite, "settings.change", |s, c| settings::change(
            s,
            c,
            "x",
            "1",
            settings::SettingWrite::Dry
        )),
        (SystemWrite, "settings.undo", |s, c| settings::undo(
            s,
            c,
            "x",
            settings::SettingWrite::Dry
        )),
    ];
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let code = access::setup_link(&server).unwrap();
    let boss = access::set_up(&server, &code, "boss", "correct horse battery", here)
        .await
        .unwrap()
        .caller;
    let mina = users::create(&server, &boss, "mina", Role::User, "correct horse battery")
        .await
        .unwrap();
    let as_caller = |user, role: Role, scopes| Caller {
        subject: Subject {
            user,
            grants: role.grants(),
            domain: rules::tenancy::DomainId::DEFAULT,
            scopes,
        },
        via: Via::Token {
            id: TokenId(NOBODY),
        },
        ..boss.clone()
    };
    // These ask for several capabilities one after the other, or write beside the catalog.
    let user = as_caller(mina.id, Role::User, None);
    for refused in [
        installation::report(&server, &user).await.map(|_| ()),
        installation::test(&server, &user, "host").await.map(|_| ()),
        installation::done(&server, &user, installation::Step::Time).await,
        installation::finish(&server, &user).await,
        // With the authority's key, which lies in a file.
        audit::sign(&server, &user).await.map(|_| ()),
        statements::close(
            &server,
            &user,
            &api::statements::NewClosedMonthBody::default(),
        )
        .await
        .map(|_| ()),
        statements::check(&server, &user).await.map(|_| ()),
    ] {
        match refused {
            Err(Failure::Refusal(refusal)) => {
                assert_eq!(refusal.code, "role.administrator-needed");
            }
            other => panic!("not refused: {other:?}"),
        }
    }
    for (verb, name, act) in acts {
        for role in Role::ALL {
            let user = match role {
                Role::User => mina.id,
                Role::Administrator => boss.subject.user,
            };
            for scope in Permission::ALL.map(Some).into_iter().chain([None]) {
                let caller = as_caller(user, role, scope.map(|scope| vec![scope]));
                let refused = match act(&server, &caller).await {
                    Err(Failure::Refusal(refusal)) => refusal.code,
                    Err(Failure::Fault(fault)) => panic!("{name}: {fault}"),
                    Ok(()) => "done".to_owned(),
                };
                let for_administrators = matches!(
                    verb,
                    Permission::ImagesWrite
                        | Permission::UsersRead
                        | Permission::UsersWrite
                        | Permission::SystemRead
                        | Permission::SystemWrite
                );
                let wanted = if scope.is_some_and(|scope| scope != verb) {
                    Some("token.scope-missing")
                } else if for_administrators && role == Role::User {
                    Some("role.administrator-needed")
                } else {
                    None
                };
                match wanted {
                    Some(wanted) => {
                        assert_eq!(refused, wanted, "{name} as {role:?} with {scope:?}")
                    }
                    None => assert!(
                        !refused.starts_with("token.scope") && !refused.starts_with("role."),
                        "{name} as {role:?} with {scope:?}: {refused}"
                    ),
                }
            }
        }
    }
}
