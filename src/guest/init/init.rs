//! The first process of every container: starts the command, reaps orphans, forwards signals, and
//! ends with the command's own exit code (128 + signal when a signal ended it, 127 when the
//! command does not exist, 126 when it may not be run).
//!
//! Called as `init COMMAND ARGUMENT…` with the container's environment. Called as `begin SCRIPT REPORT SECONDS END COMMAND
//! ARGUMENT…` it first runs the script that is open as SCRIPT, writes to REPORT how that ended, and then goes on as `init`
//! does, unless the script failed and END is 1. Called as `enter COMMAND
//! ARGUMENT…` it becomes the command itself: a program that joins the container later goes through it,
//! so that what stands behind `/proc/self/exe` is never the supervisor's own file. Uses no standard library,
//! no C library and no heap, so that it costs a container a few pages of memory. Never opens a
//! file, never changes who it is: identity, limits and the system call filter are already in place.

#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the container's first process knows only the x86-64 system call convention");

global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {begin}",
    "ud2",
    begin = sym begin,
);

const SYS_WRITE: usize = 1;
const SYS_CLOSE: usize = 3;
const SYS_RT_SIGACTION: usize = 13;
const SYS_RT_SIGPROCMASK: usize = 14;
const SYS_IOCTL: usize = 16;
const SYS_GETPID: usize = 39;
const SYS_FORK: usize = 57;
const SYS_EXECVE: usize = 59;
const SYS_WAIT4: usize = 61;
const SYS_KILL: usize = 62;
const SYS_SETPGID: usize = 109;
const SYS_RT_SIGTIMEDWAIT: usize = 128;
const SYS_PRCTL: usize = 157;
const SYS_CLOCK_GETTIME: usize = 228;
const SYS_EXIT_GROUP: usize = 231;

const TIOCGPGRP: usize = 0x540f;
const TIOCSPGRP: usize = 0x5410;
const PR_SET_NAME: usize = 15;
const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;
const WNOHANG: usize = 1;
const CLOCK_MONOTONIC: usize = 1;
const SIGCHLD: i32 = 17;
const SIGKILL: usize = 9;
const EACCES: isize = -13;
const ENOENT: isize = -2;
const ENOTDIR: isize = -20;

/// Signals handed on to the command: HUP INT QUIT USR1 USR2 ALRM TERM CONT WINCH PWR. The others
/// are either faults of this process or job control, which the terminal already delivers.
const FORWARDED: [i32; 10] = [1, 2, 3, 10, 12, 14, 15, 18, 28, 30];

/// Those of them that ask a container to end: HUP INT QUIT TERM PWR.
const STOPS: [i32; 5] = [1, 2, 3, 15, 30];

/// What the report says of a script that was killed because it ran for too long.
const TOO_LONG: i32 = -1;

/// # Safety
/// The caller passes arguments that are valid for the system call `number`.
unsafe fn call(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    let answer: isize;
    // SAFETY: the x86-64 convention; the kernel clobbers only rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Takes the stack as the kernel left it: argument count, arguments, null, environment, null.
///
/// # Safety
/// Only `_start` calls this, once, with the initial stack pointer.
unsafe extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: the layout is the kernel's promise to a new program.
    unsafe {
        let count = *stack;
        let arguments = stack.add(1) as *const *const u8;
        let environment = stack.add(1 + count + 1) as *const *const u8;
        if count < 2 {
            say(b"fardel: the container has no command\n");
            leave(127);
        }
        let name = *arguments;
        if is(name, b"enter\0") {
            become_command(arguments.add(1), environment, false);
        }
        let script = is(name, b"begin\0");
        if script && count < 6 {
            say(b"fardel: the container has no command\n");
            leave(127);
        }
        let command = arguments.add(if script { 5 } else { 1 });
        // Started through an open file, it would be listed by that file's number.
        call(SYS_PRCTL, PR_SET_NAME, c"init".as_ptr() as usize, 0, 0);
        let everything: u64 = !0;
        call(
            SYS_RT_SIGPROCMASK,
            SIG_BLOCK,
            &everything as *const u64 as usize,
            0,
            8,
        );
        let mut group: i32 = 0;
        let has_terminal = call(SYS_IOCTL, 0, TIOCGPGRP, &mut group as *mut i32 as usize, 0) == 0;
        if script {
            run_script(arguments.add(1), environment, has_terminal);
        }
        let child = call(SYS_FORK, 0, 0, 0, 0);
        if child < 0 {
            say(b"fardel: the container's command could not be forked\n");
            leave(126);
        }
        if child == 0 {
            become_command(command, environment, has_terminal);
        }
        supervise(child as i32);
    }
}

