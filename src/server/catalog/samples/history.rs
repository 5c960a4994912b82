//! What was given and used over hours and months: of the whole site, of each device, of each user. Rows are
//! thinned with age, so that the file stays small. Never says who may read a row; the actions do.

use std::collections::BTreeMap;
use std::sync::Arc;

use rules::names::UserId;
use rules::units::Timestamp;
use rusqlite::{Connection, params};

use super::{Samples, locked};
use crate::Failure;

/// Seconds of each step, and for how many seconds its rows are kept: a row for each ten seconds of an hour, for each
/// minute of a day, for each ten minutes of a week, and for each hour of two months. 4,296 moments in all.
pub(crate) const STEPS: [(i64, i64); 4] = [
    (10, 3_600),
    (60, 86_400),
    (600, 7 * 86_400),
    (3_600, 62 * 86_400),
];

/// Subjects of one moment: the site, its devices, and the users who hold most. Higher: the file grows, some 0.5 MB for
/// each. Lower: users of a large site have no history.
pub(crate) const MAX_SUBJECTS: usize = 256;

/// Whose use it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HistorySubject {
    Site,
    /// By the device's own name.
    Device(String),
    User(UserId),
}

impl HistorySubject {
    fn kind(&self) -> i64 {
        match self {
            Self::Site => 0,
            Self::Device(_) => 1,
            Self::User(_) => USER,
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Site => &[],
            Self::Device(uuid) => uuid.as_bytes(),
            Self::User(id) => id.0.as_bytes(),
        }
    }
}

const USER: i64 = 2;

/// Means over one step. None where it is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct HistoryRow {
    /// Cores given and in use.
    pub(crate) cpu: f64,
    pub(crate) cpu_busy: f64,
    /// Bytes given and in use.
    pub(crate) memory: f64,
    pub(crate) memory_busy: f64,
    /// Devices given, as a sum of shares, and in use.
    pub(crate) gpu: f64,
    pub(crate) gpu_busy: Option<f64>,
    pub(crate) gpu_memory: f64,
    pub(crate) gpu_memory_busy: Option<f64>,
    pub(crate) celsius: Option<f64>,
    pub(crate) watts: Option<f64>,
    /// Seconds of its time that were measured; 0 before rows are read over a range.
    pub(crate) covered: f64,
}

const COLUMNS: [&str; 10] = [
    "cpu",
    "cpu_busy",
    "memory",
    "memory_busy",
    "gpu",
    "gpu_busy",
    "gpu_memory",
    "gpu_memory_busy",
    "celsius",
    "watts",
];

type Values = [Option<f64>; COLUMNS.len()];

impl HistoryRow {
    fn values(&self) -> Values {
        [
            Some(self.cpu),
            Some(self.cpu_busy),
            Some(self.memory),
            Some(self.memory_busy),
            Some(self.gpu),
            self.gpu_busy,
            Some(self.gpu_memory),
            self.gpu_memory_busy,
            self.celsius,
            self.watts,
        ]
    }

    fn of(values: Values) -> Self {
        let known = |place: usize| values[place].unwrap_or_default();
        Self {
            cpu: known(0),
            cpu_busy: known(1),
            memory: known(2),
            memory_busy: known(3),
            gpu: known(4),
            gpu_busy: values[5],
            gpu_memory: known(6),
            gpu_memory_busy: values[7],
            celsius: values[8],
            watts: values[9],
            covered: 0.0,
        }
    }
}

/// The statement that makes the table where there is none.
pub(super) fn made() -> String {
    let columns: String = COLUMNS.map(|name| format!("{name} real, ")).concat();
    format!(
        "create table if not exists history (
             step integer not null,
             kind integer not null,
             subject blob not null,
             at integer not null,
             {columns}
             covered real,
             primary key (step, kind, subject, at)
         ) strict, without rowid;"
    )
}

