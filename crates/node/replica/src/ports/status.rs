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
use quorate_log::disk::DurationHistogram;
use quorate_tuner::{Report, Setting};

use super::{device::DeviceStatus, latencies::Latencies, scrub_report::ScrubStatus};

/// A member or known peer, as seen from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub member: Member,
    /// Weight of its votes; 0 for a learner.
    pub weight: u32,
    /// The peer is an auxiliary, which receives no payload while the other voters suffice.
    pub auxiliary: bool,
    /// The peer was recently in contact with this node, or is this node.
    pub connected: bool,
    /// Number of slots by which the peer lags behind the leader; known only to the leader.
    pub lag: Option<u64>,
    /// Number of bytes of values sent to the peer since the start, in proposals and replies.
    pub payload_bytes_sent: u64,
    /// The leader sends proposals to the peer; known only to the leader.
    pub engaged: Option<bool>,
    /// Addresses of the peer, as known to this node.
    pub addresses: Addresses,
    pub plane: PeerPlane,
}

/// Path of frames to a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerPlane {
    /// Path of protocol frames; bulk data always uses connections.
    pub kind: PlaneKind,
    /// Method of receiving raw frames from the interface, if they are used.
    pub raw_frame_mode: Option<&'static str>,
    /// Round-trip time in microseconds of the last probe or else of the connection; `None` until
    /// the first measurement.
    pub rtt_us: Option<u64>,
    /// Reason why the better, configured path is not used; `None` if it is used.
    pub fallback_reason: Option<String>,
}

/// Path of frames to a peer, or the configured choice. Better paths compare as greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaneKind {
    /// Connections only.
    #[default]
    Tcp,
    /// Protocol frames by datagrams to each peer, everything else over connections.
    Udp,
    /// Like [`PlaneKind::Udp`], but bytes for several peers are passed from one peer to the next.
    Chain,
    /// Like [`PlaneKind::Udp`], but bytes for several peers are sent once, to an IP multicast
    /// group.
    Multicast,
    /// Like [`PlaneKind::Udp`], but raw frames with this project's EtherType on one interface.
    Ethernet,
    /// Whichever of connections, datagrams, chain and multicast group is predicted fastest
    /// ([plane-3]).
    Auto,
}

impl PlaneKind {
    pub const ALL: [Self; 6] =
        [Self::Tcp, Self::Udp, Self::Chain, Self::Multicast, Self::Ethernet, Self::Auto];

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// Returns the name used in configuration and output.
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

/// Addresses on which a node listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Address at which peers connect.
    pub peer: String,
    /// Address at which clients connect.
    pub client: String,
    /// Address at which operators connect.
    pub admin: String,
    /// Address for byte stream clients; empty if the node does not serve them.
    pub stream: String,
}

/// State of byte streams on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Number of named streams.
    pub named_count: usize,
    /// Number of streams open for writing.
    pub open: usize,
    /// Disk space used by stream bytes, in bytes, including trimmed bytes until they are freed.
    pub used_bytes: u64,
    /// Total size of the store's files in bytes.
    pub file_bytes: u64,
    /// Number of retained bytes that are missing here or would be after a restart ([here-1]).
    pub missing_bytes: u64,
    /// The node may lack bytes, so it does not count as a complete copy.
    pub may_lack_bytes: bool,
    /// The store waits for free space or file descriptors.
    pub is_short_of_resources: bool,
    /// Reason why this node accepts no bytes from clients; `None` if it accepts them.
    pub stop_reason: Option<String>,
}

/// Command counts since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of commands executed here, from clients of all nodes.
    pub applied_commands: u64,
    /// Number of commands from this node's clients that were executed and answered.
    pub answered_commands: u64,
    /// Total time from acceptance to reply of the answered commands, in microseconds.
    pub answer_time_us: u64,
    /// Latencies of the answered commands.
    pub latencies: Latencies,
}

