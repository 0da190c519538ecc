//! The service in a simulated cluster that loses frames and whose nodes crash, are partitioned and
//! return. Responses and watchers' events are compared with the one history that must exist.

use std::collections::BTreeMap;

use quorate::{Class, NodeId};
use quorate_etcd::{
    command::{
        Command, Events, EventsRequest, KeepAliveTtls, LeaseGrant, LeaseKeepAlives, Page, Query,
        decode_reply,
    },
    mvcc::Paging,
    proto::{
        etcdserverpb::{
            CompactionRequest, CompactionResponse, Compare, DeleteRangeRequest,
            DeleteRangeResponse, LeaseGrantResponse, PutRequest, PutResponse, RangeRequest,
            RequestOp, TxnRequest, TxnResponse, compare::TargetUnion, request_op::Request,
        },
        mvccpb::{Event, event::EventType},
    },
    refusal::Refusal,
    service::Service,
};
use quorate_replica::{
    SnapshotOptions,
    front::{Failure, Tag},
    testing::{Cluster, Outcome},
};

use crate::{
    common::{ask, service},
    dice::Dice,
};

const NODES: u32 = 3;
const CLIENTS: usize = 5;
/// Unix milliseconds of the simulated start.
const START_MS: u64 = 1_700_000_000_000;
/// Granted time of a lease, in seconds and microseconds.
const TTL: i64 = 1;
const TTL_US: u64 = 1_000_000;

type Etcd = Cluster<Service>;

#[derive(Clone, Debug, PartialEq)]
enum Asked {
    /// Put of a unique value.
    Put {
        key: usize,
        value: String,
    },
    /// Put if the key was last changed at this revision.
    Swap {
        key: usize,
        value: String,
        seen: i64,
    },
    Delete {
        key: usize,
    },
    Range {
        key: usize,
    },
    Compact,
    /// Grant of the lease with this id.
    Grant(i64),
    /// Put of a key attached to the lease.
    Leased {
        lease: i64,
    },
    /// Keep-alive of the lease with this id.
    KeepAlive(i64),
}

#[derive(Clone, Debug)]
struct Open {
    node: NodeId,
    tag: Tag,
    asked: Asked,
    /// Time of the request, and the highest revision that any client had received before.
    at_us: u64,
    told: i64,
}

#[derive(Debug)]
struct Answer {
    asked: Asked,
    /// Revision in the response.
    revision: i64,
    told: i64,
    /// True if a swap was executed. The result of a range is in `found`: the value and its
    /// revision.
    done: bool,
    found: Option<(String, i64)>,
}

struct World {
    cluster: Etcd,
    dice: Dice,
    clients: Vec<Option<Open>>,
    answers: Vec<Answer>,
    /// Values that were certainly not written.
    refused: Vec<String>,
    /// Next revision of each node's watcher of all keys, across restarts.
    watchers: BTreeMap<NodeId, i64>,
    /// Events by revision, as first received by any watcher.
    history: BTreeMap<i64, Vec<Event>>,
    /// Number of times that a watcher had to skip compacted revisions.
    jumps: u64,
    /// Highest revision that any client has received.
    told: i64,
    values: u64,
    /// Last successful grant or keep-alive of each lease.
    leases: BTreeMap<i64, u64>,
    /// Nodes that are down, with the times of their restarts, and the partitioned node.
    down: BTreeMap<NodeId, u64>,
    cut: Option<(NodeId, u64)>,
}

fn nodes() -> impl Iterator<Item = NodeId> {
    (1..=NODES).map(NodeId)
}

/// Checks that the lease of a deleted key has expired, and not early.
fn end_lease(event: &Event, leases: &mut BTreeMap<i64, u64>, now_us: u64) {
    let key = event.kv.as_ref().map(|kv| &kv.key[..]);
    if event.r#type() == EventType::Delete
        && let Some([b'l', id]) = key
        && let Some(kept_us) = leases.remove(&i64::from(id - b'0'))
    {
        assert!(now_us >= kept_us + TTL_US, "{id}: {kept_us}, {now_us}");
    }
}

