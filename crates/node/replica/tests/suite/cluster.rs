//! Whole clusters in one thread: clients see correct results, whatever nodes and messages do.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use quorate_core::{node_id::NodeId, record::Class, slot::Slot};
use quorate_replica::{
    front::{Failure, Requests, Sequenced, SessionId, Tag},
    pressure::Pressure,
    service::{CommandId, Imaged, LoadError, MetaChange, StateMachine},
    status::Snapshot,
    testing::{Cluster, Outcome},
};

/// Stores every command, and replies with its number. A query returns all commands.
#[derive(Default)]
struct Book {
    pages: Vec<Vec<u8>>,
    prefetched: VecDeque<Vec<u8>>,
    /// Items of the image that are still to be returned.
    image: Option<VecDeque<Vec<u8>>>,
    /// Number of pages at each commit.
    commits: Vec<usize>,
}

impl StateMachine for Book {
    fn prefetch(&mut self, commands: &mut dyn Iterator<Item = &[u8]>) {
        self.prefetched.extend(commands.map(<[u8]>::to_vec));
    }

    fn apply(&mut self, _id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        // Earlier prefetched commands already had their replies.
        while self.prefetched.pop_front().expect("it was prefetched") != command {}
        self.pages.push(command.to_vec());
        reply.extend_from_slice(self.pages.len().to_string().as_bytes());
    }

    fn query(&self, _query: &[u8], _wall_ms: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(&self.pages.join(&b' '));
    }

    fn commit(&mut self, _applied_to: Slot, _meta: &[MetaChange]) {
        self.commits.push(self.pages.len());
    }

    fn begin_image(&mut self) -> bool {
        self.image = Some(self.pages.clone().into());
        true
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let Some(image) = &mut self.image else {
            return Imaged::Failed;
        };
        let mut given = 0;
        while let Some(page) = image.pop_front() {
            each(&page);
            given += page.len();
            if given >= bytes {
                return Imaged::More;
            }
        }
        self.image = None;
        Imaged::End
    }

    fn end_image(&mut self) {
        self.image = None;
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        *self = Self::default();
        Ok(())
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        self.pages.push(item.to_vec());
        Ok(())
    }

    fn finish_load(&mut self, _: Slot, _: &[MetaChange]) -> Result<(), LoadError> {
        Ok(())
    }
}

const N1: NodeId = NodeId(1);

fn books(count: u32, class: Class, seed: u64) -> Cluster<Book> {
    Cluster::new(count, class, seed, |_| Book::default())
}

fn done(cluster: &mut Cluster<Book>, node: NodeId, tag: Tag) -> Outcome {
    assert!(cluster.run_until(10_000, |cluster| cluster.outcome(node, tag).is_some()));
    cluster.outcome(node, tag).unwrap().clone()
}

fn written(text: &str) -> Outcome {
    Outcome::Written(text.as_bytes().to_vec())
}

fn read(text: &str) -> Outcome {
    Outcome::Read(text.as_bytes().to_vec())
}

/// Returns the result of a snapshot requested by an operator.
#[track_caller]
fn snapshot(cluster: &mut Cluster<Book>, at: Option<Slot>) -> Result<Snapshot, String> {
    cluster.replica_mut(N1).snapshot_now(at);
    let mut answer = None;
    assert!(cluster.run_until(5_000, |cluster| {
        answer = cluster.replica_mut(N1).take_snapshot_answer();
        answer.is_some()
    }));
    answer.unwrap()
}

#[test]
fn a_snapshot_is_taken_when_it_is_asked_for() {
    let mut cluster = books(1, Class::Durable, 3);
    let refused = snapshot(&mut cluster, None).unwrap_err();
    assert_eq!(refused, "nothing is applied here yet");
    let tag = cluster.write(N1, b"one");
    assert_eq!(done(&mut cluster, N1, tag), written("1"));
    let applied_to = cluster.replica(N1).applied_to();
    let first = snapshot(&mut cluster, None).unwrap();
    assert_eq!(first.slot, applied_to);
    assert_eq!(cluster.replica(N1).snapshot(), Some(first));
    let taken = cluster.replica(N1).counters().snapshots_taken;
    let again = snapshot(&mut cluster, Some(first.slot)).unwrap();
    let now = cluster.replica(N1).counters().snapshots_taken;
    assert_eq!((again, now), (first, taken), "the same one");

    // A request must not wait for a slot that may never be reached.
    let tag = cluster.write(N1, b"two");
    assert_eq!(done(&mut cluster, N1, tag), written("2"));
    let applied_to = cluster.replica(N1).applied_to();
    let later = snapshot(&mut cluster, Some(Slot(1_000_000))).unwrap();
    assert_eq!(later.slot, applied_to);

    let tag = cluster.write(N1, b"three");
    assert_eq!(done(&mut cluster, N1, tag), written("3"));
    cluster.replica_mut(N1).stop(quorate_core::time::Time(0));
    let refused = snapshot(&mut cluster, None).unwrap_err();
    assert_eq!(refused, "this node stops");
}

#[test]
fn group_of_one_writes_and_reads() {
    for class in [Class::Durable, Class::Volatile] {
        let mut cluster = books(1, class, 1);
        let tag = cluster.write(N1, b"a");
        assert_eq!(done(&mut cluster, N1, tag), written("1"));
        let tags = [b"b", b"c"].map(|command| cluster.write(N1, command));
        assert_eq!(done(&mut cluster, N1, tags[1]), written("3"));
        let tag = cluster.read(N1, b"");
        assert_eq!(done(&mut cluster, N1, tag), read("a b c"));
    }
}

const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);
const NODES: [NodeId; 3] = [N1, N2, N3];

fn led(cluster: &mut Cluster<Book>) -> NodeId {
    assert!(cluster.run_until(10_000, |cluster| cluster.leader().is_some()), "no leader");
    cluster.leader().unwrap()
}

