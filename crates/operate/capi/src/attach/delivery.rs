//! Delivery to an attached program: the requested position, and values received but not yet taken.

use std::{collections::VecDeque, sync::Arc};

use super::frames::{Ask, FRAME_OVERHEAD, WINDOW_BYTES};
use crate::{
    error::Code,
    source::{Cursor, Values},
};

/// Maximum number of values that one read returns.
const SOME_VALUES: usize = 256;

fn cost(value: &[u8]) -> usize {
    value.len() + FRAME_OVERHEAD
}

#[derive(Default)]
pub(super) struct Delivery {
    epoch: u32,
    /// Position at which the next request for values starts, after the values already received.
    wanted: Option<Cursor>,
    /// Number of the connection on which the position was requested.
    asked_on: u64,
    received: VecDeque<(u64, Arc<[u8]>)>,
    /// Set if delivery is to start at the end of the log, whose slot has been requested from the
    /// node but has not been received.
    pub(super) ending: bool,
    /// Position that turned out to be trimmed, and the first retained slot.
    pub(super) forgotten: Option<(Option<u64>, u64)>,
    taken: Option<u64>,
    /// Size in bytes of the values taken but not reported to the node yet.
    unreported: usize,
    /// Size in bytes of the values received but not taken yet.
    bytes: usize,
}

impl Delivery {
    pub(super) fn seek(&mut self, cursor: Cursor) {
        let ending = cursor == Cursor::End;
        *self = Self {
            epoch: self.epoch.wrapping_add(1),
            wanted: (!ending).then_some(cursor),
            ending,
            ..Self::default()
        };
    }

    /// Appends the frames that must be sent on the connection with the number `link`.
    pub(super) fn frames(&mut self, link: u64, to: &mut Vec<u8>) {
        if self.ending && self.asked_on != link {
            self.asked_on = link;
            Ask::Sync { id: self.end_id() }.encode(to);
        }
        let Some(wanted) = self.wanted else { return };
        if self.asked_on != link {
            // Values received on an earlier connection may already fill this connection's window.
            if self.bytes >= WINDOW_BYTES {
                return;
            }
            self.asked_on = link;
            (self.unreported, self.taken) = (0, None);
            self.epoch = self.epoch.wrapping_add(1);
            let (epoch, from) = (self.epoch, wanted);
            Ask::Deliver { epoch, from }.encode(to);
        }
        // Taken values are reported along with other frames, or once there are enough of them.
        // Until then the node can use the rest of the window.
        if self.unreported >= WINDOW_BYTES / 4 || (self.unreported > 0 && !to.is_empty()) {
            let epoch = self.epoch;
            if let Some(slot) = self.taken {
                Ask::Taken { epoch, slot }.encode(to);
            }
            self.unreported = 0;
        }
    }

    /// Returns the id of the request for the end of the log, distinct from those of other requests.
    fn end_id(&self) -> u64 {
        1 << 63 | u64::from(self.epoch)
    }

    /// Handles the reply to the request for the end of the log. Delivery starts at the slot `next`.
    pub(super) fn at_end(&mut self, id: u64, code: Code, next: u64) {
        if self.ending && id == self.end_id() {
            self.asked_on = 0;
            if code == Code::Ok {
                self.ending = false;
                self.wanted = Some(Cursor::At(next));
            }
        }
    }

