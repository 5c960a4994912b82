//! The device fence on control groups version 2: a small program in the kernel that answers every
//! open of a device for one container. Only listed character devices pass. Fails closed: without
//! the fence a container does not start. On version 1 the devices controller does the same work.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use super::rootfs::own;
use super::spec::{DEVICES, TERMINAL_MAJOR};
use crate::gpu::DeviceOrder;

/// One instruction of the kernel's extended filter language (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct BpfInstruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x57;
const JUMP_UNEQUAL: u8 = 0x55;
const SET: u8 = 0xb7;
const EXIT: u8 = 0x95;

const PROGRAM_LOAD: libc::c_long = 5;
const PROGRAM_ATTACH: libc::c_long = 8;
const TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_CGROUP_DEVICE: u32 = 6;
const CHARACTER_DEVICE: i32 = 2;

/// Attaches the fence to a control group directory, with openings for the devices that were granted. From
/// here on every process in it is held.
pub(super) fn fence(group: &Path, granted: &[DeviceOrder]) -> io::Result<()> {
    let group = File::open(group)?;
    let program = load(&program(granted))?;
    let attributes = [
        group.as_raw_fd() as u32,
        program.as_raw_fd() as u32,
        ATTACH_CGROUP_DEVICE,
        0,
    ];
    // SAFETY: the attributes have the kernel's layout for this command and outlive the call. The
    // group keeps the program alive after our descriptor is closed.
    unsafe {
        bpf(
            PROGRAM_ATTACH,
            attributes.as_ptr().cast(),
            size_of_val(&attributes),
        )
    }?;
    Ok(())
}

/// Load type and numbers of the device; allow the listed; refuse everything else.
fn program(granted: &[DeviceOrder]) -> Vec<BpfInstruction> {
    let step = |code, registers, offset, value| BpfInstruction {
        code,
        registers,
        offset,
        value,
    };
    // The context arrives in register 1: kind and access, major, minor.
    let mut steps = vec![
        step(LOAD_WORD, 0x12, 0, 0),
        step(AND, 0x02, 0, 0xffff),
        step(LOAD_WORD, 0x13, 4, 0),
        step(LOAD_WORD, 0x14, 8, 0),
        step(JUMP_UNEQUAL, 0x02, 3, CHARACTER_DEVICE),
        step(JUMP_UNEQUAL, 0x03, 4, TERMINAL_MAJOR.cast_signed()),
        step(SET, 0x00, 0, 1),
        step(EXIT, 0x00, 0, 0),
        // What is no character device lands here.
        step(SET, 0x00, 0, 0),
        step(EXIT, 0x00, 0, 0),
    ];
    let granted = granted.iter().map(|device| (device.major, device.minor));
    for (major, minor) in DEVICES.into_iter().chain(granted) {
        steps.extend([
            step(JUMP_UNEQUAL, 0x03, 3, major.cast_signed()),
            step(JUMP_UNEQUAL, 0x04, 2, minor.cast_signed()),
            step(SET, 0x00, 0, 1),
            step(EXIT, 0x00, 0, 0),
        ]);
    }
    steps.extend([step(SET, 0x00, 0, 0), step(EXIT, 0x00, 0, 0)]);
    steps
}

fn load(steps: &[BpfInstruction]) -> io::Result<OwnedFd> {
    /// The first fields of the kernel's attributes for loading; the rest are zero.
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        steps: u64,
        license: u64,
        rest: [u64; 13],
    }
    let attributes = Load {
        kind: TYPE_CGROUP_DEVICE,
        count: u32::try_from(steps.len()).map_err(io::Error::other)?,
        steps: steps.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        rest: [0; 13],
    };
    // SAFETY: the pointers inside outlive the call; the answer is a new descriptor of ours alone.
    unsafe {
        Ok(own(bpf(
            PROGRAM_LOAD,
            (&raw const attributes).cast(),
            size_of::<Load>(),
        )?))
    }
}

/// # Safety
/// `attributes` must have the layout of `command` and hold valid pointers.
unsafe fn bpf(command: libc::c_long, attributes: *const u8, size: usize) -> io::Result<i32> {
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size) };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's verdict, by an interpreter of the few instructions used.
    fn verdict(kind: u32, major: u32, minor: u32) -> i32 {
        judged(&[], kind, major, minor)
    }

    fn judged(granted: &[DeviceOrder], kind: u32, major: u32, minor: u32) -> i32 {
        let context = [kind | (6 << 16), major, minor];
        let steps = program(granted);
        let mut registers = [0i32; 5];
        let mut at = 0usize;
        loop {
            let step = steps[at];
            let to = usize::from(step.registers & 0xf);
            at += 1;
            match step.code {
                LOAD_WORD => {
                    registers[to] =
                        context[usize::try_from(step.offset).expect("positive") / 4].cast_signed()
                }
                AND => registers[to] &= step.value,
                SET => registers[to] = step.value,
                JUMP_UNEQUAL if registers[to] != step.value => {
                    at += usize::try_from(step.offset).expect("forward")
                }
                JUMP_UNEQUAL => {}
                EXIT => return registers[0],
                other => panic!("unknown instruction {other}"),
            }
        }
    }

    #[test]
    fn only_listed_character_devices_pass_the_fence() {
        for (major, minor) in DEVICES {
            assert_eq!(verdict(2, major, minor), 1);
            assert_eq!(
                verdict(1, major, minor),
                0,
                "a block device of the same numbers"
            );
        }
        assert_eq!(verdict(2, TERMINAL_MAJOR, 17), 1, "any terminal");
        assert_eq!(verdict(1, TERMINAL_MAJOR, 17), 0);
        assert_eq!(verdict(2, 10, 229), 0, "fuse");
        assert_eq!(verdict(2, 1, 1), 0, "memory");
        assert_eq!(verdict(2, 195, 0), 0, "a GPU that was not granted");
        let granted = [(195, 0), (195, 255)].map(|(major, minor)| DeviceOrder {
            at: "/dev/nvidia".into(),
            major,
            minor,
        });
        assert_eq!(judged(&granted, 2, 195, 0), 1, "one that was");
        assert_eq!(judged(&granted, 2, 195, 1), 0, "its neighbour");
        assert_eq!(judged(&granted, 1, 195, 0), 0, "a disk of its numbers");
    }

    #[test]
    fn the_kernel_takes_the_fence_and_holds_to_it() {
        const NAME: &str = "the_kernel_takes_the_fence_and_holds_to_it";
        if !rustix::process::geteuid().is_root() {
            return skips::skip(NAME, "needs root to load a program into the kernel");
        }
        let unified = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .map(Path::new)
            .into_iter()
            .find(|root| {
                root.join("cgroup.procs").exists() && root.join("cgroup.controllers").exists()
            });
        let Some(unified) = unified else {
            return skips::skip(NAME, "no version 2 hierarchy is mounted");
        };
        let group = unified.join(format!("fardel-fence-{}", std::process::id()));
        std::fs::create_dir(&group).expect("a group of our own");
        fence(&group, &[]).expect("the kernel takes the program");
        let script = format!(
            "echo $$ > {}/cgroup.procs; (: < /dev/null) && echo null; (: < /dev/zero) && echo zero; (: < /dev/vda) && echo disk; (: < /dev/kmsg) && echo kmsg",
            group.display()
        );
        let said = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .expect("a shell");
        while std::fs::remove_dir(&group).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(String::from_utf8_lossy(&said.stdout), "null\nzero\n");
    }
}
