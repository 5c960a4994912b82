//! Unpacks one layer into the form overlayfs reads: whiteouts become character devices 0:0, opaque
//! directories carry `trusted.overlay.opaque`. Every path goes through `openat2` below the layer's
//! own directory without following any link; a name that would need one followed is refused.
//! Never reads a compressed byte, never decides where the layer is kept.
//!
//! Rules: OCI image specification 1.1, "Image Layer Filesystem Changeset"; Linux
//! Documentation/filesystems/overlayfs.rst, "whiteouts and opaque directories".

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use flate2::Crc;
use rules::refusals;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;

use super::failure::{Doing, ImageError, from_read, shown};
use super::limits::ImportLimits;
use super::lower::{self, Lower, LowerEntry, OPAQUE};
use super::members::{MemberKind, Members, Skip, TarMember};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE_MEMBER: &[u8] = b".wh..wh..opq";
/// Links of lower layers followed for one name, as the kernel counts them.
const LINKS: usize = 40;
/// Sessions map this many ids; files of others show up as those of the user `nobody`.
const MAPPED_IDS: u64 = 65_536;

/// What was found while unpacking a layer.
#[derive(Debug, Default)]
pub(super) struct UnpackFacts {
    /// Files, directories, links and pipes made.
    pub(super) entries: u64,
    /// Sum of the lengths of all files.
    pub(super) bytes: u64,
    /// The layer depends on the layers below it and cannot serve other images: it leaves out
    /// directories, links to lower files, or its whiteouts hit nothing.
    pub(super) bound: bool,
    /// The layer whites out the whole root: nothing below it may be seen.
    pub(super) hides_below: bool,
    /// Sentences for the person, each kind once.
    pub(super) warnings: BTreeSet<String>,
}

/// Sentences kept of one layer; a hostile one could make a million different ones.
const WARNINGS: usize = 16;

impl UnpackFacts {
    fn warn(&mut self, sentence: impl Into<String>) {
        if self.warnings.len() < WARNINGS {
            self.warnings.insert(sentence.into());
        }
    }
}

/// Which whiteouts of a layer become devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhiteoutRule {
    /// Those that hide something of the layers below.
    OverLower,
    /// All of them: the layer was packed from an unpacked one.
    AsPacked,
}

/// Asked before every stretch of bytes is written.
pub(super) trait SpaceGuard {
    /// Refuses when these bytes would break a limit or the disk's reserve.
    fn take(&mut self, bytes: u64) -> Result<(), ImageError>;
}

/// Unpacks all members into the empty directory `root`; writes one line per file to `contents`
/// (`crc32 length path`), so that a later check can name the damaged file.
pub(super) fn unpack<R: Skip>(
    members: &mut Members<'_, R>,
    root: BorrowedFd<'_>,
    contents: &mut impl Write,
    lower: Lower<'_>,
    rule: WhiteoutRule,
    room: &mut dyn SpaceGuard,
    limits: &ImportLimits,
) -> Result<UnpackFacts, ImageError> {
    let mut layer = LayerUnpack {
        root,
        lower,
        rule,
        room,
        limits,
        facts: UnpackFacts::default(),
        parent: None,
        times: BTreeMap::new(),
        names_held: 0,
        unlisted: BTreeSet::new(),
        opaque: BTreeSet::new(),
        whiteouts: 0,
        buffer: vec![0; 256 << 10],
    };
    while let Some(member) = members.next()? {
        layer.place(members, &member, contents)?;
    }
    layer.finish()?;
    Ok(layer.facts)
}

type Parts = Vec<Vec<u8>>;

struct LayerUnpack<'a> {
    root: BorrowedFd<'a>,
    lower: Lower<'a>,
    rule: WhiteoutRule,
    room: &'a mut dyn SpaceGuard,
    limits: &'a ImportLimits,
    facts: UnpackFacts,
    /// The directory used last, with its path.
    parent: Option<(Parts, Rc<OwnedFd>)>,
    /// Times of directories, set at the end because every new file changes them.
    times: BTreeMap<Parts, (i64, u32)>,
    names_held: usize,
    /// Directories made for a child but not (yet) listed themselves.
    unlisted: BTreeSet<Parts>,
    opaque: BTreeSet<Parts>,
    whiteouts: u64,
    buffer: Vec<u8>,
}

