//! How a list of a page becomes a table: columns that sort by links and can be hidden, pages with counts, marks, a
//! filter that stands in the address. Pages describe columns and cells; what a row means is theirs.

use askama::Template;
use askama::filters::HtmlSafe;
use axum::http::HeaderMap;

use super::components;
use super::request_context::{RequestContext, taste_of};
use super::responses::encoded;
use crate::doors::text::Text;

/// Rows of one page of a table. Higher: a page passes its budget of bytes. Lower: more clicks through a long list.
pub const ROWS: u32 = 50;
/// Rows where the page has a form or a calendar as well. Higher: a full page passes 3,000 pixels. Lower: more clicks.
pub const ROWS_BY_FORM: u32 = 30;
/// The last page that an address can ask for. Higher: an address makes the catalog count past more rows.
const MAX_PAGE: u32 = 1_000_000;

/// When a column is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnDisplay {
    /// Always; it names the row.
    Fixed,
    /// Until the user hides it.
    Shown,
    /// Once the user wants it.
    Hidden,
}

/// One column as a page describes it.
#[derive(Clone, Debug)]
pub struct TableColumn {
    /// In addresses and cookies.
    pub key: &'static str,
    pub name: String,
    /// The word of `sort=` for this column, with `-` where its first click descends; empty: it does not sort.
    pub sort: &'static str,
    /// Classes of its cells: `num`, `wide` (hidden on narrow screens), `u` (a measured use), `below` (below the others on
    /// a phone, with its name).
    pub class: &'static str,
    pub display: ColumnDisplay,
}

impl TableColumn {
    /// A column that is shown and does not sort.
    pub fn new(key: &'static str, name: impl Into<String>) -> TableColumn {
        TableColumn {
            key,
            name: name.into(),
            sort: "",
            class: "",
            display: ColumnDisplay::Shown,
        }
    }

    pub fn sorted_by(self, sort: &'static str) -> TableColumn {
        TableColumn { sort, ..self }
    }

    pub fn class(self, class: &'static str) -> TableColumn {
        TableColumn { class, ..self }
    }

    pub fn display(self, display: ColumnDisplay) -> TableColumn {
        TableColumn { display, ..self }
    }
}

/// What stands in one field of a table. Notes stand small below; empty ones are left out.
#[derive(Clone, Debug)]
pub enum TableCell {
    Empty,
    Text {
        text: String,
        note: String,
    },
    /// The name of the row.
    Link {
        href: String,
        text: String,
        note: String,
    },
    /// A state: class of the pill, word, reason.
    Pill {
        tone: &'static str,
        text: String,
        note: String,
    },
    /// A use of something, in per cent.
    Bar {
        text: String,
        percent: u8,
        accent: bool,
    },
    /// Something that happened: class of the dot, words, and its code.
    Dot {
        tone: &'static str,
        text: String,
        note: String,
    },
    /// Digests, addresses and commands.
    Code(String),
}

impl TableCell {
    pub fn text(text: impl Into<String>) -> TableCell {
        match text.into() {
            text if text.is_empty() => TableCell::Empty,
            text => TableCell::Text {
                text,
                note: String::new(),
            },
        }
    }

    /// What a file of comma-separated values says of it.
    pub(super) fn plain(&self) -> String {
        match self {
            TableCell::Empty => String::new(),
            TableCell::Text { text, note }
            | TableCell::Link { text, note, .. }
            | TableCell::Pill { text, note, .. }
            | TableCell::Dot { text, note, .. } => match note.is_empty() {
                true => text.clone(),
                false => format!("{text} ({note})"),
            },
            TableCell::Bar { text, .. } | TableCell::Code(text) => text.clone(),
        }
    }
}

/// The box of a row that can be marked.
#[derive(Clone, Debug)]
pub struct RowMark {
    pub value: String,
    pub label: String,
    /// How many things the row stands for.
    pub count: u64,
}

/// What can be done with a row: one link at its end.
#[derive(Clone, Debug)]
pub struct RowAction {
    pub href: String,
    pub icon: &'static str,
    pub label: String,
    /// It opens in a dialog where there is script.
    pub dialog: bool,
}

/// One row.
#[derive(Clone, Debug)]
pub struct TableLine {
    /// Of the element, so that updates keep the focus: letters and digits, unique on the page.
    pub id: String,
    pub mark: Option<RowMark>,
    /// In the order of the columns that are shown.
    pub cells: Vec<TableCell>,
    pub action: Option<RowAction>,
}

