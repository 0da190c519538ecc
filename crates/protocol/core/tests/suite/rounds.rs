//! [ballot-2] A node never uses a ballot in two incarnations, even if its log lost the record.

use quorate_core::{
    configuration::Configuration,
    effect::{Effect, Effects},
    input::Input,
    laying::Route,
    node::{Node, Options, Recovered},
    node_id::{Incarnation, Member, NodeId},
    record::{Class, Record},
    time::Time,
};

/// The round that a node alone starts with, having forgotten everything.
fn first_round(incarnation: u32) -> Option<u32> {
    let member = Member { node: NodeId(1), incarnation: Incarnation(incarnation) };
    let configuration = Configuration::simple([member], Class::Durable).expect("one member");
    let options = Options {
        member,
        heartbeat_ms: 20,
        election_min_ms: 100,
        election_max_ms: 200,
        inflight_max: 16,
        window_slots: 1 << 20,
        leases: None,
        silent_us: 0,
        thrifty: false,
        route: Route::Star,
        seed: 1,
    };
    let mut node = Node::new(options, Recovered::founded(configuration));
    let mut effects = Effects::default();
    node.step(Time(0), Input::Tick, &mut effects);
    effects.drain().find_map(|effect| match effect {
        Effect::Persist { record: Record::Round { ballot }, .. } => Some(ballot.round),
        _ => None,
    })
}

#[test]
fn incarnations_do_not_share_rounds() {
    let rounds: Vec<u32> = (0..4).filter_map(first_round).collect();
    assert_eq!(rounds[0], 1);
    assert!(rounds.windows(2).all(|pair| pair[1] - pair[0] >= 1 << 20), "{rounds:?}");
}

/// [ballot-1] Overflow: the node stops campaigning instead of starting over.
#[test]
fn a_node_out_of_rounds_does_not_campaign() {
    assert!(first_round((1 << 12) - 1).is_some());
    assert_eq!(first_round(1 << 12), None);
}
