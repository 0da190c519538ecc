//! Attachment of a device that uses raw frames: its interface, and the multicast groups of the
//! cluster.

use quorate_device::xdp::Settings;
use quorate_offload::{
    Address, Encapsulation, Routes, Setup, header::HEADER_BYTES, link::multicast_addresses,
};
use quorate_packets::ethernet::{RawSocket, raw::ReceiveFilter};

use super::{DEVICE_SLOT_COUNT, PAYLOAD_BYTES_MAX, QUEUED_FRAMES_MAX, cluster_frame_number};

/// Size in bytes of a frame without the Ethernet header: shim, header and payload.
const FRAME_BYTES: usize = 4 + HEADER_BYTES + PAYLOAD_BYTES_MAX;
/// Size in bytes of the queue from a kernel device to the reactor, for several milliseconds of
/// values.
const RECEIVE_QUEUE_BYTES: u32 = 1 << 22;
/// Kernel driver of virtual Ethernet pairs, which containers use.
const VETH_DRIVER: &str = "veth";

/// Attachment point of a device at one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttachmentPoint {
    /// Group number that distinguishes the cluster's frames from those of other clusters.
    cluster_frame_number: u32,
    /// Ethernet address of the interface.
    own_address: Address,
    /// Multicast address of all devices of the cluster.
    pub(super) all_devices: Address,
    /// Multicast address of all devices, and of clients that receive decisions ([offload-15]).
    pub(super) decisions_address: Address,
    /// Visibility of frames to programs at this interface.
    frame_visibility: FrameVisibility,
}

/// Properties of an interface that hide parts of a frame from programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameVisibility {
    /// The interface is one end of a pair. Frames that XDP returns through the pair's driver are
    /// lost unless the other end cooperates, and VLAN tags are carried outside the frame.
    pub(super) is_veth_pair: bool,
    /// VLAN tags are removed before XDP runs, so XDP would accept frames of any VLAN.
    pub(super) strips_vlan_tags: bool,
}

impl AttachmentPoint {
    /// Returns the attachment point at an interface. Fails if the interface's frames are too small.
    pub(super) fn at(interface: &str, cluster: u128) -> Result<Self, String> {
        let raw = RawSocket::open(interface, ReceiveFilter::Nothing, None)
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
            FrameVisibility {
                is_veth_pair: raw.driver().as_deref() == Some(VETH_DRIVER),
                strips_vlan_tags: raw.strips_vlan_tags().unwrap_or(true),
            },
        ))
    }

    fn of(mac: [u8; 6], cluster: u128, sight: FrameVisibility) -> Self {
        let group = cluster_frame_number(cluster);
        let [all, decisions] = multicast_addresses(group);
        Self {
            cluster_frame_number: group,
            // In raw frames, nodes have no other addresses.
            own_address: Address { mac, ..Address::default() },
            all_devices: all,
            decisions_address: decisions,
            frame_visibility: sight,
        }
    }

    pub(super) const fn frame_visibility(&self) -> FrameVisibility {
        self.frame_visibility
    }

    /// Returns the settings for a device in user space.
    pub(super) const fn for_thread(&self, form: Encapsulation) -> quorate_device::Settings {
        quorate_device::Settings {
            group: self.cluster_frame_number,
            cells: DEVICE_SLOT_COUNT,
            room: PAYLOAD_BYTES_MAX,
            form,
            own_address: self.own_address,
            all_hosts: self.all_devices,
            decision_address: self.decisions_address,
            tap_frames: QUEUED_FRAMES_MAX,
        }
    }

    pub(super) fn for_kernel(&self) -> Result<Settings, quorate_device::xdp::XdpError> {
        let thread = self.for_thread(Encapsulation::Raw);
        let setup = Setup {
            group: self.cluster_frame_number,
            room: PAYLOAD_BYTES_MAX,
            own_address: self.own_address,
            heard_group: self.all_devices.mac,
            owner: thread.owner(),
        };
        let [all, decisions] = [self.all_devices, self.decisions_address]
            .map(|to| Routes::of(&[to]).expect("one route"));
        Ok(Settings {
            cells: DEVICE_SLOT_COUNT,
            tap_bytes: RECEIVE_QUEUE_BYTES,
            ..Settings::from_routes(setup, &all, &all, &decisions)?
        })
    }
}

pub(super) fn is_interface(name: &str) -> bool {
    RawSocket::open(name, ReceiveFilter::Nothing, None).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const PLAIN: FrameVisibility = FrameVisibility { is_veth_pair: false, strips_vlan_tags: false };

    #[test]
    fn different_clusters_use_different_stations() {
        let [one, other] = [1, 2].map(|cluster| AttachmentPoint::of(MAC, cluster, PLAIN));
        let all = [&one, &other].map(|place| [place.all_devices.mac, place.decisions_address.mac]);
        let all = all.as_flattened();
        for (at, mac) in all.iter().enumerate() {
            assert_eq!(mac[0] & 3, 3, "a group, locally administered");
            assert!(!all[..at].contains(mac));
        }
    }

    #[test]
    fn owner_and_device_have_different_addresses() {
        let told = AttachmentPoint::of(MAC, 1, PLAIN).for_kernel().unwrap();
        assert_ne!(told.setup.owner.mac, told.setup.own_address.mac);
        assert_eq!(told.setup.own_address.mac, MAC);
        assert_eq!(
            (told.vote_address.mac, told.proposal_address.mac),
            (told.setup.heard_group, told.setup.heard_group)
        );
    }

    #[test]
    fn unknown_interface_is_an_error_with_a_reason() {
        let why = AttachmentPoint::at("quorate-none", 1).unwrap_err();
        assert!(!why.is_empty());
    }
}
