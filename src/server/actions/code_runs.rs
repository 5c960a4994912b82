//! What a user may do with code in a session: run it in an interpreter that stays, read what it shows, answer it, interrupt
//! it. Who may enter a session may; each user has interpreters of their own, which run as the session's user.

use std::time::Duration;

use api::code_runs::{CodeMode, CodeRun, CodeRunRequest, CodeRunStatus};
use base::link::streams::Streams;
use rules::code_run::{BatchStep, CodeLanguage, MAX_CODE_BYTES, MAX_RUN_BYTES, MAX_RUN_ID};
use rules::names::{ContainerName, SessionId};
use rules::refusal::{Refusal, RefusalKind};
use rules::session::SessionState;
use rules::{notices, refusals};

use super::idle_rules::Inside;
use super::sessions;
use super::sessions::find::find_to_enter;
use crate::access::{Caller, lease};
use crate::code_runs::{InterpreterKey, RunAnswer, RunStanding, Withdrawal};
use crate::{Failure, Server};

/// After a commit, the wait before the right to a session is looked at again; as for streams, of whose two seconds it is a
/// part.
const GATHER: Duration = Duration::from_millis(700);

/// One step of running code: begins a run, gives what it has shown since, answers it, interrupts it, ends its interpreter,
/// or says what could stand at the end of a text. Answers within about two seconds, however long the run.
///
/// Errors: those of `sessions::enter`; `code.session-not-running`, `code.no-interpreter`, `code.interpreters-many`,
/// `code.interpreter-over`, `code.too-large`, `code.nul`, `code.batch-empty`, `code.run-id`, `code.run-unknown`, `code.busy`,
/// `code.not-waiting`, those of `Streams::exec`.
pub async fn execute(
    server: &Server,
    streams: &dyn Streams,
    caller: &Caller,
    id: &str,
    request: CodeRunRequest,
) -> Result<CodeRun, Failure> {
    let ticket = sessions::enter(server, caller, id).await?;
    check(&request)?;
    if ticket.state != SessionState::Running {
        return Err(refusals::code_session_not_running().into());
    }
    let steps = steps(&request)?;
    let key = InterpreterKey {
        container: ticket.container,
        user: caller.subject.user,
        language: match request.mode {
            CodeMode::Batch => CodeLanguage::Shell,
            _ => request.language,
        },
    };
    let known = server.code_runs().known(&key);
    if request.mode == CodeMode::Restart {
        if let Some(known) = known {
            known.restart().await;
        }
        return Ok(nothing());
    }
    let starts = matches!(
        request.mode,
        CodeMode::Query | CodeMode::Batch | CodeMode::Complete
    );
    let interpreter = match known {
        Some(known) if !starts || !known.is_over() => known,
        _ if starts => {
            let program = program(streams, &key).await?;
            let right = withdrawal(server, caller, ticket.session, ticket.container);
            let begun = server.code_runs().begin(streams, key, &program, right);
            begun.await?
        }
        _ => return Err(refusals::code_run_unknown().into()),
    };
    if request.mode == CodeMode::Complete {
        let completions = interpreter.complete(&request.code, &unguessable()).await?;
        return Ok(CodeRun {
            completions,
            ..nothing()
        });
    }
    let run_id = match (request.run_id, request.mode) {
        (Some(run_id), _) => run_id,
        (None, CodeMode::Query | CodeMode::Batch) => unguessable(),
        (None, _) => return Err(refusals::code_run_unknown().at("/run_id").into()),
    };
    match request.mode {
        CodeMode::Query => {
            Inside::of(server, ticket.container).typed();
            let mark = unguessable();
            interpreter.run(&run_id, &request.code, &mark).await?;
        }
        CodeMode::Batch => {
            Inside::of(server, ticket.container).typed();
            let mark = unguessable();
            interpreter.run_batch(&run_id, steps, &mark).await?;
        }
        CodeMode::Continue => interpreter.go_on(&run_id, &unguessable()).await?,
        CodeMode::Input => interpreter.answer_question(&run_id, &request.code).await?,
        CodeMode::Interrupt => interpreter.interrupt(&run_id).await?,
        CodeMode::Complete | CodeMode::Restart => {}
    }
    Ok(shown(interpreter.answer(&run_id).await?))
}

