//! `fardel serve`: wires catalog, controller, machine and doors into one process, says where it
//! listens, and on SIGTERM lets go of everything without ending a session.

mod memory;
pub(super) mod sockets;

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::middleware::Next;
use axum::serve::IncomingStream;
use base::link;
use base::link::streams::Streams;
use base::observe::{Clock, chain, start_log};
use base::service;
use base::settings::{LoadedSettings, Settings};
use base::tls::keeper::Keeper;
use base::tls::names::HostNames;
use node::images::ImageDirectory;
use node::runtime::RuntimePaths;
use node::runtime::run_directory::RunDirectory;
use node::{LocalNode, NodeOptions};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::{Bytes, CpuShare};
use server::image_source::StoredImages;
use server::links::Links;
use server::routes::AppListeners;
use server::stream_router::StreamRouter;
use server::{Failure, Server};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use sockets::Sockets;

use crate::doors;
use crate::doors::listener::{self, PortLimits, Purpose, ServesApps};
use crate::doors::peer::Peer;
use crate::doors::proxy::listeners::PortListeners;

/// Threads that serve people. More: an idle box holds their stacks. Fewer: one slow answer holds
/// up the next.
const THREADS: usize = 2;
/// Niceness of these threads. Lower: they hold up everything else where answers take long. Higher: an answer waits
/// for its turn behind the sessions that begin and run.
const NICE: i32 = -5;
/// How long answers under way may take after SIGTERM before the process leaves.
const FAREWELL: Duration = Duration::from_millis(1500);

/// How often names and addresses of the machine are looked at. Longer: a new address is served with a
/// certificate that does not name it.
const LOOK_AROUND: Duration = Duration::from_secs(10);

/// Serves until SIGTERM or SIGINT. Every way not to start is a sentence and a way out, never a
/// panic. Exit code 0 after a signal, 1 where it could not start.
pub fn main(reading: LoadedSettings) -> ExitCode {
    start_log(reading.settings.log_json);
    memory::bound();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("serve")
        .on_thread_start(prefer)
        .enable_all()
        .build();
    let served = match runtime {
        Ok(runtime) => {
            let served = runtime.block_on(serve(reading));
            // What still runs on its threads only waits for containers that go on without it.
            runtime.shutdown_timeout(Duration::from_millis(200));
            served
        }
        Err(error) => Err(refusals::process_no_threads(&error).into()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Refusal(refusal)) => {
            eprintln!("error: {} ({})", refusal.text, refusal.code);
            if !refusal.hint.is_empty() {
                eprintln!("  {}", refusal.hint);
            }
            ExitCode::FAILURE
        }
        Err(fault) => {
            eprintln!("error: {}", chain(&fault));
            ExitCode::FAILURE
        }
    }
}

/// Lets this thread run before sessions and their starts. An ordinary user may not; then it waits like them.
fn prefer() {
    // SAFETY: setpriority takes three numbers; 0 is the calling thread.
    // Justification: the standard library has no way to set it.
    let set = unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, 0, NICE) };
    if set != 0 {
        let error = std::io::Error::last_os_error();
        tracing::debug!(%error, "threads that answer are as nice as all others");
    }
}

