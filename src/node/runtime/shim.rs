//! The supervisor of one container, as a process of its own: makes the container, keeps its
//! terminal and log, answers on a socket, and writes down how it ended. One thread, one poll loop.
//!
//! Lives through every end of the server. Never reads the environment, never starts a thread,
//! never speaks to the catalog or the network.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::cgroup::{Group, Hierarchies};
use super::container::{self, Console};
use super::descriptors::receive_descriptor;
use super::identity::ProcessIdentity;
use super::launch::{Launch, RunRecord};
use super::logs::LogWriter;
use super::order::{ContainerOrder, ExitRecord, Standing, UserOrder};
use super::people::{self, Person};
use super::rootfs::{self, Stage};
use super::seccomp::{Filter, Revealing};
use super::spec::{self, Ground};
use super::terminal::{Heard, Line, Scrollback};
use super::wire::{self, Kind, PROTOCOL, Reply, Request};
use crate::network;

/// Connections one shim serves together. More: somebody leaks connections, and each costs memory
/// in every shim. Fewer: twenty people watching one terminal.
const MOST_CLIENTS: usize = 64;

/// Output that waits for a slow client before it is let go; it can come back and replay.
const WAITING_OUTPUT: usize = 1024 * 1024;

/// How long the last words may take to reach clients after the container's end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Grace of a shim that is itself told to end, as at the machine's shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

type Fault = Box<dyn std::error::Error>;

/// Runs `fardel shim DIRECTORY`: detaches, then supervises the container described there.
///
/// Standard input is the server's end of the first subscription.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let [directory] = arguments else {
        eprintln!("fardel shim is started by the server; it supervises one container");
        return ExitCode::from(64);
    };
    match detach() {
        Ok(Detached::Parent) => ExitCode::SUCCESS,
        Ok(Detached::Shim(server)) => {
            supervise(Path::new(directory), server);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("fardel shim could not detach: {error}");
            ExitCode::FAILURE
        }
    }
}

enum Detached {
    Parent,
    Shim(UnixStream),
}

/// Leaves the server's session and process tree, and lets go of everything inherited but the
/// socket on standard input.
fn detach() -> io::Result<Detached> {
    // The socket becomes descriptor 3, whatever was inherited there, so that everything above can
    // be closed without looking.
    // SAFETY: nothing in this fresh process uses descriptor 3 yet, and nobody else owns the copy.
    let server = unsafe {
        if libc::dup3(0, 3, libc::O_CLOEXEC) != 3 {
            return Err(io::Error::last_os_error());
        }
        UnixStream::from(rootfs::own(3))
    };
    rustix::process::setsid()?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {}
        child if child > 0 => return Ok(Detached::Parent),
        _ => return Err(io::Error::last_os_error()),
    }
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    for standard in 0..3 {
        // SAFETY: the standard descriptors of this process belong to nobody else in it.
        if unsafe { libc::dup2(null.as_raw_fd(), standard) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    drop(null);
    // SAFETY: nothing in this process uses a descriptor above 3.
    unsafe { libc::syscall(libc::SYS_close_range, 4u32, u32::MAX, 0u32) };
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir("/")?;
    Ok(Detached::Shim(server))
}

fn supervise(directory: &Path, server: UnixStream) {
    let launch = match Launch::read(directory) {
        Ok(launch) => launch,
        // Without an order there is nowhere to write to; the closed socket tells the server.
        Err(_) => return,
    };
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(launch.log_directory.join("shim.log"));
    if let Ok(log) = log {
        let _ = tracing::subscriber::set_global_default(journal::Journal::new(log));
    }
    let mut shim = match Shim::new(directory, launch, server) {
        Ok(shim) => shim,
        Err(error) => {
            tracing::error!("the shim could not begin: {error}");
            return;
        }
    };
    match shim.begin() {
        Ok(()) => shim.watch(),
        Err(error) => {
            let reason = chain(&*error);
            tracing::error!("could not start: {reason}");
            shim.end(ExitRecord {
                code: 125,
                signal: None,
                oom_killed: false,
                reason: Some(reason),
                started_at: None,
                ended_at: now(),
            });
        }
    }
    shim.farewell();
}

struct Shim {
    directory: PathBuf,
    launch: Launch,
    standing: Standing,
    signals: OwnedFd,
    listener: UnixListener,
    clients: Vec<Client>,
    group: Group,
    scrollback: Scrollback,
    log: LogWriter,
    line: Option<Line>,
    first: Option<FirstProcess>,
    kill_at: Option<Instant>,
}

/// The container's process 1, seen from here.
struct FirstProcess {
    identity: ProcessIdentity,
    started_at: u64,
}

struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    waiting: Vec<u8>,
    role: Role,
    gone: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    New,
    Subscriber,
    Attached,
    /// Answered; goes when its answer is out.
    Served,
}

