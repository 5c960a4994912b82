//! What a launch or a change of a session asks for, checked as far as nothing has to be looked up: names, remarks,
//! replicas, amounts, texts, times. Each static refusal stands here once, for launch, preview, change and
//! rehearsal. Never knows whether an image or another session exists, nor what a machine has.

use std::collections::BTreeMap;

use super::precedence::Precedence;
use super::remarks::Remarks;
use super::session::Session;
use super::spec::{
    MAX_ARGUMENT_LENGTH, MAX_ARGUMENTS, MAX_CONTAINERS, MAX_DEPENDENCIES, MAX_LABEL_LENGTH,
    MAX_REPLICAS, MAX_RUN_SECONDS, MAX_SPEC_BYTES, MAX_VARIABLES, SessionEnvironment, SessionKind,
    SessionSpec, TextField, text,
};
use crate::image::{MAX_REFERENCE_LENGTH, parse_reference};
use crate::names::{ImageId, SessionId, SessionName};
use crate::refusal::Refusal;
use crate::refusals;
use crate::resources::Demand;
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};

/// A launch as it was asked for; nothing of it is checked.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedLaunch {
    /// None or blank: to be made up.
    pub name: Option<String>,
    pub remarks: Remarks,
    pub precedence: Precedence,
    pub replicas: u32,
    pub kind: SessionKind,
    /// `host`, or the reference or id of an image.
    pub image: String,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Of each of its containers.
    pub demand: Demand,
    pub containers: u32,
    /// The share as it was typed. A 0 that was typed is refused; where none was, the demand has 0.
    pub typed_gpu: Option<GpuShare>,
    pub timeout_seconds: Option<u64>,
    pub max_runtime_seconds: Option<u64>,
    pub start_at: Option<Timestamp>,
    /// Ids or names of sessions.
    pub depends_on: Vec<String>,
}

/// Which environment was asked for. Whether an image of that name exists is not known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageChoice {
    Host,
    Id {
        id: ImageId,
        /// As it was asked for, without blanks around it.
        typed: String,
    },
    Reference {
        /// With its tag.
        reference: String,
        /// As it was asked for, without blanks around it.
        typed: String,
    },
}

/// A launch without a static fault. Only `RequestedLaunch::validate` makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedLaunch {
    /// None: to be made up. The names of all replicas are legal too.
    pub name: Option<SessionName>,
    pub remarks: Remarks,
    pub precedence: Precedence,
    pub replicas: u32,
    pub image: ImageChoice,
    /// Ids or names of sessions, without blanks around them; at most `MAX_DEPENDENCIES`.
    pub depends_on: Vec<String>,
    pub spec: ValidatedSpec,
}

/// The rest of a validated launch, which becomes a specification once its image and its dependencies are found.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedSpec {
    kind: SessionKind,
    command: Vec<String>,
    env: BTreeMap<String, String>,
    /// Of all containers together.
    demand: Demand,
    containers: u32,
    timeout_seconds: Option<u64>,
    max_runtime_seconds: Option<u64>,
    start_at: Option<Timestamp>,
}

