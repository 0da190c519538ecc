//! The world of a run: one queue of events, virtual time, nodes, network, clients, checks.
//!
//! Here: the parts, and which of them an event is for. `lives` has processes, disks and connections
//! between nodes, `datagrams` what flies singly, `turn` what a process does, `clients` what clients
//! do, `chaos` what goes wrong, `operators` who joins and leaves; `acts` plays a run, `scene` is
//! for directed ones.
//!
//! Nothing here decides anything for a node: a turn hands the real replica what arrived, in the
//! order in which the reactor would, and carries away what it says.

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
    wires::Wires,
    workload::{Books, Client, Kind, frame_client::FrameClient, streams::Streamer},
};

/// Counts of events.
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
    /// Other releases installed.
    pub installed: u64,
    /// Of those: refused by their folder.
    pub too_old: u64,
    /// Rises of the group's level.
    pub raised: u64,
    /// Times that a node began to lead.
    pub elections: u64,
    /// Connections broken.
    pub resets: u64,
    /// Logs whose writes failed.
    pub disk_errors: u64,
    /// Damaged blocks.
    pub rotted: u64,
    /// Writes that went to a wrong place.
    pub strays: u64,
    /// Disks that lost the end of a log, which others remembered.
    pub lies: u64,
    /// Commands for which clients asked another class than the group's.
    pub class_asked: u64,
    /// Of those: commands reported to their clients as in the memory of a quorum, or on its disks.
    pub class_early: u64,
    /// See above.
    pub class_lasting: u64,
    /// Small files that were damaged.
    pub files_rotted: u64,
    /// Starts that refused such a file.
    pub files_refused: u64,
    /// Stores of services that were damaged.
    pub stores_rotted: u64,
    /// Scrubs that ended.
    pub scrubs: u64,
    /// Damaged places that scrubs met.
    pub scrubs_found: u64,
    /// Starts as a new incarnation.
    pub forgot: u64,
    /// Failures of the disk of a service.
    pub store_faults: u64,
    /// Clients closed because they held too much.
    pub shed: u64,
    /// Snapshots that nodes took.
    pub snapshots: u64,
    /// Snapshots of peers that took the place of what a node lacked.
    pub installs: u64,
    /// Snapshots that services took in.
    pub loads: u64,
    /// Times that a log was made to begin later.
    pub trims: u64,
    /// Nodes that joined.
    pub joins: u64,
    /// Plans that operators were granted.
    pub plans: u64,
    /// Nodes that were removed and switched off.
    pub retired: u64,
    /// Times that a process stalled in the midst of a turn.
    pub stalls: u64,
    /// Reads that ran by a lease, and those of them whose lease was over when they had read.
    pub leased: u64,
    /// See above.
    pub overtaken: u64,
    /// Bytes of streams that were acknowledged, and pieces that were opened.
    pub stream_bytes: u64,
    /// See above.
    pub stream_pieces: u64,
    /// Bytes of streams that records named in the store instead of having them.
    pub stream_bytes_placed: u64,
    /// Bytes of streams that were read, and found right.
    pub stream_bytes_read: u64,
    /// Votes that members of a ring passed on for others.
    pub relayed: u64,
    /// Frames that devices sent.
    pub device_frames: u64,
    /// Slots that devices assigned, and decisions that they counted, as reported to their owners.
    pub device_given: u64,
    /// See above.
    pub device_counted: u64,
    /// Times that a leader took back what its device gave out.
    pub taken_back: u64,
    /// Values that were too long for frames, as owners saw.
    pub device_outgrown: u64,
    /// Values that nodes offered to the leader's device, as they count.
    pub device_offered: u64,
    /// Devices that lost power.
    pub device_resets: u64,
    /// Devices removed from their places.
    pub devices_taken: u64,
    /// Times that a device stood still for a while.
    pub device_stalls: u64,
    /// Frames in which a bit turned, and those sent by no device.
    pub frames_damaged: u64,
    /// See above.
    pub frames_of_strangers: u64,
    /// Batches that clients of devices knew by frames alone to be executed.
    pub by_frames: u64,
    /// Counts of planes of packets.
    pub packets: air::Counts,
}

