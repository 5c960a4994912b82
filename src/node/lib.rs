//! This machine: makes containers what an assignment says they should be, and reports what is.
//! Never sees the catalog, a person or an HTTP request; speaks to the server only in the two
//! messages of `rules::messages`.

mod network;
pub mod runtime;
