//! Closed months: over a ledger of any users and projects the lines add up to what the ledger has, at every level, and
//! nothing that is found late is lost or told twice. Also what bends closed months behind their backs, for other tests.

use rules::audit::hex;
use rules::metering::UsageSum;
use rules::statement::{HourPrices, StatementBreak, StatementPart, total};
use rules::tenancy::{DomainId, ProjectId};

use super::*;
use crate::catalog::audit::sha256;
use crate::catalog::ledger::{UsageOf, UsageWindow};
use crate::catalog::statements::{ClosedMonthRow, MonthToClose};

/// An edit of what is kept of the closed months 2026-11 and 2026-12, how it is undone, the month in which it is
/// found, and as what.
pub(crate) const PLANTED_EDITS: [(&str, &str, &str, &str); 6] = [
    (
        "update statement_line
         set statement = replace(statement, '\"cpu\":7', '\"cpu\":8')
         where month = '2026-11'",
        "update statement_line
         set statement = replace(statement, '\"cpu\":8', '\"cpu\":7')
         where month = '2026-11'",
        "2026-11",
        "statement.lines-wrong",
    ),
    (
        "update closed_month
         set statement = replace(statement, '\"lines\":4', '\"lines\":5')
         where month = '2026-12'",
        "update closed_month
         set statement = replace(statement, '\"lines\":5', '\"lines\":4')
         where month = '2026-12'",
        "2026-12",
        "statement.signature-wrong",
    ),
    // What is no JSON any more is named like any other edit.
    (
        NO_STATEMENT,
        "update closed_month
         set statement = substr(statement, 2)
         where month = '2026-12'",
        "2026-12",
        "statement.signature-wrong",
    ),
    (
        "update statement_line
         set position = 9
         where month = '2026-12' and position = 4",
        "update statement_line
         set position = 4
         where month = '2026-12' and position = 9",
        "2026-12",
        "statement.line-changed",
    ),
    (
        "update statement_line
         set project = domain
         where month = '2026-12' and position = 1",
        "update statement_line
         set project = (select id from project where name = 'default')
         where month = '2026-12' and position = 1",
        "2026-12",
        "statement.line-changed",
    ),
    (
        "update closed_month
         set until_hour = until_hour + 1
         where month = '2026-12'",
        "update closed_month
         set until_hour = until_hour - 1
         where month = '2026-12'",
        "2026-12",
        "statement.head-wrong",
    ),
];

/// What is no JSON, in the place of what was signed of 2026-12.
pub(crate) const NO_STATEMENT: &str = "update closed_month
     set statement = '!' || statement
     where month = '2026-12'";

/// The same in the place of the lines of 2026-11.
pub(crate) const NO_LINE: &str = "update statement_line
     set statement = '!' || statement
     where month = '2026-11'";

/// Another digest of a line of 2026-12 than that of its text.
pub(crate) const OTHER_DIGEST: &str =
    "update statement_line set digest = zeroblob(32) where month = '2026-12' and position = 2";

/// What new rules of a time zone come to for the month that is closed next: its zone begins it nine hours earlier.
pub(crate) const OTHER_ZONE: &str =
    "update closed_month set statement = replace(statement, '\"UTC\"', '\"Asia/Seoul\"')";

/// Adds use to an hour, as the meter does.
pub(crate) fn add_use(catalog: &Catalog, hour: i64, of: UsageOf, sum: UsageSum) {
    catalog
        .write_now(Lane::Loops, "count use", move |rows| {
            rows.add_usage(hour, of, sum)
        })
        .unwrap();
}

/// Changes what is kept of a closed month.
pub(crate) fn bend(catalog: &Catalog, change: &'static str) {
    catalog
        .write_now(Lane::Loops, "bend a month", move |rows| {
            rows.connection.execute(change, [])?;
            Ok(())
        })
        .unwrap();
}

/// Stands for a signature: a digest behind a secret.
fn sign(text: &[u8]) -> Vec<u8> {
    sha256(&[b"secret", text].concat()).to_vec()
}

/// Closes a month.
pub(super) fn close(catalog: &Catalog, month: &str, hours: UsageWindow) -> ClosedMonthRow {
    let closing = MonthToClose {
        month: month.to_owned(),
        hours,
        time_zone: "UTC".to_owned(),
        installation: uuid::Uuid::from_u128(5),
    };
    catalog
        .write_now(Lane::Requests, "close a month", move |rows| {
            rows.close_month(&closing, None, |text| Ok(sign(text)))
        })
        .unwrap()
}

fn check(catalog: &Catalog, month: &ClosedMonthRow) -> (u64, Result<(), StatementBreak>) {
    let month = month.head.month.clone();
    catalog
        .read_now("check a month", move |view| {
            view.check_closed_month(&month, |text, signature| sign(text) == signature)
        })
        .unwrap()
}

