//! The commands on files of folders: lists, copies in both directions, archives, and changes of names and places. A copy that
//! breaks off goes on where it stopped.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::folders::{FolderEntryView, FolderUploadView};
use api::page::ListPage;
use hyper::Method;
use rules::folder_path::FolderEntryKind;
use rules::names::UserName;
use rules::units::Timestamp;
use serde_json::{Value, json};

use super::client::{Extra, HttpClient, MAX_RECONNECT, encoded, fresh_key};
use super::error::{CliError, FAILED, NOT_FOUND, PARTLY, UNREACHABLE};
use super::images::{ProgressLine, base64, send};
use super::output::OutputStyle;
use super::values::joined;
use super::{columns, complain, print};

/// Bytes of a file of which a copy that broke off is looked for. Higher: more is sent twice. Lower: a copy of many small
/// files asks twice for each.
const RESUMED: u64 = 4 << 20;
/// Letters of a name that the name of its file on the way has; a longer one would be too long a name.
const PART_NAME: usize = 60;
/// Between two tries to go on with a download.
const RETRY: Duration = Duration::from_millis(500);

/// What a copy does with directories, and with files that are there.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopyMode {
    pub recursive: bool,
    pub overwrite: bool,
}

/// A place in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FolderPlace {
    pub(super) folder: String,
    /// From the top of the folder, without slashes at its ends.
    pub(super) path: String,
}

impl FolderPlace {
    /// Reads `FOLDER:/PATH`, or `OWNER/FOLDER:/PATH`; None for what names a file of this machine.
    fn parse(text: &str) -> Option<Self> {
        let (folder, path) = text.split_once(":/")?;
        let is_folder = match folder.split_once('/') {
            None => !folder.is_empty(),
            Some((owner, name)) => {
                UserName::parse(owner).is_ok() && !name.is_empty() && !name.contains('/')
            }
        };
        is_folder.then(|| Self {
            folder: folder.to_owned(),
            path: path.trim_matches('/').to_owned(),
        })
    }

    /// The same, where a name alone is a folder, too.
    pub(super) fn parse_any(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|| Self {
            folder: text.trim_end_matches(':').to_owned(),
            path: String::new(),
        })
    }

    /// Where a path has to be given.
    pub(super) fn parse_entry(text: &str) -> Result<Self, CliError> {
        let place = Self::parse(text).filter(|place| !place.path.is_empty());
        place.ok_or_else(|| {
            CliError::usage(format!("{text} names no file of a folder."))
                .hint("Write FOLDER:/PATH, such as data:/train/a.csv.")
        })
    }

    fn below(&self, name: &str) -> Self {
        let path = match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}/{name}"),
        };
        Self {
            folder: self.folder.clone(),
            path,
        }
    }

    fn at(&self, path: &str) -> Self {
        Self {
            folder: self.folder.clone(),
            path: path.to_owned(),
        }
    }

    /// The name of the folder, without its owner.
    fn folder_name(&self) -> &str {
        self.folder
            .rsplit_once('/')
            .map_or(self.folder.as_str(), |(_, name)| name)
    }

    /// The directory that it lies in, and its name.
    fn split(&self) -> (&str, &str) {
        self.path.rsplit_once('/').unwrap_or(("", &self.path))
    }

    pub(super) fn address(&self, what: &str) -> String {
        format!("/api/v1/folders/{}/{what}", encoded(&self.folder))
    }

    pub(super) fn query(&self, what: &str) -> String {
        format!("{}?path={}", self.address(what), encoded(&self.path))
    }
}

pub(super) async fn list(
    client: &HttpClient,
    view: &OutputStyle,
    place: &str,
    sort: Option<&str>,
) -> Result<u8, CliError> {
    let place = FolderPlace::parse_any(place);
    let sort = encoded(sort.unwrap_or_default());
    let path = format!("{}&limit=500&sort={sort}", place.query("entries"));
    let whole = whole_list(client, &path, |_, _| ()).await?;
    print(&view.list(&whole, columns::FOLDER_ENTRIES)?);
    Ok(0)
}

/// Asks for a list page by page, at a path that has a query, and gives it as one page. `more` gets the list so far and each
/// further page, for what they say beside their items.
pub(super) async fn whole_list(
    client: &HttpClient,
    path: &str,
    mut more: impl FnMut(&mut Value, &Value),
) -> Result<Value, CliError> {
    let mut whole = client.get(path).await?;
    while let Some(cursor) = whole["next_cursor"].as_str().map(str::to_owned) {
        let page = client.get(&format!("{path}&cursor={cursor}")).await?;
        more(&mut whole, &page);
        whole = joined(whole, page);
    }
    whole["next_cursor"] = Value::Null;
    Ok(whole)
}

