//! Who may send work to a device now, and for how long: credit windows. A pure function of time, of who
//! wants and of what was used; never looks at a clock, a page or a driver, so that a model runs years of
//! it in a test.
//!
//! Every session has an account that grows by its share of the time that passes. One that wants the device
//! and has the most, measured by share, gets a window; what the device worked for them, until their last
//! work is done, is charged. Long work therefore makes a debt, which is waited for, and no error that
//! stays. In `Hard` mode no session works on credit, so an unused share is idle; in `Elastic` mode
//! it is given away, in the ratio of the shares of those who want it.

use std::collections::BTreeMap;

/// Nanoseconds since a moment of the caller's choice.
pub type Nanos = u64;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;

/// Longest window. Longer: others' requests wait longer. Shorter: more of the time goes to changes
/// between tenants.
pub const WINDOW: Nanos = 4 * MILLISECOND;
/// Unused time that an account keeps. Longer: a session that comes back after a while takes the device for
/// longer. Shorter: a short request after a pause has to wait.
const KEPT: Nanos = 200 * MILLISECOND;
/// Time in which any debt is paid back. Longer: a tenant with one long kernel waits longer. Shorter: long
/// kernels of small shares get more than their share.
const REPAY_INTERVAL: Nanos = 10 * SECOND;
/// A window whose work is not done so long after its end no longer keeps the others away.
const DRAIN_TIMEOUT: Nanos = 500 * MILLISECOND;
/// Shares are told in thousandths of a device.
const WHOLE: i64 = 1000;

/// What becomes of time that its owner does not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The device is idle.
    Hard,
    /// The session that wants it has it.
    Elastic,
}

/// What the host does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceCommand<Id> {
    /// Let this tenant's work through until then.
    Open { tenant: Id, until: Nanos },
    /// Let no more of it through, and say by `drained` when what it sent is done.
    Close { tenant: Id },
    /// Nothing until then, or until something is told; None: until something is told.
    Wait { until: Option<Nanos> },
}

#[derive(Debug, Clone, Copy)]
struct CreditAccount {
    /// Thousandths of the device.
    share: u32,
    /// Thousandths of a nanosecond of the device.
    credit: i64,
    wants: bool,
    /// Its last window's work goes on beside the others' windows.
    overdue: bool,
}

impl CreditAccount {
    /// What `time` of the device is worth to this share: accounts of one value by this measure are even.
    fn level(&self) -> i128 {
        i128::from(self.credit) * i128::from(WHOLE) / i128::from(self.share.max(1))
    }

    fn of(&self, time: Nanos) -> i64 {
        signed(time).saturating_mul(i64::from(self.share))
    }
}

#[derive(Debug, Clone, Copy)]
struct TimeSlice<Id> {
    tenant: Id,
    until: Nanos,
    /// When it was closed; None while it is open.
    closed: Option<Nanos>,
}

/// The arbiter of one device.
#[derive(Debug, Clone)]
pub struct Arbiter<Id> {
    mode: Mode,
    accounts: BTreeMap<Id, CreditAccount>,
    window: Option<TimeSlice<Id>>,
    now: Nanos,
}

impl<Id: Copy + Ord> Arbiter<Id> {
    pub fn new(mode: Mode, now: Nanos) -> Self {
        Self {
            mode,
            accounts: BTreeMap::new(),
            window: None,
            now,
        }
    }

    pub fn set_mode(&mut self, now: Nanos, mode: Mode) {
        self.pass(now);
        self.mode = mode;
    }

    /// Lets a tenant in, or changes their share (thousandths); what they have or owe stays theirs.
    pub fn set(&mut self, now: Nanos, tenant: Id, share: u32) {
        self.pass(now);
        let account = self.accounts.entry(tenant).or_insert(CreditAccount {
            share,
            credit: 0,
            wants: false,
            overdue: false,
        });
        account.share = share;
    }

    /// Takes a tenant out; an open window of theirs ends without a word.
    pub fn remove(&mut self, now: Nanos, tenant: Id) {
        self.pass(now);
        self.accounts.remove(&tenant);
        self.window = self.window.filter(|window| window.tenant != tenant);
    }

