//! Device client ([offload-22]–[offload-24]): the state machine used in production, without
//! sockets. Each command increments a key that no other client uses.

use quorate_core::{slot::Slot, time::Time};
use quorate_frame_client::{
    Done, Outcome,
    machine::{Act, Machine},
};
use quorate_kv::{encode::Encoder, op::Op};
use quorate_replica::{frame_clients::FrameClients, service::CommandId};
use quorate_wire::frame_clients::{Name, NodePosition};

use crate::{
    check::{Verdict, Violation, exactly_once::ExactlyOnce},
    dice::Dice,
    ids::hash,
};

/// Request from a device client to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameRequest {
    /// Requests that a name be assigned to the client.
    Lend,
    /// Requests a session for the client's name.
    Register(Name),
    /// Requests the current position of the log.
    Stand(Name),
    /// Requests that the node propose a batch. Like any message, the request may be lost.
    Offer(Name, u64, Vec<u8>),
}

/// Answer from a node to a device client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Name assigned to the client.
    Name(Name),
    /// Current position of the log.
    Stand(NodePosition),
}

impl FrameRequest {
    /// Returns whether a node answers the request. The outcome of all other requests appears in the
    /// next answer with the log's position.
    pub const fn is_answered(&self) -> bool {
        matches!(self, Self::Lend | Self::Stand(_))
    }

