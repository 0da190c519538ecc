//! Extreme contents of a log: no committed command crashes a replica, and all stores give the same
//! replies and reach the same state.
//!
//! The commands are raw bytes that another version, or a node with other limits, could commit. A
//! front would refuse most of them.

use std::{ops::ControlFlow, path::Path};

use quorate_core::{node_id::NodeId, record::Class, slot::Slot};
use quorate_kv::{
    command::Handler,
    commands::COPIED_BYTES_MAX,
    commands::FAMILIES,
    encode::{Encoder, Fault},
    key::{KEY_BYTES_MAX, KEY_TOO_LONG},
    op::{Op, set_flag},
    resp::reply::{Version, is_whole, render},
    service::Service,
    store::{
        DeadlineKind,
        lsm::{Limits, LsmStore},
        memory::MemoryStore,
    },
};
use quorate_replica::{
    front::Failure,
    service::{CommandId, MetaChange, StateMachine as _},
    testing::{Cluster, Outcome},
};

use crate::common::{Asked, Node, Random, on_both_stores, request};

/// Extreme Unix times and other 64-bit numbers.
const WORDS: [u64; 12] = [
    0,
    1,
    2,
    999,
    1_000_000,
    1 << 47,
    (1 << 48) - 1,
    1 << 48,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

const SIGNED: [i64; 9] = [0, 1, -1, 5, -7, 1 << 40, i64::MAX, i64::MIN, i64::MIN + 1];

/// Lengths of keys near every limit.
const KEY_BYTES: [usize; 10] = [
    0,
    1,
    64,
    KEY_BYTES_MAX - 1,
    KEY_BYTES_MAX,
    KEY_BYTES_MAX + 1,
    u16::MAX as usize - 13,
    u16::MAX as usize,
    u16::MAX as usize + 1,
    200_000,
];

const VALUES: [&str; 22] = [
    "",
    "0",
    "-0",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1e20",
    "-1e20",
    "1e-17",
    "1e32767",
    "1e-32768",
    "1e99999",
    "99999999999999999999.99999999999999999",
    "-0.00000000000000001",
    ".",
    "inf",
    "nan",
    " 1",
    "\0",
    "\r\n$5\r\n",
    "*a*a*a*a*b[^",
];

fn key(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        // Few distinct keys, so that commands collide.
        0..9 => vec![b"abcd"[random.below(4)]],
        9 => vec![0xff; 3],
        _ => {
            let byte = b"kx\0"[random.below(3)];
            vec![byte; *random.pick(&KEY_BYTES)]
        }
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(13) {
        0..10 => random.pick(&VALUES).as_bytes().to_vec(),
        10 => (0..random.below(400)).map(|_| random.next().to_le_bytes()[0]).collect(),
        11 => b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xfe\x9c".to_vec(),
        _ => vec![b'v'; 70_000],
    }
}

fn number(random: &mut Random) -> u64 {
    match random.below(3) {
        0 => random.below(20) as u64,
        _ => *random.pick(&WORDS),
    }
}

fn deadline(random: &mut Random, out: &mut Encoder<'_>) {
    match random.below(8) {
        0..3 => out.byte(0),
        3 => out.byte(2),
        4 => out.byte(random.next().to_le_bytes()[0]),
        _ => out.byte(1).word(*random.pick(&WORDS)),
    };
}

fn list(random: &mut Random, out: &mut Encoder<'_>, mut item: impl FnMut(&mut Random) -> Vec<u8>) {
    let count = random.below(5);
    let said = match random.below(10) {
        0 => number(random),
        _ => count as u64,
    };
    out.count(said);
    for _ in 0..count {
        out.bytes(&item(random));
    }
}

/// Generates an operation whose fields have valid types and random contents.
fn command(random: &mut Random, depth: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let out = &mut Encoder(&mut bytes);
    let mut op = *random.pick(&Op::ALL);
    if op.is_read() {
        op = *random.pick(&Op::ALL);
    }
    out.byte(op as u8);
    match op {
        Op::Literal => {
            out.bytes(&value(random));
        }
        Op::Get | Op::Strlen | Op::Type | Op::GetDel | Op::Persist => {
            out.bytes(&key(random));
        }
        Op::Inspect => {
            out.byte(random.below(6).to_le_bytes()[0]).bytes(&key(random));
        }
        Op::Mget | Op::Exists | Op::Versions | Op::Del => list(random, out, key),
        Op::GetRange => {
            out.bytes(&key(random)).signed(*random.pick(&SIGNED)).signed(*random.pick(&SIGNED));
        }
        Op::Ttl => {
            out.byte(random.next().to_le_bytes()[0]).word(*random.pick(&WORDS)).bytes(&key(random));
        }
        Op::Keys => {
            out.bytes(&value(random));
        }
        Op::Scan => {
            out.word(*random.pick(&WORDS)).count(number(random)).byte(1).bytes(&value(random));
        }
        Op::RandomKey => {
            out.word(*random.pick(&WORDS));
        }
        Op::Set => {
            let flags = random.next().to_le_bytes()[0] & 0x3f;
            out.byte(flags);
            deadline(random, out);
            out.bytes(&key(random)).bytes(&value(random));
            if flags & set_flag::IF != 0 {
                condition(random, out);
            }
        }
        Op::GetEx => {
            out.bytes(&key(random));
            deadline(random, out);
        }
        Op::Append => {
            let max = if random.below(2) == 0 { 1 << 23 } else { number(random) };
            out.count(max).bytes(&key(random)).bytes(&value(random));
        }
        Op::SetRange => {
            let offset = match random.below(40) {
                // Sometimes, the memory is really allocated.
                0 => 3_000_000,
                1..20 => random.below(50) as u64,
                _ => number(random).max(1 << 30),
            };
            out.count(offset).bytes(&key(random)).bytes(&value(random));
        }
        Op::IncrBy => {
            out.signed(*random.pick(&SIGNED)).bytes(&key(random));
        }
        Op::IncrByFloat => {
            out.bytes(&key(random)).bytes(&value(random));
        }
        Op::Mset => {
            out.byte(random.below(3).to_le_bytes()[0]);
            let mut keys = false;
            list(random, out, |random| {
                keys = !keys;
                if keys { key(random) } else { value(random) }
            });
        }
        Op::Rename | Op::Copy => {
            out.byte(random.below(2).to_le_bytes()[0]).bytes(&key(random)).bytes(&key(random));
        }
        Op::Expire => {
            out.byte(random.next().to_le_bytes()[0]).bytes(&key(random));
            deadline(random, out);
        }
        Op::Expired => {
            out.word(*random.pick(&WORDS)).bytes(&key(random));
        }
        Op::Exec if depth < 3 => {
            let watched = random.below(3);
            out.length(watched);
            for _ in 0..watched {
                out.bytes(&key(random)).word(number(random) % 40).count(number(random));
            }
            list(random, out, |random| command(random, depth + 1));
        }
        Op::ValueDigest | Op::DelIf | Op::ErrorIfPresent => {
            out.bytes(&key(random));
            match op {
                Op::DelIf => condition(random, out),
                Op::ErrorIfPresent => _ = out.bytes(&value(random)),
                _ => {}
            }
        }
        // Rarely, so that the store is not always empty.
        Op::Flush if random.below(4) > 0 => {
            out.byte(0);
        }
        Op::FlushAll if random.below(20) > 0 => {
            out.byte(0);
        }
        op if database_command(random, op, depth, out) => {}
        op if collection_command(random, op, out) => {}
        _ => lock_command(random, op, out),
    }
    spoil(random, &mut bytes);
    bytes
}

/// Returns the number of a database, which exists most of the time.
fn database(random: &mut Random) -> u8 {
    *random.pick(&[0, 1, 1, 2, 2, 15, 15, 16, 255])
}

/// Generates a command on several databases, or on one that it names.
fn database_command(random: &mut Random, op: Op, depth: usize, out: &mut Encoder<'_>) -> bool {
    match op {
        Op::In if depth < 3 => {
            let command = command(random, depth + 1);
            out.byte(database(random)).0.extend_from_slice(&command);
        }
        Op::ExecIn if depth < 3 => {
            let watched = random.below(3);
            out.length(watched);
            for _ in 0..watched {
                out.byte(database(random)).bytes(&key(random)).word(number(random) % 40);
                out.count(number(random));
            }
            list(random, out, |random| command(random, depth + 1));
        }
        Op::SwapDb => _ = out.byte(database(random)).byte(database(random)),
        Op::MoveDb => _ = out.byte(database(random)).bytes(&key(random)),
        Op::CopyTo => {
            out.byte(random.below(2).to_le_bytes()[0]).byte(database(random));
            out.bytes(&key(random)).bytes(&key(random));
        }
        _ => return false,
    }
    true
}

fn condition(random: &mut Random, out: &mut Encoder<'_>) {
    match random.below(5) {
        kind @ 0..2 => _ = out.byte(kind.to_le_bytes()[0]).bytes(&value(random)),
        kind @ 2..4 => _ = out.byte(kind.to_le_bytes()[0]).word(number(random)),
        _ => _ = out.byte(9),
    }
}

/// Writes the fields of an operation on collections. Returns `false` for any other operation.
fn collection_command(random: &mut Random, op: Op, out: &mut Encoder<'_>) -> bool {
    let byte = |random: &mut Random, most: usize| random.below(most).to_le_bytes()[0];
    let signed = |random: &mut Random| match random.below(4) {
        0 => *random.pick(&SIGNED),
        _ => i64::try_from(random.below(9)).unwrap() - 4,
    };
    let member = |random: &mut Random| match random.below(20) {
        0 => vec![b'm'; quorate_kv::key::FIELD_BYTES_MAX + random.below(2)],
        _ => vec![b"abcde"[random.below(5)]; random.below(3)],
    };
    let score = |random: &mut Random| match random.below(20) {
        0 => value(random),
        1 => f64::NAN.to_bits().to_be_bytes().to_vec(),
        _ => {
            let scores = [0.0, -0.0, 1.0, -2.5, 1e300, f64::INFINITY, f64::NEG_INFINITY];
            random.pick(&scores).to_bits().to_be_bytes().to_vec()
        }
    };
    let pairs = |random: &mut Random, out: &mut Encoder<'_>, swapped: bool| {
        let mut first = swapped;
        list(random, out, |random| {
            first = !first;
            if first { member(random) } else { score(random) }
        });
    };
    let optional = |random: &mut Random, out: &mut Encoder<'_>| match random.below(4) {
        0 => _ = out.byte(0),
        1 => _ = out.byte(2),
        _ => _ = out.byte(1).count(random.below(4) as u64),
    };
    let range = |random: &mut Random, out: &mut Encoder<'_>| match random.below(7) {
        0 | 1 => _ = out.byte(0).signed(signed(random)).signed(signed(random)),
        2 | 3 => {
            out.byte(1).byte(byte(random, 2)).bytes(&score(random));
            out.byte(byte(random, 2)).bytes(&score(random));
        }
        4 | 5 => {
            out.byte(2);
            for _ in 0..2 {
                match byte(random, 5) {
                    kind @ 2..4 => _ = out.byte(kind).bytes(&member(random)),
                    kind => _ = out.byte(kind),
                }
            }
        }
        _ => _ = out.byte(9),
    };
    match op {
        Op::HMget | Op::HDel | Op::HGetDel | Op::PfAdd | Op::SAdd | Op::SRem | Op::ZRem => {
            out.bytes(&key(random));
            list(random, out, member);
        }
        Op::HAll | Op::Count => _ = out.bytes(&key(random)).byte(byte(random, 6)),
        Op::HStrlen => _ = out.bytes(&key(random)).bytes(&member(random)),
        Op::HRandField | Op::SRandMember | Op::ZRandMember => {
            out.bytes(&key(random)).byte(byte(random, 2)).word(number(random));
            match random.below(2) {
                0 => _ = out.byte(0),
                _ => _ = out.byte(1).signed(signed(random)),
            }
        }
        Op::ScanRows | Op::ScanNames => {
            out.bytes(&key(random)).byte(byte(random, 6));
            out.word(number(random)).count(number(random)).bytes(b"*");
        }
        Op::HSet => {
            out.bytes(&key(random)).byte(byte(random, 4));
            pairs(random, out, false);
        }
        Op::HIncrBy => {
            out.bytes(&key(random)).bytes(&member(random)).signed(signed(random));
        }
        Op::HIncrByFloat => {
            out.bytes(&key(random)).bytes(&member(random)).bytes(&value(random));
        }
        Op::LIndex => _ = out.bytes(&key(random)).signed(signed(random)),
        Op::LRange | Op::LTrim => {
            out.bytes(&key(random)).signed(signed(random)).signed(signed(random));
        }
        Op::LPos => {
            out.bytes(&key(random)).bytes(&member(random)).signed(signed(random));
            out.count(number(random));
            optional(random, out);
        }
        Op::LPush => {
            out.bytes(&key(random)).byte(byte(random, 3)).byte(byte(random, 2));
            list(random, out, member);
        }
        Op::LPop | Op::ZPop => {
            out.bytes(&key(random)).byte(byte(random, 3));
            optional(random, out);
        }
        Op::LSet | Op::LRem => {
            out.bytes(&key(random)).signed(signed(random)).bytes(&member(random));
        }
        Op::LInsert => {
            out.bytes(&key(random)).byte(byte(random, 2));
            out.bytes(&member(random)).bytes(&member(random));
        }
        Op::LMove => {
            out.bytes(&key(random)).bytes(&key(random));
            out.byte(byte(random, 3)).byte(byte(random, 3));
        }
        Op::LMpop | Op::ZMpop => {
            out.byte(byte(random, 3)).count(random.below(4) as u64);
            list(random, out, key);
        }
        Op::SIsMember | Op::ZScore => {
            out.bytes(&key(random)).byte(byte(random, 2));
            list(random, out, member);
        }
        Op::SMembers => _ = out.bytes(&key(random)),
        Op::SCombine => {
            out.byte(byte(random, 4));
            list(random, out, key);
        }
        Op::SInterCard | Op::ZInterCard => {
            out.count(number(random));
            list(random, out, key);
        }
        Op::SMove => {
            out.bytes(&key(random)).bytes(&key(random)).bytes(&member(random));
        }
        Op::SPop => {
            out.bytes(&key(random)).word(number(random));
            optional(random, out);
        }
        Op::SStore => {
            out.bytes(&key(random)).byte(byte(random, 4));
            list(random, out, key);
        }
        Op::ZAdd => {
            out.bytes(&key(random)).byte(byte(random, 64));
            pairs(random, out, true);
        }
        Op::ZRank => {
            out.bytes(&key(random)).byte(byte(random, 2)).byte(byte(random, 2));
            out.bytes(&member(random));
        }
        Op::ZCount | Op::ZRemRange => {
            out.bytes(&key(random));
            range(random, out);
        }
        Op::ZRange | Op::ZRangeStore => {
            out.bytes(&key(random));
            if op == Op::ZRangeStore {
                out.bytes(&key(random));
            }
            range(random, out);
            out.byte(byte(random, 4)).signed(signed(random)).signed(signed(random));
        }
        Op::ZCombine | Op::ZStore => {
            if op == Op::ZStore {
                out.bytes(&key(random));
            }
            out.byte(byte(random, 4)).byte(byte(random, 4)).byte(byte(random, 2));
            let mut keys = false;
            list(random, out, |random| {
                keys = !keys;
                if keys { key(random) } else { score(random) }
            });
        }
        Op::GetBit => _ = out.bytes(&key(random)).count(number(random)),
        Op::SetBit => {
            let offset = match random.below(4) {
                0 => number(random),
                _ => random.below(500) as u64,
            };
            out.bytes(&key(random)).count(offset).byte(byte(random, 3));
        }
        Op::BitCount | Op::BitPos => {
            out.bytes(&key(random));
            if op == Op::BitPos {
                out.byte(byte(random, 3));
            }
            out.byte(byte(random, 4));
            out.signed(signed(random)).signed(signed(random));
        }
        Op::BitOp => {
            out.byte(byte(random, 5));
            list(random, out, key);
        }
        Op::BitField | Op::BitFieldRo => {
            let steps = random.below(4);
            out.bytes(&key(random)).length(steps);
            for _ in 0..steps {
                let flags = byte(random, 32);
                out.byte(flags).byte(byte(random, 66));
                out.count(match random.below(8) {
                    0 => number(random),
                    _ => random.below(300) as u64,
                });
                if flags & 3 != 0 {
                    out.signed(signed(random));
                }
            }
        }
        op if op.is_of_streams() => stream_command(random, op, out),
        op if place_command(random, op, out) => {}
        _ => return false,
    }
    true
}

