//! Control: what only the owner may ask, in order ([offload-17]).
//!
//! Each call has a number, ⟨device boot, owner boot, counter⟩. A device that has another boot has
//! forgotten, and refuses; a number that is not above the last is old, and is refused, too. A call
//! that was refused for another reason has used up its number: it cannot be carried out later.
//!
//! As frames: the device's boot in its field, the owner's boot in that of the origin's boot, the
//! counter in its field. *Arm* and *start* have ballot, floor or first slot in `slot`, a
//! coordinator's limit in `voted`, its quorum in `kind`, its members in `origin`. *Done* has the
//! state: floor in `slot`, next slot in `voted`, bytes of a room in `length`, cells in `crc`.

use crate::{PackedBallot, Reason};

/// Names one call of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Number {
    /// Boot of the addressed device; never 0.
    pub device_boot: u32,
    /// The owner's process start.
    pub owner_boot: u32,
    /// Counts the owner's calls.
    pub counter: u64,
}

/// State of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Boot of the device; 0: none since power came.
    pub boot: u32,
    /// None: it is not armed.
    pub ballot: PackedBallot,
    /// Its own, in the configuration of the ballot's era; 0 in a coordinator.
    pub position: u8,
    /// Lowest slot that is not forgotten.
    pub floor: u64,
    /// Next slot that a coordinator assigns; 0 in an acceptor.
    pub next: u64,
    /// Decisions are hints.
    pub hint: bool,
}

/// Last call accepted, by process start and number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    boot: u32,
    last: (u32, u64),
}

impl Order {
    pub(crate) const fn boot(&self) -> u32 {
        self.boot
    }

    /// Sets the boot of a device that forgot everything; it never changes after that.
    pub(crate) fn begin(&mut self, boot: u32) -> Result<(), Reason> {
        if boot == 0 || (self.boot != 0 && self.boot != boot) {
            return Err(Reason::Boot);
        }
        self.boot = boot;
        Ok(())
    }

    /// [offload-17] Accepts only calls for this boot, and only upwards: an *arm* that is late comes
    /// after its fence.
    pub(crate) fn admit(&mut self, number: Number) -> Result<(), Reason> {
        // [offload-9] A device without a boot takes none.
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
