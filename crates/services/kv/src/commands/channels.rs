//! Messages to subscribers: PUBLISH is a command of the log that changes nothing, so every node
//! hears of it at the same place, and tells those who subscribed there ([`crate::front`]).

use crate::{
    command::{Doc, Local, Refusal, Request, Spec},
    commands::family::{Family, Operation},
    commands::state::{Writing, notice},
    encode::{Decoder, Encoder, Fault},
    op::Op,
    resp::reply::Reply,
};

/// The family.
pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[Operation::write(Op::Publish, publish)],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "publish",
        3,
        &["pubsub", "loading", "stale", "fast"],
        (0, 0, 0),
        encode_publish,
        Doc::new(
            "pubsub",
            "2.0.0",
            "O(N), where N is the number of clients of the node that subscribed to the channel",
            "Posts a message to a channel.",
        ),
    ),
    Spec::local(
        "subscribe",
        -2,
        Local::Subscribe,
        Doc::new(
            "pubsub",
            "2.0.0",
            "O(N), where N is the number of channels",
            "Listens for messages published to channels.",
        ),
    ),
    Spec::local(
        "unsubscribe",
        -1,
        Local::Unsubscribe,
        Doc::new(
            "pubsub",
            "2.0.0",
            "O(N), where N is the number of channels",
            "Stops listening to messages posted to channels.",
        ),
    ),
];

fn encode_publish(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::Publish as u8).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}

/// How many hear it no node knows of the others; the reply is the same on all of them.
pub(super) fn publish(
    from: &mut Decoder<'_>,
    state: &mut Writing<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (channel, message) = (from.bytes()?, from.bytes()?);
    from.end()?;
    tell(state, Some((channel, message)));
    reply.integer(0);
    Ok(())
}

/// Leaves a message for those who listen on this node.
pub(super) fn tell(state: &mut Writing<'_>, message: Option<(&[u8], &[u8])>) {
    if let Some((channel, message)) = message {
        let subject = [&[notice::CHANNEL], channel].concat();
        state.notices.push((subject.into(), message.into()));
    }
}