/// A running simulation.
pub struct World {
    /// Settings of the run.
    pub settings: Settings,
    /// The world's time.
    pub now: Time,
    /// Trace of the run.
    pub trace: Trace,
    /// Counts of events.
    pub counts: Counts,
    /// The nodes, by index.
    pub nodes: Vec<Node>,
    /// Network between the nodes.
    pub network: Network,
    /// The clients, by index.
    pub clients: Vec<Client>,
    /// Records of clients.
    pub books: Books,
    /// The clients of byte streams, by index.
    pub streamers: Vec<Streamer>,
    /// The clients of devices, by index.
    pub frame_clients: Vec<FrameClient>,
    schedule: Schedule,
    pub(crate) dice: Dice,
    wires: Wires,
    chaos: Chaos,
    flights: Flights,
    frames: Frames,
    operators: Operators,
    streaming: Streaming,
    stream_check: Streams,
    watch: Watch,
}

impl World {
    /// Returns a world before its first moment. Nodes start at once.
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
        // Their clocks are exact, and take no draw from others.
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
            wires: Wires::default(),
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

    pub(crate) fn at(&mut self, at: Time, event: Event) {
        self.schedule.plan(at.max(self.now), event);
    }

    pub(crate) fn after(&mut self, us: u64, event: Event) {
        self.at(self.now.plus_us(us), event);
    }

    pub(crate) fn line(&mut self, who: &str, what: &str, detail: std::fmt::Arguments<'_>) {
        self.trace.line(self.now, who, what, detail);
    }

    /// Writes down from now on what nodes do, as the specification knows it.
    pub fn keep_steps(&mut self) {
        self.watch.steps = Some(Steps::new(&self.settings.founding()));
    }

    /// Returns the steps of the nodes, a JSON object per line.
    pub fn steps(&self) -> &str {
        self.watch.steps.as_ref().map_or("", Steps::text)
    }

    /// Lets the next thing happen; false if nothing ever will.
    ///
    /// # Errors
    /// A property is broken.
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
            Event::Piece(link) => self.wake(link.to),
            Event::Datagram { from, to, by_group, bytes } => {
                self.datagram(from, to, by_group, bytes)
            }
            Event::Dial(a, b) => self.dial(a, b),
            Event::Part { node, peer } => self.part(node, peer),
            Event::Down { node, life, peer, connection } => {
                self.arrive(node, life, Arrival::PeerDown { peer, connection });
            }
            Event::Disk { node, life, operation } => return self.disk_done(node, life, operation),
            Event::Start(node) => return self.start(node),
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
            Event::Fault(index) => self.strike(index),
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
            Event::Scrub => self.want_scrub(),
            Event::Stray => self.stray(),
            Event::Lie => self.lie(),
            Event::Class => self.ask_class(),
            Event::Frame { from, to, bytes } => return self.station_hears(from, to, &bytes),
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
            Event::Hears(node) => self.hears(node),
            Event::StoreCalm(node) => {
                self.nodes[node].store.take();
                self.line(&name(node), "store", format_args!("its disk is sound again"));
                self.wake(node);
            }
        }
        Ok(())
    }

    /// Delivers an arrival to a process, if it is still the one that it was meant for.
    pub(crate) fn arrive(&mut self, node: usize, life: u64, arrival: Arrival) {
        if self.nodes[node].life != life {
            return;
        }
        if let Some(running) = &mut self.nodes[node].running {
            running.inbox.push_back(arrival);
            self.wake(node);
        }
    }

    /// Plans a turn of the node soon, as it has something to do.
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

    /// Returns whether this kind of fault is part of the run.
    pub fn has(&self, fault: Fault) -> bool {
        self.settings.faults.iter().any(|(kind, _)| *kind == fault)
    }
}
