//! The log service, whose commands change nothing and are answered with their slot.
//!
//! Its only cost is that of replication, which `quorate bench log` measures.

pub mod classes;
mod frame_clients;
pub mod frames;
pub mod introduction;

use std::collections::{BTreeMap, VecDeque};

use quorate_access::{Role, Who};
use quorate_core::slot::Slot;
use quorate_replica::{
    front::{
        AccessPatience, Completion, ConnectionId, Endpoints, Failure, Front, RefusalCounts,
        Requests, Tags,
    },
    service::{CommandId, Imaged, LoadError, MetaChange, StateMachine},
};
use quorate_wire::frame_clients as lent;

use classes::AnswerClass;
use frames::{CommandStatus, LENGTH_BYTES, ParsedFrame};
use introduction::INTRODUCTION_REQUEST;

/// Store name in a folder of this service. The service stores nothing.
pub const STORE_NAME: &str = "none";
/// Size in bytes of a reply: the slot of the command.
pub const REPLY_BYTES: usize = 8;
/// Maximum number of unanswered commands per connection. At the limit, the client is not read.
const OUTSTANDING_MAX: usize = 4096;
/// Maximum number of bytes of unsent replies to one client. At the limit, the client is not read.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// State machine of the log service. It has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoState;

impl StateMachine for NoState {
    fn apply(&mut self, id: CommandId, _: &[u8], reply: &mut Vec<u8>) {
        reply.extend_from_slice(&id.slot.0.to_le_bytes());
    }

    fn query(&self, _: &[u8], _: u64, _: &mut Vec<u8>) {}

    fn begin_image(&mut self) -> bool {
        true
    }

    /// Returns no items, because there is no state.
    fn next_image(&mut self, _: usize, _: &mut dyn FnMut(&[u8])) -> Imaged {
        Imaged::End
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    fn load(&mut self, _: &[u8]) -> Result<(), LoadError> {
        Err(LoadError::Malformed("a service without state has no items"))
    }

    fn finish_load(&mut self, _: Slot, _: &[MetaChange]) -> Result<(), LoadError> {
        Ok(())
    }
}

/// Result of a command, to be sent as its reply.
#[derive(Clone, Debug)]
enum CommandOutcome {
    Done([u8; REPLY_BYTES]),
    /// The command is in memory at a quorum in this slot, but not decided yet.
    InMemory(Slot),
    Failed(Failure),
    IntroductionRequested,
    /// State of the log, for a client that submits to devices.
    LogState(Box<[u8; lent::NODE_POSITION_BYTES]>),
    /// The request was accepted and has no other result.
    Accepted,
    /// Later commands will be answered at this durability class.
    ClassSelected(&'static str),
}

#[derive(Debug, Default)]
struct Connection {
    /// Authenticated identity of the client.
    client_identity: Who,
    /// Commands whose reply has not been sent, oldest first.
    open: VecDeque<Option<CommandOutcome>>,
    /// Number of the oldest command in `open`.
    first_open_number: u64,
    output: Vec<u8>,
    is_dirty: bool,
    /// The client sent malformed input and will be disconnected.
    is_ending: bool,
    /// The next command waits until the access rights are known ([access-4]).
    waits_for_access: bool,
    /// Durability class at which the connection's commands are answered ([class-2]).
    answer_class: AnswerClass,
}

impl Connection {
    fn accepts_input(&self) -> bool {
        let room = self.open.len() < OUTSTANDING_MAX && self.output.len() < OUTPUT_BYTES_MAX;
        room && !self.is_ending && !self.waits_for_access
    }

    fn next_number(&self) -> u64 {
        self.first_open_number + self.open.len() as u64
    }

    fn record_outcome(&mut self, number: u64, ended: CommandOutcome) {
        let place = number.checked_sub(self.first_open_number).map(usize::try_from);
        if let Some(Ok(place)) = place
            && let Some(slot) = self.open.get_mut(place)
        {
            *slot = Some(ended);
        }
    }

    /// Returns whether the connection has output to send or must be closed.
    fn needs_reactor(&self) -> bool {
        !self.output.is_empty() || self.is_ending
    }

