//! Counts of voluntary and involuntary context switches of processes.

use std::{fs, path::Path};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Switches {
    /// Number of voluntary switches, in which the thread waited.
    pub(crate) wanted: f64,
    /// Number of involuntary switches, in which another thread needed the processor.
    pub(crate) forced: f64,
}

impl Switches {
    /// Counts the context switches of all threads of `processes`.
    pub(crate) fn of(processes: &[u32]) -> Self {
        let mut sum = Self::default();
        for process in processes {
            let tasks = Path::new("/proc").join(process.to_string()).join("task");
            for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
                // A thread may end while its status is being read.
                let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
                for line in status.lines() {
                    let number = |name| line.strip_prefix(name)?.trim().parse::<f64>().ok();
                    sum.wanted += number("voluntary_ctxt_switches:").unwrap_or(0.0);
                    sum.forced += number("nonvoluntary_ctxt_switches:").unwrap_or(0.0);
                }
            }
        }
        sum
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { wanted: self.wanted - before.wanted, forced: self.forced - before.forced }
    }
}
