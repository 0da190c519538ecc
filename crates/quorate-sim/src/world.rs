//! The world of a run: one queue of events, virtual time, nodes, network, clients, checks.
//!
//! Nothing here decides anything for a node: a turn hands the real replica what arrived, in the
//! order in which the reactor would, and carries away what it says.

mod chaos;
mod scene;
mod turn;

use std::collections::BTreeMap;

use quorate_core::{record::Class, slot::Slot, time::Time};
use quorate_node::host::PeerSide as _;
use quorate_replica::front::ConnectionId;

use crate::{
    check::{
        Verdict, Violation, agreement::Agreement, linearizable, lives::Lives, prefix::Prefix,
        promises::Promises, rounds::Rounds,
    },
    clock::Clock,
    dice::Dice,
    disk::{Released, scan},
    faults::{Fault, Losses, Settings},
    network::{Link, Network, pair},
    node::{Arrival, Node, Running, Start, Started},
    trace::Trace,
    workload::{Books, Client, Kind},
};

/// Act two: the cluster must be whole again after this much virtual time.
const HEAL_US: u64 = 60_000_000;
/// And after this many events, should time stand still.
const HEAL_EVENTS: u64 = 1_000_000;

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A node gets a turn.
    Turn { node: usize, life: u64 },
    /// A piece may have arrived.
    Piece(Link),
    /// Two nodes try to connect.
    Dial(usize, usize),
    /// A node hears that a connection is gone.
    Down {
        node: usize,
        life: u64,
        peer: usize,
        connection: u64,
    },
    /// A disk operation ends.
    Disk {
        node: usize,
        life: u64,
        operation: u64,
    },
    /// A process starts.
    Start(usize),
    /// A paused process goes on.
    Resume { node: usize, life: u64 },
    /// Requests reach a node.
    ToNode {
        node: usize,
        life: u64,
        connection: ConnectionId,
        bytes: Vec<u8>,
    },
    /// Replies reach a client.
    ToClient {
        client: usize,
        connection: ConnectionId,
        bytes: Vec<u8>,
    },
    /// A client hears that its connection is gone.
    ClientDown {
        client: usize,
        connection: ConnectionId,
    },
    /// A client does something.
    Client(usize),
    /// Something goes wrong.
    Fault(usize),
    /// One direction between two nodes is blocked, or free again.
    Block {
        from: usize,
        to: usize,
        blocked: bool,
    },
    /// Somebody looks after a node whose disk failed.
    Repair { node: usize, life: u64 },
    /// In act two somebody looks after all nodes.
    Rounds,
    /// A disk is as fast as before.
    DiskCalm(usize),
    /// A disk has room again.
    DiskRoom(usize),
    /// Files can be opened again.
    Descriptors(usize),
    /// The disk of a service fails.
    StoreFault,
    /// It is sound again.
    StoreCalm(usize),
}

/// How often things happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Processes killed.
    pub kills: u64,
    /// Processes killed while they started.
    pub start_kills: u64,
    /// Clean stops.
    pub stops: u64,
    /// Times that a node began to lead.
    pub elections: u64,
    /// Connections broken.
    pub resets: u64,
    /// Logs whose writes failed.
    pub disk_errors: u64,
    /// Damaged blocks.
    pub rotted: u64,
    /// Starts as a new incarnation.
    pub forgot: u64,
    /// Failures of the disk of a service.
    pub store_faults: u64,
    /// Clients closed because they held too much.
    pub shed: u64,
}

/// A running simulation.
pub struct World {
    /// What the run is made of.
    pub settings: Settings,
    /// The world's time.
    pub now: Time,
    /// What happened.
    pub trace: Trace,
    /// How often things happened.
    pub counts: Counts,
    /// The nodes, by index.
    pub nodes: Vec<Node>,
    /// What is between them.
    pub network: Network,
    /// The clients, by index.
    pub clients: Vec<Client>,
    /// What clients wrote down.
    pub books: Books,
    pub(crate) events: BTreeMap<(Time, u64), Event>,
    pub(crate) last_event: u64,
    pub(crate) dice: Dice,
    /// For the disks of services alone.
    pub(crate) store_dice: Dice,
    pub(crate) last_connection: u64,
    pub(crate) last_arrival: BTreeMap<ConnectionId, Time>,
    /// Whether things still go wrong.
    pub(crate) chaos: bool,
    agreement: Agreement,
    prefix: Prefix,
    promises: Promises,
    rounds: Rounds,
    lives: Lives,
    released: Vec<Released>,
    /// Nodes that may forget their votes in this run.
    pub(crate) may_forget: Vec<bool>,
}

