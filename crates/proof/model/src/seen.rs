//! Counters of situations in a run, so that a test can check that it covers them.

use std::hash::{Hash, Hasher};

/// Counters of situations. Not part of a world's state: worlds that reach a state by different
/// paths are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Reconfigurations chosen whose proposer differs from that of the previous one.
    pub changes_by_another_leader: u64,
    /// Eras that began with a multiplication or division of weights.
    pub scaled: u64,
    /// Activations of auxiliaries by a leader.
    pub engaged: u64,
    /// Deactivations of auxiliaries by a leader.
    pub retired: u64,
    /// Logs trimmed beyond what some member had decided.
    pub trimmed_beyond_a_member: u64,
    /// Snapshots installed.
    pub installed: u64,
    /// Members of a volatile group that restarted without memory while a reconfiguration had votes
    /// and was not chosen.
    pub forgot_amid_a_change: u64,
    /// Later incarnations of a node that gained weight.
    pub readmitted: u64,
    /// Machines of removed nodes that joined as other nodes.
    pub replaced: u64,
    /// Bytes appended to streams.
    pub appended: u64,
    /// Chosen bytes of content that were no-ops.
    pub skipped: u64,
    /// Streams taken over from an owner that wrote to them.
    pub takeovers: u64,
    /// Streams of lost owners closed by a leader.
    pub lost_owners: u64,
    /// Confirmations by an owner that its client's bytes are stored.
    pub acknowledged: u64,
    /// Votes and decisions recorded without bytes, because these were not needed.
    pub hollow: u64,
    /// Votes for a part of a run.
    pub cut: u64,
    /// Content learned without its bytes.
    pub bare: u64,
    /// Bytes missing from such content that were found later.
    pub looked: u64,
    /// Votes that a member added to those on a ring.
    pub ring_votes: u64,
    /// Votes of other members that a member passed on.
    pub relayed: u64,
    /// Rings set up by a leader.
    pub laid: u64,
    /// Rings given up for lack of progress.
    pub broke: u64,
    /// Votes by devices.
    pub device_votes: u64,
    /// Quorums counted by a device, or by a node from one.
    pub device_counted: u64,
    /// Decisions that a learner received in a frame.
    pub device_told: u64,
    /// Slots assigned by a device that its leader learned of.
    pub given: u64,
    /// Withdrawals of slot assignment from a device.
    pub taken_back: u64,
    /// Fenced devices that were read out and had voted.
    pub fenced: u64,
    /// Devices in use that lost power.
    pub device_forgot: u64,
    /// Notifications to clients that decided values are on disks.
    pub lasting: u64,
    /// Disks that lost the end of a log that had been reported to others.
    pub lies: u64,
    /// Restarts in which a node that was not queried reminded the restarted one.
    pub reminded: u64,
    /// Notifications to clients that a slot is in memory at a quorum.
    pub early: u64,
}

impl Seen {
    /// Returns the sums of the counters.
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
