//! What a node says about itself, for `status`, `INFO` and the metrics.

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
    /// Who.
    pub member: Member,
    /// 0 for a learner.
    pub weight: u32,
    /// A member that gets no payload while it is not needed.
    pub auxiliary: bool,
    /// Whether it was heard of lately, or is this node.
    pub connected: bool,
    /// Slots behind the leader; known to the leader only.
    pub lag: Option<u64>,
    /// Bytes of values that this node sent it since it started, in proposals and in answers.
    pub payload_bytes_sent: u64,
    /// Whether it is sent what is proposed; known to the leader only.
    pub engaged: Option<bool>,
    /// Where it listens, as far as this node knows.
    pub addresses: Addresses,
    /// How frames to it travel.
    pub plane: PeerPlane,
}

/// How frames to a peer travel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerPlane {
    /// Those of the protocol; bulk goes by connections.
    pub way: Way,
    /// How raw frames get from the interface, if they do.
    pub frames: Option<&'static str>,
    /// The round trip of the last probe, if there are probes.
    pub rtt_us: Option<u64>,
    /// Why not a better way that was wanted.
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
    /// The same, and what several peers get goes from one to the next.
    Chain,
    /// The same, and what several peers get goes to an IP multicast group, once.
    Multicast,
    /// The same without IP: frames of our own EtherType on one interface.
    Ethernet,
    /// Connections, datagrams to each, a chain or a group, whichever is predicted to be the fastest
    /// ([plane-3]).
    Auto,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Tcp, Self::Udp, Self::Chain, Self::Multicast, Self::Ethernet, Self::Auto];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// For people and programs.
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

/// Where a node listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// For peers.
    pub peer: String,
    /// For clients.
    pub client: String,
    /// For operators.
    pub admin: String,
    /// For clients of byte streams; empty if there are none.
    pub stream: String,
}

/// Byte streams, as a node has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// How many there are.
    pub named: usize,
    /// Of those: how many are written to.
    pub open: usize,
    /// Bytes of the disk that hold bytes of streams; what was trimmed counts for a while.
    pub used_bytes: u64,
    /// Bytes of the files in which they lie.
    pub file_bytes: u64,
    /// Bytes that are kept and lacking here, or that a restart would not find yet ([here-1]).
    pub missing_bytes: u64,
    /// Whether it may lack some: until that is known, it holds nothing for others.
    pub lacks: bool,
    /// The store waits for room or descriptors.
    pub short: bool,
    /// Why this node takes no bytes of clients in, if it takes none.
    pub stopped: Option<String>,
}

/// Commands, counted since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Executed here, whoever's they were.
    pub applied: u64,
    /// Of this node's clients: executed and answered.
    pub answered: u64,
    /// The time from acceptance to the answer of all of those together, in microseconds.
    pub answered_us: u64,
    /// How long each of those took.
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

/// Somebody began to lead, or nobody leads any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    /// Who; `None`: nobody.
    pub leader: Option<NodeId>,
    /// In which ballot; the last one, if nobody leads.
    pub ballot: Ballot,
    /// Milliseconds since then.
    pub ago_ms: u64,
}

/// How commands are batched, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningReport {
    /// What the tuner knows, predicts and chose.
    pub report: Report,
    /// What is in force.
    pub setting: Setting,
    /// Whether that was set from outside.
    pub held: bool,
}

/// What keeps a node from being level with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Reads back the bytes that it voted for before its restart; says nothing until then.
    ReadingVotes,
    /// Is sent a peer's snapshot, because nobody's log has what it lacks.
    ReceivingSnapshot,
    /// Fetches from its peers what its log has lost.
    Repairing,
    /// Executes again what its log holds and its service has not kept.
    Replaying,
    /// Learns and executes what was decided without it.
    CatchingUp,
}

/// How far an activity is. The numbers are slots, or bytes: [`Activity::counts_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is done.
    pub activity: Activity,
    /// Where it began.
    pub from: u64,
    /// Where it is.
    pub at: u64,
    /// Where it ends, as far as that is known.
    pub to: u64,
    /// How fast it was lately; `None` before that can be said.
    pub per_second: Option<u64>,
    /// How long it has taken so far.
    pub ms: u64,
}

impl Progress {
    /// How much of it is done.
    pub fn percent(&self) -> u64 {
        let all = self.to.saturating_sub(self.from);
        let done = self.at.saturating_sub(self.from).min(all);
        let percent = (u128::from(done) * 100).checked_div(u128::from(all));
        percent.map_or(100, |percent| percent as u64)
    }

