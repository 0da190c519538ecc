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
    nodes::NodeCluster,
    replace::{self, Step},
};

use super::{BenchOptions, load_average, to_float, writes};
use crate::{
    nodes,
    shell::{self, Failed},
};

const NODE_COUNT: u32 = 3;
/// Number of clients. Each sends in order and has as many commands outstanding as a session allows.
const CLIENT_COUNT: u64 = 8;
const OUTSTANDING_MAX: usize = 64;
const VALUE_BYTES: usize = 1024;
/// Writes to each key before the run, so that logs are trimmed.
const FILL_PASSES: usize = 4;
/// Duration of a window. The slowest window is evaluated.
const WINDOW: Duration = Duration::from_millis(100);
/// Time before the first newcomer. Its windows are not evaluated.
const WARMUP_DURATION: Duration = Duration::from_secs(1);
/// Target share of the throughput without a replacement.
const TARGET_SHARE: f64 = 0.80;
/// Flags that each node is started with. Newcomers receive snapshots, whose transfer is throttled.
const NODE_FLAGS: [&str; 2] = ["--transfer-limit", "52428800"];
const MIB: f64 = 1_048_576.0;

/// Size of the benchmark.
struct BenchSize {
    pair_count: usize,
    /// Commands per second of all clients together.
    rate: u64,
    /// Existing keys, overwritten during the run.
    key_count: u64,
    /// Duration of each run. A replacement that takes longer fails.
    run_duration: Duration,
}

const LARGE_SIZE: BenchSize = BenchSize {
    pair_count: 5,
    rate: 2_000,
    key_count: 40_000,
    run_duration: Duration::from_secs(15),
};
const SMALL_SIZE: BenchSize = BenchSize {
    pair_count: 2,
    rate: 1_000,
    key_count: 10_000,
    run_duration: Duration::from_secs(8),
};

pub(super) fn run(wish: BenchOptions) -> Result<(), Failed> {
    shell::build_programs()?;
    let size = if wish.quick { SMALL_SIZE } else { LARGE_SIZE };
    println!(
        "{NODE_COUNT} nodes, store memory, durable, {} SETs/s of {VALUE_BYTES} bytes at fixed moments over {} keys, {} s; \
         load of the machine before: {}",
        size.rate,
        size.key_count,
        size.run_duration.as_secs(),
        load_average()
    );
    let mut ratios = Vec::new();
    for pair in 0..size.pair_count {
        let (without, with) = match pair % 2 {
            0 => (measure(&size, false)?, measure(&size, true)?),
            _ => {
                let with = measure(&size, true)?;
                (measure(&size, false)?, with)
            }
        };
        let ratio = with.slowest_rate() / without.slowest_rate();
        println!(
            "  slowest 100 ms: {:.0}/s without, {:.0}/s with ({ratio:.2}); median {:.0}/s and {:.0}/s; {}; load {}",
            without.slowest_rate(),
            with.slowest_rate(),
            without.median_rate(),
            with.median_rate(),
            with.report,
            load_average()
        );
        ratios.push(ratio);
    }
    println!(
        "median: {:.2} of the throughput without a replacement (wanted {TARGET_SHARE:.2}); no client error",
        median(ratios)
    );
    Ok(())
}

/// Commands per second in each window, and the effects of the replacement.
struct ReplacementRun {
    window_rates: Vec<f64>,
    report: String,
}

