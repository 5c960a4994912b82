//! The table of images: names of imported images and the machine's own programs, who uses them, the same rows as a file,
//! and removing several after a question. Nothing is removed on one click.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Form, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use rules::image::CatalogImage;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::units::Timestamp;
use server::Failure;
use server::access::Caller;
use server::actions::images;

use super::super::authentication::PageCaller;
use super::super::components;
use super::super::dialog::{self, DialogForm, DialogPage, MAX_NAMED};
use super::super::layout::Nav;
use super::super::request_context::RequestContext;
use super::super::table::{
    self, ColumnDisplay, DataTable, EmptyTable, FilterBar, RowAction, RowMark, TableCell,
    TableColumn, TableLine, TableState,
};
use super::super::table_answer::{file, name_times};
use super::super::table_choices::{FilterWords, filter_bar};
use super::super::{PagesContext, layout, responses};
use super::{about, failed, short};
use crate::doors::text::Text;

/// Where the list is.
pub(super) const PATH: &str = "/images";
/// The parts of an address that choose rows.
pub(super) const FILTERS: [&str; 1] = ["q"];
/// Images that one form removes. Higher: one request frees layers for longer. Lower: a large clean-up takes more clicks.
const MAX_REMOVED: usize = 100;

/// One row: a name of an imported image, or the host's own programs.
pub(super) struct ListedImage {
    image: Option<CatalogImage>,
    /// Live sessions that the caller may see.
    used: u64,
}

impl ListedImage {
    fn name(&self) -> &str {
        self.image.as_ref().map_or("host", |image| &image.reference)
    }

    fn size(&self) -> u64 {
        self.image.as_ref().map_or(0, |image| image.size.0)
    }

    fn imported_at(&self) -> Timestamp {
        let at = self.image.as_ref().map(|image| image.imported_at);
        at.unwrap_or(Timestamp::from_millis(0))
    }
}

/// What the list holds.
pub(super) struct ImageList {
    pub(super) filter: FilterBar,
    pub(super) table: DataTable,
    pub(super) summary: String,
    /// The stream that follows it.
    pub(super) live: String,
    /// Nothing was imported yet.
    pub(super) only_host: bool,
}

fn listed(known: Vec<CatalogImage>, used: &BTreeMap<String, u64>) -> Vec<ListedImage> {
    let host = ListedImage {
        image: None,
        used: used.get("host").copied().unwrap_or(0),
    };
    let imported = known.into_iter().map(|image| ListedImage {
        used: used.get(&image.reference).copied().unwrap_or(0),
        image: Some(image),
    });
    std::iter::once(host).chain(imported).collect()
}

/// How many images there are and what they take: names of one digest are one image.
fn total(known: &[CatalogImage]) -> (u64, u64) {
    let sizes: BTreeMap<&str, u64> = known
        .iter()
        .map(|image| (image.digest.as_str(), image.size.0))
        .collect();
    (sizes.len() as u64, sizes.values().sum())
}

/// The rows that the filter lets through, in the order of the address. Words narrow; `used:no` and `used:yes` look at
/// the sessions.
fn chosen(state: &TableState, mut rows: Vec<ListedImage>) -> Vec<ListedImage> {
    let typed = state.filter("q").to_lowercase();
    for word in typed.split_whitespace() {
        rows.retain(|row| match word {
            "used:no" => row.used == 0,
            "used:yes" => row.used > 0,
            _ => {
                let image = row.image.as_ref();
                let also = image.is_some_and(|image| {
                    image.digest.contains(word) || about(image).to_lowercase().contains(word)
                });
                also || row.name().to_lowercase().contains(word)
            }
        });
    }
    let (key, descending) = match state.sort.strip_prefix('-') {
        Some(key) => (key, true),
        None => (state.sort.as_str(), false),
    };
    match key {
        "size" => rows.sort_by_key(ListedImage::size),
        "used" => rows.sort_by_key(|row| row.used),
        "imported_at" => rows.sort_by_key(ListedImage::imported_at),
        "name" => rows.sort_by(|a, b| a.name().cmp(b.name())),
        // The host's own stands first.
        _ => {}
    }
    if descending {
        rows.reverse();
    }
    rows
}

