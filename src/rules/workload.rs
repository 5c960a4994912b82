//! What people launch: the specification, its validation, the state, the session, its containers.

pub mod container;
pub mod mount;
pub mod outcome;
pub mod precedence;
pub mod remarks;
pub mod session;
pub mod spec;
pub mod state;
pub mod validate;

#[cfg(test)]
mod tests;