impl Shim {
    fn new(directory: &Path, launch: Launch, server: UnixStream) -> Result<Self, Fault> {
        // SAFETY: plain system calls on this process alone; a refused priority is no fault (needs CAP_SYS_RESOURCE).
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        let _ = fs::write("/proc/self/oom_score_adj", "-999");
        let signals =
            signal_descriptor(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
        let hierarchies = Hierarchies::detect()?;
        if hierarchies.unified() {
            hierarchies
                .shims(&launch.box_id)
                .enter(rustix::process::getpid().as_raw_nonzero().get())?;
        }
        let group = hierarchies.session(&launch.box_id, &launch.order.name);
        let listener = listen(directory)?;
        let mut shim = Self {
            directory: directory.to_owned(),
            standing: Standing::Preparing,
            signals,
            listener,
            clients: vec![],
            group,
            scrollback: Scrollback::default(),
            log: LogWriter::open(&launch.log_directory)?,
            line: None,
            first: None,
            kill_at: None,
            launch,
        };
        shim.write_run_record()?;
        let mut server = Client::new(server)?;
        server.role = Role::Subscriber;
        wire::put_json(
            &mut server.waiting,
            Kind::Event,
            &wire::Event {
                standing: Standing::Preparing,
            },
        );
        server.flush();
        shim.clients.push(server);
        Ok(shim)
    }

    fn write_run_record(&self) -> io::Result<()> {
        let record = RunRecord {
            protocol: PROTOCOL,
            shim: ProcessIdentity::of(rustix::process::getpid().as_raw_nonzero().get())?,
            first: self.first.as_ref().map(|first| first.identity.clone()),
            started_at: self.first.as_ref().map(|first| first.started_at),
        };
        record.write(&self.directory)
    }

    /// Makes the container and lets its command run.
    fn begin(&mut self) -> Result<(), Fault> {
        let order = self.launch.order.clone();
        let ids = rootfs::user_namespace(order.ids)?;
        let stage = Stage::enter(&[
            &self.directory,
            &self.launch.own_directory,
            &self.launch.log_directory,
        ])?;
        rootfs::mount_root(
            &stage,
            &order,
            self.launch.host.as_ref(),
            &self.launch.own_directory,
            ids.as_fd(),
        )?;
        let ground = self.ground(&stage, &order, ids.as_fd())?;
        fs::write(
            self.directory.join("config.json"),
            spec::specification(&order, &ground).to_string(),
        )?;
        let state = self.directory.join("lc");
        fs::create_dir_all(&state)?;

        self.announce(Standing::Starting);
        let revealing = Revealing::Allowed;
        let (listener_near, listener_far) = UnixStream::pair()?;
        let words = (&order.command[..], &ground.environment[..]);
        let filter = (Filter::compile(revealing), revealing);
        let mut created = if order.terminal.is_some() {
            let (socket, listener) = console_socket(&self.directory)?;
            let created = container::create(
                order.name.as_str(),
                &state,
                &self.directory,
                Console::Terminal(&socket),
                words,
                filter,
                listener_far.as_raw_fd(),
            )?;
            let (connection, _) = listener.accept()?;
            self.line = Some(Line::new(receive_descriptor(connection.as_fd())?, true)?);
            fs::remove_file(socket)?;
            created
        } else {
            let (read, write) = io::pipe()?;
            let input = OwnedFd::from(File::open("/dev/null")?);
            let errors = OwnedFd::from(write.try_clone()?);
            self.line = Some(Line::new(read.into(), false)?);
            container::create(
                order.name.as_str(),
                &state,
                &self.directory,
                Console::Pipes {
                    input,
                    output: write.into(),
                    errors,
                },
                words,
                filter,
                listener_far.as_raw_fd(),
            )?
        };
        drop(listener_far);
        drop(listener_near);
        // libcontainer gives its caller the container's own standing with the memory killer.
        let _ = fs::write("/proc/self/oom_score_adj", "0");
        let _ = fs::write("/proc/self/oom_score_adj", "-999");
        let identity = ProcessIdentity::of(created.pid)?;
        network::raise_loopback(created.pid)?;
        if let (Some(line), Some(size)) = (&self.line, order.terminal) {
            line.resize(size);
        }
        let started_at = now();
        let pid = identity.pid;
        self.first = Some(FirstProcess {
            identity,
            started_at,
        });
        created.start()?;
        self.announce(Standing::Running {
            since: started_at,
            pid,
            paused: false,
        });
        self.write_run_record()?;
        Ok(())
    }

    fn ground(
        &self,
        stage: &Stage,
        order: &ContainerOrder,
        ids: BorrowedFd<'_>,
    ) -> Result<Ground, Fault> {
        let root = stage.root();
        let person = self.person(&root, order)?;
        let directory = match &order.directory {
            Some(directory) => directory.clone(),
            None if rootfs::directory_inside(&root, &person.home) => person.home.clone(),
            None => "/".to_owned(),
        };
        let hosts = format!(
            "127.0.0.1\tlocalhost {0}\n::1\tlocalhost ip6-localhost ip6-loopback\n",
            order.hostname
        );
        let mut binds = vec![
            (
                stage.write_file("files/hosts", &hosts)?,
                "/etc/hosts".to_owned(),
                true,
            ),
            (
                stage.write_file("files/hostname", &format!("{}\n", order.hostname))?,
                "/etc/hostname".to_owned(),
                true,
            ),
            (
                stage.write_file("files/resolv.conf", "")?,
                "/etc/resolv.conf".to_owned(),
                true,
            ),
        ];
        for (number, mount) in order.mounts.iter().enumerate() {
            let shown = stage.show(&format!("m{number}"), &mount.from, ids, mount.read_only)?;
            binds.push((shown, mount.at.clone(), mount.read_only));
        }
        let uptime = fs::read_to_string("/proc/uptime")?;
        let uptime_seconds = uptime
            .split('.')
            .next()
            .and_then(|whole| whole.parse().ok())
            .unwrap_or(0);
        Ok(Ground {
            root,
            cgroup_path: self.group.path().to_owned(),
            user_namespace: PathBuf::from(format!("/proc/self/fd/{}", ids.as_raw_fd())),
            uid: person.uid,
            gid: person.gid,
            groups: person.groups.clone(),
            directory,
            environment: environment(order, &person),
            binds,
            uptime_seconds,
            open_files_hard_limit: rustix::process::getrlimit(rustix::process::Resource::Nofile)
                .maximum
                .unwrap_or(u64::MAX),
        })
    }

    fn person(&self, root: &Path, order: &ContainerOrder) -> Result<Person, Fault> {
        let wanted = match &order.user {
            UserOrder::Named(name) => name.as_str(),
            UserOrder::Usual if order.root.host_environment => "work",
            UserOrder::Usual => "0",
        };
        let passwd = rootfs::read_inside(root, "/etc/passwd", 1 << 20).unwrap_or_default();
        let group = rootfs::read_inside(root, "/etc/group", 1 << 20).unwrap_or_default();
        Ok(people::find(wanted, &passwd, &group, order.ids.size)?)
    }

    /// Serves until the container has ended.
    fn watch(&mut self) {
        let mut buffer = vec![0u8; 32 * 1024];
        loop {
            let ready = self.wait();
            if ready.signals {
                if let Some(status) = self.reap() {
                    let record = self.exit_record(status);
                    self.drain(&mut buffer);
                    self.end(record);
                    return;
                }
            }
            if ready.line {
                self.hear(&mut buffer);
            }
            if ready.listener {
                self.accept();
            }
            self.serve(&ready.clients, &mut buffer);
            if self.kill_at.is_some_and(|when| when <= Instant::now()) {
                self.kill_at = None;
                self.signal(libc::SIGKILL);
            }
        }
    }

    fn wait(&mut self) -> Ready {
        let timeout = self.kill_at.map(|when| {
            let left = when.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        let mut watched = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        for client in &self.clients {
            let mut wanted = PollFlags::IN;
            if !client.waiting.is_empty() {
                wanted |= PollFlags::OUT;
            }
            watched.push(PollFd::new(&client.stream, wanted));
        }
        if let Some(line) = &self.line {
            let mut wanted = PollFlags::IN;
            if line.wants_to_write() {
                wanted |= PollFlags::OUT;
            }
            watched.push(PollFd::from_borrowed_fd(line.as_fd(), wanted));
        }
        if poll(&mut watched, timeout.as_ref()).is_err() {
            return Ready::default();
        }
        let happened: Vec<bool> = watched
            .iter()
            .map(|each| !each.revents().is_empty())
            .collect();
        let clients = 2..2 + self.clients.len();
        Ready {
            signals: happened[0],
            listener: happened[1],
            line: self.line.is_some() && happened[clients.end],
            clients: happened[clients].to_vec(),
        }
    }

    /// Takes ended children; gives the wait status of the container's first process when it is one of them.
    fn reap(&mut self) -> Option<i32> {
        let mut block = [0u8; 128];
        while let Ok(count) = rustix::io::read(&self.signals, &mut block) {
            if count < 128 {
                break;
            }
            let number = u32::from_ne_bytes([block[0], block[1], block[2], block[3]]).cast_signed();
            if number != libc::SIGCHLD {
                self.stop(SHUTDOWN_GRACE);
            }
        }
        let mut ended = None;
        loop {
            let mut status = 0;
            // SAFETY: the status outlives the call.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid <= 0 {
                return ended;
            }
            if self
                .first
                .as_ref()
                .is_some_and(|first| first.identity.pid == pid)
            {
                ended = Some(status);
            }
        }
    }

    fn exit_record(&self, status: i32) -> ExitRecord {
        let (code, signal) = if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            (128 + signal, Some(signal))
        } else {
            let code = libc::WEXITSTATUS(status);
            (code, (129..=192).contains(&code).then(|| code - 128))
        };
        let oom_killed = code == 128 + libc::SIGKILL && self.group.oom_kills() > 0;
        let reason = oom_killed.then(|| {
            let limit = self
                .group
                .usage()
                .map_or(self.launch.order.memory_bytes, |usage| usage.memory_limit);
            format!("memory limit {} reached", binary_size(limit))
        });
        let started_at = self.first.as_ref().map(|first| first.started_at);
        ExitRecord {
            code,
            signal,
            oom_killed,
            reason,
            started_at,
            ended_at: now(),
        }
    }

    fn drain(&mut self, buffer: &mut [u8]) {
        // Everything inside is dead, so the pipe ends; a bound all the same for what was in flight.
        for _ in 0..4096 {
            if self.line.is_none() || !self.hear(buffer) {
                return;
            }
        }
    }

    /// Passes on output; false when there is none now.
    fn hear(&mut self, buffer: &mut [u8]) -> bool {
        let Some(line) = &mut self.line else {
            return false;
        };
        line.flush();
        match line.hear(buffer) {
            Heard::Bytes(count) => {
                let bytes = &buffer[..count];
                self.scrollback.add(bytes);
                if let Err(error) = self.log.append(bytes) {
                    tracing::warn!("output is not logged: {error}");
                }
                for client in self
                    .clients
                    .iter_mut()
                    .filter(|client| client.role == Role::Attached)
                {
                    client.send(Kind::Output, bytes);
                }
                true
            }
            Heard::Nothing => false,
            Heard::End => {
                // A terminal may be opened again by a program that outlives its shell; a pipe may not.
                self.line = None;
                false
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            // Only root may speak to a shim; the socket's mode says so too, but modes can be changed.
            let root =
                rustix::net::sockopt::socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root());
            if root && self.clients.len() < MOST_CLIENTS {
                if let Ok(client) = Client::new(stream) {
                    self.clients.push(client);
                }
            }
        }
    }

    fn serve(&mut self, ready: &[bool], buffer: &mut [u8]) {
        for number in 0..ready.len() {
            if !ready[number] {
                continue;
            }
            self.clients[number].flush();
            if !self.clients[number].receive(buffer) {
                continue;
            }
            loop {
                match wire::take(&mut self.clients[number].received) {
                    Ok(Some(frame)) => self.answer(number, &frame),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!("a client speaks nonsense: {error}");
                        self.clients[number].gone = true;
                        break;
                    }
                }
            }
        }
        self.clients.retain(|client| {
            !client.gone && !(client.role == Role::Served && client.waiting.is_empty())
        });
    }