impl ReplacementRun {
    fn slowest_rate(&self) -> f64 {
        self.window_rates.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn median_rate(&self) -> f64 {
        median(self.window_rates.iter().copied())
    }
}

fn measure(size: &BenchSize, replaces: bool) -> Result<ReplacementRun, Failed> {
    let mut nodes = nodes::start_serving(NODE_COUNT, &nodes::small_log_flags(&NODE_FLAGS))?;
    let program = nodes::program_path();
    let newcomers = replace::newcomer_specs(
        &nodes,
        &program,
        NODE_COUNT as usize,
        &nodes::small_log_flags(&NODE_FLAGS),
    )?;
    let addresses = replace::client_addresses(&nodes, &newcomers);
    for _ in 0..FILL_PASSES {
        writes::fill_keys(&addresses[0], 0..size.key_count)?;
    }
    let windows = (size.run_duration.as_millis() / WINDOW.as_millis()) as usize;
    let done: Vec<AtomicU64> = (0..windows).map(|_| AtomicU64::new(0)).collect();
    let began = Instant::now();
    let mut watch = ReplacementWatch::default();
    let (written, replaced) = thread::scope(|scope| {
        let client = |number: u64| {
            let mut addresses = addresses.clone();
            addresses.rotate_left((number % u64::from(NODE_COUNT)) as usize);
            let (done, nodes) = (&done, addresses);
            scope.spawn(move || write_at_rate(&nodes, size, number, began, done))
        };
        let clients: Vec<_> = (0..CLIENT_COUNT).map(client).collect();
        let mut replaced = Ok(Duration::ZERO);
        if replaces {
            thread::sleep(WARMUP_DURATION);
            let begin = Instant::now();
            let all = replace::replace_all(&mut nodes, &program, newcomers, &mut |nodes, step| {
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
    if WARMUP_DURATION + took > size.run_duration {
        return Err(Failed(format!(
            "the replacement took {:.1} s, longer than the load",
            took.as_secs_f64()
        )));
    }
    nodes.wait_until_equal()?;
    let warm = (WARMUP_DURATION.as_millis() / WINDOW.as_millis()) as usize;
    let per_second =
        |count: &AtomicU64| to_float(count.load(Ordering::Relaxed)) / WINDOW.as_secs_f64();
    Ok(ReplacementRun {
        window_rates: done.iter().skip(warm).map(per_second).collect(),
        report: watch.report(&nodes, took),
    })
}

/// Bytes sent to new members, and delays of writers.
#[derive(Default)]
struct ReplacementWatch {
    /// Bytes of values sent to newcomers until they caught up.
    values_sent: u64,
    /// Values that waited for a new era, on nodes that have been removed.
    values_waited: u64,
}

const WAITED_METRIC: &str = "quorate_slots_waited_for_era_total ";

impl ReplacementWatch {
    fn record_step(&mut self, nodes: &NodeCluster, step: &Step) {
        let sum = |name: &str| {
            let each = nodes.ids().into_iter().map(|id| nodes.metric(id, name));
            each.map(Result::unwrap_or_default).sum::<u64>()
        };
        match step {
            Step::CaughtUp(new) => {
                self.values_sent +=
                    sum(&format!("quorate_peer_payload_bytes_sent_total{{node=\"{new}\"}} "));
            }
            Step::Replaced(replaced) => {
                self.values_waited +=
                    nodes.metric(replaced.old_node, WAITED_METRIC).unwrap_or_default();
            }
            Step::Joined(_) | Step::Stopped(_) => {}
        }
    }

    fn report(&self, nodes: &NodeCluster, took: Duration) -> String {
        let sum = |name: &str| {
            let each = nodes.ids().into_iter().map(|id| nodes.metric(id, name));
            each.map(Result::unwrap_or_default).sum::<u64>()
        };
        format!(
            "all replaced in {:.1} s, {} values waited for an era; sent to newcomers: {:.1} MiB of snapshots, \
             {:.1} MiB of values until they were level",
            took.as_secs_f64(),
            self.values_waited + sum(WAITED_METRIC),
            to_float(sum("quorate_snapshot_bytes_received_total ")) / MIB,
            to_float(self.values_sent) / MIB,
        )
    }
}

/// Sends SETs at fixed times. A late client sends everything due at once. Each SET counts in the
/// window of its reply.
fn write_at_rate(
    addresses: &[String],
    size: &BenchSize,
    number: u64,
    began: Instant,
    done: &[AtomicU64],
) -> Result<(), Failed> {
    let mut client = Client::new(addresses, Options::default());
    let value = vec![b'v'; VALUE_BYTES];
    let every = Duration::from_secs(CLIENT_COUNT).as_nanos() as u64 / size.rate;
    let count = (size.run_duration.as_nanos() as u64) / every;
    let due =
        |sent: u64| began + Duration::from_nanos(sent * every + number * every / CLIENT_COUNT);
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        while sent < count && client.open() < OUTSTANDING_MAX && due(sent) <= Instant::now() {
            let key = format!("{:016}", (sent * CLIENT_COUNT + number) % size.key_count);
            let command: [&[u8]; 3] = [b"SET", key.as_bytes(), &value];
            client.send(&command).map_err(client_failure)?;
            sent += 1;
        }
        if client.open() == 0 {
            thread::sleep(due(sent).saturating_duration_since(Instant::now()));
            continue;
        }
        client.receive().map_err(client_failure)?;
        answered += 1;
        let window = (began.elapsed().as_millis() / WINDOW.as_millis()) as usize;
        if let Some(window) = done.get(window) {
            window.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn client_failure(error: quorate_client::Error) -> Failed {
    Failed(format!("a client was told an error: {error}"))
}