impl LayerUnpack<'_> {
    fn place<R: Skip>(
        &mut self,
        members: &mut Members<'_, R>,
        member: &TarMember,
        contents: &mut impl Write,
    ) -> Result<(), ImageError> {
        let path = parts(&member.name, "member", self.limits)?;
        check_owner(member)?;
        if member.uid.max(member.gid) >= MAPPED_IDS {
            self.facts.warn(format!(
                "Some files belong to ids above {}; in a session they belong to the user nobody.",
                MAPPED_IDS - 1
            ));
        }
        let Some((name, above)) = path.split_last() else {
            return self.root_directory(member);
        };
        if above.iter().any(|part| part.starts_with(WHITEOUT)) {
            return Err(bad_whiteout(&member.name));
        }
        if name.starts_with(WHITEOUT) {
            return self.whiteout(member, name, above);
        }
        let above = self.parent_of(above, &member.name)?;
        match member.kind {
            MemberKind::Directory => self.directory(member, &above, name)?,
            MemberKind::File => self.file(members, member, &above, name, contents)?,
            MemberKind::Symlink => self.symlink(member, &above, name)?,
            MemberKind::HardLink => self.hard_link(member, &above, name, contents)?,
            MemberKind::Fifo => self.fifo(member, &above, name)?,
            MemberKind::CharacterDevice { major, minor } => {
                if !usual_device(&member.name, major, minor) {
                    return Err(device(member));
                }
                // Every session gets its own /dev mounted over this one.
                self.facts.warn(
                    "The usual device nodes below /dev were left out; every session has its own /dev.",
                );
                return Ok(());
            }
            MemberKind::BlockDevice { .. } => return Err(device(member)),
        }
        self.facts.entries += 1;
        Ok(())
    }

    fn root_directory(&mut self, member: &TarMember) -> Result<(), ImageError> {
        if member.kind != MemberKind::Directory {
            return Err(refusals::image_replaces_root(shown(&member.name)).into());
        }
        self.describe(self.root, member)?;
        self.keep_time(Vec::new(), member.mtime_seconds, member.mtime_nanoseconds)
    }

    fn directory(
        &mut self,
        member: &TarMember,
        above: &Parts,
        name: &[u8],
    ) -> Result<(), ImageError> {
        let parent = self.open_parent(above)?;
        let path = joined(above, name);
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => {}
            Err(Errno::EXIST) => match occupant(parent.as_fd(), name)? {
                Some(FileType::Directory) => {
                    // Listed twice, or made (and counted) earlier for a child: the last
                    // description counts.
                    self.unlisted.remove(&path);
                    self.facts.entries -= 1;
                }
                Some(FileType::CharacterDevice) => {
                    self.replace_whiteout(parent.as_fd(), name)?;
                    rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o700))
                        .doing(|| making(&member.name))?;
                    self.make_opaque(parent.as_fd(), name, path.clone())?;
                }
                _ => return Err(duplicate(&member.name)),
            },
            Err(error) => return Err(error).doing(|| making(&member.name)),
        }
        let directory = lower::open_directory(parent.as_fd(), name)?;
        self.describe(directory.as_fd(), member)?;
        self.keep_time(path.clone(), member.mtime_seconds, member.mtime_nanoseconds)?;
        // A directory is mostly followed by what it holds.
        self.parent = Some((path, Rc::new(directory)));
        Ok(())
    }

    fn file<R: Skip>(
        &mut self,
        members: &mut Members<'_, R>,
        member: &TarMember,
        above: &Parts,
        name: &[u8],
        contents: &mut impl Write,
    ) -> Result<(), ImageError> {
        // Declared sizes are believed only up to the room there is; bytes are counted as they come.
        self.room.take(member.size)?;
        let parent = self.open_parent(above)?;
        let file = File::from(self.create(parent.as_fd(), name, &member.name)?);
        let mut crc = Crc::new();
        match &member.sparse {
            None => loop {
                let n = members.read(&mut self.buffer)?;
                if n == 0 {
                    break;
                }
                crc.update(&self.buffer[..n]);
                (&file)
                    .write_all(&self.buffer[..n])
                    .doing(|| making(&member.name))?;
            },
            Some(stretches) => {
                rustix::fs::ftruncate(&file, member.size).doing(|| making(&member.name))?;
                for stretch in stretches {
                    let mut at = stretch.offset;
                    let end = stretch.offset + stretch.length;
                    while at < end {
                        let most = self
                            .buffer
                            .len()
                            .min(usize::try_from(end - at).unwrap_or(usize::MAX));
                        let n = members.read(&mut self.buffer[..most])?;
                        if n == 0 {
                            return Err(from_read(ErrorKind::UnexpectedEof.into(), members.what()));
                        }
                        file.write_all_at(&self.buffer[..n], at)
                            .doing(|| making(&member.name))?;
                        at += n as u64;
                    }
                }
            }
        }
        self.describe(file.as_fd(), member)?;
        set_times(file.as_fd(), member.mtime_seconds, member.mtime_nanoseconds)
            .doing(|| making(&member.name))?;
        self.facts.bytes += member.size;
        let sum = member.sparse.is_none().then(|| crc.sum());
        note(contents, sum, member.size, above, name)
    }

    fn symlink(
        &mut self,
        member: &TarMember,
        above: &Parts,
        name: &[u8],
    ) -> Result<(), ImageError> {
        if member.link.is_empty() || member.link.len() > self.limits.path_bytes {
            return Err(bad_link(member, "its target is empty or too long"));
        }
        let parent = self.open_parent(above)?;
        let mut made = rustix::fs::symlinkat(member.link.as_slice(), &parent, name);
        if made == Err(Errno::EXIST) {
            self.make_way(parent.as_fd(), name, &member.name)?;
            made = rustix::fs::symlinkat(member.link.as_slice(), &parent, name);
        }
        made.doing(|| making(&member.name))?;
        self.describe_by_name(parent.as_fd(), name, member)
    }

    fn fifo(&mut self, member: &TarMember, above: &Parts, name: &[u8]) -> Result<(), ImageError> {
        let parent = self.open_parent(above)?;
        let make =
            || rustix::fs::mknodat(&parent, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0);
        let mut made = make();
        if made == Err(Errno::EXIST) {
            self.make_way(parent.as_fd(), name, &member.name)?;
            made = make();
        }
        made.doing(|| making(&member.name))?;
        self.describe_by_name(parent.as_fd(), name, member)?;
        // No other process knows this directory, so the name still means the pipe just made.
        let mode = Mode::from_raw_mode(member.mode);
        rustix::fs::chmodat(&parent, name, mode, AtFlags::empty()).doing(|| making(&member.name))
    }

    fn hard_link(
        &mut self,
        member: &TarMember,
        above: &Parts,
        name: &[u8],
        contents: &mut impl Write,
    ) -> Result<(), ImageError> {
        let target = parts(&member.link, "hard link to", self.limits)?;
        let Some((target_name, target_above)) = target.split_last() else {
            return Err(bad_link(member, "it links to the root"));
        };
        let holder = match self.beneath(target_above) {
            Ok(holder) => Some(Rc::new(holder)),
            Err(Errno::NOENT) => None,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(bad_link(member, "its target lies behind a link or a file"));
            }
            Err(error) => return Err(error).doing(|| making(&member.name)),
        };
        let occupied = match &holder {
            Some(holder) => occupant(holder.as_fd(), target_name)?,
            None => None,
        };
        let holder = match (holder, occupied) {
            (Some(holder), Some(kind)) => {
                if matches!(kind, FileType::Directory | FileType::CharacterDevice) {
                    return Err(bad_link(member, "its target is a directory or was removed"));
                }
                holder
            }
            _ => self.raise(member, &target, contents)?,
        };
        let parent = self.open_parent(above)?;
        let make = || {
            rustix::fs::linkat(
                &holder,
                target_name.as_slice(),
                &parent,
                name,
                AtFlags::empty(),
            )
        };
        let mut made = make();
        if made == Err(Errno::EXIST) {
            self.make_way(parent.as_fd(), name, &member.name)?;
            made = make();
        }
        made.doing(|| making(&member.name))
    }

    /// Copies a file of the lower layers up into this one, so that a hard link to it can be made;
    /// gives the directory it now lies in.
    fn raise(
        &mut self,
        member: &TarMember,
        target: &Parts,
        contents: &mut impl Write,
    ) -> Result<Rc<OwnedFd>, ImageError> {
        let nowhere = || bad_link(member, "its target is not in the image");
        let (name, above) = target.split_last().ok_or_else(nowhere)?;
        if self.hidden(target) {
            return Err(nowhere());
        }
        let LowerEntry::Other { parent: from, stat } = self.lower.look(target)? else {
            return Err(nowhere());
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(bad_link(member, "its target in a lower layer is no file"));
        }
        self.facts.bound = true;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.room.take(size)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let source = rustix::fs::openat(&from, name.as_slice(), flags, Mode::empty())
            .doing(|| making(&member.link))?;
        let above = self.parent_of(above, &member.link)?;
        let holder = self.open_parent(&above)?;
        let copy = File::from(self.create(holder.as_fd(), name, &member.link)?);
        let mut crc = Crc::new();
        loop {
            let n = rustix::io::read(&source, &mut self.buffer[..])
                .doing(|| "copy a file from a lower layer".into())?;
            if n == 0 {
                break;
            }
            crc.update(&self.buffer[..n]);
            (&copy)
                .write_all(&self.buffer[..n])
                .doing(|| "copy a file from a lower layer".into())?;
        }
        copy_description(source.as_fd(), copy.as_fd(), &stat)
            .doing(|| "copy a file from a lower layer".into())?;
        self.facts.bytes += size;
        self.facts.entries += 1;
        note(contents, Some(crc.sum()), size, &above, name)?;
        Ok(holder)
    }

    fn whiteout(
        &mut self,
        member: &TarMember,
        name: &[u8],
        above: &[Vec<u8>],
    ) -> Result<(), ImageError> {
        if name == OPAQUE_MEMBER {
            let at = self.parent_of(above, &member.name)?;
            let Some((last, before)) = at.split_last() else {
                // Overlayfs ignores the attribute on the root of a layer, so the stack ends here.
                self.facts.hides_below = true;
                self.opaque.insert(Vec::new());
                return Ok(());
            };
            let parent = self.open_parent(&before.to_vec())?;
            return self.make_opaque(parent.as_fd(), last, at.clone());
        }
        let hidden = &name[WHITEOUT.len()..];
        if hidden.is_empty() || hidden == b"." || hidden == b".." || hidden.starts_with(WHITEOUT) {
            return Err(bad_whiteout(&member.name));
        }
        if self.rule == WhiteoutRule::AsPacked {
            let parent = self.open_parent(&above.to_vec())?;
            let device = FileType::CharacterDevice;
            return rustix::fs::mknodat(&parent, hidden, device, Mode::empty(), 0)
                .doing(|| making(&member.name));
        }
        if self.lower.is_empty() {
            // Nothing lies below, and a device left behind would be listed by readdir.
            return Ok(());
        }
        if matches!(self.beneath(above), Err(Errno::NOTDIR | Errno::LOOP)) {
            // umoci lists what a directory held also when this layer puts a file or a link in its
            // place: that hides everything below already.
            return Ok(());
        }
        let path = joined(above, hidden);
        if self.hidden(&path) || matches!(self.lower.look(&path)?, LowerEntry::Nothing) {
            self.facts.bound = true;
            return self.whiteout_own(&path);
        }
        let above = self.parent_of(above, &member.name)?;
        let parent = self.open_parent(&above)?;
        let device = FileType::CharacterDevice;
        match rustix::fs::mknodat(&parent, hidden, device, Mode::empty(), 0) {
            Ok(()) => {
                self.whiteouts += 1;
                Ok(())
            }
            // A whiteout speaks of lower layers only: what this layer brings stays, but a directory
            // of it must not show what the lower one held.
            Err(Errno::EXIST) => match occupant(parent.as_fd(), hidden)? {
                Some(FileType::Directory) => {
                    self.make_opaque(parent.as_fd(), hidden, joined(&above, hidden))
                }
                _ => Ok(()),
            },
            Err(error) => Err(error).doing(|| making(&member.name)),
        }
    }

    /// A whiteout that hits nothing below still closes a directory of the same layer.
    fn whiteout_own(&mut self, path: &Parts) -> Result<(), ImageError> {
        let Some((name, above)) = path.split_last() else {
            return Ok(());
        };
        match self.beneath(above) {
            Ok(parent) if occupant(parent.as_fd(), name)? == Some(FileType::Directory) => {
                self.make_opaque(parent.as_fd(), name, path.clone())
            }
            _ => Ok(()),
        }
    }

    /// Where the directory `above` of a member lies in this layer, made where it is missing. The
    /// answer differs from the question only where a lower layer has a link in its place.
    fn parent_of(&mut self, above: &[Vec<u8>], member: &[u8]) -> Result<Parts, ImageError> {
        if above.is_empty()
            || self
                .parent
                .as_ref()
                .is_some_and(|(known, _)| known == above)
        {
            return Ok(above.to_vec());
        }
        match self.beneath(above) {
            Ok(directory) => {
                self.parent = Some((above.to_vec(), Rc::new(directory)));
                return Ok(above.to_vec());
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error).doing(|| making(member)),
        }
        let mut todo: VecDeque<Vec<u8>> = above.iter().cloned().collect();
        let mut done: Parts = Vec::new();
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            if part == b".." {
                done.pop();
                continue;
            }
            let directory = self.open_parent(&done)?;
            let path = joined(&done, &part);
            match occupant(directory.as_fd(), &part)? {
                Some(FileType::Directory) => {}
                Some(FileType::CharacterDevice) => {
                    self.replace_whiteout(directory.as_fd(), &part)?;
                    self.make_unlisted(directory.as_fd(), &part, &path)?;
                    self.make_opaque(directory.as_fd(), &part, path.clone())?;
                }
                Some(FileType::Symlink) => return Err(through_link(member, &path)),
                Some(_) => return Err(duplicate(&path.join(&b'/'))),
                None => {
                    let below = match self.hidden(&path) {
                        true => LowerEntry::Nothing,
                        false => self.lower.look(&path)?,
                    };
                    if let LowerEntry::Symlink(target) = below {
                        links += 1;
                        if links > LINKS {
                            return Err(through_link(member, &path));
                        }
                        self.facts.bound = true;
                        if target.first() == Some(&b'/') {
                            done.clear();
                        }
                        let kept = |p: &&[u8]| !p.is_empty() && *p != b".";
                        for part in target.split(|b| *b == b'/').filter(kept).rev() {
                            todo.push_front(part.to_vec());
                        }
                        continue;
                    }
                    self.make_unlisted(directory.as_fd(), &part, &path)?;
                }
            }
            done.push(part);
        }
        if done.len() > self.limits.depth
            || done.iter().map(|p| p.len() + 1).sum::<usize>() > self.limits.path_bytes
        {
            return Err(too_long(member));
        }
        Ok(done)
    }

    fn make_unlisted(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        path: &Parts,
    ) -> Result<(), ImageError> {
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)).doing(|| making(name))?;
        self.hold(path)?;
        self.facts.entries += 1;
        self.unlisted.insert(path.clone());
        Ok(())
    }

    /// Whether this layer already hides what lies below at this path.
    fn hidden(&self, path: &[Vec<u8>]) -> bool {
        if self.opaque.is_empty() {
            return false;
        }
        (0..path.len()).any(|n| self.opaque.contains(&path[..n]))
    }

    fn make_opaque(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        path: Parts,
    ) -> Result<(), ImageError> {
        let directory = lower::open_directory(parent, name)?;
        set_opaque(directory.as_fd())?;
        self.hold(&path)?;
        self.opaque.insert(path);
        Ok(())
    }

    fn replace_whiteout(&mut self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), ImageError> {
        rustix::fs::unlinkat(parent, name, AtFlags::empty()).doing(|| making(name))?;
        self.whiteouts -= 1;
        Ok(())
    }

    /// Clears a whiteout of this layer out of the way of a file; refuses anything else.
    fn make_way(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        member: &[u8],
    ) -> Result<(), ImageError> {
        match occupant(parent, name)? {
            Some(FileType::CharacterDevice) => self.replace_whiteout(parent, name),
            _ => Err(duplicate(member)),
        }
    }

    fn create(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        member: &[u8],
    ) -> Result<OwnedFd, ImageError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        match rustix::fs::openat(parent, name, flags, mode) {
            Err(Errno::EXIST) => {
                self.make_way(parent, name, member)?;
                rustix::fs::openat(parent, name, flags, mode).doing(|| making(member))
            }
            other => other.doing(|| making(member)),
        }
    }

    /// Opens a directory of this layer that is known to exist; remembers it for the next member.
    fn open_parent(&mut self, path: &Parts) -> Result<Rc<OwnedFd>, ImageError> {
        if let Some((known, directory)) = &self.parent
            && known == path
        {
            return Ok(Rc::clone(directory));
        }
        let directory = self.beneath(path);
        let directory = Rc::new(directory.doing(|| making(&path.join(&b'/')))?);
        self.parent = Some((path.clone(), Rc::clone(&directory)));
        Ok(directory)
    }

    fn beneath(&self, path: &[Vec<u8>]) -> Result<OwnedFd, Errno> {
        beneath(self.root, path)
    }

    fn hold(&mut self, path: &Parts) -> Result<(), ImageError> {
        self.names_held += path.iter().map(|p| p.len() + 32).sum::<usize>() + 64;
        if self.names_held > self.limits.directory_name_bytes {
            return Err(refusals::image_too_many_directories().into());
        }
        Ok(())
    }

    fn keep_time(&mut self, path: Parts, seconds: i64, nanoseconds: u32) -> Result<(), ImageError> {
        self.hold(&path)?;
        self.times.insert(path, (seconds, nanoseconds));
        Ok(())
    }

    /// Owner, mode and attributes, in the order in which the kernel does not undo them: a change of
    /// owner clears set-user-id bits and file capabilities.
    fn describe(&mut self, file: BorrowedFd<'_>, member: &TarMember) -> Result<(), ImageError> {
        let (uid, gid) = owner(member)?;
        rustix::fs::fchown(file, Some(uid), Some(gid)).doing(|| owning(&member.name))?;
        rustix::fs::fchmod(file, Mode::from_raw_mode(member.mode))
            .doing(|| making(&member.name))?;
        for (name, value) in &member.attributes {
            if !self.wanted_attribute(name, member)? {
                continue;
            }
            match rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) => {
                    self.facts.warn(format!(
                        "The disk cannot keep the attribute {}; it was left out.",
                        shown(name)
                    ));
                }
                Err(Errno::INVAL | Errno::RANGE | Errno::TOOBIG) => {
                    return Err(bad_attribute(member, name, "its value is not valid"));
                }
                Err(error) => return Err(error).doing(|| making(&member.name)),
            }
        }
        Ok(())
    }

    fn describe_by_name(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        member: &TarMember,
    ) -> Result<(), ImageError> {
        let (uid, gid) = owner(member)?;
        rustix::fs::chownat(
            parent,
            name,
            Some(uid),
            Some(gid),
            AtFlags::SYMLINK_NOFOLLOW,
        )
        .doing(|| owning(&member.name))?;
        for (attribute, _) in &member.attributes {
            if self.wanted_attribute(attribute, member)? {
                self.facts.warn(format!(
                    "The attribute {} of a link or pipe was left out.",
                    shown(attribute)
                ));
            }
        }
        let times = timestamps(member.mtime_seconds, member.mtime_nanoseconds);
        rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .doing(|| making(&member.name))
    }

    /// Overlay's own attributes would let a layer redirect into other directories: refused. Labels
    /// of the builder's machine mean nothing here: left out.
    fn wanted_attribute(&mut self, name: &[u8], member: &TarMember) -> Result<bool, ImageError> {
        if name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.") {
            return Err(bad_attribute(
                member,
                name,
                "overlay's own attributes are not taken",
            ));
        }
        let kept = name.starts_with(b"user.")
            || name == b"security.capability"
            || name == b"system.posix_acl_access"
            || name == b"system.posix_acl_default";
        if !kept {
            self.facts
                .warn(format!("Attributes called {} were left out.", shown(name)));
        }
        Ok(kept)
    }

    /// What can only be done once all members are there.
    fn finish(&mut self) -> Result<(), ImageError> {
        if self.whiteouts > 0 {
            for path in std::mem::take(&mut self.opaque) {
                // Below an opaque directory nothing is merged, so readdir would list the devices.
                let directory = self.beneath(&path);
                let directory = directory.doing(|| "tidy an opaque directory".into())?;
                remove_whiteouts(directory, self.limits.depth)?;
            }
        }
        for path in std::mem::take(&mut self.unlisted) {
            if self.lower.is_empty() {
                // By itself the bottom layer is all there is: the plain default stays.
                self.times.insert(path, (0, 0));
                continue;
            }
            self.facts.bound = true;
            let own = self
                .beneath(&path)
                .doing(|| "describe a directory".into())?;
            let below = match self.hidden(&path) {
                true => LowerEntry::Nothing,
                false => self.lower.look(&path)?,
            };
            match below {
                LowerEntry::Directory(below) => {
                    let stat = rustix::fs::fstat(&below).doing(|| "describe a directory".into())?;
                    copy_description(below.as_fd(), own.as_fd(), &stat)
                        .doing(|| "describe a directory".into())?;
                    self.times.insert(
                        path,
                        (
                            stat.st_mtime,
                            u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
                        ),
                    );
                }
                _ => {
                    self.times.insert(path, (0, 0));
                }
            }
        }
        for (path, (seconds, nanoseconds)) in std::mem::take(&mut self.times) {
            let directory = self
                .beneath(&path)
                .doing(|| "set a directory's time".into())?;
            set_times(directory.as_fd(), seconds, nanoseconds)
                .doing(|| "set a directory's time".into())?;
        }
        Ok(())
    }
}