    fn answer(&mut self, number: usize, frame: &wire::Frame) {
        match (self.clients[number].role, frame.kind) {
            (Role::New, Kind::Request) => {
                let reply = match serde_json::from_slice(&frame.payload) {
                    Ok(request) => self.request(number, request),
                    Err(error) => Reply::Refused {
                        why: format!("not a request: {error}"),
                    },
                };
                let client = &mut self.clients[number];
                if client.role == Role::New {
                    client.role = Role::Served;
                    client.send_json(Kind::Reply, &reply);
                }
            }
            (Role::Attached, Kind::Input) => {
                if let Some(line) = self.line.as_mut().filter(|line| line.is_terminal) {
                    line.say(&frame.payload);
                }
            }
            (Role::Attached, Kind::Resize) => {
                if let (Some(line), Some(size)) = (&self.line, wire::size_of(&frame.payload)) {
                    line.resize(size);
                }
            }
            _ => {}
        }
    }

    /// Carries out a request; one that opens a stream changes the client's role and answers itself.
    fn request(&mut self, number: usize, request: Request) -> Reply {
        match request {
            Request::Subscribe => {
                let event = wire::Event {
                    standing: self.standing.clone(),
                };
                let client = &mut self.clients[number];
                client.role = Role::Subscriber;
                client.send_json(Kind::Event, &event);
            }
            Request::Attach { size } => {
                if let (Some(line), Some(size)) = (&self.line, size) {
                    line.resize(size);
                }
                let recent = self.scrollback.replay();
                let client = &mut self.clients[number];
                client.role = Role::Attached;
                client.send_json(Kind::Reply, &Reply::Done);
                if !recent.is_empty() {
                    client.send(Kind::Output, &recent);
                }
            }
            Request::Stop { grace_milliseconds } => {
                self.stop(Duration::from_millis(grace_milliseconds))
            }
            Request::Kill => self.signal(libc::SIGKILL),
            Request::Exec(_) => {
                return Reply::Refused {
                    why: "this shim cannot run further programs".to_owned(),
                };
            }
        }
        Reply::Done
    }

