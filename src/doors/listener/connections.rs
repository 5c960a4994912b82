//! Holds the book of open connections: how many in all, of one address and of one user, and until
//! when each may keep silent. Closes those whose time is over, and those that others need the place of.
//! Never reads or writes what a connection carries.
//!
//! A connection is *unknown* until a request on it was proven to be a user's; then it is *known*.
//! Unknown ones have a part of the places only, so that no stranger takes those of users at work.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::TcpUserTimeout;
use nix::sys::socket::{Shutdown, setsockopt, shutdown};
use rules::names::UserId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Connections of all ports together. Higher: a flood takes the memory of the sessions. Lower: a class of
/// eighty with six tabs each waits. At the edge the next one waits in the kernel.
const MAX_CONNECTIONS: usize = 2048;
/// Of these, connections on which no user was proven yet. At the edge the one that idles longest is closed
/// for the new one. Higher: less room for users at work. Lower: a flood closes a visitor's before its
/// first request came.
const MAX_UNKNOWN: usize = 512;
/// Of these, connections of one address (IPv6: one /64); loopback is not counted, since a proxy on this
/// machine brings everybody by it. Lower: a class behind one router waits to sign in.
const MAX_PER_ADDRESS: usize = 256;
/// Known connections of one user. Further ones stay unknown: served, and the first to be closed.
const MAX_PER_USER: usize = 256;

/// How long a connection may take to say its first byte, then to shake hands, then to bring the first
/// request whole.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// How long a request may take on a connection where no user was proven, answer read included. Longer: who
/// does not read holds a place. Shorter: a sign-in waits in the queue of sign-ins in vain.
const UNPROVEN: Duration = Duration::from_secs(60);
/// How long an unknown connection may rest between requests.
const REST_UNKNOWN: Duration = Duration::from_secs(30);
/// How long a known connection may rest between requests.
const REST_KNOWN: Duration = Duration::from_secs(300);
/// How long a connection that was asked to end may take.
const LAST_WORD: Duration = Duration::from_secs(2);
/// How long a client may take nothing of what is there for it: of the bytes in the socket, which then is
/// closed, or of one answer over HTTP/2, whose window it keeps shut and which then ends alone. Longer: answers
/// that are not read hold memory. Shorter: a user who stops reading a log for a moment loses it.
const UNREAD: Duration = Duration::from_secs(30);
/// How often deadlines are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Every open connection of the network.
pub(crate) struct Connections {
    room: Arc<Semaphore>,
    book: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    next: u64,
    /// By age, oldest first.
    open: BTreeMap<u64, ConnectionEntry>,
}

struct ConnectionEntry {
    /// Open as long as the entry stands: the entry goes first.
    socket: RawFd,
    /// None on loopback.
    address: Option<IpAddr>,
    owner: Option<UserId>,
    /// Requests that are being answered.
    requests: usize,
    /// Answers over HTTP/2 of which a piece lies ready: since when, and what is rung when it was not taken.
    unread: BTreeMap<u64, (Instant, Arc<Notify>)>,
    /// Requests that there ever were.
    numbered: u64,
    /// It became something else than HTTP: a terminal, a tunnel.
    upgraded: bool,
    spoke: bool,
    closing: bool,
    until: Option<Instant>,
    end: Arc<Notify>,
}

impl ConnectionEntry {
    fn idle(&self) -> bool {
        self.requests == 0 && !self.upgraded
    }

    fn unknown(&self) -> bool {
        self.owner.is_none() && !self.closing
    }

    fn close(&mut self) {
        self.closing = true;
        self.until = None;
        // It may have ended by itself meanwhile.
        let _ = shutdown(self.socket, Shutdown::Both);
    }
}

