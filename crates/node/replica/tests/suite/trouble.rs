//! Services that cannot work for a while or lose their state, and their nodes' reaction.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use quorate_core::{node_id::NodeId, record::Class, slot::Slot};
use quorate_replica::{
    ProbeOutcome,
    events::Event,
    front::{Failure, Requests, Sequenced, Tag},
    group::{
        MemberRole,
        asking::{GroupAnswer, GroupRequest},
    },
    service::{CommandId, Health, MetaChange, StateMachine},
    testing::{Cluster, Outcome},
};

/// Handle with which a test controls and observes a service.
#[derive(Default)]
struct Strings {
    stuck: bool,
    down: bool,
    /// The service's writes are behind.
    behind: bool,
    /// The next command gets a different reply than on other nodes.
    errs: bool,
    /// The next command fails, and the uncommitted state is lost.
    loses: bool,
    /// Like `loses`, at this word.
    loses_at: Option<&'static str>,
    /// The next query fails.
    misreads: bool,
    /// The service fails while it returns its position.
    stumbles: bool,
    /// Number of commands that the service was asked to execute.
    applied: u64,
    queried: u64,
}

/// Stores words; on a failure it loses everything except the state of its last commit.
struct Puppet {
    words: Vec<String>,
    /// Words that no front has been told of.
    notices: Vec<String>,
    lost: RefCell<bool>,
    strings: Rc<RefCell<Strings>>,
}

impl StateMachine for Puppet {
    fn apply(&mut self, _: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        assert!(!*self.lost.borrow(), "asked before it is back");
        let mut strings = self.strings.borrow_mut();
        strings.applied += 1;
        let word = String::from_utf8(command.to_vec()).unwrap();
        let at = strings.loses_at.take_if(|at| *at == word);
        if std::mem::take(&mut strings.loses) || at.is_some() {
            *self.lost.borrow_mut() = true;
        }
        self.notices.push(word.clone());
        self.words.push(word);
        reply.extend_from_slice(self.words.len().to_string().as_bytes());
        if std::mem::take(&mut strings.errs) {
            reply.push(b'!');
        }
    }

    fn take_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        self.notices.drain(..).for_each(|word| each(b"", word.as_bytes()));
    }

    fn query(&self, _: &[u8], _: u64, reply: &mut Vec<u8>) {
        let mut strings = self.strings.borrow_mut();
        strings.queried += 1;
        if std::mem::take(&mut strings.misreads) {
            *self.lost.borrow_mut() = true;
            reply.extend_from_slice(b"half of an ans");
            return;
        }
        reply.extend_from_slice(self.words.join(" ").as_bytes());
    }

    fn commit(&mut self, _: Slot, _: &[MetaChange]) {
        assert!(!*self.lost.borrow(), "what counts for nothing is not committed");
    }

    fn health(&mut self) -> Health {
        let strings = self.strings.borrow();
        let lost = *self.lost.borrow();
        if strings.down {
            *self.lost.borrow_mut() = true;
            return Health::Down("it is gone".into());
        }
        if lost {
            self.words.clear();
            *self.lost.borrow_mut() = false;
            return Health::Back(Some("with nothing".into()));
        }
        match strings.stuck {
            true => Health::Stuck("it is full".into()),
            false if strings.behind => Health::Behind,
            false => Health::Well,
        }
    }

    fn recovered(&mut self) -> (Slot, Vec<(Vec<u8>, Vec<u8>)>) {
        if std::mem::take(&mut self.strings.borrow_mut().stumbles) {
            *self.lost.borrow_mut() = true;
            return (Slot(7), vec![(b"half".to_vec(), b"read".to_vec())]);
        }
        (Slot::FIRST, Vec::new())
    }

    fn has_failed(&self) -> bool {
        *self.lost.borrow()
    }
}

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

struct Stage {
    cluster: Cluster<Puppet>,
    strings: BTreeMap<NodeId, Rc<RefCell<Strings>>>,
}

impl Stage {
    fn new(nodes: u32, seed: u64) -> Self {
        // So few that entries waiting for a service would soon block votes.
        Self::with_entries(nodes, seed, 16)
    }

