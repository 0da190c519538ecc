//! Random programs: both stores and the reference model give the same replies, and the stores have
//! equal digests, even after snapshots and restarts.

use std::{mem, path::PathBuf};

use quorate_core::slot::Slot;
use quorate_kv::{
    service::Service,
    store::{
        lsm::{Limits, LsmStore},
        memory::MemoryStore,
    },
};
use quorate_replica::{
    front::ConnectionId,
    service::{Health, Imaged, StateMachine as _},
};

use super::reference::Model;
use crate::{
    common::{Node, Random, World, copy},
    failing::until,
};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const WORDS: [&str; 12] =
    ["x", "y", "z", "one", "two", "10", "20", "-3", "word", "w0rd", "q", "qq"];
const SCORES: [&str; 10] = ["0", "1", "2", "-1", "2.5", "10", "100", "-7.25", "inf", "-inf"];
const FINITE: [&str; 6] = ["0", "1", "2", "-1", "2.5", "10"];

/// Generates a random command whose arguments often match the results of others.
fn command(random: &mut Random, of: usize) -> Vec<String> {
    let key = *random.pick(&KEYS);
    let other = *random.pick(&KEYS);
    let (word, second, third) = (*random.pick(&WORDS), *random.pick(&WORDS), *random.pick(&WORDS));
    let (low, high) = (random.below(9) as i64 - 4, random.below(9) as i64 - 4);
    let most = random.below(5);
    let text = match of {
        0 => match random.below(28) {
            0..5 => format!("HSET {key} {word} {second} {third} {most}"),
            5 => format!("HMSET {key} {word} {second}"),
            6 => format!("HSETNX {key} {word} {second}"),
            7 => format!("HGET {key} {word}"),
            8 => format!("HMGET {key} {word} {second}"),
            9 | 10 => format!("HDEL {key} {word} {second}"),
            11 => format!("HLEN {key}"),
            12 => format!("HSTRLEN {key} {word}"),
            13 => format!("HKEYS {key}"),
            14 => format!("HVALS {key}"),
            15 => format!("HGETALL {key}"),
            16 => format!("HINCRBY {key} {word} {low}"),
            17 => format!("HEXISTS {key} {word}"),
            18 => format!("HRANDFIELD {key}"),
            19 => format!("HRANDFIELD {key} {low}"),
            20..23 => {
                let ms = [0, 1, 200, 500, 1000, 3000][random.below(6)];
                format!("HPEXPIRE {key} {ms} FIELDS 3 {word} {second} {third}")
            }
            23 => {
                let (ms, how) = (most * 500, *random.pick(&["NX", "XX", "GT", "LT"]));
                format!("HPEXPIRE {key} {ms} {how} FIELDS 2 {word} {second}")
            }
            24 => format!("HPERSIST {key} FIELDS 2 {word} {second}"),
            25 => format!("HTTL {key} FIELDS 2 {word} {second}"),
            26 => format!("HPTTL {key} FIELDS 3 {word} {second} {word}"),
            _ => format!("HPEXPIRETIME {key} FIELDS 1 {word}"),
        },
        1 => match random.below(24) {
            0..3 => format!("LPUSH {key} {word} {second}"),
            3..6 => format!("RPUSH {key} {word} {second} {third}"),
            6 => format!("LPUSHX {key} {word}"),
            7 => format!("RPUSHX {key} {word} {second}"),
            8 => format!("LPOP {key}"),
            9 => format!("RPOP {key}"),
            10 => format!("LPOP {key} {most}"),
            11 => format!("RPOP {key} {most}"),
            12 => format!("LLEN {key}"),
            13 => format!("LINDEX {key} {low}"),
            14 => format!("LSET {key} {low} {word}"),
            15 => format!("LRANGE {key} {low} {high}"),
            16 => format!("LTRIM {key} {low} {high}"),
            17 => format!("LREM {key} {low} {word}"),
            18 => format!("LINSERT {key} BEFORE {word} {second}"),
            19 => format!("LINSERT {key} AFTER {word} {second}"),
            20 => format!("LPOS {key} {word} RANK {} COUNT {most} MAXLEN {most}", low.max(1)),
            21 => format!("LPOS {key} {word} RANK {} COUNT {most} MAXLEN 0", low.min(-1)),
            22 => format!("LMOVE {key} {other} LEFT {}", ["LEFT", "RIGHT"][most % 2]),
            _ if most == 0 => format!("RPOPLPUSH {key} {other}"),
            _ => format!("LMPOP 2 {key} {other} RIGHT COUNT {most}"),
        },
        2 => match random.below(20) {
            0..5 => format!("SADD {key} {word} {second} {third}"),
            5 => format!("SREM {key} {word} {second}"),
            6 => format!("SISMEMBER {key} {word}"),
            7 => format!("SMISMEMBER {key} {word} {second}"),
            8 => format!("SCARD {key}"),
            9 => format!("SMEMBERS {key}"),
            10 => format!("SMOVE {key} {other} {word}"),
            11 => format!("SPOP {key}"),
            12 => format!("SPOP {key} {most}"),
            13 => format!("SRANDMEMBER {key} {low}"),
            14 => format!("SINTER {key} {other}"),
            15 => format!("SUNION {key} {other}"),
            16 => format!("SDIFF {key} {other}"),
            17 => format!("SINTERSTORE {key} {other} {}", random.pick(&KEYS)),
            18 => format!("SUNIONSTORE {key} {other} {}", random.pick(&KEYS)),
            _ if most == 0 => format!("SINTERCARD 2 {key} {other} LIMIT 1"),
            _ => format!("SDIFFSTORE {key} {other} {}", random.pick(&KEYS)),
        },
        _ => {
            let score = *random.pick(&SCORES);
            let finite = *random.pick(&FINITE);
            let (least, greatest) = (*random.pick(&FINITE), *random.pick(&SCORES));
            match random.below(28) {
                0..5 => format!("ZADD {key} {score} {word} {finite} {second}"),
                5 => format!("ZADD {key} {} CH {score} {word}", ["NX", "XX", "GT", "LT"][most % 4]),
                6 => format!("ZINCRBY {key} {finite} {word}"),
                7 => format!(
                    "ZADD {key} {} INCR {finite} {word}",
                    ["NX", "XX", "GT", "LT"][most % 4]
                ),
                8 => format!("ZREM {key} {word} {second}"),
                9 => format!("ZSCORE {key} {word}"),
                10 => format!("ZMSCORE {key} {word} {second}"),
                11 => format!("ZCARD {key}"),
                12 => format!("ZRANK {key} {word}"),
                13 => format!("ZREVRANK {key} {word}"),
                14 => format!("ZCOUNT {key} ({least} {greatest}"),
                15 => format!("ZRANGE {key} {low} {high} WITHSCORES"),
                16 => format!("ZRANGE {key} {low} {high} REV WITHSCORES"),
                17 => format!(
                    "ZRANGE {key} {least} ({greatest} BYSCORE LIMIT {low} {high} WITHSCORES"
                ),
                18 => format!("ZRANGE {key} {greatest} {least} BYSCORE REV LIMIT {most} {high}"),
                19 => format!("ZRANGE {key} [{word} ({second} BYLEX LIMIT 0 {high}"),
                20 => format!("ZRANGESTORE {key} {other} {low} {high} REV"),
                21 => format!("ZREMRANGEBYRANK {key} {low} {high}"),
                22 => format!("ZREMRANGEBYSCORE {key} ({least} {greatest}"),
                23 => format!("ZPOPM{} {key} {most}", ["IN", "AX"][most % 2]),
                24 if most > 0 => format!("ZMPOP 2 {key} {other} MAX COUNT {most}"),
                25 => format!("ZUNIONSTORE {key} 2 {other} {key} WEIGHTS 2 {finite} AGGREGATE MAX"),
                26 => format!("ZINTER 2 {key} {other} AGGREGATE MIN WITHSCORES"),
                27 => format!("ZDIFF 2 {key} {other} WITHSCORES"),
                _ => format!("ZRANDMEMBER {key} {low}"),
            }
        }
    };
    text.split(' ').map(str::to_owned).collect()
}

