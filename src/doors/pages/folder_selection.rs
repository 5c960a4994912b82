//! `/folders/{id}/selection`: what is done with the files that were chosen in a directory of a folder. Asks where they go, or
//! whether they go; without script each question is a page. Decides nothing.

use api::folders::{FolderMoveBody, FolderRemovalBody};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::folder_path::FolderPath;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::Failure;
use server::access::Caller;
use server::actions::folders;
use server::actions::folders::files;
use server::actions::folders::selection;

use super::authentication::PageCaller;
use super::components;
use super::dialog::{self, DialogForm, DialogPage, MAX_NAMED};
use super::folder_files::{below, failed, files_address, removed};
use super::form_faults::RefusedForm;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, layout, responses};
use crate::doors::text::Text;

/// The question where chosen files go, or what one of them is called.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/folder_selection.html", blocks = ["dialog"])]
pub struct FolderSelectionPage {
    pub t: Text,
    pub f: PageLayout,
    pub title: String,
    pub lead: String,
    /// What it is about, by name.
    pub items: Vec<String>,
    /// How many more there are than are named; empty for none.
    pub more: String,
    pub action: String,
    pub fields: Vec<(&'static str, String)>,
    pub label: String,
    /// As it was typed.
    pub to: String,
    /// It was not refused: the field has the focus.
    pub is_new: bool,
    pub icon: &'static str,
    pub go: String,
    /// Where Cancel leads.
    pub back: String,
}

/// What is done with what was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SelectionVerb {
    Move,
    Copy,
    Rename,
    Remove,
}

impl SelectionVerb {
    fn word(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Copy => "copy",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }

    /// What is no verb of ours asks before something goes, which does nothing by itself.
    fn of(word: &str) -> Self {
        [Self::Move, Self::Copy, Self::Rename]
            .into_iter()
            .find(|verb| verb.word() == word)
            .unwrap_or(Self::Remove)
    }
}

/// What a form or an address says of a selection: `verb`, `path` (the directory), `id` once for each that was chosen, `to`,
/// `force` and `ask`.
#[derive(Debug, Clone)]
struct Selection {
    verb: SelectionVerb,
    here: String,
    paths: Vec<String>,
    to: String,
    for_good: bool,
    /// It is asked about first.
    is_question: bool,
}

impl Selection {
    fn of(said: Vec<(String, String)>) -> Self {
        let mut read = Self {
            verb: SelectionVerb::Remove,
            here: String::new(),
            paths: Vec::new(),
            to: String::new(),
            for_good: false,
            is_question: false,
        };
        for (name, value) in said {
            match name.as_str() {
                "verb" => read.verb = SelectionVerb::of(&value),
                "path" => read.here = value,
                "id" => read.paths.push(value),
                "to" => value.trim().clone_into(&mut read.to),
                "force" => read.for_good = !value.is_empty(),
                "ask" => read.is_question = !value.is_empty(),
                _ => {}
            }
        }
        read
    }

    /// What was chosen, for users to read: the last name of each.
    fn names(&self) -> Vec<String> {
        let shown = |text: &String| match FolderPath::parse(text) {
            Ok(path) => path.shown_name(),
            Err(_) => text.clone(),
        };
        self.paths.iter().map(shown).collect()
    }

    /// What a form sends again besides what is typed into it.
    fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("verb", self.verb.word().to_owned()),
            ("path", self.here.clone()),
        ];
        fields.extend(self.paths.iter().map(|path| ("id", path.clone())));
        fields
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UndoForm {
    path: String,
    /// When it was removed, in milliseconds.
    at: String,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/folders/{id}/selection", get(ask).post(act))
        .route("/folders/{id}/selection/zip", get(zip))
        .route("/folders/{id}/removed/undo", post(undo))
}

/// `GET /folders/{id}/selection?verb=…&path=…&id=…`: the question before it is done.
async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Query(said): Query<Vec<(String, String)>>,
) -> Response {
    ask_about(&console, &visit, &caller, &id, Selection::of(said)).await
}

