//! Delivery of values to a C program: its callback, and the pointer passed to it.

use std::ffi::{c_int, c_void};

/// `quorate_deliver`.
pub type DeliverFunction = unsafe extern "C" fn(
    argument: *mut c_void,
    slot: u64,
    value: *const c_void,
    length: usize,
) -> c_int;

/// A pointer of the program, which the library passes back and never dereferences.
#[derive(Clone, Copy)]
pub(super) struct Argument(pub(super) *mut c_void);

// SAFETY: the library treats it as a number; the header says on which threads the program gets it
// back.
unsafe impl Send for Argument {}

/// The C callback that receives values.
#[derive(Clone, Copy)]
pub(super) struct Deliver {
    pub(super) function: DeliverFunction,
    pub(super) argument: Argument,
}
