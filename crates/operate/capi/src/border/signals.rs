//! Signal masking: signals belong to the program, so the library's threads block all of them.

/// Blocks all signals in the calling thread and the threads that it starts. A write to a closed
/// connection then returns an error instead of terminating the program with SIGPIPE.
pub(crate) fn block_signals() {
    // SAFETY: the zeroed set is filled before it is used, and both pointers live through the calls.
    // Only the mask of the calling thread changes, which is one of the library's.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
