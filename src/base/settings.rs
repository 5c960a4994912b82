//! Turns files, environment and flags into one checked value or one readable refusal.
//! A later source wins: built-in, `/etc/fardel/fardel.toml`, `conf.d/*.toml`, environment, flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rules::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// Everything that can be set, checked. One row of `KEYS` each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Where state lies: catalog, images, containers, logs.
    pub data: PathBuf,
    /// Where sockets and run state lie; emptied by a reboot.
    pub run: PathBuf,
    /// Where pages and the API are served.
    pub listen: SocketAddr,
    /// Offer the machine's own programs as the environment `host`.
    pub host_environment: bool,
    /// Cores sessions may have in all, as text like `3.5`; None: all the machine has.
    pub cpu: Option<String>,
    /// Memory sessions may have in all, as text like `48g`; None: all but a reserve.
    pub memory: Option<String>,
    /// Days that logs and rows of ended sessions are kept.
    pub keep_days: u32,
    /// Write the log as JSON lines.
    pub log_json: bool,
}

/// One setting: its key in the file, its flag and variable, its default and what it does.
pub struct Key {
    pub key: &'static str,
    pub variable: &'static str,
    pub about: &'static str,
}

/// Every setting, in the order the documentation lists them.
pub const KEYS: &[Key] = &[
    Key {
        key: "data",
        variable: "FARDEL_DATA",
        about: "directory of the state",
    },
    Key {
        key: "run",
        variable: "FARDEL_RUN",
        about: "directory of sockets and run state",
    },
    Key {
        key: "listen",
        variable: "FARDEL_LISTEN",
        about: "address and port of pages and API",
    },
    Key {
        key: "host_environment",
        variable: "FARDEL_HOST_ENVIRONMENT",
        about: "offer the machine's own programs as the environment host",
    },
    Key {
        key: "cpu",
        variable: "FARDEL_CPU",
        about: "cores that sessions may have in all",
    },
    Key {
        key: "memory",
        variable: "FARDEL_MEMORY",
        about: "memory that sessions may have in all",
    },
    Key {
        key: "keep_days",
        variable: "FARDEL_KEEP_DAYS",
        about: "days that logs and rows of ended sessions are kept",
    },
    Key {
        key: "log_json",
        variable: "FARDEL_LOG_JSON",
        about: "write the log as JSON lines",
    },
];

/// One source of settings; None leaves the source before it in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    pub data: Option<PathBuf>,
    pub run: Option<PathBuf>,
    pub listen: Option<String>,
    pub host_environment: Option<bool>,
    pub cpu: Option<String>,
    pub memory: Option<String>,
    pub keep_days: Option<u32>,
    pub log_json: Option<bool>,
}

/// Where the settings file lies unless `FARDEL_CONFIG` says otherwise.
pub const FILE: &str = "/etc/fardel/fardel.toml";
/// Loopback until an administrator opens the box to the LAN.
pub const LISTEN: &str = "127.0.0.1:7860";

impl Settings {
    /// Reads every source. `flags` wins over all. Missing files count as empty.
    ///
    /// Errors: an unknown key (with the nearest known one), a value of the wrong type, an address
    /// that is none; each names the source.
    pub fn read(flags: Layer, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Refusal> {
        let file = variable("FARDEL_CONFIG").map_or_else(|| PathBuf::from(FILE), PathBuf::from);
        let mut layers = vec![read_file(&file)?];
        let folder = file.with_file_name("conf.d");
        let mut more: Vec<PathBuf> = std::fs::read_dir(&folder)
            .map(|entries| entries.filter_map(|e| e.ok().map(|e| e.path())).collect())
            .unwrap_or_default();
        more.retain(|p| p.extension().is_some_and(|e| e == "toml"));
        more.sort();
        for path in more {
            layers.push(read_file(&path)?);
        }
        layers.push(from_variables(&variable)?);
        layers.push(flags);
        Self::merge(layers, &variable)
    }

    fn merge(
        layers: Vec<Layer>,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let mut all = Layer::default();
        for layer in layers {
            all = Layer {
                data: layer.data.or(all.data),
                run: layer.run.or(all.run),
                listen: layer.listen.or(all.listen),
                host_environment: layer.host_environment.or(all.host_environment),
                cpu: layer.cpu.or(all.cpu),
                memory: layer.memory.or(all.memory),
                keep_days: layer.keep_days.or(all.keep_days),
                log_json: layer.log_json.or(all.log_json),
            };
        }
        let (data, run) = default_places(variable);
        let listen = all.listen.unwrap_or_else(|| LISTEN.to_owned());
        let listen: SocketAddr = listen.parse().map_err(|_| {
            Refusal::invalid(
                "setting.listen-invalid",
                format!("listen: {listen:?} is not an address and a port."),
            )
            .hint("127.0.0.1:7860 or 0.0.0.0:7860 would work.")
        })?;
        if let Some(cpu) = &all.cpu {
            rules::units::CpuShare::parse(cpu)?;
        }
        if let Some(memory) = &all.memory {
            rules::units::Bytes::parse(memory)?;
        }
        Ok(Self {
            data: absolute(all.data.unwrap_or(data)),
            run: absolute(all.run.unwrap_or(run)),
            listen,
            host_environment: all.host_environment.unwrap_or(true),
            cpu: all.cpu,
            memory: all.memory,
            keep_days: all.keep_days.unwrap_or(30),
            log_json: all.log_json.unwrap_or(false),
        })
    }

    /// The socket where root on the box needs no sign-in.
    pub fn socket(&self) -> PathBuf {
        self.run.join("fardel.sock")
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Root keeps state where a package would; anybody else below their home.
fn default_places(variable: &impl Fn(&str) -> Option<String>) -> (PathBuf, PathBuf) {
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if root {
        return ("/var/lib/fardel".into(), "/run/fardel".into());
    }
    let home = variable("HOME").unwrap_or_else(|| "/tmp".to_owned());
    let data = variable("XDG_DATA_HOME")
        .map_or_else(|| Path::new(&home).join(".local/share"), PathBuf::from)
        .join("fardel");
    let run = variable("XDG_RUNTIME_DIR")
        .map_or_else(|| data.join("run"), |d| Path::new(&d).join("fardel"));
    (data, run)
}

/// Reads one settings file; a missing one is empty.
pub fn read_file(path: &Path) -> Result<Layer, Refusal> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Layer::default()),
        Err(error) => {
            return Err(Refusal::unavailable(
                "setting.file-unreadable",
                format!("{} cannot be read: {error}.", path.display()),
            ));
        }
    };
    parse(&text, &path.display().to_string())
}

