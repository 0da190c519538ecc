//! CLIENT UNBLOCK: ends a client's wait, so that it gets no element and leaves the queue.

use super::group::{Client, Group};
use crate::common::check;

const ENDED: &str = "-UNBLOCKED client unblocked via CLIENT UNBLOCK|";

fn id(group: &mut Group, client: Client) -> String {
    let said = group.say(client, "CLIENT ID");
    said.trim_matches([':', '|']).to_owned()
}

#[test]
fn requests_are_checked_as_redis_does() {
    check(
        "
        CLIENT UNBLOCK 99 => :0|
        CLIENT UNBLOCK -1 TIMEOUT => :0|
        CLIENT UNBLOCK 1 error => :0|
        CLIENT UNBLOCK x => -ERR value is not an integer or out of range|
        CLIENT UNBLOCK 1 NOW => -ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR|
        CLIENT UNBLOCK => -ERR wrong number of arguments for 'client|unblock' command|
        MULTI => +OK|
        CLIENT UNBLOCK 1 => -ERR CLIENT UNBLOCK is not allowed in a transaction: it is not part of the log|
        EXEC => -EXECABORT Transaction discarded because of previous errors.|
        ",
    );
}

#[test]
fn a_wait_ends_with_nothing_or_with_an_error_and_what_comes_goes_to_the_next() {
    for (how, heard) in [("", "*-1|"), ("TIMEOUT", "*-1|"), ("ERROR", ENDED)] {
        let mut group = Group::memory(3);
        let (first, second, other) = (group.connect(0), group.connect(0), group.connect(0));
        let (third, away) = (group.connect(1), group.connect(2));
        let number = id(&mut group, first);
        group.say(first, "BLPOP l 0");
        group.say(second, "BLMOVE l m LEFT LEFT 0");
        group.say(third, "BLPOP l 0");
        // Nodes number their own connections. On this one, no client with that number is blocked.
        let unblock = format!("CLIENT UNBLOCK {number} {how}");
        assert_eq!(group.say(away, &unblock), ":0|");
        assert_eq!(group.say(other, &unblock), ":1|", "{how}");
        assert_eq!(group.take(first), heard, "{how}");
        assert_eq!(group.say(other, &unblock), ":0|", "it waits no more");
        // The client has left the queue on all nodes, so two elements go to the two other clients.
        group.say(away, "RPUSH l a b c");
        group.settle();
        assert_eq!(group.take(first), "");
        assert_eq!(group.take(second), "$1|a|");
        assert_eq!(group.take(third), "*2|$1|l|$1|b|");
        assert_eq!(group.say(away, "LRANGE l 0 -1"), "*1|$1|c|");
        // The client may block again and is then served normally.
        assert_eq!(group.say(first, "BLPOP l 0"), "*2|$1|l|$1|c|");
        assert_eq!(group.say(first, "PING"), "+PONG|");
    }
}

/// Returns a group with a client on node 0 whose claim is in flight, and another client that has
/// sent CLIENT UNBLOCK for it.
fn claiming() -> (Group, [Client; 3]) {
    let mut group = Group::memory(2);
    let (waits, other, away) = (group.connect(0), group.connect(0), group.connect(1));
    let number = id(&mut group, waits);
    group.say(waits, "BLPOP l 0");
    group.send(away, "RPUSH l a");
    while group.step(1) || group.tell(1) {}
    group.turn(0);
    assert_eq!(group.nodes[0].world.asked.len(), 1, "the claim");
    group.send(other, &format!("CLIENT UNBLOCK {number} ERROR"));
    group.turn(0);
    assert_eq!(group.take(other), "", "what becomes of it is not known yet");
    (group, [waits, other, away])
}

/// CLIENT UNBLOCK waits for a claim in flight. It replies 1 if the claim yields no element or its
/// outcome is unknown, and 0 if the client was served or has disconnected.
#[test]
fn a_claim_that_is_under_way_is_waited_for() {
    let (mut group, [waits, other, _]) = claiming();
    // Only the first CLIENT UNBLOCK counts.
    let third = group.connect(0);
    let number = (waits.1).0;
    group.send(third, &format!("CLIENT UNBLOCK {number}"));
    group.settle();
    assert_eq!(group.take(waits), "*2|$1|l|$1|a|");
    assert_eq!(group.take(other), ":0|");
    assert_eq!(group.take(third), ":0|");

    let (mut group, [waits, other, away]) = claiming();
    // Another client takes the element first.
    group.send(away, "LPOP l");
    while group.step(1) || group.tell(1) {}
    group.settle();
    assert_eq!(group.take(waits), ENDED);
    assert_eq!(group.take(other), ":1|");
    group.say(away, "RPUSH l b");
    assert_eq!(group.say(away, "LLEN l"), ":1|", "it stands in no line");
    assert_eq!(group.take(waits), "");

    let (mut group, [waits, other, _]) = claiming();
    group.lose_reply(0);
    group.settle();
    let heard = group.take(waits);
    assert!(heard.starts_with("-UNKNOWN "), "{heard}");
    assert_eq!(group.take(other), ":1|");

    let (mut group, [waits, other, _]) = claiming();
    group.close(waits);
    group.settle();
    assert_eq!(group.take(other), ":0|");
}

#[test]
fn one_that_has_just_asked_is_unblocked_as_soon_as_it_waits() {
    for filled in [false, true] {
        let mut group = Group::memory(1);
        let (waits, other) = (group.connect(0), group.connect(0));
        let number = id(&mut group, waits);
        if filled {
            group.say(other, "RPUSH l a");
        }
        group.send(waits, "BLPOP l 0");
        group.send(other, &format!("CLIENT UNBLOCK {number} ERROR"));
        group.send(other, "PING");
        group.turn(0);
        assert_eq!(group.take(other), "", "replies come in order");
        group.settle();
        let (heard, told) = match filled {
            true => ("*2|$1|l|$1|a|", ":0|+PONG|"),
            false => (ENDED, ":1|+PONG|"),
        };
        assert_eq!(group.take(waits), heard);
        assert_eq!(group.take(other), told);
        assert_eq!(group.say(other, "RPUSH l b"), ":1|");
        assert_eq!(group.say(waits, "LPOP l"), "$1|b|");
    }
}
