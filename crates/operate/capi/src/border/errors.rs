//! The last error of each thread, readable from C.

use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::error::{Code, Failed};

/// The C type `quorate_error` of `quorate.h`.
#[derive(Debug)]
#[repr(C)]
pub struct QuorateError {
    code: c_int,
    what: *const c_char,
    detail: *const c_char,
    hint: *const c_char,
}

/// Texts of an error, and the view of them for C.
struct StoredError {
    _texts: [CString; 3],
    view: QuorateError,
}

thread_local! {
    static LAST: RefCell<StoredError> = RefCell::new(StoredError::new(Code::Ok, "", "", ""));
}

fn text(text: &str) -> CString {
    let plain: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(plain).unwrap_or_default()
}

impl StoredError {
    fn new(code: Code, what: &str, detail: &str, hint: &str) -> Self {
        // The texts are on the heap, so moving them does not invalidate the pointers.
        let texts = [text(what), text(detail), text(hint)];
        let view = QuorateError {
            code: code as c_int,
            what: texts[0].as_ptr(),
            detail: texts[1].as_ptr(),
            hint: texts[2].as_ptr(),
        };
        Self { _texts: texts, view }
    }
}

/// Stores an error for the calling thread and returns its code.
pub(super) fn store_error(failed: &Failed) -> c_int {
    let kept = StoredError::new(failed.code, &failed.what, &failed.detail, &failed.hint);
    // In a thread that is ending, the storage no longer exists, but there is also no caller left.
    let _ = LAST.try_with(|last| *last.borrow_mut() = kept);
    failed.code as c_int
}

/// Returns the last error of the calling thread. It is valid until the thread's next call into the
/// library.
pub(super) fn last_error() -> *const QuorateError {
    LAST.try_with(|last| &raw const last.borrow().view).unwrap_or(std::ptr::null())
}

/// Runs a call into the library and returns its code, even after an error or a panic.
pub(super) fn run_call(call: impl FnOnce() -> Result<(), Failed>) -> c_int {
    // State that a panic could leave inconsistent is protected by locks, and the library handles
    // their poisoning.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => Code::Ok as c_int,
        Ok(Err(failed)) => store_error(&failed),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let detail = text.unwrap_or("a panic without words").to_owned();
            store_error(
                &Failed::new(Code::Panicked, detail).with_hint("report it, with these words"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn said(text: *const c_char) -> String {
        // SAFETY: this is a text of the last error, which no other call has replaced.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    #[test]
    fn panic_becomes_an_error_with_its_message() {
        let code = run_call(|| panic!("too {}", "late"));
        assert_eq!(code, Code::Panicked as c_int);
        // SAFETY: this thread makes no call of the library before the reads below.
        let error = unsafe { &*last_error() };
        assert_eq!((error.code, said(error.detail)), (code, "too late".to_owned()));
        assert!(!said(error.what).is_empty() && !said(error.hint).is_empty());
    }

    #[test]
    fn text_with_a_nul_byte_is_not_truncated() {
        let code = run_call(|| Err(Failed::new(Code::Refused, "a\0b")));
        assert_eq!(code, Code::Refused as c_int);
        // SAFETY: this thread makes no call of the library before the reads below.
        let error = unsafe { &*last_error() };
        assert_eq!(said(error.detail), "ab");
    }
}
