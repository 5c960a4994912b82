//! The small pieces pages are made of: icons, alerts, racks, strips of a chart, and spans of time and sizes in
//! words. Everything here returns finished, escaped markup or plain text; nothing here reads other state.

use std::fmt;
use std::fmt::Write as _;

use askama::FastWritable;
use askama::filters::HtmlSafe;
use rules::units::CpuShare;

use super::floor_plan::FULL;
use super::{assets, floor_plan};
use crate::doors::text::Text;

/// Markup made here, with every foreign word in it escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markup(String);

impl Markup {
    /// Takes markup whose foreign words its maker has escaped.
    pub(super) fn finished(markup: String) -> Self {
        Self(markup)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FastWritable for Markup {
    fn write_into(
        &self,
        dest: &mut dyn fmt::Write,
        _values: &dyn askama::Values,
    ) -> askama::Result<()> {
        Ok(dest.write_str(&self.0)?)
    }
}

impl HtmlSafe for Markup {}

/// The text with the five signs HTML reads replaced.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A decorative icon of the sprite, hidden from readers of the screen.
pub fn icon(name: &str) -> Markup {
    icon_class(name, "")
}

/// The same with a class for its colour: `ok`, `warn`, `bad`, `dim`, `tick`.
pub fn icon_class(name: &str, class: &str) -> Markup {
    let gap = if class.is_empty() { "" } else { " " };
    Markup(format!(
        "<svg class=\"i{gap}{class}\" aria-hidden=\"true\"><use href=\"{}#{name}\"/></svg>",
        assets::address("icons.svg")
    ))
}

/// The product's mark.
pub fn glyph() -> Markup {
    Markup(
        "<svg class=\"glyph\" viewBox=\"0 0 30 30\" aria-hidden=\"true\"><rect class=\"g0\" width=\"30\" height=\"30\" rx=\"7\"/>\
         <g class=\"g1\"><rect x=\"6\" y=\"7\" width=\"18\" height=\"4\" rx=\"1.2\"/><rect x=\"6\" y=\"13\" width=\"10\" height=\"4\" rx=\"1.2\"/>\
         <rect x=\"17.5\" y=\"13\" width=\"6.5\" height=\"4\" rx=\"1.2\" opacity=\".55\"/><rect x=\"6\" y=\"19\" width=\"5\" height=\"4\" rx=\"1.2\"/>\
         <rect x=\"12.5\" y=\"19\" width=\"4\" height=\"4\" rx=\"1.2\" opacity=\".55\"/><rect x=\"18\" y=\"19\" width=\"6\" height=\"4\" rx=\"1.2\" opacity=\".3\"/></g></svg>"
            .to_owned(),
    )
}

/// What went wrong or needs knowing, above a form or a list.
#[derive(Clone, Debug)]
pub struct Alert {
    pub tone: Tone,
    pub title: String,
    pub detail: String,
    /// Stable code and request id, for support; empty when there is none.
    pub code: String,
    /// Where more of it stands: an address of the console, and its words.
    pub link: Option<(&'static str, &'static str)>,
}

/// How good the news is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Plain,
    Warning,
    Bad,
}

impl Alert {
    pub fn bad(title: impl Into<String>) -> Alert {
        Alert {
            tone: Tone::Bad,
            title: title.into(),
            detail: String::new(),
            code: String::new(),
            link: None,
        }
    }