async fn ask_about(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    mut asked: Selection,
) -> Response {
    let t = visit.text;
    let id = match folders::get(&console.server, caller, id).await {
        Ok(folder) => folder.id.to_string(),
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let names = asked.names();
    if let (SelectionVerb::Rename, [name]) = (asked.verb, names.as_slice()) {
        name.clone_into(&mut asked.to);
    }
    if asked.verb != SelectionVerb::Remove {
        let page = question(console, visit, caller, &id, &asked);
        return match visit.fragment {
            true => responses::page(console, visit, StatusCode::OK, &page.as_dialog()),
            false => responses::page(console, visit, StatusCode::OK, &page),
        };
    }
    let title = match names.as_slice() {
        [one] => t.folder_files_remove_title(one),
        several => t.folder_selection_remove_title(several.len() as u64),
    };
    let back = files_address(&id, &asked.here);
    let frame = layout(console, visit, caller, Nav::Folders);
    let mut page = DialogPage::titled(frame, back, title, t.folder_files_remove_lead());
    page.more = more(t, names.len());
    page.items = names.into_iter().take(MAX_NAMED).collect();
    page.form = Some(DialogForm {
        action: format!("/folders/{id}/selection"),
        fields: asked.fields(),
        icon: "trash-2",
        go: t.folder_files_remove().to_owned(),
        ends: true,
        force: Some(t.folder_files_remove_for_good().to_owned()),
    });
    dialog::answer(console, visit, Nav::Folders, page)
}

/// How many are not named.
fn more(t: Text, count: usize) -> String {
    match count.saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => t.stop_more(more as u64),
    }
}

fn question(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    asked: &Selection,
) -> FolderSelectionPage {
    let t = visit.text;
    let names = asked.names();
    let count = names.len() as u64;
    let one = names.first().map_or("", String::as_str);
    let (title, label, lead, icon, go) = match asked.verb {
        SelectionVerb::Rename => (
            t.folder_selection_rename_title(one),
            t.folder_selection_name(),
            "",
            "pencil",
            t.folder_selection_rename(),
        ),
        SelectionVerb::Copy => (
            t.folder_selection_copy_title(count),
            t.folder_selection_to(),
            t.folder_selection_to_help(),
            "copy",
            t.folder_browsing_copy(),
        ),
        SelectionVerb::Move | SelectionVerb::Remove => (
            t.folder_selection_move_title(count),
            t.folder_selection_to(),
            t.folder_selection_to_help(),
            "folder",
            t.folder_files_move_go(),
        ),
    };
    FolderSelectionPage {
        t,
        f: layout(console, visit, caller, Nav::Folders),
        title,
        lead: lead.to_owned(),
        more: more(t, names.len()),
        items: match asked.verb {
            SelectionVerb::Rename => Vec::new(),
            _ => names.into_iter().take(MAX_NAMED).collect(),
        },
        action: format!("/folders/{id}/selection"),
        fields: asked.fields(),
        label: label.to_owned(),
        to: asked.to.clone(),
        is_new: visit.refused.is_none(),
        icon,
        go: go.to_owned(),
        back: files_address(id, &asked.here),
    }
}

/// `POST /folders/{id}/selection`: does it, and leads back to the directory. With `ask` it asks first: what was chosen on a
/// whole page may be too long for an address.
async fn act(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(said): Form<Vec<(String, String)>>,
) -> Response {
    let asked = Selection::of(said);
    if asked.is_question {
        return ask_about(&console, &visit, &caller, &id, asked).await;
    }
    let names = asked.names();
    let place = files_address(&id, &asked.here);
    let (server, paths) = (&console.server, asked.paths.clone());
    let done = match asked.verb {
        SelectionVerb::Remove => {
            let body = FolderRemovalBody {
                paths,
                for_good: asked.for_good,
            };
            return match files::remove(server, &caller, &id, body).await {
                Ok(at) => removed(&place, &names, asked.for_good, at),
                Err(failure) => failed(&console, &visit, &caller, &failure),
            };
        }
        SelectionVerb::Move => {
            selection::move_into(server, &caller, &id, paths, asked.to.clone()).await
        }
        SelectionVerb::Copy => {
            selection::copy_into(server, &caller, &id, paths, asked.to.clone()).await
        }
        SelectionVerb::Rename => rename(&console, &caller, &id, &asked).await,
    };
    match (done, asked.verb, names.as_slice()) {
        (Ok(()), SelectionVerb::Rename, _) => {
            responses::see_with(&place, "folder-moved", &asked.to)
        }
        (Ok(()), SelectionVerb::Copy, [name]) => responses::see_with(&place, "folder-copied", name),
        (Ok(()), SelectionVerb::Copy, several) => {
            responses::see_with(&place, "folder-copied-n", &several.len().to_string())
        }
        (Ok(()), _, [name]) => responses::see_with(&place, "folder-moved", name),
        (Ok(()), _, several) => {
            responses::see_with(&place, "folder-moved-n", &several.len().to_string())
        }
        (Err(Failure::Refusal(refusal)), ..) => {
            again(&console, &visit, &caller, &id, &asked, &refusal).await
        }
        (Err(fault), ..) => failed(&console, &visit, &caller, &fault),
    }
}

