//! Queues remain below their limits regardless of the behaviour of other nodes and clients (G13).

use super::{Verdict, Violation};

/// Checks the size of a buffer against its limit.
pub fn check_bound(what: &str, node: usize, bytes: usize, bytes_max: usize) -> Verdict {
    if bytes <= bytes_max {
        return Ok(());
    }
    let detail = format!("node {}: {what} holds {bytes} bytes of at most {bytes_max}", node + 1);
    Err(Violation::new("bounds", detail))
}
