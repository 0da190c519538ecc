//! Counters of the situations in a run, so that a test can check that they all occur.

use std::hash::{Hash, Hasher};

/// Counters of situations. They are not part of a world's state, because worlds that reach a state
/// by different paths are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Number of chosen reconfigurations whose proposer differs from that of the previous one.
    pub changes_by_another_leader: u64,
    /// Number of eras that began with a multiplication or division of weights.
    pub scaled: u64,
    /// Number of times that a leader activated auxiliaries.
    pub engaged: u64,
    /// Number of times that a leader deactivated auxiliaries.
    pub retired: u64,
    /// Number of logs that were trimmed beyond what some member had decided.
    pub trimmed_beyond_a_member: u64,
    /// Number of snapshots that were installed.
    pub installed: u64,
    /// Number of members of a volatile group that restarted without memory while a reconfiguration
    /// had votes but was not chosen.
    pub forgot_amid_a_change: u64,
    /// Number of later incarnations of a node that gained weight.
    pub readmitted: u64,
    /// Number of machines of removed nodes that joined as other nodes.
    pub replaced: u64,
    /// Number of bytes that were appended to streams.
    pub appended: u64,
    /// Number of chosen bytes of content that were no-ops.
    pub skipped: u64,
    /// Number of streams that were taken over from an owner that wrote to them.
    pub takeovers: u64,
    /// Number of streams of lost owners that a leader closed.
    pub lost_owners: u64,
    /// Number of times that an owner confirmed that its client's bytes are stored.
    pub acknowledged: u64,
    /// Number of votes and decisions that were recorded without bytes, because the bytes were not
    /// needed.
    pub hollow: u64,
    /// Number of votes for a part of a run.
    pub cut: u64,
    /// Number of runs of content that were learned without bytes.
    pub bare: u64,
    /// Number of bytes that were missing from such content and were found later.
    pub looked: u64,
    /// Number of votes that a member added to the votes on a ring.
    pub ring_votes: u64,
    /// Number of votes of other members that a member forwarded.
    pub relayed: u64,
    /// Number of rings that a leader set up.
    pub laid: u64,
    /// Number of rings that were given up for lack of progress.
    pub broke: u64,
    /// Number of votes by devices.
    pub device_votes: u64,
    /// Number of `Counted` reports, each of slots for which a device found a quorum.
    pub device_counted: u64,
    /// Number of decisions that a learner received in a device frame.
    pub device_told: u64,
    /// Number of slots that a device assigned and its leader learned of.
    pub given: u64,
    /// Number of times that slot assignment was withdrawn from a device.
    pub taken_back: u64,
    /// Number of fenced devices that had voted and were read out.
    pub fenced: u64,
    /// Number of devices that lost power while in use.
    pub device_forgot: u64,
    /// Number of notifications to clients that decided values are on disks.
    pub lasting: u64,
    /// Number of disks that lost the end of a log that had been reported to others.
    pub lies: u64,
    /// Number of restarts in which a node that was not queried reminded the restarted node of its
    /// log.
    pub reminded: u64,
    /// Number of notifications to clients that a slot is in memory at a quorum.
    pub early: u64,
}

impl Seen {
    /// Returns the sums of the counters of two runs.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            changes_by_another_leader: self.changes_by_another_leader
                + other.changes_by_another_leader,
            scaled: self.scaled + other.scaled,
            engaged: self.engaged + other.engaged,
            retired: self.retired + other.retired,
            trimmed_beyond_a_member: self.trimmed_beyond_a_member + other.trimmed_beyond_a_member,
            installed: self.installed + other.installed,
            forgot_amid_a_change: self.forgot_amid_a_change + other.forgot_amid_a_change,
            readmitted: self.readmitted + other.readmitted,
            replaced: self.replaced + other.replaced,
            appended: self.appended + other.appended,
            skipped: self.skipped + other.skipped,
            takeovers: self.takeovers + other.takeovers,
            lost_owners: self.lost_owners + other.lost_owners,
            acknowledged: self.acknowledged + other.acknowledged,
            hollow: self.hollow + other.hollow,
            cut: self.cut + other.cut,
            bare: self.bare + other.bare,
            looked: self.looked + other.looked,
            ring_votes: self.ring_votes + other.ring_votes,
            relayed: self.relayed + other.relayed,
            laid: self.laid + other.laid,
            broke: self.broke + other.broke,
            device_votes: self.device_votes + other.device_votes,
            device_counted: self.device_counted + other.device_counted,
            device_told: self.device_told + other.device_told,
            given: self.given + other.given,
            taken_back: self.taken_back + other.taken_back,
            fenced: self.fenced + other.fenced,
            device_forgot: self.device_forgot + other.device_forgot,
            lasting: self.lasting + other.lasting,
            lies: self.lies + other.lies,
            reminded: self.reminded + other.reminded,
            early: self.early + other.early,
        }
    }
}

impl PartialEq for Seen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Seen {}

impl Hash for Seen {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
