//! Code that runs in a session by an interpreter that stays: its bounds, what a run has written and no answer has taken yet,
//! and how a shell says that a run is over. Starts nothing and reads no clock; the caller brings the bytes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Most bytes of the code of one run. Higher: the supervisor of a session drops what the interpreter has not read. Lower:
/// long scripts have to be files.
pub const MAX_CODE_BYTES: usize = 128 << 10;
/// Most bytes of an order to an interpreter, as it is sent: the supervisor keeps 256 KiB that were not read yet.
pub const MAX_ORDER_BYTES: usize = 240 << 10;
/// Most bytes that one run shows. Higher: memory for each run. Lower: pictures are cut off.
pub const MAX_RUN_BYTES: usize = 4 << 20;
/// Most bytes of one answer; the next has the rest.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Longest picture or other media, in base64. A driver that says more in one line is no driver.
pub const MAX_MEDIA_BYTES: usize = 2 << 20;
/// Pieces that wait to be read. A piece that continues the one before costs none.
pub const MAX_PIECES: usize = 4_096;
/// Words that a completion offers.
pub const MAX_COMPLETIONS: usize = 200;
/// Longest id of a run, bytes.
pub const MAX_RUN_ID: usize = 64;

/// What runs code.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum CodeLanguage {
    #[default]
    Python,
    R,
    Shell,
}

impl CodeLanguage {
    pub const ALL: [Self; 3] = [Self::Python, Self::R, Self::Shell];

    /// How users name it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::R => "r",
            Self::Shell => "shell",
        }
    }

    /// Programs that run it, the best first.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Python => &["python3"],
            Self::R => &["R"],
            Self::Shell => &["bash", "sh"],
        }
    }
}

/// A part of a run that builds a program and then runs it, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BatchStep {
    Clean,
    Build,
    Exec,
}

/// Where a piece of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsoleStream {
    Stdout,
    Stderr,
    /// Data of a media type, in base64.
    Media,
}

/// Something that a run has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolePiece {
    pub stream: ConsoleStream,
    /// The media type; empty for text.
    pub media_type: String,
    pub text: String,
}

/// What one run has shown and no answer has taken yet.
#[derive(Debug, Default)]
pub struct RunConsole {
    pieces: VecDeque<ConsolePiece>,
    waiting_bytes: usize,
    /// Bytes of the whole run.
    total_bytes: usize,
    is_cut: bool,
}

impl RunConsole {
    /// Takes text; what is beyond the bounds of a run is dropped. Costs O(bytes).
    pub fn write(&mut self, stream: ConsoleStream, text: &str) {
        let room = MAX_RUN_BYTES.saturating_sub(self.total_bytes);
        let kept = &text[..letters_within(text, room)];
        self.is_cut |= kept.len() < text.len();
        if kept.is_empty() {
            return;
        }
        let joins = self.pieces.back().is_some_and(|last| last.stream == stream);
        if !joins {
            if self.pieces.len() >= MAX_PIECES {
                self.is_cut = true;
                return;
            }
            self.pieces.push_back(ConsolePiece {
                stream,
                media_type: String::new(),
                text: String::new(),
            });
        }
        if let Some(last) = self.pieces.back_mut() {
            last.text.push_str(kept);
        }
        self.count(kept.len());
    }

    /// Takes a picture or the like, whole or not at all. A type that is none is not taken.
    pub fn show(&mut self, media_type: &str, base64: String) {
        let fits = base64.len() <= MAX_MEDIA_BYTES
            && self.total_bytes + base64.len() <= MAX_RUN_BYTES
            && self.pieces.len() < MAX_PIECES
            && is_media_type(media_type);
        if !fits {
            self.is_cut = true;
            return;
        }
        self.count(base64.len());
        self.pieces.push_back(ConsolePiece {
            stream: ConsoleStream::Media,
            media_type: media_type.to_owned(),
            text: base64,
        });
    }

    fn count(&mut self, bytes: usize) {
        self.waiting_bytes += bytes;
        self.total_bytes += bytes;
    }

