//! Invariants that hold for any bytes sent by a byte stream client.

use std::collections::BTreeMap;

use quorate_replica::front::Front;
use quorate_wire::streams::CONTROL_BODY_BYTES_MAX;

use crate::node::Node;

/// Checks one input. Its first byte determines the size of the pieces in which the other bytes
/// arrive, which affects nothing but the number of durability notifications.
pub(crate) fn check(bytes: &[u8]) {
    let Some((first, stream)) = bytes.split_first() else {
        return;
    };
    let whole = serve(stream, stream.len().max(1));
    let pieces = serve(stream, 1 + usize::from(*first));
    assert_eq!(pieces, whole, "in pieces of {}", 1 + usize::from(*first));
}

/// Returns the streams' ends, and the answers except `Durable`, after a client sent these bytes.
fn serve(stream: &[u8], piece: usize) -> (BTreeMap<String, u64>, Vec<String>) {
    let mut node = Node::new();
    node.stream("t", b"some bytes of a stream");
    let id = node.stranger();
    for piece in stream.chunks(piece) {
        node.send(id, piece);
        node.played.decide(usize::MAX);
        node.run_until_quiet();
        assert!(node.left_over(id) <= CONTROL_BODY_BYTES_MAX + 8, "it holds much");
    }
    let mut heard = node.take_answers(id);
    heard.retain(|said| !said.starts_with("Durable"));
    let last = ["malformed", "version", "out-of-order"].map(|code| format!("error {code} at 0"));
    let ended = heard.iter().position(|said| last.contains(said));
    assert_eq!(ended.is_none(), node.is_open(id));
    assert!(ended.is_none_or(|at| at + 1 == heard.len()), "{heard:?}");
    node.hang_up(id);
    node.run_until_quiet();
    assert_eq!((node.front.connections(), node.front.held_bytes()), (0, 0));
    assert_eq!(node.front.open_requests(), 0);
    let ends = ["s", "t"].map(|name| (name.into(), node.played.info(name)));
    let ends = ends.into_iter().filter_map(|(name, info)| {
        let info = info?;
        assert_eq!(info.open_stream, None, "no client writes any more");
        Some((name, info.end))
    });
    (ends.collect(), heard)
}
