//! Cost to writers of replacing every node of a cluster. Pairs of runs have the same open-loop
//! load; one run of each pair includes a replacement of all nodes.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use quorate_bench::figure::median;
use quorate_client::{Client, Options};
use quorate_testbed::{
    nodes::Nodes,
    replace::{self, Step},
};

use super::{Wish, float, load, writes};
use crate::{
    nodes,
    shell::{self, Failed},
};

const NODES: u32 = 3;
/// Number of clients. Each sends in order and has as many commands outstanding as a session allows.
const CLIENTS: u64 = 8;
const OPEN_MAX: usize = 64;
const VALUE: usize = 1024;
/// Writes to each key before the run, so that logs are trimmed.
const PASSES: usize = 4;
/// Duration of a window. The slowest window is evaluated.
const WINDOW: Duration = Duration::from_millis(100);
/// Time before the first newcomer. Its windows are not evaluated.
const WARM: Duration = Duration::from_secs(1);
/// Target share of the throughput without a replacement.
const WANTED: f64 = 0.80;
/// Flags that each node is started with. Newcomers receive snapshots, whose transfer is throttled.
const FLAGS: [&str; 2] = ["--transfer-limit", "52428800"];
const MIB: f64 = 1_048_576.0;

/// Size of the benchmark.
struct Size {
    pairs: usize,
    /// Commands per second of all clients together.
    rate: u64,
    /// Existing keys, overwritten during the run.
    keys: u64,
    /// Duration of each run. A replacement that takes longer fails.
    time: Duration,
}

const LARGE: Size = Size { pairs: 5, rate: 2_000, keys: 40_000, time: Duration::from_secs(15) };
const SMALL: Size = Size { pairs: 2, rate: 1_000, keys: 10_000, time: Duration::from_secs(8) };

pub(super) fn run(wish: Wish) -> Result<(), Failed> {
    shell::build_programs()?;
    let size = if wish.quick { SMALL } else { LARGE };
    println!(
        "{NODES} nodes, store memory, durable, {} SETs/s of {VALUE} bytes at fixed moments over {} keys, {} s; \
         load of the machine before: {}",
        size.rate,
        size.keys,
        size.time.as_secs(),
        load()
    );
    let mut ratios = Vec::new();
    for pair in 0..size.pairs {
        let (without, with) = match pair % 2 {
            0 => (measure(&size, false)?, measure(&size, true)?),
            _ => {
                let with = measure(&size, true)?;
                (measure(&size, false)?, with)
            }
        };
        let ratio = with.slowest() / without.slowest();
        println!(
            "  slowest 100 ms: {:.0}/s without, {:.0}/s with ({ratio:.2}); median {:.0}/s and {:.0}/s; {}; load {}",
            without.slowest(),
            with.slowest(),
            without.middle(),
            with.middle(),
            with.report,
            load()
        );
        ratios.push(ratio);
    }
    println!(
        "median: {:.2} of the throughput without a replacement (wanted {WANTED:.2}); no client error",
        median(ratios)
    );
    Ok(())
}

/// Commands per second in each window, and the effects of the replacement.
struct Run {
    rates: Vec<f64>,
    report: String,
}

