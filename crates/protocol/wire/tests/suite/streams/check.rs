//! Properties that hold for any bytes from a stream client, or from a supposed node.

use quorate_wire::streams::{
    BODY_BYTES_MAX, DecodedFrame, HEAD_BYTES, Malformed, decode_client_frame, decode_node_frame,
    head,
};

pub(crate) fn check(bytes: &[u8]) {
    one(bytes, decode_client_frame, |ask, out| ask.encode(out));
    one(bytes, decode_node_frame, |answer, out| answer.encode(out));
}

fn one<'a, T: Copy + PartialEq + std::fmt::Debug>(
    bytes: &'a [u8],
    decode: fn(&'a [u8]) -> Result<DecodedFrame<T>, Malformed>,
    encode: fn(&T, &mut Vec<u8>),
) {
    match decode(bytes) {
        Err(_) => {}
        Ok(DecodedFrame::NeedMore(more)) => {
            assert!(more >= 1, "waits for nothing");
            let enough = bytes.len() + more;
            assert!(enough <= HEAD_BYTES + BODY_BYTES_MAX, "waits for {enough} bytes");
        }
        Ok(DecodedFrame::Frame(frame, used)) => {
            // A frame has only one encoding, so accepted bytes are those that this side would send.
            let mut again = Vec::new();
            encode(&frame, &mut again);
            assert_eq!(again, bytes[..used]);
            // Bytes after the frame do not change the result, and fewer bytes are not enough.
            assert_eq!(decode(&bytes[..used]), Ok(DecodedFrame::Frame(frame, used)));
            assert_eq!(decode(&bytes[..used - 1]), Ok(DecodedFrame::NeedMore(1)));
            assert!(matches!(head(bytes), Ok(DecodedFrame::Frame(head, HEAD_BYTES))
                if HEAD_BYTES + head.length == used));
        }
    }
}