    /// Queues the available replies, in the order of their commands.
    fn queue_replies(&mut self, introduction: &str) {
        while let Some(Some(ended)) = self.open.front() {
            match ended {
                CommandOutcome::Done(reply) => {
                    frames::append_reply(CommandStatus::Done, reply, &mut self.output)
                }
                CommandOutcome::InMemory(slot) => {
                    let slot = slot.0.to_le_bytes();
                    frames::append_reply(CommandStatus::InMemory, &slot, &mut self.output);
                }
                CommandOutcome::Failed(failure) => {
                    frames::append_reply(
                        CommandStatus::from_failure(*failure),
                        &[],
                        &mut self.output,
                    );
                }
                CommandOutcome::LogState(stand) => {
                    frames::append_reply(CommandStatus::Done, &**stand, &mut self.output)
                }
                CommandOutcome::Accepted => {
                    frames::append_reply(CommandStatus::Done, &[], &mut self.output)
                }
                CommandOutcome::ClassSelected(class) => {
                    frames::append_reply(CommandStatus::Done, class.as_bytes(), &mut self.output);
                }
                CommandOutcome::IntroductionRequested => {
                    frames::append_reply(
                        CommandStatus::Done,
                        introduction.as_bytes(),
                        &mut self.output,
                    );
                }
            }
            self.open.pop_front();
            self.first_open_number += 1;
        }
    }
}

/// Front for all clients of a node.
#[derive(Debug)]
pub struct FrameFront {
    /// This node's introduction, as sent to clients.
    introduction: String,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Connection of each command in flight, and the command's number on that connection.
    tags: Tags<(ConnectionId, u64)>,
    dirty_connections: VecDeque<ConnectionId>,
    /// Commands refused since the start because the client lacked the role.
    forbidden_count: u64,
    /// Connections that wait for the access rights.
    waiting_connections: Vec<ConnectionId>,
    access_patience: AccessPatience,
}

impl FrameFront {
    /// Creates a front without connections, for a node of this version and durability class.
    pub fn new(version: &str, durability: &str) -> Self {
        Self {
            introduction: introduction::text(version, STORE_NAME, durability),
            connections: BTreeMap::new(),
            tags: Tags::default(),
            dirty_connections: VecDeque::new(),
            forbidden_count: 0,
            waiting_connections: Vec::new(),
            access_patience: AccessPatience::default(),
        }
    }
}

/// Accepts commands from the input while there is capacity. Returns the number of bytes consumed.
fn take_commands(
    id: ConnectionId,
    client: &mut Connection,
    input: &[u8],
    tags: &mut Tags<(ConnectionId, u64)>,
    forbidden: &mut u64,
    patience: &mut AccessPatience,
    requests: &mut dyn Requests,
) -> usize {
    let bytes_max = requests.command_bytes_max();
    // [access-2] Every request of this protocol changes the log.
    let users = requests.users();
    let role = users.and_then(|users| users.role(&client.client_identity, None));
    let may = role >= Some(Role::Writer);
    let is_known = users.is_some();
    let mut used = 0;
    while client.accepts_input() {
        match frames::parse_frame(&input[used..], bytes_max) {
            ParsedFrame::Incomplete => break,
            ParsedFrame::TooLong if input[used..].starts_with(INTRODUCTION_REQUEST) => {
                client.open.push_back(Some(CommandOutcome::IntroductionRequested));
                used += INTRODUCTION_REQUEST.len();
            }
            ParsedFrame::TooLong if classes::begins_with_word(&input[used..]) => {
                let Some((asked, length)) = classes::parse_word(&input[used..]) else {
                    break;
                };
                client.answer_class = asked;
                client.open.push_back(Some(CommandOutcome::ClassSelected(asked.name())));
                used += length;
            }
            ParsedFrame::TooLong if INTRODUCTION_REQUEST.starts_with(&input[used..]) => break,
            ParsedFrame::TooLong if input[used..].starts_with(&lent::REQUEST_MAGIC) => {
                // [offload-22] A client binds a lent name to bytes, so it must be trusted.
                let may = role >= Some(Role::Admin);
                match frame_clients::answer_request(&input[used..], bytes_max, may, requests) {
                    frame_clients::ParsedRequest::Incomplete => break,
                    frame_clients::ParsedRequest::Answered(ended, length) => {
                        *forbidden += u64::from(!may);
                        client.open.push_back(Some(ended));
                        used += length;
                    }
                    frame_clients::ParsedRequest::Malformed => {
                        client.open.push_back(Some(CommandOutcome::Failed(Failure::TooBig)));
                        client.is_ending = true;
                    }
                }
            }
            ParsedFrame::TooLong => {
                client.open.push_back(Some(CommandOutcome::Failed(Failure::TooBig)));
                client.is_ending = true;
            }
            ParsedFrame::Frame(_) if !is_known && !patience.has_expired(requests.wall_ms()) => {
                client.waits_for_access = true;
            }
            ParsedFrame::Frame(command) => {
                let tag = tags.allocate((id, client.next_number()));
                let taken = match client.answer_class {
                    _ if !may => {
                        *forbidden += 1;
                        Err(Failure::Unavailable)
                    }
                    AnswerClass::Group => requests.write(tag, command),
                    AnswerClass::Durable => requests.write_lasting(tag, None, command),
                    AnswerClass::Volatile => requests.write_early(tag, command),
                };
                if taken.is_err() {
                    tags.release(tag);
                }
                client.open.push_back(taken.err().map(CommandOutcome::Failed));
                used += LENGTH_BYTES + command.len();
            }
        }
    }
    if client.is_ending { input.len() } else { used }
}

/// Adds a client to the list for the reactor if its connection needs attention.
fn queue_for_reactor(
    id: ConnectionId,
    client: &mut Connection,
    dirty: &mut VecDeque<ConnectionId>,
) {
    if client.needs_reactor() && !client.is_dirty {
        client.is_dirty = true;
        dirty.push_back(id);
    }
}

impl Front for FrameFront {
    fn handle_opened(&mut self, connection: ConnectionId, ends: Endpoints, _: &mut dyn Requests) {
        let client = Connection { client_identity: ends.identity, ..Connection::default() };
        self.connections.insert(connection, client);
    }

