//! An older copy of the catalog is put in place and served for a while, until the newest is put back: the
//! machines obeyed more than it knows, so it must lead none of them.

use std::collections::BTreeSet;

use rules::messages::Want;
use rules::names::ContainerName;
use server::simulation::CatalogCopy;

use super::{Fault, Kept, Random, Run, TROUBLE};

/// One run in so many, in hundredths.
const RUNS: u64 = 40;

/// When it happens, and what is known of it. Seconds.
#[derive(Default)]
pub(super) struct Older {
    /// None where it does not happen.
    copied_at: Option<u64>,
    served_at: u64,
    seconds: u64,
    copy: Option<CatalogCopy>,
    served: Option<Served>,
}

/// While it is served.
struct Served {
    newest: CatalogCopy,
    until: u64,
    /// What machines were told to have running.
    wanted: BTreeSet<ContainerName>,
}

impl Older {
    pub(super) fn drawn(random: &mut Random) -> Self {
        let copied_at = random.between(15, 50);
        Self {
            copied_at: random.chance(RUNS).then_some(copied_at),
            served_at: copied_at + random.between(10, 30),
            seconds: random.between(8, 20),
            copy: None,
            served: None,
        }
    }

    pub(super) fn is_served(&self) -> bool {
        self.served.is_some()
    }
}

impl Run {
    /// Puts the older catalog in place and the newest back, when it is time. The server starts with either.
    pub(super) fn swap_catalogs(&mut self) -> Kept {
        let failed = |failure| format!("a catalog cannot be put in place: {failure}");
        if let Some(served) = &self.older.served {
            if self.second < served.until {
                return Ok(());
            }
            let served = self.older.served.take().expect("looked at above");
            self.put(&served.newest).map_err(failed)?;
            self.say("the newest catalog is put back".into());
            return Ok(());
        }
        if self.older.copied_at == Some(self.second) {
            self.older.copy = Some(self.server.copy().map_err(failed)?);
        }
        let ends = self.second + self.older.seconds;
        if self.second < self.older.served_at || ends >= TROUBLE {
            return Ok(());
        }
        // Where a machine obeyed nothing since, the copy is as good as the newest.
        let newer = self.older.copy.as_ref().is_some_and(|copy| {
            self.machines.iter().all(|machine| {
                let ledger = machine.fake_node.ledger.as_ref();
                ledger.is_some_and(|list| list.generation > copy.told(machine.fake_node.id))
            })
        });
        let Some(copy) = self.older.copy.take_if(|_| newer) else {
            return Ok(());
        };
        let newest = self.server.copy().map_err(failed)?;
        self.put(&copy).map_err(failed)?;
        self.tally.older_catalogs += 1;
        self.older.served = Some(Served {
            newest,
            until: ends,
            wanted: self.told_to_run(),
        });
        self.say(format!("an older catalog is served until {ends}"));
        Ok(())
    }

    /// Nothing that was on its way reaches the next server, and the disk has room.
    fn put(&mut self, copy: &CatalogCopy) -> Result<(), server::Failure> {
        self.server.fill_disk(false);
        self.disk_free_at = 0;
        self.mail.clear();
        self.server.put_back(copy)?;
        self.crashed_at = self.second;
        self.late.clear();
        self.server_back_at = self.second;
        self.read = None;
        Ok(())
    }

    fn told_to_run(&self) -> BTreeSet<ContainerName> {
        let lists = self
            .machines
            .iter()
            .filter_map(|m| m.fake_node.ledger.as_ref());
        lists
            .flat_map(|list| &list.containers)
            .filter(|order| matches!(order.want, Want::Run | Want::Pause))
            .map(|order| order.name)
            .collect()
    }

    /// Whether this run goes on as if root had accepted the older catalog.
    pub(super) fn quarantine_is_ignored(&self) -> bool {
        self.fault == Some(Fault::QuarantineIgnored) && self.older.is_served()
    }

    /// While an older catalog is served, no machine is told to end what it was told to have.
    pub(super) fn older_ends_nothing(&self) -> Kept {
        let Some(served) = &self.older.served else {
            return Ok(());
        };
        let wanted = self.told_to_run();
        match served.wanted.difference(&wanted).next() {
            Some(name) => Err(format!(
                "{name} is to end, because an older catalog is served"
            )),
            None => Ok(()),
        }
    }
}