/// Runs the script that the words name, and waits for it as long as they say. Comes back where the command is to run.
///
/// # Safety
/// `words` are the four behind `begin`.
unsafe fn run_script(words: *const *const u8, environment: *const *const u8, has_terminal: bool) {
    // SAFETY: the words come from the initial stack; the descriptors are this process's own, and nothing else uses them.
    unsafe {
        let (script, report) = (number(*words), number(*words.add(1)));
        let (seconds, ends) = (number(*words.add(2)), number(*words.add(3)) == 1);
        let child = call(SYS_FORK, 0, 0, 0, 0);
        if child == 0 {
            call(SYS_CLOSE, report, 0, 0, 0);
            // A group of its own, so that all of it can be ended.
            call(SYS_SETPGID, 0, 0, 0, 0);
            let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0";
            put_number(script, &mut path);
            let command: [*const u8; 2] = [path.as_ptr(), core::ptr::null()];
            become_command(command.as_ptr(), environment, has_terminal);
        }
        call(SYS_CLOSE, script, 0, 0, 0);
        let mut code = 126;
        let mut stopped = 0;
        if child > 0 {
            call(SYS_SETPGID, child as usize, child as usize, 0, 0);
            (code, stopped) = wait_for_script(child as i32, seconds as isize);
        }
        if stopped != 0 {
            // A stop is no fault of the script: nothing is reported.
            leave(128 + stopped);
        }
        call(SYS_WRITE, report, &code as *const i32 as usize, 4, 0);
        call(SYS_CLOSE, report, 0, 0, 0);
        if code == 0 {
            return;
        }
        if code == TOO_LONG {
            say(b"fardel: the start-up script ran for too long and was stopped\r\n");
        } else {
            say(b"fardel: the start-up script failed\r\n");
        }
        if ends {
            leave(if code == TOO_LONG { 124 } else { code });
        }
    }
}

/// The code of the script, and the signal that asked the container to end meanwhile, or 0.
unsafe fn wait_for_script(child: i32, seconds: isize) -> (i32, i32) {
    let everything: u64 = !0;
    let second = [1isize, 0];
    let until = uptime() + seconds;
    let group = (-(child as isize)) as usize;
    let (mut late, mut stopped) = (false, 0);
    loop {
        // SAFETY: all pointers live on this stack for the length of the call.
        let signal = unsafe {
            call(
                SYS_RT_SIGTIMEDWAIT,
                &everything as *const u64 as usize,
                0,
                second.as_ptr() as usize,
                8,
            )
        } as i32;
        if FORWARDED.contains(&signal) {
            // SAFETY: the child is not reaped yet, so the group is its own.
            unsafe { call(SYS_KILL, group, signal as usize, 0, 0) };
            if STOPS.contains(&signal) {
                stopped = signal;
            }
        }
        loop {
            let mut status: i32 = 0;
            // SAFETY: the status lives on this stack for the length of the call.
            let gone = unsafe {
                call(
                    SYS_WAIT4,
                    usize::MAX,
                    &mut status as *mut i32 as usize,
                    WNOHANG,
                    0,
                )
            };
            if gone <= 0 {
                break;
            }
            if gone as i32 == child {
                let signal = status & 0x7f;
                let code = if late {
                    TOO_LONG
                } else if signal == 0 {
                    (status >> 8) & 0xff
                } else {
                    128 + signal
                };
                return (code, stopped);
            }
        }
        if uptime() >= until {
            late = true;
            // SAFETY: as above.
            unsafe { call(SYS_KILL, group, SIGKILL, 0, 0) };
        }
    }
}

/// Seconds on a clock that cannot be set.
fn uptime() -> isize {
    let mut now = [0isize; 2];
    // SAFETY: the two words live on this stack for the length of the call.
    unsafe {
        call(
            SYS_CLOCK_GETTIME,
            CLOCK_MONOTONIC,
            now.as_mut_ptr() as usize,
            0,
            0,
        )
    };
    now[0]
}

