//! Membership changes in whole clusters, under load ([member-2], [era-8], [volatile-2]).

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{
    node_id::{Member, NodeId},
    quorum::QuorumRule,
    record::Class,
};
use quorate_replica::{
    events::Event,
    front::{Failure, Tag},
    group::{
        MemberRole,
        asking::{GroupAnswer, GroupRefusal, GroupRequest},
    },
    service::{CommandId, StateMachine},
    testing::{Cluster, Outcome},
};

/// Records every executed command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Journal(Vec<Vec<u8>>);

impl StateMachine for Journal {
    fn apply(&mut self, _: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.0.push(command.to_vec());
        reply.extend_from_slice(&(self.0.len() as u64).to_le_bytes());
    }

    fn query(&self, _: &[u8], _: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(&(self.0.len() as u64).to_le_bytes());
    }
}

fn cluster(count: u32, class: Class, seed: u64) -> Cluster<Journal> {
    let mut cluster = Cluster::new(count, class, seed, |_| Journal::default());
    led(&mut cluster);
    cluster
}

fn led(cluster: &mut Cluster<Journal>) -> NodeId {
    assert!(cluster.run_until(10_000, |cluster| cluster.leader().is_some()));
    cluster.leader().unwrap()
}

/// Joins a new node with an empty disk, and waits until it has caught up.
fn join(cluster: &mut Cluster<Journal>, nonce: u64) -> NodeId {
    join_as(cluster, nonce, MemberRole::Voter)
}

fn join_as(cluster: &mut Cluster<Journal>, nonce: u64, role: MemberRole) -> NodeId {
    let leader = led(cluster);
    let ask = GroupRequest::Join { nonce, node: None, peer: format!("n{nonce}:1"), role };
    let Ok(GroupAnswer::Node(node)) = cluster.ask_group(leader, ask) else {
        panic!("no id was given out");
    };
    cluster.add_node(node);
    cluster.start(node);
    level(cluster, node);
    node
}

fn level(cluster: &mut Cluster<Journal>, node: NodeId) {
    let leader = led(cluster);
    assert!(cluster.run_until(10_000, |cluster| {
        let to = cluster.replica(leader).applied_to();
        let members = cluster.replica(leader).members(cluster.now());
        let mut listed = members.nodes.into_iter();
        let lag = listed.find(|listed| listed.node == node).and_then(|listed| listed.lag_slots);
        cluster.replica(node).applied_to() >= to && lag.is_some_and(|lag| lag < 100)
    }));
}

/// Sends a request to the leader, and waits until its plan is done, whichever node leads by then.
fn carry_out(cluster: &mut Cluster<Journal>, ask: &GroupRequest) -> Result<(), GroupRefusal> {
    let leader = led(cluster);
    let plan = match cluster.ask_group(leader, ask.clone())? {
        GroupAnswer::Planned(Some(plan), steps) => {
            assert!(!steps.is_empty(), "a plan has steps");
            plan
        }
        GroupAnswer::AlreadyDone => return Ok(()),
        answer => panic!("{answer:?}"),
    };
    finish(cluster, plan);
    Ok(())
}

fn finish(cluster: &mut Cluster<Journal>, plan: u64) {
    let ended = cluster.run_until(20_000, |cluster| {
        let leader = cluster.leader();
        leader.is_some_and(|leader| {
            let ended = cluster.replica(leader).group().last_end();
            ended.is_some_and(|ended| ended.id == plan && ended.is_goal_reached)
        })
    });
    let leader = led(cluster);
    let members = cluster.replica(leader).members(cluster.now());
    assert!(ended, "{members:?}");
}

fn weights(cluster: &Cluster<Journal>, node: NodeId) -> BTreeMap<u32, u32> {
    let members = cluster.replica(node).node().configuration().members();
    members.iter().map(|voter| (voter.member.node.0, voter.weight)).collect()
}

fn equal_weights(nodes: &[u32]) -> BTreeMap<u32, u32> {
    nodes.iter().map(|node| (*node, 1)).collect()
}

fn write(cluster: &mut Cluster<Journal>, node: NodeId, command: &[u8]) {
    let tag = cluster.write(node, command);
    assert!(cluster.run_until(10_000, |cluster| cluster.outcome(node, tag).is_some()));
    let outcome = cluster.outcome(node, tag);
    assert!(matches!(outcome, Some(Outcome::Written(_))), "{outcome:?}");
}

