//! What is done with the files of a folder from outside of sessions: users look at them, take them, make, move and remove
//! some. Each asks first what the caller may do with them; what the disk does runs on threads that no caller waits on.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::folders::{
    FolderEntryQuery, FolderEntryView, FolderMoveBody, FolderRemovalBody, NewFolderDirectoryBody,
    RemovedEntriesBody, RemovedEntryView,
};
use api::page::ListPage;
use base::observe::chain;
use bytes::Bytes;
use rules::folder::{Folder, FolderState, TRASH_DAYS};
use rules::folder_path::{FolderEntryKind, FolderPath};
use rules::folder_rights::FolderVerb;
use rules::names::{FolderId, VolumeId};
use rules::permissions::Permission;
use rules::refusals;
use rules::units::Timestamp;
use sha2::{Digest as _, Sha256};
use store::folders::FolderStore;
use store::folders::archive::{ArchiveFormat, FolderArchive};
use store::folders::failure::FolderError;
use store::folders::files::FolderFile;
use store::folders::listing::{EntryQuery, FolderEntry};
use store::folders::ordered::{EntrySortKey, SortedPosition, SortedQuery};
use store::folders::position::EntryPosition;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::notebook::{self, MAX_NOTEBOOK_BYTES, NotebookCell};
use super::turns::FolderTurn;
use super::{FolderTurns, find, note, permitted, refuse_unready};
use crate::access::{self, Caller, Lease};
use crate::actions::storage::{count_again, count_on_volume, tell_counted};
use crate::actions::volumes::{apart, on_volume, refuse_silent};
use crate::actions::{cursor, somewhere};
use crate::appliance::lazy_stores::folder_error;
use crate::catalog::{Lane, origin};
use crate::{Failure, Server, ServerFault};

/// Entries of a page, where none are asked for.
pub(super) const PAGE: usize = 200;
/// Entries of a page. Higher: pages that take long to draw. Lower: programs ask more often, and each page costs a look at
/// the whole directory.
pub(super) const MAX_PAGE_ENTRIES: usize = 500;
/// Bytes of the words that names are searched for.
pub(super) const MAX_WORDS: usize = 4096;
/// Paths that one request removes, moves, copies or makes an archive of. Higher: a request holds a thread for longer. Lower:
/// programs ask more often.
const MAX_REMOVED_AT_ONCE: usize = 1000;
/// Bytes of a file that are read to be shown. Higher: pages that take long to draw. Lower: a log shows less of itself.
const MAX_PREVIEW_BYTES: usize = 256 << 10;
/// Lines and columns of a table that are shown. More: as `MAX_PREVIEW_BYTES`.
const MAX_PREVIEW_ROWS: usize = 200;
const MAX_PREVIEW_COLUMNS: usize = 50;
/// Held while a notebook is read: its tree may take twenty times its bytes, and two at once twice as much.
static NOTEBOOKS: Mutex<()> = Mutex::new(());
/// Bytes of one piece of a download, of which one is read ahead. Higher: more memory for each. Lower: more calls.
const PIECE: u64 = 256 << 10;
/// Between two looks whether the right to a folder still holds whose files are on their way. Longer: more is taken after its end
/// than the two seconds that are promised. Shorter: each download costs more reads of the catalog.
const LEASE_LOOK: Duration = Duration::from_secs(1);

/// One page of a directory, with where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectoryPage {
    pub folder: Folder,
    /// The directory, as text.
    pub path: String,
    pub page: ListPage<FolderEntryView>,
    /// False where the directory has more names than are looked at.
    pub whole: bool,
}

