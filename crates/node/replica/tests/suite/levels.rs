//! Feature levels in whole clusters: nodes that prevent a raise, successful raises, and commands
//! that are not executed below their level ([level-4] to [level-9]).

use std::{cell::Cell, rc::Rc};

use quorate_core::{level::Level, node_id::NodeId, record::Class};
use quorate_replica::{
    RaisePolicy, ReplicaOptions,
    front::Failure,
    group::{
        MemberRole,
        asking::{GroupAnswer, GroupRefusal, GroupRequest},
    },
    service::{CommandId, StateMachine},
    testing::{Cluster, Outcome},
};

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

/// Records executed commands. Commands that begin with `new` need level 9.
#[derive(Default)]
struct Journal {
    executed: Vec<Vec<u8>>,
    /// Treats new commands as old ones, as no release does.
    blind: Rc<Cell<bool>>,
}

impl StateMachine for Journal {
    fn level_of(&self, command: &[u8]) -> Level {
        match command.starts_with(b"new") && !self.blind.get() {
            true => Level(9),
            false => Level(8),
        }
    }

    fn apply(&mut self, _: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.executed.push(command.to_vec());
        reply.extend_from_slice(b"done");
    }

    fn query(&self, _: &[u8], _: u64, _: &mut Vec<u8>) {}
}

struct Stage {
    cluster: Cluster<Journal>,
    blind: Rc<Cell<bool>>,
}

impl Stage {
    fn new(choose: impl FnOnce(&mut ReplicaOptions)) -> Self {
        let mut options = Cluster::<Journal>::options(3, Class::Durable);
        options.raise_policy = RaisePolicy::OnRequest;
        choose(&mut options);
        let blind = Rc::new(Cell::new(false));
        let of_services = Rc::clone(&blind);
        let make = move |_| Journal { blind: Rc::clone(&of_services), ..Journal::default() };
        let mut cluster = Cluster::with_options(options, 1, make);
        NODES.iter().for_each(|node| cluster.start(*node));
        let mut stage = Self { cluster, blind };
        stage.leader();
        stage
    }

    /// Restarts these nodes on the newest release.
    fn upgrade(&mut self, nodes: &[NodeId]) {
        self.cluster.options.supported_level = Level::NEWEST;
        for node in nodes {
            self.cluster.crash(*node);
            self.cluster.start(*node);
        }
        self.leader();
    }

    fn leader(&mut self) -> NodeId {
        assert!(self.cluster.run_until(10_000, |cluster| cluster.leader().is_some()));
        self.cluster.leader().unwrap()
    }

    fn raise(&mut self) -> Result<GroupAnswer, GroupRefusal> {
        let leader = self.leader();
        self.cluster.ask_group(leader, GroupRequest::Raise)
    }

    /// Runs until all of `nodes` have reached `level`. Returns whether they have.
    fn reaches(&mut self, nodes: &[NodeId], level: u16) -> bool {
        let at = |cluster: &mut Cluster<Journal>| {
            let level_of = |node: &NodeId| cluster.replica(*node).level();
            nodes.iter().all(|node| level_of(node) == Level(level))
        };
        self.cluster.run_until(5_000, at)
    }

    fn write(&mut self, command: &[u8]) -> Outcome {
        let leader = self.leader();
        let tag = self.cluster.write(leader, command);
        let ended = |cluster: &mut Cluster<Journal>| cluster.outcome(leader, tag).is_some();
        assert!(self.cluster.run_until(5_000, ended));
        self.cluster.outcome(leader, tag).unwrap().clone()
    }
}

/// [level-5] An operator raises the level without delay, by one at a time, up to the highest.
#[test]
fn an_operator_raises_when_all_support_it() {
    let mut stage = Stage::new(|_| {});
    for level in [9, 10] {
        assert_eq!(stage.raise(), Ok(GroupAnswer::Done));
        assert!(stage.reaches(&NODES, level));
    }
    assert_eq!(stage.raise(), Ok(GroupAnswer::AlreadyDone));
}

/// [level-6] A leader raises the level by itself after the delay, or never if it is configured so.
#[test]
fn a_leader_raises_by_itself_when_it_is_time_or_never() {
    let mut stage = Stage::new(|options| {
        options.raise_policy = RaisePolicy::AfterDelay(2_000);
        options.supported_level = Level(8);
    });
    stage.upgrade(&NODES);
    assert!(!stage.cluster.run_until(1_500, |cluster| {
        NODES.iter().any(|node| cluster.replica(*node).level() > Level(8))
    }));
    assert!(stage.reaches(&NODES, 10));
    let mut held = Stage::new(|_| {});
    assert!(!held.reaches(&NODES, 9));
}

