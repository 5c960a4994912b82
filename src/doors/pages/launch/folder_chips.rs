//! The folders that the launch form offers by a click: home, and what the reader mounts of their own and of others'. The
//! words are those of a mount. Decides nothing; a mount is checked where every other launch is.

use api::folders::FolderView;
use rules::folder::{FOLDERS_TARGET, FolderState, HOME, HOME_TARGET};
use rules::folder_rights::FolderRight;
use server::Failure;
use server::access::Caller;
use server::actions::folders;

use super::super::PagesContext;

/// A folder that is offered.
pub struct FolderChip {
    /// As a line of the field has it.
    pub mount: String,
    /// Where inside it is mounted.
    pub place: String,
}

/// Further ones are typed.
const MAX_CHIPS: usize = 12;

/// The mounts that are offered, home first where a session has it only if it asks. O(folders of the reader).
pub(super) async fn offered(
    console: &PagesContext,
    caller: &Caller,
) -> Result<Vec<FolderChip>, Failure> {
    let own = folders::own(&console.server, caller).await?;
    let shared = folders::shared(&console.server, caller).await?;
    let known = own.iter().chain(&shared);
    let mounts = known.filter_map(|folder| mount_of(caller, folder));
    // What each session has by itself needs no click.
    let gives_homes = console.server.gives_homes();
    let others = mounts.filter(|mount| mount != HOME && !(gives_homes && mount.starts_with('.')));
    // The first session that mounts home makes it.
    let home = (!gives_homes).then(|| HOME.to_owned());
    let all = home.into_iter().chain(others);
    Ok(all.take(MAX_CHIPS).map(chip).collect())
}

fn chip(mount: String) -> FolderChip {
    let folder = mount.trim_end_matches(":ro");
    let name = folder.rsplit('/').next().unwrap_or(folder);
    FolderChip {
        place: match name {
            HOME => HOME_TARGET.to_owned(),
            name => format!("{FOLDERS_TARGET}/{name}"),
        },
        mount,
    }
}

/// A folder as the reader's launch names it, read-only where its share is; None where they mount it in no session.
pub fn mount_of(caller: &Caller, folder: &FolderView) -> Option<String> {
    let right = folder.right?;
    let name = match folder.owner.id == caller.subject.user.0 {
        true => folder.name.to_string(),
        false => format!("{}/{}", folder.owner.name, folder.name),
    };
    let is_ready = folder.state == FolderState::Ready;
    is_ready.then(|| match right {
        FolderRight::Ro => format!("{name}:ro"),
        FolderRight::Rw | FolderRight::Rwd => name,
    })
}