async fn serve(reading: LoadedSettings) -> Result<(), Failure> {
    let (settings, file) = (reading.settings.clone(), reading.sources.file());
    // Before the state: a word that is none of a model leaves no catalog behind.
    if let Some(text) = &settings.simulate_gpus {
        node::gpu::simulated::devices(text)?;
    }
    // Before any door opens: a client that sees it open may already tell us to stop.
    let mut signals = Signals::listen()?;
    // The port first: a second server on the same address must not touch the state.
    let mut sockets = sockets::take(&settings).await?;
    folder(&settings.data, "data")?;
    folder(&settings.run, "run")?;
    let clock = Clock::system();
    let server = Server::start(reading, clock.clone())?;
    // Before anything in it is touched, and until the end.
    let _run = RunDirectory::take(&settings.run, &settings.data, server.node())?;
    server.bring_diagnostics(super::diagnostics::runner(&settings, file));
    let machine = open_machine(&settings, &server, clock)?;
    machine.set_pool(settings.pool());
    server.bring_scopes(machine.scopes());
    server.give_homes();
    let streams: Arc<dyn Streams> =
        Arc::new(StreamRouter::to(&server, server.node(), machine.streams()));
    server.bring_streams(Arc::clone(&streams));
    let note = machine_note(&machine);
    let logs = tokio::spawn(server::forget_logs(&server, Arc::clone(&streams)));
    let starts = tokio::spawn(server::start_apps(&server, Arc::clone(&streams)));
    let (apps, by_others) = doors::proxy::open(server.clone(), Arc::clone(&streams));
    let app = doors::router(server.clone(), Arc::clone(&streams))
        .layer(axum::middleware::from_fn(put_peer));
    let certificates = match settings.encrypted() {
        true => Some(server.certificates()?),
        false => None,
    };
    let socket = settings.socket();
    let unix = bind_socket(&socket)?;

    let (server_end, node_end) = link::local();
    let mut controller = tokio::spawn(server::conduct(
        &server,
        Links::to(server.node(), server_end),
    ));
    let house = tokio::spawn(server::keep_house(&server));
    let mut node = tokio::spawn(async move {
        if let Err(fault) = machine.run(node_end).await {
            tracing::error!(error = %chain(&fault), "this node accepts no assignments");
            // The console goes on, to say so.
            std::future::pending::<()>().await;
        }
    });
    let (leave, leaving) = tokio::sync::watch::channel(false);
    let ssh = match sockets.ssh.take() {
        Some(listener) => match server::access::ssh_host_key(&server).await {
            Ok(key) => Some((listener, key)),
            Err(failure) => {
                // A disk that takes no key keeps no user from the pages that say so.
                tracing::error!(error = %chain(&failure), "SSH is off: the host key cannot be read or kept");
                None
            }
        },
        None => None,
    };
    let names = doors::proxy::ByName {
        server: server.clone(),
        apps: by_others,
    };
    let by_name = axum::middleware::from_fn_with_state(names, doors::proxy::by_name);
    let routers = Routers {
        console: app.clone().layer(by_name),
        apps,
    };
    let network = (certificates.as_deref(), &leaving);
    let (mut doors, _app_listeners) = open_network(&server, &settings, sockets, routers, network)?;
    doors.push(tokio::spawn(open_door(unix, app, leaving.clone())));
    let known_as = ssh.as_ref().map(|(_, key)| key.fingerprint());
    let neighbours = doors::ssh::serve_neighbours(
        server.clone(),
        Arc::clone(&streams),
        base::observe::random(),
        leaving.clone(),
    );
    doors.push(tokio::spawn(neighbours));
    let inner = doors::inner_door::serve(server.clone(), Arc::clone(&streams), leaving.clone());
    doors.push(tokio::spawn(inner));
    if let Some((listener, key)) = ssh {
        let leaving = leaving.clone();
        let serving = doors::ssh::serve(listener, server.clone(), streams, key, leaving);
        doors.push(tokio::spawn(serving));
    }
    if let Some(keeper) = &certificates {
        doors.push(tokio::spawn(look_around(
            server.clone(),
            Arc::clone(keeper),
            leaving.clone(),
        )));
    }
    doors.push(tokio::spawn(memory::give_back(server.clone(), leaving)));
    announce(
        &settings,
        certificates.as_deref(),
        setup_words(&server),
        &note,
        known_as.as_deref(),
    );
    tell(service::READY);

    let deaf = server::deaf(&server);
    tokio::pin!(deaf);
    let fell = loop {
        tokio::select! {
            heard = signals.heard() => if heard == SignalHeard::Leave {
                break None;
            },
            () = &mut deaf => break Some("the catalog's writer panicked; the log above has the place"),
            _ = &mut controller => break Some("the controller panicked; the log above has the place"),
            _ = &mut node => break Some("the reconciler panicked; the log above has the place"),
        }
        let server = server.clone();
        let _ = tokio::task::spawn_blocking(move || server.read_settings_again()).await;
    };
    tracing::info!("stopping; sessions go on");
    tell(service::STOPPING);
    let _ = leave.send(true);
    let _ = tokio::time::timeout(FAREWELL, async {
        for door in doors {
            let _ = door.await;
        }
        // What acts under a key goes on without its client.
        server::actions::replay::ended(&server).await;
    })
    .await;
    let _ = tokio::time::timeout(FAREWELL, server::stop_jobs(&server)).await;
    let _ = tokio::time::timeout(FAREWELL, server::close_audit(&server)).await;
    // The controller holds the other end of the machine's link: without it the machine lets go too.
    controller.abort();
    house.abort();
    logs.abort();
    starts.abort();
    if !node.is_finished() {
        let _ = tokio::time::timeout(FAREWELL, &mut node).await;
    }
    let _ = std::fs::remove_file(&socket);
    match fell {
        None => Ok(()),
        Some(why) => Err(server::ServerFault::new("serve", why).into()),
    }
}

