//! Who holds a container to its part of a card's memory. Our library always does, inside; where this machine
//! has more, the driver or the kernel holds the container's control group beside it, which a program with
//! its own copy of the driver cannot pass. Decides by what is there and writes the kernel's own files;
//! loads nothing of the vendor's.

use std::fs;
use std::io;
use std::path::Path;

use rules::devices::Hold;

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
    /// The driver's library has its call for limits of control groups (`nvmlDeviceSetMemoryLimits_v1`, from
    /// version 615 on), and they are of version 2, which it needs.
    pub call: bool,
}

/// What of a card a container has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitTarget {
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
    #[error("the kernel says {said} for {region}, where {bytes} bytes were written")]
    Otherwise {
        region: String,
        bytes: u64,
        said: String,
    },
    #[error("the driver did not take the limit")]
    Driver(#[source] super::probe::ProbeError),
}

/// What there is beside our library on this machine, card by card.
pub trait Walls: Send + Sync {
    /// What there is for a device; nothing for one that nobody knows.
    fn offers(&self, device: &[u8; 16]) -> Offers;

    /// Has the driver hold a control group to so many bytes of a device; None: to nothing any more. May take
    /// as long as the driver does.
    fn ask_driver(
        &self,
        device: &[u8; 16],
        group: &Path,
        bytes: Option<u64>,
    ) -> Result<(), NotHeld>;
}

/// Holds a control group to a part of a device by the best there is, and gives what is in force then; `before`
/// is what was in force until now. Where one of the two fails the other is tried. Where both do, a larger
/// limit of before stays (neither takes one that is less than what is in use), and a smaller one is taken
/// away: nobody is held to less than was granted. The failure is said beside it.
pub fn hold(
    walls: &dyn Walls,
    device: &[u8; 16],
    group: &Path,
    part: LimitTarget,
    before: &Wall,
) -> (Wall, Option<NotHeld>) {
    let offers = walls.offers(device);
    let first = offers.wall(part);
    let second = Offers {
        call: false,
        ..offers
    }
    .wall(part);
    let mut failed = None;
    for wall in [first, second] {
        let done = match &wall {
            Wall::None | Wall::Hardware => return (wall, failed),
            Wall::Driver { bytes } => walls.ask_driver(device, group, Some(*bytes)),
            Wall::Kernel { region, bytes } => set(group, region, *bytes),
        };
        let Err(fault) = done else {
            return (wall, failed);
        };
        let stays = match (&wall, before) {
            (Wall::Driver { bytes }, Wall::Driver { bytes: older }) if older >= bytes => {
                Some(before.clone())
            }
            (Wall::Kernel { region, bytes }, _) => stands(group, region)
                .ok()
                .flatten()
                .filter(|older| older >= bytes)
                .map(|bytes| Wall::Kernel {
                    region: region.clone(),
                    bytes,
                }),
            _ => None,
        };
        if let Some(wall) = stays {
            return (wall, Some(failed.unwrap_or(fault)));
        }
        // Where that fails too, nothing can be done but to say so.
        let _ = match &wall {
            Wall::Driver { .. } => walls.ask_driver(device, group, None).map_err(|_| ()),
            Wall::Kernel { region, .. } => lift(group, region).map_err(|_| ()),
            Wall::None | Wall::Hardware => Ok(()),
        };
        let driver = matches!(wall, Wall::Driver { .. });
        failed.get_or_insert(fault);
        if !driver {
            break;
        }
    }
    (Wall::None, failed)
}

impl Offers {
    /// What there is for the card at this PCI address. `groups` is the root of the control groups of version 2
    /// (None on version 1); `call` says whether the driver's library has its call. Costs a read.
    pub fn find(groups: Option<&Path>, call: bool, pci: &str) -> Self {
        let Some(groups) = groups else {
            return Self::default();
        };
        let list = fs::read_to_string(groups.join(CAPACITY)).unwrap_or_default();
        Self {
            region: region(&list, pci),
            call,
        }
    }

    /// Who would hold slices of the card, for its page.
    pub fn hold(&self, partitioned: bool) -> Hold {
        let part = match partitioned {
            true => LimitTarget::Partition,
            false => LimitTarget::Slice { bytes: 0 },
        };
        self.wall(part).hold()
    }

