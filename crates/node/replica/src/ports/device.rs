//! Port for a device that runs phase 2 for this node, and its status.

use quorate_core::{ballot::Ballot, slot::Slot};
use quorate_offload::{Reason, owner::Owner, port::Device, reason::COUNTERS};

/// A device and its owner, attached to a replica by the process.
pub struct AttachedDevice {
    /// Kind of device, as a single word.
    pub kind: &'static str,
    /// Human-readable description of the device.
    pub name: String,
    /// Port through which the owner uses the device.
    pub device: Box<dyn Device + Send>,
    /// Driver of the device in this process.
    pub owner: Owner,
}

/// Devices that a process may use, in order of preference.
pub trait DeviceSource: Send {
    /// Returns the first device that is available now, or why none is. `lost` states why the
    /// previous device, which has been closed, was removed from the network. Called repeatedly at
    /// intervals while no device is available.
    fn open_device(&mut self, lost: Option<&str>) -> Result<AttachedDevice, String>;
}

/// Status of a device, as shown in `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Kind of device: one word; empty if there is none.
    pub kind: &'static str,
    /// Human-readable description of the device.
    pub name: String,
    /// The core currently uses the device.
    pub is_used: bool,
    /// Ballot in which the device's acceptor votes.
    pub armed_ballot: Option<Ballot>,
    /// First slot that the device's coordinator may assign; `None` if it assigns none.
    pub assigns_from: Option<Slot>,
    /// Number of slots that the device can hold.
    pub slot_capacity: u32,
    /// Maximum size of a value in a frame, in bytes.
    pub frame_value_bytes: usize,
    /// Boot number of the device.
    pub boot: u32,
    /// Number of votes seen from this device and earlier ones.
    pub vote_count: u64,
    /// Number of slots assigned by this device and earlier ones, as seen by this node.
    pub assigned_slots: u64,
    /// Number of decisions counted by this device and earlier ones, as seen by this node.
    pub counted_decisions: u64,
    /// Number of times that a coordinator was revoked.
    pub revocation_count: u64,
    /// Number of values from this node that were offered to another member's device.
    pub offered_values: u64,
    /// Number of values sent over connections because they were too long for a frame.
    pub oversized_values: u64,
    /// Number of frames for this node that the current device dropped for lack of space.
    pub dropped_frames: u64,
    /// Number of frames received by this device and earlier ones, by outcome, indexed by
    /// [`quorate_offload::Reason`].
    pub frames_by_outcome: [u64; COUNTERS],
    /// Remark on the device, for example that its interface was renamed, or that it is idle.
    pub remark: Option<String>,
    /// Reason why the device is not in use; `None` if it is.
    pub unused_reason: Option<String>,
}

/// Iterates over the reasons for refusing frames, in the order of
/// [`DeviceStatus::frames_by_outcome`].
pub fn device_reasons() -> impl Iterator<Item = Reason> {
    let reasons = Reason::ALL.into_iter();
    reasons.filter(|reason| *reason != Reason::None)
}
