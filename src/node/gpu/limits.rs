//! Who holds a container to its part of a card's memory. Our library always does, inside; where this machine
//! has more, the kernel or the driver holds the container's control group beside it, which a program with
//! its own copy of the driver cannot pass. Decides by what is there and writes the kernel's own files;
//! loads nothing of the vendor's.

use std::fs;
use std::io;
use std::path::Path;

use rules::devices::Hold;

/// The driver's call for limits of control groups, in its library from version 615 on.
const CALL: &str = "nvmlDeviceSetMemoryLimits_v1";
/// The kernel's list of memories that control groups can be limited in, at the root of the tree.
const CAPACITY: &str = "dmem.capacity";
const LIMIT: &str = "dmem.max";

/// A memory that the kernel limits by control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// `drm/0000:41:00.0/vram0`
    pub name: String,
    pub bytes: u64,
}

/// What this machine has for limiting the memory of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// The kernel's own region for the card; None without the `dmem` controller, or where the card's kernel
    /// module does not register one.
    pub region: Option<Region>,
    /// The driver's library has the call, and control groups are of version 2, which it needs.
    pub call: bool,
}

/// What of a card a container has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// So many bytes of it.
    Slice { bytes: u64 },
    /// One of the partitions that it is cut into.
    Partition,
    /// All of it.
    Whole,
}

/// What holds a container beside our library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wall {
    /// Nothing does.
    None,
    /// The kernel, by a line in the control group's `dmem.max`.
    Kernel { region: String, bytes: u64 },
    /// The driver, by its call with the control group's path.
    Driver { bytes: u64 },
    /// The card itself: the part ends where the hardware ends.
    Hardware,
}

impl Wall {
    /// The same in a word, for those who look.
    pub fn hold(&self) -> Hold {
        match self {
            Self::None => Hold::Hook,
            Self::Kernel { .. } => Hold::HookAndKernel,
            Self::Driver { .. } => Hold::HookAndDriver,
            Self::Hardware => Hold::Hardware,
        }
    }
}

/// Why a limit is not in force.
#[derive(Debug, thiserror::Error)]
pub enum NotHeld {
    #[error("the kernel did not take the limit of {region}")]
    Refused { region: String, source: io::Error },
    #[error("the kernel says {said:?} for {region}, where {bytes} bytes were written")]
    Otherwise {
        region: String,
        bytes: u64,
        said: String,
    },
}

impl Offers {
    /// What there is for the card at this PCI address. `groups` is the root of the control groups of version 2
    /// (None on version 1), `library` the driver's NVML as a file. Costs a read of each.
    pub fn find(groups: Option<&Path>, library: Option<&Path>, pci: &str) -> Self {
        let Some(groups) = groups else {
            return Self::default();
        };
        let list = fs::read_to_string(groups.join(CAPACITY)).unwrap_or_default();
        let call = library
            .and_then(|path| fs::read(path).ok())
            .is_some_and(|bytes| names(&bytes, CALL));
        Self {
            region: region(&list, pci),
            call,
        }
    }

    /// Who would hold slices of the card, for its page.
    pub fn hold(&self, cut: bool) -> Hold {
        let part = match cut {
            true => Part::Partition,
            false => Part::Slice { bytes: 0 },
        };
        self.wall(part).hold()
    }

    /// What holds a container to this part. The driver's call comes first: it knows best which of the kernel's
    /// regions are its own. A limit that is no smaller than the region would hold nobody.
    pub fn wall(&self, part: Part) -> Wall {
        let bytes = match part {
            Part::Slice { bytes } => bytes,
            Part::Partition | Part::Whole => return Wall::Hardware,
        };
        match &self.region {
            _ if self.call => Wall::Driver { bytes },
            Some(region) if bytes < region.bytes => Wall::Kernel {
                region: region.name.clone(),
                bytes,
            },
            _ => Wall::None,
        }
    }
}

/// The card's line of the kernel's list.
fn region(list: &str, pci: &str) -> Option<Region> {
    let pci = pci.to_ascii_lowercase();
    list.lines().find_map(|line| {
        let (name, bytes) = line.rsplit_once(' ')?;
        // A part of the name, not of an address that only begins alike.
        let its = name.split('/').any(|part| part.eq_ignore_ascii_case(&pci));
        its.then_some(Region {
            name: name.to_owned(),
            bytes: bytes.trim().parse().ok()?,
        })
    })
}

/// Whether a library's tables of strings hold this name.
fn names(library: &[u8], name: &str) -> bool {
    let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
    library.windows(wanted.len()).any(|here| here == wanted)
}