/// Adds to a table of an older release the seconds that each row covers. They stay null in its rows, which count for
/// their whole step, as in that release. The file keeps its version: an older release reads it after a rollback.
pub(super) fn complete(connection: &Connection) -> rusqlite::Result<()> {
    let known: bool = connection.query_row(
        "select count(*) > 0 from pragma_table_info('history') where name = 'covered'",
        [],
        |row| row.get(0),
    )?;
    match known {
        true => Ok(()),
        false => connection.execute_batch("alter table history add column covered real"),
    }
}

/// What was read since the newest moment was written.
#[derive(Default)]
pub(super) struct RecentHistory {
    /// Seconds of the newest moment in the file; None before it is known.
    newest: Option<i64>,
    kept: Option<(i64, Arc<Recent>)>,
    /// Means of the site by the seconds that are asked for and those of each: from when on, and the means.
    of_site: BTreeMap<(i64, i64), (i64, SiteMeans)>,
}

/// Means of the site, oldest first, each with the second that it begins at.
pub(crate) type SiteMeans = Arc<Vec<(i64, HistoryRow)>>;

/// The last moments of the site and of each device, oldest first.
pub(crate) type Recent = BTreeMap<HistorySubject, Vec<(i64, HistoryRow)>>;

impl Samples {
    /// Keeps what was given and used at a moment, thins what has aged, and removes what is too old. Beyond
    /// `MAX_SUBJECTS` the last of `rows` are left out. A second one within ten seconds replaces the first.
    ///
    /// Errors: those of SQLite; what was not written is lost. Costs a write for each row.
    pub(crate) fn record_history(
        &self,
        at: Timestamp,
        rows: &[(HistorySubject, HistoryRow)],
    ) -> Result<(), Failure> {
        let seconds = at.as_millis() / 1000;
        let finest = STEPS[0].0;
        let at = seconds - seconds.rem_euclid(finest);
        let mut connection = locked(&self.connection);
        let known = locked(&self.history).newest;
        let before = match known {
            Some(newest) => Some(newest),
            None => newest(&connection)?,
        };
        let transaction = connection.transaction()?;
        if let Some(before) = before.filter(|before| *before < at) {
            thin(&transaction, before, at)?;
        }
        {
            let marks: String = (0..COLUMNS.len())
                .map(|n| format!(", ?{}", n + 5))
                .collect();
            let mut insert = transaction.prepare_cached(&format!(
                "insert or replace into history (step, kind, subject, at, {})
                 values (?1, ?2, ?3, ?4{marks})",
                COLUMNS.join(", ")
            ))?;
            for (subject, row) in rows.iter().take(MAX_SUBJECTS) {
                let v = row.values();
                insert.execute(params![
                    finest,
                    subject.kind(),
                    subject.key(),
                    at,
                    v[0],
                    v[1],
                    v[2],
                    v[3],
                    v[4],
                    v[5],
                    v[6],
                    v[7],
                    v[8],
                    v[9]
                ])?;
            }
        }
        transaction.commit()?;
        // Not held meanwhile: who is given what is kept waits for no disk.
        let mut recent = locked(&self.history);
        recent.newest = Some(at);
        recent.kept = None;
        recent.of_site.clear();
        Ok(())
    }

    /// Means of a subject over each `every` seconds of the last `seconds`, oldest first: the second each begins at, and
    /// the means. Nothing for times at which the server did not run; zero for a user who had nothing then.
    ///
    /// Errors: those of SQLite. Costs at most some 1,500 rows, for a user twice.
    pub(crate) fn history(
        &self,
        subject: &HistorySubject,
        now: Timestamp,
        seconds: i64,
        every: i64,
    ) -> Result<Vec<(i64, HistoryRow)>, Failure> {
        let from = first_second(now, seconds, every);
        self.history_between(subject, (from, i64::MAX), seconds, every)
    }

