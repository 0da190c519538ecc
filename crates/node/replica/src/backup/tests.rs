//! Tests of backups whose bytes are intact, truncated, or corrupted.

use std::collections::BTreeMap;

use quorate_access::{Command, Password, Role, Users};
use quorate_core::dice::Dice;
use quorate_core::{
    ballot::Era,
    class::Class,
    node_id::{Member, NodeId},
    slot::Slot,
    value::StreamName,
};
use quorate_stream::Table;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    file::{BackupHeader, BackupReader, BadBackup, ContentKind},
    *,
};
use crate::{
    snapshots::{
        BaseNote,
        header::SnapshotHeader as StreamHeader,
        layout::{self, ChunkHead},
        stream::{Item, ItemDecoder, Malformed},
    },
    testing::backups::{
        CLUSTER, SLOT, byte_streams, bytes_of, eras, file_of, file_with_streams, header_of, stream,
        stream_with,
    },
};

fn items() -> Vec<Vec<u8>> {
    let item = |at: usize| vec![at as u8; at * 37 % 900];
    (0..40).map(item).collect()
}

fn sample() -> Vec<u8> {
    let stream = stream(&items());
    file_of(&header_of(&stream), &stream, 1000).0
}

fn checked(file: &[u8]) -> Result<CheckedBackup, BadBackup> {
    check_backup(file, &mut |_, _| Ok(()), &mut |_, _| {})
}

#[test]
fn backup_is_read_back_for_any_piece_size() {
    let stream = stream(&items());
    let header = header_of(&stream);
    for piece in [1, 7, 1000, stream.len()] {
        let (file, summary) = file_of(&header, &stream, piece);
        assert_eq!(summary.bytes, file.len() as u64);
        let mut reader = BackupReader::open(&file[..]).unwrap();
        let (mut back, mut content) = (Vec::new(), Vec::new());
        let end = loop {
            match reader.read_next(&mut content).unwrap() {
                ContentKind::Snapshot => back.extend_from_slice(&content),
                ContentKind::Streams => panic!("there are none"),
                ContentKind::End(summary) => break summary,
            }
        };
        assert!(back == stream, "in pieces of {piece}");
        assert_eq!((reader.header(), end), (&header, summary));
        let mut count = 0;
        let checked = check_backup(
            &file[..],
            &mut |of, item| {
                assert_eq!((of, item), (&header, &items()[count][..]));
                count += 1;
                Ok(())
            },
            &mut |_, _| {},
        );
        assert_eq!(checked.unwrap().header, header);
        assert_eq!(count, items().len());
    }
}

#[test]
fn a_backup_cut_short_anywhere_is_refused() {
    let file = sample();
    for length in 0..file.len() {
        let bad = checked(&file[..length]).unwrap_err();
        assert!(matches!(bad, BadBackup::Truncated(at) if at == length as u64), "{length}: {bad}");
    }
    let mut longer = file;
    longer.push(0);
    assert!(matches!(checked(&longer), Err(BadBackup::Damaged { .. })));
}

#[test]
fn any_flipped_bit_is_detected() {
    let mut file = sample();
    checked(&file).unwrap();
    for bit in 0..file.len() * 8 {
        file[bit / 8] ^= 1 << (bit % 8);
        assert!(checked(&file).is_err(), "bit {bit}");
        file[bit / 8] ^= 1 << (bit % 8);
    }
}

