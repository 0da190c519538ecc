//! Settings of an owner at its start: its identity, and its patience.

/// Identity of the caller and of the device ([offload-17]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The process's start: above 0, and above that of every earlier process that owned the device.
    pub owner_boot: u32,
    /// The device's, drawn once each time it gets power: above 0. Only a device that has none yet,
    /// or this one, obeys.
    pub device_boot: u32,
    /// Most submitted values on their way to the coordinator.
    pub window: u64,
    /// Patience of the owner.
    pub pace: Pace,
}

/// Factor between the questions to a late device and those to others.
const SELDOM: u64 = 32;

/// Patience of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// A call, a question or a value is repeated after this long without an answer, in
    /// microseconds.
    pub answer_us: u64,
    /// After this many waits without an answer the device is late, and asked less often.
    pub tries: u32,
    /// [offload-9] A late device is lost after this long, in microseconds; 0: at once.
    pub late_us: u64,
    /// A slot that is missing is read, and one that is undecided repeated, after this long, in
    /// microseconds.
    pub slot_us: u64,
    /// A device that works is asked how it stands this often, in microseconds.
    pub probe_us: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { answer_us: 10_000, tries: 50, late_us: 0, slot_us: 5_000, probe_us: 50_000 }
    }
}

impl Pace {
    /// Returns how long an answer is waited for, after this many waits in vain.
    pub(crate) fn wait_us(&self, waits: u32) -> u64 {
        let times = if self.is_late(waits) { SELDOM } else { 1 };
        self.answer_us.saturating_mul(times)
    }

    /// Returns how long a device may owe an answer before it is late.
    pub(crate) fn late_from_us(&self) -> u64 {
        self.answer_us.saturating_mul(self.tries.into())
    }

    /// Returns whether this many waits in vain make a device late.
    pub(crate) const fn is_late(&self, waits: u32) -> bool {
        waits >= self.tries
    }

    /// Returns whether this many waits in vain are those of a device that never answers again.
    ///
    /// Waits are counted, and no time is compared: an owner that stood still has not waited.
    pub(crate) fn is_lost(&self, waits: u32) -> bool {
        let late = self.late_us / self.wait_us(waits).max(1);
        self.is_late(waits) && u64::from(waits - self.tries) >= late
    }
}
