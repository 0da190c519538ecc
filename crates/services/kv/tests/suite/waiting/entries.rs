//! Clients that wait for entries of streams (XREAD, XREADGROUP), on several nodes.

use quorate_core::level::Level;
use quorate_kv::commands::stream::waiting::AwaitedEntries;
use quorate_replica::front::{Failure, Front as _};

use super::group::{Client, Group, image, load};
use crate::common::{Asked, Random, Told};

/// Returns a group that uses streams, with a client on each node.
fn group(nodes: usize) -> (Group, Vec<Client>) {
    let mut group = Group::memory(nodes);
    for node in &mut group.nodes {
        node.world.level = Level(10);
    }
    let clients = (0..nodes).map(|node| group.connect(node)).collect();
    (group, clients)
}

fn id(group: &mut Group, client: Client) -> String {
    let said = group.say(client, "CLIENT ID");
    said.trim_matches([':', '|']).to_owned()
}

/// Returns the reply with one entry of one stream.
fn entry(key: &str, id: &str, field: &str) -> String {
    let bulk = |text: &str| format!("${}|{text}|", text.len());
    format!("*1|*2|{}*1|*2|{}*2|{}$1|v|", bulk(key), bulk(id), bulk(field))
}

#[test]
fn readers_of_all_nodes_get_an_entry_and_one_consumer_takes_it() {
    let (mut group, mut clients) = group(3);
    let writer = group.connect(1);
    clients.push(group.connect(0));
    for client in &clients {
        assert_eq!(group.say(*client, "XREAD BLOCK 0 STREAMS s t $ $"), "");
    }
    let workers: Vec<Client> = (0..6).map(|number| group.connect(number % 3)).collect();
    group.say(writer, "XGROUP CREATE t g $ MKSTREAM");
    for (number, worker) in workers.iter().enumerate() {
        let command = format!("XREADGROUP GROUP g w{number} COUNT 1 BLOCK 0 STREAMS t >");
        assert_eq!(group.say(*worker, &command), "");
    }
    assert_eq!(group.say(writer, "XADD s 1-1 f v"), "$3|1-1|");
    for client in &clients {
        assert_eq!(group.take(*client), entry("s", "1-1", "f"));
    }
    assert!(workers.iter().all(|worker| group.take(*worker).is_empty()));
    let before = group.nodes[0].world.slot;
    group.say(writer, "XADD t 2-1 f v");
    let taken: Vec<String> = workers.iter().map(|worker| group.take(*worker)).collect();
    assert_eq!(taken.iter().filter(|reply| !reply.is_empty()).count(), 1, "{taken:?}");
    assert!(taken.contains(&entry("t", "2-1", "f")));
    assert!(group.nodes[0].world.slot - before <= 4, "at most one attempt per node");
    // Each of the others gets one of many.
    group.say(writer, "MULTI");
    for number in 0..5 {
        group.say(writer, &format!("XADD t 3-{number} f v"));
    }
    group.say(writer, "EXEC");
    let taken = workers.iter().filter(|worker| !group.take(**worker).is_empty()).count();
    assert_eq!(taken, 5);
    assert_eq!(group.say(writer, "XPENDING t g").split('|').nth(1), Some(":6"));
}

#[test]
fn an_attempt_begins_once_earlier_requests_are_answered() {
    let (mut group, clients) = group(1);
    let client = clients[0];
    // The client's own later entry does not end its wait, since it is not read before.
    group.send(client, "XADD s 1-1 f v");
    group.send(client, "XREAD BLOCK 0 STREAMS s $");
    group.send(client, "XADD s 2-1 f v");
    group.settle();
    assert_eq!(group.take(client), "$3|1-1|");
    let other = group.connect(0);
    group.say(other, "XADD s 3-1 f v");
    let (entry, own) =
        (entry("s", "3-1", "f"), "-ERR The ID specified in XADD is equal or smaller");
    let said = group.take(client);
    assert!(said.starts_with(&format!("{entry}{own}")), "{said}");
    // Entries that are there are returned at once.
    assert_eq!(group.say(client, "XREAD COUNT 1 BLOCK 0 STREAMS s 1"), entry_of_first());
    assert_eq!(group.say(client, "PING"), "+PONG|");
}

