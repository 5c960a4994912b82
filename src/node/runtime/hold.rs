//! The holder: a process that owns the sessions' part of the control groups and does nothing else, so
//! that the server's unit can be restarted while sessions run. On version 2 it sits in a leaf of its
//! own, because no process may stand above a container's group. Where version 1 is mounted nobody owns
//! parts of the tree, and it only sleeps.
//!
//! Never needed: a server without it makes its groups itself.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use super::cgroup::{CgroupError, Hierarchies};
use super::host_environment::HostDigest;

/// The name of the unit that a service manager runs us as.
const UNIT: &str = "fardel-sessions.service";

/// Runs `fardel hold [DATA]`: takes its place and sleeps until it is ended. Started by no unit, its
/// place is that of the installation at DATA.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let data = match arguments {
        [] => None,
        [data] => Some(Path::new(data)),
        _ => {
            eprintln!(
                "fardel hold [DATA]: give the data directory of the installation, or nothing"
            );
            return ExitCode::from(64);
        }
    };
    if let Err(error) = take_place(data) {
        eprintln!("fardel hold could not take its place: {error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = base::service::tell(base::service::READY) {
        eprintln!("fardel hold: the service manager did not hear: {error}");
    }
    loop {
        std::thread::park();
    }
}

fn take_place(data: Option<&Path>) -> Result<(), CgroupError> {
    let hierarchies = Hierarchies::detect()?;
    if !hierarchies.unified() {
        return Ok(());
    }
    let here = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let part = match (units_part(&here), data) {
        (Some(part), _) => part,
        (None, Some(data)) => {
            let data = data.canonicalize().map_err(|source| CgroupError::File {
                what: "find",
                path: data.to_owned(),
                source,
            })?;
            let mut digest = HostDigest::new();
            digest.add(data.as_os_str().as_encoded_bytes());
            let instance_id = format!("{:08x}", digest.0 & 0xffff_ffff);
            hierarchies.whole_instance(&instance_id).path().to_owned()
        }
        (None, None) => "/fardel".to_owned(),
    };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    hierarchies.at(format!("{part}/hold")).enter(own)?;
    // Only now: a group with processes of its own passes nothing on.
    hierarchies.at(part).pass_on_controllers()
}

/// The part that our unit owns, from `/proc/self/cgroup`; nothing when no unit started us. A manager
/// may have put us into a leaf below it already.
fn units_part(here: &str) -> Option<String> {
    let path = here.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut part = String::new();
    for name in path.split('/').skip(1) {
        part.push('/');
        part.push_str(name);
        if name == UNIT {
            return Some(part);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_units_part_is_found_from_the_unit_and_from_a_leaf_below_it() {
        let part = Some("/fardel.slice/fardel-sessions.service".to_owned());
        assert_eq!(
            units_part("0::/fardel.slice/fardel-sessions.service\n"),
            part
        );
        assert_eq!(
            units_part("0::/fardel.slice/fardel-sessions.service/hold\n"),
            part
        );
        assert_eq!(units_part("0::/user.slice/session-1.scope\n"), None);
        assert_eq!(units_part("1:name=systemd:/x\n0::/\n"), None);
        assert_eq!(units_part(""), None);
    }
}
