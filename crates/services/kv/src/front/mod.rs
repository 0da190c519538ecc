//! Redis front end: client connections as state machines, without sockets.

use quorate_access::{Checker, PendingChecks};
use quorate_core::time::Time;
use quorate_replica::{
    front::{
        Completion, ConnectionId, Endpoints, Failure, Front, RefusalCounts, Requests, State, Tag,
    },
    pressure::heaviest,
};
use rustc_hash::FxHashMap;

use crate::commands::{events::Setting, state::notice};
use crate::resp::request::{ARGUMENTS_MAX, FRAMING_BYTES_MAX, Parsed, ProtocolError};
use crate::store::Database;

mod access;
mod announcing;
mod answers;
mod asked;
mod buffers;
mod census;
mod channels;
mod client;
mod cluster;
mod connection;
mod entries;
mod errors;
mod info;
mod latency;
mod monitor;
mod notices;
mod order;
mod readers;
mod refusals;
mod returning;
mod roster;
mod settings;
mod shared;
mod slow;
mod subcommands;
mod switching;
mod table;
mod tally;
mod topology;
mod tracking;
mod traffic;
mod transaction;
mod turns;
mod waiting;

use self::{
    access::Login,
    connection::{Connection, HTTP, starts_http},
    roster::ClientEntry,
    shared::{CompletionOwner, Shared, Target},
};
pub use settings::{ClusterMode, CpuTime, Memory, Settings};

/// Returns the maximum number of bytes that an incomplete request on one connection may occupy in
/// the reactor.
pub const fn input_bytes_max(command_bytes_max: usize) -> usize {
    command_bytes_max.saturating_add(FRAMING_BYTES_MAX)
}

// The framing of all arguments fits.
const _: () = assert!(FRAMING_BYTES_MAX > ARGUMENTS_MAX * 13);

#[derive(Debug)]
pub struct RespFront {
    connections: FxHashMap<ConnectionId, Connection>,
    shared: Shared,
}

impl RespFront {
    pub fn new(settings: Settings) -> Self {
        Self { connections: FxHashMap::default(), shared: Shared::new(settings) }
    }

    #[must_use]
    pub fn with_checker(mut self, checker: Box<dyn Checker + Send>) -> Self {
        self.shared.password_checks = PendingChecks::new(checker);
        self
    }

    /// Uses the service's event setting, so that clients can change it.
    #[must_use]
    pub fn with_events(mut self, events: Setting) -> Self {
        self.shared.events = events;
        self
    }

    /// Disconnects a client. Its unsent replies are lost.
    fn disconnect_client(&mut self, connection: ConnectionId) {
        if let Some(client) = self.connections.get_mut(&connection) {
            client.drop_connection();
            client.request_early_timeout(&mut self.shared);
            client.update_charged_bytes(&mut self.shared);
            client.queue_for_reactor(&mut self.shared);
        }
    }

    /// Disconnects the clients with the most memory until `bytes` more bytes fit ([hold-1]). This
    /// affects slow readers rather than the receiver of the next message.
    fn free_memory(&mut self, bytes: usize) {
        while self.shared.is_full(bytes) {
            let held = self.connections.iter().map(|(id, client)| (*id, client.held_bytes()));
            let of = self.shared.settings.client_bytes_max;
            let Some((id, held)) = heaviest(usize::MAX, of, held).filter(|(_, held)| *held > bytes)
            else {
                return;
            };
            if self.should_close(id) {
                return;
            }
            self.disconnect_client(id);
            if let Some(untold) =
                self.shared.oversized_clients.allow_line(Time(self.shared.tally.now_ms * 1000))
            {
                tracing::warn!(
                    client = id.0,
                    held,
                    of,
                    untold,
                    "closed the client that held most of the memory for clients (--client-memory)"
                );
            }
        }
    }

