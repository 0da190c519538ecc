//! Decisions by devices in the kernel, compared with devices in user space on the same bridge.

use super::{BenchOptions, build};
use crate::shell::{Failed, run as shell};

/// Runs the benchmark's own program, which sets up the network and needs root.
pub(super) fn run(wish: BenchOptions) -> Result<(), Failed> {
    let program = build("quorate-device", "devices")?;
    let words: &[&str] = if wish.quick { &["run", "--quick"] } else { &["run"] };
    shell(&program, words)
}