impl World {
    /// A world before its first moment. Nodes start at once.
    pub fn new(settings: Settings) -> Self {
        let mut dice = Dice::new(settings.seed);
        let mut may_forget = vec![false; settings.nodes];
        let beyond = settings.losses == Losses::Beyond;
        for _ in 0..settings.budget() {
            may_forget[dice.index(settings.nodes)] = true;
        }
        may_forget.iter_mut().for_each(|may| *may |= beyond);
        let nodes = (0..settings.nodes).map(|index| {
            let clock = if settings.drift_ppm == 0 && settings.skew_ms == 0 {
                Clock::exact()
            } else {
                Clock::draw(&mut dice, settings.drift_ppm, settings.skew_ms)
            };
            Node::new(index, clock)
        });
        let nodes: Vec<Node> = nodes.collect();
        let network = Network::new(settings.weather.clone(), settings.nodes, dice.fork());
        let clients = (0..settings.clients)
            .map(|index| Client::new(index, Kind::of(index, settings.seed), dice.fork()));
        let clients: Vec<Client> = clients.collect();
        let mut world = Self {
            now: Time(0),
            trace: Trace::new(crate::trace::LINES_KEPT),
            counts: Counts::default(),
            network,
            clients,
            books: Books::default(),
            events: BTreeMap::new(),
            last_event: 0,
            last_connection: 0,
            last_arrival: BTreeMap::new(),
            chaos: true,
            agreement: Agreement::new(settings.nodes),
            prefix: Prefix::default(),
            promises: Promises::default(),
            rounds: Rounds::default(),
            lives: Lives::default(),
            released: nodes.iter().map(|_| Released::new(1)).collect(),
            may_forget,
            nodes,
            dice,
            store_dice: Dice::new(!settings.seed),
            settings,
        };
        for node in 0..world.nodes.len() {
            let after = world.dice.below(2000);
            world.after(after, Event::Start(node));
        }
        for client in 0..world.clients.len() {
            let after = world.dice.below(10_000);
            world.after(after, Event::Client(client));
        }
        for fault in 0..world.settings.faults.len() {
            let wait = world.dice.interval(world.settings.faults[fault].1);
            world.after(wait, Event::Fault(fault));
        }
        for node in 0..world.nodes.len() {
            world.arm_founding(node);
        }
        world.plan_store_fault();
        world
    }

    pub(crate) fn at(&mut self, at: Time, event: Event) {
        self.last_event += 1;
        self.events
            .insert((at.max(self.now), self.last_event), event);
    }

    pub(crate) fn after(&mut self, us: u64, event: Event) {
        self.at(self.now.plus_us(us), event);
    }

    pub(crate) fn line(&mut self, who: &str, what: &str, detail: std::fmt::Arguments<'_>) {
        self.trace.line(self.now, who, what, detail);
    }

    /// Lets the next thing happen; false if nothing ever will.
    ///
    /// # Errors
    /// A property is broken.
    pub fn step(&mut self) -> Result<bool, Violation> {
        let Some(((at, _), event)) = self.events.pop_first() else {
            return Ok(false);
        };
        self.now = at;
        self.counts.events += 1;
        self.happen(event)?;
        Ok(true)
    }

