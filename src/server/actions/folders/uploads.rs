//! Files on their way into a folder: declared, sent in pieces at offsets, put in their place once they are whole. Each piece
//! asks again whether its sender may still change the files of the folder, and whether it is ready.

use std::collections::BTreeSet;

use api::folder_browsing::WrittenFolderTextView;
use api::folders::FolderUploadView;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rules::codes::{UPLOAD_BUSY, UPLOAD_NOT_FOUND};
use rules::folder::FolderState;
use rules::folder_path::FolderPath;
use rules::folder_rights::{FolderVerb, speaks_for};
use rules::names::{FolderId, UploadId, UserId, VolumeId};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use store::folders::staging::{
    DeclaredFile, MAX_FILE_BYTES, PieceChecksum, StagedFile, StagingWriter,
};
use store::folders::versions::TextVersion;

use super::files::{change_files, folder_for, give_back, on_files};
use crate::access::Caller;
use crate::actions::volumes::{apart, on_volume, place_on};
use crate::appliance::lazy_stores::folder_error;
use crate::{Failure, Server, ServerFault};

/// Bytes of one file that is uploaded.
pub const MAX_UPLOADED_BYTES: u64 = MAX_FILE_BYTES;
/// Files that one user has on their way at once, over all folders. Higher: each takes a place in a list that is read for
/// every new one. Lower: a user who sends a tree from several machines is refused.
const MAX_FOLDER_UPLOADS: usize = 256;
/// The same of one user in a folder whose owner they do not speak for. Higher: few fill what all of them may. Lower: a tree is sent in turns.
const MAX_GUEST_UPLOADS: usize = 64;
/// The same of all such users of a folder together. Its owner's own count apart, so that none of theirs keeps the
/// owner from a new one. Higher: lists of one folder are longer. Lower: a class that hands in at once waits.
const MAX_GUESTS_UPLOADS: usize = 192;

/// Which file a new one takes the place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileVersion {
    /// None: nothing has its name yet.
    New,
    /// The one with this tag, without quotes.
    Known(String),
    /// Any that is there.
    Any,
}

impl FileVersion {
    fn stored(&self) -> TextVersion {
        match self {
            Self::New => TextVersion::New,
            Self::Known(tag) => TextVersion::Known(tag.clone()),
            Self::Any => TextVersion::Any,
        }
    }
}

/// A file that is to come.
#[derive(Debug, Clone, Default)]
pub struct NewFolderFile {
    /// The directory that it goes into, as text; what is missing of it is made.
    pub directory: String,
    /// Its name, as it is.
    pub name: String,
    /// Exact number of bytes; None: as many as come.
    pub bytes: Option<u64>,
    /// It takes the place of a file that is there.
    pub overwrite: bool,
    /// It takes the place of that version alone; None: of any, as `overwrite` says.
    pub version: Option<FileVersion>,
    /// When its contents were changed last, where that is to be kept.
    pub modified_at: Option<Timestamp>,
}

/// Refuses who may not change the files of a folder.
///
/// Errors: `folder.not-found`, `folder.files-own`, `folder.right-missing`, `folder.in-trash`, `folder.purging`.
pub fn check(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    folder_for(server, caller, which, FolderVerb::Write).map(|_| ())
}

