//! The ports that a server wants, and which process has one that is taken. Keeps none of them.

use std::net::TcpListener;

use base::settings::Settings;
use rules::doctor::DoctorCheck;

/// The console's port.
pub(super) fn console(settings: &Settings) -> DoctorCheck {
    let at = settings.listen;
    match TcpListener::bind(at) {
        Ok(_) => DoctorCheck::ok("port", format!("{at} is free.")),
        Err(_) if std::os::unix::net::UnixStream::connect(settings.socket()).is_ok() => {
            DoctorCheck::ok(
                "port",
                format!("{at} is taken by the server that runs now."),
            )
        }
        Err(error) => DoctorCheck::fail(
            "port",
            format!("{at} cannot be opened ({error})."),
            format!(
                "Find who has it (ss -ltnp 'sport = :{}'), or choose another: FARDEL_LISTEN=127.0.0.1:{}.",
                at.port(),
                at.port().wrapping_add(1).max(1024)
            ),
        ),
    }
}

/// The ports beside the console's. Without one of them the server runs all the same, and only its log
/// would say what is missing.
pub(super) fn others(settings: &Settings) -> Vec<DoctorCheck> {
    let encrypted = settings.listen_http.filter(|_| settings.encrypted());
    [
        (
            "port-http",
            "listen_http",
            encrypted,
            "An address typed without https does not lead to the console.",
        ),
        (
            "port-apps",
            "listen_apps",
            settings.listen_apps,
            "Users' own apps have no address.",
        ),
    ]
    .into_iter()
    .filter_map(|(id, setting, at, harm)| {
        let at = at?;
        let Err(error) = TcpListener::bind(at) else {
            return Some(DoctorCheck::ok(id, format!("{at} is free.")));
        };
        let holder = holder(at.port()).filter(|_| error.kind() == std::io::ErrorKind::AddrInUse);
        Some(match holder {
            Some(who) if who.starts_with("fardel ") => {
                DoctorCheck::ok(id, format!("{at} is taken by the server that runs now."))
            }
            who => DoctorCheck::warn(
                id,
                format!(
                    "{at} cannot be opened ({}). {harm}",
                    who.map_or(error.to_string(), |who| format!("taken by {who}"))
                ),
                format!("Free it and restart the server, or set {setting} to another address."),
            ),
        })
    })
    .collect()
}

/// Who listens on a port, as `/proc` tells it: `nginx (process 812)`. None where it does not, as for
/// processes of other users.
pub fn holder(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .find_map(|table| listening(&table, port))?;
    let wanted = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?;
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(number) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(open) = std::fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let has = open.flatten().any(|fd| {
            std::fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str())
        });
        if has {
            let command = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (process {number})", command.trim()));
        }
    }
    None
}

/// The inode of the socket that listens on `port` in a table as `/proc/net/tcp` writes it.
fn listening(table: &str, port: u16) -> Option<u64> {
    /// `TCP_LISTEN` of the kernel.
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, hex) = words.get(1)?.rsplit_once(':')?;
        let here = u16::from_str_radix(hex, 16).ok()? == port && *words.get(3)? == LISTEN;
        here.then(|| words.get(9)?.parse().ok()).flatten()
    })
}
