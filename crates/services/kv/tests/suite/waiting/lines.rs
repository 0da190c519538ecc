//! The queue of blocked clients: its order across nodes, disconnected clients, and failed nodes.

use std::collections::BTreeMap;

use quorate_kv::{
    service::Service,
    store::{lsm::LsmStore, memory::MemoryStore},
};
use quorate_replica::{
    front::{Failure, Front as _},
    service::StateMachine as _,
};

use crate::common::{Random, World};

use super::group::{Client, Group, image, load};

#[test]
fn the_first_in_line_is_served_first_at_whichever_node_it_is() {
    let mut group = Group::memory(3);
    let waiters = [2, 0, 1, 0].map(|node| group.connect(node));
    for waiter in waiters {
        assert_eq!(group.say(waiter, "BLPOP k 0"), "");
    }
    let other = group.connect(1);
    for (number, waiter) in waiters.into_iter().enumerate() {
        group.say(other, &format!("RPUSH k {number}"));
        assert_eq!(group.take(waiter), format!("*2|$1|k|$1|{number}|"));
        for waiter in waiters {
            assert_eq!(group.take(waiter), "");
        }
    }
}

/// An element is reserved for the first client until it claims it: neither a later nor an unqueued
/// client may take it.
#[test]
fn nobody_overtakes_who_has_not_claimed_yet() {
    let mut group = Group::memory(2);
    let (first, second, late) = (group.connect(0), group.connect(1), group.connect(1));
    let other = group.connect(1);
    group.say(first, "BLPOP k 0");
    group.say(second, "BLPOP k 0");
    // The first client's node is idle for a while.
    group.send(other, "RPUSH k a");
    while group.step(1) {}
    group.send(late, "BLPOP k 0");
    for _ in 0..10 {
        group.turn(1);
        while group.step(1) {}
    }
    group.settle();
    assert_eq!(group.take(first), "*2|$1|k|$1|a|");
    assert_eq!((group.take(second), group.take(late)), (String::new(), String::new()));
    // One element more than the clients ahead take.
    group.say(other, "RPUSH k b c");
    assert_ne!((group.take(second), group.take(late)), (String::new(), String::new()));
}

#[test]
fn a_client_that_is_gone_gets_nothing_taken_away_from_the_others() {
    for half in [false, true] {
        let mut group = Group::memory(2);
        let (gone, second, other) = (group.connect(0), group.connect(1), group.connect(1));
        group.say(gone, "BLPOP k 0");
        group.say(second, "BLPOP k 0");
        if half {
            let (node, client) = gone;
            let node = &mut group.nodes[node];
            node.front.half_closed(client, &mut node.world);
        } else {
            group.close(gone);
        }
        // The log does not contain the withdrawal yet.
        group.send(other, "RPUSH k a");
        while group.step(1) {}
        group.settle();
        assert_eq!(group.take(second), "*2|$1|k|$1|a|");
        if half {
            assert!(!group.nodes[0].front.is_busy(gone.1), "the reactor may close it");
        }
    }
}

/// A client that disconnects before it is queued is withdrawn once its request has been executed.
#[test]
fn a_client_that_goes_before_it_is_in_line_does_not_stay_there() {
    let mut group = Group::memory(1);
    let (gone, other) = (group.connect(0), group.connect(0));
    group.send(gone, "BLPOP k 0");
    group.close(gone);
    group.settle();
    group.pass_ms(1000);
    group.settle();
    group.say(other, "RPUSH k a");
    assert_eq!(group.say(other, "BLPOP k 0"), "*2|$1|k|$1|a|");
}

/// A lost withdrawal is repeated, because the next poll for all clients finds the client again.
#[test]
fn a_withdrawal_that_is_lost_is_made_up_for() {
    let mut group = Group::memory(2);
    let (gone, second, other) = (group.connect(0), group.connect(1), group.connect(1));
    group.say(gone, "BLPOP k 0");
    group.say(second, "BLPOP k 0");
    group.close(gone);
    group.nodes[0].world.refuse = Some(Failure::NoQuorum);
    group.turn(0);
    group.nodes[0].world.refuse = None;
    group.say(other, "RPUSH k a");
    assert_eq!(
        group.take(second),
        "*2|$1|k|$1|a|",
        "its node sees that it has a turn, which no client takes"
    );
}

