//! Reads the members of a tar stream one after the other with bounded memory: ustar, GNU long
//! names, PAX records and sparse files. Trusts no number it has not checked; never touches a file
//! system. The `tar` package decodes header fields; its own iterator is not used because it reads
//! extended headers of any declared size into memory.
//!
//! Rules: POSIX.1-2024 pax "ustar Interchange Format" and "pax Header"; GNU tar manual, "Basic Tar
//! Format" and "Storing Sparse Files".

use std::io::{self, Read};

use rules::refusals;
use tar::{EntryType, GnuExtSparseHeader, Header};

use super::failure::{ImageError, from_read, shown};
use super::limits::ImportLimits;

const BLOCK: u64 = 512;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberKind {
    File,
    Directory,
    Symlink,
    HardLink,
    Fifo,
    CharacterDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
}

/// One stretch of a sparse file that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// One member as its headers describe it. Names are raw bytes, not yet judged.
#[derive(Debug, Clone)]
pub(super) struct TarMember {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: MemberKind,
    /// Length of the file once unpacked; 0 for everything but files.
    pub(super) size: u64,
    /// Stored stretches in order, `None` when the whole file is stored.
    pub(super) sparse: Option<Vec<Stretch>>,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mtime_seconds: i64,
    pub(super) mtime_nanoseconds: u32,
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A reader that can pass over bytes, by seeking where it is able to.
pub(super) trait Skip: Read {
    /// Passes over `count` bytes; an error when fewer are left.
    fn skip(&mut self, count: u64) -> io::Result<()>;
}

/// The members of one tar stream, in order.
pub(super) struct Members<'a, R> {
    inner: R,
    limits: &'a ImportLimits,
    /// What is being read, for messages: "layer 2 (sha256:…)" or "the archive".
    what: String,
    /// Stored bytes of the current member not yet read.
    left: u64,
    /// Bytes that pad the current member to a whole block.
    padding: u64,
    seen: u64,
    most: u64,
}

/// Extended headers that belong to the next member.
#[derive(Default)]
struct Extended {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    sparse_major: Option<u64>,
    sparse_minor: Option<u64>,
    sparse_name: Option<Vec<u8>>,
    sparse_size: Option<u64>,
    sparse_map: Option<Vec<u8>>,
    sparse_old: bool,
    any: bool,
    /// How many headers there were, and their bytes.
    headers: usize,
    bytes: u64,
}

