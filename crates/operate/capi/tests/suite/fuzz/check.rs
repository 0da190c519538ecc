//! Decoder properties that hold for arbitrary bytes: frames, commands, replies, and snapshots of
//! values.

use std::collections::BTreeSet;

use quorate_capi::{
    attach::frames::{Answer, Request, read_frame, split_frame},
    values::{
        command::{Command, Reply, RetainedRange},
        retained::{RetainedValues, SlotContents},
    },
};

const FRAME_BYTES_MAX: usize = 4096;

/// Decodes the bytes in every format. Valid items must encode to the same bytes again, and values
/// must keep their order.
pub(crate) fn check(bytes: &[u8]) {
    let mut rest = bytes;
    let mut frame = Vec::new();
    let mut buffered = bytes;
    while read_frame(&mut rest, FRAME_BYTES_MAX, &mut frame).is_ok() {
        assert!(frame.len() <= FRAME_BYTES_MAX);
        let split = split_frame(buffered, FRAME_BYTES_MAX).expect("it was read");
        let (same, more) = split.expect("all of it is there");
        assert_eq!((same, more), (&frame[..], rest));
        buffered = more;
        let mut again = Vec::new();
        if let Some(ask) = Request::decode(&frame) {
            ask.encode(&mut again);
            assert_eq!(again[4..], frame);
        }
        again.clear();
        if let Some(answer) = Answer::decode(&frame) {
            answer.encode(&mut again);
            assert_eq!(again[4..], frame);
        }
    }
    if let Some(command) = Command::decode(bytes) {
        assert_eq!(command.encode(), bytes);
    }
    let mut again = Vec::new();
    if let Some(reply) = Reply::decode(bytes) {
        reply.encode(&mut again);
        assert_eq!(again, bytes);
    }
    again.clear();
    if let Some(held) = RetainedRange::decode(bytes) {
        held.encode(&mut again);
        assert_eq!(again, bytes);
    }
    execute(bytes);
}

/// Executes the bytes as length-prefixed commands, and then loads them as items of a snapshot.
fn execute(bytes: &[u8]) {
    let mut log = RetainedValues::default();
    let mut items = Vec::new();
    let mut rest = bytes;
    while let Some((length, more)) = rest.split_first_chunk() {
        let length = (u32::from_le_bytes(*length) as usize).min(more.len());
        let (item, more) = more.split_at(length);
        items.push(item);
        rest = more;
    }
    let mut given = BTreeSet::new();
    let mut first = 1;
    for (number, item) in items.iter().enumerate() {
        if number == items.len() / 2 {
            log.begin_snapshot();
        }
        let slots = match log.execute(item) {
            Reply::Appended { slot } => slot..slot + 1,
            Reply::Bundled { first_slot: slot, appended_count: count, .. } => slot..slot + count,
            _ => 0..0,
        };
        for slot in slots.clone() {
            assert!(given.insert(slot), "a slot was given out twice");
            assert_eq!(slot, given.len() as u64, "without gaps");
        }
        if let Some(last) = slots.last() {
            assert!(matches!(log.slot_contents(last), SlotContents::Value(_)));
        }
        let held = log.retained_range();
        assert!(held.first_retained >= first && held.next == given.len() as u64 + 1);
        first = held.first_retained;
    }
    let mut image: Vec<Vec<u8>> = Vec::new();
    while log.next_snapshot_part(10, &mut |item| image.push(item.to_vec())) == Some(true) {}
    let mut loaded = RetainedValues::default();
    loaded.begin_load();
    for item in &image {
        assert_eq!(loaded.load_item(item), Some(Ok(())), "what is given is taken");
    }
    assert_eq!(loaded.finish_load(), Some(Ok(())));
    loaded.begin_load();
    for item in &items {
        let _ = loaded.load_item(item);
    }
    let _ = loaded.finish_load();
}
