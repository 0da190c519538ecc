//! Nodes short of processor time and disk bandwidth. The shortage must cause neither an election
//! nor a loss.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::{nodes::NodeCluster, trial::load::ClientLoad};

use super::{
    check::{Checker, Verdict},
    round::{check_nothing_lost, read_all_keys},
};
use crate::{
    nodes::{self, wait_for},
    shell::Failed,
};

/// Durations of the test, and the number of attempts.
#[derive(Clone, Copy)]
pub(super) struct TestSize {
    /// Time for nodes to learn how delayed they are on this machine.
    learn_duration: Duration,
    /// Time after `learn_duration` during which the leader may not change.
    watch_duration: Duration,
    /// Number of attempts. The test starts over after a leader change, because another user of the
    /// machine may have delayed all nodes for longer than they tolerate.
    attempts_max: u32,
}

pub(super) const FULL_SIZE: TestSize = TestSize {
    learn_duration: Duration::from_secs(15),
    watch_duration: Duration::from_secs(60),
    attempts_max: 1,
};
pub(super) const SHORT_SIZE: TestSize = TestSize {
    learn_duration: Duration::from_secs(10),
    watch_duration: Duration::from_secs(15),
    attempts_max: 3,
};

/// Number of computing threads per processor.
const THREADS_PER_CPU: usize = 2;
/// Size of each flushed write of a thread, in bytes.
const WRITE_BYTES: usize = 8 << 20;
const FILE_BYTES: usize = 256 << 20;
/// Maximum permitted interruption for a user when a leader is killed under this load.
const RECOVERY_MAX: Duration = Duration::from_secs(3);

/// Runs a cluster under processor and disk pressure.
pub(super) fn run(size: TestSize, checker: Option<&Checker>) -> Result<(), Failed> {
    for _ in 1..size.attempts_max {
        match run_once(size, checker)? {
            Ok(()) => return Ok(()),
            Err(failed) => println!("- {failed}: once more"),
        }
    }
    run_once(size, checker)?
}

/// Runs the test once. The inner error means that the leader changed without a failure, or that the
/// recovery took too long.
fn run_once(size: TestSize, checker: Option<&Checker>) -> Result<Result<(), Failed>, Failed> {
    let mut nodes = nodes::start_serving(3, &[])?;
    let load = ClientLoad::start(nodes.client_addresses(), 1)?;
    let shared = Arc::clone(&load.shared);
    let hogs = LoadThreads::start(nodes.data_folder(), nodes.ids().len())?;
    let acted = count_elections(&mut nodes, &load, size);
    hogs.stop_threads();
    let mut seen = load.finish()?;
    let (elections, recovery) = acted?;
    if let Some(what) = seen.first_violation.take() {
        return Err(Failed(format!("a client got {what}")));
    }
    nodes.wait_until_all_serve()?;
    seen.operations.extend(read_all_keys(&seen, &shared)?);
    check_nothing_lost(&seen, &shared)?;
    nodes.wait_until_equal()?;
    if let Some(checker) = checker {
        let (verdict, text) = checker.check_history(&seen.operations, nodes.data_folder())?;
        if verdict != Verdict::Linearizable {
            return Err(Failed(format!("pressure: {verdict:?}: {text}")));
        }
    }
    println!(
        "- next to {THREADS_PER_CPU} busy threads for each processor and 3 that fill the disk: {} operations, {elections} changes of \
         leader in {} s; the leader killed then: writes again after {} ms",
        seen.operations.len(),
        size.watch_duration.as_secs(),
        recovery.as_millis()
    );
    if elections > 0 || recovery > RECOVERY_MAX {
        return Ok(Err(Failed(format!(
            "pressure: {elections} changes of leader although no node died, and {} ms without a leader; wanted 0, at most {} ms",
            recovery.as_millis(),
            RECOVERY_MAX.as_millis()
        ))));
    }
    Ok(Ok(()))
}

/// Counts the unexpected leader changes, and measures the time without a leader after a kill.
fn count_elections(
    nodes: &mut NodeCluster,
    load: &ClientLoad,
    size: TestSize,
) -> Result<(u64, Duration), Failed> {
    thread::sleep(size.learn_duration);
    let before = nodes.ballot_round()?;
    thread::sleep(size.watch_duration);
    let elections = nodes.ballot_round()? - before;
    let leader = nodes.agreed_leader()?;
    let (begin, known) = (Instant::now(), load.known_outcomes());
    nodes.kill(&[leader])?;
    // Clients of the other nodes continue.
    wait_for("writes without the old leader", || {
        (load.known_outcomes() > known + 20).then_some(())
    })?;
    let recovery = begin.elapsed();
    nodes.restart(&[leader])?;
    Ok((elections, recovery))
}

/// Threads that use up the processors and the disk.
struct LoadThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl LoadThreads {
    fn start(folder: &Path, disks: usize) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..THREADS_PER_CPU * cpus {
            let stop = Arc::clone(&stop);
            threads.push(thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }));
        }
        for number in 0..disks {
            let file = File::create(folder.join(format!("hog-{number}")))?;
            let stop = Arc::clone(&stop);
            threads.push(thread::spawn(move || write_until_stopped(file, &stop)));
        }
        Ok(Self { stop, threads })
    }

    fn stop_threads(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Writes through the page cache and flushes, repeatedly.
fn write_until_stopped(mut file: File, stop: &AtomicBool) {
    let bite = vec![0xa5; WRITE_BYTES];
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        let went = file.write_all(&bite).and_then(|()| file.sync_data());
        at += WRITE_BYTES;
        if at >= FILE_BYTES || went.is_err() {
            at = 0;
            if file.rewind().is_err() {
                return;
            }
        }
    }
}
