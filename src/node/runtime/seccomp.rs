//! The system call filter of every container: a deny-list compiled to the kernel's filter language
//! right here, installed by the process itself just before it becomes the command, for the first
//! process and for every later exec alike. Two calls that reveal the size of the machine are sent
//! to the shim for an answer (`answers`). No C library compiles or loads anything.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub(super) mod answers;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

/// One instruction in the kernel's layout (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct SockFilter {
    code: u16,
    on_true: u8,
    on_false: u8,
    value: u32,
}

const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
/// The low half of argument `n` on a little-endian machine.
const fn offset_argument(n: u32) -> u32 {
    16 + 8 * n
}

const ARCHITECTURE_X86_64: u32 = 0xc000_003e;
const X32_BIT: u32 = 0x4000_0000;

/// The newest call whose meaning was reviewed (`file_setattr`). Anything later answers "no such
/// call", so that a new kernel opens nothing by itself and programs fall back.
const LAST_REVIEWED_CALL: u32 = 469;

/// Calls that no program inside needs; the kernel's largest attack surface. EPERM.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS__sysctl,
    libc::SYS_sysfs,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_uselib,
    libc::SYS_userfaultfd,
    libc::SYS_ustat,
    libc::SYS_vhangup,
    467, // open_tree_attr: mounting by another name
];

/// Flags of `clone` that make a namespace; each opens privileged code to a fake root.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Socket families a session may use: local, IPv4, IPv6, netlink (programs list interfaces by it).
const SOCKET_FAMILIES: [u32; 4] = [1, 2, 10, 16];

/// Personalities that change nothing but reported names: Linux, UNAME26, 32-bit names, "ask".
const PERSONALITIES: [u32; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Terminal requests that put words into another program's input.
const TERMINAL_INJECTION: [u32; 2] = [0x5412, 0x541c];

/// Calls the shim answers in the container's own measure.
pub(super) const ANSWERED: [libc::c_long; 2] = [libc::SYS_sched_getaffinity, libc::SYS_sysinfo];

/// A compiled filter.
#[derive(Clone, Debug)]
pub(super) struct SeccompFilter {
    program: Vec<SockFilter>,
}

/// Whether the two revealing calls go to the shim. Without it they are simply allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revealing {
    ToShim,
    Allowed,
}

impl Revealing {
    /// To the shim where the kernel can ask it (Linux 5.0; without waiting for nothing, 5.19).
    pub(super) fn available() -> Self {
        let actions =
            std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
        if actions.contains("user_notif") {
            Self::ToShim
        } else {
            Self::Allowed
        }
    }
}

impl SeccompFilter {
    /// Compiles the filter; about a hundred instructions, microseconds.
    pub(super) fn compile(revealing: Revealing) -> Self {
        let mut program = vec![
            load(OFFSET_ARCHITECTURE),
            jump(JUMP_EQUAL, ARCHITECTURE_X86_64, 1, 0),
            answer(KILL_PROCESS),
            load(OFFSET_NUMBER),
            jump(JUMP_GREATER_OR_EQUAL, X32_BIT, 0, 1),
            answer(refuse(libc::ENOSYS)),
            jump(JUMP_GREATER, LAST_REVIEWED_CALL, 0, 1),
            answer(refuse(libc::ENOSYS)),
        ];
        if revealing == Revealing::ToShim {
            for call in ANSWERED {
                program.extend([jump(JUMP_EQUAL, number(call), 0, 1), answer(NOTIFY)]);
            }
        }
        // Its flags lie in memory and cannot be judged; libraries fall back to `clone`.
        program.extend([
            jump(JUMP_EQUAL, number(libc::SYS_clone3), 0, 1),
            answer(refuse(libc::ENOSYS)),
        ]);
        for call in REFUSED {
            program.extend([
                jump(JUMP_EQUAL, number(*call), 0, 1),
                answer(refuse(libc::EPERM)),
            ]);
        }
        judge(
            &mut program,
            libc::SYS_clone,
            0,
            &[
                jump(JUMP_ANY_BIT, NEW_NAMESPACES, 0, 1),
                answer(refuse(libc::EPERM)),
                answer(ALLOW),
            ],
        );
        judge(
            &mut program,
            libc::SYS_socket,
            0,
            &only(&SOCKET_FAMILIES, libc::EAFNOSUPPORT),
        );
        judge(
            &mut program,
            libc::SYS_socketpair,
            0,
            &only(&SOCKET_FAMILIES, libc::EAFNOSUPPORT),
        );
        judge(
            &mut program,
            libc::SYS_personality,
            0,
            &only(&PERSONALITIES, libc::EPERM),
        );
        let mut never: Vec<SockFilter> = Vec::new();
        for request in TERMINAL_INJECTION {
            never.extend([jump(JUMP_EQUAL, request, 0, 1), answer(refuse(libc::EPERM))]);
        }
        never.push(answer(ALLOW));
        judge(&mut program, libc::SYS_ioctl, 1, &never);
        program.push(answer(ALLOW));
        Self { program }
    }

    /// Puts the filter on the calling thread for good; it must have `no_new_privs` set.
    ///
    /// Gives the listener for the calls that go to the shim, or nothing when none do. Allocates
    /// nothing, so it may run between fork and exec.
    pub(super) fn install(&self, revealing: Revealing) -> io::Result<Option<OwnedFd>> {
        #[repr(C)]
        struct SockProgram {
            length: u16,
            instructions: *const SockFilter,
        }
        let program = SockProgram {
            length: u16::try_from(self.program.len())
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?,
            instructions: self.program.as_ptr(),
        };
        let flags = match revealing {
            Revealing::ToShim => {
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
                    | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
            }
            Revealing::Allowed => 0,
        };
        // SAFETY: the program outlives the call and its length is exact.
        let got = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: with the listener flag a positive answer is a new descriptor that no other code owns.
        Ok((revealing == Revealing::ToShim).then(|| unsafe { OwnedFd::from_raw_fd(got as i32) }))
    }
}

/// Adds a block that runs only for one call, with argument `argument` loaded. `body` must answer.
fn judge(program: &mut Vec<SockFilter>, call: libc::c_long, argument: u32, body: &[SockFilter]) {
    let past = u8::try_from(body.len() + 1).expect("a block is shorter than one jump reaches");
    program.push(jump(JUMP_EQUAL, number(call), 0, past));
    program.push(load(offset_argument(argument)));
    program.extend_from_slice(body);
}

/// Allows the listed values and refuses all others.
fn only(values: &[u32], errno: i32) -> Vec<SockFilter> {
    let mut body = Vec::new();
    for value in values {
        body.extend([jump(JUMP_EQUAL, *value, 0, 1), answer(ALLOW)]);
    }
    body.push(answer(refuse(errno)));
    body
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("call numbers are small and positive")
}

const fn refuse(errno: i32) -> u32 {
    ERRNO | errno as u32
}

const fn load(offset: u32) -> SockFilter {
    SockFilter {
        code: LOAD_WORD,
        on_true: 0,
        on_false: 0,
        value: offset,
    }
}

const fn jump(code: u16, value: u32, on_true: u8, on_false: u8) -> SockFilter {
    SockFilter {
        code,
        on_true,
        on_false,
        value,
    }
}

const fn answer(value: u32) -> SockFilter {
    SockFilter {
        code: RETURN,
        on_true: 0,
        on_false: 0,
        value,
    }
}