    fn with_entries(nodes: u32, seed: u64, decided_entries: usize) -> Self {
        let strings: BTreeMap<NodeId, Rc<RefCell<Strings>>> =
            (1..=nodes).map(|node| (NodeId(node), Rc::default())).collect();
        let given = strings.clone();
        let mut options = Cluster::<Puppet>::options(nodes, Class::Durable);
        options.client_timeout_ms = 300;
        options.limits.decided_entries = decided_entries;
        options.limits.payload_bytes = 4 << 10;
        options.limits.recent_bytes = 1 << 10;
        options.limits.log_read_bytes = 1 << 10;
        options.command_bytes_max = 1 << 10;
        let mut cluster = Cluster::with_options(options, seed, move |node| Puppet {
            words: Vec::new(),
            notices: Vec::new(),
            lost: RefCell::new(false),
            strings: Rc::clone(&given[&node]),
        });
        for node in strings.keys() {
            cluster.start(*node);
        }
        assert!(cluster.run_until(10_000, |cluster| cluster.leader().is_some()));
        Self { cluster, strings }
    }

    fn pull(&self, node: NodeId, change: impl FnOnce(&mut Strings)) {
        change(&mut self.strings[&node].borrow_mut());
    }

    fn end(&mut self, node: NodeId, tag: Tag) -> Outcome {
        let ended = |cluster: &mut Cluster<Puppet>| cluster.outcome(node, tag).is_some();
        assert!(self.cluster.run_until(10_000, ended));
        self.cluster.outcome(node, tag).unwrap().clone()
    }

    fn write(&mut self, node: NodeId, word: &str) -> Outcome {
        let tag = self.cluster.write(node, word.as_bytes());
        self.end(node, tag)
    }

    fn read(&mut self, node: NodeId) -> Outcome {
        let tag = self.cluster.read(node, b"");
        self.end(node, tag)
    }

    /// Queries this node's own state, however old it is.
    fn query_state(&mut self, node: NodeId) -> Result<String, Failure> {
        let now = self.cluster.now();
        let mut reply = b"before ".to_vec();
        let asked = self.cluster.replica_mut(node).requests(now, 0).query(b"", &mut reply);
        let text = String::from_utf8(reply).unwrap();
        let text = text.strip_prefix("before ").unwrap().to_owned();
        assert!(asked.is_ok() || text.is_empty(), "{text}");
        asked.map(|()| text)
    }

    fn level(&mut self) {
        let level = |cluster: &mut Cluster<Puppet>| {
            let nodes: Vec<NodeId> =
                [N1, N2, N3].into_iter().filter(|n| cluster.runs(*n)).collect();
            let at = |node: &NodeId| cluster.replica(*node).applied_to();
            let well = nodes.iter().all(|node| cluster.replica(*node).error().is_none());
            well && nodes.iter().all(|node| at(node) == at(&nodes[0]))
        };
        assert!(self.cluster.run_until(20_000, level));
        let words = self.cluster.replica(N1).service().words.clone();
        for node in [N2, N3] {
            assert_eq!(self.cluster.replica(node).service().words, words);
        }
    }

    /// Returns the events of this node's service for operators.
    fn news(&mut self, node: NodeId) -> Vec<Event> {
        let replica = self.cluster.replica_mut(node);
        let events = std::iter::from_fn(|| replica.next_event());
        let of_service = |event: &Event| {
            matches!(
                event,
                Event::ServiceTrouble { .. }
                    | Event::ServiceRecovered
                    | Event::ServiceRestarted { .. }
            )
        };
        events.filter(of_service).collect()
    }

    fn probe(&mut self, node: NodeId) -> ProbeOutcome {
        let now = self.cluster.now();
        self.cluster.replica_mut(node).start_probe(now);
        let mut probed = None;
        let ended = |cluster: &mut Cluster<Puppet>| {
            probed = probed.or(cluster.replica_mut(node).take_probe());
            probed.is_some()
        };
        assert!(self.cluster.run_until(10_000, ended));
        probed.unwrap()
    }
}

