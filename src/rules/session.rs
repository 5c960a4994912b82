//! The names of `workload` under one path. Seventy files of all rooms use several of them together; imports of its
//! five files would say less.

pub use crate::workload::container::{ContainerProgress, SessionContainer};
pub use crate::workload::outcome::Outcome;
pub use crate::workload::session::{Session, SessionChange, Transition};
pub use crate::workload::spec::{
    MAX_ARGUMENT_LENGTH, MAX_ARGUMENTS, MAX_DEPENDENCIES, MAX_LABEL_LENGTH, MAX_LABELS,
    MAX_REPLICAS, MAX_RUN_SECONDS, MAX_SPEC_BYTES, MAX_VARIABLES, SessionEnvironment, SessionKind,
    SessionSpec, TextField, cycle, has_turned_direction, hidden, plain, text, turns_direction,
};
pub use crate::workload::state::{DesiredState, Lifecycle, SessionState};
