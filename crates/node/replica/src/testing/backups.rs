//! Backups made by hand, for tests and as seeds of the fuzz target `backup`.

use quorate_core::{
    ballot::Era,
    class::Class,
    configuration::{Change, Configuration},
    node_id::{Member, NodeId},
    reconfigure::Eras,
    slot::Slot,
    value::Value,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    applying::membership::Membership,
    backup::{Encoder, Header, Summary},
    group::Group,
    snapshots::{header::Header as StreamHeader, stream::Item},
};

/// Behind it the snapshot was taken.
pub const SLOT: Slot = Slot(500);
/// Whose snapshot it is.
pub const CLUSTER: u128 = 7;

/// Two: a founding with three nodes, and one that came later.
pub fn eras() -> Eras {
    let members = [1, 2, 3].map(Member::first);
    let founded = Configuration::simple(members, Class::Durable);
    let mut eras = Eras::founded(founded.expect("three nodes are a configuration"));
    let change = Change::Increment(Member::first(4));
    let era = eras.era();
    assert!(eras.decide(Slot(9), &Value::Reconfigure { era, change }));
    eras
}

fn table() -> Group {
    Group::founded((1..=4).map(|node| (NodeId(node), format!("n{node}:1"))))
}

/// The stream of a snapshot with these items of the service, and a session.
pub fn stream(items: &[Vec<u8>]) -> Vec<u8> {
    let header = StreamHeader {
        cluster: CLUSTER,
        at: SLOT,
        eras: eras(),
    };
    let mut out = Vec::new();
    Item::Header(&header.encode()).encode(&mut out);
    let (key, value) = Membership::new(table(), eras()).entry();
    Item::Meta(&key, &value).encode(&mut out);
    Item::Meta(b"session", b"of somebody").encode(&mut out);
    for item in items {
        Item::Service(item).encode(&mut out);
    }
    out
}

/// What the file of a backup says of this stream.
pub fn header_of(stream: &[u8]) -> Header {
    Header {
        cluster: CLUSTER,
        slot: SLOT,
        era: Era(1),
        next_id: 9,
        class: Class::Durable,
        store: "lsm".to_owned(),
        bytes: stream.len() as u64,
        digest: xxh3_128(stream),
    }
}

/// The file, with the stream in pieces of this size.
pub fn file_of(header: &Header, stream: &[u8], piece: usize) -> (Vec<u8>, Summary) {
    let (mut encoder, mut out) = Encoder::begin(header);
    for piece in stream.chunks(piece) {
        out.extend(encoder.chunks(piece));
    }
    let (summary, end) = encoder.end();
    out.extend(end);
    (out, summary)
}
