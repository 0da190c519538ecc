//! Feature level that each frame requires. Nodes that support only lower levels cannot decode the
//! frame ([level-2]).
//!
//! Both matches are exhaustive, so that a new kind of frame or message does not compile without its
//! level. The layout of frames is the same at all levels. Level 9 introduced one kind of value and
//! two kinds of frames. Level 10 introduced four more kinds of frames, and a number in fields that
//! were zero before ([`crate::logged`]).

use quorate_core::{
    level::Level,
    message::{Extent, Message},
    witness,
};

use crate::frame::Frame;

/// Returns the level that introduced the contents of `frame`.
pub fn level_of(frame: &Frame<'_>) -> Level {
    match frame {
        Frame::Protocol { message, .. } => level_of_message(message),
        Frame::Forward { value, .. }
        | Frame::NotTaken { value, .. }
        | Frame::FetchRequest { value, .. }
        | Frame::FetchReply { value, .. } => Level::of(value),
        // The layout of handshake frames never changes, because they negotiate the level.
        Frame::Hello(_)
        | Frame::Welcome(_)
        | Frame::Refused(..)
        | Frame::Join(_)
        | Frame::Founding(_)
        | Frame::Datagrams(_)
        | Frame::Applied { .. }
        | Frame::SnapshotAsk { .. }
        | Frame::SnapshotOffer { .. }
        | Frame::SnapshotPiece { .. }
        | Frame::StreamBytes { .. }
        | Frame::Needless { .. } => Level(8),
        Frame::Recall { .. } | Frame::Recalled(_) => witness::MIN_LEVEL,
    }
}

fn level_of_message(message: &Message) -> Level {
    match message {
        Message::Phase2a(proposal) => Level::of(&proposal.value),
        Message::Learn { value, .. } => Level::of(value),
        Message::Phase1b(promise) => {
            let levels = promise.extents.iter();
            let level = |extent: &Extent| Level::of(&extent.value);
            levels.map(level).max().unwrap_or(Level(8))
        }
        Message::Phase1a { .. }
        | Message::Preempted { .. }
        | Message::Phase2b(_)
        | Message::Lay { .. }
        | Message::RingVote(_)
        | Message::Arm { .. }
        | Message::Armed { .. }
        | Message::Decided { .. }
        | Message::Heartbeat(_)
        | Message::HeartbeatReply(_)
        | Message::PreVote { .. }
        | Message::PreVoteReply { .. }
        | Message::Transfer { .. }
        | Message::CatchupRequest { .. }
        | Message::BelowStart { .. }
        | Message::ReadRequest { .. }
        | Message::ReadReply { .. } => Level(8),
        Message::LastingRequest { .. } | Message::LastingReply { .. } => Level(9),
        Message::EarlyRequest(_) | Message::EarlyReply { .. } => Level(10),
    }
}
