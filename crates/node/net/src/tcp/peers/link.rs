//! Peer connections (socket, buffers and stage), and the queues of all connections.

use std::{collections::VecDeque, io};

use quorate_core::{node_id::Member, time::Time};
use quorate_replica::plane::FrameBody;
use rustix::io::Errno;
use slotmap::SlotMap;

use super::stage::{Greeter, Stage};
use crate::{
    sources::{Interest, LinkId, Source, Sources, Token},
    tcp::{
        inbox::Inbox,
        outbox::Outbox,
        socket::{Socket, TransferOutcome},
    },
};

/// Prefix of the reason that is logged when the other side closed the connection.
pub(super) const CLOSED_PREFIX: &str = "connection closed";

/// All connections, with peers and with callers that are not identified yet.
#[derive(Debug)]
pub(super) struct Links {
    links: SlotMap<LinkId, Link>,
    /// Connections whose output has not been flushed yet.
    unflushed_links: Vec<LinkId>,
    /// Connections that wait for their share of the link's bandwidth.
    paused_links: Vec<LinkId>,
    /// Connections whose stage has a deadline, oldest first.
    links_with_deadline: VecDeque<LinkId>,
}

/// One connection, with a peer or with a caller that is not identified yet.
#[derive(Debug)]
pub(super) struct Link {
    socket: Socket,
    token: Token,
    inbox: Inbox,
    outbox: Outbox,
    stage: Stage,
    interest: Interest,
    is_unflushed: bool,
    /// The connection waits for its share of the bandwidth and writes nothing until then.
    is_paused: bool,
    /// Time of the last received frame; `None` until the connection is in use.
    last_frame_at: Option<Time>,
    /// The greeter, while the connection waits to be admitted.
    greeter: Option<Box<Greeter>>,
    /// Why the connection ends; `None` if this node chose to close it.
    end_reason: Option<String>,
}

impl Links {
    pub(super) fn new() -> Self {
        Self {
            links: SlotMap::with_key(),
            unflushed_links: Vec::new(),
            paused_links: Vec::new(),
            links_with_deadline: VecDeque::new(),
        }
    }

    /// Adds a connection to the table and watches its socket.
    pub(super) fn adopt(
        &mut self,
        socket: Socket,
        stage: Stage,
        interest: Interest,
        sources: &mut Sources,
    ) -> io::Result<LinkId> {
        let id = self.links.try_insert_with_key(|id| {
            let token = sources.add(&socket, Source::Link(id), interest)?;
            Ok::<_, io::Error>(Link {
                socket,
                token,
                inbox: Inbox::default(),
                outbox: Outbox::default(),
                stage,
                interest,
                is_unflushed: false,
                is_paused: false,
                last_frame_at: None,
                greeter: None,
                end_reason: None,
            })
        })?;
        self.links_with_deadline.push_back(id);
        Ok(id)
    }

