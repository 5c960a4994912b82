//! One program over one channel: a shell, a command, or the files of the session. Carries what is typed and shown, with
//! sizes and signals; a program that cannot be started says why in one sentence.

use base::link::streams::{ExecGuest, ExecRequest, TermInput, TermOutput, TermStream, WindowSize};
use bytes::Bytes;
use rules::idleness::IdleAction;
use rules::refusals;
use russh::server::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use server::Failure;
use server::access::Lease;
use server::actions::idle_rules::{IdleWarnings, Inside};

use super::ahead::{AheadSender, ahead};
use super::both_ways::BothWays;
use super::seat::ChannelSeat;
use super::{SFTP, refused};
use crate::doors::text::{Text, codes};

/// Bytes of a command, which goes to the session in one piece.
const MAX_COMMAND_BYTES: usize = 32 << 10;
/// Variables of a channel, and bytes of the value of one.
const MAX_VARIABLES: usize = 32;
/// See `MAX_VARIABLES`.
const MAX_VALUE_BYTES: usize = 1024;
/// The extended data that is standard error.
const STANDARD_ERROR: u32 = 1;
/// The size of a terminal whose client does not know it.
const USUAL_SIZE: WindowSize = (80, 24);
/// How a program ends that could not be started, and one whose stream broke.
const NOT_STARTED: u32 = 1;
/// See `NOT_STARTED`.
const BROKEN: u32 = 255;
/// An interactive shell: the better one that most images have, else the one that nearly all have.
const SHELL: &str = "[ -x /bin/bash ] && exec /bin/bash; exec /bin/sh";

/// What was asked for on a channel.
#[derive(Debug, Default, PartialEq, Eq)]
struct AskedProgram {
    terminal: Option<WindowSize>,
    variables: Vec<(String, String)>,
}

/// What is to be started.
#[derive(Debug, PartialEq, Eq)]
enum ProgramKind {
    Shell,
    Command(Vec<u8>),
    Files,
}

/// Whether a client may set this variable: what it says of language and terminal, and no more.
pub(super) fn is_variable(name: &str, value: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known = matches!(name, "LANG" | "TERM" | "COLORTERM")
        || (name.starts_with("LC_") && name.len() <= 32 && name.chars().all(letters));
    known && value.len() <= MAX_VALUE_BYTES && !value.chars().any(char::is_control)
}

impl AskedProgram {
    /// Hears one request; gives what it starts.
    fn hear(&mut self, message: ChannelMsg) -> Option<ProgramKind> {
        match message {
            ChannelMsg::RequestPty {
                term,
                col_width,
                row_height,
                ..
            } => {
                self.terminal = Some(size(col_width, row_height).unwrap_or(USUAL_SIZE));
                self.set("TERM", &term);
            }
            ChannelMsg::SetEnv {
                variable_name,
                variable_value,
                ..
            } => self.set(&variable_name, &variable_value),
            ChannelMsg::WindowChange {
                col_width,
                row_height,
                ..
            } if self.terminal.is_some() => {
                self.terminal = size(col_width, row_height).or(self.terminal);
            }
            ChannelMsg::RequestShell { .. } => return Some(ProgramKind::Shell),
            ChannelMsg::Exec { command, .. } => return Some(ProgramKind::Command(command)),
            ChannelMsg::RequestSubsystem { name, .. } if name == SFTP => {
                return Some(ProgramKind::Files);
            }
            _ => {}
        }
        None
    }

    fn set(&mut self, name: &str, value: &str) {
        if !is_variable(name, value) || value.is_empty() {
            return;
        }
        self.variables.retain(|(known, _)| known != name);
        if self.variables.len() < MAX_VARIABLES {
            self.variables.push((name.to_owned(), value.to_owned()));
        }
    }

