//! Properties that hold for any bytes that arrive where a multicast group is tested.

use quorate_packets::socket::reach::{BYTES, DATAGRAMS_MAX, ReceivedCounts, SENDERS_MAX, datagram};

const TOKEN: u64 = 7;

/// Checks the bytes as they are, and as a sender that knows the token could send them.
pub(crate) fn check(bytes: &[u8]) {
    let mut counts = ReceivedCounts::new(TOKEN);
    let mut noted: u64 = 0;
    let mut note = |datagram: &[u8]| {
        counts.count_datagram(datagram);
        noted += 1;
    };
    note(bytes);
    for piece in bytes.chunks(BYTES) {
        note(piece);
        let mut known = datagram(TOKEN, 0, 0);
        let from = BYTES - 8;
        for (own, its) in known[from..].iter_mut().zip(piece.iter().skip(from)) {
            *own = *its;
        }
        note(&known);
    }
    let heard = counts.sender_counts();
    assert!(heard.len() <= SENDERS_MAX, "{} senders", heard.len());
    let mut sum = counts.foreign();
    for one in &heard {
        assert!((1..=DATAGRAMS_MAX).contains(&one.count), "{one:?}");
        sum += u64::from(one.count) + u64::from(one.repeated_count);
    }
    assert_eq!(sum, noted, "each is counted once: {heard:?}");
}