    fn refusal_counts(&self) -> RefusalCounts {
        RefusalCounts { forbidden: self.forbidden_count, wrong_passwords: 0 }
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
        let (tags, forbidden, patience) =
            (&mut self.tags, &mut self.forbidden_count, &mut self.access_patience);
        let used = take_commands(connection, client, bytes, tags, forbidden, patience, requests);
        if client.waits_for_access {
            self.waiting_connections.push(connection);
        }
        client.queue_replies(&self.introduction);
        queue_for_reactor(connection, client, &mut self.dirty_connections);
        used
    }

    fn accepts_input(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.is_some_and(Connection::accepts_input)
    }

    fn handle_completion(&mut self, completion: Completion<'_>, _: &mut dyn Requests) {
        let (tag, ended) = match completion {
            Completion::Written(tag, reply) => match reply.try_into() {
                Ok(reply) => (tag, CommandOutcome::Done(reply)),
                Err(_) => (tag, CommandOutcome::Failed(Failure::Unknown)),
            },
            Completion::InMemory(tag, slot) => (tag, CommandOutcome::InMemory(slot)),
            Completion::Failed(tag, failure) => (tag, CommandOutcome::Failed(failure)),
            // Unreachable: this front makes no such requests.
            Completion::Registered(tag, _) | Completion::Readable(tag) | Completion::Read(tag) => {
                (tag, CommandOutcome::Failed(Failure::Unknown))
            }
        };
        let Some((connection, number)) = self.tags.release(tag) else {
            return;
        };
        if let Some(client) = self.connections.get_mut(&connection) {
            client.record_outcome(number, ended);
            client.queue_replies(&self.introduction);
            queue_for_reactor(connection, client, &mut self.dirty_connections);
        }
    }

