//! The functions of `quorate.h`, in the same order. The header documents their contracts.

use std::{
    ffi::{c_char, c_int, c_void},
    time::Instant,
};

use quorate::stderr::{self, Stderr};

use super::{
    deliver::{CallbackArgument, DeliverCallback, DeliverFunction},
    errors::{QuorateError, last_error, run_call, store_error},
    handles::{
        Object, Opaque, OpenHandle, insert, open, remove, require_closable, require_options,
        with_options,
    },
    pointers::{OutPointer, bytes, copy_out, deadline_in, text, wait_duration},
};
use crate::{
    error::{Code, Failed},
    handle::{Event, Handle},
    options::Options,
    source::{Cursor, DoneCallback, Outcome},
};

/// The C type `quorate_done`.
pub type DoneFunction = Option<unsafe extern "C" fn(argument: *mut c_void, code: c_int, slot: u64)>;

fn done_callback(function: DoneFunction, argument: *mut c_void) -> DoneCallback {
    let argument = CallbackArgument(argument);
    Box::new(move |outcome: Outcome| {
        // Captures the whole struct, which is `Send`, rather than the pointer in it.
        let argument: CallbackArgument = argument;
        let (code, slot) = match &outcome {
            Ok(slot) => (Code::Ok as c_int, *slot),
            Err(failed) => (store_error(failed), 0),
        };
        if let Some(function) = function {
            // SAFETY: the program passed a function with this signature, together with this
            // argument.
            unsafe { function(argument.0, code, slot) }
        }
    })
}

/// Returns the version of the library as a static string.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the last error of the calling thread; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_last_error() -> *const QuorateError {
    last_error()
}

/// Returns the name of a code; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_code_name(code: c_int) -> *const c_char {
    let name = match Code::from_number(code) {
        Some(Code::Ok) => c"QUORATE_OK",
        Some(Code::Invalid) => c"QUORATE_INVALID",
        Some(Code::Size) => c"QUORATE_SIZE",
        Some(Code::Busy) => c"QUORATE_BUSY",
        Some(Code::Full) => c"QUORATE_FULL",
        Some(Code::Trimmed) => c"QUORATE_TRIMMED",
        Some(Code::Timeout) => c"QUORATE_TIMEOUT",
        Some(Code::Unknown) => c"QUORATE_UNKNOWN",
        Some(Code::Unavailable) => c"QUORATE_UNAVAILABLE",
        Some(Code::Stopped) => c"QUORATE_STOPPED",
        Some(Code::InUse) => c"QUORATE_IN_USE",
        Some(Code::Refused) => c"QUORATE_REFUSED",
        Some(Code::Panicked) => c"QUORATE_PANICKED",
        None => c"no code of quorate.h",
    };
    name.as_ptr()
}

/// Starts to write log lines to standard error; see `quorate.h`.
///
/// # Safety
/// `filter` must be null or point to a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_log_to_stderr(filter: *const c_char) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let filter = unsafe { text(filter, "the filter") }?;
        let filter: tracing_subscriber::EnvFilter = filter.parse().map_err(|error| {
            Failed::new(Code::Invalid, format!("the filter: {error}"))
                .with_hint("such as info or warn")
        })?;
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Stderr);
        lines.try_init().map_err(|_| Failed::new(Code::InUse, "lines go somewhere already"))?;
        // A stalled reader of standard error must not block the node.
        stderr::start_writer_thread()
            .map_err(|error| Failed::new(Code::Unavailable, format!("start a thread: {error}")))
    })
}

/// Creates a set of options with the default values; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_options_new() -> *mut Opaque {
    let mut handle = std::ptr::null_mut();
    run_call(|| {
        handle = insert(Object::Options(Box::default()));
        Ok(())
    });
    handle
}

/// Sets an option by name; see `quorate.h`.
///
/// # Safety
/// `name` and `value` must each be null or point to a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_options_set(
    handle: *mut Opaque,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let (name, value) = unsafe { (text(name, "the name")?, text(value, "the value")?) };
        with_options(handle, |options| options.set(name, value))
    })
}

