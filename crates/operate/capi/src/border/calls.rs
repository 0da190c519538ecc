//! The functions of `quorate.h`, in the same order. The header documents their contracts.

use std::{
    ffi::{c_char, c_int, c_void},
    time::Instant,
};

use quorate::stderr::{self, Stderr};

use super::{
    deliver::{Argument, Deliver, DeliverFunction},
    errors::{QuorateError, guard, last, tell},
    handles::{Object, Opaque, Open, is_options, may_close, open, options, put, take},
    pointers::{Out, bytes, copy, text, until, wait},
};
use crate::{
    error::{Code, Failed},
    handle::{Event, Handle},
    options::Options,
    source::{Cursor, Done, Outcome},
};

/// The C type `quorate_done`.
pub type DoneFunction = Option<unsafe extern "C" fn(argument: *mut c_void, code: c_int, slot: u64)>;

fn done(function: DoneFunction, argument: *mut c_void) -> Done {
    let argument = Argument(argument);
    Box::new(move |outcome: Outcome| {
        // Captures the whole struct, which is `Send`, rather than the pointer in it.
        let argument: Argument = argument;
        let (code, slot) = match &outcome {
            Ok(slot) => (Code::Ok as c_int, *slot),
            Err(failed) => (tell(failed), 0),
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
    last()
}

/// Returns the name of a code; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_code_name(code: c_int) -> *const c_char {
    let name = match Code::of(code) {
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
    guard(|| {
        // SAFETY: the caller's contract.
        let filter = unsafe { text(filter, "the filter") }?;
        let filter: tracing_subscriber::EnvFilter = filter.parse().map_err(|error| {
            Failed::new(Code::Invalid, format!("the filter: {error}")).hint("such as info or warn")
        })?;
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Stderr);
        lines.try_init().map_err(|_| Failed::new(Code::InUse, "lines go somewhere already"))?;
        // A stalled reader of standard error must not block the node.
        stderr::detach()
            .map_err(|error| Failed::new(Code::Unavailable, format!("start a thread: {error}")))
    })
}

/// Creates a set of options with the default values; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_options_new() -> *mut Opaque {
    let mut handle = std::ptr::null_mut();
    guard(|| {
        handle = put(Object::Options(Box::default()));
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
    guard(|| {
        // SAFETY: the caller's contract.
        let (name, value) = unsafe { (text(name, "the name")?, text(value, "the value")?) };
        options(handle, |options| options.set(name, value))
    })
}

/// Frees a set of options; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_options_free(handle: *mut Opaque) {
    guard(|| {
        if !handle.is_null() {
            take(handle, is_options)?;
        }
        Ok(())
    });
}

/// Opens a handle and writes it to `out`.
///
/// # Safety
/// `out` must be null or valid for writes.
unsafe fn begin(
    handle: *const Opaque,
    out: *mut *mut Opaque,
    begin: impl FnOnce(Options) -> Result<Handle, Failed>,
) -> Result<(), Failed> {
    // SAFETY: the caller's contract.
    let out = unsafe { Out::required(out, "the place of the handle") }?;
    out.put(std::ptr::null_mut());
    let options = options(handle, |options| Ok(options.clone()))?;
    let handle = begin(options)?;
    out.put(put(Object::Handle(Box::new(Open::new(handle)))));
    Ok(())
}

/// Starts a node in this process; see `quorate.h`.
///
/// # Safety
/// `out` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_start(handle: *const Opaque, out: *mut *mut Opaque) -> c_int {
    // SAFETY: the caller's contract.
    guard(|| unsafe { begin(handle, out, Handle::start) })
}

/// Attaches to a remote node; see `quorate.h`.
///
/// # Safety
/// `out` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_attach(handle: *const Opaque, out: *mut *mut Opaque) -> c_int {
    // SAFETY: the caller's contract.
    guard(|| unsafe { begin(handle, out, Handle::attach) })
}

/// Waits until the node runs or is reached; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_ready(handle: *mut Opaque, timeout_ms: c_int) -> c_int {
    guard(|| open(handle, |open| open.handle.ready(wait(timeout_ms))))
}

