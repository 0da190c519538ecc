//! Detection of a promise to a ballot of an era that no node knows.
//!
//! An acceptor makes no explicit promise in an era that it does not know, but it does vote there:
//! the proposer has enough promises of other nodes ([ballot-5]), and the acceptor may lag behind
//! ([member-3]). So it cannot refuse an intruder's proposal in a made-up ballot. A vote is a
//! permanent promise, so the acceptor will never again vote for a leader of this cluster. This
//! situation can only be detected and reported: nodes of a real era keep mentioning that era.

use quorate_core::{
    ballot::{Ballot, Era},
    message::{Heartbeat, Message, Phase2a},
    time::Time,
};

/// Number of maximum election timeouts within which a node of a real era would mention it.
const ELECTION_TIMEOUTS: u64 = 10;

/// Eras above this node's own that it has promised or seen in messages.
#[derive(Debug)]
pub(crate) struct Promises {
    unknown_era_patience_us: u64,
    /// Newest era in which another node was seen to act, and the last time of that.
    newest_acting_era: Option<(Era, Time)>,
    /// Promise to an era that this node does not know.
    unknown_era_promise: Option<UnknownEraPromise>,
}

#[derive(Clone, Copy, Debug)]
struct UnknownEraPromise {
    ballot: Ballot,
    promised_at: Time,
    is_reported: bool,
}

impl Promises {
    pub(crate) const fn new(election_max_ms: u64) -> Self {
        Self {
            unknown_era_patience_us: election_max_ms * ELECTION_TIMEOUTS * 1000,
            newest_acting_era: None,
            unknown_era_promise: None,
        }
    }

    /// Records a message from a peer; `own` is this node's era. Promises of other nodes are not
    /// evidence, since intruders may have misled those nodes, too.
    pub(crate) fn record_message(&mut self, now: Time, message: &Message, own: Era) {
        let ballot = match message {
            Message::Phase1a { ballot, .. }
            | Message::Phase2a(Phase2a { ballot, .. })
            | Message::Decided { ballot, .. }
            | Message::Arm { ballot, .. }
            | Message::Heartbeat(Heartbeat { ballot, .. })
            | Message::Lay { ballot, .. }
            | Message::PreVote { ballot }
            | Message::Transfer { ballot } => ballot,
            Message::Phase1b(_)
            | Message::Preempted { .. }
            | Message::Armed { .. }
            | Message::Phase2b(_)
            | Message::RingVote(_)
            | Message::HeartbeatReply(_)
            | Message::PreVoteReply { .. }
            | Message::CatchupRequest { .. }
            | Message::Learn { .. }
            | Message::BelowStart { .. }
            | Message::ReadRequest { .. }
            | Message::ReadReply { .. }
            | Message::LastingRequest { .. }
            | Message::LastingReply { .. }
            | Message::EarlyRequest(_)
            | Message::EarlyReply { .. } => return,
        };
        if ballot.era > own && self.newest_acting_era.is_none_or(|(era, _)| ballot.era >= era) {
            self.newest_acting_era = Some((ballot.era, now));
        }
    }

    /// Records this node's current promise. `own` is this node's era.
    pub(crate) fn record_promise(&mut self, now: Time, promised: Ballot, own: Era) {
        if promised.era <= own {
            self.unknown_era_promise = None;
            return;
        }
        if self.unknown_era_promise.is_none_or(|beyond| beyond.ballot != promised) {
            self.unknown_era_promise =
                Some(UnknownEraPromise { ballot: promised, promised_at: now, is_reported: false });
        }
    }

    fn lasting_promise(&self, now: Time) -> Option<UnknownEraPromise> {
        let beyond = self.unknown_era_promise?;
        let shown = self.newest_acting_era.filter(|(era, _)| *era >= beyond.ballot.era);
        let quiet_since = shown.map_or(beyond.promised_at, |(_, at)| at.max(beyond.promised_at));
        (now.since_us(quiet_since) >= self.unknown_era_patience_us).then_some(beyond)
    }

