//! Consumer groups under random commands, against a model in plain Rust. After each command all
//! rows of the store are counted again: an image whose counts are wrong could not be loaded.

use std::{collections::BTreeMap, ops::ControlFlow};

use quorate_core::{level::Level, slot::Slot};
use quorate_kv::{
    key::Key,
    service::Service,
    store::{
        Span, Store,
        collection::Header,
        lsm::{Limits, LsmStore},
        memory::MemoryStore,
        stream::EntryId,
    },
};
use quorate_replica::{
    front::ConnectionId,
    service::{Imaged, StateMachine as _},
};

use crate::common::{Node, Random, World};

type Id = (u64, u64);

#[derive(Default)]
struct Model {
    last: Id,
    entries: BTreeMap<Id, String>,
    groups: BTreeMap<String, Group>,
    now_ms: u64,
}

#[derive(Default)]
struct Group {
    last: Id,
    pending: BTreeMap<Id, Pending>,
    /// Numbers of pending entries.
    consumers: BTreeMap<String, u64>,
}

struct Pending {
    consumer: String,
    delivered_ms: u64,
    deliveries: u64,
}

fn shown(id: Id) -> String {
    format!("{}-{}", id.0, id.1)
}

fn bulk(text: &str) -> String {
    format!("${}|{text}|", text.len())
}

impl Group {
    fn enter(&mut self, consumer: &str) {
        self.consumers.entry(consumer.to_owned()).or_default();
    }

    fn release(&mut self, id: Id) -> bool {
        let Some(pending) = self.pending.remove(&id) else {
            return false;
        };
        *self.consumers.get_mut(&pending.consumer).unwrap() -= 1;
        true
    }

    fn assign(&mut self, id: Id, consumer: &str, delivered_ms: u64, deliveries: u64) {
        self.release(id);
        *self.consumers.get_mut(consumer).unwrap() += 1;
        let consumer = consumer.to_owned();
        self.pending.insert(id, Pending { consumer, delivered_ms, deliveries });
    }

    fn list(&self, now_ms: u64) -> String {
        let items = self.pending.iter().map(|(id, pending)| {
            let (id, name) = (bulk(&shown(*id)), bulk(&pending.consumer));
            let idle_ms = now_ms - pending.delivered_ms;
            format!("*4|{id}{name}:{idle_ms}|:{}|", pending.deliveries)
        });
        format!("*{}|{}", self.pending.len(), items.collect::<String>())
    }

    fn summary(&self) -> String {
        let (Some(first), Some(last)) = (self.pending.keys().next(), self.pending.keys().last())
        else {
            return "*4|:0|$-1|$-1|*-1|".to_owned();
        };
        let consumers: Vec<String> = self
            .consumers
            .iter()
            .filter(|(_, pending)| **pending > 0)
            .map(|(name, pending)| format!("*2|{}{}", bulk(name), bulk(&pending.to_string())))
            .collect();
        let ends = bulk(&shown(*first)) + &bulk(&shown(*last));
        let (pending, count) = (self.pending.len(), consumers.len());
        format!("*4|:{pending}|{ends}*{count}|{}", consumers.concat())
    }
}

impl Model {
    fn entry(&self, id: Id) -> String {
        let fields = match self.entries.get(&id) {
            Some(value) => format!("*2|$1|f|{}", bulk(value)),
            None => "*-1|".to_owned(),
        };
        format!("*2|{}{fields}", bulk(&shown(id)))
    }

    fn some_id(&self, random: &mut Random) -> Id {
        let most = usize::try_from(self.last.0).unwrap() + 2;
        (random.below(most) as u64, random.below(2) as u64)
    }