fn columns(t: Text) -> Vec<TableColumn> {
    let more = |key, name: &str| {
        TableColumn::new(key, name)
            .class("wide")
            .display(ColumnDisplay::Hidden)
    };
    vec![
        TableColumn::new("name", t.images_name())
            .sorted_by("name")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("what", t.images_what()).class("why"),
        TableColumn::new("size", t.images_size())
            .sorted_by("-size")
            .class("num"),
        TableColumn::new("used", t.images_used())
            .sorted_by("-used")
            .class("num wide"),
        TableColumn::new("age", t.images_age())
            .sorted_by("-imported_at")
            .class("num wide"),
        more("digest", t.images_digest()),
        more("architecture", t.images_architecture()),
        more("id", "ID"),
    ]
}

/// A field of an image. Without `now` it is told for a file that is read later.
fn cell(visit: &RequestContext, key: &str, row: &ListedImage, now: Option<Timestamp>) -> TableCell {
    let t = visit.text;
    let Some(image) = &row.image else {
        return match key {
            "name" => link("/images/host".to_owned(), "host", String::new(), now),
            "what" => TableCell::Text {
                text: t.images_embedded().to_owned(),
                note: t.images_embedded_note().to_owned(),
            },
            "used" => TableCell::text(row.used.to_string()),
            _ => TableCell::Empty,
        };
    };
    match key {
        "name" => {
            let note = short(&image.digest);
            link(format!("{PATH}/{}", image.id), &image.reference, note, now)
        }
        "what" => TableCell::Text {
            text: match (image.owner.is_some(), image.shared) {
                (true, false) => {
                    let private = t.image_private_of_other();
                    format!("{} · {private}", t.image_of_session())
                }
                (true, true) => t.image_of_session().to_owned(),
                (false, _) => t.images_imported().to_owned(),
            },
            note: about(image),
        },
        "size" => TableCell::text(match now {
            Some(_) => components::size(image.size.0),
            None => image.size.0.to_string(),
        }),
        "used" => TableCell::text(row.used.to_string()),
        "age" => TableCell::text(match now {
            Some(now) => visit.clock.ago(image.imported_at, now),
            None => image.imported_at.to_string(),
        }),
        "digest" => TableCell::Code(image.digest.clone()),
        "architecture" => TableCell::text(image.architecture.clone()),
        "id" => TableCell::Code(image.id.to_string()),
        _ => TableCell::Empty,
    }
}

fn link(href: String, text: &str, note: String, now: Option<Timestamp>) -> TableCell {
    match now {
        Some(_) => TableCell::Link {
            href,
            text: text.to_owned(),
            note,
        },
        None => TableCell::text(text),
    }
}

/// The list as the address asks for it. O(images), and O(live sessions) for who uses them.
pub(super) async fn read(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    headers: &HeaderMap,
    asked: &[(String, String)],
) -> Result<ImageList, Failure> {
    let t = visit.text;
    let now = console.server.clock().now();
    let known = images::list(&console.server, caller).await?;
    let used = images::used(&console.server, caller).await?;
    let (count, size) = total(&known);
    let (names, only_host) = (known.len() as u64, known.is_empty());
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.choose_columns("images", &columns, asked, headers, visit);
    let found = chosen(&state, listed(known, &used));
    let total = found.len() as u64;
    let first = usize::try_from(state.offset()).unwrap_or(usize::MAX);
    let may_remove = caller.subject.can(Permission::ImagesWrite);
    let rows = found
        .iter()
        .skip(first)
        .take(table::ROWS as usize)
        .map(|row| {
            let id = row.image.as_ref().map(|image| image.id.to_string());
            TableLine {
                id: format!("i-{}", id.as_deref().unwrap_or("host")),
                mark: id.filter(|_| may_remove).map(|value| RowMark {
                    value,
                    label: t.sessions_mark(row.name()),
                    count: 1,
                }),
                cells: state
                    .columns
                    .iter()
                    .map(|key| cell(visit, key, row, Some(now)))
                    .collect(),
                action: Some(RowAction {
                    href: format!("/sessions/new?image={}", responses::encoded(row.name())),
                    icon: "play",
                    label: t.images_launch_named(row.name()),
                    dialog: false,
                }),
            }
        })
        .collect();
    let empty = EmptyTable::no_match(t, t.images_no_match(), PATH);
    let mut table = DataTable::new(t, &state, &columns, "host", rows, total, empty);
    table.csv = (!table.rows.is_empty()).then(|| state.beside("/images.csv"));
    let summary = t.images_summary(count, components::size(size));
    Ok(ImageList {
        filter: filter(visit, headers, &state, &columns),
        table,
        live: state.beside("/images/live"),
        summary: match names > count {
            true => t.images_names(summary, names),
            false => summary,
        },
        only_host,
    })
}

