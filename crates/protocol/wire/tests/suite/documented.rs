//! The numbers about the wire format in the documentation match the code.

use quorate_wire::header::HEADER_BYTES;

#[test]
fn documented_sizes_are_those_of_the_code() {
    let wire = include_str!("../../../../../docs/spec/wire.md");
    let performance = include_str!("../../../../../docs/performance.md");
    for (page, text) in [
        (wire, format!("A frame is a header of {HEADER_BYTES} bytes")),
        (wire, format!("CRC-32C of header bytes 0–7 and 12–{} |", HEADER_BYTES - 1)),
        (performance, format!("one frame each: {HEADER_BYTES} bytes of header, the batch")),
        (performance, format!("one cumulative 2B per completed write | {HEADER_BYTES} bytes |")),
    ] {
        assert!(page.contains(&text), "a page lacks: {text}");
    }
}
