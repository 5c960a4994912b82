//! `fardel state show|accept`: holds the machine's own record against the catalog, and writes root's word that
//! the catalog leads the machine all the same. Decides nothing; `rules::continuity` does.

use std::path::Path;

use rules::codes;
use rules::continuity::{self, Continuity, Memory};
use rules::refusal::Refusal;
use rules::refusals;
use serde::Serialize;
use server::Failure;

/// How catalog and machine stand to each other.
#[derive(Debug, Serialize)]
pub(super) struct StateReport {
    #[serde(flatten)]
    found: Continuity,
    /// Root accepted, and the machine does not obey yet.
    accepted: bool,
}

/// Holds the record in `data` against the catalog there. None where there is no catalog yet.
///
/// Errors: refusals for a file that is no catalog; `node.record-damaged`.
pub(super) fn standing(data: &Path) -> Result<Option<StateReport>, Failure> {
    let remembered = node::memory(data).map_err(|error| unreadable(data, &error))?;
    let node = remembered.map(|(node, _)| node);
    let claim = match server::state::claim(data, node) {
        Ok(claim) => claim,
        Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::STATE_MISSING => {
            return Ok(None);
        }
        Err(failure) => return Err(failure),
    };
    let nothing = Memory {
        state: None,
        generation: 0,
    };
    let memory = remembered.map_or(nothing, |(_, memory)| memory);
    Ok(Some(StateReport {
        found: continuity::judge(claim, memory),
        accepted: server::state::is_accepted(data, &claim),
    }))
}

/// Another user's state: the doctor says nothing of it here.
pub(super) const NOT_YOURS: &str = codes::STATE_NOT_YOURS;

fn unreadable(data: &Path, error: &std::io::Error) -> Refusal {
    let shown = data.display();
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        return refusals::state_not_yours(shown);
    }
    refusals::node_record_damaged_in(&shown, error)
}

impl StateReport {
    /// Why the machine is not led; None where it is, or will be without another word.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.found.refusal().filter(|_| !self.accepted)
    }
}

/// Shows the standing; never an error because it is bad.
pub(super) fn show(
    data: &Path,
    shown: impl Fn(&StateReport, String) -> String,
) -> Result<String, Failure> {
    let Some(standing) = standing(data)? else {
        return Ok("There is no catalog yet.\n".to_owned());
    };
    let text = match (standing.found.refusal(), standing.accepted) {
        (None, _) => "The catalog matches this machine's own record.\n".to_owned(),
        (Some(_), true) => {
            "The catalog was accepted; the machine obeys it as soon as a server runs.\n".to_owned()
        }
        (Some(refusal), false) => format!("{}\n  {}\n", refusal.text, refusal.hint),
    };
    Ok(shown(&standing, text))
}

/// Writes that the catalog leads the machine.
///
/// Errors: `state.nothing-to-accept` where it does already; `state.unwritable`.
pub(super) fn accept(
    data: &Path,
    shown: impl Fn(&StateReport, String) -> String,
) -> Result<String, Failure> {
    let standing = standing(data)?.filter(|standing| !standing.found.continues());
    let Some(mut standing) = standing else {
        return Err(refusals::state_nothing_to_accept().into());
    };
    let node = node::memory(data).ok().flatten().map(|(node, _)| node);
    let claim = server::state::claim(data, node)?;
    server::state::accept(data, &claim)?;
    standing.accepted = true;
    let text =
        "Accepted. A server that runs goes on within seconds, one that does not with its start.\n";
    Ok(shown(&standing, text.to_owned()))
}