/// All use of some hours, and what the lines of a month come to without and with what was late.
fn sums(catalog: &Catalog, month: &str, hours: UsageWindow) -> (UsageSum, UsageSum, UsageSum) {
    let reach = everything();
    catalog
        .read_now("sum up", move |view| {
            let hourly = view.usage_by_hour(&reach, hours)?;
            let used = hourly
                .iter()
                .fold(UsageSum::default(), |sum, (_, hour)| sum.plus(*hour));
            let lines = view.statement_lines(&reach, month)?;
            let of = |parts: &[StatementPart]| {
                let lines = lines.iter().map(|(line, _)| line);
                total(lines.filter(|line| parts.contains(&line.part))).0
            };
            let own = of(&[StatementPart::Use]);
            Ok((used, own, of(&[StatementPart::Use, StatementPart::Late])))
        })
        .unwrap()
}

#[test]
fn use_that_comes_between_the_sum_of_a_month_and_its_close_is_in_the_month() {
    let catalog = memory();
    let of = UsageOf {
        domain: DomainId(uuid::Uuid::from_u128(100)),
        project: ProjectId(uuid::Uuid::from_u128(200)),
        owner: owner(&catalog),
    };
    let used = |session: u64| UsageSum {
        session,
        ..UsageSum::default()
    };
    let months = [
        (
            "2026-10",
            UsageWindow {
                from: 10,
                until: 20,
            },
        ),
        (
            "2026-11",
            UsageWindow {
                from: 20,
                until: 30,
            },
        ),
    ];
    for (month, hours) in months {
        add_use(&catalog, hours.from, of, used(5));
        let sum = |catalog: &Catalog| {
            catalog
                .read_now("sum a month", move |view| view.sum_month(hours))
                .unwrap()
        };
        let before = sum(&catalog);
        assert_eq!(before, sum(&catalog), "nothing was added");
        add_use(&catalog, hours.from + 1, of, used(7));
        // What comes after the month changes nothing of it.
        let whole = sum(&catalog);
        add_use(&catalog, hours.until, of, used(1));
        assert_eq!(whole, sum(&catalog));
        let closing = MonthToClose {
            month: month.to_owned(),
            hours,
            time_zone: "UTC".to_owned(),
            installation: uuid::Uuid::from_u128(5),
        };
        let closed = catalog
            .write_now(Lane::Requests, "close a month", move |rows| {
                rows.close_month(&closing, Some(before), |text| Ok(sign(text)))
            })
            .unwrap();
        let (all, own, _) = sums(&catalog, month, hours);
        assert_eq!(own, all, "{month}");
        assert_eq!(check(&catalog, &closed).1, Ok(()));
    }
}

#[test]
fn lines_of_closed_months_add_up_to_the_ledger_whatever_it_holds() {
    let seed = u64::from_le_bytes(random());
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut dice = move |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % sides
    };
    let catalog = memory();
    let prices = HourPrices {
        currency: "KRW".to_owned(),
        gpu: dice(9_999_999_999),
        core: dice(1_000_000),
        gib: dice(1_000_000),
    };
    catalog
        .write_now(Lane::Requests, "set prices", move |rows| {
            rows.put_prices(&prices)
        })
        .unwrap();
    let users: Vec<UserId> = (0..5).map(|_| owner(&catalog)).collect();
    let mut some = |catalog: &Catalog, hours: UsageWindow| {
        let mut all = UsageSum::default();
        for _ in 0..60 {
            let project = dice(7);
            let span = u64::try_from(hours.until - hours.from).unwrap();
            let of = UsageOf {
                // A project never changes its domain.
                domain: DomainId(uuid::Uuid::from_u128(u128::from(100 + project % 3))),
                project: ProjectId(uuid::Uuid::from_u128(u128::from(200 + project))),
                owner: users[usize::try_from(dice(5)).unwrap()],
            };
            let sum = UsageSum {
                session: dice(3_600_000),
                gpu: dice(360_000_000),
                cpu: dice(9_000_000_000),
                memory: dice(9_000_000_000),
                starts: dice(3),
                waited: dice(1_000),
            };
            let hour = hours.from + i64::try_from(dice(span)).unwrap();
            add_use(catalog, hour, of, sum);
            all = all.plus(sum);
        }
        all
    };
    let window = |number: i64| UsageWindow {
        from: 490_000 + 700 * number,
        until: 490_700 + 700 * number,
    };
    let first = some(&catalog, window(0));
    some(&catalog, window(1));
    let closed = close(&catalog, "2026-01", window(0));
    let (used, own, all) = sums(&catalog, "2026-01", window(0));
    assert_eq!((used, own, all), (first, first, first));
    // Found late, in the closed month.
    let late = some(&catalog, window(0));
    let next = close(&catalog, "2026-02", window(1));
    let (used, own, all) = sums(&catalog, "2026-02", window(1));
    assert_eq!(own, used);
    assert_eq!(all, used.plus(late));
    let (_, again, _) = sums(&catalog, "2026-01", window(0));
    assert_eq!(again, first, "what is closed stays");
    for month in [&closed, &next] {
        let (lines, found) = check(&catalog, month);
        assert_eq!(found, Ok(()));
        assert_eq!(lines, month.head.lines);
    }
    assert_eq!(
        next.head.previous,
        hex(&sha256(closed.statement.as_bytes())),
        "months hang together"
    );
    let empty = close(&catalog, "2026-03", window(2));
    assert_eq!(empty.head.lines, 1, "late use is told once");
    assert_eq!(check(&catalog, &empty).1, Ok(()));
}