fn unavailable() -> Outcome {
    Outcome::Failed(Failure::Unavailable)
}

#[test]
fn stuck_service_takes_nothing_answers_and_its_node_votes() {
    let mut stage = Stage::new(3, 1);
    assert!(matches!(stage.write(N1, "a"), Outcome::Written(_)));
    stage.level();
    stage.pull(N3, |strings| strings.stuck = true);
    stage.cluster.run_ms(20);
    assert_eq!(stage.write(N3, "refused"), unavailable());
    assert_eq!(stage.query_state(N3), Ok("a".into()));
    assert_eq!(stage.probe(N3), ProbeOutcome::Unavailable);
    let applied = stage.strings[&N3].borrow().applied;
    // Without its votes nothing would be decided, and far more waits than a queue holds.
    stage.cluster.crash(N1);
    let led = |cluster: &mut Cluster<Puppet>| cluster.leader().is_some_and(|leader| leader != N1);
    assert!(stage.cluster.run_until(10_000, led));
    for number in 0..100 {
        let word = format!("{number}{}", "-".repeat(200));
        assert!(matches!(stage.write(N2, &word), Outcome::Written(_)), "{number}");
    }
    assert_eq!(stage.strings[&N3].borrow().applied, applied, "it was asked all the same");
    assert_eq!(stage.query_state(N3), Ok("a".into()));
    // A read that sees the writes of others has to wait until the service has executed them.
    assert_eq!(stage.read(N3), Outcome::Failed(Failure::NoQuorum));
    stage.cluster.start(N1);
    stage.pull(N3, |strings| strings.stuck = false);
    stage.level();
    assert!(matches!(stage.write(N3, "taken"), Outcome::Written(_)));
    let trouble = Event::ServiceTrouble { why: "it is full".into() };
    assert_eq!(stage.news(N3), [trouble, Event::ServiceRecovered]);
}

#[test]
fn service_that_is_down_is_asked_nothing() {
    let mut stage = Stage::new(3, 2);
    assert!(matches!(stage.write(N3, "a"), Outcome::Written(_)));
    stage.level();
    // The read was requested in time, but must not be answered later from the lost state.
    let waiting = stage.cluster.read(N3, b"");
    stage.pull(N3, |strings| strings.down = true);
    let queried = stage.strings[&N3].borrow().queried;
    assert_eq!(stage.end(N3, waiting), Outcome::Failed(Failure::NoQuorum));
    assert_eq!(stage.write(N3, "b"), unavailable());
    assert_eq!(stage.read(N3), unavailable());
    assert_eq!(stage.query_state(N3), Err(Failure::Unavailable));
    assert_eq!(stage.strings[&N3].borrow().queried, queried);
    assert!(matches!(stage.write(N1, "b"), Outcome::Written(_)));
    stage.pull(N3, |strings| strings.down = false);
    stage.level();
    assert_eq!(stage.read(N3), Outcome::Read(b"a b".to_vec()));
}

/// A service with an older state answers nothing until clients see all that they saw before.
#[test]
fn service_that_went_back_answers_when_it_has_caught_up() {
    let mut stage = Stage::new(3, 3);
    for number in 0..300 {
        assert!(matches!(stage.write(N2, &number.to_string()), Outcome::Written(_)));
    }
    stage.level();
    let all = stage.query_state(N2).unwrap();
    stage.pull(N2, |strings| strings.misreads = true);
    assert_eq!(stage.query_state(N2), Err(Failure::Unavailable), "half an answer");
    let mut behind = 0;
    let begun = |cluster: &mut Cluster<Puppet>| cluster.replica(N2).error().is_some();
    assert!(stage.cluster.run_until(1_000, begun));
    let caught_up = |stage: &mut Stage| {
        let replica = stage.cluster.replica(N2);
        replica.error().is_none() && !replica.service().words.is_empty()
    };
    while !caught_up(&mut stage) {
        match stage.query_state(N2) {
            Ok(words) => assert_eq!(words, all, "an older state was shown"),
            Err(failure) => assert_eq!(failure, Failure::Unavailable),
        }
        let error = stage.cluster.replica(N2).error();
        behind += u32::from(error.is_some_and(|error| error.contains("began again: at slot")));
        let now = stage.cluster.now();
        stage.cluster.run_until(10, |cluster| cluster.now() > now);
    }
    assert!(behind > 1, "{behind}");
    assert_eq!(stage.query_state(N2), Ok(all));
    let back = Event::ServiceRestarted { why: "with nothing".into() };
    assert!(stage.news(N2).contains(&back));
    stage.level();
}