/// Frees a set of options; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_options_free(handle: *mut Opaque) {
    run_call(|| {
        if !handle.is_null() {
            remove(handle, require_options)?;
        }
        Ok(())
    });
}

/// Opens a handle and writes it to `out`.
///
/// # Safety
/// `out` must be null or valid for writes.
unsafe fn open_handle(
    handle: *const Opaque,
    out: *mut *mut Opaque,
    begin: impl FnOnce(Options) -> Result<Handle, Failed>,
) -> Result<(), Failed> {
    // SAFETY: the caller's contract.
    let out = unsafe { OutPointer::required(out, "the place of the handle") }?;
    out.write(std::ptr::null_mut());
    let options = with_options(handle, |options| Ok(options.clone()))?;
    let handle = begin(options)?;
    out.write(insert(Object::Handle(Box::new(OpenHandle::new(handle)))));
    Ok(())
}

/// Starts a node in this process; see `quorate.h`.
///
/// # Safety
/// `out` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_start(handle: *const Opaque, out: *mut *mut Opaque) -> c_int {
    // SAFETY: the caller's contract.
    run_call(|| unsafe { open_handle(handle, out, Handle::start) })
}

/// Attaches to a remote node; see `quorate.h`.
///
/// # Safety
/// `out` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_attach(handle: *const Opaque, out: *mut *mut Opaque) -> c_int {
    // SAFETY: the caller's contract.
    run_call(|| unsafe { open_handle(handle, out, Handle::attach) })
}

/// Waits until the node runs or is reached; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_ready(handle: *mut Opaque, timeout_ms: c_int) -> c_int {
    run_call(|| open(handle, |open| open.handle.wait_until_ready(wait_duration(timeout_ms))))
}

/// Closes a node or client and its handle; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_close(handle: *mut Opaque) -> c_int {
    run_call(|| {
        let taken = remove(handle, require_closable)?;
        let Object::Handle(open) = &*taken else {
            return Ok(());
        };
        let ended = open.handle.close();
        open.handle.drain_completions(|(done, outcome)| done(outcome));
        ended
    })
}

/// Submits a value without waiting; see `quorate.h`.
///
/// # Safety
/// `value` must be null or valid for reads of `length` bytes. `function` must be null or have the
/// signature declared in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_submit(
    handle: *mut Opaque,
    value: *const c_void,
    length: usize,
    function: DoneFunction,
    argument: *mut c_void,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let value = unsafe { bytes(value, length) }?;
        open(handle, |open| open.handle.submit(value, done_callback(function, argument)))
    })
}

/// Submits a value and waits for its slot; see `quorate.h`.
///
/// # Safety
/// `value` must be null or valid for reads of `length` bytes. `slot` must be null or valid for
/// writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_submit_wait(
    handle: *mut Opaque,
    value: *const c_void,
    length: usize,
    timeout_ms: c_int,
    slot: *mut u64,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let (value, slot) = unsafe { (bytes(value, length)?, OutPointer::optional(slot)) };
        let outcome =
            |open: &OpenHandle| open.handle.submit_and_wait(value, wait_duration(timeout_ms));
        slot.write(open(handle, outcome)?);
        Ok(())
    })
}

/// Writes the next slot that the cluster will assign to `next`; see `quorate.h`.
///
/// # Safety
/// `next` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_sync(
    handle: *mut Opaque,
    timeout_ms: c_int,
    next: *mut u64,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let next = unsafe { OutPointer::required(next, "the place of the slot") }?;
        next.write(open(handle, |open| open.handle.sync(wait_duration(timeout_ms)))?);
        Ok(())
    })
}