/// One page of a directory: directories first, then all else, by name or as it is asked for.
///
/// Errors: `folder.not-found`, `folder.files-own`, `folder.right-missing`, `folder.in-trash`, `folder.purging`; `folder.path-invalid`,
/// `folder.entry-not-found`, `folder.entry-link`; `limit.out-of-range`, `cursor.invalid`, `query.too-long`; `sort.unknown`,
/// `folder.sort-too-many`.
pub async fn list(
    server: &Server,
    caller: &Caller,
    which: &str,
    wanted: &FolderEntryQuery,
) -> Result<DirectoryPage, Failure> {
    let limit = wanted.limit.unwrap_or(PAGE);
    let path = wanted.path.clone();
    let (words, asked) = (wanted.q.clone(), wanted.cursor.clone());
    let sort = wanted.sort.clone();
    let signing = server.catalog().founding().cursor_key;
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Read,
        move |store, folder| {
            if !(1..=MAX_PAGE_ENTRIES).contains(&limit) {
                return Err(refusals::limit_out_of_range(MAX_PAGE_ENTRIES)
                    .at("/limit")
                    .into());
            }
            if words.len() > MAX_WORDS {
                return Err(refusals::query_too_long(words.len(), MAX_WORDS)
                    .at("/q")
                    .into());
            }
            let path = FolderPath::parse(&path).map_err(|refusal| refusal.at("/path"))?;
            let bound = format!("entries|{}|{path}|{words}|{sort}", folder.id);
            let asked = asked.as_deref().filter(|text| !text.is_empty());
            if let Some((key, descending)) = sort_of(&sort)? {
                let after = match asked {
                    None => None,
                    Some(text) => {
                        let place = cursor::read::<(bool, i64, Vec<u8>)>(&signing, &bound, text)?;
                        let (is_behind, value, name) = place;
                        Some(SortedPosition {
                            is_behind,
                            value,
                            name,
                        })
                    }
                };
                let query = SortedQuery {
                    key,
                    descending,
                    after,
                    words,
                    limit,
                };
                let page = store.list_sorted(folder.id, &path, &query)?;
                let next = page
                    .next
                    .map(|last| (last.is_behind, last.value, last.name));
                let items = page.entries.iter();
                let items = items.filter_map(|one| Some(view(&path.child(&one.name)?, one)));
                let list = ListPage {
                    items: items.collect(),
                    next_cursor: next.map(|last| cursor::write(&signing, &bound, &last)),
                    estimated_total: page.total,
                };
                return Ok((path.to_string(), list, true));
            }
            let after = match asked {
                None => None,
                Some(text) => Some(cursor::read::<(bool, Vec<u8>)>(&signing, &bound, text)?),
            };
            let query = EntryQuery {
                after: after.map(|(is_behind, name)| EntryPosition { is_behind, name }),
                words,
                limit,
            };
            let page = store.list(folder.id, &path, &query)?;
            let next = page.next.map(|last| (last.is_behind, last.name));
            let items = page.entries.into_iter();
            let items = items.filter_map(|one| Some(view(&path.child(&one.name)?, &one)));
            let list = ListPage {
                items: items.collect(),
                next_cursor: next.map(|last| cursor::write(&signing, &bound, &last)),
                estimated_total: page.total,
            };
            Ok((path.to_string(), list, page.whole))
        },
    );
    let (folder, (path, page, whole)) = done.await?;
    Ok(DirectoryPage {
        folder,
        path,
        page,
        whole,
    })
}

/// What a word of `sort` asks for; None: by name, as directories are listed.
fn sort_of(word: &str) -> Result<Option<(EntrySortKey, bool)>, FolderError> {
    let (descending, key) = match word.strip_prefix('-') {
        Some(key) => (true, key),
        None => (false, word),
    };
    match (key, descending) {
        ("" | "name", false) => Ok(None),
        ("name", true) => Ok(Some((EntrySortKey::Name, true))),
        ("size", descending) => Ok(Some((EntrySortKey::Size, descending))),
        ("modified_at", descending) => Ok(Some((EntrySortKey::Modified, descending))),
        _ => Err(refusals::folder_sort_unknown().at("/sort").into()),
    }
}

/// A file as a page shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilePreview {
    Text {
        text: String,
        /// More of it comes behind.
        is_cut: bool,
    },
    Table {
        rows: Vec<Vec<String>>,
        is_cut: bool,
    },
    /// A notebook, of which nothing is run.
    Notebook {
        cells: Vec<NotebookCell>,
        is_cut: bool,
    },
    /// An image of a sort that browsers show and no script is in.
    Image,
    /// What it holds is not shown.
    Nothing,
}

/// What a path leads to, with what a page shows of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDetail {
    pub folder: Folder,
    pub entry: FolderEntryView,
    /// The directory that it lies in, as text.
    pub parent: String,
    pub preview: FilePreview,
}