    fn stop(&mut self, grace: Duration) {
        self.signal(self.launch.order.stop_signal);
        if self.launch.order.terminal.is_some() {
            // Interactive shells ignore TERM; a closed terminal is what they listen to.
            self.signal(libc::SIGHUP);
        }
        let when = Instant::now() + grace;
        self.kill_at = Some(self.kill_at.map_or(when, |earlier| earlier.min(when)));
    }

    fn signal(&self, signal: i32) {
        if let Some(first) = &self.first {
            first.identity.signal(signal);
        }
    }

    fn announce(&mut self, standing: Standing) {
        self.standing = standing;
        let event = wire::Event {
            standing: self.standing.clone(),
        };
        for client in self
            .clients
            .iter_mut()
            .filter(|client| client.role == Role::Subscriber)
        {
            client.send_json(Kind::Event, &event);
        }
    }

    /// Writes down the end, tells everybody, and clears away what only a living container needs.
    fn end(&mut self, record: ExitRecord) {
        if let Err(error) = record.write(&self.directory) {
            tracing::error!("the end could not be written down: {error}");
        }
        let code = record.code;
        self.announce(Standing::Ended(record));
        for client in self
            .clients
            .iter_mut()
            .filter(|client| client.role == Role::Attached)
        {
            client.send(Kind::Exit, &code.to_le_bytes());
        }
        if let Err(error) = self.group.kill_all().and_then(|()| self.group.remove()) {
            tracing::warn!("the control group remains: {error}");
        }
    }