    /// The next pieces for one answer, at most `MAX_ANSWER_BYTES` of text, or one picture that is larger.
    pub fn take(&mut self) -> Vec<ConsolePiece> {
        let mut taken = Vec::new();
        let mut room = MAX_ANSWER_BYTES;
        while let Some(first) = self.pieces.front_mut() {
            let size = first.text.len();
            let is_whole =
                size <= room || (first.stream == ConsoleStream::Media && taken.is_empty());
            if is_whole {
                taken.extend(self.pieces.pop_front());
                self.waiting_bytes -= size;
                room = room.saturating_sub(size);
                continue;
            }
            let end = letters_within(&first.text, room);
            if first.stream != ConsoleStream::Media && end > 0 {
                let rest = first.text.split_off(end);
                let head = std::mem::replace(&mut first.text, rest);
                taken.push(ConsolePiece {
                    stream: first.stream,
                    media_type: String::new(),
                    text: head,
                });
                self.waiting_bytes -= end;
            }
            break;
        }
        taken
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether as much waits as one answer takes.
    pub fn fills_an_answer(&self) -> bool {
        self.waiting_bytes >= MAX_ANSWER_BYTES
    }

    /// Bytes that wait to be taken.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Notes that something of the run was dropped.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Whether something of the run was dropped.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// The length of as many whole letters as fit into so many bytes.
fn letters_within(text: &str, bytes: usize) -> usize {
    let most = bytes.min(text.len());
    (0..=most)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or_default()
}

/// A type and a subtype of plain letters, as `image/png`.
fn is_media_type(text: &str) -> bool {
    let is_word = |word: &str| {
        (1..=64).contains(&word.len())
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(&byte))
    };
    text.split_once('/')
        .is_some_and(|(kind, form)| is_word(kind) && is_word(form))
}

/// Turns bytes into text where a letter may come in two pieces. What is no UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub struct TextPieces(Vec<u8>);

impl TextPieces {
    /// The text of these bytes and of those that were kept.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let keep = unfinished(&self.0);
        let rest = self.0.split_off(self.0.len() - keep);
        let text = String::from_utf8_lossy(&self.0).into_owned();
        self.0 = rest;
        text
    }
}

/// How many bytes at the end begin a letter that is not whole; at most 3.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let Some(begin) = tail.iter().rposition(|byte| *byte >= 0xc0) else {
        return 0;
    };
    let letter = &tail[begin..];
    match std::str::from_utf8(letter) {
        Err(error) if error.error_len().is_none() => letter.len(),
        _ => 0,
    }
}

/// The order that has a shell run code and say when it is over. `mark` is letters and digits that the code cannot know.
///
/// The trap ends loops of the shell's own when a run is interrupted; what it started ends by the signal itself.
pub fn shell_order(code: &str, mark: &str) -> String {
    let quoted = code.replace('\'', r"'\''");
    format!(
        "trap 'break 1000 2>/dev/null' INT\n\
         command eval '{quoted}' </dev/null\n\
         printf '\\036%s:%s\\036' {mark} $?; printf '\\036%s\\036' {mark} >&2\n"
    )
}

/// Looks in one stream of a shell for the mark of the present run.
#[derive(Debug)]
pub struct MarkSearch {
    /// The mark with what stands before it.
    wanted: Vec<u8>,
    kept: Vec<u8>,
    /// Bytes behind the mark's begin, once it was seen.
    end: Option<Vec<u8>>,
}

/// Most letters between a mark and its end: an exit code.
const MAX_MARK_TAIL: usize = 8;

impl MarkSearch {
    pub fn of(mark: &str) -> Self {
        Self {
            wanted: format!("\u{1e}{mark}").into_bytes(),
            kept: Vec::new(),
            end: None,
        }
    }

    /// The bytes of the run in these, and the exit code once the mark came: 0 where the mark has none.
    pub fn push(&mut self, bytes: &[u8]) -> (Vec<u8>, Option<i32>) {
        if self.end.is_none() {
            self.kept.extend_from_slice(bytes);
            let found = self
                .kept
                .windows(self.wanted.len())
                .position(|part| part == self.wanted);
            let Some(at) = found else {
                // A begin of the mark may stand at the end.
                let longest = self.kept.len().min(self.wanted.len() - 1);
                let held = (1..=longest)
                    .rev()
                    .find(|length| self.kept.ends_with(&self.wanted[..*length]))
                    .unwrap_or_default();
                let rest = self.kept.split_off(self.kept.len() - held);
                return (std::mem::replace(&mut self.kept, rest), None);
            };
            let tail = self.kept.split_off(at);
            self.end = Some(tail[self.wanted.len()..].to_vec());
            let before = std::mem::take(&mut self.kept);
            return (before, self.code());
        }
        if let Some(end) = &mut self.end {
            end.extend_from_slice(bytes);
            end.truncate(MAX_MARK_TAIL + 1);
        }
        (Vec::new(), self.code())
    }

    fn code(&self) -> Option<i32> {
        let end = self.end.as_ref()?;
        let closed = end.iter().position(|byte| *byte == 0x1e);
        match closed {
            Some(at) => {
                let text = std::str::from_utf8(&end[..at]).unwrap_or_default();
                Some(text.trim_start_matches(':').parse().unwrap_or(0))
            }
            None if end.len() > MAX_MARK_TAIL => Some(1),
            None => None,
        }
    }
}