/// What a path leads to; of a file, its begin.
///
/// Errors: as `list`.
pub async fn show(
    server: &Server,
    caller: &Caller,
    which: &str,
    path: &str,
) -> Result<EntryDetail, Failure> {
    let path = path.to_owned();
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Read,
        move |store, folder| {
            let path = parsed(&path)?;
            let entry = view(&path, &store.entry(folder.id, &path)?);
            let preview = match entry.kind {
                FolderEntryKind::File => preview(store, folder, &path)?,
                _ => FilePreview::Nothing,
            };
            Ok((entry, path.parent().to_string(), preview))
        },
    );
    let (folder, (entry, parent, preview)) = done.await?;
    Ok(EntryDetail {
        folder,
        entry,
        parent,
        preview,
    })
}

fn preview(
    store: &FolderStore,
    folder: &Folder,
    path: &FolderPath,
) -> Result<FilePreview, FolderError> {
    let open = store.file(folder.id, path)?;
    if open.image.is_some() {
        return Ok(FilePreview::Image);
    }
    let name = path.shown_name().to_lowercase();
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    // Half a notebook is none.
    if ending == Some("ipynb")
        && open.size <= MAX_NOTEBOOK_BYTES as u64
        && let Some(bytes) = read_head(&open.file, MAX_NOTEBOOK_BYTES)
        && let Some(text) = text_of(&bytes, false)
    {
        // It guards nothing that a panic could leave half done.
        let alone = NOTEBOOKS.lock().unwrap_or_else(PoisonError::into_inner);
        let read = notebook::cells(text);
        drop(alone);
        if let Some((cells, is_cut)) = read {
            return Ok(FilePreview::Notebook { cells, is_cut });
        }
    }
    // What a disk cannot read is not shown; a download says so.
    let Some(head) = read_head(&open.file, MAX_PREVIEW_BYTES) else {
        return Ok(FilePreview::Nothing);
    };
    let is_cut = open.size > head.len() as u64;
    let Some(text) = text_of(&head, is_cut) else {
        return Ok(FilePreview::Nothing);
    };
    let delimiter = match ending {
        Some("csv") => b',',
        Some("tsv") => b'\t',
        _ => {
            let text = text.to_owned();
            return Ok(FilePreview::Text { text, is_cut });
        }
    };
    Ok(table(text, delimiter, is_cut))
}

