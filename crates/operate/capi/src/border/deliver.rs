//! Delivery of values to a C program: the callback and the pointer passed to it.

use std::ffi::{c_int, c_void};

/// The C type `quorate_deliver`.
pub type DeliverFunction = unsafe extern "C" fn(
    argument: *mut c_void,
    slot: u64,
    value: *const c_void,
    length: usize,
) -> c_int;

/// A pointer that belongs to the program. The library passes it back and never dereferences it.
#[derive(Clone, Copy)]
pub(super) struct CallbackArgument(pub(super) *mut c_void);

// SAFETY: the library treats it as a number. The header says on which threads the program gets it
// back.
unsafe impl Send for CallbackArgument {}

/// The C callback that receives values, with its argument.
#[derive(Clone, Copy)]
pub(super) struct DeliverCallback {
    pub(super) function: DeliverFunction,
    pub(super) argument: CallbackArgument,
}
