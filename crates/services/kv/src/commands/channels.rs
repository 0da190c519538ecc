//! Pub/Sub messages. PUBLISH and SPUBLISH are logged commands that change no data. Every node
//! executes them at the same position and notifies its own subscribers ([`crate::front`]).

use crate::{
    command::{Doc, Local, Refusal, Request, Spec, SubscriptionKind},
    commands::family::{Family, Operation},
    commands::state::{WriteContext, notice},
    encode::{Decoder, Encoder, Fault},
    op::Op,
    resp::reply::Reply,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::write(Op::Publish, publish),
        Operation::write(Op::PublishShard, publish_shard),
    ],
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
        ).differs("the reply counts the listeners of this node only; 0 within EXEC and in numbered commands"),
    ),
    Spec::data(
        "spublish",
        3,
        &["pubsub", "loading", "stale", "fast"],
        (1, 1, 1),
        encode_spublish,
        Doc::new(
            "pubsub",
            "7.0.0",
            "O(N), where N is the number of clients of the node that subscribed to the channel",
            "Posts a message to a shard channel.",
        ).differs("the reply counts the listeners of this node only; 0 within EXEC and in numbered commands; there are no shards"),
    ),
    Spec::local(
        "subscribe",
        -2,
        Local::Subscribe(SubscriptionKind::Channel),
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
        Local::Unsubscribe(SubscriptionKind::Channel),
        Doc::new(
            "pubsub",
            "2.0.0",
            "O(N), where N is the number of channels",
            "Stops listening to messages posted to channels.",
        ),
    ),
    Spec::local(
        "psubscribe",
        -2,
        Local::Subscribe(SubscriptionKind::Pattern),
        Doc::new(
            "pubsub",
            "2.0.0",
            "O(N), where N is the number of patterns",
            "Listens for messages published to channels that match one or more patterns.",
        ),
    ),
    Spec::local(
        "punsubscribe",
        -1,
        Local::Unsubscribe(SubscriptionKind::Pattern),
        Doc::new(
            "pubsub",
            "2.0.0",
            "O(N), where N is the number of patterns",
            "Stops listening to messages published to channels that match one or more patterns.",
        ),
    ),
    Spec::local(
        "ssubscribe",
        -2,
        Local::Subscribe(SubscriptionKind::Shard),
        Doc::new(
            "pubsub",
            "7.0.0",
            "O(N), where N is the number of channels",
            "Listens for messages published to shard channels.",
        ).differs("there are no shards: another space of names"),
    ),
    Spec::local(
        "sunsubscribe",
        -1,
        Local::Unsubscribe(SubscriptionKind::Shard),
        Doc::new(
            "pubsub",
            "7.0.0",
            "O(N), where N is the number of channels",
            "Stops listening to messages posted to shard channels.",
        ),
    ),
    Spec::local(
        "pubsub",
        -2,
        Local::Pubsub,
        Doc::new(
            "pubsub",
            "2.8.0",
            "O(N), where N is the number of channels asked for, or of all",
            "Tells which channels clients of this node listen to.",
        ).differs("tells of the clients of this node"),
    ),
];

fn encode_publish(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::Publish as u8).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}

fn encode_spublish(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::PublishShard as u8).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}

/// Executes PUBLISH. All nodes give the same reply, so it does not depend on their subscribers.
pub(super) fn publish(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    post(notice::CHANNEL, from, state, reply)
}

/// Executes SPUBLISH. There are no shards, so shard channels are simply another namespace.
pub(super) fn publish_shard(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    post(notice::SHARD, from, state, reply)
}

fn post(
    to: u8,
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (channel, message) = (from.bytes()?, from.bytes()?);
    from.end()?;
    leave(state, to, channel, message);
    reply.integer(0);
    Ok(())
}

pub(super) fn queue_notice(state: &mut WriteContext<'_>, message: Option<(&[u8], &[u8])>) {
    if let Some((channel, message)) = message {
        leave(state, notice::CHANNEL, channel, message);
    }
}

fn leave(state: &mut WriteContext<'_>, to: u8, channel: &[u8], message: &[u8]) {
    let subject = [&[to], channel].concat();
    state.notices.push((subject.into(), message.into()));
}
