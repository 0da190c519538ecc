//! Signals are the program's: no thread of the library takes any.

/// Keeps signals from the calling thread, and from those that it starts. A connection that is gone
/// is an error of a call, and not a signal that ends a program that never thought of it.
pub(crate) fn block_signals() {
    // SAFETY: a zeroed set is made a full one before it is used; both pointers live through the
    // calls; only the mask of the calling thread, which is one of the library's, changes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
