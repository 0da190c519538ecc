//! Waits until a condition holds, instead of for a fixed time.

use std::{
    io, thread,
    time::{Duration, Instant},
};

/// Interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls until the condition is met. After `patience`, returns an error of kind
/// [`io::ErrorKind::TimedOut`] that names the condition.
pub fn wait_at_most<T>(
    patience: Duration,
    what: &str,
    mut condition: impl FnMut() -> Option<T>,
) -> io::Result<T> {
    let until = Instant::now() + patience;
    loop {
        if let Some(met) = condition() {
            return Ok(met);
        }
        if Instant::now() >= until {
            let what = format!("waited {} s for {what}", patience.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_error_names_the_awaited_event() {
        let mut looks = 0;
        let met = wait_at_most(Duration::from_secs(60), "three", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(met.unwrap(), 3);
        let error = wait_at_most::<()>(Duration::ZERO, "nothing", || None).unwrap_err();
        assert_eq!(error.to_string(), "waited 0 s for nothing");
    }
}