/// Starts delivery at a slot; see `quorate.h`.
///
/// # Safety
/// `function` must be null or have the signature declared in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_deliver_from(
    handle: *mut Opaque,
    slot: u64,
    function: Option<DeliverFunction>,
    argument: *mut c_void,
) -> c_int {
    run_call(|| {
        let argument = CallbackArgument(argument);
        let deliver = function.map(|function| DeliverCallback { function, argument });
        open(handle, |open| {
            open.handle.deliver_from(cursor_at(slot))?;
            open.set_callback(deliver);
            Ok(())
        })
    })
}

fn cursor_at(slot: u64) -> Cursor {
    match slot {
        0 => Cursor::Oldest,
        u64::MAX => Cursor::End,
        slot => Cursor::At(slot),
    }
}

/// Continues delivery at another slot; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_recover(handle: *mut Opaque, slot: u64) -> c_int {
    run_call(|| open(handle, |open| open.handle.deliver_from(cursor_at(slot))))
}

/// Turns delivery off; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_deliver_nothing(handle: *mut Opaque) -> c_int {
    run_call(|| {
        open(handle, |open| {
            open.handle.stop_delivery();
            Ok(())
        })
    })
}

/// Writes a descriptor that becomes readable when there is work to `fd`; see `quorate.h`.
///
/// # Safety
/// `fd` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_fd(handle: *mut Opaque, fd: *mut c_int) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let fd = unsafe { OutPointer::required(fd, "the place of the descriptor") }?;
        fd.write(open(handle, |open| Ok(open.handle.descriptor()))?);
        Ok(())
    })
}

/// Waits for events and calls their callbacks; see `quorate.h`.
///
/// # Safety
/// `events` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_dispatch(
    handle: *mut Opaque,
    timeout_ms: c_int,
    events_max: c_int,
    events: *mut c_int,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let events = unsafe { OutPointer::optional(events) };
        events.write(0);
        let most = match usize::try_from(events_max) {
            Ok(most) if most > 0 => most,
            _ => usize::MAX,
        };
        let mut passed = 0_usize;
        let ended =
            open(handle, |open| dispatch_events(open, deadline_in(timeout_ms), most, &mut passed));
        events.write(c_int::try_from(passed).unwrap_or(c_int::MAX));
        ended
    })
}

fn dispatch_events(
    open: &OpenHandle,
    until: Option<Instant>,
    most: usize,
    passed: &mut usize,
) -> Result<(), Failed> {
    let turn = open.handle.begin_turn()?;
    // Without a limit, the call would not return while values continue to arrive.
    let most = most.min(4096);
    let (mut deliver, mut version) = (open.callback(), 0);
    loop {
        turn.clear_readable();
        while *passed < most {
            deliver = open.callback_since(&mut version).unwrap_or(deliver);
            match turn.next_event(deliver.is_some()) {
                Event::Nothing if *passed > 0 => return Ok(()),
                Event::Nothing => break,
                Event::Completed(done, outcome) => done(outcome),
                Event::DeliveryFailed(failed) => {
                    turn.leave_readable();
                    return Err(failed);
                }
                Event::Value { slot, value, delivery_epoch: epoch } => {
                    let Some(DeliverCallback { function, argument }) = deliver else {
                        break;
                    };
                    let (bytes, length) = (value.as_ptr().cast(), value.len());
                    // SAFETY: the program passed a function with this signature, together with this
                    // argument. The value lives until the function returns.
                    let kept = unsafe { function(argument.0, slot, bytes, length) };
                    if kept != 0 {
                        turn.leave_readable();
                        return Ok(());
                    }
                    turn.mark_delivered(slot, epoch);
                }
            }
            *passed += 1;
        }
        if *passed > 0 {
            turn.leave_readable();
            return Ok(());
        }
        if !turn.wait_for_event(until)? {
            return Err(Failed::new(Code::Timeout, "nothing happened"));
        }
    }
}

