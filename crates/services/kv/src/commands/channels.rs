//! Pub/Sub messages. PUBLISH and SPUBLISH are logged commands that change no data. Every node
//! executes them at the same position and notifies its own subscribers ([`crate::front`]).

use crate::{
    command::{Doc, Local, Refusal, Request, Spec, SubscriptionKind},
    commands::family::{Family, Operation},
    commands::state::{WriteContext, notice},
    encode::{Decoder, Encoder, Fault, Malformed},
    op::Op,
    resp::reply::Reply,
    waits::FrontId,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::write(Op::Publish, publish),
        Operation::write(Op::PublishShard, publish_shard),
        Operation::write(Op::Announce, announce),
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
        ).with_difference("the reply counts the subscribers at other nodes as of a moment before; 0 within EXEC and in numbered commands"),
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
        ).with_difference("as `PUBLISH`; there are no shards"),
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
        ).with_difference("there are no shards: another space of names"),
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
            "A container for Pub/Sub commands.",
        ).with_difference("counts those at other nodes as of a moment before"),
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
    queue_message(state, to, channel, message);
    reply.integer(0);
    Ok(())
}

pub(super) fn queue_notice(state: &mut WriteContext<'_>, message: Option<(&[u8], &[u8])>) {
    if let Some((channel, message)) = message {
        queue_message(state, notice::CHANNEL, channel, message);
    }
}

fn queue_message(state: &mut WriteContext<'_>, to: u8, channel: &[u8], message: &[u8]) {
    let subject = [&[to], channel].concat();
    state.notices.push((subject.into(), message.into()));
}

/// Number of a node's clients that subscribe to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribed<'a> {
    pub of: SubscriptionKind,
    pub name: &'a [u8],
    pub count: u64,
}

/// Announcement of a node's subscriptions, which changes no data.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// Front of the clients.
    pub owner: FrontId,
    /// What the node announced before no longer holds.
    pub begins: bool,
    /// The other nodes are to announce all of their subscriptions.
    pub requests_counts: bool,
    count: usize,
    names: Decoder<'a>,
}

impl<'a> Announcement<'a> {
    pub fn encode<'n>(
        owner: FrontId,
        begins: bool,
        asks: bool,
        names: impl Iterator<Item = Subscribed<'n>>,
    ) -> Vec<u8> {
        let (mut command, mut list, mut count) = (Vec::new(), Vec::new(), 0);
        let list_out = &mut Encoder(&mut list);
        for Subscribed { of, name, count: subscribers } in names {
            list_out.byte(of.number()).bytes(name).count(subscribers);
            count += 1;
        }
        let out = &mut Encoder(&mut command);
        out.byte(Op::Announce as u8);
        owner.encode(out);
        out.byte(u8::from(begins) | u8::from(asks) << 1).length(count);
        command.extend_from_slice(&list);
        command
    }

    /// Decodes what follows the operation number.
    pub fn decode(from: &mut Decoder<'a>) -> Result<Self, Malformed> {
        let (owner, flags, count) = (FrontId::decode(from)?, from.byte()?, from.length()?);
        let names = *from;
        for _ in 0..count {
            Subscribed::decode(from)?;
        }
        from.end()?;
        Ok(Self { owner, begins: flags & 1 != 0, requests_counts: flags & 2 != 0, count, names })
    }

    pub fn names(&self) -> impl Iterator<Item = Subscribed<'a>> {
        let mut names = self.names;
        (0..self.count).map_while(move |_| Subscribed::decode(&mut names).ok())
    }
}

impl<'a> Subscribed<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Malformed> {
        let of = SubscriptionKind::from_number(from.byte()?).ok_or(Malformed)?;
        Ok(Self { of, name: from.bytes()?, count: from.count()? })
    }
}

/// Passes an announcement to the fronts.
fn announce(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let message = from.0;
    Announcement::decode(from)?;
    state.notices.push((notice::ANNOUNCED.into(), message.into()));
    reply.ok();
    Ok(())
}
