//! Test fixture: three nodes at a level, for clients that request another class ([class-2]).

use quorate_core::{level::Level, node_id::NodeId, record::Class, slot::Slot};
use quorate_replica::{
    RaisePolicy,
    front::Tag,
    group::asking::{GroupAnswer, GroupRequest},
    service::{CommandId, StateMachine},
    testing::{Cluster, Outcome},
};

pub(crate) const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

/// Records its executed commands, and replies with the slot of the command.
#[derive(Default)]
pub(crate) struct Places(Vec<(Slot, Vec<u8>)>);

impl Places {
    pub(crate) fn places(&self, command: &[u8]) -> Vec<Slot> {
        let same = self.0.iter().filter(|(_, known)| known == command);
        same.map(|(slot, _)| *slot).collect()
    }
}

impl StateMachine for Places {
    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.0.push((id.slot, command.to_vec()));
        reply.extend_from_slice(&id.slot.0.to_le_bytes());
    }

    fn query(&self, _: &[u8], _: u64, _: &mut Vec<u8>) {}
}

pub(crate) struct Stage {
    pub(crate) cluster: Cluster<Places>,
}

impl Stage {
    /// Creates a group with a leader, raised to feature level `level` step by step.
    pub(crate) fn raised(class: Class, level: Level, seed: u64) -> Self {
        let mut options = Cluster::<Places>::options(3, class);
        options.raise_policy = RaisePolicy::OnRequest;
        options.client_timeout_ms = 5_000;
        let mut cluster = Cluster::with_options(options, seed, |_| Places::default());
        NODES.iter().for_each(|node| cluster.start(*node));
        let mut stage = Self { cluster };
        stage.leader();
        for next in Level::BASE.next().0..=level.0 {
            let leader = stage.leader();
            assert_eq!(stage.cluster.ask_group(leader, GroupRequest::Raise), Ok(GroupAnswer::Done));
            let raised = |cluster: &mut Cluster<Places>| {
                let mut nodes = NODES.iter();
                nodes.all(|node| cluster.replica(*node).level() == Level(next))
            };
            assert!(stage.cluster.run_until(5_000, raised));
        }
        stage
    }

    pub(crate) fn leader(&mut self) -> NodeId {
        let leads = |cluster: &mut Cluster<Places>| cluster.leader().is_some();
        assert!(self.cluster.run_until(10_000, leads));
        self.cluster.leader().unwrap()
    }

    /// Returns the result of a request, if it ends within `ms` milliseconds.
    pub(crate) fn outcome(&mut self, node: NodeId, tag: Tag, ms: u64) -> Option<Outcome> {
        let ended = |cluster: &mut Cluster<Places>| cluster.outcome(node, tag).is_some();
        self.cluster.run_until(ms, ended);
        self.cluster.outcome(node, tag).cloned()
    }
}
