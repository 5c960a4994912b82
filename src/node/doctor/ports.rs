//! The ports that a server wants, and which process has one that is taken. Keeps none of them.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;

use base::settings::Settings;
use rules::checks;
use rules::doctor::DoctorCheck;

/// The console's port.
pub(super) fn console(settings: &Settings) -> DoctorCheck {
    let at = settings.listen;
    match TcpListener::bind(at) {
        Ok(_) => checks::port_free(at),
        Err(_) if UnixStream::connect(settings.socket()).is_ok() => checks::port_own(at),
        Err(error) => checks::port_taken(at, error, at.port(), at.port().wrapping_add(1).max(1024)),
    }
}

/// The ports beside the console's. Without one of them the server runs all the same, and only its log
/// would say what is missing.
pub(super) fn others(settings: &Settings) -> Vec<DoctorCheck> {
    let is_served = UnixStream::connect(settings.socket()).is_ok();
    let look = |at| look(at, is_served);
    let http = settings.listen_http.filter(|_| settings.encrypted());
    let http = http.map(|at| match look(at) {
        PortState::Free => checks::port_http_free(at),
        PortState::Own => checks::port_http_own(at),
        PortState::Taken(why) => checks::port_http_taken(at, why),
    });
    let apps = settings.listen_apps.map(|at| match look(at) {
        PortState::Free => checks::port_apps_free(at),
        PortState::Own => checks::port_apps_own(at),
        PortState::Taken(why) => checks::port_apps_taken(at, why),
    });
    let ssh = settings.listen_ssh.map(|at| match look(at) {
        PortState::Free => checks::port_ssh_free(at),
        PortState::Own => checks::port_ssh_own(at),
        PortState::Taken(why) => checks::port_ssh_taken(at, why),
    });
    http.into_iter().chain(apps).chain(ssh).collect()
}

enum PortState {
    Free,
    /// The server that runs now has it.
    Own,
    /// Why it cannot be opened.
    Taken(String),
}

/// What a port is like, where a server of these settings runs or not.
fn look(at: SocketAddr, is_served: bool) -> PortState {
    let Err(error) = TcpListener::bind(at) else {
        return PortState::Free;
    };
    let holder = holding(at.port()).filter(|_| error.kind() == std::io::ErrorKind::AddrInUse);
    match holder {
        Some(process) if is_served && same_program(process) => PortState::Own,
        Some(process) => PortState::Taken(format!("taken by {}", told(process))),
        None => PortState::Taken(error.to_string()),
    }
}

/// Is it this program, under any name of its file? After an upgrade the server still runs the file before: then its
/// name is all that is left to compare.
fn same_program(process: u32) -> bool {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    let own = of("self");
    (own.is_some() && own == of(&process.to_string())) || command(process) == "fardel"
}

fn command(process: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

fn told(process: u32) -> String {
    format!("{} (process {process})", command(process))
}

/// Who listens on a port, as `/proc` tells it: `nginx (process 812)`. None where it does not, as for
/// processes of other users.
pub fn holder(port: u16) -> Option<String> {
    holding(port).map(told)
}

/// The process that listens on a port.
fn holding(port: u16) -> Option<u32> {
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
            return Some(number);
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

#[cfg(test)]
mod tests {
    use rules::doctor::CheckState;

    use super::*;

    /// This process has another name than the server's, as a server has whose file was renamed.
    #[test]
    fn a_port_of_this_program_is_its_own_under_any_name() {
        let kept = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = kept.local_addr().expect("its address");
        assert!(matches!(look(at, true), PortState::Own));
        assert!(matches!(look(at, false), PortState::Taken(_)));
        drop(kept);
        assert!(matches!(look(at, true), PortState::Free));
    }

    #[test]
    fn a_taken_port_is_found_and_another_is_named() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("bound").port();
        let data = folder.path().display().to_string();
        let settings = Settings::read(Default::default(), |name| match name {
            "FARDEL_DATA" | "FARDEL_RUN" => Some(data.clone()),
            "FARDEL_LISTEN" => Some(format!("127.0.0.1:{port}")),
            "FARDEL_TLS" => Some("on".into()),
            "FARDEL_LISTEN_HTTP" => Some(format!("127.0.0.1:{port}")),
            "FARDEL_LISTEN_APPS" => Some("127.0.0.1:0".into()),
            "FARDEL_LISTEN_SSH" => Some("127.0.0.1:0".into()),
            "FARDEL_CONFIG" => Some("/nonexistent".into()),
            _ => None,
        })
        .expect("valid settings");
        let checks = super::super::checks::all(&settings);
        let check = |id| checks.iter().find(|c| c.id == id).expect("a check");
        assert_eq!(check("port").state, CheckState::Fail);
        assert!(check("port").fix.contains("FARDEL_LISTEN"));
        // The console serves without this one, and says what is missing.
        let http = check("port-http");
        assert_eq!(http.state, CheckState::Warn);
        let own = format!("(process {})", std::process::id());
        assert!(http.found.contains(&own), "{}", http.found);
        assert!(http.fix.contains("listen_http"), "{}", http.fix);
        assert_eq!(check("port-apps").state, CheckState::Ok);
        assert_eq!(check("port-ssh").state, CheckState::Ok);
    }
}
