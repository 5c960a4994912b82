//! How many connections there are: on which no key was proven yet, of one address, and of users. Closes none itself: it
//! tells a stranger to go where there are too many.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rules::names::UserId;
use rules::refusal::Refusal;
use rules::refusals;
use tokio::sync::Notify;

/// Connections on which no key was proven. At the edge the oldest of the address that has most goes for the new one.
/// Higher: a flood takes more memory and handshakes. Lower: a flood closes a user's before the key was proven.
const MAX_STRANGERS: usize = 64;
/// Of these, connections of one address (IPv6: one /64); loopback is not counted, since a proxy on this machine brings
/// every caller by it. Lower: a class behind one router waits to come in.
const MAX_STRANGERS_OF_ADDRESS: usize = 8;
/// Connections of users.
const MAX_SIGNED_IN: usize = 512;
/// Of these, connections of one user. Higher: a few users take all places, and one more memory. Lower: programs that
/// connect many times at once are refused.
const MAX_OF_USER: usize = 32;

/// The book of connections.
pub(super) struct SshPlaces(Mutex<PlaceTable>);

#[derive(Default)]
struct PlaceTable {
    next: u64,
    /// By age, oldest first.
    strangers: BTreeMap<u64, StrangerEntry>,
    signed_in: usize,
    users: HashMap<UserId, usize>,
}

struct StrangerEntry {
    /// None on loopback.
    address: Option<IpAddr>,
    end: Arc<Notify>,
}

/// The place of one connection, given back when it is dropped.
pub(super) struct SshPlace {
    places: Arc<SshPlaces>,
    number: u64,
    end: Arc<Notify>,
    /// None until a key was proven.
    user: Option<UserId>,
}

impl SshPlaces {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// A place for a stranger; None where their address has as many as it may have.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<SshPlace> {
        let address = counted(peer);
        let mut table = self.table();
        let of_address = |entry: &&StrangerEntry| entry.address == address;
        if address.is_some()
            && table.strangers.values().filter(of_address).count() >= MAX_STRANGERS_OF_ADDRESS
        {
            return None;
        }
        if table.strangers.len() >= MAX_STRANGERS {
            table.evict();
        }
        let number = table.next;
        table.next += 1;
        let end = Arc::new(Notify::new());
        let entry = StrangerEntry {
            address,
            end: Arc::clone(&end),
        };
        table.strangers.insert(number, entry);
        drop(table);
        Some(SshPlace {
            places: Arc::clone(self),
            number,
            end,
            user: None,
        })
    }

    fn table(&self) -> MutexGuard<'_, PlaceTable> {
        // The book is whole after every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlaceTable {
    /// Tells the oldest stranger of the address that has most to go: a flood closes its own before those of others.
    fn evict(&mut self) {
        let mut of_address: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for entry in self.strangers.values() {
            *of_address.entry(entry.address).or_default() += 1;
        }
        let most = of_address.values().copied().max();
        let first = self
            .strangers
            .iter()
            .find(|(_, entry)| of_address.get(&entry.address).copied() == most)
            .map(|(number, _)| *number);
        if let Some(entry) = first.and_then(|number| self.strangers.remove(&number)) {
            entry.end.notify_one();
        }
    }
}

impl SshPlace {
    /// Waits until another one needs the place.
    pub(super) async fn evicted(&self) {
        self.end.notified().await;
    }

    /// A key was proven on it: it is this user's from now on. To be called once.
    ///
    /// Errors: `ssh.full` and `ssh.too-many` where users, or this one, have as many as they may have.
    pub(super) fn known(&mut self, user: UserId) -> Result<(), Refusal> {
        let mut table = self.places.table();
        table.strangers.remove(&self.number);
        if table.signed_in >= MAX_SIGNED_IN {
            return Err(refusals::ssh_full(MAX_SIGNED_IN));
        }
        let own = table.users.entry(user).or_default();
        if *own >= MAX_OF_USER {
            return Err(refusals::ssh_too_many(MAX_OF_USER));
        }
        *own += 1;
        table.signed_in += 1;
        self.user = Some(user);
        Ok(())
    }
}

impl Drop for SshPlace {
    fn drop(&mut self) {
        let mut table = self.places.table();
        table.strangers.remove(&self.number);
        let Some(user) = self.user else {
            return;
        };
        table.signed_in -= 1;
        if let Some(own) = table.users.get_mut(&user) {
            *own -= 1;
            if *own == 0 {
                table.users.remove(&user);
            }
        }
    }
}

/// What is counted by: the address, of IPv6 the network that one subscriber has.
fn counted(peer: IpAddr) -> Option<IpAddr> {
    match peer.to_canonical() {
        address if address.is_loopback() => None,
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            Some(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
        }
        four => Some(four),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn went(place: &SshPlace) -> bool {
        !place.places.table().strangers.contains_key(&place.number)
    }

    #[test]
    fn strangers_are_few_the_oldest_goes_and_an_address_has_its_share() {
        let places = SshPlaces::new();
        let own: Vec<_> = (0..MAX_STRANGERS_OF_ADDRESS)
            .map(|_| places.enter(address(1)).expect("there is room"))
            .collect();
        assert!(places.enter(address(1)).is_none(), "one more of an address");
        let mut others = Vec::new();
        for number in 0..MAX_STRANGERS - MAX_STRANGERS_OF_ADDRESS {
            let number = u8::try_from(number / 8 + 2).expect("few");
            others.push(places.enter(address(number)).expect("there is room"));
        }
        assert!(!went(&own[0]));
        let newest = places.enter(address(200)).expect("the oldest goes");
        assert!(went(&own[0]) && !went(&own[1]) && !went(&newest));
        // From this machine any number comes, and the book stays as long.
        let here: Vec<_> = (0..200)
            .map(|_| places.enter(IpAddr::from([127, 0, 0, 1])).expect("counted"))
            .collect();
        assert_eq!(places.table().strangers.len(), MAX_STRANGERS);
        drop((own, others, newest, here));
        assert!(places.table().strangers.is_empty());
    }

    #[test]
    fn a_flood_of_some_addresses_closes_its_own() {
        let places = SshPlaces::new();
        let user = places.enter(address(1)).expect("there is room");
        let mut flood = Vec::new();
        for number in 0..4 * MAX_STRANGERS {
            let number = u8::try_from(number % 32 + 2).expect("few");
            flood.extend(places.enter(address(number)));
        }
        assert_eq!(places.table().strangers.len(), MAX_STRANGERS);
        assert!(!went(&user));
    }

    #[test]
    fn users_have_places_of_their_own() {
        let places = SshPlaces::new();
        let user = |number: usize| UserId(uuid::Uuid::from_u128(number as u128));
        let ask = |user: UserId| {
            let mut place = places.enter(address(1)).expect("a stranger has room");
            match place.known(user) {
                Ok(()) => Ok(place),
                Err(refusal) => Err(refusal.code),
            }
        };
        let mut known = Vec::new();
        for number in 0..MAX_SIGNED_IN {
            let place = ask(user(number / MAX_OF_USER));
            known.push(place.expect("there is room"));
        }
        let another = user(MAX_SIGNED_IN);
        assert_eq!(ask(another).err().as_deref(), Some("ssh.full"));
        known.pop();
        assert_eq!(ask(user(0)).err().as_deref(), Some("ssh.too-many"));
        known.extend(ask(another));
        assert_eq!(places.table().signed_in, MAX_SIGNED_IN);
        drop(known);
        let table = places.table();
        assert!(table.signed_in == 0 && table.users.is_empty());
    }
}
