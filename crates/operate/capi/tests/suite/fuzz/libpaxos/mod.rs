//! Corpus of LibPaxos3 messages, as its programs encode them.

pub(crate) mod check;

use crate::driver::Seed;
use quorate_capi::evpaxos::message::Message;

/// Returns all messages in sequence, and one message in every other encoding of MessagePack.
pub(crate) fn seeds() -> Vec<Seed> {
    let (aid, iid, ballot, value_ballot, value) = (1, 300, 70_000, u32::MAX, &b"value"[..]);
    let mut all = Vec::new();
    for message in [
        Message::Prepare { iid, ballot },
        Message::Promise { aid, iid, ballot, value_ballot, value },
        Message::Accept { iid, ballot, value },
        Message::Accepted { aid, iid, ballot, value_ballot, value: &[7; 40] },
        Message::Preempted { aid, iid, ballot },
        Message::Repeat { from: 1, last_missing: iid },
        Message::Trim { iid },
        Message::AcceptorState { aid, trim_iid: iid },
        Message::ClientValue { value },
    ] {
        message.encode(&mut all);
    }
    let forms =
        b"\x92\xcc\x08\xd9\x02hi\x92\xd2\0\0\0\x08\xc4\x02hi\xdc\0\x02\x06\xcf\0\0\0\0\0\0\0\x09"
            .to_vec();
    [("messages", all), ("forms", forms)]
        .map(|(name, bytes)| Seed { name: name.to_owned(), bytes })
        .into()
}