/// A change of leader, as seen by this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderChange {
    /// New leader; `None` if leadership ended without a successor.
    pub leader: Option<NodeId>,
    /// Ballot of the leader, or of the last one if there is none.
    pub ballot: Ballot,
    /// Milliseconds since the change.
    pub age_ms: u64,
}

/// Current batching of commands, with the reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningReport {
    /// Estimates, predictions and choice of the tuner.
    pub report: Report,
    /// Batch size and window in force.
    pub setting: Setting,
    /// An operator has fixed the setting.
    pub is_fixed: bool,
}

/// Activity that keeps a node from being caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// The node reads the bytes of its votes from before its restart, and sends nothing until then.
    ReadingVotes,
    /// The node receives a peer's snapshot, because no log has the slots that it lacks.
    ReceivingSnapshot,
    /// The node fetches from its peers slots that its log has lost.
    Repairing,
    /// The node executes slots of its log again because the service has not stored them.
    Replaying,
    /// The node learns and executes slots that were decided without it.
    CatchingUp,
}

/// Progress of an activity, in slots or bytes (see [`Activity::counts_bytes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub activity: Activity,
    /// Position at which the activity started.
    pub from: u64,
    /// Current position.
    pub position: u64,
    /// Position at which the activity will end, as far as is known.
    pub end: u64,
    /// Recent rate per second; `None` if it is not known.
    pub per_second: Option<u64>,
    /// Elapsed time in milliseconds.
    pub elapsed_ms: u64,
}

impl Progress {
    /// Returns the completed share in percent.
    pub fn percent(&self) -> u64 {
        let all = self.end.saturating_sub(self.from);
        let done = self.position.saturating_sub(self.from).min(all);
        let percent = (u128::from(done) * 100).checked_div(u128::from(all));
        percent.map_or(100, |percent| percent as u64)
    }

    /// Returns the remaining time in seconds at the current rate; `None` if the rate is not known.
    pub fn seconds_left(&self) -> Option<u64> {
        let left = self.end.saturating_sub(self.position);
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

    /// Returns the machine-readable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadingVotes => "reading_votes",
            Self::ReceivingSnapshot => "receiving_snapshot",
            Self::Repairing => "repairing",
            Self::Replaying => "replaying",
            Self::CatchingUp => "catching_up",
        }
    }

    /// Returns whether progress is counted in bytes instead of slots.
    pub const fn counts_bytes(self) -> bool {
        matches!(self, Self::ReceivingSnapshot)
    }

    pub fn from_name(name: &str) -> Option<Self> {
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
        let Self { activity, position: at, end: to, .. } = self;
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

/// Use of the disk that contains the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Free space in bytes; `None` if it is not known.
    pub free_bytes: Option<u64>,
    /// Free space in bytes that the disk needs before it accepts more data; `None` unless it is
    /// full ([room-1]).
    pub needed_bytes: Option<u64>,
    /// The node refuses data because the members with space do not form a quorum ([room-2]).
    pub refuses_data: bool,
    /// Growth of the log in bytes per second, over the last minute.
    pub log_bytes_per_second: Option<u64>,
    /// Durations of log writes since the start, each measured until the data is on stable storage.
    pub flush_times: DurationHistogram,
}

/// Position and size of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// First slot that the snapshot does not contain.
    pub slot: Slot,
    /// Length of the snapshot's stream in bytes.
    pub bytes: u64,
}

/// Summary of a plan in progress; [`crate::group::asking::PlanInProgress`] has its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStatus {
    /// Id of the plan: the slot of the command that made it.
    pub id: u64,
    /// The operator's request.
    pub description: String,
    /// Condition that holds up the plan; known only to the leader.
    pub wait_reason: Option<String>,
}

/// Level that a node's release supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLevelStatus {
    pub node: NodeId,
    /// Highest supported level; `None` if the node is not connected.
    pub supported_level: Option<Level>,
}

