//! What a front asks, put into this replica's queues.

use std::collections::BTreeMap;

use quorate_core::{
    effect::Role,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};
use quorate_disk::Disk;

use crate::{
    applying::applier::ask,
    front::{Failure, Requests, Sequenced, Tag},
    proposing::batch::Entry,
    replica::Replica,
    service::StateMachine,
    status::{Addresses, Peer, Status},
};

/// A replica at one moment, for a front.
pub struct Requester<'a, D: Disk, S: StateMachine> {
    replica: &'a mut Replica<D, S>,
    now: Time,
    wall_ms: u64,
}

impl<'a, D: Disk, S: StateMachine> Requester<'a, D, S> {
    pub(crate) fn new(replica: &'a mut Replica<D, S>, now: Time, wall_ms: u64) -> Self {
        Self {
            replica,
            now,
            wall_ms,
        }
    }

    fn accept(&mut self, tag: Tag, at: Option<Sequenced>, command: &[u8]) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.takes_requests()?;
        replica.takes_commands()?;
        if command.len() > replica.command_bytes_max {
            return Err(Failure::TooBig);
        }
        let taken = replica.origin.accept(self.now, tag, &Entry { at, command });
        self.count(taken)
    }

    fn count(&mut self, taken: Result<(), Failure>) -> Result<(), Failure> {
        let counters = &mut self.replica.counters;
        match taken {
            Ok(()) => {
                counters.commands_accepted += 1;
                self.replica.completions.opened();
            }
            Err(_) => counters.commands_busy += 1,
        }
        taken
    }
}

