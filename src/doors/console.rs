//! The text console of the machine: what its screens look like and how their keys move. Draws with
//! ASCII alone, because the screen of a bare machine has no other letters. Never reads the machine
//! and never changes it; `screen` does.

pub mod screen;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Wrap};

/// What the first screen shows. Empty parts are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsoleStatus {
    pub host: String,
    pub version: String,
    /// Local time of day with its zone.
    pub clock: String,
    /// Addresses to type into a browser, each with where it comes from.
    pub addresses: Vec<(String, String)>,
    /// SHA-256 of the certificate authority, grouped; None where pages are not encrypted.
    pub fingerprint: Option<String>,
    /// Of the key by which the server is known over SSH; None where it takes no SSH connections.
    pub ssh: Option<String>,
    /// The code that makes the first administrator; None once there is one.
    pub setup: Option<String>,
    /// Short facts, the worst first.
    pub health: Vec<HealthFact>,
    /// Why nothing is known: the server does not answer.
    pub silent: Option<String>,
}

/// One short fact of the health line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthFact {
    pub text: String,
    pub well: bool,
}

/// What the menu offers, with its key.
pub const MENU: [(char, &str); 8] = [
    ('1', "Network"),
    ('2', "Passwords"),
    ('3', "Services"),
    ('4', "Logs"),
    ('5', "Support bundle"),
    ('6', "Power"),
    ('7', "Shell"),
    ('8', "Setup code"),
];

const HELP: &str = "F1 help   Esc back";

/// The first screen.
pub fn home(frame: &mut Frame<'_>, seen: &ConsoleStatus) {
    let [head, rule, body, second, facts, third, menu] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(5),
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Length(3),
    ])
    .areas(frame.area());
    let right = format!("{}   {} ", seen.version, seen.clock);
    let gap = usize::from(head.width).saturating_sub(seen.host.len() + 1 + right.len());
    frame.render_widget(
        Line::from(vec![
            Span::styled(format!(" {}", seen.host), bold()),
            Span::raw(" ".repeat(gap)),
            Span::raw(right),
        ]),
        head,
    );
    for place in [rule, second, third] {
        line_across(frame, place);
    }
    frame.render_widget(
        Paragraph::new(address_lines(seen)).wrap(Wrap { trim: false }),
        body,
    );
    frame.render_widget(Paragraph::new(health_line(seen)), facts);
    let entries: Vec<String> = MENU
        .iter()
        .map(|(key, name)| format!("{key} {name}"))
        .collect();
    let (first, rest) = entries.split_at(4);
    frame.render_widget(
        Paragraph::new(vec![
            Line::raw(columns(first)),
            Line::raw(columns(rest)),
            Line::styled("  F1 help", dim()),
        ]),
        menu,
    );
}

fn columns(entries: &[String]) -> String {
    let cells: Vec<String> = entries.iter().map(|entry| format!("{entry:<18}")).collect();
    format!("  {}", cells.concat().trim_end())
}

fn address_lines(seen: &ConsoleStatus) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    if let Some(why) = &seen.silent {
        lines.push(Line::styled(format!("  {why}"), bold()));
        lines.push(Line::raw(
            "  3 Services shows what happened and starts it again.",
        ));
        lines.push(Line::default());
    }
    for (index, (address, note)) in seen.addresses.iter().enumerate() {
        let label = if index == 0 { "Open in a browser" } else { "" };
        lines.push(Line::from(vec![
            Span::raw(format!("  {label:<20}")),
            Span::styled(format!("{address:<36}"), bold()),
            Span::styled(format!(" {note}"), dim()),
        ]));
    }
    if seen.addresses.is_empty() && seen.silent.is_none() {
        lines.push(Line::raw(
            "  This machine has no address yet: plug in a cable, or press 1 to set one.",
        ));
    }
    if let Some(fingerprint) = &seen.fingerprint {
        // In two halves, as it is read out and compared.
        let middle = fingerprint.len() / 2 + 1;
        let (first, second) = fingerprint.split_at(middle.min(fingerprint.len()));
        lines.push(Line::default());
        lines.push(Line::raw(format!("  {:<20}{first}", "Certificate")));
        lines.push(Line::raw(format!("  {:<20}{second}", "SHA-256")));
        lines.push(Line::styled(
            format!("  {:<20}compare before you trust", ""),
            dim(),
        ));
    }
    if let Some(fingerprint) = &seen.ssh {
        lines.push(Line::raw(format!("  {:<20}{fingerprint}", "SSH")));
    }
    if let Some(code) = &seen.setup {
        lines.push(Line::default());
        lines.push(Line::from(vec![
            Span::raw(format!("  {:<20}", "Setup")),
            Span::styled(code.clone(), bold()),
        ]));
    }
    lines
}

