//! External device of a node: its device processes, and their connection to the cluster.

use std::sync::Arc;

use quorate_device::{Boxed, Packet, Software, Translated};
use quorate_offload::Form;
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
    ) -> Result<Software, String> {
        let text = |error: &dyn ToString| error.to_string();
        let opened = Boxed::open(&one.words).inspect_err(|_| {
            // Another device may need the port.
            if let Self::Udp(udp) = self {
                udp.close();
            }
        });
        let (boxed, inner) = opened.map_err(|error| text(&error))?;
        let (programs, room, alarm) = (Box::new(boxed), inner.room, waiting.alarm());
        let started = match self {
            Self::Frames(interface) => {
                let place = AttachmentPoint::at(interface, cluster)?;
                let groups = [place.all_devices, place.decisions].map(|group| Mac(group.mac));
                let told = place.for_thread(Form::Raw);
                let mut wire = Packet::open(interface, &groups).map_err(|error| text(&error))?;
                wire.claim(told.group).map_err(|error| text(&error))?;
                let wire = Translated::new(wire, told, room);
                Software::start_with(inner, programs, wire, alarm)
            }
            Self::Udp(udp) => {
                let (place, wire) = udp.open(cluster).map_err(|error| text(&error))?;
                let wire = Translated::new(wire, place, room);
                Software::start_with(inner, programs, wire, alarm)
            }
        };
        started.map_err(|error| text(&error))
    }
}