    fn happen(&mut self, event: Event) -> Verdict {
        match event {
            Event::Turn { node, life } => return self.turn(node, life),
            Event::Piece(link) => self.wake(link.to),
            Event::Dial(a, b) => self.dial(a, b),
            Event::Down {
                node,
                life,
                peer,
                connection,
            } => {
                self.arrive(node, life, Arrival::PeerDown { peer, connection });
            }
            Event::Disk {
                node,
                life,
                operation,
            } => return self.disk_done(node, life, operation),
            Event::Start(node) => return self.start(node),
            Event::Resume { node, life } => self.resume(node, life),
            Event::ToNode {
                node,
                life,
                connection,
                bytes,
            } => {
                self.arrive(node, life, Arrival::Bytes(connection, bytes));
            }
            Event::ToClient {
                client,
                connection,
                bytes,
            } => {
                return self.client_heard(client, connection, &bytes);
            }
            Event::ClientDown { client, connection } => self.client_down(client, connection),
            Event::Client(client) => self.client_acts(client),
            Event::Fault(index) => self.strike(index),
            Event::Block { from, to, blocked } => self.block(from, to, blocked),
            Event::Repair { node, life } => self.repair(node, life),
            Event::Rounds => self.make_rounds(),
            Event::DiskCalm(node) => {
                self.nodes[node].disk_factor = 1;
                self.line(&name(node), "disk", format_args!("is fast again"));
            }
            Event::Descriptors(node) => {
                self.nodes[node].disk.set_out_of_descriptors(false);
                self.line(
                    &name(node),
                    "disk",
                    format_args!("files can be opened again"),
                );
            }
            Event::DiskRoom(node) => {
                self.nodes[node].disk.set_capacity(None);
                self.line(&name(node), "disk", format_args!("has room again"));
            }
            Event::StoreFault => self.store_fault(),
            Event::StoreCalm(node) => {
                self.nodes[node].store.take();
                self.line(
                    &name(node),
                    "store",
                    format_args!("its disk is sound again"),
                );
                self.wake(node);
            }
        }
        Ok(())
    }

    /// Something reaches a process, if it is still the one that it was meant for.
    pub(crate) fn arrive(&mut self, node: usize, life: u64, arrival: Arrival) {
        if self.nodes[node].life != life {
            return;
        }
        if let Some(running) = &mut self.nodes[node].running {
            running.inbox.push_back(arrival);
            self.wake(node);
        }
    }

    /// The node has something to do: it gets a turn soon.
    pub(crate) fn wake(&mut self, node: usize) {
        let soon = 1 + self.dice.below(20);
        let at = self.now.plus_us(soon);
        self.turn_by(node, at);
    }

    pub(crate) fn turn_by(&mut self, node: usize, at: Time) {
        let process = &mut self.nodes[node];
        let later = process.turn_at.is_none_or(|planned| planned > at);
        if process.running.is_some() && !process.paused && later {
            process.turn_at = Some(at);
            let life = process.life;
            self.at(at, Event::Turn { node, life });
        }
    }

    /// A process starts.
    fn start(&mut self, node: usize) -> Verdict {
        if self.nodes[node].running.is_some() {
            return Ok(());
        }
        let dies = self.founder_dies();
        let (founder, others) = self.nodes.split_at_mut(1);
        let (starting, mut founder) = match node.checked_sub(1) {
            None => (&mut founder[0], None),
            Some(index) => (&mut others[index], founder.first_mut()),
        };
        let reachable = node > 0 && self.network.can_connect(0, node);
        let ask = &mut |join| {
            let founder = founder.as_mut().filter(|node| reachable && !node.paused)?;
            let running = founder.running.as_mut()?;
            if let Some(steps) = dies {
                founder.disk.die_after(steps);
            }
            Some(running.host.admit(join))
        };
        let outcome = starting.start(self.now, &self.settings, &mut self.dice, ask);
        self.bury(0);
        match outcome {
            Ok(Start::Runs(started)) => self.started(node, *started),
            Ok(Start::Waits(what)) => {
                self.line(&name(node), "waits", format_args!("for {what}"));
                self.nodes[node].kill(&mut self.dice);
                self.starts_within(node, 50_000);
                Ok(())
            }
            Ok(Start::Died) => {
                self.counts.start_kills += 1;
                self.nodes[node].kill(&mut self.dice);
                self.line(&name(node), "killed", format_args!("while it starts"));
                self.arm_founding(node);
                self.starts_within(node, 100_000);
                Ok(())
            }
            Err(why) => {
                let detail = format!("node {} does not start: {why}", node + 1);
                Err(Violation::new("start", detail))
            }
        }
    }

    pub(crate) fn starts_within(&mut self, node: usize, us: u64) {
        let wait = self.dice.between(500, us);
        self.after(wait, Event::Start(node));
    }