    /// Handles a value from the node. Fails if it is not the expected one.
    pub(super) fn receive(
        &mut self,
        epoch: u32,
        slot: u64,
        value: &[u8],
    ) -> Result<(), &'static str> {
        if epoch != self.epoch {
            return Ok(());
        }
        match self.wanted {
            Some(Cursor::Oldest) => {}
            Some(Cursor::At(wanted)) if slot == wanted => {}
            _ => return Err("a value of another slot than was asked for"),
        }
        let next = slot.checked_add(1).ok_or("a slot that cannot be")?;
        // The limit is one window, plus the values received on an earlier connection.
        if self.bytes >= 2 * WINDOW_BYTES {
            return Err("more values than there was room for");
        }
        self.wanted = Some(Cursor::At(next));
        self.bytes += cost(value);
        self.received.push_back((slot, value.into()));
        Ok(())
    }

    /// Records that the program has taken the values up to `slot`. Returns whether to report this
    /// to the node now.
    pub(super) fn take(&mut self, slot: u64) -> bool {
        while let Some((taken, value)) = self.received.pop_front_if(|(at, _)| *at <= slot) {
            self.unreported += cost(&value);
            self.bytes -= cost(&value);
            self.taken = Some(taken);
        }
        self.unreported >= WINDOW_BYTES / 4
    }

    /// Records that the next value to deliver was trimmed. Returns `false` if the program has
    /// requested another position in the meantime.
    pub(super) fn forget(&mut self, epoch: u32, first: u64) -> bool {
        if epoch != self.epoch {
            return false;
        }
        let slot = match self.wanted.take() {
            Some(Cursor::At(slot)) => Some(slot),
            Some(Cursor::Oldest | Cursor::End) | None => None,
        };
        self.forgotten = Some((slot, first));
        true
    }

    /// Appends some of the received values, starting at the cursor, to `to`.
    pub(super) fn read(&self, cursor: Cursor, to: &mut Values) {
        let from = match cursor {
            Cursor::At(slot) => slot,
            Cursor::Oldest | Cursor::End => 0,
        };
        let first = self.received.front().map_or(0, |(slot, _)| *slot);
        if from == 0 || from == first {
            to.extend(self.received.iter().take(SOME_VALUES).cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_order_are_refused() {
        let mut delivery = Delivery::default();
        assert_eq!(delivery.receive(0, 1, b"x"), Err("a value of another slot than was asked for"));
        delivery.seek(Cursor::At(5));
        let mut bytes = Vec::new();
        delivery.frames(1, &mut bytes);
        let before = delivery.epoch;
        assert!(delivery.receive(before, 6, b"x").is_err(), "a gap");
        assert_eq!(delivery.receive(before, 5, b"x"), Ok(()));
        assert!(delivery.receive(before, 5, b"x").is_err(), "again");
        // On the next connection, delivery continues after the values already received.
        bytes.clear();
        delivery.frames(2, &mut bytes);
        let from = Cursor::At(6);
        let epoch = delivery.epoch;
        assert_eq!(Ask::decode(&bytes[4..]), Some(Ask::Deliver { epoch, from }));
        assert_eq!(delivery.receive(before, 6, b"late"), Ok(()), "of an earlier wish");
        assert_eq!(delivery.receive(epoch, 6, b"x"), Ok(()));
        let slots: Vec<u64> = delivery.received.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(slots, [5, 6]);
        delivery.seek(Cursor::Oldest);
        delivery.frames(2, &mut bytes);
        assert!(delivery.receive(delivery.epoch, u64::MAX, b"x").is_err(), "no slot follows");
        assert_eq!(delivery.receive(delivery.epoch, 9, b"x"), Ok(()), "any is the first");
        assert!(delivery.receive(delivery.epoch, 11, b"x").is_err());
    }

    #[test]
    fn consumption_is_reported_with_other_frames_or_when_large() {
        let mut delivery = Delivery::default();
        let mut bytes = Vec::new();
        delivery.seek(Cursor::At(1));
        delivery.frames(1, &mut bytes);
        let epoch = delivery.epoch;
        let large = vec![0; WINDOW_BYTES / 8];
        for slot in 1..=5 {
            assert_eq!(delivery.receive(epoch, slot, &large), Ok(()));
        }
        let mut some = Values::new();
        delivery.read(Cursor::At(1), &mut some);
        assert_eq!(some.len(), 5);
        assert!(!delivery.take(1));
        bytes.clear();
        delivery.frames(1, &mut bytes);
        assert!(bytes.is_empty(), "no program waits for that");
        assert!(delivery.take(2), "it is much");
        delivery.frames(1, &mut bytes);
        let taken = |slot| Some(Ask::Taken { epoch, slot });
        assert_eq!(Ask::decode(&bytes[4..]), taken(2));
        assert!(!delivery.take(3));
        bytes.clear();
        Ask::Sync { id: 1 }.encode(&mut bytes);
        let other = bytes.len();
        delivery.frames(1, &mut bytes);
        assert_eq!(Ask::decode(&bytes[other + 4..]), taken(3));
    }

    #[test]
    fn values_beyond_the_window_are_refused() {
        let mut delivery = Delivery::default();
        let mut bytes = Vec::new();
        delivery.seek(Cursor::At(1));
        delivery.frames(1, &mut bytes);
        let large = vec![0; WINDOW_BYTES];
        assert_eq!(delivery.receive(delivery.epoch, 1, &large), Ok(()));
        bytes.clear();
        delivery.frames(2, &mut bytes);
        assert!(bytes.is_empty(), "what is here is as much as may be");
        assert_eq!(delivery.receive(delivery.epoch, 2, &large), Ok(()));
        assert!(delivery.receive(delivery.epoch, 3, b"").is_err());
        delivery.take(2);
        bytes.clear();
        delivery.frames(2, &mut bytes);
        let (epoch, from) = (delivery.epoch, Cursor::At(3));
        assert_eq!(Ask::decode(&bytes[4..]), Some(Ask::Deliver { epoch, from }));
    }
}
