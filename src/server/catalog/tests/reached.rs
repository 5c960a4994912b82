//! Twin worlds of the catalog: each query that takes a `Reach` answers a reader of another domain the same bytes whether the
//! rows of a domain are there or not; and each is planted once without its filter, which is found.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

use rules::grants::{Grant, GrantRole, GrantScope};
use rules::metering::UsageSum;
use rules::names::OperationId;
use rules::permissions::{Extent, Permission, Reach, Subject, own, reach};
use rules::tenancy::{DomainId, ProjectId};
use uuid::Uuid;

use super::ledger::{NODE, end, place};
use super::statements::{add_use, close};
use super::*;
use crate::catalog::audit::AuditFilter;
use crate::catalog::holders::HeldDevice;
use crate::catalog::journal::{EventFilter, JournalPart};
use crate::catalog::ledger::{UsageOf, UsageWindow};
use crate::catalog::listing::{ListOrder, SessionFilter, SortKey};
use crate::catalog::session_table::{TableOrder, TableSort};

/// The reader, their home and a project where they are.
const READER: UserId = UserId(Uuid::from_u128(0x51));
const HOME: DomainId = DomainId(Uuid::from_u128(0x52));
const CELLS: ProjectId = ProjectId(Uuid::from_u128(0x53));

/// What `ROWS` names, and the session beside them that ended.
const OWNER: UserId = UserId(Uuid::from_u128(0x11));
const PROJECT: ProjectId = ProjectId(Uuid::from_u128(0x12));
const OPERATION: OperationId = OperationId(Uuid::from_u128(0x13));
const ENDED: SessionId = SessionId(Uuid::from_u128(0x14));
const MONTH: &str = "2026-10";
const HOURS: UsageWindow = UsageWindow {
    from: 10,
    until: 20,
};

/// The account and the project whose the other rows are.
const TENANTS: &str = "
    insert into user (id, name, language, theme, time_zone, suspended, password, created_at, generation)
    values (x'00000000000000000000000000000011', 'zanzibar', '', '', '', 0, '', 0, 1);
    insert into project (id, domain, name, title, state, generation)
    values (x'00000000000000000000000000000012', x'00000000000070008000000000000001', 'zanzibar', '',
            'active', 1);";

