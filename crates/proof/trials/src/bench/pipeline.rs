//! Pipelines that mix reads and writes on one connection, alternating with pipelines that do not.
//!
//! Only ratios are meaningful: all three loads run on the same cluster and machine. Each reply is
//! compared with the one that the order of the requests demands.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use quorate_bench::figure::median;

use super::load_average;
use crate::{
    nodes,
    shell::{self, Failed},
};

const ROUND_COUNT: usize = 7;
/// Number of requests in each run.
const COMMAND_COUNT: usize = 40_000;
/// Numbers of outstanding requests to measure. With 16, a client sends 16, waits for all replies,
/// and repeats. With 256, it keeps the pipeline full.
const OUTSTANDING_COUNTS: [usize; 2] = [16, 256];
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
const LOADS: [Load; 3] = [Load::Set, Load::Get, Load::Alternating];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Set,
    Get,
    Alternating,
}

impl Load {
    const fn name(self) -> &'static str {
        match self {
            Self::Set => "only SET",
            Self::Get => "only GET",
            Self::Alternating => "SET and GET in turns",
        }
    }

    fn is_write(self, number: usize) -> bool {
        match self {
            Self::Set => true,
            Self::Get => false,
            Self::Alternating => number.is_multiple_of(2),
        }
    }
}

pub(super) fn run() -> Result<(), Failed> {
    shell::build_programs()?;
    println!(
        "One connection, values of 64 bytes, three nodes, loopback, store memory, load {}; medians of \
         {ROUND_COUNT} rounds in turns",
        load_average()
    );
    for durability in ["durable", "volatile"] {
        let nodes = nodes::start_serving(3, &["--store", "memory", "--durability", durability])?;
        for (node, port) in nodes.client_ports().iter().take(2).enumerate() {
            for outstanding in OUTSTANDING_COUNTS {
                println!("\n{durability}, node {}, {outstanding} outstanding:", node + 1);
                measure(*port, outstanding)?;
            }
        }
    }
    Ok(())
}

fn measure(port: u16, outstanding: usize) -> Result<(), Failed> {
    let mut rates = LOADS.map(|_| Vec::new());
    for _ in 0..ROUND_COUNT {
        for (rates, load) in rates.iter_mut().zip(LOADS) {
            rates.push(measure_rate(port, load, outstanding)?);
        }
    }
    let [sets, ..] = &rates;
    for (rates, load) in rates.iter().zip(LOADS) {
        let ratios: Vec<f64> = rates.iter().zip(sets).map(|(rate, set)| rate / set).collect();
        println!(
            "  {:22} {:9.0} commands/s, {:.2} of only SET",
            load.name(),
            median(rates.iter().copied()),
            median(ratios)
        );
    }
    Ok(())
}

/// Returns the commands per second of one load.
fn measure_rate(port: u16, load: Load, outstanding: usize) -> Result<f64, Failed> {
    let mut line = PipelineConnection::connect(port)?;
    // Give the key a value first, so that every load finds one.
    line.send(&encode_request(true, 0))?;
    line.expect(&expected_reply(true, 0))?;
    let began = Instant::now();
    let (mut sent, mut answered, mut written) = (0, 0, 0);
    let mut expected = VecDeque::new();
    let mut out = Vec::new();
    while answered < COMMAND_COUNT {
        out.clear();
        while sent < COMMAND_COUNT && sent - answered < outstanding {
            let writes = load.is_write(sent);
            written = if writes { sent } else { written };
            out.extend_from_slice(&encode_request(writes, written));
            expected.push_back(expected_reply(writes, written));
            sent += 1;
        }
        line.send(&out)?;
        // Drain a short pipeline before it is refilled; keep a long one full.
        let least = if outstanding < 64 { expected.len() } else { 1 };
        let mut count = 0;
        while let Some(reply) = expected.front()
            && (count < least || line.has_received(reply.len()))
        {
            line.expect(reply)?;
            expected.pop_front();
            count += 1;
        }
        answered += count;
    }
    #[expect(clippy::cast_precision_loss, reason = "a report")]
    let rate = COMMAND_COUNT as f64 / began.elapsed().as_secs_f64();
    Ok(rate)
}

fn encode_request(writes: bool, value: usize) -> Vec<u8> {
    if writes {
        format!("*3\r\n$3\r\nSET\r\n$8\r\nbench:pl\r\n$64\r\n{value:064}\r\n").into_bytes()
    } else {
        b"*2\r\n$3\r\nGET\r\n$8\r\nbench:pl\r\n".to_vec()
    }
}

fn expected_reply(writes: bool, value: usize) -> Vec<u8> {
    if writes { b"+OK\r\n".to_vec() } else { format!("$64\r\n{value:064}\r\n").into_bytes() }
}

/// A connection whose expected replies are known in advance.
struct PipelineConnection {
    stream: TcpStream,
    input: Vec<u8>,
    consumed_bytes: usize,
}

impl PipelineConnection {
    fn connect(port: u16) -> Result<Self, Failed> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { stream, input: Vec::new(), consumed_bytes: 0 })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Returns whether at least `bytes` bytes have been received.
    fn has_received(&self, bytes: usize) -> bool {
        self.input.len() - self.consumed_bytes >= bytes
    }

    fn expect(&mut self, reply: &[u8]) -> Result<(), Failed> {
        while !self.has_received(reply.len()) {
            self.input.drain(..self.consumed_bytes);
            self.consumed_bytes = 0;
            let mut buffer = [0; 64 << 10];
            match self.stream.read(&mut buffer)? {
                0 => return Err(Failed("the node closed the connection".to_owned())),
                count => self.input.extend_from_slice(&buffer[..count]),
            }
        }
        let found = &self.input[self.consumed_bytes..self.consumed_bytes + reply.len()];
        if found != reply {
            let (found, reply) = (String::from_utf8_lossy(found), String::from_utf8_lossy(reply));
            return Err(Failed(format!("{found:?} instead of {reply:?}")));
        }
        self.consumed_bytes += reply.len();
        Ok(())
    }
}
