//! The table of devices, for machines with more of them than a floor plan shows at a glance; and the same rows as a file.

use api::gpus::Gpu;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use rules::devices::Health;
use rules::units::GpuShare;
use server::actions::gpus;

use super::super::authentication::PageCaller;
use super::super::components::{self, Choice};
use super::super::gpus_failure::failed;
use super::super::request_context::RequestContext;
use super::super::responses::encoded;
use super::super::table::{
    self, ColumnDisplay, DataTable, EmptyTable, FilterBar, FilterExample, FilterPicker, TableCell,
    TableColumn, TableLine, TableState,
};
use super::super::table_answer::file;
use super::super::table_choices::view_links;
use super::super::{PagesContext, assets};
use super::{health, share};
use crate::doors::text::Text;

/// Devices that are shown as a floor plan. Higher: the plan is longer than a screen. Lower: fewer see it.
pub(super) const MAX_CARDS: usize = 16;
pub(super) const PATH: &str = "/gpus";
/// The parts of an address that choose rows.
pub(super) const FILTERS: [&str; 4] = ["view", "q", "state", "model"];

/// The list, the line above it, and the stream that follows it.
pub struct GpuList {
    pub filter: FilterBar,
    pub table: DataTable,
    pub live: String,
}

/// What a device takes: `closed` for nothing new, `full`, else `open`.
fn standing(gpu: &Gpu) -> &'static str {
    let failing = matches!(gpu.health, Health::Failing { .. });
    if gpu.cordoned || gpu.planned.is_some() || !gpu.answers || failing {
        return "closed";
    }
    let has_room = match super::free_partitions(gpu) {
        Some((free, _)) => free > 0,
        None => gpu.share_free > GpuShare::ZERO,
    };
    match has_room {
        true => "open",
        false => "full",
    }
}

fn busy(gpu: &Gpu) -> Option<u32> {
    gpu.doing.and_then(|doing| doing.busy_percent)
}

/// The devices that the filter lets through, in the order of the address; the usual one is that of the machines.
fn chosen<'a>(state: &TableState, all: &'a [Gpu]) -> Vec<&'a Gpu> {
    let typed = state.filter("q").to_lowercase();
    let (wanted, model) = (state.filter("state"), state.filter("model"));
    let mut rows: Vec<&Gpu> = all
        .iter()
        .filter(|gpu| {
            let text = format!("{} {} {}", gpu.id, gpu.node_name, gpu.model).to_lowercase();
            let words = typed.split_whitespace().all(|word| text.contains(word));
            let stands = wanted.is_empty() || standing(gpu) == wanted;
            words && stands && (model.is_empty() || gpu.model == model)
        })
        .collect();
    let (key, descending) = match state.sort.strip_prefix('-') {
        Some(key) => (key, true),
        None => (state.sort.as_str(), false),
    };
    match key {
        "share" => rows.sort_by_key(|gpu| gpu.share_used),
        "busy" => rows.sort_by_key(|gpu| busy(gpu)),
        "memory" => rows.sort_by_key(|gpu| gpu.memory_used),
        "sessions" => rows.sort_by_key(|gpu| gpu.slices.len()),
        _ => {}
    }
    if descending {
        rows.reverse();
    }
    rows
}

fn columns(t: Text) -> Vec<TableColumn> {
    vec![
        TableColumn::new("name", "GPU")
            .class("first")
            .display(ColumnDisplay::Fixed),
        TableColumn::new("state", t.sessions_state()).class("why"),
        TableColumn::new("model", t.gpu_model()).class("below"),
        TableColumn::new("share", t.gpu_head_given())
            .sorted_by("-share")
            .class("u below"),
        TableColumn::new("busy", t.gpu_head_busy())
            .sorted_by("-busy")
            .class("u below"),
        TableColumn::new("memory", t.gpu_memory())
            .sorted_by("-memory")
            .class("u below"),
        TableColumn::new("sessions", t.nav_sessions())
            .sorted_by("-sessions")
            .class("num"),
        TableColumn::new("id", "ID")
            .class("below")
            .display(ColumnDisplay::Hidden),
    ]
}