/// Checks that all running nodes have the same applied state, including table and eras.
fn assert_same(cluster: &mut Cluster<Journal>, nodes: &[u32]) {
    let nodes: Vec<NodeId> = nodes.iter().map(|node| NodeId(*node)).collect();
    let first = nodes[0];
    assert!(cluster.run_until(10_000, |cluster| {
        let to = cluster.replica(first).applied_to();
        nodes.iter().all(|node| cluster.replica(*node).applied_to() == to)
    }));
    for node in &nodes[1..] {
        let (one, other) = (cluster.replica(first), cluster.replica(*node));
        assert_eq!(one.service(), other.service());
        assert_eq!(one.group(), other.group());
        assert_eq!(one.node().eras(), other.node().eras());
    }
}

#[test]
fn a_group_of_one_grows_to_three_and_five_and_shrinks_again() {
    let mut cluster = cluster(1, Class::Durable, 3);
    let one = NodeId(1);
    write(&mut cluster, one, b"alone");
    for (nonce, nodes) in
        [(7, &[1, 2][..]), (8, &[1, 2, 3]), (9, &[1, 2, 3, 4]), (10, &[1, 2, 3, 4, 5])]
    {
        let node = join(&mut cluster, nonce);
        carry_out(&mut cluster, &GroupRequest::Promote(node)).unwrap();
        write(&mut cluster, node, b"grown");
        assert_eq!(weights(&cluster, one), equal_weights(nodes));
    }
    assert_same(&mut cluster, &[1, 2, 3, 4, 5]);
    // One of these nodes leads, and hands leadership over first.
    for node in [1, 2] {
        carry_out(&mut cluster, &GroupRequest::Remove(NodeId(node))).unwrap();
    }
    let leader = led(&mut cluster);
    assert!(leader.0 > 2);
    assert_eq!(weights(&cluster, leader), equal_weights(&[3, 4, 5]));
    write(&mut cluster, leader, b"shrunk");
    assert_same(&mut cluster, &[3, 4, 5]);
    assert!(cluster.run_until(10_000, |cluster| cluster.replica(one).is_removed()));
    let known = cluster.replica(leader).group().entry_of(one);
    assert_eq!(known, None, "its id is spent");
    let last = cluster.replica(leader).members(cluster.now()).last_plan.unwrap();
    assert!(last.end.is_goal_reached);
    assert!(cluster.run_until(10_000, |cluster| {
        cluster.replica(leader).members(cluster.now()).last_plan.unwrap().is_settled
    }));
}

/// [join-2] The same folder gets the same id, whichever node it asks.
#[test]
fn an_id_is_given_out_once_whichever_node_is_asked() {
    let mut cluster = cluster(3, Class::Durable, 5);
    let ask = |nonce| GroupRequest::Join {
        nonce,
        node: None,
        peer: "n:1".to_owned(),
        role: MemberRole::Learner,
    };
    let first = cluster.ask_group(NodeId(1), ask(7));
    assert_eq!(first, Ok(GroupAnswer::Node(NodeId(4))));
    assert_eq!(cluster.ask_group(NodeId(2), ask(7)), first);
    assert_eq!(cluster.ask_group(NodeId(3), ask(8)), Ok(GroupAnswer::Node(NodeId(5))));
    assert_same(&mut cluster, &[1, 2, 3]);
    let table = cluster.replica_mut(NodeId(2)).take_peer_table().unwrap();
    assert_eq!(table.peers.len(), 5);
    assert_eq!(cluster.replica_mut(NodeId(2)).take_peer_table(), None, "nothing is new");
}