    /// What holds a container to this part. The driver's call comes first: it knows best which of the kernel's
    /// regions are its own. A limit that is no smaller than the region would hold nobody.
    pub fn wall(&self, part: LimitTarget) -> Wall {
        let bytes = match part {
            LimitTarget::Slice { bytes } => bytes,
            LimitTarget::Partition | LimitTarget::Whole => return Wall::Hardware,
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

/// Sets the kernel's limit for the control group at `group`, and looks whether it is in force.
///
/// Errors: `Refused` for a group without the controller, `Otherwise` where the kernel keeps another number. A
/// limit below what is in use is not taken: kernels differ in whether they say so, and keep the older one.
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
    // The kernel counts in pages, and rounds down.
    match stands(group, region).map_err(refused)? {
        Some(kept) if kept <= bytes && bytes - kept < 4096 => Ok(()),
        said => Err(NotHeld::Otherwise {
            region: region.to_owned(),
            bytes,
            said: said.map_or_else(|| "no number".to_owned(), |kept| kept.to_string()),
        }),
    }
}

/// The kernel's limit of a control group; None where it has none.
fn stands(group: &Path, region: &str) -> io::Result<Option<u64>> {
    let text = fs::read_to_string(group.join(LIMIT))?;
    Ok(text
        .lines()
        .find_map(|line| line.strip_prefix(region)?.strip_prefix(' '))
        .and_then(|said| said.trim().parse().ok()))
}

/// Takes the kernel's limit away again.
fn lift(group: &Path, region: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(group.join(LIMIT))?;
    io::Write::write_all(&mut file, format!("{region} max\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PCI: &str = "0000:41:00.0";
    const GIB: u64 = 1 << 30;

    /// A root of control groups with these lines of capacity, and a driver with or without the call.
    fn machine(capacity: Option<&str>, call: bool) -> (tempfile::TempDir, Offers) {
        let root = tempfile::tempdir().expect("a directory");
        if let Some(capacity) = capacity {
            fs::write(root.path().join(CAPACITY), capacity).expect("written");
        }
        let offers = Offers::find(Some(root.path()), call, PCI);
        (root, offers)
    }

    #[test]
    fn limits_are_held_by_what_the_machine_has() {
        let both = "drm/0000:03:00.0/vram0 8514437120\ndrm/0000:41:00.0/vram0 85899345920\n";
        let slice = LimitTarget::Slice { bytes: 28 * GIB };
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
                LimitTarget::Whole,
                Wall::Hardware,
                Hold::Hardware,
            ),
            (
                Some(both),
                true,
                LimitTarget::Partition,
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
        assert_eq!(Offers::find(None, true, PCI).wall(slice), Wall::None);
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

    /// A card with these offers, and a driver that takes every limit or none.
    struct OfferedCard {
        offers: Offers,
        takes: bool,
        asked: std::sync::Mutex<Vec<Option<u64>>>,
    }

    impl Walls for OfferedCard {
        fn offers(&self, _: &[u8; 16]) -> Offers {
            self.offers.clone()
        }

        fn ask_driver(&self, _: &[u8; 16], _: &Path, bytes: Option<u64>) -> Result<(), NotHeld> {
            self.asked.lock().expect("alive").push(bytes);
            let refused = || super::super::probe::ProbeError::Library("not supported".into());
            self.takes
                .then_some(())
                .ok_or_else(|| NotHeld::Driver(refused()))
        }
    }

    #[test]
    fn the_best_wall_that_holds_is_in_force_and_none_is_left_by_halves() {
        const REGION: &str = "drm/0000:41:00.0/vram0";
        let slice = LimitTarget::Slice { bytes: GIB };
        let kernel = Wall::Kernel {
            region: REGION.into(),
            bytes: GIB,
        };
        // The call, whether the driver takes it, the kernel's file; then what is in force, whether a failure is
        // said, and what stands in that file.
        for (call, takes, file, wall, fails, stands) in [
            (true, true, true, Wall::Driver { bytes: GIB }, false, ""),
            (true, false, true, kernel.clone(), true, "1073741824"),
            (false, false, true, kernel, false, "1073741824"),
            (true, false, false, Wall::None, true, ""),
            (false, true, false, Wall::None, true, ""),
        ] {
            let group = tempfile::tempdir().expect("a directory");
            if file {
                fs::write(group.path().join(LIMIT), "").expect("written");
            }
            let card = OfferedCard {
                offers: Offers {
                    region: Some(Region {
                        name: REGION.into(),
                        bytes: 80 * GIB,
                    }),
                    call,
                },
                takes,
                asked: std::sync::Mutex::default(),
            };
            let (got, fault) = hold(&card, &[7; 16], group.path(), slice, &Wall::None);
            assert_eq!(got, wall, "{call} {takes} {file}");
            assert_eq!(fault.is_some(), fails, "{call} {takes} {file}: {fault:?}");
            let text = fs::read_to_string(group.path().join(LIMIT)).unwrap_or_default();
            assert!(text.trim_end().ends_with(stands), "{text}");
            // Whoever refused a limit is asked to hold nobody to an older one.
            let asked = match (call, takes) {
                (true, true) => vec![Some(GIB)],
                (true, false) => vec![Some(GIB), None],
                (false, _) => vec![],
            };
            assert_eq!(*card.asked.lock().expect("alive"), asked);
        }
    }

    #[test]
    fn a_kernel_that_keeps_another_number_holds_nobody_to_an_older_one() {
        let group = tempfile::tempdir().expect("a directory");
        let file = group.path().join(LIMIT);
        std::os::unix::fs::symlink("/dev/null", &file).expect("linked");
        let card = OfferedCard {
            offers: Offers {
                region: region("drm/0000:41:00.0/vram0 85899345920\n", PCI),
                call: false,
            },
            takes: false,
            asked: std::sync::Mutex::default(),
        };
        let (wall, fault) = hold(
            &card,
            &[7; 16],
            group.path(),
            LimitTarget::Slice { bytes: GIB },
            &Wall::None,
        );
        assert_eq!(wall, Wall::None);
        assert!(
            matches!(fault, Some(NotHeld::Otherwise { .. })),
            "{fault:?}"
        );
    }

    #[test]
    fn a_limit_below_what_is_in_use_leaves_the_larger_one_and_a_smaller_one_is_taken_away() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;

        const REGION: &str = "drm/0000:41:00.0/vram0";
        let older = |bytes| Wall::Kernel {
            region: REGION.into(),
            bytes,
        };
        // A file that shows two gibibytes and takes no other number, as the kernel's does.
        let name = c"kernel";
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::ALLOW_SEALING);
        let mut file = fs::File::from(file.expect("made"));
        writeln!(file, "{REGION} {}", 2 * GIB).expect("written");
        rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::WRITE).expect("sealed");
        let group = tempfile::tempdir().expect("a directory");
        let shown = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::os::unix::fs::symlink(shown, group.path().join(LIMIT)).expect("linked");
        let card = |call| OfferedCard {
            offers: Offers {
                region: region(&format!("{REGION} 85899345920\n"), PCI),
                call,
            },
            takes: false,
            asked: std::sync::Mutex::default(),
        };
        let held = |card: &OfferedCard, bytes, before: &Wall| {
            hold(
                card,
                &[7; 16],
                group.path(),
                LimitTarget::Slice { bytes },
                before,
            )
        };
        let (wall, fault) = held(&card(false), GIB, &older(2 * GIB));
        assert_eq!(wall, older(2 * GIB));
        assert!(matches!(fault, Some(NotHeld::Refused { .. })), "{fault:?}");
        // Granted more than that: it cannot be taken away here, and nobody says that it holds.
        let (wall, fault) = held(&card(false), 3 * GIB, &older(2 * GIB));
        assert_eq!(wall, Wall::None);
        assert!(fault.is_some());
        // The driver the same: it is asked to let go of the smaller one only.
        let before = Wall::Driver { bytes: 2 * GIB };
        let driver = card(true);
        assert_eq!(held(&driver, GIB, &before).0, before);
        assert_eq!(*driver.asked.lock().expect("alive"), [Some(GIB)]);
        let driver = card(true);
        assert_eq!(held(&driver, 3 * GIB, &before).0, Wall::None);
        assert_eq!(*driver.asked.lock().expect("alive"), [Some(3 * GIB), None]);
    }
}