fn cell(t: Text, key: &str, gpu: &Gpu) -> TableCell {
    match key {
        "name" => TableCell::Link {
            href: format!("{PATH}/{}", encoded(&gpu.id)),
            text: format!("GPU {}", gpu.index),
            note: gpu.node_name.clone(),
        },
        "state" => {
            let (tone, text) = match standing(gpu) {
                "closed" => ("warn", t.gpu_cordoned()),
                "full" => ("", t.gpu_full()),
                _ => ("ok", t.gpu_open()),
            };
            TableCell::Pill {
                tone,
                text: text.to_owned(),
                note: match (&gpu.health, gpu.cordoned) {
                    (Health::Worn { .. } | Health::Failing { .. }, _) => health(t, gpu),
                    (_, true) => gpu.note.clone(),
                    _ => String::new(),
                },
            }
        }
        "model" => TableCell::text(gpu.model.clone()),
        "share" => TableCell::Bar {
            text: share(gpu.share_used),
            percent: components::percent(f64::from(gpu.share_used.0), 100.0),
            accent: true,
        },
        "busy" => match busy(gpu) {
            Some(percent) => TableCell::Bar {
                text: format!("{percent}%"),
                percent: components::percent(f64::from(percent), 100.0),
                accent: false,
            },
            None => TableCell::Empty,
        },
        "memory" => TableCell::Bar {
            text: t.gpu_memory_of(
                components::part_of(gpu.memory_used.0, gpu.memory.0),
                components::size(gpu.memory.0),
            ),
            percent: components::percent(gpu.memory_used.0 as f64, gpu.memory.0 as f64),
            accent: false,
        },
        "sessions" => TableCell::text(gpu.slices.len().to_string()),
        "id" => TableCell::Code(gpu.id.clone()),
        _ => TableCell::Empty,
    }
}

/// Whether the address asks for the table where a floor plan would do.
pub(super) fn asked_for(asked: &[(String, String)]) -> bool {
    TableState::read(PATH, &FILTERS, asked).filter("view") == "table"
}

/// The list as the address asks for it. O(devices).
pub(super) fn read(
    visit: &RequestContext,
    headers: &HeaderMap,
    asked: &[(String, String)],
    all: &[Gpu],
) -> GpuList {
    let t = visit.text;
    let columns = columns(t);
    let mut state = TableState::read(PATH, &FILTERS, asked);
    state.choose_columns("gpus", &columns, asked, headers, visit);
    let found = chosen(&state, all);
    let first = usize::try_from(state.offset()).unwrap_or(usize::MAX);
    let rows = found.iter().skip(first).take(table::ROWS as usize);
    let rows = rows.map(|gpu| TableLine {
        id: format!("g-{}-{}", gpu.node.0.simple(), gpu.index),
        mark: None,
        cells: state.columns.iter().map(|key| cell(t, key, gpu)).collect(),
        action: None,
    });
    let empty = EmptyTable::no_match(t, t.gpu_no_match(), PATH);
    let total = found.len() as u64;
    let mut table = DataTable::new(t, &state, &columns, "place", rows.collect(), total, empty);
    table.csv = (!table.rows.is_empty()).then(|| state.beside("/gpus.csv"));
    if all.len() <= MAX_CARDS {
        table.other = Some((PATH.to_owned(), t.gpu_plan().to_owned()));
    }
    GpuList {
        filter: filter(visit, headers, &state, &columns, all),
        table,
        live: state.beside("/gpus/live"),
    }
}

