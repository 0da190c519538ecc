//! Pub/Sub: delivery by channels, patterns and shard channels, the formats of replies, and PUBSUB.

use quorate_replica::front::{ConnectionId, Front as _};

use crate::common::{Node, on_both_stores, request};

/// Replies have the same form as in Redis 7.0.
#[test]
fn each_way_of_listening_has_its_own_form() {
    on_both_stores(|node| {
        let (listener, other) = (node.connect(), node.connect());
        let mut said = |text: &str| node.say(listener, text);
        assert_eq!(said("SUBSCRIBE news.a"), "*3|$9|subscribe|$6|news.a|:1|");
        let both = "*3|$10|psubscribe|$6|news.*|:2|*3|$10|psubscribe|$6|*.[ab]|:3|";
        assert_eq!(said("PSUBSCRIBE news.* *.[ab]"), both);
        assert_eq!(said("SSUBSCRIBE news.a"), "*3|$10|ssubscribe|$6|news.a|:1|");
        assert_eq!(node.say(other, "PUBLISH news.a hi"), ":3|");
        let pmessage =
            |pattern: &str| format!("*4|$8|pmessage|${}|{pattern}|$6|news.a|$2|hi|", pattern.len());
        let all = ["*3|$7|message|$6|news.a|$2|hi|", &pmessage("*.[ab]"), &pmessage("news.*")];
        assert_eq!(node.take(listener), all.concat());
        assert_eq!(node.say(other, "PUBLISH news.c hi"), ":1|");
        assert_eq!(node.take(listener), "*4|$8|pmessage|$6|news.*|$6|news.c|$2|hi|");
        assert_eq!(node.say(other, "PUBLISH other hi"), ":0|");
        assert_eq!(node.take(listener), "");
        assert_eq!(node.say(other, "SPUBLISH news.a shard"), ":1|");
        assert_eq!(node.take(listener), "*3|$8|smessage|$6|news.a|$5|shard|");
        let mut said = |text: &str| node.say(listener, text);
        assert!(said("GET a").starts_with("-ERR Can't execute 'get': only (P|S)SUBSCRIBE"));
        assert_eq!(said("PUNSUBSCRIBE news.*"), "*3|$12|punsubscribe|$6|news.*|:2|");
        assert_eq!(said("UNSUBSCRIBE"), "*3|$11|unsubscribe|$6|news.a|:1|");
        assert_eq!(said("UNSUBSCRIBE"), "*3|$11|unsubscribe|$-1|:1|");
        assert_eq!(said("PUNSUBSCRIBE none"), "*3|$12|punsubscribe|$4|none|:1|");
        assert_eq!(said("PUNSUBSCRIBE"), "*3|$12|punsubscribe|$6|*.[ab]|:0|");
        assert!(said("GET a").starts_with("-ERR"), "a channel of a shard is left");
        assert_eq!(said("SUNSUBSCRIBE"), "*3|$12|sunsubscribe|$6|news.a|:0|");
        assert_eq!(said("SUNSUBSCRIBE"), "*3|$12|sunsubscribe|$-1|:0|");
        assert_eq!(said("GET a"), "$-1|");
        node.say(other, "PUBLISH news.a hi");
        node.say(other, "SPUBLISH news.a hi");
        assert_eq!(node.take(listener), "");
    });
}

/// A channel and a shard channel with the same name are independent.
#[test]
fn channels_of_shards_are_another_space() {
    let mut node = Node::memory();
    let (channel, shard, other) = (node.connect(), node.connect(), node.connect());
    node.say(channel, "SUBSCRIBE c");
    node.say(channel, "PSUBSCRIBE *");
    node.say(shard, "SSUBSCRIBE c");
    node.say(other, "SPUBLISH c one");
    assert_eq!(node.take(channel), "");
    assert_eq!(node.take(shard), "*3|$8|smessage|$1|c|$3|one|");
    node.say(other, "PUBLISH c two");
    assert_eq!(node.take(shard), "");
    assert!(node.take(channel).starts_with("*3|$7|message|$1|c|$3|two|"));
}

