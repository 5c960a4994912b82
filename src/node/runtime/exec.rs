//! One more program inside a running container. Joins everything the container is: control group,
//! all namespaces including the user namespace, limits, capabilities, `no_new_privs` and the same
//! system call filter. libcontainer's own exec forgets several of these and is never used.
//!
//! Runs in the shim, whose one thread makes plain forks safe. The program is the shim's own child,
//! so its exit code is the true one.

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};

use super::cgroup::ControlGroup;
use super::container;
use super::container_user::ContainerUser;
use super::files::FILES;
use super::order::{GuestProgram, TerminalSize};
use super::process_limits::GrantedLimits;
use super::seccomp::{Revealing, SeccompFilter};
use super::spec::{CAPABILITIES, OOM_SCORE};
use super::terminal::ProgramStream;
use super::user_namespace::time_namespaces;

/// Everything about the program to be started, complete and checked.
pub(super) struct ExecProgram {
    pub(super) command: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    pub(super) directory: String,
    pub(super) user: ContainerUser,
    pub(super) terminal: Option<TerminalSize>,
    pub(super) open_files: u64,
    pub(super) limits: GrantedLimits,
    pub(super) revealing: Revealing,
    /// In the place of the command.
    pub(super) guest: Option<GuestProgram>,
}

/// A program on its way: what it will tell, and the near ends of its input and output.
pub(super) struct Starting {
    /// Told through by the program's forerunners; ends when the program runs.
    pub(super) news: OwnedFd,
    /// Missing for a terminal, whose one end comes as news.
    pub(super) input: Option<ProgramStream>,
    pub(super) output: Option<ProgramStream>,
    pub(super) errors: Option<ProgramStream>,
}

/// What a starting program tells.
pub(super) enum News {
    /// Its process number, a child of the shim.
    Process(i32),
    Terminal(OwnedFd),
    Listener(OwnedFd),
    /// It cannot be started; nothing of it runs. A command that does not exist says so itself, and ends
    /// with 127 (126 when it may not be run).
    Failed(String),
    /// Nothing to tell now.
    Nothing,
    /// The program runs, or its forerunner ended without a word.
    End,
}

/// A kernel without time namespaces refuses the flag.
const CLONE_NEWTIME: libc::c_int = 0x80;

const TELL_PROCESS: u8 = b'p';
const TELL_TERMINAL: u8 = b't';
const TELL_LISTENER: u8 = b'l';
const TELL_FAILED: u8 = b'f';

/// Begins a program inside the container whose first process is held by `first`.
pub(super) fn begin(
    first: BorrowedFd<'_>,
    group: &ControlGroup,
    program: &ExecProgram,
) -> io::Result<Starting> {
    let (near, far) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    let pipes = match program.terminal {
        Some(_) => None,
        None => Some((io::pipe()?, io::pipe()?, io::pipe()?)),
    };
    let image = match program.guest {
        None => container::memory_file()?,
        Some(GuestProgram::Files) => container::sealed_file("files", FILES)?,
    };
    // SAFETY: the shim has one thread, so the child may use memory and files like any process.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        drop(near);
        let ends = pipes.as_ref().map(|(input, output, errors)| {
            [
                input.0.as_raw_fd(),
                output.1.as_raw_fd(),
                errors.1.as_raw_fd(),
            ]
        });
        forerun(first, group, program, ends, &image, &far);
    }
    rustix::io::ioctl_fionbio(&near, true)?;
    let mut starting = Starting {
        news: near,
        input: None,
        output: None,
        errors: None,
    };
    if let Some((input, output, errors)) = pipes {
        starting.input = Some(ProgramStream::new(input.1.into(), false)?);
        starting.output = Some(ProgramStream::new(output.0.into(), false)?);
        starting.errors = Some(ProgramStream::new(errors.0.into(), false)?);
    }
    Ok(starting)
}

