//! Status of a node, for `status`, `INFO` and the metrics.

use std::fmt;

use quorate_core::{
    ballot::{Ballot, Era},
    effect::Role,
    level::Level,
    node_id::{Member, NodeId},
    quorum::QuorumRule,
    record::Class,
    slot::Slot,
};
use quorate_log::disk::Durations;
use quorate_tuner::{Report, Setting};

use crate::{
    counters::Counters, devices::DeviceStatus, latencies::Latencies, scrubbing::report::ScrubStatus,
};

/// One member or known peer, as seen from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer.
    pub member: Member,
    /// 0 for a learner.
    pub weight: u32,
    /// A member that gets no payload while it is not needed.
    pub auxiliary: bool,
    /// The peer was seen recently, or is this node.
    pub connected: bool,
    /// Slots behind the leader; known to the leader only.
    pub lag: Option<u64>,
    /// Bytes of values that this node sent it since it started, in proposals and in answers.
    pub payload_bytes_sent: u64,
    /// The leader sends it proposals; known to the leader only.
    pub engaged: Option<bool>,
    /// Addresses, as known to this node.
    pub addresses: Addresses,
    /// Path of frames to the peer.
    pub plane: PeerPlane,
}

/// Path of frames to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerPlane {
    /// Path of protocol frames; bulk goes by connections.
    pub way: Way,
    /// Source of raw frames from the interface, if there are any.
    pub frames: Option<&'static str>,
    /// The round trip of the last probe, if there are probes.
    pub rtt_us: Option<u64>,
    /// Reason why a better path that was wanted is not used.
    pub why: Option<String>,
}

/// A way to a peer, or the plane that is wanted; the better one is the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Connections alone.
    #[default]
    Tcp,
    /// Frames of the protocol by datagrams to it alone; the rest by connections.
    Udp,
    /// Like [`Way::Udp`], but bytes for several peers are passed from one to the next.
    Chain,
    /// Like [`Way::Udp`], but bytes for several peers are sent to an IP multicast group, once.
    Multicast,
    /// Like [`Way::Udp`], but without IP: frames of our own EtherType on one interface.
    Ethernet,
    /// Connections, datagrams to each, a chain or a group, whichever is predicted to be the fastest
    /// ([plane-3]).
    Auto,
}

impl Way {
    /// All paths.
    pub const ALL: [Self; 6] =
        [Self::Tcp, Self::Udp, Self::Chain, Self::Multicast, Self::Ethernet, Self::Auto];

    /// Returns the path of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// Returns the name for operators and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Chain => "chain",
            Self::Multicast => "multicast",
            Self::Ethernet => "ethernet",
            Self::Auto => "auto",
        }
    }
}

/// Addresses of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Address for peers.
    pub peer: String,
    /// Address for clients.
    pub client: String,
    /// Address for operators.
    pub admin: String,
    /// Address for clients of byte streams; empty if there are none.
    pub stream: String,
}

/// Byte streams, as a node has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Number of named streams.
    pub named: usize,
    /// Number of streams open for writing.
    pub open: usize,
    /// Bytes of the disk that hold bytes of streams; trimmed bytes count for a while.
    pub used_bytes: u64,
    /// Bytes of the files in which they lie.
    pub file_bytes: u64,
    /// Bytes that are kept and lacking here, or that a restart would not find yet ([here-1]).
    pub missing_bytes: u64,
    /// The node may lack some: until that is known, it holds nothing for others.
    pub lacks: bool,
    /// The store waits for room or descriptors.
    pub short: bool,
    /// Reason why this node accepts no bytes of clients, if so.
    pub stopped: Option<String>,
}

/// Commands, counted since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Commands executed here, of clients of all nodes.
    pub applied: u64,
    /// Commands of this node's clients that were executed and answered.
    pub answered: u64,
    /// The time from acceptance to the answer of all of those together, in microseconds.
    pub answered_us: u64,
    /// Latencies of those commands.
    pub latencies: Latencies,
}

impl Traffic {
    pub(crate) const fn of(counters: &Counters) -> Self {
        Self {
            applied: counters.commands_applied,
            answered: counters.commands_answered,
            answered_us: counters.commands_answered_us,
            latencies: counters.command_latencies,
        }
    }
}

/// Start of a leadership, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    /// The leader; `None` if there is none.
    pub leader: Option<NodeId>,
    /// Ballot of the leader; the last one if there is no leader.
    pub ballot: Ballot,
    /// Milliseconds since then.
    pub ago_ms: u64,
}