    /// The same of the site, as it was read since the newest moment; None where it was not. Waits for nothing.
    pub(crate) fn kept_of_site(
        &self,
        now: Timestamp,
        seconds: i64,
        every: i64,
    ) -> Option<SiteMeans> {
        let history = locked(&self.history);
        let (from, means) = history.of_site.get(&(seconds, every))?;
        (*from == first_second(now, seconds, every)).then(|| Arc::clone(means))
    }

    /// The same of the site, read once for all who ask until the next moment.
    ///
    /// Errors: those of SQLite. Costs at most some 1,500 rows.
    pub(crate) fn history_of_site(
        &self,
        now: Timestamp,
        seconds: i64,
        every: i64,
    ) -> Result<SiteMeans, Failure> {
        // Held meanwhile: a moment that is written next is not missed.
        let connection = locked(&self.connection);
        if let Some(known) = self.kept_of_site(now, seconds, every) {
            return Ok(known);
        }
        let from = first_second(now, seconds, every);
        let mut means = Means::default();
        for (at, covered, row) in read(&connection, &HistorySubject::Site, from, seconds)? {
            means.add(at - at.rem_euclid(every), covered, &row, true);
        }
        let means = Arc::new(means.rows());
        let kept = (from, Arc::clone(&means));
        let mut history = locked(&self.history);
        history.of_site.insert((seconds, every), kept);
        Ok(means)
    }

    /// The same between two seconds, the first of which was `age` seconds ago.
    pub(crate) fn history_between(
        &self,
        subject: &HistorySubject,
        (from, until): (i64, i64),
        age: i64,
        every: i64,
    ) -> Result<Vec<(i64, HistoryRow)>, Failure> {
        let connection = locked(&self.connection);
        let read = |of: &HistorySubject| -> rusqlite::Result<Vec<(i64, f64, HistoryRow)>> {
            let mut rows = read(&connection, of, from, age)?;
            rows.retain(|(at, ..)| *at < until);
            Ok(rows)
        };
        let own = read(subject)?;
        let means = match subject {
            HistorySubject::User(_) => {
                let site = read(&HistorySubject::Site)?;
                // Where a user has no row they had nothing.
                let mut means = Means::default();
                for (at, covered, _) in site {
                    let nothing = HistoryRow {
                        gpu_busy: Some(0.0),
                        gpu_memory_busy: Some(0.0),
                        ..HistoryRow::default()
                    };
                    means.add(at - at.rem_euclid(every), covered, &nothing, true);
                }
                for (at, covered, row) in own {
                    means.add(at - at.rem_euclid(every), covered, &row, false);
                }
                means
            }
            HistorySubject::Site | HistorySubject::Device(_) => {
                let mut means = Means::default();
                for (at, covered, row) in own {
                    means.add(at - at.rem_euclid(every), covered, &row, true);
                }
                means
            }
        };
        Ok(means.rows())
    }

    /// What a user held of devices between two seconds and how much of it was busy, in device-seconds: by the hours for which
    /// both are known. None where none is. O(hours).
    ///
    /// Errors: those of SQLite.
    pub(crate) fn busy_of_user(
        &self,
        user: UserId,
        (from, until): (i64, i64),
    ) -> Result<Option<(f64, f64)>, Failure> {
        let (hour, _) = STEPS[STEPS.len() - 1];
        let subject = HistorySubject::User(user);
        let connection = locked(&self.connection);
        let mut statement = connection.prepare_cached(
            "select sum(gpu * coalesce(covered, step)), sum(gpu_busy * coalesce(covered, step))
             from history
             where step = ?1 and kind = ?2 and subject = ?3 and at >= ?4 and at < ?5
             and gpu > 0 and gpu_busy is not null",
        )?;
        let key = params![hour, subject.kind(), subject.key(), from, until];
        let sums = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(Option<f64>, Option<f64>)> {
            Ok((row.get(0)?, row.get(1)?))
        };
        let (held, busy) = statement.query_row(key, sums)?;
        Ok(held.zip(busy))
    }

