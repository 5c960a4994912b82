//! The configuration of an image: reads it, refuses what no session could carry, keeps the rest.
//! Rule: OCI image specification 1.1, "Image Configuration". Decides nothing about files.

use std::collections::BTreeMap;

use rules::refusals;
use serde::{Deserialize, Serialize};

use super::digest::Sha256Digest;
use super::failure::{ImageError, shown};
use super::limits::ImportLimits;

/// What an image asks of its runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSettings {
    /// `NAME=value`, in the image's order.
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; empty means root.
    pub user: String,
    /// Absolute; empty means `/`.
    pub working_directory: String,
    pub labels: BTreeMap<String, String>,
    /// Such as `8888/tcp`.
    pub exposed_ports: Vec<String>,
    pub volumes: Vec<String>,
    /// Such as `SIGTERM` or `15`.
    pub stop_signal: Option<String>,
}

/// A configuration that passed.
#[derive(Debug)]
pub(super) struct CheckedConfig {
    pub(super) settings: ImageSettings,
    pub(super) architecture: String,
    pub(super) created: Option<String>,
    pub(super) diff_ids: Vec<Sha256Digest>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    architecture: Option<String>,
    #[serde(default)]
    os: Option<String>,
    #[serde(default)]
    created: Option<String>,
    #[serde(default)]
    config: Option<RunConfig>,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RunConfig {
    #[serde(default)]
    env: Option<Vec<String>>,
    #[serde(default)]
    entrypoint: Option<Vec<String>>,
    #[serde(default)]
    cmd: Option<Vec<String>>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    working_dir: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    exposed_ports: Option<BTreeMap<String, serde::de::IgnoredAny>>,
    #[serde(default)]
    volumes: Option<BTreeMap<String, serde::de::IgnoredAny>>,
    #[serde(default)]
    stop_signal: Option<String>,
}

/// The name OCI gives to the machine this binary was built for.
pub fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Reads and judges a configuration.
///
/// Refuses (`image.bad-config`, `image.config-too-large`, `image.architecture`) what is not JSON of
/// the expected shape, is for another machine, or asks for what cannot be carried: NUL in any
/// value, a variable without a name, more variables or longer values than the limits, user ids
/// above 4294967294, a working directory that is not absolute.
pub(super) fn check(bytes: &[u8], limits: &ImportLimits) -> Result<CheckedConfig, ImageError> {
    let document: Document = serde_json::from_slice(bytes).map_err(|error| {
        bad(format!(
            "The configuration of the image cannot be read: {error}."
        ))
    })?;
    let os = document.os.unwrap_or_default();
    if !os.is_empty() && os != "linux" {
        return Err(wrong_machine(&os, "linux"));
    }
    let architecture = document.architecture.unwrap_or_default();
    if !architecture.is_empty() && architecture != own_architecture() {
        return Err(wrong_machine(&architecture, own_architecture()));
    }
    let mut diff_ids = Vec::new();
    for text in document.rootfs.diff_ids.unwrap_or_default() {
        let digest = Sha256Digest::parse(&text).ok_or_else(|| {
            bad(format!(
                "{} is not a sha256 digest.",
                shown(text.as_bytes())
            ))
        })?;
        diff_ids.push(digest);
    }
    let run = document.config.unwrap_or_default();
    let settings = ImageSettings {
        env: run.env.unwrap_or_default(),
        entrypoint: run.entrypoint.unwrap_or_default(),
        cmd: run.cmd.unwrap_or_default(),
        user: run.user.unwrap_or_default(),
        working_directory: run.working_dir.unwrap_or_default(),
        labels: run.labels.unwrap_or_default(),
        exposed_ports: run.exposed_ports.unwrap_or_default().into_keys().collect(),
        volumes: run.volumes.unwrap_or_default().into_keys().collect(),
        stop_signal: run.stop_signal.filter(|s| !s.is_empty()),
    };
    check_settings(&settings, limits)?;
    Ok(CheckedConfig {
        settings,
        architecture: if architecture.is_empty() {
            own_architecture().to_owned()
        } else {
            architecture
        },
        created: document.created,
        diff_ids,
    })
}

fn check_settings(settings: &ImageSettings, limits: &ImportLimits) -> Result<(), ImageError> {
    if settings.env.len() > limits.variables {
        return Err(too_large(format!(
            "The image sets {} environment variables; {} are the most.",
            settings.env.len(),
            limits.variables
        )));
    }
    for variable in &settings.env {
        if matches!(variable.find('='), None | Some(0)) {
            return Err(bad(format!(
                "The image sets a variable {} without a name or a value.",
                shown(variable.as_bytes())
            )));
        }
    }
    let mut together = 0usize;
    let groups = [
        ("environment variable", &settings.env),
        ("entry point", &settings.entrypoint),
        ("command", &settings.cmd),
        ("exposed port", &settings.exposed_ports),
        ("volume", &settings.volumes),
    ];
    for (what, values) in groups {
        for value in values {
            check_value(what, value, limits.argument_bytes)?;
            together += value.len() + 1;
        }
    }
    for (name, value) in &settings.labels {
        check_value("label", name, 4096)?;
        check_value("label", value, limits.argument_bytes)?;
        together += name.len() + value.len();
    }
    if together > limits.arguments_bytes {
        return Err(too_large(format!(
            "Variables, arguments and labels of the image have {together} bytes together; {} are the most.",
            limits.arguments_bytes
        )));
    }
    check_value("user", &settings.user, 255)?;
    for part in settings.user.split(':') {
        let numeric = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        // 4294967295 is "no change" to the kernel, so such a user would silently stay root.
        if numeric && !part.parse::<u32>().is_ok_and(|id| id < u32::MAX) {
            return Err(bad(format!(
                "The image runs as user {}; ids end at 4294967294.",
                shown(part.as_bytes())
            )));
        }
    }
    check_value(
        "working directory",
        &settings.working_directory,
        limits.path_bytes,
    )?;
    if !settings.working_directory.is_empty() && !settings.working_directory.starts_with('/') {
        return Err(bad(format!(
            "The working directory {} is not absolute.",
            shown(settings.working_directory.as_bytes())
        )));
    }
    if let Some(signal) = &settings.stop_signal {
        check_value("stop signal", signal, 32)?;
    }
    Ok(())
}

fn check_value(what: &str, value: &str, most: usize) -> Result<(), ImageError> {
    if value.contains('\0') {
        return Err(bad(format!(
            "A {what} of the image contains a zero byte: {}.",
            shown(value.as_bytes())
        )));
    }
    if value.len() > most {
        return Err(too_large(format!(
            "A {what} of the image has {} bytes; {most} are the most.",
            value.len()
        )));
    }
    Ok(())
}

fn bad(text: String) -> ImageError {
    refusals::image_bad_config(text).into()
}

fn too_large(text: String) -> ImageError {
    refusals::image_config_too_large(text).into()
}

fn wrong_machine(theirs: &str, ours: &str) -> ImageError {
    refusals::image_architecture(shown(theirs.as_bytes()), ours, own_architecture()).into()
}
