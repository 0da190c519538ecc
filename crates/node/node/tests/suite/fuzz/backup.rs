//! Invariants that hold for any bytes given to `quorate restore`.

use std::{fs, path::Path};

use quorate_core::slot::Slot;
use quorate_node::{
    LockedFolder,
    identity::{ExpectedIdentity, Identity},
    restoring,
};
use quorate_replica::backup::{BadBackup, CheckedBackup, NewGroup, check_backup};
use xxhash_rust::xxh3::xxh3_128;

/// Length of a header without the store's name, and the offset of the stream's size and checksum.
const HEADER: usize = 70;
const STREAM: std::ops::Range<usize> = 45..69;
const SUM: usize = 4;

/// Checks the bytes unchanged, and with every checksum and length corrected.
pub(crate) fn check(bytes: &[u8]) {
    read(bytes);
    read(&sealed(bytes));
}

fn checked(bytes: &[u8]) -> Result<CheckedBackup, BadBackup> {
    let mut read = 0;
    let result = check_backup(bytes, &mut |_, _| Ok(()), &mut |_, at| {
        assert!(at >= read && at <= bytes.len() as u64, "{at} after {read}");
        read = at;
    });
    if let Err(bad) = &result {
        assert!(!bad.to_string().is_empty());
    }
    result
}

fn read(bytes: &[u8]) {
    let Ok(checked) = checked(bytes) else {
        return;
    };
    assert_eq!(checked.summary.bytes, bytes.len() as u64, "all of it was read");
    let Ok(group) = NewGroup::from_backup(&checked, 99, "here:1") else {
        return;
    };
    // A valid backup is restored as the node in its header.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a folder of our own");
    let data = folder.path().join("data");
    restoring::restore_backup(&data, bytes, &checked, &group, 5).expect("it was checked");
    assert!(group.first_slot > checked.header.slot && group.first_slot < Slot(u64::MAX >> 1));
    let home = LockedFolder::open(&data).expect("it was restored");
    let identity = Identity::open(home, &ExpectedIdentity::default()).expect("it was restored");
    assert_eq!(identity.founding().cluster, 99);
    assert_eq!(identity.founding().node, group.node);
    drop(identity);
    // A second restore into the same folder changes nothing.
    let before = names(&data);
    assert!(restoring::restore_backup(&data, bytes, &checked, &group, 5).is_err());
    assert_eq!(names(&data), before);
}

fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(folder).expect("a folder of our own");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("ours").file_name()).collect();
    names.sort();
    names
}

/// Returns the same header and contents in the encoder's form.
pub(crate) fn sealed(bytes: &[u8]) -> Vec<u8> {
    let length = match bytes.get(10..12) {
        Some(length) => usize::from(u16::from_be_bytes([length[0], length[1]])),
        None => return bytes.to_vec(),
    };
    if length < HEADER + SUM || length > bytes.len() {
        return bytes.to_vec();
    }
    let (mut out, mut rest) = (bytes[..length - SUM].to_vec(), &bytes[length..]);
    let (mut chunks, mut stream) = (Vec::new(), Vec::new());
    while let Some(head) = rest.get(..4) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let content = rest.get(8..).unwrap_or_default();
        let content = &content[..length.min(content.len())];
        if content.is_empty() {
            break;
        }
        let covered = [&(stream.len() as u64).to_be_bytes()[..], content].concat();
        chunks.extend_from_slice(&(content.len() as u32).to_be_bytes());
        chunks.extend_from_slice(&crc32c::crc32c(&covered).to_be_bytes());
        chunks.extend_from_slice(content);
        stream.extend_from_slice(content);
        rest = &rest[8 + content.len()..];
    }
    let of_stream = [&(stream.len() as u64).to_be_bytes()[..], &xxh3_128(&stream).to_be_bytes()];
    out[STREAM].copy_from_slice(&of_stream.concat());
    let sum = crc32c::crc32c(&out);
    out.extend_from_slice(&sum.to_be_bytes());
    out.extend(chunks);
    let digest = xxh3_128(&out);
    let mut trailer = vec![0; 4];
    trailer.extend_from_slice(b"qrtbkend");
    trailer.extend_from_slice(&(out.len() as u64 + 40).to_be_bytes());
    trailer.extend_from_slice(&digest.to_be_bytes());
    trailer.extend_from_slice(&crc32c::crc32c(&trailer).to_be_bytes());
    out.extend(trailer);
    out
}
