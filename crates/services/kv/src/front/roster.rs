//! The connected clients.

use quorate_replica::front::{ConnectionId, Endpoints};

/// Index of a connection in the roster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat(usize);

/// Reported state of a connection. Its numbers are those of its last event.
#[derive(Clone, Debug, Default)]
pub(super) struct Guest {
    pub(super) id: ConnectionId,
    pub(super) endpoints: Endpoints,
    pub(super) name: String,
    /// Authenticated user.
    pub(super) user: String,
    /// Name of the client's library, as sent by it.
    pub(super) library: String,
    pub(super) library_version: String,
    /// Time of the connect: Unix time in milliseconds.
    pub(super) opened_ms: u64,
    /// Time of its last input: Unix time in milliseconds.
    pub(super) seen_ms: u64,
    /// Its last command.
    pub(super) command: &'static str,
    /// Channels, patterns and channels of shards that it listens to.
    pub(super) listens: [usize; 3],
    /// Waits for an element.
    pub(super) blocked: bool,
    pub(super) monitors: bool,
    /// Commands queued since MULTI.
    pub(super) queued: Option<usize>,
    pub(super) protocol: u8,
    pub(super) stale: bool,
    /// Requests that are not answered.
    pub(super) waiting: usize,
    /// Bytes of replies that were not sent.
    pub(super) output_bytes: usize,
    /// All memory that is held for it, in bytes.
    pub(super) held_bytes: usize,
}

impl Guest {
    /// Returns whether it has subscriptions.
    pub(super) fn is_listening(&self) -> bool {
        self.listens != [0; 3]
    }

    /// The line that CLIENT LIST has, with the fields that clients look for. What has no meaning
    /// here is 0.
    pub(super) fn line(&self, now_ms: u64) -> String {
        let seconds = |since: u64| now_ms.saturating_sub(since) / 1000;
        let mut flags = String::new();
        for (flag, set) in [
            ('P', self.is_listening()),
            ('b', self.blocked),
            ('O', self.monitors),
            ('x', self.queued.is_some()),
            ('r', self.stale),
        ] {
            if set {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let queued = self.queued.map_or_else(|| "-1".to_owned(), |count| count.to_string());
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db=0 sub={} psub={} ssub={} \
             multi={queued} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll={} omem={} \
             tot-mem={} events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}\n",
            self.id.0,
            self.endpoints.peer,
            self.endpoints.local,
            self.name,
            seconds(self.opened_ms),
            seconds(self.seen_ms),
            self.listens[0],
            self.listens[1],
            self.listens[2],
            self.waiting,
            self.output_bytes,
            self.held_bytes,
            self.command,
            self.user,
            self.protocol,
            self.library,
            self.library_version,
        )
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Roster {
    seats: Vec<Option<Guest>>,
    free: Vec<Seat>,
    /// Connections since the start.
    pub(super) came: u64,
}

impl Roster {
    pub(super) fn enter(&mut self, guest: Guest) -> Seat {
        self.came += 1;
        match self.free.pop() {
            Some(seat) => {
                self.seats[seat.0] = Some(guest);
                seat
            }
            None => {
                self.seats.push(Some(guest));
                Seat(self.seats.len() - 1)
            }
        }
    }

    pub(super) fn leave(&mut self, seat: Seat) {
        if self.guest(seat).is_some() {
            self.seats[seat.0] = None;
            self.free.push(seat);
        }
    }

    pub(super) fn guest(&mut self, seat: Seat) -> Option<&mut Guest> {
        self.seats.get_mut(seat.0)?.as_mut()
    }

    /// Names a connection. Not every name fits into a line.
    pub(super) fn set_name(&mut self, seat: Seat, name: &[u8]) -> Result<(), &'static str> {
        let Some(name) = label(name) else {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        };
        if let Some(guest) = self.guest(seat) {
            guest.name = name;
        }
        Ok(())
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.seats.len() - self.free.len()
    }

    /// All of them, those that came first in front.
    pub(super) fn all(&self) -> Vec<&Guest> {
        let mut guests: Vec<&Guest> = self.seats.iter().flatten().collect();
        guests.sort_unstable_by_key(|guest| guest.id);
        guests
    }
}

/// A text that fits into a line of CLIENT LIST.
pub(super) fn label(text: &[u8]) -> Option<String> {
    const LABEL_BYTES_MAX: usize = 256;
    let fits = text.len() <= LABEL_BYTES_MAX && text.iter().all(u8::is_ascii_graphic);
    fits.then(|| String::from_utf8_lossy(text).into_owned())
}