pub(super) async fn make_directory(
    client: &HttpClient,
    view: &OutputStyle,
    place: &str,
) -> Result<u8, CliError> {
    let place = FolderPlace::parse_entry(place)?;
    let body = json!({"path": place.path});
    let made = client.post(&place.address("mkdir"), &body).await?;
    print(&view.one(&made, columns::FOLDER_ENTRIES)?);
    Ok(0)
}

pub(super) async fn move_entry(
    client: &HttpClient,
    view: &OutputStyle,
    place: &str,
    to: &str,
) -> Result<u8, CliError> {
    let place = FolderPlace::parse_entry(place)?;
    let body = json!({"from": place.path, "to": to});
    let moved = client.post(&place.address("move"), &body).await?;
    print(&view.one(&moved, columns::FOLDER_ENTRIES)?);
    Ok(0)
}

pub(super) async fn remove(
    client: &HttpClient,
    view: &OutputStyle,
    places: &[String],
    for_good: bool,
) -> Result<u8, CliError> {
    let places: Vec<FolderPlace> = places
        .iter()
        .map(|place| FolderPlace::parse_entry(place))
        .collect::<Result<_, _>>()?;
    for place in places {
        let body = json!({"paths": [place.path], "for_good": for_good});
        client.post(&place.address("remove"), &body).await?;
        let said = format!("{}:/{}  removed", place.folder, place.path);
        print(&view.said(&json!({"path": place.path}), &said)?);
    }
    Ok(0)
}

pub(super) async fn archive(
    client: &HttpClient,
    view: &OutputStyle,
    place: &str,
    format: &str,
    to: Option<PathBuf>,
) -> Result<u8, CliError> {
    let place = FolderPlace::parse_any(place);
    let name = match place.split().1 {
        "" => place.folder_name(),
        name => name,
    };
    let to = to.unwrap_or_else(|| PathBuf::from(format!("{name}.{format}")));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&to)
        .map_err(|error| unwritable(&to, &error))?;
    let path = format!("{}&format={format}", place.query("archive"));
    let taken = async {
        let mut flow = client.flow(&path, Vec::new()).await?;
        let mut written = 0_u64;
        while let Some(bytes) = flow.next().await? {
            file.write_all(&bytes)
                .map_err(|error| unwritable(&to, &error))?;
            written += bytes.len() as u64;
        }
        Ok::<u64, CliError>(written)
    };
    match taken.await {
        Ok(size) => {
            let body = json!({"path": to, "size": size});
            print(&view.said(&body, &format!("{}  written", to.display()))?);
            Ok(0)
        }
        Err(broken) => {
            // Half an archive is none.
            let _ = fs::remove_file(&to);
            Err(broken)
        }
    }
}

pub(super) async fn copy(
    client: &HttpClient,
    view: &OutputStyle,
    from: &str,
    to: &str,
    how: CopyMode,
) -> Result<u8, CliError> {
    match (FolderPlace::parse(from), FolderPlace::parse(to)) {
        (None, Some(place)) => {
            let ends = to.ends_with('/');
            put(client, view, Path::new(from), place, ends, how).await
        }
        (Some(place), None) => take(client, view, place, Path::new(to), how).await,
        (Some(from), Some(to)) if from.folder == to.folder => {
            let body = json!({"from": from.path, "to": to.path});
            let copied = client.post(&from.address("copy"), &body).await?;
            print(&view.one(&copied, columns::FOLDER_ENTRIES)?);
            Ok(0)
        }
        _ => Err(CliError::usage(
            "One of the two is a place in a folder, the other one is here or in the same folder.",
        )
        .hint("Write FOLDER:/PATH for the place in the folder, such as data:/train.")),
    }
}

