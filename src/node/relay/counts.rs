//! What a relay counts of one container: a row for each host and how it came out, and the connections that ended last. Of many
//! rows the latest stay, and those of opened connections longest. Bounded for every session.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rules::egress::{EgressEnd, EgressOutcome, EgressRow, MAX_ENDS, MAX_ROWS};
use rules::units::Timestamp;

/// Connections to one host that came out the same. Connections that are open add their bytes.
#[derive(Debug)]
pub(super) struct CountedRow {
    host: String,
    port: u16,
    outcome: EgressOutcome,
    count: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    last_at: AtomicI64,
}

/// All rows of one container.
#[derive(Debug, Default)]
pub(super) struct Counts {
    rows: Mutex<Vec<Arc<CountedRow>>>,
    ends: Mutex<VecDeque<EgressEnd>>,
}

impl Counts {
    /// Counts one connection. Costs one look at each row.
    pub(super) fn count(
        &self,
        host: &str,
        port: u16,
        outcome: EgressOutcome,
        at: Timestamp,
    ) -> Arc<CountedRow> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let known = rows
            .iter()
            .find(|row| row.host == host && row.port == port && row.outcome == outcome)
            .cloned();
        let row = match known {
            Some(row) => row,
            None => {
                let oldest = rows.iter().enumerate();
                // What was refused goes first: refused tries hide no connection that was opened.
                let oldest = oldest.min_by_key(|(_, row)| {
                    let is_opened = row.outcome == EgressOutcome::Opened;
                    (is_opened, row.last_at.load(Ordering::Relaxed))
                });
                let oldest = oldest.map(|(place, _)| place);
                if let (true, Some(place)) = (rows.len() >= MAX_ROWS, oldest) {
                    rows.remove(place);
                }
                let row = Arc::new(CountedRow {
                    host: host.to_owned(),
                    port,
                    outcome,
                    count: AtomicU64::new(0),
                    sent: AtomicU64::new(0),
                    received: AtomicU64::new(0),
                    last_at: AtomicI64::new(0),
                });
                rows.push(Arc::clone(&row));
                row
            }
        };
        row.count.fetch_add(1, Ordering::Relaxed);
        row.last_at.store(at.as_millis(), Ordering::Relaxed);
        row
    }

    /// Keeps how one connection of a row ended: the bytes both ways, and its time.
    pub(super) fn end(
        &self,
        row: &CountedRow,
        (sent, received): (u64, u64),
        (began_at, ended_at): (Timestamp, Timestamp),
    ) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        // By the clock: a relay that is started again goes on above.
        let by_clock = u64::try_from(ended_at.as_millis()).unwrap_or(0);
        let by_clock = by_clock.saturating_mul(1_000);
        let number = ends
            .back()
            .map_or(by_clock, |last| by_clock.max(last.number + 1));
        if ends.len() >= MAX_ENDS {
            ends.pop_front();
        }
        ends.push_back(EgressEnd {
            number,
            host: row.host.clone(),
            port: row.port,
            sent,
            received,
            began_at,
            ended_at,
        });
    }

    /// The connections that ended last, by their numbers.
    pub(super) fn ends(&self) -> Vec<EgressEnd> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.iter().cloned().collect()
    }

    /// The rows as they are now, the latest first.
    pub(super) fn rows(&self) -> Vec<EgressRow> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut told: Vec<EgressRow> = rows
            .iter()
            .map(|row| EgressRow {
                host: row.host.clone(),
                port: row.port,
                outcome: row.outcome,
                count: row.count.load(Ordering::Relaxed),
                sent: row.sent.load(Ordering::Relaxed),
                received: row.received.load(Ordering::Relaxed),
                last_at: Timestamp::from_millis(row.last_at.load(Ordering::Relaxed)),
            })
            .collect();
        told.sort_by_key(|row| std::cmp::Reverse(row.last_at));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_host_is_one_row_and_of_many_hosts_the_latest_stay() {
        let counts = Counts::default();
        let at = |second: i64| Timestamp::from_millis(second * 1000);
        for second in 0..3 {
            let row = counts.count("db", 5432, EgressOutcome::Opened, at(second));
            row.sent.fetch_add(10, Ordering::Relaxed);
        }
        counts.count("db", 5432, EgressOutcome::Unreachable, at(3));
        let rows = counts.rows();
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (rows[1].count, rows[1].sent, rows[1].last_at),
            (3, 30, at(2))
        );
        for number in 0..100 {
            let host = format!("h{number}.example");
            counts.count(&host, 443, EgressOutcome::NotListed, at(10 + number));
        }
        let rows = counts.rows();
        assert_eq!(rows.len(), MAX_ROWS);
        assert_eq!(rows[0].host, "h99.example");
        let stayed: Vec<EgressOutcome> = rows
            .iter()
            .filter(|row| row.host == "db")
            .map(|row| row.outcome)
            .collect();
        assert_eq!(stayed, [EgressOutcome::Opened], "what was refused went");
        for number in 0..100 {
            let host = format!("o{number}.example");
            counts.count(&host, 443, EgressOutcome::Opened, at(200 + number));
        }
        let rows = counts.rows();
        assert_eq!(rows.len(), MAX_ROWS);
        assert!(
            rows.iter().all(|row| row.host != "db"),
            "the oldest went first"
        );
    }

    #[test]
    fn each_connection_that_ended_has_a_higher_number_and_the_latest_stay() {
        let counts = Counts::default();
        let at = |second: i64| Timestamp::from_millis(second * 1_000);
        let row = counts.count("db", 5432, EgressOutcome::Opened, at(1));
        for sent in 0..3 {
            counts.end(&row, (sent, 20), (at(1), at(4)));
        }
        // The clock was set back.
        counts.end(&row, (3, 20), (at(1), at(2)));
        let ends = counts.ends();
        assert_eq!(ends[0].told(), "db:5432 sent=0 received=20 seconds=3");
        let numbers: Vec<u64> = ends.iter().map(|end| end.number).collect();
        assert_eq!(numbers, [4_000_000, 4_000_001, 4_000_002, 4_000_003]);
        for sent in 10..100 {
            counts.end(&row, (sent, 0), (at(5), at(5)));
        }
        let ends = counts.ends();
        assert_eq!(ends.len(), MAX_ENDS);
        assert_eq!(ends.last().map(|end| end.sent), Some(99));
    }
}