    /// Gives clients a moment to take the last words.
    fn farewell(&mut self) {
        let until = Instant::now() + FAREWELL;
        for client in &mut self.clients {
            let left = until
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1));
            let ready = client
                .stream
                .set_nonblocking(false)
                .and_then(|()| client.stream.set_write_timeout(Some(left)));
            if ready.is_ok() && client.stream.write_all(&client.waiting).is_err() {
                tracing::debug!("a client did not wait for the end");
            }
        }
    }
}

#[derive(Default)]
struct Ready {
    signals: bool,
    listener: bool,
    line: bool,
    clients: Vec<bool>,
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            received: Vec::new(),
            waiting: Vec::new(),
            role: Role::New,
            gone: false,
        })
    }

    fn send(&mut self, kind: Kind, payload: &[u8]) {
        wire::put(&mut self.waiting, kind, payload);
        self.flush();
        if self.waiting.len() > WAITING_OUTPUT {
            self.gone = true;
        }
    }

    fn send_json(&mut self, kind: Kind, value: &impl serde::Serialize) {
        wire::put_json(&mut self.waiting, kind, value);
        self.flush();
    }

    fn flush(&mut self) {
        while !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
        }
    }

    /// Reads what is there; false when there was nothing to read.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        match self.stream.read(buffer) {
            Ok(0) => {
                self.gone = true;
                false
            }
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                false
            }
            Err(_) => {
                self.gone = true;
                false
            }
        }
    }
}