/// Elements for clients of a dead node go to other clients once the claims are overdue.
#[test]
fn the_clients_of_a_dead_node_are_removed_from_the_line() {
    let mut group = Group::memory(3);
    let dead: Vec<Client> = (0..3).map(|_| group.connect(0)).collect();
    for client in &dead {
        group.say(*client, "BLPOP k 0");
    }
    let (second, other) = (group.connect(1), group.connect(2));
    group.say(second, "BLPOP k 0");
    group.kill(0);
    group.say(other, "RPUSH k a");
    assert_eq!(group.take(second), "");
    group.pass_ms(1900);
    group.settle();
    assert_eq!(group.take(second), "", "it may be slow");
    assert_eq!(group.say(other, "LRANGE k 0 -1"), "*1|$1|a|");
    group.pass_ms(300);
    group.settle();
    assert_eq!(group.take(second), "*2|$1|k|$1|a|");
    group.say(other, "RPUSH k b");
    assert_eq!(group.say(other, "BLPOP k 0"), "*2|$1|k|$1|b|", "no other client is left");
}

/// The clients of a slow node that was presumed dead rejoin the queue. They lose only their
/// positions.
#[test]
fn a_node_that_was_slow_gets_its_clients_in_line_again() {
    let mut group = Group::memory(2);
    let (slow, second, other) = (group.connect(0), group.connect(1), group.connect(1));
    group.say(slow, "BLPOP k 0");
    group.say(second, "BLPOP k 0");
    group.send(other, "RPUSH k a");
    let only = |group: &mut Group| {
        for _ in 0..5 {
            group.turn(1);
            while group.step(1) {}
            while !group.nodes[1].world.told.is_empty() {
                group.nodes[1].tell(0);
            }
        }
    };
    only(&mut group);
    group.pass_ms(2100);
    only(&mut group);
    assert_eq!(group.take(second), "*2|$1|k|$1|a|");
    group.settle();
    group.pass_ms(1000);
    group.settle();
    group.say(other, "RPUSH k b");
    assert_eq!(group.take(slow), "*2|$1|k|$1|b|");
}

/// A failed claim proves that the client is alive, even if it left earlier elements unclaimed.
#[test]
fn who_tries_in_vain_is_not_taken_for_dead() {
    let mut group = Group::memory(2);
    let (first, second, other) = (group.connect(0), group.connect(1), group.connect(1));
    group.say(first, "BLPOP k 0");
    group.say(second, "BLPOP k 0");
    for _ in 0..30 {
        // An element arrives, and another client takes it.
        group.send(other, "RPUSH k a");
        group.send(other, "LPOP k");
        group.settle();
        group.pass_ms(400);
        group.settle();
    }
    group.say(other, "RPUSH k b");
    assert_eq!(group.take(first), "*2|$1|k|$1|b|");
}

#[test]
fn the_earlier_life_of_a_node_ends_with_the_first_wait_of_the_next() {
    let mut group = Group::memory(2);
    let dead = group.connect(0);
    group.say(dead, "BLPOP k 0");
    group.kill(0);
    group.restart(0, 1);
    let (first, other) = (group.connect(0), group.connect(1));
    group.say(first, "BLPOP k 0");
    group.say(other, "RPUSH k a");
    assert_eq!(group.take(first), "*2|$1|k|$1|a|");
}