/// The begin of a file, at most `most` bytes; None where the disk cannot read it.
pub(super) fn read_head(file: &std::fs::File, most: usize) -> Option<Vec<u8>> {
    let mut head = vec![0; most];
    let mut length = 0;
    while length < head.len() {
        match file.read_at(&mut head[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    head.truncate(length);
    Some(head)
}

/// The text that bytes are; None where they are none.
pub(super) fn text_of(bytes: &[u8], is_cut: bool) -> Option<&str> {
    if bytes.contains(&0) {
        return None;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        // The last character was cut in two.
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

fn table(text: &str, delimiter: u8, is_cut: bool) -> FilePreview {
    // A last line that was cut in the middle says something else than the file.
    let whole = match (is_cut, text.rfind('\n')) {
        (true, Some(end)) => &text[..end],
        _ => text,
    };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .from_reader(whole.as_bytes());
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut has_more = is_cut;
    for record in reader.records() {
        let Ok(record) = record else { break };
        if rows.len() == MAX_PREVIEW_ROWS {
            has_more = true;
            break;
        }
        has_more |= record.len() > MAX_PREVIEW_COLUMNS;
        let fields = record.iter().take(MAX_PREVIEW_COLUMNS);
        rows.push(fields.map(str::to_owned).collect());
    }
    FilePreview::Table {
        rows,
        is_cut: has_more,
    }
}

/// A file that is taken, as it was when it was opened.
#[derive(Debug)]
pub struct FileDownload {
    pub folder: FolderId,
    pub name: String,
    pub size: u64,
    pub modified_at: Timestamp,
    /// Differs once the file does; without quotes.
    pub tag: String,
    /// The media type of an image that pages may show; that of any bytes for all else.
    pub kind: &'static str,
    file: Arc<std::fs::File>,
    /// What the file lies on; None: the box's own disk.
    volume: Option<VolumeId>,
    turns: Arc<FolderTurns>,
}

impl FileDownload {
    /// The pieces of `length` bytes from `from` on. They break off where the file became shorter.
    pub fn pieces(&self, from: u64, length: u64) -> FilePieces {
        FilePieces {
            file: Arc::clone(&self.file),
            volume: self.volume,
            turns: Arc::clone(&self.turns),
            at: from,
            left: length,
            ahead: None,
        }
    }
}

/// The bytes of a file, piece by piece.
#[derive(Debug)]
pub struct FilePieces {
    file: Arc<std::fs::File>,
    /// What the file lies on; None: the box's own disk.
    volume: Option<VolumeId>,
    turns: Arc<FolderTurns>,
    at: u64,
    left: u64,
    /// The piece that is read while the one before it is sent.
    ahead: Option<JoinHandle<io::Result<Bytes>>>,
}

impl FilePieces {
    /// The next piece; None at the end. Nothing comes behind an error.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let reading = match self.ahead.take() {
            Some(reading) => reading,
            None if self.left == 0 => return None,
            None => self.read().await,
        };
        let piece = reading
            .await
            .unwrap_or_else(|ended| Err(io::Error::other(ended)));
        match piece.is_ok() {
            true if self.left > 0 => self.ahead = Some(self.read().await),
            true => {}
            false => self.left = 0,
        }
        Some(piece)
    }

    async fn read(&mut self) -> JoinHandle<io::Result<Bytes>> {
        let turn = self.turns.wait_for(self.volume).await;
        let (file, at) = (Arc::clone(&self.file), self.at);
        let length = self.left.min(PIECE);
        self.at += length;
        self.left -= length;
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let mut piece = vec![0; usize::try_from(length).unwrap_or(0)];
            file.read_exact_at(&mut piece, at)?;
            Ok(Bytes::from(piece))
        })
    }
}

/// Opens an ordinary file to be taken.
///
/// Errors: as `list`; `folder.entry-not-file`.
pub async fn open(
    server: &Server,
    caller: &Caller,
    which: &str,
    path: &str,
) -> Result<FileDownload, Failure> {
    let path = path.to_owned();
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Read,
        move |store, folder| {
            let path = parsed(&path)?;
            Ok((path.shown_name(), store.file(folder.id, &path)?))
        },
    );
    let (folder, (name, open)) = done.await?;
    Ok(download_of(server, &folder, name, open))
}

/// What is taken of a file of a folder that is open.
pub(super) fn download_of(
    server: &Server,
    folder: &Folder,
    name: String,
    open: FolderFile,
) -> FileDownload {
    FileDownload {
        folder: folder.id,
        name,
        size: open.size,
        modified_at: open.modified_at,
        tag: open.tag,
        kind: open.image.unwrap_or("application/octet-stream"),
        file: Arc::new(open.file),
        volume: folder.volume,
        turns: Arc::clone(server.folder_turns()),
    }
}

/// The SHA-256 of a file, in hexadecimal digits. Reads what a download reads, and ends as one does; counts as an archive.
///
/// Errors: `folder.too-many-at-once`; `folder.entry-not-found` where the file became shorter; those of a right that ends.
pub async fn checksum(
    server: &Server,
    caller: &Caller,
    file: &FileDownload,
) -> Result<String, Failure> {
    let _place = server.folder_turns().enter_archive(caller.subject.user)?;
    let mut lease = lease(server, caller, file.folder, FolderVerb::Read);
    let mut pieces = file.pieces(0, file.size);
    let mut running = Sha256::new();
    loop {
        let piece = tokio::select! {
            biased;
            refusal = &mut lease => return Err(refusal.into()),
            piece = pieces.next() => piece,
        };
        match piece {
            None => break,
            Some(Ok(bytes)) => running.update(&bytes),
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(refusals::folder_entry_not_found(&file.name).into());
            }
            Some(Err(error)) => {
                return Err(ServerFault::new("read a file of a folder", error).into());
            }
        }
    }
    let digest = running.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// An archive that is made while it is taken.
pub struct ArchiveDownload {
    pub folder: FolderId,
    pub name: String,
    pub kind: &'static str,
    /// None once it is over.
    archive: Option<Box<FolderArchive>>,
    /// What the files lie on; None: the box's own disk.
    volume: Option<VolumeId>,
    turns: Arc<FolderTurns>,
    /// It counts for as long as it is taken.
    _place: FolderTurn,
}

