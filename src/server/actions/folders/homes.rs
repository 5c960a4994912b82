//! What sessions mount by themselves: the home of their owner, and the owner's folders whose names begin with a dot. One that
//! cannot be mounted refuses no launch: the session says so. Never mounts what belongs to another user.

use rules::folder::{
    Folder, FolderMount, FolderState, HOME, HOME_TARGET, MAX_DOT_FOLDERS, RequestedMount,
    is_at_or_below, with_own,
};
use rules::names::FolderId;
use rules::permissions::{Permission, Subject};
use rules::reason::Reason;
use rules::reasons;
use rules::session::Session;
use store::volumes::VolumeShelf;

use super::{MAX_FOLDERS, mapped_user};
use crate::Failure;
use crate::access::Caller;
use crate::actions::allowed;
use crate::catalog::events::NewEvent;
use crate::catalog::policies::PolicySubjects;
use crate::catalog::{ReadTransaction, Rows};

/// Whether a session mounts what is its owner's by itself. One that another user launches does not: it would be the files of
/// one under the command of the other. Nor does one under a policy that says so.
pub(in crate::actions) fn are_wanted(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    subjects: &PolicySubjects,
) -> Result<bool, Failure> {
    let is_own = caller.subject.user == subjects.user;
    let may_read = allowed(caller, Permission::SessionsRead).is_ok();
    Ok(is_own && may_read && !view.forbids_home(subjects)?)
}

/// Whether a launch asks for the home, or leaves its place free, so that its owner needs one.
pub(super) fn are_needed(asked: &[RequestedMount], by_itself: bool) -> bool {
    let is_home = |mount: &RequestedMount| mount.folder.trim() == HOME;
    let is_free = |mount: &RequestedMount| {
        let at = mount.at.as_deref().map(str::trim);
        !at.is_some_and(|at| cover(at, HOME_TARGET))
    };
    asked.iter().any(is_home) || (by_itself && asked.iter().all(is_free))
}

/// The mounts of a launch with those that its owner has anyway, and a reason for each of these that is not mounted. `made`: the
/// id that a home has once this launch has made it. Costs a range of an index.
pub(in crate::actions) fn with_those_of(
    view: &ReadTransaction<'_>,
    owner: &Subject,
    asked: Vec<FolderMount>,
    made: Option<FolderId>,
    volumes: Option<&VolumeShelf>,
) -> Result<(Vec<FolderMount>, Vec<Reason>), Failure> {
    let known = view.folders_of(owner.user)?;
    // A launch that did not ask for one more folder is not refused for want of its place.
    let made = made.filter(|_| known.len() < MAX_FOLDERS);
    let known = known.into_iter();
    let mut known: Vec<Folder> = known
        .map(|found| found.folder)
        .filter(|folder| folder.trashed_at.is_none())
        .collect();
    known.sort_by(|a, b| a.name.cmp(&b.name));
    let (mut own, mut told) = (Vec::new(), Vec::new());
    match known.iter().find(|folder| folder.name.as_str() == HOME) {
        Some(home) => match absence(home, volumes) {
            Some(reason) => told.push(reason),
            None => own.push(FolderMount::of_home(home.id)),
        },
        None => match made {
            Some(home) => own.push(FolderMount::of_home(home)),
            None if asked.iter().any(|mount| cover(&mount.at, HOME_TARGET)) => {}
            None => told.push(reasons::session_home_not_made()),
        },
    }
    let dotted = known.iter().filter(|folder| folder.name.begins_with_dot());
    for folder in dotted.take(MAX_DOT_FOLDERS) {
        match absence(folder, volumes) {
            Some(reason) => told.push(reason),
            None => own.push(FolderMount {
                mapped: mapped_user(view, folder)?,
                ..FolderMount::of_dot_folder(folder.id, &folder.name)
            }),
        }
    }
    let (all, gone) = with_own(asked, own);
    for (mount, other) in gone {
        // The same folder, or another one at the very place, is what the launch wants instead.
        if other.folder != mount.folder && other.at != mount.at {
            told.push(reasons::session_own_covered(&mount.name, &other.at));
        }
    }
    Ok((all, told))
}

/// Whether two places are in each other's way.
fn cover(one: &str, other: &str) -> bool {
    is_at_or_below(one, other) || is_at_or_below(other, one)
}

/// Why a folder cannot be mounted now. Costs no look at a volume.
fn absence(folder: &Folder, volumes: Option<&VolumeShelf>) -> Option<Reason> {
    if folder.state != FolderState::Ready {
        return Some(reasons::session_own_unready(&folder.name));
    }
    let sight = volumes.zip(folder.volume);
    let sight = sight.and_then(|(volumes, volume)| volumes.sight(volume))?;
    let refused = sight.state.refuse_reading().is_err();
    refused.then(|| reasons::session_own_away(&folder.name))
}

/// Drops what a session that starts once more has by itself and can have no more: it starts without it.
pub(super) fn drop_gone(view: &ReadTransaction<'_>, session: &mut Session) -> Result<(), Failure> {
    let mut kept = Vec::with_capacity(session.mounts.len());
    for mount in session.mounts.drain(..) {
        let is_there = match mount.by_itself {
            true => {
                let found = view.folder(mount.folder)?.map(|found| found.folder);
                found.is_some_and(|folder| {
                    folder.state == FolderState::Ready && folder.owner == session.owner.into()
                })
            }
            false => true,
        };
        if is_there {
            kept.push(mount);
        }
    }
    session.mounts = kept;
    Ok(())
}

/// Says in the life of a session what it does not mount.
pub(in crate::actions) fn note_left_out(
    rows: &Rows<'_>,
    actor: &str,
    session: &Session,
    told: &[Reason],
) -> Result<(), Failure> {
    for reason in told {
        rows.note(NewEvent {
            actor,
            topic: "sessions",
            object: &session.id.to_string(),
            scope: session.scope(),
            code: rules::codes::SESSION_FOLDER_LEFT_OUT,
            before: "",
            after: &reason.text,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
