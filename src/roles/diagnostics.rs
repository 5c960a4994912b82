//! How the server has its machine looked at: by this program's own commands, each in a process of its own. Judges
//! nothing of what they say.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::settings::Settings;
use server::diagnostics::{DiagnosticsRequest, DiagnosticsRunner};

/// How long looking at the machine may take; a disk that hangs must not hold a page for ever.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// Looks at the machine by this program's own commands: they fork and try things, which a server of
/// many threads must not.
pub(super) fn runner(settings: &Settings, file: PathBuf) -> DiagnosticsRunner {
    // What flags may have said, which the command does not get otherwise.
    let mut places = vec![
        ("FARDEL_CONFIG", file.into_os_string()),
        ("FARDEL_DATA", settings.data.clone().into_os_string()),
        ("FARDEL_RUN", settings.run.clone().into_os_string()),
        ("FARDEL_LISTEN", settings.listen.to_string().into()),
    ];
    if let Some(simulated) = &settings.simulate_gpus {
        places.push(("FARDEL_SIMULATE_GPUS", simulated.into()));
    }
    let data = settings.data.clone();
    Arc::new(move |what| {
        let words: &[&str] = match what {
            DiagnosticsRequest::Machine => {
                return Ok(node::machine::facts(&data).to_string().into_bytes());
            }
            DiagnosticsRequest::Checks => &["doctor", "--output", "json"],
            DiagnosticsRequest::BundlePreview => {
                &["support", "bundle", "--preview", "--output", "json"]
            }
            DiagnosticsRequest::Bundle => &["support", "bundle", "-"],
        };
        let mut child = std::process::Command::new("/proc/self/exe")
            .args(words)
            .envs(places.iter().map(|(name, value)| (*name, value)))
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let Some(mut output) = child.stdout.take() else {
            return Err("its output is missing".to_owned());
        };
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            output.read_to_end(&mut bytes).map(|_| bytes)
        });
        let end = std::time::Instant::now() + LOOK_TIMEOUT;
        // Checks that fail end with 1 and are an answer all the same.
        while child
            .try_wait()
            .map_err(|error| error.to_string())?
            .is_none()
        {
            if std::time::Instant::now() > end {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "it took longer than {} seconds",
                    LOOK_TIMEOUT.as_secs()
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        match reader.join() {
            Ok(Ok(bytes)) if !bytes.is_empty() => Ok(bytes),
            Ok(Ok(_)) => Err("it said nothing".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("its output could not be read".to_owned()),
        }
    })
}