/// Begins a file. An empty one is in its place at once.
///
/// Errors: `folder.not-found`, `folder.files-own`, `folder.right-missing`, `folder.in-trash`, `folder.purging`; `folder.path-invalid`,
/// `folder.new-name-invalid`, `folder.entry-exists`, `upload.too-large`, `upload.too-many`, `quota.exceeded`, `disk.full`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    which: &str,
    asked: NewFolderFile,
) -> Result<FolderUploadView, Failure> {
    let target = folder_for(server, caller, which, FolderVerb::Write)?;
    let (own, owner) = (target.id, target.owner);
    let user = caller.subject.user;
    let speaks = speaks_for(&caller.subject, owner);
    let others = server
        .catalog()
        .read_now("list folders of uploads", |view| {
            let all = view.folders_of(user)?.into_iter();
            let ready = all.filter(|one| one.folder.state == FolderState::Ready);
            let mut all: BTreeSet<FolderId> = ready.map(|one| one.folder.id).collect();
            // It may be of another owner.
            all.insert(own);
            Ok(all)
        })?;
    let now = server.clock().now();
    let done = change_files(server, caller, which, placed, move |store, folder| {
        let directory = FolderPath::parse(&asked.directory);
        let directory = directory.map_err(|refusal| refusal.at("/path"))?;
        let path = directory.child(asked.name.as_bytes());
        let path = path.ok_or_else(refusals::folder_new_name_invalid)?;
        path.check_new()?;
        // A name that is taken is said before the bytes come, and once more behind them.
        if !asked.overwrite && store.entry(folder.id, &path).is_ok() {
            return Err(refusals::folder_entry_exists(path.shown_name()).into());
        }
        store.expire_staged(folder.id, now)?;
        let mut under_way = 0;
        for other in others {
            // A volume that is gone, or hangs, keeps no file from a folder elsewhere.
            let is_elsewhere = other != folder.id && store.volume_of(other).is_some();
            if is_elsewhere && !store.is_near(other) {
                continue;
            }
            let senders = store.senders_of_staged(other)?;
            if other == folder.id {
                refuse_many_guests(&senders, user, owner.user(), speaks)?;
            }
            // What others send there keeps its owner from nothing.
            under_way += sent_by(&senders, user, other != folder.id || speaks);
        }
        refuse_many(under_way, MAX_FOLDER_UPLOADS)?;
        let declared = DeclaredFile {
            path: path.to_string(),
            bytes: asked.bytes,
            overwrite: asked.overwrite,
            version: asked.version.as_ref().map(FileVersion::stored),
            modified_at: asked.modified_at,
            by: Some(user),
        };
        let staged = store.stage(folder.id, &path, declared, now)?;
        let is_placed = asked.bytes == Some(0) && store.place(folder.id, staged.id)?;
        Ok((staged, is_placed))
    });
    let (id, (staged, _)) = done.await?;
    Ok(view(id, staged))
}

/// How many of the files on their way into a folder a user sends. Those that an older version began count as its
/// owner's.
fn sent_by(senders: &[Option<UserId>], user: UserId, is_owner: bool) -> usize {
    let is_theirs = |by: &&Option<UserId>| by.map_or(is_owner, |by| by == user);
    senders.iter().filter(is_theirs).count()
}

/// Refuses one more file of a user who does not speak for the owner of a folder, where they, or all such users together, have
/// enough on their way into it. `owner` is None for a project: what its leads send counts with what its members do, and
/// keeps no lead from a new one.
///
/// Errors: `upload.too-many`.
fn refuse_many_guests(
    senders: &[Option<UserId>],
    user: UserId,
    owner: Option<UserId>,
    speaks: bool,
) -> Result<(), Refusal> {
    if speaks {
        return Ok(());
    }
    refuse_many(sent_by(senders, user, false), MAX_GUEST_UPLOADS)?;
    let owners = owner.map_or(0, |owner| sent_by(senders, owner, true));
    refuse_many(senders.len() - owners, MAX_GUESTS_UPLOADS)
}

fn refuse_many(under_way: usize, most: usize) -> Result<(), Refusal> {
    match under_way >= most {
        true => Err(refusals::upload_too_many(under_way).retry_after(60)),
        false => Ok(()),
    }
}

/// How an upload whose file came into its place is written down.
fn placed((_, is_placed): &(StagedFile, bool)) -> Option<&'static str> {
    is_placed.then_some("upload")
}