    /// The moments of the site and of each device in the last `seconds` of the finest step. Read once for all who
    /// ask until the next moment; `seconds` is the same for every call.
    ///
    /// Errors: those of SQLite.
    pub(crate) fn recent_history(
        &self,
        now: Timestamp,
        seconds: i64,
    ) -> Result<Arc<Recent>, Failure> {
        let connection = locked(&self.connection);
        if let Some(kept) = self.kept_recent() {
            return Ok(kept);
        }
        let now = now.as_millis() / 1000;
        let mut all = Recent::new();
        let mut statement = connection.prepare_cached(&format!(
            "select kind, subject, at, {} from history
             where step = ?1 and kind < {USER} and at > ?2
             order by kind, subject, at",
            COLUMNS.join(", ")
        ))?;
        let mut rows = statement.query(params![STEPS[0].0, now - seconds])?;
        while let Some(row) = rows.next()? {
            let (kind, key): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
            let subject = match kind {
                0 => HistorySubject::Site,
                _ => HistorySubject::Device(String::from_utf8_lossy(&key).into_owned()),
            };
            let moment = (row.get(2)?, row_at(row, 3)?);
            all.entry(subject).or_default().push(moment);
        }
        let all = Arc::new(all);
        let mut recent = locked(&self.history);
        let newest = recent.newest.unwrap_or_default();
        recent.kept = Some((newest, Arc::clone(&all)));
        Ok(all)
    }

    /// The same as it was read since the newest moment; None where it was not. Waits for nothing.
    pub(crate) fn kept_recent(&self) -> Option<Arc<Recent>> {
        let recent = locked(&self.history);
        let newest = recent.newest.unwrap_or_default();
        let kept = recent.kept.as_ref().filter(|(of, _)| *of == newest);
        kept.map(|(_, kept)| Arc::clone(kept))
    }
}

/// The first second of so many before `now`, where each mean is of `every` of them.
fn first_second(now: Timestamp, seconds: i64, every: i64) -> i64 {
    let now = now.as_millis() / 1000;
    now - now.rem_euclid(every) + every - seconds
}

fn newest(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.query_row(
        "select max(at) from history where step = ?1 and kind = 0",
        [STEPS[0].0],
        |row| row.get(0),
    )
}

/// Sums each step into the next one where the moment `before` was the last of its time, and removes what is older
/// than its step is kept. A sum covers what its parts cover: less than its step where the server was not running.
fn thin(connection: &Connection, before: i64, at: i64) -> rusqlite::Result<()> {
    for pair in STEPS.windows(2) {
        let ((finer, _), (step, kept)) = (pair[0], pair[1]);
        let begin = before - before.rem_euclid(step);
        if at < begin + step {
            break;
        }
        let measured: f64 = connection.query_row(
            "select total(coalesce(covered, ?1)) from history
             where step = ?1 and kind = 0 and subject = x'' and at >= ?2 and at < ?3",
            params![finer, begin, begin + step],
            |row| row.get(0),
        )?;
        let measured = measured.max(1.0);
        let weight = "coalesce(covered, ?2)";
        // A user without a row in a moment had nothing then; of others it is unknown.
        let means: Vec<String> = COLUMNS
            .iter()
            .map(|name| {
                format!(
                    "sum({name} * {weight})
                     / case kind when {USER} then ?5 else sum(iif({name} is null, null, {weight})) end"
                )
            })
            .collect();
        connection
            .prepare_cached(&format!(
                "insert or replace into history (step, kind, subject, at, {}, covered)
                 select ?1, kind, subject, ?3, {},
                     case kind when {USER} then ?5 else sum({weight}) end
                 from history
                 where step = ?2 and at >= ?3 and at < ?4
                 group by kind, subject",
                COLUMNS.join(", "),
                means.join(", ")
            ))?
            .execute(params![step, finer, begin, begin + step, measured])?;
        connection
            .prepare_cached("delete from history where step = ?1 and at < ?2")?
            .execute(params![step, at - kept])?;
        if finer == STEPS[0].0 {
            connection
                .prepare_cached("delete from history where step = ?1 and at < ?2")?
                .execute(params![finer, at - STEPS[0].1])?;
        }
    }
    Ok(())
}

