//! Delivery of values to a C program: its function, and the pointer that it gets back.

use std::ffi::{c_int, c_void};

/// `quorate_deliver`.
pub type DeliverFunction = unsafe extern "C" fn(
    argument: *mut c_void,
    slot: u64,
    value: *const c_void,
    length: usize,
) -> c_int;

/// A pointer of the program, which the library hands back and never follows.
#[derive(Clone, Copy)]
pub(super) struct Argument(pub(super) *mut c_void);

// SAFETY: it is a number to the library; the header says on which threads the program gets it back.
unsafe impl Send for Argument {}

/// The C function that receives values.
#[derive(Clone, Copy)]
pub(super) struct Deliver {
    pub(super) function: DeliverFunction,
    pub(super) argument: Argument,
}
