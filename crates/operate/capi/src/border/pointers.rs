//! Pointers from C. Null pointers and lengths are checked before anything is read or written.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::{Duration, Instant};

use crate::error::{Code, Failed};

fn null_error(name: &str) -> Failed {
    Failed::new(Code::Invalid, format!("{name} is null"))
}

/// Reads a zero-terminated string.
///
/// # Safety
/// `text` must be null or point to such a string, which must not change while the result is used.
pub(super) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failed> {
    if text.is_null() {
        return Err(null_error(name));
    }
    // SAFETY: not null. The caller vouches for the rest.
    let text = unsafe { CStr::from_ptr(text) };
    let wrong = |_| Failed::new(Code::Invalid, format!("{name} is not UTF-8"));
    text.to_str().map_err(wrong)
}

/// Reads bytes from C. With length 0 the pointer may be null.
///
/// # Safety
/// `bytes` must be null or valid for reads of `length` bytes, which must not change while the
/// result is used.
pub(super) unsafe fn bytes<'a>(bytes: *const c_void, length: usize) -> Result<&'a [u8], Failed> {
    if length == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() {
        return Err(null_error("the value"));
    }
    if isize::try_from(length).is_err() {
        let detail = format!("a length of {length} cannot be: a negative number?");
        return Err(Failed::new(Code::Size, detail));
    }
    // SAFETY: not null, and no larger than an object can be. The caller vouches for the rest.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), length) })
}

/// Pointer through which a result is returned to C.
pub(super) struct OutPointer<T>(*mut T);

impl<T> OutPointer<T> {
    /// Wraps a pointer that must not be null.
    ///
    /// # Safety
    /// `place` must be null or remain valid for writes as long as the returned value exists.
    pub(super) unsafe fn required(place: *mut T, name: &str) -> Result<Self, Failed> {
        match place.is_null() {
            true => Err(null_error(name)),
            false => Ok(Self(place)),
        }
    }

    /// Wraps a pointer. If it is null, the result is discarded.
    ///
    /// # Safety
    /// The same contract as for [`OutPointer::required`] must hold.
    pub(super) unsafe fn optional(place: *mut T) -> Self {
        Self(place)
    }

    pub(super) fn write(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and valid for writes by the contract of the constructor. The old
            // contents are plain data of C, which need no drop.
            unsafe { self.0.write(value) }
        }
    }
}

/// Copies bytes into a buffer provided by C, and writes the number of bytes in `from` to `length`.
///
/// # Safety
/// `buffer` must be null or valid for writes of `capacity` bytes.
pub(super) unsafe fn copy_out(
    from: &[u8],
    buffer: *mut c_void,
    capacity: usize,
    length: &OutPointer<usize>,
) -> Result<(), Failed> {
    length.write(from.len());
    if from.len() > capacity {
        let detail = format!("{} bytes do not fit the buffer of {capacity}", from.len());
        return Err(Failed::new(Code::Size, detail).with_hint("call again with a larger buffer"));
    }
    if from.is_empty() {
        return Ok(());
    }
    if buffer.is_null() {
        return Err(null_error("the buffer"));
    }
    // SAFETY: not null, and no more bytes are written than the caller vouched for. `from` is memory
    // of this library, so it cannot overlap a buffer of C.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), buffer.cast(), from.len()) };
    Ok(())
}

/// Returns the time at which a wait ends; `None` for a negative timeout, which waits without a
/// limit.
pub(super) fn deadline_in(timeout_ms: c_int) -> Option<Instant> {
    let ms = u64::try_from(timeout_ms).ok()?;
    Some(Instant::now() + Duration::from_millis(ms))
}

/// Returns how long to wait in a call that needs a limit. A negative timeout means a day.
pub(super) fn wait_duration(timeout_ms: c_int) -> Duration {
    u64::try_from(timeout_ms).map_or(Duration::from_secs(86_400), Duration::from_millis)
}
