//! Physical laws of the plant, which are richer than the controller's model.
//!
//! Turns of a reactor accept everything that waits. The bytes of batches cost more the less they
//! fit into caches. Links have a bounded buffer that drops the excess. Disks merge flushes. All of
//! these have jitter. Times are in nanoseconds, sizes in bytes.

use std::collections::VecDeque;

use crate::plant::dice::Dice;

/// Processor costs of the leader and the followers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor {
    /// Factor by which all times below are multiplied.
    pub(crate) slowness: f64,
}

impl Processor {
    /// Returns the cost of a turn of the reactor. `woken` means that the reactor was asleep.
    pub(crate) fn turn(self, woken: bool) -> f64 {
        self.slowness * if woken { 4_000.0 } else { 1_200.0 }
    }

    /// Returns the cost of reading and parsing commands. Bytes gathered beyond the second-level
    /// cache are cold.
    pub(crate) fn take(self, commands: f64, bytes: f64, gathered: f64) -> f64 {
        let cold = 1.0 + (gathered / 1e6).min(2.0) * 0.1;
        self.slowness * (commands * 220.0 + bytes * 0.12 * cold)
    }

    /// Returns the cost of numbering, checking and copying a batch, once for the node itself and
    /// once for each peer.
    pub(crate) fn batch(self, bytes: f64, peers: f64, in_flight: f64, in_flight_bytes: f64) -> f64 {
        let cold = 1.0 + (bytes / 400e3).powf(1.3).min(3.0) + (in_flight_bytes / 4e6).min(1.0);
        let queue = 60.0 * in_flight;
        self.slowness
            * (3_500.0 + queue + bytes * 0.08 * cold + peers * (2_200.0 + bytes * 0.10 * cold))
    }

    /// Returns the cost of a vote at the leader.
    pub(crate) fn vote(self) -> f64 {
        self.slowness * 1_300.0
    }

    /// Returns the cost of applying commands and replying to clients.
    pub(crate) fn apply(self, commands: f64, bytes: f64) -> f64 {
        // The cost of sorting and allocating grows faster than the batch.
        let superlinear = 1.0 + 0.02 * (commands + 1.0).log2();
        self.slowness * (commands * 330.0 * superlinear + bytes * 0.05)
    }

    /// Returns the cost of a proposal at a follower.
    pub(crate) fn receive(self, bytes: f64) -> f64 {
        self.slowness * (2_600.0 + bytes * 0.14)
    }
}

/// Returns the cost of a turn with the influence of other programs, interrupts and clock frequency.
pub(crate) fn jitter(dice: &mut Dice, cost: f64) -> u64 {
    let preempted = if dice.chance(0.0004) { dice.between(20e3, 200e3) } else { 0.0 };
    (cost * dice.between(0.85, 1.2) + preempted) as u64
}

/// A link with a rate, a bounded buffer and a delay.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Rate in bytes per nanosecond; infinite for no limit.
    pub(crate) rate: f64,
    /// Capacity of the link's buffer. The excess is lost, and resent after a timeout.
    pub(crate) buffer: f64,
    pub(crate) one_way: f64,
    free_at: f64,
    /// The link waits for a timeout until this time.
    recovers_at: f64,
    last: u64,
}

impl Link {
    pub(crate) fn new(rate: f64, buffer: f64, one_way: f64) -> Self {
        Self { rate, buffer, one_way, free_at: 0.0, recovers_at: 0.0, last: 0 }
    }

    /// Occupies the link without a delivery at the other end.
    pub(crate) fn occupy(&mut self, now: u64, bytes: f64) {
        self.free_at = self.free_at.max(now as f64) + bytes / self.rate;
    }

