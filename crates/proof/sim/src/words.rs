//! Text form of frames, used in traces.

use quorate_core::{
    message::Message,
    slot::{Slot, SlotRange},
    value::Value,
};
use quorate_wire::Frame;

/// Formats the contents of a frame.
pub fn describe_frame(frame: &Frame<'_>) -> String {
    match frame {
        Frame::Protocol { message, bytes } => {
            let with = bytes.map(|bytes| format!(", with {} bytes", bytes.len()));
            describe_message(message) + &with.unwrap_or_default()
        }
        Frame::Forward { value, bytes } => {
            format!("please propose {value}, with {} bytes", bytes.len())
        }
        Frame::NotTaken { value, why, .. } => format!("{value} was not taken: {why:?}"),
        Frame::FetchRequest { value, slot } => {
            format!("please send the bytes of {value}, slot {slot}")
        }
        Frame::FetchReply { value, bytes } => match bytes {
            Some(bytes) => format!("the {} bytes of {value}", bytes.len()),
            None => format!("no bytes of {value} here"),
        },
        Frame::StreamBytes { stream, position, bytes } => {
            let (owner, boot, number) = (stream.owner, stream.boot, stream.number);
            let count = bytes.len();
            format!("{count} bytes of stream {owner}/{boot}/{number}, from {position} on")
        }
        Frame::Needless { stream, below, from } => {
            let (owner, boot, number) = (stream.owner, stream.boot, stream.number);
            format!(
                "from slot {from} on no node needs bytes of stream {owner}/{boot}/{number} below {below}"
            )
        }
        Frame::Applied { to, state_digest: digest } => {
            format!("everything applied below {to} has digest {digest:016x}")
        }
        Frame::SnapshotAsk { at, .. } if *at == Slot(0) => "which snapshot is there?".to_owned(),
        Frame::SnapshotAsk { at, offset, .. } => {
            format!("please send the snapshot of slots below {at}, from byte {offset} on")
        }
        Frame::SnapshotOffer { at, bytes, .. } => {
            format!("a snapshot of slots below {at}, {bytes} bytes")
        }
        Frame::SnapshotPiece { at, offset, bytes, .. } => format!(
            "{} bytes of the snapshot of slots below {at}, from byte {offset} on",
            bytes.len()
        ),
        other => format!("{other:?}"),
    }
}

fn describe_message(message: &Message) -> String {
    match message {
        Message::Phase1a { ballot, from } => format!("1a ballot {ballot} from slot {from}"),
        Message::Phase1b(m) => {
            let votes: Vec<String> =
                m.extents.iter().map(|vote| describe_value_at(vote.range, &vote.value)).collect();
            let votes = if votes.is_empty() { "no votes".to_owned() } else { votes.join(", ") };
            format!("1b ballot {}, floor {}, {votes}", m.ballot, m.floor)
        }
        Message::Preempted { ballot, promised } => {
            format!("preempted {ballot}: promised {promised}")
        }
        Message::Phase2a(m) => {
            format!(
                "2a ballot {}, {}, decided below {}",
                m.ballot,
                describe_value_at(m.range, &m.value),
                m.decided_to
            )
        }
        Message::Phase2b(m) => {
            let (from, to) = (m.from, m.durable_to);
            format!("2b ballot {}, slots {from}..{}, durable below {to}", m.ballot, m.volatile_to)
        }
        Message::Lay { ballot, number, members } => {
            let members: Vec<String> = members.iter().map(|m| m.node.to_string()).collect();
            format!("ring {number} of ballot {ballot}: {}", members.join(" → "))
        }
        Message::RingVote(m) => {
            let entries = m.entries.iter().map(|entry| {
                format!("{} to {}/{}", entry.member, entry.volatile_to, entry.durable_to)
            });
            let entries: Vec<String> = entries.collect();
            format!("ring vote ballot {}: {}", m.ballot, entries.join(", "))
        }
        Message::Arm { ballot, slot, .. } => format!("arm in ballot {ballot} from slot {slot}"),
        Message::Armed { ballot, floor } => format!("armed in ballot {ballot} from slot {floor}"),
        Message::Decided { ballot, decided_to } => {
            format!("decided below {decided_to} in ballot {ballot}")
        }
        Message::Heartbeat(m) => {
            let read = if m.read_round > 0 {
                format!(", read round {}", m.read_round)
            } else {
                String::new()
            };
            format!("heartbeat ballot {}, decided below {}{read}", m.ballot, m.decided_to)
        }
        Message::HeartbeatReply(m) => {
            format!("heard ballot {}, decided below {}", m.ballot, m.decided_to)
        }
        Message::PreVote { ballot } => format!("pre-vote: would you promise {ballot}?"),
        Message::PreVoteReply { ballot, granted, .. } => {
            format!("pre-vote {ballot}: {}", if *granted { "yes" } else { "no" })
        }
        Message::Transfer { ballot } => format!("lead instead of {ballot}"),
        Message::CatchupRequest { range } => format!("please teach slots {range}"),
        Message::Learn { range, value } => format!("learn {}", describe_value_at(*range, value)),
        Message::BelowStart { log_start } => format!("the log starts at slot {log_start} here"),
        Message::ReadRequest { id } => format!("read {id}: up to where?"),
        Message::ReadReply { id, slot } => format!("read {id}: below slot {slot}"),
        Message::LastingRequest { to } => format!("are slots below {to} on your disk?"),
        Message::LastingReply { to } => format!("slots below {to} are on my disk"),
        Message::EarlyRequest(question) => format!(
            "are slots below {} in your memory, voted for in ballot {}?",
            question.to, question.ballot
        ),
        Message::EarlyReply { ballot, from, to } => {
            format!("slots {from} to {to} are in my memory, voted for in ballot {ballot}")
        }
    }
}

fn describe_value_at(range: SlotRange, value: &Value) -> String {
    let many = if range.len() == 1 { "slot" } else { "slots" };
    format!("{many} {range} = {value}")
}
