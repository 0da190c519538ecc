//! World of a run: event queue, virtual time, nodes, network, clients and checks.
//!
//! This module contains the state and dispatches each event to a submodule: `lives` for processes,
//! disks and connections between nodes, `datagrams` for packets, `turn` for a process's turn,
//! `clients` for clients, `chaos` for faults, `operators` for joining and leaving nodes, `acts` for
//! the two acts of a run, and `scene` for directed scenarios.
//!
//! Nodes make all decisions: a turn passes arrivals to the real replica in the reactor's order, and
//! takes the replica's output.

mod acts;
mod chaos;
pub(crate) mod classes;
mod clients;
mod datagrams;
mod devices;
mod frame_clients;
mod lies;
mod lives;
mod operators;
mod releases;
mod scene;
mod scrubs;
mod sides;
mod small_files;
mod strays;
mod streams;
mod turn;

use quorate_core::time::Time;

use self::sides::{Chaos, Flights, Frames, Operators, Streaming};
pub(crate) use crate::event::Event;
use crate::{
    air,
    check::{Verdict, Violation, streams::Streams, watch::Watch},
    clock::Clock,
    dice::Dice,
    event::Schedule,
    faults::{Fault, Settings},
    ids::name,
    network::Network,
    node::{Arrival, Node},
    steps::Steps,
    trace::Trace,
    wires::ClientConnections,
    workload::{Books, Client, Kind, frame_client::FrameClient, streams::Streamer},
};

/// Number of occurrences of each kind of event in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    pub kills: u64,
    /// Processes killed while starting.
    pub start_kills: u64,
    /// Processes shut down gracefully.
    pub stops: u64,
    /// Releases installed in place of other releases.
    pub installed: u64,
    /// Installed releases that were too old for the data folder.
    pub too_old: u64,
    /// Increases of the group's feature level.
    pub raised: u64,
    /// Number of times that a node became leader.
    pub elections: u64,
    pub resets: u64,
    /// Logs whose writes failed.
    pub disk_errors: u64,
    /// Blocks damaged by bit rot.
    pub rotted: u64,
    /// Writes that went to the wrong position.
    pub strays: u64,
    /// Losses of acknowledged data by disks.
    pub lies: u64,
    /// Commands sent with a class other than the group's.
    pub class_asked: u64,
    /// Commands of another class that were acknowledged once a quorum had them in memory.
    pub class_early: u64,
    /// Commands of another class that were acknowledged once a quorum had them on disk.
    pub class_lasting: u64,
    pub files_rotted: u64,
    /// Starts refused because of a damaged small file.
    pub files_refused: u64,
    pub stores_rotted: u64,
    pub scrubs: u64,
    /// Damaged places found by scrubs.
    pub scrubs_found: u64,
    /// Process starts with a new incarnation.
    pub forgot: u64,
    /// Disk failures of a service.
    pub store_faults: u64,
    /// Clients disconnected because they used too much memory.
    pub shed: u64,
    /// Snapshots taken by nodes.
    pub snapshots: u64,
    /// Snapshots of peers installed by nodes that had fallen too far behind.
    pub installs: u64,
    /// Snapshots loaded by services.
    pub loads: u64,
    /// Number of times that the beginning of a log was trimmed.
    pub trims: u64,
    pub joins: u64,
    /// Membership plans accepted from operators.
    pub plans: u64,
    /// Nodes removed and switched off.
    pub retired: u64,
    /// Processes stalled in the middle of a turn.
    pub stalls: u64,
    pub leased: u64,
    /// Reads under a lease that had expired by the time of their execution.
    pub overtaken: u64,
    pub stream_bytes: u64,
    pub stream_pieces: u64,
    /// Stream bytes that records reference in the store instead of containing them.
    pub stream_bytes_placed: u64,
    /// Stream bytes read back and verified.
    pub stream_bytes_read: u64,
    /// Votes that ring members forwarded for others.
    pub relayed: u64,
    pub device_frames: u64,
    /// Slots assigned by devices, as reported to the devices' owners.
    pub device_given: u64,
    /// Decisions counted by devices, as reported to the devices' owners.
    pub device_counted: u64,
    /// Number of times that a leader withdrew slot assignment from its device.
    pub taken_back: u64,
    /// Values too long to fit in a frame, as counted by device owners.
    pub device_outgrown: u64,
    /// Values that nodes offered to the leader's device, as counted by those nodes.
    pub device_offered: u64,
    pub device_resets: u64,
    /// Devices removed from the network.
    pub devices_taken: u64,
    /// Number of times that a device stalled.
    pub device_stalls: u64,
    /// Frames in which a bit was flipped.
    pub frames_damaged: u64,
    /// Frames sent to stations by senders that are not devices.
    pub frames_of_strangers: u64,
    /// Batches that device clients confirmed from frames alone.
    pub by_frames: u64,
    /// Counts of all packet planes.
    pub packets: air::Counts,
}

