//! Outgoing frames, offers and requests of the client, and the time of its next wake-up.

use quorate_offload::{Address, Descriptor, Form, Header};

use super::{Act, Machine, Micros, Way};

/// Age of the oldest batch at which it is sent again (`RETRY_US`), and at which it and all later
/// ones go over the connection instead (`LATE_US`).
pub(super) const RETRY_US: Micros = 2_000;
const LATE_US: Micros = 6_000;
/// Minimum interval between resends of all batches.
const BACK_US: Micros = 100;
/// Age of a gap in the decisions at which the client requests the state of a node.
const GAP_US: Micros = 500;
/// Interval between requests to a node while a response matters (`ASK_US`) and while it does not
/// (`IDLE_US`), and between repeated offers (`OFFER_US`).
const ASK_US: Micros = 1_000;
const IDLE_US: Micros = 50_000;
const OFFER_US: Micros = 50_000;
/// Maximum number of offers without a response.
const OFFERS: u64 = 64;

impl Machine {
    /// Returns the next action that is due, if any.
    pub fn next_act(&mut self, now: Micros) -> Option<Act<'_>> {
        if self.is_over {
            return None;
        }
        if self.ask_at().is_some_and(|at| now >= at) {
            (self.asks, self.asked_at) = (true, now);
            self.counts.asked += 1;
            return Some(Act::Ask);
        }
        if let Way::Connection(_) = self.way {
            return self.next_offer(now);
        }
        if let Some((last, first)) = self.open.front().and_then(|batch| batch.sent) {
            if now >= first.max(self.progress_at) + LATE_US {
                self.leave_frames(now);
                return self.next_offer(now);
            }
            if now >= last.max(self.progress_at) + RETRY_US {
                // Later batches may have arrived; if so, their decisions are received as well.
                return self.frame_of(now, self.first);
            }
        }
        if let Some(number) = self.back.filter(|_| now >= self.back_at + BACK_US) {
            (self.back, self.back_at) = (None, now);
            self.counts.back += u64::from(self.cursor > number);
            self.cursor = number.clamp(self.first, self.cursor);
        }
        if self.back.is_some() || self.cursor - self.first >= self.window {
            return None;
        }
        if self.cursor - self.first >= self.open.len() as u64 {
            return None;
        }
        self.cursor += 1;
        self.frame_of(now, self.cursor - 1)
    }

    /// Returns the action that sends batch `number` as a frame.
    fn frame_of(&mut self, now: Micros, number: u64) -> Option<Act<'_>> {
        let at = usize::try_from(number - self.first).ok()?;
        let (batch, place) = (self.open.get_mut(at)?, self.place?);
        batch.sent = Some((now, batch.sent.map_or(now, |(_, first)| first)));
        let value = Descriptor {
            kind: 2,
            origin: self.name.origin,
            origin_boot: self.name.boot,
            counter: number,
            length: u16::try_from(batch.bytes.len()).ok()?,
            crc: batch.crc,
        };
        let (bytes, rest) = self.room.split_at_mut_checked(batch.bytes.len())?;
        bytes.copy_from_slice(&batch.bytes);
        rest.fill(0);
        let [from, to] = [self.own, place.station].map(|mac| Address { mac, ..Address::default() });
        let header = Header::submit(place.group, value, 0);
        self.counts.sent += 1;
        let frame = Form::Raw.write(&mut self.frame, &from, &to, &header, &self.room);
        frame.map(|frame| Act::Send(frame))
    }

    fn next_offer(&mut self, now: Micros) -> Option<Act<'_>> {
        if now >= self.offered_at + OFFER_US {
            (self.offered, self.offered_at) = (self.first, now);
        }
        if !self.is_connected || self.offered - self.first >= OFFERS {
            return None;
        }
        let at = usize::try_from(self.offered - self.first).ok()?;
        let batch = self.open.get(at)?;
        self.offered += 1;
        self.counts.offered += 1;
        Some(Act::Offer(self.offered - 1, &batch.bytes))
    }

    /// Returns the time of the next request to a node, if one is needed. An overdue response is the
    /// connection's concern.
    fn ask_at(&self) -> Option<Micros> {
        let gap = self.stuck_since.map(|since| since + GAP_US);
        let by_connection = match self.way {
            Way::Connection(_) if !self.open.is_empty() => Some(self.asked_at + ASK_US),
            Way::Connection(until) => Some(until.max(self.asked_at + IDLE_US)),
            Way::Frames => None,
        };
        let at = [gap, by_connection].into_iter().flatten().min();
        let at = at.map(|at| at.max(self.asked_at + ASK_US));
        at.filter(|_| self.is_connected && !self.asks)
    }

    /// Returns the next time at which work may be due without input.
    pub fn wake_at(&self) -> Option<Micros> {
        if self.is_over {
            return None;
        }
        let offers = matches!(self.way, Way::Connection(_)) && !self.open.is_empty();
        let offer = offers.then_some(self.offered_at + OFFER_US);
        let oldest = self.open.front().and_then(|batch| batch.sent);
        let retry = oldest.filter(|_| self.uses_frames());
        let retry = retry.map(|(last, _)| last.max(self.progress_at) + RETRY_US);
        let back = self.back.map(|_| self.back_at + BACK_US);
        [self.ask_at(), retry, back, offer].into_iter().flatten().min()
    }
}
