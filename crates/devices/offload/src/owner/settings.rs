//! Settings of an owner at its start: its identity, and its timeouts.

/// Identity of the owner and of the device ([offload-17]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Boot of the owner's process: above 0, and above that of every earlier process that owned the
    /// device.
    pub owner_boot: u32,
    /// Boot of the device, drawn once each time it gets power: above 0. Only a device that has none
    /// yet, or this one, obeys.
    pub device_boot: u32,
    /// Maximum number of submitted values on their way to the coordinator.
    pub window: u64,
    /// Timeouts of the owner.
    pub pace: Pace,
}

/// Factor by which a late device is queried less often.
const SELDOM: u64 = 32;

/// Timeouts of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time without an answer after which a call, a query or a value is repeated, in microseconds.
    pub answer_us: u64,
    /// Number of waits without an answer after which the device is late, and queried less often.
    pub tries: u32,
    /// [offload-9] Time after which a late device is lost, in microseconds; 0: at once.
    pub late_us: u64,
    /// Time after which a missing slot is read, and an undecided one repeated, in microseconds.
    pub slot_us: u64,
    /// Interval of queries to a working device, in microseconds.
    pub probe_us: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { answer_us: 10_000, tries: 50, late_us: 0, slot_us: 5_000, probe_us: 50_000 }
    }
}

impl Pace {
    /// Returns how long to wait for an answer, after this many waits without one.
    pub(crate) fn wait_us(&self, waits: u32) -> u64 {
        let times = if self.is_late(waits) { SELDOM } else { 1 };
        self.answer_us.saturating_mul(times)
    }

    /// Returns how long a device may owe an answer before it is late.
    pub(crate) fn late_from_us(&self) -> u64 {
        self.answer_us.saturating_mul(self.tries.into())
    }

    /// Returns whether this many waits without an answer make a device late.
    pub(crate) const fn is_late(&self, waits: u32) -> bool {
        waits >= self.tries
    }

    /// Returns whether this many waits without an answer mean that the device never answers again.
    ///
    /// Waits are counted instead of comparing times: an owner that was suspended has not waited.
    pub(crate) fn is_lost(&self, waits: u32) -> bool {
        let late = self.late_us / self.wait_us(waits).max(1);
        self.is_late(waits) && u64::from(waits - self.tries) >= late
    }
}
