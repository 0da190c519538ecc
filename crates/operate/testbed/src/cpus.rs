//! Divides the CPUs between the load generator, which gets one, and the nodes.
//!
//! Otherwise a busy generator would take CPU time from the nodes that it measures. A process
//! inherits the CPU affinity of the thread that starts it, so other threads are not affected.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Division of the CPUs that this process may use.
#[derive(Clone, Copy, Debug)]
pub struct CpuDivision {
    all_cpus: CpuSet,
    generator_cpus: CpuSet,
    node_cpus: CpuSet,
}

impl CpuDivision {
    /// Divides the CPUs of this machine. On a machine with a single CPU, everything shares it.
    pub fn divide() -> io::Result<Self> {
        let all = sched_getaffinity(None).map_err(affinity_error)?;
        let (mut generator, mut nodes) = (CpuSet::new(), CpuSet::new());
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)) {
            if generator.count() == 0 {
                generator.set(cpu);
            } else {
                nodes.set(cpu);
            }
        }
        if nodes.count() == 0 {
            nodes = all;
        }
        Ok(Self { all_cpus: all, generator_cpus: generator, node_cpus: nodes })
    }

    /// Runs a function that starts a process, so that the process uses the CPUs of the nodes.
    pub fn with_node_cpus<T, E: From<io::Error>>(
        &self,
        start: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.with_affinity(&self.node_cpus, start)
    }

    /// Runs a function that starts a process, so that the process uses the CPU of the generator.
    pub fn with_generator_cpu<T, E: From<io::Error>>(
        &self,
        start: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.with_affinity(&self.generator_cpus, start)
    }

    fn with_affinity<T, E: From<io::Error>>(
        &self,
        cpus: &CpuSet,
        start: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        sched_setaffinity(None, cpus).map_err(affinity_error)?;
        let started = start();
        sched_setaffinity(None, &self.all_cpus).map_err(affinity_error)?;
        started
    }

    pub fn format_division(&self) -> String {
        if self.all_cpus.count() < 2 {
            return "one CPU for nodes and generator".to_owned();
        }
        format!("the generator has a CPU for itself, the nodes share {}", self.node_cpus.count())
    }
}

fn affinity_error(error: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("divide the CPUs: {error}"))
}
