//! Deadlines: the group's time determines expiry, and the removal of expired keys changes no reply
//! ([time-2]).

use quorate_core::slot::Slot;
use quorate_kv::{
    service::Service,
    store::{lsm::LsmStore, memory::MemoryStore},
};
use quorate_replica::service::{CommandId, Imaged, StateMachine as _};

use crate::common::{Node, on_both_stores};

#[test]
fn a_key_exists_until_the_groups_time_reaches_its_deadline() {
    on_both_stores(|node| {
        let one = node.connect();
        node.say(one, "SET a 1 EX 10");
        node.say(one, "SET b 1 EX 20");
        node.say(one, "SET c 1");
        assert!(!node.pass(), "nothing is due");
        node.world.wall_ms += 9_999;
        assert!(!node.pass());
        node.world.wall_ms += 1;
        // The clock of a single node has no effect.
        assert_eq!(node.say(one, "PTTL a"), ":0|");
        assert_eq!(node.say(one, "GET a"), "$1|1|");
        assert!(node.pass());
        for (command, reply) in [
            ("GET a", "$-1|"),
            ("PTTL a", ":-2|"),
            ("EXISTS a b c", ":2|"),
            ("DBSIZE", ":2|"),
            ("TYPE a", "+none|"),
            ("STRLEN a", ":0|"),
            ("EXPIRE a 100", ":0|"),
            ("PERSIST a", ":0|"),
            ("DEL a", ":0|"),
            ("GETDEL a", "$-1|"),
            ("RENAME a d", "-ERR no such key|"),
            ("COPY a d", ":0|"),
            ("SET a 2 XX", "$-1|"),
        ] {
            assert_eq!(node.say(one, command), reply, "{command}");
        }
        let keys = node.say(one, "KEYS *");
        assert!(keys.starts_with("*2|"), "{keys}");
        let page = node.say(one, "SCAN 0 COUNT 100");
        assert!(page.starts_with("*2|$1|0|*2|"), "{page}");
        assert!(!node.pass(), "the next deadline is later");
        node.world.wall_ms += 10_000;
        assert!(node.pass());
        assert_eq!(node.say(one, "DBSIZE"), ":1|");
        for _ in 0..20 {
            node.world.wall_ms += 1;
            assert_eq!(node.say(one, "RANDOMKEY"), "$1|c|");
        }
        node.say(one, "DEL c");
        assert_eq!(node.say(one, "RANDOMKEY"), "$-1|");
    });
}

/// A write to an expired key creates a new key.
#[test]
fn a_new_value_of_a_key_that_ended_is_a_new_key() {
    on_both_stores(|node| {
        let one = node.connect();
        for (command, reply, value) in [
            ("SET a 2 NX", "+OK|", "$1|2|"),
            ("SETNX a 3", ":1|", "$1|3|"),
            ("SET a 2 KEEPTTL", "+OK|", "$1|2|"),
            ("SET a 4 GET", "$-1|", "$1|4|"),
            ("INCR a", ":1|", "$1|1|"),
            ("APPEND a x", ":1|", "$1|x|"),
            ("SETRANGE a 1 x", ":2|", "$2|\0x|"),
            ("MSETNX a 5 b 5", ":1|", "$1|5|"),
            ("COPY c a", ":1|", "$1|c|"),
            ("RENAMENX c a", ":1|", "$1|c|"),
        ] {
            node.say(one, "FLUSHALL");
            node.say(one, "SET a 100 PX 10");
            node.say(one, "SET c c");
            node.world.wall_ms += 10;
            assert!(node.pass());
            assert_eq!(node.say(one, command), reply, "{command}");
            assert_eq!(node.say(one, "GET a"), value, "{command}");
            assert_eq!(node.say(one, "TTL a"), ":-1|", "{command}");
            // There is nothing to remove.
            assert_eq!(node.sweep(), 0, "{command}");
            assert_eq!(node.say(one, "GET a"), value, "{command}");
        }
    });
}

#[test]
fn a_watched_key_that_ends_has_changed_and_its_removal_changes_nothing() {
    on_both_stores(|node| {
        let one = node.connect();
        for (before, after, runs) in
            [(false, false, true), (false, true, false), (true, true, true)]
        {
            node.say(one, "FLUSHALL");
            node.say(one, "SET a 1 PX 10");
            node.world.wall_ms += 10;
            assert!(!before || node.pass());
            node.say(one, "WATCH a");
            if after && !before {
                assert!(node.pass());
            }
            if before {
                assert_eq!(node.sweep(), 1);
            }
            node.say(one, "MULTI");
            node.say(one, "PING");
            let reply = node.say(one, "EXEC");
            assert_eq!(reply.starts_with("*1|"), runs, "{before} {after}: {reply}");
        }
    });
}

