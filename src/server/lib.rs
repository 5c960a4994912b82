//! Room 5, the truth: what is wanted, who may want it, and what should happen next. Keeps rows, takes
//! decisions by `rules`, and speaks to machines only through `base::link`; never touches a container.

use std::sync::{Arc, OnceLock, Weak};

use base::observe::Clock;
use base::settings::{LoadedSettings, Settings};
use rules::refusal::Refusal;

pub mod access;
pub mod actions;
mod app_starts;
mod appliance;
pub mod backup;
mod catalog;
mod code_runs;
mod controller;
pub mod decisions;
pub mod diagnostics;
pub mod events;
mod hand_over;
mod history;
pub mod image_source;
mod jobs;
pub mod links;
mod mail;
pub mod offline_inspection;
pub mod routes;
pub mod simulation;
mod snapshot;
pub mod state;
pub mod stream_router;
pub mod upgrade;

/// The truth of one box, opened. Cheap to clone; the last clone dropped closes the files.
#[derive(Clone)]
pub struct Server(Arc<ServerInner>);

/// A server that this does not keep open.
#[derive(Clone)]
pub(crate) struct WeakServer(Weak<ServerInner>);

impl WeakServer {
    /// None once the last clone of the server is dropped.
    pub(crate) fn upgrade(&self) -> Option<Server> {
        self.0.upgrade().map(Server)
    }
}

struct ServerInner {
    /// Dropped first: its threads hold the catalog open.
    jobs: jobs::runner::JobRunner,
    lazy_stores: Arc<appliance::lazy_stores::LazyStores>,
    catalog: catalog::Catalog,
    hasher: access::password::Hasher,
    sign_in_counts: access::AttemptCounts,
    repeated_acts: access::repeated::RepeatedActs,
    directory_turns: access::directory::DirectoryTurns,
    provider_sign_ins: access::provider::ProviderSignIns,
    saml_sign_ins: access::saml::SamlSignIns,
    open_streams: Arc<access::OpenStreams>,
    folder_turns: Arc<actions::folders::FolderTurns>,
    astray_folders: actions::astray_folders::AstrayFolders,
    app_tickets: access::AppTickets,
    app_starts: app_starts::AppStarts,
    code_runs: code_runs::CodeRuns,
    /// They hold the server, so it does not hold them.
    app_listeners: OnceLock<Weak<dyn routes::AppListeners>>,
    settings: appliance::settings::EffectiveSettings,
    backups: appliance::backups::BackupState,
    diagnostics: diagnostics::Diagnostics,
    hand_over: hand_over::HandOverState,
    webhooks: hand_over::webhooks::WebhookState,
    mail: mail::MailState,
    mail_writer: OnceLock<Arc<dyn actions::mail::MailWriter>>,
    newest_attention: actions::attention::NewestAttention,
    kept_announcements: actions::announcements::KeptAnnouncements,
    kept_branding: actions::branding::KeptBranding,
    snapshots: snapshot::Snapshots,
    streams: OnceLock<Arc<dyn base::link::streams::Streams>>,
    homes: OnceLock<()>,
    /// Rung where folders are to be removed before their time in the trash is over.
    folder_purges: tokio::sync::Notify,
    under_way: actions::replay::UnderWay,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

impl Server {
    /// Opens the state that `settings` name, or founds it. Starts no pass and serves no request yet.
    ///
    /// Errors: refusals that name the way out for a second server on the same state, a state of a
    /// newer version, a directory that cannot be written.
    pub fn start(reading: impl Into<LoadedSettings>, clock: Clock) -> Result<Self, Failure> {
        let reading = reading.into();
        let place = catalog::CatalogPlace::Directory(reading.settings.data.clone());
        let catalog = catalog::Catalog::open(&place, clock)?;
        let newest = catalog.read_now("look at the clock", |view| view.latest_event_at())?;
        if let Some(finding) = actions::system::clock_behind(catalog.clock().now(), newest) {
            tracing::warn!(code = finding.code, "{}", finding.text);
        }
        let server = Self::around(catalog, reading, access::password::Hasher::default());
        access::second_factor::note_demand(&server);
        server.go_on()?;
        Ok(server)
    }

