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

use self::sides::{DatagramState, FaultState, FrameState, OperatorState, StreamState};
pub(crate) use crate::event::Event;
use crate::{
    air,
    check::{Verdict, Violation, streams::StreamHistory, watch::NodeCheckers},
    clock::NodeClock,
    dice::Dice,
    event::Schedule,
    faults::{Fault, RunSettings},
    ids::name,
    network::Network,
    node::{Arrival, Node},
    steps::StepRecorder,
    trace::RunTrace,
    wires::ClientConnections,
    workload::{Client, ClientRecords, Kind, frame_client::FrameClient, streams::StreamClient},
};

/// Number of occurrences of each kind of event in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    pub events: u64,
    pub kills: u64,
    /// Processes killed while starting.
    pub kills_at_start: u64,
    /// Processes shut down gracefully.
    pub clean_stops: u64,
    /// Releases installed in place of other releases.
    pub releases_installed: u64,
    /// Installed releases that were too old for the data folder.
    pub releases_too_old: u64,
    /// Increases of the group's feature level.
    pub level_raises: u64,
    /// Number of times that a node became leader.
    pub elections: u64,
    pub connection_resets: u64,
    /// Logs whose writes failed.
    pub disk_errors: u64,
    /// Blocks damaged by bit rot.
    pub rotted_blocks: u64,
    /// Writes that went to the wrong position.
    pub stray_writes: u64,
    /// Losses of acknowledged data by disks.
    pub data_losses: u64,
    /// Commands sent with a class other than the group's.
    pub class_requests: u64,
    /// Commands of another class that were acknowledged once a quorum had them in memory.
    pub class_in_memory: u64,
    /// Commands of another class that were acknowledged once a quorum had them on disk.
    pub class_on_disk: u64,
    pub files_rotted: u64,
    /// Starts refused because of a damaged small file.
    pub files_refused: u64,
    pub stores_rotted: u64,
    pub scrubs_completed: u64,
    /// Damaged places found by scrubs.
    pub scrub_findings: u64,
    /// Process starts with a new incarnation.
    pub new_incarnations: u64,
    /// Disk failures of a service.
    pub store_faults: u64,
    /// Clients disconnected because they used too much memory.
    pub clients_shed: u64,
    /// Snapshots taken by nodes.
    pub snapshots_taken: u64,
    /// Snapshots of peers installed by nodes that had fallen too far behind.
    pub snapshots_installed: u64,
    /// Snapshots loaded by services.
    pub snapshots_loaded: u64,
    /// Number of times that the beginning of a log was trimmed.
    pub log_trims: u64,
    pub joins: u64,
    /// Membership plans accepted from operators.
    pub plans_accepted: u64,
    /// Nodes removed and switched off.
    pub nodes_retired: u64,
    /// Processes stalled in the middle of a turn.
    pub process_stalls: u64,
    pub lease_reads: u64,
    /// Reads under a lease that had expired by the time of their execution.
    pub expired_lease_reads: u64,
    pub stream_bytes: u64,
    pub stream_pieces: u64,
    /// Stream bytes that records reference in the store instead of containing them.
    pub stream_bytes_by_reference: u64,
    /// Stream bytes read back and verified.
    pub stream_bytes_read: u64,
    /// Votes that ring members forwarded for others.
    pub relayed_votes: u64,
    pub device_frames: u64,
    /// Slots assigned by devices, as reported to the devices' owners.
    pub device_slots_assigned: u64,
    /// Decisions counted by devices, as reported to the devices' owners.
    pub device_decisions_counted: u64,
    /// Number of times that a leader withdrew slot assignment from its device.
    pub assignments_withdrawn: u64,
    /// Values too long to fit in a frame, as counted by device owners.
    pub device_values_too_long: u64,
    /// Values that nodes offered to the leader's device, as counted by those nodes.
    pub device_values_offered: u64,
    pub device_resets: u64,
    /// Devices removed from the network.
    pub devices_removed: u64,
    /// Number of times that a device stalled.
    pub device_stalls: u64,
    /// Frames in which a bit was flipped.
    pub frames_damaged: u64,
    /// Frames sent to stations by senders that are not devices.
    pub stranger_frames: u64,
    /// Batches that device clients confirmed from frames alone.
    pub batches_by_frames: u64,
    /// Counts of all packet planes.
    pub datagram_counts: air::DatagramCounts,
}

pub struct World {
    pub settings: RunSettings,
    pub now: Time,
    pub trace: RunTrace,
    pub counts: EventCounts,
    pub nodes: Vec<Node>,
    pub network: Network,
    /// All clients of the Redis front, by index.
    pub clients: Vec<Client>,
    pub client_records: ClientRecords,
    /// All byte stream clients, by index.
    pub stream_clients: Vec<StreamClient>,
    /// All device clients, by index.
    pub frame_clients: Vec<FrameClient>,
    schedule: Schedule,
    pub(crate) dice: Dice,
    client_connections: ClientConnections,
    fault_state: FaultState,
    datagram_state: DatagramState,
    frame_state: FrameState,
    operator_state: OperatorState,
    stream_state: StreamState,
    stream_history: StreamHistory,
    node_checkers: NodeCheckers,
}

