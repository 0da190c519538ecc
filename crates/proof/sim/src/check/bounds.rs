//! Queues stay below their limits, whatever other nodes and clients do (G13).

use super::{Verdict, Violation};

/// Checks a buffer's size against its limit.
///
/// # Errors
/// It exceeds the limit.
pub fn within(what: &str, node: usize, bytes: usize, bytes_max: usize) -> Verdict {
    if bytes <= bytes_max {
        return Ok(());
    }
    let detail = format!("node {}: {what} holds {bytes} bytes of at most {bytes_max}", node + 1);
    Err(Violation::new("bounds", detail))
}
