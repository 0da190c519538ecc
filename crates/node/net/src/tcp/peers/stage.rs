//! Stages of a connection, the requests in a greeting, and the effect of each frame.

use quorate_core::{
    level::Levels,
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_wire::{Hello, Lane};

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// The dial is in progress.
    Dialling { node: NodeId, lane: Lane, deadline: Time },
    /// The connection is established and this node's hello has been sent.
    Greeting { node: NodeId, lane: Lane, deadline: Time },
    /// The connection was accepted; no greeting has arrived yet.
    Stranger { deadline: Time },
    /// A greeting has arrived that names a peer that already has a live connection.
    Newcomer { deadline: Time },
    /// The last frame is being sent, and further input is discarded.
    Leaving { deadline: Time },
    /// The connection is in use.
    Open { member: Member, boot: u32, levels: Levels, lane: Lane },
}

impl Stage {
    pub(super) const fn deadline(self) -> Option<Time> {
        match self {
            Self::Dialling { deadline, .. }
            | Self::Greeting { deadline, .. }
            | Self::Stranger { deadline }
            | Self::Newcomer { deadline }
            | Self::Leaving { deadline } => Some(deadline),
            Self::Open { .. } => None,
        }
    }

    /// Returns whether the other side is not yet an admitted peer.
    pub(super) const fn is_stranger(self) -> bool {
        matches!(self, Self::Stranger { .. } | Self::Newcomer { .. } | Self::Leaving { .. })
    }

    /// Returns the node and the lane that the connection serves or will serve.
    pub(super) const fn lane(self) -> Option<(NodeId, Lane)> {
        match self {
            Self::Dialling { node, lane, .. } | Self::Greeting { node, lane, .. } => {
                Some((node, lane))
            }
            Self::Open { member, lane, .. } => Some((member.node, lane)),
            Self::Stranger { .. } | Self::Newcomer { .. } | Self::Leaving { .. } => None,
        }
    }
}

/// Effect of a frame on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    GoOn,
    Close,
}

/// The sender of a greeting, with its request.
#[derive(Clone, Debug)]
pub(super) struct Greeter {
    pub(super) member: Member,
    pub(super) boot: u32,
    /// Feature levels that the greeter supports.
    pub(super) levels: Levels,
    pub(super) lane: Lane,
    pub(super) client: String,
    pub(super) admin: String,
    pub(super) stream: String,
}

impl Greeter {
    pub(super) fn of(hello: &Hello<'_>) -> Self {
        Self {
            member: hello.from,
            boot: hello.boot,
            levels: hello.levels,
            lane: hello.lane,
            client: hello.client.to_owned(),
            admin: hello.admin.to_owned(),
            stream: hello.stream.to_owned(),
        }
    }
}