fn filter(
    visit: &RequestContext,
    headers: &HeaderMap,
    state: &TableState,
    columns: &[TableColumn],
    all: &[Gpu],
) -> FilterBar {
    let t = visit.text;
    let here = state.address();
    let shipped = [
        (t.gpu_view_all(), ""),
        (t.gpu_view_open(), "state=open"),
        (t.gpu_view_busy(), "sort=-busy"),
    ]
    .map(|(name, query)| {
        let query = match state.filter("view") {
            "" => query.to_owned(),
            view => format!("view={view}&{query}")
                .trim_end_matches('&')
                .to_owned(),
        };
        (name.to_owned(), query)
    });
    let choice = |name: &str, value: &str, words: &str| {
        Choice::new(value, words, state.filter(name) == value)
    };
    let mut models: Vec<&str> = all.iter().map(|gpu| gpu.model.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    let every = choice("model", "", t.gpu_any_model());
    let models = models.into_iter().map(|name| choice("model", name, name));
    FilterBar {
        t,
        module: assets::address("table.js"),
        table: "gpus",
        path: PATH,
        q: state.filter("q").to_owned(),
        hint: t.gpu_filter_hint().to_owned(),
        label: t.gpu_filter().to_owned(),
        pickers: vec![
            FilterPicker {
                name: "state",
                label: t.sessions_state().to_owned(),
                choices: vec![
                    choice("state", "", t.sessions_any()),
                    choice("state", "open", t.gpu_open()),
                    choice("state", "full", t.gpu_full()),
                    choice("state", "closed", t.gpu_cordoned()),
                ],
            },
            FilterPicker {
                name: "model",
                label: t.gpu_model().to_owned(),
                choices: std::iter::once(every).chain(models).collect(),
            },
        ],
        hidden: vec![
            ("view", state.filter("view").to_owned()),
            ("sort", state.sort.clone()),
        ],
        columns: table::column_choices(state, columns),
        views: view_links(headers, visit, "gpus", PATH, &here, shipped.into()),
        examples: vec![FilterExample {
            typed: "H100",
            finds: t.gpu_help_word().to_owned(),
        }],
        target: "list",
        here,
    }
}

/// `GET /gpus.csv`: the devices that the filter lets through, with the columns that are shown.
pub(in super::super) async fn export(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    headers: HeaderMap,
    Query(asked): Query<Vec<(String, String)>>,
) -> Response {
    let all = match gpus::list(&console.server, &caller).await {
        Ok(all) => all,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let columns = columns(visit.text);
    let mut state = TableState::read(PATH, &FILTERS, &asked);
    state.choose_columns("gpus", &columns, &asked, &headers, &visit);
    let rows = chosen(&state, &all.items);
    file(&visit, "gpus", &state, &columns, &rows, |gpu, key| {
        cell(visit.text, key, gpu)
    })
}

#[cfg(test)]
mod tests {
    use rules::devices::Hold;
    use rules::names::NodeId;
    use rules::self_test::SelfTestStatus;
    use rules::units::Bytes;

    use super::*;

    fn gpu(index: u32, model: &str, used: u32, cordoned: bool) -> Gpu {
        Gpu {
            id: format!("GPU-{index}"),
            index,
            node: NodeId(uuid::Uuid::nil()),
            node_name: "alpha".to_owned(),
            model: model.to_owned(),
            memory: Bytes::gib(80),
            sms: 132,
            numa: None,
            link: None,
            health: Health::Well,
            driver: String::new(),
            hold: Hold::Nobody,
            self_test: SelfTestStatus::None,
            self_tested_at: None,
            answers: true,
            simulated: true,
            cordoned,
            note: String::new(),
            changed_at: None,
            changed_by: None,
            share_used: GpuShare(used),
            memory_used: Bytes(0),
            share_free: GpuShare(100 - used),
            memory_free: Bytes(0),
            least: None,
            doing: None,
            partitions: Vec::new(),
            profiles: Vec::new(),
            planned: None,
            slices: Vec::new(),
        }
    }

    #[test]
    fn a_partitioned_device_is_full_when_no_partition_is_free_and_says_how_many_are() {
        let partition = |number: usize, taken| api::gpus::Partition {
            id: number.to_string(),
            profile: rules::devices::MigProfile::parse("3g.40gb").expect("a profile"),
            memory: Bytes::gib(40),
            sms: 60,
            taken,
        };
        let parts = |taken: [bool; 2]| Gpu {
            share_free: GpuShare::ZERO,
            partitions: vec![partition(1, taken[0]), partition(2, taken[1])],
            ..gpu(0, "H100", 0, false)
        };
        let (one, none) = (parts([true, false]), parts([true, true]));
        assert_eq!((standing(&one), standing(&none)), ("open", "full"));
        let t = Text::default();
        assert_eq!(super::super::free_words(t, &one), "1 of 2 free");
        assert_eq!(super::super::free_words(t, &none), "0 of 2 free");
    }

    #[test]
    fn memory_has_its_unit_and_every_column_a_place_on_a_phone() {
        let t = Text::default();
        let TableCell::Bar { text, .. } = cell(t, "memory", &gpu(0, "H100", 50, false)) else {
            panic!("a bar");
        };
        assert_eq!(text, "0 of 80 GiB");
        // Only these stand in the narrow rows; what is `wide` or a bar alone does not.
        let places = ["first", "why", "num", "below"];
        for column in columns(t) {
            let mut classes = column.class.split(' ');
            let is_placed = classes.clone().any(|class| places.contains(&class));
            assert!(is_placed, "{}", column.key);
            assert!(classes.all(|class| class != "wide"), "{}", column.key);
        }
    }

    #[test]
    fn devices_are_found_by_model_and_state_and_sort_by_what_is_allocated() {
        let all = [
            gpu(0, "H100", 100, false),
            gpu(1, "H100", 35, false),
            gpu(2, "A100", 0, true),
            gpu(3, "A100", 50, false),
        ];
        let found = |query: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let asked: Vec<_> = query.iter().map(own).collect();
            let state = TableState::read(PATH, &FILTERS, &asked);
            let rows = chosen(&state, &all);
            rows.iter().map(|gpu| gpu.index).collect::<Vec<u32>>()
        };
        assert_eq!(found(&[]), [0, 1, 2, 3]);
        assert_eq!(found(&[("sort", "-share")]), [0, 3, 1, 2]);
        assert_eq!(found(&[("model", "A100")]), [2, 3]);
        assert_eq!(found(&[("state", "full")]), [0]);
        assert_eq!(found(&[("state", "open"), ("q", "h100 ALPHA")]), [1]);
        assert_eq!(found(&[("state", "closed")]), [2]);
    }
}