    /// A server whose rows live in memory, for tests of doors and for rehearsals. Nothing is left
    /// of it afterwards; `settings.data` is used for uploads only.
    pub fn in_memory(reading: impl Into<LoadedSettings>, clock: Clock) -> Result<Self, Failure> {
        let catalog = catalog::Catalog::open(&catalog::CatalogPlace::Memory, clock)?;
        let hasher = access::password::Hasher::default();
        Ok(Self::around(catalog, reading.into(), hasher))
    }

    /// A server in memory with a clock that stands still, for tests of this room.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self::for_tests_with(base::settings::SettingsLayer::default())
    }

    /// The same where these settings are in force.
    #[cfg(test)]
    pub(crate) fn for_tests_with(layer: base::settings::SettingsLayer) -> Self {
        let clock = Clock::set_by_hand(rules::units::Timestamp::from_millis(1_800_000_000_000));
        let settings = Settings::read(layer, |_| None).expect("good settings");
        let catalog = catalog::Catalog::open(&catalog::CatalogPlace::Memory, clock)
            .expect("memory can be written");
        Self::around(catalog, settings.into(), access::password::Hasher::cheap())
    }

    /// Gives this server's node four processors and 8 GiB under that name, for tests of this room.
    #[cfg(test)]
    pub(crate) fn put_test_node(&self, name: &str) {
        let node = rules::world::NodeRecord {
            id: self.node(),
            name: name.to_owned(),
            boot: rules::names::BootId(uuid::Uuid::from_u128(1)),
            capacity: rules::resources::Capacity {
                cpu: rules::units::CpuShare(400),
                memory: rules::units::Bytes::gib(8),
                devices: vec![],
                others: Vec::new(),
            },
            host_environment: true,
            seen_at: self.clock().now(),
            generation: 0,
            schedulable: true,
            note: String::new(),
            cordoned: Default::default(),
            problems: vec![],
        };
        self.catalog()
            .write_now(catalog::Lane::Loops, "a node", move |rows| {
                rows.put_node(&node)
            })
            .unwrap();
    }

    fn around(
        catalog: catalog::Catalog,
        reading: LoadedSettings,
        hasher: access::password::Hasher,
    ) -> Self {
        catalog.set_policy(reading.settings.share_policy());
        let lazy_stores = Arc::<appliance::lazy_stores::LazyStores>::default();
        let data = reading.settings.data.clone();
        Self(Arc::new_cyclic(|server| ServerInner {
            jobs: jobs::runner::JobRunner::new(
                catalog.clone(),
                vec![
                    Arc::new(jobs::import::ImportJobs {
                        catalog: catalog.clone(),
                        lazy_stores: Arc::clone(&lazy_stores),
                        data: data.clone(),
                        server: WeakServer(server.clone()),
                    }),
                    Arc::new(jobs::gpu_self_test::SelfTestJobs(WeakServer(
                        server.clone(),
                    ))),
                    Arc::new(jobs::commit::CommitJobs(WeakServer(server.clone()))),
                    Arc::new(jobs::folder_copies::CloneJobs(WeakServer(server.clone()))),
                    Arc::new(jobs::folder_copies::TransferJobs {
                        server: WeakServer(server.clone()),
                        data: data.clone(),
                    }),
                    Arc::new(jobs::folder_limits::LimitJobs {
                        server: WeakServer(server.clone()),
                        data,
                    }),
                    Arc::new(jobs::folder_snapshots::SnapshotJobs(WeakServer(
                        server.clone(),
                    ))),
                ],
            ),
            lazy_stores,
            catalog,
            hasher,
            sign_in_counts: access::AttemptCounts::default(),
            repeated_acts: access::repeated::RepeatedActs::default(),
            directory_turns: access::directory::DirectoryTurns::default(),
            provider_sign_ins: access::provider::ProviderSignIns::default(),
            saml_sign_ins: access::saml::SamlSignIns::default(),
            open_streams: Arc::default(),
            folder_turns: Arc::default(),
            astray_folders: Default::default(),
            app_tickets: Default::default(),
            app_starts: Default::default(),
            code_runs: Default::default(),
            app_listeners: OnceLock::new(),
            settings: appliance::settings::EffectiveSettings::new(reading),
            backups: appliance::backups::BackupState::default(),
            diagnostics: diagnostics::Diagnostics::default(),
            hand_over: hand_over::HandOverState::default(),
            webhooks: hand_over::webhooks::WebhookState::default(),
            mail: mail::MailState::default(),
            mail_writer: OnceLock::new(),
            newest_attention: Default::default(),
            kept_announcements: Default::default(),
            kept_branding: Default::default(),
            snapshots: snapshot::Snapshots::default(),
            streams: OnceLock::new(),
            homes: OnceLock::new(),
            folder_purges: tokio::sync::Notify::new(),
            under_way: actions::replay::UnderWay::default(),
        }))
    }

