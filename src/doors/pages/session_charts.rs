//! The charts of one session's metrics: which time they show, and how they are scaled. Pure: same samples, same
//! charts.

use api::sessions::{SessionView, UsageSample};
use rules::session::SessionState;
use rules::units::{Bytes, Timestamp};

use super::charts::{self, ChartFigure, Curve, Scale};
use super::history::HistoryView;
use super::request_context::LocalClock;
use crate::doors::text::Text;

/// Points of a chart. Higher: each change sends more. Lower: short peaks are averaged away.
const POINTS: i64 = 120;
/// Seconds of the shortest mean. Shorter: gaps between samples, which come every two seconds.
const MIN_MEAN_SECONDS: i64 = 4;
/// Samples are kept one by one for so many seconds, before that one for each minute.
const FINE: i64 = 900;

/// How much of a session's life the charts show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsSpan {
    #[default]
    Quarter,
    Hour,
    All,
}

impl MetricsSpan {
    const ALL: [Self; 3] = [Self::Quarter, Self::Hour, Self::All];

    /// What an address asks for; the last quarter of an hour for what is none of these.
    pub fn asked(word: &str) -> Self {
        let known = Self::ALL.into_iter().find(|span| span.word() == word);
        known.unwrap_or_default()
    }

    /// As an address writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Quarter => "15m",
            Self::Hour => "1h",
            Self::All => "all",
        }
    }

    fn seconds(self) -> i64 {
        match self {
            Self::Quarter => FINE,
            Self::Hour => 3_600,
            Self::All => i64::MAX / 2,
        }
    }
}

/// Links to the same charts over other spans: address, name, whether this is it.
pub fn spans(t: Text, id: &str, here: MetricsSpan) -> Vec<(String, &'static str, bool)> {
    MetricsSpan::ALL
        .into_iter()
        .map(|span| {
            let name = match span {
                MetricsSpan::Quarter => t.metrics_quarter(),
                MetricsSpan::Hour => t.history_hour(),
                MetricsSpan::All => t.metrics_all(),
            };
            let href = format!("/sessions/{id}/metrics?range={}", span.word());
            (href, name, span == here)
        })
        .collect()
}

/// The begin of the first mean, and the seconds and number of all of them.
fn slots(first: i64, last: i64, span: MetricsSpan) -> (i64, i64, i64) {
    let from = first.max(last - span.seconds());
    if last - from <= FINE {
        let every = ((last - from) / POINTS).max(MIN_MEAN_SECONDS);
        return (from, every, (last - from) / every + 1);
    }
    // Whole minutes: each has a sample.
    let from = from - from.rem_euclid(60);
    let minutes = (last - from) / 60 + 1;
    let each = (minutes + POINTS - 1) / POINTS;
    (from, each * 60, (minutes + each - 1) / each)
}