fn health_line(seen: &ConsoleStatus) -> Line<'static> {
    let mut spans = vec![Span::raw("  ")];
    for fact in &seen.health {
        let mark = if fact.well { "" } else { "! " };
        let style = if fact.well { Style::new() } else { bold() };
        spans.push(Span::styled(format!("{mark}{}    ", fact.text), style));
    }
    Line::from(spans)
}

/// A list to choose from; the chosen one is shown reversed.
pub fn choose(frame: &mut Frame<'_>, title: &str, note: &[String], items: &[String], at: usize) {
    let place = sheet(frame, title);
    let mut lines: Vec<Line<'_>> = note.iter().map(|line| Line::raw(line.as_str())).collect();
    if !note.is_empty() {
        lines.push(Line::default());
    }
    for (index, item) in items.iter().enumerate() {
        let text = format!(" {} {item} ", index + 1);
        let style = if index == at {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        lines.push(Line::styled(text, style));
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), place);
}

/// One thing to type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Field {
    pub label: String,
    pub value: String,
    pub secret: bool,
}

impl Field {
    pub fn new(label: &str, value: &str) -> Self {
        Self {
            label: label.to_owned(),
            value: value.to_owned(),
            secret: false,
        }
    }

    pub fn secret(label: &str) -> Self {
        Self {
            secret: true,
            ..Self::new(label, "")
        }
    }
}

/// Things to type, one below the other.
pub fn ask(frame: &mut Frame<'_>, title: &str, note: &[String], fields: &[Field], at: usize) {
    let place = sheet(frame, title);
    let mut lines: Vec<Line<'_>> = note.iter().map(|line| Line::raw(line.as_str())).collect();
    if !note.is_empty() {
        lines.push(Line::default());
    }
    for (index, field) in fields.iter().enumerate() {
        let shown = if field.secret {
            "*".repeat(field.value.chars().count())
        } else {
            field.value.clone()
        };
        let cursor = if index == at { "_" } else { "" };
        let style = if index == at { bold() } else { Style::new() };
        lines.push(Line::styled(
            format!("{:<22}{shown}{cursor}", field.label),
            style,
        ));
    }
    lines.push(Line::default());
    lines.push(Line::styled(
        "Enter goes on, Tab to the next line, Esc back",
        dim(),
    ));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), place);
}

/// Text to read, from line `top` on.
pub fn text(frame: &mut Frame<'_>, title: &str, lines: &[String], top: usize) {
    let place = sheet(frame, title);
    let shown: Vec<Line<'_>> = lines
        .iter()
        .skip(top)
        .take(usize::from(place.height))
        .map(|line| Line::raw(line.as_str()))
        .collect();
    frame.render_widget(Paragraph::new(shown), place);
}

fn sheet(frame: &mut Frame<'_>, title: &str) -> Rect {
    let [head, rule, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Clear, frame.area());
    frame.render_widget(Line::styled(format!(" {title}"), bold()), head);
    line_across(frame, rule);
    frame.render_widget(Line::styled(format!(" {HELP}"), dim()), foot);
    Rect {
        x: body.x + 2,
        y: body.y + 1,
        width: body.width.saturating_sub(4),
        height: body.height.saturating_sub(1),
    }
}

fn line_across(frame: &mut Frame<'_>, place: Rect) {
    let width = usize::from(place.width).saturating_sub(2);
    frame.render_widget(
        Line::styled(format!(" {}", "-".repeat(width)), dim()),
        place,
    );
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// What a key means to a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEffect {
    /// Nothing, or the mark has moved.
    Stay,
    Chosen(usize),
    Back,
}

/// Moves in a list of `count` entries.
pub fn step_in_list(key: KeyEvent, at: &mut usize, count: usize) -> KeyEffect {
    match key.code {
        KeyCode::Esc => return KeyEffect::Back,
        KeyCode::Up | KeyCode::Char('k') => *at = at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => *at = (*at + 1).min(count.saturating_sub(1)),
        KeyCode::Enter if *at < count => return KeyEffect::Chosen(*at),
        KeyCode::Char(digit) => {
            let wanted = digit.to_digit(10).and_then(|n| usize::try_from(n).ok());
            if let Some(index) = wanted.and_then(|n| n.checked_sub(1)).filter(|i| *i < count) {
                return KeyEffect::Chosen(index);
            }
        }
        _ => {}
    }
    KeyEffect::Stay
}

