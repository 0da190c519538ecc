//! Situations that a run came through, counted, so that a test can check that it proves something
//! about them.

use std::hash::{Hash, Hasher};

/// Counts of situations. Not part of a world's state: worlds that reached a state by different
/// paths are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// A change of configuration was chosen whose proposer is not that of the change before it.
    pub changes_by_another_leader: u64,
    /// An era began by weights being multiplied or divided.
    pub scaled: u64,
    /// A leader engaged auxiliaries.
    pub engaged: u64,
    /// A leader spared auxiliaries again.
    pub retired: u64,
    /// A log was trimmed beyond what some member had decided.
    pub trimmed_beyond_a_member: u64,
    /// A snapshot was installed.
    pub installed: u64,
    /// A member of a volatile group came back without its memory, while a change was voted for and
    /// not chosen.
    pub forgot_amid_a_change: u64,
    /// Weight went to a later incarnation of a node.
    pub readmitted: u64,
    /// The machine of a removed node joined as another node.
    pub replaced: u64,
    /// A byte became part of a stream.
    pub appended: u64,
    /// A byte of content was chosen, and was a no-op.
    pub skipped: u64,
    /// A stream was taken from an owner that wrote to it.
    pub takeovers: u64,
    /// The stream of a lost owner was closed by a leader.
    pub lost_owners: u64,
    /// An owner confirmed to its client that bytes are kept.
    pub acknowledged: u64,
    /// A vote, or a decision, was recorded without bytes, which were not needed.
    pub hollow: u64,
    /// A part of a run was voted for.
    pub cut: u64,
    /// Content was learned without its bytes.
    pub bare: u64,
    /// Such bytes were found later.
    pub looked: u64,
    /// A member added its own vote to those on a ring.
    pub ring_votes: u64,
    /// A member passed on the vote of another.
    pub relayed: u64,
    /// A leader laid a ring.
    pub laid: u64,
    /// A ring got nowhere, and was given up.
    pub broke: u64,
    /// A device voted.
    pub device_votes: u64,
    /// A device, or a node by one, counted a quorum.
    pub device_counted: u64,
    /// A learner learned of a decision by a frame.
    pub device_told: u64,
    /// A leader learned the value that its device gave a slot to.
    pub given: u64,
    /// A leader took back what its device gave out.
    pub taken_back: u64,
    /// A device was read out behind a fence, and had voted.
    pub fenced: u64,
    /// A device that was in use lost power.
    pub device_forgot: u64,
    /// A client was notified that decided values are on disks.
    pub lasting: u64,
    /// A disk lost the end of a log that had been reported to others.
    pub lies: u64,
    /// A node that was not asked reminded it of that.
    pub reminded: u64,
    /// A client was notified that a slot is in memory at a quorum.
    pub early: u64,
}

impl Seen {
    /// Returns the sum of two.
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
