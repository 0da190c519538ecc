//! Readiness probe: attempts a linearizable read, which shows that this node can serve ([read-2]).
//!
//! Knowing a leader is not enough: a node that lags far behind also knows it, and its clients would
//! wait for reads that it cannot serve. So a probe is a read without a query: confirmed like any
//! other, it waits for a limited time until enough slots are applied.

use std::fmt;

use quorate_core::{input::ReadToken, slot::Slot, time::Time};

use crate::outbox::RETRY_MS;

/// Bounds of the time limit in milliseconds, which grows with the duration of a message round.
/// Readiness checks usually wait for a second.
const TIMEOUT_RANGE_MS: std::ops::RangeInclusive<u64> = 500..=5_000;
/// First token of probes, above all tokens of clients' reads.
const FIRST_TOKEN: u64 = 1 << 63;

/// Outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The read could have been served.
    Served,
    /// This node accepts no more requests, because it is stopping or its log failed.
    Closed,
    /// The node's service accepts no commands at the moment.
    Unavailable,
    /// The read was not confirmed in time.
    Unconfirmed,
    /// The read was confirmed, but this node did not apply the slots below `needed_to` in time.
    Behind { applied_to: Slot, needed_to: Slot },
}

impl fmt::Display for ProbeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served => f.write_str("linearizable reads are served"),
            Self::Closed => f.write_str("the node takes no requests any more"),
            Self::Unavailable => f.write_str("the service cannot work at the moment"),
            Self::Unconfirmed => f.write_str("no leader confirmed a read in time"),
            Self::Behind { applied_to, needed_to: needed } => write!(
                f,
                "a read waits for slot {needed}, and slots below {applied_to} are applied"
            ),
        }
    }
}

/// The probe in flight, shared by all callers that request one, and the result of the last one.
#[derive(Debug)]
pub(crate) struct Probe {
    timeout_ms: u64,
    stage: ProbeStage,
    deadline: Time,
    last_token: u64,
    result: Option<ProbeOutcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeStage {
    Idle,
    /// The request for confirmation is to be sent at this time.
    AskAt(Time),
    Asked(ReadToken),
    Confirmed(Slot),
}

impl Probe {
    /// Creates a probe. `round_ms` is the maximum round-trip time while all peers respond.
    pub(crate) fn new(round_ms: u64) -> Self {
        Self::with_first_token(FIRST_TOKEN, round_ms)
    }

    /// Creates a probe whose success shows that this node has caught up since its restart
    /// ([access-4]).
    pub(crate) fn for_access(round_ms: u64) -> Self {
        Self::with_first_token(FIRST_TOKEN | FIRST_TOKEN >> 1, round_ms)
    }

    fn with_first_token(first: u64, round_ms: u64) -> Self {
        Self {
            timeout_ms: round_ms.clamp(*TIMEOUT_RANGE_MS.start(), *TIMEOUT_RANGE_MS.end()),
            stage: ProbeStage::Idle,
            deadline: Time(0),
            last_token: first,
            result: None,
        }
    }

    /// Starts a probe, unless one is in flight. With `refused`, it ends at once with this result.
    pub(crate) fn begin_probe(&mut self, now: Time, refused: Option<ProbeOutcome>) {
        if refused.is_some() {
            self.stage = ProbeStage::Idle;
            self.result = refused;
        } else if self.stage == ProbeStage::Idle {
            self.stage = ProbeStage::AskAt(now);
            self.deadline = now.plus_ms(self.timeout_ms);
            self.result = None;
        }
    }

    /// Returns the request for confirmation to send now, if any.
    pub(crate) fn next_question(&mut self, now: Time) -> Option<ReadToken> {
        match self.stage {
            ProbeStage::AskAt(at) if at <= now => {
                self.last_token += 1;
                let token = ReadToken(self.last_token);
                self.stage = ProbeStage::Asked(token);
                Some(token)
            }
            _ => None,
        }
    }