fn followers(leader: NodeId) -> [NodeId; 2] {
    let mut others = NODES.into_iter().filter(|node| *node != leader);
    [others.next().unwrap(), others.next().unwrap()]
}

/// Checks that all running nodes have the same applied state, including sessions.
fn level(cluster: &mut Cluster<Book>) -> Vec<String> {
    let state = |cluster: &Cluster<Book>, node| {
        let replica = cluster.replica(node);
        (replica.applied_to(), replica.service().pages.clone(), replica.sessions())
    };
    let running: Vec<_> = NODES.into_iter().filter(|node| cluster.runs(*node)).collect();
    let equal = |cluster: &mut Cluster<Book>| {
        let first = state(cluster, running[0]);
        let decided = cluster.replica(running[0]).node().decided_to();
        first.0 == decided && running.iter().all(|node| state(cluster, *node) == first)
    };
    assert!(cluster.run_until(20_000, equal), "nodes do not converge");
    let pages = state(cluster, running[0]).1;
    pages.iter().map(|page| String::from_utf8_lossy(page).into_owned()).collect()
}

#[test]
fn every_node_takes_writes_and_all_apply_the_same() {
    for class in [Class::Durable, Class::Volatile] {
        let mut cluster = books(3, class, 2);
        led(&mut cluster);
        let mut tags = Vec::new();
        for count in 0..300 {
            let node = NODES[count % 3];
            tags.push((node, cluster.write(node, format!("w{count}").as_bytes())));
            if count % 7 == 0 {
                cluster.run_ms(1);
            }
        }
        for (node, tag) in tags {
            assert!(matches!(done(&mut cluster, node, tag), Outcome::Written(_)));
        }
        let mut pages = level(&mut cluster);
        // Commands accepted by one node are executed in the order of acceptance.
        for node in 0..3 {
            let own = pages.iter().filter_map(|page| page[1..].parse::<usize>().ok());
            let own: Vec<_> = own.filter(|count| count % 3 == node).collect();
            assert!(own.is_sorted(), "{own:?}");
        }
        pages.sort();
        pages.dedup();
        assert_eq!(pages.len(), 300);
    }
}

/// [read-2] [read-3] On any node, a read sees every write acknowledged before it was requested.
#[test]
fn read_on_any_node_sees_every_acknowledged_write() {
    let mut cluster = books(3, Class::Durable, 3);
    led(&mut cluster);
    let mut expected = String::new();
    for count in 0..30 {
        let (writer, reader) = (NODES[count % 3], NODES[count / 3 % 3]);
        let page = format!("p{count}");
        let tag = cluster.write(writer, page.as_bytes());
        assert!(matches!(done(&mut cluster, writer, tag), Outcome::Written(_)));
        expected = if count == 0 { page } else { format!("{expected} {page}") };
        let tag = cluster.read(reader, b"");
        assert_eq!(done(&mut cluster, reader, tag), read(&expected));
    }
}

/// An in-order read sees the writes requested before it and none of those after it, although all
/// are sent together. It also sees writes that another node's client saw before the request.
#[test]
fn reads_run_between_the_writes_around_them() {
    for class in [Class::Durable, Class::Volatile] {
        let mut cluster = books(3, class, 5);
        let leader = led(&mut cluster);
        for node in NODES {
            let tags: Vec<_> = (0..50)
                .map(|n: usize| {
                    let page = format!("{node}.{n}");
                    (cluster.write(node, page.as_bytes()), cluster.read_in_order(node, b""))
                })
                .collect();
            let (mut sent, mut before) = (0, String::new());
            for (n, (write, look)) in tags.into_iter().enumerate() {
                assert!(matches!(done(&mut cluster, node, write), Outcome::Written(_)));
                let Outcome::Read(answer) = done(&mut cluster, node, look) else {
                    panic!("read {n} of node {node}");
                };
                let answer = String::from_utf8(answer).unwrap();
                assert!(answer.ends_with(&format!("{node}.{n}")), "{n}: {answer}");
                assert!(answer.starts_with(&before), "{n}: {answer}");
                before = answer;
                sent += 1;
            }
            assert_eq!(sent, 50);
        }
        let counters = cluster.replica(leader).counters();
        assert_eq!(counters.reads_in_order, 50);
        assert!(counters.batches_formed < 20, "{counters:?}");
    }
}

/// A batch in flight may already have a slot before writes that another client has seen since. A
/// read that is requested now must not run with that batch.
#[test]
fn read_in_order_does_not_join_a_batch_that_is_on_its_way() {
    let mut cluster = books(3, Class::Durable, 6);
    let leader = led(&mut cluster);
    let [slow, other] = followers(leader);
    let first = cluster.write(slow, b"first");
    done(&mut cluster, slow, first);
    // The follower's next batch is decided without the follower learning of it.
    let mine = cluster.write(slow, b"mine");
    let applied = |cluster: &Cluster<Book>| cluster.replica(leader).service().pages.len();
    assert!(cluster.run_until(1_000, |cluster| applied(cluster) == 2));
    assert!(cluster.outcome(slow, mine).is_none(), "it is not told yet");
    cluster.isolate(slow, true);
    let newer = cluster.write(other, b"newer");
    assert_eq!(done(&mut cluster, other, newer), written("3"));
    let look = cluster.read_in_order(slow, b"");
    cluster.isolate(slow, false);
    assert_eq!(done(&mut cluster, slow, look), read("first mine newer"));
}

