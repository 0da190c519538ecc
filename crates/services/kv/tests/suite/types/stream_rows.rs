//! Streams in stores: snapshots, equal nodes, and bounds on the work of a command.

use std::sync::{Arc, atomic::Ordering};

use quorate_core::slot::Slot;
use quorate_kv::{
    encode::Encoder,
    op::Op,
    service::Service,
    store::{
        lsm::{Disk, Limits, LsmStore, Options},
        memory::MemoryStore,
    },
};
use quorate_replica::{
    front::ConnectionId,
    service::{CommandId, Imaged, StateMachine as _, Weight},
};

use super::stream::{ids, on_both};
use crate::{
    blind::Counting,
    common::{Node, Random},
};

/// Nodes agree on everything, also after a snapshot.
#[test]
fn nodes_have_the_same_streams() {
    let mut digests = Vec::new();
    for seed in 0..3 {
        let digests_of = std::cell::RefCell::new(Vec::new());
        on_both(|node| {
            let mut random = Random::new(77 + seed);
            let client = node.connect();
            for _ in 0..400 {
                let (key, other) = (random.pick(&["a", "b", "c"]), random.pick(&["a", "b", "c"]));
                let (ms, most) = (random.below(40), random.below(8));
                node.world.wall_ms += random.below(3) as u64;
                let command = match random.below(12) {
                    0..4 => format!("XADD {key} * f {ms}"),
                    4 => format!("XADD {key} MAXLEN ~ {most} * f {ms}"),
                    5 => format!("XADD {key} MINID = {} * f {ms}", node.world.wall_ms - 9),
                    6 => format!("XTRIM {key} MAXLEN {most}"),
                    7 => match ids(node, client, &format!("XRANGE {key} - + COUNT {ms}")).last() {
                        Some(id) => format!("XDEL {key} {id}"),
                        None => format!("XDEL {key} 1-1"),
                    },
                    8 if key != other => format!("COPY {key} {other} REPLACE"),
                    9 if most == 0 => format!("DEL {key}"),
                    9 => format!("RENAME {key} {other}"),
                    _ => format!("XSETID {key} {}", node.world.wall_ms),
                };
                node.say(client, &command);
                for key in ["a", "b", "c"] {
                    agrees(node, client, key);
                }
            }
            let digest = node.world.service.digest();
            assert_eq!(loaded(node).digest(), digest);
            digests_of.borrow_mut().push(digest);
        });
        let found = digests_of.into_inner();
        assert_eq!(found[0], found[1]);
        digests.extend(found);
    }
    digests.dedup();
    assert_eq!(digests.len(), 3, "the programs differ");
}

/// Checks that the number of entries and the first one are as a stream says.
fn agrees(node: &mut Node, client: ConnectionId, key: &str) {
    let all = ids(node, client, &format!("XRANGE {key} - +"));
    assert_eq!(node.say(client, &format!("XLEN {key}")), format!(":{}|", all.len()));
    let info = node.say(client, &format!("XINFO STREAM {key}"));
    if let Some(first) = all.first() {
        assert!(info.contains(&format!("recorded-first-entry-id|${}|{first}|", first.len())));
    }
}

/// Returns the service of a node that has loaded a snapshot of another one.
fn loaded(node: &mut Node) -> Service {
    let (from, mut to) = (&mut node.world.service, Service::new(Box::new(MemoryStore::new())));
    to.begin_load().unwrap();
    assert!(from.begin_image());
    while from.next_image(100, &mut |item| to.load(item).unwrap()) == Imaged::More {}
    to.finish_load(Slot(node.world.slot), &[]).unwrap();
    to
}

/// A snapshot in progress has a stream as it was, even an empty one whose first entry comes later,
/// and the entry does not come back.
#[test]
fn snapshots_have_streams_as_they_were() {
    on_both(|node| {
        let client = node.connect();
        for key in 0..40 {
            node.say(client, &format!("XADD e{key} MAXLEN 0 1-1 a b"));
            // A renamed empty stream has nothing in the store but its key.
            node.say(client, &format!("RENAME e{key} empty{key}"));
            node.say(client, &format!("XADD full{key} 1-1 a b"));
        }
        let digest = node.world.service.digest();
        let at = Slot(node.world.slot);
        let mut copy = Service::new(Box::new(MemoryStore::new()));
        copy.begin_load().unwrap();
        assert!(node.world.service.begin_image());
        let mut round = 0;
        while node.world.service.next_image(1, &mut |item| copy.load(item).unwrap()) == Imaged::More
        {
            for key in [round % 40, 39 - round % 40] {
                node.say(client, &format!("XADD empty{key} {}-1 a b", 2 + round));
                node.say(client, &format!("XADD full{key} {}-1 a b", 2 + round));
                node.say(client, &format!("XADD new{key} {}-1 a b", 2 + round));
                node.say(client, &format!("XTRIM full{key} MAXLEN 1"));
            }
            round += 1;
        }
        assert!(round > 40);
        copy.finish_load(at, &[]).unwrap();
        assert_eq!(copy.digest(), digest);
        // A node that begins with a snapshot can pass it on.
        let mut third = Service::new(Box::new(MemoryStore::new()));
        third.begin_load().unwrap();
        assert!(copy.begin_image());
        while copy.next_image(1000, &mut |item| third.load(item).unwrap()) == Imaged::More {}
        third.finish_load(at, &[]).unwrap();
        assert_eq!(third.digest(), digest);
    });
}

