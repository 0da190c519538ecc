//! Start of a node's process, from its identity to a host that a reactor can run. Production and
//! the simulator run the same code.
//!
//! First, the start is durably counted. Then a node that may have forgotten votes durably takes a
//! new incarnation, before its log is opened. Only after that is any message sent.

use std::{collections::BTreeMap, fmt};

use quorate_core::{
    configuration::InvalidConfiguration,
    node_id::{Incarnation, NodeId},
    record::Class,
    slot::Slot,
    time::Time,
    value::Value,
    witness::{LogEnd, Memory, STEPS_MAX},
};
use quorate_log::{Log, LogError, LogOptions, ReadProgress, Recovery};
use quorate_replica::{
    Replica, ReplicaOptions, front::Front, open::OpenError, service::StateMachine,
    status::Addresses,
};

use crate::{
    home::Home,
    identity::{Founding, Identity, IdentityError, LastStop},
    listener::EventListener,
    node_host::NodeHost,
};

/// Step of a node's start, for progress reports.
#[derive(Clone, Copy, Debug)]
pub enum BootStep<'a> {
    /// The log's disk is open. The text names the driver and the reason for its choice.
    DiskOpened(&'a str),
    /// The log is being read.
    ReadingLog(ReadProgress),
    /// Votes may be forgotten after an unclean stop, so the node starts in this new incarnation.
    MayHaveForgotten(Incarnation),
    /// The log lost votes, at the given places.
    LostVotes(&'a [String]),
    /// Because votes were lost, the node continues in this new incarnation.
    NewIncarnation(Incarnation),
    /// The log is open, and recovery had these findings.
    LogRecovered(&'a Recovery),
}

/// Settings and callbacks of the program that starts a node.
pub trait Starter {
    /// Sets the options for the log. Their owner is already set.
    fn choose_log(&self, options: &mut LogOptions, class: Class);

    /// Sets the options for the replica. Their member is already set.
    fn choose_replica(&self, options: &mut ReplicaOptions);

    /// Reports a step of the start.
    fn report_step(&mut self, step: BootStep<'_>);

    /// [lie-3] Requests the peers' memory of this node, without waiting for slow ones.
    fn request_memories(&mut self, question: &MemoryRequest<'_>) -> Vec<(NodeId, Memory)>;

    /// Waits for free disk space after `error`, which reported a lack of it. Returns `true` to
    /// retry and `false` to abort the start.
    fn wait_for_room(&mut self, error: &BootError) -> bool;
}

/// A starting node's request for its peers' memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRequest<'a> {
    pub cluster: u128,
    pub node: NodeId,
    /// Known addresses of the cluster's nodes.
    pub peers: &'a BTreeMap<NodeId, String>,
}

/// Components of a node other than its home.
pub struct NodeParts<S, F> {
    pub service: S,
    /// Returns the slot below which the service has durably stored everything. A log that ends
    /// earlier has lost its end. Called only if services never get ahead of the log.
    pub stored_to: fn(&mut S) -> Slot,
    pub front: F,
    pub listener: Box<dyn EventListener>,
}

/// Reason why a node did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootError {
    /// The identity file cannot be written.
    Identity(IdentityError),
    /// The log cannot be opened or read.
    Log(LogError),
    /// The members in the identity are not a valid configuration.
    InvalidMembers(InvalidConfiguration),
    /// The replica cannot continue from the recovered state.
    Replica(OpenError),
    /// A peer remembers a state of this node that is too far ahead of the folder ([lie-4]).
    FarBehind {
        /// Peer that remembers the later state.
        reported_by: NodeId,
        /// State of this node that the peer remembers.
        remembered: Memory,
        /// State that the folder records.
        recorded: Memory,
    },
    /// The disk is full, and the starter chose not to wait.
    NoRoom,
}

impl BootError {
    pub fn is_full(&self) -> bool {
        match self {
            Self::Identity(error) => error.is_full(),
            Self::Log(error) => error.is_full(),
            Self::InvalidMembers(_) | Self::Replica(_) | Self::FarBehind { .. } | Self::NoRoom => {
                false
            }
        }
    }
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identity(error) => error.fmt(f),
            Self::Log(error) => error.fmt(f),
            Self::InvalidMembers(invalid) => {
                write!(f, "the founding members do not form a valid configuration: {invalid:?}")
            }
            Self::Replica(error) => error.fmt(f),
            Self::FarBehind { reported_by: by, remembered, recorded: own } => write!(
                f,
                "node {by} remembers {remembered} of this node, and this folder ends with {own}: that is more than \
                 {STEPS_MAX} starts or incarnations away, so one of the two is wrong"
            ),
            Self::NoRoom => f.write_str("there is no space on the disk"),
        }
    }
}

