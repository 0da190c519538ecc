//! The packet plane in whole runs. Every carrier produces the same history, and the runs cover
//! every event of the plane.

use quorate_core::{record::Class, slot::Slot, value::Value};
use quorate_packets::plane::GroupPath;
use quorate_packets::trust::Refusal;
use quorate_sim::{air::DatagramCounts, faults::RunSettings, network::Carrier, run, world::World};

const CARRIERS: [Carrier; 5] = [
    Carrier::Streams,
    Carrier::Datagrams,
    Carrier::Packets { broadcast_path: GroupPath::Unicast },
    Carrier::Packets { broadcast_path: GroupPath::Chain },
    Carrier::Packets { broadcast_path: GroupPath::Multicast },
];

/// Runs one client with one command at a time, without faults. Returns the decided slots and the
/// counters of the packet planes.
fn history(carrier: Carrier, class: Class, nodes: usize) -> (Vec<(Slot, Value)>, DatagramCounts) {
    let mut settings = RunSettings::without_faults(7, nodes, class);
    settings.network_conditions.carrier = carrier;
    // The window is smaller than the total size of the messages, so decisions must free space.
    settings.datagram_faults.window_bytes = 24 << 10;
    let mut world = World::with_leader(settings).unwrap();
    // By now, packets reach every node, if they are used.
    world.run_for(300_000).unwrap();
    let (client, text) = (world.add_client(1), [b'x'; 1500]);
    for command in 0..60_usize {
        let key = format!("k{}", command % 7);
        // Some values do not fit into one datagram.
        world.send_request(client, &[b"SET", key.as_bytes(), &text[..command * 25]]);
        assert!(world.wait_for_reply(client).unwrap().is_some());
    }
    world.run_until_settled().unwrap();
    // Decisions are checked against disks, to which a volatile group writes later.
    world.run_for(300_000).unwrap();
    let packets = world.counts.datagram_counts;
    (world.decided_history(), packets)
}

/// The same commands produce the same log, slot by slot and bit by bit, on every plane.
#[test]
fn one_history_on_every_plane() {
    for (class, nodes) in [(Class::Durable, 3), (Class::Volatile, 3), (Class::Durable, 5)] {
        let (expected, packets) = history(Carrier::Streams, class, nodes);
        assert_eq!(packets, DatagramCounts::default());
        let batches = expected.iter().filter(|(_, value)| matches!(value, Value::Batch { .. }));
        assert!(batches.count() >= 60, "{expected:?}");
        for carrier in CARRIERS {
            let (history, packets) = history(carrier, class, nodes);
            assert_eq!(history, expected, "{carrier:?}, {class:?}, {nodes} nodes");
            let Carrier::Packets { broadcast_path: reach } = carrier else {
                continue;
            };
            // Proposals were multicast where the reach allows it, and votes used packets in any
            // case.
            let planes = packets.plane_counters;
            assert!(planes.frames_to_one >= 60, "{packets}");
            let once = reach != GroupPath::Unicast;
            assert_eq!(planes.frames_to_group >= 60, once, "{packets}");
            let handed_on = planes.datagrams_forwarded >= 60;
            assert_eq!(handed_on, reach == GroupPath::Chain, "{packets}");
            assert_eq!(
                (planes.datagrams_given_up, planes.frames_without_space),
                (0, 0),
                "{packets}"
            );
        }
    }
}

/// A fixed set of seeds covers every event of datagrams and planes, because a check that never sees
/// an event would prove little.
#[test]
fn fixed_seeds_reach_every_counter() {
    let mut all = DatagramCounts::default();
    for seed in (1..=300).filter(|seed| {
        matches!(RunSettings::draw(*seed).network_conditions.carrier, Carrier::Packets { .. })
    }) {
        let report = run(seed, 8_000);
        assert!(report.has_no_violation(), "\n{report}\n");
        all.add(&report.event_counts.datagram_counts);
    }
    let planes = all.plane_counters;
    for (what, count) in [
        ("flown", all.sent),
        ("lost", all.lost),
        ("blocked", all.blocked),
        ("unheard", all.undelivered),
        ("repeated", all.duplicated),
        ("echoed", all.delayed_copies),
        ("flipped", all.flipped),
        ("cut", all.split),
        ("own drops", all.send_refused),
        ("introduced", all.introduced),
        ("up", all.peer_up),
        ("down", all.peer_down),
        ("up by the group", all.multicast_up),
        ("down by the group", all.multicast_down),
        ("deaf", all.reception_losses),
        ("frames to one", planes.frames_to_one),
        ("frames to the group", planes.frames_to_group),
        ("handed on", planes.datagrams_forwarded),
        ("frames refused", planes.frames_without_space),
        ("frames received", planes.frames_received),
        ("given up", planes.datagrams_given_up),
        ("ways changed", planes.path_changes),
    ] {
        assert!(count > 0, "{what} never happened: {all}");
    }
    // Neither occurs here: the tag of a datagram identifies its sender.
    assert_eq!((all.invalid_frames, all.stale_introductions), (0, 0), "{all}");
    for (reason, count) in Refusal::ALL.into_iter().zip(all.refused_by_planes) {
        if let Refusal::Old | Refusal::Unasked = reason {
            // These refusals cannot occur here: no datagram lags by the 4096 that `Old` requires,
            // and introductions arrive over connections, not by nonces.
            assert_eq!(count, 0, "{}: {all}", reason.name());
            continue;
        }
        assert!(count > 0, "no datagram was refused as {}: {all}", reason.name());
    }
}
