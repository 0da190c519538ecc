//! CLIENT TRACKING: a client that drops every key it is notified of never caches an old value.

use std::collections::{BTreeMap, VecDeque};

use quorate_replica::front::{ConnectionId, Front as _};

use super::common::{Node, Random, request};

fn tracker(node: &mut Node, options: &str) -> ConnectionId {
    let client = node.connect();
    node.say(client, "HELLO 3");
    assert_eq!(node.say(client, &format!("CLIENT TRACKING ON {options}")), "+OK|");
    client
}

fn changed(key: &str) -> String {
    format!(">2|$10|invalidate|*1|${}|{key}|", key.len())
}

#[test]
fn a_read_key_is_told_once() {
    let mut node = Node::memory();
    let (reader, writer) = (tracker(&mut node, ""), node.connect());
    node.say(reader, "MGET a b");
    node.say(writer, "SET other 1");
    assert_eq!(node.take(reader), "", "not read");
    node.say(writer, "SET a 1");
    assert_eq!(node.take(reader), changed("a"));
    node.say(writer, "SET a 2");
    assert_eq!(node.take(reader), "", "not read again");
    // A client is notified of its own changes too.
    let told = node.say(reader, "INCR b");
    assert!(told.contains(&changed("b")), "{told}");
    node.say(reader, "CLIENT TRACKING OFF");
    node.say(reader, "GET a");
    node.say(writer, "SET a 3");
    assert_eq!(node.take(reader), "");
}

#[test]
fn every_way_to_change_a_key_is_told() {
    for (before, change) in [
        ("SET k v", "DEL k"),
        ("SET k v", "RENAME k m"),
        ("SET m v", "RENAME m k"),
        ("SET m v", "COPY m k"),
        ("SET k v", "EXPIRE k 100"),
        ("SET k v", "APPEND k v"),
        ("SET k v", "GETDEL k"),
        ("SETBIT k 1 1", "BITFIELD k SET u8 0 7"),
        ("HSET k f v", "HSET k f w"),
        ("HSET k f v g v", "HDEL k f"),
        ("HSET k f v", "HDEL k f"),
        ("RPUSH k v", "LPOP k"),
        ("RPUSH m v", "LMOVE m k LEFT LEFT"),
        ("SADD k v w", "SREM k v"),
        ("SADD m v", "SUNIONSTORE k m"),
        ("ZADD k 1 v", "ZINCRBY k 1 v"),
        ("RPUSH m 2 1", "SORT m STORE k"),
        ("SET k v", "UNLINK k"),
    ] {
        let mut node = Node::memory();
        let (reader, writer) = (tracker(&mut node, ""), node.connect());
        node.say(writer, before);
        node.say(reader, "TYPE k");
        let reply = node.say(writer, change);
        assert!(!reply.starts_with('-'), "{change}: {reply}");
        assert_eq!(node.take(reader), changed("k"), "{change}");
    }
}

#[test]
fn an_expired_key_is_told_when_it_is_removed() {
    let mut node = Node::memory();
    let (reader, writer) = (tracker(&mut node, ""), node.connect());
    node.say(writer, "SET k v PX 10");
    node.say(reader, "GET k");
    node.world.wall_ms += 20;
    assert!(node.pass());
    node.say(writer, "SET k w");
    assert!(node.take(reader).contains(&changed("k")));
}

#[test]
fn all_keys_are_told_at_flushall() {
    let mut node = Node::memory();
    let (reader, idle, plain) =
        (tracker(&mut node, ""), tracker(&mut node, "BCAST"), node.connect());
    node.say(reader, "GET k");
    node.say(plain, "FLUSHALL");
    for client in [reader, idle] {
        assert_eq!(node.take(client), ">2|$10|invalidate|_|");
    }
    node.say(plain, "SET k v");
    assert_eq!(node.take(reader), "");
    assert_eq!(node.take(idle), changed("k"));
    assert_eq!(node.take(plain), "");
}

#[test]
fn prefixes_select_keys_that_were_not_read() {
    let mut node = Node::memory();
    let (some, writer) = (tracker(&mut node, "BCAST PREFIX user: PREFIX cart:"), node.connect());
    for (key, told) in [("user:1", true), ("users", false), ("cart:", true), ("user:1", true)] {
        node.say(writer, &format!("SET {key} v"));
        assert_eq!(node.take(some) == changed(key), told, "{key}");
    }
    assert_eq!(
        node.say(some, "CLIENT TRACKINGINFO"),
        "%3|$5|flags|~2|$2|on|$5|bcast|$8|redirect|:0|$8|prefixes|*2|$5|user:|$5|cart:|"
    );
    let overlap = node.say(some, "CLIENT TRACKING ON BCAST PREFIX user:1");
    assert!(overlap.starts_with("-ERR Prefix 'user:1' overlaps with an existing prefix 'user:'"));
    assert_eq!(node.say(some, "CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:"), "+OK|");
    node.say(writer, "SET item:1 v");
    assert_eq!(node.take(some), changed("item:1"));
}

