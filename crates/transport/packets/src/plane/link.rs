//! Link to a peer. Probes determine whether packets reach it ([plane-1]).

use quorate_core::{node_id::Member, time::Time};

/// Interval between probes to a peer, in microseconds.
pub const PROBE_INTERVAL_US: u64 = 100_000;
/// Number of consecutive unanswered probes after which a path is down.
const UNANSWERED_PROBES_MAX: u64 = 3;

/// State of one path to a peer: its own address, or the multicast address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathState {
    /// Time and round trip of the latest answer, or `None` if the path is down.
    last_answer_and_rtt: Option<(Time, u64)>,
}

impl PathState {
    /// Returns whether packets may use this path.
    pub const fn is_up(&self) -> bool {
        self.last_answer_and_rtt.is_some()
    }

    /// Returns the round trip of the latest answer in microseconds, or `None` if the path is down.
    pub fn rtt_us(&self) -> Option<u64> {
        self.last_answer_and_rtt.map(|(_, rtt_us)| rtt_us)
    }

    /// Records an answer to a probe. Returns whether the path was down before.
    pub(crate) fn record_answer(&mut self, now: Time, rtt_us: u64) -> bool {
        self.last_answer_and_rtt.replace((now, rtt_us)).is_none()
    }

    /// Marks the path as down if no probe was answered for three intervals and a round trip.
    /// Returns whether the path went down.
    pub(crate) fn check_lost(&mut self, now: Time) -> bool {
        let silent = |(at, rtt_us): (Time, u64)| {
            now.since_us(at)
                > UNANSWERED_PROBES_MAX * PROBE_INTERVAL_US + rtt_us + PROBE_INTERVAL_US / 2
        };
        let lost = self.last_answer_and_rtt.is_some_and(silent);
        if lost {
            self.last_answer_and_rtt = None;
        }
        lost
    }
}

/// A peer that has been introduced over a connection, or is about to be.
#[derive(Clone, Debug)]
pub struct PeerLink {
    pub member: Member,
    pub(crate) channel: u8,
    /// Set once the peer's introduction has arrived.
    pub(crate) introduction_arrived: bool,
    /// Path to the peer's own address.
    pub unicast_path: PathState,
    /// Path through the group.
    pub group_path: PathState,
}

impl PeerLink {
    /// Returns whether the peer has announced that it accepts datagrams.
    pub const fn is_introduced(&self) -> bool {
        self.introduction_arrived
    }

    pub(crate) fn new(member: Member, channel: u8) -> Self {
        Self {
            member,
            channel,
            introduction_arrived: false,
            unicast_path: PathState::default(),
            group_path: PathState::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [plane-1] A path counts as down after three unanswered probes and one round-trip time.
    #[test]
    fn path_is_down_after_three_unanswered_probes() {
        let mut way = PathState::default();
        assert!(!way.is_up() && !way.check_lost(Time(9_000_000)));
        assert!(way.record_answer(Time(1_000_000), 40));
        assert!(!way.record_answer(Time(1_100_000), 60), "it was up");
        assert_eq!(way.rtt_us(), Some(60));
        assert!(!way.check_lost(Time(1_450_060)));
        assert!(way.check_lost(Time(1_450_061)) && !way.is_up());
        assert!(!way.check_lost(Time(1_450_061)), "told once");
        // A round trip of a second is not a loss.
        way.record_answer(Time(2_000_000), 1_000_000);
        assert!(!way.check_lost(Time(3_300_000)));
    }
}