impl std::error::Error for BootError {}

impl From<IdentityError> for BootError {
    fn from(error: IdentityError) -> Self {
        Self::Identity(error)
    }
}

impl From<LogError> for BootError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

/// Starts a process of this node: counts the start, opens the log, rebuilds the state of the node,
/// and combines it with a service and a front.
///
/// The process start is recorded first ([volatile-1]). A node that may have forgotten votes returns
/// in a new incarnation, any other in its present one ([volatile-3]). The clock starts at zero.
pub fn boot<H: Home, S: StateMachine, F: Front>(
    mut identity: Identity<H>,
    parts: NodeParts<S, F>,
    starter: &mut dyn Starter,
) -> Result<NodeHost<H, S, F>, BootError> {
    let NodeParts { mut service, stored_to, front, listener } = parts;
    let last = retry_while_full(starter, |_| Ok(identity.begin_boot()?))?;
    take_incarnation(&mut identity, last, starter)?;
    let stored_to = match identity.founding().class {
        Class::Durable => stored_to(&mut service),
        Class::Volatile => Slot(0),
    };
    let (log, recovery) = open_log(&mut identity, last, stored_to, starter)?;
    starter.report_step(BootStep::LogRecovered(&recovery));
    let mut options = replica_options(&identity, starter)?;
    let leased_us = options.leases.map_or(0, |leases| leases.duration_us);
    options.earlier_lease_us =
        retry_while_full(starter, |_| Ok(identity.permit_leases(leased_us)?))?;
    if identity.is_newly_created() {
        // [lie-6] No other node can know this group yet, or this node as its member.
        options.lead_alone_after_us = 0;
    }
    let replica =
        Replica::open(options, log, recovery, service, Time(0)).map_err(BootError::Replica)?;
    Ok(NodeHost::new(replica, front, identity, listener))
}

/// State of a node that continues without its peers ([era-10]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandaloneState {
    /// Slot below which everything is known to be decided.
    pub decided_to: Slot,
    /// First slot without a vote of this node. The node's votes below it count as decided.
    pub counted_to: Slot,
    /// End of the node's votes. Votes after the first slot without one do not count.
    pub voted_to: Slot,
    /// Damaged places of the node's log, with the findings.
    pub damaged_places: Vec<String>,
}

/// Like [`boot`], but for a node that will never communicate with its peers again. Its own votes
/// count as decided, up to the first slot without one. Use it only on a copy of the node, because
/// it may apply values that were never decided.
pub fn boot_alone<H: Home, S: StateMachine, F: Front>(
    mut identity: Identity<H>,
    parts: NodeParts<S, F>,
    starter: &mut dyn Starter,
) -> Result<(NodeHost<H, S, F>, StandaloneState), BootError> {
    let NodeParts { mut service, stored_to, front, listener } = parts;
    let last = retry_while_full(starter, |_| Ok(identity.begin_boot()?))?;
    let stored_to = match identity.founding().class {
        Class::Durable => stored_to(&mut service),
        Class::Volatile => Slot(0),
    };
    let (log, mut recovery) = open_log(&mut identity, last, stored_to, starter)?;
    let alone = count_own_votes(&mut recovery);
    let options = replica_options(&identity, starter)?;
    let replica =
        Replica::open(options, log, recovery, service, Time(0)).map_err(BootError::Replica)?;
    let host = NodeHost::new(replica, front, identity, listener);
    Ok((host, alone))
}

