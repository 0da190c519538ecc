//! Weights, rules and changes: quorums that must intersect do so ([era-1], [era-4], features G8 and
//! G9).

use quorate_core::{
    configuration::{Change, Configuration, InvalidConfiguration, MEMBERS_MAX, Voter},
    leader::{split_preferring, split_quorums},
    node_id::{Incarnation, Member, NodeId},
    quorum::{MemberSet, Phase, QuorumRule},
    record::Class,
};

fn voter(node: u32, weight: u32) -> Voter {
    Voter { member: Member::first(node), weight, auxiliary: false }
}

fn weighted(weights: &[u32], rule: QuorumRule) -> Result<Configuration, InvalidConfiguration> {
    let voters = (1..).zip(weights).filter(|(_, weight)| **weight > 0);
    let voters = voters.map(|(node, weight)| voter(node, *weight)).collect();
    Configuration::new(voters, rule, Class::Durable)
}

fn majority(weights: &[u32]) -> Configuration {
    weighted(weights, QuorumRule::Majority).expect("a valid configuration")
}

/// protocol.md §18: every single weight step on four members with weights up to 3 preserves
/// intersection.
#[test]
fn every_weight_step_of_one_keeps_majorities_meeting() {
    let mut steps = 0;
    for bits in 1..256u32 {
        let weights = [0, 2, 4, 6].map(|shift| bits >> shift & 3);
        let before = majority(&weights);
        for node in 1..=4 {
            for change in [Change::Increment, Change::Decrement] {
                if let Ok(after) = before.after_change(change(Member::first(node))) {
                    assert!(before.quorums_overlap(&after), "{before} to {after}");
                    steps += 1;
                }
            }
        }
        for factor in 1..=3 {
            for change in [Change::Multiply(factor), Change::Divide(factor)] {
                if let Ok(after) = before.after_change(change) {
                    assert!(before.quorums_overlap(&after), "{before} to {after}");
                }
            }
        }
    }
    assert!(steps > 1_700, "{steps} steps were tried");
}

/// Proves that the check can fail: a step of two breaks the intersection that a step of one
/// preserves.
#[test]
fn two_steps_at_once_may_lose_the_overlap() {
    assert!(!majority(&[1, 1, 1, 0]).quorums_overlap(&majority(&[1, 1, 1, 2])));
    assert!(!majority(&[1, 0, 0, 0]).quorums_overlap(&majority(&[0, 1, 0, 0])));
}

/// G9: overflow, zero, removal of the last member, division with remainder.
#[test]
fn weight_arithmetic_is_checked() {
    let one = majority(&[1]);
    assert_eq!(
        one.after_change(Change::Decrement(Member::first(1))),
        Err(InvalidConfiguration::Empty)
    );
    assert_eq!(
        one.after_change(Change::Decrement(Member::first(2))),
        Err(InvalidConfiguration::Unknown(NodeId(2)))
    );
    assert_eq!(one.after_change(Change::Multiply(0)), Err(InvalidConfiguration::Factor));
    assert_eq!(one.after_change(Change::Divide(0)), Err(InvalidConfiguration::Factor));
    assert_eq!(
        majority(&[2, 3]).after_change(Change::Divide(2)),
        Err(InvalidConfiguration::Factor)
    );
    assert_eq!(
        majority(&[u32::MAX / 4]).after_change(Change::Multiply(8)),
        Err(InvalidConfiguration::Weight)
    );
    assert_eq!(
        majority(&[1 << 30, 1 << 30]).after_change(Change::Multiply(2)),
        Err(InvalidConfiguration::Weight)
    );
    let full = majority(&[1 << 31]);
    assert_eq!(
        full.after_change(Change::Increment(Member::first(1))),
        Err(InvalidConfiguration::Weight)
    );
    let many: Vec<Voter> = (1..=17).map(|node| voter(node, 1)).collect();
    let many = Configuration::new(many, QuorumRule::Majority, Class::Durable);
    assert_eq!(many, Err(InvalidConfiguration::TooMany));
    assert_eq!(MEMBERS_MAX, 16);
}

/// [volatile-2] Swapping incarnations in one step would make a node a member twice.
#[test]
fn a_node_is_a_member_in_one_incarnation_at_a_time() {
    let again = Member { node: NodeId(1), incarnation: Incarnation(1) };
    let change = Change::Increment(again);
    assert_eq!(
        majority(&[1, 1, 1]).after_change(change),
        Err(InvalidConfiguration::Twice(NodeId(1)))
    );
    let without = majority(&[1, 1, 1]).after_change(Change::Decrement(Member::first(1)));
    assert!(without.expect("leaves").after_change(change).is_ok());
}