/// Opens a directory below `root` (or `root` itself) without following any link.
pub(super) fn beneath(root: BorrowedFd<'_>, path: &[Vec<u8>]) -> Result<OwnedFd, Errno> {
    let path = match path {
        [] => b".".to_vec(),
        path => path.join(&b'/'),
    };
    rustix::fs::openat2(
        root,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV,
    )
}

/// The parts of a member's name, judged: relative, no `..`, no NUL, not too long, not too deep.
/// Empty for the root itself (`./`).
fn parts(name: &[u8], what: &str, limits: &ImportLimits) -> Result<Parts, ImageError> {
    let escape = |why: &str| refusals::image_path_escape(what, shown(name), why);
    if name.is_empty() {
        return Err(escape("has no name").into());
    }
    if name[0] == b'/' {
        return Err(escape("is absolute").into());
    }
    if name.contains(&0) {
        return Err(escape("contains a zero byte").into());
    }
    if name.len() > limits.path_bytes {
        return Err(too_long(name));
    }
    let mut parts = Vec::new();
    for part in name.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(escape("climbs out of the root").into()),
            part if part.len() > 255 => return Err(too_long(name)),
            part => parts.push(part.to_vec()),
        }
    }
    if parts.len() > limits.depth {
        return Err(too_long(name));
    }
    Ok(parts)
}

