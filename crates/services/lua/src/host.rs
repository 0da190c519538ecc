//! Reference to the host of the current run, kept in the machine's state.
#![allow(unsafe_code, reason = "a borrow that a store cannot express: its state has no lifetime")]

use std::{marker::PhantomData, ptr::NonNull};

use crate::Host;

/// Pointer to a host. Set only while the corresponding [`HostLoan`] exists.
#[derive(Default)]
pub(crate) struct HostSlot(Option<NonNull<dyn Host>>);

// SAFETY: the pointer is set only during a call of `Interpreter::run`, which stays on one thread.
// At any other time the slot is empty.
unsafe impl Send for HostSlot {}

/// Proof that the host outlives the period in which the slot contains it.
pub(crate) struct HostLoan<'a>(PhantomData<&'a mut dyn Host>);

impl HostSlot {
    /// Lends a host to the slot until [`Self::clear`].
    pub(crate) fn lend<'a>(&mut self, host: &'a mut (dyn Host + 'a)) -> HostLoan<'a> {
        let host: NonNull<dyn Host + 'a> = NonNull::from(host);
        // SAFETY: only the lifetime of the trait object changes. `clear` consumes the proof of it,
        // and a machine whose slot was not cleared is never used again.
        self.0 = Some(unsafe {
            std::mem::transmute::<NonNull<dyn Host + 'a>, NonNull<dyn Host + 'static>>(host)
        });
        HostLoan(PhantomData)
    }

    pub(crate) fn clear(&mut self, _lent: HostLoan<'_>) {
        self.0 = None;
    }

    /// Returns the host, if a run is in progress.
    pub(crate) fn get(&mut self) -> Option<&mut dyn Host> {
        // SAFETY: `lend` had the only reference to the host, whose borrow lasts until `clear`. This
        // reference does not outlive the borrow of the slot.
        self.0.as_mut().map(|host| unsafe { host.as_mut() })
    }
}
