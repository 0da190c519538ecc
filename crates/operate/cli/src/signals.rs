//! Signal handling. SIGINT and SIGTERM end the process; a node ignores SIGHUP and SIGXFSZ.

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

/// Set while a signal is ending the process.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Calls `first` on the first signal. A second signal ends the process at once.
pub fn call_on_first(first: impl FnOnce() + Send + 'static) -> Result<(), Problem> {
    on_first_then_end(first, || ())
}

/// Calls `first` on the first signal. On a second signal, calls `clean_up` and ends the process.
pub fn on_first_then_end(
    first: impl FnOnce() + Send + 'static,
    clean_up: impl FnOnce() + Send + 'static,
) -> Result<(), Problem> {
    let mut signals = watch_signals()?;
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
        .map_err(|error| signal_problem(&error))?;
    Ok(())
}

/// On the first signal, calls `clean_up` and ends the process with the exit code for an interrupt.
/// Errors in other threads meanwhile are consequences of the cleanup and not reported.
pub fn end_at_first_signal(clean_up: impl FnOnce() + Send + 'static) -> Result<(), Problem> {
    call_on_first(|| {
        IS_ENDING.store(true, Ordering::SeqCst);
        quorate_admin::progress::clear();
        clean_up();
        process::exit(Exit::Interrupted as i32);
    })
}

/// Handling of SIGINT in a process that must survive it during certain work.
#[derive(Debug)]
pub(crate) struct Interrupt {
    ends_process: Arc<AtomicBool>,
    has_arrived: Arc<AtomicBool>,
}

impl Interrupt {
    /// Registers the signal, which ends the process as before, except during
    /// [`Self::defer_during`].
    pub(crate) fn listen() -> Result<Self, Problem> {
        let ends_process = Arc::new(AtomicBool::new(true));
        let has_arrived = Arc::new(AtomicBool::new(false));
        flag::register_conditional_default(SIGINT, Arc::clone(&ends_process))
            .and_then(|_| flag::register(SIGINT, Arc::clone(&has_arrived)))
            .map_err(|error| signal_problem(&error))?;
        Ok(Self { ends_process, has_arrived })
    }

    /// Calls `work` with a function that returns whether no signal has arrived yet. The work must
    /// end once one has.
    pub(crate) fn defer_during<T>(&self, work: impl FnOnce(&dyn Fn() -> bool) -> T) -> T {
        self.has_arrived.store(false, Ordering::SeqCst);
        self.ends_process.store(false, Ordering::SeqCst);
        let done = work(&|| !self.has_arrived.load(Ordering::SeqCst));
        self.ends_process.store(true, Ordering::SeqCst);
        done
    }
}

/// Makes a signal end the process immediately, for commands that leave no unfinished work.
pub fn exit_when_interrupted() -> Result<(), Problem> {
    end_at_first_signal(|| ())
}

/// Returns immediately, unless a signal is ending the process. In that case, blocks until the
/// process has ended.
pub fn yield_to_interrupt() {
    while IS_ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Ignores two signals that must not end a node. SIGHUP arrives when its terminal closes or a log
/// is rotated. SIGXFSZ arrives when a file reaches its size limit, and the write then fails as on a
/// full disk.
pub(crate) fn ignore_signals() -> Result<(), Problem> {
    for signal in [SIGHUP, SIGXFSZ] {
        flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|error| signal_problem(&error))?;
    }
    Ok(())
}

fn watch_signals() -> Result<Signals, Problem> {
    Signals::new([SIGINT, SIGTERM]).map_err(|error| signal_problem(&error))
}

fn signal_problem(error: &io::Error) -> Problem {
    Problem::io_error("listen for signals", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_ends_work_and_not_the_process() {
        let interrupt = Interrupt::listen().unwrap();
        for _ in 0..2 {
            interrupt.defer_during(|goes_on| {
                assert!(goes_on());
                signal_hook::low_level::raise(SIGINT).unwrap();
                assert!(!goes_on());
            });
        }
        assert!(interrupt.ends_process.load(Ordering::SeqCst));
    }
}