/// A claim of unknown outcome is settled by the next one, and the client gets no element twice.
#[test]
fn a_claim_whose_fate_is_unknown_is_settled_by_the_next_one() {
    for executed in [false, true] {
        let mut group = Group::memory(1);
        let (waiter, other) = (group.connect(0), group.connect(0));
        group.say(waiter, "BLPOP k 0");
        group.send(other, "RPUSH k a b");
        group.step(0);
        group.turn(0);
        if executed {
            group.lose_reply(0);
        } else {
            let asked = group.nodes[0].world.asked.pop_front();
            let Some(crate::common::Asked::Write(tag, ..)) = asked else {
                panic!("no claim");
            };
            let failed = crate::common::Told::Failed(tag, Failure::Unknown);
            group.nodes[0].world.told.push(failed);
        }
        group.settle();
        group.pass_ms(1000);
        group.settle();
        let said = group.take(waiter);
        if executed {
            assert!(said.starts_with("-UNKNOWN"), "{said}");
            assert_eq!(group.say(other, "LLEN k"), ":2|:1|");
        } else {
            assert_eq!(said, "*2|$1|k|$1|a|");
        }
    }
}

/// A blocking request that is refused while it waits for a read does not block.
#[test]
fn a_request_that_is_refused_later_does_not_wait() {
    let mut group = Group::memory(1);
    let client = group.connect(0);
    group.send(client, "GET a");
    group.send(client, "BLPOP k 0");
    // The blocking request waits for the read in flight.
    assert!(group.step(0));
    group.nodes[0].world.refuse = Some(Failure::NoQuorum);
    group.nodes[0].tell(0);
    group.nodes[0].world.refuse = None;
    assert!(group.take(client).starts_with("$-1|-NOQUORUM"));
    assert_eq!(group.say(client, "PING"), "+PONG|");
}

/// The time for which a client is blocked does not count towards the duration of its command.
#[test]
fn the_time_that_a_client_waits_is_none_of_its_command() {
    let mut group = Group::memory(1);
    let (waiter, other) = (group.connect(0), group.connect(0));
    group.say(waiter, "BLPOP k 0");
    let listed = group.say(other, "CLIENT LIST");
    assert!(listed.contains(" flags=b "), "{listed}");
    assert!(group.say(other, "INFO clients").contains("|blocked_clients:1|"));
    group.pass_ms(5000);
    group.say(other, "RPUSH k a");
    assert_eq!(group.take(waiter), "*2|$1|k|$1|a|");
    assert!(group.say(other, "INFO clients").contains("|blocked_clients:0|"));
    assert!(!group.say(other, "CLIENT LIST").contains(" flags=b "));
    assert_eq!(group.say(other, "SLOWLOG LEN"), ":0|");
}

/// A client that times out with a claim of unknown outcome gets an error, because null would mean
/// that nothing was taken.
#[test]
fn who_gives_up_with_a_claim_whose_fate_is_unknown_is_told_so() {
    let mut group = Group::memory(1);
    let (waiter, other) = (group.connect(0), group.connect(0));
    group.say(waiter, "BLPOP k 0.1");
    group.send(other, "RPUSH k a");
    group.step(0);
    group.turn(0);
    group.lose_reply(0);
    group.nodes[0].tell(0);
    group.nodes[0].tell(0);
    group.pass_ms(100);
    group.turn(0);
    let said = group.take(waiter);
    assert!(said.starts_with("-UNKNOWN"), "{said}");
}

