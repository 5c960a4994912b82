//! Comma-separated values (RFC 4180): lines for any table, and the files of events and of a history, the same through every
//! door. Decides nothing about who may have them.

use api::audit::AuditSearchPage;
use api::courses::AttendanceView;
use api::history::{History, HistoryHolder, HistoryPoint};
use api::statements::{StatementAmounts, StatementView};
use api::usage::{Usage, UsageAmounts, UsageGrouping};
use server::actions::journal::EventPage;

/// The media type of such a file.
pub const KIND: &str = "text/csv; charset=utf-8";

/// Adds a line. A field that a spreadsheet would run as a formula is led by an apostrophe.
pub fn line<'a>(body: &mut String, fields: impl Iterator<Item = &'a str>) {
    for (at, field) in fields.enumerate() {
        if at > 0 {
            body.push(',');
        }
        // A spreadsheet would run a field that begins like a formula.
        let formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
        let quoted = formula || field.contains(['"', ',', '\n', '\r']);
        if quoted {
            body.push('"');
        }
        if formula {
            body.push('\'');
        }
        body.push_str(&field.replace('"', "\"\""));
        if quoted {
            body.push('"');
        }
    }
    body.push_str("\r\n");
}

/// Events for programs: a head, then one line each in the order given, with the names of their objects where known.
pub fn events(found: &EventPage) -> String {
    let mut body = String::new();
    let heads = [
        "sequence", "at", "actor", "topic", "object", "name", "code", "before", "after",
    ];
    line(&mut body, heads.into_iter());
    for event in &found.items {
        let (sequence, at) = (event.sequence.to_string(), event.at.to_string());
        let name = found.names.get(&event.object).map_or("", String::as_str);
        let fields = [
            sequence.as_str(),
            &at,
            &event.actor,
            &event.topic,
            &event.object,
            name,
            &event.code,
            &event.before,
            &event.after,
        ];
        line(&mut body, fields.into_iter());
    }
    body
}

/// Acts for programs: a head, then one line each in the order given, with the names of their objects where known.
pub fn acts(found: &AuditSearchPage) -> String {
    let mut body = String::new();
    let heads = [
        "sequence", "at", "actor", "via", "address", "act", "topic", "object", "name", "domain",
        "project", "before", "after", "reason", "request",
    ];
    line(&mut body, heads.into_iter());
    for act in &found.items {
        let (sequence, at) = (act.sequence.to_string(), act.at.to_string());
        let name = found.names.get(&act.object).map_or("", String::as_str);
        let fields = [
            sequence.as_str(),
            &at,
            &act.actor,
            &act.via,
            &act.address,
            &act.act,
            &act.topic,
            &act.object,
            name,
            act.domain.as_deref().unwrap_or_default(),
            act.project.as_deref().unwrap_or_default(),
            &act.before,
            &act.after,
            &act.reason,
            &act.request,
        ];
        line(&mut body, fields.into_iter());
    }
    body
}

/// What the file of an attendance is called.
pub const ATTENDANCE: &str = "attendance.csv";

/// What members of a course did in its term: a head, then one line each in the order given, with times in UTC.
pub fn attendance(rows: &[AttendanceView]) -> String {
    let mut body = String::new();
    let heads = ["user", "sessions", "first", "last", "seconds"];
    line(&mut body, heads.into_iter());
    for row in rows {
        let told = |at: Option<rules::units::Timestamp>| at.map(|at| at.to_string());
        let (sessions, seconds) = (row.sessions.to_string(), row.seconds.to_string());
        let (first, last) = (told(row.first), told(row.last));
        let fields = [
            row.user.name.as_str(),
            &sessions,
            first.as_deref().unwrap_or_default(),
            last.as_deref().unwrap_or_default(),
            &seconds,
        ];
        line(&mut body, fields.into_iter());
    }
    body
}

/// What the file of a history is called.
pub fn history_name(history: &History) -> String {
    let safe = |c: char| match c {
        c if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') => c,
        _ => '-',
    };
    let of: String = history.of.chars().map(safe).collect();
    format!("{of}-{}.csv", history.range.word())
}

