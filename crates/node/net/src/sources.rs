//! Event sources of the reactor: epoll, level-triggered. Every watched descriptor has an entry in
//! one table, and an event carries the token of the entry.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
};

use quorate_replica::front::ConnectionId;
use rustix::event::{
    Timespec,
    epoll::{self, EventData, EventFlags},
};
use slotmap::{Key as _, KeyData, SlotMap, new_key_type};

/// Maximum number of events handled in one turn. Further events remain pending.
const EVENTS_MAX: usize = 1024;

/// Events that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Interest {
    pub(crate) const READ: Self = Self { read: true, write: false };
    pub(crate) const WRITE: Self = Self { read: false, write: true };
    /// No events except errors and hang-ups, which the kernel always reports.
    pub(crate) const NOTHING: Self = Self { read: false, write: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: u64,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    /// The connection is closed in both directions. A read or write returns the reason.
    pub(crate) is_broken: bool,
}

/// Reusable buffer for events.
pub(crate) struct Events {
    raw: Vec<epoll::Event>,
    pub(crate) ready: Vec<Ready>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ready.fmt(f)
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { raw: Vec::with_capacity(EVENTS_MAX), ready: Vec::with_capacity(EVENTS_MAX) }
    }
}

new_key_type! {
    /// Key of an entry. A freed entry may be reused, but under another token, so a late event for
    /// the former source is ignored.
    pub(crate) struct Token;

    /// Key of a peer connection. Keys are never reused, even if the entry is.
    pub(crate) struct LinkId;
}

/// Sockets of a packet plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramSocket {
    /// The socket that receives datagrams addressed to this node.
    Unicast,
    /// The socket that receives from the multicast group.
    Group,
}

/// Kind of a watched source, with the key of the connection or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The mailbox, readable when it has mail from other threads.
    Mail,
    /// The host's descriptor for completed work.
    Host,
    PeerListener,
    ClientListener,
    /// The Unix-socket client listener.
    ClientSocket,
    /// The listener for byte stream clients.
    StreamListener,
    /// The listener for clients that send only a stream's bytes.
    RawListener,
    Link(LinkId),
    /// A socket of the packet plane, ready when it has datagrams or can send again.
    Datagrams(DatagramSocket),
    Client(ConnectionId),
    /// The bell of the I/O threads.
    Threads,
    /// An unauthenticated client connection.
    UnauthenticatedClient(ConnectionId),
}

/// The table of sources, and the poller.
#[derive(Debug)]
pub(crate) struct Sources {
    poller: Poller,
    table: SlotMap<Token, Source>,
}

impl Sources {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { poller: Poller::new()?, table: SlotMap::with_key() })
    }

    /// Watches a descriptor. The caller must remove the source when it closes the descriptor.
    pub(crate) fn add(
        &mut self,
        fd: impl AsFd,
        source: Source,
        interest: Interest,
    ) -> io::Result<Token> {
        let token = self.table.insert(source);
        let added = self.poller.add(fd, token.data().as_ffi(), interest);
        if added.is_err() {
            self.table.remove(token);
        }
        added.map(|()| token)
    }

    /// Changes the events that a descriptor is watched for.
    pub(crate) fn change(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        self.poller.change(fd, token.data().as_ffi(), interest)
    }

    /// Assigns a watched descriptor to another source.
    pub(crate) fn set_source(&mut self, token: Token, source: Source) {
        if let Some(place) = self.table.get_mut(token) {
            *place = source;
        }
    }

    /// Removes a source whose descriptor is being closed, which also removes it from epoll.
    pub(crate) fn remove(&mut self, token: Token) {
        self.table.remove(token);
    }

    /// Stops watching a descriptor that stays open.
    pub(crate) fn stop_watching(&mut self, fd: impl AsFd, token: Token) {
        // This fails only for a descriptor that is not watched.
        let _ = epoll::delete(&self.poller.epoll, fd);
        self.table.remove(token);
    }

    /// Returns the source of an event, unless it was removed after the event was reported.
    pub(crate) fn source_of(&self, ready: Ready) -> Option<Source> {
        self.table.get(KeyData::from_ffi(ready.token).into()).copied()
    }

    /// Waits at most `us` microseconds, or without limit if `None`, and stores the events in
    /// `events`.
    pub(crate) fn wait(&self, us: Option<u64>, events: &mut Events) -> io::Result<()> {
        self.poller.wait(us, events)
    }
}

/// An epoll instance that watches descriptors.
#[derive(Debug)]
struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    fn change(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    fn wait(&self, us: Option<u64>, events: &mut Events) -> io::Result<()> {
        let Events { raw, ready } = events;
        raw.clear();
        ready.clear();
        let timeout = us.map(|us| Timespec {
            tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(us % 1_000_000 * 1000).expect("below a thousand million"),
        });
        let spare = rustix::buffer::spare_capacity(raw);
        match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.extend(raw.iter().map(|event| {
            let flags = event.flags;
            Ready {
                token: event.data.u64(),
                is_readable: flags.contains(EventFlags::IN),
                is_writable: flags.contains(EventFlags::OUT),
                is_broken: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            }
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream};

    use super::*;

    const fn client(number: u64) -> Source {
        Source::Client(ConnectionId(number))
    }

    /// Two sockets are ready in one turn; handling the first closes the second and opens a third,
    /// which must not get the second's event.
    #[test]
    fn event_of_a_removed_source_is_not_given_to_its_successor() {
        let mut sources = Sources::new().unwrap();
        let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
        let add = |sources: &mut Sources, index: usize| {
            let source = client(index as u64);
            sources.add(&pairs[index].0, source, Interest::READ).unwrap()
        };
        let first = add(&mut sources, 0);
        let second = add(&mut sources, 1);
        for (_, far) in &pairs[..2] {
            (&*far).write_all(b"x").unwrap();
        }
        let mut events = Events::new();
        sources.wait(Some(0), &mut events).unwrap();
        let seen = |sources: &Sources, events: &Events| {
            let mut seen: Vec<_> =
                events.ready.iter().map(|ready| sources.source_of(*ready)).collect();
            seen.sort_by_key(|source| format!("{source:?}"));
            seen
        };
        assert_eq!(seen(&sources, &events), [Some(client(0)), Some(client(1))]);

        sources.remove(second);
        let third = add(&mut sources, 2);
        assert_eq!(
            third.data().as_ffi() as u32,
            second.data().as_ffi() as u32,
            "the place is used again"
        );
        assert_eq!(seen(&sources, &events), [None, Some(client(0))]);
        sources.remove(first);
        assert_eq!(seen(&sources, &events), [None, None]);
    }

    #[test]
    fn source_that_cannot_be_watched_is_not_added() {
        let mut sources = Sources::new().unwrap();
        let file = tempfile::tempfile().unwrap(); // epoll refuses plain files
        assert!(sources.add(&file, Source::Mail, Interest::READ).is_err());
        assert!(sources.table.is_empty());
    }
}