/// Present batching of commands, with the reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningReport {
    /// Knowledge, predictions and choice of the tuner.
    pub report: Report,
    /// Setting in force.
    pub setting: Setting,
    /// The setting was set from outside.
    pub held: bool,
}

/// Activity that keeps a node from being level with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Reads back the bytes that it voted for before its restart; says nothing until then.
    ReadingVotes,
    /// Receives a peer's snapshot, because no log has the slots that it lacks.
    ReceivingSnapshot,
    /// Fetches the slots that its log has lost from its peers.
    Repairing,
    /// Executes again the slots of its log that its service has not kept.
    Replaying,
    /// Learns and executes the slots decided without it.
    CatchingUp,
}

/// Progress of an activity. The numbers are slots, or bytes: [`Activity::counts_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Kind of activity.
    pub activity: Activity,
    /// Start.
    pub from: u64,
    /// Present position.
    pub at: u64,
    /// End, as far as it is known.
    pub to: u64,
    /// Recent rate; `None` while it is unknown.
    pub per_second: Option<u64>,
    /// Elapsed time in milliseconds.
    pub ms: u64,
}

impl Progress {
    /// Returns the completed share in percent.
    pub fn percent(&self) -> u64 {
        let all = self.to.saturating_sub(self.from);
        let done = self.at.saturating_sub(self.from).min(all);
        let percent = (u128::from(done) * 100).checked_div(u128::from(all));
        percent.map_or(100, |percent| percent as u64)
    }

    /// Returns the remaining time at the present rate.
    pub fn seconds_left(&self) -> Option<u64> {
        let left = self.to.saturating_sub(self.at);
        let rate = self.per_second.filter(|rate| *rate > 0)?;
        Some(left.div_ceil(rate))
    }
}

impl Activity {
    const ALL: [Self; 5] = [
        Self::ReadingVotes,
        Self::ReceivingSnapshot,
        Self::Repairing,
        Self::Replaying,
        Self::CatchingUp,
    ];

    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadingVotes => "reading_votes",
            Self::ReceivingSnapshot => "receiving_snapshot",
            Self::Repairing => "repairing",
            Self::Replaying => "replaying",
            Self::CatchingUp => "catching_up",
        }
    }

    /// Returns whether progress is counted in bytes, not in slots.
    pub const fn counts_bytes(self) -> bool {
        matches!(self, Self::ReceivingSnapshot)
    }

    /// Returns the activity of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|activity| activity.name() == name)
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadingVotes => "reading back what it voted for",
            Self::ReceivingSnapshot => "receiving a snapshot",
            Self::Repairing => "repairing its log from peers",
            Self::Replaying => "replaying its log",
            Self::CatchingUp => "catching up",
        })
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { activity, at, to, .. } = self;
        let of_bytes = activity.counts_bytes();
        match of_bytes {
            true => write!(f, "{activity}: {} of {} MiB", at >> 20, to >> 20)?,
            false => write!(f, "{activity}: slot {at} of {to}")?,
        }
        write!(f, ", {} %", self.percent())?;
        match self.per_second {
            Some(rate) if of_bytes => write!(f, ", {} MiB/s", rate >> 20)?,
            Some(rate) => write!(f, ", {rate} slots/s")?,
            None => {}
        }
        match self.seconds_left() {
            Some(left) => write!(f, ", about {left} s left"),
            None => Ok(()),
        }
    }
}

/// The disk under the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Free space; `None` if it is unknown.
    pub free_bytes: Option<u64>,
    /// Growth of the log over the last minute.
    pub log_bytes_per_second: Option<u64>,
    /// Durations of log writes until they were on stable storage, since the start.
    pub flush_times: Durations,
}

impl DiskUse {
    /// Returns the time until the disk is full at the present growth of the log.
    pub fn full_in_seconds(&self) -> Option<u64> {
        self.free_bytes?.checked_div(self.log_bytes_per_second?)
    }
}

/// A snapshot: the state after all slots below one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The snapshot has everything below.
    pub at: Slot,
    /// Bytes of its stream.
    pub bytes: u64,
}

/// A plan in progress, in short; [`crate::group::asking::Underway`] has its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStatus {
    /// Its number.
    pub id: u64,
    /// The operator's request.
    pub what: String,
    /// Obstacle that the plan waits for; known to the leader only.
    pub waits: Option<String>,
}

/// Level that a node's release supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelOf {
    /// The node.
    pub node: NodeId,
    /// The newest level; `None`: it is not connected.
    pub newest: Option<Level>,
}