    fn request(self, kind: ProgramKind) -> Result<ExecRequest, Failure> {
        let mut request = ExecRequest {
            argv: Vec::new(),
            env: self.variables,
            cwd: None,
            user: None,
            tty: self.terminal,
            guest: None,
            background: None,
        };
        match kind {
            ProgramKind::Shell => request.argv = in_shell(SHELL),
            ProgramKind::Command(command) => {
                if command.len() > MAX_COMMAND_BYTES {
                    return Err(refusals::exec_too_large().into());
                }
                let command =
                    String::from_utf8(command).map_err(|_| refusals::ssh_command_not_text())?;
                request.argv = in_shell(&command);
            }
            ProgramKind::Files => {
                request.guest = Some(ExecGuest::Files);
                request.tty = None;
            }
        }
        Ok(request)
    }
}

fn in_shell(command: &str) -> Vec<String> {
    ["/bin/sh", "-c", command].map(str::to_owned).into()
}

/// A size that a terminal may have; None where the client does not know it.
fn size(columns: u32, rows: u32) -> Option<WindowSize> {
    let number = |number: u32| u16::try_from(number).ok().filter(|number| *number > 0);
    number(columns).zip(number(rows))
}

/// Linux' number of a signal; None for those that end no program in an orderly way.
fn number(signal: &Sig) -> Option<i32> {
    Some(match signal {
        Sig::HUP => 1,
        Sig::INT => 2,
        Sig::QUIT => 3,
        Sig::ABRT => 6,
        Sig::KILL => 9,
        Sig::USR1 => 10,
        Sig::ALRM => 14,
        Sig::TERM => 15,
        Sig::Custom(name) if name == "USR2" => 12,
        Sig::FPE | Sig::ILL | Sig::PIPE | Sig::SEGV | Sig::Custom(_) => return None,
    })
}

/// Waits for what the client wants to start, and carries it until it ends, the client closes the channel, or the
/// connection ends.
pub(super) async fn serve(seat: ChannelSeat, channel: Channel<Msg>) {
    let (mut read, write) = channel.split();
    let mut asked = AskedProgram::default();
    let kind = loop {
        let message = tokio::select! {
            message = read.wait() => message,
            () = seat.ended() => return,
        };
        match message {
            None | Some(ChannelMsg::Close) => return,
            Some(message) => {
                if let Some(kind) = asked.hear(message) {
                    break kind;
                }
            }
        }
    };
    let on_terminal = asked.terminal.is_some() && kind != ProgramKind::Files;
    let started = tokio::select! {
        started = start(&seat, asked, kind) => started,
        () = seat.ended() => return,
    };
    match started {
        Ok((stream, inside, over)) => {
            tokio::select! {
                () = carry(&seat, read, &write, stream, inside, on_terminal) => {}
                _ = over => {}
                () = seat.ended() => {}
            }
        }
        Err(failure) => {
            // Nothing of the channel is heard any more: what the client sent ahead must not hold up the line.
            drop(read);
            let sentence = codes::refusal(seat.text(), &refused(failure));
            tokio::select! {
                () = end_with(&write, &sentence, NOT_STARTED) => {}
                () = seat.ended() => {}
            }
        }
    }
}

async fn start(
    seat: &ChannelSeat,
    asked: AskedProgram,
    kind: ProgramKind,
) -> Result<(TermStream, Option<Inside>, Lease), Failure> {
    let request = asked.request(kind)?;
    let entered = seat.enter().await?;
    let stream = seat
        .context
        .streams
        .exec(entered.container, request)
        .await?;
    Ok((stream, entered.inside, entered.over))
}