/// Feature levels of the group ([level-1]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelStatus {
    /// Level in use by the group.
    pub level: Level,
    /// Highest level that this node's release supports.
    pub supported_level: Level,
    /// All nodes of the group, including this one, in order of ids.
    pub nodes: Vec<NodeLevelStatus>,
    /// Obstacles to the next level, one per line; known only to the leader.
    pub raise_obstacles: Vec<String>,
    /// Time in milliseconds until the leader raises the level, barring obstacles; known only to the
    /// leader.
    pub raise_in_ms: Option<u64>,
}

/// Status of a node, as the node itself sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub cluster: u128,
    pub member: Member,
    pub role: Role,
    pub leader: Option<NodeId>,
    /// Number of the current configuration.
    pub era: Era,
    pub quorum: QuorumRule,
    /// Feature level of the group, and the levels that its nodes support.
    pub level: LevelStatus,
    pub plan: Option<PlanStatus>,
    /// The node has been removed from the group permanently ([member-1]).
    pub removed: bool,
    /// Ballot of the leader that this node follows, or its own if it leads.
    pub ballot: Ballot,
    /// First slot that is not known to be decided.
    pub decided_to: Slot,
    /// First slot that has not been applied.
    pub applied_to: Slot,
    /// First slot that is not durable on this node.
    pub durable_to: Slot,
    pub class: Class,
    /// Size of the log on disk in bytes.
    pub log_bytes: u64,
    /// First slot of the log. A snapshot, or the service's own disk, covers earlier slots.
    pub log_start: Slot,
    /// This node's snapshot, if it has one.
    pub snapshot: Option<Snapshot>,
    /// Snapshot that is being taken, with the length that has been written so far.
    pub snapshot_taking: Option<Snapshot>,
    pub disk: DiskUse,
    pub streams: Streams,
    pub traffic: Traffic,
    /// Latest changes of leader seen by this node since its start, oldest first.
    pub reigns: Vec<LeaderChange>,
    /// Activity that keeps this node from being caught up, if any.
    pub progress: Option<Progress>,
    /// Reason why this node does not vote or serve; `None` if it does.
    pub error: Option<String>,
    /// Notices for the operator, also if the node serves normally.
    pub notices: Vec<String>,
    /// Ring along which votes travel to this leader, the last node; empty if votes are sent
    /// directly.
    pub ring: Vec<NodeId>,
    pub scrub: ScrubStatus,
    /// Automatic choices, one per line with the reason: the path of this node's frames, and the
    /// route of votes to it ([plane-3]).
    pub choices: Vec<String>,
    /// Status of the device; `None` if this node never had one.
    pub device: Option<DeviceStatus>,
    /// All nodes that belong to the group or are connected, including this one, in order of ids.
    pub peers: Vec<Peer>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(at: u64, per_second: Option<u64>) -> Progress {
        Progress {
            activity: Activity::CatchingUp,
            from: 100,
            position: at,
            end: 300,
            per_second,
            elapsed_ms: 0,
        }
    }

    #[test]
    fn planes_have_names() {
        for way in PlaneKind::ALL {
            assert_eq!(PlaneKind::from_name(way.name()), Some(way));
        }
        assert_eq!(PlaneKind::from_name("carrier pigeon"), None);
    }

    #[test]
    fn progress_text_has_amount_rate_and_remaining_time() {
        let text = progress(150, Some(60)).to_string();
        let expected = "catching up: slot 150 of 300, 25 %, 60 slots/s, about 3 s left";
        assert_eq!(text, expected);
        let text = progress(100, None).to_string();
        assert_eq!(text, "catching up: slot 100 of 300, 0 %");
        let text = progress(299, Some(0)).to_string();
        assert_eq!(text, "catching up: slot 299 of 300, 99 %, 0 slots/s");
        assert_eq!(progress(900, None).percent(), 100);
    }
}