impl ArchiveDownload {
    /// The next piece; None at the end. Nothing comes behind an error.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let mut archive = self.archive.take()?;
        let turn = self.turns.wait_for(self.volume).await;
        let made = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let piece = archive.next_piece();
            (archive, piece)
        });
        match made.await {
            Ok((archive, Ok(Some(piece)))) => {
                self.archive = Some(archive);
                Some(Ok(piece.into()))
            }
            Ok((_, Ok(None))) => None,
            Ok((_, Err(error))) => Some(Err(error)),
            Err(ended) => Some(Err(io::Error::other(ended))),
        }
    }
}

/// Directories with all below them, and files, as an archive: all of the folder where none is named; `format` is `zip` where
/// it is empty.
///
/// Errors: as `list`; `folder.paths`, `folder.archive-format`, `folder.archive-too-many`; `folder.too-many-at-once`.
pub async fn archive(
    server: &Server,
    caller: &Caller,
    which: &str,
    mut paths: Vec<String>,
    format: &str,
) -> Result<ArchiveDownload, Failure> {
    folder_for(server, caller, which, FolderVerb::Read)?;
    let place = server.folder_turns().enter_archive(caller.subject.user)?;
    if paths.is_empty() {
        paths.push(String::new());
    }
    let format = format.to_owned();
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Read,
        move |store, folder| {
            let (format, ending, kind) = match format.as_str() {
                "" | "zip" => (ArchiveFormat::Zip, "zip", "application/zip"),
                "tar" => (ArchiveFormat::Tar, "tar", "application/x-tar"),
                "tar.zst" => (ArchiveFormat::TarZst, "tar.zst", "application/zstd"),
                _ => return Err(refusals::folder_archive_format().at("/format").into()),
            };
            refuse_many(paths.len(), "/path")?;
            let paths = paths.iter().map(|path| parsed(path));
            let paths: Vec<FolderPath> = paths.collect::<Result<_, _>>()?;
            let name = match paths.as_slice() {
                [path] if !path.is_top() => path.shown_name(),
                _ => folder.name.to_string(),
            };
            let archive = store.archive(folder.id, &paths, &name, format)?;
            Ok((format!("{name}.{ending}"), kind, archive))
        },
    );
    let (folder, (name, kind, archive)) = done.await?;
    Ok(ArchiveDownload {
        folder: folder.id,
        name,
        kind,
        archive: Some(Box::new(archive)),
        volume: folder.volume,
        turns: Arc::clone(server.folder_turns()),
        _place: place,
    })
}

/// Makes one directory, in one that is there.
///
/// Errors: as `list`; `folder.new-name-invalid`, `folder.entry-exists`, `quota.exceeded`, `disk.full`.
pub async fn make_directory(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewFolderDirectoryBody,
) -> Result<FolderEntryView, Failure> {
    let how = |_: &FolderEntryView| Some("directory");
    let done = change_files(server, caller, which, how, move |store, folder| {
        let path = parsed(&asked.path)?;
        store.make_directory(folder.id, &path)?;
        Ok(view(&path, &store.entry(folder.id, &path)?))
    });
    Ok(done.await?.1)
}

/// Gives a file, a directory or a link another name or place in its folder; never over another one.
///
/// Errors: as `make_directory`; `folder.move-inside`.
pub async fn move_entry(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: FolderMoveBody,
) -> Result<FolderEntryView, Failure> {
    let how = |_: &FolderEntryView| Some("move");
    let done = change_files(server, caller, which, how, move |store, folder| {
        let from = FolderPath::parse(&asked.from).map_err(|refusal| refusal.at("/from"))?;
        let to = FolderPath::parse(&asked.to).map_err(|refusal| refusal.at("/to"))?;
        store.move_entry(folder.id, &from, &to)?;
        Ok(view(&to, &store.entry(folder.id, &to)?))
    });
    Ok(done.await?.1)
}