fn filter(
    visit: &RequestContext,
    headers: &HeaderMap,
    state: &TableState,
    columns: &[TableColumn],
) -> FilterBar {
    let t = visit.text;
    let words = FilterWords {
        table: "images",
        path: PATH,
        hint: t.images_filter_hint(),
        label: t.images_filter(),
        shipped: &[
            (t.images_view_all(), ""),
            (t.images_view_unused(), "q=used%3Ano"),
            (t.images_view_large(), "sort=-size"),
        ],
        examples: &[
            ("pytorch", t.images_help_word()),
            ("used:no", t.images_help_unused()),
            ("used:yes", t.images_help_used()),
        ],
    };
    filter_bar(visit, headers, state, columns, &words)
}

/// `GET /images.csv`: the images that the filter lets through, with the columns that are shown; sizes in bytes.
pub(super) async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let read = async {
        let known = images::list(&console.server, &caller).await?;
        let used = images::used(&console.server, &caller).await?;
        Ok((known, used))
    };
    let (known, used) = match read.await {
        Ok(read) => read,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let t = visit.text;
    let mut columns = columns(t);
    name_times(t, &mut columns, &[("age", t.images_age())]);
    let mut state = TableState::read(PATH, &FILTERS, &asked);
    state.choose_columns("images", &columns, &asked, &headers, &visit);
    let rows = chosen(&state, listed(known, &used));
    file(&visit, "images", &state, &columns, &rows, |row, key| {
        cell(&visit, key, row, None)
    })
}

/// The images that a form or an address names with `id=ID`, each once.
async fn named(
    console: &PagesContext,
    caller: &Caller,
    said: &[(String, String)],
) -> Result<Vec<CatalogImage>, Failure> {
    let wanted: BTreeSet<&str> = said
        .iter()
        .filter(|(name, _)| name == "id")
        .map(|(_, id)| id.as_str())
        .take(MAX_REMOVED)
        .collect();
    let mut known = images::list(&console.server, caller).await?;
    known.retain(|image| wanted.contains(image.id.to_string().as_str()));
    Ok(known)
}

/// `GET /images/remove?id=…`: what would go, by name, what that frees, and the button that removes it.
pub(super) async fn ask(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(said): Query<Vec<(String, String)>>,
) -> Response {
    let t = visit.text;
    let read = async {
        let chosen = named(&console, &caller, &said).await?;
        let known = images::list(&console.server, &caller).await?;
        let used = images::used(&console.server, &caller).await?;
        Ok((chosen, known, used))
    };
    let (chosen, known, used) = match read.await {
        Ok(read) => read,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let (free, busy): (Vec<CatalogImage>, Vec<CatalogImage>) = chosen
        .into_iter()
        .partition(|image| !used.contains_key(&image.reference));
    let lead = match (free.is_empty(), busy.is_empty()) {
        (true, _) => t.images_remove_none().to_owned(),
        (false, true) => t.images_remove_lead(components::size(freed(&known, &free))),
        (false, false) => {
            t.images_remove_some_lead(components::size(freed(&known, &free)), busy.len() as u64)
        }
    };
    let page = DialogPage {
        t,
        f: layout(&console, &visit, &caller, Nav::Images),
        title: match free.as_slice() {
            [] => t.images_remove_none_title().to_owned(),
            [one] => t.remove_title(one.reference.as_str()),
            several => t.images_remove_title(several.len() as u64),
        },
        lead,
        items: free
            .iter()
            .take(MAX_NAMED)
            .map(|image| format!("{} · {}", image.reference, components::size(image.size.0)))
            .collect(),
        more: match free.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => t.stop_more(more as u64),
        },
        links: Vec::new(),
        form: (!free.is_empty()).then(|| DialogForm {
            action: "/images/remove".to_owned(),
            fields: free
                .iter()
                .map(|image| ("id", image.id.to_string()))
                .collect(),
            icon: "trash-2",
            go: t.images_remove_go().to_owned(),
            ends: true,
            force: None,
        }),
        why: "",
        back: PATH.to_owned(),
    };
    dialog::answer(&console, &visit, Nav::Images, page)
}