    pub(super) fn get(&self, id: LinkId) -> Option<&Link> {
        self.links.get(id)
    }

    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(id)
    }

    pub(super) fn stage(&self, id: LinkId) -> Option<Stage> {
        self.links.get(id).map(|link| link.stage)
    }

    /// Removes a connection from the table. Dropping the returned link closes it.
    pub(super) fn remove(&mut self, id: LinkId, sources: &mut Sources) -> Option<Link> {
        let link = self.links.remove(id)?;
        sources.remove(link.token);
        Some(link)
    }

    pub(super) fn queue_frame(&mut self, id: LinkId, header: &[u8], body: FrameBody<'_>) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        link.outbox.push(header, body);
        if !link.is_unflushed {
            link.is_unflushed = true;
            self.unflushed_links.push(id);
        }
    }

    pub(super) fn has_unsent_output(&self) -> bool {
        !self.unflushed_links.is_empty()
    }

    /// Takes the connections with new output, except those with a full socket or without bandwidth.
    pub(super) fn take_dirty(&mut self) -> Vec<LinkId> {
        let mut dirty = std::mem::take(&mut self.unflushed_links);
        dirty.retain(|id| {
            let link = self.links.get_mut(*id);
            link.is_some_and(|link| {
                link.is_unflushed = false;
                !link.interest.write && !link.is_paused
            })
        });
        dirty
    }

    /// Makes a connection wait for its share of the bandwidth.
    pub(super) fn pause(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(id)
            && !link.is_paused
        {
            link.is_paused = true;
            self.paused_links.push(id);
        }
    }

    pub(super) fn has_paused(&self) -> bool {
        !self.paused_links.is_empty()
    }

    /// Takes all connections that wait for their share of the bandwidth, and unpauses them.
    pub(super) fn take_paused(&mut self) -> Vec<LinkId> {
        let paused = std::mem::take(&mut self.paused_links);
        for id in &paused {
            if let Some(link) = self.links.get_mut(*id) {
                link.is_paused = false;
            }
        }
        paused
    }

    /// Sets a deadline for a connection in use that is about to end.
    pub(super) fn begin_leaving(&mut self, id: LinkId, deadline: Time) {
        if let Some(link) = self.links.get_mut(id) {
            link.set_stage(Stage::Leaving { deadline });
            self.links_with_deadline.push_back(id);
        }
    }

    /// Returns the oldest connection without an admitted peer, if there are more than `max`.
    pub(super) fn surplus_stranger(&self, max: usize) -> Option<LinkId> {
        let is_stranger = |id: &LinkId| self.stage(*id).is_some_and(Stage::is_stranger);
        let mut strangers = self.links_with_deadline.iter().copied().filter(is_stranger);
        let oldest = strangers.next()?;
        (1 + strangers.count() > max).then_some(oldest)
    }

    /// Forgets connections whose stage no longer has a deadline. Returns whether others are left.
    pub(super) fn forget_without_deadline(&mut self) -> bool {
        let links = &self.links;
        self.links_with_deadline.retain(|id| {
            let link = links.get(*id);
            link.is_some_and(|link| link.stage.deadline().is_some())
        });
        !self.links_with_deadline.is_empty()
    }

    /// Returns the connections whose stage has passed its deadline.
    pub(super) fn overdue_links(&self, now: Time) -> Vec<LinkId> {
        let ids = self.links_with_deadline.iter().copied();
        ids.filter(|id| self.is_overdue(*id, now)).collect()
    }

    /// Returns whether the connection's stage has passed its deadline.
    pub(super) fn is_overdue(&self, id: LinkId, now: Time) -> bool {
        let deadline = self.stage(id).and_then(Stage::deadline);
        deadline.is_some_and(|deadline| deadline <= now)
    }

    pub(super) fn newcomers(&self) -> Vec<LinkId> {
        let waits = |id: &LinkId| self.links.get(*id).is_some_and(|link| link.greeter.is_some());
        self.links_with_deadline.iter().copied().filter(waits).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let ids = self.links_with_deadline.iter();
        ids.filter_map(|id| self.stage(*id)?.deadline()).min()
    }
}

impl Link {
    pub(super) fn rtt_us(&self) -> Option<u64> {
        quorate_packets::tcp::rtt_us(&self.socket)
    }

    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn set_stage(&mut self, stage: Stage) {
        self.stage = stage;
    }

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the total number of unsent bytes.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Records that a frame from the peer arrived by datagram, which proves that the peer is alive.
    pub(super) const fn note_frame(&mut self, now: Time) {
        self.last_frame_at = Some(now);
    }

    pub(super) const fn member(&self) -> Option<Member> {
        match self.stage {
            Stage::Open { member, .. } => Some(member),
            _ => None,
        }
    }

    pub(super) const fn last_frame_at(&self) -> Option<Time> {
        self.last_frame_at
    }

    pub(super) fn greeter(&self) -> Option<&Greeter> {
        self.greeter.as_deref()
    }

    /// Makes the connection wait until `greeter` can be admitted, at most until `deadline`.
    pub(super) fn wait_for_admission(&mut self, greeter: Greeter, deadline: Time) {
        self.stage = Stage::Newcomer { deadline };
        self.greeter = Some(Box::new(greeter));
    }