    pub fn warning(title: impl Into<String>) -> Alert {
        Alert {
            tone: Tone::Warning,
            ..Alert::bad(title)
        }
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Alert {
        self.detail = detail.into();
        self
    }

    pub fn code(mut self, code: impl Into<String>) -> Alert {
        self.code = code.into();
        self
    }

    pub fn link(mut self, href: &'static str, words: &'static str) -> Alert {
        self.link = Some((href, words));
        self
    }
}

/// A banner, or nothing.
pub fn alert(alert: &Option<Alert>) -> Markup {
    let Some(alert) = alert else {
        return Markup::default();
    };
    let (class, name, colour) = match alert.tone {
        Tone::Good => ("banner n", "circle-check", "ok"),
        Tone::Plain => ("banner n", "info", "dim"),
        Tone::Warning => ("banner w", "triangle-alert", "warn"),
        Tone::Bad => ("banner", "circle-x", "bad"),
    };
    let mut out = format!(
        "<div class=\"{class}\" role=\"alert\">{}<div><b>{}</b> {}",
        icon_class(name, colour),
        escaped(&alert.title),
        escaped(&alert.detail)
    );
    if let Some((href, words)) = alert.link {
        let (href, words) = (escaped(href), escaped(words));
        let _ = write!(out, " <a href=\"{href}\">{words}</a>");
    }
    if !alert.code.is_empty() {
        let _ = write!(out, "<br><code>{}</code>", escaped(&alert.code));
    }
    out.push_str("</div></div>");
    Markup(out)
}

/// What is wrong with one field of a form.
#[derive(Clone, Debug)]
pub struct FormFieldError {
    pub field: String,
    pub message: String,
}

impl FormFieldError {
    pub fn new(field: &str, message: impl Into<String>) -> FormFieldError {
        FormFieldError {
            field: field.to_owned(),
            message: message.into(),
        }
    }
}

/// The messages for one field, or nothing.
pub fn fault(faults: &[FormFieldError], field: &str) -> Markup {
    let mut out = String::new();
    for fault in faults.iter().filter(|fault| fault.field == field) {
        let _ = write!(
            out,
            "<span class=\"fault\" role=\"alert\" data-fault=\"{}\">{}</span>",
            escaped(field),
            escaped(&fault.message)
        );
    }
    Markup(out)
}

/// One choice of a select or a row of cards.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub value: String,
    pub name: String,
    pub note: String,
    pub foot: String,
    pub icon: &'static str,
    pub chosen: bool,
}

impl Choice {
    /// All values, then the offered ones with their words; a chosen value that is not offered stands last.
    pub fn of_filter<'a>(
        all: &str,
        offered: impl IntoIterator<Item = (&'a str, &'a str)>,
        chosen: &str,
    ) -> Vec<Choice> {
        let mut choices = vec![Choice::new("", all, chosen.is_empty())];
        choices.extend(
            offered
                .into_iter()
                .map(|(value, words)| Choice::new(value, words, chosen == value)),
        );
        if !choices.iter().any(|choice| choice.chosen) {
            choices.push(Choice::new(chosen, chosen, true));
        }
        choices
    }

    pub fn new(value: impl Into<String>, name: impl Into<String>, chosen: bool) -> Choice {
        Choice {
            value: value.into(),
            name: name.into(),
            chosen,
            ..Choice::default()
        }
    }
}

/// A fact with an icon, in the line under a title.
#[derive(Clone, Debug)]
pub struct IconFact {
    pub icon: &'static str,
    pub text: String,
}

/// One line of a list of checks.
#[derive(Clone, Debug)]
pub struct CheckRow {
    pub icon: &'static str,
    pub tone: &'static str,
    pub name: String,
    pub value: String,
}

impl CheckRow {
    pub fn new(fine: bool, name: impl Into<String>, value: impl Into<String>) -> CheckRow {
        let (icon, tone) = if fine {
            ("circle-check", "ok")
        } else {
            ("circle-x", "bad")
        };
        CheckRow {
            icon,
            tone,
            name: name.into(),
            value: value.into(),
        }
    }
}

/// What one block on a rack stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Session,
    /// The session whose page this is.
    Mine,
    Paused,
    /// Holds its share, and has not used it for a while.
    Idle,
    Free,
    /// Reserved for another session.
    Held,
    /// What is about to be launched.
    Ghost,
    /// What a request that waits would need. It lies over the other blocks, at the right end: over what is free, and
    /// over those that it waits for.
    Needed,
}

/// How a block shows how much of it is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// A line at its foot.
    #[default]
    Foot,
    /// From its left edge, in its own colour.
    Whole,
    /// The same, in a colour for how busy it is.
    Heat,
}

impl Fill {
    /// The class of a filled block; `busy` is per cent.
    fn class(self, busy: u8) -> &'static str {
        match (self, busy) {
            (Self::Foot, _) => "u",
            (Self::Whole, _) => "u full",
            (Self::Heat, 0..25) => "u full h1",
            (Self::Heat, 25..50) => "u full h2",
            (Self::Heat, 50..75) => "u full h3",
            (Self::Heat, _) => "u full h4",
        }
    }
}