#[test]
fn reads_are_tracked_as_the_client_opts() {
    let mut node = Node::memory();
    for (options, answer, by_default) in [("OPTIN", "YES", false), ("OPTOUT", "NO", true)] {
        let (reader, writer) = (tracker(&mut node, options), node.connect());
        let is_told = |node: &mut Node| {
            node.say(writer, "INCR k");
            node.take(reader) == changed("k")
        };
        node.say(reader, "GET k");
        assert_eq!(is_told(&mut node), by_default, "{options}");
        assert_eq!(node.say(reader, &format!("CLIENT CACHING {answer}")), "+OK|");
        node.say(reader, "GET k");
        assert_eq!(is_told(&mut node), !by_default, "{options} {answer}");
        node.say(reader, "GET k");
        assert_eq!(is_told(&mut node), by_default, "for one request");
        // In a transaction, CLIENT CACHING applies to all commands.
        for words in [&format!("CLIENT CACHING {answer}")[..], "MULTI", "TTL k", "GET k", "EXEC"] {
            node.say(reader, words);
        }
        assert_eq!(is_told(&mut node), !by_default, "{options} in a transaction");
        node.say(reader, "GET k");
        assert_eq!(is_told(&mut node), by_default);
        node.front.handle_closed(reader, &mut node.world);
    }
}

#[test]
fn another_connection_gets_the_notices() {
    let mut node = Node::memory();
    let (listener, reader, writer) = (node.connect(), node.connect(), node.connect());
    let id = node.say(listener, "CLIENT ID");
    let id = id.trim_matches([':', '|']);
    node.say(listener, "SUBSCRIBE __redis__:invalidate");
    assert_eq!(node.say(reader, &format!("CLIENT TRACKING ON REDIRECT {id}")), "+OK|");
    assert_eq!(node.say(reader, "CLIENT GETREDIR"), format!(":{id}|"));
    node.say(reader, "GET k");
    node.say(writer, "SET k v");
    assert_eq!(node.take(reader), "");
    assert_eq!(node.take(listener), "*3|$7|message|$20|__redis__:invalidate|*1|$1|k|");
    node.say(reader, "HELLO 3");
    node.say(reader, "GET k");
    node.front.handle_closed(listener, &mut node.world);
    node.say(writer, "SET k w");
    assert_eq!(node.take(reader), format!(">2|$21|tracking-redir-broken|:{id}|"));
}

#[test]
fn a_notice_follows_open_reads_and_passes_a_blocked_request() {
    let mut node = Node::memory();
    let (reader, writer) = (tracker(&mut node, ""), node.connect());
    node.say(writer, "SET k 1");
    node.feed(reader, &[request(&["GET", "k"]), request(&["BLPOP", "queue", "0"])].concat());
    // The read is answered after the key has changed.
    let read = node.world.asked.pop_front().expect("the read");
    node.say(writer, "SET k 2");
    assert_eq!(node.take(reader), "");
    node.world.asked.push_back(read);
    node.settle();
    assert_eq!(node.take(reader), format!("$1|2|{}", changed("k")), "BLPOP is still blocked");
    node.say(writer, "RPUSH queue x");
    node.settle();
}

#[test]
fn turning_tracking_on_again_keeps_what_was_read() {
    let mut node = Node::memory();
    let (reader, writer) = (tracker(&mut node, ""), node.connect());
    node.say(reader, "GET k");
    node.say(reader, "CLIENT TRACKING ON NOLOOP");
    node.say(writer, "SET k v");
    assert_eq!(node.take(reader), changed("k"));
}

#[test]
fn notices_come_with_replies_turned_off() {
    let mut node = Node::memory();
    let (reader, writer) = (tracker(&mut node, "BCAST"), node.connect());
    node.say(reader, "CLIENT REPLY OFF");
    assert_eq!(node.say(reader, "GET k"), "");
    node.say(writer, "SET k v");
    assert_eq!(node.take(reader), changed("k"));
}