    /// Whether a tenant has work to send.
    pub fn wants(&mut self, now: Nanos, tenant: Id, wants: bool) {
        self.pass(now);
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.wants = wants;
        }
    }

    /// The tenant of the open window sends nothing, and nothing of theirs is left to do: the window ends.
    pub fn yielded(&mut self, now: Nanos, tenant: Id) {
        self.pass(now);
        if let Some(window) = &mut self.window
            && window.tenant == tenant
            && window.closed.is_none()
        {
            window.until = now;
        }
    }

    /// All that a tenant sent in their last window is done; the device worked `busy` for it since that
    /// window opened. What it idled is not charged: a tenant whose processor is slow does not pay for it.
    pub fn drained(&mut self, now: Nanos, tenant: Id, busy: Nanos) {
        self.pass(now);
        if let Some(account) = self.accounts.get_mut(&tenant) {
            account.overdue = false;
            account.credit = account
                .credit
                .saturating_sub(signed(busy).saturating_mul(WHOLE))
                .max(account.of(REPAY_INTERVAL).saturating_neg());
        }
        self.window = self.window.filter(|window| window.tenant != tenant);
        if self.mode == Mode::Elastic {
            self.even_out();
        }
    }

    /// What to do now. Costs O(tenants).
    pub fn next(&mut self, now: Nanos) -> SliceCommand<Id> {
        self.pass(now);
        if let Some(window) = &mut self.window {
            match window.closed {
                None if now < window.until => {
                    return SliceCommand::Wait {
                        until: Some(window.until),
                    };
                }
                None => {
                    window.closed = Some(now);
                    return SliceCommand::Close {
                        tenant: window.tenant,
                    };
                }
                Some(closed) if now < closed + DRAIN_TIMEOUT => {
                    return SliceCommand::Wait {
                        until: Some(closed + DRAIN_TIMEOUT),
                    };
                }
                Some(_) => {
                    let tenant = window.tenant;
                    self.window = None;
                    if let Some(account) = self.accounts.get_mut(&tenant) {
                        account.overdue = true;
                    }
                }
            }
        }
        let ready =
            |account: &CreditAccount| account.wants && !account.overdue && account.share > 0;
        let best = self
            .accounts
            .iter()
            .filter(|(_, account)| ready(account))
            .max_by(|(_, a), (_, b)| a.level().cmp(&b.level()));
        let Some((tenant, account)) = best.map(|(tenant, account)| (*tenant, *account)) else {
            return SliceCommand::Wait { until: None };
        };
        if account.credit <= 0 && self.mode == Mode::Hard {
            // The one with the highest level is the first whose account is above nothing.
            let missing = account.credit.unsigned_abs() / u64::from(account.share) + 1;
            return SliceCommand::Wait {
                until: Some(now + missing),
            };
        }
        let until = now + WINDOW;
        self.window = Some(TimeSlice {
            tenant,
            until,
            closed: None,
        });
        SliceCommand::Open { tenant, until }
    }

    /// Credit for the time that went by; a clock that goes back gives none.
    fn pass(&mut self, now: Nanos) {
        let gone = now.saturating_sub(self.now);
        self.now = self.now.max(now);
        for account in self.accounts.values_mut() {
            account.credit = account
                .credit
                .saturating_add(account.of(gone))
                .min(account.of(KEPT));
        }
    }

    /// Where every session that wants has used more than its own, what they took was unused: the accounts
    /// rise together until the highest owes nothing, so that a gift is no debt and the next one goes to
    /// the session that had least of them.
    fn even_out(&mut self) {
        let highest = self
            .accounts
            .values()
            .filter(|account| account.wants)
            .map(CreditAccount::level)
            .max();
        let Some(missing) = highest.filter(|level| *level < 0) else {
            return;
        };
        for account in self.accounts.values_mut().filter(|account| account.wants) {
            let rise = -missing * i128::from(account.share) / i128::from(WHOLE);
            account.credit = account
                .credit
                .saturating_add(i64::try_from(rise).unwrap_or(i64::MAX));
        }
    }
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod model;
