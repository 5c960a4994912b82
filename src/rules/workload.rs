//! What people launch: the specification, the state, the session, its containers.

pub mod container;
pub mod outcome;
pub mod session;
pub mod spec;
pub mod state;

#[cfg(test)]
mod tests;
