//! Hand-built backups, for tests and as seeds of the fuzz target `backup`.

use std::ops::Range;

use quorate_core::{
    ballot::Era,
    class::Class,
    configuration::{Change, Configuration},
    node_id::{Member, NodeId},
    reconfigure::Eras,
    slot::{Slot, SlotRange},
    value::{StreamName, Value},
};
use quorate_stream::{Command, OpenMode, Table, Writer};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    applying::membership::Membership,
    backup::{BackupEncoder, BackupHeader, BackupSummary},
    group::Group,
    snapshots::{header::SnapshotHeader as StreamHeader, stream::Item},
};

/// Slot of the snapshot, which is the state after all slots below it.
pub const SLOT: Slot = Slot(500);
/// Id of the cluster from which the backups were made.
pub const CLUSTER: u128 = 7;

/// Returns two eras: the founding one of three nodes, and one with another node.
pub fn eras() -> Eras {
    let members = [1, 2, 3].map(Member::first);
    let founded = Configuration::majority_of(members, Class::Durable);
    let mut eras = Eras::founded(founded.expect("three nodes are a configuration"));
    let change = Change::Increment(Member::first(4));
    let era = eras.era();
    assert!(eras.apply_decided(Slot(9), &Value::Reconfigure { era, change }));
    eras
}

fn table() -> Group {
    Group::founded((1..=4).map(|node| (NodeId(node), format!("n{node}:1"))))
}

/// Returns a table of three byte streams. One is open, with a trimmed start and its second piece
/// being written; one is closed; one is empty.
pub fn byte_streams() -> Table {
    let inner = |owner, number| StreamName { owner: NodeId(owner), boot: 3, number };
    let open = |name: &str, how, writer, stream| Command::Open {
        name: name.parse().expect("a name"),
        mode: how,
        writer: Writer(writer),
        stream,
        now_ms: 0,
    };
    let mut table = Table::default();
    let mut slot = 10;
    let mut execute = |table: &mut Table, command: Command| {
        slot += 1;
        let done = table.execute(Slot(slot), &command.encode());
        done.expect("these are in order");
    };
    let append = |table: &mut Table, stream, count: u64| {
        let next = table.next_position(stream).expect("it is open");
        let range = SlotRange::new(Slot(100 + next), Slot(100 + next + count));
        assert_eq!(table.append(stream, 100, range), next..next + count);
    };
    execute(&mut table, open("grows", OpenMode::Create, 1, inner(1, 1)));
    append(&mut table, inner(1, 1), 1000);
    execute(&mut table, open("grows", OpenMode::Takeover, 2, inner(2, 1)));
    append(&mut table, inner(2, 1), 500);
    let (name, before) = ("grows".parse().expect("a name"), 300);
    execute(&mut table, Command::Trim { name, retain_from: before });
    execute(&mut table, open("closed", OpenMode::Create, 3, inner(1, 2)));
    append(&mut table, inner(1, 2), 70);
    let (stream, finish) = (inner(1, 2), true);
    execute(&mut table, Command::Close { stream, finish });
    execute(&mut table, open("empty", OpenMode::Create, 4, inner(1, 3)));
    table
}

/// Returns the retained bytes of the streams in `table`, each derived from its position.
pub fn bytes_of(table: &Table) -> Vec<u8> {
    let bytes = |(_, range): (StreamName, Range<u64>)| range.map(|at| at as u8);
    table.retained_ranges().flat_map(bytes).collect()
}

/// Returns a backup of `items` and of [`byte_streams`]. If `piece` is set, the backup contains the
/// streams' bytes in pieces of that length.
pub fn file_with_streams(items: &[Vec<u8>], piece: Option<usize>) -> Vec<u8> {
    let table = byte_streams();
    let stream = stream_with(items, &table);
    let mut header = header_of(&stream);
    header.stream_bytes = piece.and_then(|_| table.retained_bytes());
    let (mut encoder, mut out) = BackupEncoder::begin(&header);
    out.extend(encoder.encode_chunks(&stream));
    if let Some(piece) = piece {
        for bytes in bytes_of(&table).chunks(piece) {
            out.extend(encoder.encode_chunks(bytes));
        }
    }
    out.extend(encoder.finish().1);
    out
}

/// Returns the stream of a snapshot with the service's `items` and a session.
pub fn stream(items: &[Vec<u8>]) -> Vec<u8> {
    stream_with(items, &Table::default())
}

/// Returns the stream of a snapshot with `items`, a session and byte streams.
pub fn stream_with(items: &[Vec<u8>], streams: &Table) -> Vec<u8> {
    let header = StreamHeader { cluster: CLUSTER, slot: SLOT, eras: eras() };
    let mut out = Vec::new();
    Item::Header(&header.encode()).encode(&mut out);
    let (key, value) = Membership::new(table(), eras()).encode_entry();
    Item::Meta(&key, &value).encode(&mut out);
    Item::Meta(b"session", b"of somebody").encode(&mut out);
    for (key, value) in streams.all_rows() {
        Item::Meta(&key, &value).encode(&mut out);
    }
    for item in items {
        Item::Service(item).encode(&mut out);
    }
    out
}

pub fn header_of(stream: &[u8]) -> BackupHeader {
    BackupHeader {
        cluster: CLUSTER,
        slot: SLOT,
        era: Era(1),
        next_id: 9,
        class: Class::Durable,
        store: "lsm".to_owned(),
        bytes: stream.len() as u64,
        digest: xxh3_128(stream),
        stream_bytes: None,
    }
}

/// Returns a backup file and its summary, with the stream in pieces of `piece` bytes.
pub fn file_of(header: &BackupHeader, stream: &[u8], piece: usize) -> (Vec<u8>, BackupSummary) {
    let (mut encoder, mut out) = BackupEncoder::begin(header);
    for piece in stream.chunks(piece) {
        out.extend(encoder.encode_chunks(piece));
    }
    let (summary, end) = encoder.finish();
    out.extend(end);
    (out, summary)
}