fn key(key: usize) -> String {
    format!("k{key}")
}

fn put(key: String, value: String, lease: i64) -> PutRequest {
    PutRequest { key: key.into(), value: value.into(), lease, ..PutRequest::default() }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut options = Etcd::options(NODES, Class::Durable);
        let mut snapshots = SnapshotOptions::default();
        (snapshots.log_bytes_min, snapshots.log_bytes_max) = (48 << 10, 0);
        options.snapshots = snapshots.in_files_of(4 << 10, 4);
        let mut dice = Dice::new(seed);
        let mut cluster = Cluster::with_options(options, seed, |_| service());
        cluster.knobs.segment_bytes = Some(64 << 10);
        cluster.knobs.loss_per_mille = dice.of(&[0, 5, 30]);
        cluster.knobs.delay_max_us = dice.of(&[150, 2_000]);
        Self {
            cluster,
            dice,
            clients: vec![None; CLIENTS],
            answers: Vec::new(),
            refused: Vec::new(),
            watchers: nodes().map(|node| (node, 2)).collect(),
            history: BTreeMap::new(),
            jumps: 0,
            told: 1,
            values: 0,
            leases: BTreeMap::new(),
            down: BTreeMap::new(),
            cut: None,
        }
    }

    fn now_us(&self) -> u64 {
        self.cluster.now().0
    }

    fn now_ms(&self) -> u64 {
        START_MS + self.now_us() / 1000
    }

    fn running(&mut self) -> Option<NodeId> {
        let node = NodeId(1 + u32::try_from(self.dice.below(NODES as usize)).unwrap());
        self.cluster.runs(node).then_some(node)
    }

    // --- Clients.

    fn choose(&mut self) -> Asked {
        let key = self.dice.below(4);
        let lease = self.dice.between(1, 3);
        self.values += 1;
        let value = format!("v{}", self.values);
        let last = self.history.values().rev().flatten();
        let seen = last.filter_map(|event| event.kv.as_ref()).find(|kv| kv.key == self::key(key));
        let seen = seen.map_or(0, |kv| kv.mod_revision);
        match self.dice.below(20) {
            0..6 => Asked::Put { key, value },
            6..10 => Asked::Swap { key, value, seen },
            10 => Asked::Delete { key },
            11..16 => Asked::Range { key },
            16 => Asked::Compact,
            17 if self.leases.contains_key(&lease) => Asked::Leased { lease },
            17 | 18 => Asked::Grant(lease),
            _ => Asked::KeepAlive(lease),
        }
    }

    fn asks(&mut self, client: usize) {
        let asked = self.choose();
        let Some(node) = self.running() else { return };
        let now_ms = self.now_ms();
        let command = match asked.clone() {
            Asked::Put { key, value } => Command::Put(put(self::key(key), value, 0)),
            Asked::Swap { key, value, seen } => Command::Txn(swap(key, value, seen)),
            Asked::Delete { key } => Command::Delete(DeleteRangeRequest {
                key: self::key(key).into(),
                ..DeleteRangeRequest::default()
            }),
            Asked::Compact if self.told > 30 => {
                Command::Compact(CompactionRequest { revision: self.told - 20, physical: false })
            }
            Asked::Grant(id) => Command::Grant(LeaseGrant { id, ttl: TTL, now_ms }),
            Asked::Leased { lease } => {
                let value = format!("of {lease}");
                Command::Put(put(format!("l{lease}"), value, lease))
            }
            Asked::KeepAlive(id) => {
                Command::KeepAlive(LeaseKeepAlives { ids: vec![id], now_ms, auth_revision: 0 })
            }
            Asked::Compact | Asked::Range { .. } => {
                let Asked::Range { key } = asked else { return };
                let tag = self.cluster.read(node, &page(key).encode());
                return self.open(client, node, tag, asked);
            }
        };
        let tag = self.cluster.write(node, &command.encode());
        self.open(client, node, tag, asked);
    }

    fn open(&mut self, client: usize, node: NodeId, tag: Tag, asked: Asked) {
        let (at_us, told) = (self.now_us(), self.told);
        self.clients[client] = Some(Open { node, tag, asked, at_us, told });
    }

    fn hears(&mut self, client: usize) {
        let Some(open) = self.clients[client].clone() else {
            return self.asks(client);
        };
        let outcome = self.cluster.outcome(open.node, open.tag).cloned();
        let bytes = match outcome {
            None => return,
            Some(Outcome::Failed(failure)) => {
                self.clients[client] = None;
                let value = match open.asked {
                    Asked::Put { value, .. } | Asked::Swap { value, .. } => value,
                    _ => return,
                };
                if matches!(failure, Failure::Busy | Failure::NoQuorum) {
                    self.refused.push(value);
                }
                return;
            }
            Some(Outcome::Written(bytes) | Outcome::Read(bytes)) => bytes,
            Some(Outcome::Registered(_) | Outcome::InMemory(_)) => {
                unreachable!("no client registers, or asks for less")
            }
        };
        self.clients[client] = None;
        self.answered(open, bytes);
    }

    fn answered(&mut self, open: Open, bytes: Vec<u8>) {
        let Open { asked, told, at_us, .. } = open;
        let (mut done, mut found) = (true, None);
        let revision = match &asked {
            Asked::Put { .. } => read::<PutResponse>(bytes).unwrap().header.unwrap().revision,
            Asked::Swap { .. } => {
                let answer = read::<TxnResponse>(bytes).unwrap();
                done = answer.succeeded;
                answer.header.unwrap().revision
            }
            Asked::Delete { .. } => {
                let answer = read::<DeleteRangeResponse>(bytes).unwrap();
                done = answer.deleted == 1;
                answer.header.unwrap().revision
            }
            Asked::Range { .. } => {
                let page = read::<Page>(bytes).unwrap();
                let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
                let kv = page.kvs.first();
                found = kv.map(|kv| (text(&kv.value), kv.mod_revision));
                page.revision
            }
            Asked::Compact => match read::<CompactionResponse>(bytes) {
                Ok(answer) => answer.header.unwrap().revision,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Compacted);
                    return;
                }
            },
            Asked::Grant(id) => {
                // Granted earlier and still in existence.
                let Ok(answer) = read::<LeaseGrantResponse>(bytes) else {
                    return;
                };
                self.leases.insert(*id, at_us);
                answer.header.unwrap().revision
            }
            Asked::Leased { lease } => match read::<PutResponse>(bytes) {
                Ok(answer) => answer.header.unwrap().revision,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::LeaseNotFound, "lease {lease}");
                    return;
                }
            },
            Asked::KeepAlive(id) => {
                let answer = read::<KeepAliveTtls>(bytes).unwrap();
                if answer.ttls == [TTL] {
                    let kept = self.leases.entry(*id).or_default();
                    *kept = at_us.max(*kept);
                }
                answer.revision
            }
        };
        self.told = self.told.max(revision);
        self.answers.push(Answer { asked, revision, told, done, found });
    }

    // --- Watchers.

    fn watch(&mut self) {
        let now_us = self.now_us();
        for node in nodes() {
            if !self.cluster.runs(node) {
                continue;
            }
            let next = self.watchers.get_mut(&node).unwrap();
            let request = EventsRequest {
                from: *next,
                prev_kv: false,
                key: "\0".into(),
                range_end: "\0".into(),
            };
            let service = self.cluster.replica(node).service();
            let revision = service.mvcc().revision();
            if revision < *next {
                // A process that has not caught up.
                continue;
            }
            match ask::<Events>(service, &Query::Events(request)) {
                Ok(seen) => {
                    let mut of: BTreeMap<i64, Vec<Event>> = BTreeMap::new();
                    for event in seen.events {
                        let at = event.kv.as_ref().unwrap().mod_revision;
                        of.entry(at).or_default().push(event);
                    }
                    // Every revision has an event, and none is repeated or out of order.
                    let numbers: Vec<i64> = of.keys().copied().collect();
                    let expected: Vec<i64> = (*next..seen.next).collect();
                    assert_eq!(numbers, expected, "{node}");
                    *next = seen.next;
                    for (at, events) in of {
                        if let Some(known) = self.history.get(&at) {
                            assert_eq!(*known, events, "{node}, revision {at}");
                            continue;
                        }
                        for event in &events {
                            end_lease(event, &mut self.leases, now_us);
                        }
                        self.history.insert(at, events);
                    }
                }
                Err(Refusal::Compacted) => {
                    let compacted = service.mvcc().compacted_revision();
                    assert!(compacted >= *next, "{node}");
                    *next = compacted;
                    self.jumps += 1;
                }
                Err(refusal) => panic!("{node}: {refusal:?}"),
            }
        }
    }

    // --- Faults.

    fn strike(&mut self) {
        let now_us = self.now_us();
        let back: Vec<NodeId> =
            self.down.iter().filter(|(_, at)| **at <= now_us).map(|(node, _)| *node).collect();
        for node in back {
            self.down.remove(&node);
            self.cluster.start(node);
        }
        if let Some((node, until)) = self.cut
            && until <= now_us
        {
            self.cut = None;
            self.cluster.isolate(node, false);
        }
        if self.dice.one_in(150)
            && let Some(node) = self.running()
        {
            self.cluster.crash(node);
            let gone = self.dice.between(1_000, 400_000);
            self.down.insert(node, now_us + u64::try_from(gone).unwrap());
            for client in &mut self.clients {
                if client.as_ref().is_some_and(|open| open.node == node) {
                    *client = None;
                }
            }
        }
        if self.cut.is_none()
            && self.dice.one_in(150)
            && let Some(node) = self.running()
        {
            let cut = self.dice.between(1_000, 600_000);
            self.cut = Some((node, now_us + u64::try_from(cut).unwrap()));
            self.cluster.isolate(node, true);
        }
    }
}