/// Takes the next value without a callback; see `quorate.h`.
///
/// # Safety
/// `slot` and `length` must each be null or valid for writes, and `buffer` must be null or valid
/// for writes of `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_next(
    handle: *mut Opaque,
    timeout_ms: c_int,
    slot: *mut u64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let (slot, length) = unsafe {
            (
                OutPointer::required(slot, "the place of the slot")?,
                OutPointer::required(length, "the place of the length")?,
            )
        };
        length.write(0);
        open(handle, |open| {
            if open.callback().is_some() {
                let detail = "values go to the callback of quorate_deliver_from";
                return Err(Failed::new(Code::InUse, detail));
            }
            if !open.handle.is_delivering() {
                let detail = "nothing is delivered";
                return Err(Failed::new(Code::Invalid, detail)
                    .with_hint("say from where with quorate_deliver_from"));
            }
            let (turn, until) = (open.handle.begin_turn()?, deadline_in(timeout_ms));
            loop {
                turn.clear_readable();
                match turn.next_value() {
                    Event::Value { slot: at, value, delivery_epoch: epoch } => {
                        // More values may follow, and completions may be pending.
                        turn.leave_readable();
                        slot.write(at);
                        // SAFETY: the caller's contract.
                        unsafe { copy_out(&value, buffer, capacity, &length) }?;
                        turn.mark_delivered(at, epoch);
                        return Ok(());
                    }
                    Event::DeliveryFailed(failed) => {
                        turn.leave_readable();
                        return Err(failed);
                    }
                    Event::Completed(..) | Event::Nothing => {}
                }
                if !turn.wait_for_event(until)? {
                    // The ring that was cleared may have announced a completion.
                    turn.leave_readable_for_completions();
                    return Err(Failed::new(Code::Timeout, "no value came"));
                }
            }
        })
    })
}

/// Copies the retained value in a slot; see `quorate.h`.
///
/// # Safety
/// `length` must be null or valid for writes, and `buffer` must be null or valid for writes of
/// `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_read(
    handle: *mut Opaque,
    slot: u64,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let length = unsafe { OutPointer::required(length, "the place of the length") }?;
        length.write(0);
        let value = open(handle, |open| open.handle.read_slot(slot))?;
        // SAFETY: the caller's contract.
        unsafe { copy_out(&value, buffer, capacity, &length) }
    })
}

/// Trims slots and waits for the outcome; see `quorate.h`.
///
/// # Safety
/// `first` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_trim_wait(
    handle: *mut Opaque,
    below: u64,
    timeout_ms: c_int,
    first: *mut u64,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let first = unsafe { OutPointer::optional(first) };
        first.write(open(handle, |open| {
            open.handle.trim_and_wait(below, wait_duration(timeout_ms))
        })?);
        Ok(())
    })
}

/// Trims slots without waiting; see `quorate.h`.
///
/// # Safety
/// `function` must be null or have the signature declared in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_trim(
    handle: *mut Opaque,
    below: u64,
    function: DoneFunction,
    argument: *mut c_void,
) -> c_int {
    run_call(|| open(handle, |open| open.handle.trim(below, done_callback(function, argument))))
}

/// Writes the status of the node as JSON; see `quorate.h`.
///
/// # Safety
/// `buffer` must be null or valid for writes of `capacity` bytes. `length` must be null or valid
/// for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_status(
    handle: *mut Opaque,
    timeout_ms: c_int,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let length = unsafe { OutPointer::optional(length) };
        length.write(0);
        let mut text =
            open(handle, |open| open.handle.status(wait_duration(timeout_ms)))?.into_bytes();
        text.push(0);
        // SAFETY: the caller's contract.
        unsafe { copy_out(&text, buffer.cast(), capacity, &length) }?;
        // The length does not include the terminating zero.
        length.write(text.len() - 1);
        Ok(())
    })
}

/// Returns the maximum size of a value; see `quorate.h`.
///
/// # Safety
/// `bytes` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_value_max(handle: *mut Opaque, bytes: *mut usize) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let bytes = unsafe { OutPointer::required(bytes, "the place of the size") }?;
        bytes.write(open(handle, |open| Ok(open.handle.value_bytes_max()))?);
        Ok(())
    })
}