    fn run_turn(&mut self, requests: &mut dyn Requests) {
        let waits = !self.waiting_connections.is_empty()
            && requests.users().is_none()
            && !self.access_patience.has_expired(requests.wall_ms());
        if waits {
            return;
        }
        for connection in std::mem::take(&mut self.waiting_connections) {
            if let Some(client) = self.connections.get_mut(&connection) {
                client.waits_for_access = false;
                self.dirty_connections.push_back(connection);
            }
        }
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        while let Some(connection) = self.dirty_connections.pop_front() {
            if let Some(client) = self.connections.get_mut(&connection) {
                client.is_dirty = false;
                return Some(connection);
            }
        }
        None
    }

    fn output(&mut self, connection: ConnectionId) -> &[u8] {
        let client = self.connections.get(&connection);
        client.map_or(&[], |client| &client.output)
    }

    fn record_sent(&mut self, connection: ConnectionId, count: usize) {
        if let Some(client) = self.connections.get_mut(&connection) {
            client.output.drain(..count);
        }
    }

    fn should_close(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.is_none_or(|client| client.is_ending && client.open.is_empty())
    }

    fn handle_closed(&mut self, connection: ConnectionId, requests: &mut dyn Requests) {
        self.connections.remove(&connection);
        let open = self.tags.iter();
        let own = open.filter(|(_, (owner, _))| *owner == connection);
        let own: Vec<_> = own.map(|(tag, _)| tag).collect();
        for tag in own {
            self.tags.release(tag);
            requests.drop_requests(tag);
        }
    }

    fn is_busy(&self, connection: ConnectionId) -> bool {
        let client = self.connections.get(&connection);
        client.is_some_and(|client| !client.open.is_empty())
    }

    fn open_requests(&self) -> usize {
        self.tags.open()
    }

    fn connections(&self) -> usize {
        self.connections.len()
    }
}

#[cfg(test)]
mod tests {
    use quorate_replica::front::{SessionId, Tag};
    use quorate_testbed::asked::FakeReplica as Replica;

    use super::*;

    const CLIENT: ConnectionId = ConnectionId(7);

    fn opened() -> (FrameFront, Replica) {
        let (mut front, mut replica) =
            (FrameFront::new("0.1.0", "volatile"), Replica::with_command_limit(100));
        front.handle_opened(CLIENT, Endpoints::default(), &mut replica);
        (front, replica)
    }

    fn statuses(mut output: &[u8]) -> Vec<u8> {
        let mut statuses = Vec::new();
        while let ParsedFrame::Frame(reply) = frames::parse_frame(output, 1000) {
            statuses.push(reply[0]);
            output = &output[LENGTH_BYTES + reply.len()..];
        }
        assert!(output.is_empty());
        statuses
    }

    #[test]
    fn commands_are_parsed_for_any_split_and_answered_in_order() {
        let mut bytes = Vec::new();
        for text in ["one", "", "three"] {
            frames::append_command(text.as_bytes(), &mut bytes);
        }
        for cut in 0..bytes.len() {
            let (mut front, mut replica) = opened();
            let used = front.receive_bytes(CLIENT, &bytes[..cut], &mut replica);
            front.receive_bytes(CLIENT, &bytes[used..], &mut replica);
            let taken = std::mem::take(&mut replica.unacknowledged_commands);
            let texts: Vec<_> = taken.iter().map(|(_, text)| text.clone()).collect();
            assert_eq!(texts, [b"one".to_vec(), b"".to_vec(), b"three".to_vec()]);
            front
                .handle_completion(Completion::Failed(taken[2].0, Failure::NoQuorum), &mut replica);
            front.handle_completion(Completion::Written(taken[1].0, &[0; 8]), &mut replica);
            assert!(front.output(CLIENT).is_empty() && front.next_dirty().is_none());
            front.handle_completion(Completion::Written(taken[0].0, &[0; 8]), &mut replica);
            assert_eq!(front.next_dirty(), Some(CLIENT));
            assert_eq!(statuses(front.output(CLIENT)), [0, 0, CommandStatus::NoQuorum as u8]);
            assert_eq!((front.open_requests(), front.is_busy(CLIENT)), (0, false));
        }
    }

