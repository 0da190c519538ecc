//! What an owner is told at its start: whose calls it makes, and how patient it is.

/// Whose calls they are, and to whom ([offload-17]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The process's start: above 0, and above that of every earlier process that owned the device.
    pub owner_boot: u32,
    /// The device's, drawn once each time it gets power: above 0. Only a device that has none yet,
    /// or this one, obeys.
    pub device_boot: u32,
    /// How many submitted values are on their way to the coordinator at most.
    pub window: u64,
    /// How patient it is.
    pub pace: Pace,
}

/// How patient an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// A call, a question or a value is repeated after this long without an answer, in
    /// microseconds.
    pub answer_us: u64,
    /// A call or question is made this often at most; then the device is lost.
    pub tries: u32,
    /// A slot that is missing is read, and one that is undecided repeated, after this long, in
    /// microseconds.
    pub slot_us: u64,
    /// A device that works is asked how it stands this often, in microseconds.
    pub probe_us: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { answer_us: 10_000, tries: 50, slot_us: 5_000, probe_us: 50_000 }
    }
}