fn check(request: &CodeRunRequest) -> Result<(), Refusal> {
    if request.code.len() > MAX_CODE_BYTES {
        return Err(refusals::code_too_large(MAX_CODE_BYTES).at("/code"));
    }
    if request.code.contains('\0') {
        return Err(refusals::code_nul().at("/code"));
    }
    let is_id = |id: &String| {
        let fits = (1..=MAX_RUN_ID).contains(&id.len());
        fits && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match request.run_id.as_ref().is_none_or(is_id) {
        true => Ok(()),
        false => Err(refusals::code_run_id(MAX_RUN_ID).at("/run_id")),
    }
}

/// The commands of a batch in their order; none for other modes.
///
/// Errors: `code.batch-empty`, `code.nul`, `code.too-large`.
fn steps(request: &CodeRunRequest) -> Result<Vec<(BatchStep, String)>, Refusal> {
    if request.mode != CodeMode::Batch {
        return Ok(Vec::new());
    }
    let batch = request.batch.clone().unwrap_or_default();
    let all = [
        (BatchStep::Clean, batch.clean),
        (BatchStep::Build, batch.build),
        (BatchStep::Exec, batch.exec),
    ];
    let steps: Vec<_> = all
        .into_iter()
        .filter_map(|(step, command)| Some((step, command?)))
        .filter(|(_, command)| !command.trim().is_empty())
        .collect();
    if steps.is_empty() {
        return Err(refusals::code_batch_empty().at("/batch"));
    }
    if steps.iter().any(|(_, command)| command.contains('\0')) {
        return Err(refusals::code_nul().at("/batch"));
    }
    let bytes: usize = steps.iter().map(|(_, command)| command.len()).sum();
    match bytes > MAX_CODE_BYTES {
        true => Err(refusals::code_too_large(MAX_CODE_BYTES).at("/batch")),
        false => Ok(steps),
    }
}

/// The first program of the language that the session has.
async fn program(streams: &dyn Streams, key: &InterpreterKey) -> Result<String, Refusal> {
    let wanted: &[&str] = key.language.programs();
    let asked = wanted.iter().map(|name| (*name).to_owned()).collect();
    let found = streams.programs(key.container, asked).await?;
    let first = wanted
        .iter()
        .find(|name| found.iter().any(|known| known == *name));
    match (first, key.language) {
        (Some(first), _) => Ok((*first).to_owned()),
        (None, CodeLanguage::Python) => Err(refusals::code_no_interpreter("python3")),
        (None, CodeLanguage::R) => Err(refusals::code_no_interpreter("R")),
        (None, CodeLanguage::Shell) => Err(refusals::code_no_interpreter("sh")),
    }
}

/// Ready once the caller may enter the session no longer, it runs no more, or the sign-in is over.
fn withdrawal(
    server: &Server,
    caller: &Caller,
    session: SessionId,
    container: ContainerName,
) -> Withdrawal {
    let signed_in = lease(server, caller);
    let (server, caller) = (server.clone(), caller.clone());
    Box::pin(async move {
        let right = withdrawn(&server, &caller, session, container);
        tokio::select! {
            refusal = signed_in => refusal,
            refusal = right => refusal,
        }
    })
}

async fn withdrawn(
    server: &Server,
    caller: &Caller,
    session: SessionId,
    container: ContainerName,
) -> Refusal {
    let mut revision = server.catalog().revision();
    loop {
        revision.borrow_and_update();
        let now = server.clock().now();
        let looked = server
            .catalog()
            .read_now("look at a session that runs code", |view| {
                let row = find_to_enter(view, caller, &session.to_string(), now)?;
                let look = view.open_break_glass(caller.subject.user, row.id.0)?;
                Ok((row, look.map(|look| look.ends_at)))
            });
        let mut left = None;
        match looked {
            Ok((row, end))
                if row.state() == SessionState::Running && row.container() == container =>
            {
                let end = end.filter(|end| now < *end);
                left = end.map(|end| Duration::from_millis(end.millis_since(now)));
            }
            Ok(_) => return refusals::code_session_not_running(),
            Err(Failure::Refusal(refusal)) if refusal.kind != RefusalKind::Unavailable => {
                return refusal;
            }
            // A disk that stutters ends no interpreter; the next look tells.
            Err(_) => {}
        }
        // An administrator's look ends by the clock.
        let over = async {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = revision.changed() => match changed {
                Ok(()) => tokio::time::sleep(GATHER).await,
                Err(_) => return refusals::server_stopping(),
            },
            () = over => {}
        }
    }
}

fn unguessable() -> String {
    let bytes: [u8; 16] = base::observe::random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The answer where no run is meant.
fn nothing() -> CodeRun {
    CodeRun {
        run_id: None,
        status: CodeRunStatus::Finished,
        exit_code: None,
        console: Vec::new(),
        is_password: false,
        notice: None,
        interpreter_ended: false,
        completions: Vec::new(),
    }
}

fn shown(answer: RunAnswer) -> CodeRun {
    let (status, exit_code, is_password) = match answer.standing {
        RunStanding::Continued => (CodeRunStatus::Continued, None, false),
        RunStanding::WaitingInput { is_password } => {
            (CodeRunStatus::WaitingInput, None, is_password)
        }
        RunStanding::StepFinished(BatchStep::Clean) => (CodeRunStatus::CleanFinished, None, false),
        RunStanding::StepFinished(BatchStep::Build | BatchStep::Exec) => {
            (CodeRunStatus::BuildFinished, None, false)
        }
        RunStanding::Finished { exit_code } => (CodeRunStatus::Finished, Some(exit_code), false),
    };
    let notice = answer
        .is_cut
        .then(|| notices::code_output_cut(MAX_RUN_BYTES >> 20).text);
    CodeRun {
        run_id: Some(answer.run_id),
        status,
        exit_code,
        console: answer.console.into_iter().map(Into::into).collect(),
        is_password,
        notice,
        interpreter_ended: answer.is_interpreter_over,
        completions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use api::code_runs::CodeBatch;

    use super::*;

    #[test]
    fn what_no_code_may_be_is_refused() {
        let checked = |code: String, run_id: Option<&str>| {
            let request = CodeRunRequest {
                code,
                run_id: run_id.map(str::to_owned),
                ..CodeRunRequest::default()
            };
            check(&request).map_err(|refusal| refusal.code)
        };
        let refused = |code: &str| Err(code.to_owned());
        assert_eq!(checked("1".repeat(MAX_CODE_BYTES), None), Ok(()));
        let more = checked("1".repeat(MAX_CODE_BYTES + 1), None);
        assert_eq!(more, refused("code.too-large"));
        assert_eq!(checked("\0".to_owned(), None), refused("code.nul"));
        let longest = "a".repeat(MAX_RUN_ID);
        assert_eq!(checked(String::new(), Some(&longest)), Ok(()));
        for wrong in ["", "a b", "é", &format!("{longest}a")] {
            let id = checked(String::new(), Some(wrong));
            assert_eq!(id, refused("code.run-id"), "{wrong}");
        }
    }

    #[test]
    fn a_batch_has_a_command() {
        let of = |build: Option<&str>, exec: Option<&str>| {
            let request = CodeRunRequest {
                mode: CodeMode::Batch,
                batch: Some(CodeBatch {
                    build: build.map(str::to_owned),
                    exec: exec.map(str::to_owned),
                    clean: None,
                }),
                ..CodeRunRequest::default()
            };
            steps(&request).map_err(|refusal| refusal.code)
        };
        let refused = |code: &str| Err(code.to_owned());
        let make = (BatchStep::Build, "make".to_owned());
        assert_eq!(of(Some("make"), Some(" ")), Ok(vec![make]));
        assert_eq!(of(None, Some("")), refused("code.batch-empty"));
        assert_eq!(of(None, Some("a\0")), refused("code.nul"));
        let long = "x".repeat(MAX_CODE_BYTES);
        assert_eq!(of(Some("x"), Some(&long)), refused("code.too-large"));
    }

    #[test]
    fn an_answer_says_how_its_run_stands() {
        let of = |standing, is_cut| {
            shown(RunAnswer {
                run_id: "r".to_owned(),
                standing,
                console: Vec::new(),
                is_cut,
                is_interpreter_over: false,
            })
        };
        let asks = of(RunStanding::WaitingInput { is_password: true }, false);
        assert_eq!(asks.status, CodeRunStatus::WaitingInput);
        assert!(asks.is_password && asks.exit_code.is_none() && asks.notice.is_none());
        let over = of(RunStanding::Finished { exit_code: 3 }, true);
        assert_eq!(over.exit_code, Some(3));
        assert!(over.notice.is_some_and(|notice| notice.contains("4 MiB")));
    }
}
