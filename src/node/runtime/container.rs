//! The only file that speaks to libcontainer: makes the first process of a container from a
//! written specification, and lets it go. Called only by a shim, which has exactly one thread.
//!
//! Never uses libcontainer's own exec (it drops the filter and stays in the host's user
//! namespace), its seccomp, its mounts with ids, or its idea of whether a container lives.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;

use libcontainer::container::Container;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::error::LibcontainerError;
use libcontainer::oci_spec::runtime::Spec;
use libcontainer::syscall::syscall::SyscallType;
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};

use super::descriptors::send_descriptor;
use super::seccomp::{Revealing, SeccompFilter};

#[cfg(test)]
mod defects;

/// Our first process, built by `packaging/guests.rs`.
static INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/init"));

/// A container that could not be made or started.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContainerError {
    #[error("the container's first process could not be kept in memory")]
    Init(#[source] io::Error),
    #[error("the container could not be created")]
    Create(#[source] Box<LibcontainerError>),
    #[error("the container could not be started")]
    Start(#[source] Box<LibcontainerError>),
    #[error("the container was created without a process number")]
    NoProcess,
    #[error("a word of the command or environment contains a null byte")]
    NullByte,
}

/// Where the container's input and output go.
pub(super) enum ContainerConsole<'a> {
    /// A socket that will receive the terminal.
    Terminal(&'a Path),
    /// Standard input, and one pipe for output and errors.
    Pipes {
        input: OwnedFd,
        output: OwnedFd,
        errors: OwnedFd,
    },
}

/// A script that the first process runs before the command.
pub(super) struct ScriptStart {
    /// The script as a file without a name, which its interpreter opens.
    pub script: OwnedFd,
    /// Takes four bytes once it is over: its exit code, or -1 where it was killed because it ran for too long.
    pub report: OwnedFd,
    pub seconds: u32,
    /// Where it fails the command does not run.
    pub ends_session: bool,
}

/// A created container whose command does not run yet.
pub(super) struct Created {
    container: Container,
    pub pid: i32,
}

/// What the first process needs once it stands inside.
#[derive(Clone)]
struct FirstProcessStart {
    image: RawFd,
    filter: Rc<SeccompFilter>,
    revealing: Revealing,
    /// Takes the filter's listener to the shim.
    listener_socket: RawFd,
    /// What the first process itself has open beside its standard streams.
    kept: [Option<RawFd>; 2],
    arguments: Rc<Vec<CString>>,
    environment: Rc<Vec<CString>>,
}

/// Makes the container from `bundle/config.json`; keeps libcontainer's state below `state`.
///
/// The process exists afterwards, in its namespaces and control group, and waits for `start`.
pub(super) fn create(
    id: &str,
    state: &Path,
    bundle: &Path,
    console: ContainerConsole<'_>,
    words: (&[String], &[(String, String)]),
    filter: (SeccompFilter, Revealing),
    (listener_socket, script): (RawFd, Option<&ScriptStart>),
) -> Result<Created, ContainerError> {
    let image = memory_file().map_err(ContainerError::Init)?;
    let (command, environment) = words;
    let mut arguments = match script {
        None => vec![CString::from(c"init")],
        Some(start) => {
            let mut words = vec![CString::from(c"begin")];
            for number in [
                start.script.as_raw_fd().cast_unsigned(),
                start.report.as_raw_fd().cast_unsigned(),
                start.seconds,
                u32::from(start.ends_session),
            ] {
                words.push(CString::new(number.to_string()).map_err(|_| ContainerError::NullByte)?);
            }
            words
        }
    };
    for word in command {
        arguments.push(CString::new(word.as_str()).map_err(|_| ContainerError::NullByte)?);
    }
    let mut variables = Vec::with_capacity(environment.len());
    for (name, value) in environment {
        variables
            .push(CString::new(format!("{name}={value}")).map_err(|_| ContainerError::NullByte)?);
    }
    let (filter, revealing) = filter;
    let first = FirstProcessStart {
        image: image.as_raw_fd(),
        filter: Rc::new(filter),
        revealing,
        listener_socket,
        kept: [
            script.map(|start| start.script.as_raw_fd()),
            script.map(|start| start.report.as_raw_fd()),
        ],
        arguments: Rc::new(arguments),
        environment: Rc::new(variables),
    };
    let fault = |error| ContainerError::Create(Box::new(error));
    let mut builder = ContainerBuilder::new(id.to_owned(), SyscallType::default())
        .with_root_path(state)
        .map_err(fault)?
        .with_executor(first);
    builder = match console {
        ContainerConsole::Terminal(socket) => builder.with_console_socket(Some(socket)),
        ContainerConsole::Pipes {
            input,
            output,
            errors,
        } => builder
            .with_stdin(input)
            .with_stdout(output)
            .with_stderr(errors),
    };
    let container = builder
        .as_init(bundle)
        .with_systemd(false)
        .with_detach(true)
        .build()
        .map_err(fault)?;
    let pid = container.pid().ok_or(ContainerError::NoProcess)?.as_raw();
    // `image` is dropped only now: the child has its own copy of the descriptor.
    Ok(Created { container, pid })
}

impl Created {
    /// Lets the command run.
    pub(super) fn start(&mut self) -> Result<(), ContainerError> {
        self.container
            .start()
            .map_err(|error| ContainerError::Start(Box::new(error)))
    }
}

impl Executor for FirstProcessStart {
    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        let words = |list: &[CString]| {
            let mut pointers: Vec<*const c_char> = list.iter().map(|word| word.as_ptr()).collect();
            pointers.push(std::ptr::null());
            pointers
        };
        let arguments = words(&self.arguments);
        let environment = words(&self.environment);
        let failed =
            |what: &str| ExecutorError::Other(format!("{what}: {}", io::Error::last_os_error()));
        let listener = self
            .filter
            .install(self.revealing)
            .map_err(|error| ExecutorError::Other(format!("the system call filter: {error}")))?;
        if let Some(listener) = listener {
            send_descriptor(self.listener_socket, &listener)
                .map_err(|error| ExecutorError::Other(format!("the filter's listener: {error}")))?;
        }
        for descriptor in self.kept.into_iter().flatten() {
            // SAFETY: a plain system call on a descriptor that this process inherited.
            if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } != 0 {
                return Err(failed("the start-up script"));
            }
        }
        // SAFETY: both arrays end with a null pointer and outlive the call, which returns only on failure.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                self.image,
                c"".as_ptr(),
                arguments.as_ptr(),
                environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
        }
        Err(failed("the container's first process"))
    }

    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        // Whether the command exists is found by running it; the exit code (127) tells.
        Ok(())
    }

    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        // The environment is handed to execve directly; this process keeps its own empty one.
        Ok(())
    }
}

/// The first process as a sealed file without a name.
pub(super) fn memory_file() -> io::Result<OwnedFd> {
    sealed_file("init", INIT)
}

/// A program of ours as a sealed file without a name: nothing inside can write to it, and its path says nothing about
/// this machine.
pub(super) fn sealed_file(name: &str, program: &[u8]) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = program;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    fcntl_add_seals(
        &file,
        SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(file)
}