    /// Makes a random change of the stream itself, and returns the command and its reply.
    fn change_stream(&mut self, random: &mut Random) -> (String, String) {
        match random.below(8) {
            0 => {
                let id = self.some_id(random);
                let count = u64::from(self.entries.remove(&id).is_some());
                (format!("XDEL s {}", shown(id)), format!(":{count}|"))
            }
            1 => {
                let most = random.below(30);
                let gone = self.entries.len().saturating_sub(most);
                let ids: Vec<Id> = self.entries.keys().take(gone).copied().collect();
                ids.iter().for_each(|id| drop(self.entries.remove(id)));
                (format!("XTRIM s MAXLEN {most}"), format!(":{gone}|"))
            }
            _ => {
                let id = (self.last.0 + random.below(3) as u64, self.last.1 + 1);
                let value = "v".repeat(random.below(9));
                self.last = id;
                self.entries.insert(id, value.clone());
                let words = format!("XADD s {} f {value}", shown(id));
                (words, bulk(&shown(id)))
            }
        }
    }

    fn change_group(&mut self, name: &str, random: &mut Random) -> (String, String) {
        let id = self.some_id(random);
        let consumer = *random.pick(&["alice", "bob", "carol"]);
        let Some(group) = self.groups.get_mut(name) else {
            self.groups.insert(name.to_owned(), Group { last: id, ..Group::default() });
            return (format!("XGROUP CREATE s {name} {}", shown(id)), "+OK|".to_owned());
        };
        match random.below(6) {
            0 => {
                self.groups.remove(name);
                (format!("XGROUP DESTROY s {name}"), ":1|".to_owned())
            }
            1 => {
                let is_new = !group.consumers.contains_key(consumer);
                group.enter(consumer);
                let count = u64::from(is_new);
                (format!("XGROUP CREATECONSUMER s {name} {consumer}"), format!(":{count}|"))
            }
            2 => {
                let count = group.consumers.get(consumer).copied().unwrap_or(0);
                group.pending.retain(|_, pending| pending.consumer != consumer);
                group.consumers.remove(consumer);
                (format!("XGROUP DELCONSUMER s {name} {consumer}"), format!(":{count}|"))
            }
            _ => {
                group.last = id;
                (format!("XGROUP SETID s {name} {}", shown(id)), "+OK|".to_owned())
            }
        }
    }

    fn read(&mut self, name: &str, random: &mut Random) -> (String, String) {
        let consumer = *random.pick(&["alice", "bob", "carol"]);
        let count = 1 + random.below(6);
        let (after, noack) = (self.some_id(random), random.below(8) == 0);
        let now_ms = self.now_ms;
        let group = self.groups.get_mut(name).unwrap();
        group.enter(consumer);
        let noacks = if noack { "NOACK " } else { "" };
        let start = format!("XREADGROUP GROUP {name} {consumer} COUNT {count} {noacks}STREAMS s");
        let repeats = random.below(3) == 0;
        let ids: Vec<Id> = if repeats {
            let own = group.pending.iter().filter(|(_, pending)| pending.consumer == consumer);
            own.map(|(id, _)| *id).filter(|id| *id > after).take(count).collect()
        } else {
            self.entries.keys().filter(|id| **id > group.last).take(count).copied().collect()
        };
        for id in &ids {
            if !repeats {
                group.last = *id;
                if !noack {
                    group.assign(*id, consumer, now_ms, 1);
                }
            } else if self.entries.contains_key(id) {
                let deliveries = group.pending[id].deliveries + 1;
                group.assign(*id, consumer, now_ms, deliveries);
            }
        }
        let id = if repeats { shown(after) } else { ">".to_owned() };
        let command = format!("{start} {id}");
        if ids.is_empty() && !repeats {
            return (command, "*-1|".to_owned());
        }
        let entries: String = ids.iter().map(|id| self.entry(*id)).collect();
        (command, format!("*1|*2|$1|s|*{}|{entries}", ids.len()))
    }

    fn acknowledge(&mut self, name: &str, random: &mut Random) -> (String, String) {
        let ids: Vec<Id> = (0..=random.below(6)).map(|_| self.some_id(random)).collect();
        let group = self.groups.get_mut(name).unwrap();
        let count = ids.iter().filter(|id| group.release(**id)).count();
        let ids: Vec<String> = ids.into_iter().map(shown).collect();
        (format!("XACK s {name} {}", ids.join(" ")), format!(":{count}|"))
    }

