//! What users do in the browser of a folder beyond lists and moves: they search below a directory, count what directories take,
//! copy, and write texts. Each asks first what the caller may do with the files of the folder.

use api::folder_browsing::{
    FolderCopyBody, FolderSearchQuery, FolderSearchView, FolderTextView, FolderUsageQuery,
    FolderUsageView, NewFolderTextBody, SearchStop, SubfolderUsageView, WrittenFolderTextView,
};
use api::folders::FolderEntryView;
use rules::folder::Folder;
use rules::folder_path::{FolderPath, MAX_FOLDER_TEXT};
use rules::folder_rights::FolderVerb;
use rules::refusals;
use store::folders::FolderStore;
use store::folders::failure::FolderError;
use store::folders::search::{SearchEnd, SearchQuery};
use store::folders::versions::TextVersion;

use super::files::{
    MAX_PAGE_ENTRIES, MAX_WORDS, PAGE, change_files, folder_for, may_still, on_files, parsed,
    read_head, text_of, view,
};
use crate::access::Caller;
use crate::actions::cursor;
use crate::{Failure, Server};

/// What is called so below a directory, page by page: each directory before what lies in it.
///
/// Errors: as `files::list`.
pub async fn search(
    server: &Server,
    caller: &Caller,
    which: &str,
    wanted: &FolderSearchQuery,
) -> Result<(Folder, FolderSearchView), Failure> {
    let volume = folder_for(server, caller, which, FolderVerb::Read)?.volume;
    let turns = server.folder_turns();
    let place = turns.enter_search(caller.subject.user, volume).await?;
    let limit = wanted.limit.unwrap_or(PAGE);
    let (path, words, asked) = (wanted.path.clone(), wanted.q.clone(), wanted.cursor.clone());
    let signing = server.catalog().founding().cursor_key;
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Read,
        move |store, folder| {
            // It counts until it is done, also where its request is gone.
            let _place = place;
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
            let path = parsed(&path)?;
            let bound = format!("search|{}|{path}|{words}", folder.id);
            let after = match asked.as_deref() {
                None | Some("") => None,
                Some(text) => Some(cursor::read::<String>(&signing, &bound, text)?),
            };
            let query = SearchQuery {
                words,
                after,
                limit,
            };
            let page = store.search(folder.id, &path, &query)?;
            let found = page.found.iter();
            Ok(FolderSearchView {
                items: found.map(|(path, entry)| view(path, entry)).collect(),
                next_cursor: page.next.map(|last| cursor::write(&signing, &bound, &last)),
                stopped: page.end.map(|end| match end {
                    SearchEnd::Page => SearchStop::Page,
                    SearchEnd::Names => SearchStop::Names,
                    SearchEnd::Time => SearchStop::Time,
                }),
                looked: page.looked,
                whole: page.whole,
            })
        },
    );
    let (folder, found) = done.await?;
    still_reads(server, caller, &folder)?;
    Ok((folder, found))
}

/// What the directories in a directory take of the disk, as it was counted at most ten minutes ago, or now where that is asked
/// for.
///
/// Errors: as `files::list`.
pub async fn usage(
    server: &Server,
    caller: &Caller,
    which: &str,
    wanted: &FolderUsageQuery,
) -> Result<(Folder, FolderUsageView), Failure> {
    let volume = folder_for(server, caller, which, FolderVerb::Read)?.volume;
    let turns = server.folder_turns();
    let place = turns.enter_search(caller.subject.user, volume).await?;
    let (path, fresh) = (wanted.path.clone(), wanted.fresh);
    let now = server.clock().now();
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Read,
        move |store, folder| {
            let _place = place;
            let path = parsed(&path)?;
            let count = store.subfolders(folder.id, &path, now, fresh)?;
            let all = count.largest.iter();
            let items = all.map(|one| SubfolderUsageView {
                name: one.path.shown_name(),
                path: one.path.to_string(),
                bytes: one.taken.bytes,
                entries: one.taken.entries,
            });
            Ok(FolderUsageView {
                path: path.to_string(),
                items: items.collect(),
                others: count.others.0,
                others_bytes: count.others.1.bytes,
                files_bytes: count.here.bytes,
                files: count.here.entries,
                whole: count.whole,
                counted_at: count.at,
            })
        },
    );
    let (folder, found) = done.await?;
    still_reads(server, caller, &folder)?;
    Ok((folder, found))
}