    #[cold]
    fn show_monitors(&mut self, requests: &dyn Requests) {
        let lines = self.shared.monitors.take_lines();
        for watcher in self.shared.monitors.connections() {
            self.free_memory(lines.len());
            if let Some(client) = self.connections.get_mut(&watcher) {
                client.end_forbidden_streams(&mut self.shared, requests);
                client.watch_lines(&lines, &mut self.shared);
                client.update_charged_bytes(&mut self.shared);
                client.queue_for_reactor(&mut self.shared);
            }
        }
        self.shared.monitors.reuse_buffer(lines);
    }
}

impl Front for RespFront {
    fn handle_opened(
        &mut self,
        connection: ConnectionId,
        ends: Endpoints,
        requests: &mut dyn Requests,
    ) {
        let now_ms = requests.wall_ms();
        let login = Login::new(ends.identity.clone());
        let seat = self.shared.clients.add_client(ClientEntry {
            id: connection,
            user: login.name().to_owned(),
            endpoints: ends,
            opened_ms: now_ms,
            seen_ms: now_ms,
            command: "NULL",
            protocol: 2,
            ..ClientEntry::default()
        });
        self.connections.insert(connection, Connection::new(connection, seat, login));
    }

    fn receive_bytes(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        requests: &mut dyn Requests,
    ) -> usize {
        let Some(client) = self.connections.get_mut(&connection) else {
            return bytes.len();
        };
        self.shared.tally.set_clock(requests.wall_ms());
        self.shared.traffic.sample(requests.wall_ms());
        let used = receive_requests(client, bytes, &mut self.shared, requests);
        self.shared.traffic.add_received(used);
        client.update_charged_bytes(&mut self.shared);
        client.update_entry(requests.wall_ms(), &mut self.shared);
        client.queue_for_reactor(&mut self.shared);
        for killed in std::mem::take(&mut self.shared.clients_to_kill) {
            self.disconnect_client(killed);
        }
        for (key, readers) in std::mem::take(&mut self.shared.evicted_keys) {
            readers.into_iter().for_each(|reader| self.send_invalidation(reader, Some(&key)));
        }
        self.shared.sign_slow();
        if self.shared.monitors.has_lines() {
            self.show_monitors(requests);
        }
        used
    }

    fn accepts_input(&self, connection: ConnectionId) -> bool {
        self.connections.get(&connection).is_some_and(Connection::can_accept_request)
    }

    fn handle_completion(&mut self, completion: Completion<'_>, requests: &mut dyn Requests) {
        let tag = match completion {
            Completion::Written(tag, _)
            | Completion::InMemory(tag, _)
            | Completion::Registered(tag, _)
            | Completion::Readable(tag)
            | Completion::Read(tag)
            | Completion::Failed(tag, _) => tag,
        };
        // The connection was closed, or the completion is a duplicate.
        let Some(owner) = self.shared.tags.release(tag) else {
            return;
        };
        self.shared.tally.set_clock(requests.wall_ms());
        match (owner.target, completion) {
            (Target::Claim(number), Completion::Written(_, reply)) => {
                return self.handle_claim(number, Ok(reply), requests);
            }
            (Target::Claim(number), Completion::Failed(_, failure)) => {
                return self.handle_claim(number, Err(failure), requests);
            }
            (Target::Claim(number), _) => {
                return self.handle_claim(number, Err(Failure::Unknown), requests);
            }
            (Target::Reader(number), completion) => {
                return self.handle_attempt(number, completion, requests);
            }
            (Target::Announcement, completion) => {
                let is_decided = matches!(completion, Completion::Written(..));
                return self.shared.census.end_announcement(is_decided, requests.wall_ms());
            }
            (Target::QueueCommand, _) => return,
            (Target::Request(_) | Target::ReadRun, _) => {}
        }
        let Some(client) = self.connections.get_mut(&owner.connection) else {
            return;
        };
        match (completion, owner.target) {
            (Completion::Written(_, reply), Target::Request(number)) => {
                client.complete_write(number, reply, &mut self.shared);
            }
            (Completion::Registered(_, session), Target::Request(number)) => {
                client.attach_new_session(number, session, &mut self.shared);
            }
            (Completion::Read(_), Target::Request(_)) => client.count_in_order_read(),
            (Completion::Failed(_, failure), Target::Request(number)) => {
                client.handle_failed_request(number, failure, &mut self.shared, requests);
            }
            (Completion::Readable(_), Target::ReadRun) => {
                client.answer_reads(tag, &mut self.shared, requests);
            }
            (Completion::Failed(_, failure), Target::ReadRun) => {
                client.run_failed(tag, failure, &mut self.shared);
            }
            // The completion is of another kind than the request, so the outcome is unknown.
            (_, Target::Request(number)) => {
                client.handle_failed_request(number, Failure::Unknown, &mut self.shared, requests);
            }
            (_, Target::ReadRun) => client.run_failed(tag, Failure::Unknown, &mut self.shared),
            (
                _,
                Target::Claim(_) | Target::Reader(_) | Target::Announcement | Target::QueueCommand,
            ) => {}
        }
        client.advance(&mut self.shared, requests);
        client.update_charged_bytes(&mut self.shared);
        client.queue_for_reactor(&mut self.shared);
        self.shared.sign_slow();
    }