    /// A process runs, with what its disk remembers.
    fn started(&mut self, node: usize, started: Started) -> Verdict {
        let before = self.released[node].next();
        let Started { recovery, lost } = started;
        let identity = self.nodes[node]
            .running
            .as_ref()
            .expect("just started")
            .host
            .identity();
        let (member, boot) = (identity.member(), identity.boot());
        let cluster = identity.founding().cluster;
        let text = match member.incarnation.0 {
            0 => "",
            _ => ", as a learner: it may have forgotten votes",
        };
        self.line(
            &name(node),
            "start",
            format_args!(
                "boot {boot}, remembers promise {}, decided below {}, {} votes{text}",
                recovery.hard.promised,
                recovery.hard.decided_to,
                recovery.votes.len()
            ),
        );
        let next = recovery.next_seq;
        let gone = before.saturating_sub(next);
        self.lives.belongs(node, cluster)?;
        self.lives
            .opened(node, member, recovery.incarnation, gone)?;
        if self.lives.incarnation(node) != member.incarnation {
            self.counts.forgot += 1;
            if !self.may_forget[node] {
                let detail = format!("node {} forgot votes without cause: {lost:?}", node + 1);
                return Err(Violation::new("durability", detail));
            }
        }
        self.lives.started(node, boot, member.incarnation)?;
        self.promises.recovered(member, recovery.hard.promised)?;
        for batch in scan(&self.nodes[node].disk, before..next) {
            self.released_batch(node, &batch)?;
        }
        self.released[node] = Released::new(next.max(before));
        if next < before {
            let detail = format!("node {} lost batches {next}..{before} of its log", node + 1);
            if self.may_forget[node] {
                self.released[node] = Released::new(next);
            } else {
                return Err(Violation::new("durability", detail));
            }
        }
        for peer in (0..self.nodes.len()).filter(|peer| *peer != node) {
            let wait = self.dice.between(50, 3000);
            self.after(wait, Event::Dial(node, peer));
        }
        self.plan_disk(node);
        self.wake(node);
        Ok(())
    }

    /// A process that died in the middle of a change of its disk is dead; it restarts soon.
    pub(crate) fn bury(&mut self, node: usize) {
        if self.nodes[node].running.is_some() && !self.nodes[node].disk.is_alive() {
            self.kill(node, 100);
            self.starts_within(node, 100_000);
        }
    }

    /// A batch of a node's log is on stable storage with all before it.
    pub(crate) fn released_batch(&mut self, node: usize, batch: &crate::disk::Batch) -> Verdict {
        use quorate_core::record::Record;
        let member = quorate_core::node_id::Member {
            node: self.nodes[node].id(),
            incarnation: batch.incarnation,
        };
        for record in &batch.records {
            match *record {
                Record::Promise { ballot } => self.promises.wrote(member, ballot)?,
                Record::Vote {
                    ballot,
                    range,
                    value,
                } => {
                    self.promises.wrote(member, ballot)?;
                    if batch.incarnation.0 == 0 {
                        self.agreement.vote(node, ballot, range, value)?;
                    }
                }
                Record::Decided { range, value } => self.agreement.learned(node, range, value)?,
                Record::Round { .. } => {}
            }
        }
        Ok(())
    }

    fn disk_done(&mut self, node: usize, life: u64, operation: u64) -> Verdict {
        use quorate_disk::{Fault as DiskFault, PendingKind};
        let process = &mut self.nodes[node];
        if process.life != life || !process.planned.remove(&operation) {
            return Ok(());
        }
        if !process.disk.is_alive() {
            self.bury(node);
            return Ok(());
        }
        let pending = process.disk.pending();
        let Some(pending) = pending.iter().find(|pending| pending.id == operation) else {
            return Ok(());
        };
        let write = pending.kind == PendingKind::Write;
        let fails = write && std::mem::take(&mut process.disk_error);
        if fails {
            let fault = self.dice.pick(&[
                DiskFault::WriteFails,
                DiskFault::FlushFails,
                DiskFault::ShortWrite { bytes: 512 },
            ]);
            process.disk.inject(fault);
        }
        process.disk.complete(operation);
        if fails {
            self.counts.disk_errors += 1;
            self.line(
                &name(node),
                "disk",
                format_args!("a write fails at {}", pending.at),
            );
        } else if write {
            let batch = crate::disk::read(&self.nodes[node].disk, pending.at);
            let detail = match &batch {
                Some(batch) => format!(
                    "batch {}, {} records, is on stable storage",
                    batch.seq,
                    batch.records.len()
                ),
                None => format!("wrote at {} what is no batch", pending.at),
            };
            self.line(&name(node), "disk", format_args!("{detail}"));
            for batch in batch
                .map(|batch| self.released[node].complete(batch))
                .unwrap_or_default()
            {
                self.released_batch(node, &batch)?;
            }
        }
        self.bury(node);
        self.wake(node);
        Ok(())
    }

