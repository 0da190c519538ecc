//! What of the decided prefix outlasts a crash of everybody: how far this node's log has it on stable storage, what
//! others say of theirs, and who waits to hear ([class-2], [last-1]).
//!
//! In a durable group all that is decided lasts. In a volatile one, a decision says nothing about disks, and votes are
//! the wrong thing to look at: a vote on stable storage may be for a value that another ballot replaced. So the log is
//! asked, by a mark: once everything that was appended by now is on stable storage, what is decided by now lasts here.
//! Nobody marks anything unless somebody waits.

use alloc::vec::Vec;

use crate::{
    flow::PEERS_MAX,
    node_id::{Member, NodeId},
    record::RecordSeq,
    slot::Slot,
    time::Time,
};

/// The part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lasting {
    /// Everything below lasts here.
    here_to: Slot,
    /// When this record is on stable storage, everything below that slot lasts here.
    mark: Option<(RecordSeq, Slot)>,
    /// Who waits for this node's disk, and for how far.
    waiting: Vec<(NodeId, Slot)>,
    /// What others said of themselves.
    said: Vec<(Member, Slot)>,
    /// This node's clients wait until everything below lasts in the group.
    wanted: Slot,
    /// They were told so of everything below.
    told: Slot,
    /// The question that is under way, and since when.
    asked: Option<(Slot, Time)>,
}

impl Lasting {
    /// Whether nobody waits for anything.
    pub fn is_idle(&self) -> bool {
        self.wanted <= self.told && self.waiting.is_empty()
    }

    /// Clients of this node wait until everything below lasts in the group.
    pub fn want(&mut self, to: Slot) {
        self.wanted = self.wanted.max(to);
    }

    /// What clients of this node were told.
    pub fn told(&self) -> Slot {
        self.told
    }

    /// A peer waits until everything below lasts here. Its later question replaces the earlier one.
    pub fn on_request(&mut self, from: NodeId, to: Slot) {
        let room = self.waiting.len() < PEERS_MAX;
        match self.waiting.iter_mut().find(|(node, _)| *node == from) {
            Some((_, wanted)) => *wanted = to,
            None if room => self.waiting.push((from, to)),
            // It asks again.
            None => {}
        }
    }

    /// It is gone, and asks again when it is back.
    pub fn disconnect(&mut self, node: NodeId) {
        self.waiting.retain(|(waits, _)| *waits != node);
    }

    /// [last-2] A node said, as this incarnation, that everything below lasts there.
    pub fn on_reply(&mut self, from: Member, to: Slot) {
        let room = self.said.len() < PEERS_MAX;
        let mut known = self.said.iter_mut();
        match known.find(|(member, _)| member.node == from.node) {
            Some((member, said)) if *member == from => *said = to.max(*said),
            Some((member, _)) if member.incarnation > from.incarnation => {}
            Some(known) => *known = (from, to),
            None if room => self.said.push((from, to)),
            None => {}
        }
    }

    /// What this member said; slot 0 for nothing.
    pub fn said(&self, by: Member) -> Slot {
        let said = self.said.iter().find(|(member, _)| *member == by);
        said.map_or(Slot(0), |(_, to)| *to)
    }

    /// [last-1] Everything below `held_to` is decided and held here, and `appended` is the last record of the log by
    /// now. Gives how far it lasts here.
    pub fn look(
        &mut self,
        held_to: Slot,
        appended: RecordSeq,
        is_durable: impl Fn(RecordSeq) -> bool,
    ) -> Slot {
        loop {
            match self.mark {
                Some((record, to)) if is_durable(record) => {
                    self.here_to = self.here_to.max(to);
                    self.mark = None;
                }
                // What is decided since then waits for the next one.
                Some(_) => break,
                None if held_to > self.here_to && self.is_awaited() => {
                    self.mark = Some((appended, held_to));
                }
                None => break,
            }
        }
        // Of what it lost since then, this node says nothing.
        self.here_to.min(held_to)
    }

    /// Whether somebody waits for more than lasts here by now.
    fn is_awaited(&self) -> bool {
        let by_peers = self.waiting.iter().any(|(_, to)| *to > self.here_to);
        by_peers || (self.wanted > self.told && self.wanted > self.here_to)
    }

    /// Whether somebody waits for what this log has not written.
    pub fn awaits_disk(&self) -> bool {
        self.mark.is_some() && !self.is_idle()
    }

    /// The next peer that has waited for no more than this.
    pub fn next_answer(&mut self, here_to: Slot) -> Option<NodeId> {
        let at = self.waiting.iter().position(|(_, to)| *to <= here_to)?;
        Some(self.waiting.swap_remove(at).0)
    }