impl RequestedLaunch {
    /// Gives the launch with its texts parsed.
    ///
    /// Errors: the first static fault, with its code and its field, in this order: replicas, name, remarks,
    /// priority and yielding, a share of 0, image, number of dependencies, time limits by kind and start, amounts, number of
    /// containers and what that many cannot have, command, variables, size of all text, ranges of the time limits. Costs
    /// one visit of each text.
    pub fn validate(self, now: Timestamp) -> Result<ValidatedLaunch, Refusal> {
        if !(1..=MAX_REPLICAS).contains(&self.replicas) {
            return Err(refusals::replicas_out_of_range(MAX_REPLICAS).at("/replicas"));
        }
        let name = match self.name.as_deref().map(str::trim) {
            None | Some("") => None,
            Some(typed) => {
                let name = SessionName::parse(typed)?;
                // The longest of the names has to fit too.
                name.replica(self.replicas, self.replicas)?;
                Some(name)
            }
        };
        let remarks = self.remarks.checked()?;
        let precedence = self.precedence.checked(self.kind)?;
        if self.typed_gpu == Some(GpuShare::ZERO) {
            return Err(refusals::gpu_zero().at("/resources/gpu"));
        }
        let image = ImageChoice::parse(&self.image)?;
        if self.depends_on.len() > MAX_DEPENDENCIES {
            return Err(refusals::dependency_too_many(MAX_DEPENDENCIES).at("/depends_on"));
        }
        if self.kind == SessionKind::Interactive && self.timeout_seconds.is_some() {
            return Err(refusals::timeout_batch_only().at("/timeout_seconds"));
        }
        let latest = now.plus_seconds(MAX_RUN_SECONDS);
        if self.start_at.is_some_and(|start| start > latest) {
            return Err(refusals::start_at_too_far().at("/start_at"));
        }
        self.demand.check()?;
        let demand = of_containers(&self.demand, self.containers)?;
        check_command(self.kind, &image, &self.command)?;
        check_texts(&self.command, &self.env)?;
        for (seconds, pointer) in [
            (self.timeout_seconds, "/timeout_seconds"),
            (self.max_runtime_seconds, "/max_runtime_seconds"),
        ] {
            check_run_seconds(seconds).map_err(|refusal| refusal.at(pointer))?;
        }
        Ok(ValidatedLaunch {
            name,
            remarks,
            precedence,
            replicas: self.replicas,
            image,
            depends_on: self
                .depends_on
                .iter()
                .map(|typed| typed.trim().to_owned())
                .collect(),
            spec: ValidatedSpec {
                kind: self.kind,
                command: self.command,
                env: self.env,
                demand,
                containers: self.containers,
                timeout_seconds: self.timeout_seconds,
                max_runtime_seconds: self.max_runtime_seconds,
                start_at: self.start_at,
            },
        })
    }
}

impl ImageChoice {
    /// Reads `host`, an id, or a reference to which `:latest` is added where it has no tag.
    ///
    /// Errors: `image.*` of a text that is none of them.
    pub fn parse(typed: &str) -> Result<Self, Refusal> {
        let typed = typed.trim();
        if typed == "host" {
            return Ok(Self::Host);
        }
        text(TextField::Image, "/image", typed, MAX_REFERENCE_LENGTH)?;
        let id = typed.parse::<ImageId>();
        let typed = typed.to_owned();
        match id {
            Ok(id) => Ok(Self::Id { id, typed }),
            Err(_) => {
                let reference = parse_reference(&typed)?;
                Ok(Self::Reference { reference, typed })
            }
        }
    }
}

impl ValidatedSpec {
    /// The specification, now that its environment and its dependencies are found; `runs_something` where
    /// the environment has a command of its own.
    ///
    /// Errors: `command.missing` where a batch session would run nothing.
    pub fn complete(
        self,
        environment: SessionEnvironment,
        runs_something: bool,
        depends_on: Vec<SessionId>,
    ) -> Result<SessionSpec, Refusal> {
        if self.kind == SessionKind::Batch && self.command.is_empty() && !runs_something {
            return Err(refusals::command_missing_in_image().at("/command"));
        }
        Ok(SessionSpec {
            kind: self.kind,
            environment,
            command: self.command,
            env: self.env,
            demand: self.demand,
            timeout_seconds: self.timeout_seconds,
            max_runtime_seconds: self.max_runtime_seconds,
            start_at: self.start_at,
            depends_on,
            containers: self.containers,
        })
    }
}

/// The demand of so many containers together, of which each has this one.
///
/// Errors: `containers.*` of a number or a share that cannot be; `gpu.*` of memory of a share that comes out whole.
fn of_containers(each: &Demand, containers: u32) -> Result<Demand, Refusal> {
    if !(1..=MAX_CONTAINERS).contains(&containers) {
        return Err(refusals::containers_out_of_range(MAX_CONTAINERS).at("/containers"));
    }
    if containers == 1 {
        return Ok(*each);
    }
    if each.mig.is_some() {
        return Err(refusals::containers_partition().at("/resources/mig"));
    }
    let all = each.times(containers);
    let (share, sum) = (each.gpu.0, all.gpu.0);
    // No container gets its share in two pieces.
    let is_whole = share.is_multiple_of(100);
    let is_even = sum <= 100 || (share < 100 && 100 % share == 0 && sum.is_multiple_of(100));
    if !is_whole && !is_even {
        return Err(refusals::containers_gpu(each.gpu, containers).at("/resources/gpu"));
    }
    all.check()?;
    Ok(all)
}