/// Writes the fields of a search for places.
fn search(random: &mut Random, out: &mut Encoder<'_>) {
    let byte = |random: &mut Random, most: usize| random.below(most).to_le_bytes()[0];
    let length = |random: &mut Random| {
        let lengths = [0.0, 1.0, 1e6, 1e300, f64::INFINITY, -1.0, f64::NAN, 90.0, -181.0];
        random.pick(&lengths).to_bits()
    };
    match random.below(2) {
        0 => _ = out.byte(byte(random, 3)).word(length(random)).word(length(random)),
        _ => _ = out.byte(1).bytes(&[b"abcde"[random.below(5)]; 1]),
    }
    match random.below(2) {
        0 => _ = out.byte(0).word(length(random)),
        _ => _ = out.byte(byte(random, 3)).word(length(random)).word(length(random)),
    }
    out.byte(byte(random, 5)).byte(byte(random, 4)).byte(byte(random, 2)).byte(byte(random, 9));
    out.count(random.below(4) as u64);
}

/// Writes the fields of an operation on places, HyperLogLogs or common subsequences. Returns
/// `false` for any other operation.
fn place_command(random: &mut Random, op: Op, out: &mut Encoder<'_>) -> bool {
    let byte = |random: &mut Random, most: usize| random.below(most).to_le_bytes()[0];
    let member = |random: &mut Random| vec![b"abcde"[random.below(5)]; random.below(3)];
    match op {
        Op::PfCount | Op::PfMerge => list(random, out, key),
        Op::Lcs => {
            out.byte(byte(random, 5)).count(number(random));
            out.bytes(&key(random)).bytes(&key(random));
        }
        Op::GeoMembers => {
            out.bytes(&key(random)).byte(byte(random, 3));
            list(random, out, member);
        }
        Op::GeoDist => {
            out.bytes(&key(random)).byte(byte(random, 5));
            out.bytes(&member(random)).bytes(&member(random));
        }
        Op::GeoSearch | Op::GeoStore => {
            if op == Op::GeoStore {
                out.bytes(&key(random)).byte(byte(random, 5));
            }
            out.bytes(&key(random));
            search(random, out);
        }
        _ => return false,
    }
    true
}

