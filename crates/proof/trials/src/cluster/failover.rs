//! Interruption of writes when the leader is killed or paused.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::{nodes::NodeCluster, resp::RespConnection, trial::client::is_ok};

use crate::{
    nodes::{self, wait_for},
    shell::Failed,
};

/// Maximum permitted median time from a kill to the next acknowledged write, in milliseconds.
const MEDIAN_MS_MAX: u128 = 500;
const WORST_MS_MAX: u128 = 1500;
/// Number of measurements. Their median is evaluated.
const MEASUREMENT_COUNT: usize = 7;
/// Writers per node, so that the leader fails under load.
const WRITERS_PER_NODE: usize = 2;
const WRITES_BEFORE_FAULT: usize = 200;

/// Failure of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaderFault {
    /// Kills the process. Peers see closed connections at once.
    Kill,
    /// Pauses the process. Peers see only silence, as after a power failure.
    Pause,
}

/// Fails the leader repeatedly, with default timeouts. Only interruptions by a kill have an upper
/// limit.
pub(crate) fn run() -> Result<(), Failed> {
    let mut nodes = nodes::start_serving(3, &[])?;
    let (median, worst) = measure_series(&mut nodes, LeaderFault::Kill)?;
    measure_series(&mut nodes, LeaderFault::Pause)?;
    if median > MEDIAN_MS_MAX || worst > WORST_MS_MAX {
        return Err(Failed(format!(
            "failover: median {median} ms, worst {worst} ms; promised: {MEDIAN_MS_MAX} ms, {WORST_MS_MAX} ms"
        )));
    }
    Ok(())
}

/// Returns the median and the maximum, in milliseconds.
fn measure_series(nodes: &mut NodeCluster, blow: LeaderFault) -> Result<(u128, u128), Failed> {
    let mut times = Vec::new();
    for _ in 0..MEASUREMENT_COUNT {
        times.push(measure_failover(nodes, blow)?.as_millis());
    }
    let list: Vec<String> = times.iter().map(u128::to_string).collect();
    times.sort_unstable();
    let (median, worst) = (times[MEASUREMENT_COUNT / 2], times[MEASUREMENT_COUNT - 1]);
    println!(
        "- leader: {blow:?}; until the next acknowledged write, ms: {}; median {median}, worst {worst}",
        list.join(" ")
    );
    Ok((median, worst))
}

/// Times at which a write was sent and acknowledged.
type WriteTimes = (Instant, Instant);

fn measure_failover(nodes: &mut NodeCluster, blow: LeaderFault) -> Result<Duration, Failed> {
    let writes: Arc<Mutex<Vec<WriteTimes>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for address in nodes.client_addresses() {
        for number in 0..WRITERS_PER_NODE {
            let (writes, stop, address) = (Arc::clone(&writes), Arc::clone(&stop), address.clone());
            writers.push(thread::spawn(move || write_repeatedly(&address, number, &writes, &stop)));
        }
    }
    let measured = inject_fault(nodes, blow, &writes);
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        let _ = writer.join();
    }
    measured
}

fn inject_fault(
    nodes: &mut NodeCluster,
    blow: LeaderFault,
    writes: &Mutex<Vec<WriteTimes>>,
) -> Result<Duration, Failed> {
    let seen = || writes.lock().unwrap_or_else(PoisonError::into_inner);
    wait_for("writes", || (seen().len() >= WRITES_BEFORE_FAULT).then_some(()))?;
    let leader = nodes.leader()?;
    let begin = Instant::now();
    match blow {
        LeaderFault::Kill => nodes.kill(&[leader])?,
        LeaderFault::Pause => nodes.pause(leader)?,
    }
    // The old leader may still acknowledge writes sent earlier.
    let gone = Instant::now();
    let first = wait_for("a write without the old leader", || {
        let after = |(sent, acknowledged): &WriteTimes| (*sent >= gone).then_some(*acknowledged);
        seen().iter().filter_map(after).min()
    })?;
    match blow {
        LeaderFault::Kill => nodes.restart(&[leader])?,
        LeaderFault::Pause => nodes.resume(leader)?,
    }
    nodes.wait_until_all_serve()?;
    Ok(first - begin)
}

fn write_repeatedly(
    address: &str,
    number: usize,
    writes: &Mutex<Vec<WriteTimes>>,
    stop: &AtomicBool,
) {
    let key = format!("failover:{address}:{number}");
    let mut link = None;
    while !stop.load(Ordering::SeqCst) {
        let Some(open) = &mut link else {
            link = RespConnection::connect(address).ok();
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let sent = Instant::now();
        match open.run_command(&["SET", &key, "x"]) {
            Ok(reply) if is_ok(&reply) => {
                let mut writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
                writes.push((sent, Instant::now()));
            }
            Ok(_) => {}
            Err(_) => link = None,
        }
    }
}