/// Reads the text of a settings file; `source` is named in errors.
pub fn parse(text: &str, source: &str) -> Result<Layer, Refusal> {
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        Refusal::invalid(
            "setting.syntax",
            format!("{source}: {}", e.to_string().trim_end()),
        )
    })?;
    for key in table.keys() {
        if !KEYS.iter().any(|k| k.key == key) {
            let near = nearest(key)
                .map(|k| format!("Did you mean {k}?"))
                .unwrap_or_default();
            return Err(Refusal::invalid(
                "setting.unknown",
                format!("{source}: there is no setting called {key}."),
            )
            .hint(near));
        }
    }
    Layer::deserialize(table)
        .map_err(|e| Refusal::invalid("setting.wrong-type", format!("{source}: {}", e.message())))
}

fn from_variables(variable: &impl Fn(&str) -> Option<String>) -> Result<Layer, Refusal> {
    let flag = |name: &str| match variable(name).as_deref() {
        None | Some("") => Ok(None),
        Some("true" | "1" | "yes" | "on") => Ok(Some(true)),
        Some("false" | "0" | "no" | "off") => Ok(Some(false)),
        Some(_) => Err(Refusal::invalid(
            "setting.wrong-type",
            format!("{name} is neither true nor false."),
        )),
    };
    let text = |name: &str| variable(name).filter(|v| !v.is_empty());
    Ok(Layer {
        data: text("FARDEL_DATA").map(PathBuf::from),
        run: text("FARDEL_RUN").map(PathBuf::from),
        listen: text("FARDEL_LISTEN"),
        host_environment: flag("FARDEL_HOST_ENVIRONMENT")?,
        cpu: text("FARDEL_CPU"),
        memory: text("FARDEL_MEMORY"),
        keep_days: text("FARDEL_KEEP_DAYS")
            .map(|v| {
                v.parse().map_err(|_| {
                    Refusal::invalid(
                        "setting.wrong-type",
                        "FARDEL_KEEP_DAYS is not a number of days.",
                    )
                })
            })
            .transpose()?,
        log_json: flag("FARDEL_LOG_JSON")?,
    })
}

/// The known key that differs least from `typed`, where one is near enough.
fn nearest(typed: &str) -> Option<&'static str> {
    KEYS.iter()
        .map(|k| (distance(typed, k.key), k.key))
        .min()
        .filter(|(d, _)| *d <= 3)
        .map(|(_, k)| k)
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let refusal = parse("lisen = '1.2.3.4:5'", "x.toml").unwrap_err();
        assert_eq!(refusal.code, "setting.unknown");
        assert!(refusal.to_string().contains("listen"), "{refusal}");
    }

    #[test]
    fn variables_win_over_the_file_and_flags_over_both() {
        let folder = std::env::temp_dir().join(format!("fardel-settings-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("fardel.toml");
        std::fs::write(&file, "listen = '127.0.0.1:1'\nkeep_days = 3\n").unwrap();
        let variable = |name: &str| match name {
            "FARDEL_CONFIG" => Some(file.display().to_string()),
            "FARDEL_LISTEN" => Some("127.0.0.1:2".into()),
            _ => None,
        };
        let settings = Settings::read(Layer::default(), variable).unwrap();
        assert_eq!((settings.listen.port(), settings.keep_days), (2, 3));
        let flags = Layer {
            listen: Some("127.0.0.1:3".into()),
            ..Layer::default()
        };
        assert_eq!(Settings::read(flags, variable).unwrap().listen.port(), 3);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_bad_address_says_what_would_work() {
        let flags = Layer {
            listen: Some("here".into()),
            ..Layer::default()
        };
        let refusal = Settings::read(flags, |_| None).unwrap_err();
        assert_eq!(refusal.code, "setting.listen-invalid");
    }
}
