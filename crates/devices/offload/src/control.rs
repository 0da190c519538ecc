//! Control calls, which only the owner may make, and their order ([offload-17]).
//!
//! Each call has a number, ⟨device boot, owner boot, counter⟩. A device with another boot has lost
//! its memory, and refuses the call. It also refuses a number that is not above that of the last
//! call. A call refused for any other reason uses up its number, so it cannot be executed later.
//!
//! In a frame, the device's boot has its own field, the owner's boot is in the field of the
//! origin's boot, and the counter has its own field. *Arm* and *start* contain the ballot, the
//! floor or first slot in `slot`, a coordinator's limit in `voted`, its quorum in `kind`, and its
//! members in `origin`. *Done* contains the state: the floor in `slot`, the next slot in `voted`,
//! the size of the value area in `length`, and the number of cells in `crc`.

use crate::{PackedBallot, Reason};

/// Number of a control call. Later calls have higher numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallNumber {
    /// Boot of the addressed device, never 0.
    pub device_boot: u32,
    /// Boot of the owner's process.
    pub owner_boot: u32,
    /// Counter that the owner increments with each call.
    pub counter: u64,
}

/// State of a program, as reported to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Boot of the device, or 0 if none has been set since power-up.
    pub boot: u32,
    /// Ballot of the armed record, or no ballot if the program is not armed.
    pub ballot: PackedBallot,
    /// Position of the device in the configuration of the ballot's era. 0 for a coordinator.
    pub position: u8,
    /// Lowest slot that the program still stores.
    pub floor: u64,
    /// Next slot that the coordinator assigns. 0 for an acceptor.
    pub next: u64,
    /// Set if decisions are only hints.
    pub hint: bool,
}

/// Boot of the device, and the number of the last accepted call.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallOrder {
    boot: u32,
    last_call: (u32, u64),
}

impl CallOrder {
    pub(crate) const fn boot(&self) -> u32 {
        self.boot
    }

    /// Sets the boot of a device that has none. Once set, it never changes.
    pub(crate) fn set_boot(&mut self, boot: u32) -> Result<(), Reason> {
        if boot == 0 || (self.boot != 0 && self.boot != boot) {
            return Err(Reason::Boot);
        }
        self.boot = boot;
        Ok(())
    }

    /// [offload-17] Accepts a call for the current boot if its number exceeds all earlier ones. A
    /// delayed *arm* is therefore refused after its fence.
    pub(crate) fn accept_call(&mut self, number: CallNumber) -> Result<(), Reason> {
        // [offload-9] A device without a boot accepts no calls.
        if self.boot == 0 || number.device_boot != self.boot {
            return Err(Reason::Boot);
        }
        let number = (number.owner_boot, number.counter);
        if number <= self.last_call {
            return Err(Reason::Order);
        }
        self.last_call = number;
        Ok(())
    }
}
