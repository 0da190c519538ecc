//! What SIGINT and SIGTERM do.

use std::{io, process, thread};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::output::{Exit, Problem};

/// Calls `first` at the first signal; at the second the process ends at once.
pub(crate) fn on_first(first: impl FnOnce() + Send + 'static) -> Result<(), Problem> {
    let mut signals = watch()?;
    let wait = move || {
        let mut arrivals = signals.forever();
        if arrivals.next().is_some() {
            first();
        }
        if arrivals.next().is_some() {
            process::exit(Exit::Interrupted as i32);
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .map_err(|error| failed(&error))?;
    Ok(())
}

/// For commands that have nothing to finish.
pub(crate) fn exit_when_interrupted() -> Result<(), Problem> {
    on_first(|| process::exit(Exit::Interrupted as i32))
}

fn watch() -> Result<Signals, Problem> {
    Signals::new([SIGINT, SIGTERM]).map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> Problem {
    Problem::io("listen for signals", error)
}