/// Types into fields; `Chosen` once Enter is pressed in the last one.
pub fn step_in_fields(key: KeyEvent, at: &mut usize, fields: &mut [Field]) -> KeyEffect {
    let last = fields.len().saturating_sub(1);
    match key.code {
        KeyCode::Esc => return KeyEffect::Back,
        KeyCode::Enter if *at >= last => return KeyEffect::Chosen(0),
        KeyCode::Enter | KeyCode::Tab | KeyCode::Down => *at = (*at + 1).min(last),
        KeyCode::BackTab | KeyCode::Up => *at = at.saturating_sub(1),
        KeyCode::Backspace => {
            if let Some(field) = fields.get_mut(*at) {
                field.value.pop();
            }
        }
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            if let Some(field) = fields.get_mut(*at) {
                field.value.clear();
            }
        }
        KeyCode::Char(letter) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
            if let Some(field) = fields.get_mut(*at) {
                field.value.push(letter);
            }
        }
        _ => {}
    }
    KeyEffect::Stay
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(width: u16, height: u16, draw: impl FnOnce(&mut Frame<'_>)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer().clone();
        (0..height)
            .map(|y| {
                let line: String = (0..width)
                    .map(|x| buffer[(x, y)].symbol().to_owned())
                    .collect();
                format!("{}\n", line.trim_end())
            })
            .collect()
    }

    fn seen() -> ConsoleStatus {
        ConsoleStatus {
            host: "fardel-01".into(),
            version: "0.1.0".into(),
            clock: "14:02:11 KST".into(),
            addresses: vec![
                ("https://10.1.4.20".into(), "(eno1, static)".into()),
                ("https://fardel-01".into(), "where the name is known".into()),
            ],
            fingerprint: Some(["9F:2C:7A:41"; 8].join(":")),
            ssh: Some("SHA256:NWzrYSgOvAuFvfSw/YsPp1MrDu3JDInpo/A71xW7hG0".into()),
            setup: Some("https://10.1.4.20/setup?code=7KQ4-M2XD-AAAA-BBBB".into()),
            health: vec![
                HealthFact {
                    text: "1 warning".into(),
                    well: false,
                },
                HealthFact {
                    text: "23 running, 3 waiting".into(),
                    well: true,
                },
            ],
            silent: None,
        }
    }

    #[test]
    fn the_first_screen_says_where_to_go_and_what_to_compare() {
        let screen = drawn(80, 24, |frame| home(frame, &seen()));
        for wanted in [
            " fardel-01",
            "0.1.0   14:02:11 KST",
            "Open in a browser   https://10.1.4.20",
            "(eno1, static)",
            "Certificate         9F:2C:7A:41",
            "compare before you trust",
            "SSH                 SHA256:NWzrYSgOvAuFvfSw/YsPp1MrDu3JDInpo/A71xW7hG0",
            "7KQ4-M2XD",
            "! 1 warning    23 running, 3 waiting",
            "1 Network",
            "8 Setup code",
        ] {
            assert!(screen.contains(wanted), "{wanted} is missing in\n{screen}");
        }
        assert!(
            screen.is_ascii(),
            "the screen of a bare machine draws ASCII alone"
        );
    }

    #[test]
    fn without_address_or_server_it_says_what_to_do() {
        let bare = drawn(80, 24, |frame| home(frame, &ConsoleStatus::default()));
        assert!(bare.contains("no address yet"), "{bare}");
        let silent = ConsoleStatus {
            silent: Some("The server does not answer.".into()),
            ..seen()
        };
        let screen = drawn(80, 24, |frame| home(frame, &silent));
        assert!(
            screen.contains("does not answer") && screen.contains("3 Services"),
            "{screen}"
        );
    }

    #[test]
    fn secrets_are_stars_and_lists_move() {
        let mut fields = [Field::new("Name", ""), Field::secret("Password")];
        let mut at = 0;
        for key in "mina\tab1".chars() {
            let code = if key == '\t' {
                KeyCode::Tab
            } else {
                KeyCode::Char(key)
            };
            assert_eq!(
                step_in_fields(code.into(), &mut at, &mut fields),
                KeyEffect::Stay
            );
        }
        let screen = drawn(60, 12, |frame| ask(frame, "Sign in", &[], &fields, at));
        assert!(
            screen.contains("mina") && screen.contains("***_") && !screen.contains("ab1"),
            "{screen}"
        );
        assert_eq!(
            step_in_fields(KeyCode::Enter.into(), &mut at, &mut fields),
            KeyEffect::Chosen(0)
        );
        let mut mark = 0;
        assert_eq!(
            step_in_list(KeyCode::Down.into(), &mut mark, 2),
            KeyEffect::Stay
        );
        assert_eq!(
            step_in_list(KeyCode::Down.into(), &mut mark, 2),
            KeyEffect::Stay
        );
        assert_eq!(
            step_in_list(KeyCode::Enter.into(), &mut mark, 2),
            KeyEffect::Chosen(1)
        );
        assert_eq!(
            step_in_list(KeyCode::Char('1').into(), &mut mark, 2),
            KeyEffect::Chosen(0)
        );
        assert_eq!(
            step_in_list(KeyCode::Char('9').into(), &mut mark, 2),
            KeyEffect::Stay
        );
        assert_eq!(
            step_in_list(KeyCode::Esc.into(), &mut mark, 2),
            KeyEffect::Back
        );
    }
}