/// Whether a text is `word`, which ends with a null byte.
unsafe fn is(text: *const u8, word: &[u8]) -> bool {
    let mut rest = text;
    for byte in word {
        // SAFETY: a null-terminated string; a byte that differs, its null byte too, ends the look.
        unsafe {
            if *rest != *byte {
                return false;
            }
            rest = rest.add(1);
        }
    }
    true
}

/// Reads decimal digits.
unsafe fn number(mut text: *const u8) -> usize {
    let mut value: usize = 0;
    // SAFETY: a null-terminated string from the initial stack.
    unsafe {
        while (*text).is_ascii_digit() {
            value = value.wrapping_mul(10).wrapping_add((*text - b'0') as usize);
            text = text.add(1);
        }
    }
    value
}

/// Writes `value` in decimal behind the fourteen bytes that `into` begins with; its ten digits are the most. Has no way to
/// panic, which would bring a formatter into this program.
fn put_number(value: usize, into: &mut [u8; 25]) {
    let mut digits = 1;
    let mut rest = value / 10;
    while rest > 0 && digits < 10 {
        rest /= 10;
        digits += 1;
    }
    rest = value;
    while digits > 0 {
        digits -= 1;
        if let Some(place) = into.get_mut(14 + digits) {
            *place = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
    }
}

/// Waits for the command and everything it leaves behind; never returns.
unsafe fn supervise(child: i32) -> ! {
    let everything: u64 = !0;
    loop {
        // SAFETY: both pointers live on this stack for the length of the call.
        let signal = unsafe {
            call(
                SYS_RT_SIGTIMEDWAIT,
                &everything as *const u64 as usize,
                0,
                0,
                8,
            )
        } as i32;
        if signal == SIGCHLD {
            loop {
                let mut status: i32 = 0;
                // SAFETY: as above.
                let gone = unsafe {
                    call(
                        SYS_WAIT4,
                        usize::MAX,
                        &mut status as *mut i32 as usize,
                        WNOHANG,
                        0,
                    )
                };
                if gone <= 0 {
                    break;
                }
                if gone as i32 == child {
                    let signal = status & 0x7f;
                    leave(if signal == 0 {
                        (status >> 8) & 0xff
                    } else {
                        128 + signal
                    });
                }
            }
        } else if FORWARDED.contains(&signal) {
            // SAFETY: the child is not reaped before its end is reported above, so the pid is ours.
            unsafe { call(SYS_KILL, child as usize, signal as usize, 0, 0) };
        }
    }
}

/// Turns this process into the command; never returns.
unsafe fn become_command(
    arguments: *const *const u8,
    environment: *const *const u8,
    has_terminal: bool,
) -> ! {
    // SAFETY: the pointers come from the initial stack, which never moves.
    unsafe {
        if has_terminal {
            // Job control: the command leads its own group, in the foreground. SIGTTOU is blocked here.
            let own = call(SYS_GETPID, 0, 0, 0, 0) as i32;
            call(SYS_SETPGID, 0, 0, 0, 0);
            call(SYS_IOCTL, 0, TIOCSPGRP, &own as *const i32 as usize, 0);
        }
        // The supervisor outside ignores some signals and that survives execve; a command starts clean.
        let default = [0usize; 4];
        let mut signal = 1;
        while signal <= 64 {
            call(
                SYS_RT_SIGACTION,
                signal,
                &default as *const usize as usize,
                0,
                8,
            );
            signal += 1;
        }
        let nothing: u64 = 0;
        call(
            SYS_RT_SIGPROCMASK,
            SIG_SETMASK,
            &nothing as *const u64 as usize,
            0,
            8,
        );

        let command = *arguments;
        let mut refused: isize = ENOENT;
        if contains_slash(command) {
            refused = call(
                SYS_EXECVE,
                command as usize,
                arguments as usize,
                environment as usize,
                0,
            );
        } else if let Some(mut path) = search_path(environment) {
            let mut candidate = [0u8; 4096];
            loop {
                let (next, fits) = join(path, command, &mut candidate);
                if fits {
                    let answer = call(
                        SYS_EXECVE,
                        candidate.as_ptr() as usize,
                        arguments as usize,
                        environment as usize,
                        0,
                    );
                    // A directory we may not search hides nothing that comes later on the path.
                    if answer != ENOENT && answer != ENOTDIR {
                        refused = answer;
                        if answer != EACCES {
                            break;
                        }
                    }
                }
                match next {
                    Some(rest) => path = rest,
                    None => break,
                }
            }
        }
        say(b"fardel: cannot run ");
        say_string(command);
        if refused == ENOENT || refused == ENOTDIR {
            say(b": no such program in this environment\n");
            leave(127);
        }
        if refused == EACCES {
            say(b": permission denied\n");
        } else {
            say(b": the system refused to run it\n");
        }
        leave(126)
    }
}

unsafe fn contains_slash(mut text: *const u8) -> bool {
    // SAFETY: a null-terminated string from the initial stack.
    unsafe {
        while *text != 0 {
            if *text == b'/' {
                return true;
            }
            text = text.add(1);
        }
    }
    false
}

/// The value of PATH, or nothing when the environment has none.
unsafe fn search_path(mut environment: *const *const u8) -> Option<*const u8> {
    // SAFETY: the environment ends with a null pointer, each entry with a null byte.
    unsafe {
        while !(*environment).is_null() {
            let entry = *environment;
            if *entry == b'P'
                && *entry.add(1) == b'A'
                && *entry.add(2) == b'T'
                && *entry.add(3) == b'H'
                && *entry.add(4) == b'='
            {
                return Some(entry.add(5));
            }
            environment = environment.add(1);
        }
    }
    None
}

/// Writes "first directory of `path`"/`command` into `into`; gives the rest of the path, and whether it fitted.
unsafe fn join(
    mut path: *const u8,
    mut command: *const u8,
    into: &mut [u8; 4096],
) -> (Option<*const u8>, bool) {
    let mut length = 0;
    let mut fits = true;
    let mut put = |byte: u8| {
        if length < into.len() - 1 {
            into[length] = byte;
            length += 1;
        } else {
            fits = false;
        }
    };
    // SAFETY: both strings are null-terminated.
    unsafe {
        let mut empty = true;
        while *path != 0 && *path != b':' {
            put(*path);
            empty = false;
            path = path.add(1);
        }
        if empty {
            put(b'.');
        }
        put(b'/');
        while *command != 0 {
            put(*command);
            command = command.add(1);
        }
        into[length] = 0;
        (
            if *path == b':' {
                Some(path.add(1))
            } else {
                None
            },
            fits,
        )
    }
}

fn say(text: &[u8]) {
    // SAFETY: the slice is valid for its length. A closed standard error is no fault here.
    unsafe { call(SYS_WRITE, 2, text.as_ptr() as usize, text.len(), 0) };
}

unsafe fn say_string(text: *const u8) {
    let mut length = 0;
    // SAFETY: null-terminated, from the initial stack.
    unsafe {
        while *text.add(length) != 0 {
            length += 1;
        }
        call(SYS_WRITE, 2, text as usize, length, 0);
    }
}

fn leave(code: i32) -> ! {
    loop {
        // SAFETY: ends this process.
        unsafe { call(SYS_EXIT_GROUP, code as usize, 0, 0, 0) };
    }
}

/// The compiler may call this for zeroing and copying; there is no C library to bring it.
///
/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(into: *mut u8, byte: i32, count: usize) -> *mut u8 {
    // SAFETY: the caller's promise; `rep stosb` is one instruction and cannot become a call to itself.
    unsafe {
        asm!("rep stosb", inout("rcx") count => _, inout("rdi") into => _, in("al") byte as u8, options(nostack, preserves_flags));
    }
    into
}

/// # Safety
/// As the C function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(into: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: as above.
    unsafe {
        asm!("rep movsb", inout("rcx") count => _, inout("rdi") into => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
    into
}

/// # Safety
/// As the C function of this name: `text` ends with a null byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let left: usize;
    // SAFETY: as above; `repne scasb` stops at the null byte.
    unsafe {
        asm!("repne scasb", inout("rcx") usize::MAX => left, inout("rdi") text => _, in("al") 0u8, options(nostack));
    }
    usize::MAX - left - 1
}

/// The precompiled core library names this symbol; nothing here ever unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    leave(125)
}