/// Sets the kernel's limit for the control group at `group`, and looks whether it is in force. What is in use
/// beyond it stays; nothing more is given.
///
/// Errors: `Refused` for a group without the controller, `Otherwise` where the kernel keeps another number.
pub fn set(group: &Path, region: &str, bytes: u64) -> Result<(), NotHeld> {
    let refused = |source| NotHeld::Refused {
        region: region.to_owned(),
        source,
    };
    let path = group.join(LIMIT);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .map_err(refused)?;
    io::Write::write_all(&mut file, format!("{region} {bytes}\n").as_bytes()).map_err(refused)?;
    let text = fs::read_to_string(&path).map_err(refused)?;
    let said = text
        .lines()
        .find_map(|line| line.strip_prefix(region)?.strip_prefix(' '))
        .unwrap_or_default();
    // The kernel counts in pages, and rounds down.
    match said.parse::<u64>() {
        Ok(kept) if kept <= bytes && bytes - kept < 4096 => Ok(()),
        _ => Err(NotHeld::Otherwise {
            region: region.to_owned(),
            bytes,
            said: said.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PCI: &str = "0000:41:00.0";
    const GIB: u64 = 1 << 30;

    /// A root of control groups with these lines of capacity, and a library with or without the call.
    fn machine(capacity: Option<&str>, call: bool) -> (tempfile::TempDir, Offers) {
        let root = tempfile::tempdir().expect("a directory");
        if let Some(capacity) = capacity {
            fs::write(root.path().join(CAPACITY), capacity).expect("written");
        }
        let library = root.path().join("libnvidia-ml.so.1");
        let name = if call {
            CALL
        } else {
            "nvmlDeviceSetMemoryLimits_v10"
        };
        fs::write(&library, format!("\x7fELF\0nvmlInit_v2\0{name}\0")).expect("written");
        let offers = Offers::find(Some(root.path()), Some(&library), PCI);
        (root, offers)
    }

    #[test]
    fn limits_are_held_by_what_the_machine_has() {
        let both = "drm/0000:03:00.0/vram0 8514437120\ndrm/0000:41:00.0/vram0 85899345920\n";
        let slice = Part::Slice { bytes: 28 * GIB };
        let kernel = Wall::Kernel {
            region: "drm/0000:41:00.0/vram0".into(),
            bytes: 28 * GIB,
        };
        let driver = Wall::Driver { bytes: 28 * GIB };
        for (capacity, call, part, wall, hold) in [
            (None, false, slice, Wall::None, Hold::Hook),
            (Some(both), false, slice, kernel, Hold::HookAndKernel),
            (Some(both), true, slice, driver.clone(), Hold::HookAndDriver),
            (None, true, slice, driver, Hold::HookAndDriver),
            (
                Some(both),
                true,
                Part::Whole,
                Wall::Hardware,
                Hold::Hardware,
            ),
            (
                Some(both),
                true,
                Part::Partition,
                Wall::Hardware,
                Hold::Hardware,
            ),
            // Another card's region, and an address that only begins alike.
            (
                Some("drm/0000:03:00.0/vram0 1\n"),
                false,
                slice,
                Wall::None,
                Hold::Hook,
            ),
            (
                Some("drm/0000:41:00.01/vram0 99999999999\n"),
                false,
                slice,
                Wall::None,
                Hold::Hook,
            ),
            // A region that is no larger than the slice holds nobody.
            (
                Some("drm/0000:41:00.0/vram0 100\n"),
                false,
                slice,
                Wall::None,
                Hold::Hook,
            ),
            (Some("rubbish\n\n"), false, slice, Wall::None, Hold::Hook),
        ] {
            let (_root, offers) = machine(capacity, call);
            let got = offers.wall(part);
            assert_eq!(got, wall, "{capacity:?} {call} {part:?}");
            assert_eq!(got.hold(), hold);
        }
        let (_root, offers) = machine(Some(both), false);
        assert_eq!(
            (offers.hold(false), offers.hold(true)),
            (Hold::HookAndKernel, Hold::Hardware)
        );
        // Version 1 has neither.
        assert_eq!(Offers::find(None, None, PCI).wall(slice), Wall::None);
    }

    #[test]
    fn the_kernels_limit_is_written_and_a_group_without_the_controller_is_a_failure() {
        let group = tempfile::tempdir().expect("a directory");
        let region = "drm/0000:41:00.0/vram0";
        let missing = set(group.path(), region, GIB).expect_err("there is no such file");
        assert!(matches!(missing, NotHeld::Refused { .. }), "{missing}");
        let file = group.path().join(LIMIT);
        fs::write(&file, "").expect("written");
        set(group.path(), region, GIB).expect("it is taken");
        let text = fs::read_to_string(&file).expect("readable");
        assert_eq!(text, format!("{region} {GIB}\n"));
    }

    #[test]
    fn a_kernel_that_keeps_another_number_is_not_believed_to_hold() {
        // Every write to it is taken, and nothing of it is kept.
        let group = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink("/dev/null", group.path().join(LIMIT)).expect("linked");
        let otherwise = set(group.path(), "drm/x/vram0", GIB).expect_err("nothing is kept");
        assert!(
            matches!(otherwise, NotHeld::Otherwise { .. }),
            "{otherwise}"
        );
    }
}