/// One block on a rack. Its weight decides its width; a rack's weights make its whole.
#[derive(Clone, Debug)]
pub struct Block {
    pub kind: BlockKind,
    pub name: String,
    pub note: String,
    /// Colour of the project or user, 1 to 8.
    pub hue: u8,
    /// How much of it is in use, per cent; none draws nothing.
    pub busy: Option<u8>,
    pub fill: Fill,
    pub weight: u64,
    pub href: Option<String>,
    /// What the picture tells besides name and note, in words, for readers of the screen.
    pub label: String,
    /// The profile of a hardware partition, which no width clips.
    pub partition: Option<String>,
}

impl Block {
    /// One without owner, link and load.
    pub fn plain(kind: BlockKind, name: String, weight: u64) -> Self {
        Self {
            kind,
            name,
            note: String::new(),
            hue: 0,
            busy: None,
            fill: Fill::Foot,
            weight,
            href: None,
            label: String::new(),
            partition: None,
        }
    }
}

/// A bar with its blocks: a row of the floor plan, of a preview, of "where it runs".
#[derive(Clone, Debug, Default)]
pub struct BarRow {
    pub name: String,
    pub note: String,
    pub blocks: Vec<Block>,
    /// How busy the whole row is, ready to print.
    pub busy: String,
    /// What that figure is, where it is not how busy the row is.
    pub busy_word: String,
    pub trend: Markup,
    pub figure: String,
    pub figure_of: String,
    pub figure_note: String,
    /// What is left, at the end of a small row.
    pub left: String,
    /// Takes nothing new, or is not heard from.
    pub closed: bool,
    /// The row where something would be placed.
    pub hit: bool,
}

/// Thousandths of a bar from which a block leads to its session. Lower: fingers cannot hit it (24 pixels of
/// the narrowest bar). Every session has its row in a list as well.
const MIN_LINK: u16 = 140;

/// Thousandths of a bar from which free room says how much it is.
const MIN_WORDS: u16 = 140;

/// Thousandths of a bar below which a partition says no more than its profile and whose it is.
const MIN_NOTE: u16 = 260;

/// Thousandths of a bar below which words of a block are whole or not there: a cut word tells less than the title. Higher:
/// long names are missing where half of them would do. Lower: bars beside a form are full of cut words.
const MIN_CUT: u16 = 500;

/// A profile that may break behind its dot, and nowhere else: `1g.<wbr>10gb`.
fn broken(profile: &str) -> String {
    escaped(profile).replace('.', ".<wbr>")
}

impl BarRow {
    /// Marks how much of a whole a request that waits would need here.
    pub fn need(&mut self, words: String, weight: u64, whole: u64) {
        let label = words.clone();
        self.hit = true;
        self.blocks.push(Block {
            label,
            weight: weight.min(whole),
            ..Block::plain(BlockKind::Needed, words, 0)
        });
    }

    /// Its blocks, each with its width in thousandths. Those of all but what would be needed fill the bar exactly.
    pub fn widths(&self) -> Vec<(&Block, u16)> {
        let lies_over = |block: &&Block| block.kind == BlockKind::Needed;
        let (over, side): (Vec<&Block>, Vec<&Block>) = self.blocks.iter().partition(lies_over);
        let weights: Vec<u64> = side.iter().map(|block| block.weight).collect();
        let keep = side.iter().rposition(|block| block.kind == BlockKind::Free);
        let whole: u64 = weights.iter().sum();
        let widths = floor_plan::widths(&weights, keep);
        let part = |block: &Block| {
            let part = u128::from(block.weight) * u128::from(FULL) / u128::from(whole.max(1));
            u16::try_from(part).unwrap_or(FULL).clamp(1, FULL)
        };
        let over = over.into_iter().map(|block| (block, part(block)));
        side.into_iter().zip(widths).chain(over).collect()
    }