/// Sends a file or a directory.
async fn put(
    client: &HttpClient,
    view: &OutputStyle,
    from: &Path,
    to: FolderPlace,
    ends: bool,
    how: CopyMode,
) -> Result<u8, CliError> {
    let about = fs::metadata(from).map_err(|error| unreadable(from, &error))?;
    // What is a directory there takes the copy under its own name.
    let is_inside = ends || to.path.is_empty() || entries(client, &to).await?.is_some();
    let target = match is_inside {
        true => to.below(&escaped(&name_of(from)?)),
        false => to,
    };
    if !about.is_dir() {
        let (directory, _) = target.split();
        let there = entries(client, &target.at(directory)).await?;
        put_file(client, view, from, &target, there.as_ref(), how).await?;
        return Ok(0);
    }
    if !how.recursive {
        return Err(
            CliError::usage(format!("{} is a directory.", from.display()))
                .hint("-r copies it with all below it."),
        );
    }
    let mut failures = 0_u64;
    let mut directories = vec![(from.to_owned(), target)];
    while let Some((here, target)) = directories.pop() {
        let there = entries(client, &target).await?;
        if there.is_none() {
            let body = json!({"path": target.path});
            client.post(&target.address("mkdir"), &body).await?;
        }
        for entry in fs::read_dir(&here).map_err(|error| unreadable(&here, &error))? {
            let entry = entry.map_err(|error| unreadable(&here, &error))?;
            let (path, kind) = (entry.path(), entry.file_type());
            let kind = kind.map_err(|error| unreadable(&path, &error))?;
            let below = target.below(&escaped(&name_of(&path)?));
            if kind.is_dir() {
                directories.push((path, below));
                continue;
            }
            if !kind.is_file() {
                complain(&format!("{}  left out: no file\n", path.display()));
                continue;
            }
            if let Err(error) = put_file(client, view, &path, &below, there.as_ref(), how).await {
                if error.exit == UNREACHABLE {
                    return Err(error);
                }
                failures += 1;
                complain(&format!("{}  {}\n", path.display(), error.text));
            }
        }
    }
    Ok(if failures == 0 { 0 } else { PARTLY })
}

async fn put_file(
    client: &HttpClient,
    view: &OutputStyle,
    from: &Path,
    to: &FolderPlace,
    there: Option<&BTreeMap<String, FolderEntryView>>,
    how: CopyMode,
) -> Result<(), CliError> {
    let mut file = File::open(from).map_err(|error| unreadable(from, &error))?;
    let about = file.metadata().map_err(|error| unreadable(from, &error))?;
    let (size, changed) = (about.len(), millis(about.modified().ok()));
    let known = there.and_then(|there| there.get(&to.path));
    let is_same = known
        .is_some_and(|known| known.size == size && Some(known.modified_at.as_millis()) == changed);
    if is_same {
        return Ok(());
    }
    let begun = unfinished(client, to, size, changed, how).await?;
    let (place, offset) = match begun {
        Some(begun) => begun,
        None => (declare(client, to, size, changed, how).await?, 0),
    };
    if size > 0 {
        let shown = from.display().to_string();
        send(client, view, &place, &mut file, (offset, size), &shown).await?;
    }
    if offset == size && size > 0 {
        // All of it had come before; asking puts it in its place.
        let extra = Extra::default().header("Tus-Resumable", "1.0.0");
        client.call(Method::HEAD, &place, extra).await?;
    }
    let said = format!("{}:/{}  sent", to.folder, to.path);
    print(&view.said(&json!({"path": to.path, "size": size}), &said)?);
    Ok(())
}

/// Begins a file, and gives the address of its upload.
async fn declare(
    client: &HttpClient,
    to: &FolderPlace,
    size: u64,
    changed: Option<i64>,
    how: CopyMode,
) -> Result<String, CliError> {
    let (directory, name) = to.split();
    let mut words = vec![
        format!("filename {}", base64(unescaped(name).as_bytes())),
        format!("path {}", base64(directory.as_bytes())),
    ];
    words.extend(changed.map(|at| format!("mtime {}", base64(at.to_string().as_bytes()))));
    if how.overwrite {
        words.push(format!("overwrite {}", base64(b"true")));
    }
    let extra = Extra::default()
        .header("Tus-Resumable", "1.0.0")
        .header("Upload-Length", size.to_string())
        .header("Upload-Metadata", words.join(","))
        .header("Idempotency-Key", fresh_key());
    let path = to.address("uploads");
    let made = client.call(Method::POST, &path, extra).await?;
    Ok(made.header("location").unwrap_or_default().to_owned())
}

/// The upload of the same file that an earlier copy began, and how far it is. Copies of many files ask only for those worth
/// it.
async fn unfinished(
    client: &HttpClient,
    to: &FolderPlace,
    size: u64,
    changed: Option<i64>,
    how: CopyMode,
) -> Result<Option<(String, u64)>, CliError> {
    if size < RESUMED {
        return Ok(None);
    }
    let path = to.address("uploads");
    let all = client.read::<ListPage<FolderUploadView>>(&path).await?.read;
    let is_same = |one: &FolderUploadView| {
        let at = one.modified_at.map(|at| at.as_millis());
        let is_file = one.path == to.path && one.size == Some(size) && at == changed;
        is_file && one.overwrite == how.overwrite
    };
    let found = all
        .items
        .into_iter()
        .filter(is_same)
        .max_by_key(|one| one.offset);
    Ok(found.map(|one| (format!("{path}/{}", one.id), one.offset)))
}