/// No input causes a panic or makes the reader allocate memory for a length that it merely claims.
#[test]
fn hostile_bytes_are_refused() {
    let mut dice = Dice::new(11);
    let good = sample();
    for _ in 0..3_000 {
        let mut file = good.clone();
        for _ in 0..=dice.index(4) {
            let at = dice.index(file.len());
            match dice.index(4) {
                0 => file[at] = 0xff,
                1 => file[at] = 0,
                2 => file.truncate(at),
                _ => {
                    let from = dice.index(file.len());
                    let bytes = file[from..(from + dice.index(40)).min(file.len())].to_vec();
                    file.splice(at..at, bytes);
                }
            }
            if file.is_empty() {
                break;
            }
        }
        assert!(file == good || checked(&file).is_err());
    }
    // Valid checksums over invalid content: in the stream, and in the header.
    let good = stream(&items());
    for _ in 0..3_000 {
        let mut stream = good.clone();
        let at = dice.index(stream.len().min(400));
        stream[at] = dice.word() as u8;
        let mut header = header_of(&stream);
        if dice.index(2) == 0 {
            header.era = Era(dice.word() as u32);
            header.next_id = dice.word() as u32;
        }
        let (file, _) = file_of(&header, &stream, 5000);
        let _ = checked(&file).map(|checked| NewGroup::from_backup(&checked, 1, "a:1"));
    }
}

/// A backup with valid checksums but contradictory content, which no node writes, is refused.
#[test]
fn contradictory_backup_is_refused() {
    let good = stream(&items());
    let refused = |header: &BackupHeader, stream: &[u8]| {
        let (file, _) = file_of(header, stream, 5000);
        let bad = checked(&file).unwrap_err();
        assert!(matches!(bad, BadBackup::Damaged { .. }), "{bad}");
    };
    let spoilt: [fn(&mut BackupHeader); 8] = [
        |header| header.cluster = 8,
        |header| header.slot = Slot(501),
        |header| header.era = Era(2),
        |header| header.next_id = 4,
        |header| header.class = Class::Volatile,
        |header| header.bytes -= 1,
        |header| header.bytes += 1,
        |header| header.digest ^= 1,
    ];
    for spoil in spoilt {
        let mut header = header_of(&good);
        spoil(&mut header);
        refused(&header, &good);
    }
    let cut = &good[..good.len() - 1];
    refused(&header_of(cut), cut);
    // A second header; metadata after the service's items; no table.
    let head = stream(&[]);
    let twice = [&head[..], &head[..]].concat();
    refused(&header_of(&twice), &twice);
    let mut late = good.clone();
    Item::Meta(b"late", b"").encode(&mut late);
    refused(&header_of(&late), &late);
    let mut bare = Vec::new();
    let of = StreamHeader { cluster: CLUSTER, slot: SLOT, eras: eras() };
    Item::Header(&of.encode()).encode(&mut bare);
    refused(&header_of(&bare), &bare);
    let mut refusing = |_: &BackupHeader, _: &[u8]| Err("no".to_owned());
    let (file, _) = file_of(&header_of(&good), &good, 5000);
    assert!(check_backup(&file[..], &mut refusing, &mut |_, _| {}).is_err());
    let mut later = file;
    later[9] = 2;
    assert!(matches!(checked(&later), Err(BadBackup::Damaged { .. })));
    later[9] = 3;
    assert!(matches!(checked(&later), Err(BadBackup::NewerFormat(3))));
    later[0] = 0;
    assert!(matches!(checked(&later), Err(BadBackup::NotABackup)));
    assert!(matches!(checked(b"notes\n"), Err(BadBackup::NotABackup)));
    assert!(matches!(checked(b"qrtb"), Err(BadBackup::Truncated(4))));
}

/// Returns the start of a new cluster, read from the parts that were written.
fn restored(file: &[u8], group: &NewGroup) -> (NewLog, Vec<u8>) {
    let checked = checked(file).unwrap();
    let mut stream = Vec::new();
    let mut write = |part: PartBlocks<'_>| -> Result<(), BadBackup> {
        assert_eq!((part.position.file.number, part.bytes.len() % 4096), (1, 0));
        let head = ChunkHead { slot: group.first_slot, offset: stream.len() as u64, first_part: 1 };
        stream.extend_from_slice(layout::open(head, part.bytes).unwrap());
        Ok(())
    };
    let founded = create_log(file, &checked, group, &mut write, &mut none).unwrap();
    (founded, stream)
}

fn none(_: StreamName, _: u64, _: &[u8]) -> Result<(), BadBackup> {
    panic!("no bytes of streams were backed up")
}

