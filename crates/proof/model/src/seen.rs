//! Counters of the situations in a run, so that a test can check that they all occur.

use std::hash::{Hash, Hasher};

/// Counters of situations. They are not part of a world's state, because worlds that reach a state
/// by different paths are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct SituationCounts {
    /// Number of chosen reconfigurations whose proposer differs from that of the previous one.
    pub changes_by_another_leader: u64,
    /// Number of eras that began with a multiplication or division of weights.
    pub scaled_eras: u64,
    /// Number of times that a leader activated auxiliaries.
    pub auxiliaries_activated: u64,
    /// Number of times that a leader deactivated auxiliaries.
    pub auxiliaries_deactivated: u64,
    /// Number of logs that were trimmed beyond what some member had decided.
    pub trimmed_beyond_a_member: u64,
    /// Number of snapshots that were installed.
    pub snapshots_installed: u64,
    /// Number of members of a volatile group that restarted without memory while a reconfiguration
    /// had votes but was not chosen.
    pub forgot_amid_a_change: u64,
    /// Number of later incarnations of a node that gained weight.
    pub readmitted_nodes: u64,
    /// Number of machines of removed nodes that joined as other nodes.
    pub replaced_machines: u64,
    /// Number of bytes that were appended to streams.
    pub appended_bytes: u64,
    /// Number of chosen bytes of content that were no-ops.
    pub skipped_bytes: u64,
    /// Number of streams that were taken over from an owner that wrote to them.
    pub takeovers: u64,
    /// Number of streams of lost owners that a leader closed.
    pub lost_owners: u64,
    /// Number of times that an owner confirmed that its client's bytes are stored.
    pub confirmed_appends: u64,
    /// Number of votes and decisions that were recorded without bytes, because the bytes were not
    /// needed.
    pub recorded_without_bytes: u64,
    /// Number of votes for a part of a run.
    pub partial_run_votes: u64,
    /// Number of runs of content that were learned without bytes.
    pub learned_without_bytes: u64,
    /// Number of bytes that were missing from such content and were found later.
    pub missing_bytes_found: u64,
    /// Number of votes that a member added to the votes on a ring.
    pub ring_votes: u64,
    /// Number of votes of other members that a member forwarded.
    pub relayed_votes: u64,
    /// Number of rings that a leader set up.
    pub rings_set_up: u64,
    /// Number of rings that were given up for lack of progress.
    pub rings_given_up: u64,
    /// Number of votes by devices.
    pub device_votes: u64,
    /// Number of `Counted` reports, each of slots for which a device found a quorum.
    pub device_counted_reports: u64,
    /// Number of decisions that a learner received in a device frame.
    pub device_decisions_learned: u64,
    /// Number of slots that a device assigned and its leader learned of.
    pub device_assigned_slots: u64,
    /// Number of times that slot assignment was withdrawn from a device.
    pub assignments_withdrawn: u64,
    /// Number of fenced devices that had voted and were read out.
    pub fenced_devices: u64,
    /// Number of devices that lost power while in use.
    pub device_power_losses: u64,
    /// Number of notifications to clients that decided values are on disks.
    pub durable_notifications: u64,
    /// Number of disks that lost the end of a log that had been reported to others.
    pub disk_rollbacks: u64,
    /// Number of restarts in which a node that was not queried reminded the restarted node of its
    /// log.
    pub rollback_reminders: u64,
    /// Number of notifications to clients that a slot is in memory at a quorum.
    pub memory_notifications: u64,
}

impl SituationCounts {
    /// Returns the sums of the counters of two runs.
    #[must_use]
    pub fn sum(self, other: Self) -> Self {
        Self {
            changes_by_another_leader: self.changes_by_another_leader
                + other.changes_by_another_leader,
            scaled_eras: self.scaled_eras + other.scaled_eras,
            auxiliaries_activated: self.auxiliaries_activated + other.auxiliaries_activated,
            auxiliaries_deactivated: self.auxiliaries_deactivated + other.auxiliaries_deactivated,
            trimmed_beyond_a_member: self.trimmed_beyond_a_member + other.trimmed_beyond_a_member,
            snapshots_installed: self.snapshots_installed + other.snapshots_installed,
            forgot_amid_a_change: self.forgot_amid_a_change + other.forgot_amid_a_change,
            readmitted_nodes: self.readmitted_nodes + other.readmitted_nodes,
            replaced_machines: self.replaced_machines + other.replaced_machines,
            appended_bytes: self.appended_bytes + other.appended_bytes,
            skipped_bytes: self.skipped_bytes + other.skipped_bytes,
            takeovers: self.takeovers + other.takeovers,
            lost_owners: self.lost_owners + other.lost_owners,
            confirmed_appends: self.confirmed_appends + other.confirmed_appends,
            recorded_without_bytes: self.recorded_without_bytes + other.recorded_without_bytes,
            partial_run_votes: self.partial_run_votes + other.partial_run_votes,
            learned_without_bytes: self.learned_without_bytes + other.learned_without_bytes,
            missing_bytes_found: self.missing_bytes_found + other.missing_bytes_found,
            ring_votes: self.ring_votes + other.ring_votes,
            relayed_votes: self.relayed_votes + other.relayed_votes,
            rings_set_up: self.rings_set_up + other.rings_set_up,
            rings_given_up: self.rings_given_up + other.rings_given_up,
            device_votes: self.device_votes + other.device_votes,
            device_counted_reports: self.device_counted_reports + other.device_counted_reports,
            device_decisions_learned: self.device_decisions_learned
                + other.device_decisions_learned,
            device_assigned_slots: self.device_assigned_slots + other.device_assigned_slots,
            assignments_withdrawn: self.assignments_withdrawn + other.assignments_withdrawn,
            fenced_devices: self.fenced_devices + other.fenced_devices,
            device_power_losses: self.device_power_losses + other.device_power_losses,
            durable_notifications: self.durable_notifications + other.durable_notifications,
            disk_rollbacks: self.disk_rollbacks + other.disk_rollbacks,
            rollback_reminders: self.rollback_reminders + other.rollback_reminders,
            memory_notifications: self.memory_notifications + other.memory_notifications,
        }
    }
}

impl PartialEq for SituationCounts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SituationCounts {}

impl Hash for SituationCounts {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
