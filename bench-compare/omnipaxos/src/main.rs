//! OmniPaxos server with its own storage: PersistentStorage (RocksDB, synced writes) or
//! MemoryStorage.
//!
//! The library has no transport and no event loop, so these are ours. One thread owns the replica,
//! processes all inputs that have arrived, and sends to the other nodes; one thread per connection
//! receives. Commands that arrived together share an entry. The library has batches of its own, but
//! a partial batch waits for a tick of its clock, and each tick costs a follower an empty synced
//! write.
#![forbid(unsafe_code)]

use std::{
    collections::HashMap,
    error::Error,
    io::{self, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use compare_front::{AppliedCommands, EntryCommands, NodeFlags};
use omnipaxos::{
    ClusterConfig, OmniPaxos, OmniPaxosConfig, ServerConfig, macros::Entry, messages::Message,
    storage::Storage, util::LogEntry,
};
use omnipaxos_storage::{
    memory_storage::MemoryStorage,
    persistent_storage::{PersistentStorage, PersistentStorageConfig},
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// Tick of the library's clock.
const TICK_INTERVAL: Duration = Duration::from_millis(10);
/// Ticks between two checks for live peers: half a second.
const ELECTION_TICKS: u64 = 50;
/// Inputs processed before anything is sent.
const INPUTS_PER_TURN_MAX: usize = 4096;
/// Interval between attempts to connect to a peer.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(50);
/// Longest message accepted.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
const READ_BYTES: usize = 256 << 10;

/// Commands, and the channels for their outcomes.
#[derive(Clone, Debug, Serialize, Deserialize, Entry)]
struct Batch {
    node: u64,
    number: u64,
    commands: EntryCommands,
}

enum ReplicaInput {
    Propose(Vec<u8>, oneshot::Sender<u64>),
    Message(Message<Batch>),
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = NodeFlags::parse();
    let applied = AppliedCommands::default();
    let leader = Arc::new(AtomicU64::new(0));
    let (inputs, taken) = mpsc::channel();
    receive_from_peers(&flags, &inputs)?;
    let replica = (flags.clone(), applied.clone(), Arc::clone(&leader));
    thread::spawn(move || {
        let (flags, applied, leader) = replica;
        if let Err(error) = start(&flags, taken, applied, leader) {
            eprintln!("{error}");
            std::process::exit(1);
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let submit = move |command| {
            let (answer, outcome) = oneshot::channel();
            // If the replica is gone, the sender is dropped, which reports an unknown outcome.
            let _ = inputs.send(ReplicaInput::Propose(command, answer));
            outcome
        };
        compare_front::serve_clients(&flags.client_address, submit).await?;
        let leader = || {
            let leader = Arc::clone(&leader);
            async move { leader.load(Ordering::Relaxed) }
        };
        compare_front::run(applied, leader).await
    })?;
    Ok(())
}

fn start(
    flags: &NodeFlags,
    inputs: Receiver<ReplicaInput>,
    applied: AppliedCommands,
    leader: Arc<AtomicU64>,
) -> Result<(), Box<dyn Error>> {
    let nodes: Vec<u64> = (1..).zip(&flags.peer_addresses).map(|(node, _)| node).collect();
    let config = OmniPaxosConfig {
        cluster_config: ClusterConfig { configuration_id: 1, nodes, ..ClusterConfig::default() },
        server_config: ServerConfig {
            pid: flags.node_number,
            election_tick_timeout: ELECTION_TICKS,
            ..ServerConfig::default()
        },
    };
    if flags.is_durable {
        let folder = flags.data_folder.join("rocksdb");
        let folder = folder.to_str().ok_or("the folder's name is not text")?;
        // The library syncs its writes by default.
        let storage =
            PersistentStorage::open(PersistentStorageConfig::with_path(folder.to_owned()));
        Replica::new(flags, config.build(storage)?, applied, leader).run(&inputs)
    } else {
        let storage = MemoryStorage::default();
        Replica::new(flags, config.build(storage)?, applied, leader).run(&inputs)
    }
}

struct Replica<S: Storage<Batch>> {
    node: u64,
    commands_per_entry: usize,
    paxos: OmniPaxos<Batch, S>,
    peers: HashMap<u64, PeerConnection>,
    /// Commands received and not yet proposed.
    unproposed_commands: EntryCommands,
    outcome_senders: Vec<oneshot::Sender<u64>>,
    /// Clients that wait for this node's batches.
    open: HashMap<u64, Vec<oneshot::Sender<u64>>>,
    next_number: u64,
    /// Number of entries applied.
    applied_entries: usize,
    applied: AppliedCommands,
    leader: Arc<AtomicU64>,
}

impl<S: Storage<Batch>> Replica<S> {
    fn new(
        flags: &NodeFlags,
        paxos: OmniPaxos<Batch, S>,
        applied: AppliedCommands,
        leader: Arc<AtomicU64>,
    ) -> Self {
        let peers = flags.other_nodes();
        Self {
            node: flags.node_number,
            commands_per_entry: flags.commands_per_entry,
            paxos,
            peers: peers.map(|(id, at)| (id, PeerConnection::new(at))).collect(),
            unproposed_commands: EntryCommands::default(),
            outcome_senders: Vec::new(),
            open: HashMap::new(),
            next_number: 0,
            applied_entries: 0,
            applied,
            leader,
        }
    }

    fn run(mut self, inputs: &Receiver<ReplicaInput>) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        let mut ticks: u32 = 0;
        loop {
            let tick = start + TICK_INTERVAL * (ticks + 1);
            let wait = tick.saturating_duration_since(Instant::now());
            match inputs.recv_timeout(wait) {
                Ok(first) => {
                    self.handle_input(first);
                    for input in inputs.try_iter().take(INPUTS_PER_TURN_MAX) {
                        self.handle_input(input);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("the front is gone".into()),
            }
            self.propose_waiting();
            if tick <= Instant::now() {
                ticks += 1;
                self.paxos.tick();
            }
            self.send_messages()?;
            self.apply_decided();
            let (leader, ready) = self.paxos.get_current_leader().unwrap_or((0, false));
            self.leader.store(if ready { leader } else { 0 }, Ordering::Relaxed);
        }
    }

    fn handle_input(&mut self, input: ReplicaInput) {
        match input {
            ReplicaInput::Message(message) => self.paxos.handle_incoming(message),
            ReplicaInput::Propose(bytes, answer) => {
                self.unproposed_commands.push(&bytes);
                self.outcome_senders.push(answer);
                if self.outcome_senders.len() >= self.commands_per_entry {
                    self.propose_waiting();
                }
            }
        }
    }

    fn propose_waiting(&mut self) {
        if self.outcome_senders.is_empty() {
            return;
        }
        let answers = std::mem::take(&mut self.outcome_senders);
        let batch = Batch {
            node: self.node,
            number: self.next_number,
            commands: std::mem::take(&mut self.unproposed_commands),
        };
        self.next_number += 1;
        // If the batch is refused, the senders are dropped, which reports an unknown outcome.
        if self.paxos.append(batch).is_ok() {
            self.open.insert(self.next_number - 1, answers);
        }
    }

    fn send_messages(&mut self) -> io::Result<()> {
        let mut messages = Vec::new();
        self.paxos.take_outgoing_messages(&mut messages);
        for message in &messages {
            if let Some(peer) = self.peers.get_mut(&message.get_receiver()) {
                peer.queue_message(message)?;
            }
        }
        for (id, peer) in &mut self.peers {
            if peer.send_queued() {
                self.paxos.reconnected(*id);
            }
        }
        Ok(())
    }

    fn apply_decided(&mut self) {
        if self.paxos.get_decided_idx() <= self.applied_entries {
            return;
        }
        let entries = self.paxos.read_decided_suffix(self.applied_entries).unwrap_or_default();
        for entry in entries {
            self.applied_entries += 1;
            let LogEntry::Decided(batch) = entry else {
                continue;
            };
            self.applied.apply_commands(batch.commands.iter());
            if batch.node == self.node {
                for answer in self.open.remove(&batch.number).unwrap_or_default() {
                    // The client may have disconnected.
                    let _ = answer.send(self.applied_entries as u64);
                }
            }
        }
    }
}

/// Connection to a peer. Messages that cannot be sent are lost, which the library tolerates.
struct PeerConnection {
    address: String,
    stream: Option<TcpStream>,
    last_attempt: Option<Instant>,
    output: Vec<u8>,
}

impl PeerConnection {
    fn new(address: &str) -> Self {
        Self { address: address.to_owned(), stream: None, last_attempt: None, output: Vec::new() }
    }

    fn queue_message(&mut self, message: &Message<Batch>) -> io::Result<()> {
        let at = self.output.len();
        self.output.extend_from_slice(&[0; 4]);
        bincode::serialize_into(&mut self.output, message).map_err(io::Error::other)?;
        let length = u32::try_from(self.output.len() - at - 4).map_err(io::Error::other)?;
        self.output[at..at + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Sends buffered messages. Returns true if it opened a new connection.
    fn send_queued(&mut self) -> bool {
        let is_new = self.stream.is_none() && self.connect();
        if let Some(stream) = &mut self.stream
            && !self.output.is_empty()
            && stream.write_all(&self.output).is_err()
        {
            self.stream = None;
        }
        self.output.clear();
        is_new && self.stream.is_some()
    }

    fn connect(&mut self) -> bool {
        if self.last_attempt.is_some_and(|at| at.elapsed() < RECONNECT_INTERVAL) {
            return false;
        }
        self.last_attempt = Some(Instant::now());
        let stream = TcpStream::connect(&self.address);
        self.stream = stream.ok().filter(|stream| stream.set_nodelay(true).is_ok());
        self.stream.is_some()
    }
}

/// Receives messages from peers.
fn receive_from_peers(flags: &NodeFlags, inputs: &Sender<ReplicaInput>) -> io::Result<()> {
    let listener = TcpListener::bind(flags.own_address())?;
    let inputs = inputs.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let inputs = inputs.clone();
            thread::spawn(move || {
                // The other end replaces a broken connection.
                if let Err(error) = receive_messages(stream, &inputs) {
                    eprintln!("a connection ended: {error}");
                }
            });
        }
    });
    Ok(())
}

fn receive_messages(
    stream: TcpStream,
    inputs: &Sender<ReplicaInput>,
) -> Result<(), Box<dyn Error>> {
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    let mut message = Vec::new();
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_le_bytes(length))?;
        if length > MESSAGE_BYTES_MAX {
            return Err("a message is too long".into());
        }
        message.resize(length, 0);
        stream.read_exact(&mut message)?;
        let message = bincode::deserialize(&message)?;
        inputs.send(ReplicaInput::Message(message)).map_err(|_| "the replica is gone")?;
    }
}