/// Whether the right still holds after work that takes seconds: one that ended meanwhile is told nothing.
fn still_reads(server: &Server, caller: &Caller, folder: &Folder) -> Result<(), Failure> {
    folder_for(server, caller, &folder.id.to_string(), FolderVerb::Read).map(|_| ())
}

/// Copies a file, a link, or a directory with all below it to another place of its folder; never over another one.
///
/// It ends, and leaves nothing, at most a second after the right to the folder does.
///
/// Errors: as `files::make_directory`; `folder.copy-too-large`, `folder.too-many-at-once`.
pub async fn copy(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: FolderCopyBody,
) -> Result<FolderEntryView, Failure> {
    let volume = folder_for(server, caller, which, FolderVerb::Write)?.volume;
    let turns = server.folder_turns();
    let place = turns.enter_copy(caller.subject.user, volume).await?;
    let (asked_of, whose) = (server.clone(), caller.clone());
    let how = |_: &FolderEntryView| Some("copy");
    let done = change_files(server, caller, which, how, move |store, folder| {
        let _place = place;
        let from = FolderPath::parse(&asked.from).map_err(|refusal| refusal.at("/from"))?;
        let to = FolderPath::parse(&asked.to).map_err(|refusal| refusal.at("/to"))?;
        // A disk that stutters ends no copy; the next look tells.
        let may = || match may_still(&asked_of, &whose, folder.id, FolderVerb::Write) {
            Err(Failure::Refusal(refusal)) => Err(FolderError::from(refusal)),
            Err(Failure::Fault(_)) | Ok(()) => Ok(()),
        };
        store.copy_entry(folder.id, &from, &to, &may)?;
        Ok(view(&to, &store.entry(folder.id, &to)?))
    });
    Ok(done.await?.1)
}

/// A file of text, whole, with its version.
///
/// Errors: as `files::list`; `folder.entry-not-file`, `folder.not-text`, `folder.text-too-large`.
pub async fn text(
    server: &Server,
    caller: &Caller,
    which: &str,
    path: &str,
) -> Result<(Folder, FolderTextView), Failure> {
    let path = path.to_owned();
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Read,
        move |store, folder| read(store, folder, &parsed(&path)?),
    );
    done.await
}

fn read(
    store: &FolderStore,
    folder: &Folder,
    path: &FolderPath,
) -> Result<FolderTextView, FolderError> {
    let open = store.file(folder.id, path)?;
    let most = usize::try_from(MAX_FOLDER_TEXT).unwrap_or(usize::MAX);
    let not_text = || refusals::folder_not_text(path.shown_name());
    // One byte more tells that there is more.
    let bytes = read_head(&open.file, most + 1).ok_or_else(not_text)?;
    if bytes.len() > most {
        return Err(refusals::folder_text_too_large(MAX_FOLDER_TEXT / 1024).into());
    }
    let text = text_of(&bytes, false).ok_or_else(not_text)?;
    Ok(FolderTextView {
        path: path.to_string(),
        text: text.to_owned(),
        etag: format!("\"{}\"", open.tag),
        modified_at: open.modified_at,
    })
}

/// Makes a file of text where nothing is yet.
///
/// Errors: as `files::make_directory`; `folder.not-text`, `folder.text-too-large`.
pub async fn create_text(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewFolderTextBody,
) -> Result<WrittenFolderTextView, Failure> {
    put(server, caller, which, asked, TextVersion::New).await
}

/// Writes a file of text in the place of the version that is meant.
///
/// Errors: as `create_text`; `folder.file-stale`.
pub async fn write_text(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewFolderTextBody,
    seen: Option<String>,
) -> Result<WrittenFolderTextView, Failure> {
    let version = seen.map_or(TextVersion::Any, TextVersion::Known);
    put(server, caller, which, asked, version).await
}

async fn put(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewFolderTextBody,
    version: TextVersion,
) -> Result<WrittenFolderTextView, Failure> {
    let how = |_: &WrittenFolderTextView| Some("edit");
    let done = change_files(server, caller, which, how, move |store, folder| {
        let path = parsed(&asked.path)?;
        if text_of(asked.text.as_bytes(), false).is_none() {
            return Err(refusals::folder_not_text(path.shown_name())
                .at("/text")
                .into());
        }
        let written = store.write_text(folder.id, &path, &asked.text, &version)?;
        Ok(WrittenFolderTextView {
            path: path.to_string(),
            etag: format!("\"{}\"", written.tag),
            modified_at: written.modified_at,
        })
    });
    Ok(done.await?.1)
}

#[cfg(test)]
mod tests;
