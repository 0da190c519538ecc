//! Connections in the name of a peer that is connected already.
//!
//! A hello proves nothing: whoever knows the cluster's id can say one. So a connection that lives is
//! not given up for one that only said hello: the newcomer waits until it has sent a frame, or until
//! the other one has been silent for as long as a handshake may take. A machine that lost power and is
//! back does one or the other within that time; who holds a hello does neither.

use quorate_core::node_id::{Member, NodeId};
use quorate_wire::{BODY_BYTES_MAX, Frame, Lane, Malformed};

use super::{Greeter, Peers, Stage, Verdict};
use crate::host::{Now, PeerSide};

impl Peers {
    /// Whether a frame came by this connection lately.
    fn lives(&self, token: u64, now: Now) -> bool {
        let heard = self.links.get(&token).and_then(|link| link.heard);
        heard.is_some_and(|at| now.time.since_us(at) < self.limits.handshake_ms * 1000)
    }

    /// The connections in use that living ones of this process would end: that of its lane, and all of
    /// older processes.
    pub(super) fn replaced_by(
        &self,
        node: NodeId,
        lane: Lane,
        boot: u32,
    ) -> impl Iterator<Item = u64> {
        let index = self.index(node);
        let lanes = index.map(|index| self.peers[index].lanes.each_ref().map(|lane| lane.open));
        let open = Lane::ALL.into_iter().zip(lanes.into_iter().flatten());
        open.filter_map(move |(other, token)| {
            let stage = self.links.get(&token?)?.stage;
            let older = matches!(stage, Stage::Open { boot: known, .. } if known < boot);
            (other == lane || older).then_some(token?)
        })
    }

    /// The process start of the living connections with this peer.
    pub(super) fn living_boot(&self, node: NodeId, now: Now) -> Option<u32> {
        let lanes = &self.peers[self.index(node)?].lanes;
        let open = lanes.iter().filter_map(|lane| lane.open);
        let boots = open
            .filter(|token| self.lives(*token, now))
            .filter_map(|token| match self.links.get(&token)?.stage {
                Stage::Open { boot, .. } => Some(boot),
                _ => None,
            });
        boots.max()
    }

    /// Whether a greeter would end a connection that lives.
    pub(super) fn must_wait(&self, greeter: &Greeter, now: Now) -> bool {
        self.replaced_by(greeter.member.node, greeter.lane, greeter.boot)
            .any(|token| self.lives(token, now))
    }

    /// It said hello, and has to say more.
    pub(super) fn wait(&mut self, token: u64, greeter: Greeter, now: Now) {
        let deadline = now.time.plus_ms(self.limits.handshake_ms);
        if let Some(link) = self.links.get_mut(&token) {
            link.stage = Stage::Newcomer { deadline };
            link.greeter = Some(Box::new(greeter));
        }
    }

    /// The first frame of a newcomer: the connection is used from now on.
    pub(super) fn on_newcomer_frame(
        &mut self,
        token: u64,
        from: Member,
        frame: Frame<'_>,
        now: Now,
        host: &mut dyn PeerSide,
    ) -> Verdict {
        let greeting = matches!(
            frame,
            Frame::Hello(_)
                | Frame::Welcome(_)
                | Frame::Join(_)
                | Frame::Founding(_)
                | Frame::Refused(..)
        );
        let greeter = self.greeter(token);
        let Some(greeter) = greeter.filter(|greeter| greeter.member == from && !greeting) else {
            return Verdict::Close;
        };
        let (member, lane) = (greeter.member, greeter.lane);
        if !self.take_in(token, now, host) {
            return Verdict::Close;
        }
        self.on_peer_frame(member, lane, from, frame, now, host)
    }

    /// Whether what a newcomer sends is the beginning of a frame that is longer than a greeting; it is
    /// used from now on, then.
    pub(super) fn begins_long_frame(
        &mut self,
        token: u64,
        malformed: Malformed,
        now: Now,
        host: &mut dyn PeerSide,
    ) -> bool {
        let is_newcomer = self.greeter(token).is_some();
        let long =
            matches!(malformed, Malformed::TooLong { length, .. } if length <= BODY_BYTES_MAX);
        is_newcomer && long && self.take_in(token, now, host)
    }

    fn greeter(&self, token: u64) -> Option<&Greeter> {
        self.links.get(&token)?.greeter.as_deref()
    }

    /// The newcomer's connection replaces the others; not if a newer process is alive.
    fn take_in(&mut self, token: u64, now: Now, host: &mut dyn PeerSide) -> bool {
        let Some(node) = self.greeter(token).map(|greeter| greeter.member.node) else {
            return false;
        };
        let living = self.living_boot(node, now);
        let Some(greeter) = self
            .links
            .get_mut(&token)
            .and_then(|link| link.greeter.take())
        else {
            return false;
        };
        if living.is_some_and(|boot| boot > greeter.boot) {
            return false;
        }
        self.open(token, *greeter, now, host);
        true
    }

    /// Newcomers that wait for nobody any more are taken in; those that said nothing in time are not.
    pub(super) fn settle_newcomers(&mut self, now: Now, host: &mut dyn PeerSide) {
        let waits = |token: &&u64| self.greeter(**token).is_some();
        let waiting: Vec<u64> = self.transient.iter().filter(waits).copied().collect();
        for token in waiting {
            let Some(greeter) = self.greeter(token) else {
                continue;
            };
            let node = greeter.member.node;
            if !self.must_wait(greeter, now) {
                if !self.take_in(token, now, host) {
                    self.close(token, now, host);
                }
            } else if self.is_late(token, now) {
                let what = "a second connection in its name said nothing; the one in use stays";
                self.complain(node, what);
                self.close(token, now, host);
            }
        }
    }
}