/// The feature level ([level-1]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelStatus {
    /// Level in use by the group.
    pub level: Level,
    /// The newest that this node's release supports.
    pub supports: Level,
    /// Every node that belongs to the group, itself included, in order of ids.
    pub nodes: Vec<LevelOf>,
    /// Obstacles to the next level, a line each; known to the leader only.
    pub held_back: Vec<String>,
    /// Milliseconds until the leader raises it, if nothing intervenes; known to the leader only.
    pub raise_in_ms: Option<u64>,
}

/// A node's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The group that it belongs to.
    pub cluster: u128,
    /// This node.
    pub member: Member,
    /// Present role.
    pub role: Role,
    /// Present leader.
    pub leader: Option<NodeId>,
    /// Number of the configuration in force.
    pub era: Era,
    /// Its quorum rule.
    pub quorum: QuorumRule,
    /// The feature level of the group, and those that its nodes support.
    pub level: LevelStatus,
    /// Membership change in progress.
    pub plan: Option<PlanStatus>,
    /// The node was removed from the group permanently ([member-1]).
    pub removed: bool,
    /// The ballot that it leads or follows.
    pub ballot: Ballot,
    /// Slots below are decided.
    pub decided_to: Slot,
    /// Slots below are applied.
    pub applied_to: Slot,
    /// Slots below are durable here.
    pub durable_to: Slot,
    /// The group's class.
    pub class: Class,
    /// Size of the log on disk.
    pub log_bytes: u64,
    /// The log begins with this slot; a snapshot, or the service's own disk, has earlier ones.
    pub log_start: Slot,
    /// This node's snapshot, if it has one.
    pub snapshot: Option<Snapshot>,
    /// The one that is being taken, as far as it is.
    pub snapshot_taking: Option<Snapshot>,
    /// Disk use of the log.
    pub disk: DiskUse,
    /// Byte streams, as it has them.
    pub streams: Streams,
    /// Commands, since the process started.
    pub traffic: Traffic,
    /// Leaders as seen by this node since its start: the last changes, the oldest first.
    pub reigns: Vec<Reign>,
    /// Activity that keeps it from being level with the others, if any.
    pub progress: Option<Progress>,
    /// Reason why it does not vote or serve, if so.
    pub error: Option<String>,
    /// Notices that need attention, whether or not the node serves.
    pub notices: Vec<String>,
    /// While it leads: the nodes of the ring of votes, itself last; empty if votes are sent
    /// straight.
    pub ring: Vec<NodeId>,
    /// The scrub that goes on, or the last one.
    pub scrub: ScrubStatus,
    /// Choices that the node made by itself, with the reasons, a line each: the path of its frames,
    /// and the route of votes to it ([plane-3]).
    pub choices: Vec<String>,
    /// Its device, if it was lent one.
    pub device: Option<DeviceStatus>,
    /// All nodes that belong to the group or are connected, itself included, in order of ids.
    pub peers: Vec<Peer>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(at: u64, per_second: Option<u64>) -> Progress {
        Progress { activity: Activity::CatchingUp, from: 100, at, to: 300, per_second, ms: 0 }
    }

    #[test]
    fn planes_have_names() {
        for way in Way::ALL {
            assert_eq!(Way::named(way.name()), Some(way));
        }
        assert_eq!(Way::named("carrier pigeon"), None);
    }

    #[test]
    fn progress_says_how_much_and_how_long() {
        let text = progress(150, Some(60)).to_string();
        let expected = "catching up: slot 150 of 300, 25 %, 60 slots/s, about 3 s left";
        assert_eq!(text, expected);
        let text = progress(100, None).to_string();
        assert_eq!(text, "catching up: slot 100 of 300, 0 %");
        let text = progress(299, Some(0)).to_string();
        assert_eq!(text, "catching up: slot 299 of 300, 99 %, 0 slots/s");
        assert_eq!(progress(900, None).percent(), 100);
    }

    #[test]
    fn a_log_that_does_not_grow_never_fills_the_disk() {
        let disk = |free_bytes, log_bytes_per_second| DiskUse {
            free_bytes,
            log_bytes_per_second,
            ..DiskUse::default()
        };
        assert_eq!(disk(Some(1000), Some(10)).full_in_seconds(), Some(100));
        assert_eq!(disk(Some(1000), Some(0)).full_in_seconds(), None);
        assert_eq!(disk(None, Some(10)).full_in_seconds(), None);
        assert_eq!(disk(Some(1000), None).full_in_seconds(), None);
    }
}