/// Takes a file or a directory.
async fn take(
    client: &HttpClient,
    view: &OutputStyle,
    from: FolderPlace,
    to: &Path,
    how: CopyMode,
) -> Result<u8, CliError> {
    let name = match from.split().1 {
        "" => from.folder_name().to_owned(),
        name => unescaped(name),
    };
    let target = match to.is_dir() {
        true => to.join(&name),
        false => to.to_owned(),
    };
    let Some(top) = entries(client, &from).await? else {
        let (directory, _) = from.split();
        let above = entries(client, &from.at(directory)).await?;
        let known = above.as_ref().and_then(|above| above.get(&from.path));
        take_file(client, view, &from, known, &target, how).await?;
        return Ok(0);
    };
    if !how.recursive {
        let place = format!("{}:/{}", from.folder, from.path);
        return Err(CliError::usage(format!("{place} is a directory.")).hint(
            "-r copies it with all below it; `fardel folder archive` makes one file of it.",
        ));
    }
    let mut failures = 0_u64;
    let mut directories = vec![(top, target)];
    while let Some((there, here)) = directories.pop() {
        fs::create_dir_all(&here).map_err(|error| unwritable(&here, &error))?;
        for entry in there.into_values() {
            // No answer leads out of the directory that was named.
            if !is_name(&entry.name) {
                failures += 1;
                complain(&format!("{}  left out: no name here\n", entry.path));
                continue;
            }
            let place = from.at(&entry.path);
            let below = here.join(&entry.name);
            match entry.kind {
                FolderEntryKind::Directory => {
                    if let Some(more) = entries(client, &place).await? {
                        directories.push((more, below));
                    }
                }
                FolderEntryKind::File => {
                    let taken = take_file(client, view, &place, Some(&entry), &below, how).await;
                    let Err(error) = taken else { continue };
                    if error.exit == UNREACHABLE {
                        return Err(error);
                    }
                    failures += 1;
                    complain(&format!("{}  {}\n", entry.path, error.text));
                }
                FolderEntryKind::Link | FolderEntryKind::Other => {
                    complain(&format!("{}  left out: no file\n", entry.path));
                }
            }
        }
    }
    Ok(if failures == 0 { 0 } else { PARTLY })
}

async fn take_file(
    client: &HttpClient,
    view: &OutputStyle,
    from: &FolderPlace,
    known: Option<&FolderEntryView>,
    to: &Path,
    how: CopyMode,
) -> Result<(), CliError> {
    if let (Some(known), Ok(here)) = (known, fs::metadata(to)) {
        let changed = millis(here.modified().ok());
        if here.len() == known.size && changed == Some(known.modified_at.as_millis()) {
            return Ok(());
        }
    }
    if !how.overwrite && to.exists() {
        let text = format!("{} is there already.", to.display());
        return Err(CliError::usage(text).hint("--overwrite takes its place."));
    }
    let name: String = name_of(to)?.chars().take(PART_NAME).collect();
    let part = to.with_file_name(format!(".{name}.part"));
    // What an earlier copy left; nothing is written through a link that lies there.
    let _ = fs::remove_file(&part);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&part)
        .map_err(|error| unwritable(&part, &error))?;
    let size = fetch(client, view, from, &part, &mut file).await;
    let size = match size {
        Ok(size) => size,
        Err(broken) => {
            let _ = fs::remove_file(&part);
            return Err(broken);
        }
    };
    if let Some(known) = known {
        let _ = file.set_modified(time_of(known.modified_at));
    }
    fs::rename(&part, to).map_err(|error| unwritable(to, &error))?;
    let said = format!("{}  written", to.display());
    print(&view.said(&json!({"path": to, "size": size}), &said)?);
    Ok(())
}