    /// The bar. Widths are thousandths and fill it exactly; a block never vanishes, and free room keeps its width.
    pub fn rack(&self) -> Markup {
        let mut out = String::from("<div class=\"rack\">");
        for (block, width) in self.widths() {
            let kind = match block.kind {
                BlockKind::Session => format!("p{}", block.hue),
                BlockKind::Mine => format!("p{} me", block.hue),
                BlockKind::Paused | BlockKind::Idle => format!("p{} idle", block.hue),
                BlockKind::Free => "free".into(),
                BlockKind::Held => "held".into(),
                BlockKind::Ghost => "ghost".into(),
                BlockKind::Needed => "ghost need".into(),
            };
            let profile = block
                .partition
                .as_deref()
                .filter(|_| (60..MIN_NOTE).contains(&width));
            let tiny = match width {
                _ if profile.is_some() => " tiny part",
                _ if block.kind == BlockKind::Free => "",
                // No letter of a name is better than half of one; it is told all the same.
                ..60 => " tiny bare",
                60..120 => " tiny",
                _ => "",
            };
            let filled = match block.fill {
                Fill::Foot => "",
                Fill::Whole => " fills",
                Fill::Heat => " fills heat",
            };
            let words = !matches!(block.kind, BlockKind::Free | BlockKind::Needed);
            let whole = match width {
                60..MIN_CUT if words && profile.is_none() => " whole",
                _ => "",
            };
            let link = block.href.as_ref().filter(|_| width >= MIN_LINK);
            let tag = if link.is_some() { "a" } else { "span" };
            let _ = write!(
                out,
                "<{tag} class=\"sl {kind}{tiny}{filled} {}{whole}\"",
                of_bar(width)
            );
            if let Some(href) = link {
                let _ = write!(out, " href=\"{}\"", escaped(href));
            }
            // However wide a block is, a narrow screen may clip its words: the title has all of them.
            if width < MIN_WORDS || block.kind != BlockKind::Free {
                let words = [&block.name, &block.note, &block.label];
                let words = words.into_iter().filter(|word| !word.is_empty());
                let title: Vec<&str> = words.map(String::as_str).collect();
                if !title.is_empty() {
                    let _ = write!(out, " title=\"{}\"", escaped(&title.join(", ")));
                }
            }
            out.push('>');
            if let Some(profile) = profile {
                let profile = broken(profile);
                let _ = match (block.kind, block.partition.as_ref() == Some(&block.name)) {
                    (BlockKind::Free, _) | (_, true) => {
                        write!(out, "<b class=\"pf\">{profile}</b>")
                    }
                    (_, false) => write!(
                        out,
                        "<b>{}</b> <span class=\"pf\">{profile}</span>",
                        escaped(&block.name)
                    ),
                };
            } else if block.kind == BlockKind::Free {
                // A sliver of free room has no space for words.
                if width >= MIN_WORDS {
                    out.push_str(&escaped(&block.name));
                }
            } else if !matches!(block.kind, BlockKind::Ghost | BlockKind::Needed) || width >= 220 {
                // The blank is not seen, but it parts the words for those who hear them.
                // Of what a small block does, its first word says the most.
                let brief =
                    !tiny.is_empty() && (block.fill != Fill::Foot || block.kind == BlockKind::Idle);
                let note = match block.note.split_once(' ') {
                    Some((first, _)) if brief => first,
                    _ => &block.note,
                };
                let _ = write!(
                    out,
                    "<b>{}</b> <span>{}</span>",
                    escaped(&block.name),
                    escaped(note)
                );
            }
            if !block.label.is_empty() {
                let _ = write!(out, " <span class=\"sr\">{}</span>", escaped(&block.label));
            }
            if let Some(busy) = block.busy {
                let _ = write!(
                    out,
                    "<span class=\"{}\"><i class=\"w-{}\"></i></span>",
                    block.fill.class(busy),
                    busy.min(100)
                );
            }
            let _ = write!(out, "</{tag}>");
        }
        out.push_str("</div>");
        Markup(out)
    }
}

/// The classes of a width in thousandths: `w-12 t-5`.
fn of_bar(width: u16) -> String {
    match (width / 10, width % 10) {
        (percent, 0) => format!("w-{percent}"),
        (percent, rest) => format!("w-{percent} t-{rest}"),
    }
}

/// A small line with a filled foot, as wide and high as its box. `values` are parts of `most`; an empty
/// slice draws an empty box. `hue` is a colour class: `c1` to `c8`, `ca`, `ci`.
pub fn strip(values: &[f64], most: f64, hue: &str, limit: Option<f64>, label: &str) -> Markup {
    drawing(values, most, hue, limit, label, "sp", 240.0, 46.0)
}

/// The same in the size of a floor-plan row.
pub fn trend(values: &[f64], hue: &str, label: &str) -> Markup {
    drawing(values, 100.0, hue, None, label, "sp", 64.0, 26.0)
}