/// A part of an output in which a runner speaks between what the code writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkedPart {
    /// What the code, or a program that it started, wrote.
    Text(Vec<u8>),
    /// Words of the runner.
    Said(String),
}

/// Tells the words of a runner from what the code writes into the same stream: they stand between two letters 0x1e, behind the
/// first one the mark of the run.
#[derive(Debug)]
pub struct MarkedOutput {
    /// The mark with what stands before it.
    wanted: Vec<u8>,
    /// Bytes that may begin the mark; or of the words so far.
    kept: Vec<u8>,
    /// Of these, how many are known not to end the words.
    looked_at: usize,
    in_words: bool,
}

/// Most bytes of the words of a runner: those of a picture.
const MAX_WORDS_BYTES: usize = MAX_MEDIA_BYTES + 256;

impl MarkedOutput {
    pub fn of(mark: &str) -> Self {
        Self {
            wanted: format!("\u{1e}{mark}").into_bytes(),
            kept: Vec::new(),
            looked_at: 0,
            in_words: false,
        }
    }

    /// Bytes that wait for more.
    pub fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// The parts in these bytes and in those that waited. None where the words of the runner have no end: it is none, and what
    /// waited is forgotten. Costs O(bytes).
    pub fn push(&mut self, bytes: &[u8]) -> Option<Vec<MarkedPart>> {
        let mut all = std::mem::take(&mut self.kept);
        all.extend_from_slice(bytes);
        let mut parts = Vec::new();
        // How many bytes are told.
        let mut told = 0;
        loop {
            let rest = &all[told..];
            if self.in_words {
                let unseen = &rest[self.looked_at..];
                let Some(end) = unseen.iter().position(|byte| *byte == 0x1e) else {
                    self.looked_at = rest.len();
                    break;
                };
                let words = &rest[..self.looked_at + end];
                told += words.len() + 1;
                parts.push(MarkedPart::Said(
                    String::from_utf8_lossy(words).into_owned(),
                ));
                self.looked_at = 0;
                self.in_words = false;
                continue;
            }
            let mut places = rest.windows(self.wanted.len());
            let found = places.position(|part| part == self.wanted);
            let end = found.unwrap_or_else(|| rest.len() - self.begun(rest));
            if end > 0 {
                parts.push(MarkedPart::Text(rest[..end].to_vec()));
            }
            told += end;
            if found.is_none() {
                break;
            }
            told += self.wanted.len();
            self.in_words = true;
        }
        // The room of what was told is given back.
        self.kept = match told {
            0 => all,
            _ => all.split_off(told),
        };
        if self.in_words && self.kept.len() > MAX_WORDS_BYTES {
            (self.kept, self.looked_at) = (Vec::new(), 0);
            return None;
        }
        Some(parts)
    }

    /// How many bytes at the end of these may begin the mark.
    fn begun(&self, bytes: &[u8]) -> usize {
        let longest = bytes.len().min(self.wanted.len() - 1);
        (1..=longest)
            .rev()
            .find(|length| bytes.ends_with(&self.wanted[..*length]))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pieces: &[ConsolePiece]) -> Vec<&str> {
        pieces.iter().map(|piece| piece.text.as_str()).collect()
    }

    #[test]
    fn output_comes_in_order_and_joined() {
        let mut console = RunConsole::default();
        console.write(ConsoleStream::Stdout, "a");
        console.write(ConsoleStream::Stdout, "b");
        console.write(ConsoleStream::Stderr, "c");
        console.show("image/png", "aGk=".to_owned());
        console.write(ConsoleStream::Stdout, "d");
        let taken = console.take();
        assert_eq!(texts(&taken), ["ab", "c", "aGk=", "d"]);
        assert_eq!(taken[2].media_type, "image/png");
        assert!(console.is_empty() && !console.is_cut());
    }

    #[test]
    fn a_run_is_cut_at_its_bound_and_answers_at_theirs() {
        let mut console = RunConsole::default();
        for _ in 0..10 {
            // Three bytes a letter, so that no bound falls between two.
            console.write(ConsoleStream::Stdout, &"가".repeat(1 << 18));
        }
        assert!(console.is_cut());
        let mut all = 0;
        while !console.is_empty() {
            let bytes: usize = console.take().iter().map(|piece| piece.text.len()).sum();
            assert!(bytes > 0 && bytes <= MAX_ANSWER_BYTES, "{bytes}");
            all += bytes;
        }
        assert!((MAX_RUN_BYTES - 2..=MAX_RUN_BYTES).contains(&all), "{all}");
    }

