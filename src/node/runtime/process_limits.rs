//! What processes of a container may have beside the limits that all have: locked memory and stack. Raises this process first,
//! since nothing inside a user namespace may raise a limit above that of the process that began it. Never lowers one.

use rules::process_limits::ProcessLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits as the kernel takes them; None: as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GrantedLimits {
    /// Bytes that a process may lock; `u64::MAX` is no limit.
    pub(super) memlock: Option<u64>,
    pub(super) stack: Option<u64>,
}

/// Lets this process give those limits, and says which it can: less where it may not raise its own.
pub(super) fn raise(wanted: &ProcessLimits) -> GrantedLimits {
    GrantedLimits {
        memlock: wanted.memlock.then(|| at_most(Resource::Memlock, u64::MAX)),
        stack: wanted.stack.map(|size| at_most(Resource::Stack, size.0)),
    }
}

/// The limit, or the most that this process may give.
fn at_most(of: Resource, limit: u64) -> u64 {
    let now = getrlimit(of);
    // None is no limit.
    let most = now.maximum.unwrap_or(u64::MAX);
    if limit <= most {
        return limit;
    }
    let raised = Rlimit {
        current: now.current,
        maximum: Some(limit).filter(|limit| *limit != u64::MAX),
    };
    match setrlimit(of, raised) {
        Ok(()) => limit,
        Err(error) => {
            tracing::warn!("the limit of {of:?} stays at {most}: {error}");
            most
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_stays_and_a_smaller_limit_needs_no_right() {
        assert_eq!(raise(&ProcessLimits::USUAL), GrantedLimits::default());
        assert_eq!(at_most(Resource::Memlock, 4096), 4096);
    }
}
