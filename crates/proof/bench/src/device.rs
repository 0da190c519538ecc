//! Devices that a measurement requests for its nodes, and the check that the nodes use them.

use std::fmt;

use quorate_admin::view::NodeView;
use serde::{Deserialize, Serialize};

use crate::figure::{median, round_to_four_digits};

/// Minimum share of the slots in a repetition that the device must assign.
const ASSIGNED_SHARE_MIN: f64 = 0.9;

/// Kind of device, named as in `quorate start --device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Thread that exchanges datagrams with other devices.
    Udp,
    /// Thread that exchanges raw frames with other devices.
    Packet,
    /// Kernel program attached to tc.
    Tc,
    /// Kernel program attached to the first available hook.
    Kernel,
    /// Switch program run by an interpreter.
    P4,
}

impl DeviceKind {
    pub const ALL: [Self; 5] = [Self::Udp, Self::Packet, Self::Tc, Self::Kernel, Self::P4];

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|device| device.name() == name)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Packet => "packet",
            Self::Tc => "tc",
            Self::Kernel => "kernel",
            Self::P4 => "p4",
        }
    }

    /// Returns whether the device needs an Ethernet interface that no other node uses.
    pub const fn needs_segment(self) -> bool {
        !matches!(self, Self::Udp | Self::P4)
    }

    /// Returns whether the device and the nodes' plane would need the same port.
    pub fn conflicts_with_plane(self, plane: Option<&str>) -> bool {
        matches!(self, Self::Udp | Self::P4) && !matches!(plane, None | Some("tcp" | "ethernet"))
    }

    /// Returns whether a node reports a device of this kind rather than a fallback.
    fn matches_kind(self, kind: &str) -> bool {
        kind == match self {
            Self::Udp | Self::Packet | Self::P4 => self.name(),
            Self::Tc | Self::Kernel => Self::Kernel.name(),
        }
    }

    /// Returns the reason why a group does not currently use devices of this kind; `None` if
    /// devices handle all votes and the leader's device assigns the slots.
    pub fn missing_reason<'a>(self, nodes: impl Iterator<Item = &'a NodeView>) -> Option<String> {
        for node in nodes {
            let number = node.node;
            let Some(device) = &node.device else {
                return Some(format!("node {number} has no device"));
            };
            if !self.matches_kind(&device.kind) {
                return Some(format!("node {number} has another one: {}", device.name));
            }
            if !device.used || device.armed.is_none() {
                let why = device.why.as_deref().unwrap_or("it is idle");
                return Some(format!("node {number} does not use its device: {why}"));
            }
            if node.leader == Some(number) && device.gives_from.is_none() {
                return Some(format!("that of node {number}, which leads, gives out no slots"));
            }
        }
        None
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the name under which rows report a combination of plane and device.
pub fn plane_and_device(plane: &str, device: Option<DeviceKind>) -> String {
    device.map_or_else(|| plane.to_owned(), |device| format!("{plane} + {device}"))
}

/// Suffix of [`plane_and_device`] for clients that send frames directly to the devices.
pub const BY_FRAMES_SUFFIX: &str = ", clients by frames";

/// Counters of the leader and its device, read at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReading {
    name: String,
    decided: u64,
    assigned_slots: u64,
    withdrawals: u64,
    values_too_long: u64,
}

impl DeviceReading {
    /// Reads the leader's counters; `None` if the leader has no device.
    pub fn of_leader(node: &NodeView) -> Option<Self> {
        let device = node.device.as_ref()?;
        Some(Self {
            name: device.name.clone(),
            decided: node.decided,
            assigned_slots: device.given,
            withdrawals: device.taken_back,
            values_too_long: device.outgrown,
        })
    }

    /// Returns the work done since the earlier reading `before`.
    pub fn work_since(&self, before: &Self) -> DeviceWork {
        DeviceWork {
            name: self.name.clone(),
            decided: self.decided.saturating_sub(before.decided),
            assigned_slots: self.assigned_slots.saturating_sub(before.assigned_slots),
            withdrawals: self.withdrawals.saturating_sub(before.withdrawals),
            values_too_long: self.values_too_long.saturating_sub(before.values_too_long),
        }
    }
}

