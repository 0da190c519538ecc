//! Signal handling. SIGINT and SIGTERM end the process. A node survives SIGHUP and SIGXFSZ.

use std::{
    io, process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    flag,
    iterator::Signals,
};

use crate::output::{Exit, Problem};

/// The process is ending because of a signal.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Calls `first` on the first signal. A second signal ends the process at once.
pub fn on_first(first: impl FnOnce() + Send + 'static) -> Result<(), Problem> {
    on_first_then_end(first, || ())
}

/// Calls `first` on the first signal. On a second signal, calls `clean_up` and ends the process.
pub fn on_first_then_end(
    first: impl FnOnce() + Send + 'static,
    clean_up: impl FnOnce() + Send + 'static,
) -> Result<(), Problem> {
    let mut signals = watch()?;
    let wait = move || {
        let mut arrivals = signals.forever();
        if arrivals.next().is_some() {
            first();
        }
        if arrivals.next().is_some() {
            clean_up();
            process::exit(Exit::Interrupted as i32);
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .map_err(|error| failed(&error))?;
    Ok(())
}

/// On the first signal, calls `clean_up` and ends the process with the exit code for an interrupt.
/// Errors in other threads during the cleanup are its consequences and are not reported.
pub fn end_at_first(clean_up: impl FnOnce() + Send + 'static) -> Result<(), Problem> {
    on_first(|| {
        ENDING.store(true, Ordering::SeqCst);
        quorate_admin::progress::clear();
        clean_up();
        process::exit(Exit::Interrupted as i32);
    })
}

/// Makes a signal end the process at once, for commands that leave no unfinished work.
pub fn exit_when_interrupted() -> Result<(), Problem> {
    end_at_first(|| ())
}

/// Returns at once, unless a signal is ending the process. In that case blocks until the process
/// has ended.
pub fn yield_to_interrupt() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Ignores two signals that must not end a node. SIGHUP arrives when its terminal closes or a log
/// is rotated. SIGXFSZ arrives when a file reaches its size limit, and the write then fails as on a
/// full disk.
pub(crate) fn survive() -> Result<(), Problem> {
    for signal in [SIGHUP, SIGXFSZ] {
        flag::register(signal, Arc::new(AtomicBool::new(false))).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn watch() -> Result<Signals, Problem> {
    Signals::new([SIGINT, SIGTERM]).map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> Problem {
    Problem::io("listen for signals", error)
}
