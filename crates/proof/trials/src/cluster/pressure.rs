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

use quorate_testbed::{nodes::Nodes, trial::load::Load};

use super::{
    check::{Checker, Verdict},
    round::{final_reads, nothing_lost},
};
use crate::{
    nodes::{self, wait_for},
    shell::Failed,
};

/// Durations of the test, and the number of attempts.
#[derive(Clone, Copy)]
pub(super) struct Size {
    /// Time for nodes to learn how delayed they are on this machine.
    learn: Duration,
    /// Time after `learn` during which the leader may not change.
    time: Duration,
    /// Number of attempts. The test starts over after a leader change, because another user of the
    /// machine may have delayed all nodes for longer than they tolerate.
    tries: u32,
}

pub(super) const WHOLE: Size =
    Size { learn: Duration::from_secs(15), time: Duration::from_secs(60), tries: 1 };
pub(super) const SHORT: Size =
    Size { learn: Duration::from_secs(10), time: Duration::from_secs(15), tries: 3 };

/// Number of computing threads per processor.
const PER_CPU: usize = 2;
/// Size of each flushed write of a thread, in bytes.
const WRITE_BYTES: usize = 8 << 20;
const FILE: usize = 256 << 20;
/// Maximum permitted interruption for a user when a leader is killed under this load.
const RECOVERY_MAX: Duration = Duration::from_secs(3);

/// Runs a cluster under processor and disk pressure.
pub(super) fn run(size: Size, checker: Option<&Checker>) -> Result<(), Failed> {
    for _ in 1..size.tries {
        match run_once(size, checker)? {
            Ok(()) => return Ok(()),
            Err(failed) => println!("- {failed}: once more"),
        }
    }
    run_once(size, checker)?
}

/// Runs the test once. The inner error means that the leader changed without a failure, or that the
/// recovery took too long.
fn run_once(size: Size, checker: Option<&Checker>) -> Result<Result<(), Failed>, Failed> {
    let mut nodes = nodes::serving(3, &[])?;
    let load = Load::start(nodes.client_addresses(), 1)?;
    let shared = Arc::clone(&load.shared);
    let hogs = LoadThreads::start(nodes.folder(), nodes.ids().len())?;
    let acted = count_elections(&mut nodes, &load, size);
    hogs.end();
    let mut seen = load.finish()?;
    let (elections, recovery) = acted?;
    if let Some(what) = seen.strange.take() {
        return Err(Failed(format!("a client got {what}")));
    }
    nodes.wait_until_all_serve()?;
    seen.operations.extend(final_reads(&seen, &shared)?);
    nothing_lost(&seen, &shared)?;
    nodes.wait_until_equal()?;
    if let Some(checker) = checker {
        let (verdict, text) = checker.check_history(&seen.operations, nodes.folder())?;
        if verdict != Verdict::Linearizable {
            return Err(Failed(format!("pressure: {verdict:?}: {text}")));
        }
    }
    println!(
        "- next to {PER_CPU} busy threads for each processor and 3 that fill the disk: {} operations, {elections} changes of \
         leader in {} s; the leader killed then: writes again after {} ms",
        seen.operations.len(),
        size.time.as_secs(),
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
fn count_elections(nodes: &mut Nodes, load: &Load, size: Size) -> Result<(u64, Duration), Failed> {
    thread::sleep(size.learn);
    let before = nodes.round()?;
    thread::sleep(size.time);
    let elections = nodes.round()? - before;
    let leader = nodes.agreed_leader()?;
    let (begin, known) = (Instant::now(), load.known());
    nodes.kill(&[leader])?;
    // Clients of the other nodes continue.
    wait_for("writes without the old leader", || (load.known() > known + 20).then_some(()))?;
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
        for _ in 0..PER_CPU * cpus {
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

    fn end(self) {
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
        if at >= FILE || went.is_err() {
            at = 0;
            if file.rewind().is_err() {
                return;
            }
        }
    }
}
