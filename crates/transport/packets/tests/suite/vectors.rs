//! Golden bytes, on which decoders in all languages must agree.
//!
//! `REWRITE=1 cargo test -p quorate-packets` writes them again, and the reviewer checks the
//! difference. A changed line is a changed format, which needs a new version.

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::samples::samples;
use quorate_packets::{
    body::Body,
    header::{FIELDS, HEADER_BYTES, Header, Kind, TAG_BYTES},
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// Describes a datagram in one block: its contents, the header field by field, the payload.
fn describe(name: &str, datagram: &[u8]) -> String {
    let (header, _, payload) = Header::read(datagram).unwrap();
    let body = Body::read(header.kind, payload).unwrap();
    let mut text = format!("{name}\n  says {body:?}\n");
    for (field, offset, length) in FIELDS {
        let part = hex(&datagram[offset..offset + length]);
        writeln!(text, "  {offset:>3} {field:<8} {part}").expect("a string takes everything");
    }
    writeln!(text, "  {HEADER_BYTES:>3} {:<8} {}", "payload", hex(payload)).expect("as above");
    text
}

#[test]
fn datagrams_have_their_golden_bytes() {
    let blocks = samples().into_iter().map(|(name, bytes)| describe(name, &bytes));
    let actual = blocks.collect::<Vec<_>>().join("\n");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors/datagrams.txt");
    if std::env::var_os("REWRITE").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert!(
        expected == actual,
        "vectors/datagrams.txt differs; REWRITE=1 writes it again\n{actual}"
    );
    let kinds = samples().into_iter().map(|(_, bytes)| Header::read(&bytes).unwrap().0.kind);
    let seen: std::collections::BTreeSet<Kind> = kinds.collect();
    assert_eq!(seen.len(), Kind::ALL.len(), "each kind has a sample");
}

/// The tables in the spec match the code.
#[test]
fn the_spec_shows_the_header_as_it_is() {
    let spec = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/spec/packets.md");
    let spec = fs::read_to_string(spec).unwrap();
    for (field, offset, length) in FIELDS {
        let row = format!("| {offset} | {length} | `{field}` |");
        assert!(spec.contains(&row), "docs/spec/packets.md lacks the row {row}");
    }
    for kind in Kind::ALL {
        let row = format!("| {} | {} |", kind as u8, format!("{kind:?}").to_lowercase());
        assert!(spec.contains(&row), "docs/spec/packets.md lacks the row {row}");
    }
    let (_, tag_at, _) = FIELDS[10];
    assert_eq!((tag_at + TAG_BYTES, HEADER_BYTES), (HEADER_BYTES, 44));
}