/// [era-10] Counts this node's votes above `decided_to`, up to the first gap, as decided.
fn count_own_votes(recovery: &mut Recovery) -> StandaloneState {
    let decided_to = recovery.hard_state.decided_to;
    let mut to = decided_to;
    for vote in &recovery.votes {
        if vote.range.from > to {
            break;
        }
        to = to.max(vote.range.to);
        if matches!(vote.value, Value::Reconfigure { .. }) {
            recovery.reconfigurations.push((vote.range.from, vote.value));
        }
    }
    recovery.hard_state.decided_to = to;
    recovery.votes.clear();
    let damage = recovery.damage.as_ref();
    StandaloneState {
        decided_to,
        counted_to: to,
        voted_to: recovery.hard_state.voted_to.max(to),
        damaged_places: damage.map_or_else(Vec::new, |damage| damage.descriptions.clone()),
    }
}

/// Repeats an attempt while disk space is lacking. A node with a full disk must not give up,
/// because the cluster may be waiting for its votes.
fn retry_while_full<T>(
    starter: &mut dyn Starter,
    mut attempt: impl FnMut(&mut dyn Starter) -> Result<T, BootError>,
) -> Result<T, BootError> {
    loop {
        match attempt(starter) {
            Err(error) if error.is_full() => {
                if !starter.wait_for_room(&error) {
                    return Err(BootError::NoRoom);
                }
            }
            ended => return ended,
        }
    }
}

/// [volatile-1] Takes a new incarnation if votes may be forgotten, as after an unclean stop.
fn take_incarnation<H: Home>(
    identity: &mut Identity<H>,
    last: LastStop,
    starter: &mut dyn Starter,
) -> Result<(), BootError> {
    if last.may_have_forgotten(identity.founding().class) {
        let incarnation = retry_while_full(starter, |_| Ok(identity.new_incarnation()?))?;
        starter.report_step(BootStep::MayHaveForgotten(incarnation));
    }
    Ok(())
}

/// Opens the log. If the log lost votes, takes a new incarnation and opens the log again in that
/// incarnation ([disk-8], [volatile-1]).
fn open_log<H: Home>(
    identity: &mut Identity<H>,
    last: LastStop,
    stored_to: Slot,
    starter: &mut dyn Starter,
) -> Result<(Log<H::Disk>, Recovery), BootError> {
    let Founding { cluster, node, class, .. } = *identity.founding();
    let mut options = LogOptions::new(cluster, node, identity.incarnation());
    starter.choose_log(&mut options, class);
    options.has_run_before = last != LastStop::Never;
    options.store_has_to = stored_to;
    let (log, recovery) =
        retry_while_full(starter, |starter| try_open_log(identity, options, starter))?;
    let damage = recovery.damage.as_ref().filter(|damage| damage.votes_lost);
    let mut places = damage.map_or_else(Vec::new, |damage| damage.descriptions.clone());
    let written = LogEnd { incarnation: identity.incarnation(), last_write: recovery.intact_to };
    // The current start is excluded, because nothing was sent in it.
    let own = Memory { log_end: written, boot: identity.boot() - 1 };
    let mut heard = own;
    // [lie-3] A folder that claims never to have run may be an older copy.
    for (by, remembered) in request_memories(identity, starter) {
        if !own.fell_behind(remembered) {
            continue;
        }
        if !own.may_skip_to(remembered) {
            return Err(BootError::FarBehind { reported_by: by, remembered, recorded: own });
        }
        // [lie-4] Everything that is no longer on its disk counts as forgotten.
        heard = heard.max(remembered);
        places.push(format!(
            "node {by} remembers {remembered}, and this folder ends with {own}: the disk lost writes that it had \
             acknowledged, or the folder is an old copy"
        ));
    }
    if places.is_empty() {
        return Ok((log, recovery));
    }
    starter.report_step(BootStep::LostVotes(&places));
    drop(log);
    options.incarnation = retry_while_full(starter, |_| Ok(identity.renew_above(heard)?))?;
    options.is_loss_known = true;
    starter.report_step(BootStep::NewIncarnation(options.incarnation));
    retry_while_full(starter, |starter| try_open_log(identity, options, starter))
}

