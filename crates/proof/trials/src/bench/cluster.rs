//! Costs of a running cluster per command: counts, which mean something on any machine.
//!
//! Three nodes over loopback, SET of 64 bytes, a fixed number outstanding on one connection to each
//! node. Times depend on the machine and its other load; counts do not.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use quorate_testbed::nodes::{Nodes, metrics};

use crate::{
    nodes::{self, wait_for},
    shell::{self, Failed},
};

const ROUNDS: usize = 5;
const COMMANDS: usize = 60_000;
const PATIENCE: Duration = Duration::from_secs(30);
/// Counters that are shown per command, and what they are called.
const SHOWN: [(&str, &str); 9] = [
    ("quorate_disk_writes_total", "writes"),
    ("quorate_disk_flushes_total", "flushes"),
    ("quorate_disk_write_bytes_total", "bytes written"),
    ("quorate_batches_applied_total", "batches"),
    ("quorate_net_frames_out_total", "frames sent"),
    ("quorate_net_peer_bytes_out_total", "bytes sent"),
    ("quorate_net_calls_wait_total", "waits"),
    ("quorate_net_calls_peer_write_total", "peer writes"),
    ("quorate_slow_rewinds_total", "rewinds"),
];

/// Runs the task.
pub(super) fn run() -> Result<(), Failed> {
    shell::build_programs()?;
    println!("SET of 64 bytes, three nodes, loopback, store memory; medians of {ROUNDS} rounds");
    for durability in ["durable", "volatile"] {
        for outstanding in [1, 16, 256] {
            measure(durability, outstanding)?;
        }
    }
    Ok(())
}

fn measure(durability: &str, outstanding: usize) -> Result<(), Failed> {
    let nodes = nodes::serving(3, &["--store", "memory", "--durability", durability])?;
    let port = nodes.client_ports()[0];
    let commands = if outstanding == 1 { COMMANDS / 30 } else { COMMANDS };
    let mut rates = Vec::new();
    let before = counters(&nodes)?;
    for round in 0..ROUNDS {
        let began = Instant::now();
        load(port, outstanding, commands, round)?;
        #[expect(clippy::cast_precision_loss, reason = "a report")]
        let rate = commands as f64 / began.elapsed().as_secs_f64();
        rates.push(rate);
    }
    rates.sort_by(f64::total_cmp);
    let after = counters(&nodes)?;
    println!(
        "\n{durability}, {outstanding} outstanding: {:.0} commands/s; per command, all nodes:",
        rates[ROUNDS / 2]
    );
    for (name, shown) in SHOWN {
        let of = |counts: &BTreeMap<String, f64>| counts.get(name).copied().unwrap_or(0.0);
        #[expect(clippy::cast_precision_loss, reason = "a report")]
        let each = (of(&after) - of(&before)) / (commands * ROUNDS) as f64;
        println!("  {shown:14} {each:10.3}");
    }
    // Whatever the load and the machine: a write is flushed once.
    let grown = |name: &str| {
        let of = |counts: &BTreeMap<String, f64>| counts.get(name).copied().unwrap_or(0.0);
        of(&after) - of(&before)
    };
    let (writes, flushes) = (grown(SHOWN[0].0), grown(SHOWN[1].0));
    if writes == 0.0 || (writes - flushes).abs() > 0.5 {
        return Err(Failed(format!("{writes} writes took {flushes} flushes")));
    }
    Ok(())
}

/// The sum over all nodes of everything that they count.
fn counters(nodes: &Nodes) -> Result<BTreeMap<String, f64>, Failed> {
    let mut sums = BTreeMap::new();
    for address in nodes.admin_addresses() {
        let text = wait_for("metrics", || metrics(&address))?;
        for line in text.lines().filter(|line| line.starts_with("quorate_")) {
            if let Some((name, value)) = line.split_once(' ')
                && let Ok(value) = value.parse::<f64>()
            {
                *sums.entry(name.to_owned()).or_insert(0.0) += value;
            }
        }
    }
    Ok(sums)
}

/// A closed loop: `outstanding` commands are always in flight, until all are answered.
fn load(port: u16, outstanding: usize, commands: usize, round: usize) -> Result<(), Failed> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut out = Vec::new();
    let request = |number: usize, out: &mut Vec<u8>| {
        let key = format!("bench:{round}:{number:012}");
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$64\r\n", key.len());
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&[b'x'; 64]);
        out.extend_from_slice(b"\r\n");
    };
    let (mut sent, mut answered) = (0, 0);
    let mut buffer = vec![0; 64 << 10];
    while answered < commands {
        out.clear();
        while sent < commands && sent - answered < outstanding {
            request(sent, &mut out);
            sent += 1;
        }
        stream.write_all(&out)?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(Failed("the node closed the connection".to_owned()));
        }
        if buffer[..count].contains(&b'-') {
            let said = String::from_utf8_lossy(&buffer[..count.min(200)]).into_owned();
            return Err(Failed(format!("an error under load: {said}")));
        }
        answered += buffer[..count].iter().filter(|byte| **byte == b'\n').count();
    }
    Ok(())
}
