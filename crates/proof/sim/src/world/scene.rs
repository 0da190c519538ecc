//! Building blocks for directed scenarios, which start with a calm cluster and cause one event
//! after another.

use quorate_core::{
    effect::Role,
    node_id::Member,
    quorum::{MemberSet, Phase},
    record::Class,
    slot::Slot,
    value::Value,
};

use super::{Event, World, name};
use crate::{
    check::{Verdict, Violation},
    faults::RunSettings,
    node::Arrival,
    resp::Reply,
    workload::{Client, Kind},
};

impl World {
    /// Returns a calm cluster with a leader.
    pub fn new_calm(seed: u64, nodes: usize, class: Class) -> Result<Self, Violation> {
        Self::with_leader(RunSettings::without_faults(seed, nodes, class))
    }

    /// Returns a cluster with `settings` and a leader.
    pub fn with_leader(settings: RunSettings) -> Result<Self, Violation> {
        let mut world = Self::new(settings);
        world.wait_for_leader()?;
        Ok(world)
    }

    /// Runs until a leader with followers is elected, and returns the leader's index.
    pub fn wait_for_leader(&mut self) -> Result<usize, Violation> {
        self.run_until("a leader is followed", |world| world.majority_leader().is_some())?;
        Ok(self.majority_leader().expect("just seen"))
    }

    /// Returns the index of the node that leads a majority; `None` if no node does.
    pub fn majority_leader(&self) -> Option<usize> {
        let leads = |index: &usize| {
            let running = self.nodes[*index].running.as_ref();
            running.is_some_and(|running| running.replica().node().role() == Role::Leader)
        };
        let is_followed = |leader: &usize| {
            let leading = self.nodes[*leader].running.as_ref();
            let Some(configuration) =
                leading.map(|running| running.replica().node().configuration())
            else {
                return false;
            };
            let id = self.nodes[*leader].id();
            let follows = |member: Member| {
                let running = self.nodes.iter().filter_map(|node| node.running.as_ref());
                let mut nodes = running.map(|running| running.replica());
                nodes.any(|node| node.member() == member && node.node().leader() == Some(id))
            };
            let members = configuration.members().iter().enumerate();
            let followed = members
                .filter(|(_, voter)| follows(voter.member))
                .fold(MemberSet::default(), |set, (at, _)| set.with(at));
            configuration.is_quorum(Phase::Two, followed)
        };
        (0..self.nodes.len()).find(|index| leads(index) && is_followed(index))
    }

    /// Connects a new client to a node and returns the client's index.
    pub fn add_client(&mut self, node: usize) -> usize {
        let index = self.clients.len();
        let dice = self.dice.fork();
        self.clients.push(Client::new(index, Kind::Scripted, dice));
        self.connect_client(index, node);
        index
    }

    /// Connects a client to a node over a new connection.
    pub fn connect_client(&mut self, client: usize, node: usize) {
        let connection = self.client_connections.open();
        self.clients[client].connection = Some((connection, node));
        let life = self.nodes[node].start_count;
        self.deliver_arrival_to(node, life, Arrival::ClientOpened(connection));
    }

    /// Sends a client's request without waiting for the reply.
    pub fn send_request(&mut self, client: usize, words: &[&[u8]]) {
        let Some((connection, node)) = self.clients[client].connection else {
            self.clients[client].replies.push_back(None);
            return;
        };
        if self.trace.traces_frames {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            let who = format!("c{}", client + 1);
            self.trace_line(&who, "asks", format_args!("node {}: {}", node + 1, words.join(" ")));
        }
        let bytes = self.clients[client].encode_request(words);
        self.send_client_bytes(node, connection, bytes);
    }

    /// Waits for a client's next reply; `None` if its connection is broken.
    pub fn wait_for_reply(&mut self, client: usize) -> Result<Option<Reply>, Violation> {
        self.run_until("a reply", |world| !world.clients[client].replies.is_empty())?;
        Ok(self.clients[client].replies.pop_front().expect("just seen"))
    }

    /// Sends a command, its words separated by spaces, from a new client to a node, and returns the
    /// reply.
    pub fn run_command(&mut self, node: usize, words: &str) -> Result<Reply, Violation> {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        let client = self.add_client(node);
        self.send_request(client, &words);
        self.wait_for_reply(client)?.ok_or_else(|| Violation::new("scene", "the connection broke"))
    }

    pub fn kill_now(&mut self, node: usize) {
        self.kill_process(node, 0);
    }

    pub fn start_now(&mut self, node: usize) {
        self.schedule_after(0, Event::StartProcess(node));
    }

    pub fn pause_now(&mut self, node: usize) {
        self.nodes[node].is_paused = true;
        self.nodes[node].next_turn_at = None;
        self.trace_line(&name(node), "paused", format_args!(""));
    }

    /// Stalls a process after it has read its clocks. When the process resumes, its turn still uses
    /// the old time.
    pub fn stall_now(&mut self, node: usize) {
        self.nodes[node].stalled_turn = Some(self.nodes[node].clock_readings(self.now));
        self.pause_now(node);
    }

    pub fn resume_now(&mut self, node: usize) {
        let life = self.nodes[node].start_count;
        self.schedule_after(0, Event::ResumeProcess { node, life });
    }

    /// Asks a node, as an operator, to transfer the leadership to another node.
    pub fn transfer_now(&mut self, node: usize, to: usize) {
        let to = Some(self.nodes[to].id());
        let life = self.nodes[node].start_count;
        self.deliver_arrival_to(node, life, Arrival::TransferRequest(to));
    }

    /// Shuts down a node gracefully, as an operator.
    pub fn stop_now(&mut self, node: usize) {
        let life = self.nodes[node].start_count;
        self.deliver_arrival_to(node, life, Arrival::StopRequest);
    }

    /// Blocks or unblocks all links between one node and the others.
    pub fn set_isolated(&mut self, node: usize, isolated: bool) {
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.schedule_after(
                0,
                Event::BlockLink { from: node, to: other, is_blocked: isolated },
            );
            self.schedule_after(
                0,
                Event::BlockLink { from: other, to: node, is_blocked: isolated },
            );
            if isolated {
                self.break_connection(node, other, 0);
            }
        }
    }

    pub fn block_now(&mut self, from: usize, to: usize, blocked: bool) {
        self.schedule_after(0, Event::BlockLink { from, to, is_blocked: blocked });
    }

    /// Breaks the connection between two nodes and drops all bytes in flight.
    pub fn break_now(&mut self, a: usize, b: usize) {
        self.break_connection(a, b, 0);
    }

    /// Delivers a frame to a node as if `from` had sent it.
    pub fn deliver_forged_frame(&mut self, from: usize, to: usize, frame: &[u8]) {
        let now = self.now;
        let link = crate::network::LaneLink { from, to, lane: 0 };
        for at in self.network.send_frames(now, link, frame) {
            self.schedule_at(at, Event::FragmentArrives(link));
        }
    }

    /// Returns the decided slots of the group, with their values.
    pub fn decided_history(&self) -> Vec<(Slot, Value)> {
        self.node_checkers.chosen_values().collect()
    }

    /// Runs until all nodes are caught up and have the same state.
    pub fn run_until_settled(&mut self) -> Verdict {
        self.run_until("all nodes have applied the same", |world| {
            world.is_caught_up() && world.majority_leader().is_some()
        })?;
        self.check_final_state()
    }
}
