//! Interruption of writes when the leader is killed or paused.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::{nodes::Nodes, resp::Link, trial::client::is_ok};

use crate::{
    nodes::{self, wait_for},
    shell::Failed,
};

/// Maximum permitted median time from a kill to the next acknowledged write, in milliseconds.
const MEDIAN_MS_MAX: u128 = 500;
const WORST_MS_MAX: u128 = 1500;
/// Number of measurements. Their median is evaluated.
const TIMES: usize = 7;
/// Writers per node, so that the leader fails under load.
const WRITERS: usize = 2;
const BEFORE: usize = 200;

/// Failure of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    /// Kills the process. Peers see closed connections at once.
    Kill,
    /// Pauses the process. Peers see only silence, as after a power failure.
    Pause,
}

/// Fails the leader repeatedly, with default timeouts. Only interruptions by a kill have an upper
/// limit.
pub(crate) fn run() -> Result<(), Failed> {
    let mut nodes = nodes::serving(3, &[])?;
    let (median, worst) = measure_series(&mut nodes, Blow::Kill)?;
    measure_series(&mut nodes, Blow::Pause)?;
    if median > MEDIAN_MS_MAX || worst > WORST_MS_MAX {
        return Err(Failed(format!(
            "failover: median {median} ms, worst {worst} ms; promised: {MEDIAN_MS_MAX} ms, {WORST_MS_MAX} ms"
        )));
    }
    Ok(())
}

/// Returns the median and the maximum, in milliseconds.
fn measure_series(nodes: &mut Nodes, blow: Blow) -> Result<(u128, u128), Failed> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        times.push(measure(nodes, blow)?.as_millis());
    }
    let list: Vec<String> = times.iter().map(u128::to_string).collect();
    times.sort_unstable();
    let (median, worst) = (times[TIMES / 2], times[TIMES - 1]);
    println!(
        "- leader: {blow:?}; until the next acknowledged write, ms: {}; median {median}, worst {worst}",
        list.join(" ")
    );
    Ok((median, worst))
}

/// Times at which a write was sent and acknowledged.
type Write = (Instant, Instant);

fn measure(nodes: &mut Nodes, blow: Blow) -> Result<Duration, Failed> {
    let writes: Arc<Mutex<Vec<Write>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for address in nodes.client_addresses() {
        for number in 0..WRITERS {
            let (writes, stop, address) = (Arc::clone(&writes), Arc::clone(&stop), address.clone());
            writers.push(thread::spawn(move || write(&address, number, &writes, &stop)));
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
    nodes: &mut Nodes,
    blow: Blow,
    writes: &Mutex<Vec<Write>>,
) -> Result<Duration, Failed> {
    let seen = || writes.lock().unwrap_or_else(PoisonError::into_inner);
    wait_for("writes", || (seen().len() >= BEFORE).then_some(()))?;
    let leader = nodes.leader()?;
    let begin = Instant::now();
    match blow {
        Blow::Kill => nodes.kill(&[leader])?,
        Blow::Pause => nodes.pause(leader)?,
    }
    // The old leader may still acknowledge writes sent earlier.
    let gone = Instant::now();
    let first = wait_for("a write without the old leader", || {
        let after = |(sent, acknowledged): &Write| (*sent >= gone).then_some(*acknowledged);
        seen().iter().filter_map(after).min()
    })?;
    match blow {
        Blow::Kill => nodes.restart(&[leader])?,
        Blow::Pause => nodes.resume(leader)?,
    }
    nodes.wait_until_all_serve()?;
    Ok(first - begin)
}

fn write(address: &str, number: usize, writes: &Mutex<Vec<Write>>, stop: &AtomicBool) {
    let key = format!("failover:{address}:{number}");
    let mut link = None;
    while !stop.load(Ordering::SeqCst) {
        let Some(open) = &mut link else {
            link = Link::connect(address).ok();
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let sent = Instant::now();
        match open.ask(&["SET", &key, "x"]) {
            Ok(reply) if is_ok(&reply) => {
                let mut writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
                writes.push((sent, Instant::now()));
            }
            Ok(_) => {}
            Err(_) => link = None,
        }
    }
}