impl<'a, R: Skip> Members<'a, R> {
    pub(super) fn new(inner: R, what: String, most: u64, limits: &'a ImportLimits) -> Self {
        Self {
            inner,
            limits,
            what,
            left: 0,
            padding: 0,
            seen: 0,
            most,
        }
    }

    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// Stored bytes of the current member that have not been read yet.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn inner(&self) -> &R {
        &self.inner
    }

    pub(super) fn into_inner(self) -> R {
        self.inner
    }

    /// Reads stored bytes of the current member; 0 at its end.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> Result<usize, ImageError> {
        let want = buf
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if want == 0 {
            return Ok(0);
        }
        let n = self
            .inner
            .read(&mut buf[..want])
            .map_err(|error| from_read(error, &self.what))?;
        if n == 0 {
            return Err(from_read(io::ErrorKind::UnexpectedEof.into(), &self.what));
        }
        self.left -= n as u64;
        Ok(n)
    }

    /// The next member; `None` at the end of the archive. What was not read of the last one is
    /// passed over.
    pub(super) fn next(&mut self) -> Result<Option<TarMember>, ImageError> {
        let mut extended = Extended::default();
        loop {
            self.pass_over()?;
            let Some(header) = self.header()? else {
                if extended.any {
                    return Err(self.bad("an extended header is not followed by its member"));
                }
                return Ok(None);
            };
            self.seen += 1;
            if self.seen > self.most {
                return Err(refusals::image_too_many_members(&self.what, self.most).into());
            }
            let stored = self.number(header.entry_size(), "size")?;
            match header.entry_type() {
                EntryType::GNULongName => {
                    extended.name = Some(trim_zeros(self.document(stored, &mut extended)?));
                    extended.any = true;
                }
                EntryType::GNULongLink => {
                    extended.link = Some(trim_zeros(self.document(stored, &mut extended)?));
                    extended.any = true;
                }
                EntryType::XHeader => {
                    let records = self.document(stored, &mut extended)?;
                    self.pax(&records, &mut extended)?;
                    extended.any = true;
                }
                // Comments for the whole archive (git writes them); no meaning inside a layer.
                EntryType::XGlobalHeader => {
                    self.document(stored, &mut extended)?;
                }
                kind => return self.member(&header, kind, stored, extended).map(Some),
            }
        }
    }

    fn member(
        &mut self,
        header: &Header,
        kind: EntryType,
        stored: u64,
        extended: Extended,
    ) -> Result<TarMember, ImageError> {
        let stored = extended.size.unwrap_or(stored);
        let name = match (&extended.sparse_name, &extended.name) {
            (Some(name), _) | (None, Some(name)) => name.clone(),
            (None, None) => header.path_bytes().into_owned(),
        };
        let link = match &extended.link {
            Some(link) => link.clone(),
            None => header
                .link_name_bytes()
                .map(|l| l.into_owned())
                .unwrap_or_default(),
        };
        let device = |m: &Self| -> Result<(u32, u32), ImageError> {
            let major = m.number(header.device_major(), "device number")?;
            let minor = m.number(header.device_minor(), "device number")?;
            Ok((major.unwrap_or(0), minor.unwrap_or(0)))
        };
        let kind = match kind {
            // Old archives mark a directory only by the slash at its end.
            EntryType::Regular if name.ends_with(b"/") => MemberKind::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => MemberKind::File,
            EntryType::Directory => MemberKind::Directory,
            EntryType::Symlink => MemberKind::Symlink,
            EntryType::Link => MemberKind::HardLink,
            EntryType::Fifo => MemberKind::Fifo,
            EntryType::Char => {
                let (major, minor) = device(self)?;
                MemberKind::CharacterDevice { major, minor }
            }
            EntryType::Block => {
                let (major, minor) = device(self)?;
                MemberKind::BlockDevice { major, minor }
            }
            other => {
                return Err(self.bad(&format!(
                    "member {} is of the unknown kind {:?}",
                    shown(&name),
                    char::from(other.as_byte())
                )));
            }
        };
        if kind != MemberKind::File && stored != 0 {
            // Readers disagree whether such bytes are data or the next header; refusing is the only
            // answer that cannot be played against another reader.
            return Err(self.bad(&format!(
                "member {} is no file but declares {stored} bytes",
                shown(&name)
            )));
        }
        self.left = stored;
        self.padding = (BLOCK - stored % BLOCK) % BLOCK;
        let (size, sparse) = self.sparse(header, kind, stored, &extended, &name)?;
        let (mtime_seconds, mtime_nanoseconds) = match extended.mtime {
            Some(time) => time,
            None => {
                let raw = self.number(header.mtime(), "time")?;
                (i64::try_from(raw).unwrap_or(0), 0)
            }
        };
        Ok(TarMember {
            kind,
            size,
            sparse,
            mode: self.number(header.mode(), "mode")? & 0o7777,
            uid: match extended.uid {
                Some(uid) => uid,
                None => self.number(header.uid(), "owner")?,
            },
            gid: match extended.gid {
                Some(gid) => gid,
                None => self.number(header.gid(), "group")?,
            },
            mtime_seconds,
            mtime_nanoseconds,
            attributes: extended.attributes,
            name,
            link,
        })
    }

    /// Length and stored stretches of a file, in any of the three ways GNU tar marks holes.
    fn sparse(
        &mut self,
        header: &Header,
        kind: MemberKind,
        stored: u64,
        extended: &Extended,
        name: &[u8],
    ) -> Result<(u64, Option<Vec<Stretch>>), ImageError> {
        if kind != MemberKind::File {
            return Ok((0, None));
        }
        if extended.sparse_old {
            return Err(self.bad(&format!(
                "member {} marks its holes in the obsolete format 0.0",
                shown(name)
            )));
        }
        let (size, stretches) = if header.entry_type() == EntryType::GNUSparse {
            self.sparse_by_header(header, name)?
        } else if let Some(map) = &extended.sparse_map {
            let numbers = map
                .split(|b| *b == b',')
                .map(decimal)
                .collect::<Option<Vec<u64>>>()
                .ok_or_else(|| self.bad(&format!("the holes of {} cannot be read", shown(name))))?;
            (extended.sparse_size.unwrap_or(stored), pairs(&numbers))
        } else if (extended.sparse_major, extended.sparse_minor) == (Some(1), Some(0)) {
            let numbers = self.sparse_map_in_data(name)?;
            (extended.sparse_size.unwrap_or(stored), pairs(&numbers))
        } else if extended.sparse_major.is_some() {
            return Err(self.bad(&format!(
                "the holes of {} are in an unknown format",
                shown(name)
            )));
        } else {
            return Ok((stored, None));
        };
        // Only a map that accounts for every stored byte, in order, inside the file is believed.
        let mut end = 0u64;
        let mut sum = 0u64;
        for stretch in &stretches {
            let fits = stretch.offset >= end
                && stretch
                    .offset
                    .checked_add(stretch.length)
                    .is_some_and(|e| e <= size);
            if !fits {
                return Err(self.bad(&format!("the holes of {} overlap or overflow", shown(name))));
            }
            end = stretch.offset + stretch.length;
            sum += stretch.length;
        }
        if sum != self.left {
            return Err(self.bad(&format!(
                "the holes of {} do not account for its stored bytes",
                shown(name)
            )));
        }
        Ok((size, Some(stretches)))
    }

    fn sparse_by_header(
        &mut self,
        header: &Header,
        name: &[u8],
    ) -> Result<(u64, Vec<Stretch>), ImageError> {
        let unreadable = format!("the holes of {} cannot be read", shown(name));
        let gnu = header.as_gnu().ok_or_else(|| self.bad(&unreadable))?;
        let size = self.number(gnu.real_size(), "size")?;
        let mut stretches = Vec::new();
        let mut keep = |m: &Self, s: &tar::GnuSparseHeader| -> Result<(), ImageError> {
            if !s.is_empty() {
                stretches.push(Stretch {
                    offset: m.number(s.offset(), "hole")?,
                    length: m.number(s.length(), "hole")?,
                });
            }
            Ok(())
        };
        for s in &gnu.sparse {
            keep(self, s)?;
        }
        let mut more = gnu.is_extended();
        let most = self.limits.header_bytes / BLOCK;
        let mut blocks = 0;
        while more {
            blocks += 1;
            if blocks > most {
                return Err(self.bad(&unreadable));
            }
            let mut block = GnuExtSparseHeader::new();
            self.inner
                .read_exact(block.as_mut_bytes())
                .map_err(|error| from_read(error, &self.what))?;
            for s in block.sparse() {
                keep(self, s)?;
            }
            more = block.is_extended();
        }
        Ok((size, stretches))
    }

    /// Format 1.0: the map stands before the data, as decimal lines padded to a whole block.
    fn sparse_map_in_data(&mut self, name: &[u8]) -> Result<Vec<u64>, ImageError> {
        let unreadable = format!("the holes of {} cannot be read", shown(name));
        let most = self.limits.header_bytes;
        let mut numbers: Vec<u64> = Vec::new();
        let mut line = Vec::new();
        let mut block = [0u8; BLOCK as usize];
        let mut taken = 0;
        loop {
            if self.left < BLOCK || taken > most {
                return Err(self.bad(&unreadable));
            }
            self.inner
                .read_exact(&mut block)
                .map_err(|error| from_read(error, &self.what))?;
            self.left -= BLOCK;
            taken += BLOCK;
            for byte in block {
                if byte != b'\n' {
                    line.push(byte);
                    if line.len() > 20 {
                        return Err(self.bad(&unreadable));
                    }
                    continue;
                }
                numbers.push(decimal(&line).ok_or_else(|| self.bad(&unreadable))?);
                line.clear();
                let whole = numbers[0].checked_mul(2).and_then(|n| n.checked_add(1));
                match whole {
                    None => return Err(self.bad(&unreadable)),
                    Some(whole) if numbers.len() as u64 == whole => {
                        numbers.remove(0);
                        return Ok(numbers);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Passes over what is left of the current member.
    fn pass_over(&mut self) -> Result<(), ImageError> {
        let count = self.left + self.padding;
        self.left = 0;
        self.padding = 0;
        if count > 0 {
            self.inner
                .skip(count)
                .map_err(|error| from_read(error, &self.what))?;
        }
        Ok(())
    }

    /// The next header block with a right checksum; `None` at the end (two zero blocks, or the end
    /// of the stream exactly between members).
    fn header(&mut self) -> Result<Option<Header>, ImageError> {
        let mut header = Header::new_old();
        for zero_blocks in 0..2 {
            let block = header.as_mut_bytes();
            let mut filled = 0;
            while filled < block.len() {
                let n = self
                    .inner
                    .read(&mut block[filled..])
                    .map_err(|error| from_read(error, &self.what))?;
                if n == 0 {
                    break;
                }
                filled += n;
            }
            if filled == 0 {
                return Ok(None);
            }
            if filled < block.len() {
                return Err(from_read(io::ErrorKind::UnexpectedEof.into(), &self.what));
            }
            if block.iter().any(|b| *b != 0) {
                if zero_blocks == 1 {
                    return Err(self.bad("members follow its end mark"));
                }
                break;
            }
            if zero_blocks == 1 {
                return Ok(None);
            }
        }
        let sum: u32 = header
            .as_bytes()
            .iter()
            .enumerate()
            // The checksum field itself counts as eight spaces.
            .map(|(at, b)| {
                if (148..156).contains(&at) {
                    32
                } else {
                    u32::from(*b)
                }
            })
            .sum();
        if header.cksum().ok() != Some(sum) {
            return Err(self.bad("the checksum of a header is wrong"));
        }
        Ok(Some(header))
    }

    /// Reads an extended header whole. All that stand before one member count together: each may give names
    /// and attributes that are kept until the member comes.
    fn document(&mut self, stored: u64, of: &mut Extended) -> Result<Vec<u8>, ImageError> {
        of.headers += 1;
        of.bytes = of.bytes.saturating_add(stored);
        if of.bytes > self.limits.header_bytes {
            return Err(self.bad(&format!(
                "the extended headers of a member declare {} bytes, more than {}",
                of.bytes, self.limits.header_bytes
            )));
        }
        if of.headers > self.limits.headers {
            return Err(self.bad(&format!(
                "a member has more than {} extended headers",
                self.limits.headers
            )));
        }
        let mut bytes = vec![0; usize::try_from(stored).expect("at most header_bytes")];
        self.inner
            .read_exact(&mut bytes)
            .map_err(|error| from_read(error, &self.what))?;
        self.left = 0;
        self.padding = (BLOCK - stored % BLOCK) % BLOCK;
        Ok(bytes)
    }

    /// Takes the records of a PAX header: `length key=value\n`, length counting itself.
    fn pax(&self, mut records: &[u8], into: &mut Extended) -> Result<(), ImageError> {
        let wrong = || self.bad("a PAX header cannot be read");
        while !records.is_empty() {
            let space = records.iter().position(|b| *b == b' ').ok_or_else(wrong)?;
            let length = decimal(&records[..space])
                .and_then(|n| usize::try_from(n).ok())
                .ok_or_else(wrong)?;
            if length <= space + 1 || length > records.len() || records[length - 1] != b'\n' {
                return Err(wrong());
            }
            let record = &records[space + 1..length - 1];
            records = &records[length..];
            let equals = record.iter().position(|b| *b == b'=').ok_or_else(wrong)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            let number = || decimal(value).ok_or_else(wrong);
            // A NUL would cut the name in two at the system call, and differently elsewhere.
            let name = || {
                if value.contains(&0) {
                    Err(wrong())
                } else {
                    Ok(value.to_vec())
                }
            };
            match key {
                b"path" => into.name = Some(name()?),
                b"linkpath" => into.link = Some(name()?),
                b"size" => into.size = Some(number()?),
                b"uid" => into.uid = Some(number()?),
                b"gid" => into.gid = Some(number()?),
                b"mtime" => into.mtime = Some(seconds(value).ok_or_else(wrong)?),
                b"GNU.sparse.major" => into.sparse_major = Some(number()?),
                b"GNU.sparse.minor" => into.sparse_minor = Some(number()?),
                b"GNU.sparse.name" => into.sparse_name = Some(name()?),
                b"GNU.sparse.realsize" | b"GNU.sparse.size" => into.sparse_size = Some(number()?),
                b"GNU.sparse.map" => into.sparse_map = Some(value.to_vec()),
                b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => into.sparse_old = true,
                _ => {
                    if let Some(attribute) = key.strip_prefix(b"SCHILY.xattr.") {
                        if attribute.is_empty() || attribute.contains(&0) {
                            return Err(wrong());
                        }
                        into.attributes.push((attribute.to_vec(), value.to_vec()));
                    }
                }
            }
        }
        Ok(())
    }

    fn number<T>(&self, field: io::Result<T>, name: &str) -> Result<T, ImageError> {
        field.map_err(|_| self.bad(&format!("the {name} of a member is no number")))
    }

    fn bad(&self, what: &str) -> ImageError {
        refusals::image_bad_member(&self.what, what).into()
    }
}

fn trim_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

/// A plain decimal number of at most 20 digits that fits 64 bits.
fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 20 || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// A PAX time such as `1700000000.123456789` or `-1.5`; whole seconds rounded down.
fn seconds(bytes: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = i64::try_from(decimal(whole.as_bytes())?).ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut nanoseconds = 0u32;
    for at in 0..9 {
        let digit = fraction
            .as_bytes()
            .get(at)
            .map_or(0, |b| u32::from(b - b'0'));
        nanoseconds = nanoseconds * 10 + digit;
    }
    Some(match (negative, nanoseconds) {
        (false, n) => (whole, n),
        (true, 0) => (-whole, 0),
        (true, n) => (-whole - 1, 1_000_000_000 - n),
    })
}

fn pairs(numbers: &[u64]) -> Vec<Stretch> {
    numbers
        .chunks_exact(2)
        .map(|pair| Stretch {
            offset: pair[0],
            length: pair[1],
        })
        .filter(|stretch| stretch.length > 0)
        .collect()
}