    /// Handles the confirmation. The read may run once everything below `slot` is applied.
    pub(crate) fn on_confirmed(&mut self, token: ReadToken, slot: Slot) {
        if self.stage == ProbeStage::Asked(token) {
            self.stage = ProbeStage::Confirmed(slot);
        }
    }

    /// Handles a refused request for confirmation. The request is repeated after a delay.
    pub(crate) fn on_refused(&mut self, now: Time, token: ReadToken) {
        if self.stage == ProbeStage::Asked(token) {
            self.stage = ProbeStage::AskAt(now.plus_ms(RETRY_MS));
        }
    }

    /// Ends the probe if its read could be served, or if it timed out.
    pub(crate) fn end_if_done(&mut self, now: Time, applied_to: Slot) {
        let late = now >= self.deadline;
        let ended = match self.stage {
            ProbeStage::Idle => return,
            ProbeStage::Confirmed(needed) if needed <= applied_to => ProbeOutcome::Served,
            ProbeStage::Confirmed(needed) if late => {
                ProbeOutcome::Behind { applied_to, needed_to: needed }
            }
            ProbeStage::AskAt(_) | ProbeStage::Asked(_) if late => ProbeOutcome::Unconfirmed,
            ProbeStage::AskAt(_) | ProbeStage::Asked(_) | ProbeStage::Confirmed(_) => return,
        };
        self.stage = ProbeStage::Idle;
        self.result = Some(ended);
    }

    pub(crate) fn take_result(&mut self) -> Option<ProbeOutcome> {
        self.result.take()
    }

    /// Returns the time at which the probe next needs a turn, even without further input.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        match self.stage {
            ProbeStage::Idle => None,
            ProbeStage::AskAt(at) => Some(at.min(self.deadline)),
            ProbeStage::Asked(_) | ProbeStage::Confirmed(_) => Some(self.deadline),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> (Probe, ReadToken) {
        let mut probe = Probe::new(400);
        probe.begin_probe(Time(0), None);
        let token = probe.next_question(Time(0)).unwrap();
        (probe, token)
    }

    fn at_ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    #[test]
    fn a_read_is_served_once_enough_is_applied() {
        let (mut probe, token) = begun();
        probe.on_confirmed(token, Slot(7));
        probe.end_if_done(at_ms(499), Slot(6));
        assert_eq!(probe.take_result(), None);
        probe.end_if_done(at_ms(499), Slot(7));
        assert_eq!(probe.take_result(), Some(ProbeOutcome::Served));
        assert_eq!((probe.take_result(), probe.wake_at()), (None, None));
        probe.begin_probe(at_ms(600), Some(ProbeOutcome::Closed));
        assert_eq!(probe.take_result(), Some(ProbeOutcome::Closed));
    }

    #[test]
    fn probe_that_is_not_applied_in_time_reports_behind() {
        let (mut probe, token) = begun();
        probe.on_confirmed(token, Slot(7));
        probe.end_if_done(at_ms(500), Slot(6));
        let (applied_to, needed) = (Slot(6), Slot(7));
        assert_eq!(
            probe.take_result(),
            Some(ProbeOutcome::Behind { applied_to, needed_to: needed })
        );
    }

    #[test]
    fn confirmation_is_repeated_until_the_deadline() {
        let (mut probe, token) = begun();
        probe.begin_probe(at_ms(1), None);
        assert_eq!(probe.next_question(at_ms(1)), None, "one at a time");
        probe.on_refused(at_ms(1), token);
        assert_eq!(probe.wake_at(), Some(at_ms(1 + RETRY_MS)));
        let again = probe.next_question(at_ms(10)).unwrap();
        assert_ne!(token, again);
        probe.on_confirmed(token, Slot(1));
        probe.end_if_done(at_ms(500), Slot(1));
        assert_eq!(
            probe.take_result(),
            Some(ProbeOutcome::Unconfirmed),
            "an old answer confirms no read"
        );
        assert!(again.0 > FIRST_TOKEN);
    }
}
