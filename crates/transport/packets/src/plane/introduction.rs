//! Converts a plane's introduction to a frame for a connection, and back ([pkt-2]).

use crate::{body::ChannelOpening, trust::Introduction};
use quorate_core::node_id::Member;
use quorate_wire::{DatagramChannel, Datagrams, frame::DATAGRAM_CHANNELS_MAX};

/// Returns the frame with an introduction. `key` is the number of the newest key. Channels beyond a
/// frame's capacity are left out.
pub fn encode_introduction<'a>(
    introduction: &Introduction,
    address: &'a str,
    key: u8,
) -> Datagrams<'a> {
    let channel = |opening: &ChannelOpening| DatagramChannel {
        channel: opening.channel,
        is_unicast: opening.is_unicast,
        next: opening.from,
    };
    let channels = introduction.channels.iter().take(DATAGRAM_CHANNELS_MAX);
    Datagrams { boot: introduction.boot, address, key, channels: channels.map(channel).collect() }
}

/// Returns a peer's introduction, or `None` if its boot differs from the one in the connection's
/// hello, which only a faulty or malicious peer would send.
pub fn decode_introduction(
    from: Member,
    boot: u32,
    datagrams: &Datagrams<'_>,
) -> Option<Introduction> {
    let opening = |channel: &DatagramChannel| ChannelOpening {
        channel: channel.channel,
        is_unicast: channel.is_unicast,
        from: channel.next,
    };
    (datagrams.boot == boot).then(|| Introduction {
        member: from,
        boot,
        channels: datagrams.channels.iter().map(opening).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [pkt-2] An introduction passes unchanged, but only from the boot that the connection named.
    #[test]
    fn introduction_round_trips_only_for_its_boot() {
        let opening = |channel| ChannelOpening {
            channel,
            is_unicast: channel == 2,
            from: 70 + u64::from(channel),
        };
        let introduction = Introduction {
            member: Member::first(3),
            boot: 9,
            channels: (0..3).map(opening).collect(),
        };
        let frame = encode_introduction(&introduction, "n3:1", 4);
        assert_eq!((frame.address, frame.key, frame.boot), ("n3:1", 4, 9));
        assert_eq!(decode_introduction(Member::first(3), 9, &frame), Some(introduction));
        assert_eq!(decode_introduction(Member::first(3), 8, &frame), None);
    }
}