impl ConnectionTable {
    /// The address with most unknown connections where there are at least `most` in all: who came with many
    /// gives way before who came with one.
    fn most_crowded(&self, most: usize) -> Option<Option<IpAddr>> {
        let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
        for entry in self.open.values().filter(|entry| entry.unknown()) {
            *counts.entry(entry.address).or_default() += 1;
        }
        if counts.values().sum::<usize>() < most {
            return None;
        }
        counts
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(address, _)| address)
    }

    /// Closes the oldest unknown connection that this holds for, one that idles before one that does not.
    fn make_room(&mut self, most: usize, counted: impl Fn(&ConnectionEntry) -> bool) {
        let of = |entry: &&mut ConnectionEntry| entry.unknown() && counted(entry);
        if self.open.values_mut().filter(of).count() < most {
            return;
        }
        let idle = |entry: &&mut ConnectionEntry| of(entry) && entry.idle();
        if let Some(oldest) = self.open.values_mut().find(idle) {
            return oldest.close();
        }
        if let Some(oldest) = self.open.values_mut().find(of) {
            oldest.close();
        }
    }
}

/// What limits count by: the address, of IPv6 the network that one subscriber has.
pub(super) fn counted(peer: IpAddr) -> Option<IpAddr> {
    match peer.to_canonical() {
        address if address.is_loopback() => None,
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            Some(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
        }
        four => Some(four),
    }
}

impl Connections {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            book: Mutex::default(),
        })
    }

    /// Waits until there is room for one more.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// Writes a connection down; an unknown one that idles may have to go for it.
    pub(super) fn enter(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        permit: OwnedSemaphorePermit,
    ) -> CountedConnection {
        // The kernel closes a connection whose peer takes nothing, an end that is gone included.
        let unread = u32::try_from(UNREAD.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = setsockopt(&stream, TcpUserTimeout, &unread) {
            tracing::debug!(%peer, %error, "a connection has no limit of silence while it is written to");
        }
        let address = counted(peer.ip());
        let mut book = self.book();
        if address.is_some() {
            book.make_room(MAX_PER_ADDRESS, |entry| entry.address == address);
        }
        if let Some(crowded) = book.most_crowded(MAX_UNKNOWN) {
            book.make_room(1, |entry| entry.address == crowded);
        }
        let number = book.next;
        book.next += 1;
        let entry = ConnectionEntry {
            socket: stream.as_raw_fd(),
            address,
            owner: None,
            requests: 0,
            unread: BTreeMap::new(),
            numbered: 0,
            upgraded: false,
            spoke: false,
            closing: false,
            until: Some(Instant::now() + FIRST_WORD),
            end: Arc::default(),
        };
        book.open.insert(number, entry);
        drop(book);
        CountedConnection {
            _place: ConnectionPlace {
                line: ConnectionHandle {
                    connections: Arc::clone(self),
                    number,
                },
                _permit: permit,
            },
            stream,
        }
    }

    /// Keeps the deadlines until `leaving`.
    pub(crate) async fn keep(self: Arc<Self>, mut leaving: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => self.close_late(Instant::now()),
                _ = leaving.wait_for(|leave| *leave) => return,
            }
        }
    }

    /// Closes what is over its time at `now`. One that has spoken is asked to end first.
    fn close_late(&self, now: Instant) {
        for entry in self.book().open.values_mut() {
            for (since, stuck) in entry.unread.values() {
                if now >= *since + UNREAD {
                    stuck.notify_one();
                }
            }
            if entry.until.is_none_or(|until| now < until) {
                continue;
            }
            if std::mem::take(&mut entry.spoke) && entry.idle() {
                entry.until = Some(now + LAST_WORD);
                entry.end.notify_one();
            } else {
                entry.close();
            }
        }
    }

    fn book(&self) -> MutexGuard<'_, ConnectionTable> {
        // Numbers and flags are whole after every step.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's line in the book.
#[derive(Clone)]
pub(super) struct ConnectionHandle {
    connections: Arc<Connections>,
    number: u64,
}

impl ConnectionHandle {
    fn with<T>(&self, change: impl FnOnce(&mut ConnectionEntry) -> T) -> Option<T> {
        self.connections
            .book()
            .open
            .get_mut(&self.number)
            .map(change)
    }

    /// The connection got a step further: the time for the first request begins again.
    pub(super) fn further(&self) {
        self.with(|entry| entry.until = Some(Instant::now() + FIRST_WORD));
    }

