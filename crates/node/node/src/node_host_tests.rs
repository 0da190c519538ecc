//! A node's host: what its front can ask of the reactor.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, node_set::NodeSet, record::Class, slot::Slot, time::Time};
use quorate_log::LogOptions;
use quorate_log::disk::MemoryDisk;
use quorate_replica::{
    CommandId, ReplicaOptions, StateMachine,
    events::Event,
    front::{Completion, ConnectionId, Endpoints, Front, Requests},
    plane::{Body, Plane, TooLarge},
    tuner::Change,
};
use quorate_wire::Lane;

use crate::{
    boot::{BootError, Parts, Starter, Step, boot},
    host::{ClientSide as _, Host as _, Now},
    identity::{Founding, Identity},
    listener::Listener,
};

struct Nothing;

impl StateMachine for Nothing {
    fn apply(&mut self, _: CommandId, _: &[u8], _: &mut Vec<u8>) {}
    fn query(&self, _: &[u8], _: u64, _: &mut Vec<u8>) {}
}

/// A front that has something to do, or not.
#[derive(Default)]
struct Eager {
    is_eager: bool,
}

impl Front for Eager {
    fn opened(&mut self, _: ConnectionId, _: Endpoints, _: &mut dyn Requests) {}
    fn received(&mut self, _: ConnectionId, bytes: &[u8], _: &mut dyn Requests) -> usize {
        bytes.len()
    }
    fn ready(&self, _: ConnectionId) -> bool {
        true
    }
    fn completed(&mut self, _: Completion<'_>, _: &mut dyn Requests) {}
    fn next_dirty(&mut self) -> Option<ConnectionId> {
        None
    }
    fn output(&mut self, _: ConnectionId) -> &[u8] {
        &[]
    }
    fn sent(&mut self, _: ConnectionId, _: usize) {}
    fn closing(&self, _: ConnectionId) -> bool {
        true
    }
    fn closed(&mut self, _: ConnectionId, _: &mut dyn Requests) {}
    fn is_busy(&self, _: ConnectionId) -> bool {
        false
    }
    fn open_requests(&self) -> usize {
        0
    }
    fn connections(&self) -> usize {
        0
    }
    fn is_eager(&self) -> bool {
        self.is_eager
    }
}

/// Small sizes; nothing is told.
struct Quiet;

impl Starter for Quiet {
    fn choose_log(&self, options: &mut LogOptions, _: Class) {
        options.segment_bytes = 64 << 10;
        options.write_bytes_max = 16 << 10;
        options.spare_segments = 1;
    }
    fn choose_replica(&self, _: &mut ReplicaOptions) {}
    fn hear(&mut self, _: Step<'_>) {}
    fn wait_for_room(&mut self, _: &BootError) -> bool {
        false
    }
}

impl Listener for Quiet {
    fn notice(&mut self, _: &str) {}
    fn change(&mut self, _: &Change) {}
    fn event(&mut self, _: Time, _: &Event, _: Option<&str>) {}
    fn end_turn(&mut self, _: Time) {}
}

/// There is nobody to speak to.
struct Nobody;

impl Plane for Nobody {
    fn has_room(&self, _: NodeId, _: Lane, _: usize) -> bool {
        false
    }
    fn send(&mut self, _: NodeSet, _: Lane, _: &[u8], _: Body<'_>) -> Result<NodeSet, TooLarge> {
        Ok(NodeSet::default())
    }
}

/// Nobody else would wake the reactor: a client that reads sends nothing meanwhile.
#[test]
fn a_front_that_has_more_to_do_gets_the_next_turn_at_once() {
    let founding = Founding {
        cluster: 1,
        node: NodeId(1),
        class: Class::Durable,
        store: "none".into(),
        members: BTreeMap::from([(NodeId(1), "a:1".to_owned())]),
        join_nonce: 1,
        terms: Default::default(),
    };
    let identity = Identity::create(MemoryDisk::new(), founding).unwrap();
    let parts = Parts {
        service: Nothing,
        stored_to: |_| Slot(0),
        front: Eager::default(),
        listener: Box::new(Quiet),
    };
    let mut host = boot(identity, parts, &mut Quiet).unwrap();
    // Once it has nothing to do by itself, only the front decides.
    let idle = (1..1_000).map(|turn| Time(turn * 10)).find(|now| {
        let now = Now {
            time: *now,
            wall_ms: 0,
        };
        host.poll(&mut now.turn(&mut Nobody));
        host.submit(now);
        host.end_turn(now.time).is_none_or(|at| at > now.time)
    });
    let now = idle.expect("a turn without work");
    host.front_mut().is_eager = true;
    assert_eq!(host.end_turn(now), Some(now));
}