    /// Everything below lasts in the group. Whether that is news to somebody who waits.
    pub fn is_news(&mut self, to: Slot) -> bool {
        let news = self.wanted > self.told && to > self.told;
        if news {
            self.told = to;
        }
        news
    }

    /// What is to be asked of others now: one question at a time, for all who wait by then; again if there was no
    /// answer for so long.
    pub fn question(&mut self, now: Time, retry_us: u64) -> Option<Slot> {
        if self.wanted <= self.told {
            self.asked = None;
            return None;
        }
        let open = self
            .asked
            .is_some_and(|(to, at)| to > self.told && now.since_us(at) < retry_us);
        if open {
            return None;
        }
        self.asked = Some((self.wanted, now));
        Some(self.wanted)
    }

    /// When the question that is under way is to be repeated.
    pub fn wake_at(&self, retry_us: u64) -> Option<Time> {
        self.asked.map(|(_, at)| at.plus_us(retry_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_id::Incarnation;

    const RETRY_US: u64 = 1000;

    fn looked(lasting: &mut Lasting, held_to: u64, appended: u64, persisted: u64) -> u64 {
        let safe = |record: RecordSeq| record.0 <= persisted;
        lasting.look(Slot(held_to), RecordSeq(appended), safe).0
    }

    /// [last-1] What was appended when it was looked at has to be on stable storage; not what came behind it.
    #[test]
    fn lasts_when_all_that_was_appended_by_then_is_on_stable_storage() {
        let mut lasting = Lasting::default();
        assert_eq!(looked(&mut lasting, 5, 9, 9), 0, "nobody waits");
        lasting.on_request(NodeId(2), Slot(8));
        assert_eq!(looked(&mut lasting, 5, 9, 8), 0);
        assert!(lasting.awaits_disk());
        assert_eq!(looked(&mut lasting, 8, 14, 8), 0);
        assert_eq!(looked(&mut lasting, 8, 14, 9), 5);
        assert!(lasting.awaits_disk(), "for what is decided since then");
        assert_eq!(looked(&mut lasting, 8, 14, 14), 8);
        assert!(!lasting.awaits_disk());
        assert_eq!(
            looked(&mut lasting, 6, 14, 14),
            6,
            "more cannot be read back"
        );
    }

    /// [last-2] A statement is that of an incarnation; an old one that is late takes nothing back.
    #[test]
    fn statements_are_those_of_an_incarnation() {
        let first = Member::first(2);
        let second = Member {
            incarnation: Incarnation(1),
            ..first
        };
        let mut lasting = Lasting::default();
        lasting.on_reply(first, Slot(7));
        lasting.on_reply(first, Slot(4));
        assert_eq!(lasting.said(first), Slot(7));
        lasting.on_reply(second, Slot(3));
        lasting.on_reply(first, Slot(9));
        assert_eq!(lasting.said(first), Slot(0));
        assert_eq!(lasting.said(second), Slot(3));
    }

    #[test]
    fn one_question_serves_all_who_wait_and_is_repeated() {
        let mut lasting = Lasting::default();
        assert_eq!(lasting.question(Time(0), RETRY_US), None);
        lasting.want(Slot(5));
        assert_eq!(lasting.question(Time(0), RETRY_US), Some(Slot(5)));
        lasting.want(Slot(8));
        lasting.want(Slot(6));
        assert_eq!(lasting.question(Time(999), RETRY_US), None);
        assert_eq!(lasting.wake_at(RETRY_US), Some(Time(1000)));
        assert_eq!(lasting.question(Time(1000), RETRY_US), Some(Slot(8)));
        assert!(lasting.is_news(Slot(6)));
        assert_eq!(lasting.question(Time(1001), RETRY_US), None);
        assert!(!lasting.is_news(Slot(6)) && !lasting.is_idle());
        assert!(lasting.is_news(Slot(9)) && lasting.is_idle());
        assert_eq!(lasting.question(Time(1002), RETRY_US), None);
        assert_eq!(lasting.wake_at(RETRY_US), None);
        assert!(!lasting.is_news(Slot(12)), "nobody waits");
    }

    #[test]
    fn peers_are_answered_once_what_they_asked_for_is_there() {
        let mut lasting = Lasting::default();
        lasting.on_request(NodeId(2), Slot(5));
        lasting.on_request(NodeId(3), Slot(7));
        lasting.on_request(NodeId(2), Slot(6));
        assert_eq!(lasting.next_answer(Slot(5)), None);
        assert_eq!(lasting.next_answer(Slot(6)), Some(NodeId(2)));
        assert_eq!(lasting.next_answer(Slot(6)), None);
        lasting.disconnect(NodeId(3));
        assert!(lasting.is_idle());
    }
}
