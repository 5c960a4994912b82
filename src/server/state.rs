//! Whether the catalog on this disk belongs to the machine's own record, and root's word that it is to lead
//! the machine all the same. With or without a server beside it; never changes a row.

use std::path::Path;

use rules::continuity::Claim;
use rules::names::NodeId;
use rules::refusals;

use crate::catalog::{acceptance, copy};
use crate::{Failure, ServerFault};

/// What the catalog in `data` claims of a machine: of `node`, or where the machine has no record, of the one
/// it was founded on.
///
/// Errors: `state.missing`, refusals for a file that is no catalog.
pub fn claim(data: &Path, node: Option<NodeId>) -> Result<Claim, Failure> {
    copy::claim(data, node)
}

/// Whether root has accepted this catalog and the machine does not obey it yet.
pub fn is_accepted(data: &Path, claim: &Claim) -> bool {
    acceptance::is_accepted(data, claim.state)
}

/// Writes that the catalog in `data` leads the machine. A server that runs takes it up within seconds, one
/// that does not with its start.
///
/// Errors: `state.unwritable`.
pub fn accept(data: &Path, claim: &Claim) -> Result<(), Failure> {
    acceptance::accept(data, claim.state).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            refusals::state_unwritable_for_user(data.display(), &error).into()
        }
        _ => ServerFault::new("write that the catalog is accepted", error).into(),
    })
}