#[test]
fn pubsub_tells_who_listens_on_this_node() {
    let mut node = Node::memory();
    let (one, two, other) = (node.connect(), node.connect(), node.connect());
    assert_eq!(node.say(other, "PUBSUB CHANNELS"), "*0|");
    node.say(one, "SUBSCRIBE ab a");
    node.say(two, "SUBSCRIBE a");
    node.say(two, "PSUBSCRIBE x* y*");
    node.say(one, "PSUBSCRIBE x*");
    node.say(one, "SSUBSCRIBE s");
    node.say(one, "PING");
    let mut said = |text: &str| node.say(other, text);
    assert_eq!(said("PUBSUB CHANNELS"), "*2|$1|a|$2|ab|");
    assert_eq!(said("PUBSUB CHANNELS ?b"), "*1|$2|ab|");
    assert_eq!(said("PUBSUB NUMSUB"), "*0|");
    assert_eq!(said("PUBSUB NUMSUB a none s"), "*6|$1|a|:2|$4|none|:0|$1|s|:0|");
    assert_eq!(said("PUBSUB NUMPAT"), ":2|");
    assert_eq!(said("PUBSUB SHARDCHANNELS"), "*1|$1|s|");
    assert_eq!(said("PUBSUB SHARDNUMSUB s a"), "*4|$1|s|:1|$1|a|:0|");
    assert_eq!(
        said("PUBSUB CHANNELS a b"),
        "-ERR wrong number of arguments for 'pubsub|channels' command|"
    );
    assert!(said("PUBSUB NONSENSE").starts_with("-ERR unknown subcommand 'NONSENSE'"));
    assert!(said("PUBSUB HELP").starts_with("*7|"));
    let long = format!("PUBSUB CHANNELS {}", "*a".repeat(200));
    assert_eq!(said(&long), "-ERR a pattern of channels may have 256 bytes|");
    let listed = said("CLIENT LIST");
    assert!(listed.contains(" flags=P db=0 sub=2 psub=1 ssub=1 "), "{listed}");
    let info = said("INFO stats");
    assert!(
        info.contains("|pubsub_channels:2|pubsub_patterns:2|pubsubshard_channels:1|"),
        "{info}"
    );
    for gone in [one, two] {
        node.front.handle_closed(gone, &mut node.world);
    }
    assert_eq!(node.say(other, "PUBSUB NUMPAT"), ":0|");
    assert_eq!(node.say(other, "PUBSUB SHARDCHANNELS"), "*0|");
}

#[test]
fn reset_ends_all_ways_of_listening() {
    let mut node = Node::memory();
    let (one, other) = (node.connect(), node.connect());
    for listens in ["SUBSCRIBE a", "PSUBSCRIBE *", "SSUBSCRIBE a"] {
        node.say(one, listens);
    }
    assert_eq!(node.say(one, "RESET"), "+RESET|");
    node.say(other, "PUBLISH a x");
    node.say(other, "SPUBLISH a x");
    assert_eq!(node.take(one), "");
    assert_eq!(node.say(one, "GET a"), "$-1|");
}

/// Sends requests as a pipeline. Returns the replies.
fn pipeline(node: &mut Node, client: ConnectionId, lines: &[&str]) -> String {
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        node.feed(client, &request(&words));
    }
    node.settle();
    node.take(client)
}

