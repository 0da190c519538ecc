//! Delivery to an attached program: the requested position, and values received but not yet taken.

use std::{collections::VecDeque, sync::Arc};

use super::frames::{FRAME_OVERHEAD, Request, WINDOW_BYTES_MAX};
use crate::{
    error::Code,
    source::{Cursor, Values},
};

/// Maximum number of values that one read returns.
const READ_VALUES_MAX: usize = 256;

fn value_cost(value: &[u8]) -> usize {
    value.len() + FRAME_OVERHEAD
}

#[derive(Default)]
pub(super) struct Delivery {
    epoch: u32,
    /// Position at which the next request for values starts, after the values already received.
    request_from: Option<Cursor>,
    /// Number of the connection on which the position was requested.
    requested_on_link: u64,
    received_values: VecDeque<(u64, Arc<[u8]>)>,
    /// Set if delivery is to start at the end of the log, whose slot has been requested from the
    /// node but has not been received.
    pub(super) awaits_end: bool,
    /// Position that turned out to be trimmed, and the first retained slot.
    pub(super) trimmed_at: Option<(Option<u64>, u64)>,
    last_taken: Option<u64>,
    /// Size in bytes of the values taken but not reported to the node yet.
    unreported_bytes: usize,
    /// Size in bytes of the values received but not taken yet.
    bytes: usize,
}

impl Delivery {
    pub(super) fn seek_to(&mut self, cursor: Cursor) {
        let ending = cursor == Cursor::End;
        *self = Self {
            epoch: self.epoch.wrapping_add(1),
            request_from: (!ending).then_some(cursor),
            awaits_end: ending,
            ..Self::default()
        };
    }

    /// Appends the frames that must be sent on the connection with the number `link`.
    pub(super) fn add_frames(&mut self, link: u64, to: &mut Vec<u8>) {
        if self.awaits_end && self.requested_on_link != link {
            self.requested_on_link = link;
            Request::Sync { id: self.end_request_id() }.encode(to);
        }
        let Some(wanted) = self.request_from else { return };
        if self.requested_on_link != link {
            // Values received on an earlier connection may already fill this connection's window.
            if self.bytes >= WINDOW_BYTES_MAX {
                return;
            }
            self.requested_on_link = link;
            (self.unreported_bytes, self.last_taken) = (0, None);
            self.epoch = self.epoch.wrapping_add(1);
            let (epoch, from) = (self.epoch, wanted);
            Request::Deliver { delivery_epoch: epoch, from }.encode(to);
        }
        // Taken values are reported along with other frames, or once there are enough of them.
        // Until then the node can use the rest of the window.
        if self.unreported_bytes >= WINDOW_BYTES_MAX / 4
            || (self.unreported_bytes > 0 && !to.is_empty())
        {
            let epoch = self.epoch;
            if let Some(slot) = self.last_taken {
                Request::Taken { delivery_epoch: epoch, slot }.encode(to);
            }
            self.unreported_bytes = 0;
        }
    }

    /// Returns the id of the request for the end of the log, distinct from those of other requests.
    fn end_request_id(&self) -> u64 {
        1 << 63 | u64::from(self.epoch)
    }

    /// Handles the reply to the request for the end of the log. Delivery starts at the slot `next`.
    pub(super) fn on_end_reply(&mut self, id: u64, code: Code, next: u64) {
        if self.awaits_end && id == self.end_request_id() {
            self.requested_on_link = 0;
            if code == Code::Ok {
                self.awaits_end = false;
                self.request_from = Some(Cursor::At(next));
            }
        }
    }