    pub(crate) fn unknown_era_notice(&self, now: Time) -> Option<String> {
        let UnknownEraPromise { ballot, promised_at: since, .. } = self.lasting_promise(now)?;
        let Ballot { era, node, .. } = ballot;
        let seconds = now.since_us(since) / 1_000_000;
        Some(format!(
            "this node has been bound by a promise to ballot {ballot} for at least {seconds} s, and no \
             connected node knows era {era}: it cannot vote for any leader, even after a restart. \
             If node {node} is cut off, reconnect it; otherwise a stranger reached the peer port: close \
             the port to strangers, and keep the other members up, which continue without this node"
        ))
    }

    /// Returns the notice for the operator the first time that there is one.
    pub(crate) fn take_new_notice(&mut self, now: Time) -> Option<String> {
        let news = self.lasting_promise(now).filter(|beyond| !beyond.is_reported)?;
        self.unknown_era_promise = Some(UnknownEraPromise { is_reported: true, ..news });
        self.unknown_era_notice(now)
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{node_id::NodeId, slot::Slot};

    use super::*;

    fn ballot(era: u32) -> Ballot {
        Ballot { era: Era(era), round: 1, node: NodeId(3) }
    }

    fn asks(era: u32) -> Message {
        Message::Phase1a { ballot: ballot(era), from: Slot(1) }
    }

    fn lives(era: u32) -> Message {
        Message::PreVote { ballot: ballot(era) }
    }

    const fn at(ms: u64) -> Time {
        Time(ms * 1000)
    }

    /// Returns a state that waits for one second.
    fn promised(era: u32) -> Promises {
        let mut promises = Promises::new(100);
        promises.record_message(at(0), &asks(era), Era(0));
        promises.record_promise(at(0), ballot(era), Era(0));
        promises
    }

    #[test]
    fn promise_in_an_era_without_any_leader_is_reported() {
        let mut promises = promised(7);
        assert_eq!(promises.unknown_era_notice(at(999)), None);
        // Leaders of other eras do not mention it, nor do nodes that were misled.
        promises.record_message(at(500), &lives(0), Era(0));
        promises.record_message(at(500), &lives(6), Era(0));
        let misled = Message::Preempted { ballot: ballot(0), promised: ballot(7) };
        promises.record_message(at(500), &misled, Era(0));
        assert_eq!(promises.take_new_notice(at(999)), None);
        let text = promises.take_new_notice(at(1000)).unwrap();
        assert!(text.contains("for at least 1 s"), "{text}");
        assert!(text.contains("ballot 7.1.3"), "{text}");
        assert!(text.contains("knows era 7"), "{text}");
        assert_eq!(promises.take_new_notice(at(1001)), None, "said once");
        let text = promises.unknown_era_notice(at(5000)).unwrap();
        assert!(text.contains("for at least 5 s"), "{text}");
    }

    /// [ballot-4] A promise is not reported if the acceptor merely lags.
    #[test]
    fn promise_is_not_reported_while_its_era_is_live() {
        let mut promises = promised(7);
        for ms in (0..10_000).step_by(500) {
            promises.record_message(at(ms), &lives(7 + u32::from(ms > 5000)), Era(0));
            promises.record_promise(at(ms), ballot(7), Era(0));
            assert_eq!(promises.unknown_era_notice(at(ms + 499)), None);
        }
        assert!(promises.unknown_era_notice(at(10_500)).is_some(), "it fell silent");
        // The acceptor has caught up.
        promises.record_promise(at(10_600), ballot(7), Era(7));
        assert_eq!(promises.unknown_era_notice(at(20_000)), None);
    }

    /// The log contains the promise, but not the time when it was made.
    #[test]
    fn promise_is_reported_after_a_restart() {
        let mut promises = Promises::new(100);
        promises.record_promise(at(0), ballot(7), Era(0));
        assert_eq!(promises.unknown_era_notice(at(999)), None);
        assert!(promises.unknown_era_notice(at(1000)).is_some());
        // A ballot of another intruder restarts the wait.
        promises.record_message(at(2000), &asks(9), Era(0));
        promises.record_promise(at(2000), ballot(9), Era(0));
        assert_eq!(promises.unknown_era_notice(at(2999)), None);
        assert!(promises.unknown_era_notice(at(3000)).unwrap().contains("era 9"));
    }
}