fn entry_of_first() -> String {
    entry("s", "1-1", "f")
}

#[test]
fn waits_end_with_time_with_unblock_and_with_the_connection() {
    let (mut group, clients) = group(2);
    let (client, other) = (clients[0], group.connect(0));
    let number = id(&mut group, client);
    group.say(other, "XGROUP CREATE s g $ MKSTREAM");
    for wait in ["XREAD BLOCK 100 STREAMS s $", "XREADGROUP GROUP g c BLOCK 100 STREAMS s >"] {
        assert_eq!(group.say(client, wait), "");
        group.pass_ms(99);
        group.settle();
        assert_eq!(group.take(client), "");
        group.pass_ms(1);
        group.settle();
        assert_eq!(group.take(client), "*-1|");
        for (how, reply) in
            [("TIMEOUT", "*-1|"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK|")]
        {
            assert_eq!(group.say(client, wait), "");
            assert!(group.say(other, "INFO clients").contains("blocked_clients:1"));
            assert_eq!(group.say(other, &format!("CLIENT UNBLOCK {number} {how}")), ":1|");
            assert_eq!(group.take(client), reply);
            assert_eq!(group.say(other, &format!("CLIENT UNBLOCK {number} {how}")), ":0|");
        }
        assert_eq!(group.say(client, wait), "");
        let node = &mut group.nodes[0];
        node.front.half_closed(client.1, &mut node.world);
        group.settle();
        assert_eq!(group.take(client), "*-1|");
    }
    let gone = group.connect(0);
    group.say(gone, "XREADGROUP GROUP g gone BLOCK 0 STREAMS s >");
    group.close(gone);
    assert!(group.say(other, "INFO clients").contains("blocked_clients:0"));
    group.say(other, "XADD s 9-1 f v");
    assert_eq!(group.say(other, "XPENDING s g").split('|').nth(1), Some(":0"));
    assert!(!group.nodes[0].front.is_eager());
    assert_eq!(group.nodes[0].front.open_requests(), 0);
}

#[test]
fn consumers_hear_that_their_group_is_gone() {
    for (remove, error) in [
        ("DEL s", "-NOGROUP"),
        ("XGROUP DESTROY s g", "-NOGROUP"),
        ("FLUSHALL", "-NOGROUP"),
        ("RENAME s t", "-NOGROUP"),
        ("SET s x", "-WRONGTYPE"),
    ] {
        let (mut group, clients) = group(2);
        let writer = group.connect(1);
        group.say(writer, "XGROUP CREATE s g $ MKSTREAM");
        group.say(clients[0], "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        group.say(writer, remove);
        group.pass_ms(1000);
        group.settle();
        let said = group.take(clients[0]);
        assert!(said.starts_with(error), "{remove}: {said}");
    }
}

#[test]
fn a_stream_that_comes_by_another_way_ends_waits() {
    for come in ["RENAME other s", "COPY other s", "snapshot"] {
        let (mut group, clients) = group(2);
        let writer = group.connect(1);
        group.say(writer, "XADD other 5-5 f v");
        assert_eq!(group.say(clients[0], "XREAD BLOCK 0 STREAMS s 0"), "");
        if come == "snapshot" {
            group.down[0] = true;
            group.say(writer, "XADD s 5-5 f v");
            group.down[0] = false;
            let at = group.nodes[1].world.slot;
            let items = image(&mut group.nodes[1].world.service);
            load(&mut group.nodes[0].world.service, &items, at);
            group.nodes[0].world.slot = at;
            let node = &mut group.nodes[0];
            let (front, service) = (&mut node.front, &mut node.world.service);
            quorate_replica::service::StateMachine::take_notices(
                service,
                &mut |subject, message| {
                    front.deliver_notice(subject, message);
                },
            );
        } else {
            group.say(writer, come);
        }
        group.settle();
        assert_eq!(group.take(clients[0]), entry("s", "5-5", "f"), "{come}");
    }
}

/// An attempt whose outcome is unknown may have taken entries, so it is not repeated.
#[test]
fn attempts_that_fail_are_repeated_unless_they_may_have_taken_entries() {
    let (mut group, clients) = group(1);
    let (client, writer) = (clients[0], group.connect(0));
    group.say(writer, "XGROUP CREATE s g $ MKSTREAM");
    group.say(client, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    group.send(writer, "XADD s 1-1 f v");
    group.step(0);
    group.tell(0);
    group.turn(0);
    let Some(Asked::Write(tag, ..)) = group.nodes[0].world.asked.pop_front() else {
        panic!("an attempt");
    };
    group.nodes[0].world.told.push(Told::Failed(tag, Failure::NoQuorum));
    group.tell(0);
    group.turn(0);
    assert!(group.nodes[0].world.asked.is_empty(), "not at once");
    group.pass_ms(1000);
    group.turn(0);
    group.lose_reply(0);
    group.settle();
    assert!(group.take(client).starts_with("-UNKNOWN"));
    assert_eq!(group.take(writer), "$3|1-1|");
    assert_eq!(group.say(writer, "XPENDING s g").split('|').nth(1), Some(":1"));
}

/// Whatever the order of events, entries are delivered to a group once and in order, readers miss
/// none, and every reply comes.
#[test]
fn random_orders_deliver_each_entry_once() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let (mut group, clients) = group(3);
        group.say(clients[0], "XGROUP CREATE s g $ MKSTREAM");
        let workers: Vec<Client> = (0..6).map(|number| group.connect(number % 3)).collect();
        let reader = group.connect(random.below(3));
        let (mut taken, mut read, mut added) = (Vec::new(), Vec::new(), 0);
        group.send(reader, "XREAD COUNT 1 BLOCK 0 STREAMS s 0");
        let mut waiting = vec![false; workers.len()];
        for round in 0.. {
            assert!(round < 10_000, "{seed}: {taken:?} {read:?}");
            if taken.len() >= 40 && read.len() >= 40 {
                break;
            }
            if added < 40 && random.below(3) == 0 {
                added += 1;
                let client = *random.pick(&clients);
                group.send(client, &format!("XADD s * n {added}"));
            }
            for (number, worker) in workers.iter().enumerate() {
                if !waiting[number] {
                    waiting[number] = true;
                    let count = 1 + random.below(2);
                    let command = format!(
                        "XREADGROUP GROUP g w{number} COUNT {count} BLOCK 0 NOACK STREAMS s >"
                    );
                    group.send(*worker, &command);
                }
            }
            group.stir(&mut random, 8);
            if added == 40 {
                group.pass_ms(300);
                group.settle();
            }
            for (number, worker) in workers.iter().enumerate() {
                let numbers = numbers(&group.take(*worker));
                waiting[number] &= numbers.is_empty();
                taken.extend(numbers);
            }
            let said = group.take(reader);
            if let Some(last) = said.split('|').find(|part| part.contains('-') && part.len() > 2) {
                read.extend(numbers(&said));
                group.send(reader, &format!("XREAD COUNT 1 BLOCK 0 STREAMS s {last}"));
            }
        }
        group.settle();
        taken.sort_unstable();
        let all: Vec<u32> = (1..=40).collect();
        read.sort_unstable();
        assert_eq!((taken, read), (all.clone(), all), "{seed}");
    }
}

/// Returns the values of field `n` in a reply.
fn numbers(reply: &str) -> Vec<u32> {
    let parts: Vec<&str> = reply.split('|').collect();
    let fields = parts.iter().enumerate().filter(|(_, part)| **part == "n");
    fields.filter_map(|(at, _)| parts.get(at + 2)?.parse().ok()).collect()
}

#[test]
fn commands_that_do_not_block_are_recognised() {
    let (mut group, clients) = group(1);
    group.say(clients[0], "XGROUP CREATE s g $ MKSTREAM");
    for command in [
        "XREAD STREAMS s $",
        "XREADGROUP GROUP g c STREAMS s >",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s 0",
    ] {
        assert_ne!(group.say(clients[0], command), "", "{command}");
    }
    group.say(clients[0], "MULTI");
    group.say(clients[0], "XREAD BLOCK 0 STREAMS s $");
    group.say(clients[0], "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    assert_eq!(group.say(clients[0], "EXEC"), "*2|*-1|*-1|");
    assert!(AwaitedEntries::decode(b"").is_none());
}