    /// Handles a value from the node. Fails if it is not the expected one.
    pub(super) fn receive_value(
        &mut self,
        epoch: u32,
        slot: u64,
        value: &[u8],
    ) -> Result<(), &'static str> {
        if epoch != self.epoch {
            return Ok(());
        }
        match self.request_from {
            Some(Cursor::Oldest) => {}
            Some(Cursor::At(wanted)) if slot == wanted => {}
            _ => return Err("a value of another slot than was asked for"),
        }
        let next = slot.checked_add(1).ok_or("a slot that cannot be")?;
        // The limit is one window, plus the values received on an earlier connection.
        if self.bytes >= 2 * WINDOW_BYTES_MAX {
            return Err("more values than there was room for");
        }
        self.request_from = Some(Cursor::At(next));
        self.bytes += value_cost(value);
        self.received_values.push_back((slot, value.into()));
        Ok(())
    }

    /// Records that the program has taken the values up to `slot`. Returns whether to report this
    /// to the node now.
    pub(super) fn record_taken(&mut self, slot: u64) -> bool {
        while let Some((taken, value)) = self.received_values.pop_front_if(|(at, _)| *at <= slot) {
            self.unreported_bytes += value_cost(&value);
            self.bytes -= value_cost(&value);
            self.last_taken = Some(taken);
        }
        self.unreported_bytes >= WINDOW_BYTES_MAX / 4
    }

    /// Records that the next value to deliver was trimmed. Returns `false` if the program has
    /// requested another position in the meantime.
    pub(super) fn record_trimmed(&mut self, epoch: u32, first: u64) -> bool {
        if epoch != self.epoch {
            return false;
        }
        let slot = match self.request_from.take() {
            Some(Cursor::At(slot)) => Some(slot),
            Some(Cursor::Oldest | Cursor::End) | None => None,
        };
        self.trimmed_at = Some((slot, first));
        true
    }

    /// Appends some of the received values, starting at the cursor, to `to`.
    pub(super) fn read_values(&self, cursor: Cursor, to: &mut Values) {
        let from = match cursor {
            Cursor::At(slot) => slot,
            Cursor::Oldest | Cursor::End => 0,
        };
        let first = self.received_values.front().map_or(0, |(slot, _)| *slot);
        if from == 0 || from == first {
            to.extend(self.received_values.iter().take(READ_VALUES_MAX).cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_order_are_refused() {
        let mut delivery = Delivery::default();
        assert_eq!(
            delivery.receive_value(0, 1, b"x"),
            Err("a value of another slot than was asked for")
        );
        delivery.seek_to(Cursor::At(5));
        let mut bytes = Vec::new();
        delivery.add_frames(1, &mut bytes);
        let before = delivery.epoch;
        assert!(delivery.receive_value(before, 6, b"x").is_err(), "a gap");
        assert_eq!(delivery.receive_value(before, 5, b"x"), Ok(()));
        assert!(delivery.receive_value(before, 5, b"x").is_err(), "again");
        // On the next connection, delivery continues after the values already received.
        bytes.clear();
        delivery.add_frames(2, &mut bytes);
        let from = Cursor::At(6);
        let epoch = delivery.epoch;
        assert_eq!(
            Request::decode(&bytes[4..]),
            Some(Request::Deliver { delivery_epoch: epoch, from })
        );
        assert_eq!(delivery.receive_value(before, 6, b"late"), Ok(()), "of an earlier wish");
        assert_eq!(delivery.receive_value(epoch, 6, b"x"), Ok(()));
        let slots: Vec<u64> = delivery.received_values.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(slots, [5, 6]);
        delivery.seek_to(Cursor::Oldest);
        delivery.add_frames(2, &mut bytes);
        assert!(delivery.receive_value(delivery.epoch, u64::MAX, b"x").is_err(), "no slot follows");
        assert_eq!(delivery.receive_value(delivery.epoch, 9, b"x"), Ok(()), "any is the first");
        assert!(delivery.receive_value(delivery.epoch, 11, b"x").is_err());
    }

    #[test]
    fn consumption_is_reported_with_other_frames_or_when_large() {
        let mut delivery = Delivery::default();
        let mut bytes = Vec::new();
        delivery.seek_to(Cursor::At(1));
        delivery.add_frames(1, &mut bytes);
        let epoch = delivery.epoch;
        let large = vec![0; WINDOW_BYTES_MAX / 8];
        for slot in 1..=5 {
            assert_eq!(delivery.receive_value(epoch, slot, &large), Ok(()));
        }
        let mut some = Values::new();
        delivery.read_values(Cursor::At(1), &mut some);
        assert_eq!(some.len(), 5);
        assert!(!delivery.record_taken(1));
        bytes.clear();
        delivery.add_frames(1, &mut bytes);
        assert!(bytes.is_empty(), "no program waits for that");
        assert!(delivery.record_taken(2), "it is much");
        delivery.add_frames(1, &mut bytes);
        let taken = |slot| Some(Request::Taken { delivery_epoch: epoch, slot });
        assert_eq!(Request::decode(&bytes[4..]), taken(2));
        assert!(!delivery.record_taken(3));
        bytes.clear();
        Request::Sync { id: 1 }.encode(&mut bytes);
        let other = bytes.len();
        delivery.add_frames(1, &mut bytes);
        assert_eq!(Request::decode(&bytes[other + 4..]), taken(3));
    }

    #[test]
    fn values_beyond_the_window_are_refused() {
        let mut delivery = Delivery::default();
        let mut bytes = Vec::new();
        delivery.seek_to(Cursor::At(1));
        delivery.add_frames(1, &mut bytes);
        let large = vec![0; WINDOW_BYTES_MAX];
        assert_eq!(delivery.receive_value(delivery.epoch, 1, &large), Ok(()));
        bytes.clear();
        delivery.add_frames(2, &mut bytes);
        assert!(bytes.is_empty(), "what is here is as much as may be");
        assert_eq!(delivery.receive_value(delivery.epoch, 2, &large), Ok(()));
        assert!(delivery.receive_value(delivery.epoch, 3, b"").is_err());
        delivery.record_taken(2);
        bytes.clear();
        delivery.add_frames(2, &mut bytes);
        let (epoch, from) = (delivery.epoch, Cursor::At(3));
        assert_eq!(
            Request::decode(&bytes[4..]),
            Some(Request::Deliver { delivery_epoch: epoch, from })
        );
    }
}