/// Pipelines may subscribe and unsubscribe, as redis-py's tests do. UNSUBSCRIBE without names,
/// RESET, and the limited commands of a subscriber depend on the subscriptions at their position in
/// the pipeline, not on those at parsing time.
#[test]
fn a_pipeline_may_subscribe_and_unsubscribe() {
    let mut node = Node::memory();
    let (one, other) = (node.connect(), node.connect());
    let told = pipeline(
        &mut node,
        one,
        &["SUBSCRIBE a b", "PSUBSCRIBE *", "UNSUBSCRIBE", "UNSUBSCRIBE", "SUBSCRIBE a"],
    );
    let expected = [
        "*3|$9|subscribe|$1|a|:1|*3|$9|subscribe|$1|b|:2|*3|$10|psubscribe|$1|*|:3|",
        "*3|$11|unsubscribe|$1|a|:2|*3|$11|unsubscribe|$1|b|:1|*3|$11|unsubscribe|$-1|:1|",
        "*3|$9|subscribe|$1|a|:2|",
    ];
    assert_eq!(told, expected.concat());
    let told = pipeline(&mut node, one, &["UNSUBSCRIBE a", "PUNSUBSCRIBE", "GET k"]);
    let expected = "*3|$11|unsubscribe|$1|a|:1|*3|$12|punsubscribe|$1|*|:0|$-1|";
    assert_eq!(told, expected);
    let told = pipeline(&mut node, one, &["SUBSCRIBE a", "SSUBSCRIBE a", "RESET", "GET k"]);
    let expected = "*3|$9|subscribe|$1|a|:1|*3|$10|ssubscribe|$1|a|:1|+RESET|$-1|";
    assert_eq!(told, expected);
    for asked in ["PUBLISH a x", "SPUBLISH a x"] {
        assert_eq!(node.say(other, asked), ":0|", "{asked}");
    }
    assert_eq!(node.take(one), "");
}

/// Patterns are limited in number and length, as each message is matched against all of them.
#[test]
fn patterns_are_few_and_short() {
    let mut node = Node::memory();
    let client = node.connect();
    let long = "*".repeat(257);
    let refused = "-ERR a connection may listen to 128 patterns of 256 bytes|";
    assert_eq!(node.say(client, &format!("PSUBSCRIBE {long}")), refused);
    for number in 0..128 {
        node.say(client, &format!("PSUBSCRIBE p{number}*"));
    }
    assert_eq!(node.say(client, "PSUBSCRIBE p"), refused);
    // Patterns match only names that are short enough for a subscription.
    node.say(client, "PUNSUBSCRIBE");
    node.say(client, "PSUBSCRIBE *");
    let other = node.connect();
    node.say(other, &format!("PUBLISH {} x", "c".repeat(1025)));
    assert_eq!(node.take(client), "");
    node.say(other, &format!("PUBLISH {} x", "c".repeat(1024)));
    assert!(node.take(client).starts_with("*4|$8|pmessage|"));
}

/// Stored replies are the same on every node, so they do not contain the number of receivers on one
/// node.
#[test]
fn replies_that_are_stored_do_not_count_listeners() {
    let mut node = Node::memory();
    let (listener, other) = (node.connect(), node.connect());
    node.say(listener, "SUBSCRIBE c");
    assert_eq!(node.say(other, "PUBLISH c one"), ":1|");
    let many = b"PUBLISH c two\r\nPUBLISH d three\r\nSET k v\r\nPUBLISH c four\r\n";
    node.feed(other, many);
    node.settle();
    assert_eq!(node.take(other), ":1|:0|+OK|:1|");
    node.say(other, "MULTI");
    node.say(other, "PUBLISH c five");
    assert_eq!(node.say(other, "EXEC"), "*1|:0|");
    node.say(other, "QUORATE SESSION");
    assert_eq!(node.say(other, "QUORATE SEQ 1 PUBLISH c six"), ":0|");
    assert_eq!(node.say(other, "PUBLISH c seven"), ":1|");
    let heard = node.take(listener);
    for word in ["one", "two", "four", "five", "six", "seven"] {
        assert!(heard.contains(word), "{heard}");
    }
}