/// A position that the service returns while it fails is not trusted, not even at the start.
#[test]
fn service_that_fails_while_it_comes_back_comes_back_again() {
    let mut stage = Stage::new(3, 5);
    for word in ["a", "b"] {
        assert!(matches!(stage.write(N3, word), Outcome::Written(_)));
    }
    stage.level();
    stage.pull(N3, |strings| (strings.misreads, strings.stumbles) = (true, true));
    assert_eq!(stage.query_state(N3), Err(Failure::Unavailable));
    stage.level();
    assert_eq!(stage.query_state(N3), Ok("a b".into()));
    stage.cluster.crash(N3);
    stage.pull(N3, |strings| strings.stumbles = true);
    stage.cluster.start(N3);
    assert!(matches!(stage.write(N1, "c"), Outcome::Written(_)));
    stage.level();
    assert_eq!(stage.read(N3), Outcome::Read(b"a b c".to_vec()));
}

/// The service fails at a command that it applies together with others: the notices of each command
/// are passed on once.
#[test]
fn notices_of_commands_before_a_failed_one_are_passed_on() {
    let mut stage = Stage::new(3, 7);
    assert!(matches!(stage.write(N1, "a"), Outcome::Written(_)));
    stage.level();
    stage.pull(N3, |strings| (strings.stuck, strings.loses_at) = (true, Some("c")));
    stage.cluster.run_ms(20);
    for word in ["b", "c", "d"] {
        assert!(matches!(stage.write(N1, word), Outcome::Written(_)));
    }
    stage.pull(N3, |strings| strings.stuck = false);
    stage.level();
    assert!(stage.strings[&N3].borrow().loses_at.is_none(), "it failed");
    for node in [N1, N2, N3] {
        assert_eq!(stage.cluster.notices(node), [b"a", b"b", b"c", b"d"], "node {node}");
    }
}

/// The service fails in the middle of a batch: replies that were sent are right, other clients get
/// an unknown outcome, and each command is executed once.
#[test]
fn batch_that_fails_halfway_is_executed_whole_later() {
    let mut stage = Stage::new(3, 4);
    let tag = stage.cluster.register(N3);
    let Outcome::Registered(session) = stage.end(N3, tag) else { panic!("no session") };
    assert!(matches!(stage.write(N3, "a"), Outcome::Written(_)));
    stage.level();
    // The commands wait together, so they form one batch; the first one applied here is lost.
    let applied = stage.strings[&N3].borrow().applied;
    stage.pull(N3, |strings| strings.loses = true);
    let at = |sequence| Sequenced { session, sequence, acknowledged_below: 0 };
    let tags: Vec<Tag> = (1..=5)
        .map(|number| {
            let word = format!("s{number}");
            stage.cluster.write_once(N3, at(number), word.as_bytes())
        })
        .collect();
    let outcomes: Vec<Outcome> = tags.into_iter().map(|tag| stage.end(N3, tag)).collect();
    let batches = stage.cluster.replica(N3).counters().batches_formed;
    assert_eq!(outcomes, vec![Outcome::Failed(Failure::Unknown); 5]);
    stage.level();
    assert_eq!(stage.cluster.replica(N3).service().words, ["a", "s1", "s2", "s3", "s4", "s5"]);
    // One command that failed, and then all six from the beginning.
    assert_eq!(stage.strings[&N3].borrow().applied, applied + 1 + 6, "{batches} batches");
    // The session has its replies again.
    let tag = stage.cluster.write_once(N3, at(2), b"s2");
    assert_eq!(stage.end(N3, tag), Outcome::Written(b"3".to_vec()));
    assert!(matches!(stage.write(N3, "b"), Outcome::Written(_)));
    stage.level();
}