    /// Brings who looks at the machine for this server; without one, pages say that there is none.
    pub fn bring_diagnostics(&self, runner: diagnostics::DiagnosticsRunner) {
        self.0.diagnostics.bring(runner);
    }

    /// Brings the way into sessions, which the self-test of a card and an image of a session need.
    pub fn bring_streams(&self, streams: Arc<dyn base::link::streams::Streams>) {
        // A second one would be a second start of the same server, which does not happen.
        let _ = self.0.streams.set(streams);
    }

    /// Says that sessions run on a machine that keeps the folders of this server: from now on each has the home of its owner by
    /// itself, where the settings say so. Without it none has, as in tests of rows.
    pub fn give_homes(&self) {
        // A second time is the same.
        let _ = self.0.homes.set(());
    }

    /// Whether sessions have the home of their owner by themselves.
    pub fn gives_homes(&self) -> bool {
        self.0.homes.get().is_some() && self.settings().homes
    }

    /// Has folders that are being purged removed now; without it the next look does.
    pub(crate) fn ask_for_purge(&self) {
        self.0.folder_purges.notify_one();
    }

    /// Until that is asked for.
    pub(crate) async fn purge_asked(&self) {
        self.0.folder_purges.notified().await;
    }

    /// Brings what serves the ports of apps; without it they are given and not served, as in tests of rows.
    pub fn bring_app_listeners(&self, listeners: &Arc<dyn routes::AppListeners>) {
        // A second one would be a second start of the same server, which does not happen.
        let _ = self.0.app_listeners.set(Arc::downgrade(listeners));
    }

    pub(crate) fn app_listeners(&self) -> Option<Arc<dyn routes::AppListeners>> {
        self.0.app_listeners.get().and_then(Weak::upgrade)
    }

    pub(crate) fn app_tickets(&self) -> &access::AppTickets {
        &self.0.app_tickets
    }

    pub(crate) fn app_starts(&self) -> &app_starts::AppStarts {
        &self.0.app_starts
    }

    pub(crate) fn code_runs(&self) -> &code_runs::CodeRuns {
        &self.0.code_runs
    }

    pub(crate) fn under_way(&self) -> &actions::replay::UnderWay {
        &self.0.under_way
    }

    pub(crate) fn streams(&self) -> Option<Arc<dyn base::link::streams::Streams>> {
        self.0.streams.get().cloned()
    }

    pub(crate) fn diagnostics(&self) -> &diagnostics::Diagnostics {
        &self.0.diagnostics
    }

    pub(crate) fn hand_over(&self) -> &hand_over::HandOverState {
        &self.0.hand_over
    }

    pub(crate) fn webhooks(&self) -> &hand_over::webhooks::WebhookState {
        &self.0.webhooks
    }

    /// Brings the words of mail, which only doors have; without them no notice is mailed.
    pub fn bring_mail_writer(&self, writer: Arc<dyn actions::mail::MailWriter>) {
        // A second router of the same server has the same words.
        let _ = self.0.mail_writer.set(writer);
    }

    pub(crate) fn mail_writer(&self) -> Option<Arc<dyn actions::mail::MailWriter>> {
        self.0.mail_writer.get().cloned()
    }

    pub(crate) fn mail(&self) -> &mail::MailState {
        &self.0.mail
    }

    pub(crate) fn newest_attention(&self) -> &actions::attention::NewestAttention {
        &self.0.newest_attention
    }

    pub(crate) fn kept_announcements(&self) -> &actions::announcements::KeptAnnouncements {
        &self.0.kept_announcements
    }

    pub(crate) fn kept_branding(&self) -> &actions::branding::KeptBranding {
        &self.0.kept_branding
    }