fn id(random: &mut Random, out: &mut Encoder<'_>) {
    for _ in 0..2 {
        let number = match random.below(6) {
            0 => *random.pick(&WORDS),
            _ => random.below(9) as u64,
        };
        out.0.extend(number.to_be_bytes());
    }
}

fn trim(random: &mut Random, out: &mut Encoder<'_>) {
    let kind = random.below(8).to_le_bytes()[0];
    out.byte(kind);
    match kind & 3 {
        1 => _ = out.count(number(random)),
        2 => id(random, out),
        _ => {}
    }
    if kind & 4 != 0 {
        out.count(number(random));
    }
}

fn several_ids(random: &mut Random, out: &mut Encoder<'_>) {
    let count = random.below(4);
    out.length(count);
    (0..count).for_each(|_| id(random, out));
}

/// Writes keys and as many ids with their kinds.
fn streams(random: &mut Random, out: &mut Encoder<'_>) {
    let count = random.below(4);
    out.length(count);
    for _ in 0..count {
        out.bytes(&key(random));
    }
    for _ in 0..count {
        out.byte(random.below(3).to_le_bytes()[0]);
        id(random, out);
    }
}

/// Writes the fields of an operation on streams.
fn stream_command(random: &mut Random, op: Op, out: &mut Encoder<'_>) {
    let byte = |random: &mut Random, most: usize| random.below(most).to_le_bytes()[0];
    let name = |random: &mut Random| match random.below(20) {
        0 => vec![b'g'; quorate_kv::key::FIELD_BYTES_MAX + random.below(2)],
        _ => vec![b"gh"[random.below(2)]],
    };
    match op {
        Op::XRead => {
            out.word(number(random)).byte(byte(random, 2)).count(random.below(4) as u64);
            streams(random, out);
            return;
        }
        Op::XReadGroup => {
            out.word(number(random)).word(number(random));
            out.bytes(&name(random)).bytes(&name(random)).byte(byte(random, 2));
            out.count(random.below(4) as u64);
            streams(random, out);
            return;
        }
        Op::XInfo => _ = out.byte(byte(random, 5)),
        _ => {}
    }
    out.bytes(&key(random));
    match op {
        Op::XRange => {
            out.byte(byte(random, 2));
            id(random, out);
            id(random, out);
            out.count(random.below(4) as u64);
        }
        Op::XAdd => {
            let flags = byte(random, 5);
            out.byte(flags);
            if flags & 2 != 0 {
                trim(random, out);
            }
            match byte(random, 4) {
                kind @ (0 | 1) => _ = out.byte(kind).word(number(random)),
                kind => id(random, out.byte(kind)),
            }
            let fields = 2 * random.below(3);
            out.length(fields);
            (0..fields).for_each(|_| _ = out.bytes(&value(random)));
        }
        Op::XTrim => trim(random, out),
        Op::XDel => several_ids(random, out),
        Op::XSetId => {
            id(random, out);
            out.signed(*random.pick(&SIGNED));
            id(random, out);
        }
        Op::XInfo if random.below(2) == 0 => {}
        Op::XInfo => match random.below(2) {
            0 => _ = out.count(random.below(4) as u64),
            _ => _ = out.word(number(random)).bytes(&name(random)),
        },
        // Fields in the order of most operations on groups.
        _ => {
            out.bytes(&name(random));
            for _ in 0..random.below(4) {
                match random.below(4) {
                    0 => _ = out.word(number(random)),
                    1 => _ = out.byte(byte(random, 5)).bytes(&name(random)),
                    2 => id(random, out),
                    _ => several_ids(random, out),
                }
            }
        }
    }
}