/// Rows of the coarsest step that is needed for so many seconds, and finer ones of what has not been summed yet:
/// their second, the seconds that they cover, their means.
fn read(
    connection: &Connection,
    subject: &HistorySubject,
    from: i64,
    seconds: i64,
) -> rusqlite::Result<Vec<(i64, f64, HistoryRow)>> {
    let first = STEPS.iter().position(|(_, kept)| seconds <= *kept);
    let first = first.unwrap_or(STEPS.len() - 1);
    let mut all = Vec::new();
    let mut from = from;
    let mut statement = connection.prepare_cached(&format!(
        "select at, coalesce(covered, step), {} from history
         where step = ?1 and kind = ?2 and subject = ?3 and at >= ?4
         order by at",
        COLUMNS.join(", ")
    ))?;
    // What a coarse row tells of is not told again by finer ones, also where the subject has none itself.
    let mut summed = connection.prepare_cached(
        "select max(at) from history where step = ?1 and kind = 0 and subject = x''",
    )?;
    for (step, _) in STEPS[..=first].iter().rev() {
        let key = params![step, subject.kind(), subject.key(), from];
        let rows =
            statement.query_map(key, |row| Ok((row.get(0)?, row.get(1)?, row_at(row, 2)?)))?;
        for row in rows {
            all.push(row?);
        }
        let last: Option<i64> = summed.query_row([step], |row| row.get(0))?;
        from = from.max(last.map_or(from, |last| last + step));
    }
    Ok(all)
}