/// Generates a random command for keys of any type.
fn any(random: &mut Random) -> Vec<String> {
    let (key, other) = (*random.pick(&KEYS), *random.pick(&KEYS));
    let number = random.below(40);
    let (skipped, wanted) = (number / 8, number as i64 % 6 - 1);
    let how = ["", " DESC", " ALPHA", " ALPHA DESC"][number % 4];
    let text = match random.below(15) {
        0 => format!("SET {key} {number}"),
        1 => format!("GET {key}"),
        2 => format!("DEL {key} {other}"),
        3 => format!("TYPE {key}"),
        4 | 5 => format!("RENAME {key} {other}"),
        6 if key != other => format!("COPY {key} {other} REPLACE"),
        7 => format!("PEXPIRE {key} {}", number * 100),
        8 => format!("PERSIST {key}"),
        // Words are rarely numbers, so most SORT commands without ALPHA would fail.
        12 if how.is_empty() => format!("SORT {key} LIMIT {skipped} {wanted} STORE {other}"),
        12 => format!("SORT {key}{how} STORE {other}"),
        13 => format!("SORT_RO {key} ALPHA LIMIT {skipped} {wanted}"),
        14 => format!("SORT {key} BY nothing LIMIT {skipped} {wanted} STORE {other}"),
        9 if number < 5 => "FLUSHALL x".to_owned(),
        _ => "DBSIZE x".to_owned(),
    };
    text.split(' ').map(str::to_owned).collect()
}

