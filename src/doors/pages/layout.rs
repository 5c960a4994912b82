//! What every page has around it: who is here, where they are, language, theme.
//! Never knows what a page shows inside.

use std::fmt;

use askama::FastWritable;
use askama::filters::HtmlSafe;
use server::actions::nodes::NodeInMaintenance;

use super::assets;
use crate::doors::text::Text;

/// The entry of the menu that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nav {
    Overview,
    Sessions,
    Launch,
    Queue,
    Gpus,
    History,
    Usage,
    Images,
    Folders,
    Users,
    Projects,
    Policies,
    Courses,
    Presets,
    Groups,
    Budgets,
    Reservations,
    FairShare,
    Announcements,
    Audit,
    Events,
    Node,
    Storage,
    System,
    Docs,
    Api,
    Me,
    Nowhere,
}

/// The user who is signed in, as the top bar shows them.
#[derive(Clone, Debug)]
pub struct SignedInUser {
    pub name: String,
    pub role: String,
    pub initials: String,
}

impl SignedInUser {
    /// Takes up to two initials from the name.
    pub fn new(name: &str, role: &str) -> SignedInUser {
        let mut words = name
            .split(|c: char| !c.is_alphanumeric())
            .filter_map(|word| word.chars().next());
        let initials: String = words
            .by_ref()
            .take(2)
            .flat_map(char::to_uppercase)
            .collect();
        SignedInUser {
            name: name.to_owned(),
            role: role.to_owned(),
            initials,
        }
    }
}

/// An announcement as its reader sees it.
#[derive(Clone, Debug)]
pub struct AnnouncementBanner {
    /// Names this version of it in the cookie of those who closed it.
    pub key: String,
    pub is_warning: bool,
    /// None: it has no end.
    pub seconds_left: Option<u64>,
    /// In the reader's language.
    pub text: String,
    /// Where it leads, and the words of that link.
    pub link: Option<(&'static str, &'static str)>,
}

/// How the site looks beside the product.
#[derive(Clone, Debug, Default)]
pub struct SiteLook {
    /// Empty: the machine's own name stands in its place.
    pub name: String,
    /// Address of the site's own logo.
    pub logo: Option<String>,
    /// One of the eight hues of the design.
    pub hue: Option<u8>,
    /// Below each page, and beside the sign-in, in the reader's language; empty for none.
    pub footer: String,
    pub sign_in: String,
}

/// The surroundings of one answer.
#[derive(Clone, Debug)]
pub struct PageLayout {
    pub text: Text,
    pub theme: Theme,
    pub here: Nav,
    /// The name of the site or of the machine, top left and in every title.
    pub host: String,
    pub look: SiteLook,
    /// The address users use, under the name.
    pub address: String,
    pub version: &'static str,
    pub user: Option<SignedInUser>,
    /// Whether the menu shows what only administrators use.
    pub administrator: bool,
    /// Whether the menu has projects.
    pub projects: bool,
    /// Whether the menu has the audit log.
    pub audits: bool,
    /// Whether the menu has announcements.
    pub announces: bool,
    /// Whether the menu has courses.
    pub courses: bool,
    /// Whether the menu has presets.
    pub presets: bool,
    /// Whether the menu has budgets.
    pub budgets: bool,
    /// What the reader is told above the page.
    pub announcements: Vec<AnnouncementBanner>,
    /// How many more there are behind a link.
    pub more_announcements: usize,
    /// This answer's own number for `<style>` made by the terminal.
    pub nonce: String,
    /// Path and query of this page, so that a switch leads back to it.
    pub path: String,
    pub sessions: u64,
    pub waiting: u64,
    /// Notices of the user's own sessions that they have not read.
    pub unread: u64,
    /// Folders that are offered to the user and wait for their answer.
    pub offered: u64,
    /// Things that need an administrator's attention; 0 for everybody else.
    pub attention: u64,
    /// Nodes that take no new sessions, for those who are about to launch one.
    pub maintenance: Vec<NodeInMaintenance>,
    /// Address of this page's stream of changes; none for pages that never change by themselves.
    pub live: Option<String>,
    /// A sentence about what was just done.
    pub notice: Option<String>,
    /// That sentence says that a trial failed.
    pub notice_warns: bool,
    /// Whether single keys are shortcuts.
    pub keys: bool,
    /// Whether browsers see a certificate here.
    pub encrypted: bool,
}

impl PageLayout {
    pub fn asset(&self, name: &str) -> String {
        assets::address(name)
    }

    /// ` aria-current="page"` for the entry this page belongs to, nothing for others.
    pub fn current(&self, entry: Nav) -> Attribute {
        Attribute(if self.here == entry {
            " aria-current=\"page\""
        } else {
            ""
        })
    }

    /// `on` where single keys are shortcuts.
    pub fn keys_word(&self) -> &'static str {
        if self.keys { "on" } else { "off" }
    }

    /// Sessions, waiting ones, unread notices and what needs attention, as the menu's script has them.
    pub fn counts(&self) -> String {
        format!(
            "{} {} {} {}",
            self.sessions, self.waiting, self.unread, self.attention
        )
    }

    pub fn next_theme(&self) -> &'static str {
        match self.theme {
            Theme::System => Theme::Light.code(),
            Theme::Light => Theme::Dark.code(),
            Theme::Dark => Theme::System.code(),
        }
    }

    pub fn theme_name(&self) -> &'static str {
        self.theme.name(self.text)
    }

    pub fn theme_icon(&self) -> &'static str {
        match self.theme {
            Theme::System => "sun-moon",
            Theme::Light => "sun",
            Theme::Dark => "moon",
        }
    }
}

/// How bright the console is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    pub const ALL: [Theme; 3] = [Theme::System, Theme::Light, Theme::Dark];

    /// As cookies, forms and `data-theme` write it.
    pub fn code(self) -> &'static str {
        match self {
            Theme::System => "system",
            Theme::Light => "light",
            Theme::Dark => "dark",
        }
    }

    pub fn from_code(code: &str) -> Option<Theme> {
        Theme::ALL.into_iter().find(|theme| theme.code() == code)
    }

    pub fn name(self, text: Text) -> &'static str {
        match self {
            Theme::System => text.theme_system(),
            Theme::Light => text.theme_light(),
            Theme::Dark => text.theme_dark(),
        }
    }
}

impl fmt::Display for Theme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A ready attribute of our own making, not escaped again.
#[derive(Clone, Copy, Debug)]
pub struct Attribute(pub &'static str);

impl Attribute {
    /// Of the input to begin with; nothing for another.
    pub fn focus(here: bool) -> Attribute {
        Attribute(if here { " autofocus" } else { "" })
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FastWritable for Attribute {
    fn write_into(
        &self,
        dest: &mut dyn fmt::Write,
        _values: &dyn askama::Values,
    ) -> askama::Result<()> {
        Ok(dest.write_str(self.0)?)
    }
}

impl HtmlSafe for Attribute {}