    /// [class-2] A class word applies to the replies to later commands, not to earlier ones.
    #[test]
    fn class_word_applies_to_later_commands() {
        let mut bytes = Vec::new();
        frames::append_command(b"one", &mut bytes);
        bytes.extend_from_slice(AnswerClass::Durable.as_word());
        frames::append_command(b"two", &mut bytes);
        bytes.extend_from_slice(AnswerClass::Group.as_word());
        frames::append_command(b"three", &mut bytes);
        bytes.extend_from_slice(AnswerClass::Volatile.as_word());
        frames::append_command(b"four", &mut bytes);
        frames::append_command(b"five", &mut bytes);
        for cut in 0..bytes.len() {
            let (mut front, mut replica) = opened();
            let used = front.receive_bytes(CLIENT, &bytes[..cut], &mut replica);
            front.receive_bytes(CLIENT, &bytes[used..], &mut replica);
            let texts = |asked: &[(Tag, Vec<u8>)]| -> Vec<Vec<u8>> {
                asked.iter().map(|(_, text)| text.clone()).collect()
            };
            assert_eq!(
                texts(&replica.unacknowledged_commands),
                [b"one".to_vec(), b"three".to_vec()]
            );
            assert_eq!(texts(&replica.durable_commands), [b"two".to_vec()]);
            assert_eq!(texts(&replica.memory_commands), [b"four".to_vec(), b"five".to_vec()]);
            let (one, two) = (replica.unacknowledged_commands[0].0, replica.durable_commands[0].0);
            front.handle_completion(Completion::Written(one, &[0; 8]), &mut replica);
            let failed = Completion::Failed(two, Failure::NotLasting);
            front.handle_completion(failed, &mut replica);
            let (three, four, five) = (
                replica.unacknowledged_commands[1].0,
                replica.memory_commands[0].0,
                replica.memory_commands[1].0,
            );
            front.handle_completion(Completion::InMemory(four, Slot(0x77)), &mut replica);
            front.handle_completion(Completion::Written(three, &[0; 8]), &mut replica);
            // The command with the weaker class was answered at the stronger one.
            front.handle_completion(Completion::Written(five, &[0; 8]), &mut replica);
            let output = front.take_output(CLIENT);
            let (not_lasting, in_memory) =
                (CommandStatus::NotLasting as u8, CommandStatus::InMemory as u8);
            let expected = [0, 0, not_lasting, 0, 0, 0, in_memory, 0];
            assert_eq!(statuses(&output), expected);
            let early = [9, 0, 0, 0, in_memory, 0x77, 0, 0, 0, 0, 0, 0, 0];
            assert!(output.windows(early.len()).any(|reply| reply == early));
            assert!(output.windows(7).any(|word| word == b"durable"));
        }
    }

    #[test]
    fn full_replica_answers_busy_at_once_and_in_order() {
        let (mut front, mut replica) = opened();
        let mut bytes = Vec::new();
        frames::append_command(b"taken", &mut bytes);
        front.receive_bytes(CLIENT, &bytes, &mut replica);
        replica.is_busy = true;
        front.receive_bytes(CLIENT, &bytes, &mut replica);
        assert!(front.output(CLIENT).is_empty());
        front.handle_completion(
            Completion::Written(replica.unacknowledged_commands[0].0, &[0; 8]),
            &mut replica,
        );
        assert_eq!(statuses(front.output(CLIENT)), [0, CommandStatus::Busy as u8]);
    }

    #[test]
    fn a_command_that_is_too_long_is_refused_and_ends_the_connection() {
        let (mut front, mut replica) = opened();
        let bytes = [101, 0, 0, 0];
        assert_eq!(front.receive_bytes(CLIENT, &bytes, &mut replica), 4);
        assert_eq!(statuses(front.output(CLIENT)), [CommandStatus::TooBig as u8]);
        assert!(front.should_close(CLIENT) && !front.accepts_input(CLIENT));
    }