/// Sorts the elements or pairs of a reply whose order is undefined.
fn without_order(name: &str, reply: &str) -> String {
    let pairs = matches!(name, "HGETALL");
    let unordered =
        pairs || matches!(name, "HKEYS" | "HVALS" | "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF");
    if !unordered || !reply.starts_with('*') {
        return reply.to_owned();
    }
    let lines: Vec<&str> = reply.split('|').collect();
    let mut items: Vec<&[&str]> = lines[1..].chunks_exact(if pairs { 4 } else { 2 }).collect();
    items.sort_by_key(|item| item[1]);
    format!("{}|{:?}", lines[0], items)
}

/// Two nodes with different stores, which receive the same requests.
struct Pair {
    nodes: [Node; 2],
    clients: [ConnectionId; 2],
    model: Model,
    folder: tempfile::TempDir,
    lives: usize,
    /// Group times, each with its first slot.
    times: Vec<(u64, u64)>,
}

fn lsm(path: PathBuf) -> Box<LsmStore> {
    let limits = Limits { held_bytes: 900, ..Limits::default() };
    Box::new(LsmStore::open_with(&path, limits).unwrap().0)
}

impl Pair {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = World::new(lsm(folder.path().join("0")));
        let mut nodes = [Node::memory(), Node::new(disk)];
        let clients = [nodes[0].connect(), nodes[1].connect()];
        Self { nodes, clients, model: Model::default(), folder, lives: 0, times: Vec::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.lives.to_string())
    }

    fn ask(&mut self, words: &[String], trace: &dyn Fn() -> String) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // Removes the placeholder argument of a command without arguments.
        let asked = if words[1..] == ["x"] { &words[..1] } else { &words };
        let replies = [0, 1].map(|at| self.nodes[at].ask(self.clients[at], asked));
        assert_eq!(replies[0], replies[1], "{words:?} {}", trace());
        let now_ms = self.nodes[0].world.wall_ms;
        let expected = self.model.reply(&words, now_ms, &replies[0]);
        assert_eq!(
            without_order(words[0], &replies[0]),
            without_order(words[0], &expected),
            "{words:?} {}",
            trace()
        );
    }

    fn check_digests(&self) {
        let [memory, disk] = &self.nodes;
        assert_eq!(memory.world.service.digest(), disk.world.service.digest());
        assert_eq!(memory.world.slot, disk.world.slot);
    }

    /// Advances the clock so that keys expire. Housekeeping runs if `sweeps`.
    fn pass(&mut self, ms: u64, sweeps: bool) {
        let due = [0, 1].map(|at| {
            self.nodes[at].world.wall_ms += ms;
            self.nodes[at].pass()
        });
        assert_eq!(due[0], due[1]);
        let now_ms = self.nodes[0].world.wall_ms;
        if due[0] {
            self.times.push((self.nodes[0].world.slot, now_ms));
            self.model.pass(now_ms);
        }
        if sweeps {
            let swept = [0, 1].map(|at| self.nodes[at].sweep());
            assert_eq!(swept[0], swept[1]);
        }
    }

    fn time_at(&self, slot: u64) -> u64 {
        let before = self.times.iter().rfind(|(from, _)| *from <= slot);
        before.map_or(0, |(_, ms)| *ms)
    }

    /// Reopens the store on disk after a clean stop or a kill, and replays the rest of the log.
    fn restart(&mut self, killed: bool) {
        let empty = Service::new(Box::new(MemoryStore::new()));
        if killed {
            let (from, to) = (self.path(), self.folder.path().join((self.lives + 1).to_string()));
            copy(&from, &to);
            self.lives += 1;
        }
        let old = mem::replace(&mut self.nodes[1].world.service, empty);
        drop(old);
        let mut service = Service::new(lsm(self.path()));
        let (applied_to, _) = service.recovered();
        let log = mem::take(&mut self.nodes[1].world.log);
        for (id, command) in &log {
            if id.slot >= applied_to {
                service.set_time(self.time_at(id.slot.0));
                service.apply(*id, command, &mut Vec::new());
                service.commit(Slot(id.slot.0 + 1), &[]);
            }
        }
        service.set_time(self.time_at(u64::MAX));
        self.nodes[1].world.service = service;
        self.nodes[1].world.log = log;
        self.check_digests();
    }

    /// Takes snapshots of both stores while commands continue. The snapshots must be equal, and
    /// each is loaded into the other store.
    fn exchange(&mut self, random: &mut Random, of: usize, trace: &dyn Fn() -> String) {
        let digest = self.nodes[0].world.service.digest();
        let at = Slot(self.nodes[0].world.slot);
        let mut images: [Vec<Vec<u8>>; 2] = Default::default();
        let mut open = [true; 2];
        for node in &mut self.nodes {
            assert!(node.world.service.begin_image());
        }
        while open.contains(&true) {
            for side in 0..2 {
                if open[side] {
                    let service = &mut self.nodes[side].world.service;
                    let items = &mut images[side];
                    let bytes = 1 + random.below(300);
                    let left = service.next_image(bytes, &mut |item| items.push(item.to_vec()));
                    assert_ne!(left, Imaged::Failed);
                    open[side] = left == Imaged::More;
                }
            }
            for _ in 0..random.below(3) {
                let words = match random.below(4) {
                    0 => any(random),
                    _ => command(random, of),
                };
                self.ask(&words, trace);
            }
        }
        assert!(images[0] == images[1], "equal states, equal images");
        let [first, second] = images;
        let folder = tempfile::tempdir().unwrap();
        let mut loaded = [
            Service::new(Box::new(MemoryStore::new())),
            Service::new(lsm(folder.path().join("kv"))),
        ];
        for (service, items) in loaded.iter_mut().zip([second, first]) {
            service.begin_load().unwrap();
            for item in items {
                until("room", || (service.health() == Health::Well).then_some(()));
                service.load(&item).unwrap();
            }
            service.finish_load(at, &[]).unwrap();
            assert_eq!(service.digest(), digest);
        }
    }
}