    /// Rung when the connection should end after the answers under way.
    pub(super) fn end(&self) -> Arc<Notify> {
        self.with(|entry| Arc::clone(&entry.end))
            .unwrap_or_default()
    }

    /// A request came; it is being answered until the value is dropped.
    pub(super) fn request(&self) -> ActiveRequest {
        let number = self.with(|entry| {
            entry.spoke = true;
            entry.requests += 1;
            entry.numbered += 1;
            if entry.owner.is_some() {
                entry.until = None;
            } else if entry.requests == 1 {
                entry.until = Some(Instant::now() + UNPROVEN);
            }
            entry.numbered
        });
        ActiveRequest {
            line: self.clone(),
            number: number.unwrap_or_default(),
        }
    }

    /// A request on it was proven to be this user's.
    pub(super) fn known(&self, user: UserId) {
        let mut book = self.connections.book();
        if book
            .open
            .get(&self.number)
            .is_none_or(|entry| entry.closing || entry.owner.is_some())
        {
            return;
        }
        let known = book.open.values().filter(|entry| entry.owner.is_some());
        let of_user = known.clone().filter(|entry| entry.owner == Some(user));
        let room = of_user.count() < MAX_PER_USER && known.count() < MAX_CONNECTIONS - MAX_UNKNOWN;
        if let Some(entry) = book.open.get_mut(&self.number) {
            // Proven in any case: a stream may be long, whether its place is kept or not.
            entry.until = None;
            entry.owner = room.then_some(user);
        }
    }

    /// It carries something else than requests from now on.
    pub(super) fn upgraded(&self) {
        self.with(|entry| {
            entry.upgraded = true;
            entry.until = None;
        });
    }
}

/// A request that is being answered.
pub(super) struct ActiveRequest {
    line: ConnectionHandle,
    number: u64,
}

impl ActiveRequest {
    /// A piece of its answer lies ready: from now on the client has a time to take it, after which `stuck`
    /// is rung.
    pub(super) fn lies_ready(&self, stuck: &Arc<Notify>) {
        let since = (Instant::now(), Arc::clone(stuck));
        self.line
            .with(|entry| entry.unread.insert(self.number, since));
    }

    /// All there is of its answer was taken; the client waits for us.
    pub(super) fn taken(&self) {
        self.line.with(|entry| entry.unread.remove(&self.number));
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.line.with(|entry| {
            entry.requests -= 1;
            entry.unread.remove(&self.number);
            if entry.idle() && !entry.closing {
                let rest = match entry.owner {
                    Some(_) => REST_KNOWN,
                    None => REST_UNKNOWN,
                };
                entry.until = Some(Instant::now() + rest);
            }
        });
    }
}

struct ConnectionPlace {
    line: ConnectionHandle,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.line.connections.book().open.remove(&self.line.number);
    }
}

/// A connection with its place. The order matters: the place goes before the socket is closed, so that
/// the book never holds a number that the kernel has given to another file.
pub(super) struct CountedConnection {
    _place: ConnectionPlace,
    stream: TcpStream,
}

impl CountedConnection {
    pub(super) fn line(&self) -> ConnectionHandle {
        self._place.line.clone()
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for CountedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for CountedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    struct Door {
        connections: Arc<Connections>,
        listener: TcpListener,
    }

    impl Door {
        async fn open() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            Self {
                connections: Connections::new(),
                listener,
            }
        }

        /// A user's connection, as if it came from this address.
        async fn knock(&self, from: &str) -> (TcpStream, CountedConnection) {
            let client = TcpStream::connect(self.listener.local_addr().expect("bound"))
                .await
                .expect("listening");
            let (stream, _) = self.listener.accept().await.expect("somebody");
            let permit = self.connections.room().await.expect("open");
            let peer = SocketAddr::new(from.parse().expect("an address"), 1);
            (client, self.connections.enter(stream, peer, permit))
        }
    }

    fn closing(seat: &CountedConnection) -> bool {
        seat.line().with(|entry| entry.closing).expect("seated")
    }

