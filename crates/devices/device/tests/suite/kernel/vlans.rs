//! VLANs: a frame from which the kernel removed a tag is not for a device at the interface itself.

use quorate_device::{PacketSocketWire, Wire as _, wire::ArrivedFrames, xdp::Hook};
use quorate_offload::{Encapsulation, Reason, Type, port::Device as _};
use quorate_packets::ethernet::Mac;

use crate::kernel::{
    desk::{parse, phase2a},
    interfaces::armed,
    wires::{CLIENT, Client, DECISIONS, GROUP, INTERFACE, alone, at, lay, vlan},
};

/// [offload-16] The kernel removes tags before tc. A VLAN's frame is passed on and counted,
/// wherever its tag was, and never answered on that VLAN.
#[test]
fn frames_of_a_vlan_are_not_obeyed_by_tc() {
    alone("vlans::frames_of_a_vlan_are_not_obeyed_by_tc", || {
        let _passing = lay(1);
        let mut host = armed(1, &[Hook::Traffic]);
        let client = Client::new();
        let before = host.device().counters().unwrap();
        // From a VLAN interface, with the tag outside the frame; then with the tag in the frame;
        // then with only a priority tag.
        if vlan(CLIENT, "tagged", 5) {
            Client::on("tagged").send(1, &phase2a(0, 1));
        } else {
            client.send_tagged(1, 7, &phase2a(0, 1));
        }
        client.send_tagged(1, 5, &phase2a(1, 2));
        client.send_tagged(1, 0xe000, &phase2a(2, 3));
        client.send(1, &phase2a(3, 4));
        let (heard, _) = client.hear().unwrap();
        assert_eq!((heard.kind, heard.slot), (Type::Phase2b, 3));
        let counters = host.device().counters().unwrap();
        assert_eq!(counters[Reason::Vlan as usize], 3);
        let obeyed = Reason::None as usize;
        assert_eq!(counters[obeyed] - before[obeyed], 1);
        let mut frame = Vec::new();
        assert!(host.take_frame(&mut frame).is_some() && host.take_frame(&mut frame).is_none());
        host.close().unwrap();
    });
}

/// A device in a thread uses the socket's notice of removed tags to ignore VLAN frames: frames of a
/// VLAN with or without an interface on the host, and frames with only a priority tag.
#[test]
fn frames_of_a_vlan_are_not_obeyed_by_a_thread() {
    alone("vlans::frames_of_a_vlan_are_not_obeyed_by_a_thread", || {
        let _passing = lay(1);
        let there = vlan(CLIENT, "tagged", 5) && vlan(1, "tagged", 5) && vlan(CLIENT, "other", 6);
        let groups = [GROUP, DECISIONS].map(|group| Mac(group.mac));
        let mut hears = at(1, || PacketSocketWire::open(INTERFACE, &groups).unwrap());
        let client = Client::new();
        if there {
            Client::on("tagged").send(1, &phase2a(0, 1));
            Client::on("other").send(1, &phase2a(1, 2));
        }
        client.send_tagged(1, 5, &phase2a(2, 3));
        client.send_tagged(1, 6, &phase2a(3, 4));
        client.send_tagged(1, 0xe000, &phase2a(4, 5));
        client.send(1, &phase2a(5, 6));
        let mut arrived = ArrivedFrames::default();
        let is_whole = |frame: &[u8]| Encapsulation::parse(frame, 0).is_ok();
        while !arrived.iter().any(is_whole) {
            hears.receive(&mut arrived);
        }
        let seen: Vec<_> = arrived.iter().map(|frame| Encapsulation::parse(frame, 0)).collect();
        let tagged = if there { 5 } else { 3 };
        assert_eq!(seen[..tagged], vec![Err(Reason::Vlan); tagged]);
        let slots: Vec<u64> = arrived
            .iter()
            .skip(tagged)
            .map(|frame| parse(Encapsulation::Raw, frame).0.slot)
            .collect();
        assert_eq!(slots, [5]);
    });
}