/// Bytes of the images of which no name stays.
fn freed(known: &[CatalogImage], gone: &[CatalogImage]) -> u64 {
    let stays: BTreeSet<&str> = known
        .iter()
        .filter(|image| gone.iter().all(|other| other.id != image.id))
        .map(|image| image.digest.as_str())
        .collect();
    let sizes: BTreeMap<&str, u64> = gone
        .iter()
        .filter(|image| !stays.contains(image.digest.as_str()))
        .map(|image| (image.digest.as_str(), image.size.0))
        .collect();
    sizes.values().sum()
}

/// `POST /images/remove`: removes every named image that no session uses. Each is a change of its own: one that cannot
/// be removed keeps none of the others.
pub(super) async fn remove(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(said): Form<Vec<(String, String)>>,
) -> Response {
    let chosen = match named(&console, &caller, &said).await {
        Ok(chosen) => chosen,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let mut removed = 0_u64;
    let mut refused: Option<Refusal> = None;
    for image in &chosen {
        match images::remove(&console.server, &caller, &image.id.to_string()).await {
            Ok(_) => removed += 1,
            Err(Failure::Refusal(refusal)) => refused = Some(refusal),
            Err(fault) => return failed(&console, &visit, &caller, &fault),
        }
    }
    match (removed, refused, chosen.as_slice()) {
        (0, Some(refusal), _) => failed(&console, &visit, &caller, &Failure::Refusal(refusal)),
        (0, None, _) => responses::see(PATH),
        (_, None, [one]) => responses::see_with(PATH, "remove", &one.reference),
        (_, None, _) => responses::see_with(PATH, "images-removed", &removed.to_string()),
        (_, Some(_), _) => responses::see_with(PATH, "images-removed-some", &removed.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use rules::names::ImageId;
    use rules::units::Bytes;

    use super::*;

    fn image(number: u128, reference: &str, digest: &str, gib: u64) -> CatalogImage {
        CatalogImage {
            id: ImageId(uuid::Uuid::from_u128(number)),
            reference: reference.to_owned(),
            digest: digest.to_owned(),
            size: Bytes::gib(gib),
            architecture: "amd64".to_owned(),
            created_at: Timestamp::from_millis(0),
            imported_at: Timestamp::from_millis(i64::try_from(number).unwrap_or(0)),
            limits: rules::image_limits::ImageLimits::default(),
            limits_set: false,
            labels: BTreeMap::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            env: Vec::new(),
            user: String::new(),
            working_directory: String::new(),
            stop_signal: String::new(),
            generation: 1,
            owner: None,
            shared: true,
            domain: rules::tenancy::DomainId(uuid::Uuid::nil()),
        }
    }

    fn three() -> Vec<CatalogImage> {
        vec![
            image(1, "latest:1", "sha256:aa", 9),
            image(2, "pytorch:2.9", "sha256:aa", 9),
            image(3, "tools:1", "sha256:bb", 2),
        ]
    }

    #[test]
    fn names_of_one_digest_are_one_image() {
        let known = three();
        assert_eq!(total(&known), (2, Bytes::gib(11).0));
        // Its bytes stay while another name has them.
        assert_eq!(freed(&known, &known[..1]), 0);
        assert_eq!(freed(&known, &known[..2]), Bytes::gib(9).0);
    }

    #[test]
    fn images_sort_by_what_the_heads_say_and_are_found_by_use() {
        let used = BTreeMap::from([("host".to_owned(), 1), ("tools:1".to_owned(), 3)]);
        let names = |query: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let asked: Vec<_> = query.iter().map(own).collect();
            let state = TableState::read(PATH, &FILTERS, &asked);
            let rows = chosen(&state, listed(three(), &used));
            let names: Vec<String> = rows.iter().map(|row| row.name().to_owned()).collect();
            names.join(" ")
        };
        assert_eq!(names(&[]), "host latest:1 pytorch:2.9 tools:1");
        assert_eq!(
            names(&[("sort", "-used")]),
            "tools:1 host pytorch:2.9 latest:1"
        );
        assert_eq!(
            names(&[("sort", "size")]),
            "host tools:1 latest:1 pytorch:2.9"
        );
        assert_eq!(names(&[("q", "used:no TORCH")]), "pytorch:2.9");
        assert_eq!(names(&[("q", "sha256:bb")]), "tools:1");
    }
}