fn check_owner(member: &TarMember) -> Result<(), ImageError> {
    owner(member).map(|_| ())
}

/// 4294967295 means "leave as it is" to the kernel, so such a file would silently be root's.
fn owner(member: &TarMember) -> Result<(Uid, Gid), ImageError> {
    let id = |raw: u64| u32::try_from(raw).ok().filter(|id| *id != u32::MAX);
    match (id(member.uid), id(member.gid)) {
        (Some(uid), Some(gid)) => Ok((Uid::from_raw(uid), Gid::from_raw(gid))),
        _ => Err(refusals::image_bad_owner(shown(&member.name), member.uid, member.gid).into()),
    }
}

/// The nodes that debootstrap and its kin put into every root; sessions have their own.
fn usual_device(name: &[u8], major: u32, minor: u32) -> bool {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    matches!(
        (name, major, minor),
        (b"dev/null", 1, 3)
            | (b"dev/zero", 1, 5)
            | (b"dev/full", 1, 7)
            | (b"dev/random", 1, 8)
            | (b"dev/urandom", 1, 9)
            | (b"dev/tty", 5, 0)
            | (b"dev/console", 5, 1)
            | (b"dev/ptmx", 5, 2)
    )
}

fn joined(above: &[Vec<u8>], name: &[u8]) -> Parts {
    let mut path = Vec::with_capacity(above.len() + 1);
    path.extend_from_slice(above);
    path.push(name.to_vec());
    path
}