/// Removes files, links, and directories with all below them: into the trash of the folder, or for good where that is asked
/// for. All are looked for before the first is removed. Gives the time that those in the trash have, by which
/// `selection::undo_removal` finds them again.
///
/// Errors: as `list`; `folder.paths`.
pub async fn remove(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: FolderRemovalBody,
) -> Result<Timestamp, Failure> {
    let now = server.clock().now();
    let how = |done: &Partly| done.some("remove");
    let done = change_files(server, caller, which, how, move |store, folder| {
        refuse_many(asked.paths.len(), "/paths")?;
        let mut paths = Vec::with_capacity(asked.paths.len());
        for (number, text) in asked.paths.iter().enumerate() {
            let field = format!("/paths/{number}");
            let path = FolderPath::parse(text).map_err(|refusal| refusal.at(field))?;
            store.entry(folder.id, &path)?;
            paths.push(path);
        }
        Ok(each(&paths, |path| match asked.for_good {
            true => store.remove_for_good(folder.id, path),
            false => store.remove_entry(folder.id, path, now),
        }))
    });
    let (id, done) = done.await?;
    give_back(server, id)?;
    done.end()?;
    Ok(now)
}

/// How many of several were done, and what ended it before the last one.
pub(super) struct Partly {
    done: usize,
    failure: Option<FolderError>,
}

