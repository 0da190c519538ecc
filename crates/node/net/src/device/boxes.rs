//! External device of a node: its device processes, and their connection to the cluster.

use std::sync::Arc;

use quorate_device::{DeviceProcesses, PacketSocketWire, SoftwareDevice, TranslatingWire};
use quorate_offload::Encapsulation;
use quorate_packets::ethernet::Mac;

use super::{ExternalDevice, by_udp::UdpCandidate, place::AttachmentPoint, waiting::DeviceWakeup};

#[derive(Debug)]
pub(super) enum ExternalTransport {
    /// Raw Ethernet frames on the named interface.
    Frames(String),
    /// Frames in UDP datagrams.
    Udp(UdpCandidate),
}

impl ExternalTransport {
    /// Starts the device processes, and the thread that relays frames between them and the cluster.
    pub(super) fn start(
        &mut self,
        one: &ExternalDevice,
        cluster: u128,
        waiting: &Arc<DeviceWakeup>,
    ) -> Result<SoftwareDevice, String> {
        let text = |error: &dyn ToString| error.to_string();
        let opened = DeviceProcesses::open(&one.command_line).inspect_err(|_| {
            // Another device may need the port.
            if let Self::Udp(udp) = self {
                udp.close();
            }
        });
        let (boxed, inner) = opened.map_err(|error| text(&error))?;
        let (programs, room, alarm) = (Box::new(boxed), inner.room, waiting.wake_callback());
        let started = match self {
            Self::Frames(interface) => {
                let place = AttachmentPoint::at(interface, cluster)?;
                let groups =
                    [place.all_devices, place.decisions_address].map(|group| Mac(group.mac));
                let told = place.for_thread(Encapsulation::Raw);
                let mut wire =
                    PacketSocketWire::open(interface, &groups).map_err(|error| text(&error))?;
                wire.claim_group(told.group).map_err(|error| text(&error))?;
                let wire = TranslatingWire::new(wire, told, room);
                SoftwareDevice::start_with(inner, programs, wire, alarm)
            }
            Self::Udp(udp) => {
                let (place, wire) = udp.open(cluster).map_err(|error| text(&error))?;
                let wire = TranslatingWire::new(wire, place, room);
                SoftwareDevice::start_with(inner, programs, wire, alarm)
            }
        };
        started.map_err(|error| text(&error))
    }
}