/// Gives the one that was chosen the name that was typed, in its directory.
async fn rename(
    console: &PagesContext,
    caller: &Caller,
    id: &str,
    asked: &Selection,
) -> Result<(), Failure> {
    let [path] = asked.paths.as_slice() else {
        return Err(refusals::folder_paths(1).into());
    };
    let parent = FolderPath::parse(path)?.parent().to_string();
    let body = FolderMoveBody {
        from: path.clone(),
        to: below(&parent, &asked.to),
    };
    let moved = files::move_entry(&console.server, caller, id, body).await;
    moved.map(|_| ())
}

/// The question once more, with an answer that was refused; a refusal alone to those who do not see the folder.
async fn again(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    id: &str,
    asked: &Selection,
    refusal: &Refusal,
) -> Response {
    let id = match folders::get(&console.server, caller, id).await {
        Ok(folder) => folder.id.to_string(),
        Err(failure) => return failed(console, visit, caller, &failure),
    };
    let form = RefusedForm::new(visit.text, &format!("/folders/{id}/selection"), refusal);
    let visit = visit.refusing(form.at("to"));
    let page = question(console, &visit, caller, &id, asked);
    responses::page(console, &visit, responses::status(refusal), &page)
}

/// `GET /folders/{id}/selection/zip?id=…`: to the archive of what was chosen; of the directory where nothing was.
async fn zip(
    PageCaller(_): PageCaller,
    Path(id): Path<String>,
    Query(said): Query<Vec<(String, String)>>,
) -> Response {
    let mut asked = Selection::of(said);
    if asked.paths.is_empty() {
        asked.paths.push(asked.here);
    }
    let mut place = format!(
        "/api/v1/folders/{}/archive?format=zip",
        responses::encoded(&id)
    );
    for path in &asked.paths {
        place.push_str("&path=");
        place.push_str(&responses::encoded(path));
    }
    responses::see(&place)
}

/// `POST /folders/{id}/removed/undo`: puts back what one request removed.
async fn undo(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
    Form(sent): Form<UndoForm>,
) -> Response {
    // What is no time removed nothing.
    let Ok(at) = sent.at.parse() else {
        let refusal = refusals::folder_removed_not_found().into();
        return failed(&console, &visit, &caller, &refusal);
    };
    let at = Timestamp::from_millis(at);
    match selection::undo_removal(&console.server, &caller, &id, at).await {
        Ok(()) => {
            let place = files_address(&id, &sent.path);
            responses::see_with(&place, "folder-back", "")
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_read_from_its_words() {
        let said = [
            ("verb", "rename"),
            ("path", "run"),
            ("id", "run/100%25"),
            ("id", "run/b"),
            ("to", " new "),
            ("other", "x"),
        ];
        let said = said.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let read = Selection::of(said.to_vec());
        assert_eq!(read.verb, SelectionVerb::Rename);
        assert_eq!(read.names(), ["100%", "b"]);
        assert_eq!((read.here.as_str(), read.to.as_str()), ("run", "new"));
        assert_eq!(read.fields().len(), 4);
        assert!(!read.is_question);
        let nothing = Selection::of(Vec::new());
        assert_eq!(nothing.verb, SelectionVerb::Remove);
        assert!(nothing.paths.is_empty() && !nothing.for_good);
    }
}