fn swap(key: usize, value: String, seen: i64) -> TxnRequest {
    let compare = Compare {
        result: 0,
        target: 2,
        key: self::key(key).into(),
        target_union: Some(TargetUnion::ModRevision(seen)),
        ..Compare::default()
    };
    TxnRequest {
        compare: vec![compare],
        success: vec![RequestOp {
            request: Some(Request::RequestPut(put(self::key(key), value, 0))),
        }],
        failure: Vec::new(),
    }
}

fn page(key: usize) -> Query {
    let request = RangeRequest { key: self::key(key).into(), ..RangeRequest::default() };
    Query::Page(Paging::new(request).next(1_000))
}

fn read<M: prost::Message + Default>(bytes: Vec<u8>) -> Result<M, Refusal> {
    decode_reply(bytes).expect("it makes sense")
}

// --- The end.

impl World {
    fn act(&mut self, ms: u64) {
        nodes().for_each(|node| self.cluster.start(node));
        for _ in 0..ms {
            self.cluster.run_ms(1);
            self.strike();
            // Watchers have seen all answered requests: a lease that was granted again had ended
            // before.
            self.watch();
            (0..CLIENTS).for_each(|client| self.hears(client));
        }
    }

    /// Restores all nodes and waits until they agree.
    fn heal(&mut self) {
        self.cluster.knobs.loss_per_mille = 0;
        if let Some((node, _)) = self.cut.take() {
            self.cluster.isolate(node, false);
        }
        for node in std::mem::take(&mut self.down).into_keys() {
            self.cluster.start(node);
        }
        let is_level = |cluster: &mut Etcd| {
            let mut applied = nodes().map(|node| cluster.replica(node).applied_to());
            let decided = nodes().map(|node| cluster.replica(node).node().decided_to());
            let most = decided.max();
            cluster.leader().is_some() && applied.all(|at| Some(at) == most)
        };
        assert!(self.cluster.run_until(20_000, is_level));
        self.watch();
        // No lease is extended any more, and none ends more than a second late.
        self.cluster.run_ms(TTL_US / 1000 + 1_000);
        assert!(self.cluster.run_until(20_000, is_level));
        self.watch();
        for node in nodes() {
            let service = self.cluster.replica(node).service();
            for id in 1..=3 {
                assert!(service.mvcc().live_lease(id).is_none(), "{node}, lease {id}");
            }
        }
        let digests: Vec<u128> =
            nodes().map(|node| self.cluster.replica(node).service().digest()).collect();
        assert!(digests.iter().all(|digest| *digest == digests[0]));
    }

