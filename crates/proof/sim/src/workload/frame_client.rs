//! Device client ([offload-22]–[offload-24]): the state machine used in production, without
//! sockets. Each command increments a key that no other client uses.

use quorate_core::{slot::Slot, time::Time};
use quorate_frame_client::{
    CompletedBatch, Outcome,
    machine::{Act, Machine},
};
use quorate_kv::{encode::Encoder, op::Op};
use quorate_replica::{frame_clients::FrameClients, service::CommandId};
use quorate_wire::frame_clients::{LentName, NodePosition};

use crate::{
    check::{Verdict, Violation, exactly_once::ExactlyOnce},
    dice::Dice,
    ids::hash,
};

/// Request from a device client to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameRequest {
    /// Requests that a name be assigned to the client.
    AssignName,
    /// Requests a session for the client's name.
    RegisterSession(LentName),
    /// Requests the current position of the log.
    LogPosition(LentName),
    /// Requests that the node propose a batch. Like any message, the request may be lost.
    ProposeBatch(LentName, u64, Vec<u8>),
}

/// Answer from a node to a device client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// Name assigned to the client.
    Name(LentName),
    /// Current position of the log.
    LogPosition(NodePosition),
}

impl FrameRequest {
    /// Returns whether a node answers the request. The outcome of all other requests appears in the
    /// next answer with the log's position.
    pub const fn is_answered(&self) -> bool {
        matches!(self, Self::AssignName | Self::LogPosition(_))
    }

    /// Executes the request on a node.
    pub fn execute_on(&self, clients: &mut dyn FrameClients) -> Option<NodeAnswer> {
        match self {
            Self::AssignName => clients.assign_name().ok().map(NodeAnswer::Name),
            Self::LogPosition(name) => Some(NodeAnswer::LogPosition(clients.node_position(*name))),
            Self::RegisterSession(name) => {
                let _ = clients.register_session(*name);
                None
            }
            Self::ProposeBatch(name, counter, bytes) => {
                let _ = clients.propose_batch(*name, *counter, bytes);
                None
            }
        }
    }
}

/// Frames to the network and requests to the node, produced by one step of a client.
#[derive(Debug, Default)]
pub struct ClientOutput {
    /// Frames to be sent to all stations.
    pub frames: Vec<Vec<u8>>,
    /// Requests to be sent to the client's node.
    pub requests: Vec<FrameRequest>,
}

#[derive(Debug)]
pub struct FrameClient {
    pub index: usize,
    /// Index and life of the node to which the client sends requests; `None` while disconnected.
    pub desk_node: Option<(usize, u64)>,
    /// Time at which the client switches to another node if no answer has arrived.
    pub reply_deadline: Option<Time>,
    pub next_step_at: Option<Time>,
    /// Set if the client starts no new work.
    pub is_done: bool,
    /// Number of sessions that the client used before.
    pub used_sessions: u64,
    mac_address: [u8; 6],
    name: Option<LentName>,
    client_machine: Option<Machine>,
    /// Number of the client's increments that were reported as executed.
    reported_increments: i64,
    /// Slots in which commands were reported as executed, with the hash of each command.
    reported_slots: Vec<(Slot, u64)>,
    /// Number of batches confirmed from frames alone at the last
    /// [`FrameClient::take_confirmed_by_frames`].
    confirmed_by_frames: u64,
    dice: Dice,
}

const OPEN_BATCHES_MAX: usize = 4;
/// Time to wait for a session before the next step.
const SESSION_WAIT_US: u64 = 2_000;

impl FrameClient {
    pub fn new(index: usize, dice: Dice) -> Self {
        let last = u8::try_from(index).unwrap_or(u8::MAX);
        Self {
            index,
            desk_node: None,
            reply_deadline: None,
            next_step_at: None,
            is_done: false,
            used_sessions: 0,
            mac_address: [2, 1, 0, 0, 0, last],
            name: None,
            client_machine: None,
            reported_increments: 0,
            reported_slots: Vec::new(),
            confirmed_by_frames: 0,
            dice,
        }
    }

    fn key(&self) -> String {
        format!("f{}.{}", self.index, self.used_sessions)
    }

    /// Returns whether the client is done and the outcome of every batch is known.
    pub fn is_finished(&self) -> bool {
        let open = self.client_machine.as_ref().map_or(0, Machine::open);
        self.is_done && open == 0
    }

    /// Returns the number of contradictions that the client found between frames and nodes.
    pub fn conflict_count(&self) -> u64 {
        self.client_machine.as_ref().map_or(0, |machine| machine.counters().conflicts)
    }

    /// Returns the number of batches confirmed from frames alone since the last call.
    pub fn take_confirmed_by_frames(&mut self) -> u64 {
        let machine = self.client_machine.as_ref();
        let now = machine.map_or(0, |machine| machine.counters().learned_by_frames);
        now - std::mem::replace(&mut self.confirmed_by_frames, now)
    }