/// A row of each kind in the domain `default`; of the log one that the indexes have and one that they have not.
const ROWS: &str = "
    insert into operation (id, kind, user, state, input, cancel, created_at, generation)
    values (x'00000000000000000000000000000013', 'zanzibar', x'00000000000000000000000000000011',
            'pending', '{}', 0, 0, 1);
    insert into image (id, reference, digest, size, architecture, created_at, imported_at, labels,
                       entrypoint, command, env, user, working_directory, stop_signal, generation)
    values (x'00000000000000000000000000000015', 'zanzibar:1', 'sha256:0', 1, 'amd64', 0, 0, '{}',
            '[]', '[]', '[]', '', '', '', 1);
    insert into image_manifest (image, digest, media_type, body)
    values (x'00000000000000000000000000000015', 'sha256:1', '', x'00');
    insert into reservation (id, name, project, domain, amount, before, generation, asked_by, asked_at)
    values (x'00000000000000000000000000000016', 'zanzibar', x'00000000000000000000000000000012',
            x'00000000000070008000000000000001', '{\"gpu\":0,\"cpu\":100,\"memory\":0}', 'drain', 1,
            x'00000000000000000000000000000011', 9);
    insert into reservation_time (reservation, number, from_at, to_at, state, parts)
    values (x'00000000000000000000000000000016', 1, 10, 20, 'asked', '[]');
    insert into preset (id, domain, project, name, title, title_ko, amounts, position, is_default, generation)
    values (x'00000000000000000000000000000017', x'00000000000070008000000000000001',
            x'00000000000000000000000000000012', 'zanzibar', '', '', '{}', 1, 0, 1);
    insert into budget (id, domain, project, amount, began, ends, is_hard, is_of_site, warned, generation)
    values (x'00000000000000000000000000000018', x'00000000000070008000000000000001',
            x'00000000000000000000000000000012', 100, 0, 4000000000000, 0, 1, 80, 1);
    insert into folder (id, owner, name, kind, state, created_at, generation)
    values (x'00000000000000000000000000000019', x'00000000000000000000000000000011', 'zanzibar',
            'general', 'ready', 0, 1);
    insert into course (id, project, domain, name, title, state, from_at, to_at, time_zone, image, preset,
                        rules, generation)
    values (x'0000000000000000000000000000001a', x'00000000000000000000000000000012',
            x'00000000000070008000000000000001', 'zanzibar', '', 'draft', 10, 20, 'UTC', '', '', '', 1);
    insert into break_glass (id, actor, actor_name, owner, owner_name, kind, object, name, domain, reason,
                             began_at, ends_at)
    values (x'0000000000000000000000000000001b', x'0000000000000000000000000000001c', 'kookaburra',
            x'00000000000000000000000000000011', 'zanzibar', 'session',
            x'00000000000000000000000000000014', 'zanzibar', x'00000000000070008000000000000001', 'why',
            1, 2);
    insert into audit (sequence, statement, digest, hash, at, actor, act, object, domain, project, in_index)
    values (1000000, '{\"zanzibar\":1}', zeroblob(32), zeroblob(32), 1,
            x'00000000000000000000000000000011', 'session.accepted', 'zanzibar',
            x'00000000000070008000000000000001', x'00000000000000000000000000000012', 1),
           (1000001, '{\"zanzibar\":2}', zeroblob(32), zeroblob(32), 2,
            x'00000000000000000000000000000011', 'session.accepted', 'zanzibar',
            x'00000000000070008000000000000001', x'00000000000000000000000000000012', 0);";