    /// Takes up what an earlier run left: open jobs, and bytes whose rows were never written. What cannot be
    /// done now only costs images; the server serves all the same.
    fn go_on(&self) -> Result<(), Failure> {
        use catalog::job_kinds::{
            FOLDER_CLONE, FOLDER_LIMIT, FOLDER_SNAPSHOT, FOLDER_TRANSFER, GPU_TEST, IMAGE_IMPORT,
            SESSION_COMMIT,
        };
        let open = self
            .catalog()
            .read_now("look for open jobs", |view| view.open_operations())?;
        let any = |kind: &str| open.iter().any(|row| row.kind == kind);
        for kind in [
            GPU_TEST,
            FOLDER_CLONE,
            FOLDER_LIMIT,
            FOLDER_TRANSFER,
            FOLDER_SNAPSHOT,
        ] {
            if any(kind) {
                self.jobs().wake(kind)?;
            }
        }
        match self.image_store() {
            Ok(_) if any(IMAGE_IMPORT) || any(SESSION_COMMIT) => {
                self.jobs().wake(IMAGE_IMPORT)?;
                self.jobs().wake(SESSION_COMMIT)?;
            }
            Ok(images) => appliance::unnamed_images::forget_unnamed(self.catalog(), &images)?,
            Err(failure) => {
                let error = base::observe::chain(&failure);
                tracing::warn!(%error, "the image store cannot be opened; images are not available");
            }
        }
        Ok(())
    }

    /// The images of this machine's disk. One for the whole process: it keeps in memory what an
    /// import under way relies on.
    pub fn image_store(&self) -> Result<Arc<store::images::ImageStore>, Failure> {
        self.0.lazy_stores.images(&self.settings().data)
    }

    /// Where that store lies.
    pub fn image_directory(&self) -> std::path::PathBuf {
        appliance::lazy_stores::image_directory(&self.settings().data)
    }

    /// Where the image store of a data directory lies, for who reads it without a server.
    pub fn image_directory_of(data: &std::path::Path) -> std::path::PathBuf {
        appliance::lazy_stores::image_directory(data)
    }

    /// The certificates of this machine. One keeper for the whole process, so that what an administrator
    /// changes is what the listeners show.
    pub fn certificates(&self) -> Result<Arc<base::tls::keeper::Keeper>, Failure> {
        self.0
            .lazy_stores
            .certificates(&self.settings(), self.clock())
    }

    pub(crate) fn uploads(&self) -> Result<Arc<store::uploads::UploadStore>, Failure> {
        self.0.lazy_stores.uploads(&self.settings().data)
    }

    pub(crate) fn registry(&self) -> Result<Arc<store::registry::RegistryStore>, Failure> {
        self.0.lazy_stores.registry(&self.settings().data)
    }

    /// The same where something was ever pushed or pulled.
    pub(crate) fn known_registry(
        &self,
    ) -> Result<Option<Arc<store::registry::RegistryStore>>, Failure> {
        self.0.lazy_stores.known_registry(&self.settings().data)
    }

    /// Brings what holds folders of this machine to their limits, before any folder is touched.
    pub fn bring_scopes(&self, keeper: Arc<dyn store::quota::ScopeKeeper>) {
        self.0.lazy_stores.bring_scopes(keeper);
    }

    /// Whether such were brought: without them nothing is held, as in tests of rows.
    pub(crate) fn has_scopes(&self) -> bool {
        self.0.lazy_stores.has_scopes()
    }

    /// The directories of folders on this machine's disk.
    pub(crate) fn folders(&self) -> Result<Arc<store::folders::FolderStore>, Failure> {
        let site = self.catalog().founding().installation_id;
        self.0.lazy_stores.folders(&self.settings().data, site)
    }

    /// What runs the long work of this server.
    pub(crate) fn jobs(&self) -> &jobs::runner::JobRunner {
        &self.0.jobs
    }

    /// Makes a backup now, in the name of this actor; see `jobs::backup::make`.
    pub(crate) async fn make_backup(
        &self,
        actor: &str,
    ) -> Result<appliance::backups::BackupFile, Failure> {
        jobs::backup::make(self, actor).await
    }

    pub fn clock(&self) -> &Clock {
        self.0.catalog.clock()
    }

    /// The settings in force now. A reload may change some of them; see `LoadedSettings::followed_by`.
    pub fn settings(&self) -> Arc<Settings> {
        self.0.settings.settings()
    }

    /// Reads the settings again, as SIGHUP asks for, and goes by what they say. What was refused and
    /// what waits for a restart goes to the log.
    pub fn read_settings_again(&self) {
        match self.0.settings.read_again() {
            Ok(done) => {
                tracing::info!(
                    changed = done.changed.join(", "),
                    needs_restart = done.needs_restart.join(", "),
                    "settings reloaded"
                );
                access::second_factor::note_demand(self);
            }
            Err(refusal) => tracing::error!(
                code = refusal.code,
                "the settings were not taken up, the old ones stay: {refusal}"
            ),
        }
    }