/// The files on their way into a folder, oldest first.
///
/// Errors: `folder.not-found`, `folder.files-own`, `folder.right-missing`, `folder.in-trash`, `folder.purging`.
pub async fn list(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<Vec<FolderUploadView>, Failure> {
    let done = on_files(server, caller, which, FolderVerb::Write, |store, folder| {
        store.all_staged(folder.id)
    });
    let (folder, all) = done.await?;
    Ok(all.into_iter().map(|one| view(folder.id, one)).collect())
}

/// How far a file is; one that was finished a while ago, too. One that is whole and not in its place, since the server ended
/// right before that, is put there now.
///
/// Errors: as `create`; `upload.not-found`.
pub async fn head(
    server: &Server,
    caller: &Caller,
    which: &str,
    upload: UploadId,
) -> Result<FolderUploadView, Failure> {
    let done = change_files(server, caller, which, placed, move |store, folder| {
        let staged = store.staged(folder.id, upload.0)?;
        if staged.declared.bytes != Some(staged.offset) {
            return Ok((staged, false));
        }
        match store.place(folder.id, upload.0) {
            Ok(is_placed) => Ok((staged, is_placed)),
            // It was finished before, or is being finished now.
            Err(error)
                if [UPLOAD_NOT_FOUND, UPLOAD_BUSY]
                    .map(Some)
                    .contains(&error.code()) =>
            {
                Ok((staged, false))
            }
            Err(error) => Err(error),
        }
    });
    let (id, (staged, _)) = done.await?;
    Ok(view(id, staged))
}

/// Calls a file on its way off, and forgets its bytes.
///
/// Errors: as `head`; `upload.busy`.
pub async fn abort(
    server: &Server,
    caller: &Caller,
    which: &str,
    upload: UploadId,
) -> Result<(), Failure> {
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Write,
        move |store, folder| store.unstage(folder.id, upload.0),
    );
    let (folder, ()) = done.await?;
    give_back(server, folder.id)
}

/// One piece of a file, while it comes. No other request has the file meanwhile.
pub struct FolderPiece {
    server: Server,
    caller: Caller,
    folder: FolderId,
    volume: Option<VolumeId>,
    upload: UploadId,
    /// None after an error, and while a write is under way.
    writer: Option<StagingWriter>,
}

/// Begins to take a piece at `offset`; `checksum` is that of the whole piece, as tus writes it.
///
/// Errors: as `head`; `upload.busy`, `upload.wrong-offset`, `upload.checksum-unknown`.
pub async fn append(
    server: &Server,
    caller: &Caller,
    which: &str,
    upload: UploadId,
    offset: u64,
    checksum: Option<&str>,
) -> Result<FolderPiece, Failure> {
    folder_for(server, caller, which, FolderVerb::Write)?;
    let checksum = match checksum {
        Some(text) => Some(checksum_of(text).ok_or_else(refusals::upload_checksum_unknown)?),
        None => None,
    };
    let done = on_files(
        server,
        caller,
        which,
        FolderVerb::Write,
        move |store, folder| store.append(folder.id, upload.0, offset, checksum),
    );
    let (folder, writer) = done.await?;
    Ok(FolderPiece {
        server: server.clone(),
        caller: caller.clone(),
        folder: folder.id,
        volume: folder.volume,
        upload,
        writer: Some(writer),
    })
}

impl FolderPiece {
    /// What it is on its way into.
    pub fn folder(&self) -> FolderId {
        self.folder
    }