/// What a query gives within a reach, as text.
type Query = fn(&ReadTransaction<'_>, &Reach) -> Result<String, Failure>;

/// Every query of the catalog that takes a reach, by its name.
static QUERIES: [(&str, Query); 39] = [
    ("chain", |view, reach| {
        // Digests of all rows are told by design.
        let rows = view.chain(reach, None, 0, 1_000)?;
        let told = rows.into_iter().filter_map(|row| row.statement);
        text(Ok(told.collect::<Vec<_>>()))
    }),
    ("search_acts", |view, reach| {
        text(view.search_acts(reach, &AuditFilter::default(), None, (0, 50)))
    }),
    ("break_glass_within", |view, reach| {
        text(view.break_glass_within(reach, READER, 9))
    }),
    ("budgets", |view, reach| text(view.budgets(reach))),
    ("warned_budgets", |view, reach| {
        text(view.warned_budgets(reach, clock().now()))
    }),
    ("courses", |view, reach| text(view.courses(reach))),
    ("events_after", |view, reach| {
        // How far it looked is told by design.
        let (events, _) = view.events_after(reach, 0, 1_000)?;
        text(Ok(events))
    }),
    ("events_latest", |view, reach| {
        text(view.events_latest(reach, None, 1_000))
    }),
    ("folders", |view, reach| text(view.folders(reach))),
    ("holders", |view, reach| {
        let device = HeldDevice {
            node: NODE,
            index: 0,
        };
        let ever = (
            Timestamp::from_millis(0),
            Timestamp::from_millis(4_000_000_000_000),
        );
        text(view.holders(reach, device, ever))
    }),
    ("images", |view, reach| text(view.images(reach))),
    ("images_used", |view, reach| text(view.images_used(reach))),
    ("operation_within", |view, reach| {
        text(view.operation_within(reach, OPERATION))
    }),
    ("operations", |view, reach| text(view.operations(reach, 9))),
    ("search_events", |view, reach| {
        let part = JournalPart {
            before: None,
            span: 1_000_000,
            offset: 0,
            limit: 50,
        };
        text(view.search_events(reach, &EventFilter::default(), &part))
    }),
    ("sessions_named", |view, reach| {
        text(view.sessions_named(reach, "zanzibar", 9))
    }),
    ("usage", |view, reach| text(view.usage(reach, HOURS))),
    ("usage_by_hour", |view, reach| {
        text(view.usage_by_hour(reach, HOURS))
    }),
    ("list_sessions", |view, reach| {
        let order = ListOrder {
            key: SortKey::Created,
            descending: true,
            after: None,
            limit: 50,
        };
        text(view.list_sessions(reach, &SessionFilter::default(), &order))
    }),
    ("count_sessions", |view, reach| {
        text(view.count_sessions(reach, &SessionFilter::default()))
    }),
    ("count_ended", |view, reach| {
        text(view.count_ended(reach, Timestamp::from_millis(0)))
    }),
    ("sessions_called", |view, reach| {
        text(view.sessions_called(reach, "zanzibar"))
    }),
    ("sessions_between", |view, reach| {
        text(view.sessions_between(reach, [0; 16], [0xff; 16]))
    }),
    ("images_of_repository", |view, reach| {
        text(view.images_of_repository(reach, "zanzibar"))
    }),
    ("pullable_images", |view, reach| {
        text(view.pullable_images(reach))
    }),
    ("presets", |view, reach| text(view.presets(reach, HOME))),
    ("reservations", |view, reach| text(view.reservations(reach))),
    ("reservations_called", |view, reach| {
        text(view.reservations_called(reach, "zanzibar"))
    }),
    ("asked_reservations", |view, reach| {
        text(view.asked_reservations(reach, Timestamp::from_millis(0), 9))
    }),
    ("table_rows", |view, reach| {
        text(view.table_rows(reach, &SessionFilter::default(), &FIRST))
    }),
    ("table_page", |view, reach| {
        // By a word it finds first and sorts then, without one it walks an index.
        let by_word = SessionFilter {
            words: vec!["zanzibar".to_owned()],
            ..SessionFilter::default()
        };
        let found = view.table_page(reach, &by_word, &FIRST)?;
        let walked = view.table_page(reach, &SessionFilter::default(), &FIRST)?;
        text(Ok((found, walked)))
    }),
    ("table_row_amounts", |view, reach| {
        text(view.table_row_amounts(reach, &SessionFilter::default(), ENDED))
    }),
    ("table_row_ends", |view, reach| {
        text(view.table_row_ends(reach, &SessionFilter::default(), ENDED))
    }),
    ("table_row_members", |view, reach| {
        text(view.table_row_members(reach, ENDED, 9))
    }),
    ("statement_lines", |view, reach| {
        text(view.statement_lines(reach, MONTH))
    }),
    ("storage", |view, reach| text(view.storage(reach))),
    ("projects_named", |view, reach| {
        text(view.projects_named(reach, "zanzibar", None))
    }),
    ("projects", |view, reach| text(view.projects(reach))),
    ("users", |view, reach| text(view.users(reach))),
];

/// The first rows of the table in the usual order.
const FIRST: TableOrder = TableOrder {
    sort: TableSort::Standing,
    descending: true,
    grouped: true,
    offset: 0,
    limit: 50,
};

fn text(found: Result<impl Debug, Failure>) -> Result<String, Failure> {
    found.map(|found| format!("{found:?}"))
}

/// Each kind of reach that is not everything: nothing, a user's own, with a project and a domain, and of a domain alone.
fn within_another_domain() -> [Reach; 4] {
    let audits = Grant {
        role: GrantRole::Auditor,
        scope: GrantScope::Domain(HOME),
    };
    let looks_on = Grant {
        role: GrantRole::Viewer,
        scope: GrantScope::Project(CELLS),
    };
    let reader = Subject {
        user: READER,
        grants: vec![audits, looks_on],
        domain: HOME,
        scopes: None,
    };
    let all = [
        reach(&reader, Permission::SystemRead),
        own(&reader),
        reach(&reader, Permission::SessionsRead),
        reach(&reader, Permission::UsersRead),
    ];
    let kinds: BTreeSet<&Extent> = all.iter().map(Reach::extent).collect();
    assert_eq!(kinds.len(), all.len(), "{kinds:?}");
    assert_eq!(*all[0].extent(), Extent::Nothing);
    all
}

/// What each query answers within a reach; `planted` is the one that has lost its filter.
fn asked(
    catalog: &Catalog,
    reach: &Reach,
    planted: Option<&'static str>,
) -> Vec<(&'static str, String)> {
    let all = everything();
    let answers = QUERIES.iter().map(|&(name, query)| {
        let within = match planted == Some(name) {
            true => &all,
            false => reach,
        };
        let answer = catalog.read_now(name, |view| query(view, within));
        (name, answer.unwrap())
    });
    answers.collect()
}

/// Names of the queries whose answers differ.
fn told(one: &[(&'static str, String)], other: &[(&'static str, String)]) -> Vec<&'static str> {
    let differing = one.iter().zip(other).filter(|(one, other)| one != other);
    differing.map(|(one, _)| one.0).collect()
}

