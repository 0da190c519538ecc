//! Scrubs of byte streams: damage in unread bytes is found and repaired from other nodes.

use quorate_replica::scrubbing::report::{Fate, Kind, ScrubStatus};

use super::*;

fn scrub(group: &mut Group, node: NodeId) -> ScrubStatus {
    let now = group.now();
    let wall_ms = 1_700_000_000_000 + now.0 / 1000;
    group.replica_mut(node).begin_scrub(now, wall_ms, Some(1 << 30));
    group.run_ms(1);
    let ended = group.run_until(60_000, |group| {
        let status = group.replica(node).scrub_status();
        status.now.is_none() && status.count(Fate::Repairing) == 0
    });
    let status = group.replica(node).scrub_status();
    assert!(ended, "{status:?}");
    status
}

/// [scrub-2] [scrub-3] With flipped bits and a lost file on one node after another, no wrong data
/// is served, and all bytes are restored in the end.
#[test]
fn rotten_chunks_are_found_and_fetched_again() {
    let mut group = group(Class::Durable, 7);
    let owner = follower(&mut group);
    let mut client = Client::new(7);
    client.write_to(&mut group, 700_000, owner);
    assert_eq!(client.finish_stream(&mut group), 700_000);
    check_all(&mut group, 700_000);
    group.run_ms(1_000);
    for ill in ALL {
        let whole = scrub(&mut group, ill);
        assert_eq!(whole.found.len(), 0, "{whole:?}");
        let mut blocks = group.disk(ill).written_blocks();
        blocks.retain(|at| at.file.family == Family::Stream);
        let spoiled = [blocks.len() / 5, blocks.len() / 2].map(|at| blocks[at]);
        for at in spoiled {
            assert!(group.disk(ill).flip_bit(at, 77));
        }
        let status = scrub(&mut group, ill);
        let repaired = status.count(Fate::Repaired);
        assert!(repaired > 0 && repaired == status.found.len(), "{status:?}");
        for found in &status.found {
            assert_eq!(found.kind, Kind::Streams, "{found:?}");
            assert!(found.description.contains("offset"), "{found:?}");
        }
        assert_eq!(group.replica(ill).error(), None);
        check_all(&mut group, 700_000);
        assert_eq!(scrub(&mut group, ill).found.len(), 0);
    }
    // The next start finds the bytes, too.
    for node in ALL {
        group.crash(node);
    }
    for node in ALL {
        group.start(node);
    }
    check_all(&mut group, 700_000);
}

/// Damaged bytes that no peer has are reported and not served, and the node still becomes idle.
#[test]
fn alone_a_node_names_what_rotted_and_serves_the_rest() {
    let one = NodeId(1);
    let mut options = Group::options(1, Class::Durable);
    options.stream_layout = self::options(Class::Durable).stream_layout;
    let mut group = Group::with_options(options, 7, |_| Shelf::default());
    group.start(one);
    assert!(group.run_until(10_000, |group| group.leader().is_some()));
    let mut client = Client::new(7);
    client.write_to(&mut group, 300_000, one);
    assert_eq!(client.finish_stream(&mut group), 300_000);
    group.run_ms(1_000);
    let mut blocks = group.disk(one).written_blocks();
    blocks.retain(|at| at.file.family == Family::Stream);
    assert!(group.disk(one).flip_bit(blocks[blocks.len() / 2], 77));
    let now = group.now();
    let wall_ms = 1_700_000_000_000 + now.0 / 1000;
    group.replica_mut(one).begin_scrub(now, wall_ms, Some(1 << 30));
    group.run_ms(3_000);
    let status = group.replica(one).scrub_status();
    assert_eq!((status.now, status.found.len()), (None, 1), "{status:?}");
    assert_eq!(status.count(Fate::Repairing), 1, "{status:?}");
    let lacks = group.replica(one).status(now).streams.missing_bytes;
    assert!((1..=4 << 10).contains(&lacks), "{lacks}");
}