/// Closes a node or client and its handle; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_close(handle: *mut Opaque) -> c_int {
    guard(|| {
        let taken = take(handle, may_close)?;
        let Object::Handle(open) = &*taken else {
            return Ok(());
        };
        let ended = open.handle.close();
        open.handle.last_completions(|(done, outcome)| done(outcome));
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
    guard(|| {
        // SAFETY: the caller's contract.
        let value = unsafe { bytes(value, length) }?;
        open(handle, |open| open.handle.submit(value, done(function, argument)))
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
    guard(|| {
        // SAFETY: the caller's contract.
        let (value, slot) = unsafe { (bytes(value, length)?, Out::optional(slot)) };
        let outcome = |open: &Open| open.handle.submit_and_wait(value, wait(timeout_ms));
        slot.put(open(handle, outcome)?);
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
    guard(|| {
        // SAFETY: the caller's contract.
        let next = unsafe { Out::required(next, "the place of the slot") }?;
        next.put(open(handle, |open| open.handle.sync(wait(timeout_ms)))?);
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
    guard(|| {
        let argument = Argument(argument);
        let deliver = function.map(|function| Deliver { function, argument });
        open(handle, |open| {
            open.handle.deliver_from(cursor(slot))?;
            open.deliver_to(deliver);
            Ok(())
        })
    })
}

fn cursor(slot: u64) -> Cursor {
    match slot {
        0 => Cursor::Oldest,
        u64::MAX => Cursor::End,
        slot => Cursor::At(slot),
    }
}

/// Continues delivery at another slot; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_recover(handle: *mut Opaque, slot: u64) -> c_int {
    guard(|| open(handle, |open| open.handle.deliver_from(cursor(slot))))
}

/// Turns delivery off; see `quorate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn quorate_deliver_nothing(handle: *mut Opaque) -> c_int {
    guard(|| {
        open(handle, |open| {
            open.handle.deliver_nothing();
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
    guard(|| {
        // SAFETY: the caller's contract.
        let fd = unsafe { Out::required(fd, "the place of the descriptor") }?;
        fd.put(open(handle, |open| Ok(open.handle.descriptor()))?);
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
    guard(|| {
        // SAFETY: the caller's contract.
        let events = unsafe { Out::optional(events) };
        events.put(0);
        let most = match usize::try_from(events_max) {
            Ok(most) if most > 0 => most,
            _ => usize::MAX,
        };
        let mut passed = 0_usize;
        let ended = open(handle, |open| dispatch(open, until(timeout_ms), most, &mut passed));
        events.put(c_int::try_from(passed).unwrap_or(c_int::MAX));
        ended
    })
}

fn dispatch(
    open: &Open,
    until: Option<Instant>,
    most: usize,
    passed: &mut usize,
) -> Result<(), Failed> {
    let turn = open.handle.turn()?;
    // Without a limit, the call would not return while values continue to arrive.
    let most = most.min(4096);
    let (mut deliver, mut version) = (open.deliver(), 0);
    loop {
        turn.hush();
        while *passed < most {
            deliver = open.deliver_since(&mut version).unwrap_or(deliver);
            match turn.next_event(deliver.is_some()) {
                Event::Nothing if *passed > 0 => return Ok(()),
                Event::Nothing => break,
                Event::Completed(done, outcome) => done(outcome),
                Event::Failed(failed) => {
                    turn.leave_readable();
                    return Err(failed);
                }
                Event::Value { slot, value, epoch } => {
                    let Some(Deliver { function, argument }) = deliver else {
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
                    turn.delivered(slot, epoch);
                }
            }
            *passed += 1;
        }
        if *passed > 0 {
            turn.leave_readable();
            return Ok(());
        }
        if !turn.wait(until)? {
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
    guard(|| {
        // SAFETY: the caller's contract.
        let (slot, length) = unsafe {
            (
                Out::required(slot, "the place of the slot")?,
                Out::required(length, "the place of the length")?,
            )
        };
        length.put(0);
        open(handle, |open| {
            if open.deliver().is_some() {
                let detail = "values go to the callback of quorate_deliver_from";
                return Err(Failed::new(Code::InUse, detail));
            }
            if !open.handle.delivers() {
                let detail = "nothing is delivered";
                return Err(Failed::new(Code::Invalid, detail)
                    .hint("say from where with quorate_deliver_from"));
            }
            let (turn, until) = (open.handle.turn()?, until(timeout_ms));
            loop {
                turn.hush();
                match turn.next_value() {
                    Event::Value { slot: at, value, epoch } => {
                        // More values may follow, and completions may be pending.
                        turn.leave_readable();
                        slot.put(at);
                        // SAFETY: the caller's contract.
                        unsafe { copy(&value, buffer, capacity, &length) }?;
                        turn.delivered(at, epoch);
                        return Ok(());
                    }
                    Event::Failed(failed) => {
                        turn.leave_readable();
                        return Err(failed);
                    }
                    Event::Completed(..) | Event::Nothing => {}
                }
                if !turn.wait(until)? {
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
    guard(|| {
        // SAFETY: the caller's contract.
        let length = unsafe { Out::required(length, "the place of the length") }?;
        length.put(0);
        let value = open(handle, |open| open.handle.peek(slot))?;
        // SAFETY: the caller's contract.
        unsafe { copy(&value, buffer, capacity, &length) }
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
    guard(|| {
        // SAFETY: the caller's contract.
        let first = unsafe { Out::optional(first) };
        first.put(open(handle, |open| open.handle.trim_and_wait(below, wait(timeout_ms)))?);
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
    guard(|| open(handle, |open| open.handle.trim(below, done(function, argument))))
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
    guard(|| {
        // SAFETY: the caller's contract.
        let length = unsafe { Out::optional(length) };
        length.put(0);
        let mut text = open(handle, |open| open.handle.status(wait(timeout_ms)))?.into_bytes();
        text.push(0);
        // SAFETY: the caller's contract.
        unsafe { copy(&text, buffer.cast(), capacity, &length) }?;
        // The length does not include the terminating zero.
        length.put(text.len() - 1);
        Ok(())
    })
}

/// Returns the maximum size of a value; see `quorate.h`.
///
/// # Safety
/// `bytes` must be null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_value_max(handle: *mut Opaque, bytes: *mut usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's contract.
        let bytes = unsafe { Out::required(bytes, "the place of the size") }?;
        bytes.put(open(handle, |open| Ok(open.handle.value_bytes_max()))?);
        Ok(())
    })
}