/// The service fails at a read between the commands of a batch: the commands executed before it
/// count, and the following ones were not executed.
#[test]
fn batch_that_fails_at_a_read_is_executed_whole_later() {
    let mut stage = Stage::new(3, 6);
    let tag = stage.cluster.register(N3);
    assert!(matches!(stage.end(N3, tag), Outcome::Registered(_)));
    assert!(matches!(stage.write(N3, "a"), Outcome::Written(_)));
    stage.level();
    for last in [true, false] {
        let words = stage.cluster.replica(N3).service().words.len();
        let before = stage.strings[&N3].borrow().queried;
        stage.pull(N3, |strings| strings.misreads = true);
        let first = stage.cluster.write(N3, b"b");
        let read = stage.cluster.read_in_order(N3, b"");
        let second = (!last).then(|| stage.cluster.write(N3, b"c"));
        let third = (!last).then(|| stage.cluster.read_in_order(N3, b""));
        let count = (words + 1).to_string().into_bytes();
        assert_eq!(stage.end(N3, first), Outcome::Written(count));
        assert_eq!(stage.end(N3, read), unavailable());
        if let (Some(second), Some(third)) = (second, third) {
            assert_eq!(stage.end(N3, second), Outcome::Failed(Failure::Unknown));
            assert_eq!(stage.end(N3, third), unavailable());
        }
        // A client that saw "b" is not shown a state without it.
        while stage.query_state(N3).is_err() {
            let now = stage.cluster.now();
            stage.cluster.run_until(10, |cluster| cluster.now() > now);
        }
        let shown = stage.query_state(N3).unwrap();
        assert!(shown.contains('b'), "{shown}");
        stage.level();
        let now = stage.cluster.replica(N3).service().words.len();
        assert_eq!(now, words + if last { 1 } else { 2 });
        assert!(stage.strings[&N3].borrow().queried > before);
    }
}

fn diverged() -> Outcome {
    Outcome::Failed(Failure::Diverged)
}

impl Stage {
    /// Makes one node execute the next command wrongly; the others execute it correctly.
    fn err(&mut self, node: NodeId, word: &str) {
        self.pull(node, |strings| strings.errs = true);
        assert!(matches!(self.write(N1, word), Outcome::Written(_)));
        let doubts = |cluster: &mut Cluster<Puppet>| cluster.replica(node).is_in_doubt();
        assert!(self.cluster.run_until(5_000, doubts));
    }

    fn restart(&mut self, node: NodeId) {
        // By then its file is on disk.
        self.cluster.run_ms(100);
        self.cluster.crash(node);
        self.cluster.start(node);
    }

    fn is_over(&mut self, node: NodeId) -> bool {
        self.cluster.run_until(5_000, |cluster| !cluster.replica(node).is_in_doubt())
    }
}

/// [differ-1] [differ-2] [differ-3] Of three nodes, the one that differs no longer answers clients,
/// but still votes. Its next process does not answer either, until a majority has the same state.
#[test]
fn a_node_that_differs_from_a_majority_serves_no_clients() {
    let mut stage = Stage::new(3, 21);
    stage.err(N3, "a");
    assert_eq!((stage.write(N3, "b"), stage.read(N3)), (diverged(), diverged()));
    assert_eq!(stage.query_state(N3), Err(Failure::Diverged), "not even what it has");
    assert_eq!(stage.probe(N3), ProbeOutcome::Unavailable);
    let error = stage.cluster.replica(N3).error().unwrap();
    assert!(error.contains("docs/operate/divergence.md"), "{error}");
    for node in [N1, N2] {
        assert!(stage.is_over(node));
        assert_eq!(stage.cluster.replica(node).error(), None);
        assert!(matches!(stage.read(node), Outcome::Read(_)));
    }
    assert_ne!(stage.cluster.leader(), Some(N3));
    // The node votes and applies.
    stage.cluster.isolate(N2, true);
    let led = |cluster: &mut Cluster<Puppet>| cluster.leader().is_some_and(|leader| leader != N2);
    assert!(stage.cluster.run_until(10_000, led));
    assert!(matches!(stage.write(N1, "c"), Outcome::Written(_)));
    // The error was only in memory, and is gone; no node has confirmed that yet.
    stage.cluster.isolate(N1, true);
    stage.restart(N3);
    assert!(stage.cluster.replica(N3).is_in_doubt(), "it is written down");
    assert_eq!(stage.read(N3), diverged());
    stage.cluster.run_ms(5_000);
    assert!(stage.cluster.replica(N3).is_in_doubt());
    for node in [N1, N2] {
        stage.cluster.isolate(node, false);
    }
    assert!(stage.is_over(N3));
    stage.level();
    stage.restart(N3);
    assert!(!stage.cluster.replica(N3).is_in_doubt(), "that, too");
    assert!(matches!(stage.read(N3), Outcome::Read(_)));
}

