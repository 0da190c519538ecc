//! Connection management: the commands CLIENT KILL and CLIENT PAUSE.

use quorate_replica::front::{ConnectionId, Front as _};

use crate::common::{Node, check};

#[test]
fn requests_are_checked_as_redis_does() {
    check(
        "
        CLIENT KILL 1.2.3.4:5 => -ERR No such client|
        CLIENT KILL ID 99 => :0|
        CLIENT KILL ID 0 => -ERR client-id should be greater than 0|
        CLIENT KILL ID 1 SKIPME => -ERR syntax error|
        CLIENT KILL WHO me => -ERR syntax error|
        CLIENT KILL TYPE lost => -ERR Unknown client type 'lost'|
        CLIENT KILL TYPE replica => :0|
        CLIENT PAUSE x => -ERR timeout is not an integer or out of range|
        CLIENT PAUSE -1 => -ERR timeout is negative|
        CLIENT PAUSE 1 READ => -ERR CLIENT PAUSE mode must be WRITE or ALL|
        CLIENT UNPAUSE => +OK|
        ",
    );
}

/// Returns a node with three clients; the second is subscribed to a channel.
fn three() -> (Node, [ConnectionId; 3]) {
    let mut node = Node::memory();
    let clients = [node.connect(), node.connect(), node.connect()];
    node.say(clients[1], "SUBSCRIBE news");
    node.take(clients[1]);
    node.world.wall_ms += 10_000;
    (node, clients)
}

#[test]
fn kill_disconnects_the_clients_that_all_filters_select() {
    for (words, killed) in [
        ("10.0.0.2:5000", [false, true, false]),
        ("ID 1", [true, false, false]),
        ("ADDR 10.0.0.1:5000 USER default", [true, false, false]),
        ("ADDR 10.0.0.1:5000 USER joe", [false, false, false]),
        ("TYPE pubsub", [false, true, false]),
        ("TYPE normal", [true, false, false]),
        ("TYPE normal SKIPME no", [true, false, true]),
        ("LADDR 10.0.0.1:7450", [true, true, false]),
        ("MAXAGE 10", [true, true, false]),
        ("MAXAGE 11", [false, false, false]),
    ] {
        let (mut node, clients) = three();
        let said = node.say(clients[2], &format!("CLIENT KILL {words}"));
        let count = killed.iter().filter(|killed| **killed).count();
        let answer = if words.contains(' ') { format!(":{count}|") } else { "+OK|".to_owned() };
        assert_eq!(said, answer, "{words}");
        let closing = clients.map(|client| node.front.should_close(client));
        assert_eq!(closing, killed, "{words}");
    }
}

/// Runs a turn of the reactor, which polls the front.
fn turn(node: &mut Node) {
    node.front.run_turn(&mut node.world);
    node.settle();
}

#[test]
fn a_pause_holds_requests_back_until_it_ends() {
    for (mode, reads) in [("WRITE", "$-1|"), ("ALL", ""), ("", "")] {
        let (mut node, [one, _, other]) = three();
        assert_eq!(node.say(other, &format!("CLIENT PAUSE 500 {mode}")), "+OK|");
        assert_eq!(node.front.wake_ms(), None, "nothing waits");
        assert_eq!(node.say(one, "GET k"), reads);
        assert_eq!(node.say(one, "SET k 1"), "");
        let writes = node.world.asked.len();
        assert_eq!(node.front.wake_ms(), Some(node.world.wall_ms + 500));
        // A shorter pause does not shorten the current one.
        node.say(other, "CLIENT PAUSE 10 WRITE");
        node.world.wall_ms += 499;
        turn(&mut node);
        assert_eq!((node.take(one), writes), (String::new(), 0));
        node.world.wall_ms += 1;
        turn(&mut node);
        let late = if reads.is_empty() { "$-1|+OK|" } else { "+OK|" };
        assert_eq!(node.take(one), late, "{mode}");
    }
}

#[test]
fn unpause_ends_a_pause_and_a_transaction_waits_as_a_whole() {
    let (mut node, [one, _, other]) = three();
    node.say(other, "CLIENT PAUSE 500 WRITE");
    assert_eq!(node.say(one, "MULTI"), "+OK|");
    assert_eq!(node.say(one, "GET k"), "+QUEUED|");
    assert_eq!(node.say(one, "SET k 1"), "");
    assert_eq!(node.say(other, "CLIENT UNPAUSE"), "+OK|");
    turn(&mut node);
    assert_eq!(node.take(one), "+QUEUED|");
    assert_eq!(node.say(one, "EXEC"), "*2|$-1|+OK|");
}