#[test]
fn who_wants_no_replies_hears_what_it_listens_to() {
    on_both_stores(|node| {
        let (one, other) = (node.connect(), node.connect());
        let mut said = |text: &str| node.say(one, text);
        assert_eq!(said("CLIENT REPLY ON"), "+OK|");
        assert_eq!(said("CLIENT REPLY SKIP"), "");
        assert_eq!(said("SET k v"), "");
        assert_eq!(said("GET k"), "$1|v|");
        assert_eq!(said("CLIENT REPLY perhaps"), "-ERR syntax error|");
        assert_eq!(
            said("CLIENT REPLY"),
            "-ERR wrong number of arguments for 'client|reply' command|"
        );
        assert_eq!(said("CLIENT REPLY OFF"), "");
        for silent in [
            "SET k w",
            "GET k",
            "NONSENSE",
            "PING",
            "MULTI",
            "INCR n",
            "EXEC",
            "CLIENT REPLY SKIP",
            "LPOP none",
        ] {
            assert_eq!(said(silent), "", "{silent}");
        }
        assert_eq!(said("SUBSCRIBE c"), "*3|$9|subscribe|$1|c|:1|");
        assert_eq!(said("PING"), "");
        assert_eq!(node.say(other, "PUBLISH c hi"), ":1|");
        assert_eq!(node.take(one), "*3|$7|message|$1|c|$2|hi|");
        let mut said = |text: &str| node.say(one, text);
        assert_eq!(said("UNSUBSCRIBE"), "*3|$11|unsubscribe|$1|c|:0|");
        assert_eq!(said("UNSUBSCRIBE"), "*3|$11|unsubscribe|$-1|:0|");
        node.feed(
            one,
            b"GET n\r\nCLIENT REPLY ON\r\nGET n\r\nCLIENT REPLY SKIP\r\nGET n\r\nGET n\r\n",
        );
        node.settle();
        assert_eq!(node.take(one), "+OK|$1|1|$1|1|");
        let mut said = |text: &str| node.say(one, text);
        assert_eq!(said("CLIENT REPLY OFF"), "");
        assert_eq!(said("RESET"), "+RESET|");
        assert_eq!(said("GET k"), "$1|w|");
        assert_eq!(said("MULTI"), "+OK|");
        assert!(said("CLIENT REPLY OFF").starts_with("-ERR CLIENT REPLY is not allowed"));
        assert!(said("EXEC").starts_with("-EXECABORT"));
        // The error is sent before the connection is closed, even if replies are off.
        assert_eq!(said("CLIENT REPLY OFF"), "");
        node.feed(one, b"*x\r\n");
        assert!(node.take(one).starts_with("-ERR Protocol error"));
    });
}

/// [hold-1] A subscriber that reads receives all messages, no matter how many others do not read.
#[test]
fn listener_that_reads_is_not_closed_for_those_that_do_not() {
    const LIMIT: usize = 4 << 20;
    let mut node = Node::with_client_bytes(LIMIT);
    let (admin, other) = (node.connect(), node.connect());
    let mut hoarders: Vec<ConnectionId> = (0..20).map(|_| node.connect()).collect();
    // The last connection receives each message last.
    let reader = node.connect();
    for listener in hoarders.iter().chain([&reader]) {
        node.say(*listener, "SUBSCRIBE ch");
        node.take(*listener);
    }
    let message = "x".repeat(20_000);
    let mut heard = Vec::new();
    for number in 1..=200 {
        node.feed_only(other, &["PUBLISH", "ch", &message]);
        node.front.take_output(other);
        heard.push(node.front.take_output(reader).len());
        assert!(node.front.held_bytes() <= LIMIT);
        node.feed_only(admin, &["CLIENT", "LIST"]);
        let list = String::from_utf8(node.front.take_output(admin)).unwrap();
        for hoarder in &hoarders {
            let line = list.lines().find(|line| line.starts_with(&format!("id={} ", hoarder.0)));
            let held = format!(" omem={} ", number * heard[0]);
            let open = !node.front.should_close(*hoarder);
            assert!(!open || line.unwrap().contains(&held), "{held}: {line:?}");
        }
        hoarders.retain(|hoarder| !node.front.should_close(*hoarder));
    }
    assert!(node.front.accepts_input(reader) && heard[0] > 20_000);
    assert!(heard.iter().all(|bytes| *bytes == heard[0]), "{heard:?}");
    assert!(hoarders.len() < 20);
}