    #[test]
    fn media_is_whole_or_left_out() {
        let mut console = RunConsole::default();
        console.show("image/png", "x".repeat(MAX_MEDIA_BYTES + 1));
        assert!(console.is_empty() && console.is_cut());
        let mut console = RunConsole::default();
        console.show("text/html; charset=x", "aGk=".to_owned());
        console.show("image", "aGk=".to_owned());
        assert!(console.is_empty());
        // Larger than an answer's text, alone in it.
        console.write(ConsoleStream::Stdout, "a");
        console.show("image/png", "x".repeat(MAX_MEDIA_BYTES));
        assert_eq!(texts(&console.take()), ["a"]);
        assert_eq!(console.take().len(), 1);
        assert!(console.is_empty());
    }

    #[test]
    fn letters_in_two_pieces_stay_whole() {
        let mut pieces = TextPieces::default();
        let bytes = "가é".as_bytes();
        let mut text = String::new();
        for byte in bytes {
            text += &pieces.push(&[*byte]);
        }
        assert_eq!(text, "가é");
        assert_eq!(pieces.push(&[0xff, b'a']), "\u{fffd}a");
        assert_eq!(pieces.push(&[0xe0]), "");
        assert_eq!(pieces.push(b"a"), "\u{fffd}a");
    }

    #[test]
    fn a_shell_gets_any_code_as_one_word() {
        let order = shell_order("echo 'it'\"s\"\n", "m1");
        assert!(order.contains("command eval 'echo '\\''it'\\''\"s\"\n' </dev/null\n"));
        assert!(order.ends_with("m1 >&2\n"));
    }

    #[test]
    fn words_of_a_runner_are_told_from_output_however_they_are_cut() {
        let whole = b"out\x1enot\x1em1A\x1emore\x1em1Mimage/png;aGk=\x1e\x1em1E0\x1e";
        for cut in 0..whole.len() {
            let mut output = MarkedOutput::of("m1");
            let mut parts = output.push(&whole[..cut]).expect("words have an end");
            parts.extend(output.push(&whole[cut..]).expect("words have an end"));
            let (mut text, mut words) = (Vec::new(), Vec::new());
            for part in parts {
                match part {
                    MarkedPart::Text(bytes) => text.extend(bytes),
                    MarkedPart::Said(said) => words.push(said),
                }
            }
            assert_eq!(text, b"out\x1enotmore", "{cut}");
            assert_eq!(words, ["A", "Mimage/png;aGk=", "E0"], "{cut}");
            assert_eq!(output.kept_bytes(), 0);
        }
        // The mark of another run is text.
        let mut output = MarkedOutput::of("m1");
        let other = vec![MarkedPart::Text(b"\x1em2E0".to_vec())];
        assert_eq!(output.push(b"\x1em2E0\x1e"), Some(other));
        assert_eq!(output.kept_bytes(), 1, "it may begin the own one");
        let own = vec![MarkedPart::Said(String::new())];
        assert_eq!(output.push(b"m1\x1e"), Some(own));
    }

    #[test]
    fn words_without_an_end_are_those_of_no_runner() {
        let mut output = MarkedOutput::of("m1");
        assert_eq!(output.push(b"\x1em1M"), Some(Vec::new()));
        let most = vec![b'a'; MAX_WORDS_BYTES - 1];
        assert_eq!(output.push(&most), Some(Vec::new()));
        assert_eq!(output.push(b"a"), None);
        // Where it is read on all the same, it holds no more.
        for _ in 0..5 {
            let _ = output.push(&most);
            assert!(output.kept_bytes() <= MAX_WORDS_BYTES);
        }
    }

    #[test]
    fn the_mark_ends_a_run_however_it_is_cut() {
        let whole = b"out\x1enot\x1em1:13\x1e";
        for cut in 0..whole.len() {
            let mut search = MarkSearch::of("m1");
            let (mut text, mut code) = search.push(&whole[..cut]);
            let (more, later) = search.push(&whole[cut..]);
            text.extend(more);
            code = code.or(later);
            assert_eq!(
                (text.as_slice(), code),
                (&b"out\x1enot"[..], Some(13)),
                "{cut}"
            );
        }
        let mut search = MarkSearch::of("m1");
        assert_eq!(search.push(b"\x1em1\x1e").1, Some(0));
        // The mark of another run is text; what may be the begin of the own one waits.
        let mut search = MarkSearch::of("m1");
        assert_eq!(search.push(b"\x1em2:0\x1e"), (b"\x1em2:0".to_vec(), None));
        assert_eq!(search.push(b"x"), (b"\x1ex".to_vec(), None));
    }
}