impl World {
    /// Returns a world at time zero, in which all nodes are about to start.
    pub fn new(settings: RunSettings) -> Self {
        let mut dice = Dice::new(settings.seed);
        let chaos = FaultState::new(&settings, &mut dice);
        let nodes = (0..settings.founding_member_count).map(|index| {
            let clock = if settings.clock_drift_ppm == 0 && settings.clock_skew_ms == 0 {
                NodeClock::exact()
            } else {
                NodeClock::draw(&mut dice, settings.clock_drift_ppm, settings.clock_skew_ms)
            };
            Node::new(index, clock)
        });
        let mut nodes: Vec<Node> = nodes.collect();
        let total = settings.founding_member_count + settings.spare_node_count;
        // Spare nodes have exact clocks, which need no draws from the shared dice.
        nodes.extend(
            (settings.founding_member_count..total)
                .map(|index| Node::new(index, NodeClock::exact())),
        );
        let network = Network::new(settings.network_conditions.clone(), total, dice.fork());
        let clients = (0..settings.client_count)
            .map(|index| Client::new(index, Kind::for_client(index, settings.seed), dice.fork()));
        let clients: Vec<Client> = clients.collect();
        let mut world = Self {
            now: Time(0),
            trace: RunTrace::new(crate::trace::LINES_KEPT),
            counts: EventCounts::default(),
            network,
            clients,
            client_records: ClientRecords::default(),
            schedule: Schedule::default(),
            client_connections: ClientConnections::default(),
            fault_state: chaos,
            datagram_state: DatagramState::new(settings.seed, total),
            frame_state: FrameState::new(settings.seed),
            operator_state: OperatorState::new(&settings),
            stream_clients: Vec::new(),
            frame_clients: Vec::new(),
            stream_state: StreamState::new(settings.seed),
            stream_history: StreamHistory::default(),
            node_checkers: NodeCheckers::new(total, settings.founding_configuration()),
            nodes,
            dice,
            settings,
        };
        for node in 0..world.settings.founding_member_count {
            let after = world.dice.below(2000);
            world.schedule_after(after, Event::StartProcess(node));
        }
        for client in 0..world.clients.len() {
            let after = world.dice.below(10_000);
            world.schedule_after(after, Event::ClientActs(client));
        }
        for fault in 0..world.settings.fault_intervals.len() {
            let wait = world.dice.interval(world.settings.fault_intervals[fault].1);
            world.schedule_after(wait, Event::InjectFault(fault));
        }
        for node in 0..world.settings.founding_member_count {
            world.plan_founding_kill(node);
        }
        world.plan_store_fault();
        world.start_releases();
        world.plan_operator();
        world.plan_stall();
        world.plan_scrub();
        world.plan_stray();
        world.plan_data_loss();
        world.plan_class_request();
        world.plan_device_reset();
        world.plan_device_removal();
        world.plan_device_stall();
        world.plan_stranger_frame();
        world.plan_reception_loss();
        world.plan_transport_change();
        world.plan_streams();
        world.plan_frame_clients();
        world
    }

    pub(crate) fn schedule_at(&mut self, at: Time, event: Event) {
        self.schedule.schedule_event(at.max(self.now), event);
    }

    pub(crate) fn schedule_after(&mut self, us: u64, event: Event) {
        self.schedule_at(self.now.plus_us(us), event);
    }

    pub(crate) fn trace_line(&mut self, who: &str, what: &str, detail: std::fmt::Arguments<'_>) {
        self.trace.add_line(self.now, who, what, detail);
    }

    /// Starts to record the nodes' steps in the terms of the TLA+ specification.
    pub fn record_steps(&mut self) {
        self.node_checkers.steps = Some(StepRecorder::new(&self.settings.founding_configuration()));
    }

    /// Returns the recorded steps, one JSON object per line.
    pub fn recorded_steps(&self) -> &str {
        self.node_checkers.steps.as_ref().map_or("", StepRecorder::text)
    }

    /// Processes the next event; returns false if there is none.
    pub fn step_event(&mut self) -> Result<bool, Violation> {
        let Some((at, event)) = self.schedule.pop() else {
            return Ok(false);
        };
        self.now = at;
        self.counts.events += 1;
        self.handle_event(event)?;
        Ok(true)
    }

