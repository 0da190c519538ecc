//! Watches files and reloads them when they change.

use std::{fmt::Display, io, thread, time::Duration};

/// Interval at which files are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts a thread that calls `look` at each interval. Logs an error once, noting that the previous
/// `what` remain in use.
pub(crate) fn follow<E: Display>(
    name: &str,
    what: &'static str,
    mut look: impl FnMut() -> Result<(), E> + Send + 'static,
) -> io::Result<()> {
    let run = move || {
        let mut told = None;
        loop {
            thread::sleep(CHECK_INTERVAL);
            // Another program may still be writing the files.
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