/// All three machines are replaced, one after the other, while clients write through all of them.
#[test]
fn every_node_is_replaced_under_load_and_nothing_is_lost() {
    for seed in 0..3 {
        let mut cluster = cluster(3, Class::Durable, seed);
        let (mut written, mut executed) = (Vec::new(), Vec::new());
        let mut begun = 0u32;
        for old in 1..=3 {
            let new = join(&mut cluster, u64::from(old) + 10);
            let leader = led(&mut cluster);
            let ask = GroupRequest::Replace { old: NodeId(old), new };
            let plan = match cluster.ask_group(leader, ask.clone()) {
                Ok(GroupAnswer::Planned(Some(plan), _)) => plan,
                other => panic!("{other:?}"),
            };
            // Three clients, each with one write at a time.
            let mut open = BTreeMap::new();
            let ended = cluster.run_until(20_000, |cluster| {
                for client in 0..3 {
                    let done =
                        |(node, tag, _): &(NodeId, Tag, _)| cluster.outcome(*node, *tag).is_some();
                    if open.get(&client).is_some_and(|write| !done(write)) {
                        continue;
                    }
                    let through = NodeId(old + client);
                    if cluster.runs(through) {
                        begun += 1;
                        let text = begun.to_string().into_bytes();
                        let write = (through, cluster.write(through, &text), text);
                        written.extend(open.insert(client, write));
                    }
                }
                let leader = cluster.leader();
                leader.is_some_and(|leader| {
                    let ended = cluster.replica(leader).group().last_end();
                    ended.is_some_and(|ended| ended.id == plan && ended.is_goal_reached)
                })
            });
            assert!(ended);
            written.extend(open.into_values());
            for (node, tag, _) in &written {
                assert!(
                    cluster.run_until(10_000, |cluster| cluster.outcome(*node, *tag).is_some())
                );
                let outcome = cluster.outcome(*node, *tag);
                assert!(matches!(outcome, Some(Outcome::Written(_))), "{outcome:?}");
            }
            executed.extend(written.drain(..).map(|(_, _, text)| text));
            // The node is switched off as soon as it may be ([era-9]).
            assert!(cluster.run_until(10_000, |cluster| {
                let leader = cluster.leader();
                leader.is_some_and(|leader| {
                    let members = cluster.replica(leader).members(cluster.now());
                    members.last_plan.is_some_and(|last| last.is_settled)
                })
            }));
            let waited = cluster.replica(NodeId(old)).counters().slots_waited_for_era;
            assert_eq!(waited, 0, "[cast-1] no command waits for a configuration");
            cluster.kill(NodeId(old));
            let again = carry_out(&mut cluster, &ask);
            assert_eq!(again, Ok(()), "repeated it is harmless");
        }
        let leader = led(&mut cluster);
        assert_eq!(weights(&cluster, leader), equal_weights(&[4, 5, 6]));
        assert_same(&mut cluster, &[4, 5, 6]);
        let journal = &cluster.replica(leader).service().0;
        for node in [4, 5, 6] {
            let waited = cluster.replica(NodeId(node)).counters().slots_waited_for_era;
            assert_eq!(waited, 0, "[cast-1] no command waits for a configuration");
        }
        assert!(executed.len() > 50, "there was load: {}", executed.len());
        let journal: BTreeSet<&Vec<u8>> = journal.iter().collect();
        assert!(executed.iter().all(|text| journal.contains(text)));
    }
}

/// The next leader continues a plan, at whichever step the leader dies.
#[test]
fn a_plan_goes_on_when_leaders_die() {
    for steps in 0..6u32 {
        let mut cluster = cluster(3, Class::Durable, u64::from(steps));
        let new = join(&mut cluster, 7);
        let leader = led(&mut cluster);
        let old = NodeId(1 + leader.0 % 3);
        let ask = GroupRequest::Replace { old, new };
        let Ok(GroupAnswer::Planned(Some(plan), _)) = cluster.ask_group(leader, ask) else {
            panic!("no plan");
        };
        let reached =
            cluster.run_until(10_000, |cluster| cluster.replica(leader).node().era().0 >= steps);
        assert!(reached);
        cluster.crash(leader);
        assert!(cluster.run_until(10_000, |cluster| {
            cluster.leader().is_some_and(|other| other != leader)
        }));
        cluster.start(leader);
        finish(&mut cluster, plan);
        let members: Vec<u32> = (1..=4).filter(|node| *node != old.0).collect();
        let leader = led(&mut cluster);
        assert_eq!(weights(&cluster, leader), equal_weights(&members));
        assert_same(&mut cluster, &members);
    }
}