/// Takes the next news of a starting program.
pub(super) fn listen(news: BorrowedFd<'_>) -> News {
    let mut bytes = [0u8; 4096];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [io::IoSliceMut::new(&mut bytes)];
    let (count, descriptor) = match recvmsg::<()>(
        news.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    ) {
        Ok(message) => {
            let descriptor = message.cmsgs().ok().and_then(|controls| {
                controls.into_iter().find_map(|control| match control {
                    // SAFETY: the kernel just made this descriptor for us; only one fits the space given.
                    ControlMessageOwned::ScmRights(all) => all
                        .first()
                        .map(|first| unsafe { OwnedFd::from_raw_fd(*first) }),
                    _ => None,
                })
            });
            (message.bytes, descriptor)
        }
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return News::Nothing,
        Err(_) => return News::End,
    };
    let (Some(kind), rest) = (
        bytes[..count].first(),
        bytes.get(1..count).unwrap_or_default(),
    ) else {
        return News::End;
    };
    let number = rest
        .first_chunk::<4>()
        .map_or(0, |bytes| i32::from_le_bytes(*bytes));
    let text = || String::from_utf8_lossy(rest.get(4..).unwrap_or_default()).into_owned();
    match (*kind, descriptor) {
        (TELL_PROCESS, _) => News::Process(number),
        (TELL_TERMINAL, Some(descriptor)) => News::Terminal(descriptor),
        (TELL_LISTENER, Some(descriptor)) => News::Listener(descriptor),
        _ => News::Failed(text()),
    }
}

fn tell(far: &OwnedFd, kind: u8, number: i32, text: &str) {
    let mut bytes = vec![kind];
    bytes.extend(number.to_le_bytes());
    bytes.extend(&text.as_bytes()[..text.len().min(2000)]);
    // Without a listener there is no one to tell.
    let _ = sendmsg::<()>(
        far.as_raw_fd(),
        &[IoSlice::new(&bytes)],
        &[],
        MsgFlags::MSG_NOSIGNAL,
        None,
    );
}

fn hand_over(far: &OwnedFd, kind: u8, descriptor: &OwnedFd) -> io::Result<()> {
    let descriptors = [descriptor.as_raw_fd()];
    sendmsg::<()>(
        far.as_raw_fd(),
        &[IoSlice::new(&[kind])],
        &[ControlMessage::ScmRights(&descriptors)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

fn leave() -> ! {
    // SAFETY: ends this forked process without running anything of the shim's.
    unsafe { libc::_exit(0) }
}

/// The first forked process: enters the container, then forks the program as the shim's child.
fn forerun(
    first: BorrowedFd<'_>,
    group: &ControlGroup,
    program: &ExecProgram,
    ends: Option<[RawFd; 3]>,
    image: &OwnedFd,
    far: &OwnedFd,
) -> ! {
    let failed = |what: &str, error: &dyn std::fmt::Display| -> ! {
        tell(far, TELL_FAILED, 0, &format!("could not {what}: {error}"));
        leave()
    };
    if let Err(error) = forget_own_name() {
        failed("forget the name of this program", &error);
    }
    // SAFETY: no memory is involved. As the container's own processes, and before anything is entered.
    let own = unsafe { libc::getpid() };
    if let Err(error) = group.join_existing(own) {
        failed("join the control group", &error);
    }
    if let Err(error) = fs::write("/proc/self/oom_score_adj", OOM_SCORE.to_string()) {
        failed("set the standing with the memory killer", &error);
    }
    for (resource, limit) in [
        (libc::RLIMIT_NOFILE, Some(program.open_files)),
        (libc::RLIMIT_CORE, Some(0)),
        (libc::RLIMIT_MEMLOCK, program.limits.memlock),
        (libc::RLIMIT_STACK, program.limits.stack),
    ] {
        let Some(limit) = limit else {
            continue;
        };
        let limits = libc::rlimit {
            rlim_cur: limit,
            rlim_max: limit,
        };
        // SAFETY: the structure outlives the call.
        if unsafe { libc::setrlimit(resource, &raw const limits) } != 0 {
            failed("set a limit", &io::Error::last_os_error());
        }
    }
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP
        | if time_namespaces() { CLONE_NEWTIME } else { 0 };
    // SAFETY: one system call on this process, which has one thread.
    if unsafe { libc::setns(first.as_raw_fd(), namespaces) } != 0 {
        failed("enter the container", &io::Error::last_os_error());
    }
    // The program becomes a child of the shim, not of this process, so that no process in between can
    // lose its exit code. The process number is the host's: this process is still outside.
    // SAFETY: without a new stack and shared memory this is a fork; both sides go on from here.
    let child = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::CLONE_PARENT | libc::SIGCHLD,
            0,
            0,
            0,
            0,
        )
    };
    if child < 0 {
        failed("fork inside the container", &io::Error::last_os_error());
    }
    if child > 0 {
        tell(far, TELL_PROCESS, child as i32, "");
        leave();
    }
    become_program(program, ends, image, far)
}

/// Wipes the words that this process was started with: inside they can be read by everybody until it has
/// become the program, and they tell where we lie on this machine.
fn forget_own_name() -> io::Result<()> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program stands in parentheses and may hold anything.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| {
        rest.split_whitespace()
            .nth(number - 3)
            .and_then(|word| word.parse::<usize>().ok())
    };
    let (Some(begin), Some(end)) = (field(48), field(49)) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if begin != 0 && begin < end {
        // SAFETY: the kernel says where it laid this process's own arguments, on its stack and writable. Nothing
        // of this forked process reads them again.
        unsafe { std::ptr::write_bytes(begin as *mut u8, 0, end - begin) };
    }
    Ok(())
}