fn request_memories<H: Home>(
    identity: &Identity<H>,
    starter: &mut dyn Starter,
) -> Vec<(NodeId, Memory)> {
    let founding = identity.founding();
    starter.request_memories(&MemoryRequest {
        cluster: founding.cluster,
        node: founding.node,
        peers: &identity.address_book().peers,
    })
}

fn try_open_log<H: Home>(
    identity: &mut Identity<H>,
    options: LogOptions,
    starter: &mut dyn Starter,
) -> Result<(Log<H::Disk>, Recovery), BootError> {
    let tell = &mut |reason: &str| starter.report_step(BootStep::DiskOpened(reason));
    let disk = identity.home_mut().open_disk(tell);
    let disk = disk.map_err(LogError::Disk)?;
    let tell = &mut |reading| starter.report_step(BootStep::ReadingLog(reading));
    Ok(Log::open_with_progress(disk, options, tell)?)
}

fn replica_options<H: Home>(
    identity: &Identity<H>,
    starter: &dyn Starter,
) -> Result<ReplicaOptions, BootError> {
    let founding = identity.founding();
    let configuration = founding
        .terms
        .configuration(founding.members.keys(), founding.class)
        .map_err(BootError::InvalidMembers)?;
    let mut options =
        ReplicaOptions::new(founding.cluster, identity.member(), identity.boot(), configuration);
    options.seed = identity.seed();
    options.marked_level = identity.level();
    let of = |(node, peer): (&NodeId, &String)| {
        let elsewhere = Addresses { peer: peer.clone(), ..Addresses::default() };
        (*node, elsewhere)
    };
    options.addresses = identity.address_book().peers.iter().map(of).collect();
    options.founding_peers.clone_from(&founding.members);
    starter.choose_replica(&mut options);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use quorate_core::{ballot::Ballot, message::Extent, record::HardState, slot::SlotRange};
    use quorate_log::Base;

    use super::*;

    fn recovery(decided_to: u64, votes: &[(u64, u64)]) -> Recovery {
        let vote = |(from, to): &(u64, u64)| Extent {
            range: SlotRange::new(Slot(*from), Slot(*to)),
            ballot: Ballot::ZERO,
            value: Value::NoOp,
            class: Class::Durable,
        };
        Recovery {
            base: Base::default(),
            hard_state: HardState {
                decided_to: Slot(decided_to),
                voted_to: votes.last().map_or(Slot(decided_to), |vote| Slot(vote.1)),
                ..HardState::default()
            },
            votes: votes.iter().map(vote).collect(),
            reconfigurations: Vec::new(),
            placed_values: Vec::new(),
            torn_tail_bytes: 0,
            damage: None,
            record_count: 0,
            next_seq: 1,
            intact_to: 0,
            incarnation: None,
        }
    }

    /// [era-10] Own votes count up to the first gap, because the order after it is unknown.
    #[test]
    fn own_votes_count_up_to_the_first_gap() {
        for (votes, counted) in [
            (&[][..], 10),
            (&[(10, 12), (12, 15)], 15),
            (&[(10, 12), (13, 15)], 12),
            (&[(11, 15)], 10),
        ] {
            let mut recovery = recovery(10, votes);
            let alone = count_own_votes(&mut recovery);
            assert_eq!((alone.decided_to, alone.counted_to), (Slot(10), Slot(counted)));
            let voted = votes.last().map_or(10, |vote| vote.1);
            assert_eq!(alone.voted_to, Slot(voted));
            assert_eq!(recovery.hard_state.decided_to, Slot(counted));
            assert!(recovery.votes.is_empty());
        }
    }
}