/// A node that joined as a voter may replace one of the same weight: only the old one leaves.
#[test]
fn a_voter_of_the_same_weight_takes_a_place() {
    let mut cluster = cluster(3, Class::Durable, 37);
    let new = join(&mut cluster, 7);
    carry_out(&mut cluster, &GroupRequest::Promote(new)).unwrap();
    let leader = led(&mut cluster);
    let old = NodeId(1 + leader.0 % 3);
    cluster.crash(old);
    let others = (1..=4).filter(|node| *node != old.0);
    let left: Vec<u32> = others.collect();
    let ask = GroupRequest::Replace { old, new };
    // With different weights, other weights would change.
    carry_out(&mut cluster, &GroupRequest::Weight(new, 2)).unwrap();
    let refused = carry_out(&mut cluster, &ask).unwrap_err();
    assert_eq!(refused.code, "already_votes");
    let weights_are = "node 4 votes with weight 2, and node";
    assert!(refused.message.starts_with(weights_are), "{refused:?}");
    assert!(refused.hint.starts_with("start the new node with `--as learner`"));
    carry_out(&mut cluster, &GroupRequest::Weight(new, 1)).unwrap();

    carry_out(&mut cluster, &ask).unwrap();
    let leader = led(&mut cluster);
    assert_eq!(weights(&cluster, leader), equal_weights(&left));
    assert!(cluster.replica(leader).members(cluster.now()).removed_nodes.contains(&old));
    // A repeated request reports that its result is already in place.
    assert_eq!(cluster.ask_group(leader, ask), Ok(GroupAnswer::AlreadyDone));
    assert_same(&mut cluster, &left);
}

/// In a group of three, no voter can replace another: two could not survive a loss.
#[test]
fn a_voter_takes_no_place_where_the_group_would_bear_less() {
    let mut cluster = cluster(3, Class::Durable, 43);
    let leader = led(&mut cluster);
    let (old, new) = (NodeId(1 + leader.0 % 3), NodeId(1 + (leader.0 + 1) % 3));
    let ask = GroupRequest::Replace { old, new };
    let refused = carry_out(&mut cluster, &ask).unwrap_err();
    assert_eq!(refused.code, "already_votes");
    assert!(
        refused.message.contains("the loss of 0 voters") && refused.hint.contains("member remove"),
        "{refused:?}"
    );
    assert_eq!(weights(&cluster, leader), equal_weights(&[1, 2, 3]));
}

/// Only a learner can replace the old node if the quorum rule needs its weight.
#[test]
fn a_voter_takes_no_place_that_the_quorum_rule_needs() {
    let mut cluster = cluster(3, Class::Durable, 41);
    let new = join(&mut cluster, 7);
    carry_out(&mut cluster, &GroupRequest::Promote(new)).unwrap();
    let rule = QuorumRule::Flexible { phase1: 4, phase2: 1 };
    carry_out(&mut cluster, &GroupRequest::Quorum(rule)).unwrap();
    let leader = led(&mut cluster);
    let old = NodeId(1 + leader.0 % 3);
    let ask = GroupRequest::Replace { old, new };
    let refused = carry_out(&mut cluster, &ask).unwrap_err();
    assert_eq!(refused.code, "impossible");
    assert!(refused.hint.starts_with("start the new node with `--as learner`"));
    carry_out(&mut cluster, &GroupRequest::Quorum(QuorumRule::Majority)).unwrap();
    carry_out(&mut cluster, &ask).unwrap();
}

/// When two operators act concurrently, one wins, and the other gets an error.
#[test]
fn of_two_operators_one_wins() {
    let mut cluster = cluster(3, Class::Durable, 11);
    let leader = led(&mut cluster);
    let now = cluster.now();
    let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|node| *node != leader).collect();
    for (asked, node) in (100..).zip(&others) {
        let replica = cluster.replica_mut(leader);
        replica.ask_group(now, asked, GroupRequest::Demote(*node), false);
    }
    let mut answers = BTreeMap::new();
    assert!(cluster.run_until(10_000, |cluster| {
        answers.extend(cluster.replica_mut(leader).take_group_answer());
        answers.len() == 2
    }));
    let won = answers.values().filter(|answer| answer.is_ok()).count();
    let lost: Vec<&GroupRefusal> =
        answers.values().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!((won, lost.len()), (1, 1), "{answers:?}");
    assert!(["under_way", "other_era"].contains(&lost[0].code), "{lost:?}");
}