    pub(super) fn take_greeter(&mut self) -> Option<Greeter> {
        self.greeter.take().map(|greeter| *greeter)
    }

    pub(super) fn set_end_reason(&mut self, why: String) {
        self.end_reason = Some(why);
    }

    pub(super) fn end_reason(&self) -> Option<&str> {
        self.end_reason.as_deref()
    }

    /// Makes one read of at most `limit` bytes, or of the rest of a long frame.
    pub(super) fn read(&mut self, limit: usize) -> TransferOutcome {
        let moved = self.inbox.read(&mut self.socket, limit);
        self.note_end(moved)
    }

    pub(super) fn should_read_again(&self) -> bool {
        self.inbox.should_read_again() || self.socket.has_buffered_input()
    }

    /// Returns whether to read beyond this turn's limit, because the poller does not see buffered
    /// data.
    pub(super) fn has_buffered_input(&self) -> bool {
        self.socket.has_buffered_input()
    }

    /// Returns whether the last read produced output, as a TLS handshake does.
    pub(super) fn has_new_output(&self) -> bool {
        let waits = !self.outbox.is_empty() && !self.interest.write && !self.is_paused;
        self.socket.has_unsent_output() || (waits && self.socket.is_established())
    }

    /// Takes the input buffer, to be parsed while this table is used ([`Self::return_inbox`]).
    pub(super) fn take_inbox(&mut self) -> Inbox {
        std::mem::take(&mut self.inbox)
    }

    /// Puts the input buffer back. `heard` is the time of receipt if it contained a frame.
    pub(super) fn return_inbox(&mut self, inbox: Inbox, heard: Option<Time>) {
        self.inbox = inbox;
        if matches!(self.stage, Stage::Open { .. }) && heard.is_some() {
            self.last_frame_at = heard;
        }
    }

    /// Makes one write of at most `limit` bytes; `None` if there is no output.
    pub(super) fn write(&mut self, limit: usize) -> Option<TransferOutcome> {
        if self.outbox.is_empty() && !self.socket.has_unsent_output() {
            return None;
        }
        let moved = if self.outbox.is_empty() {
            self.socket.flush()
        } else {
            self.outbox.write(&mut self.socket, limit)
        };
        Some(self.note_end(moved))
    }

    /// Registers the socket for the events that the connection currently needs. After the last
    /// frame of a connection that is being closed, ends the output.
    pub(super) fn register_interest(&mut self, sources: &Sources) -> io::Result<()> {
        if self.outbox.is_empty() && matches!(self.stage, Stage::Leaving { .. }) {
            self.socket.finish_writing();
        }
        let has_output = !self.outbox.is_empty() && !self.is_paused;
        let interest = Interest { read: true, write: self.socket.waits_to_write(has_output) };
        if interest != self.interest {
            self.interest = interest;
            sources.change(&self.socket, self.token, interest)?;
        }
        Ok(())
    }

    fn note_end(&mut self, moved: TransferOutcome) -> TransferOutcome {
        if let TransferOutcome::Ended(why) = moved {
            let failure = self.socket.failure().map(|why| format!("TLS: {why}"));
            self.end_reason = Some(failure.unwrap_or_else(|| why_ended(why)));
        }
        moved
    }
}

/// Describes why a connection ended. A process that stops with unread input resets its connections,
/// so a reset counts as a close and not as a network failure.
fn why_ended(failure: Option<Errno>) -> String {
    match failure {
        None => CLOSED_PREFIX.to_owned(),
        Some(reset @ (Errno::CONNRESET | Errno::PIPE)) => format!("{CLOSED_PREFIX}: {reset}"),
        Some(failure) => failure.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_reset_by_a_killed_peer_counts_as_closed() {
        for killed in [None, Some(Errno::CONNRESET), Some(Errno::PIPE)] {
            assert!(why_ended(killed).starts_with(CLOSED_PREFIX), "{killed:?}");
        }
        let failed = why_ended(Some(Errno::TIMEDOUT));
        assert!(!failed.starts_with(CLOSED_PREFIX), "{failed}");
    }
}