/// What serves the ports of apps, for as long as it is held.
type KeptListeners = Option<Arc<dyn AppListeners>>;

/// What is served on the network.
struct Routers {
    console: Router,
    apps: Arc<dyn ServesApps>,
}

/// Serves every port of the network that was taken, and those of apps that are open.
fn open_network(
    server: &Server,
    settings: &Settings,
    sockets: Sockets,
    routers: Routers,
    (certificates, leaving): (Option<&Keeper>, &watch::Receiver<bool>),
) -> Result<(Vec<JoinHandle<()>>, KeptListeners), Failure> {
    let tls = certificates
        .map(Keeper::server_config)
        .transpose()
        .map_err(|fault| server::ServerFault::new("prepare encryption", fault))?;
    let port = sockets
        .console
        .local_addr()
        .map_or(settings.listen.port(), |address| address.port());
    let limits = PortLimits::new();
    let mut app_listeners = None;
    if let Some(address) = settings.listen_apps {
        let first = sockets
            .apps
            .iter()
            .filter_map(|apps| apps.local_addr().ok());
        let listeners: Arc<dyn AppListeners> = Arc::new(PortListeners {
            address: address.ip(),
            tls: tls.clone(),
            apps: Arc::clone(&routers.apps),
            limits: limits.clone(),
            leaving: leaving.clone(),
            served: Mutex::new(first.map(|first| first.port()).collect()),
        });
        // Pages of apps that were open before go on by themselves.
        for port in server::routes::open_app_ports(server)? {
            if let Err(error) = listeners.serve(port) {
                tracing::warn!(port, %error, "a port of apps cannot be opened");
            }
        }
        server.bring_app_listeners(&listeners);
        app_listeners = Some(listeners);
    }
    let console = Purpose::Console(routers.console);
    let mut open = vec![(sockets.console, tls.clone(), console)];
    open.extend(
        sockets
            .apps
            .map(|apps| (apps, tls, Purpose::Apps(routers.apps))),
    );
    open.extend(
        sockets
            .http
            .map(|http| (http, None, Purpose::Way { to: port })),
    );
    let keeping = Arc::clone(&limits.connections).keep(leaving.clone());
    let mut opened = vec![tokio::spawn(keeping)];
    opened.extend(open.into_iter().map(|(listener, tls, purpose)| {
        let serving = listener::serve(listener, tls, purpose, limits.clone(), leaving.clone());
        tokio::spawn(serving)
    }));
    Ok((opened, app_listeners))
}

/// Keeps the machine's certificate true while names, addresses and the calendar change.
async fn look_around(server: Server, keeper: Arc<Keeper>, mut leaving: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_AROUND) => {}
            _ = leaving.wait_for(|leave| *leave) => return,
        }
        let keeper = Arc::clone(&keeper);
        let settings = server.settings();
        // It may wait for the disk.
        let renewed = tokio::task::spawn_blocking(move || {
            let below = settings.apps_name.as_deref();
            keeper.renew(HostNames::of_this_machine().with_apps(below))
        })
        .await;
        match renewed {
            Ok(Ok(true)) => tracing::info!("the certificate was renewed"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::error!(error = %chain(&error), "the certificate could not be renewed");
            }
            Err(error) => tracing::error!(%error, "the certificate could not be checked"),
        }
    }
}