/// Carries a program both ways. The two directions do not wait for each other.
async fn carry(
    seat: &ChannelSeat,
    read: ChannelReadHalf,
    write: &ChannelWriteHalf<Msg>,
    stream: TermStream,
    inside: Option<Inside>,
    on_terminal: bool,
) {
    let TermStream { input, mut output } = stream;
    let mut warnings = inside.as_ref().map(Inside::warnings);
    let warned_in = on_terminal.then(|| seat.text());
    let ways = BothWays::default();
    let (behind, mut waiting) = ahead(&seat.ahead);
    let fed = async {
        let mut over = false;
        while let Some(typed) = waiting.next().await {
            // A program that is over takes nothing; its last words still go out.
            over = over || input.send(typed).await.is_err();
        }
        std::future::pending::<()>().await;
    };
    let shown = async {
        loop {
            let piece = tokio::select! {
                piece = output.recv() => piece,
                line = warned(&mut warnings, warned_in) => Some(TermOutput::Stdout(line)),
            };
            let sent = match piece {
                Some(TermOutput::Stdout(bytes)) => ways.outward(write.data_bytes(bytes)).await,
                Some(TermOutput::Stderr(bytes)) => {
                    let shown = write.extended_data_bytes(STANDARD_ERROR, bytes);
                    ways.outward(shown).await
                }
                Some(TermOutput::Exit(code)) => {
                    return end(write, u32::try_from(code).unwrap_or(BROKEN)).await;
                }
                Some(TermOutput::Gone(why)) => return end_with(write, &why, BROKEN).await,
                None => return end(write, BROKEN).await,
            };
            if sent.is_err() {
                return;
            }
        }
    };
    let stuck = tokio::select! {
        // Closed by the client: with the stream the program hears that its terminal is gone.
        () = heard(read, &behind, inside.as_ref(), &ways) => false,
        () = fed => false,
        () = shown => false,
        () = ways.stand_still() => true,
    };
    if stuck {
        // Nothing of the channel is heard any more, so the line goes on and takes the last words.
        drop((input, output));
        let sentence = codes::refusal(seat.text(), &refusals::ssh_standstill());
        end_with(write, &sentence, BROKEN).await;
    }
}

/// Puts what the client says behind what waits; ends when it closes the channel.
async fn heard(
    mut read: ChannelReadHalf,
    behind: &AheadSender<TermInput>,
    inside: Option<&Inside>,
    ways: &BothWays,
) {
    while let Some(message) = read.wait().await {
        let (typed, bytes) = match message {
            ChannelMsg::Data { data } => {
                if let Some(inside) = inside {
                    inside.typed();
                }
                let bytes = data.len();
                (TermInput::Bytes(data), bytes)
            }
            ChannelMsg::Eof => (TermInput::CloseInput, 0),
            ChannelMsg::WindowChange {
                col_width,
                row_height,
                ..
            } => match size(col_width, row_height) {
                Some(size) => (TermInput::Resize(size), 0),
                None => continue,
            },
            ChannelMsg::Signal { signal } => match number(&signal) {
                Some(number) => (TermInput::Signal(number), 0),
                None => continue,
            },
            ChannelMsg::Close => return,
            _ => continue,
        };
        ways.inward(behind.put(typed, bytes)).await;
    }
}

/// Says why a program is over, and that nothing follows.
async fn end_with(write: &ChannelWriteHalf<Msg>, sentence: &str, code: u32) {
    let line = Bytes::from(format!("fardel: {sentence}\r\n"));
    let _ = write.extended_data_bytes(STANDARD_ERROR, line).await;
    end(write, code).await;
}

/// Tells how a program ended, and that nothing follows.
async fn end(write: &ChannelWriteHalf<Msg>, code: u32) {
    // A client that is gone hears nothing of it.
    let _ = write.exit_status(code).await;
    let _ = write.eof().await;
    let _ = write.close().await;
}