/// A node that executes slowly ends its turn, so that peers get its messages, and continues later.
#[test]
fn a_turn_that_has_lasted_long_executes_no_more() {
    let mut cluster = books(3, Class::Durable, 9);
    let leader = led(&mut cluster);
    let [slow, _] = followers(leader);
    let mut catch_up = |is_slow| {
        let before = cluster.replica(leader).service().pages.len();
        cluster.isolate(slow, true);
        for _ in 0..20 {
            let tag = cluster.write(leader, b"page");
            done(&mut cluster, leader, tag);
        }
        cluster.set_slow(slow, is_slow);
        cluster.isolate(slow, false);
        let pages = |cluster: &Cluster<Book>| cluster.replica(slow).service().pages.len();
        assert!(cluster.run_until(5_000, |cluster| pages(cluster) == before + 20));
        let commits = &cluster.replica(slow).service().commits;
        let new = commits.iter().filter(|pages| **pages > before);
        new.count()
    };
    assert!(catch_up(false) < 20);
    assert_eq!(catch_up(true), 20, "one at a time");
    assert!(catch_up(false) < 20);
}

/// Without a quorum, an in-order read ends as "not executed" on any node, and never runs later.
#[test]
fn read_in_order_that_runs_out_of_time_was_not_executed() {
    let mut cluster = books(3, Class::Durable, 7);
    let leader = led(&mut cluster);
    let first = cluster.write(leader, b"first");
    done(&mut cluster, leader, first);
    cluster.isolate(leader, true);
    let sent = cluster.write(leader, b"sent");
    let look = cluster.read_in_order(leader, b"");
    cluster.run_ms(1);
    let alone = cluster.read_in_order(leader, b"");
    assert_eq!(done(&mut cluster, leader, sent), Outcome::Failed(Failure::Unknown));
    for tag in [look, alone] {
        assert_eq!(done(&mut cluster, leader, tag), Outcome::Failed(Failure::NoQuorum));
    }
    cluster.isolate(leader, false);
    let last = cluster.write(leader, b"last");
    assert_eq!(done(&mut cluster, leader, last), written("3"));
}

/// Reads whose commands were sent before them need no command to run: the batch is empty.
#[test]
fn read_in_order_without_commands_runs_in_an_empty_batch() {
    let mut cluster = books(3, Class::Durable, 8);
    let leader = led(&mut cluster);
    for node in NODES {
        let look = cluster.read_in_order(node, b"");
        assert_eq!(done(&mut cluster, node, look), read(""));
    }
    let page = cluster.write(leader, b"page");
    assert_eq!(done(&mut cluster, leader, page), written("1"));
}

/// Replies with as many bytes as the command states.
#[derive(Default)]
struct Verbose(u64);

impl StateMachine for Verbose {
    fn apply(&mut self, _id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.0 += 1;
        reply.resize(1000 * usize::from(command[0]), b'x');
    }

    fn query(&self, _query: &[u8], _wall_ms: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(&self.0.to_be_bytes());
    }
}

/// A batch is applied as a whole, however long the replies to its commands are. Replies that do not
/// fit are dropped and reported as unknown, except short ones.
#[test]
fn replies_of_one_batch_are_bounded() {
    let mut options = Cluster::<Verbose>::options(3, Class::Durable);
    options.limits.reply_bytes = 10_000;
    let mut cluster = Cluster::with_options(options, 9, |_| Verbose::default());
    for node in NODES {
        cluster.start(node);
    }
    assert!(cluster.run_until(10_000, |cluster| cluster.leader().is_some()));
    for node in NODES {
        let tags: Vec<_> = [4, 4, 4, 4, 0].map(|long| cluster.write(node, &[long])).to_vec();
        let all = |cluster: &mut Cluster<Verbose>| {
            tags.iter().all(|tag| cluster.outcome(node, *tag).is_some())
        };
        assert!(cluster.run_until(10_000, all));
        let lengths = tags.iter().map(|tag| match cluster.outcome(node, *tag) {
            Some(Outcome::Written(reply)) => Some(reply.len()),
            Some(Outcome::Failed(Failure::Unknown)) => None,
            other => panic!("{other:?}"),
        });
        let lengths: Vec<_> = lengths.collect();
        assert_eq!(lengths, [Some(4000), Some(4000), Some(4000), None, Some(0)]);
        assert_eq!(cluster.replica(node).counters().replies_dropped, 1);
    }
    let look = cluster.read(NODES[0], b"");
    let done = |cluster: &mut Cluster<Verbose>| cluster.outcome(NODES[0], look).is_some();
    assert!(cluster.run_until(10_000, done));
    let all = Outcome::Read(15u64.to_be_bytes().to_vec());
    assert_eq!(cluster.outcome(NODES[0], look), Some(&all), "all are executed");
}

/// [read-2] Many reads share one round of messages.
#[test]
fn many_reads_share_a_confirmation() {
    let mut cluster = books(3, Class::Durable, 4);
    let leader = led(&mut cluster);
    for node in NODES {
        let before = cluster.replica(node).counters().reads_confirmed;
        let tags: Vec<_> = (0..100).map(|_| cluster.read(node, b"")).collect();
        for tag in tags {
            assert_eq!(done(&mut cluster, node, tag), read(""));
        }
        let confirmed = cluster.replica(node).counters().reads_confirmed - before;
        assert!(confirmed <= 2, "node {node}, leader {leader}: {confirmed} rounds");
    }
}

