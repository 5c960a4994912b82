//! How is a series over time drawn, written as a table and read out? Pure: same values, same markup. Never asks
//! for a value.

use std::fmt::Write as _;

use super::components::{self, Markup, escaped};

/// One line of a chart: a mean for each point; None where nothing was measured.
pub struct Curve {
    pub name: String,
    /// Colour class: `ci` is ink, `ca` the accent, `c1` to `c8` those of users.
    pub hue: &'static str,
    /// Whether the area below is filled.
    pub filled: bool,
    pub values: Vec<Option<f64>>,
}

/// How values of a chart are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Numbers with two decimals.
    Number,
    Bytes,
    Percent,
    Celsius,
    Watts,
}

impl Scale {
    /// A value with its unit: `1,001.25`, `3.5 GiB`, `84%`, `61 °C`, `402 W`.
    pub fn write(self, value: f64) -> String {
        match self {
            Self::Number => components::grouped(format_args!("{value:.2}")),
            Self::Bytes => components::size(value.max(0.0) as u64),
            Self::Percent => format!("{value:.0}%"),
            Self::Celsius => format!("{value:.0} °C"),
            Self::Watts => format!("{value:.0} W"),
        }
    }

    /// A label of the axis: a number without needless zeros.
    fn tick(self, value: f64) -> String {
        match self {
            Self::Number => {
                let text = format!("{value:.3}");
                components::grouped(text.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => self.write(value),
        }
    }

    /// The top of an axis that shows values up to `most`: a round number whose quarters are easily read.
    pub fn top(self, most: f64) -> f64 {
        let most = match self {
            Self::Bytes => most.max(1024.0),
            Self::Number => most.max(0.04),
            _ => most.max(4.0),
        };
        let (base, steps): (f64, &[f64]) = match self {
            Self::Bytes => (2.0, &[1.0]),
            _ => (10.0, &[1.0, 2.0, 4.0, 8.0]),
        };
        let mut whole = match self {
            Self::Bytes => 1024.0,
            _ => 0.01,
        };
        loop {
            for step in steps {
                if whole * step >= most * 0.999_999 {
                    return whole * step;
                }
            }
            whole *= base;
        }
    }
}

/// A chart with its axes. The reader's script reads values out of the table whose columns it names.
pub struct ChartFigure {
    pub title: String,
    /// Beside the title: what there is to give, a peak.
    pub note: String,
    pub keys: Vec<(&'static str, String)>,
    pub drawing: Markup,
    /// Labels from the top to zero.
    pub y: Vec<String>,
    /// Labels from the first to the last point.
    pub x: Vec<String>,
    /// Columns of the table, from 1, separated by blanks.
    pub columns: String,
}

const WIDE: f64 = 1000.0;
const HIGH: f64 = 150.0;

/// The drawing of curves over the same points: a grid, lines that break where nothing was measured, and the
/// dashed line of a limit that lies within. `label` says in words what it shows.
pub fn draw(curves: &[Curve], top: f64, limit: Option<f64>, label: &str) -> Markup {
    let y = |value: f64| HIGH - (value / top.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0) * HIGH;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDE} {HIGH}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        escaped(label)
    );
    for part in 0..=4 {
        let at = HIGH * f64::from(part) / 4.0;
        let _ = write!(
            out,
            "<line class=\"gl\" x1=\"0\" x2=\"{WIDE}\" y1=\"{at}\" y2=\"{at}\"/>"
        );
    }
    for curve in curves {
        let (mut line, mut area) = (String::new(), String::new());
        for (begin, run) in runs(&curve.values) {
            let step = WIDE / (curve.values.len().max(2) - 1) as f64;
            let x = |place: usize| (begin + place) as f64 * step;
            // A single point is seen as a short line, which ends with the plot where the point is the newest.
            let short = (step / 2.0).max(3.0);
            let (first, last) = match run.len() {
                1 => (x(0).min(WIDE - short), (x(0) + short).min(WIDE)),
                several => (x(0), x(several - 1)),
            };
            let mut path = String::new();
            for (place, value) in run.iter().enumerate() {
                let (sign, at) = if place == 0 {
                    ('M', first)
                } else {
                    ('L', x(place))
                };
                let _ = write!(path, "{sign}{at:.0} {:.1}", y(*value));
            }
            if run.len() == 1 {
                let _ = write!(path, "h{:.1}", last - first);
            }
            let _ = write!(area, "{path}L{last:.0} {HIGH}L{first:.0} {HIGH}Z");
            line.push_str(&path);
        }
        if line.is_empty() {
            continue;
        }
        if curve.filled {
            let _ = write!(out, "<path class=\"ar {}\" d=\"{area}\"/>", curve.hue);
        }
        let _ = write!(out, "<path class=\"ln {}\" d=\"{line}\"/>", curve.hue);
    }
    if let Some(limit) = limit.filter(|limit| *limit <= top) {
        let at = y(limit);
        let _ = write!(out, "<path class=\"lim\" d=\"M0 {at:.1}L{WIDE} {at:.1}\"/>");
    }
    out.push_str("</svg>");
    Markup::finished(out)
}

/// What was measured without a gap between: where it begins, and its values.
fn runs(values: &[Option<f64>]) -> Vec<(usize, Vec<f64>)> {
    let mut runs: Vec<(usize, Vec<f64>)> = Vec::new();
    for (place, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        match runs
            .last_mut()
            .filter(|(begin, run)| begin + run.len() == place)
        {
            Some((_, run)) => run.push(*value),
            None => runs.push((place, vec![*value])),
        }
    }
    runs
}

/// Labels of the axis from `top` to zero.
pub fn ticks(scale: Scale, top: f64) -> Vec<String> {
    (0..=4)
        .map(|part| match part {
            4 => "0".to_owned(),
            part => scale.tick(top * f64::from(4 - part) / 4.0),
        })
        .collect()
}

/// The highest value that was measured; 0 where there is none.
pub fn peak(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}

/// Labels of an axis: one that says the same as the one before it is left empty.
pub fn once(mut labels: Vec<String>) -> Vec<String> {
    let kept = labels.clone();
    for (label, before) in labels.iter_mut().skip(1).zip(&kept) {
        if label == before {
            label.clear();
        }
    }
    labels
}

/// The rows of a table: a time, and each column's value as its scale writes it; a dash where unknown.
pub fn rows(times: Vec<String>, columns: &[(Scale, &[Option<f64>])]) -> Vec<Vec<String>> {
    let cell = |place: usize, (scale, values): &(Scale, &[Option<f64>])| {
        let value = values.get(place).copied().flatten();
        value.map_or_else(|| "–".to_owned(), |value| scale.write(value))
    };
    times
        .into_iter()
        .enumerate()
        .map(|(place, time)| {
            let values = columns.iter().map(|column| cell(place, column));
            [time].into_iter().chain(values).collect()
        })
        .collect()
}

/// Means of values at moments over `count` equal spans from `from` to `until`; None for a span without one. The same
/// moments for several series cost a pass each.
pub fn means(
    values: impl Iterator<Item = (i64, f64)>,
    from: i64,
    until: i64,
    count: usize,
) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0_u32); count];
    let whole = (until - from).max(1);
    for (at, value) in values.filter(|(at, _)| (from..=until).contains(at)) {
        let place = i128::from(at - from) * count as i128 / i128::from(whole);
        let place = usize::try_from(place)
            .unwrap_or_default()
            .min(count.saturating_sub(1));
        if let Some(sum) = sums.get_mut(place) {
            sum.0 += value;
            sum.1 += 1;
        }
    }
    let mean = |(sum, of): (f64, u32)| (of > 0).then(|| sum / f64::from(of));
    sums.into_iter().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_says_each_time_once() {
        let labels = ["05:46:56", "05:46:56", "05:46:58", "now"].map(str::to_owned);
        assert_eq!(once(labels.into()), ["05:46:56", "", "05:46:58", "now"]);
    }

    #[test]
    fn an_axis_ends_at_a_round_number_above_its_values() {
        for (scale, most, top, labels) in [
            (Scale::Number, 8.0, 8.0, ["8", "6", "4", "2", "0"]),
            (Scale::Number, 0.3, 0.4, ["0.4", "0.3", "0.2", "0.1", "0"]),
            (
                Scale::Number,
                0.0,
                0.04,
                ["0.04", "0.03", "0.02", "0.01", "0"],
            ),
            (
                Scale::Number,
                130.0,
                200.0,
                ["200", "150", "100", "50", "0"],
            ),
            (
                Scale::Percent,
                100.0,
                100.0,
                ["100%", "75%", "50%", "25%", "0"],
            ),
        ] {
            assert_eq!(scale.top(most), top, "{most}");
            assert_eq!(ticks(scale, top), labels, "{most}");
        }
        let top = Scale::Bytes.top(5.0e9);
        assert_eq!(
            ticks(Scale::Bytes, top),
            ["8 GiB", "6 GiB", "4 GiB", "2 GiB", "0"]
        );
    }

    #[test]
    fn a_line_breaks_where_nothing_was_measured() {
        let curve = Curve {
            name: "busy".into(),
            hue: "ca",
            filled: true,
            values: vec![Some(1.0), Some(2.0), None, Some(4.0), None],
        };
        let svg = draw(&[curve], 4.0, Some(2.0), "<busy>").to_string();
        assert!(svg.contains("M0 112.5L250 75.0M750 0.0h125.0"), "{svg}");
        assert!(svg.contains("aria-label=\"&lt;busy&gt;\""), "{svg}");
        assert!(
            svg.contains("class=\"lim\" d=\"M0 75.0L1000 75.0\""),
            "{svg}"
        );
        let nothing = draw(&[], 4.0, Some(9.0), "");
        assert!(!nothing.to_string().contains("<path"), "{nothing}");
    }

    #[test]
    fn the_newest_point_alone_stays_inside_the_plot() {
        for count in [1, 2, 5, 400] {
            let mut values = vec![None; count];
            values[count - 1] = Some(1.0);
            let curve = Curve {
                name: String::new(),
                hue: "ca",
                filled: true,
                values,
            };
            let svg = draw(&[curve], 4.0, None, "").to_string();
            let line = svg.split("class=\"ln ca\" d=\"M").nth(1).expect("a line");
            let (from, rest) = line.split_once(' ').expect("a point");
            let (_, length) = rest.split_once('h').expect("a short line");
            let length = length.split('"').next().expect("its end");
            let [from, length] = [from, length].map(|text| text.parse::<f64>().expect("a number"));
            assert!(length >= 3.0, "{count}: {svg}");
            assert!(from >= 0.0 && from + length <= WIDE + 0.5, "{count}: {svg}");
        }
    }

    #[test]
    fn means_leave_gaps_and_take_each_moment_once() {
        let values = [
            (0, 1.0),
            (5, 3.0),
            (30, 8.0),
            (40, 6.0),
            (41, 9.0),
            (-1, 9.0),
        ];
        let means = means(values.into_iter(), 0, 40, 4);
        assert_eq!(means, [Some(2.0), None, None, Some(7.0)]);
        assert_eq!(super::means(values.into_iter(), 0, 0, 0), []);
    }

    #[test]
    fn a_table_says_what_the_chart_draws() {
        let values = [Some(1.5), None];
        let rows = rows(
            vec!["14:00".into(), "14:10".into()],
            &[(Scale::Number, &values), (Scale::Percent, &values)],
        );
        assert_eq!(rows, [["14:00", "1.50", "2%"], ["14:10", "–", "–"]]);
    }
}
