//! Per-concern state of a world: faults, datagrams, frames, operators and streams. Each has its own
//! random number generator.

use std::collections::VecDeque;

use quorate_packets::plane::GroupPath;
use quorate_replica::group::asking::{GroupAnswer, GroupRefusal};

use crate::{
    dice::Dice,
    faults::{LossScope, RunSettings},
    network::{Carrier, NetworkConditions},
};

/// State of the faults in a run.
pub(super) struct FaultState {
    pub(super) faults_go_on: bool,
    /// For each node, whether it may forget its votes in this run.
    pub(super) may_forget: Vec<bool>,
    pub(super) store_dice: Dice,
    /// Dice for stalls of processes within a turn.
    pub(super) stall_dice: Dice,
    pub(super) scrub_dice: Dice,
    /// Dice for misdirected writes and damaged small files.
    pub(super) stray_dice: Dice,
    /// Dice for disks that lose acknowledged data.
    pub(super) lie_dice: Dice,
    /// Dice for clients that request a class other than the group's.
    pub(super) class_dice: Dice,
}

impl FaultState {
    pub(super) fn new(settings: &RunSettings, dice: &mut Dice) -> Self {
        let mut may_forget =
            vec![false; settings.founding_member_count + settings.spare_node_count];
        let beyond = settings.loss_scope == LossScope::Beyond;
        for _ in 0..settings.forgetting_nodes_max() {
            may_forget[dice.index(settings.founding_member_count)] = true;
        }
        may_forget.iter_mut().for_each(|may| *may |= beyond);
        Self {
            faults_go_on: true,
            may_forget,
            store_dice: Dice::new(!settings.seed),
            stall_dice: Dice::new(!settings.seed ^ 0x5374_616c_6c73),
            scrub_dice: Dice::new(!settings.seed ^ 0x5363_7275_6273),
            stray_dice: Dice::new(!settings.seed ^ 0x5374_7261_7973),
            lie_dice: Dice::new(!settings.seed ^ 0x4c69_6573),
            class_dice: Dice::new(!settings.seed ^ 0x436c_6173),
        }
    }

    /// Returns whether faults may still occur.
    pub(super) fn faults_go_on(&self) -> bool {
        self.faults_go_on
    }

    /// Returns whether any node may forget its votes in this run.
    pub(super) fn may_any_forget(&self) -> bool {
        self.may_forget.contains(&true)
    }

    pub(super) fn may_forget(&self, node: usize) -> bool {
        self.may_forget[node]
    }

    /// Allows a node to forget its votes, because a test restored an old folder.
    pub(super) fn let_forget(&mut self, node: usize) {
        self.may_forget[node] = true;
    }
}

/// State of datagrams in flight.
pub(super) struct DatagramState {
    pub(super) dice: Dice,
    /// For each node, whether it has lost multicast reception.
    pub(super) lost_reception: Vec<bool>,
}

impl DatagramState {
    pub(super) fn new(seed: u64, nodes: usize) -> Self {
        Self { dice: Dice::new(!seed ^ 0x466c_6967_6874_7321), lost_reception: vec![false; nodes] }
    }

    pub(super) fn group_path(weather: &NetworkConditions) -> Option<GroupPath> {
        match weather.carrier {
            Carrier::Packets { broadcast_path: reach } => Some(reach),
            Carrier::Streams | Carrier::Datagrams => None,
        }
    }
}

pub(super) struct FrameState {
    pub(super) dice: Dice,
    /// Recent frames, which strangers may replay.
    pub(super) recent_frames: VecDeque<Vec<u8>>,
}

impl FrameState {
    pub(super) fn new(seed: u64) -> Self {
        Self { dice: Dice::new(!seed ^ 0x4672_616d_6573_2121), recent_frames: VecDeque::new() }
    }
}

/// State of the operators in a run.
#[derive(Debug)]
pub(super) struct OperatorState {
    /// Dice for operators, separate so that seeds without operators replay unchanged.
    pub(super) dice: Dice,
    pub(super) last_request: u64,
    /// Number of the request for whose answer a scenario is waiting.
    pub(super) awaited_request: Option<u64>,
    pub(super) answer: Option<Result<GroupAnswer, GroupRefusal>>,
}

impl OperatorState {
    pub(super) fn new(settings: &RunSettings) -> Self {
        Self {
            dice: Dice::new(settings.seed ^ 0x4f70_6572_6174_6f72),
            last_request: 0,
            awaited_request: None,
            answer: None,
        }
    }
}

/// State of the byte streams in a run.
pub(crate) struct StreamState {
    /// Dice for byte streams, separate so that seeds without streams replay unchanged.
    pub(crate) dice: Dice,
    pub(super) tag_count: u64,
}

impl StreamState {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed ^ 0x5374_7265_616d_6572), tag_count: 0 }
    }
}