/// Work of the leader and its device during a repetition and its warm-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceWork {
    /// Name of the device as reported by its node.
    pub name: String,
    pub decided: u64,
    /// Number of slots assigned by the device.
    pub assigned_slots: u64,
    /// Number of times that the leader withdrew slot assignment from the device.
    pub withdrawals: u64,
    /// Number of values that were too long for frames.
    pub values_too_long: u64,
}

impl DeviceWork {
    /// Returns the share of slots assigned by the device, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    fn assigned_share(&self) -> f64 {
        (self.assigned_slots as f64 / self.decided.max(1) as f64).min(1.0)
    }

    /// Returns why this repetition does not count as a measurement of devices, if it does not. A
    /// repetition in which nodes bypass devices because batches are long does count.
    pub fn invalid_reason(&self) -> Option<String> {
        let share = self.assigned_share();
        (share < ASSIGNED_SHARE_MIN && self.values_too_long == 0).then(|| {
            format!(
                "devices gave out {:.0} % of the slots, the leader the others; taken back {} times ({})",
                share * 100.0,
                self.withdrawals,
                self.name
            )
        })
    }
}

/// Figures about devices in a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceFigures {
    /// Name of the leader's device as reported by its node.
    pub name: String,
    /// Share of slots assigned by the device, 0 to 1.
    pub slots_share: f64,
    /// Number of times that the leader withdrew slot assignment from the device, over all
    /// repetitions.
    pub taken_back: u64,
    /// Number of values that were too long for frames and used connections instead, over all
    /// repetitions.
    pub outgrown: u64,
}

impl DeviceFigures {
    /// Returns the medians over all repetitions; `None` if `all` is empty.
    pub fn new(all: &[DeviceWork]) -> Option<Self> {
        Some(Self {
            name: all.last()?.name.clone(),
            slots_share: round_to_four_digits(median(all.iter().map(DeviceWork::assigned_share))),
            taken_back: all.iter().map(|used| used.withdrawals).sum(),
            outgrown: all.iter().map(|used| used.values_too_long).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_name_must_match_the_requested_kind() {
        assert_eq!(
            DeviceKind::ALL.map(|device| device.matches_kind("packet")),
            [false, true, false, false, false]
        );
        assert!(DeviceKind::Kernel.matches_kind("kernel") && DeviceKind::Tc.matches_kind("kernel"));
        assert!(DeviceKind::Udp.matches_kind("udp") && !DeviceKind::Udp.matches_kind(""));
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for device in DeviceKind::ALL {
            assert_eq!(DeviceKind::from_name(device.name()), Some(device));
        }
        assert_eq!(DeviceKind::from_name("off"), None);
        assert!(
            DeviceKind::Udp.conflicts_with_plane(Some("multicast"))
                && !DeviceKind::Udp.conflicts_with_plane(None)
        );
        assert!(!DeviceKind::Kernel.conflicts_with_plane(Some("udp")));
    }

    #[test]
    fn rarely_used_device_invalidates_a_result() {
        let reading = |decided, given, taken_back| DeviceReading {
            name: "in the kernel".to_owned(),
            decided,
            assigned_slots: given,
            withdrawals: taken_back,
            values_too_long: 0,
        };
        let before = reading(100, 90, 1);
        let used = reading(1100, 1090, 1).work_since(&before);
        assert_eq!(used.invalid_reason(), None);
        let hardly = reading(1100, 190, 2).work_since(&before);
        let why = hardly.invalid_reason().unwrap();
        assert!(why.contains("10 %") && why.contains("1 times"), "{why}");
        let outgrown = DeviceWork { values_too_long: 900, ..hardly.clone() };
        assert_eq!(outgrown.invalid_reason(), None);
        let figures = DeviceFigures::new(&[used, hardly]).unwrap();
        assert_eq!((figures.slots_share, figures.taken_back), (0.55, 1));
        assert_eq!(DeviceFigures::new(&[]), None);
    }
}