/// [restore-1] A new cluster has a new id from the given counter, no sessions, and the same service
/// items, except for one that is replaced.
#[test]
fn new_cluster_has_only_the_data_of_the_old_one() {
    let file = sample();
    let checked = checked(&file).unwrap();
    let mut group = NewGroup::from_backup(&checked, 99, "here:1").unwrap();
    let mut expected = items();
    let own = std::mem::replace(&mut expected[1], b"another".to_vec());
    group.replaced_item = Some((own, expected[1].clone()));
    assert_eq!((group.cluster, group.node), (99, NodeId(9)));
    assert!(group.first_slot.0 >= SLOT.0 + (1 << 40), "a fresh name space");
    let (founded, stream) = restored(&file, &group);
    let note = BaseNote::decode(&founded.base_note).unwrap();
    let manifest = note.snapshot.unwrap();
    assert_eq!((founded.first_slot, manifest.slot), (group.first_slot, group.first_slot));
    assert_eq!(manifest.bytes, stream.len() as u64);
    assert_eq!(manifest.digest, xxh3_128(&stream));
    let (mut back, mut meta, mut header) = (Vec::new(), Vec::new(), None);
    let fed: Result<(), Malformed> = ItemDecoder::default().feed(&stream, |item| {
        match item {
            Item::Header(bytes) => header = StreamHeader::decode(bytes),
            Item::Meta(key, value) => meta.push((key.to_vec(), value.to_vec())),
            Item::Service(bytes) => back.push(bytes.to_vec()),
        }
        Ok(())
    });
    fed.unwrap();
    assert!(back == expected, "other items than were backed up");
    let header = header.unwrap();
    assert_eq!((header.cluster, header.slot), (99, group.first_slot));
    assert_eq!(header.eras, note.eras);
    let eras = note.eras;
    assert!(eras.era() > Era(1000) && eras.era_start() == group.first_slot);
    let alone: Vec<_> = eras.current().members().iter().collect();
    assert_eq!(alone.len(), 1);
    assert_eq!((alone[0].member, alone[0].weight), (Member::first(9), 1));
    assert_eq!(meta.len(), 2, "no sessions");
    assert_eq!(meta[0], (b"digest".to_vec(), vec![0; 8]), "to be compared");
    let (table, of_table) = crate::applying::membership::decode(&meta[1].1).unwrap();
    assert_eq!(of_table, eras);
    assert_eq!(table.next_id(), 10);
    let nodes: Vec<_> = table.nodes().collect();
    assert_eq!(nodes.len(), 1);
    assert_eq!((nodes[0].0, &*nodes[0].1.peer), (NodeId(9), "here:1"));
}

/// [access-1] Users without access to the old cluster have no access to its data in a new one.
#[test]
fn users_are_restored_and_invalid_ones_refused() {
    let with_users = |value: &[u8]| {
        let (mut session, mut users) = (Vec::new(), Vec::new());
        Item::Meta(b"session", b"of somebody").encode(&mut session);
        Item::Meta(b"users", value).encode(&mut users);
        let stream = stream(&items());
        let at = stream.windows(session.len()).position(|part| part == session);
        let at = at.unwrap();
        let stream = [&stream[..at], &users, &stream[at..]].concat();
        file_of(&header_of(&stream), &stream, 1000).0
    };
    let mut users = Users::default();
    let admin =
        Command::Set { name: "ann".to_owned(), role: Some(Role::Admin), password: Password::None };
    users.execute(&admin.encode()).unwrap();
    let file = with_users(&users.encode());
    let group = NewGroup::from_backup(&checked(&file).unwrap(), 99, "here:1").unwrap();
    let (_, stream) = restored(&file, &group);
    let mut found = None;
    let fed: Result<(), Malformed> = ItemDecoder::default().feed(&stream, |item| {
        if let Item::Meta(b"users", value) = item {
            found = Users::decode(value);
        }
        Ok(())
    });
    fed.unwrap();
    assert_eq!(found, Some(users));
    assert!(checked(&with_users(b"nonsense")).is_err());
}

