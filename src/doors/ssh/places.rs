//! How many connections there are: on which no key was proven yet, of one address, and of users. Closes none itself: it
//! tells the oldest stranger to go where there are too many.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Connections on which no key was proven. At the edge the oldest one goes for the new one. Higher: a flood takes more
/// memory and handshakes. Lower: a flood closes a user's before the key was proven.
const MAX_STRANGERS: usize = 64;
/// Of these, connections of one address (IPv6: one /64); loopback is not counted, since a proxy on this machine brings
/// every caller by it. Lower: a class behind one router waits to come in.
const MAX_STRANGERS_OF_ADDRESS: usize = 8;
/// Connections of users.
pub(super) const MAX_SIGNED_IN: usize = 512;

/// The book of connections.
pub(super) struct SshPlaces(Mutex<PlaceTable>);

#[derive(Default)]
struct PlaceTable {
    next: u64,
    /// By age, oldest first.
    strangers: BTreeMap<u64, StrangerEntry>,
    signed_in: usize,
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
    signed_in: bool,
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
        if table.strangers.len() >= MAX_STRANGERS
            && let Some((_, oldest)) = table.strangers.pop_first()
        {
            oldest.end.notify_one();
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
            signed_in: false,
        })
    }

    fn table(&self) -> MutexGuard<'_, PlaceTable> {
        // The book is whole after every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SshPlace {
    /// Waits until another one needs the place.
    pub(super) async fn evicted(&self) {
        self.end.notified().await;
    }

    /// A key was proven on it: it is a user's from now on. False where users have as many as there may be.
    pub(super) fn known(&mut self) -> bool {
        let mut table = self.places.table();
        table.strangers.remove(&self.number);
        if table.signed_in >= MAX_SIGNED_IN {
            return false;
        }
        table.signed_in += 1;
        self.signed_in = true;
        true
    }
}

impl Drop for SshPlace {
    fn drop(&mut self) {
        let mut table = self.places.table();
        table.strangers.remove(&self.number);
        if self.signed_in {
            table.signed_in -= 1;
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
    fn users_have_places_of_their_own() {
        let places = SshPlaces::new();
        let mut known = Vec::new();
        for _ in 0..MAX_SIGNED_IN {
            let mut place = places.enter(address(1)).expect("there is room");
            assert!(place.known());
            known.push(place);
        }
        let mut more = places.enter(address(1)).expect("a stranger has room");
        assert!(!more.known());
        known.pop();
        let mut again = places.enter(address(1)).expect("a stranger has room");
        assert!(again.known());
        drop((known, more, again));
        assert_eq!(places.table().signed_in, 0);
    }
}