    fn read_now(&mut self, tag: Tag, state: &dyn State) {
        let Some(CompletionOwner { connection, target: Target::Request(number) }) =
            self.shared.tags.get(tag).copied()
        else {
            return;
        };
        if let Some(client) = self.connections.get_mut(&connection) {
            client.read_now(number, &mut self.shared, state);
            self.shared.sign_slow();
        }
    }

    fn deliver_notice(&mut self, subject: &[u8], message: &[u8]) {
        if subject == notice::WAITS {
            return self.shared.blocked_clients.note_applied();
        }
        if subject == notice::ALL_CHANGED {
            self.shared.readers.note_all_changed();
            self.shared.census.note_missed();
            return self.invalidate_all_keys();
        }
        if subject == notice::ANNOUNCED {
            return self.note_announced(message);
        }
        match subject.split_first() {
            Some((&notice::CHANGED, key)) => self.invalidate_key(key),
            Some((&notice::STREAM, place)) => {
                if let Some((number, key)) = place.split_first()
                    && let Some(database) = Database::new((*number).into())
                {
                    self.shared.readers.note_changed(database, key);
                }
            }
            Some((&notice::CHANNEL, channel)) => self.deliver_message(channel, message),
            Some((&notice::SHARD, channel)) => self.deliver_shard_message(channel, message),
            _ => {}
        }
    }

    fn half_closed(&mut self, connection: ConnectionId, _: &mut dyn Requests) {
        if let Some(client) = self.connections.get_mut(&connection) {
            client.request_early_timeout(&mut self.shared);
        }
    }

    fn is_eager(&self) -> bool {
        self.shared.blocked_clients.is_eager() || self.shared.readers.is_eager()
    }

    fn wake_ms(&self) -> Option<u64> {
        let wakes = [
            self.shared.blocked_clients.wake_ms(),
            self.shared.readers.wake_ms(),
            self.shared.census.wake_ms(),
            self.shared.wake_ms(),
        ];
        wakes.into_iter().flatten().min()
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        while let Some(connection) = self.shared.dirty.pop_front() {
            if let Some(client) = self.connections.get_mut(&connection) {
                client.clear_queued();
                return Some(connection);
            }
        }
        None
    }

    fn output(&mut self, connection: ConnectionId) -> &[u8] {
        let client = self.connections.get(&connection);
        client.map_or(&[], Connection::output)
    }

    fn record_sent(&mut self, connection: ConnectionId, count: usize) {
        if let Some(client) = self.connections.get_mut(&connection) {
            client.handle_sent(count, &mut self.shared);
            self.shared.traffic.add_sent(count);
        }
    }

    fn held_bytes(&self) -> usize {
        self.shared.held_bytes
    }

