//! Properties that hold for any bytes that arrive as a datagram.

use quorate_core::{
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_packets::{
    body::{Body, CHAIN_MAX, CHANNELS_MAX, ChannelOpening, RANGES_MAX},
    endpoint::{Endpoint, Settings},
    header::{HEADER_BYTES, Header},
    limits::Limits,
    receive::Delivery,
    trust::{GroupIdentity, Introduction, KeyRing, Refusal, TagContext, TagKey},
};

fn group() -> GroupIdentity {
    GroupIdentity { cluster: 1, group: 1, generation: 0 }
}

/// Checks the bytes as they are, and as a faulty peer could seal them.
pub(crate) fn check(bytes: &[u8]) {
    read(bytes);
    let mut endpoint = endpoint();
    assert!(endpoint.handle(bytes, Time(1)).is_err() || bytes.len() >= HEADER_BYTES);
    let Some(sealed) = sealed(bytes) else {
        return;
    };
    read(&sealed);
    let first = endpoint.handle(&sealed, Time(2));
    settle(&mut endpoint);
    // Nothing is accepted twice except a probe of a peer that was not introduced.
    let second = endpoint.handle(&sealed, Time(3));
    assert!(first.is_err() || second == Err(Refusal::Repeated), "{first:?}, {second:?}");
    // Sends the same bytes as the original in a member's envelope.
    endpoint.handle(&envelope(&sealed), Time(4)).ok();
    settle(&mut endpoint);
}

/// Checks that a datagram that can be read can be written again as the same bytes.
fn read(bytes: &[u8]) {
    let Ok((header, tag, payload)) = Header::read(bytes) else {
        return;
    };
    assert!(header.first_number() >= 1 && header.index < header.part_count);
    let Ok(body) = Body::read(header.kind, payload) else {
        return;
    };
    let mut again = header.bytes().to_vec();
    again[HEADER_BYTES - tag.len()..].copy_from_slice(&tag);
    body.write(&mut again);
    assert!(again == bytes, "{header:?} {body:?} is written otherwise");
    match body {
        Body::Nak(numbers) | Body::Gone(numbers) => assert!(numbers.ranges.len() <= RANGES_MAX),
        Body::Chain(chain) => assert!(chain.nodes.len() <= CHAIN_MAX),
        Body::Answer(answer) => assert!(answer.channels.len() <= CHANNELS_MAX),
        _ => {}
    }
}

/// Does the work that is due, for a bounded number of turns.
fn settle(endpoint: &mut Endpoint) {
    for _ in 0..20 {
        let Some(due) = endpoint.next_poll_at() else {
            break;
        };
        endpoint.poll(due);
        assert!(endpoint.take_control().len() <= 4096);
        endpoint.take_events();
    }
}

const PEER: Member = Member::first(1);

fn endpoint() -> Endpoint {
    let settings = Settings {
        own_member: Member::first(2),
        boot: 1,
        group: group(),
        keys: KeyRing::none(),
        limits: Limits { buffer_bytes: 64 << 10, ..Limits::for_mtu(1500) },
        delivery: Delivery::InOrder,
        retains_datagrams: true,
        seed: 1,
    };
    let mut endpoint = Endpoint::new(settings, Time(0));
    endpoint.set_allowed_members(&[PEER, Member::first(3)]);
    endpoint.set_acceptors(&[NodeId(1), NodeId(2), NodeId(3)]);
    endpoint.open(1, None, Time(0)).expect("no channel is open");
    endpoint.send(1, &[0; 5000]).expect("there is room");
    while endpoint.next_data_run(1, Time(0)).is_some() {}
    let opening = |channel, to_one| ChannelOpening { channel, is_unicast: to_one, from: 1 };
    endpoint.introduce(&Introduction {
        member: PEER,
        boot: 3,
        channels: vec![opening(0, false), opening(1, false), opening(2, true)],
    });
    endpoint
}

/// Returns the bytes with the tag that the peer would have made.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut sealed = bytes.to_vec();
    sealed.get(..HEADER_BYTES)?;
    sealed[1] = 0;
    sealed[4..8].copy_from_slice(&PEER.node.0.to_le_bytes());
    sealed[8..12].copy_from_slice(&3_u32.to_le_bytes());
    sealed[12..16].copy_from_slice(&group().header_hint().to_le_bytes());
    let channel = sealed[2];
    let to = (sealed[3] & 1 == 1).then_some(Member::first(2));
    seal(channel).write_tag(&mut sealed, to);
    Some(sealed)
}

fn seal(channel: u8) -> TagKey {
    let place = TagContext { group: group(), sender: PEER, boot: 3, channel };
    TagKey::new(None, &place)
}

fn envelope(original: &[u8]) -> Vec<u8> {
    let header = Header {
        kind: quorate_packets::header::Kind::Repair,
        key: 0,
        channel: 0,
        is_unicast: true,
        sender: PEER.node,
        boot: 3,
        group: group().header_hint(),
        number: 1 << 40,
        index: 0,
        part_count: 1,
    };
    let mut bytes = header.bytes().to_vec();
    bytes.extend_from_slice(original);
    seal(0).write_tag(&mut bytes, Some(Member::first(2)));
    bytes
}