impl Partly {
    /// `how`, where any was done.
    pub(super) fn some(&self, how: &'static str) -> Option<&'static str> {
        (self.done > 0).then_some(how)
    }

    pub(super) fn end(self) -> Result<(), Failure> {
        match self.failure {
            Some(error) => Err(folder_error(error)),
            None => Ok(()),
        }
    }
}

/// One after the other, until one fails.
pub(super) fn each<T>(all: &[T], act: impl Fn(&T) -> Result<(), FolderError>) -> Partly {
    let mut done = 0;
    for one in all {
        if let Err(error) = act(one) {
            let failure = Some(error);
            return Partly { done, failure };
        }
        done += 1;
    }
    let failure = None;
    Partly { done, failure }
}

/// Gives the room of what was removed for good back, which no caller waits for, and counts the folder again where nothing but
/// the count stands for its limit. What is not removed now is by the next look.
pub(super) fn give_back(server: &Server, id: FolderId) -> Result<(), Failure> {
    let (store, turns) = (server.folders()?, Arc::clone(server.folder_turns()));
    if let Some(volume) = store.volume_of(id) {
        // Others' room waits for no volume.
        if let Ok(permit) = turns.enter_volume(volume) {
            let (server, runtime) = (server.clone(), Handle::current());
            apart(move || {
                let _permit = permit;
                if let Err(error) = store.empty_removed(id) {
                    tracing::warn!(folder = %id, %error, "removed files stay on a volume");
                }
                if let Err(failure) = count_on_volume(&server, &runtime, id) {
                    tracing::warn!(folder = %id, error = %chain(&failure), "a folder is not counted again");
                }
            });
        }
        return Ok(());
    }
    if !turns.note_emptying(id) {
        return Ok(());
    }
    let (server, runtime) = (server.clone(), Handle::current());
    tokio::task::spawn_blocking(move || {
        while let Some(id) = turns.next_emptying() {
            if let Err(error) = store.empty_removed(id) {
                tracing::warn!(folder = %id, %error, "removed files stay on the disk");
            }
            if let Err(failure) = runtime.block_on(count_again(&server, id)) {
                tracing::warn!(folder = %id, error = %chain(&failure), "a folder is not counted again");
            }
        }
    });
    Ok(())
}

/// What lies in the trash of a folder, newest first, with the folder.
///
/// Errors: `folder.not-found`, `folder.files-own`, `folder.right-missing`, `folder.in-trash`, `folder.purging`.
pub async fn removed(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<(Folder, Vec<RemovedEntryView>), Failure> {
    let done = on_files(server, caller, which, FolderVerb::Read, |store, folder| {
        let all = store.removed(folder.id)?.into_iter();
        let shown = all.map(|one| RemovedEntryView {
            id: one.id,
            path: one.path,
            kind: one.kind,
            size: one.size,
            removed_at: one.removed_at,
            purge_at: one.removed_at.plus_seconds(TRASH_DAYS * 86_400),
        });
        Ok(shown.collect())
    });
    done.await
}

/// Puts some of `removed` back where they were; never over another file. The first that cannot be ends it.
///
/// Errors: as `removed`; `folder.paths`, `folder.removed-not-found`, `folder.entry-exists`, `folder.entry-link`.
pub async fn restore_removed(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: RemovedEntriesBody,
) -> Result<(), Failure> {
    let how = |done: &Partly| done.some("restore");
    let done = change_files(server, caller, which, how, move |store, folder| {
        refuse_many(asked.items.len(), "/items")?;
        Ok(each(&asked.items, |item| {
            store.restore_entry(folder.id, *item).map(|_| ())
        }))
    });
    done.await?.1.end()
}

/// Takes some of `removed` out of the trash for good.
///
/// Errors: as `removed`; `folder.paths`, `folder.removed-not-found`.
pub async fn purge_removed(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: RemovedEntriesBody,
) -> Result<(), Failure> {
    let now = server.clock().now();
    let how = |done: &Partly| done.some("purge");
    let done = change_files(server, caller, which, how, move |store, folder| {
        refuse_many(asked.items.len(), "/items")?;
        Ok(each(&asked.items, |item| {
            store.purge_removed(folder.id, Some(&[*item]), now)
        }))
    });
    let (id, done) = done.await?;
    give_back(server, id)?;
    done.end()
}

/// Takes all out of the trash of a folder for good.
///
/// Errors: as `removed`.
pub async fn empty_trash(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    let now = server.clock().now();
    let how = |(): &()| Some("purge");
    let done = change_files(server, caller, which, how, move |store, folder| {
        store.purge_removed(folder.id, None, now)
    });
    give_back(server, done.await?.0)
}

pub(super) fn refuse_many(count: usize, field: &str) -> Result<(), FolderError> {
    match (1..=MAX_REMOVED_AT_ONCE).contains(&count) {
        true => Ok(()),
        false => Err(refusals::folder_paths(MAX_REMOVED_AT_ONCE).at(field).into()),
    }
}

/// The folder whose files the caller asks for, where they may do `verb` with them and it is ready.
///
/// Errors: `folder.not-found`, `folder.files-own`, `folder.right-missing`, `folder.in-trash`, `folder.purging`;
/// `token.scope-missing`.
pub(super) fn folder_for(
    server: &Server,
    caller: &Caller,
    which: &str,
    verb: FolderVerb,
) -> Result<Folder, Failure> {
    somewhere(caller, Permission::SessionsWrite)?;
    let now = server.clock().now();
    server
        .catalog()
        .read_now("look for a folder of files", |view| {
            let folder = find(view, caller, which, FolderState::Ready, now)?.folder;
            permitted(view, &caller.subject, &folder, verb, now)?;
            refuse_unready(&folder)?;
            Ok(folder)
        })
}

/// The lease of a stream into or out of a folder: that of its caller, which ends too where they may not do `verb` with the
/// folder any more, or it is on its way to another owner, at most `LEASE_LOOK` after that. Costs two reads by key a look.
pub fn lease(server: &Server, caller: &Caller, folder: FolderId, verb: FolderVerb) -> Lease {
    let proof = access::lease(server, caller);
    let (server, caller) = (server.clone(), caller.clone());
    let ended = async move {
        loop {
            tokio::time::sleep(LEASE_LOOK).await;
            match may_still(&server, &caller, folder, verb) {
                Ok(()) => {}
                Err(Failure::Refusal(refusal)) => return refusal,
                Err(failure) => {
                    // A disk that stutters breaks no download off; the next look tells.
                    tracing::warn!(%folder, error = %chain(&failure), "the right to a folder cannot be checked again");
                }
            }
        }
    };
    Box::pin(async move {
        tokio::select! {
            refusal = proof => refusal,
            refusal = ended => refusal,
        }
    })
}

/// Whether the caller may still do `verb` with a folder, as `lease` asks.
///
/// Errors: `folder.not-found`; as `folder_for`.
pub(super) fn may_still(
    server: &Server,
    caller: &Caller,
    folder: FolderId,
    verb: FolderVerb,
) -> Result<(), Failure> {
    let now = server.clock().now();
    server
        .catalog()
        .read_now("check the right to a folder", |view| {
            let found = view
                .folder(folder)?
                .ok_or_else(refusals::folder_not_found)?;
            permitted(view, &caller.subject, &found.folder, verb, now)?;
            // What came behind the copy of a folder on its way would be lost.
            match found.folder.state {
                FolderState::Transferring => {
                    Err(refusals::folder_transferring(&found.folder.name).into())
                }
                FolderState::Ready
                | FolderState::Copying
                | FolderState::Trashed
                | FolderState::Purging => Ok(()),
            }
        })
}

/// Works on the files of a folder on a thread that may wait for the disk; gives the folder, too.
///
/// Errors: as `folder_for`; `folder.too-many-at-once`; those of the work.
pub(super) async fn on_files<T: Send + 'static>(
    server: &Server,
    caller: &Caller,
    which: &str,
    verb: FolderVerb,
    work: impl FnOnce(&FolderStore, &Folder) -> Result<T, FolderError> + Send + 'static,
) -> Result<(Folder, T), Failure> {
    let folder = folder_for(server, caller, which, verb)?;
    let store = server.folders()?;
    if let Some(volume) = folder.volume {
        let shelf = store.volumes().clone();
        refuse_silent(&shelf, volume)?;
        let user = caller.subject.user;
        let turn = server.folder_turns().enter_on_volume(user, volume)?;
        if verb == FolderVerb::Write {
            tell_counted(server, &store, &folder)?;
        }
        let done = on_volume(&shelf, volume, move || {
            let _turn = turn;
            let done = work(&store, &folder);
            (folder, done)
        });
        let (folder, done) = done.await?;
        return Ok((folder, done.map_err(folder_error)?));
    }
    let turn = server.folder_turns().enter(caller.subject.user).await?;
    let (server, caller) = (server.clone(), caller.clone());
    let working = tokio::task::spawn_blocking(move || -> Result<(Folder, T), Failure> {
        // It counts until it is done, also where its request is gone.
        let _turn = turn;
        if verb == FolderVerb::Write {
            // Its turn may have come late: a folder that is being moved by now would lose what is written.
            may_still(&server, &caller, folder.id, verb)?;
            tell_counted(&server, &store, &folder)?;
        }
        let done = work(&store, &folder).map_err(folder_error)?;
        Ok((folder, done))
    });
    working
        .await
        .map_err(|ended| ServerFault::new("work on the files of a folder", ended))?
}

/// Changes files as `on_files` works on them, and writes down how, where `how` says so. Once begun it goes on to its end, also
/// where its request is gone: no change stays unsaid. Gives the folder's id, too.
///
/// Errors: as `on_files`.
pub(super) async fn change_files<T: Send + 'static>(
    server: &Server,
    caller: &Caller,
    which: &str,
    how: impl FnOnce(&T) -> Option<&'static str> + Send + 'static,
    work: impl FnOnce(&FolderStore, &Folder) -> Result<T, FolderError> + Send + 'static,
) -> Result<(FolderId, T), Failure> {
    let (turns, user) = (Arc::clone(server.folder_turns()), caller.subject.user);
    let (server, caller, which) = (server.clone(), caller.clone(), which.to_owned());
    let act = async move {
        let (folder, done) = on_files(&server, &caller, &which, FolderVerb::Write, work).await?;
        let id = folder.id;
        if let Some(how) = how(&done) {
            changed(&server, &caller, folder, how).await;
        }
        Ok::<_, Failure>((id, done))
    };
    turns.acts().complete(user, origin::carried(act)).await
}

/// Writes down that files of a folder were changed, and how. What was done is done: a full disk keeps no owner from removing
/// files.
async fn changed(server: &Server, caller: &Caller, folder: Folder, how: &'static str) {
    let (actor, id) = (caller.name.clone(), folder.id);
    let written = server
        .catalog()
        .write(Lane::Requests, "note a change of files", move |rows| {
            rows.note_folder_use(folder.id)?;
            let code = "folder.files-changed";
            note(rows, actor.as_str(), &folder, code, ("", how))
        });
    if let Err(failure) = written.await {
        tracing::error!(folder = %id, error = %chain(&failure), "a change of files is not written down");
    }
}

pub(super) fn parsed(path: &str) -> Result<FolderPath, FolderError> {
    Ok(FolderPath::parse(path).map_err(|refusal| refusal.at("/path"))?)
}

pub(super) fn view(path: &FolderPath, entry: &FolderEntry) -> FolderEntryView {
    FolderEntryView {
        name: path.shown_name(),
        path: path.to_string(),
        kind: entry.kind,
        size: entry.size,
        modified_at: entry.modified_at,
    }
}

#[cfg(test)]
mod tests;