fn check_command(
    kind: SessionKind,
    image: &ImageChoice,
    command: &[String],
) -> Result<(), Refusal> {
    if command.len() > MAX_ARGUMENTS {
        return Err(refusals::command_too_long(MAX_ARGUMENTS).at("/command"));
    }
    if command.first().is_some_and(String::is_empty) {
        return Err(refusals::command_empty().at("/command"));
    }
    if kind == SessionKind::Batch && command.is_empty() && *image == ImageChoice::Host {
        return Err(refusals::command_missing().at("/command"));
    }
    Ok(())
}

/// Refuses NUL bytes, broken variable names and too much text.
fn check_texts(command: &[String], env: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let mut total = 0;
    for word in command {
        text(TextField::Command, "/command", word, MAX_ARGUMENT_LENGTH)?;
        total += word.len();
    }
    if env.len() > MAX_VARIABLES {
        return Err(refusals::env_too_many(MAX_VARIABLES).at("/env"));
    }
    for (name, value) in env {
        let named = !name.is_empty()
            && name.len() <= MAX_LABEL_LENGTH
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        if !named {
            return Err(refusals::env_name_invalid().at("/env"));
        }
        text(TextField::Env, "/env", value, MAX_ARGUMENT_LENGTH)?;
        total += name.len() + value.len();
    }
    if total > MAX_SPEC_BYTES {
        return Err(refusals::session_too_large(total, MAX_SPEC_BYTES));
    }
    Ok(())
}

/// Refuses a time limit that is too short or too long; without one there is nothing to refuse.
pub fn check_run_seconds(seconds: Option<u64>) -> Result<(), Refusal> {
    match seconds {
        Some(seconds) if !(1..=MAX_RUN_SECONDS).contains(&seconds) => {
            Err(refusals::seconds_out_of_range(MAX_RUN_SECONDS))
        }
        _ => Ok(()),
    }
}

/// Amounts that a session is to have from now on, as they were asked for; what is None stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestedResize {
    pub cpu: Option<CpuShare>,
    pub memory: Option<Bytes>,
    pub gpu: Option<GpuShare>,
    pub gpu_memory: Option<Bytes>,
}

impl RequestedResize {
    /// Gives the demand that the session would have. Whether its machine has room is not asked.
    ///
    /// Errors: what can never be right, in every state of the session: a share beside a partition, no share
    /// while it runs with one, amounts that are possible on no machine.
    pub fn validate(&self, session: &Session) -> Result<Demand, Refusal> {
        if session.spec.containers > 1 && *self != Self::default() {
            return Err(refusals::containers_resize().at("/resources"));
        }
        let mut demand = session.spec.demand;
        demand.cpu = self.cpu.unwrap_or(demand.cpu);
        demand.memory = self.memory.unwrap_or(demand.memory);
        demand.shm = demand.shm.min(demand.memory);
        if self.gpu.is_some() && demand.mig.is_some() {
            return Err(refusals::resize_partition().at("/resources/gpu"));
        }
        if let Some(gpu) = self.gpu {
            if gpu == GpuShare::ZERO && session.state().holds_resources() && demand.gpu > gpu {
                return Err(refusals::gpu_zero_while_running().at("/resources/gpu"));
            }
            demand.gpu = gpu;
            // Memory that was set by itself stays only where a fraction is left to have it.
            if self.gpu_memory.is_none() && gpu.0.is_multiple_of(100) {
                demand.gpu_memory = None;
            }
        }
        demand.gpu_memory = self.gpu_memory.or(demand.gpu_memory);
        demand.check()?;
        Ok(demand)
    }
}

#[cfg(test)]
mod tests;