/// Exactly once across a change of leader: commands accepted by a node that survives are executed
/// once and in order, even if some were lost with the old leader.
#[test]
fn leader_crash_loses_and_repeats_nothing_that_a_living_node_accepted() {
    for seed in 0..10 {
        let mut cluster = books(3, Class::Durable, seed);
        let leader = led(&mut cluster);
        let [one, other] = followers(leader);
        let mut tags = Vec::new();
        for count in 0..200 {
            let node = if count % 2 == 0 { one } else { other };
            tags.push((node, cluster.write(node, format!("w{count}").as_bytes())));
            if count % 20 == 0 {
                let pause = cluster.random_number() % 1000;
                let until = cluster.now().plus_us(pause);
                cluster.run_until(1, |cluster| cluster.now() >= until);
            }
            if count == 100 {
                cluster.crash(leader);
            }
        }
        for (node, tag) in tags {
            let outcome = done(&mut cluster, node, tag);
            assert!(matches!(outcome, Outcome::Written(_)), "seed {seed}: {outcome:?}");
        }
        cluster.start(leader);
        led(&mut cluster);
        let pages = level(&mut cluster);
        for parity in 0..2 {
            let own = pages.iter().map(|page| page[1..].parse::<usize>().unwrap());
            let own: Vec<_> = own.filter(|count| count % 2 == parity).collect();
            let expected: Vec<_> = (0..200).filter(|count| count % 2 == parity).collect();
            assert_eq!(own, expected, "seed {seed}");
        }
    }
}

/// Commands execute once and in order despite lost frames, crashed leaders and cut links.
#[test]
fn nothing_is_lost_or_repeated_in_a_bad_world() {
    for seed in 100..106 {
        let mut cluster = books(3, Class::Durable, seed);
        cluster.knobs.loss_per_mille = 50;
        cluster.knobs.delay_max_us = 3_000;
        led(&mut cluster);
        let mut acknowledged = Vec::new();
        let mut tags = Vec::new();
        for round in 0..12 {
            for count in 0..20 {
                let node = NODES[(cluster.random_number() % 3) as usize];
                if cluster.runs(node) {
                    let page = format!("{round}.{count}");
                    tags.push((node, cluster.write(node, page.as_bytes()), page));
                }
                cluster.run_ms(3);
            }
            let victim = NODES[(cluster.random_number() % 3) as usize];
            match cluster.random_number() % 3 {
                0 => {
                    cluster.crash(victim);
                    cluster.run_ms(150);
                    cluster.start(victim);
                }
                1 => {
                    cluster.isolate(victim, true);
                    cluster.run_ms(400);
                    cluster.isolate(victim, false);
                }
                _ => cluster.lose_in_flight(None),
            }
            let executed = |(node, tag, page): &(NodeId, Tag, String)| {
                let outcome = cluster.outcome(*node, *tag)?;
                matches!(outcome, Outcome::Written(_)).then(|| page.clone())
            };
            acknowledged.extend(tags.iter().filter_map(executed));
        }
        cluster.knobs.loss_per_mille = 0;
        led(&mut cluster);
        cluster.run_ms(6_000);
        let pages = level(&mut cluster);
        for page in &acknowledged {
            assert!(pages.contains(page), "seed {seed}: {page} was acknowledged and is lost");
        }
        let mut unique = pages.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), pages.len(), "seed {seed}: a command was executed twice");
        assert!(acknowledged.len() > 100, "seed {seed}: hardly anything was written");
    }
}

#[test]
fn restarted_nodes_replay_their_logs() {
    let mut cluster = books(3, Class::Durable, 5);
    led(&mut cluster);
    for count in 0..50 {
        let tag = cluster.write(N1, format!("w{count}").as_bytes());
        done(&mut cluster, N1, tag);
    }
    let before = level(&mut cluster);
    for node in NODES {
        cluster.crash(node);
    }
    for node in NODES {
        cluster.start(node);
    }
    led(&mut cluster);
    let tag = cluster.write(N2, b"after");
    assert_eq!(done(&mut cluster, N2, tag), written("51"));
    let after = level(&mut cluster);
    assert_eq!(after[..50], before);
    assert!(cluster.replica(N1).counters().applied_from_log > 0);
}

/// [catch-1] A node catches up from the memory of its peers, and from their logs.
#[test]
fn node_that_was_away_catches_up_with_bytes() {
    for recent_bytes in [1 << 20, 0] {
        let mut options = Cluster::<Book>::options(3, Class::Durable);
        options.limits.recent_bytes = recent_bytes;
        let mut cluster = Cluster::with_options(options, 6, |_| Book::default());
        for node in NODES {
            cluster.start(node);
        }
        let leader = led(&mut cluster);
        let [away, _] = followers(leader);
        cluster.crash(away);
        for count in 0..200 {
            let mut page = format!("w{count}").into_bytes();
            page.resize(2_000, b'.');
            let tag = cluster.write(leader, &page);
            done(&mut cluster, leader, tag);
        }
        let log_reads =
            |cluster: &Cluster<Book>| cluster.replica(leader).log().counters().read_count;
        let before = log_reads(&cluster);
        cluster.start(away);
        assert_eq!(level(&mut cluster).len(), 200);
        let from_log = log_reads(&cluster) > before;
        assert_eq!(from_log, recent_bytes == 0, "recent bytes {recent_bytes}");
    }
}

/// [value-4] A new leader may have to fetch values to propose again from nodes that voted.
#[test]
fn new_leader_fetches_the_bytes_that_it_lacks() {
    let mut fetched = 0;
    for seed in 0..30 {
        let mut cluster = books(3, Class::Durable, seed);
        let leader = led(&mut cluster);
        let [one, other] = followers(leader);
        let tag = cluster.write(one, b"a");
        done(&mut cluster, one, tag);
        cluster.set_cut(leader, other, true);
        let tag = cluster.write(one, b"b");
        // The proposal reaches one follower; later messages reach no node.
        let until = cluster.now().plus_us(250 + 10 * seed);
        cluster.run_until(1, |cluster| cluster.now() >= until);
        cluster.crash(leader);
        assert_eq!(done(&mut cluster, one, tag), written("2"), "seed {seed}");
        assert_eq!(level(&mut cluster), ["a", "b"], "seed {seed}");
        fetched += cluster.replica(other).counters().payloads_fetched;
    }
    assert!(fetched > 0, "the scenario never came about");
}

fn at(session: SessionId, sequence: u64, acknowledged_below: u64) -> Sequenced {
    Sequenced { session, sequence, acknowledged_below }
}