/// The second forked process: takes on the container's limits and becomes the program.
fn become_program(
    program: &ExecProgram,
    ends: Option<[RawFd; 3]>,
    image: &OwnedFd,
    far: &OwnedFd,
) -> ! {
    let failed = |what: &str, error: io::Error| -> ! {
        tell(far, TELL_FAILED, 0, &format!("could not {what}: {error}"));
        leave()
    };
    let check = |what: &str, answer: libc::c_long| {
        if answer < 0 {
            failed(what, io::Error::last_os_error());
        }
    };
    // SAFETY: plain system calls on this process alone, with arguments that outlive them.
    unsafe {
        check("begin a session", libc::setsid().into());
        libc::umask(0o022);
        for number in 0..64 {
            let kept = CAPABILITIES.iter().any(|(_, each)| *each == number);
            if !kept && libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) == 1 {
                check(
                    "drop a capability",
                    libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0).into(),
                );
            }
        }
        let groups = &program.user.groups;
        check(
            "set the groups",
            libc::setgroups(groups.len(), groups.as_ptr()).into(),
        );
        let (uid, gid) = (program.user.uid, program.user.gid);
        check("set the group", libc::setresgid(gid, gid, gid).into());
        check("set the user", libc::setresuid(uid, uid, uid).into());
    }
    if let Err(error) = drop_capabilities(program.user.uid) {
        failed("set the capabilities", error);
    }
    match (ends, program.terminal) {
        (Some(ends), _) => {
            for (standard, end) in ends.into_iter().enumerate() {
                // SAFETY: the pipes belong to this process; the standard descriptors may be replaced.
                check(
                    "connect the pipes",
                    unsafe { libc::dup2(end, standard as RawFd) }.into(),
                );
            }
        }
        (None, size) => {
            if let Err(error) = open_terminal(size, far) {
                failed("open a terminal", error);
            }
        }
    }
    let directory = CString::new(program.directory.as_str()).unwrap_or_default();
    // SAFETY: as above.
    unsafe {
        if libc::chdir(directory.as_ptr()) != 0 {
            failed(
                &format!("enter the directory {}", program.directory),
                io::Error::last_os_error(),
            );
        }
        check(
            "forbid new privileges",
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into(),
        );
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=64 {
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        // Nothing of the shim's stays open in the program.
        check(
            "close what is not the program's",
            libc::syscall(
                libc::SYS_close_range,
                3u32,
                u32::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            ),
        );
    }
    let words = |list: Vec<String>| -> Vec<CString> {
        list.into_iter()
            .filter_map(|word| CString::new(word).ok())
            .collect()
    };
    // Not the command itself: it would be looked up by a process behind which our own file stands, and
    // `/proc/self/exe`, or a script that names it, would be that file.
    let mut arguments = match program.guest {
        None => vec![CString::from(c"enter")],
        Some(GuestProgram::Files) => Vec::new(),
    };
    arguments.extend(words(program.command.clone()));
    let environment = words(
        program
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
    );
    match SeccompFilter::compile(program.revealing).install(program.revealing) {
        Ok(Some(listener)) => {
            if let Err(error) = hand_over(far, TELL_LISTENER, &listener) {
                failed("hand over the filter's listener", error);
            }
        }
        Ok(None) => {}
        Err(error) => failed("install the system call filter", error),
    }
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter()
            .map(|word| CStr::as_ptr(word))
            .chain([std::ptr::null()])
            .collect()
    };
    let (arguments, environment) = (pointers(&arguments), pointers(&environment));
    // SAFETY: both arrays end with a null pointer and outlive the call, which returns only on failure.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            image.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    failed("run the program", io::Error::last_os_error())
}