    /// Operations that a disk has been given since the last look get a time to end.
    pub(crate) fn plan_disk(&mut self, node: usize) {
        let (least, most) = self.settings.disk_us;
        let process = &self.nodes[node];
        let (life, factor) = (process.life, process.disk_factor);
        let fresh: Vec<u64> = process
            .disk
            .pending()
            .iter()
            .map(|pending| pending.id)
            .filter(|id| !process.planned.contains(id))
            .collect();
        for operation in fresh {
            self.nodes[node].planned.insert(operation);
            let wait = self.dice.between(least, most) * factor;
            self.after(
                wait,
                Event::Disk {
                    node,
                    life,
                    operation,
                },
            );
        }
    }

    fn dial(&mut self, a: usize, b: usize) {
        if self.network.connection(a, b).is_some() {
            return;
        }
        let ready = |node: &Node| node.running.is_some() && !node.paused;
        if !ready(&self.nodes[a]) || !ready(&self.nodes[b]) || !self.network.can_connect(a, b) {
            // Whoever comes back dials again; for blocked links and pauses somebody has to.
            let wait = self.dice.between(5_000, 30_000);
            if self.nodes[a].running.is_some() && self.nodes[b].running.is_some() {
                self.after(wait, Event::Dial(a, b));
            }
            return;
        }
        let connection = self.network.connect(a, b);
        for (node, peer) in [(a, b), (b, a)] {
            let identity = self.nodes[peer]
                .running
                .as_ref()
                .expect("ready")
                .host
                .identity();
            let (member, boot) = (identity.member(), identity.boot());
            let life = self.nodes[node].life;
            self.arrive(
                node,
                life,
                Arrival::PeerUp {
                    peer,
                    connection,
                    member,
                    boot,
                },
            );
        }
        self.line("net", "connect", format_args!("{} and {}", a + 1, b + 1));
    }

    /// A connection breaks. Both sides hear of it, sooner or later.
    pub(crate) fn break_connection(&mut self, a: usize, b: usize, late_us: u64) {
        let Some(connection) = self.network.connection(a, b) else {
            return;
        };
        self.network.disconnect(a, b);
        self.counts.resets += 1;
        for (node, peer) in [(a, b), (b, a)] {
            let life = self.nodes[node].life;
            let wait = self.dice.below(late_us + 1);
            self.after(
                wait,
                Event::Down {
                    node,
                    life,
                    peer,
                    connection,
                },
            );
        }
        let (a, b) = pair(a, b);
        self.line("net", "reset", format_args!("{} and {}", a + 1, b + 1));
        let wait = late_us + self.dice.between(1_000, 20_000);
        self.after(wait, Event::Dial(a, b));
    }

    fn block(&mut self, from: usize, to: usize, blocked: bool) {
        self.network.set_blocked(from, to, blocked);
        let word = if blocked { "blocked" } else { "free" };
        self.line("net", word, format_args!("{} to {}", from + 1, to + 1));
        if !blocked {
            for lane in 0..2 {
                let link = Link { from, to, lane };
                if let Some(at) = self.network.next_arrival(link) {
                    self.at(at, Event::Piece(link));
                }
            }
        }
    }

    /// A process dies. Whoever was connected hears of it after up to `late_us`.
    pub fn kill(&mut self, node: usize, late_us: u64) {
        if self.nodes[node].running.is_none() {
            return;
        }
        self.counts.kills += 1;
        for peer in self.network.peers(node) {
            self.break_connection(node, peer, late_us);
        }
        self.nodes[node].kill(&mut self.dice);
        self.released[node] = Released::new(self.released[node].next());
        self.line(&name(node), "killed", format_args!(""));
        self.drop_clients(node);
    }

    /// Clients of this node hear that their connection is gone.
    pub(crate) fn drop_clients(&mut self, node: usize) {
        for client in 0..self.clients.len() {
            if let Some((connection, at)) = self.clients[client].connection
                && at == node
            {
                let wait = self.dice.between(50, 1000);
                self.after(wait, Event::ClientDown { client, connection });
            }
        }
    }

    fn resume(&mut self, node: usize, life: u64) {
        if self.nodes[node].life == life && self.nodes[node].paused {
            self.nodes[node].paused = false;
            self.line(&name(node), "resumes", format_args!(""));
            self.wake(node);
        }
    }