    fn handle_event(&mut self, event: Event) -> Verdict {
        match event {
            Event::RunTurn { node, life } => return self.run_turn(node, life),
            Event::FragmentArrives(link) => self.schedule_turn(link.to),
            Event::DatagramArrives { from, to, is_multicast: by_group, bytes } => {
                self.deliver_datagram(from, to, by_group, bytes)
            }
            Event::Dial(a, b) => self.dial_peer(a, b),
            Event::DisconnectRemoved { node, removed_peer: peer } => {
                self.disconnect_peer(node, peer)
            }
            Event::ConnectionDown { node, life, peer, connection } => {
                self.deliver_arrival_to(node, life, Arrival::PeerDown { peer, connection });
            }
            Event::DiskOperationDone { node, life, operation } => {
                return self.complete_disk_operation(node, life, operation);
            }
            Event::StartProcess(node) => return self.start_process(node),
            Event::ResumeProcess { node, life } => self.resume_process(node, life),
            Event::BytesToNode { node, life, connection, bytes } => {
                self.deliver_arrival_to(node, life, Arrival::ClientBytes(connection, bytes));
            }
            Event::BytesToClient { client, connection, bytes } => {
                return self.deliver_client_bytes(client, connection, &bytes);
            }
            Event::ClientDown { client, connection } => self.handle_client_down(client, connection),
            Event::ClientActs(client) => self.step_client(client),
            Event::RequestToStreams { node, life, connection, tag, request: ask } => {
                self.deliver_arrival_to(node, life, Arrival::StreamRequest(connection, tag, ask));
            }
            Event::ReplyToStreamClient { client, connection, reply: heard } => {
                return self.deliver_stream_reply(client, connection, heard);
            }
            Event::StreamClientDown { client, connection } => {
                self.handle_stream_client_down(client, connection)
            }
            Event::StreamClientActs(client) => self.step_stream_client(client),
            Event::InjectFault(index) => self.inject_fault(index),
            Event::OperatorActs => self.act_as_operator(),
            Event::BlockLink { from, to, is_blocked: blocked } => {
                self.block_link(from, to, blocked)
            }
            Event::RepairNode { node, life } => self.repair_node(node, life),
            Event::CheckAllNodes => self.check_all_nodes(),
            Event::DiskSpeedRestored(node) => {
                self.nodes[node].disk_slowdown = 1;
                self.trace_line(&name(node), "disk", format_args!("is fast again"));
            }
            Event::DescriptorsRestored(node) => {
                self.nodes[node].disk.set_out_of_descriptors(false);
                self.trace_line(&name(node), "disk", format_args!("files can be opened again"));
            }
            Event::DiskSpaceRestored(node) => {
                self.nodes[node].disk.set_capacity(None);
                self.trace_line(&name(node), "disk", format_args!("has room again"));
            }
            Event::InstallRelease => self.install_random_release(),
            Event::StoreFault => self.fail_store_disk(),
            Event::StallProcess => self.stall_process(),
            Event::RequestScrub => self.request_scrub(),
            Event::StrayWrite => self.inject_stray(),
            Event::DataLoss => self.plan_loss_and_kill(),
            Event::ClassRequest => self.send_class_request(),
            Event::FrameArrives { from, to, bytes } => {
                return self.deliver_to_station(from, to, &bytes);
            }
            Event::DeviceReset => self.reset_any_device(),
            Event::DeviceRemoved => self.remove_device(),
            Event::DeviceStall => self.stall_any_device(),
            Event::DeviceResume(node) => self.resume_device(node),
            Event::StrangerFrame => return self.send_stranger_frame(),
            Event::FrameClientActs(client) => self.step_frame_client(client),
            Event::RequestToDesk { node, life, client, request: ask } => {
                self.deliver_arrival_to(node, life, Arrival::DeskRequest(client, ask))
            }
            Event::AnswerFromDesk { client, desk, answer } => {
                return self.deliver_frame_client_answer(client, desk, &answer);
            }
            Event::LoseReception => self.lose_reception(),
            Event::ChangeTransport => self.change_transport(),
            Event::RestoreReception(node) => self.restore_reception(node),
            Event::StoreRecovers(node) => {
                self.nodes[node].store_disk.take();
                self.trace_line(&name(node), "store", format_args!("its disk is sound again"));
                self.schedule_turn(node);
            }
        }
        Ok(())
    }

    /// Delivers an arrival to a process. Ignores it if the process for which it was meant has
    /// ended.
    pub(crate) fn deliver_arrival_to(&mut self, node: usize, life: u64, arrival: Arrival) {
        if self.nodes[node].start_count != life {
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
        self.schedule_turn_by(node, at);
    }

    pub(crate) fn schedule_turn_by(&mut self, node: usize, at: Time) {
        let process = &mut self.nodes[node];
        let later = process.next_turn_at.is_none_or(|planned| planned > at);
        if process.running.is_some() && !process.is_paused && later {
            process.next_turn_at = Some(at);
            let life = process.start_count;
            self.schedule_at(at, Event::RunTurn { node, life });
        }
    }

    /// Returns whether the run includes this kind of fault.
    pub fn includes_fault(&self, fault: Fault) -> bool {
        self.settings.fault_intervals.iter().any(|(kind, _)| *kind == fault)
    }
}