impl<D: Disk, S: StateMachine> Requests for Requester<'_, D, S> {
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        self.accept(tag, None, command)
    }

    fn write_once(&mut self, tag: Tag, at: Sequenced, command: &[u8]) -> Result<(), Failure> {
        self.accept(tag, Some(at), command)
    }

    fn register(&mut self, tag: Tag) -> Result<(), Failure> {
        self.replica.takes_requests()?;
        self.replica.takes_commands()?;
        let taken = self.replica.origin.register(self.now, tag);
        self.count(taken)
    }

    fn read(&mut self, tag: Tag) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.takes_requests()?;
        replica.takes_reads()?;
        if replica.reads.len() >= replica.limits.waiting_requests {
            replica.counters.commands_busy += 1;
            return Err(Failure::Busy);
        }
        replica
            .reads
            .push(tag, self.now.plus_ms(replica.client_timeout_ms));
        replica.counters.reads_asked += 1;
        replica.completions.opened();
        Ok(())
    }

    fn read_in_order(&mut self, tag: Tag) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.takes_requests()?;
        replica.takes_commands()?;
        let taken = replica.origin.accept_read(self.now, tag);
        match taken {
            Ok(()) => {
                replica.counters.reads_in_order += 1;
                replica.completions.opened();
            }
            Err(_) => replica.counters.commands_busy += 1,
        }
        taken
    }

    fn forget(&mut self, tag: Tag) {
        self.replica.completions.forget(tag);
    }

    fn query(&mut self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        let applier = &self.replica.applier;
        if !applier.answers() {
            return Err(Failure::Unavailable);
        }
        ask(&applier.service, query, self.wall_ms, reply)
    }

    fn status(&self) -> Status {
        self.replica.status(self.now)
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    fn command_bytes_max(&self) -> usize {
        self.replica.command_bytes_max
    }
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    pub(crate) fn takes_requests(&self) -> Result<(), Failure> {
        let over = self.stop.is_requested() || self.storage_error.is_some();
        if over { Err(Failure::Stopping) } else { Ok(()) }
    }

    /// What this node says about itself.
    pub fn status(&self, now: Time) -> Status {
        Status {
            cluster: self.cluster,
            member: self.member,
            role: self.node.role(),
            leader: self.node.leader(),
            era: self.node.era(),
            ballot: self.node.ballot(),
            decided_to: self.node.decided_to(),
            applied_to: self.applier.applied_to(),
            durable_to: self.node.durable_to(),
            class: self.node.configuration().class(),
            log_bytes: self.log.size_bytes(),
            disk: self.disk_use(now),
            progress: self.progress(now),
            error: self.error(),
            notices: self.notices(now),
            peers: self.known_peers(now),
        }
    }

    /// What somebody should look at, although the node serves.
    fn notices(&self, now: Time) -> Vec<String> {
        let strain = self.applier.strain().map(ToOwned::to_owned);
        self.promises
            .notice(now)
            .into_iter()
            .chain(strain)
            .collect()
    }

    /// Why this node does not vote or serve, if it does not; the gravest reason.
    pub fn error(&self) -> Option<String> {
        if let Some(alarm) = &self.alarm {
            return Some(format!(
                "a rule of the protocol was broken: {alarm}; stop the nodes, keep their folders, \
                 report it"
            ));
        }
        if let Some(error) = &self.storage_error {
            return Some(format!(
                "the log failed, this node neither votes nor leads: {error}"
            ));
        }
        let trouble = self.applier.trouble();
        if self.applier.is_stuck() {
            return trouble;
        }
        if let Some(lost) = self.lost_value_text() {
            return Some(lost);
        }
        if let Some(error) = &self.read_error {
            return Some(format!("the log could not be read back: {error}"));
        }
        if trouble.is_some() {
            return trouble;
        }
        if self.node.is_out_of_rounds() {
            let times = self.member.incarnation.0;
            return Some(format!(
                "this node has lost its memory {times} times and has no rounds left: it never leads \
                 again; replace it under a new id"
            ));
        }
        let configuration = self.node.configuration();
        let forgot = configuration.position(self.member).is_none()
            && configuration.member_of(self.member.node).is_some();
        if forgot {
            return Some(
                "this node may have forgotten votes: it learns, without a vote".to_owned(),
            );
        }
        self.log.busy_reason()
    }

    /// [disk-8] The first slot that was decided here and whose value the log cannot give any more, and
    /// how many questions for it nobody answered.
    pub fn lost_value(&self) -> Option<(Slot, u32)> {
        let running = || Some((self.repair.first()?, self.repair.fruitless()));
        self.node.relearning().or_else(running)
    }

    fn lost_value_text(&self) -> Option<String> {
        let (first, fruitless) = self.lost_value()?;
        let members = self.node.configuration().members();
        let others = members.iter().map(|voter| voter.member.node);
        let others: Vec<NodeId> = others.filter(|node| *node != self.member.node).collect();
        let absent: Vec<NodeId> = others
            .iter()
            .copied()
            .filter(|node| !self.peers.contains_key(node))
            .collect();
        let asked_all = fruitless as usize > 2 * others.len();
        let next = if others.is_empty() {
            "there is no other node to fetch it from: restore this node's folder from a copy"
                .to_owned()
        } else if !asked_all && absent.len() < others.len() {
            "fetching it from peers".to_owned()
        } else if absent.is_empty() {
            "none of the other nodes has it: bring back a folder that does".to_owned()
        } else {
            let absent: Vec<String> = absent.iter().map(NodeId::to_string).collect();
            let absent = absent.join(", node ");
            format!("nobody who is connected has it: start node {absent}")
        };
        Some(format!(
            "the log has lost the value of slot {first}; {next}"
        ))
    }

    fn known_peers(&self, now: Time) -> Vec<Peer> {
        let mut peers = BTreeMap::new();
        for voter in self.node.configuration().members() {
            let peer = self.peer(voter.member, voter.weight, voter.auxiliary);
            peers.insert(voter.member.node, peer);
        }
        for (node, member) in &self.peers {
            peers
                .entry(*node)
                .or_insert_with(|| self.peer(*member, 0, false));
        }
        let own = self.member.node;
        peers
            .entry(own)
            .or_insert_with(|| self.peer(self.member, 0, false))
            .connected = true;
        if self.node.role() == Role::Leader {
            for (node, heard, lag) in self.node.followers(now) {
                if let Some(peer) = peers.get_mut(&node) {
                    (peer.connected, peer.lag) = (heard, Some(lag));
                }
            }
        }
        peers.into_values().collect()
    }

    fn peer(&self, member: Member, weight: u32, auxiliary: bool) -> Peer {
        Peer {
            member,
            weight,
            auxiliary,
            connected: self.peers.contains_key(&member.node),
            lag: None,
            addresses: self.address(member.node),
        }
    }

    fn address(&self, node: NodeId) -> Addresses {
        self.addresses.get(&node).cloned().unwrap_or_default()
    }
}