fn lock_command(random: &mut Random, op: Op, out: &mut Encoder<'_>) {
    let text = |random: &mut Random| vec![b"xy"[random.below(2)]];
    let tell = |random: &mut Random, out: &mut Encoder<'_>| match random.below(5) {
        0..2 => _ = out.byte(0),
        2..4 => _ = out.byte(1).bytes(&text(random)).bytes(&value(random)),
        _ => _ = out.byte(7),
    };
    match op {
        Op::LockHolder => {
            out.byte(random.below(2).to_le_bytes()[0]).bytes(&key(random)).bytes(&text(random));
        }
        Op::ExpireEqual => {
            out.bytes(&key(random)).bytes(&value(random));
            match random.below(2) {
                0 => deadline(random, out.byte(0)),
                _ => _ = out.byte(1).signed(*random.pick(&SIGNED)),
            }
        }
        Op::DelEqual => {
            out.bytes(&value(random));
            list(random, out, key);
        }
        Op::SetAll => {
            out.byte(random.below(2).to_le_bytes()[0]).bytes(&value(random));
            deadline(random, out);
            list(random, out, key);
        }
        Op::Lock => {
            out.bytes(&key(random)).bytes(&text(random));
            deadline(random, out);
            out.word(*random.pick(&WORDS));
        }
        Op::Unlock => {
            out.bytes(&key(random)).bytes(&text(random));
            deadline(random, out);
            match random.below(2) {
                0 => _ = out.byte(0),
                _ => {
                    out.byte(1).bytes(&key(random));
                    deadline(random, out);
                }
            }
            tell(random, out);
        }
        Op::RenewLocks => {
            out.byte(random.below(2).to_le_bytes()[0]);
            deadline(random, out);
            let mut keys = false;
            list(random, out, |random| {
                keys = !keys;
                if keys { key(random) } else { text(random) }
            });
        }
        Op::BreakLock => {
            out.bytes(&key(random));
            tell(random, out);
        }
        Op::Publish => {
            out.bytes(&value(random)).bytes(&value(random));
        }
        Op::Sweep => {
            out.count(number(random));
        }
        // Operations without fields.
        _ => {}
    }
}

