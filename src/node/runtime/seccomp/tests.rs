//! Runs compiled filters on an interpreter written from the kernel's documentation.

use super::*;

/// What the kernel would answer for a call with these arguments.
fn verdict(filter: &SeccompFilter, architecture: u32, call: u32, arguments: [u64; 2]) -> u32 {
    let mut data = [0u8; 64];
    data[0..4].copy_from_slice(&call.to_le_bytes());
    data[4..8].copy_from_slice(&architecture.to_le_bytes());
    data[16..24].copy_from_slice(&arguments[0].to_le_bytes());
    data[24..32].copy_from_slice(&arguments[1].to_le_bytes());
    let mut held = 0u32;
    let mut at = 0;
    loop {
        let step = filter.program[at];
        let taken = match step.code {
            LOAD_WORD => {
                let from = step.value as usize;
                held = u32::from_le_bytes(data[from..from + 4].try_into().expect("four bytes"));
                at += 1;
                continue;
            }
            RETURN => return step.value,
            JUMP_EQUAL => held == step.value,
            JUMP_GREATER => held > step.value,
            JUMP_GREATER_OR_EQUAL => held >= step.value,
            JUMP_ANY_BIT => held & step.value != 0,
            other => panic!("an instruction the generator never writes: {other}"),
        };
        at += 1 + usize::from(if taken { step.on_true } else { step.on_false });
    }
}

fn native(call: libc::c_long, arguments: [u64; 2]) -> u32 {
    verdict(
        &SeccompFilter::compile(Revealing::ToShim),
        ARCHITECTURE_X86_64,
        call as u32,
        arguments,
    )
}

#[test]
fn every_refused_call_is_refused_and_ordinary_work_is_allowed() {
    for call in REFUSED {
        assert_eq!(native(*call, [0, 0]), refuse(libc::EPERM), "call {call}");
    }
    for call in [
        libc::SYS_read,
        libc::SYS_execve,
        libc::SYS_futex,
        libc::SYS_openat,
        libc::SYS_ptrace,
        libc::SYS_mmap,
        libc::SYS_chroot,
    ] {
        assert_eq!(native(call, [0, 0]), ALLOW, "call {call}");
    }
}

#[test]
fn a_foreign_architecture_is_killed_and_x32_does_not_exist() {
    let filter = SeccompFilter::compile(Revealing::Allowed);
    assert_eq!(
        verdict(&filter, 0x4000_0003, libc::SYS_read as u32, [0, 0]),
        KILL_PROCESS
    );
    assert_eq!(
        verdict(
            &filter,
            ARCHITECTURE_X86_64,
            X32_BIT | libc::SYS_mount as u32,
            [0, 0]
        ),
        refuse(libc::ENOSYS)
    );
}

#[test]
fn calls_of_a_later_kernel_do_not_exist() {
    assert_eq!(
        native(libc::c_long::from(LAST_REVIEWED_CALL + 1), [0, 0]),
        refuse(libc::ENOSYS)
    );
}

#[test]
fn clone_makes_threads_but_no_namespaces() {
    let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;
    assert_eq!(native(libc::SYS_clone, [thread, 0]), ALLOW);
    for flag in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWPID,
    ] {
        assert_eq!(
            native(libc::SYS_clone, [flag as u64 | 17, 0]),
            refuse(libc::EPERM)
        );
    }
    assert_eq!(native(libc::SYS_clone3, [0, 0]), refuse(libc::ENOSYS));
}

#[test]
fn only_known_socket_families_personalities_and_terminal_requests_pass() {
    assert_eq!(native(libc::SYS_socket, [libc::AF_INET6 as u64, 0]), ALLOW);
    assert_eq!(
        native(libc::SYS_socket, [libc::AF_ALG as u64, 0]),
        refuse(libc::EAFNOSUPPORT)
    );
    assert_eq!(
        native(libc::SYS_socketpair, [libc::AF_UNIX as u64, 0]),
        ALLOW
    );
    assert_eq!(native(libc::SYS_personality, [0xffff_ffff, 0]), ALLOW);
    assert_eq!(
        native(libc::SYS_personality, [0x0040_0000, 0]),
        refuse(libc::EPERM)
    );
    assert_eq!(native(libc::SYS_ioctl, [0, 0x5412]), refuse(libc::EPERM));
    // The kernel compares 32 bits: high bits must not hide the request.
    assert_eq!(
        native(libc::SYS_ioctl, [0, 0xffff_ffff_0000_5412]),
        refuse(libc::EPERM)
    );
    assert_eq!(native(libc::SYS_ioctl, [0, 0x5413]), ALLOW);
}

#[test]
fn the_size_of_the_machine_is_asked_of_the_shim() {
    for call in ANSWERED {
        assert_eq!(native(call, [0, 0]), NOTIFY);
        assert_eq!(
            verdict(
                &SeccompFilter::compile(Revealing::Allowed),
                ARCHITECTURE_X86_64,
                call as u32,
                [0, 0]
            ),
            ALLOW
        );
    }
}