/// Keeps exactly the container's capabilities for its root, none for other users.
fn drop_capabilities(uid: u32) -> io::Result<()> {
    #[repr(C)]
    struct CapabilityHeader {
        version: u32,
        pid: i32,
    }
    let kept: u32 = if uid == 0 {
        CAPABILITIES
            .iter()
            .fold(0, |set, (_, number)| set | 1 << number)
    } else {
        0
    };
    let header = CapabilityHeader {
        version: 0x2008_0522,
        pid: 0,
    };
    // Effective, permitted, inheritable; low half, then high half.
    let sets: [u32; 6] = [kept, kept, 0, 0, 0, 0];
    // SAFETY: both structures have the kernel's layout for this version and outlive the calls.
    unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        );
        if libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Makes a terminal in the container's own `/dev/pts`, takes its far end as ours, and hands the
/// near end over.
fn open_terminal(size: Option<TerminalSize>, far: &OwnedFd) -> io::Result<()> {
    // The container may have replaced anything by a link; the kernel's own multiplexer is device
    // 5:2 with inode 2 on a devpts file system, and nothing else is accepted.
    const DEVPTS: i64 = 0x1cd1;
    // SAFETY: the name is terminated; the answer is checked and owned here alone.
    let near = unsafe {
        let descriptor = libc::open(
            c"/dev/pts/ptmx".as_ptr(),
            libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NOFOLLOW,
        );
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    let stat = rustix::fs::fstat(&near)?;
    let system = rustix::fs::fstatfs(&near)?;
    if system.f_type != DEVPTS || stat.st_ino != 2 || stat.st_rdev != libc::makedev(5, 2) {
        return Err(io::Error::other("/dev/pts/ptmx is not the kernel's"));
    }
    // SAFETY: plain requests on descriptors of this process with arguments that outlive them.
    unsafe {
        let unlock: libc::c_int = 0;
        if libc::ioctl(near.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock) != 0 {
            return Err(io::Error::last_os_error());
        }
        let own = libc::ioctl(
            near.as_raw_fd(),
            libc::TIOCGPTPEER,
            libc::O_RDWR | libc::O_NOCTTY,
        );
        if own < 0 {
            return Err(io::Error::last_os_error());
        }
        if let Some(size) = size {
            let window = libc::winsize {
                ws_row: size.rows,
                ws_col: size.columns,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            libc::ioctl(near.as_raw_fd(), libc::TIOCSWINSZ, &raw const window);
        }
        for standard in 0..3 {
            if libc::dup2(own, standard) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    hand_over(far, TELL_TERMINAL, &near)
}
