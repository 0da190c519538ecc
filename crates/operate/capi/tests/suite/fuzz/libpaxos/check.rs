//! Decoder properties that hold for arbitrary bytes from a LibPaxos3 program.

use quorate_capi::evpaxos::message::{DecodeResult, Message, OVERHEAD_BYTES_MAX};

const VALUE_BYTES_MAX: usize = 1000;

/// Decodes consecutive messages. Each must encode to an equal message again, and every prefix of it
/// must be incomplete.
pub(crate) fn check(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        match Message::decode(rest, VALUE_BYTES_MAX) {
            DecodeResult::Malformed => return,
            DecodeResult::NeedMore => {
                assert!(rest.len() < VALUE_BYTES_MAX + OVERHEAD_BYTES_MAX, "it waits for ever");
                return;
            }
            DecodeResult::Message(message, used) => {
                assert!(used > 0 && used <= VALUE_BYTES_MAX + OVERHEAD_BYTES_MAX);
                for less in [0, used / 2, used - 1] {
                    assert_eq!(
                        Message::decode(&rest[..less], VALUE_BYTES_MAX),
                        DecodeResult::NeedMore
                    );
                }
                let mut again = Vec::new();
                message.encode(&mut again);
                let found = Message::decode(&again, VALUE_BYTES_MAX);
                assert_eq!(found, DecodeResult::Message(message, again.len()));
                rest = &rest[used..];
            }
        }
    }
}
