//! Divides the CPUs between the load generator, which gets one, and the nodes.
//!
//! Otherwise a busy generator would take CPU time from the nodes that it measures. A process
//! inherits the CPU affinity of the thread that starts it, so other threads are not affected.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Division of the CPUs that this process may use.
#[derive(Clone, Copy, Debug)]
pub struct Cpus {
    all: CpuSet,
    generator: CpuSet,
    nodes: CpuSet,
}

impl Cpus {
    /// Divides the CPUs of this machine. On a machine with a single CPU, everything shares it.
    pub fn divided() -> io::Result<Self> {
        let all = sched_getaffinity(None).map_err(refused)?;
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
        Ok(Self { all, generator, nodes })
    }

    /// Runs a function that starts a process, so that the process uses the CPUs of the nodes.
    pub fn of_nodes<T, E: From<io::Error>>(
        &self,
        start: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.on(&self.nodes, start)
    }

    /// Runs a function that starts a process, so that the process uses the CPU of the generator.
    pub fn of_generator<T, E: From<io::Error>>(
        &self,
        start: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.on(&self.generator, start)
    }

    fn on<T, E: From<io::Error>>(
        &self,
        cpus: &CpuSet,
        start: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        sched_setaffinity(None, cpus).map_err(refused)?;
        let started = start();
        sched_setaffinity(None, &self.all).map_err(refused)?;
        started
    }

    pub fn shown(&self) -> String {
        if self.all.count() < 2 {
            return "one CPU for nodes and generator".to_owned();
        }
        format!("the generator has a CPU for itself, the nodes share {}", self.nodes.count())
    }
}

fn refused(error: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("divide the CPUs: {error}"))
}
