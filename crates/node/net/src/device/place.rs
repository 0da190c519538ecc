//! Attachment of a device that uses raw frames: its interface, and the multicast groups of the
//! cluster.

use quorate_device::xdp::Settings;
use quorate_offload::{Address, Form, Routes, Setup, header::HEADER_BYTES, link::stations};
use quorate_packets::ethernet::{Raw, raw::ReceiveFilter};

use super::{CELLS, PAYLOAD_BYTES_MAX, TAP_FRAMES, group_of};

/// Size in bytes of a frame without the Ethernet header: shim, header and payload.
const FRAME_BYTES: usize = 4 + HEADER_BYTES + PAYLOAD_BYTES_MAX;
/// Size in bytes of the queue from a kernel device to the reactor, for several milliseconds of
/// values.
const TAP_BYTES: u32 = 1 << 22;
/// Kernel driver of virtual Ethernet pairs, which containers use.
const PAIRS: &str = "veth";

/// Attachment point of a device at one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttachmentPoint {
    /// Group number that distinguishes the cluster's frames from those of other clusters.
    group: u32,
    /// Ethernet address of the interface.
    own_address: Address,
    /// Multicast address of all devices of the cluster.
    pub(super) all_devices: Address,
    /// Multicast address of all devices, and of clients that receive decisions ([offload-15]).
    pub(super) decisions: Address,
    /// Visibility of frames to programs at this interface.
    sight: Sight,
}

/// Properties of an interface that hide parts of a frame from programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// The interface is one end of a pair. Frames that XDP returns through the pair's driver are
    /// lost unless the other end cooperates, and VLAN tags are carried outside the frame.
    pub(super) is_pair: bool,
    /// VLAN tags are removed before XDP runs, so XDP would accept frames of any VLAN.
    pub(super) strips_tags: bool,
}

impl AttachmentPoint {
    /// Returns the attachment point at an interface. Fails if the interface's frames are too small.
    pub(super) fn at(interface: &str, cluster: u128) -> Result<Self, String> {
        let raw = Raw::open(interface, ReceiveFilter::Nothing, None)
            .map_err(|failed| failed.to_string())?;
        let mtu = raw.mtu();
        if mtu < FRAME_BYTES {
            return Err(format!(
                "{interface} takes frames of {mtu} bytes, and those of devices have {FRAME_BYTES}"
            ));
        }
        Ok(Self::of(
            raw.local().0,
            cluster,
            Sight {
                is_pair: raw.driver().as_deref() == Some(PAIRS),
                strips_tags: raw.takes_tags().unwrap_or(true),
            },
        ))
    }

    fn of(mac: [u8; 6], cluster: u128, sight: Sight) -> Self {
        let group = group_of(cluster);
        let [all, decisions] = stations(group);
        Self {
            group,
            // In raw frames, nodes have no other addresses.
            own_address: Address { mac, ..Address::default() },
            all_devices: all,
            decisions,
            sight,
        }
    }

    pub(super) const fn sight(&self) -> Sight {
        self.sight
    }

    /// Returns the settings for a device in user space.
    pub(super) const fn for_thread(&self, form: Form) -> quorate_device::Settings {
        quorate_device::Settings {
            group: self.group,
            cells: CELLS,
            room: PAYLOAD_BYTES_MAX,
            form,
            own: self.own_address,
            all_hosts: self.all_devices,
            decisions: self.decisions,
            tap_frames: TAP_FRAMES,
        }
    }

    pub(super) fn for_kernel(&self) -> Result<Settings, quorate_device::xdp::Failed> {
        let thread = self.for_thread(Form::Raw);
        let setup = Setup {
            group: self.group,
            room: PAYLOAD_BYTES_MAX,
            own: self.own_address,
            heard: self.all_devices.mac,
            owner: thread.owner(),
        };
        let [all, decisions] =
            [self.all_devices, self.decisions].map(|to| Routes::of(&[to]).expect("one route"));
        Ok(Settings {
            cells: CELLS,
            tap: TAP_BYTES,
            ..Settings::of(setup, &all, &all, &decisions)?
        })
    }
}

pub(super) fn is_interface(name: &str) -> bool {
    Raw::open(name, ReceiveFilter::Nothing, None).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const PLAIN: Sight = Sight { is_pair: false, strips_tags: false };

    #[test]
    fn different_clusters_use_different_stations() {
        let [one, other] = [1, 2].map(|cluster| AttachmentPoint::of(MAC, cluster, PLAIN));
        let all = [&one, &other].map(|place| [place.all_devices.mac, place.decisions.mac]);
        let all = all.as_flattened();
        for (at, mac) in all.iter().enumerate() {
            assert_eq!(mac[0] & 3, 3, "a group, locally administered");
            assert!(!all[..at].contains(mac));
        }
    }

    #[test]
    fn owner_and_device_have_different_addresses() {
        let told = AttachmentPoint::of(MAC, 1, PLAIN).for_kernel().unwrap();
        assert_ne!(told.setup.owner.mac, told.setup.own.mac);
        assert_eq!(told.setup.own.mac, MAC);
        assert_eq!((told.votes.mac, told.proposals.mac), (told.setup.heard, told.setup.heard));
    }

    #[test]
    fn unknown_interface_is_an_error_with_a_reason() {
        let why = AttachmentPoint::at("quorate-none", 1).unwrap_err();
        assert!(!why.is_empty());
    }
}