/// Waits for the next warning of the session, in the language of who sits there; for ever where there is none.
async fn warned(warnings: &mut Option<IdleWarnings>, language: Option<Text>) -> Bytes {
    let (Some(t), Some(warnings)) = (language, warnings) else {
        return std::future::pending().await;
    };
    let (action, minutes) = warnings.next().await;
    let words = match action {
        IdleAction::Notice => t.idle_terminal_notice().to_owned(),
        IdleAction::Stop => t.idle_terminal_stop(minutes),
        IdleAction::Pause => t.idle_terminal_pause(minutes),
        IdleAction::Requeue => t.idle_terminal_requeue(minutes),
    };
    // A line of its own: the program under it draws itself again when it wants.
    format!("\r\n\x1b[7m fardel: {words} \x1b[0m\r\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pty(columns: u32, rows: u32) -> ChannelMsg {
        ChannelMsg::RequestPty {
            want_reply: true,
            term: "xterm-kitty".to_owned(),
            col_width: columns,
            row_height: rows,
            pix_width: 0,
            pix_height: 0,
            terminal_modes: Vec::new(),
        }
    }

    #[test]
    fn a_client_tells_its_language_and_its_terminal_and_nothing_else() {
        for (name, value, may) in [
            ("LANG", "ko_KR.UTF-8", true),
            ("LC_ALL", "C", true),
            ("COLORTERM", "truecolor", true),
            ("LC_EVIL=x", "C", false),
            ("LD_PRELOAD", "/tmp/x.so", false),
            ("PATH", "/tmp", false),
            ("LANG", "C\nLD_PRELOAD=x", false),
        ] {
            assert_eq!(is_variable(name, value), may, "{name}");
        }
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        assert!(is_variable("LANG", &long[1..]) && !is_variable("LANG", &long));
    }

    #[test]
    fn what_is_asked_on_a_channel_becomes_one_program() {
        let mut asked = AskedProgram::default();
        assert_eq!(asked.hear(pty(120, 40)), None);
        for number in 0..2 * MAX_VARIABLES {
            let message = ChannelMsg::SetEnv {
                want_reply: false,
                variable_name: format!("LC_{number}"),
                variable_value: "C".to_owned(),
            };
            assert_eq!(asked.hear(message), None);
        }
        let wider = ChannelMsg::WindowChange {
            col_width: 200,
            row_height: 50,
            pix_width: 0,
            pix_height: 0,
        };
        assert_eq!(asked.hear(wider), None);
        let started = asked.hear(ChannelMsg::RequestShell { want_reply: true });
        assert_eq!(started, Some(ProgramKind::Shell));
        assert_eq!(asked.variables.len(), MAX_VARIABLES);
        let request = asked.request(ProgramKind::Shell).expect("good");
        assert_eq!(request.tty, Some((200, 50)));
        assert_eq!(request.argv[..2], ["/bin/sh", "-c"]);
        assert_eq!(
            request.env[0],
            ("TERM".to_owned(), "xterm-kitty".to_owned())
        );
    }

    #[test]
    fn a_command_is_text_of_some_length_and_files_have_no_terminal() {
        let command = |bytes: Vec<u8>| {
            let asked = AskedProgram::default();
            match asked.request(ProgramKind::Command(bytes)) {
                Ok(request) => request.argv.concat(),
                Err(Failure::Refusal(refusal)) => refusal.code,
                Err(fault) => fault.to_string(),
            }
        };
        assert_eq!(command(b"ls | wc".to_vec()), "/bin/sh-cls | wc");
        assert_eq!(command(vec![0xff]), "ssh.command-not-text");
        assert_eq!(command(vec![b'x'; MAX_COMMAND_BYTES + 1]), "exec.too-large");
        assert!(command(vec![b'x'; MAX_COMMAND_BYTES]).ends_with("xxx"));
        let mut asked = AskedProgram::default();
        asked.hear(pty(0, 0));
        assert_eq!(asked.terminal, Some(USUAL_SIZE));
        let request = asked.request(ProgramKind::Files).expect("good");
        assert_eq!((request.tty, request.guest), (None, Some(ExecGuest::Files)));
    }

    #[test]
    fn signals_go_by_linux_numbers() {
        assert_eq!(number(&Sig::INT), Some(2));
        assert_eq!(number(&Sig::Custom("USR2".to_owned())), Some(12));
        assert_eq!(number(&Sig::Custom("STOP".to_owned())), None);
    }
}