/// What stands where there are no rows.
#[derive(Clone, Debug)]
pub struct EmptyTable {
    pub icon: &'static str,
    pub title: String,
    pub lead: String,
    pub href: String,
    pub go: String,
}

impl EmptyTable {
    /// There are no rows yet, and the page itself says how to make one.
    pub fn without_rows(icon: &'static str, title: &str, lead: &str) -> EmptyTable {
        EmptyTable {
            icon,
            title: title.to_owned(),
            lead: lead.to_owned(),
            href: String::new(),
            go: String::new(),
        }
    }

    /// No row matches the filter; the way out clears it.
    pub fn no_match(t: Text, title: impl Into<String>, path: &str) -> EmptyTable {
        EmptyTable {
            icon: "search",
            title: title.into(),
            lead: t.sessions_no_match_lead().to_owned(),
            href: path.to_owned(),
            go: t.sessions_clear().to_owned(),
        }
    }
}

/// Where a page of a table is: what its address says.
#[derive(Clone, Debug, Default)]
pub struct TableState {
    /// Address of the page, without a query.
    pub path: std::borrow::Cow<'static, str>,
    /// Filters by name, in the order of the address; empty ones are left out of it.
    pub filters: Vec<(&'static str, String)>,
    /// As typed; empty: the usual order.
    pub sort: String,
    /// From 1.
    pub page: u32,
    /// Of one page: `ROWS`, or fewer where the page has other things or higher rows.
    pub rows: u32,
    /// Keys of the columns that are shown.
    pub columns: Vec<&'static str>,
}

impl TableState {
    /// Reads an address: the filters of these names, `sort` and `page`. What is not known is left out.
    pub fn read(
        path: impl Into<std::borrow::Cow<'static, str>>,
        filters: &[&'static str],
        asked: &[(String, String)],
    ) -> TableState {
        let value = |wanted: &str| {
            let found = asked.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        TableState {
            path: path.into(),
            filters: filters.iter().map(|name| (*name, value(name))).collect(),
            sort: value("sort"),
            page: value("page").parse().unwrap_or(1).clamp(1, MAX_PAGE),
            rows: ROWS,
            columns: Vec::new(),
        }
    }

    /// Chooses the columns: those that the address names, else those of the cookie, else the usual ones.
    pub fn choose_columns(
        &mut self,
        table: &str,
        columns: &[TableColumn],
        asked: &[(String, String)],
        headers: &HeaderMap,
        visit: &RequestContext,
    ) {
        let named = asked.iter().find(|(name, _)| name == "cols");
        let chosen = named.map(|(_, value)| value.clone()).or_else(|| {
            taste_of(headers, visit.secure, &column_cookie(table))
                .filter(|kept| !kept.is_empty())
                .map(str::to_owned)
        });
        let wanted = |column: &&TableColumn| match (&chosen, column.display) {
            (_, ColumnDisplay::Fixed) => true,
            (Some(chosen), _) => chosen.split('.').any(|key| key == column.key),
            (None, display) => display == ColumnDisplay::Shown,
        };
        self.columns = columns.iter().filter(wanted).map(|c| c.key).collect();
    }

    /// Whether the address names filters that are not set, as a form without script sends them: then `address` is
    /// the shorter way to say the same.
    pub fn has_empty_filters(&self, asked: &[(String, String)]) -> bool {
        let known = |name: &str| self.filters.iter().any(|(filter, _)| *filter == name);
        asked
            .iter()
            .any(|(name, value)| value.is_empty() && known(name))
    }

    /// The value of a filter; empty for one that is not set.
    pub fn filter(&self, name: &str) -> &str {
        let found = self.filters.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// The first page of the same list with another value of one filter.
    pub fn with_filter(&self, name: &str, value: &str) -> TableState {
        let mut other = self.clone();
        other.page = 1;
        for (known, now) in &mut other.filters {
            if *known == name {
                value.clone_into(now);
            }
        }
        other
    }

    /// Whether anything is filtered.
    pub fn filtered(&self) -> bool {
        self.filters.iter().any(|(_, value)| !value.is_empty())
    }

    /// Rows before this page.
    pub fn offset(&self) -> u64 {
        u64::from(self.page - 1) * u64::from(self.rows)
    }

    /// The rows of this page out of all that the filter lets through.
    pub fn page_of<T>(&self, rows: Vec<T>) -> Vec<T> {
        let first = usize::try_from(self.offset()).unwrap_or(usize::MAX);
        let most = self.rows as usize;
        rows.into_iter().skip(first).take(most).collect()
    }

    /// The address of this state.
    pub fn address(&self) -> String {
        self.at(&self.sort, self.page)
    }

    /// The same list in another order or on another page.
    fn at(&self, sort: &str, page: u32) -> String {
        with_query(&self.path, &self.pairs(sort, page))
    }

    /// The address of another list of the same state, such as its stream or its file, with its columns.
    pub fn beside(&self, path: &str) -> String {
        let mut pairs = self.pairs(&self.sort, self.page);
        pairs.push(("cols", self.columns.join(".")));
        with_query(path, &pairs)
    }

    fn pairs(&self, sort: &str, page: u32) -> Vec<(&'static str, String)> {
        let mut pairs: Vec<_> = self
            .filters
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .cloned()
            .collect();
        if !sort.is_empty() {
            pairs.push(("sort", sort.to_owned()));
        }
        if page > 1 {
            pairs.push(("page", page.to_string()));
        }
        pairs
    }
}

fn with_query(path: &str, pairs: &[(&'static str, String)]) -> String {
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    match pairs.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", pairs.join("&")),
    }
}

/// The cookie that keeps which columns a user shows of a table.
pub fn column_cookie(table: &str) -> String {
    format!("fardel_columns_{table}")
}

/// The foot of a list: where its page is, its file, and the way to other pages.
#[derive(Template, Clone, Debug)]
#[template(config = "web/askama.toml", path = "parts/pager.html")]
pub struct Pager {
    pub t: Text,
    /// `51–100 of 775`
    pub range: String,
    pub previous: Option<String>,
    pub next: Option<String>,
    /// The order is by time: the pages are newer and older ones.
    pub by_time: bool,
    /// The file of comma-separated values.
    pub csv: Option<String>,
    /// Another way to see the same: where, and its words.
    pub other: Option<(String, String)>,
}

impl HtmlSafe for Pager {}

impl Pager {
    /// The foot of a page with so many rows of `total`, in an order that is not by time.
    pub fn new(t: Text, state: &TableState, rows: u64, total: u64) -> Pager {
        let (first, last) = (state.offset() + 1, state.offset() + rows);
        Pager {
            t,
            range: match rows {
                0 => String::new(),
                _ => t.table_range(first, last, total.max(last)),
            },
            previous: (state.page > 1).then(|| state.at(&state.sort, state.page - 1)),
            next: (last < total && rows > 0).then(|| state.at(&state.sort, state.page + 1)),
            by_time: false,
            csv: None,
            other: None,
        }
    }
}

/// One page of all rows at hand, the last one where a later one is asked for, and the way to the others; no words where
/// one page has all.
pub fn one_page<T>(t: Text, path: &'static str, page: &str, all: Vec<T>) -> (Vec<T>, Pager) {
    let asked = [("page".to_owned(), page.to_owned())];
    let mut state = TableState::read(path, &[], &asked);
    let total = all.len() as u64;
    let last = total.div_ceil(u64::from(state.rows)).max(1);
    state.page = state.page.min(u32::try_from(last).unwrap_or(u32::MAX));
    let rows = state.page_of(all);
    let mut pager = Pager::new(t, &state, rows.len() as u64, total);
    if last == 1 {
        pager.range = String::new();
    }
    (rows, pager)
}

/// The head of one column.
#[derive(Clone, Debug)]
pub struct TableHead {
    pub name: String,
    pub class: &'static str,
    /// Where a click leads; none where the column does not sort.
    pub href: Option<String>,
    /// `ascending`, `descending`, or empty.
    pub order: &'static str,
}

/// A table with its heads, rows and way to other pages, ready to be written into a page.
#[derive(Template, Clone, Debug)]
#[template(config = "web/askama.toml", path = "parts/table.html")]
pub struct DataTable {
    pub t: Text,
    pub heads: Vec<TableHead>,
    pub rows: Vec<TableLine>,
    /// What is wrong with the filter.
    pub fault: Option<String>,
    pub empty: EmptyTable,
    /// `51–100 of 775`
    pub range: String,
    pub previous: Option<String>,
    pub next: Option<String>,
    /// The order is by time: the pages are newer and older ones.
    pub by_time: bool,
    /// The file of comma-separated values.
    pub csv: Option<String>,
    /// Another way to see the same: where, and its words.
    pub other: Option<(String, String)>,
    /// The form that marks belong to; rows have boxes where one can be marked.
    pub marks: &'static str,
}

impl HtmlSafe for DataTable {}

impl DataTable {
    /// A table of these rows. `total` counts all pages; `usual` is the word of the order without
    /// `sort`.
    pub fn new(
        t: Text,
        state: &TableState,
        columns: &[TableColumn],
        usual: &'static str,
        rows: Vec<TableLine>,
        total: u64,
        empty: EmptyTable,
    ) -> DataTable {
        let shown = columns
            .iter()
            .filter(|column| state.columns.contains(&column.key));
        let foot = Pager::new(t, state, rows.len() as u64, total);
        let empty = match rows.is_empty() && total > 0 {
            true => EmptyTable {
                icon: "search",
                title: t.table_past_end().to_owned(),
                lead: t.table_past_end_lead().to_owned(),
                href: state.at(&state.sort, 1),
                go: t.table_first_page().to_owned(),
            },
            false => empty,
        };
        let order = match state.sort.is_empty() {
            true => usual,
            false => state.sort.as_str(),
        };
        DataTable {
            t,
            heads: shown
                .map(|column| head(state, column, order, usual))
                .collect(),
            range: foot.range,
            previous: foot.previous,
            next: foot.next,
            by_time: order.trim_start_matches('-').ends_with("_at") || order.is_empty(),
            rows,
            fault: None,
            empty,
            csv: None,
            other: None,
            marks: "marked",
        }
    }

    /// Whether any row can be marked.
    pub fn markable(&self) -> bool {
        self.rows.iter().any(|row| row.mark.is_some())
    }

    /// Whether any row has an action.
    pub fn actionable(&self) -> bool {
        self.rows.iter().any(|row| row.action.is_some())
    }
}

fn head(state: &TableState, column: &TableColumn, order: &str, usual: &str) -> TableHead {
    let own = column.sort.trim_start_matches('-');
    let sorts = !own.is_empty() && order.trim_start_matches('-') == own;
    let descends = order.starts_with('-');
    // The first click takes the direction that the column likes, the next one the other.
    let next = match (sorts, descends) {
        (true, true) => own.to_owned(),
        (true, false) => format!("-{own}"),
        (false, _) => column.sort.to_owned(),
    };
    let next = if next == usual { String::new() } else { next };
    TableHead {
        name: column.name.clone(),
        class: column.class,
        href: (!own.is_empty()).then(|| state.at(&next, 1)),
        order: match (sorts, descends) {
            (false, _) => "",
            (true, false) => "ascending",
            (true, true) => "descending",
        },
    }
}

/// One column in the form that chooses them.
#[derive(Clone, Debug)]
pub struct ColumnChoice {
    pub key: &'static str,
    pub name: String,
    pub shown: bool,
}

/// A view that is one click away.
#[derive(Clone, Debug)]
pub struct ViewLink {
    pub name: String,
    pub href: String,
    pub current: bool,
    /// The user saved it, and can remove it.
    pub own: bool,
}

/// One line of the help for the filter: what to type, and what it finds.
#[derive(Clone, Debug)]
pub struct FilterExample {
    pub typed: &'static str,
    pub finds: String,
}

/// One choice beside the filter.
#[derive(Clone, Debug)]
pub struct FilterPicker {
    pub name: &'static str,
    pub label: String,
    pub choices: Vec<components::Choice>,
}

/// The line above a table: filter, choices, views, columns, help.
#[derive(Template, Clone, Debug)]
#[template(config = "web/askama.toml", path = "parts/filter.html")]
pub struct FilterBar {
    pub t: Text,
    pub module: String,
    /// Of the table, in cookies and in ids.
    pub table: &'static str,
    pub path: &'static str,
    /// This page, so that a choice leads back to it.
    pub here: String,
    pub q: String,
    pub hint: String,
    pub label: String,
    pub pickers: Vec<FilterPicker>,
    /// Kept while the filter changes.
    pub hidden: Vec<(&'static str, String)>,
    pub columns: Vec<ColumnChoice>,
    pub views: Vec<ViewLink>,
    pub examples: Vec<FilterExample>,
    /// Id of the element that the filter fills.
    pub target: &'static str,
}

impl HtmlSafe for FilterBar {}

/// The choices of columns of a table; fixed ones are not offered.
pub fn column_choices(state: &TableState, columns: &[TableColumn]) -> Vec<ColumnChoice> {
    columns
        .iter()
        .filter(|column| column.display != ColumnDisplay::Fixed)
        .map(|column| ColumnChoice {
            key: column.key,
            name: column.name.clone(),
            shown: state.columns.contains(&column.key),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<TableColumn> {
        vec![
            TableColumn::new("name", "Name")
                .sorted_by("name")
                .display(ColumnDisplay::Fixed),
            TableColumn::new("age", "Age").sorted_by("-created_at"),
            TableColumn::new("command", "Command").display(ColumnDisplay::Hidden),
        ]
    }

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        query.iter().map(own).collect()
    }

    fn state(query: &[(&str, &str)]) -> TableState {
        let asked = pairs(query);
        let mut state = TableState::read("/things", &["q", "scope"], &asked);
        let visit = RequestContext::of(
            &HeaderMap::new(),
            &axum::http::Extensions::new(),
            "/things".into(),
        );
        state.choose_columns("things", &columns(), &asked, &HeaderMap::new(), &visit);
        state
    }

    fn table(state: &TableState, rows: usize, total: u64) -> DataTable {
        let row = TableLine {
            id: "x".to_owned(),
            mark: None,
            cells: Vec::new(),
            action: None,
        };
        let empty = EmptyTable {
            icon: "search",
            title: String::new(),
            lead: String::new(),
            href: String::new(),
            go: String::new(),
        };
        DataTable::new(
            Text::default(),
            state,
            &columns(),
            "",
            vec![row; rows],
            total,
            empty,
        )
    }

    #[test]
    fn the_state_stands_in_the_address_and_nothing_else_does() {
        let state = state(&[("q", "a b&c"), ("scope", ""), ("page", "2"), ("evil", "x")]);
        assert_eq!(state.address(), "/things?q=a%20b%26c&page=2");
        assert_eq!(
            state.beside("/things/live"),
            "/things/live?q=a%20b%26c&page=2&cols=name.age"
        );
        assert_eq!(state.offset(), 50);
        let other = state.with_filter("scope", "mine");
        assert_eq!(other.address(), "/things?q=a%20b%26c&scope=mine");
        assert!(state.has_empty_filters(&pairs(&[("q", "a"), ("scope", "")])));
        assert!(!state.has_empty_filters(&pairs(&[("q", "a"), ("other", "")])));
        for odd in ["0", "-1", "x", "99999999999"] {
            let page = super::TableState::read("/things", &[], &pairs(&[("page", odd)])).page;
            assert_eq!(page, 1, "{odd}");
        }
    }

    #[test]
    fn heads_sort_one_way_and_then_the_other_and_begin_at_the_first_page() {
        let usual = table(&state(&[("page", "3")]), 1, 200);
        assert_eq!(usual.heads[0].href.as_deref(), Some("/things?sort=name"));
        assert_eq!(
            usual.heads[1].href.as_deref(),
            Some("/things?sort=-created_at")
        );
        let by_name = table(&state(&[("sort", "name")]), 1, 1);
        assert_eq!(by_name.heads[0].order, "ascending");
        assert_eq!(by_name.heads[0].href.as_deref(), Some("/things?sort=-name"));
        assert!(!by_name.by_time);
    }

    #[test]
    fn pages_say_where_they_are_and_lead_on() {
        let middle = table(&state(&[("page", "2")]), 50, 775);
        assert_eq!(middle.range, "51–100 of 775");
        assert_eq!(middle.previous.as_deref(), Some("/things"));
        assert_eq!(middle.next.as_deref(), Some("/things?page=3"));
        let last = table(&state(&[("page", "16")]), 25, 775);
        assert_eq!((last.range.as_str(), last.next), ("751–775 of 775", None));
    }

    #[test]
    fn columns_are_those_of_the_address_and_the_fixed_ones() {
        assert_eq!(state(&[]).columns, ["name", "age"]);
        assert_eq!(
            state(&[("cols", "command.nothing")]).columns,
            ["name", "command"]
        );
    }

    #[test]
    fn a_hundred_rows_are_two_pages_and_a_few_have_no_foot() {
        let t = Text::default();
        let page = |page: &str, n: usize| one_page(t, "/things", page, (0..n).collect());
        let (rows, pager) = page("", 100);
        assert_eq!((rows.len(), rows[0]), (50, 0));
        assert_eq!(pager.range, "1–50 of 100");
        assert_eq!(pager.next.as_deref(), Some("/things?page=2"));
        for asked in ["2", "7"] {
            let (rows, pager) = page(asked, 100);
            assert_eq!((rows.len(), rows[0]), (50, 50), "page {asked}");
            assert_eq!(pager.previous.as_deref(), Some("/things"));
            assert_eq!(pager.next, None);
        }
        let (rows, pager) = page("", 3);
        assert_eq!(
            (rows.len(), pager.range.as_str(), pager.next),
            (3, "", None)
        );
    }
}