/// Any node accepts a plan, and the leader executes it. A follower does not know which changes have
/// to wait, so the plan waits at the leader.
#[test]
fn a_plan_may_begin_anywhere() {
    let mut cluster = cluster(3, Class::Durable, 31);
    let leader = led(&mut cluster);
    let follower = NodeId(1 + leader.0 % 3);
    let third = NodeId(1 + follower.0 % 3);
    let begin = |cluster: &mut Cluster<Journal>, ask| match cluster.ask_group(follower, ask) {
        Ok(GroupAnswer::Planned(Some(plan), _)) => plan,
        answer => panic!("{answer:?}"),
    };
    let plan = begin(&mut cluster, GroupRequest::Demote(third));
    finish(&mut cluster, plan);
    let plan = begin(&mut cluster, GroupRequest::Promote(third));
    finish(&mut cluster, plan);
    assert_eq!(weights(&cluster, leader), equal_weights(&[1, 2, 3]));
    // Without the third node, only the leader and this one are left.
    cluster.crash(third);
    cluster.run_ms(1_000);
    let plan = begin(&mut cluster, GroupRequest::Demote(follower));
    cluster.run_ms(5_000);
    assert_eq!(weights(&cluster, leader), equal_weights(&[1, 2, 3]));
    write(&mut cluster, follower, b"goes on");
    let members = cluster.replica(leader).members(cluster.now());
    let waits = members.plan.and_then(|underway| underway.wait_reason);
    assert!(waits.is_some_and(|why| why.contains("too few")));
    cluster.start(third);
    finish(&mut cluster, plan);
    assert_same(&mut cluster, &[1, 2, 3]);
}

/// Refusals have a reason, and change nothing.
#[test]
fn what_cannot_be_is_refused() {
    let mut cluster = cluster(3, Class::Durable, 13);
    let leader = led(&mut cluster);
    let follower = NodeId(1 + leader.0 % 3);
    let third = NodeId(1 + follower.0 % 3);
    let code = |cluster: &mut Cluster<Journal>, node, ask| match cluster.ask_group(node, ask) {
        Err(refused) => refused.code,
        Ok(answer) => panic!("{answer:?}"),
    };
    assert_eq!(code(&mut cluster, follower, GroupRequest::Raise), "not_leader");
    assert_eq!(code(&mut cluster, leader, GroupRequest::Promote(NodeId(9))), "unknown_node");
    assert_eq!(code(&mut cluster, leader, GroupRequest::Remove(NodeId(9))), "unknown_node");
    let reserve = GroupRequest::Reserve { peer: "n:1".to_owned(), role: MemberRole::Voter };
    assert_eq!(cluster.ask_group(follower, reserve), Ok(GroupAnswer::Node(NodeId(4))));
    assert_eq!(code(&mut cluster, leader, GroupRequest::Promote(NodeId(4))), "not_connected");
    assert_eq!(
        code(&mut cluster, leader, GroupRequest::Weight(third, 3_000_000_000)),
        "impossible"
    );
    // With one node down, the group cannot do without another.
    cluster.crash(third);
    cluster.run_ms(1_000);
    assert_eq!(code(&mut cluster, leader, GroupRequest::Demote(follower)), "too_few_alive");
    let eras = cluster.replica(leader).node().era().0;
    assert_eq!(eras, 0, "nothing changed");
    // The node that is down may be removed.
    carry_out(&mut cluster, &GroupRequest::Remove(third)).unwrap();
    carry_out(&mut cluster, &GroupRequest::Demote(follower)).unwrap();
    let leader = led(&mut cluster);
    assert_eq!(code(&mut cluster, leader, GroupRequest::Remove(leader)), "last_voter");
}