fn session(cluster: &mut Cluster<Book>, node: NodeId) -> SessionId {
    let tag = cluster.register(node);
    match done(cluster, node, tag) {
        Outcome::Registered(session) => session,
        other => panic!("{other:?}"),
    }
}

/// [session-1] [session-2] A repeated command gets its stored reply anywhere, after restarts.
#[test]
fn repeated_command_of_a_session_gets_its_stored_reply() {
    let mut cluster = books(3, Class::Durable, 7);
    led(&mut cluster);
    let session = session(&mut cluster, N1);
    let once = |cluster: &mut Cluster<Book>, node, place| {
        let tag = cluster.write_once(node, place, b"x");
        done(cluster, node, tag)
    };
    assert_eq!(once(&mut cluster, N1, at(session, 1, 0)), written("1"));
    assert_eq!(once(&mut cluster, N2, at(session, 1, 0)), written("1"));
    assert_eq!(once(&mut cluster, N3, at(session, 3, 0)), written("2"));
    level(&mut cluster);
    for node in NODES {
        cluster.crash(node);
        cluster.start(node);
    }
    led(&mut cluster);
    assert_eq!(once(&mut cluster, N2, at(session, 3, 0)), written("2"));
    assert_eq!(once(&mut cluster, N2, at(session, 2, 2)), written("3"));
    let forgotten = Outcome::Failed(Failure::ReplyForgotten);
    assert_eq!(once(&mut cluster, N3, at(session, 1, 0)), forgotten);
    let full = Outcome::Failed(Failure::SessionFull);
    assert_eq!(once(&mut cluster, N3, at(session, 70, 0)), full);
    let never_opened = SessionId { slot: session.slot + 1, index: 0 };
    let unknown = Outcome::Failed(Failure::NoSession);
    assert_eq!(once(&mut cluster, N3, at(never_opened, 1, 0)), unknown);
    assert_eq!(level(&mut cluster), ["x", "x", "x"]);
}

#[test]
fn request_without_a_quorum_fails_and_says_whether_it_left() {
    let mut cluster = books(3, Class::Durable, 8);
    let leader = led(&mut cluster);
    let tag = cluster.write(leader, b"a");
    done(&mut cluster, leader, tag);
    for node in followers(leader) {
        cluster.crash(node);
    }
    // The leader proposes this before it notices that it is alone.
    let left = cluster.write(leader, b"b");
    cluster.run_ms(1_000);
    let stayed = cluster.write(leader, b"c");
    let registered = cluster.register(leader);
    let asked = cluster.read(leader, b"");
    assert_eq!(done(&mut cluster, leader, left), Outcome::Failed(Failure::Unknown));
    for tag in [stayed, registered, asked] {
        assert_eq!(done(&mut cluster, leader, tag), Outcome::Failed(Failure::NoQuorum));
    }
    for node in followers(leader) {
        cluster.start(node);
    }
    led(&mut cluster);
    let pages = level(&mut cluster);
    assert!(!pages.contains(&"c".to_owned()), "never left, never executed: {pages:?}");
}

/// Starts a cluster whose nodes queue few commands before a batch, and returns its leader.
fn cramped() -> (Cluster<Book>, NodeId) {
    let mut options = Cluster::<Book>::options(3, Class::Durable);
    options.limits.pending_bytes = 100_000;
    options.command_bytes_max = 10_000;
    let mut cluster = Cluster::with_options(options, 9, |_| Book::default());
    for node in NODES {
        cluster.start(node);
    }
    let leader = led(&mut cluster);
    (cluster, leader)
}

/// A node that can make progress stops clients long before it refuses requests.
#[test]
fn pressure_rises_before_anything_is_refused_and_ends() {
    let (mut cluster, leader) = cramped();
    let mut last = Tag(0);
    let mut writes = 0;
    while cluster.replica(leader).pressure() != Pressure::High {
        last = cluster.write(leader, &[b'x'; 5_000]);
        writes += 1;
    }
    assert_eq!(writes, 1 + 50_000 / 5_069, "half of what is accepted");
    assert_eq!(cluster.outcome(leader, last), None, "not refused");
    assert!(matches!(done(&mut cluster, leader, last), Outcome::Written(_)));
    assert_eq!(cluster.replica(leader).pressure(), Pressure::Low);

    let [follower, _] = followers(leader);
    cluster.isolate(follower, true);
    assert!(
        cluster
            .run_until(10_000, |cluster| { cluster.replica(follower).node().leader().is_none() })
    );
    for _ in 0..writes {
        cluster.write(follower, &[b'x'; 5_000]);
    }
    let pressure = cluster.replica(follower).pressure();
    assert_eq!(pressure, Pressure::Low, "errors are to be told in time");
}

/// Under overload, memory is bounded and clients get errors until the other nodes return.
#[test]
fn overload_is_busy_and_bounded() {
    let (mut cluster, leader) = cramped();
    let [follower, _] = followers(leader);
    cluster.isolate(follower, true);
    let tags: Vec<_> = (0..100).map(|_| cluster.write(follower, &[b'x'; 5_000])).collect();
    let busy =
        |tag: &&Tag| cluster.outcome(follower, **tag) == Some(&Outcome::Failed(Failure::Busy));
    assert_eq!(tags.iter().filter(busy).count(), 100 - 100_000 / 5_069);
    let tag = cluster.write(follower, &[b'x'; 10_001]);
    assert_eq!(done(&mut cluster, follower, tag), Outcome::Failed(Failure::TooBig));
    cluster.isolate(follower, false);
    assert!(matches!(done(&mut cluster, follower, tags[0]), Outcome::Written(_)));
    level(&mut cluster);
}