    #[test]
    fn info_request_is_answered_in_order_for_any_split() {
        let mut bytes = Vec::new();
        frames::append_command(b"before", &mut bytes);
        bytes.extend_from_slice(INTRODUCTION_REQUEST);
        frames::append_command(b"after", &mut bytes);
        for cut in 0..bytes.len() {
            let (mut front, mut replica) = opened();
            let used = front.receive_bytes(CLIENT, &bytes[..cut], &mut replica);
            front.receive_bytes(CLIENT, &bytes[used..], &mut replica);
            assert!(front.output(CLIENT).is_empty(), "the first waits");
            assert_eq!(replica.unacknowledged_commands.len(), 2);
            for (tag, _) in std::mem::take(&mut replica.unacknowledged_commands) {
                front.handle_completion(Completion::Written(tag, &[0; 8]), &mut replica);
            }
            let output = front.take_output(CLIENT);
            let ParsedFrame::Frame(first) = frames::parse_frame(&output, 100) else {
                panic!("{output:?}")
            };
            let rest = &output[LENGTH_BYTES + first.len()..];
            let said = introduction::read(rest).unwrap().unwrap();
            assert_eq!(said.durability.as_deref(), Some("volatile"));
            assert_eq!(said.store.as_deref(), Some(STORE_NAME));
            assert_eq!(said.version.as_deref(), Some("0.1.0"));
            assert_eq!(statuses(&output), [0; 3]);
        }
    }

    #[test]
    fn prefix_of_the_info_request_is_a_command_that_is_too_long() {
        let (mut front, mut replica) = opened();
        assert_eq!(front.receive_bytes(CLIENT, b"INFO\r", &mut replica), 0);
        assert!(front.accepts_input(CLIENT) && front.output(CLIENT).is_empty());
        assert_eq!(front.receive_bytes(CLIENT, b"INFO\r\r", &mut replica), 6);
        assert_eq!(statuses(front.output(CLIENT)), [CommandStatus::TooBig as u8]);
        assert!(front.should_close(CLIENT));
    }

    #[test]
    fn repeated_info_requests_wait_until_output_is_taken() {
        let (mut front, mut replica) = opened();
        let bytes = INTRODUCTION_REQUEST.repeat(OUTSTANDING_MAX * 4);
        let (mut used, mut rounds) = (0, 0);
        while front.accepts_input(CLIENT) {
            used += front.receive_bytes(CLIENT, &bytes, &mut replica);
            rounds += 1;
            assert!(rounds < 100);
        }
        assert_eq!(used % INTRODUCTION_REQUEST.len(), 0);
        assert!(front.output(CLIENT).len() < OUTPUT_BYTES_MAX * 2);
        front.take_output(CLIENT);
        assert!(front.accepts_input(CLIENT));
    }

    #[test]
    fn connection_with_too_many_open_requests_is_not_read() {
        let (mut front, mut replica) = opened();
        let mut bytes = Vec::new();
        for _ in 0..=OUTSTANDING_MAX {
            frames::append_command(b"", &mut bytes);
        }
        let used = front.receive_bytes(CLIENT, &bytes, &mut replica);
        assert_eq!(used, OUTSTANDING_MAX * LENGTH_BYTES);
        assert!(!front.accepts_input(CLIENT));
        front.handle_completion(
            Completion::Written(replica.unacknowledged_commands[0].0, &[0; 8]),
            &mut replica,
        );
        assert!(front.accepts_input(CLIENT));
    }

    #[test]
    fn requests_of_a_closed_connection_are_dropped() {
        let (mut front, mut replica) = opened();
        let mut bytes = Vec::new();
        frames::append_command(b"x", &mut bytes);
        front.receive_bytes(CLIENT, &bytes, &mut replica);
        front.handle_closed(CLIENT, &mut replica);
        assert_eq!(replica.abandoned_tags, [replica.unacknowledged_commands[0].0]);
        assert_eq!((front.open_requests(), front.connections()), (0, 0));
        let session = SessionId::default();
        front.handle_completion(
            Completion::Registered(replica.unacknowledged_commands[0].0, session),
            &mut replica,
        );
    }
}