    fn claim(&mut self, name: &str, random: &mut Random) -> (String, String) {
        let consumer = *random.pick(&["alice", "bob", "carol"]);
        let ids: Vec<Id> = (0..=random.below(6)).map(|_| self.some_id(random)).collect();
        let (min_ms, force) = (random.below(12) as u64, random.below(3) == 0);
        let now_ms = self.now_ms;
        let group = self.groups.get_mut(name).unwrap();
        group.enter(consumer);
        let mut claimed = Vec::new();
        for id in &ids {
            let old = group.pending.get(id).map(|old| (old.delivered_ms, old.deliveries));
            if !self.entries.contains_key(id) {
                group.release(*id);
            } else if old.map_or(force, |(delivered_ms, _)| now_ms - delivered_ms >= min_ms) {
                let deliveries = old.map_or(1, |(_, deliveries)| deliveries) + 1;
                group.assign(*id, consumer, now_ms, deliveries);
                claimed.push(*id);
            }
        }
        let ids: Vec<String> = ids.into_iter().map(shown).collect();
        let force = if force { " FORCE" } else { "" };
        let entries: String = claimed.iter().map(|id| self.entry(*id)).collect();
        (
            format!("XCLAIM s {name} {consumer} {min_ms} {}{force}", ids.join(" ")),
            format!("*{}|{entries}", claimed.len()),
        )
    }

    fn claim_idle(&mut self, name: &str, random: &mut Random) -> (String, String) {
        let consumer = *random.pick(&["alice", "bob", "carol"]);
        let (start, min_ms) = (self.some_id(random), random.below(12) as u64);
        let (count, now_ms) = (1 + random.below(3), self.now_ms);
        let group = self.groups.get_mut(name).unwrap();
        group.enter(consumer);
        let ids: Vec<Id> = group.pending.range(start..).map(|(id, _)| *id).collect();
        let (mut claimed, mut deleted, mut next) = (Vec::new(), Vec::new(), (0, 0));
        for (attempt, id) in ids.into_iter().enumerate() {
            if claimed.len() + deleted.len() == count || attempt == 10 * count {
                next = id;
                break;
            }
            let old = &group.pending[&id];
            if !self.entries.contains_key(&id) {
                group.release(id);
                deleted.push(id);
            } else if now_ms - old.delivered_ms >= min_ms {
                let deliveries = old.deliveries;
                group.assign(id, consumer, now_ms, deliveries);
                claimed.push(id);
            }
        }
        let list = |ids: &[Id]| -> String { ids.iter().map(|id| bulk(&shown(*id))).collect() };
        let (entries, gone) = (list(&claimed), list(&deleted));
        (
            format!(
                "XAUTOCLAIM s {name} {consumer} {min_ms} {} COUNT {count} JUSTID",
                shown(start)
            ),
            format!(
                "*3|{}*{}|{entries}*{}|{gone}",
                bulk(&shown(next)),
                claimed.len(),
                deleted.len()
            ),
        )
    }

    fn step(&mut self, random: &mut Random) -> (String, String) {
        self.now_ms += random.below(5) as u64;
        let name = *random.pick(&["g", "h"]);
        if !self.groups.contains_key(name) {
            return self.change_group(name, random);
        }
        match random.below(20) {
            0..6 => self.change_stream(random),
            6 => self.change_group(name, random),
            7..12 => self.read(name, random),
            12..15 => self.acknowledge(name, random),
            15..18 => self.claim(name, random),
            _ => self.claim_idle(name, random),
        }
    }
}

