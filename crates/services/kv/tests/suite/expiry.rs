//! Deadlines: the log deletes, nobody else.

use quorate_core::slot::Slot;
use quorate_kv::service::Service;
use quorate_replica::service::{CommandId, StateMachine as _};

use crate::common::{Node, on_both_stores};

#[test]
fn an_overdue_key_lives_until_the_log_deletes_it() {
    on_both_stores(|node| {
        let one = node.connect();
        node.say(one, "SET a 1 EX 10");
        node.say(one, "SET b 1 EX 20");
        node.say(one, "SET c 1");
        node.world.wall_ms += 10_000;
        assert_eq!(node.say(one, "PTTL a"), ":0|");
        assert_eq!(node.say(one, "GET a"), "$1|1|");
        assert_eq!(node.expire(), 1);
        assert_eq!(node.say(one, "GET a"), "$-1|");
        assert_eq!(node.expire(), 0);
        node.world.wall_ms += 10_000;
        assert_eq!(node.expire(), 1);
        assert_eq!(node.say(one, "DBSIZE"), ":1|");
    });
}

#[test]
fn a_key_that_was_set_again_survives_an_old_deletion() {
    on_both_stores(|node| {
        let one = node.connect();
        for meanwhile in [
            "SET a 2",
            "SET a 2 EX 100",
            "PERSIST a",
            "EXPIRE a 50",
            "INCR a",
        ] {
            node.say(one, "SET a 1 EX 10");
            node.world.wall_ms += 10_000;
            let mut proposed = Vec::new();
            let wall_ms = node.world.wall_ms;
            node.world
                .service
                .due(wall_ms, 10, &mut |c| proposed.push(c.to_vec()));
            assert_eq!(proposed.len(), 1, "{meanwhile}");
            node.say(one, meanwhile);
            let reply = node.world.apply(&proposed[0]);
            // INCR keeps the deadline, so the deletion is still meant.
            let deleted = meanwhile == "INCR a";
            assert_eq!(
                reply,
                if deleted { b":1\r\n" } else { b":0\r\n" },
                "{meanwhile}"
            );
            assert_eq!(
                node.say(one, "EXISTS a"),
                if deleted { ":0|" } else { ":1|" }
            );
            // Repeated, as by the next leader.
            assert_eq!(node.world.apply(&proposed[0]), b":0\r\n");
        }
    });
}

#[test]
fn deletions_are_proposed_once_and_again_if_lost() {
    let mut node = Node::memory();
    let one = node.connect();
    for key in 0..10 {
        node.say(one, &format!("SET k{key} 1 EX 1"));
    }
    node.world.wall_ms += 5_000;
    let service = &mut node.world.service;
    let due = |service: &mut Service, wall_ms, limit| {
        let mut commands = Vec::new();
        service.due(wall_ms, limit, &mut |c| commands.push(c.to_vec()));
        commands
    };
    let first = due(service, 1_005_000, 4);
    let second = due(service, 1_005_001, 100);
    assert_eq!((first.len(), second.len()), (4, 6));
    assert!(first.iter().all(|command| !second.contains(command)));
    assert_eq!(due(service, 1_005_500, 100).len(), 0, "in flight");
    assert_eq!(due(service, 1_006_000, 100).len(), 4, "the first were lost");
    assert_eq!(
        due(service, 1_000_100, 100).len(),
        0,
        "a clock that jumps back finds nothing due"
    );
    let mut reply = Vec::new();
    let id = CommandId {
        slot: Slot(99),
        index: 0,
    };
    service.apply(id, &first[0], &mut reply);
    assert_eq!(due(service, 1_016_000, 100).len(), 9);
}

#[test]
fn many_overdue_keys_go_in_bounded_pieces() {
    let mut node = Node::memory();
    let one = node.connect();
    for key in 0..6000 {
        node.say(one, &format!("SET k{key} 1 EX 1"));
    }
    node.world.wall_ms += 5_000;
    let mut rounds = 0;
    while node.expire() > 0 {
        rounds += 1;
    }
    assert_eq!((rounds, node.say(one, "DBSIZE")), (60, ":0|".to_owned()));
}