/// What stands under a name of this layer.
fn occupant(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileType>, ImageError> {
    Ok(lower::stat(parent, name)?.map(|stat| FileType::from_raw_mode(stat.st_mode)))
}

fn set_opaque(directory: BorrowedFd<'_>) -> Result<(), ImageError> {
    rustix::fs::fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())
        .doing(|| "mark an opaque directory".into())
}

fn timestamps(seconds: i64, nanoseconds: u32) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: i64::from(nanoseconds),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

fn set_times(file: BorrowedFd<'_>, seconds: i64, nanoseconds: u32) -> Result<(), Errno> {
    rustix::fs::futimens(file, &timestamps(seconds, nanoseconds))
}

/// Gives `to` the owner, mode, attributes and time of `from`.
fn copy_description(from: BorrowedFd<'_>, to: BorrowedFd<'_>, stat: &Stat) -> Result<(), Errno> {
    rustix::fs::fchown(
        to,
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let mut names = vec![0u8; rustix::fs::flistxattr(from, &mut [0u8; 0][..])?];
    let n = rustix::fs::flistxattr(from, &mut names[..])?;
    for name in names[..n]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
    {
        if name.starts_with(b"trusted.overlay.") {
            continue;
        }
        let mut value = vec![0u8; rustix::fs::fgetxattr(from, name, &mut [0u8; 0][..])?];
        let n = rustix::fs::fgetxattr(from, name, &mut value[..])?;
        rustix::fs::fsetxattr(to, name, &value[..n], XattrFlags::empty())?;
    }
    set_times(
        to,
        stat.st_mtime,
        u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
    )
}

/// Removes whiteouts in a directory and below it.
fn remove_whiteouts(directory: OwnedFd, depth: usize) -> Result<(), ImageError> {
    let doing = || "tidy an opaque directory".to_owned();
    let mut below = Vec::new();
    for entry in Dir::read_from(&directory).doing(doing)? {
        let entry = entry.doing(doing)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        match occupant(directory.as_fd(), name)? {
            Some(FileType::CharacterDevice) => {
                rustix::fs::unlinkat(&directory, name, AtFlags::empty()).doing(doing)?;
            }
            Some(FileType::Directory) if depth > 0 => below.push(name.to_vec()),
            _ => {}
        }
    }
    for name in below {
        let child = lower::open_directory(directory.as_fd(), &name)?;
        remove_whiteouts(child, depth - 1)?;
    }
    Ok(())
}

/// One line of the list of contents: `crc32 length path`; `-` where holes make a sum too dear.
fn note(
    contents: &mut impl Write,
    sum: Option<u32>,
    size: u64,
    above: &[Vec<u8>],
    name: &[u8],
) -> Result<(), ImageError> {
    let mut line = match sum {
        Some(sum) => format!("{sum:08x} {size} ").into_bytes(),
        None => format!("- {size} ").into_bytes(),
    };
    for part in above {
        line.extend_from_slice(part);
        line.push(b'/');
    }
    line.extend_from_slice(name);
    // Names may hold anything but zero, so zero ends the line.
    line.push(0);
    contents
        .write_all(&line)
        .doing(|| "write the list of contents".into())
}

fn making(name: &[u8]) -> String {
    format!("unpack {}", shown(name))
}

fn owning(name: &[u8]) -> String {
    format!("give {} its owner", shown(name))
}

fn too_long(name: &[u8]) -> ImageError {
    refusals::image_path_too_long(shown(name)).into()
}

fn duplicate(name: &[u8]) -> ImageError {
    refusals::image_duplicate_member(shown(name)).into()
}

fn through_link(member: &[u8], link: &[Vec<u8>]) -> ImageError {
    refusals::image_through_link(shown(member), shown(&link.join(&b'/'))).into()
}

fn bad_link(member: &TarMember, why: &str) -> ImageError {
    refusals::image_bad_link(shown(&member.name), shown(&member.link), why).into()
}

fn bad_whiteout(name: &[u8]) -> ImageError {
    refusals::image_bad_whiteout(shown(name)).into()
}

fn bad_attribute(member: &TarMember, attribute: &[u8], why: &str) -> ImageError {
    refusals::image_bad_attribute(shown(&member.name), shown(attribute), why).into()
}

fn device(member: &TarMember) -> ImageError {
    refusals::image_device_node(shown(&member.name)).into()
}