/// Counts the rows of the stream `s` and compares them with what header, groups and consumers say.
fn recount(store: &dyn Store) {
    let entry = store.get(Key::from(b"s")).unwrap();
    let header = Header::from_bytes(&entry.value).unwrap();
    let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    store.rows(header.id, Span::ALL, &mut |name, value| {
        rows.insert(name.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    });
    let bytes: usize = rows.iter().map(|(name, value)| name.len() + value.len()).sum();
    let of = |prefix: &[u8]| -> Vec<(Vec<u8>, Vec<u8>)> {
        let of = rows.iter().filter(|(name, _)| name.starts_with(prefix));
        of.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let (entries, log) = (of(b"e"), header.log.unwrap());
    assert_eq!(header.count, entries.len() as u64);
    assert_eq!(header.bytes, bytes as u64);
    assert_eq!(log.group_rows, (rows.len() - entries.len()) as u64);
    let word = |value: &[u8], at: usize| u64::from_le_bytes(value[at..at + 8].try_into().unwrap());
    // The lowest id among rows, or the highest of all.
    let first = |rows: &[(Vec<u8>, Vec<u8>)]| match rows.first() {
        Some((name, _)) => name[name.len() - EntryId::BYTES..].to_vec(),
        None => vec![0xff; EntryId::BYTES],
    };
    let mut known = of(b"g").len();
    for (_, group) in of(b"g") {
        let number = word(&group, 0).to_be_bytes();
        let (pending, consumers) =
            (of(&[b"p", &number[..]].concat()), of(&[b"c", &number[..]].concat()));
        assert_eq!(word(&group, 32), pending.len() as u64);
        assert_eq!(word(&group, 40), consumers.len() as u64);
        assert_eq!(group[48..], first(&pending));
        known += 2 * (pending.len() + consumers.len());
        for (name, consumer) in consumers {
            let own = [&number[..], &word(&consumer, 0).to_be_bytes()].concat();
            let owned = of(&[b"q", &own[..]].concat());
            assert_eq!(word(&consumer, 24), owned.len() as u64);
            assert_eq!(consumer[32..], first(&owned));
            assert_eq!(rows[&[b"n", &own[..]].concat()], name[9..]);
        }
    }
    assert_eq!(log.group_rows, known as u64, "no rows without a group");
}

fn node(store: Box<dyn Store>) -> (Node, ConnectionId) {
    let mut node = Node::new(World::new(store));
    node.world.level = Level(10);
    let client = node.connect();
    node.say(client, "XGROUP CREATE s g 0 MKSTREAM");
    node.say(client, "XGROUP DESTROY s g");
    (node, client)
}

/// Copies a state by a snapshot.
fn copied(service: &mut Service, at: u64) -> Service {
    let mut items = Vec::new();
    assert!(service.begin_image());
    while service.next_image(1000, &mut |item| items.push(item.to_vec())) != Imaged::End {}
    service.end_image();
    let mut copy = Service::new(Box::new(MemoryStore::new()));
    copy.begin_load().unwrap();
    items.iter().for_each(|item| copy.load(item).unwrap());
    copy.finish_load(Slot(at), &[]).unwrap();
    copy
}

#[test]
fn groups_behave_like_the_model_and_counts_are_exact() {
    for seed in 1..=6 {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { held_bytes: 2000, ..Limits::default() };
        let (lsm, _) = LsmStore::open_with(&folder.path().join("kv"), limits).unwrap();
        let mut nodes = [node(Box::new(MemoryStore::new())), node(Box::new(lsm))];
        let mut model = Model { now_ms: nodes[0].0.world.wall_ms, ..Model::default() };
        let mut random = Random::new(seed);
        for step in 0..250 {
            let (command, expected) = model.step(&mut random);
            for (node, client) in &mut nodes {
                node.world.wall_ms = model.now_ms;
                let words: Vec<&str> = command.split(' ').collect();
                assert_eq!(node.ask(*client, &words), expected, "seed {seed}, {step}: {command}");
                recount(node.world.service.store());
                for (name, group) in &model.groups {
                    let list = node.say(*client, &format!("XPENDING s {name} - + 1000"));
                    assert_eq!(list, group.list(model.now_ms), "seed {seed}, {step}: {command}");
                    let summary = node.say(*client, &format!("XPENDING s {name}"));
                    assert_eq!(summary, group.summary(), "seed {seed}, {step}: {command}");
                }
            }
        }
        let [memory, disk] = nodes.each_mut().map(|(node, _)| &mut node.world);
        assert_eq!(memory.service.digest(), disk.service.digest(), "seed {seed}");
        for world in [memory, disk] {
            let copy = copied(&mut world.service, world.slot);
            assert_eq!(copy.digest(), world.service.digest(), "seed {seed}");
            recount(copy.store());
        }
    }
}