/// [member-4] A machine that lost its folder returns as a learner and replaces its predecessor.
#[test]
fn no_second_node_votes_at_an_address() {
    let mut cluster = cluster(3, Class::Durable, 19);
    let leader = led(&mut cluster);
    let old = NodeId(1 + leader.0 % 3);
    let peer = "old:1".to_owned();
    cluster.ask_group(leader, GroupRequest::Address(old, peer.clone())).unwrap();
    let join = |role| GroupRequest::Join { nonce: 7, node: None, peer: peer.clone(), role };
    let reserve = GroupRequest::Reserve { peer: peer.clone(), role: MemberRole::Voter };
    let expected = format!("'quorate member replace {old} NEW'");
    for ask in [reserve, join(MemberRole::Voter), GroupRequest::Address(leader, peer.clone())] {
        let refused = cluster.ask_group(leader, ask).unwrap_err();
        assert_eq!(refused.code, "address_taken");
        assert!(refused.message.contains(&expected), "{refused:?}");
    }
    cluster.kill(old);
    let Ok(GroupAnswer::Node(new)) = cluster.ask_group(leader, join(MemberRole::Learner)) else {
        panic!("no id was given out");
    };
    cluster.add_node(new);
    cluster.start(new);
    level(&mut cluster, new);
    let leader = led(&mut cluster);
    let refused = cluster.ask_group(leader, GroupRequest::Promote(new)).unwrap_err();
    assert_eq!(refused.code, "address_taken");
    assert!(refused.message.ends_with(&format!("'quorate member replace {old} {new}'")));
    carry_out(&mut cluster, &GroupRequest::Replace { old, new }).unwrap();
    let voters: BTreeSet<u32> = weights(&cluster, leader).into_keys().collect();
    assert_eq!(voters, (1..=4).filter(|node| *node != old.0).collect());
}

/// [volatile-2] A node that forgot its votes gets its weight back, as a new member.
#[test]
fn a_member_that_forgot_is_taken_back() {
    let mut cluster = cluster(3, Class::Volatile, 17);
    let leader = led(&mut cluster);
    let node = NodeId(1 + leader.0 % 3);
    for round in 1..=3 {
        cluster.crash(node);
        cluster.forget_votes(node);
        cluster.start(node);
        let member = Member { node, incarnation: quorate_core::node_id::Incarnation(round) };
        let back = cluster.run_until(20_000, |cluster| {
            let configuration = cluster.replica(leader).node().configuration();
            configuration.position(member).is_some()
                && configuration.members().iter().all(|voter| voter.weight == 1)
                && cluster.replica(leader).group().plan().is_none()
        });
        assert!(back, "{:?}", cluster.replica(leader).members(cluster.now()));
        write(&mut cluster, node, b"back");
    }
    assert_same(&mut cluster, &[1, 2, 3]);
}

/// [volatile-2] A node loses its votes again while it is being readmitted, when its old member id
/// has no weight any more and its new one has none yet. An earlier version ended the plan there,
/// and never readmitted the node.
#[test]
fn a_member_that_forgets_again_while_it_is_taken_back_is_taken_back_still() {
    let mut cluster = cluster(3, Class::Volatile, 18);
    let leader = led(&mut cluster);
    let node = NodeId(1 + leader.0 % 3);
    let later =
        |incarnation| Member { node, incarnation: quorate_core::node_id::Incarnation(incarnation) };
    cluster.crash(node);
    cluster.forget_votes(node);
    cluster.start(node);
    let between = cluster.run_until(20_000, |cluster| {
        let configuration = cluster.replica(leader).node().configuration();
        configuration.member_of(node).is_none()
    });
    assert!(between);
    cluster.crash(node);
    cluster.forget_votes(node);
    cluster.start(node);
    let back = cluster.run_until(20_000, |cluster| {
        let replica = cluster.replica(leader);
        let configuration = replica.node().configuration();
        configuration.position(later(2)).is_some() && replica.group().plan().is_none()
    });
    assert!(back, "{:?}", cluster.replica(leader).members(cluster.now()));
    write(&mut cluster, node, b"back");
    assert_same(&mut cluster, &[1, 2, 3]);
}

/// Leadership moves to the caught-up member with the highest priority, and remains there.
#[test]
fn leadership_goes_to_the_highest_priority() {
    let mut cluster = cluster(3, Class::Durable, 19);
    let leader = led(&mut cluster);
    let wanted = NodeId(1 + leader.0 % 3);
    let answer = cluster.ask_group(leader, GroupRequest::Priority(wanted, 5));
    assert_eq!(answer, Ok(GroupAnswer::Done));
    assert!(cluster.run_until(10_000, |cluster| cluster.leader() == Some(wanted)));
    cluster.run_ms(5_000);
    assert_eq!(cluster.leader(), Some(wanted));
}

