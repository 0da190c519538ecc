//! Golden bytes of frames, on which decoders in all languages must agree.
//!
//! `REWRITE=1 cargo test -p quorate-packets` writes them again, and the reviewer checks the
//! difference. A changed line is a changed format, which needs another EtherType or a version.

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::ethernet_samples::samples;
use quorate_packets::ethernet::{ETHER_TYPE, frame};

/// Name, offset, bytes.
const FIELDS: [(&str, usize, usize); 4] =
    [("to", 0, 6), ("from", 6, 6), ("type", 12, 2), ("length", 14, 2)];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// Describes a frame in one block: the header field by field, the datagram, the padding.
fn describe(name: &str, bytes: &[u8]) -> String {
    let datagram = frame::read(bytes, ETHER_TYPE).unwrap().datagram;
    let mut text = format!("{name}\n");
    let rest =
        (frame::HEADER_BYTES + datagram.len(), bytes.len() - frame::HEADER_BYTES - datagram.len());
    let parts = FIELDS
        .into_iter()
        .chain([("datagram", frame::HEADER_BYTES, datagram.len()), ("padding", rest.0, rest.1)]);
    for (field, offset, length) in parts.filter(|(_, _, length)| *length > 0) {
        let part = hex(&bytes[offset..offset + length]);
        writeln!(text, "  {offset:>4} {field:<8} {part}").expect("a string takes everything");
    }
    text
}

#[test]
fn frames_have_their_golden_bytes() {
    let blocks = samples().into_iter().map(|(name, bytes)| describe(name, &bytes));
    let actual = blocks.collect::<Vec<_>>().join("\n");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors/frames.txt");
    if std::env::var_os("REWRITE").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert!(expected == actual, "vectors/frames.txt differs; REWRITE=1 writes it again\n{actual}");
}