/// Corrupts some commands.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    let length = bytes.len();
    match random.below(24) {
        0 => bytes.truncate(random.below(length + 1)),
        1 => bytes.extend([random.next().to_le_bytes()[0]; 3]),
        2 if length > 0 => bytes[random.below(length.min(40))] ^= 1 << random.below(8),
        3 => *bytes = vec![0xff; random.below(30)],
        _ => {}
    }
}

fn lsm(path: &Path, held_bytes: usize) -> Service {
    let limits = Limits { held_bytes, ..Limits::default() };
    let (store, damage) = LsmStore::open_with(path, limits).unwrap();
    assert_eq!(damage, None);
    Service::new(Box::new(store))
}

/// Service of a node, with its last reply.
struct Side {
    service: Service,
    reply: Vec<u8>,
}

type Overdue = (u64, Vec<u8>);

impl Side {
    fn new(service: Service) -> Self {
        Self { service, reply: Vec::new() }
    }

    fn apply(&mut self, id: CommandId, command: &[u8]) {
        self.reply.clear();
        self.service.apply(id, command, &mut self.reply);
    }

    /// Returns the commands to propose, the next deadline, and the expired keys.
    fn overdue(&mut self, wall_ms: u64) -> (Vec<Vec<u8>>, Option<u64>, Vec<Overdue>) {
        let (mut due, mut found) = (Vec::new(), Vec::new());
        self.service.due(&mut |command| due.push(command.to_vec()));
        let next = self.service.next_deadline(wall_ms);
        let store = self.service.store();
        store.deadlines(DeadlineKind::Keys, 0, wall_ms, &mut |deadline, key| {
            found.push((deadline, key.to_vec()));
            ControlFlow::Continue(())
        });
        (due, next, found)
    }
}