/// A deadline that lies after the front end's clock but before the group's time expires the key at
/// once.
#[test]
fn a_deadline_that_has_passed_already_ends_the_key_at_once() {
    on_both_stores(|node| {
        let one = node.connect();
        node.say(one, "SET a 1 PX 100");
        node.world.wall_ms += 100;
        assert!(node.pass());
        node.world.wall_ms -= 90;
        assert_eq!(node.say(one, "SET a 2 PX 50"), "+OK|");
        assert_eq!(node.say(one, "SET b 2 PX 91"), "+OK|");
        assert_eq!(node.say(one, "GET a"), "$-1|");
        assert_eq!(node.say(one, "GET b"), "$1|2|");
        assert_eq!(node.say(one, "DBSIZE"), ":1|");
        assert_eq!(node.sweep(), 1);
        assert_eq!(node.say(one, "DBSIZE"), ":1|");
    });
}

#[test]
fn removal_goes_in_bounded_bites_and_nobody_sees_it() {
    on_both_stores(|node| {
        let one = node.connect();
        for key in 0..2000 {
            node.say(one, &format!("SET k{key} 1 PX {}", 1 + key % 2));
        }
        node.say(one, "SET c 1 EX 100");
        node.world.wall_ms += 5;
        assert!(node.pass());
        let mut bites = Vec::new();
        loop {
            assert_eq!(node.say(one, "DBSIZE"), ":1|");
            assert_eq!(node.say(one, "KEYS *"), "*1|$1|c|");
            match node.sweep() {
                0 => break,
                bite => bites.push(bite),
            }
        }
        assert_eq!(bites, [256, 256, 256, 256, 256, 256, 256, 208]);
        // The longer the backlog, the more keys each command removes.
        for key in 0..5000 {
            node.say(one, &format!("SET k{key} 1 PX 1"));
        }
        node.world.wall_ms += 99_000;
        assert!(node.pass());
        assert_eq!((node.sweep(), node.sweep(), node.sweep()), (4096, 904, 0));
    });
}

/// A page of a scan takes bounded time even if most keys have expired.
#[test]
fn a_scan_among_keys_that_ended_gives_small_pages_and_goes_on() {
    on_both_stores(|node| {
        let one = node.connect();
        for key in 0..300 {
            node.say(one, &format!("SET k{key} 1 PX 1"));
        }
        node.say(one, "SET c 1");
        node.world.wall_ms += 1;
        assert!(node.pass());
        let (mut cursor, mut pages, mut found) = ("0".to_owned(), 0, 0);
        loop {
            let page = node.say(one, &format!("SCAN {cursor} COUNT 10"));
            let mut parts = page.split('|');
            cursor = parts.nth(2).unwrap().to_owned();
            found += usize::from(page.ends_with("$1|c|"));
            pages += 1;
            if cursor == "0" {
                break;
            }
        }
        assert!(found == 1 && pages >= 30, "{found} in {pages} pages");
    });
}

/// A snapshot also contains expired keys, and the replica's metadata contains the group's time.
/// After loading it, both stores continue in the same way.
#[test]
fn an_image_has_what_ended_too_and_both_stores_go_on_alike_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let (lsm, _) = LsmStore::open(&folder.path().join("kv")).unwrap();
    let mut node = Node::memory();
    let one = node.connect();
    for key in 0..20 {
        node.say(one, &format!("SET k{key} 1 PX {key}0"));
    }
    node.world.wall_ms += 100;
    assert!(node.pass());
    let at = Slot(node.world.slot + 1);
    let from = &mut node.world.service;
    from.commit(at, &[]);
    assert!(from.begin_image());
    let mut items = Vec::new();
    while from.next_image(100, &mut |item| items.push(item.to_vec())) == Imaged::More {}
    let mut sides = [Service::new(Box::new(MemoryStore::new())), Service::new(Box::new(lsm))];
    for side in &mut sides {
        side.begin_load().unwrap();
        for item in &items {
            side.load(item).unwrap();
        }
        side.finish_load(at, &[]).unwrap();
        assert_eq!(side.store().len(), 19, "no time has come yet");
        side.set_time(1_000_100);
        assert_eq!(side.digest(), from.digest());
        assert_eq!(side.store().len(), from.store().len());
        assert_eq!(side.store().len(), 9);
    }
    let mut sweep = Vec::new();
    from.due(&mut |command| sweep = command.to_vec());
    let id = CommandId { slot: at, index: 0 };
    let mut replies = [Vec::new(), Vec::new(), Vec::new()];
    let [memory, lsm] = &mut sides;
    for (side, reply) in [from, memory, lsm].into_iter().zip(&mut replies) {
        side.apply(id, &sweep, reply);
        assert_eq!(reply, b":10\r\n");
        assert_eq!(side.store().len(), 9);
    }
}