fn row_at(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<HistoryRow> {
    let mut values = Values::default();
    for (place, value) in values.iter_mut().enumerate() {
        *value = row.get(first + place)?;
    }
    Ok(HistoryRow::of(values))
}

/// Sums on the way to means, by the second that each begins at.
#[derive(Default)]
struct Means(BTreeMap<i64, (f64, [(f64, f64); COLUMNS.len()])>);

impl Means {
    /// Adds a row that covers so many seconds. Where `counts`, they are part of the time that the mean is over.
    fn add(&mut self, begin: i64, covered: f64, row: &HistoryRow, counts: bool) {
        // A user's row in a time without one of the site: the clock was set. It is left out.
        if !counts && !self.0.contains_key(&begin) {
            return;
        }
        let (time, sums) = self.0.entry(begin).or_default();
        if counts {
            *time += covered;
        }
        for (sum, value) in sums.iter_mut().zip(row.values()) {
            if let Some(value) = value {
                sum.0 += value * covered;
                sum.1 += covered;
            }
        }
    }

    fn rows(self) -> Vec<(i64, HistoryRow)> {
        let mean = |(sum, of): (f64, f64), time: f64| {
            // Of what is not always known: over the time in which it was.
            (of > 0.0).then(|| sum / time.min(of).max(1.0))
        };
        let row = |(at, (time, sums)): (i64, (f64, [(f64, f64); COLUMNS.len()]))| {
            let means = HistoryRow::of(sums.map(|sum| mean(sum, time)));
            (
                at,
                HistoryRow {
                    covered: time,
                    ..means
                },
            )
        };
        self.0.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CatalogPlace;

    const START: i64 = 1_800_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis((START + second) * 1000)
    }

    fn row(cpu: f64) -> HistoryRow {
        HistoryRow {
            cpu,
            gpu_busy: Some(cpu / 2.0),
            ..HistoryRow::default()
        }
    }

    fn user() -> HistorySubject {
        HistorySubject::User(UserId(uuid::Uuid::from_u128(7)))
    }

    fn store() -> Samples {
        Samples::open(&CatalogPlace::Memory).unwrap()
    }

    fn rows_of(samples: &Samples) -> Vec<(i64, i64)> {
        let connection = locked(&samples.connection);
        let mut statement = connection
            .prepare("select step, count(*) from history group by step order by step")
            .unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn means_stay_right_while_moments_are_thinned() {
        let samples = store();
        // Two hours: 4 cores of the site in the first, 8 in the second. The user holds 3 for half of each minute.
        for second in (0..7_200).step_by(10) {
            let mut rows = vec![(
                HistorySubject::Site,
                row(if second < 3_600 { 4.0 } else { 8.0 }),
            )];
            if second % 60 < 30 {
                rows.push((user(), row(3.0)));
            }
            samples.record_history(at(second), &rows).unwrap();
        }
        for (seconds, every) in [(86_400, 600), (7 * 86_400, 3_600), (31 * 86_400, 3_600)] {
            let site = samples
                .history(&HistorySubject::Site, at(7_199), seconds, every)
                .unwrap();
            let own = samples.history(&user(), at(7_199), seconds, every).unwrap();
            assert_eq!(site.len() as i64, 7_200 / every, "{seconds}");
            for ((second, site), (same, own)) in site.iter().zip(&own) {
                let cores = if *second < START + 3_600 { 4.0 } else { 8.0 };
                assert_eq!((site.cpu, site.gpu_busy), (cores, Some(cores / 2.0)));
                assert_eq!(second, same);
                assert!((own.cpu - 1.5).abs() < 1e-9, "{seconds}: {}", own.cpu);
            }
        }
        let hour = samples.history(&HistorySubject::Site, at(7_199), 3_600, 30);
        assert_eq!(hour.unwrap().len(), 120);
        let nothing = samples.history(&HistorySubject::Device("x".into()), at(7_199), 3_600, 30);
        assert_eq!(nothing.unwrap(), []);
    }

    #[test]
    fn a_point_says_how_much_of_its_time_was_measured_whatever_the_range() {
        let samples = store();
        let device = HistorySubject::Device("x".into());
        // The server begins five minutes before an hour, and runs for 350 seconds. The user holds all of it for 200.
        for second in (3_300..3_650).step_by(10) {
            let mut rows = vec![(HistorySubject::Site, row(4.0)), (device.clone(), row(4.0))];
            if second < 3_500 {
                rows.push((user(), row(4.0)));
            }
            samples.record_history(at(second), &rows).unwrap();
        }
        for (seconds, every) in [(3_600, 30), (86_400, 600), (7 * 86_400, 3_600)] {
            let sums = |of: &HistorySubject| {
                let rows = samples.history(of, at(3_650), seconds, every).unwrap();
                let covered: f64 = rows.iter().map(|(_, row)| row.covered).sum();
                let cores = rows.iter().map(|(_, row)| row.cpu * row.covered);
                (covered, cores.sum::<f64>().round())
            };
            for of in [&HistorySubject::Site, &device] {
                assert_eq!(sums(of), (350.0, 4.0 * 350.0), "{of:?} over {seconds} s");
            }
            assert_eq!(sums(&user()), (350.0, 4.0 * 200.0), "over {seconds} s");
        }
    }

    #[test]
    fn the_history_of_an_older_release_is_kept_and_counts_whole_steps() {
        let samples = store();
        let before = made().replace("covered real,", "");
        {
            let connection = locked(&samples.connection);
            connection.execute_batch("drop table history").unwrap();
            connection.execute_batch(&before).unwrap();
            let row =
                "insert into history (step, kind, subject, at, cpu) values (600, 0, x'', ?1, 3.0)";
            connection.execute(row, [START]).unwrap();
            complete(&connection).unwrap();
            complete(&connection).unwrap();
        }
        let site = samples.history(&HistorySubject::Site, at(700), 7 * 86_400, 3_600);
        let site = site.unwrap();
        assert_eq!((site[0].1.cpu, site[0].1.covered), (3.0, 600.0));
    }

    #[test]
    fn two_months_and_more_leave_as_many_rows_as_are_promised() {
        let samples = store();
        // A quarter in steps of ten minutes, then an hour in steps of ten seconds.
        let quarter = 92 * 86_400;
        let coarse = (0..quarter)
            .step_by(600)
            .filter(|second| second % 3_600 < 1_200);
        for second in coarse.chain((quarter..quarter + 4_000).step_by(10)) {
            samples
                .record_history(at(second), &[(HistorySubject::Site, row(1.0))])
                .unwrap();
        }
        let rows = rows_of(&samples);
        assert_eq!(rows.len(), STEPS.len());
        for ((step, rows), (of, kept)) in rows.iter().zip(STEPS) {
            assert_eq!(*step, of);
            // One step of the next coarser kind may pass before the oldest go.
            assert!(*rows <= kept / step + 8, "{rows} rows of {step} s");
        }
        assert!(rows[3].1 >= 62 * 24, "two months of hours: {rows:?}");
    }

    #[test]
    fn a_moment_keeps_the_first_subjects_up_to_a_bound() {
        let samples = store();
        let users = (0..MAX_SUBJECTS as u128 + 5).map(|n| {
            let user = HistorySubject::User(UserId(uuid::Uuid::from_u128(n)));
            (user, row(1.0))
        });
        let rows: Vec<_> = [(HistorySubject::Site, row(9.0))]
            .into_iter()
            .chain(users)
            .collect();
        samples.record_history(at(0), &rows).unwrap();
        assert_eq!(rows_of(&samples), [(10, MAX_SUBJECTS as i64)]);
    }

    #[test]
    fn a_time_without_a_server_is_a_gap_and_is_summed_all_the_same() {
        let samples = store();
        for second in [0, 10, 20, 9_000, 9_010] {
            samples
                .record_history(at(second), &[(HistorySubject::Site, row(2.0))])
                .unwrap();
        }
        let site = samples
            .history(&HistorySubject::Site, at(9_010), 86_400, 600)
            .unwrap();
        let seconds: Vec<i64> = site.iter().map(|(second, _)| second - START).collect();
        assert_eq!(seconds, [0, 9_000]);
        let recent = samples.recent_history(at(9_010), 360).unwrap();
        assert_eq!(recent[&HistorySubject::Site].len(), 2);
        samples
            .record_history(at(9_020), &[(HistorySubject::Site, row(2.0))])
            .unwrap();
        let recent = samples.recent_history(at(9_020), 360).unwrap();
        assert_eq!(recent[&HistorySubject::Site].len(), 3, "read again");
    }

    #[test]
    fn what_is_kept_of_the_site_is_what_is_read_until_the_next_moment() {
        let samples = store();
        let (seconds, every) = (86_400, 900);
        let keep = |second, cores| {
            let row = row(cores);
            let kept = samples.record_history(at(second), &[(HistorySubject::Site, row)]);
            kept.unwrap();
        };
        let read = |second| {
            let site = samples.history(&HistorySubject::Site, at(second), seconds, every);
            site.unwrap()
        };
        keep(0, 2.0);
        assert_eq!(samples.kept_of_site(at(5), seconds, every), None);
        let site = samples.history_of_site(at(5), seconds, every).unwrap();
        assert_eq!(*site, read(5));
        let kept = samples.kept_of_site(at(9), seconds, every).unwrap();
        assert!(Arc::ptr_eq(&site, &kept));
        assert_eq!(samples.kept_of_site(at(9), 3_600, 30), None);
        // A day later the first of them are over.
        assert_eq!(samples.kept_of_site(at(90_000), seconds, every), None);
        keep(10, 4.0);
        assert_eq!(samples.kept_of_site(at(11), seconds, every), None);
        let site = samples.history_of_site(at(11), seconds, every).unwrap();
        assert_eq!((site.len(), site[0].1.cpu), (1, 3.0));
        assert_eq!(*site, read(11));
    }
}