/// Two clusters founded from one backup, and the old one, have sessions with different names.
#[test]
fn clusters_from_one_backup_have_separate_session_names() {
    let checked = checked(&sample()).unwrap();
    let at = |cluster| NewGroup::from_backup(&checked, cluster, "here:1").unwrap().first_slot;
    assert_ne!(at(1), at(2));
    let mut newest = checked;
    for cluster in 0..100 {
        let next = NewGroup::from_backup(&newest, cluster, "here:1").unwrap();
        assert!(next.first_slot > newest.header.slot);
        newest.header.slot = next.first_slot;
    }
    newest.header.slot = Slot(u64::MAX);
    assert!(NewGroup::from_backup(&newest, 1, "here:1").is_err());
    newest.header.slot = SLOT;
    newest.header.next_id = u32::MAX;
    assert!(NewGroup::from_backup(&newest, 1, "here:1").is_err());
}

/// A file that changes between the check and the restore is refused.
#[test]
fn backup_changed_since_its_check_is_refused() {
    let file = sample();
    let first = checked(&file).unwrap();
    let group = NewGroup::from_backup(&first, 99, "here:1").unwrap();
    let other = stream(&items()[1..]);
    let (other, _) = file_of(&header_of(&other), &other, 1000);
    let mut write = |_: PartBlocks<'_>| -> Result<(), BadBackup> { Ok(()) };
    assert!(create_log(&other[..], &first, &group, &mut write, &mut none).is_err());
    assert!(create_log(&file[..], &first, &group, &mut write, &mut none).is_ok());
}

/// The format changes only with a new version; `docs/spec/snapshot.md` has the table.
#[test]
fn backup_encoding_is_stable() {
    let header = header_of(b"abc");
    let (file, summary) = file_of(&header, b"abc", 2);
    let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "71727462636b75700001004d0000000000000000000000000000000700000000000001f4\
         000000010000000901000000000000000306b05ab6733a618578af5f94892f3950036c73\
         6d360d08fa00000002f01eae8f616200000001ee3638db6300000000717274626b656e64\
         00000000000000887c72107a88ed5540c44926628b9992837054bb6c"
    );
    assert_eq!(summary.bytes, file.len() as u64);
}

/// Returns the streams with which a new cluster begins: their table, and each one's bytes.
fn restored_streams(file: &[u8]) -> (Table, BTreeMap<StreamName, (u64, Vec<u8>)>) {
    let checked = checked(file).unwrap();
    let group = NewGroup::from_backup(&checked, 99, "here:1").unwrap();
    let (mut kept, mut stream) = (BTreeMap::new(), Vec::new());
    let mut write = |part: PartBlocks<'_>| -> Result<(), BadBackup> {
        let head = ChunkHead { slot: group.first_slot, offset: stream.len() as u64, first_part: 1 };
        stream.extend_from_slice(layout::open(head, part.bytes).unwrap());
        Ok(())
    };
    let mut keep = |name, position, bytes: &[u8]| -> Result<(), BadBackup> {
        let (first, all) = kept.entry(name).or_insert((position, Vec::new()));
        assert_eq!(position, *first + all.len() as u64, "one behind the other");
        all.extend_from_slice(bytes);
        Ok(())
    };
    create_log(file, &checked, &group, &mut write, &mut keep).unwrap();
    let (mut rows, mut order) = (Vec::new(), Vec::new());
    let fed: Result<(), Malformed> = ItemDecoder::default().feed(&stream, |item| {
        match item {
            Item::Header(_) => order.push(1),
            Item::Meta(key, value) => {
                order.push(2);
                if Table::is_table_key(key) {
                    rows.push((key.to_vec(), value.to_vec()));
                }
            }
            Item::Service(_) => order.push(3),
        }
        Ok(())
    });
    fed.unwrap();
    assert!(order.is_sorted());
    (Table::restore(rows).unwrap(), kept)
}