/// [live-4] A new leader stays unless a request moves leadership. A plan that takes its weight
/// counts as one, and does not wait; it once waited for ten election timeouts.
#[test]
fn a_plan_that_takes_a_new_leaders_weight_does_not_rest() {
    let mut cluster = cluster(3, Class::Durable, 23);
    let leader = led(&mut cluster);
    let Ok(GroupAnswer::Planned(Some(plan), _)) =
        cluster.ask_group(leader, GroupRequest::Demote(leader))
    else {
        panic!("it leads, and two others are there");
    };
    let timeouts = Cluster::<Journal>::options(3, Class::Durable).timeouts;
    let done = cluster.run_until(5 * timeouts.election_max_ms, |cluster| {
        let leads = cluster.leader().filter(|next| *next != leader);
        leads.is_some_and(|next| {
            let ended = cluster.replica(next).group().last_end();
            ended.is_some_and(|ended| ended.id == plan && ended.is_goal_reached)
        })
    });
    let members = cluster.replica(leader).members(cluster.now());
    assert!(done, "{members:?}");
}

/// [aux-1], [era-4] A voter becomes an auxiliary and then a full replica again, and the quorum rule
/// changes. An impossible change is refused. During the change the rule is scaled with the weights.
#[test]
fn roles_and_the_quorum_rule_change_by_plans() {
    let mut cluster = cluster(3, Class::Durable, 29);
    let leader = led(&mut cluster);
    let other = NodeId(1 + leader.0 % 3);
    let third = NodeId(1 + other.0 % 3);
    carry_out(&mut cluster, &GroupRequest::Auxiliary(other, true)).unwrap();
    let configuration = cluster.replica(leader).node().configuration().clone();
    assert!(configuration.is_auxiliary(Member::first(other.0)));
    carry_out(&mut cluster, &GroupRequest::Auxiliary(other, true)).unwrap();
    let refused = carry_out(&mut cluster, &GroupRequest::Auxiliary(third, true)).unwrap_err();
    assert_eq!(refused.code, "impossible", "one full replica of three is no quorum");
    write(&mut cluster, leader, b"with an auxiliary");
    carry_out(&mut cluster, &GroupRequest::Auxiliary(other, false)).unwrap();
    let flexible = QuorumRule::Flexible { phase1: 3, phase2: 1 };
    carry_out(&mut cluster, &GroupRequest::Quorum(flexible)).unwrap();
    assert_eq!(cluster.replica(leader).node().configuration().rule(), flexible);
    let never = QuorumRule::Flexible { phase1: 1, phase2: 1 };
    let refused = carry_out(&mut cluster, &GroupRequest::Quorum(never)).unwrap_err();
    assert_eq!(refused.code, "impossible", "quorums would not meet");
    write(&mut cluster, leader, b"alone in phase two");
    carry_out(&mut cluster, &GroupRequest::Quorum(QuorumRule::Majority)).unwrap();
    assert_same(&mut cluster, &[1, 2, 3]);
}

/// A node that joined as an auxiliary becomes one when it gets its vote.
#[test]
fn a_node_joins_as_an_auxiliary() {
    let mut cluster = cluster(3, Class::Durable, 31);
    let node = join_as(&mut cluster, 7, MemberRole::Auxiliary);
    carry_out(&mut cluster, &GroupRequest::Promote(node)).unwrap();
    let leader = led(&mut cluster);
    let configuration = cluster.replica(leader).node().configuration();
    assert!(configuration.is_auxiliary(Member::first(node.0)));
    assert_eq!(weights(&cluster, leader), equal_weights(&[1, 2, 3, 4]));
}

/// A plan is cancelled at its current step: no weight changes afterwards.
#[test]
fn a_plan_that_waits_is_cancelled() {
    let mut cluster = cluster(3, Class::Durable, 23);
    let leader = led(&mut cluster);
    assert_eq!(cluster.ask_group(leader, GroupRequest::Cancel), Ok(GroupAnswer::AlreadyDone));
    let new = join(&mut cluster, 7);
    let leader = led(&mut cluster);
    let old = NodeId(1 + leader.0 % 3);
    let planned = cluster.ask_group(leader, GroupRequest::Replace { old, new });
    assert!(matches!(planned, Ok(GroupAnswer::Planned(Some(_), _))), "{planned:?}");
    cluster.crash(new);
    let waits = cluster.run_until(10_000, |cluster| {
        let plan = cluster.replica(leader).members(cluster.now()).plan;
        plan.is_some_and(|plan| plan.wait_reason.is_some())
    });
    assert!(waits);
    assert_eq!(cluster.ask_group(leader, GroupRequest::Cancel), Ok(GroupAnswer::Done));
    let era = cluster.replica(leader).node().era();
    cluster.run_ms(2_000);
    assert_eq!(cluster.replica(leader).node().era(), era);
    assert!(!cluster.replica(leader).group().last_end().unwrap().is_goal_reached);
}