/// [level-11] A group whose folders no older release has used does not wait. If one founder began
/// with an older release, or is late, the leader waits for it.
#[test]
fn a_new_group_begins_at_the_newest_level_that_its_founders_support() {
    let raising = RaisePolicy::AfterDelay(60_000);
    let mut stage = Stage::new(|options| options.raise_policy = raising);
    assert!(stage.reaches(&NODES, 10));

    let mut options = Cluster::<Journal>::options(3, Class::Durable);
    options.raise_policy = raising;
    let mut cluster = Cluster::with_options(options, 1, |_| Journal::default());
    let [one, two, late] = NODES;
    cluster.start(one);
    cluster.start(two);
    let mut stage = Stage { cluster, blind: Rc::default() };
    assert!(!stage.reaches(&[one, two], 9), "a founder is late");
    stage.cluster.options.supported_level = Level(9);
    stage.cluster.start(late);
    assert!(stage.reaches(&NODES, 9));
    stage.upgrade(&[late]);
    assert!(!stage.reaches(&[one], 10), "node 3 may go back to the release before");
    assert_eq!(stage.raise(), Ok(GroupAnswer::Done));
}

/// [level-4] [level-5] A learner of the previous release prevents a raise as much as a voter does.
#[test]
fn a_learner_of_the_release_before_holds_the_level_back() {
    let mut stage = Stage::new(|_| {});
    let leader = stage.leader();
    let ask = GroupRequest::Join {
        nonce: 4,
        node: None,
        peer: "n4:1".to_owned(),
        role: MemberRole::Learner,
    };
    let four = NodeId(4);
    assert_eq!(stage.cluster.ask_group(leader, ask), Ok(GroupAnswer::Node(four)));
    let away = stage.raise().unwrap_err();
    assert_eq!(away.code, "held_back");
    assert!(away.message.contains("node 4 is not connected"), "{away:?}");
    stage.cluster.add_node(four);
    stage.cluster.options.supported_level = Level(8);
    stage.cluster.start(four);
    stage.cluster.run_ms(500);
    let old = stage.raise().unwrap_err();
    let expected = "node 4 runs a release that supports level 8 at most";
    assert!(old.message.contains(expected), "{old:?}");
    stage.cluster.crash(four);
    stage.cluster.options.supported_level = Level(9);
    stage.cluster.start(four);
    stage.cluster.run_ms(500);
    assert_eq!(stage.raise(), Ok(GroupAnswer::Done));
    assert!(stage.reaches(&[1, 2, 3, 4].map(NodeId), 9));
}

/// [level-8] Nothing is proposed before the leader's own folder is marked with the level.
#[test]
fn the_mark_comes_before_the_raise() {
    let mut stage = Stage::new(|options| {
        options.marked_level = Level(8);
        options.raise_policy = RaisePolicy::AfterDelay(0);
    });
    assert!(!stage.reaches(&NODES, 9));
    let leader = stage.leader();
    let replica = stage.cluster.replica_mut(leader);
    assert_eq!(replica.take_level_to_mark(), Some(Level(9)));
    replica.on_level_marked(Level(9));
    assert!(stage.reaches(&NODES, 9));
}

/// [level-8] A release that does not support the level executes no slot after the raise.
#[test]
fn a_release_that_does_not_support_the_level_stops_before_it() {
    let mut stage = Stage::new(|_| {});
    assert_eq!(stage.write(b"before"), Outcome::Written(b"done".to_vec()));
    assert_eq!(stage.raise(), Ok(GroupAnswer::Done));
    assert!(stage.reaches(&NODES, 9));
    assert_eq!(stage.write(b"behind"), Outcome::Written(b"done".to_vec()));
    let leader = stage.leader();
    let old = NODES.into_iter().find(|node| *node != leader).unwrap();
    stage.cluster.run_ms(200);
    stage.cluster.crash(old);
    stage.cluster.options.supported_level = Level(8);
    stage.cluster.start(old);
    stage.cluster.run_ms(1_000);
    let replica = stage.cluster.replica(old);
    assert_eq!(replica.service().executed, [b"before"]);
    assert_eq!(replica.level(), Level(8));
    let error = replica.error().unwrap();
    assert!(error.contains("the cluster is at level 9"), "{error}");
}

/// [level-9] The command is refused at admission and, if in the log, on every node.
#[test]
fn a_command_above_the_level_is_executed_nowhere() {
    let mut stage = Stage::new(|_| {});
    let refused = Outcome::Failed(Failure::Level);
    assert_eq!(stage.write(b"new 1"), refused);
    // A faulty node accepts the command, and it is decided.
    stage.blind.set(true);
    let leader = stage.leader();
    let tag = stage.cluster.write(leader, b"new 2");
    stage.blind.set(false);
    let ended = |cluster: &mut Cluster<Journal>| cluster.outcome(leader, tag).is_some();
    assert!(stage.cluster.run_until(5_000, ended));
    assert_eq!(stage.cluster.outcome(leader, tag), Some(&refused));
    assert_eq!(stage.write(b"old"), Outcome::Written(b"done".to_vec()));
    assert_eq!(stage.raise(), Ok(GroupAnswer::Done));
    assert!(stage.reaches(&NODES, 9));
    assert_eq!(stage.write(b"new 3"), Outcome::Written(b"done".to_vec()));
    stage.cluster.run_ms(200);
    for node in NODES {
        let executed = &stage.cluster.replica(node).service().executed;
        assert_eq!(executed, &[&b"old"[..], b"new 3"], "node {node}");
    }
}