#[allow(
    clippy::too_many_arguments,
    reason = "one drawing, called by the two functions above"
)]
fn drawing(
    values: &[f64],
    most: f64,
    hue: &str,
    limit: Option<f64>,
    label: &str,
    class: &str,
    wide: f64,
    high: f64,
) -> Markup {
    let mut out = format!(
        "<svg class=\"{class} {hue}\" viewBox=\"0 0 {wide} {high}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        escaped(label)
    );
    let y = |value: f64| {
        high - 1.0 - (value / most.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0) * (high - 2.0)
    };
    if values.len() > 1 {
        let line = path(values, wide, y);
        let _ = write!(
            out,
            "<path class=\"f\" d=\"{line}L{wide} {high}L0 {high}Z\"/><path class=\"l\" d=\"{line}\"/>"
        );
    }
    // Without a line to hold against it, a limit looks like an alarm.
    if let Some(limit) = limit.filter(|_| values.len() > 1) {
        let _ = write!(
            out,
            "<path class=\"lim\" d=\"M0 {0:.1}L{wide} {0:.1}\"/>",
            y(limit)
        );
    }
    out.push_str("</svg>");
    Markup(out)
}

/// The path of a line through at least two values, evenly spread over the width.
fn path(values: &[f64], wide: f64, y: impl Fn(f64) -> f64) -> String {
    let step = wide / (values.len() - 1) as f64;
    let mut line = String::new();
    for (index, value) in values.iter().enumerate() {
        let sign = if index == 0 { 'M' } else { 'L' };
        let _ = write!(line, "{sign}{:.1} {:.1}", index as f64 * step, y(*value));
    }
    line
}

/// The large drawing of a chart: grid, filled line, and a limit.
pub fn chart(values: &[f64], most: f64, hue: &str, limit: Option<f64>, label: &str) -> Markup {
    let (wide, high) = (1000.0, 150.0);
    let y = |value: f64| high - (value / most.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0) * high;
    let mut out = format!(
        "<svg viewBox=\"0 0 {wide} {high}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        escaped(label)
    );
    for part in 0..=4 {
        let at = high * f64::from(part) / 4.0;
        let _ = write!(
            out,
            "<line class=\"gl\" x1=\"0\" x2=\"{wide}\" y1=\"{at}\" y2=\"{at}\"/>"
        );
    }
    if values.len() > 1 {
        let line = path(values, wide, y);
        let _ = write!(
            out,
            "<path class=\"ar {hue}\" d=\"{line}L{wide} {high}L0 {high}Z\"/><path class=\"ln {hue}\" d=\"{line}\"/>"
        );
    }
    if let Some(limit) = limit {
        let _ = write!(
            out,
            "<path class=\"lim\" d=\"M0 {0:.1}L{wide} {0:.1}\"/>",
            y(limit)
        );
    }
    out.push_str("</svg>");
    Markup(out)
}

/// A number with commas between thousands, as both languages write them: `1,234,567.50`. What is no decimal number is
/// given back as it is.
pub fn grouped(number: impl fmt::Display) -> String {
    let text = number.to_string();
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(digits) || !all_digits(fraction.get(1..).unwrap_or_default()) {
        return text;
    }
    let mut out = String::from(sign);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out.push_str(fraction);
    out
}