/// [differ-2] Of two nodes either may be wrong. An operator decides which, and removes it.
#[test]
fn of_two_nodes_that_differ_neither_serves_until_one_is_removed() {
    let mut stage = Stage::new(2, 22);
    stage.err(N2, "a");
    for node in [N1, N2] {
        let doubts = |cluster: &mut Cluster<Puppet>| cluster.replica(node).is_in_doubt();
        assert!(stage.cluster.run_until(5_000, doubts));
        assert_eq!(stage.read(node), diverged());
    }
    assert!(stage.cluster.ask_group(N1, GroupRequest::Remove(N2)).is_ok());
    assert!(stage.is_over(N1));
    assert!(matches!(stage.write(N1, "b"), Outcome::Written(_)));
    assert!(stage.cluster.replica(N2).is_in_doubt());
}

/// [live-6] A leader that applies nothing for long hands over to a node that does. If there is
/// none, it continues to lead until the first node has caught up.
#[test]
fn a_leader_that_is_far_behind_gives_way() {
    // A leader that does not apply its session's registration repeats it.
    let mut stage = Stage::with_entries(3, 23, 64);
    for node in [N1, N2, N3] {
        stage.pull(node, |strings| strings.behind = true);
    }
    let led = stage.cluster.leader().unwrap();
    stage.cluster.write(led, b"a");
    stage.cluster.run_ms(5_000);
    assert_eq!(stage.cluster.leader(), Some(led), "all are behind");
    let near = [N1, N2, N3].into_iter().find(|node| *node != led).unwrap();
    stage.pull(near, |strings| strings.behind = false);
    let leads = |cluster: &mut Cluster<Puppet>| cluster.leader() == Some(near);
    // The node settles first, since it was fit before.
    assert!(stage.cluster.run_until(8_000, leads));
    // A write during the handover may be refused.
    let written = |stage: &mut Stage| matches!(stage.write(near, "b"), Outcome::Written(_));
    assert!((0..3).any(|_| written(&mut stage)));
    stage.cluster.run_ms(10_000);
    assert_eq!(stage.cluster.leader(), Some(near), "no more changes");
}

/// [read-7] An operator's request is checked against the table as of earlier decisions, or not at
/// all.
#[test]
fn a_node_that_is_behind_judges_no_operator_by_an_old_table() {
    let mut stage = Stage::new(3, 24);
    let led = stage.cluster.leader().unwrap();
    let behind = [N1, N2, N3].into_iter().find(|node| *node != led).unwrap();
    stage.pull(behind, |strings| strings.behind = true);
    let reserve = GroupRequest::Reserve { peer: "host:1".to_owned(), role: MemberRole::Learner };
    let Ok(GroupAnswer::Node(four)) = stage.cluster.ask_group(led, reserve) else {
        panic!("no id")
    };
    let refused = stage.cluster.ask_group(behind, GroupRequest::Demote(four)).unwrap_err();
    assert_eq!(refused.code, "unavailable");
    assert!(refused.message.starts_with("this node is still applying its log: "), "{refused:?}");
    stage.pull(behind, |strings| strings.behind = false);
    assert_eq!(
        stage.cluster.ask_group(behind, GroupRequest::Demote(four)),
        Ok(GroupAnswer::AlreadyDone)
    );
}
