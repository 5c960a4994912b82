//! Puts waiting sessions on hold, and stops those that start slowly, for which a hard budget has no room. Decides nothing
//! itself: the catalog names them. A release asks the budgets again.

use rules::names::{BUDGETS, UserName};
use rules::reasons;
use rules::session::DesiredState;

use crate::controller::pass::ControllerPass;

/// Carries out what the catalog found. What runs is left alone.
pub(crate) fn hold_and_stop(pass: &mut ControllerPass) {
    let now = pass.now;
    for id in std::mem::take(&mut pass.beyond_budgets.waiting) {
        pass.change(id, BUDGETS, |session| match UserName::parse(BUDGETS) {
            Ok(by) => session.hold(by, now),
            Err(_) => false,
        });
    }
    for id in std::mem::take(&mut pass.beyond_budgets.starting) {
        pass.change(id, BUDGETS, |session| {
            let started = session.started_at().is_some();
            !started && session.stop(DesiredState::Stop, reasons::session_budget_start(), now)
        });
    }
}