/// A column of a history: its name, its decimals and its value.
type HistoryColumn = (&'static str, usize, fn(&HistoryPoint) -> Option<f64>);

const HISTORY_COLUMNS: [HistoryColumn; 10] = [
    ("cpu_allocated_cores", 3, |point| Some(point.cpu_allocated)),
    ("cpu_busy_cores", 3, |point| Some(point.cpu_busy)),
    ("memory_allocated_bytes", 0, |point| {
        Some(point.memory_allocated)
    }),
    ("memory_used_bytes", 0, |point| Some(point.memory_used)),
    ("gpu_allocated", 3, |point| Some(point.gpu_allocated)),
    ("gpu_busy", 3, |point| point.gpu_busy),
    ("gpu_memory_allocated_bytes", 0, |point| {
        Some(point.gpu_memory_allocated)
    }),
    ("gpu_memory_used_bytes", 0, |point| point.gpu_memory_used),
    ("celsius", 1, |point| point.celsius),
    ("watts", 1, |point| point.watts),
];

/// Whether a history has anything to say in a column: a GPU has no processors, and no user has a temperature.
fn belongs(history: &History, column: &str) -> bool {
    match column {
        "celsius" | "watts" => history.is_of_device(),
        _ if column.starts_with("gpu") => history.gpus > 0,
        _ => !history.is_of_device(),
    }
}

/// A history: a head, then a line for each point, with times in UTC, sizes in bytes and numbers as they are. Numbers only:
/// no spreadsheet takes a cell for a formula.
pub fn history(history: &History) -> String {
    let columns: Vec<HistoryColumn> = HISTORY_COLUMNS
        .into_iter()
        .filter(|(name, ..)| belongs(history, name))
        .collect();
    let mut out = String::from("time");
    for (name, ..) in &columns {
        out.push(',');
        out.push_str(name);
    }
    out.push_str("\r\n");
    for point in &history.points {
        out.push_str(&point.at.to_string());
        for (_, decimals, value) in &columns {
            out.push(',');
            if let Some(value) = value(point) {
                out.push_str(&format!("{value:.decimals$}"));
            }
        }
        out.push_str("\r\n");
    }
    out
}

/// What the file of the holders of a device is called.
pub fn holders_name(history: &History) -> String {
    format!("holders-{}", history_name(history))
}

/// Who held a device: a head, then one line each in the order given, with times in UTC; no end while it holds it.
pub fn holders(holders: &[HistoryHolder]) -> String {
    let mut body = String::new();
    let heads = ["session", "user", "gpu_hours", "from", "until", "id"];
    line(&mut body, heads.into_iter());
    for one in holders {
        let (hours, from) = (format!("{:.3}", one.gpu_hours), one.from.to_string());
        let until = one.until.map(|at| at.to_string()).unwrap_or_default();
        let id = one.session.to_string();
        let fields = [
            one.name.as_str(),
            one.user.as_str(),
            &hours,
            &from,
            &until,
            &id,
        ];
        line(&mut body, fields.into_iter());
    }
    body
}

/// What the file of a usage is called.
pub fn usage_name(usage: &Usage) -> String {
    let day = |at: rules::units::Timestamp| at.to_string().chars().take(10).collect::<String>();
    format!(
        "usage-{}-{}-{}.csv",
        usage.by.word(),
        day(usage.from),
        day(usage.until)
    )
}

/// What was used: a head, a line for each item, and the total, which is their sum. Amounts in seconds are exact; hours are rounded.
pub fn usage(usage: &Usage) -> String {
    let names: &[&str] = match usage.by {
        UsageGrouping::User => &["user"],
        UsageGrouping::Project => &["domain", "project"],
        UsageGrouping::Domain => &["domain"],
        UsageGrouping::Member => &["domain", "project", "user"],
    };
    let amounts = |used: &UsageAmounts| {
        [
            format!("{:.5}", used.gpu_seconds),
            format!("{:.5}", used.cpu_seconds),
            format!("{:.3}", used.memory_mib_seconds),
            format!("{:.3}", used.session_seconds),
            used.starts.to_string(),
            format!("{:.3}", used.waited_seconds),
            format!("{:.4}", used.gpu_seconds / 3600.0),
            format!("{:.4}", used.cpu_seconds / 3600.0),
            format!("{:.4}", used.memory_mib_seconds / 3600.0 / 1024.0),
        ]
    };
    const AMOUNTS: [&str; 9] = [
        "gpu_seconds",
        "cpu_seconds",
        "memory_mib_seconds",
        "session_seconds",
        "starts",
        "waited_seconds",
        "gpu_hours",
        "core_hours",
        "memory_gib_hours",
    ];
    let mut body = String::new();
    line(&mut body, names.iter().copied().chain(AMOUNTS));
    for item in &usage.items {
        let used = amounts(&item.used);
        let whose = names.iter().map(|name| match *name {
            "domain" => item.domain.as_str(),
            "project" => item.project.as_str(),
            _ => item.user.as_str(),
        });
        line(&mut body, whose.chain(used.iter().map(String::as_str)));
    }
    let used = amounts(&usage.total);
    let whose = names.iter().enumerate().map(|(at, _)| match at {
        0 => "total",
        _ => "",
    });
    line(&mut body, whose.chain(used.iter().map(String::as_str)));
    body
}

/// What the file of a statement is called.
pub fn statement_name(statement: &StatementView) -> String {
    format!("statement-{}.csv", statement.month)
}

/// A statement: a head, a line for each item, and the total, which is their sum. Units, milliseconds and amounts are exact;
/// hours are rounded. Exact ones are in the units of the ledger, for no greater unit is exact: a large site has more digits
/// in them than the 15 that a spreadsheet keeps, as the manual says, and never in hours.
pub fn statement(statement: &StatementView) -> String {
    const HEADS: [&str; 14] = [
        "part",
        "domain",
        "project",
        "user",
        "gpu_hours",
        "core_hours",
        "memory_gib_hours",
        "session_hours",
        "starts",
        "gpu_units",
        "core_units",
        "memory_units",
        "session_milliseconds",
        "waited_milliseconds",
    ];
    const MONEY: [&str; 3] = ["amount", "currency", "amount_micros"];
    let has_prices = !statement.currency.is_empty();
    let amounts = |used: &StatementAmounts| {
        let mut fields = vec![
            used.gpu_hours(),
            used.core_hours(),
            used.memory_gib_hours(),
            used.session_hours(),
            used.starts.to_string(),
            used.gpu_units.to_string(),
            used.core_units.to_string(),
            used.memory_units.to_string(),
            used.session_milliseconds.to_string(),
            used.waited_milliseconds.to_string(),
        ];
        if has_prices {
            fields.extend([
                used.amount(),
                statement.currency.clone(),
                used.amount_micros.to_string(),
            ]);
        }
        fields
    };
    let mut body = String::new();
    let money = MONEY.into_iter().filter(|_| has_prices);
    line(&mut body, HEADS.into_iter().chain(money));
    for item in &statement.items {
        let used = amounts(&item.used);
        let whose = [
            item.part.as_str(),
            item.domain.as_str(),
            item.project.as_str(),
            item.user.as_str(),
        ];
        let fields = whose.into_iter().chain(used.iter().map(String::as_str));
        line(&mut body, fields);
    }
    let used = amounts(&statement.total);
    let fields = ["total", "", "", ""].into_iter();
    line(&mut body, fields.chain(used.iter().map(String::as_str)));
    body
}

#[cfg(test)]
mod tests {
    use api::history::HistoryRange;
    use rules::units::Timestamp;

    use super::*;

    #[test]
    fn a_file_of_values_quotes_and_runs_no_formula() {
        let mut body = String::new();
        line(
            &mut body,
            ["a", "b,c", "say \"x\"", "=1+1", "-2"].into_iter(),
        );
        assert_eq!(body, "a,\"b,c\",\"say \"\"x\"\"\",\"'=1+1\",\"'-2\"\r\n");
    }

    fn of(of: &str, points: &[(i64, f64)]) -> History {
        History {
            of: of.to_owned(),
            range: HistoryRange::Day,
            every: 600,
            from: Timestamp::from_millis(1_799_913_600_000),
            until: Timestamp::from_millis(1_800_000_000_000),
            cpu: 4.0,
            memory: 8 << 30,
            gpus: 1,
            gpu_memory: 80 << 30,
            simulated: true,
            points: points
                .iter()
                .map(|(back, value)| HistoryPoint {
                    at: Timestamp::from_millis((1_800_000_000 - back) * 1000),
                    cpu_allocated: *value,
                    cpu_busy: value / 2.0,
                    memory_allocated: 1e9,
                    memory_used: 5e8,
                    gpu_allocated: 0.5,
                    gpu_busy: None,
                    gpu_memory_allocated: 4e10,
                    gpu_memory_used: None,
                    celsius: Some(61.0),
                    watts: None,
                    seconds: 600,
                })
                .collect(),
            holders: Vec::new(),
            more_holders: false,
        }
    }

    #[test]
    fn a_history_has_a_line_for_each_point_and_nothing_that_a_spreadsheet_runs() {
        let file = history(&of("site", &[(0, 2.0), (600, 1.0)]));
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].split(',').count(), 9);
        assert!(
            lines[1].ends_with(",2.000,1.000,1000000000,500000000,0.500,,40000000000,"),
            "{}",
            lines[1]
        );
        let odd = of("user:mina\"/..", &[]);
        assert_eq!(history_name(&odd), "user-mina--..-day.csv");
    }

    #[test]
    fn the_history_of_a_gpu_has_no_columns_of_processors() {
        let file = history(&of("gpu:x", &[(0, 2.0)]));
        assert_eq!(
            file.lines().next(),
            Some(
                "time,gpu_allocated,gpu_busy,gpu_memory_allocated_bytes,gpu_memory_used_bytes,celsius,watts"
            )
        );
        assert!(
            file.trim_end().ends_with(",0.500,,40000000000,,61.0,"),
            "{file}"
        );
    }

    fn of_nothing() -> StatementView {
        StatementView {
            month: "2026-10".to_owned(),
            from: Timestamp::from_millis(0),
            until: Timestamp::from_millis(1),
            time_zone: "UTC".to_owned(),
            closed_at: Timestamp::from_millis(2),
            currency: String::new(),
            total: StatementAmounts::default(),
            items: Vec::new(),
            totals: Vec::new(),
            statement: String::new(),
            signature: String::new(),
            digests: Vec::new(),
        }
    }

    #[test]
    fn exact_columns_of_a_large_month_are_whole_and_its_hours_fit_a_spreadsheet() {
        let hours = 31 * 24;
        let used = StatementAmounts {
            gpu_units: 500 * hours * rules::statement::UNITS_OF_HOUR,
            core_units: 8_000 * hours * rules::statement::UNITS_OF_HOUR,
            memory_units: 4_096 * hours * rules::statement::UNITS_OF_GIB_HOUR + 1,
            ..StatementAmounts::default()
        };
        assert_eq!(used.gpu_units.to_string().len(), 15);
        assert_eq!(used.core_units.to_string().len(), 16);
        let statement = StatementView {
            total: used,
            ..of_nothing()
        };
        let text = self::statement(&statement);
        let fields: Vec<&str> = text
            .trim_end()
            .rsplit("\r\n")
            .next()
            .map_or(Vec::new(), |line| line.split(',').collect());
        assert_eq!(fields[11], "11234023833600001", "one unit is not lost");
        for hours in &fields[4..8] {
            assert!(hours.len() <= 15, "{hours}");
        }
    }

    #[test]
    fn a_statement_has_whole_units_beside_hours_and_its_total_last() {
        let used = |gpu_units: u64| StatementAmounts {
            gpu_units,
            starts: 1,
            amount_micros: 1_500_000,
            ..StatementAmounts::default()
        };
        let item = |position: u64, user: &str, gpu_units: u64| api::statements::StatementItem {
            position,
            part: "use".to_owned(),
            domain: "default".to_owned(),
            project: "default".to_owned(),
            user: user.to_owned(),
            used: used(gpu_units),
            statement: String::new(),
        };
        let mut statement = StatementView {
            total: StatementAmounts {
                gpu_units: 540_000_000,
                starts: 2,
                amount_micros: 3_000_000,
                ..StatementAmounts::default()
            },
            items: vec![item(1, "mina", 360_000_000), item(2, "=juno", 180_000_000)],
            ..of_nothing()
        };
        assert_eq!(statement_name(&statement), "statement-2026-10.csv");
        let text = self::statement(&statement);
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(
            lines[1],
            "use,default,default,mina,1.0000,0.0000,0.0000,0.0000,1,360000000,0,0,0,0"
        );
        assert!(lines[2].starts_with("use,default,default,\"'=juno\",0.5000,"));
        assert_eq!(
            lines[3],
            "total,,,,1.5000,0.0000,0.0000,0.0000,2,540000000,0,0,0,0"
        );
        statement.currency = "KRW".to_owned();
        let text = self::statement(&statement);
        assert!(
            text.lines()
                .next()
                .is_some_and(|head| head.ends_with(",amount,currency,amount_micros"))
        );
        assert!(text.trim_end().ends_with(",3,KRW,3000000"));
    }
}
