//! Single-producer, single-consumer ring of bytes between two threads. Each record belongs to one
//! connection.

use std::sync::Arc;

use quorate_replica::front::ConnectionId;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::bell::{Bell, SpaceRequest};

/// Capacity of a ring in bytes.
pub(super) const RING_BYTES: usize = 1 << 20;
/// Length in bytes of a header: kind, connection, number, and the length of the bytes that follow.
pub(super) const HEADER_BYTES: usize = 17;

/// A record's header. The bytes follow it in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: u8,
    pub(super) connection: ConnectionId,
    pub(super) written_bytes: u32,
    /// Number of bytes that follow. They must be taken before the next record.
    pub(super) length: usize,
}

/// Creates a ring. Its sender wakes the receiver's owner with `to`, and is woken with `from` once
/// there is space again.
pub(super) fn ring(to: Arc<Bell>, from: Arc<Bell>) -> (Sender, Receiver) {
    let (producer, consumer) = RingBuffer::new(RING_BYTES);
    let room = Arc::new(SpaceRequest::default());
    let sender = Sender {
        producer,
        bell: to,
        space_request: Arc::clone(&room),
        stalled: false,
        has_unsignalled_records: false,
    };
    (sender, Receiver { consumer, bell: from, space_request: room })
}

#[derive(Debug)]
pub(super) struct Sender {
    producer: Producer<u8>,
    bell: Arc<Bell>,
    space_request: Arc<SpaceRequest>,
    /// The last record did not fit.
    stalled: bool,
    /// Records were pushed since the bell was last rung.
    has_unsignalled_records: bool,
}

impl Sender {
    /// Returns the maximum number of bytes in the next record.
    pub(super) fn next_record_bytes_max(&self) -> usize {
        self.producer.slots().saturating_sub(HEADER_BYTES)
    }

    /// Appends a whole record with its bytes. Returns `false` if it does not fit; the receiver then
    /// rings once there is space.
    #[must_use]
    pub(super) fn push(
        &mut self,
        kind: u8,
        connection: ConnectionId,
        number: u32,
        bytes: &[u8],
    ) -> bool {
        let mut header = [0; HEADER_BYTES];
        header[0] = kind;
        header[1..9].copy_from_slice(&connection.0.to_ne_bytes());
        header[9..13].copy_from_slice(&number.to_ne_bytes());
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        header[13..].copy_from_slice(&length.to_ne_bytes());
        let Ok(mut chunk) = self.producer.write_chunk(HEADER_BYTES + bytes.len()) else {
            self.request_space_wakeup();
            return false;
        };
        let (first, second) = chunk.as_mut_slices();
        let mut at = 0;
        for part in [&header[..], bytes] {
            let here = first.len().saturating_sub(at).min(part.len());
            if here > 0 {
                first[at..at + here].copy_from_slice(&part[..here]);
            }
            let there = (at + here).saturating_sub(first.len());
            second[there..][..part.len() - here].copy_from_slice(&part[here..]);
            at += part.len();
        }
        chunk.commit_all();
        (self.stalled, self.has_unsignalled_records) = (false, true);
        true
    }

    /// Returns whether a record without bytes fits.
    pub(super) fn has_space(&self) -> bool {
        self.producer.slots() >= HEADER_BYTES
    }

    /// Requests to be woken once half of the ring is free.
    pub(super) fn request_space_wakeup(&mut self) {
        self.stalled = true;
        self.space_request.request_space();
    }

    /// Returns whether a record waits for space and less than half of the ring is free.
    pub(super) fn is_stalled(&mut self) -> bool {
        self.stalled &= !self.has_regained_space();
        self.stalled
    }

    /// Wakes the receiver for the records since the last call.
    pub(super) fn wake_receiver(&mut self) {
        if std::mem::take(&mut self.has_unsignalled_records) {
            self.bell.wake_consumer();
        }
    }

    /// Returns whether a record waits for space and half of the ring is free.
    pub(super) fn has_regained_space(&self) -> bool {
        self.stalled && self.producer.slots() >= RING_BYTES / 2
    }
}

#[derive(Debug)]
pub(super) struct Receiver {
    consumer: Consumer<u8>,
    bell: Arc<Bell>,
    space_request: Arc<SpaceRequest>,
}

impl Receiver {
    pub(super) fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Returns the number of bytes of the records that are present now.
    pub(super) fn bytes(&self) -> usize {
        self.consumer.slots()
    }

    pub(super) fn next_record(&mut self) -> Option<Record> {
        let mut header = [0; HEADER_BYTES];
        // Records are committed as a whole, so the bytes are present with the header.
        self.consumer.pop_entire_slice(&mut header).ok()?;
        let [kind, connection @ .., _, _, _, _, _, _, _, _] = header;
        let number = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        Some(Record {
            kind,
            connection: ConnectionId(u64::from_ne_bytes(connection)),
            written_bytes: number(9),
            length: number(13) as usize,
        })
    }

    /// Takes the bytes of the record returned last.
    pub(super) fn take_bytes(&mut self, into: &mut [u8]) {
        let taken = self.consumer.pop_entire_slice(into);
        debug_assert!(taken.is_ok(), "the bytes are committed with the header");
    }

    /// Wakes the sender if it waits for space and half of the ring is free.
    pub(super) fn wake_sender_if_space(&self) {
        if self.space_request.should_ring(|| self.consumer.slots() <= RING_BYTES / 2) {
            self.bell.wake_consumer();
        }
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.consumer.is_abandoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Sender, Receiver) {
        let bell = || Arc::new(Bell::new().unwrap());
        ring(bell(), bell())
    }

    #[test]
    fn records_are_intact_across_the_end_of_the_ring() {
        let (mut sender, mut receiver) = pair();
        let bytes: Vec<u8> = (0..=255).cycle().take(50_000).collect();
        let mut total = 0;
        for number in 0..200_u32 {
            let sent = &bytes[..(number as usize * 7_919) % bytes.len()];
            let id = ConnectionId(u64::from(number) << 40);
            assert!(sender.push(3, id, number, sent));
            let record = receiver.next_record().unwrap();
            let expected =
                Record { kind: 3, connection: id, written_bytes: number, length: sent.len() };
            assert_eq!(record, expected);
            let mut taken = vec![0; record.length];
            receiver.take_bytes(&mut taken);
            assert_eq!(taken, sent);
            total += HEADER_BYTES + sent.len();
        }
        assert!(total > 4 * RING_BYTES);
        assert_eq!(receiver.next_record(), None);
    }

    /// [io-10] A record that does not fit waits until half of the ring is free.
    #[test]
    fn blocked_record_waits_until_half_of_the_ring_is_free() {
        let (mut sender, mut receiver) = pair();
        let quarter = vec![7; RING_BYTES / 4 - HEADER_BYTES];
        for number in 0..4 {
            assert!(!sender.is_stalled());
            assert!(sender.push(0, ConnectionId(1), number, &quarter));
        }
        assert!(!sender.has_space() && !sender.push(0, ConnectionId(1), 4, &[]));
        assert!(sender.is_stalled());
        let mut take = || {
            receiver.next_record().unwrap();
            receiver.take_bytes(&mut vec![0; quarter.len()]);
        };
        take();
        assert!(sender.is_stalled());
        take();
        assert!(!sender.is_stalled());
        assert!(sender.push(0, ConnectionId(1), 4, &[]));
    }
}