fn folder(path: &Path, key: &str) -> Result<(), Refusal> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    // A directory that exists may still not be writable; only trying tells.
    let probe = path.join(format!(".writable-{}", std::process::id()));
    made.and_then(|()| std::fs::write(&probe, b""))
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|error| match key {
            "run" => refusals::run_directory_unwritable(path.display(), error),
            _ => refusals::data_directory_unwritable(path.display(), error),
        })
}

fn open_machine(settings: &Settings, server: &Server, clock: Clock) -> Result<LocalNode, Failure> {
    let options = NodeOptions {
        id: server.node(),
        places: RuntimePaths {
            data: settings.data.clone(),
            run: settings.run.clone(),
            // The file this process runs from, also after a newer one was put in its place.
            shim_binary: PathBuf::from("/proc/self/exe"),
        },
        images: ImageDirectory::Shared(server.image_directory()),
        host_environment: settings.host_environment,
        cpu: settings.cpu.as_deref().map(CpuShare::parse).transpose()?,
        memory: settings.memory.as_deref().map(Bytes::parse).transpose()?,
        devices: match &settings.simulate_gpus {
            Some(text) => node::gpu::simulated::devices(text)?,
            None => Vec::new(),
        },
        driver_root: settings.driver_root.clone(),
        gpu_mode: match settings.gpu_mode.as_str() {
            "elastic" => node::gpu::arbiter::Mode::Elastic,
            _ => node::gpu::arbiter::Mode::Hard,
        },
        keep_days: settings.keep_days,
    };
    // The server's store first: it clears what a crash left, which the node must not see.
    server.image_store()?;
    let source = Arc::new(StoredImages::of(server));
    LocalNode::open(options, source, clock).map_err(|fault| match fault {
        node::NodeFault::Ledger { path, source } => record_refusal(&path, &source).into(),
        fault => server::ServerFault::new("open this machine", fault).into(),
    })
}

/// Why a server does not start over the machine's own record.
fn record_refusal(path: &Path, error: &std::io::Error) -> Refusal {
    let shown = path.display();
    match error.kind() {
        ErrorKind::Other => refusals::node_record_damaged(&shown, error),
        _ => refusals::node_record_unusable(&shown, error),
    }
}

fn machine_note(machine: &LocalNode) -> String {
    let capacity = machine.capacity();
    match machine
        .findings()
        .iter()
        .find(|finding| finding.prevents_containers)
    {
        Some(finding) => format!("none can run: {}; {}", finding.what, finding.remedy),
        None => {
            let simulated = capacity.devices.iter().filter(|d| d.simulated).count();
            let devices = match simulated {
                0 => match capacity.devices.len() {
                    0 => String::new(),
                    1 => "; 1 GPU".to_owned(),
                    n => format!("; {n} GPUs"),
                },
                1 => "; 1 simulated GPU: sessions can reserve it, there is no device inside"
                    .to_owned(),
                n => format!(
                    "; {n} simulated GPUs: sessions can reserve them, there is no device inside"
                ),
            };
            format!(
                "{} and {} to share{devices}",
                capacity.cpu.cores(),
                capacity.memory
            )
        }
    }
}

/// A socket left by a server that died is replaced: the lock on the state says that no server runs.
fn bind_socket(path: &Path) -> Result<UnixListener, Refusal> {
    let failed = |error: std::io::Error| refusals::socket_failed(path.display(), &error);
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let socket = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(socket)
}

async fn open_door(socket: UnixListener, app: Router, mut leaving: watch::Receiver<bool>) {
    let farewell = async move {
        let _ = leaving.wait_for(|leave| *leave).await;
    };
    let served = axum::serve(
        socket,
        app.into_make_service_with_connect_info::<LocalPeer>(),
    )
    .with_graceful_shutdown(farewell)
    .await;
    if let Err(error) = served {
        tracing::error!(%error, "the local socket was closed");
    }
}

