//! The one dialog of the console: a question before something ends, or the verbs of a row. A page of its own for
//! browsers without script; with script the same block opens above the page that asked (`dialog.js`).

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

use super::components;
use super::layout::{Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, responses};
use crate::doors::text::Text;

/// A question or a menu.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/dialog.html", blocks = ["dialog"])]
pub struct DialogPage {
    pub t: Text,
    pub f: PageLayout,
    pub title: String,
    pub lead: String,
    /// What it is about, by name.
    pub items: Vec<String>,
    /// How many more there are than are named; empty for none.
    pub more: String,
    pub links: Vec<DialogLink>,
    pub form: Option<DialogForm>,
    /// Asks for a line that is sent as `why`, in these words; empty asks for none.
    pub why: &'static str,
    /// Where Cancel leads.
    pub back: String,
}

impl DialogPage {
    /// A title and a sentence: what is asked or offered is put in by the caller.
    pub(super) fn titled(f: PageLayout, back: String, title: String, lead: &str) -> Self {
        Self {
            t: f.text,
            f,
            title,
            lead: lead.to_owned(),
            items: Vec::new(),
            more: String::new(),
            links: Vec::new(),
            form: None,
            why: "",
            back,
        }
    }
}

/// One entry of a menu.
pub struct DialogLink {
    /// Empty where it cannot be done now: the lead says why.
    pub href: String,
    pub icon: &'static str,
    pub words: String,
    /// It asks first, in this dialog's place.
    pub asks: bool,
    /// It ends something: red.
    pub ends: bool,
}

/// What is sent once the user said yes.
pub struct DialogForm {
    pub action: String,
    pub fields: Vec<(&'static str, String)>,
    pub icon: &'static str,
    pub go: String,
    /// Something is gone afterwards, or stops.
    pub ends: bool,
    /// The same by force, where there is such a way: its words.
    pub force: Option<String>,
}

impl DialogForm {
    /// Of a question before something goes, which sends nothing but the yes.
    pub fn removal(action: String, go: &str) -> Self {
        Self {
            action,
            fields: Vec::new(),
            icon: "trash-2",
            go: go.to_owned(),
            ends: true,
            force: None,
        }
    }

    /// The look of its button: red for what ends something. Where the harder way stands beside it, that one alone is red.
    pub fn tone(&self) -> &'static str {
        match self.ends && self.force.is_none() {
            true => "dan",
            false => "pri",
        }
    }
}

/// Names that a question lists; beyond, it says how many.
pub const MAX_NAMED: usize = 12;

/// The dialog alone where script asks for it, else the page. `here` is the entry of the menu it belongs to.
pub fn answer(
    console: &PagesContext,
    visit: &RequestContext,
    here: Nav,
    dialog: DialogPage,
) -> Response {
    let page = DialogPage {
        f: PageLayout { here, ..dialog.f },
        ..dialog
    };
    match visit.fragment {
        true => responses::page(console, visit, StatusCode::OK, &page.as_dialog()),
        false => responses::page(console, visit, StatusCode::OK, &page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_button_that_ends_something_is_red_and_of_two_the_harder_one() {
        let removal = DialogForm::removal("/a/remove".to_owned(), "Remove");
        assert_eq!(removal.tone(), "dan");
        let with_force = DialogForm {
            force: Some("Remove for good".to_owned()),
            ..DialogForm::removal("/a/remove".to_owned(), "Remove")
        };
        assert_eq!(with_force.tone(), "pri");
        let harmless = DialogForm {
            ends: false,
            ..removal
        };
        assert_eq!(harmless.tone(), "pri");
    }
}
