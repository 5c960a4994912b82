//! The web console: parses forms and addresses, asks `server::actions`, renders pages and live fragments.
//! Never decides what a person may do, and never talks to the catalog or a node.

pub mod assets;
pub mod docs;
pub mod frame;
pub mod images;
pub mod launch;
pub mod login;
pub mod me;
pub mod overview;
pub mod parts;
pub mod problem;
pub mod queue;
pub mod scene;
pub mod sessions;
pub mod setup;
pub mod visit;

#[cfg(test)]
mod tests;