/// Snapshots and stores on disk include the queue, so a node that loads one keeps the order.
#[test]
fn the_line_survives_snapshots_and_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let (store, damage) = LsmStore::open(folder.path()).unwrap();
        assert_eq!(damage, None);
        World::new(Box::new(store))
    };
    let mut group = Group::new(vec![World::memory(), open()]);
    let waiters: Vec<Client> = [1, 0, 0].map(|node| group.connect(node)).into();
    for waiter in &waiters {
        group.say(*waiter, "BLPOP k l 0");
    }
    let other = group.connect(0);
    group.say(other, "RPUSH x y");
    let digest = group.nodes[0].world.service.digest();
    let mut items = Vec::new();
    for node in &mut group.nodes {
        items.push(image(&mut node.world.service));
    }
    assert_eq!(items[0], items[1], "both stores give equal items");
    let at = group.nodes[0].world.slot;
    let mut loaded = Service::new(Box::new(MemoryStore::new()));
    load(&mut loaded, &items[0], at);
    assert_eq!(loaded.digest(), digest);
    // Load into a store on disk, and read from it after a restart.
    let other_folder = tempfile::tempdir().unwrap();
    let (store, _) = LsmStore::open(other_folder.path()).unwrap();
    let mut service = Service::new(Box::new(store));
    load(&mut service, &items[0], at);
    drop(service);
    let (store, _) = LsmStore::open(other_folder.path()).unwrap();
    let mut service = Service::new(Box::new(store));
    let (slot, meta) = service.recovered();
    assert_eq!((slot.0, service.digest()), (at, digest));
    assert_eq!(meta, [], "the replica is not given what is not its own");
    // The node with the store on disk is killed and restarted. Its client is gone; the others keep
    // their positions.
    group.nodes.pop();
    let mut world = open();
    assert_eq!(world.service.digest(), digest);
    (world.node, world.slot) = (2, at);
    group.nodes.push(crate::common::Node::new(world));
    group.say(other, "RPUSH k a b");
    assert_eq!(
        group.take(waiters[1]),
        "*2|$1|k|$1|a|",
        "there is one more than the dead one takes"
    );
    group.pass_ms(2500);
    group.settle();
    assert_eq!(group.take(waiters[2]), "*2|$1|k|$1|b|");
}

/// Many clients on two nodes take elements from a queue, with events in random order. Some vanish,
/// some time out. Each element goes to at most one client, and is lost only with a client that
/// vanished during its claim. Of two queued clients, the first is served first.
#[test]
fn a_queue_with_several_waiting_clients_is_exactly_once() {
    for seed in 1..=40 {
        let mut random = Random::new(seed);
        let mut group = Group::memory(2);
        let producer = group.connect(0);
        let mut clients: Vec<Client> = (0..6).map(|number| group.connect(number % 2)).collect();
        let mut waiting = vec![false; clients.len()];
        let mut got: BTreeMap<String, usize> = BTreeMap::new();
        let (mut pushed, mut vanished) = (0, 0);
        for _ in 0..300 {
            let chosen = random.below(clients.len());
            match random.below(10) {
                0..=2 => {
                    let count = 1 + random.below(3);
                    let values: Vec<String> =
                        (pushed..pushed + count).map(|number| format!("e{number}")).collect();
                    pushed += count;
                    group.send(producer, &format!("RPUSH q {}", values.join(" ")));
                }
                3..=6 if !waiting[chosen] => {
                    waiting[chosen] = true;
                    let time = ["0", "0.3", "5"][random.below(3)];
                    group.send(clients[chosen], &format!("BLPOP q {time}"));
                }
                7 if waiting[chosen] && random.below(3) == 0 => {
                    let client = clients[chosen];
                    collect(&group.take(client), &mut got);
                    group.close(client);
                    vanished += 1;
                    clients[chosen] = group.connect(client.0);
                    waiting[chosen] = false;
                }
                8 => group.pass_ms(random.below(400) as u64),
                _ => {}
            }
            let steps = random.below(12);
            group.stir(&mut random, steps);
            for (client, waits) in clients.iter().zip(&mut waiting) {
                *waits &= !collect(&group.take(*client), &mut got);
            }
        }
        group.settle();
        group.pass_ms(10_000);
        group.settle();
        for client in &clients {
            collect(&group.take(*client), &mut got);
        }
        assert!(got.values().all(|count| *count == 1), "seed {seed}: {got:?}");
        group.take(producer);
        let left = group.say(producer, "LLEN q");
        let left: usize = left[1..left.len() - 1].parse().unwrap();
        let lost = pushed - got.len() - left;
        assert!(lost <= vanished, "seed {seed}: {lost} lost, {vanished} vanished");
        assert!(got.len() > 50, "seed {seed}: {}", got.len());
    }
}

/// Counts the elements in a reply. Returns `false` for an empty reply.
fn collect(said: &str, got: &mut BTreeMap<String, usize>) -> bool {
    for word in said.split('|').filter(|word| word.starts_with('e')) {
        *got.entry(word.to_owned()).or_default() += 1;
    }
    !said.is_empty()
}