    pub(crate) fn backups(&self) -> &appliance::backups::BackupState {
        &self.0.backups
    }

    pub(crate) fn in_force(&self) -> &appliance::settings::EffectiveSettings {
        &self.0.settings
    }

    /// This machine, as the node it is to the scheduler. Drawn once, when the box was founded.
    pub fn node(&self) -> rules::names::NodeId {
        self.0.catalog.founding().node
    }

    /// Names this box among others, in bundles for support and in backups. Drawn once, with the node.
    pub fn installation_id(&self) -> uuid::Uuid {
        self.0.catalog.founding().installation_id
    }

    /// Gives back the memory that the catalog keeps for its next reads. To be called from time to time, on a thread that may
    /// wait for a running write.
    pub fn give_back_memory(&self) {
        self.0.catalog.give_back_memory();
    }

    pub(crate) fn catalog(&self) -> &catalog::Catalog {
        &self.0.catalog
    }

    pub(crate) fn snapshots(&self) -> &snapshot::Snapshots {
        &self.0.snapshots
    }

    /// Of what readers are told there is anything on this site, as of the newest commit or a later one.
    pub(crate) fn occasions(&self) -> catalog::occasions::Occasions {
        self.0.snapshots.occasions(&self.0.catalog)
    }

    /// Everything live as of the newest commit or a later one, shared by all who ask.
    pub(crate) async fn snapshot(&self) -> Result<Arc<snapshot::Snapshot>, Failure> {
        self.0.snapshots.newest(&self.0.catalog).await
    }

    pub(crate) fn sign_in_counts(&self) -> &access::AttemptCounts {
        &self.0.sign_in_counts
    }

    pub(crate) fn directory_turns(&self) -> &access::directory::DirectoryTurns {
        &self.0.directory_turns
    }

    pub(crate) fn provider_sign_ins(&self) -> &access::provider::ProviderSignIns {
        &self.0.provider_sign_ins
    }

    pub(crate) fn saml_sign_ins(&self) -> &access::saml::SamlSignIns {
        &self.0.saml_sign_ins
    }

    pub(crate) fn repeated_acts(&self) -> &access::repeated::RepeatedActs {
        &self.0.repeated_acts
    }

    pub(crate) fn open_streams(&self) -> &Arc<access::OpenStreams> {
        &self.0.open_streams
    }

    /// The work on files of folders that is under way.
    pub(crate) fn folder_turns(&self) -> &Arc<actions::folders::FolderTurns> {
        &self.0.folder_turns
    }

    /// What was found last of folders and directories that have no other half.
    pub(crate) fn astray_folders(&self) -> &actions::astray_folders::AstrayFolders {
        &self.0.astray_folders
    }

    pub(crate) fn hasher(&self) -> &access::password::Hasher {
        &self.0.hasher
    }
}

/// Moves this server's rows towards what users want, and speaks to the nodes behind `links`: wakes
/// on commits, reports and a clock of seconds. Runs until it is dropped; at most one a server.
/// An error ends one pass, is logged, and the next pass tries again.
pub fn conduct(server: &Server, links: links::Links) -> impl Future<Output = ()> + Send + use<> {
    let catalog = server.catalog().clone();
    let clock = server.clock().clone();
    controller::driver::run(catalog, links, clock, server.settings().keep_days)
}

/// Has the logs of sessions that users delete removed from the machine behind `streams`, those that were
/// deleted before included. Runs until it is dropped; at most one a server.
pub fn forget_logs(
    server: &Server,
    streams: Arc<dyn base::link::streams::Streams>,
) -> impl Future<Output = ()> + Send + use<> {
    controller::logs::run(server.catalog().clone(), streams)
}

/// Starts the apps that launches name, once their sessions run. Runs until it is dropped; at most one a server.
pub fn start_apps(
    server: &Server,
    streams: Arc<dyn base::link::streams::Streams>,
) -> impl Future<Output = ()> + Send + use<> {
    actions::apps::launched::keep(server.clone(), streams)
}