fn short(bytes: &[u8]) -> String {
    let start = bytes[..bytes.len().min(80)].escape_ascii();
    format!("{start} ({} bytes)", bytes.len())
}

#[test]
fn whatever_is_committed_every_store_survives_and_says_the_same() {
    for seed in 0..6 {
        let mut random = Random::new(4000 + seed);
        let folder = tempfile::tempdir().unwrap();
        let paths = [(0, 5_000), (1, 1 << 30)];
        let path = |number: usize| folder.path().join(format!("kv-{number}"));
        let mut sides = vec![Side::new(Service::new(Box::new(MemoryStore::new())))];
        for (number, held_bytes) in paths {
            sides.push(Side::new(lsm(&path(number), held_bytes)));
        }
        let (mut refused, mut most, mut time) = (0, 0, 0);
        for slot in 1..400 {
            if random.below(8) == 0 {
                time = *random.pick(&WORDS);
            }
            let commands: Vec<_> =
                (0..1 + random.below(4)).map(|_| command(&mut random, 0)).collect();
            for side in &mut sides {
                side.service.prefetch(&mut commands.iter().map(Vec::as_slice));
            }
            for (index, command) in (0..).zip(&commands) {
                let id = CommandId { slot: Slot(slot), index };
                let what = || format!("seed {seed}, slot {slot}: {}", short(command));
                for side in &mut sides {
                    side.service.set_time(time);
                    side.apply(id, command);
                }
                let (first, rest) = sides.split_first_mut().unwrap();
                assert!(
                    is_whole(&first.reply) || command.first() == Some(&(Op::Versions as u8)),
                    "{}",
                    what()
                );
                for side in rest {
                    assert!(
                        side.reply == first.reply,
                        "{}: {} and {}",
                        what(),
                        short(&first.reply),
                        short(&side.reply)
                    );
                    assert_eq!(
                        side.service.store().len(),
                        first.service.store().len(),
                        "{}",
                        what()
                    );
                }
                let text = Fault::KeyTooLong.text();
                refused += usize::from(first.reply == format!("-{text}\r\n").into_bytes());
                most = most.max(first.service.store().len());
                // Every reply can be rendered.
                for version in [Version::Resp2, Version::Resp3] {
                    render(&first.reply, version, &mut Vec::new());
                }
            }
            let meta = MetaChange { key: vec![b'm'; 21], value: Some(slot.to_le_bytes().to_vec()) };
            for side in &mut sides {
                side.service.commit(Slot(slot + 1), std::slice::from_ref(&meta));
            }
            // The same kind of bytes as a query.
            let query = command(&mut random, 0);
            let wall_ms = *random.pick(&WORDS);
            let answers: Vec<_> = sides
                .iter()
                .map(|side| {
                    let mut answer = Vec::new();
                    side.service.query(&query, wall_ms, &mut answer);
                    answer
                })
                .collect();
            let op = match query.first() {
                Some(first) if *first == Op::In as u8 => query.get(2),
                first => first,
            };
            for answer in &answers {
                let (query, first) = (short(&query), short(&answers[0]));
                // A restarted node no longer has the versions of removed keys.
                let is_equal = *answer == answers[0] || op == Some(&(Op::Versions as u8));
                assert!(is_equal, "{query}: {first} and {}", short(answer));
            }
            let due: Vec<_> = sides.iter_mut().map(|side| side.overdue(wall_ms)).collect();
            assert!(due.iter().all(|found| *found == due[0]), "due at {wall_ms}");
            let digests: Vec<_> = sides.iter().map(|side| side.service.digest()).collect();
            assert!(
                digests.iter().all(|digest| *digest == digests[0]),
                "seed {seed}, slot {slot}: {}",
                commands.iter().map(|c| short(c)).collect::<Vec<_>>().join(" | ")
            );
            if random.below(30) == 0 {
                for ((number, held_bytes), side) in paths.into_iter().zip(&mut sides[1..]) {
                    // Close the store first, because a folder can be open only once.
                    *side = Side::new(Service::new(Box::new(MemoryStore::new())));
                    *side = Side::new(lsm(&path(number), held_bytes));
                    let (applied_to, kept) = side.service.recovered();
                    assert_eq!(applied_to, Slot(slot + 1));
                    assert_eq!(kept, [(meta.key.clone(), meta.value.clone().unwrap())]);
                    assert_eq!(side.service.digest(), digests[0], "reopened");
                }
            }
        }
        assert!(refused > 20 && most > 5, "{refused} {most}");
    }
}

