//! The names of `workload` under one path, for the rooms that use several of them together.

pub use crate::workload::container::{ContainerProgress, SessionContainer};
pub use crate::workload::session::{Session, SessionChange, Transition};
pub use crate::workload::spec::{
    MAX_ARGUMENT_LENGTH, MAX_ARGUMENTS, MAX_COPIES, MAX_DEPENDENCIES, MAX_LABEL_LENGTH, MAX_LABELS,
    MAX_RUN_SECONDS, MAX_SPEC_BYTES, MAX_VARIABLES, SessionEnvironment, SessionKind, SessionSpec,
    TextField, check_labels, cycle, hidden, plain, text, turns_direction,
};
pub use crate::workload::state::{DesiredState, Lifecycle, Outcome, SessionState};