/// Threshold of a trim as encoded: a length or an id, exact or approximate.
fn threshold(out: &mut Encoder<'_>, kind: u8, number: u64, limit: u64) {
    out.byte(kind);
    match kind & 3 {
        1 => _ = out.count(number),
        _ => out.0.extend([number.to_be_bytes(), [0; 8]].concat()),
    }
    if kind & 4 != 0 {
        out.count(limit);
    }
}

fn add(ms: u64, trim: Option<(u8, u64)>) -> Vec<u8> {
    let mut command = Vec::new();
    let out = &mut Encoder(&mut command);
    out.byte(Op::XAdd as u8).bytes(b"s").byte(if trim.is_some() { 2 } else { 0 });
    if let Some((kind, number)) = trim {
        threshold(out, kind, number, 0);
    }
    out.byte(0).word(ms).length(2).bytes(b"f").bytes(b"v");
    command
}

fn trim(kind: u8, number: u64) -> Vec<u8> {
    let mut command = Vec::new();
    let out = &mut Encoder(&mut command);
    threshold(out.byte(Op::XTrim as u8).bytes(b"s"), kind, number, 0);
    command
}

/// Service that executes commands one by one.
struct Lone {
    service: Service,
    slot: u64,
}

impl Lone {
    fn apply(&mut self, command: &[u8]) -> String {
        let mut reply = Vec::new();
        self.service.apply(CommandId { slot: Slot(self.slot), index: 0 }, command, &mut reply);
        self.slot += 1;
        if self.slot.is_multiple_of(10_000) {
            self.service.commit(Slot(self.slot), &[]);
        }
        String::from_utf8(reply).unwrap()
    }

    fn bounded(&mut self, command: &[u8]) -> String {
        self.apply(&[&[Op::Bounded as u8], command].concat())
    }

    fn fill(&mut self, entries: u64) {
        for ms in 1..=entries {
            self.apply(&add(ms, None));
        }
    }

    fn length(&mut self) -> u64 {
        let mut count = Vec::new();
        Encoder(&mut count).byte(Op::Count as u8).bytes(b"s").byte(5);
        let reply = self.apply(&count);
        reply.trim_start_matches(':').trim_end().parse().unwrap()
    }
}

/// A trim of a long stream does not pass the entries that are removed and still stored.
#[test]
fn trimmed_stream_does_not_walk_over_removed_entries() {
    const ENTRIES: u64 = 200_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    let (store, _) = LsmStore::open(&path).unwrap();
    let mut lone = Lone { service: Service::new(Box::new(store)), slot: 1 };
    lone.fill(ENTRIES);
    let slot = lone.slot;
    lone.service.commit(Slot(slot), &[]);
    drop(lone);
    // Removals stay above the tree, which still has all entries.
    let disk = Arc::new(Counting::of_this_thread());
    let limits = Limits { held_bytes: 1 << 30, written_bytes: 1 << 30, ..Limits::default() };
    let counted = Arc::clone(&disk) as Arc<dyn Disk>;
    let options = Options { limits, disk: counted, ..Options::default() };
    let (store, _) = LsmStore::open_with(&path, options).unwrap();
    let mut lone = Lone { service: Service::new(Box::new(store)), slot };
    assert_eq!(lone.length(), ENTRIES);
    assert_eq!(lone.apply(&trim(1, 1000)), format!(":{}\r\n", ENTRIES - 1000));
    let before = disk.reads.load(Ordering::SeqCst);
    for round in 1..=100 {
        let trims = [(1, 1000 - round), (2, ENTRIES - 1000 + 3 * round)];
        for kind_and_threshold in trims {
            let reply = lone.apply(&add(ENTRIES + round, Some(kind_and_threshold)));
            assert!(reply.starts_with('$'), "{reply}");
        }
    }
    assert!(lone.length() < 1000);
    let reads = disk.reads.load(Ordering::SeqCst) - before;
    assert!(reads < 5000, "{reads} reads of 200 commands");
}

/// [visit-2] An addition is never refused because there is much to trim: the next ones trim the
/// rest.
#[test]
fn additions_trim_a_long_stream_step_by_step() {
    const ENTRIES: u64 = 250_000;
    for kind in [1, 2, 5, 6] {
        let store = Box::new(MemoryStore::new());
        let mut lone = Lone { service: Service::new(store), slot: 1 };
        lone.fill(ENTRIES);
        let few = if kind & 3 == 1 { 10 } else { ENTRIES };
        if kind & 4 == 0 {
            assert_eq!(lone.service.weigh(&trim(kind, few)), Weight::TooHeavy, "{kind}");
            assert!(lone.bounded(&trim(kind, few)).starts_with("-TOOBIG"), "{kind}");
            assert_eq!(lone.length(), ENTRIES);
        }
        let mut lengths = Vec::new();
        for ms in 1..=4 {
            let command = add(ENTRIES + ms, Some((kind, few)));
            let (visits, weight) = (lone.service.visits(&command), lone.service.weigh(&command));
            assert_ne!(weight, Weight::TooHeavy, "{kind}: {visits}");
            assert!(lone.bounded(&command).starts_with('$'), "{kind}");
            lengths.push(lone.length());
        }
        assert!(lengths[0] > 100_000 && lengths[3] < 20, "{kind}: {lengths:?}");
    }
}