/// Small commands can request large copies, so every node limits the bytes copied by a batch.
#[test]
fn one_batch_cannot_ask_for_more_memory_than_nodes_have() {
    const VALUE: usize = 8 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut sides = [
        Side::new(Service::new(Box::new(MemoryStore::new()))),
        Side::new(lsm(&folder.path().join("kv"), 16 << 20)),
    ];
    let set_range = |key: String| {
        let mut bytes = Vec::new();
        let out = &mut Encoder(&mut bytes);
        out.byte(Op::SetRange as u8).length(VALUE - 1).bytes(key.as_bytes()).bytes(b"x");
        bytes
    };
    let copy = |target: String| {
        let mut bytes = Vec::new();
        let out = &mut Encoder(&mut bytes);
        out.byte(Op::Copy as u8).byte(1).bytes(b"0").bytes(target.as_bytes());
        bytes
    };
    let append = || {
        let mut bytes = Vec::new();
        let out = &mut Encoder(&mut bytes);
        out.byte(Op::Append as u8).length(2 * VALUE).bytes(b"0").bytes(b"y");
        bytes
    };
    let refused = format!("-{}\r\n", Fault::Budget.text()).into_bytes();
    let mut said = Vec::new();
    let mut run = |slot: u64, commands: Vec<Vec<u8>>| {
        let mut done = 0;
        said.push(String::new());
        for (index, command) in (0..).zip(&commands) {
            let id = CommandId { slot: Slot(slot), index };
            sides.iter_mut().for_each(|side| side.apply(id, command));
            assert_eq!(sides[0].reply, sides[1].reply);
            *said.last_mut().unwrap() += str::from_utf8(&sides[0].reply).unwrap();
            done += usize::from(sides[0].reply != refused);
        }
        for side in &mut sides {
            side.service.commit(Slot(slot + 1), &[]);
        }
        assert_eq!(sides[0].service.digest(), sides[1].service.digest());
        done
    };
    let room = COPIED_BYTES_MAX / VALUE;
    let many = |make: &dyn Fn(String) -> Vec<u8>| -> Vec<_> {
        (0..room + 8).map(|number| make(number.to_string())).collect()
    };
    assert_eq!(run(1, many(&set_range)), room);
    // Each batch has a new budget.
    assert_eq!(run(2, many(&copy)), room);
    // The same within a transaction.
    let mut inner = Vec::new();
    for command in many(&copy) {
        Encoder(&mut inner).bytes(&command);
    }
    let mut exec = vec![Op::Exec as u8, 0];
    Encoder(&mut exec).length(room + 8);
    exec.extend(inner);
    assert_eq!(run(3, vec![exec]), 1);
    // Growth in place is free.
    assert_eq!(run(4, vec![append(); 3 * room]), 3 * room);
    // One value is stored for many keys.
    let set_all = |keys: usize| {
        let mut bytes = Vec::new();
        let out = &mut Encoder(&mut bytes);
        out.byte(Op::SetAll as u8).byte(1).bytes(&vec![b'v'; VALUE]);
        out.byte(0).length(keys);
        for key in 0..keys {
            out.bytes(format!("all {keys} {key}").as_bytes());
        }
        bytes
    };
    let all = vec![set_all(room + 1), set_all(room), set_all(1)];
    assert_eq!(run(5, all), 1);
    let in_exec = said[2].split("\r\n").filter(|line| line.starts_with("-TOOBIG"));
    assert_eq!(in_exec.count(), 8);
}