/// Takes the bytes of a file; after a broken connection it goes on where it stopped, where the file is still the same.
async fn fetch(
    client: &HttpClient,
    view: &OutputStyle,
    from: &FolderPlace,
    part: &Path,
    file: &mut File,
) -> Result<u64, CliError> {
    let progress = ProgressLine::new(view, "taking", true);
    let path = from.query("files");
    let (mut at, mut tag) = (0_u64, String::new());
    let mut away: Option<Instant> = None;
    loop {
        let mut headers = Vec::new();
        if at > 0 {
            headers.push(("Range".to_owned(), format!("bytes={at}-")));
            headers.push(("If-Range".to_owned(), tag.clone()));
        }
        let broken = match client.flow(&path, headers).await {
            Ok(mut flow) => {
                if flow.status() != 206 && at > 0 {
                    // It is another version: all of it is taken once more.
                    file.set_len(0)
                        .and_then(|()| file.rewind())
                        .map_err(|error| unwritable(part, &error))?;
                    at = 0;
                }
                flow.header("etag").unwrap_or_default().clone_into(&mut tag);
                let length = flow.header("content-length");
                let left: u64 = length.and_then(|text| text.parse().ok()).unwrap_or(0);
                let total = at + left;
                loop {
                    match flow.next().await {
                        Ok(Some(bytes)) => {
                            file.write_all(&bytes)
                                .map_err(|error| unwritable(part, &error))?;
                            at += bytes.len() as u64;
                            away = None;
                            progress.show(at, total);
                        }
                        Ok(None) => {
                            progress.end();
                            return Ok(at);
                        }
                        Err(broken) => break broken,
                    }
                }
            }
            Err(broken) => broken,
        };
        let since = *away.get_or_insert_with(Instant::now);
        if broken.exit != UNREACHABLE || at == 0 || since.elapsed() > MAX_RECONNECT {
            progress.end();
            return Err(broken);
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// What lies in a directory of a folder, by path; None where there is no directory.
async fn entries(
    client: &HttpClient,
    place: &FolderPlace,
) -> Result<Option<BTreeMap<String, FolderEntryView>>, CliError> {
    let mut all = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let path = format!("{}&limit=500&cursor={cursor}", place.query("entries"));
        let page = match client.read::<ListPage<FolderEntryView>>(&path).await {
            Ok(page) => page.read,
            Err(error)
                if error.exit == NOT_FOUND
                    && error.code == rules::codes::FOLDER_ENTRY_NOT_FOUND =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        all.extend(page.items.into_iter().map(|one| (one.path.clone(), one)));
        match page.next_cursor {
            Some(next) => cursor = next,
            None => return Ok(Some(all)),
        }
    }
}

/// A name of this machine, as text.
fn name_of(path: &Path) -> Result<String, CliError> {
    let whole = path.canonicalize();
    let name = match path.file_name() {
        Some(name) => Some(name.to_owned()),
        // Such as `.`.
        None => whole
            .ok()
            .and_then(|whole| Some(whole.file_name()?.to_owned())),
    };
    let name = name.and_then(|name| name.into_string().ok());
    name.ok_or_else(|| CliError::usage(format!("{} has no name that is text.", path.display())))
}

/// Whether a name of a server is one here, too.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// A name as paths of folders have it.
fn escaped(name: &str) -> String {
    name.replace('%', "%25")
}

fn unescaped(name: &str) -> String {
    name.replace("%25", "%")
}

fn millis(at: Option<SystemTime>) -> Option<i64> {
    let since = at?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

fn time_of(at: Timestamp) -> SystemTime {
    let millis = u64::try_from(at.as_millis()).unwrap_or(0);
    UNIX_EPOCH + Duration::from_millis(millis)
}

fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::usage(format!("{} cannot be read: {error}.", path.display()))
}

fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    let text = format!("{} cannot be written: {error}.", path.display());
    match error.kind() {
        ErrorKind::AlreadyExists => CliError::usage(text).hint("Name another file."),
        _ => CliError::new(FAILED, "file.unwritable", text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_folder_is_told_from_a_file_here() {
        for (text, expected) in [
            ("data:/a/b", Some(("data", "a/b"))),
            ("data:/", Some(("data", ""))),
            ("data:/a/", Some(("data", "a"))),
            ("kim/data:/a", Some(("kim/data", "a"))),
            ("kim/data/b:/a", None),
            ("kim/:/a", None),
            ("../data:/a", None),
            ("./data:/a", None),
            ("/data:/a", None),
            ("data", None),
            (":/a", None),
        ] {
            let place = FolderPlace::parse(text);
            let found = place
                .as_ref()
                .map(|place| (place.folder.as_str(), place.path.as_str()));
            assert_eq!(found, expected, "{text}");
        }
        assert!(is_name("a.txt") && is_name("..."));
        for name in ["", "..", "../a", "a/b", "/etc"] {
            assert!(!is_name(name), "{name}");
        }
        assert_eq!(FolderPlace::parse_any("data").folder, "data");
        assert_eq!(FolderPlace::parse_any("kim/data").folder_name(), "data");
        assert!(FolderPlace::parse_entry("data:/").is_err());
        let place = FolderPlace::parse("data:/a/b.txt").expect("a place");
        assert_eq!(place.split(), ("a", "b.txt"));
        assert_eq!(
            place.query("files"),
            "/api/v1/folders/data/files?path=a%2Fb.txt"
        );
    }
}
