//! One datagram of each kind, sealed: golden vectors and seeds of the fuzz targets.

use quorate_core::{
    ballot::{Ballot, Era},
    node_id::{Member, NodeId},
    slot::Slot,
};
use quorate_packets::{
    body::{Body, Chain, ChannelName, ChannelNumbers, ChannelOpening, ProbeAnswer, Report, Tail},
    header::{CONTROL_CHANNEL, Header},
    trust::{GroupIdentity, Key, TagContext, TagKey},
};

fn group() -> GroupIdentity {
    GroupIdentity { cluster: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff, group: 1, generation: 2 }
}

fn sealed(header: Header, body: &Body<'_>, key: Option<&Key>, to: Option<Member>) -> Vec<u8> {
    let mut bytes = header.bytes().to_vec();
    body.write(&mut bytes);
    let place = TagContext {
        group: group(),
        sender: Member { node: header.sender, ..Member::first(0) },
        boot: header.boot,
        channel: header.channel,
    };
    TagKey::new(key, &place).write_tag(&mut bytes, to);
    bytes
}

pub(crate) fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let of = ChannelName { owner: NodeId(1), boot: 3, channel: 1 };
    let numbers = ChannelNumbers { channel: of, ranges: vec![5..6, 9..4000] };
    let message: Vec<u8> = (0..40).collect();
    let tail = Tail {
        channel: 1,
        next: 77,
        ballot: Ballot { era: Era(4), round: 9, node: NodeId(1) },
        decided_to: Slot(1234),
    };
    let report = Report { missed_numbers: numbers.clone(), lost_total: 6000, covers_below: 4001 };
    let opening = |channel, to_one, from| ChannelOpening { channel, is_unicast: to_one, from };
    let answer = ProbeAnswer {
        nonce: 0x1122_3344_5566_7788,
        channels: vec![opening(0, false, 12), opening(1, false, 77), opening(2, true, 1)],
    };
    let to = Member::first(2);
    let key = Key::new([7; 32]);
    let make = |body: &Body<'_>,
                channel,
                one: Option<Member>,
                (number, index, count),
                key: Option<&Key>| {
        let header = Header {
            kind: body.kind(),
            key: u8::from(key.is_some()),
            channel,
            is_unicast: one.is_some(),
            sender: NodeId(1),
            boot: 3,
            group: group().header_hint(),
            number,
            index,
            part_count: count,
        };
        sealed(header, body, key, one)
    };
    let chain = Chain { chain_number: 7, nodes: vec![NodeId(2), NodeId(5), NodeId(3)] };
    let whole = make(&Body::Fragment(&message), 1, None, (5, 0, 1), Some(&key));
    let control =
        |body: &Body<'_>, number| make(body, CONTROL_CHANNEL, Some(to), (number, 0, 1), Some(&key));
    vec![
        ("message", whole.clone()),
        ("part", make(&Body::Fragment(&message), 1, None, (9, 2, 3), Some(&key))),
        ("part-to-one", make(&Body::Fragment(&message), 2, Some(to), (2, 0, 2), Some(&key))),
        ("without-key", make(&Body::Fragment(&message), 1, None, (5, 0, 1), None)),
        ("tail", make(&Body::Tail(tail), CONTROL_CHANNEL, None, (12, 0, 1), Some(&key))),
        ("nak", control(&Body::Nak(numbers.clone()), 13)),
        ("report", control(&Body::Report(report), 14)),
        ("gone", control(&Body::Gone(numbers), 15)),
        ("repair", control(&Body::Repair(&whole), 16)),
        (
            "repair-part",
            make(&Body::Repair(&whole[..20]), CONTROL_CHANNEL, Some(to), (17, 0, 2), Some(&key)),
        ),
        ("probe", control(&Body::Probe(0x1122_3344_5566_7788), 19)),
        ("answer", control(&Body::Answer(answer), 20)),
        ("chain", control(&Body::Chain(chain), 21)),
    ]
}