    #[test]
    fn addresses_are_counted_as_subscribers_have_them() {
        let of = |text: &str| counted(text.parse().expect("an address")).map(|a| a.to_string());
        for (address, expected) in [
            ("10.0.0.7", Some("10.0.0.7")),
            ("::ffff:10.0.0.7", Some("10.0.0.7")),
            ("2001:db8:1:2:3:4:5:6", Some("2001:db8:1:2::")),
            ("127.0.0.1", None),
            ("::ffff:127.0.0.1", None),
            ("::1", None),
        ] {
            assert_eq!(of(address).as_deref(), expected, "{address}");
        }
    }

    #[tokio::test]
    async fn an_address_closes_its_own_oldest_idle_connection_and_nobody_elses() {
        let door = Door::open().await;
        let neighbour = door.knock("10.0.0.8").await;
        let mut seats = Vec::new();
        for _ in 0..MAX_PER_ADDRESS {
            seats.push(door.knock("10.0.0.7").await);
        }
        let working = seats[0].1.line().request();
        assert!(seats.iter().all(|(_, seat)| !closing(seat)));
        let newest = door.knock("10.0.0.7").await;
        assert!(!closing(&newest.1) && !closing(&neighbour.1));
        assert!(!closing(&seats[0].1), "one that works stays");
        assert!(closing(&seats[1].1), "the oldest that idles goes");
        drop(working);
        // A proxy on this machine brings everybody.
        for _ in 0..=MAX_PER_ADDRESS {
            let (_, seat) = door.knock("127.0.0.1").await;
            assert!(!closing(&seat));
        }
    }

    #[tokio::test]
    async fn a_user_keeps_so_many_places_and_strangers_take_none_of_them() {
        let door = Door::open().await;
        let user = UserId(uuid::Uuid::now_v7());
        let mut known = Vec::new();
        for _ in 0..=MAX_PER_USER {
            let seat = door.knock("127.0.0.1").await;
            seat.1.line().known(user);
            known.push(seat);
        }
        let unknown =
            |seat: &CountedConnection| seat.line().with(|entry| entry.unknown()).expect("seated");
        assert!(unknown(&known[MAX_PER_USER].1), "one too many");
        let mut strangers = Vec::new();
        for _ in 0..MAX_UNKNOWN + 7 {
            strangers.push(door.knock("127.0.0.1").await);
        }
        assert_eq!(
            known.iter().filter(|(_, seat)| closing(seat)).count(),
            1,
            "only the one too many"
        );
        assert_eq!(
            strangers.iter().filter(|(_, seat)| closing(seat)).count(),
            7
        );
    }

    #[tokio::test]
    async fn every_silence_has_its_end_but_that_of_users_at_work() {
        let door = Door::open().await;
        let user = UserId(uuid::Uuid::now_v7());
        let after = |wait: Duration| {
            door.connections
                .close_late(Instant::now() + wait + Duration::from_millis(1));
        };
        let silent = door.knock("10.0.0.7").await;
        after(FIRST_WORD);
        assert!(closing(&silent.1));

        let slow = door.knock("10.0.0.7").await;
        let request = slow.1.line().request();
        after(FIRST_WORD);
        assert!(!closing(&slow.1));
        after(UNPROVEN);
        assert!(closing(&slow.1), "whoever is unproven is answered or gone");
        drop(request);

        let resting = door.knock("10.0.0.7").await;
        drop(resting.1.line().request());
        let line = resting.1.line();
        after(REST_UNKNOWN);
        assert!(!closing(&resting.1), "it is asked first");
        line.end().notified().await;
        after(REST_UNKNOWN + LAST_WORD);
        assert!(closing(&resting.1));

        let working = door.knock("10.0.0.7").await;
        let stream = working.1.line().request();
        working.1.line().known(user);
        let terminal = door.knock("10.0.0.7").await;
        terminal.1.line().known(user);
        terminal.1.line().upgraded();
        after(Duration::from_secs(86_400));
        assert!(!closing(&working.1) && !closing(&terminal.1));
        drop(stream);
        after(REST_KNOWN);
        after(REST_KNOWN + LAST_WORD);
        assert!(closing(&working.1) && !closing(&terminal.1));
    }
}
