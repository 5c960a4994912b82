//! Requests that a generator makes from the OpenAPI document: schemathesis, which others wrote, against a server of its
//! own as an administrator. A 5xx or a panic fails; what it calls a contradiction is printed, since the document
//! cannot say every rule (CONTRIBUTING.md lists the kinds that have a reason).

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::failure::Failure;
use crate::program::{self, Program};
use crate::start::Server;

const GENERATOR: &str = "schemathesis==4.32.5";
/// Shorter: the stateful phase is not reached.
const SECONDS: &str = "1800";
/// By this the generator removes the token that it goes by: it is driven last, by itself.
const ENDS_ITSELF: &str = "/api/v1/me/tokens/{id}";
const ACCOUNT: &str =
    r#"{"name":"generator","password":"correct-horse-battery-7","role":"administrator"}"#;
const SIGN_IN: &str = r#"{"name":"generator","password":"correct-horse-battery-7"}"#;

/// Drives every operation for half an hour, or for `FARDEL_REQUESTS_SECONDS`, from the seed `FARDEL_SEED`.
pub(crate) fn generated(binary: &Path) -> Result<(), Failure> {
    let generator = generator()?;
    let variable = |name, otherwise: &str| {
        let value = std::env::var(name);
        value.unwrap_or_else(|_| otherwise.to_owned())
    };
    let seconds = variable("FARDEL_REQUESTS_SECONDS", SECONDS);
    let seed = variable("FARDEL_SEED", "1");
    let server = Server::start(binary)?;
    server.wait_for("/healthz", Instant::now())?;
    post(&server.socket(), "/api/v1/users", ACCOUNT)?;
    // Both before it makes tokens itself: a user has at most 100.
    let (first, last) = (sign_in(&server)?, sign_in(&server)?);
    println!(
        "seed {seed}, {seconds} s; memory before: {}",
        server.memory()?
    );
    let place = program::target_directory()?.join("requests");
    for (filter, seconds, token) in [
        ("--exclude-path", seconds.as_str(), first),
        ("--include-path", "60", last),
    ] {
        // Fails also for contradictions; what fails here is looked for in what it says and in the log.
        let said = Program::named(&generator)
            .words("run")
            .argument(format!("http://{}/api/v1/openapi.json", server.address()))
            .argument("--header")
            .argument(format!("Authorization: Bearer {token}"))
            .words("--checks all --exclude-checks ignored_auth --no-shrink --continue-on-failure")
            .words("--request-timeout 15 --report json --report-dir")
            .argument(&place)
            .words("--max-time")
            .argument(seconds)
            .words("--seed")
            .argument(&seed)
            .argument(filter)
            .argument(ENDS_ITSELF)
            .inside(&program::target_directory()?)
            .said()?;
        println!("{said}");
        if said.contains("Server error") {
            return Err(Failure::new("the server answered with a fault of its own"));
        }
    }
    println!("memory after: {}", server.memory()?);
    if server.log().contains("panicked") {
        return Err(Failure::new(format!("it panicked:\n{}", server.log())));
    }
    server.end()
}

/// A token of the generator's account.
fn sign_in(server: &Server) -> Result<String, Failure> {
    let signed = post(&server.socket(), "/api/v1/sign-in", SIGN_IN)?;
    let token = after(&signed, "\"secret\":\"");
    token
        .map(str::to_owned)
        .ok_or_else(|| Failure::new("no token"))
}

/// The generator in an environment of its own below the target directory.
fn generator() -> Result<PathBuf, Failure> {
    let place = program::target_directory()?.join("schemathesis");
    let program = place.join("bin/schemathesis");
    if !program.is_file() {
        Program::named("python3")
            .words("-m venv --clear")
            .argument(&place)
            .run()?;
        Program::named(place.join("bin/pip"))
            .words("install --quiet --disable-pip-version-check")
            .argument(GENERATOR)
            .run()?;
    }
    Ok(program)
}

/// One POST over the local socket, as root; the body of its answer.
fn post(socket: &Path, path: &str, body: &str) -> Result<String, Failure> {
    let fault = |error: std::io::Error| Failure::new(format!("POST {path}: {error}"));
    let mut stream = UnixStream::connect(socket).map_err(fault)?;
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nhost: box\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .map_err(fault)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(fault)?;
    let good = answer
        .split(' ')
        .nth(1)
        .is_some_and(|status| status.starts_with('2'));
    if good {
        Ok(answer)
    } else {
        Err(Failure::new(format!("POST {path}: {answer}")))
    }
}

/// What stands between `start` and the next quote.
fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.split_once(start)?.1.split('"').next()
}