fn environment(order: &ContainerOrder, person: &Person) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| match all.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => value.clone_into(old),
        None => all.push((name.to_owned(), value.to_owned())),
    };
    set("PATH", DEFAULT_PATH);
    set("HOME", &person.home);
    set("HOSTNAME", &order.hostname);
    if order.terminal.is_some() {
        set("TERM", "xterm-256color");
    }
    for (name, value) in &order.environment {
        // libcontainer asks the name service for an empty HOME, which a static program must not do.
        if !(value.is_empty() && matches!(name.as_str(), "HOME" | "PATH")) {
            set(name, value);
        }
    }
    all
}

/// Binds the shim's socket. The path may be longer than a socket address allows, so it is bound
/// relative to its directory.
fn listen(directory: &Path) -> io::Result<UnixListener> {
    let held = File::open(directory)?;
    let path = format!("/proc/self/fd/{}/shim.sock", held.as_raw_fd());
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(old);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn console_socket(directory: &Path) -> io::Result<(PathBuf, UnixListener)> {
    let held = File::open(directory)?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/console.sock", held.as_raw_fd()))?;
    Ok((directory.join("console.sock"), listener))
}

/// Blocks signals and gives a descriptor they can be read from.
fn signal_descriptor(signals: &[RawFd]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before use and outlives the calls; the new descriptor is ours alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(rootfs::own(descriptor)),
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn binary_size(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    if bytes.is_multiple_of(1024 * MIB) {
        format!("{} GiB", bytes / (1024 * MIB))
    } else {
        format!("{} MiB", bytes / MIB)
    }
}

/// The error and everything below it, in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        let more = source.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        below = source.source();
    }
    text
}

mod journal {
    //! The shim's own log: warnings and errors, ours and libcontainer's, one line each. As light as
    //! possible, because every container pays for it.

    use std::fmt::{self, Write as _};
    use std::fs::File;
    use std::io::Write as _;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    pub(super) struct Journal {
        file: File,
    }

    impl Journal {
        pub(super) fn new(file: File) -> Self {
            Self { file }
        }
    }

    impl Subscriber for Journal {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }

        fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
            Some(tracing::level_filters::LevelFilter::WARN)
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(format!(
                "{} {} {}:",
                super::now(),
                event.metadata().level(),
                event.metadata().target()
            ));
            event.record(&mut line);
            line.0.push('\n');
            // A full disk must not end a container.
            let _ = (&self.file).write_all(line.0.as_bytes());
        }
    }

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            let _ = if field.name() == "message" {
                write!(self.0, " {value:?}")
            } else {
                write!(self.0, " {}={value:?}", field.name())
            };
        }
    }
}
