//! CPU pinning: the writer runs on a dedicated CPU. The other threads of the bench, and the
//! processes that it starts, share the rest.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::problem::Problem;

/// Assignment of CPUs to the writer and to the rest of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuPinning {
    /// CPU of the writer, the first that this process may use.
    pub(super) writer_cpu: CpuSet,
}

impl CpuPinning {
    /// Restricts this thread, and the threads and processes that it starts from now on, to the
    /// remaining CPUs.
    pub(super) fn new() -> Result<Self, Problem> {
        let failed = |error: rustix::io::Errno| Problem::io_error("choose CPUs", &error.into());
        let mut others = sched_getaffinity(None).map_err(failed)?;
        let first = (0..CpuSet::MAX_CPU).find(|cpu| others.is_set(*cpu));
        let Some(first) = first.filter(|_| others.count() > 1) else {
            return Err(Problem::usage_error("--pin needs at least two CPUs"));
        };
        others.unset(first);
        sched_setaffinity(None, &others).map_err(failed)?;
        let mut writer = CpuSet::new();
        writer.set(first);
        Ok(Self { writer_cpu: writer })
    }
}