/// Three nodes decide and apply extreme commands, and replay them after each restart, without a
/// crash.
#[test]
fn a_log_full_of_poison_ends_no_node() {
    for seed in 0..4 {
        let mut random = Random::new(5000 + seed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        // Two kinds of stores, so that their states are compared.
        let make = move |node: NodeId| match node {
            NodeId(1) => Service::new(Box::new(MemoryStore::new())),
            node => lsm(&path.join(format!("kv-{node}")), 5_000),
        };
        let mut cluster = Cluster::new(3, Class::Durable, seed, make);
        let nodes = [1, 2, 3].map(NodeId);
        let levelled = |cluster: &mut Cluster<Service>| {
            let applied = nodes.map(|node| cluster.replica(node).applied_to());
            let digests = nodes.map(|node| cluster.replica(node).service().digest());
            applied[0] == applied[1] && applied[1] == applied[2] && {
                assert_eq!(digests, [digests[0]; 3], "seed {seed}");
                true
            }
        };
        for round in 0..6 {
            for _ in 0..30 {
                let node = *random.pick(&nodes);
                let command = command(&mut random, 0);
                let tag = cluster.write(node, &command);
                let ended = |cluster: &mut Cluster<Service>| cluster.outcome(node, tag).is_some();
                assert!(cluster.run_until(20_000, ended), "{}", short(&command));
                let outcome = cluster.outcome(node, tag);
                // [level-9] [visit-3] Some commands are refused before they reach the log.
                let Some(outcome) = outcome else { unreachable!() };
                let refused = [Failure::Level, Failure::TooBig].map(Outcome::Failed);
                let known = matches!(outcome, Outcome::Written(_)) || refused.contains(outcome);
                assert!(known, "{outcome:?}");
            }
            assert!(cluster.run_until(10_000, levelled));
            let down: &[NodeId] = if round % 2 == 0 { &nodes } else { &nodes[1..2] };
            down.iter().for_each(|node| cluster.crash(*node));
            down.iter().for_each(|node| cluster.start(*node));
            assert!(cluster.run_until(20_000, |cluster| cluster.leader().is_some()));
        }
        assert!(cluster.run_until(20_000, levelled));
    }
}

/// The front refuses all commands, even reads, with the same error if a key is too long.
#[test]
fn a_key_that_is_too_long_is_refused_by_the_front() {
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    let text = format!("-{KEY_TOO_LONG}|");
    let mut node = Node::memory();
    let client = node.connect();
    let mut tried = 0;
    for spec in FAMILIES.iter().flat_map(|family| family.commands) {
        let count = usize::from(spec.arity.unsigned_abs()).max(3);
        for place in spec.key_indexes(count) {
            let mut words = vec![b"1".to_vec(); count];
            words[0] = spec.name.as_bytes().to_vec();
            words[place] = long.clone();
            let words: Vec<_> = words
                .into_iter()
                .take(spec.key_indexes(count).max().unwrap().max(count - 1) + 1)
                .collect();
            if !spec.accepts_count(words.len()) {
                continue;
            }
            tried += 1;
            let mut ask = |words: &[Vec<u8>]| {
                node.feed(client, &request(words));
                assert!(node.world.asked.is_empty(), "{}", spec.name);
                node.take(client)
            };
            assert_eq!(ask(&words), text, "{}", spec.name);
            if matches!(spec.handler, Handler::Data(_)) {
                let mut numbered: Vec<_> =
                    [&b"QUORATE"[..], b"SEQ", b"1"].map(<[u8]>::to_vec).into();
                assert_eq!(
                    ask(&[b"QUORATE".to_vec(), b"SESSION".to_vec(), b"9.0".to_vec()]),
                    "+OK|"
                );
                numbered.extend(words.clone());
                assert_eq!(ask(&numbered), text, "{}", spec.name);
                assert_eq!(ask(&[b"MULTI".to_vec()]), "+OK|");
                assert_eq!(ask(&words), text, "{}", spec.name);
                let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
                assert_eq!(ask(&[b"EXEC".to_vec()]), aborted, "{}", spec.name);
            }
        }
    }
    assert!(tried > 35, "{tried}");
    for words in [vec![&b"KEYS"[..], &long], vec![b"SCAN", b"0", b"MATCH", &long]] {
        node.feed(client, &request(&words));
        assert!(node.world.asked.is_empty());
        assert_eq!(node.take(client), text);
    }
}

/// All commands accept a key of the maximum length.
#[test]
fn the_longest_key_is_a_key_like_others() {
    on_both_stores(|node| {
        let client = node.connect();
        let longest = "k".repeat(KEY_BYTES_MAX);
        let other = "l".repeat(KEY_BYTES_MAX);
        let (longest, other) = (longest.as_str(), other.as_str());
        let steps: [(&[&str], &str); 14] = [
            (&["SET", longest, "1", "PX", "500"], "+OK|"),
            (&["INCR", longest], ":2|"),
            (&["RENAME", longest, other], "+OK|"),
            (&["COPY", other, longest], ":1|"),
            (&["EXISTS", longest, other], ":2|"),
            (&["PERSIST", other], ":1|"),
            (&["WATCH", other], "+OK|"),
            (&["MULTI"], "+OK|"),
            (&["GET", other], "+QUEUED|"),
            (&["EXEC"], "*1|$1|2|"),
            (&["DBSIZE"], ":2|"),
            (&["PTTL", longest], ":500|"),
            (&["PTTL", other], ":-1|"),
            (&["SCAN", "0", "MATCH", "zz*"], "*2|$1|0|*0|"),
        ];
        for (words, expected) in steps {
            assert_eq!(node.ask(client, words), expected, "{}", words[0]);
        }
        node.world.wall_ms += 1000;
        assert!(node.pass());
        assert_eq!(node.sweep(), 1);
        assert_eq!(node.ask(client, &["GET", longest]), "$-1|");
        assert_eq!(node.ask(client, &["DEL", other]), ":1|");
    });
}

/// [room-2] A command adds data if and only if the table says so, also within a transaction.
#[test]
fn the_table_says_which_commands_add_data() {
    let mut node = Node::memory();
    let mut tried = 0;
    let specs = FAMILIES.iter().flat_map(|family| family.commands);
    for spec in specs.filter(|spec| spec.flags.contains(&"write")) {
        let mut words = vec!["1"; usize::from(spec.arity.unsigned_abs()).max(2)];
        words[0] = spec.name;
        for between in [["", ""], ["MULTI\r\n", "EXEC\r\n"]] {
            let client = node.connect();
            let all = [between[0].as_bytes(), &request(&words), between[1].as_bytes()];
            node.feed(client, &all.concat());
            // The front answers a malformed command itself, except within a transaction.
            let Some(Asked::Write(_, _, command)) =
                std::mem::take(&mut node.world.asked).pop_back()
            else {
                break;
            };
            tried += 1;
            let grows = spec.flags.contains(&"denyoom") && spec.name != "sort";
            assert_eq!(node.world.service.grows(&command), grows, "{}", spec.name);
        }
    }
    assert!(tried > 100, "{tried}");
}