    /// Returns the last value of a key and its revision, as of revision `at`.
    fn last(&self, key: usize, at: i64) -> Option<(String, i64)> {
        let key = self::key(key);
        let events = self.history.range(..=at).rev().flat_map(|(_, events)| events);
        let mut of_key = events.filter(|event| event.kv.as_ref().is_some_and(|kv| kv.key == key));
        let last = of_key.next().filter(|event| event.r#type() == EventType::Put)?;
        let kv = last.kv.as_ref()?;
        Some((String::from_utf8(kv.value.to_vec()).unwrap(), kv.mod_revision))
    }

    /// Checks that all responses follow from the history, in an order that respects causality
    /// between clients.
    fn check(&self) {
        let numbers: Vec<i64> = self.history.keys().copied().collect();
        let last = *numbers.last().unwrap();
        assert_eq!(numbers, (2..=last).collect::<Vec<_>>(), "each was seen");
        let puts = |value: &str| {
            let all = self.history.values().flatten();
            all.filter(|event| event.kv.as_ref().is_some_and(|kv| kv.value == value)).count()
        };
        for value in &self.refused {
            assert_eq!(puts(value), 0, "{value} was refused");
        }
        for answer in &self.answers {
            let Answer { asked, revision, told, done, found } = answer;
            let before = revision - 1;
            assert!(revision >= told && *revision <= last, "{answer:?}");
            let (key, value) = match asked {
                Asked::Put { key, value } => (*key, Some(value)),
                Asked::Swap { key, value, seen } => {
                    let at = if *done { before } else { *revision };
                    let held = self.last(*key, at).map_or(0, |(_, at)| at);
                    assert_eq!(held == *seen, *done, "{answer:?}");
                    (*key, Some(value))
                }
                Asked::Delete { key } => {
                    assert!(*done || self.last(*key, *revision).is_none(), "{answer:?}");
                    (*key, None)
                }
                Asked::Range { key } => {
                    assert_eq!(self.last(*key, *revision), *found, "{answer:?}");
                    continue;
                }
                Asked::Compact | Asked::Grant(_) | Asked::Leased { .. } | Asked::KeepAlive(_) => {
                    continue;
                }
            };
            let written = value.filter(|_| *done);
            if let Some(value) = value {
                assert_eq!(puts(value), usize::from(*done), "{answer:?}");
            }
            if *done {
                assert!(revision > told, "{answer:?}");
                let now = self.last(key, *revision);
                assert_eq!(now.as_ref().map(|(value, _)| value), written, "{answer:?}");
                let changed = self.history[revision]
                    .iter()
                    .any(|event| event.kv.as_ref().is_some_and(|kv| kv.key == self::key(key)));
                assert!(changed, "{answer:?}");
            }
        }
    }
}

/// Puts and transactions are linearizable by revision. Each watcher's events are a part of the
/// history without gaps. No lease ends early, nor late while there are no faults.
#[test]
fn a_cluster_has_one_history() {
    let (mut answers, mut jumps, mut loads) = (0, 0, 0);
    for seed in 0..14 {
        let mut world = World::new(seed);
        world.act(3_000);
        world.heal();
        world.check();
        answers += world.answers.len();
        jumps += world.jumps;
        let counters = nodes().map(|node| world.cluster.replica(node).counters());
        loads += counters.map(|counters| counters.snapshots_loaded).sum::<u64>();
    }
    assert!(answers > 10_000 && jumps > 0 && loads > 0, "{answers} {jumps} {loads}");
}
