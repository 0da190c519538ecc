//! Control: calls that only the owner may make, in order ([offload-17]).
//!
//! Each call has a number, ⟨device boot, owner boot, counter⟩. A device with another boot has lost
//! its memory, and refuses the call; a number that is not above the last is old, and is refused,
//! too. A call that was refused for another reason has used up its number: it cannot be carried out
//! later.
//!
//! As frames: the device's boot is in its own field, the owner's boot in the field of the origin's
//! boot, the counter in its own field. *Arm* and *start* have the ballot, the floor or first slot
//! in `slot`, a coordinator's limit in `voted`, its quorum in `kind`, its members in `origin`.
//! *Done* has the state: the floor in `slot`, the next slot in `voted`, the size of the value area
//! in `length`, the number of cells in `crc`.

use crate::{PackedBallot, Reason};

/// Number of a control call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Number {
    /// Boot of the addressed device; never 0.
    pub device_boot: u32,
    /// Boot of the owner's process.
    pub owner_boot: u32,
    /// Counter of the owner's calls.
    pub counter: u64,
}

/// State of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Boot of the device; 0 if none was set since power-up.
    pub boot: u32,
    /// Ballot of the armed record; no ballot if the device is not armed.
    pub ballot: PackedBallot,
    /// Position of the device in the configuration of the ballot's era; 0 in a coordinator.
    pub position: u8,
    /// Lowest slot that is not forgotten.
    pub floor: u64,
    /// Next slot that a coordinator assigns; 0 in an acceptor.
    pub next: u64,
    /// Decisions are hints.
    pub hint: bool,
}

/// Boot of the device, and the last call accepted, by owner boot and counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    boot: u32,
    last: (u32, u64),
}

impl Order {
    pub(crate) const fn boot(&self) -> u32 {
        self.boot
    }

    /// Sets the boot of a device that has none. It never changes after that.
    pub(crate) fn begin(&mut self, boot: u32) -> Result<(), Reason> {
        if boot == 0 || (self.boot != 0 && self.boot != boot) {
            return Err(Reason::Boot);
        }
        self.boot = boot;
        Ok(())
    }

    /// [offload-17] Accepts only calls for this boot with increasing numbers, so a delayed *arm* is
    /// refused after its fence.
    pub(crate) fn admit(&mut self, number: Number) -> Result<(), Reason> {
        // [offload-9] A device without a boot accepts none.
        if self.boot == 0 || number.device_boot != self.boot {
            return Err(Reason::Boot);
        }
        let number = (number.owner_boot, number.counter);
        if number <= self.last {
            return Err(Reason::Order);
        }
        self.last = number;
        Ok(())
    }
}
