//! The second test machine: the same root and the same contract under Debian's own kernel, on a whole
//! machine with several processors that QEMU computes. For what User-Mode Linux lacks: cpuset, more
//! than one processor, pressure figures, firmware. Every instruction is translated; `/dev/kvm` is never
//! used, since one that can be opened need not run an ordinary kernel. Never a measure of speed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::order::{Emulated, Order, mount_word};
use super::root;
use crate::failure::Failure;
use crate::program::{self, Program};

/// Debian's place for the firmware of a machine with UEFI, and the variables it begins with.
const FIRMWARE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// How long a computed guest may neither say nor do anything: on a loaded machine its firmware alone
/// takes minutes.
pub(super) const BOOT_TIMEOUT: Duration = Duration::from_secs(300);

/// Why this machine cannot run such a guest, if so.
pub(super) fn missing(firmware: bool) -> Option<String> {
    if let Some(reason) = root::missing() {
        return Some(reason);
    }
    if !program::installed("qemu-system-x86_64") {
        return Some("qemu-system-x86_64 is not installed (Debian: qemu-system-x86)".to_owned());
    }
    (firmware && !Path::new(FIRMWARE).exists())
        .then(|| format!("{FIRMWARE} is not there (Debian: ovmf)"))
}

/// The program to start for this order, in the guest's own folder. What it says on its first serial
/// line comes over standard input, both ways; its console goes to `console`.
pub(super) fn command(
    order: &Order<'_>,
    emulated: &Emulated,
    folder: &Path,
    bed: &Path,
) -> Result<Program, Failure> {
    let kernel = &emulated.kernel;
    let mut line = "console=ttyS1 bed.mount=bed:rw: quiet panic=-1 mitigations=off \
                    root=/dev/vda rdinit=/init systemd.getty_auto=0"
        .to_owned();
    let mut command = Program::named("qemu-system-x86_64")
        .words("-accel tcg,thread=multi -machine q35 -cpu qemu64 -nodefaults -no-user-config")
        .words("-display none -no-reboot -device virtio-rng-pci -m")
        .argument(format!("{}M", order.memory_mib))
        .words("-smp")
        .argument(emulated.processors.to_string())
        .words("-chardev socket,id=line,fd=0 -device isa-serial,chardev=line")
        .words("-chardev file,id=console,append=on,path=console -device isa-serial,chardev=console")
        .words("-drive")
        .argument(disk(order)?)
        .words("-kernel")
        .argument(kernel.image())
        .words("-initrd")
        .argument(kernel.first_root())
        .words("-virtfs")
        .argument(shown("modules", &kernel.modules(), true)?)
        .words("-virtfs")
        .argument(shown("bed", bed, false)?)
        .variable("TMPDIR", folder)
        .inside(folder);
    for (name, path) in &order.shares {
        command = command.words("-virtfs").argument(shown(name, path, true)?);
        line += &format!(" {}", mount_word(name, path)?);
    }
    if let Some(stick) = &order.stick {
        command = command.words("-drive").argument(format!(
            "if=virtio,format=raw,readonly=on,file={}",
            stick.display()
        ));
    }
    if emulated.firmware {
        let variables = folder.join("variables");
        fs::copy(VARIABLES, &variables)
            .map_err(|error| Failure::new(format!("{VARIABLES}: {error}")))?;
        command = command
            .words("-drive")
            .argument(format!(
                "if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE}"
            ))
            .words("-drive if=pflash,format=raw,unit=1,file=variables");
    }
    Ok(command.words("-append").argument(line))
}

/// The guest's disk: over the root's image where it is thrown away, else a copy that is kept.
fn disk(order: &Order<'_>) -> Result<String, Failure> {
    let image = &order.root.image;
    let Some(kept) = &order.disk else {
        return Ok(format!(
            "if=virtio,format=raw,snapshot=on,file={}",
            image.display()
        ));
    };
    if !kept.exists() {
        let part = kept.with_extension("part");
        Program::named("cp")
            .words("--sparse=always")
            .argument(image)
            .argument(&part)
            .run()?;
        fs::rename(&part, kept)
            .map_err(|error| Failure::new(format!("{}: {error}", kept.display())))?;
    }
    // What the guest had flushed is with our kernel; nothing here survives a power cut of this machine.
    Ok(format!(
        "if=virtio,format=raw,cache=unsafe,file={}",
        kept.display()
    ))
}

/// A folder as the guest may mount it by this name.
fn shown(name: &str, path: &Path, read_only: bool) -> Result<String, Failure> {
    // Refuses what neither this word nor the kernel's command line can carry.
    mount_word(name, path)?;
    let path = path
        .canonicalize()
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    let read_only = if read_only { ",readonly=on" } else { "" };
    Ok(format!(
        "local,mount_tag={name},security_model=none,multidevs=remap,path={}{read_only}",
        path.display()
    ))
}