    fn client_acts(&mut self, client: usize) {
        let now = self.now;
        let Some((connection, node)) = self.clients[client].connection else {
            return self.client_connects(client);
        };
        let asks = self.clients[client].asks_at.take_if(|at| *at <= now);
        let pipelines = asks.is_some() && self.clients[client].may_pipeline();
        if self.clients[client].is_waiting() && !pipelines {
            if self.clients[client].patience_at.is_some_and(|at| at <= now) {
                let life = self.nodes[node].life;
                self.arrive(node, life, Arrival::Closed(connection));
                self.client_down(client, connection);
            }
            return;
        }
        if self.clients[client].done && !self.clients[client].is_busy() {
            return;
        }
        let bytes = self.clients[client].ask(&mut self.books);
        if bytes.is_empty() {
            return;
        }
        self.client_waits(client);
        let life = self.nodes[node].life;
        let at = self.client_delay(connection);
        self.at(
            at,
            Event::ToNode {
                node,
                life,
                connection,
                bytes,
            },
        );
    }

    /// Plans what a client does that asked for something: it loses its patience, or asks for more.
    fn client_waits(&mut self, client: usize) {
        let patience = self.settings.client_timeout_ms * 2 + 200;
        let patience_at = self.now.plus_ms(patience);
        self.clients[client].patience_at = Some(patience_at);
        self.at(patience_at, Event::Client(client));
        if self.clients[client].may_pipeline() && self.clients[client].asks_at.is_none() {
            let soon = self.clients[client].think(2_000);
            let asks_at = self.now.plus_us(soon);
            self.clients[client].asks_at = Some(asks_at);
            self.at(asks_at, Event::Client(client));
        }
    }

    /// When something sent now on a client's connection arrives: never before what was sent earlier.
    pub(crate) fn client_delay(&mut self, connection: ConnectionId) -> Time {
        let at = self.now.plus_us(self.dice.between(20, 200));
        let last = self.last_arrival.entry(connection).or_default();
        *last = at.max(last.plus_us(1));
        *last
    }

    fn client_connects(&mut self, client: usize) {
        if self.clients[client].done && !self.clients[client].is_busy() {
            return;
        }
        let count = self.nodes.len();
        let node = self.clients[client].choose(count);
        let process = &self.nodes[node];
        let (up, life) = (process.running.is_some(), process.life);
        let wait = if up {
            100
        } else {
            self.dice.between(500, 20_000)
        };
        if up {
            self.last_connection += 1;
            let connection = ConnectionId(self.last_connection);
            self.clients[client].connection = Some((connection, node));
            self.arrive(node, life, Arrival::Opened(connection));
        }
        self.after(wait, Event::Client(client));
    }

    fn client_heard(&mut self, client: usize, connection: ConnectionId, bytes: &[u8]) -> Verdict {
        if self.clients[client]
            .connection
            .is_none_or(|(known, _)| known != connection)
        {
            return Ok(());
        }
        if self.trace.frames {
            let text = String::from_utf8_lossy(bytes).replace("\r\n", " ");
            self.line(&format!("c{}", client + 1), "hears", format_args!("{text}"));
        }
        self.clients[client].heard(bytes, &mut self.books)?;
        if !self.clients[client].is_waiting() {
            self.clients[client].patience_at = None;
            let most = self.settings.think_us;
            let wait = self.clients[client].think(most);
            self.after(wait, Event::Client(client));
        } else if self.clients[client].may_pipeline() {
            // It is being answered.
            self.client_waits(client);
        }
        Ok(())
    }

    pub(crate) fn client_down(&mut self, client: usize, connection: ConnectionId) {
        if self.clients[client]
            .connection
            .is_none_or(|(known, _)| known != connection)
        {
            return;
        }
        self.clients[client].disconnected(&mut self.books);
        self.last_arrival.remove(&connection);
        let wait = self.dice.between(500, 20_000);
        self.after(wait, Event::Client(client));
    }

    // --- What the checkers hear from turns.

    pub(crate) fn check_told(&mut self, node: usize) -> Verdict {
        let Some(running) = &self.nodes[node].running else {
            return Ok(());
        };
        let told = std::mem::take(&mut *running.told.borrow_mut());
        for told in told {
            match told {
                crate::node::Told::Executed(id, command, reply) => {
                    if self.trace.frames {
                        let (slot, index) = (id.slot, id.index);
                        self.line(
                            &name(node),
                            "applies",
                            format_args!("slot {slot}, command {index}"),
                        );
                    }
                    self.prefix.executed(node, id, command, reply)?;
                }
                crate::node::Told::Applied(to, digest) => self.check_applied(node, to, digest)?,
            }
        }
        Ok(())
    }