/// Hours with two decimals, those of many without: `99.50`, `1,234`.
pub fn hours(hours: f64) -> String {
    match hours < 100.0 {
        true => format!("{hours:.2}"),
        false => grouped(format_args!("{hours:.0}")),
    }
}

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// A part of a whole in the unit of the whole, which stands beside it: `0.4` of `22.4 GiB`.
pub fn part_of(bytes: u64, whole: u64) -> String {
    let mut value = bytes as f64;
    let mut rest = whole as f64;
    let mut unit = 0;
    while rest >= 1024.0 && unit + 1 < UNITS.len() {
        rest /= 1024.0;
        value /= 1024.0;
        unit += 1;
    }
    if value >= 100.0 || (value - value.round()).abs() < 0.05 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// Cores in use: with both decimals where the limit is less than one core, so that a part of it is no nought.
pub fn cores(used: f64, limit: CpuShare) -> String {
    match limit < CpuShare(100) {
        true => format!("{used:.2}"),
        false => format!("{used:.1}"),
    }
}

/// A size with at most one decimal, in binary units: `0 B`, `512 MiB`, `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value >= 100.0 || (value - value.round()).abs() < 0.05 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// A span in the two largest units that matter: `12 s`, `47 min`, `3 h 12 min`, `2 d 4 h`.
pub fn span(text: Text, seconds: u64) -> String {
    match seconds {
        0..60 => text.common_seconds(seconds),
        60..3600 => text.common_minutes(seconds / 60),
        3600..86_400 => text.common_hours_minutes(seconds / 3600, seconds % 3600 / 60),
        _ if seconds % 86_400 < 3600 => text.common_days(seconds / 86_400),
        _ => text.common_days_hours(seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A span to the second, in hours and less, without parts that are zero: `2 h`, `24 h 30 min`.
pub fn exact_span(text: Text, seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds % 3600 / 60, seconds % 60);
    let mut parts = Vec::new();
    if hours > 0 {
        parts.push(text.common_hours(hours));
    }
    if minutes > 0 {
        parts.push(text.common_minutes(minutes));
    }
    if rest > 0 || parts.is_empty() {
        parts.push(text.common_seconds(rest));
    }
    parts.join(" ")
}

/// How long a step took, finer than `span`: `4 ms`, `1.8 s`, then as `span`.
pub fn took(text: Text, milliseconds: u64) -> String {
    match milliseconds {
        0..1000 => format!("{milliseconds} ms"),
        1000..60_000 => text.common_seconds(format!("{:.1}", milliseconds as f64 / 1000.0)),
        _ => span(text, milliseconds / 1000),
    }
}

/// Part of a whole in whole per cent, 0 to 100; 0 of 0 is 0.
pub fn percent(part: f64, whole: f64) -> u8 {
    if whole <= 0.0 {
        return 0;
    }
    (part / whole * 100.0).round().clamp(0.0, 100.0) as u8
}

/// A command line whose names of options stand each in one line: browsers break lines behind a hyphen.
pub fn command(line: &str) -> Markup {
    let words = line.split(' ').map(|word| match word.starts_with("--") {
        true => format!("<span class=\"nb\">{}</span>", escaped(word)),
        false => escaped(word),
    });
    Markup::finished(words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_drawn_beside_a_line_alone() {
        let drawn = |values: &[f64]| strip(values, 2.0, "ci", Some(2.0), "cores");
        assert!(!drawn(&[]).as_str().contains("lim"), "nothing was measured");
        assert!(drawn(&[0.5, 1.0]).as_str().contains("lim"));
    }

    #[test]
    fn the_options_of_a_command_stand_in_one_line() {
        assert_eq!(
            command("run --name a-b '<x>' -- sh").as_str(),
            "run <span class=\"nb\">--name</span> a-b &#39;&lt;x&gt;&#39; <span class=\"nb\">--</span> sh"
        );
    }

    #[test]
    fn a_part_is_written_in_the_unit_of_its_whole() {
        for (part, whole, words) in [
            (384 << 20, 24 << 30, "0.4"),
            (498 << 30, 640 << 30, "498"),
            (0, 640 << 30, "0"),
            (24 << 30, 24 << 30, "24"),
        ] {
            assert_eq!(part_of(part, whole), words);
        }
        let small = [cores(0.04, CpuShare(10)), cores(0.04, CpuShare(200))];
        assert_eq!(small, ["0.04", "0.0"]);
    }

    #[test]
    fn thousands_have_commas_between_them() {
        for (number, told) in [
            ("0", "0"),
            ("999.99", "999.99"),
            ("1000", "1,000"),
            ("12345.678901", "12,345.678901"),
            ("1234567.50", "1,234,567.50"),
            ("-1234.5", "-1,234.5"),
            ("", ""),
            ("–", "–"),
            ("1234 h", "1234 h"),
            ("1.2.3456", "1.2.3456"),
        ] {
            assert_eq!(grouped(number), told, "{number}");
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([hours(1.0), hours(1234.5)], ["1.00", "1,234"]);
    }

    #[test]
    fn sizes_and_spans_are_short() {
        let text = Text::default();
        assert_eq!(size(0), "0 B");
        assert_eq!(size(512 << 20), "512 MiB");
        assert_eq!(size(1_610_612_736), "1.5 GiB");
        assert_eq!(span(text, 11_520), "3 h 12 min");
        for (seconds, told) in [
            (0, "0 s"),
            (1_201, "20 min 1 s"),
            (7_200, "2 h"),
            (7_260, "2 h 1 min"),
            (88_200, "24 h 30 min"),
        ] {
            assert_eq!(exact_span(text, seconds), told);
        }
        assert_eq!(took(text, 4), "4 ms");
        assert_eq!(took(text, 1_800), "1.8 s");
    }

    #[test]
    fn only_a_block_that_can_be_hit_is_a_link() {
        let block = |weight| Block {
            kind: BlockKind::Session,
            name: "s".into(),
            note: "n".into(),
            hue: 1,
            busy: None,
            fill: Fill::Foot,
            weight,
            href: Some("/sessions/1".into()),
            label: "half".into(),
            partition: None,
        };
        let row = BarRow {
            blocks: vec![block(5), block(14), block(81)],
            ..BarRow::default()
        };
        let html = row.rack().to_string();
        assert_eq!(html.matches("<a ").count(), 2, "{html}");
        assert_eq!(html.matches("title=\"s, n, half\"").count(), 3, "{html}");
    }

    #[test]
    fn a_block_has_all_of_its_words_as_its_title() {
        let row = BarRow {
            blocks: vec![
                Block {
                    note: "0.05 · jae".into(),
                    ..Block::plain(BlockKind::Session, "others".into(), 50)
                },
                Block::plain(BlockKind::Free, "0.10 free".into(), 100),
                Block::plain(BlockKind::Session, "large".into(), 850),
            ],
            ..BarRow::default()
        };
        let html = row.rack().to_string();
        for title in ["title=\"others, 0.05 · jae\"", "title=\"0.10 free\""] {
            assert!(html.contains(title), "{title}: {html}");
        }
        // What is wide here may be narrow on a phone.
        assert!(html.contains("title=\"large\""), "{html}");
    }

    #[test]
    fn a_partition_tells_its_profile_in_every_width() {
        let part = |kind, name: &str, weight| Block {
            note: "1g.10gb · mina".into(),
            partition: Some("1g.10gb".into()),
            ..Block::plain(kind, name.to_owned(), weight)
        };
        let row = BarRow {
            blocks: vec![
                part(BlockKind::Session, "a-long-name", 125),
                part(BlockKind::Free, "1g.10gb", 125),
                part(BlockKind::Session, "wide", 750),
            ],
            ..BarRow::default()
        };
        let html = row.rack().to_string();
        for drawn in [
            "sl p0 tiny part w-12 t-5\" title=\"a-long-name, 1g.10gb · mina\"><b>a-long-name</b> <span class=\"pf\">1g.<wbr>10gb</span>",
            "sl free tiny part w-12 t-5\" title=\"1g.10gb, 1g.10gb · mina\"><b class=\"pf\">1g.<wbr>10gb</b>",
            "<b>wide</b> <span>1g.10gb · mina</span>",
        ] {
            assert!(html.contains(drawn), "{drawn}: {html}");
        }
    }

    #[test]
    fn what_is_in_use_is_drawn_as_asked_and_told_in_words() {
        let block = |kind, fill, weight| Block {
            kind,
            name: "s".into(),
            note: "84% of 0.35".into(),
            hue: 1,
            busy: Some(84),
            fill,
            weight,
            href: None,
            label: "84% busy".into(),
            partition: None,
        };
        let row = BarRow {
            blocks: vec![
                block(BlockKind::Idle, Fill::Foot, 50),
                block(BlockKind::Session, Fill::Heat, 42),
                block(BlockKind::Session, Fill::Whole, 8),
            ],
            ..BarRow::default()
        };
        let html = row.rack().to_string();
        for drawn in [
            "sl p1 idle w-50",
            "sl p1 fills heat w-42",
            "<span class=\"u full h4\"><i class=\"w-84\">",
            "sl p1 tiny fills w-8",
            "title=\"s, 84% of 0.35, 84% busy\"",
            "<span class=\"sr\">84% busy</span>",
            // Where there is no room for more.
            "<span>84%</span>",
        ] {
            assert!(html.contains(drawn), "{drawn}: {html}");
        }
    }

    #[test]
    fn foreign_words_are_escaped() {
        let row = BarRow {
            blocks: vec![Block {
                kind: BlockKind::Session,
                name: "<script>".into(),
                note: "\"&'".into(),
                hue: 1,
                busy: Some(200),
                fill: Fill::Foot,
                weight: 1,
                href: Some("/a\"b".into()),
                label: "<".into(),
                partition: None,
            }],
            ..BarRow::default()
        };
        let html = row.rack().to_string();
        assert!(
            !html.contains("<script>") && html.contains("&lt;script&gt;"),
            "{html}"
        );
        assert!(
            html.contains("w-100\"></i>"),
            "a foot line never passes its block: {html}"
        );
    }
}
