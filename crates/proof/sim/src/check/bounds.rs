//! Queues stay below their limits, whatever the others do (G13).

use super::{Verdict, Violation};

/// Checks a holder of bytes against its limit.
///
/// # Errors
/// It holds more.
pub fn within(what: &str, node: usize, bytes: usize, bytes_max: usize) -> Verdict {
    if bytes <= bytes_max {
        return Ok(());
    }
    let detail = format!("node {}: {what} holds {bytes} bytes of at most {bytes_max}", node + 1);
    Err(Violation::new("bounds", detail))
}