/// CPU, memory and shares of devices, scaled to what was used. Empty without samples.
pub fn view(
    t: Text,
    clock: &LocalClock,
    session: &SessionView,
    samples: &[UsageSample],
    span: MetricsSpan,
) -> HistoryView {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return HistoryView::default();
    };
    let second = |sample: &UsageSample| sample.at.as_millis().div_euclid(1000);
    let (from, every, count) = slots(second(first), second(last), span);
    let times: Vec<i64> = (0..count).map(|place| from + place * every).collect();
    let means = |of: &dyn Fn(&UsageSample) -> Option<f64>| {
        let values = samples
            .iter()
            .filter_map(|sample| Some((second(sample), of(sample)?)));
        let count = usize::try_from(count).unwrap_or_default();
        charts::means(values, from, from + every * count as i64, count)
    };
    let given = session.resources;
    let share: Bytes = session.devices.iter().map(|part| part.memory).sum();
    let gpu_memory = |sample: &UsageSample| Some(sample.gpu?.memory?.0 as f64);
    /// Name, scale, limit, means, and how much of the time something waits.
    type Measure<'a> = (&'a str, Scale, f64, Vec<Option<f64>>, Option<f64>);
    let all: [Measure<'_>; 4] = [
        (
            t.metrics_gpu(),
            Scale::Percent,
            100.0,
            means(&|sample| sample.gpu?.load_percent),
            None,
        ),
        (
            t.metrics_gpu_memory(),
            Scale::Bytes,
            share.0 as f64,
            means(&gpu_memory),
            None,
        ),
        (
            t.metrics_cpu(),
            Scale::Number,
            given.cpu.as_f64(),
            means(&|sample| Some(sample.cpu)),
            last.cpu_waiting_percent,
        ),
        (
            t.metrics_memory(),
            Scale::Bytes,
            given.memory.0 as f64,
            means(&|sample| Some(sample.memory.0 as f64)),
            last.memory_waiting_percent,
        ),
    ];
    let made_up = samples
        .iter()
        .any(|sample| sample.gpu.is_some_and(|gpu| gpu.simulated));
    let label = |at: &i64| clock.second(Timestamp::from_millis(*at * 1000));
    let steps = times.len() - 1;
    let mut x: Vec<String> = (0..3).map(|part| label(&times[steps * part / 3])).collect();
    x.push(match session.state {
        SessionState::Ended => clock.second(last.at),
        _ => t.metrics_now().to_owned(),
    });
    let x = charts::once(x);
    let mut view = HistoryView {
        head: vec![t.history_time().to_owned()],
        ..HistoryView::default()
    };
    let known: Vec<_> = all
        .into_iter()
        .filter(|(_, _, _, values, _)| values.iter().any(Option::is_some))
        .collect();
    for (place, (title, scale, limit, values, waiting)) in known.iter().enumerate() {
        let peak = charts::peak(values);
        let top = scale.top(peak * 1.05);
        let mut note = t.metrics_peak_of(scale.write(peak), scale.write(*limit));
        if let Some(percent) = waiting {
            note = t.metrics_waiting(note, format!("{percent:.0}"));
        }
        if made_up && [t.metrics_gpu(), t.metrics_gpu_memory()].contains(title) {
            note = t.metrics_made_up(note);
        }
        let hue = if *title == t.metrics_cpu() {
            "ci"
        } else {
            "ca"
        };
        let curve = Curve {
            name: (*title).to_owned(),
            hue,
            filled: true,
            values: values.clone(),
        };
        view.head.push((*title).to_owned());
        view.figures.push(ChartFigure {
            title: (*title).to_owned(),
            drawing: charts::draw(
                &[curve],
                top,
                (*limit > 0.0).then_some(*limit),
                &format!("{title}, {note}"),
            ),
            note,
            keys: Vec::new(),
            y: charts::ticks(*scale, top),
            x: x.clone(),
            columns: (place + 1).to_string(),
        });
    }
    let columns: Vec<(Scale, &[Option<f64>])> = known
        .iter()
        .map(|(_, scale, _, values, _)| (*scale, values.as_slice()))
        .collect();
    view.rows = charts::rows(times.iter().map(label).collect(), &columns);
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_begin_where_the_session_did_and_have_so_many_points() {
        // Seconds since the first sample, of the last one; the begin, the seconds and the number of means.
        for (last, span, expected) in [
            (2, MetricsSpan::Quarter, (6_000, 4, 1)),
            (240, MetricsSpan::Quarter, (6_000, 4, 61)),
            (900, MetricsSpan::All, (6_000, 7, 129)),
            (1_440, MetricsSpan::Quarter, (6_540, 7, 129)),
            (1_440, MetricsSpan::All, (6_000, 60, 25)),
            (7_200, MetricsSpan::Hour, (9_600, 60, 61)),
            (7 * 86_400, MetricsSpan::All, (6_000, 85 * 60, 119)),
        ] {
            assert_eq!(
                slots(6_000, 6_000 + last, span),
                expected,
                "{last} {span:?}"
            );
        }
        assert_eq!(MetricsSpan::asked("1h"), MetricsSpan::Hour);
        assert_eq!(MetricsSpan::asked("year"), MetricsSpan::Quarter);
    }
}
