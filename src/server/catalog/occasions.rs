//! Whether there is anything at all of what most sites have nothing of most of the time, and each page counts for its
//! reader. Knows no reader, and no time.

use super::reader::ReadTransaction;
use crate::Failure;

/// What there may be rows of. Where one is false no reader finds any; where it is true, those who ask read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Occasions {
    /// Reservations that wait for an administrator.
    pub(crate) asked_reservations: bool,
    /// Budgets of which was warned.
    pub(crate) warned_budgets: bool,
    pub(crate) allowances: bool,
    /// Folders that are shared with a user, or offered.
    pub(crate) shared_folders: bool,
    /// Nodes in maintenance.
    pub(crate) closed_nodes: bool,
    /// Requests for an account that are not decided.
    pub(crate) sign_ups: bool,
    /// Users who ask for higher limits.
    pub(crate) limit_requests: bool,
    /// Acts that wait for another administrator.
    pub(crate) approvals: bool,
    /// Limits of folders that are near.
    pub(crate) near_storage: bool,
    /// Accounts with an end.
    pub(crate) ending_accounts: bool,
    /// Running sessions with a time limit.
    pub(crate) limited_sessions: bool,
}

impl Occasions {
    /// For who could not read whether there are any.
    pub(crate) const ALL: Self = Self {
        asked_reservations: true,
        warned_budgets: true,
        allowances: true,
        shared_folders: true,
        closed_nodes: true,
        sign_ups: true,
        limit_requests: true,
        approvals: true,
        near_storage: true,
        ending_accounts: true,
        limited_sessions: true,
    };
}

/// Conditions as those of the statements that read these rows, so that the same indexes hold them.
const OCCASIONS: &str = "select
    exists (select 1 from reservation_time where state = 'asked' and number = 1) as asked_reservations,
    exists (select 1 from budget where warned > 0) as warned_budgets,
    exists (select 1 from allowance) as allowances,
    exists (select 1 from folder_share where user is not null) as shared_folders,
    exists (select 1 from node where schedulable = 0) as closed_nodes,
    exists (select 1 from sign_up where declined_at is null) as sign_ups,
    exists (select 1 from user where limit_request is not null) as limit_requests,
    exists (select 1 from approval where state = 'waiting') as approvals,
    exists (select 1 from storage where level <> 'free') as near_storage,
    exists (select 1 from user where expires_at is not null) as ending_accounts,
    exists (select 1 from session where state = 'running' and max_runtime_seconds is not null)
        as limited_sessions";

impl ReadTransaction<'_> {
    /// Costs one look into an index for each, a visit of each budget, node and request for an account.
    pub(crate) fn occasions(&self) -> Result<Occasions, Failure> {
        let found = self
            .connection
            .prepare_cached(OCCASIONS)?
            .query_row([], |row| {
                Ok(Occasions {
                    asked_reservations: row.get("asked_reservations")?,
                    warned_budgets: row.get("warned_budgets")?,
                    allowances: row.get("allowances")?,
                    shared_folders: row.get("shared_folders")?,
                    closed_nodes: row.get("closed_nodes")?,
                    sign_ups: row.get("sign_ups")?,
                    limit_requests: row.get("limit_requests")?,
                    approvals: row.get("approvals")?,
                    near_storage: row.get("near_storage")?,
                    ending_accounts: row.get("ending_accounts")?,
                    limited_sessions: row.get("limited_sessions")?,
                })
            })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;
    use crate::catalog::Lane;

    #[test]
    fn there_is_nothing_on_a_new_site_and_a_closed_node_from_its_commit_on() {
        let server = Server::for_tests();
        server.put_test_node("alpha");
        let nothing = Occasions {
            asked_reservations: false,
            warned_budgets: false,
            allowances: false,
            shared_folders: false,
            closed_nodes: false,
            sign_ups: false,
            limit_requests: false,
            approvals: false,
            near_storage: false,
            ending_accounts: false,
            limited_sessions: false,
        };
        assert_eq!(server.occasions(), nothing);
        let close = |closed| {
            let node = server.node();
            let work = move |rows: &crate::catalog::Rows<'_>| rows.close_node(node, closed, "");
            let changed = server
                .catalog()
                .write_now(Lane::Requests, "close a node", work);
            assert!(changed.expect("written"));
        };
        close(true);
        let closed = Occasions {
            closed_nodes: true,
            ..nothing
        };
        assert_eq!(server.occasions(), closed);
        close(false);
        assert_eq!(server.occasions(), nothing);
    }
}