fn run(catalog: &Catalog, rows: &'static str) {
    catalog
        .write_now(Lane::Loops, "fill a domain", move |writing| {
            writing.connection.execute_batch(rows)?;
            Ok(())
        })
        .unwrap();
}

/// Fills the domain `default`: two sessions of a user, one ended and one that waits, a closed month, and a row of each kind.
fn fill(catalog: &Catalog) {
    run(catalog, TENANTS);
    for (id, name) in [
        (ENDED, "zanzibar"),
        (SessionId(Uuid::from_u128(0x1d)), "waits"),
    ] {
        let mut made = session(OWNER, name);
        made.id = id;
        made.project = PROJECT;
        insert(catalog, &made).unwrap();
    }
    place(catalog, ENDED);
    end(catalog, ENDED);
    let of = UsageOf {
        domain: DomainId::DEFAULT,
        project: PROJECT,
        owner: OWNER,
    };
    let sum = UsageSum {
        session: 5,
        ..UsageSum::default()
    };
    add_use(catalog, HOURS.from, of, sum);
    close(catalog, MONTH, HOURS);
    run(catalog, ROWS);
}

#[test]
fn no_query_tells_a_reader_of_another_domain_a_row_and_each_plant_is_found() {
    let catalog = memory();
    let readers = within_another_domain();
    let ask = |reach: &Reach| asked(&catalog, reach, None);
    let before: Vec<_> = readers.iter().map(ask).collect();
    let empty = ask(&everything());
    fill(&catalog);
    let full = ask(&everything());
    let all: Vec<&str> = QUERIES.iter().map(|(name, _)| *name).collect();
    assert_eq!(told(&empty, &full), all, "each has a row to tell");
    for (reach, before) in readers.iter().zip(&before) {
        let leaks = told(before, &ask(reach));
        assert!(leaks.is_empty(), "{leaks:?} within {:?}", reach.extent());
        for name in &all {
            let planted = asked(&catalog, reach, Some(*name));
            assert_eq!(told(before, &planted), [*name], "{:?}", reach.extent());
        }
    }
}

/// Names of the queries in a source that take a reach and are for other rooms.
fn queries(source: &str) -> Vec<String> {
    let functions = source.split("pub(crate) fn ").skip(1);
    let reaching = functions.filter_map(|rest| {
        let signature = rest.split('{').next()?;
        let name = signature.split(['(', '<']).next()?;
        signature.contains("&Reach").then(|| name.to_owned())
    });
    reaching.collect()
}

#[test]
fn every_query_with_a_reach_is_asked() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalog");
    let mut written = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            written.extend(queries(&source));
        }
    }
    let asked: BTreeSet<String> = QUERIES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(written, asked);
    let planted = "pub(crate) fn new_list(\n    &self,\n    reach: &Reach,\n) -> Result<(), Failure> {\n\
                   pub(crate) fn of_all(&self) -> u64 {\n\
                   fn inner(reach: &Reach) {";
    assert_eq!(queries(planted), ["new_list"]);
}
