//! Both stores give the same replies and reach equal states from the same log, even after restarts.

use std::path::Path;

use quorate_core::slot::Slot;
use quorate_kv::{
    commands::transactions::ABSENT_LEVEL,
    op::Op,
    service::Service,
    store::{
        lsm::{Limits, LsmStore},
        memory::MemoryStore,
    },
};
use quorate_replica::service::{CommandId, MetaChange, StateMachine as _};

use crate::common::{Asked, Node, Random, copy};

/// Generates a random log, encoded by a front. With an odd seed, its group has several databases.
pub(crate) fn log(seed: u64, length: usize) -> Vec<Vec<Vec<u8>>> {
    let mut random = Random::new(seed);
    let mut node = Node::memory();
    let has_databases = seed % 2 == 1;
    if has_databases {
        node.world.level = ABSENT_LEVEL;
    }
    let client = node.connect();
    let mut slots = Vec::new();
    while slots.len() < length {
        let mut batch = Vec::new();
        for _ in 0..=random.below(4) {
            node.world.wall_ms += 100;
            let mut line = any_write(&mut random);
            if has_databases {
                let number = *random.pick(&[0, 0, 1, 5, 15]);
                node.feed(client, format!("SELECT {number}\r\n").as_bytes());
                if random.below(8) == 0 {
                    line = across_databases(&mut random, number);
                }
            }
            node.feed(client, format!("{line}\r\n").as_bytes());
            for asked in node.world.asked.drain(..) {
                let Asked::Write(_, _, command) = asked else { panic!("{line} is a write") };
                batch.push(command);
            }
            // No request is answered, so the log ends once the connection accepts no more.
            if !node.front_ready(client) {
                return slots;
            }
        }
        if has_databases && random.below(4) == 0 {
            let database = *random.pick(&[1, 5, 15]);
            batch.push(vec![Op::In as u8, database, Op::Sweep as u8, 3]);
        }
        if random.below(4) == 0 {
            batch.push(vec![Op::Sweep as u8, u8::try_from(random.below(4)).unwrap()]);
        }
        slots.push(batch);
    }
    slots
}

/// [time-1] Returns the group's time at a slot of such a log, which may lag the writer's clock.
pub(crate) fn time_of(slot: u64) -> u64 {
    1_000_000 + slot / 7 * 7 * 250
}

impl Node {
    fn front_ready(&self, client: quorate_replica::front::ConnectionId) -> bool {
        quorate_replica::front::Front::accepts_input(&self.front, client)
    }
}

fn across_databases(random: &mut Random, selected: u64) -> String {
    let key = *random.pick(&["a", "b", "c", "d"]);
    let other = *random.pick(&[2, 5, 15]);
    let other = if other == selected { 7 } else { other };
    match random.below(10) {
        0..3 => format!("MOVE {key} {other}"),
        3..6 => format!("COPY {key} {key} DB {other} REPLACE"),
        6 => "FLUSHDB".to_owned(),
        7 if random.below(4) == 0 => "FLUSHALL".to_owned(),
        _ => format!("SWAPDB {selected} {other}"),
    }
}

fn any_write(random: &mut Random) -> String {
    let keys = ["a", "b", "c", "d", "key:1", "key:2"];
    let (key, other) = (*random.pick(&keys), *random.pick(&keys));
    let number = random.below(100);
    match random.below(30) {
        22 => format!("SET {key} {number} IFEQ {number}"),
        23 => format!("SET {key} {number} IFNE v"),
        24 => format!("DELEX {key} IFEQ v"),
        // Redisson locks, and other commands for the same keys.
        25 | 26 => {
            format!("EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 {key} {number}00 {other}")
        }
        27 => format!(
            "EVALSHA 6866459238a13a701d42f4971f12d9f3a50e2442 3 {key} c {other}:l 0 900 {other} publish 100"
        ),
        28 => format!("EVALSHA a4e8783852e6b949f9ef3a97212805108459a890 1 {key} v {number} 0"),
        29 => {
            format!("EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 2 {key} {other} v {number}1")
        }
        0..3 => format!("SET {key} {number}"),
        3 => format!("SET {key} {number} PX {number}1"),
        4 => format!("SET {key} {number} KEEPTTL"),
        5 => format!("SET {key} v NX"),
        6 => format!("INCRBY {key} {number}"),
        7 => format!("APPEND {key} {number}"),
        8 => format!("DEL {key} {other}"),
        9 => format!("RENAME {key} {other}"),
        10 => format!("COPY {key} {other} REPLACE"),
        11 => format!("PEXPIRE {key} {number}1"),
        12 => format!("PEXPIRE {key} {number}1 GT"),
        13 => format!("PERSIST {key}"),
        14 => format!("MSET {key} 1 {other} 2"),
        15 => format!("MSETNX {key} 1 {other} 2"),
        16 => format!("SETRANGE {key} 3 x"),
        17 => format!("INCRBYFLOAT {key} 0.{number}"),
        18 if number < 30 => "FLUSHALL".to_owned(),
        19 => format!("SETNX {key} {number}"),
        20 => format!("SET {key}:{number} {number} EX {number}1"),
        _ => format!("EXPIRE {key} 0"),
    }
}