impl Run {
    fn slowest(&self) -> f64 {
        self.rates.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn middle(&self) -> f64 {
        median(self.rates.iter().copied())
    }
}

fn measure(size: &Size, replaces: bool) -> Result<Run, Failed> {
    let mut nodes = nodes::serving(NODES, &nodes::small_logs(&FLAGS))?;
    let program = nodes::program();
    let newcomers =
        replace::newcomers(&nodes, &program, NODES as usize, &nodes::small_logs(&FLAGS))?;
    let addresses = replace::client_addresses(&nodes, &newcomers);
    for _ in 0..PASSES {
        writes::fill(&addresses[0], 0..size.keys)?;
    }
    let windows = (size.time.as_millis() / WINDOW.as_millis()) as usize;
    let done: Vec<AtomicU64> = (0..windows).map(|_| AtomicU64::new(0)).collect();
    let began = Instant::now();
    let mut watch = Watch::default();
    let (written, replaced) = thread::scope(|scope| {
        let client = |number: u64| {
            let mut addresses = addresses.clone();
            addresses.rotate_left((number % u64::from(NODES)) as usize);
            let (done, nodes) = (&done, addresses);
            scope.spawn(move || write(&nodes, size, number, began, done))
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let mut replaced = Ok(Duration::ZERO);
        if replaces {
            thread::sleep(WARM);
            let begin = Instant::now();
            let all = replace::all(&mut nodes, &program, newcomers, &mut |nodes, step| {
                watch.record_step(nodes, step);
            });
            replaced = all.map(|()| begin.elapsed());
        }
        let written = clients
            .into_iter()
            .map(|client| client.join().expect("a client does not panic"))
            .collect::<Result<Vec<()>, Failed>>();
        (written, replaced)
    });
    written?;
    let took = replaced?;
    if WARM + took > size.time {
        return Err(Failed(format!(
            "the replacement took {:.1} s, longer than the load",
            took.as_secs_f64()
        )));
    }
    nodes.wait_until_equal()?;
    let warm = (WARM.as_millis() / WINDOW.as_millis()) as usize;
    let per_second =
        |count: &AtomicU64| float(count.load(Ordering::Relaxed)) / WINDOW.as_secs_f64();
    Ok(Run {
        rates: done.iter().skip(warm).map(per_second).collect(),
        report: watch.report(&nodes, took),
    })
}

/// Bytes sent to new members, and delays of writers.
#[derive(Default)]
struct Watch {
    /// Bytes of values sent to newcomers until they caught up.
    values: u64,
    /// Values that waited for a new era, on nodes that have been removed.
    waited: u64,
}

const WAITED: &str = "quorate_slots_waited_for_era_total ";

impl Watch {
    fn record_step(&mut self, nodes: &Nodes, step: &Step) {
        let sum = |name: &str| {
            let each = nodes.ids().into_iter().map(|id| nodes.metric(id, name));
            each.map(Result::unwrap_or_default).sum::<u64>()
        };
        match step {
            Step::Level(new) => {
                self.values +=
                    sum(&format!("quorate_peer_payload_bytes_sent_total{{node=\"{new}\"}} "));
            }
            Step::Replaced(replaced) => {
                self.waited += nodes.metric(replaced.old, WAITED).unwrap_or_default();
            }
            Step::Joined(_) | Step::Off(_) => {}
        }
    }

    fn report(&self, nodes: &Nodes, took: Duration) -> String {
        let sum = |name: &str| {
            let each = nodes.ids().into_iter().map(|id| nodes.metric(id, name));
            each.map(Result::unwrap_or_default).sum::<u64>()
        };
        format!(
            "all replaced in {:.1} s, {} values waited for an era; sent to newcomers: {:.1} MiB of snapshots, \
             {:.1} MiB of values until they were level",
            took.as_secs_f64(),
            self.waited + sum(WAITED),
            float(sum("quorate_snapshot_bytes_received_total ")) / MIB,
            float(self.values) / MIB,
        )
    }
}

/// Sends SETs at fixed times. A late client sends everything due at once. Each SET counts in the
/// window of its reply.
fn write(
    addresses: &[String],
    size: &Size,
    number: u64,
    began: Instant,
    done: &[AtomicU64],
) -> Result<(), Failed> {
    let mut client = Client::new(addresses, Options::default());
    let value = vec![b'v'; VALUE];
    let every = Duration::from_secs(CLIENTS).as_nanos() as u64 / size.rate;
    let count = (size.time.as_nanos() as u64) / every;
    let due = |sent: u64| began + Duration::from_nanos(sent * every + number * every / CLIENTS);
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        while sent < count && client.open() < OPEN_MAX && due(sent) <= Instant::now() {
            let key = format!("{:016}", (sent * CLIENTS + number) % size.keys);
            let command: [&[u8]; 3] = [b"SET", key.as_bytes(), &value];
            client.send(&command).map_err(client_failed)?;
            sent += 1;
        }
        if client.open() == 0 {
            thread::sleep(due(sent).saturating_duration_since(Instant::now()));
            continue;
        }
        client.receive().map_err(client_failed)?;
        answered += 1;
        let window = (began.elapsed().as_millis() / WINDOW.as_millis()) as usize;
        if let Some(window) = done.get(window) {
            window.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn client_failed(error: quorate_client::Error) -> Failed {
    Failed(format!("a client was told an error: {error}"))
}