/// The status shows learners, the plan in progress, and removed nodes.
#[test]
fn status_tells_of_learners_plans_and_removal() {
    let mut cluster = cluster(3, Class::Durable, 13);
    let four = join(&mut cluster, 7);
    let reserve = GroupRequest::Reserve { peer: "later:1".to_owned(), role: MemberRole::Learner };
    let leader = led(&mut cluster);
    cluster.ask_group(leader, reserve).unwrap();
    cluster.kill(four);
    let seen = |cluster: &mut Cluster<Journal>, node: NodeId| {
        let now = cluster.now();
        cluster.replica(node).status(now)
    };
    assert!(cluster.run_until(10_000, |cluster| {
        let peers = seen(cluster, leader).peers;
        let learner = peers.iter().find(|peer| peer.member.node == four);
        // A learner that is down is still listed; an id that is only reserved is not a peer.
        peers.len() == 4 && learner.is_some_and(|peer| peer.weight == 0 && !peer.connected)
    }));
    let old = NodeId(1 + leader.0 % 3);
    let ask = GroupRequest::Remove(old);
    let Ok(GroupAnswer::Planned(Some(plan), _)) = cluster.ask_group(leader, ask) else {
        panic!("no plan");
    };
    let status = seen(&mut cluster, leader);
    let underway = status.plan.unwrap();
    assert_eq!((underway.id, underway.wait_reason), (plan, None));
    assert_eq!(underway.description, format!("remove node {old}"));
    finish(&mut cluster, plan);
    let leader = led(&mut cluster);
    assert!(cluster.run_until(10_000, |cluster| cluster.replica(old).is_removed()));
    let status = seen(&mut cluster, old);
    assert!(status.removed);
    let error = Some("this node was removed from the cluster");
    assert_eq!(status.error.as_deref(), error);
    cluster.run_ms(2_000);
    while let Some(event) = cluster.replica_mut(old).next_event() {
        assert!(!matches!(event, Event::NoLeader { .. }), "it needs none: {event:?}");
    }
    let write = cluster.write(old, b"x");
    assert!(cluster.run_until(1_000, |cluster| cluster.outcome(old, write).is_some()));
    assert_eq!(cluster.outcome(old, write), Some(&Outcome::Failed(Failure::Removed)));
    let status = seen(&mut cluster, leader);
    assert_eq!((status.plan, status.removed, status.error), (None, false, None));
    assert!(status.peers.iter().all(|peer| peer.member.node != old));
}

/// A dry run changes nothing, and denies a request that would be denied.
#[test]
fn a_dry_run_denies_what_would_be_denied() {
    let mut cluster = cluster(3, Class::Durable, 17);
    let leader = led(&mut cluster);
    let version = cluster.replica(leader).group().clone();
    let mut asked = 1000;
    let mut dry = |ask: GroupRequest| {
        asked += 1;
        let now = cluster.now();
        cluster.replica_mut(leader).ask_group(now, asked, ask, true);
        let mut answer = None;
        cluster.run_until(1_000, |cluster| {
            answer = cluster.replica_mut(leader).take_group_answer();
            answer.is_some()
        });
        answer.map(|(_, answer)| answer)
    };
    let nothing = Some(Ok(GroupAnswer::Planned(None, Vec::new())));
    assert_eq!(dry(GroupRequest::Priority(NodeId(2), 5)), nothing);
    let refused = dry(GroupRequest::Priority(NodeId(9), 5)).unwrap().unwrap_err();
    assert_eq!(refused.code, "unknown_node");
    let refused = dry(GroupRequest::Address(NodeId(2), String::new())).unwrap();
    assert_eq!(refused.unwrap_err().code, "bad_address");
    let Some(Ok(GroupAnswer::Planned(None, steps))) =
        dry(GroupRequest::Demote(NodeId(1 + leader.0 % 3)))
    else {
        panic!("no steps");
    };
    assert!(!steps.is_empty());
    assert_eq!(cluster.replica(leader).group(), &version);
}
