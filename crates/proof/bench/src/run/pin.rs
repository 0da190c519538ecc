//! Pinning: the writer on its own CPU, and everything else on the others.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::problem::Problem;

/// Assignment of CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pin {
    /// First of the CPUs that this process may use.
    pub(super) writer: CpuSet,
}

impl Pin {
    /// Moves the threads and processes that this thread starts from now on to the other CPUs.
    pub(super) fn new() -> Result<Self, Problem> {
        let failed = |error: rustix::io::Errno| Problem::io("choose CPUs", &error.into());
        let mut others = sched_getaffinity(None).map_err(failed)?;
        let first = (0..CpuSet::MAX_CPU).find(|cpu| others.is_set(*cpu));
        let Some(first) = first.filter(|_| others.count() > 1) else {
            return Err(Problem::usage("--pin needs at least two CPUs"));
        };
        others.unset(first);
        sched_setaffinity(None, &others).map_err(failed)?;
        let mut writer = CpuSet::new();
        writer.set(first);
        Ok(Self { writer })
    }
}