/// One slow disk and one full buffer do not slow the others down ([p2-5], [live-3]).
#[test]
fn group_goes_on_without_one_of_its_disks() {
    let mut cluster = books(3, Class::Durable, 10);
    let leader = led(&mut cluster);
    let tag = cluster.write(leader, b"a");
    done(&mut cluster, leader, tag);
    let [broken, _] = followers(leader);
    cluster.disk(broken).inject(quorate_log::disk::Fault::WriteFails);
    assert!(!cluster.replica(broken).has_log_failed());
    for count in 0..20 {
        let tag = cluster.write(leader, format!("w{count}").as_bytes());
        assert!(matches!(done(&mut cluster, leader, tag), Outcome::Written(_)));
    }
    assert!(cluster.run_until(1_000, |cluster| cluster.replica(broken).error().is_some()));
    assert!(cluster.replica(broken).has_log_failed());
    // [disk-9] The node shows its state and accepts no requests.
    let tag = cluster.write(broken, b"refused");
    assert_eq!(done(&mut cluster, broken, tag), Outcome::Failed(Failure::Voteless));
    let now = cluster.now();
    let mut pages = Vec::new();
    cluster.replica_mut(broken).requests(now, 0).query(b"", &mut pages).unwrap();
    assert!(pages.starts_with(b"a"));
    let status = cluster.replica(broken).status(cluster.now());
    assert!(status.error.unwrap().contains("log failed"));
    // The leader's disk fails next: the group stops, and acknowledges nothing.
    cluster.disk(leader).inject(quorate_log::disk::Fault::FlushFails);
    let tag = cluster.write(leader, b"lost");
    assert_eq!(done(&mut cluster, leader, tag), Outcome::Failed(Failure::Unknown));
}

/// [volatile-4] A clean stop finishes the accepted requests and hands leadership over.
#[test]
fn clean_stop_finishes_what_was_accepted_and_hands_over() {
    let mut cluster = books(3, Class::Volatile, 11);
    let leader = led(&mut cluster);
    let tag = cluster.write(leader, b"last");
    let now = cluster.now();
    cluster.replica_mut(leader).stop(now);
    let refused = cluster.write(leader, b"late");
    assert_eq!(cluster.outcome(leader, refused), Some(&Outcome::Failed(Failure::Stopping)));
    assert!(cluster.run_until(1_000, |cluster| cluster.replica(leader).is_stopped()));
    assert!(cluster.replica(leader).stopped_cleanly());
    assert_eq!(cluster.outcome(leader, tag), Some(&written("1")));
    // Without the handover they would first have to wait for an election timeout.
    let [one, other] = followers(leader);
    let handed = |cluster: &mut Cluster<Book>| {
        let next = cluster.replica(one).node().leader();
        next == Some(one) || next == Some(other)
    };
    assert!(cluster.run_until(50, handed));
    let voted = cluster.replica(leader).node().hard_state();
    let tag = cluster.write(one, b"next");
    assert_eq!(done(&mut cluster, one, tag), written("2"));
    cluster.run_ms(50);
    let after = cluster.replica(leader).node().hard_state();
    assert_eq!(after, voted, "no promise and no vote after the last record");
    cluster.crash(leader);
    cluster.start(leader);
    assert_eq!(level(&mut cluster), ["last", "next"]);
}

/// A handover may take longer than an election timeout: here the next leader's disk is slow.
#[test]
fn clean_stop_waits_for_a_slow_heir() {
    let mut cluster = books(3, Class::Durable, 14);
    let leader = led(&mut cluster);
    cluster.knobs.disk_us = 200_000;
    let now = cluster.now();
    cluster.replica_mut(leader).stop(now);
    assert!(cluster.run_until(8_000, |cluster| cluster.replica(leader).is_stopped()));
    let heirs = followers(leader).map(|node| cluster.replica(node).node().leader());
    assert!(heirs.iter().flatten().any(|heir| *heir != leader), "it did not wait");
}

/// A clean stop ends even if no connected peer answers.
#[test]
fn clean_stop_ends_without_an_heir() {
    let mut cluster = books(3, Class::Durable, 15);
    let leader = led(&mut cluster);
    cluster.knobs.loss_per_mille = 1000;
    let now = cluster.now();
    cluster.replica_mut(leader).stop(now);
    assert!(cluster.run_until(5_500, |cluster| cluster.replica(leader).is_stopped()));
    assert!(cluster.replica(leader).stopped_cleanly());
}

#[test]
fn leadership_moves_where_it_is_told() {
    let mut cluster = books(3, Class::Durable, 12);
    let leader = led(&mut cluster);
    let [target, _] = followers(leader);
    let now = cluster.now();
    cluster.replica_mut(leader).transfer(now, Some(target));
    assert!(cluster.run_until(1_000, |cluster| cluster.leader() == Some(target)));
    assert_eq!(cluster.replica_mut(leader).take_transfer_result(), Some(Ok(target)));
}

/// [volatile-1] [class-4] A node that forgot its votes returns as a learner, and reports it.
#[test]
fn node_that_forgot_its_votes_learns_and_says_so() {
    let mut cluster = books(3, Class::Volatile, 13);
    let leader = led(&mut cluster);
    let tag = cluster.write(leader, b"a");
    done(&mut cluster, leader, tag);
    let [forgetful, _] = followers(leader);
    cluster.crash(forgetful);
    cluster.forget_votes(forgetful);
    cluster.start(forgetful);
    assert_eq!(level(&mut cluster), ["a"]);
    let status = cluster.replica(forgetful).status(cluster.now());
    assert_eq!(status.role, quorate_core::effect::Role::Learner);
    assert!(status.error.unwrap().contains("without a vote"));
    let tag = cluster.write(forgetful, b"b");
    assert_eq!(done(&mut cluster, forgetful, tag), written("2"));
}

