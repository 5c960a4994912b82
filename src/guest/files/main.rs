//! The program that serves the files of a session over SFTP, version 3 with OpenSSH's extensions: it runs inside the
//! container, as the session's user and under its filter, reads requests on standard input and answers on standard
//! output. Needs nothing of the image, and nothing but the standard library. Knows no host; what it may not open, the
//! session's user may not open.

mod attributes;
mod packet;

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, ReadDir};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use attributes::{Attributes, FileSystem, long_name};
use packet::{CutRequest, ReplyWriter, RequestReader};

/// The longest packet. Higher: one request holds more memory. Lower: transfers take more turns.
const MAX_PACKET: usize = 256 << 10;
/// The longest piece of a file in one packet.
const MAX_PIECE: usize = MAX_PACKET - 1024;
/// Files and folders that are open at once. Higher: a client that forgets takes the session's descriptors.
const MAX_HANDLES: usize = 512;
/// Entries of a folder in one answer.
const ENTRIES: usize = 100;
/// Answers that wait for more requests to be answered with them.
const ENOUGH: usize = 256 << 10;

const INIT: u8 = 1;
const VERSION: u8 = 2;
const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const READ: u8 = 5;
const WRITE: u8 = 6;
const LSTAT: u8 = 7;
const FSTAT: u8 = 8;
const SETSTAT: u8 = 9;
const FSETSTAT: u8 = 10;
const OPENDIR: u8 = 11;
const READDIR: u8 = 12;
const REMOVE: u8 = 13;
const MKDIR: u8 = 14;
const RMDIR: u8 = 15;
const REALPATH: u8 = 16;
const STAT: u8 = 17;
const RENAME: u8 = 18;
const READLINK: u8 = 19;
const SYMLINK: u8 = 20;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;
const EXTENDED: u8 = 200;
const EXTENDED_REPLY: u8 = 201;

const OK: u32 = 0;
const END_OF_FILE: u32 = 1;
const NO_SUCH_FILE: u32 = 2;
const PERMISSION_DENIED: u32 = 3;
const FAILURE: u32 = 4;
const BAD_MESSAGE: u32 = 5;
const UNSUPPORTED: u32 = 8;

/// Names and versions of what goes beyond version 3.
const EXTENSIONS: [(&str, &str); 9] = [
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
    ("copy-data", "1"),
];