/// Does what waits for no caller: backups, the history of use, the audit log and its hand-over, webhooks, mail, folders,
/// their shares, snapshots, limits and volumes, likely starts, blobs of the registry. Runs until it is dropped; at most one a server.
pub fn keep_house(server: &Server) -> impl Future<Output = ()> + Send + use<> {
    let backups = jobs::backup::keep_making(server.clone());
    let pages = keep_looking(server.clone());
    let history = history::keep(server.clone());
    let audit = jobs::audit::keep(server.clone());
    let directory = jobs::directory::keep(server.clone());
    let hand_over = hand_over::keep(server.clone());
    let webhooks = hand_over::webhooks::keep(server.clone());
    let mail = jobs::mail::keep(server.clone());
    let folders = jobs::folders::keep(server.clone());
    let shares = jobs::folder_shares::keep(server.clone());
    let kept = jobs::folder_snapshots::keep(server.clone());
    let storage = jobs::storage::keep(server.clone());
    let volumes = jobs::volumes::keep(server.clone());
    let likely = snapshot::likely_starts::keep(server.clone());
    let blobs = keep_blobs(server.clone());
    async {
        tokio::join!(
            backups, pages, history, audit, directory, hand_over, webhooks, mail, folders, shares,
            kept, storage, volumes, likely, blobs
        );
    }
}

/// Stops the jobs under way, whose rows stay open for the next server, and ends when their threads have. A
/// backup under way is not broken off.
pub async fn stop_jobs(server: &Server) {
    server.jobs().stop().await;
}

/// Writes what of the audit log is still in memory, and signs it up to its newest row.
pub async fn close_audit(server: &Server) {
    jobs::audit::close(server).await;
}

/// Ends when nothing can be written any more, because the catalog's writer panicked: then the process must
/// end too, so that the service manager starts another. Its sessions go on.
pub fn deaf(server: &Server) -> impl Future<Output = ()> + Send + use<> {
    let catalog = server.catalog().clone();
    async move { catalog.writer_ended().await }
}

/// Looks through the pages of the catalog and for its key now and then, so that damage is known before a
/// request meets it.
async fn keep_looking(server: Server) {
    loop {
        let looked = server.clone();
        let done = tokio::task::spawn_blocking(move || {
            let settings = looked.settings();
            looked.catalog().look_for_key(&settings.data);
            looked.catalog().look_for_damage(&settings.data);
        });
        if let Err(error) = done.await {
            tracing::warn!(%error, "the catalog could not be checked for damage");
        }
        tokio::time::sleep(catalog::health::PAGE_CHECK_INTERVAL).await;
    }
}

/// Removes blobs of the registry that no image needs, at the start and now and then: what a push left that was never ended
/// takes the disk, even where no further import comes.
async fn keep_blobs(server: Server) {
    /// Not at once: a server that is stopped right after its start would leave its catalog open.
    const FIRST: std::time::Duration = std::time::Duration::from_secs(60);
    tokio::time::sleep(FIRST).await;
    loop {
        let swept = server.clone();
        let done = tokio::task::spawn_blocking(move || match swept.known_registry()? {
            Some(registry) => {
                appliance::unused_blobs::forget_unused_blobs(swept.catalog(), &registry)
            }
            None => Ok(()),
        });
        match done.await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                tracing::warn!(error = %base::observe::chain(&failure), "unused blobs stay");
            }
            Err(error) => tracing::warn!(%error, "unused blobs stay"),
        }
        tokio::time::sleep(appliance::unused_blobs::SWEEP_INTERVAL).await;
    }
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The caller's: what was wrong and what would work.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// Ours: logged with its whole chain, shown as a request id.
    #[error(transparent)]
    Fault(#[from] ServerFault),
}

impl Failure {
    /// The same with the field that was wrong, as a JSON pointer; a fault stays as it is.
    pub(crate) fn at(self, pointer: &str) -> Self {
        match self {
            Self::Refusal(refusal) => refusal.at(pointer).into(),
            fault @ Self::Fault(_) => fault,
        }
    }
}

/// An error of ours. Names the work that failed; the cause is its source.
#[derive(Debug, thiserror::Error)]
#[error("{what} failed")]
pub struct ServerFault {
    /// The work in words, such as `place sessions`.
    pub what: String,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl ServerFault {
    pub fn new(
        what: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            what: what.into(),
            source: source.into(),
        }
    }
}

/// For tests: the code of a refusal, `done` for an answer, and the whole chain of a fault.
#[cfg(test)]
pub(crate) fn code<T>(result: Result<T, Failure>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(Failure::Refusal(refusal)) => refusal.code,
        Err(Failure::Fault(fault)) => format!("fault: {}", base::observe::chain(&fault)),
    }
}
