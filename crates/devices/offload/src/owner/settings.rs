//! Settings of an owner: its own identity, that of the device, and timeouts.

/// Identity of the owner and of the device ([offload-17]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Boot of the owner's process. Above 0, and above that of every earlier process that owned the
    /// device.
    pub owner_boot: u32,
    /// Boot of the device, drawn at each power-up. Above 0. A device with a different boot refuses
    /// all calls.
    pub device_boot: u32,
    /// Maximum number of values in flight to the coordinator.
    pub window: u64,
    pub timeouts: Timeouts,
}

/// Factor by which the interval between requests to a late device is longer.
const LATE_INTERVAL_FACTOR: u64 = 32;

/// Timeouts after which an owner repeats a request or abandons its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time without a response after which a call, a query or a value is repeated, in microseconds.
    pub response_us: u64,
    /// Number of unanswered requests after which the device is late.
    pub late_after_tries: u32,
    /// [offload-9] Time for which a device may be late before it is abandoned, in microseconds.
    pub abandon_after_us: u64,
    /// Time after which a missing slot is read and an undecided one is proposed again, in
    /// microseconds.
    pub slot_retry_us: u64,
    /// Interval between queries to a working device, in microseconds.
    pub probe_interval_us: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            response_us: 10_000,
            late_after_tries: 50,
            abandon_after_us: 0,
            slot_retry_us: 5_000,
            probe_interval_us: 50_000,
        }
    }
}

impl Timeouts {
    /// Returns how long to wait for a response after `waits` unanswered requests, in microseconds.
    pub(crate) fn wait_us(&self, waits: u32) -> u64 {
        let times = if self.is_late(waits) { LATE_INTERVAL_FACTOR } else { 1 };
        self.response_us.saturating_mul(times)
    }

    /// Returns how long a device may take to respond before it is late, in microseconds.
    pub(crate) fn late_after_us(&self) -> u64 {
        self.response_us.saturating_mul(self.late_after_tries.into())
    }

    /// Returns whether a device is late after `waits` unanswered requests.
    pub(crate) const fn is_late(&self, waits: u32) -> bool {
        waits >= self.late_after_tries
    }

    /// Returns whether a device is to be abandoned after `waits` unanswered requests. These are
    /// counted instead of comparing times, because an owner that was suspended has not waited.
    /// waited.
    pub(crate) fn is_abandoned(&self, waits: u32) -> bool {
        let late = self.abandon_after_us / self.wait_us(waits).max(1);
        self.is_late(waits) && u64::from(waits - self.late_after_tries) >= late
    }
}