/// Why a request has no answer but a status.
enum Refused {
    /// The system said no.
    System(io::Error),
    /// The packet is none.
    Bad,
    /// There is nothing more.
    End,
    Unsupported,
    Because(&'static str),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<CutRequest> for Refused {
    fn from(_: CutRequest) -> Self {
        Self::Bad
    }
}

/// Something that a client has open.
enum OpenHandle {
    File { file: File, appends: bool },
    Folder { entries: ReadDir, place: PathBuf },
}

struct FileServer {
    open: BTreeMap<u32, OpenHandle>,
    next: u32,
    answers: Vec<u8>,
}

fn main() -> ExitCode {
    attributes::name_process(c"sftp-server");
    let mut input = io::stdin().lock();
    // Not the standard library's own, which looks for the ends of lines.
    let output = io::stdout().as_fd().try_clone_to_owned();
    let Ok(mut output) = output.map(File::from) else {
        return ExitCode::FAILURE;
    };
    let mut server = FileServer {
        open: BTreeMap::new(),
        next: 0,
        answers: Vec::new(),
    };
    let mut received = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let mut at = 0;
        loop {
            match server.take(&received[at..]) {
                Ok(Some(length)) => at += length,
                Ok(None) => break,
                Err(why) => {
                    server.send(&mut output);
                    eprintln!("fardel: {why}");
                    return ExitCode::FAILURE;
                }
            }
            if server.answers.len() >= ENOUGH && !server.send(&mut output) {
                return ExitCode::SUCCESS;
            }
        }
        received.drain(..at);
        if !server.send(&mut output) {
            return ExitCode::SUCCESS;
        }
        match input.read(&mut buffer) {
            Ok(0) => return ExitCode::SUCCESS,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}

impl FileServer {
    /// Sends what was answered; false where no client reads any more.
    fn send(&mut self, output: &mut File) -> bool {
        let sent = output.write_all(&self.answers);
        self.answers.clear();
        sent.is_ok()
    }

    /// Answers the first whole packet and tells its length; None where there is none yet.
    fn take(&mut self, received: &[u8]) -> Result<Option<usize>, &'static str> {
        let Some(head) = received.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length == 0 || length > MAX_PACKET {
            return Err("a packet of a length that is none");
        }
        let Some(packet) = received.get(4..4 + length) else {
            return Ok(None);
        };
        self.answer(packet);
        Ok(Some(4 + length))
    }

    fn answer(&mut self, packet: &[u8]) {
        let mut request = RequestReader::new(&packet[1..]);
        if packet[0] == INIT {
            let mut reply = ReplyWriter::new(VERSION);
            reply.number(3);
            for (name, version) in EXTENSIONS {
                reply.string(name.as_bytes());
                reply.string(version.as_bytes());
            }
            reply.finish(&mut self.answers);
            return;
        }
        let Ok(id) = request.number() else {
            // Without a number it cannot be answered.
            return;
        };
        let answered = self.carry_out(packet[0], id, &mut request);
        let (code, words) = match answered {
            Ok(Some(reply)) => return reply.finish(&mut self.answers),
            Ok(None) => (OK, "done".to_owned()),
            Err(Refused::System(error)) => (code_of(&error), error.to_string()),
            Err(Refused::Bad) => (BAD_MESSAGE, "the request cannot be read".to_owned()),
            Err(Refused::End) => (END_OF_FILE, "end".to_owned()),
            Err(Refused::Unsupported) => (UNSUPPORTED, "not supported".to_owned()),
            Err(Refused::Because(words)) => (FAILURE, words.to_owned()),
        };
        let mut reply = ReplyWriter::new(STATUS);
        reply.number(id);
        reply.number(code);
        reply.string(words.as_bytes());
        reply.string(b"en");
        reply.finish(&mut self.answers);
    }

    /// Carries out one request; None stands for a plain success.
    fn carry_out(
        &mut self,
        kind: u8,
        id: u32,
        request: &mut RequestReader<'_>,
    ) -> Result<Option<ReplyWriter>, Refused> {
        match kind {
            OPEN => self.open_file(id, request).map(Some),
            OPENDIR => {
                let place = path(request)?;
                let entries = fs::read_dir(&place)?;
                self.keep(id, OpenHandle::Folder { entries, place })
                    .map(Some)
            }
            CLOSE => {
                let number = handle(request)?;
                match self.open.remove(&number) {
                    Some(_) => Ok(None),
                    None => Err(Refused::Because("this handle is not open")),
                }
            }
            READ => self.read(id, request).map(Some),
            WRITE => self.write(request).map(|()| None),
            READDIR => self.list(id, request).map(Some),
            STAT => Ok(Some(attributes_reply(id, &fs::metadata(path(request)?)?))),
            LSTAT => {
                let seen = fs::symlink_metadata(path(request)?)?;
                Ok(Some(attributes_reply(id, &seen)))
            }
            FSTAT => {
                let number = handle(request)?;
                let seen = self.file(number)?.0.metadata()?;
                Ok(Some(attributes_reply(id, &seen)))
            }
            SETSTAT => {
                let place = path(request)?;
                Attributes::read(request)?.set_on(&place, true)?;
                Ok(None)
            }
            FSETSTAT => {
                let number = handle(request)?;
                let wanted = Attributes::read(request)?;
                wanted.set_on_file(self.file(number)?.0)?;
                Ok(None)
            }
            REMOVE => Ok(fs::remove_file(path(request)?).map(|()| None)?),
            RMDIR => Ok(fs::remove_dir(path(request)?).map(|()| None)?),
            MKDIR => {
                let place = path(request)?;
                let mode = Attributes::read(request)?.permissions().unwrap_or(0o777);
                Ok(DirBuilder::new().mode(mode).create(place).map(|()| None)?)
            }
            REALPATH => Ok(Some(name_reply(id, &real_path(&path(request)?)?))),
            READLINK => {
                let target = fs::read_link(path(request)?)?;
                Ok(Some(name_reply(id, &target)))
            }
            RENAME => {
                let (from, to) = (path(request)?, path(request)?);
                if fs::symlink_metadata(&to).is_ok() {
                    return Err(Refused::Because("the new name is taken"));
                }
                Ok(fs::rename(from, to).map(|()| None)?)
            }
            SYMLINK => {
                // In the order that OpenSSH sends them, whatever the draft says.
                let (target, link) = (path(request)?, path(request)?);
                Ok(std::os::unix::fs::symlink(target, link).map(|()| None)?)
            }
            EXTENDED => self.extended(id, request),
            _ => Err(Refused::Unsupported),
        }
    }

    fn extended(
        &mut self,
        id: u32,
        request: &mut RequestReader<'_>,
    ) -> Result<Option<ReplyWriter>, Refused> {
        match request.string()? {
            b"posix-rename@openssh.com" => {
                let (from, to) = (path(request)?, path(request)?);
                Ok(fs::rename(from, to).map(|()| None)?)
            }
            b"hardlink@openssh.com" => {
                let (from, to) = (path(request)?, path(request)?);
                Ok(fs::hard_link(from, to).map(|()| None)?)
            }
            b"fsync@openssh.com" => {
                let number = handle(request)?;
                Ok(self.file(number)?.0.sync_all().map(|()| None)?)
            }
            b"lsetstat@openssh.com" => {
                let place = path(request)?;
                Attributes::read(request)?.set_on(&place, false)?;
                Ok(None)
            }
            b"statvfs@openssh.com" => {
                let place = c_string(&path(request)?)?;
                Ok(Some(FileSystem::at(&place)?.reply(EXTENDED_REPLY, id)))
            }
            b"fstatvfs@openssh.com" => {
                let number = handle(request)?;
                let system = FileSystem::of(self.file(number)?.0)?;
                Ok(Some(system.reply(EXTENDED_REPLY, id)))
            }
            b"limits@openssh.com" => {
                let mut reply = ReplyWriter::new(EXTENDED_REPLY);
                reply.number(id);
                for limit in [MAX_PACKET, MAX_PIECE, MAX_PIECE, MAX_HANDLES] {
                    reply.long(limit as u64);
                }
                Ok(Some(reply))
            }
            b"expand-path@openssh.com" => {
                let wanted = request.string()?;
                Ok(Some(name_reply(id, &real_path(&expanded(wanted)?)?)))
            }
            b"copy-data" => self.copy(request).map(|()| None),
            _ => Err(Refused::Unsupported),
        }
    }

    fn open_file(
        &mut self,
        id: u32,
        request: &mut RequestReader<'_>,
    ) -> Result<ReplyWriter, Refused> {
        const READS: u32 = 1;
        const WRITES: u32 = 2;
        const APPENDS: u32 = 4;
        const CREATES: u32 = 8;
        const EMPTIES: u32 = 16;
        const NEW: u32 = 32;
        let place = path(request)?;
        let flags = request.number()?;
        let mode = Attributes::read(request)?.permissions().unwrap_or(0o666);
        let has = |flag: u32| flags & flag != 0;
        let mut options = OpenOptions::new();
        // An append alone would hide that the file is also to be written.
        options
            .read(has(READS))
            .write(has(WRITES) && !has(APPENDS))
            .append(has(WRITES) && has(APPENDS))
            .create(has(CREATES) && !has(NEW))
            .create_new(has(CREATES) && has(NEW))
            .truncate(has(EMPTIES) && has(WRITES) && !has(APPENDS))
            .mode(mode);
        let file = options.open(place)?;
        let appends = has(APPENDS);
        self.keep(id, OpenHandle::File { file, appends })
    }

    fn keep(&mut self, id: u32, opened: OpenHandle) -> Result<ReplyWriter, Refused> {
        if self.open.len() >= MAX_HANDLES {
            return Err(Refused::Because("too many files are open"));
        }
        // Never one that is open, also after four thousand million.
        while self.open.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.open.insert(number, opened);
        let mut reply = ReplyWriter::new(HANDLE);
        reply.number(id);
        reply.string(&number.to_be_bytes());
        Ok(reply)
    }

    /// An open file, and whether what is written to it goes to its end.
    fn file(&self, number: u32) -> Result<(&File, bool), Refused> {
        match self.open.get(&number) {
            Some(OpenHandle::File { file, appends }) => Ok((file, *appends)),
            _ => Err(Refused::Because("this handle is no open file")),
        }
    }

    fn read(&mut self, id: u32, request: &mut RequestReader<'_>) -> Result<ReplyWriter, Refused> {
        let number = handle(request)?;
        let offset = request.long()?;
        let wanted = (request.number()? as usize).min(MAX_PIECE);
        let (file, _) = self.file(number)?;
        let mut piece = vec![0; wanted];
        let mut filled = 0;
        while filled < wanted {
            match file.read_at(&mut piece[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if filled == 0 && wanted > 0 {
            return Err(Refused::End);
        }
        let mut reply = ReplyWriter::new(DATA);
        reply.number(id);
        reply.string(&piece[..filled]);
        Ok(reply)
    }

    fn write(&mut self, request: &mut RequestReader<'_>) -> Result<(), Refused> {
        let number = handle(request)?;
        let offset = request.long()?;
        let piece = request.string()?;
        match self.file(number)? {
            (mut file, true) => file.write_all(piece)?,
            (file, false) => file.write_all_at(piece, offset)?,
        }
        Ok(())
    }

    /// The next entries of a folder. One that vanishes meanwhile is left out.
    fn list(&mut self, id: u32, request: &mut RequestReader<'_>) -> Result<ReplyWriter, Refused> {
        let number = handle(request)?;
        let Some(OpenHandle::Folder { entries, place }) = self.open.get_mut(&number) else {
            return Err(Refused::Because("this handle is no open folder"));
        };
        let mut found = Vec::new();
        while found.len() < ENTRIES {
            let Some(entry) = entries.next() else { break };
            let name = entry?.file_name();
            if let Ok(seen) = fs::symlink_metadata(place.join(&name)) {
                found.push((name, seen));
            }
        }
        if found.is_empty() {
            return Err(Refused::End);
        }
        let mut reply = ReplyWriter::new(NAME);
        reply.number(id);
        reply.number(found.len() as u32);
        for (name, seen) in found {
            reply.string(name.as_bytes());
            reply.string(&long_name(name.as_bytes(), &seen));
            Attributes::of(&seen).write(&mut reply);
        }
        Ok(reply)
    }

    /// Copies within the session, so that no byte crosses the line.
    fn copy(&mut self, request: &mut RequestReader<'_>) -> Result<(), Refused> {
        let from = handle(request)?;
        let mut read_at = request.long()?;
        let length = request.long()?;
        let to = handle(request)?;
        let mut write_at = request.long()?;
        if from == to {
            return Err(Refused::Because("a file cannot be copied onto itself"));
        }
        let ((source, _), (mut target, appends)) = (self.file(from)?, self.file(to)?);
        // No length: to the end.
        let mut left = if length == 0 { u64::MAX } else { length };
        let mut piece = vec![0; MAX_PIECE];
        while left > 0 {
            let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = source.read_at(&mut piece[..most], read_at)?;
            if count == 0 {
                break;
            }
            match appends {
                true => target.write_all(&piece[..count])?,
                false => target.write_all_at(&piece[..count], write_at)?,
            }
            read_at += count as u64;
            write_at += count as u64;
            left -= count as u64;
        }
        Ok(())
    }
}

fn code_of(error: &io::Error) -> u32 {
    match error.kind() {
        io::ErrorKind::NotFound => NO_SUCH_FILE,
        io::ErrorKind::PermissionDenied => PERMISSION_DENIED,
        io::ErrorKind::Unsupported => UNSUPPORTED,
        _ => FAILURE,
    }
}

/// The path of a request; an empty one is the folder that the program began in.
fn path(request: &mut RequestReader<'_>) -> Result<PathBuf, Refused> {
    let bytes = request.string()?;
    match bytes.is_empty() {
        true => Ok(PathBuf::from(".")),
        false => Ok(PathBuf::from(OsStr::from_bytes(bytes))),
    }
}

fn handle(request: &mut RequestReader<'_>) -> Result<u32, Refused> {
    let bytes = <[u8; 4]>::try_from(request.string()?).map_err(|_| Refused::Bad)?;
    Ok(u32::from_be_bytes(bytes))
}

fn c_string(path: &Path) -> Result<CString, Refused> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Refused::Bad)
}

/// Without links and dots; the last part need not exist.
fn real_path(path: &Path) -> Result<PathBuf, Refused> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or(error)?;
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            Ok(fs::canonicalize(parent.unwrap_or(Path::new(".")))?.join(name))
        }
        resolved => Ok(resolved?),
    }
}

/// A path that may begin with the home of the session's user.
fn expanded(wanted: &[u8]) -> Result<PathBuf, Refused> {
    let Some(rest) = wanted.strip_prefix(b"~") else {
        return Ok(PathBuf::from(OsStr::from_bytes(wanted)));
    };
    let home = std::env::var_os("HOME").ok_or(Refused::Because("the session has no home"))?;
    match rest {
        [] => Ok(home.into()),
        [b'/', ..] => {
            let mut path = home.into_vec();
            path.extend_from_slice(rest);
            Ok(PathBuf::from(std::ffi::OsString::from_vec(path)))
        }
        _ => Err(Refused::Because("other users have no home here")),
    }
}

fn attributes_reply(id: u32, seen: &Metadata) -> ReplyWriter {
    let mut reply = ReplyWriter::new(ATTRS);
    reply.number(id);
    Attributes::of(seen).write(&mut reply);
    reply
}

fn name_reply(id: u32, path: &Path) -> ReplyWriter {
    let name = path.as_os_str().as_bytes();
    let mut reply = ReplyWriter::new(NAME);
    reply.number(id);
    reply.number(1);
    reply.string(name);
    reply.string(name);
    Attributes::default().write(&mut reply);
    reply
}