fn run(seed: u64, of: Option<usize>, steps: usize) {
    let mut random = Random::new(seed);
    let mut pair = Pair::new();
    for step in 0..steps {
        let kind = of.unwrap_or_else(|| random.below(4));
        let words = match random.below(if of.is_some() { 8 } else { 5 }) {
            0 => any(&mut random),
            _ => command(&mut random, kind),
        };
        let trace = move || format!("seed {seed} step {step}");
        pair.ask(&words, &trace);
        match random.below(100) {
            0..10 => pair.check_digests(),
            10..16 => {
                let sweeps = random.below(2) == 0;
                pair.pass(random.below(3000) as u64, sweeps);
            }
            16..18 => pair.restart(true),
            18 => pair.restart(false),
            19..21 => pair.exchange(&mut random, kind, &trace),
            _ => {}
        }
    }
    pair.check_digests();
}

#[test]
fn hashes_are_as_the_reference_says() {
    for seed in 0..5 {
        run(seed, Some(0), 300);
    }
}

#[test]
fn lists_are_as_the_reference_says() {
    for seed in 100..104 {
        run(seed, Some(1), 300);
    }
}

#[test]
fn sets_are_as_the_reference_says() {
    for seed in 200..203 {
        run(seed, Some(2), 300);
    }
}

#[test]
fn sorted_sets_are_as_the_reference_says() {
    for seed in 300..304 {
        run(seed, Some(3), 300);
    }
}

/// Commands for one type on keys of another give the same replies as the reference model.
#[test]
fn types_among_each_other_are_as_the_reference_says() {
    for seed in 400..404 {
        run(seed, None, 300);
    }
}