    fn check_applied(&mut self, node: usize, to: Slot, digest: Option<u128>) -> Verdict {
        if self.settings.class == Class::Durable {
            self.agreement.applied(node, to)?;
        }
        if let Some(digest) = digest {
            self.prefix.state(node, to, digest)?;
        }
        Ok(())
    }

    pub(crate) fn check_sent(
        &mut self,
        node: usize,
        member: quorate_core::node_id::Member,
        frame: &quorate_wire::Frame<'_>,
    ) -> Verdict {
        use quorate_core::message::Message;
        let life = self.nodes[node].life;
        let quorate_wire::Frame::Protocol { message, .. } = frame else {
            return Ok(());
        };
        match message {
            Message::Phase1a { ballot, .. } => self.rounds.used(node, life, *ballot),
            Message::Phase2a(proposal) => self.rounds.used(node, life, proposal.ballot),
            Message::Phase1b(promise) => {
                self.promises.spoke(member, promise.ballot);
                Ok(())
            }
            Message::Phase2b(vote) => {
                self.promises.spoke(member, vote.ballot);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check_status(&mut self, node: usize, life: u64) -> Verdict {
        let Some(running) = &self.nodes[node].running else {
            return Ok(());
        };
        let (era, decided_to) = (
            running.replica().node().era(),
            running.replica().node().decided_to(),
        );
        self.rounds.status(node, life, era, decided_to)
    }

    // --- The acts.

    /// Act one: everything may happen, for so many events.
    ///
    /// # Errors
    /// A property is broken.
    pub fn act_one(&mut self, events: u64) -> Verdict {
        for _ in 0..events {
            if !self.step()? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Act two: nothing goes wrong any more; the cluster must be whole again, and hold every
    /// acknowledged write.
    ///
    /// # Errors
    /// A property is broken.
    pub fn act_two(&mut self) -> Verdict {
        self.heal();
        if self.settings.losses == Losses::Beyond {
            // Who is down learns at its start that it forgot.
            self.run_for(1_000_000)?;
            if self.lost_quorum() {
                return self.stands_still();
            }
        }
        let whole = self.becomes_whole();
        let stuck = whole
            .as_ref()
            .is_err_and(|violation| violation.property == "convergence");
        if stuck && self.settings.losses == Losses::Beyond && self.lost_quorum() {
            // Damage that is found late makes forget late.
            return self.stands_still();
        }
        if stuck && self.lost_value() {
            return linearizable::verdict(self.books.history.operations());
        }
        whole
    }

    /// [disk-8] Whether a decided value is readable on no node, those who lost it say so, and the
    /// others are fewer than a quorum: then waiting is all that can be done.
    fn lost_value(&self) -> bool {
        let replicas = || self.nodes.iter().filter_map(|node| node.running.as_ref());
        let lost = |running: &&Running| running.replica().lost_value().is_some();
        let first = replicas().filter_map(|running| running.replica().lost_value());
        let Some((slot, _)) = first.min() else {
            return false;
        };
        let whole = replicas().filter(|running| !lost(running));
        let said = |running: &Running| {
            let error = running.replica().error();
            error.is_some_and(|error| error.contains("none of the other nodes has it"))
        };
        whole
            .clone()
            .all(|running| running.replica().node().decided_to() <= slot)
            && whole.count() <= self.nodes.len() / 2
            && replicas().filter(lost).all(said)
    }

    fn becomes_whole(&mut self) -> Verdict {
        self.run_until("clients are answered", |world| {
            world.clients.iter().all(|client| !client.is_busy())
        })?;
        let keys = self.books.exactly_once.keys();
        let auditor = Client::audit(self.clients.len(), self.dice.fork(), keys);
        self.clients.push(auditor);
        self.after(1, Event::Client(self.clients.len() - 1));
        self.run_until("the auditor has read every counter", |world| {
            world.clients.iter().all(|client| !client.is_busy())
        })?;
        for node in 0..self.nodes.len() {
            let visitor = Client::visit(self.clients.len(), self.dice.fork(), node);
            self.clients.push(visitor);
            self.after(1, Event::Client(self.clients.len() - 1));
        }
        self.run_until("every node has taken a write", |world| {
            world.clients.iter().all(|client| !client.is_busy())
        })?;
        self.run_until("all nodes have applied the same", Self::is_level)?;
        for node in &self.nodes {
            let running = node.running.as_ref().expect("healed");
            if running.replica().counters().alarms > 0 {
                let detail = format!("node {}: {:?}", node.index + 1, running.replica().error());
                return Err(Violation::new("alarm", detail));
            }
        }
        self.final_checks()
    }

    pub(crate) fn final_checks(&mut self) -> Verdict {
        let mut digests = Vec::new();
        for node in &self.nodes {
            let running = node.running.as_ref().expect("healed");
            digests.push((
                running.replica().service().digest(),
                running.replica().sessions(),
            ));
        }
        if let Some(odd) = digests.iter().position(|digest| *digest != digests[0]) {
            let detail = format!("node {} differs from node 1 in the end", odd + 1);
            return Err(Violation::new("prefix", detail));
        }
        linearizable::verdict(self.books.history.operations())
    }

    /// Whether every node has applied what the farthest one has decided.
    pub fn is_level(&self) -> bool {
        let farthest = self.nodes.iter().filter_map(|node| node.running.as_ref());
        let farthest = farthest
            .map(|running| running.replica().node().decided_to())
            .max();
        self.nodes.iter().all(|node| {
            let running = node.running.as_ref();
            running.is_some_and(|running| Some(running.replica().applied_to()) == farthest)
        })
    }

    /// Lets things happen until a condition holds.
    ///
    /// # Errors
    /// A property is broken, or the condition does not come to hold in time.
    pub fn run_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Verdict {
        let deadline = self.now.plus_us(HEAL_US);
        for _ in 0..HEAL_EVENTS {
            if holds(self) {
                return Ok(());
            }
            if self.now > deadline || !self.step()? {
                break;
            }
        }
        let mut detail = format!("not in time: {what};");
        for node in &self.nodes {
            let state = match &node.running {
                None => "down".to_owned(),
                Some(running) => format!(
                    "{:?} of {:?} in {}, decided {}, applied {}, {:?}; disk {:?}, reads idle {}, {:?}",
                    running.replica().node().role(),
                    running.replica().node().leader(),
                    running.replica().node().ballot(),
                    running.replica().node().decided_to(),
                    running.replica().applied_to(),
                    running.replica().error(),
                    node.disk.pending(),
                    running.replica().log().reads_idle(),
                    running.replica().counters(),
                ),
            };
            detail += &format!("\n    node {}: {state}", node.index + 1);
        }
        for client in self.clients.iter().filter(|client| client.is_busy()) {
            detail += &format!(
                "\n    client {} ({:?}) on {:?}",
                client.index, client.kind, client.connection
            );
        }
        Err(Violation::new("convergence", detail))
    }

    /// Whether fewer nodes than a quorum still know their votes.
    fn lost_quorum(&self) -> bool {
        let remember = self
            .nodes
            .iter()
            .filter(|node| node.member().incarnation.0 == 0)
            .count();
        remember <= self.nodes.len() / 2
    }

    /// A volatile group without a quorum that remembers: it answers no write, and says why
    /// ([class-5]). What it was asked before the loss may have been answered rightly.
    fn stands_still(&mut self) -> Verdict {
        self.run_for(2_000_000)?;
        let answered = self.prefix.commands();
        self.run_for(3_000_000)?;
        if self.prefix.commands() != answered {
            return Err(Violation::new(
                "durability",
                "a group that forgot goes on executing",
            ));
        }
        for node in &self.nodes {
            let running = node.running.as_ref().expect("healed");
            let status = running.replica().status(node.time(self.now));
            if node.member().incarnation.0 > 0 && status.role != quorate_core::effect::Role::Learner
            {
                let detail = format!(
                    "node {} forgot votes and is {:?}",
                    node.index + 1,
                    status.role
                );
                return Err(Violation::new("durability", detail));
            }
        }
        linearizable::verdict(self.books.history.operations())
    }

    /// Lets things happen for so long.
    ///
    /// # Errors
    /// A property is broken.
    pub fn run_for(&mut self, us: u64) -> Verdict {
        let until = self.now.plus_us(us);
        while self
            .events
            .first_key_value()
            .is_some_and(|((at, _), _)| *at <= until)
        {
            self.step()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Whether this kind of fault is part of the run.
    pub fn has(&self, fault: Fault) -> bool {
        self.settings.faults.iter().any(|(kind, _)| *kind == fault)
    }
}

/// How the trace calls a node.
pub(crate) fn name(node: usize) -> String {
    format!("n{}", node + 1)
}
