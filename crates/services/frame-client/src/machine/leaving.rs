//! Outgoing frames, offers and requests of the client, and the time of its next wake-up.

use quorate_offload::{Address, Descriptor, Encapsulation, Header};

use super::{Act, Machine, Micros, SendPath};

/// Age of the oldest batch at which it is sent again (`RESEND_AGE_US`), and at which it and all
/// later ones go over the connection instead (`FALLBACK_AGE_US`).
pub(super) const RESEND_AGE_US: Micros = 2_000;
const FALLBACK_AGE_US: Micros = 6_000;
/// Minimum interval between resends of all batches.
const FULL_RESEND_INTERVAL_US: Micros = 100;
/// Age of a gap in the decisions at which the client requests the state of a node.
const GAP_AGE_US: Micros = 500;
/// Interval between requests to a node while a response matters (`REQUEST_INTERVAL_US`) and while
/// it does not (`IDLE_REQUEST_INTERVAL_US`), and between repeated offers (`OFFER_INTERVAL_US`).
const REQUEST_INTERVAL_US: Micros = 1_000;
const IDLE_REQUEST_INTERVAL_US: Micros = 50_000;
const OFFER_INTERVAL_US: Micros = 50_000;
/// Maximum number of offers without a response.
const UNANSWERED_OFFERS_MAX: u64 = 64;

impl Machine {
    /// Returns the next action that is due, if any.
    pub fn next_act(&mut self, now: Micros) -> Option<Act<'_>> {
        if self.is_session_gone {
            return None;
        }
        if self.next_request_at().is_some_and(|at| now >= at) {
            (self.awaits_position, self.position_requested_at) = (true, now);
            self.counters.position_requests += 1;
            return Some(Act::RequestPosition);
        }
        if let SendPath::Connection(_) = self.send_path {
            return self.next_offer(now);
        }
        if let Some((last, first)) = self.open.front().and_then(|batch| batch.sent_at_last_first) {
            if now >= first.max(self.last_progress_at) + FALLBACK_AGE_US {
                self.fall_back_to_connection(now);
                return self.next_offer(now);
            }
            if now >= last.max(self.last_progress_at) + RESEND_AGE_US {
                // Later batches may have arrived; if so, their decisions are received as well.
                return self.send_as_frame(now, self.oldest_outstanding);
            }
        }
        if let Some(number) =
            self.resend_from.filter(|_| now >= self.last_resend_at + FULL_RESEND_INTERVAL_US)
        {
            (self.resend_from, self.last_resend_at) = (None, now);
            self.counters.full_resends += u64::from(self.next_to_send > number);
            self.next_to_send = number.clamp(self.oldest_outstanding, self.next_to_send);
        }
        if self.resend_from.is_some()
            || self.next_to_send - self.oldest_outstanding >= self.batches_in_flight_max
        {
            return None;
        }
        if self.next_to_send - self.oldest_outstanding >= self.open.len() as u64 {
            return None;
        }
        self.next_to_send += 1;
        self.send_as_frame(now, self.next_to_send - 1)
    }

    /// Returns the action that sends batch `number` as a frame.
    fn send_as_frame(&mut self, now: Micros, number: u64) -> Option<Act<'_>> {
        let at = usize::try_from(number - self.oldest_outstanding).ok()?;
        let (batch, place) = (self.open.get_mut(at)?, self.device_place?);
        batch.sent_at_last_first =
            Some((now, batch.sent_at_last_first.map_or(now, |(_, first)| first)));
        let value = Descriptor {
            kind: 2,
            origin: self.name.origin,
            origin_boot: self.name.boot,
            counter: number,
            length: u16::try_from(batch.bytes.len()).ok()?,
            crc: batch.crc,
        };
        let (bytes, rest) = self.value_buffer.split_at_mut_checked(batch.bytes.len())?;
        bytes.copy_from_slice(&batch.bytes);
        rest.fill(0);
        let [from, to] =
            [self.own_mac, place.station_mac].map(|mac| Address { mac, ..Address::default() });
        let header = Header::new_submit(place.group, value, 0);
        self.counters.frames_sent += 1;
        let frame = Encapsulation::Raw.write_frame(
            &mut self.frame_buffer,
            &from,
            &to,
            &header,
            &self.value_buffer,
        );
        frame.map(|frame| Act::SendFrame(frame))
    }

    fn next_offer(&mut self, now: Micros) -> Option<Act<'_>> {
        if now >= self.last_offer_at + OFFER_INTERVAL_US {
            (self.next_to_offer, self.last_offer_at) = (self.oldest_outstanding, now);
        }
        if !self.is_connected
            || self.next_to_offer - self.oldest_outstanding >= UNANSWERED_OFFERS_MAX
        {
            return None;
        }
        let at = usize::try_from(self.next_to_offer - self.oldest_outstanding).ok()?;
        let batch = self.open.get(at)?;
        self.next_to_offer += 1;
        self.counters.batches_offered += 1;
        Some(Act::OfferBatch(self.next_to_offer - 1, &batch.bytes))
    }

    /// Returns the time of the next request to a node, if one is needed. An overdue response is the
    /// connection's concern.
    fn next_request_at(&self) -> Option<Micros> {
        let gap = self.stuck_since.map(|since| since + GAP_AGE_US);
        let by_connection = match self.send_path {
            SendPath::Connection(_) if !self.open.is_empty() => {
                Some(self.position_requested_at + REQUEST_INTERVAL_US)
            }
            SendPath::Connection(until) => {
                Some(until.max(self.position_requested_at + IDLE_REQUEST_INTERVAL_US))
            }
            SendPath::Frames => None,
        };
        let at = [gap, by_connection].into_iter().flatten().min();
        let at = at.map(|at| at.max(self.position_requested_at + REQUEST_INTERVAL_US));
        at.filter(|_| self.is_connected && !self.awaits_position)
    }

    /// Returns the next time at which work may be due without input.
    pub fn wake_at(&self) -> Option<Micros> {
        if self.is_session_gone {
            return None;
        }
        let offers = matches!(self.send_path, SendPath::Connection(_)) && !self.open.is_empty();
        let offer = offers.then_some(self.last_offer_at + OFFER_INTERVAL_US);
        let oldest = self.open.front().and_then(|batch| batch.sent_at_last_first);
        let retry = oldest.filter(|_| self.uses_frames());
        let retry = retry.map(|(last, _)| last.max(self.last_progress_at) + RESEND_AGE_US);
        let back = self.resend_from.map(|_| self.last_resend_at + FULL_RESEND_INTERVAL_US);
        [self.next_request_at(), retry, back, offer].into_iter().flatten().min()
    }
}