    fn refusal_counts(&self) -> RefusalCounts {
        RefusalCounts {
            forbidden: self.shared.forbidden_requests,
            wrong_passwords: self.shared.wrong_passwords,
        }
    }

    fn held_bytes_of(&self, connection: ConnectionId) -> usize {
        let client = self.connections.get(&connection);
        client.map_or(0, Connection::held_bytes)
    }

    fn should_close(&self, connection: ConnectionId) -> bool {
        self.connections.get(&connection).is_none_or(Connection::can_close)
    }

    fn handle_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        let Some(mut client) = self.connections.remove(&connection) else {
            return;
        };
        self.shared.held_bytes -= client.held_bytes();
        if let Some(tag) = client.remove_from_shared(&mut self.shared) {
            self.shared.tags.release(tag);
            requests.drop_requests(tag);
        }
        if let Some(ticket) = client.check_ticket() {
            self.shared.password_checks.forget(ticket);
        }
        for tag in client.open_tags() {
            self.shared.tags.release(tag);
            requests.drop_requests(tag);
        }
    }

    fn connections(&self) -> usize {
        self.connections.len()
    }

    fn is_busy(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.is_some_and(|client| !client.is_idle())
    }

    fn open_requests(&self) -> usize {
        self.shared.tags.open()
    }

    fn run_turn(&mut self, requests: &mut dyn Requests) {
        while let Some((ticket, owner, fits)) = self.shared.password_checks.verdict() {
            let Some(client) = self.connections.get_mut(&owner) else {
                continue;
            };
            client.handle_check_result(ticket, fits, &mut self.shared, requests);
            client.update_charged_bytes(&mut self.shared);
            client.queue_for_reactor(&mut self.shared);
        }
        for connection in self.shared.take_deferred(requests) {
            if let Some(client) = self.connections.get_mut(&connection) {
                client.stop_deferring();
                client.queue_for_reactor(&mut self.shared);
            }
        }
        if self.shared.users_changed(requests) {
            for client in self.connections.values_mut() {
                client.end_forbidden_streams(&mut self.shared, requests);
                client.queue_for_reactor(&mut self.shared);
            }
        }
        self.notify_new_master(requests);
        self.serve_readers(requests);
        self.announce_subscriptions(requests);
        self.serve_line(requests);
    }
}

/// Handles requests while the connection accepts them. Returns the number of bytes consumed.
fn receive_requests(
    client: &mut Connection,
    bytes: &[u8],
    shared: &mut Shared,
    requests: &mut dyn Requests,
) -> usize {
    let bytes_max = requests.command_bytes_max();
    let mut used = 0;
    // Lent, because the arguments borrow from the parser while the connection changes.
    let mut parser = client.take_parser();
    while client.can_receive() {
        match parser.parse(&bytes[used..], bytes_max) {
            Ok(Parsed::Incomplete { used: more }) => {
                used += more;
                break;
            }
            Ok(Parsed::Nothing { used: more }) => used += more,
            Ok(Parsed::TooBig { used: more }) => {
                used += more;
                client.refuse_unread(&refusals::too_big(bytes_max), shared);
            }
            Ok(Parsed::Request { arguments, used: more }) => {
                if client.must_defer(&arguments, shared, requests) {
                    break;
                }
                let in_line = bytes[used] != b'*';
                used += more;
                shared.traffic.add_request();
                if in_line && starts_http(&arguments) {
                    client.end_foreign(HTTP, shared, requests);
                } else {
                    client.request(&arguments, shared, requests);
                    client.end_caching(&arguments);
                }
            }
            Err(ProtocolError::Tls) => client.end_foreign("TLS", shared, requests),
            Err(error) => client.close_with_error(&format!("ERR Protocol error: {error}"), shared),
        }
    }
    client.return_parser(parser);
    client.note_unparsed_input(used < bytes.len());
    client.advance(shared, requests);
    // Any input after QUIT or after invalid input is discarded.
    if client.is_ending() { bytes.len() } else { used }
}