#[test]
fn wrong_options_are_refused() {
    let mut node = Node::memory();
    let client = node.connect();
    for (words, expected) in [
        ("TRACKING", "-ERR wrong number of arguments for 'client|tracking' command|"),
        ("TRACKING MAYBE", "-ERR syntax error|"),
        ("TRACKING ON REDIRECT 4711", "-ERR The client ID you want redirect to does not exist|"),
        ("TRACKING ON PREFIX a", "-ERR PREFIX option requires BCAST mode to be enabled|"),
        ("TRACKING ON BCAST OPTIN", "-ERR OPTIN and OPTOUT are not compatible with BCAST|"),
        ("TRACKING ON OPTIN OPTOUT", "-ERR You can't specify both OPTIN mode and OPTOUT mode|"),
        (
            "TRACKING ON BCAST PREFIX ab PREFIX a",
            "-ERR Prefix 'a' overlaps with an existing prefix 'ab'.",
        ),
        (
            "CACHING YES",
            "-ERR CLIENT CACHING can be called only when the client is in tracking mode",
        ),
        ("GETREDIR", ":-1|"),
        ("TRACKING ON OPTIN NOLOOP", "+OK|"),
        (
            "CACHING NO",
            "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ),
        ("TRACKING ON OPTOUT", "-ERR You can't switch OPTIN/OPTOUT mode"),
        ("TRACKING ON BCAST", "-ERR You can't switch BCAST mode on/off"),
        ("TRACKINGINFO", "*6|$5|flags|*3|$2|on|$5|optin|$6|noloop|$8|redirect|:0|$8|prefixes|*0|"),
    ] {
        let reply = node.say(client, &format!("CLIENT {words}"));
        assert!(reply.starts_with(expected), "{words}: {reply}");
    }
    assert_eq!(node.say(client, "RESET"), "+RESET|");
    assert_eq!(node.say(client, "CLIENT GETREDIR"), ":-1|");
}

/// Reply or push, as parsed by a client library.
#[derive(Debug, PartialEq)]
enum Item {
    Text(Option<String>),
    Many(Vec<Self>),
    Push(Vec<Self>),
}

/// Parses an item of a text in which `|` stands for line ends.
fn item<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Option<Item> {
    let line = lines.next().filter(|line| !line.is_empty())?;
    let (kind, rest) = line.split_at(1);
    let many = |lines: &mut dyn Iterator<Item = &'a str>| -> Vec<Item> {
        let count: usize = rest.parse().unwrap();
        let mut lines = lines;
        (0..count).map(|_| item(&mut lines).unwrap()).collect()
    };
    Some(match kind {
        "$" => Item::Text(Some(lines.next().unwrap().to_owned())),
        "_" => Item::Text(None),
        "*" => Item::Many(many(lines)),
        ">" => Item::Push(many(lines)),
        _ => Item::Text(Some(rest.to_owned())),
    })
}

/// Client that caches what it reads until it is notified of a change.
#[derive(Default)]
struct Cache {
    values: BTreeMap<String, Option<String>>,
    /// Keys read by each open request.
    reads: VecDeque<Vec<String>>,
}

impl Cache {
    fn take(&mut self, output: &str) {
        let mut lines = output.split('|');
        while let Some(item) = item(&mut lines) {
            let values = match item {
                Item::Push(parts) => {
                    match &parts[1] {
                        Item::Many(keys) => keys.iter().for_each(|key| {
                            let Item::Text(Some(key)) = key else { panic!("{key:?}") };
                            self.values.remove(key);
                        }),
                        _ => self.values.clear(),
                    }
                    continue;
                }
                Item::Text(value) => vec![Item::Text(value)],
                Item::Many(values) => values,
            };
            let keys = self.reads.pop_front().expect("a reply to a request");
            for (key, value) in keys.into_iter().zip(values) {
                let Item::Text(value) = value else { panic!("{value:?}") };
                self.values.insert(key, value);
            }
        }
    }
}

fn random_request(random: &mut Random) -> (Vec<String>, Vec<String>) {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    let (key, other) = (*random.pick(&KEYS), *random.pick(&KEYS));
    let value = random.below(1000).to_string();
    let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match random.below(12) {
        0..=3 => (words(format!("GET {key}")), vec![key.to_owned()]),
        4 => (words(format!("MGET {key} {other}")), vec![key.to_owned(), other.to_owned()]),
        5 => (words(format!("DEL {key}")), Vec::new()),
        6 => (words(format!("RENAME {key} {other}")), Vec::new()),
        7 => (words("FLUSHALL".to_owned()), Vec::new()),
        8 => (words(format!("APPEND {key} {value}")), Vec::new()),
        _ => (words(format!("SET {key} {value}")), Vec::new()),
    }
}

#[test]
fn no_cache_is_stale_once_all_is_told() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut node = Node::memory();
        let clients: Vec<ConnectionId> = (0..3).map(|_| tracker(&mut node, "")).collect();
        let mut caches: Vec<Cache> = clients.iter().map(|_| Cache::default()).collect();
        for _ in 0..120 {
            let at = random.below(clients.len());
            if random.below(3) == 0 {
                let (words, reads) = random_request(&mut random);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                if random.below(4) == 0 {
                    for (words, reads) in [
                        (&["MULTI"][..], Vec::new()),
                        (&words, Vec::new()),
                        (&["EXEC"], if reads.len() == 1 { reads } else { Vec::new() }),
                    ] {
                        caches[at].reads.push_back(reads);
                        node.feed(clients[at], &request(words));
                    }
                } else {
                    caches[at].reads.push_back(reads);
                    node.feed(clients[at], &request(&words));
                }
            } else {
                node.step_randomly(&mut random);
            }
            if random.below(3) == 0 {
                let output = node.take(clients[at]);
                caches[at].take(&output);
            }
        }
        node.settle_randomly(&mut random);
        let plain = node.connect();
        for (client, cache) in clients.iter().zip(&mut caches) {
            let output = node.take(*client);
            cache.take(&output);
            for (key, cached) in &cache.values {
                let now = node.say(plain, &format!("GET {key}"));
                let expected = cached
                    .as_ref()
                    .map_or("$-1|".to_owned(), |cached| format!("${}|{cached}|", cached.len()));
                assert_eq!(now, expected, "seed {seed}, key {key}");
            }
        }
    }
}