/// State of a persistent service, committed as one unit.
#[derive(Default)]
struct StoredState {
    pages: Vec<Vec<u8>>,
    applied_to: Slot,
    meta: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A book that survives crashes up to its last commit.
struct Chronicle {
    book: Book,
    stored: Rc<RefCell<StoredState>>,
    executed: Rc<RefCell<u64>>,
}

impl StateMachine for Chronicle {
    fn prefetch(&mut self, commands: &mut dyn Iterator<Item = &[u8]>) {
        self.book.prefetch(commands);
    }

    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        *self.executed.borrow_mut() += 1;
        self.book.apply(id, command, reply);
    }

    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>) {
        self.book.query(query, wall_ms, reply);
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        let mut kept = self.stored.borrow_mut();
        kept.applied_to = applied_to;
        kept.pages = self.book.pages.clone();
        for MetaChange { key, value } in meta {
            match value {
                Some(value) => drop(kept.meta.insert(key.clone(), value.clone())),
                None => drop(kept.meta.remove(key)),
            }
        }
    }

    fn recovered(&mut self) -> (Slot, Vec<(Vec<u8>, Vec<u8>)>) {
        let kept = self.stored.borrow();
        self.book.pages = kept.pages.clone();
        (kept.applied_to, kept.meta.clone().into_iter().collect())
    }

    fn begin_image(&mut self) -> bool {
        self.book.begin_image()
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        self.book.next_image(bytes, each)
    }

    fn end_image(&mut self) {
        self.book.end_image();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.book.begin_load()
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        self.book.load(item)
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        self.stored.borrow_mut().meta.clear();
        self.commit(at, meta);
        Ok(())
    }

    fn synced_to(&mut self) -> Option<Slot> {
        Some(self.stored.borrow().applied_to)
    }
}

/// Sessions are stored with the data: after a restart nothing is executed again, and a repeated
/// command still gets its reply.
#[test]
fn persistent_service_goes_on_where_it_was() {
    let (kept, executed) = (Rc::<RefCell<StoredState>>::default(), Rc::<RefCell<u64>>::default());
    let (k, e) = (Rc::clone(&kept), Rc::clone(&executed));
    let mut cluster = Cluster::new(1, Class::Durable, 14, move |_| Chronicle {
        book: Book::default(),
        stored: Rc::clone(&k),
        executed: Rc::clone(&e),
    });
    let finish = |cluster: &mut Cluster<Chronicle>, tag| {
        assert!(cluster.run_until(10_000, |cluster| cluster.outcome(N1, tag).is_some()));
        cluster.outcome(N1, tag).unwrap().clone()
    };
    let tag = cluster.register(N1);
    let Outcome::Registered(session) = finish(&mut cluster, tag) else { panic!("no session") };
    let tag = cluster.write_once(N1, at(session, 1, 0), b"x");
    assert_eq!(finish(&mut cluster, tag), written("1"));
    for count in 0..20 {
        let tag = cluster.write(N1, format!("{count}").as_bytes());
        finish(&mut cluster, tag);
    }
    for _ in 0..3 {
        cluster.crash(N1);
        cluster.start(N1);
        let tag = cluster.write_once(N1, at(session, 1, 0), b"x");
        assert_eq!(finish(&mut cluster, tag), written("1"));
    }
    assert_eq!(*executed.borrow(), 21);
    assert_eq!(kept.borrow().pages.len(), 21);
    assert_eq!(cluster.replica(N1).applied_to(), kept.borrow().applied_to);
}

/// Proposes one command each time the replica asks for due work.
#[derive(Default)]
struct Clockwork {
    book: Book,
}

impl StateMachine for Clockwork {
    fn prefetch(&mut self, commands: &mut dyn Iterator<Item = &[u8]>) {
        self.book.prefetch(commands);
    }

    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.book.apply(id, command, reply);
    }

    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>) {
        self.book.query(query, wall_ms, reply);
    }

    fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        each(format!("tick{}", self.book.pages.len()).as_bytes());
    }
}

/// [session-3] The leader proposes due work through the log, each command once.
#[test]
fn what_is_due_is_proposed_once_by_the_leader() {
    let mut cluster = Cluster::new(3, Class::Durable, 15, |_| Clockwork::default());
    let enough = |cluster: &mut Cluster<Clockwork>| {
        let pages = |node| cluster.replica(node).service().book.pages.len();
        NODES.into_iter().all(|node| pages(node) >= 20)
    };
    assert!(cluster.run_until(5_000, enough));
    for node in NODES {
        let pages = &cluster.replica(node).service().book.pages;
        for (count, page) in pages.iter().enumerate() {
            assert_eq!(String::from_utf8_lossy(page), format!("tick{count}"));
        }
        let accepted = cluster.replica(node).counters().batches_formed;
        assert_eq!(accepted > 0, cluster.leader() == Some(node));
    }
}

/// [disk-8] Bits in the middle of a log are damaged; the decided values are fetched from peers.
#[test]
fn damaged_log_is_repaired_from_peers() {
    let mut options = Cluster::<Book>::options(3, Class::Durable);
    options.limits.recent_bytes = 0;
    let mut cluster = Cluster::with_options(options, 16, |_| Book::default());
    for node in NODES {
        cluster.start(node);
    }
    led(&mut cluster);
    for count in 0..200 {
        let tag = cluster.write(N1, format!("w{count}").as_bytes());
        done(&mut cluster, N1, tag);
    }
    let before = level(&mut cluster);
    cluster.crash(N2);
    let blocks = cluster.disk(N2).written_blocks();
    assert!(cluster.disk(N2).flip_bit(blocks[blocks.len() / 2], 1_000));
    cluster.start(N2);
    let error = cluster.replica(N2).error().unwrap();
    assert!(error.starts_with("the log has lost the value of slot"), "{error}");
    assert_eq!(level(&mut cluster), before);
    assert_eq!(cluster.replica(N2).error(), None);
    // The repaired values are in the log, so the next start needs no peers.
    cluster.run_ms(10);
    cluster.crash(N2);
    cluster.isolate(N2, true);
    cluster.start(N2);
    // [disk-3] The log's decided position is a lower bound; the last slots may have votes.
    let replayed = |cluster: &mut Cluster<Book>| cluster.replica(N2).service().pages.len() >= 190;
    assert!(cluster.run_until(5_000, replayed));
}