    /// Executes the request on a node.
    pub fn execute_on(&self, clients: &mut dyn FrameClients) -> Option<Answer> {
        match self {
            Self::Lend => clients.assign_name().ok().map(Answer::Name),
            Self::Stand(name) => Some(Answer::Stand(clients.stand(*name))),
            Self::Register(name) => {
                let _ = clients.register(*name);
                None
            }
            Self::Offer(name, counter, bytes) => {
                let _ = clients.offer(*name, *counter, bytes);
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
    pub asks: Vec<FrameRequest>,
}

#[derive(Debug)]
pub struct FrameClient {
    pub index: usize,
    /// Index and life of the node to which the client sends requests; `None` while disconnected.
    pub desk: Option<(usize, u64)>,
    /// Time at which the client switches to another node if no answer has arrived.
    pub reply_deadline: Option<Time>,
    pub planned: Option<Time>,
    /// Set if the client starts no new work.
    pub is_done: bool,
    /// Number of sessions that the client used before.
    pub lives: u64,
    mac: [u8; 6],
    name: Option<Name>,
    machine: Option<Machine>,
    /// Number of the client's increments that were reported as executed.
    reported_increments: i64,
    /// Slots in which commands were reported as executed, with the hash of each command.
    reported_slots: Vec<(Slot, u64)>,
    /// Number of batches confirmed from frames alone at the last [`FrameClient::take_by_frames`].
    by_frames: u64,
    dice: Dice,
}

const OPEN: usize = 4;
/// Time to wait for a session before the next step.
const SETTLE_US: u64 = 2_000;

impl FrameClient {
    pub fn new(index: usize, dice: Dice) -> Self {
        let last = u8::try_from(index).unwrap_or(u8::MAX);
        Self {
            index,
            desk: None,
            reply_deadline: None,
            planned: None,
            is_done: false,
            lives: 0,
            mac: [2, 1, 0, 0, 0, last],
            name: None,
            machine: None,
            reported_increments: 0,
            reported_slots: Vec::new(),
            by_frames: 0,
            dice,
        }
    }

    fn key(&self) -> String {
        format!("f{}.{}", self.index, self.lives)
    }

    /// Returns whether the client is done and the outcome of every batch is known.
    pub fn is_through(&self) -> bool {
        let open = self.machine.as_ref().map_or(0, Machine::open);
        self.is_done && open == 0
    }

    /// Returns the number of contradictions that the client found between frames and nodes.
    pub fn conflicts(&self) -> u64 {
        self.machine.as_ref().map_or(0, |machine| machine.counts().conflicts)
    }

    /// Returns the number of batches confirmed from frames alone since the last call.
    pub fn take_by_frames(&mut self) -> u64 {
        let machine = self.machine.as_ref();
        let now = machine.map_or(0, |machine| machine.counts().by_frames);
        now - std::mem::replace(&mut self.by_frames, now)
    }

    /// Takes a step. Returns the output to send, and the time of the next step.
    pub fn take_step(&mut self, now: Time) -> (ClientOutput, Option<Time>) {
        let mut leaving = ClientOutput::default();
        let again = now.plus_us(SETTLE_US);
        let key = self.key();
        let (Some(name), Some(machine)) = (self.name, &mut self.machine) else {
            match self.name {
                _ if self.is_done => return (leaving, None),
                None => leaving.asks.push(FrameRequest::Lend),
                Some(name) => {
                    leaving.asks.extend([FrameRequest::Register(name), FrameRequest::Stand(name)])
                }
            }
            return (leaving, Some(again));
        };
        while !self.is_done && machine.open() < OPEN {
            let commands = self.dice.between(1, 2);
            let command = increment(&key);
            let all = (0..commands).map(|_| command.as_slice());
            if machine.submit(commands, all).is_err() {
                break;
            }
        }
        while let Some(act) = machine.next_act(now.0) {
            match act {
                Act::Send(frame) => leaving.frames.push(frame.to_vec()),
                Act::Ask => leaving.asks.push(FrameRequest::Stand(name)),
                Act::Offer(counter, bytes) => {
                    leaving.asks.push(FrameRequest::Offer(name, counter, bytes.to_vec()));
                }
            }
        }
        (leaving, machine.wake_at().map(Time))
    }

    /// Handles a frame that reached the client's station.
    pub fn receive_frame(&mut self, now: Time, frame: &[u8], books: &mut ExactlyOnce) -> Verdict {
        if let Some(machine) = &mut self.machine {
            machine.on_frame(now.0, frame);
        }
        self.take_done(books)
    }

    /// Handles a node's answer.
    pub fn answered(&mut self, now: Time, answer: &Answer, books: &mut ExactlyOnce) -> Verdict {
        match (answer, &mut self.machine) {
            (Answer::Name(name), None) => self.name = self.name.or(Some(*name)),
            (Answer::Name(_), Some(_)) => {}
            (Answer::Stand(stand), Some(machine)) => machine.on_stand(now.0, stand),
            (Answer::Stand(stand), None) => {
                if let Some(name) = self.name
                    && stand.session != 0
                    && stand.leads
                {
                    let window = self.dice.pick(&[1, 2, 8]);
                    self.machine = Some(Machine::new(name, self.mac, stand, window));
                }
            }
        }
        self.take_done(books)
    }

    /// Disconnects from the current node. The client will connect to another one.
    pub fn leaves(&mut self) {
        (self.desk, self.reply_deadline) = (None, None);
        if let Some(machine) = &mut self.machine {
            machine.on_disconnected();
        }
    }

    /// Connects to life `life` of a node, that is, to one of its processes.
    pub fn connected(&mut self, node: usize, life: u64) {
        self.desk = Some((node, life));
        if let Some(machine) = &mut self.machine {
            machine.on_connected();
        }
    }

    fn take_done(&mut self, books: &mut ExactlyOnce) -> Verdict {
        let key = self.key();
        let Some(machine) = &mut self.machine else {
            return Ok(());
        };
        while let Some(Done { tag, outcome }) = machine.take_done() {
            match outcome {
                Outcome::Executed(slot) => {
                    let command = hash(&increment(&key));
                    self.reported_slots.extend(slot.map(|slot| (Slot(slot), command)));
                    for _ in 0..tag {
                        self.reported_increments += 1;
                        books.acknowledged(&key, self.reported_increments)?;
                    }
                }
                Outcome::Unknown => (0..tag).for_each(|_| books.unknown(&key)),
            }
        }
        if machine.is_over() {
            // A new session uses a new name and a new key.
            (self.machine, self.name) = (None, None);
            (self.reported_increments, self.by_frames) = (0, 0);
            self.lives += 1;
        }
        Ok(())
    }

    /// Checks that nodes executed the client's commands in the slots reported to it. `executed`
    /// returns the hash of the command executed under an id.
    pub fn check_places(&self, executed: &dyn Fn(CommandId) -> Option<u64>) -> Verdict {
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
pub(crate) fn increment(key: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder(&mut bytes).byte(Op::IncrBy as u8).signed(1).bytes(key.as_bytes());
    bytes
}