pub struct World {
    pub settings: Settings,
    pub now: Time,
    pub trace: Trace,
    pub counts: Counts,
    pub nodes: Vec<Node>,
    pub network: Network,
    /// All clients of the Redis front, by index.
    pub clients: Vec<Client>,
    pub books: Books,
    /// All byte stream clients, by index.
    pub streamers: Vec<Streamer>,
    /// All device clients, by index.
    pub frame_clients: Vec<FrameClient>,
    schedule: Schedule,
    pub(crate) dice: Dice,
    wires: ClientConnections,
    chaos: Chaos,
    flights: Flights,
    frames: Frames,
    operators: Operators,
    streaming: Streaming,
    stream_check: Streams,
    watch: Watch,
}

impl World {
    /// Returns a world at time zero, in which all nodes are about to start.
    pub fn new(settings: Settings) -> Self {
        let mut dice = Dice::new(settings.seed);
        let chaos = Chaos::new(&settings, &mut dice);
        let nodes = (0..settings.nodes).map(|index| {
            let clock = if settings.drift_ppm == 0 && settings.skew_ms == 0 {
                Clock::exact()
            } else {
                Clock::draw(&mut dice, settings.drift_ppm, settings.skew_ms)
            };
            Node::new(index, clock)
        });
        let mut nodes: Vec<Node> = nodes.collect();
        let total = settings.nodes + settings.spares;
        // Spare nodes have exact clocks, which need no draws from the shared dice.
        nodes.extend((settings.nodes..total).map(|index| Node::new(index, Clock::exact())));
        let network = Network::new(settings.weather.clone(), total, dice.fork());
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
            schedule: Schedule::default(),
            wires: ClientConnections::default(),
            chaos,
            flights: Flights::new(settings.seed, total),
            frames: Frames::new(settings.seed),
            operators: Operators::new(&settings),
            streamers: Vec::new(),
            frame_clients: Vec::new(),
            streaming: Streaming::new(settings.seed),
            stream_check: Streams::default(),
            watch: Watch::new(total, settings.founding()),
            nodes,
            dice,
            settings,
        };
        for node in 0..world.settings.nodes {
            let after = world.dice.below(2000);
            world.schedule_after(after, Event::Start(node));
        }
        for client in 0..world.clients.len() {
            let after = world.dice.below(10_000);
            world.schedule_after(after, Event::Client(client));
        }
        for fault in 0..world.settings.faults.len() {
            let wait = world.dice.interval(world.settings.faults[fault].1);
            world.schedule_after(wait, Event::Fault(fault));
        }
        for node in 0..world.settings.nodes {
            world.arm_founding(node);
        }
        world.plan_store_fault();
        world.plan_releases();
        world.plan_operator();
        world.plan_stall();
        world.plan_scrub();
        world.plan_stray();
        world.plan_lie();
        world.plan_class();
        world.plan_reset();
        world.plan_taking();
        world.plan_device_stall();
        world.plan_stranger();
        world.plan_deaf();
        world.plan_way();
        world.plan_streams();
        world.plan_frame_clients();
        world
    }

    pub(crate) fn schedule_at(&mut self, at: Time, event: Event) {
        self.schedule.plan(at.max(self.now), event);
    }

    pub(crate) fn schedule_after(&mut self, us: u64, event: Event) {
        self.schedule_at(self.now.plus_us(us), event);
    }

    pub(crate) fn line(&mut self, who: &str, what: &str, detail: std::fmt::Arguments<'_>) {
        self.trace.line(self.now, who, what, detail);
    }

    /// Starts to record the nodes' steps in the terms of the TLA+ specification.
    pub fn keep_steps(&mut self) {
        self.watch.steps = Some(Steps::new(&self.settings.founding()));
    }

    /// Returns the recorded steps, one JSON object per line.
    pub fn steps(&self) -> &str {
        self.watch.steps.as_ref().map_or("", Steps::text)
    }

    /// Processes the next event; returns false if there is none.
    pub fn step(&mut self) -> Result<bool, Violation> {
        let Some((at, event)) = self.schedule.pop() else {
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
            Event::Piece(link) => self.schedule_turn(link.to),
            Event::Datagram { from, to, by_group, bytes } => {
                self.datagram(from, to, by_group, bytes)
            }
            Event::Dial(a, b) => self.dial(a, b),
            Event::Part { node, peer } => self.part(node, peer),
            Event::Down { node, life, peer, connection } => {
                self.arrive(node, life, Arrival::PeerDown { peer, connection });
            }
            Event::Disk { node, life, operation } => return self.disk_done(node, life, operation),
            Event::Start(node) => return self.start_process(node),
            Event::Resume { node, life } => self.resume(node, life),
            Event::ToNode { node, life, connection, bytes } => {
                self.arrive(node, life, Arrival::Bytes(connection, bytes));
            }
            Event::ToClient { client, connection, bytes } => {
                return self.client_heard(client, connection, &bytes);
            }
            Event::ClientDown { client, connection } => self.client_down(client, connection),
            Event::Client(client) => self.client_acts(client),
            Event::ToStreams { node, life, connection, tag, ask } => {
                self.arrive(node, life, Arrival::Stream(connection, tag, ask));
            }
            Event::ToStreamer { client, connection, heard } => {
                return self.streamer_hears(client, connection, heard);
            }
            Event::StreamerDown { client, connection } => self.streamer_down(client, connection),
            Event::Streamer(client) => self.streamer_acts(client),
            Event::Fault(index) => self.inject_fault(index),
            Event::Operator => self.operator_acts(),
            Event::Block { from, to, blocked } => self.block(from, to, blocked),
            Event::Repair { node, life } => self.repair(node, life),
            Event::Rounds => self.make_rounds(),
            Event::DiskCalm(node) => {
                self.nodes[node].disk_factor = 1;
                self.line(&name(node), "disk", format_args!("is fast again"));
            }
            Event::Descriptors(node) => {
                self.nodes[node].disk.set_out_of_descriptors(false);
                self.line(&name(node), "disk", format_args!("files can be opened again"));
            }
            Event::DiskRoom(node) => {
                self.nodes[node].disk.set_capacity(None);
                self.line(&name(node), "disk", format_args!("has room again"));
            }
            Event::Release => self.change_release(),
            Event::StoreFault => self.store_fault(),
            Event::Stall => self.stall(),
            Event::Scrub => self.request_scrub(),
            Event::Stray => self.stray(),
            Event::Lie => self.lie(),
            Event::Class => self.ask_class(),
            Event::Frame { from, to, bytes } => return self.deliver_to_station(from, to, &bytes),
            Event::DeviceReset => self.reset_device(),
            Event::DeviceTaken => self.take_device(),
            Event::DeviceStall => self.stall_any_device(),
            Event::DeviceResume(node) => self.resume_device(node),
            Event::DeviceStranger => return self.send_as_stranger(),
            Event::FrameClient(client) => self.frame_client_acts(client),
            Event::ToDesk { node, life, client, ask } => {
                self.arrive(node, life, Arrival::Desk(client, ask))
            }
            Event::FromDesk { client, desk, answer } => {
                return self.frame_client_answered(client, desk, &answer);
            }
            Event::Deaf => self.deafen(),
            Event::Way => self.take_another_way(),
            Event::Hears(node) => self.restore_reception(node),
            Event::StoreCalm(node) => {
                self.nodes[node].store.take();
                self.line(&name(node), "store", format_args!("its disk is sound again"));
                self.schedule_turn(node);
            }
        }
        Ok(())
    }

    /// Delivers an arrival to a process. Ignores it if the process for which it was meant has
    /// ended.
    pub(crate) fn arrive(&mut self, node: usize, life: u64, arrival: Arrival) {
        if self.nodes[node].life != life {
            return;
        }
        if let Some(running) = &mut self.nodes[node].running {
            running.inbox.push_back(arrival);
            self.schedule_turn(node);
        }
    }

    /// Schedules a turn of the node in the near future.
    pub(crate) fn schedule_turn(&mut self, node: usize) {
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
            self.schedule_at(at, Event::Turn { node, life });
        }
    }

    /// Returns whether the run includes this kind of fault.
    pub fn has(&self, fault: Fault) -> bool {
        self.settings.faults.iter().any(|(kind, _)| *kind == fault)
    }
}