    /// Returns the time at which the complete message arrives at the other end. Messages arrive in
    /// order.
    pub(crate) fn send(&mut self, now: u64, bytes: f64, dice: &mut Dice) -> u64 {
        let start = self.free_at.max(now as f64);
        let mut again = 0.0;
        let mut late = 0.0;
        if self.rate.is_finite() {
            let waiting = (start - now as f64) * self.rate;
            let overflow = (waiting + bytes - self.buffer).clamp(0.0, bytes);
            if overflow > 0.0 {
                // Bytes lost at the end of the buffer occupy the link once more. The first of a
                // burst waits for the timeout, with the link idle for half of it.
                again = overflow * 0.9;
                if self.recovers_at < now as f64 {
                    late = 200e6 + 2.0 * self.one_way;
                    self.recovers_at = start + late;
                }
            }
        }
        self.free_at = start + (bytes * 1.045 + again) / self.rate + late * 0.5;
        let wobble = dice.between(0.98, 1.04);
        let spike = if dice.chance(0.001) { 1.3 } else { 1.0 };
        let at = self.free_at + late * 0.5 + self.one_way * wobble * spike + 1_500.0;
        self.last = self.last.max(at as u64);
        self.last
    }
}

/// A write in flight.
#[derive(Clone, Copy, Debug)]
struct Write {
    to: u64,
    bytes: f64,
    began: u64,
    in_device: bool,
    flushing: bool,
}

/// A completed flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flushed {
    pub(crate) began: u64,
    pub(crate) bytes: f64,
}

/// A log on a disk: group commit with two writes in flight, and flushes that merge.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// Duration of one flush.
    pub(crate) flush: f64,
    /// Write rate in bytes per nanosecond.
    pub(crate) rate: f64,
    records: VecDeque<(u64, f64)>,
    writes: VecDeque<Write>,
    free_at: f64,
    flushing: bool,
    pub(crate) durable_to: u64,
}

/// Maximum number of writes in flight, as in the log. `WRITE_MAX` bounds the bytes of a write.
const DEPTH: usize = 2;
const WRITE_MAX: f64 = 1048576.0;

impl Disk {
    pub(crate) fn new(flush: f64, rate: f64) -> Self {
        Self {
            flush,
            rate,
            records: VecDeque::new(),
            writes: VecDeque::new(),
            free_at: 0.0,
            flushing: false,
            durable_to: 0,
        }
    }

    /// Queues a record of the slot before `to`.
    pub(crate) fn append(&mut self, to: u64, bytes: f64) {
        self.records.push_back((to, bytes));
    }

    /// Starts a write if possible. Returns the time at which its bytes are in the device.
    pub(crate) fn submit(&mut self, now: u64) -> Option<u64> {
        if self.writes.len() >= DEPTH {
            return None;
        }
        let (mut to, mut bytes) = self.records.pop_front()?;
        while let Some(&(next, more)) = self.records.front()
            && bytes + more <= WRITE_MAX
        {
            self.records.pop_front();
            (to, bytes) = (next, bytes + more);
        }
        let blocks = ((bytes + 100.0) / 4096.0).ceil() * 4096.0;
        self.free_at = self.free_at.max(now as f64) + 5_000.0 + blocks / self.rate;
        self.writes.push_back(Write { to, bytes, began: now, in_device: false, flushing: false });
        Some(self.free_at as u64)
    }

    /// Records that the bytes of a write arrived in the device. Returns the end of the flush that
    /// this starts.
    pub(crate) fn written(&mut self, now: u64, dice: &mut Dice) -> Option<u64> {
        if let Some(write) = self.writes.iter_mut().find(|write| !write.in_device) {
            write.in_device = true;
        }
        self.start_flush(now, dice)
    }

    fn start_flush(&mut self, now: u64, dice: &mut Dice) -> Option<u64> {
        let ready = self.writes.iter().any(|write| write.in_device);
        if self.flushing || !ready {
            return None;
        }
        for write in self.writes.iter_mut().filter(|write| write.in_device) {
            write.flushing = true;
        }
        self.flushing = true;
        let slow = if dice.chance(0.01) { 2.5 } else { 1.0 };
        let took = 9_000.0 + self.flush * dice.between(0.9, 1.15) * slow;
        Some(now + took as u64)
    }

    /// Ends a flush. Passes on the writes that it made durable, and returns the end of the next
    /// flush.
    pub(crate) fn flushed(
        &mut self,
        now: u64,
        dice: &mut Dice,
        mut each: impl FnMut(Flushed),
    ) -> Option<u64> {
        self.flushing = false;
        while let Some(write) = self.writes.pop_front_if(|write| write.flushing) {
            self.durable_to = write.to;
            each(Flushed { began: write.began, bytes: write.bytes });
        }
        self.start_flush(now, dice)
    }
}