/// G8: quorum sizes from a configuration must intersect.
#[test]
fn rules_whose_quorums_do_not_meet_are_refused() {
    let flexible =
        |phase1, phase2| weighted(&[1, 1, 1, 1], QuorumRule::Flexible { phase1, phase2 });
    assert!(flexible(3, 2).is_ok());
    assert!(flexible(4, 1).is_ok());
    assert_eq!(flexible(2, 2), Err(InvalidConfiguration::Quorums));
    assert_eq!(
        flexible(5, 1),
        Err(InvalidConfiguration::Quorums),
        "a quorum that no members can form"
    );
    assert_eq!(flexible(4, 0), Err(InvalidConfiguration::Quorums), "an empty quorum meets nothing");
    let grid = |columns| weighted(&[1, 1, 1, 1, 1, 1], QuorumRule::Grid { columns });
    assert!(grid(3).is_ok() && grid(2).is_ok());
    assert_eq!(grid(4), Err(InvalidConfiguration::Quorums), "rows of unequal length");
    assert_eq!(grid(0), Err(InvalidConfiguration::Quorums));
}

/// [era-4] Under a flexible rule, intersection is also checked between configurations.
#[test]
fn a_change_under_another_rule_needs_the_exact_check() {
    let rule = QuorumRule::Flexible { phase1: 3, phase2: 2 };
    let four = weighted(&[1, 1, 1, 1], rule).expect("valid");
    assert_eq!(
        four.after_change(Change::Increment(Member::first(5))),
        Err(InvalidConfiguration::Quorums)
    );
    assert!(four.after_change(Change::Decrement(Member::first(4))).is_ok());
}

/// [read-2] A blocking set is one that intersects every phase-1 quorum.
#[test]
fn blocking_sets_meet_every_phase1_quorum() {
    let five = majority(&[1, 1, 1, 1, 1]);
    let set =
        |indexes: &[usize]| indexes.iter().fold(MemberSet::default(), |set, at| set.with(*at));
    assert!(!five.blocks_phase1(set(&[0, 1])));
    assert!(five.blocks_phase1(set(&[0, 1, 2])));
    let four = majority(&[1, 1, 1, 1]);
    assert!(four.blocks_phase1(set(&[0, 1])), "half of an even weight blocks, and is no quorum");
    assert!(!four.is_quorum(Phase::One, set(&[0, 1])));
}

/// [ballot-5] The casting phase 1 includes members that must catch up first only if no other split
/// exists.
#[test]
fn casting_asks_who_is_level() {
    let asks = |behind: &[u32]| {
        let level = |member: Member| !behind.contains(&member.node.0);
        let configuration = majority(&[3, 2, 2, 2]);
        split_preferring(&configuration, Member::first(1), |_| true, |_| true, level)
    };
    assert_eq!(asks(&[]), Some([NodeId(2)].to_vec()));
    assert_eq!(asks(&[2]), Some([NodeId(3)].to_vec()));
    assert_eq!(asks(&[2, 3]), Some([NodeId(4)].to_vec()));
    assert_eq!(asks(&[2, 3, 4]), Some([NodeId(2)].to_vec()));
}

/// [cast-6] The table of the example, with leader A: each row has its split and the single failures
/// that it survives. The simple alternatives have no split, or do not survive the loss of the
/// leader.
#[test]
fn casting_splits_follow_the_published_example() {
    type Row = (&'static [u32], Option<&'static [u32]>, bool);
    let rows: [Row; 10] = [
        (&[2, 2, 2, 0], Some(&[2]), true),
        (&[3, 2, 2, 0], Some(&[2]), true),
        (&[3, 2, 2, 1], Some(&[2]), true),
        (&[3, 2, 2, 2], Some(&[2]), true),
        (&[3, 2, 1, 2], Some(&[2]), true),
        (&[3, 2, 0, 2], Some(&[2]), true),
        (&[2, 2, 0, 2], Some(&[2]), true),
        (&[1, 1, 0, 1], Some(&[2]), true),
        // No split exists, because with four equal members neither half is a quorum together with
        // the leader.
        (&[1, 1, 1, 1], None, true),
        (&[2, 1, 1, 0], Some(&[2]), false),
    ];
    for (weights, expected, survives) in rows {
        let configuration = majority(weights);
        let l = split_quorums(&configuration, Member::first(1), |_| true, |_| true);
        let expected = expected.map(|nodes| nodes.iter().map(|n| NodeId(*n)).collect::<Vec<_>>());
        assert_eq!(l, expected, "{configuration}");
        let without = |gone: usize| {
            let rest = (0..configuration.members().len()).filter(|at| *at != gone);
            rest.fold(MemberSet::default(), |set, at| set.with(at))
        };
        let any = (0..configuration.members().len())
            .all(|gone| configuration.is_quorum(Phase::Two, without(gone)));
        assert_eq!(any, survives, "{configuration} without any one node");
    }
    // An unreachable member is in neither set.
    let three = majority(&[1, 1, 1]);
    assert_eq!(
        split_quorums(&three, Member::first(1), |member| member.node != NodeId(3), |_| true),
        None
    );
}