    /// Takes bytes of the piece.
    ///
    /// Errors: `upload.too-large`, `quota.exceeded`, `disk.full`; those of a caller who may go on no longer. Then nothing more is taken.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Failure> {
        folder_for(
            &self.server,
            &self.caller,
            &self.folder.to_string(),
            FolderVerb::Write,
        )?;
        let Some(mut writer) = self.writer.take() else {
            return Err(refusals::upload_busy().into());
        };
        if let Some(volume) = self.volume {
            let shelf = self.server.folders()?.volumes().clone();
            let permit = place_on(&self.server, &shelf, volume).await?;
            let written = on_volume(&shelf, volume, move || {
                let _permit = permit;
                let written = writer.write(&bytes);
                (writer, written)
            });
            let (writer, written) = written.await?;
            written.map_err(folder_error)?;
            self.writer = Some(writer);
            return Ok(());
        }
        let turn = self.server.folder_turns().wait().await;
        let written = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let written = writer.write(&bytes);
            (writer, written)
        });
        let (writer, written) = written.await.map_err(ended)?;
        written.map_err(folder_error)?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Keeps what came, and puts the file in its place where that was the last of it. `is_whole` is false where the piece
    /// broke off.
    ///
    /// Errors: `upload.checksum-mismatch`; `folder.entry-exists`, `folder.entry-link`, `quota.exceeded`, `disk.full`.
    pub async fn finish(mut self, is_whole: bool) -> Result<FolderUploadView, Failure> {
        let Some(writer) = self.writer.take() else {
            return Err(refusals::upload_busy().into());
        };
        let upload = self.upload.0;
        let which = self.folder.to_string();
        let (server, caller) = (&self.server, &self.caller);
        let done = change_files(server, caller, &which, placed, move |store, folder| {
            writer.finish(is_whole)?;
            let staged = store.staged(folder.id, upload)?;
            let is_placed = is_whole && store.place(folder.id, upload)?;
            Ok((staged, is_placed))
        });
        let (id, (staged, _)) = done.await?;
        Ok(view(id, staged))
    }
}

impl FolderPiece {
    /// As `finish`, of the only piece of a file whose size was not said: it is in its place then. Gives its new version.
    ///
    /// Errors: as `finish`; `folder.file-stale`.
    pub async fn place(mut self) -> Result<WrittenFolderTextView, Failure> {
        let Some(writer) = self.writer.take() else {
            return Err(refusals::upload_busy().into());
        };
        let upload = self.upload.0;
        let which = self.folder.to_string();
        let (server, caller) = (&self.server, &self.caller);
        let how = |_: &WrittenFolderTextView| Some("upload");
        let done = change_files(server, caller, &which, how, move |store, folder| {
            writer.finish(true)?;
            let path = store.staged(folder.id, upload)?.declared.path;
            let placed = store.place_told(folder.id, upload)?;
            let placed = placed.ok_or_else(refusals::upload_not_found)?;
            Ok(WrittenFolderTextView {
                path,
                etag: format!("\"{}\"", placed.tag),
                modified_at: placed.modified_at,
            })
        });
        Ok(done.await?.1)
    }
}

impl Drop for FolderPiece {
    fn drop(&mut self) {
        if let (Some(_), Some(writer)) = (self.volume, self.writer.take()) {
            // What is taken back as it ends, and its close, may wait for the volume.
            apart(move || drop(writer));
        }
    }
}

fn ended(error: tokio::task::JoinError) -> ServerFault {
    ServerFault::new("write an uploaded file", error)
}

/// A checksum as tus writes it: its name, a blank, and its bytes in base64.
fn checksum_of(text: &str) -> Option<PieceChecksum> {
    let (name, value) = text.trim().split_once(' ')?;
    let bytes = STANDARD.decode(value.trim()).ok()?;
    match name {
        "sha256" => Some(PieceChecksum::Sha256(bytes.try_into().ok()?)),
        "crc32" => {
            let bytes: [u8; 4] = bytes.try_into().ok()?;
            Some(PieceChecksum::Crc32(u32::from_be_bytes(bytes)))
        }
        _ => None,
    }
}

fn view(folder: FolderId, staged: StagedFile) -> FolderUploadView {
    FolderUploadView {
        id: UploadId(staged.id),
        folder,
        path: staged.declared.path,
        size: staged.declared.bytes,
        offset: staged.offset,
        overwrite: staged.declared.overwrite,
        modified_at: staged.declared.modified_at,
        created_at: staged.begun_at,
        expires_at: staged.expires_at,
    }
}