    /// How long the rest takes if it goes on like this.
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

    /// For programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadingVotes => "reading_votes",
            Self::ReceivingSnapshot => "receiving_snapshot",
            Self::Repairing => "repairing",
            Self::Replaying => "replaying",
            Self::CatchingUp => "catching_up",
        }
    }

    /// Whether its progress is one of bytes, and not of slots.
    pub const fn counts_bytes(self) -> bool {
        matches!(self, Self::ReceivingSnapshot)
    }

    /// Which of them has this name.
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
    /// What can still be written to it; `None` if that is not known.
    pub free_bytes: Option<u64>,
    /// How fast the log grew over the last minute.
    pub log_bytes_per_second: Option<u64>,
    /// How long writes of the log took until they were on stable storage, since the start.
    pub flush_times: Durations,
}

impl DiskUse {
    /// When the disk is full if the log goes on like this.
    pub fn full_in_seconds(&self) -> Option<u64> {
        self.free_bytes?.checked_div(self.log_bytes_per_second?)
    }
}

/// A snapshot: the state behind all slots below one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// It has everything below.
    pub at: Slot,
    /// Bytes of its stream.
    pub bytes: u64,
}

/// A plan under way, in short; [`crate::group::asking::Underway`] has its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStatus {
    /// Its number.
    pub id: u64,
    /// What was asked for.
    pub what: String,
    /// What it waits for; known to the leader only.
    pub waits: Option<String>,
}

/// What a node's release supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelOf {
    /// Which node.
    pub node: NodeId,
    /// The newest level; `None`: it is not connected.
    pub newest: Option<Level>,
}

/// The feature level ([level-1]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelStatus {
    /// What the group uses.
    pub level: Level,
    /// The newest that this node's release supports.
    pub supports: Level,
    /// Every node that belongs to the group, itself included, in order of ids.
    pub nodes: Vec<LevelOf>,
    /// What keeps the group from using the next level, a line each; known to the leader only.
    pub held_back: Vec<String>,
    /// In how many milliseconds the leader raises it, if nothing comes between; known to the leader
    /// only.
    pub raise_in_ms: Option<u64>,
}

/// A node's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The group that it belongs to.
    pub cluster: u128,
    /// Who it is.
    pub member: Member,
    /// What it is at the moment.
    pub role: Role,
    /// Who leads.
    pub leader: Option<NodeId>,
    /// Number of the configuration in force.
    pub era: Era,
    /// What a quorum is in it.
    pub quorum: QuorumRule,
    /// The feature level that the group uses, and what its nodes support.
    pub level: LevelStatus,
    /// The change of the members that is under way.
    pub plan: Option<PlanStatus>,
    /// It was removed from the group, for good ([member-1]).
    pub removed: bool,
    /// The ballot that it leads or follows.
    pub ballot: Ballot,
    /// Every slot below is decided.
    pub decided_to: Slot,
    /// Every slot below is applied.
    pub applied_to: Slot,
    /// Every slot below is durable here.
    pub durable_to: Slot,
    /// The group's class.
    pub class: Class,
    /// Size of the log on disk.
    pub log_bytes: u64,
    /// The log begins with this slot; a snapshot, or the service's own disk, has what lies below.
    pub log_start: Slot,
    /// This node's snapshot, if it has one.
    pub snapshot: Option<Snapshot>,
    /// The one that is being taken, as far as it is.
    pub snapshot_taking: Option<Snapshot>,
    /// What room the log has.
    pub disk: DiskUse,
    /// Byte streams, as it has them.
    pub streams: Streams,
    /// Commands, since the process started.
    pub traffic: Traffic,
    /// Who led, as this node saw it since it started: the last changes, the oldest first.
    pub reigns: Vec<Reign>,
    /// What keeps it from being level with the others, if it is not.
    pub progress: Option<Progress>,
    /// Why it does not vote or serve, if it does not.
    pub error: Option<String>,
    /// What somebody should look at, whether or not it serves.
    pub notices: Vec<String>,
    /// While it leads: the nodes that votes come through, itself last; empty if they come straight.
    pub ring: Vec<NodeId>,
    /// The scrub that goes on, or the last one.
    pub scrub: ScrubStatus,
    /// What it chose by itself, and why, a line each: how its frames travel, and how votes come to
    /// it ([plane-3]).
    pub choices: Vec<String>,
    /// Its device, if it was lent one.
    pub device: Option<DeviceStatus>,
    /// Everybody that belongs to the group or is connected, itself included, in order of ids.
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