    /// Takes a step. Returns the output to send, and the time of the next step.
    pub fn take_step(&mut self, now: Time) -> (ClientOutput, Option<Time>) {
        let mut leaving = ClientOutput::default();
        let again = now.plus_us(SESSION_WAIT_US);
        let key = self.key();
        let (Some(name), Some(machine)) = (self.name, &mut self.client_machine) else {
            match self.name {
                _ if self.is_done => return (leaving, None),
                None => leaving.requests.push(FrameRequest::AssignName),
                Some(name) => leaving
                    .requests
                    .extend([FrameRequest::RegisterSession(name), FrameRequest::LogPosition(name)]),
            }
            return (leaving, Some(again));
        };
        while !self.is_done && machine.open() < OPEN_BATCHES_MAX {
            let commands = self.dice.between(1, 2);
            let command = increment_command(&key);
            let all = (0..commands).map(|_| command.as_slice());
            if machine.submit(commands, all).is_err() {
                break;
            }
        }
        while let Some(act) = machine.next_act(now.0) {
            match act {
                Act::SendFrame(frame) => leaving.frames.push(frame.to_vec()),
                Act::RequestPosition => leaving.requests.push(FrameRequest::LogPosition(name)),
                Act::OfferBatch(counter, bytes) => {
                    leaving.requests.push(FrameRequest::ProposeBatch(
                        name,
                        counter,
                        bytes.to_vec(),
                    ));
                }
            }
        }
        (leaving, machine.wake_at().map(Time))
    }

    /// Handles a frame that reached the client's station.
    pub fn receive_frame(&mut self, now: Time, frame: &[u8], books: &mut ExactlyOnce) -> Verdict {
        if let Some(machine) = &mut self.client_machine {
            machine.on_frame(now.0, frame);
        }
        self.take_completed(books)
    }

    /// Handles a node's answer.
    pub fn receive_answer(
        &mut self,
        now: Time,
        answer: &NodeAnswer,
        books: &mut ExactlyOnce,
    ) -> Verdict {
        match (answer, &mut self.client_machine) {
            (NodeAnswer::Name(name), None) => self.name = self.name.or(Some(*name)),
            (NodeAnswer::Name(_), Some(_)) => {}
            (NodeAnswer::LogPosition(stand), Some(machine)) => machine.on_position(now.0, stand),
            (NodeAnswer::LogPosition(stand), None) => {
                if let Some(name) = self.name
                    && stand.session_slot != 0
                    && stand.is_leader
                {
                    let window = self.dice.pick(&[1, 2, 8]);
                    self.client_machine = Some(Machine::new(name, self.mac_address, stand, window));
                }
            }
        }
        self.take_completed(books)
    }

    /// Disconnects from the current node. The client will connect to another one.
    pub fn leave_node(&mut self) {
        (self.desk_node, self.reply_deadline) = (None, None);
        if let Some(machine) = &mut self.client_machine {
            machine.on_disconnected();
        }
    }

    /// Connects to life `life` of a node, that is, to one of its processes.
    pub fn connect_to(&mut self, node: usize, life: u64) {
        self.desk_node = Some((node, life));
        if let Some(machine) = &mut self.client_machine {
            machine.on_connected();
        }
    }

    fn take_completed(&mut self, books: &mut ExactlyOnce) -> Verdict {
        let key = self.key();
        let Some(machine) = &mut self.client_machine else {
            return Ok(());
        };
        while let Some(CompletedBatch { tag, outcome }) = machine.take_completed() {
            match outcome {
                Outcome::Executed(slot) => {
                    let command = hash(&increment_command(&key));
                    self.reported_slots.extend(slot.map(|slot| (Slot(slot), command)));
                    for _ in 0..tag {
                        self.reported_increments += 1;
                        books.record_acknowledged(&key, self.reported_increments)?;
                    }
                }
                Outcome::Unknown => (0..tag).for_each(|_| books.record_unknown(&key)),
            }
        }
        if machine.is_session_gone() {
            // A new session uses a new name and a new key.
            (self.client_machine, self.name) = (None, None);
            (self.reported_increments, self.confirmed_by_frames) = (0, 0);
            self.used_sessions += 1;
        }
        Ok(())
    }

    /// Checks that nodes executed the client's commands in the slots reported to it. `executed`
    /// returns the hash of the command executed under an id.
    pub fn check_reported_slots(&self, executed: &dyn Fn(CommandId) -> Option<u64>) -> Verdict {
        for (slot, command) in &self.reported_slots {
            let found = executed(CommandId { slot: *slot, index: 0 });
            if found != Some(*command) {
                let detail = format!("client {}: not its command in slot {slot}", self.index);
                return Err(Violation::new("frame clients", detail));
            }
        }
        Ok(())
    }
}

/// Returns the command in the encoding that the front writes to the log.
pub(crate) fn increment_command(key: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder(&mut bytes).byte(Op::IncrBy as u8).signed(1).bytes(key.as_bytes());
    bytes
}