/// Makes a leader decide a value that the others only voted for, lead in another ballot, and lose
/// the value from its log. Returns `None` if it was not elected again.
fn decided_by_the_leader_alone_and_lost(seed: u64) -> Option<(Cluster<Book>, NodeId)> {
    let mut options = Cluster::<Book>::options(3, Class::Durable);
    options.limits.recent_bytes = 0;
    let mut cluster = Cluster::with_options(options, seed, |_| Book::default());
    for node in NODES {
        cluster.start(node);
    }
    let leader = led(&mut cluster);
    let [one, other] = followers(leader);
    let tag = cluster.write(leader, b"first");
    done(&mut cluster, leader, tag);
    level(&mut cluster);
    let (blocks, decided_to) =
        (cluster.disk(leader).written_blocks(), cluster.replica(leader).node().decided_to());
    cluster.write(leader, b"lost");
    assert!(
        cluster.run_until(1_000, |cluster| {
            cluster.replica(leader).node().decided_to() > decided_to
        })
    );
    cluster.isolate(leader, true);
    cluster.lose_in_flight(None);
    cluster.set_cut(one, other, true);
    let mut lost = cluster.disk(leader).written_blocks();
    lost.retain(|block| !blocks.contains(block));
    // The next record states that the value is decided.
    cluster.write(leader, b"undecided");
    cluster.run_ms(20);
    cluster.kill(leader);
    cluster.start(leader);
    let replayed = |cluster: &mut Cluster<Book>| cluster.replica(leader).service().pages.len() == 2;
    assert!(cluster.run_until(1_000, replayed));
    for block in lost {
        assert!(cluster.disk(leader).flip_bit(block, 1_000));
    }
    cluster.set_cut(leader, one, false);
    cluster.set_cut(leader, other, false);
    led(&mut cluster);
    let again = cluster.leader() == Some(leader) && cluster.replica(leader).error().is_none();
    again.then_some((cluster, leader))
}

/// [disk-8] [decide-2] The followers wait for a value that the leader lost and no other node
/// decided. The leader steps down, the others decide it anew, and the former leader gets it.
#[test]
fn what_the_leader_alone_decided_and_lost_is_decided_anew() {
    let (mut cluster, leader) = (0..100)
        .find_map(decided_by_the_leader_alone_and_lost)
        .expect("it leads again in one of them");
    let lost = |cluster: &mut Cluster<Book>| cluster.replica(leader).first_lost_slot().is_some();
    assert!(cluster.run_until(1_000, lost), "{:?}", cluster.leader());
    let [one, other] = followers(leader);
    cluster.set_cut(one, other, false);
    let pages = level(&mut cluster);
    assert_eq!(pages[..2], ["first", "lost"]);
    assert_ne!(cluster.leader(), Some(leader));
    let whole = |cluster: &mut Cluster<Book>| cluster.replica(leader).error().is_none();
    assert!(cluster.run_until(2_000, whole));
}

/// [ballot-1] A node that has used up its rounds, over all incarnations, reports that it never
/// leads.
#[test]
fn node_out_of_rounds_says_that_it_never_leads() {
    let mut cluster = books(3, Class::Volatile, 17);
    led(&mut cluster);
    cluster.crash(N2);
    for _ in 0..4096 {
        cluster.forget_votes(N2);
    }
    cluster.start(N2);
    let error = cluster.replica(N2).error().unwrap();
    assert!(error.contains("4096 times"), "{error}");
}

/// A service that is not deterministic: its state and its replies differ on one node.
struct Odd {
    count: u64,
    step: u64,
}

impl StateMachine for Odd {
    fn apply(&mut self, _id: CommandId, _command: &[u8], reply: &mut Vec<u8>) {
        self.count += self.step;
        reply.extend_from_slice(self.count.to_string().as_bytes());
    }

    fn query(&self, _query: &[u8], _wall_ms: u64, _reply: &mut Vec<u8>) {}
}

/// Nodes send each other their applied state. A node that has diverged is detected by both sides,
/// and nodes that agree raise no alarm about each other.
#[test]
fn different_histories_are_found() {
    let differs = |cluster: &Cluster<Odd>, node| cluster.replica(node).counters().alarms > 0;
    for odd in [None, Some(N2)] {
        let step = move |node| if Some(node) == odd { 2 } else { 1 };
        let make = move |node| Odd { count: 0, step: step(node) };
        let mut cluster = Cluster::new(3, Class::Durable, 18, make);
        let tag = cluster.write(N1, b"x");
        assert!(cluster.run_until(10_000, |cluster| cluster.outcome(N1, tag).is_some()));
        if odd.is_some() {
            let all = |cluster: &mut Cluster<Odd>| NODES.into_iter().all(|n| differs(cluster, n));
            assert!(cluster.run_until(5_000, all), "no node noticed");
            for node in NODES {
                let alarms = cluster.replica(node).counters().alarms;
                assert_eq!(alarms, if node == N2 { 2 } else { 1 }, "once for each peer");
            }
            cluster.run_ms(2_000);
            let doubted = NODES.into_iter().filter(|node| cluster.replica(*node).is_in_doubt());
            assert_eq!(doubted.collect::<Vec<_>>(), [N2], "the others are a majority");
        } else {
            cluster.run_ms(5_000);
            assert!(NODES.into_iter().all(|node| !differs(&cluster, node)));
        }
    }
}