/// Streams are restored as of the snapshot's slot, with all retained bytes but without writers.
#[test]
fn streams_are_restored_with_their_bytes() {
    let before = byte_streams();
    for piece in [1, 7, 699, 700, 701, 5000] {
        let file = file_with_streams(&items(), Some(piece));
        let read = checked(&file).unwrap();
        assert_eq!((read.stream_count, read.stream_bytes), (3, 1270));
        assert_eq!(read.header.stream_bytes, Some(1270));
        let (table, kept) = restored_streams(&file);
        assert_eq!(table.open_streams().count(), 0);
        for info in table.infos(None) {
            let was = before.info(&info.name).unwrap();
            assert_eq!((info.start, info.end), (was.start, was.end));
            assert_eq!((info.finished, info.pieces), (was.finished, was.pieces));
            assert_eq!((info.id, info.retention), (was.id, was.retention));
        }
        assert_eq!(table.len(), 3);
        let ranges: Vec<_> =
            table.retained_ranges().filter(|(_, range)| !range.is_empty()).collect();
        assert_eq!(ranges.len(), 3);
        for (name, range) in ranges {
            let (first, bytes) = &kept[&name];
            assert_eq!((*first, bytes.len() as u64), (range.start, range.end - range.start));
            assert!(bytes.iter().zip(range).all(|(byte, at)| *byte == at as u8));
        }
    }
    // If the backup lacks the bytes of its streams, a new cluster has no streams.
    let without = file_with_streams(&items(), None);
    let read = checked(&without).unwrap();
    assert_eq!((read.stream_count, read.stream_bytes, read.header.stream_bytes), (3, 1270, None));
    let group = NewGroup::from_backup(&read, 99, "here:1").unwrap();
    let (_, stream) = restored(&without, &group);
    let fed: Result<(), Malformed> = ItemDecoder::default().feed(&stream, |item| {
        assert!(!matches!(item, Item::Meta(key, _) if Table::is_table_key(key)));
        Ok(())
    });
    fed.unwrap();
}

#[test]
fn streams_that_are_cut_flipped_or_miscounted_are_refused() {
    let file = file_with_streams(&items(), Some(400));
    checked(&file).unwrap();
    let streams = file.len() - 40 - 1270 - 4 * 8;
    for length in streams..file.len() {
        assert!(matches!(checked(&file[..length]), Err(BadBackup::Truncated(_))), "{length}");
    }
    let mut flipped = file.clone();
    for at in (0..100).chain(streams..file.len()) {
        flipped[at] ^= 1 << (at % 8);
        assert!(checked(&flipped).is_err(), "byte {at}");
        flipped[at] ^= 1 << (at % 8);
    }
    // Valid checksums, but more or fewer bytes than the table or the header states.
    let table = byte_streams();
    let (stream, bytes) = (stream_with(&items(), &table), bytes_of(&table));
    for (said, there) in
        [(1269, 1269), (1271, 1271), (1270, 1269), (1270, 1271), (0, 0), (u64::MAX, 1270)]
    {
        let mut header = header_of(&stream);
        header.stream_bytes = Some(said);
        let (mut encoder, mut out) = BackupEncoder::begin(&header);
        out.extend(encoder.encode_chunks(&stream));
        let mut bytes = bytes.clone();
        bytes.resize(there, 0);
        out.extend(encoder.encode_chunks(&bytes));
        out.extend(encoder.finish().1);
        assert!(matches!(checked(&out), Err(BadBackup::Damaged { .. })), "{said} {there}");
    }
}

/// Format 2 also changes only with a new version.
#[test]
fn encoding_of_a_backup_with_streams_is_stable() {
    let mut header = header_of(b"abc");
    header.stream_bytes = Some(2);
    let (mut encoder, mut file) = BackupEncoder::begin(&header);
    file.extend(encoder.encode_chunks(b"abc"));
    file.extend(encoder.encode_chunks(b"xy"));
    file.extend(encoder.finish().1);
    let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "71727462636b7570000200550000000000000000000000000000000700000000000001f40000000100000009\
         01000000000000000306b05ab6733a618578af5f94892f39500000000000000002036c736da2a1ff46000000\
         03fcfe2a35616263000000022294a8e6787900000000717274626b656e64000000000000009208300b24e9d7\
         02e94f55982c9c9909c992be4a76"
    );
}
