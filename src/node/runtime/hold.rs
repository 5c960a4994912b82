//! The holder: a process that owns the control groups of one installation and does nothing else,
//! so that the server's unit can be restarted while sessions run. On version 2 it sits in a leaf
//! of its own, because no process may stand in an ancestor of a container's group.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use super::cgroup::Hierarchies;
use super::host_environment::Digest;

/// Runs `fardel hold DATA`: takes its place and sleeps until it is ended.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let [data] = arguments else {
        eprintln!("fardel hold DATA: give the data directory of the installation");
        return ExitCode::from(64);
    };
    let taken = Path::new(data)
        .canonicalize()
        .map_err(|error| error.to_string())
        .and_then(|data| {
            let mut digest = Digest::new();
            digest.add(data.as_os_str().as_encoded_bytes());
            let box_id = format!("{:08x}", digest.0 & 0xffff_ffff);
            let hierarchies = Hierarchies::detect().map_err(|error| error.to_string())?;
            if hierarchies.unified() {
                let own = rustix::process::getpid().as_raw_nonzero().get();
                hierarchies
                    .holder(&box_id)
                    .enter(own)
                    .map_err(|error| error.to_string())?;
            }
            Ok(())
        });
    if let Err(error) = taken {
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
