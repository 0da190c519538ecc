//! Watches files and reloads them when they change, while the node runs.

use std::{fmt::Display, io, thread, time::Duration};

/// Interval of checks.
const EVERY: Duration = Duration::from_secs(1);

/// Starts a thread of this name that calls `look` at each interval. An error is logged once, with
/// the note that the previous `what` stay in use.
pub(crate) fn follow<E: Display>(
    name: &str,
    what: &'static str,
    mut look: impl FnMut() -> Result<(), E> + Send + 'static,
) -> io::Result<()> {
    let run = move || {
        let mut told = None;
        loop {
            thread::sleep(EVERY);
            // The files may be in the process of being written.
            let wrong = look().err().map(|error| error.to_string());
            if let Some(error) = wrong.as_ref().filter(|_| wrong != told) {
                tracing::error!("{error}; the previous {what} stay in force");
            }
            told = wrong;
        }
    };
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map(drop)
}
