//! Table of the clients connected to this node.

use quorate_replica::front::{ConnectionId, Endpoints};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientSlot(usize);

/// State of a connection for CLIENT LIST, as of the last event on it.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientEntry {
    pub(super) id: ConnectionId,
    pub(super) endpoints: Endpoints,
    pub(super) name: String,
    pub(super) user: String,
    /// Name of the client library, as set by the client.
    pub(super) library: String,
    pub(super) library_version: String,
    /// Time of the connection as Unix time in milliseconds.
    pub(super) opened_ms: u64,
    /// Time of the last input as Unix time in milliseconds.
    pub(super) seen_ms: u64,
    /// Number of the selected database.
    pub(super) database: u8,
    pub(super) command: &'static str,
    /// Number of subscribed channels, patterns and shard channels.
    pub(super) subscription_counts: [usize; 3],
    pub(super) blocked: bool,
    pub(super) monitors: bool,
    /// Number of commands queued since MULTI; `None` outside a transaction.
    pub(super) queued_commands: Option<usize>,
    pub(super) protocol: u8,
    pub(super) reads_stale: bool,
    /// Number of unanswered requests.
    pub(super) unanswered_requests: usize,
    /// Number of bytes of unsent replies.
    pub(super) output_bytes: usize,
    /// Total memory of the connection in bytes.
    pub(super) held_bytes: usize,
}

impl ClientEntry {
    pub(super) fn is_listening(&self) -> bool {
        self.subscription_counts != [0; 3]
    }

    /// Returns the line for CLIENT LIST, with the fields that clients parse. Fields without a
    /// meaning here are 0.
    pub(super) fn line(&self, now_ms: u64) -> String {
        let seconds = |since: u64| now_ms.saturating_sub(since) / 1000;
        let mut flags = String::new();
        for (flag, set) in [
            ('P', self.is_listening()),
            ('b', self.blocked),
            ('O', self.monitors),
            ('x', self.queued_commands.is_some()),
            ('r', self.reads_stale),
        ] {
            if set {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let queued =
            self.queued_commands.map_or_else(|| "-1".to_owned(), |count| count.to_string());
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} \
             multi={queued} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll={} omem={} \
             tot-mem={} events=r cmd={} user={} redir=-1 resp={} lib-name={} lib-ver={}\n",
            self.id.0,
            self.endpoints.peer,
            self.endpoints.local,
            self.name,
            seconds(self.opened_ms),
            seconds(self.seen_ms),
            self.database,
            self.subscription_counts[0],
            self.subscription_counts[1],
            self.subscription_counts[2],
            self.unanswered_requests,
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

#[derive(Debug, Default)]
pub(super) struct ClientTable {
    slots: Vec<Option<ClientEntry>>,
    free_slots: Vec<ClientSlot>,
    /// Number of connections accepted since the start.
    pub(super) connections_total: u64,
}

impl ClientTable {
    pub(super) fn add_client(&mut self, guest: ClientEntry) -> ClientSlot {
        self.connections_total += 1;
        match self.free_slots.pop() {
            Some(seat) => {
                self.slots[seat.0] = Some(guest);
                seat
            }
            None => {
                self.slots.push(Some(guest));
                ClientSlot(self.slots.len() - 1)
            }
        }
    }

    pub(super) fn remove_client(&mut self, seat: ClientSlot) {
        if self.entry_mut(seat).is_some() {
            self.slots[seat.0] = None;
            self.free_slots.push(seat);
        }
    }

    pub(super) fn entry_mut(&mut self, seat: ClientSlot) -> Option<&mut ClientEntry> {
        self.slots.get_mut(seat.0)?.as_mut()
    }

    /// Sets the name of a connection. Fails if the name cannot be part of a line of CLIENT LIST.
    pub(super) fn set_name(&mut self, seat: ClientSlot, name: &[u8]) -> Result<(), &'static str> {
        let Some(name) = label(name) else {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.");
        };
        if let Some(guest) = self.entry_mut(seat) {
            guest.name = name;
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// Returns all entries, oldest first.
    pub(super) fn oldest_first(&self) -> Vec<&ClientEntry> {
        let mut guests: Vec<&ClientEntry> = self.slots.iter().flatten().collect();
        guests.sort_unstable_by_key(|guest| guest.id);
        guests
    }
}

/// Returns the text if it can be part of a line of CLIENT LIST.
pub(super) fn label(text: &[u8]) -> Option<String> {
    const LABEL_BYTES_MAX: usize = 256;
    let fits = text.len() <= LABEL_BYTES_MAX && text.iter().all(u8::is_ascii_graphic);
    fits.then(|| String::from_utf8_lossy(text).into_owned())
}