/// A replica's service, and its replies.
struct Side {
    service: Service,
    applied_to: u64,
    replies: Vec<Vec<u8>>,
}

impl Side {
    fn new(mut service: Service) -> Self {
        let (applied_to, _) = service.recovered();
        Self { service, applied_to: applied_to.0, replies: Vec::new() }
    }

    fn apply(&mut self, slot: u64, batch: &[Vec<u8>]) {
        assert_eq!(slot, self.applied_to, "each slot once");
        self.service.set_time(time_of(slot));
        for (index, command) in batch.iter().enumerate() {
            let id = CommandId { slot: Slot(slot), index: u32::try_from(index).unwrap() };
            let mut reply = Vec::new();
            self.service.apply(id, command, &mut reply);
            self.replies.push(reply);
        }
        self.applied_to = slot + 1;
    }

    fn commit(&mut self) {
        let key = b"session".to_vec();
        let value = Some(self.applied_to.to_le_bytes().to_vec());
        self.service.commit(Slot(self.applied_to), &[MetaChange { key, value }]);
    }
}

/// Opens a store that sends changes to the tree often. A folder that was copied during a write may
/// be damaged at its end; the store then starts empty.
fn lsm(path: &Path) -> Service {
    let limits = Limits { held_bytes: 700, ..Limits::default() };
    let (store, _) = LsmStore::open_with(path, limits).unwrap();
    Service::new(Box::new(store))
}

#[test]
fn memory_and_lsm_agree_whatever_restarts() {
    for seed in 0..12 {
        let mut random = Random::new(1000 + seed);
        let slots = log(seed, 150);
        assert!(slots.len() > 100);
        let folder = tempfile::tempdir().unwrap();
        let mut life = 0;
        let path = |life: usize| folder.path().join(format!("life-{life}"));
        let mut memory = Side::new(Service::new(Box::new(MemoryStore::new())));
        let mut disk = Side::new(lsm(&path(life)));
        for (slot, batch) in (1u64..).zip(&slots) {
            memory.apply(slot, batch);
            disk.apply(slot, batch);
            assert_eq!(disk.replies, memory.replies, "seed {seed} slot {slot}");
            // Uncommitted changes are visible too.
            assert_eq!(disk.service.store().len(), memory.service.store().len());
            match random.below(12) {
                0..5 => disk.commit(),
                5 => assert_eq!(disk.service.digest(), memory.service.digest(), "seed {seed}"),
                6 => {
                    // After a crash, only what is on disk survives.
                    copy(&path(life), &path(life + 1));
                    life += 1;
                    disk = restart(lsm(&path(life)), &slots, slot, &memory.replies);
                }
                7 => {
                    disk.commit();
                    drop(disk);
                    disk = restart(lsm(&path(life)), &slots, slot, &memory.replies);
                }
                _ => {}
            }
        }
        assert_eq!(disk.service.digest(), memory.service.digest(), "seed {seed}");
        assert!(life > 0, "seed {seed} stopped without warning");
    }
}

/// Replays the log from the recovered position. The replies must be the same again.
fn restart(service: Service, slots: &[Vec<Vec<u8>>], to: u64, replies: &[Vec<u8>]) -> Side {
    let mut side = Side::new(service);
    let from = usize::try_from(side.applied_to - 1).unwrap();
    let (_, meta) = side.service.recovered();
    if from > 0 {
        // The replica's metadata belongs to the same commit as the data.
        assert_eq!(meta, [(b"session".to_vec(), side.applied_to.to_le_bytes().to_vec())]);
    }
    let before: usize = slots[..from].iter().map(Vec::len).sum();
    side.replies = replies[..before].to_vec();
    for slot in side.applied_to..=to {
        side.apply(slot, &slots[usize::try_from(slot - 1).unwrap()]);
    }
    assert_eq!(side.replies, replies, "replayed from slot {}", from + 1);
    side
}