/// Who is at the other end of the local socket, as the kernel says; taken once for each connection.
#[derive(Debug, Clone, Copy)]
struct LocalPeer(Peer);

impl Connected<IncomingStream<'_, UnixListener>> for LocalPeer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        let own = nix::unistd::geteuid().as_raw();
        let trusted = stream
            .io()
            .peer_cred()
            .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own);
        Self(Peer::Local { trusted })
    }
}

/// Says who asks over the local socket; the doors of the network have said it for themselves.
async fn put_peer(mut request: Request, next: Next) -> axum::response::Response {
    let known = request
        .extensions()
        .get::<ConnectInfo<LocalPeer>>()
        .copied();
    if let Some(ConnectInfo(LocalPeer(peer))) = known {
        request.extensions_mut().insert(peer);
    }
    next.run(request).await
}

/// The signals that ask a server to leave, or to read its settings again.
struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignalHeard {
    Leave,
    ReadSettings,
}

impl Signals {
    /// From now on these signals wait to be heard instead of ending the process.
    fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|e| server::ServerFault::new("listen for signals", e));
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hup: listen(SignalKind::hangup())?,
        })
    }

    async fn heard(&mut self) -> SignalHeard {
        tokio::select! {
            _ = self.term.recv() => SignalHeard::Leave,
            _ = self.int.recv() => SignalHeard::Leave,
            _ = self.hup.recv() => SignalHeard::ReadSettings,
        }
    }
}

fn tell(state: &str) {
    if let Err(error) = service::tell(state) {
        tracing::warn!(%error, state, "the service manager could not be notified");
    }
}

/// How the first administrator is made; None once that is done.
fn setup_words(server: &Server) -> Option<String> {
    // What a service prints is kept in the journal, and a code must stand in no file.
    if service::has_manager() {
        return server::access::setup_open(server)
            .then(|| "fardel setup-link  prints a link that works once (as root)".to_owned());
    }
    let here = address(&server.settings());
    server::access::setup_link(server)
        .map(|code| format!("{here}/setup?code={code}  (once, within an hour)"))
}

/// Where people open the console; the first of several.
fn address(settings: &Settings) -> String {
    settings.origins().into_iter().next().unwrap_or_default()
}

/// Thirteen lines at most: where, what, and the one thing to try.
fn announce(
    settings: &Settings,
    certificates: Option<&Keeper>,
    setup: Option<String>,
    machine: &str,
    ssh: Option<&str>,
) {
    let here = address(settings);
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "fardel".to_owned());
    let mut lines = vec![format!(
        "fardel {} serves {here}",
        env!("CARGO_PKG_VERSION")
    )];
    match setup {
        Some(words) => lines.push(format!("  set up     {words}")),
        None => lines.push(format!("  sign in    {here}/login")),
    }
    if let Some(keeper) = certificates {
        let authority = keeper.authority();
        lines.push(format!("  trust      SHA-256 {}", authority.fingerprint));
        lines.push(format!("             how to: {here}/trust"));
    }
    if let (Some(fingerprint), Some(address)) = (ssh, settings.listen_ssh) {
        lines.push(format!(
            "  ssh        port {}  {fingerprint}",
            address.port()
        ));
    }
    lines.push(format!("  state      {}", settings.data.display()));
    lines.push(format!("  run state  {}", settings.run.display()));
    lines.push(format!("  sessions   {machine}"));
    let place = if settings.run == Path::new("/run/fardel") {
        String::new()
    } else {
        format!("FARDEL_RUN={} ", settings.run.display())
    };
    lines.push(format!(
        "  try        {place}{program} run host -- echo hello"
    ));
    lines.push("  stop       Ctrl-C; sessions go on, the next start finds them".to_owned());
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", lines.join("\n"));
    let _ = out.flush();
}
