//! SET commands to one node: each key once, or the load of `quorate bench`.

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    ops::Range,
    time::{Duration, Instant},
};

use quorate_bench::{
    door::ClientAddress,
    generator::RunningLoad,
    load::{LoadPlan, OfferedLoad},
    protocol::resp::RespEncoder,
    samples::Samples,
};

use super::to_float;
use crate::shell::Failed;

/// Size of a value, in bytes.
pub(super) const VALUE_BYTES: usize = 1024;
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
const OK_REPLY: &[u8] = b"+OK\r\n";
const OUTSTANDING: u64 = 256;

/// Writes these keys in order, with values of [`VALUE_BYTES`] bytes. Returns the rate per second.
pub(super) fn fill_keys(address: &str, keys: Range<u64>) -> Result<f64, Failed> {
    write_each(address, keys, VALUE_BYTES, OUTSTANDING)
}

/// Writes the given keys in order, with a fixed value size and number of outstanding commands.
/// Returns the rate per second.
pub(super) fn write_each(
    address: &str,
    mut keys: Range<u64>,
    value_bytes: usize,
    outstanding: u64,
) -> Result<f64, Failed> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let value = "x".repeat(value_bytes);
    let mut buffer = vec![0; 64 << 10];
    let count = keys.end - keys.start;
    let began = Instant::now();
    let (mut open, mut bytes, mut out) = (0, 0, String::new());
    while bytes < count * OK_REPLY.len() as u64 {
        out.clear();
        for key in keys.by_ref().take((outstanding - open) as usize) {
            // Use the same keys and values as `Resp`.
            let _ = write!(
                out,
                "*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${value_bytes}\r\n{value}\r\n"
            );
            open += 1;
        }
        stream.write_all(out.as_bytes())?;
        let read = stream.read(&mut buffer)?;
        let begun = bytes as usize % OK_REPLY.len();
        if read == 0 || !buffer[..read].iter().eq(OK_REPLY.iter().cycle().skip(begun).take(read)) {
            let said = String::from_utf8_lossy(&buffer[..read.min(200)]);
            return Err(Failed(format!("a write was not done: {said:?}")));
        }
        bytes += read as u64;
        open -= ((begun + read) / OK_REPLY.len()) as u64;
    }
    Ok(to_float(count) / began.elapsed().as_secs_f64())
}

/// A running load of writes to random keys.
pub(super) struct RandomWrites(RunningLoad, Instant);

impl RandomWrites {
    /// Starts a load that ends after the given time, or when it is stopped.
    pub(super) fn start(
        address: &str,
        keys: u64,
        offer: OfferedLoad,
        connections: u32,
        time: Duration,
    ) -> Result<Self, Failed> {
        let address: SocketAddr =
            address.parse().map_err(|error| Failed(format!("{address}: {error}")))?;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (measure, patience) = (nanos(time), nanos(REPLY_TIMEOUT));
        let plan = LoadPlan {
            offer,
            connections,
            warmup_ns: 0,
            measure_ns: measure,
            reply_timeout_ns: patience,
        };
        let running = RunningLoad::start(
            plan,
            vec![ClientAddress::from(address)],
            RespEncoder::new(VALUE_BYTES, keys, 0),
        )?;
        Ok(Self(running, Instant::now()))
    }

    /// Waits for the load to end. Fails if any write failed.
    pub(super) fn finish(self) -> Result<Samples, Failed> {
        let samples = self.0.finish()?;
        match samples.first_error {
            Some(why) => Err(Failed(format!("a write was not done: {why}"))),
            None => Ok(samples),
        }
    }

    /// Stops the load and ignores outstanding writes. Returns the rate per second.
    pub(super) fn stop(self) -> Result<f64, Failed> {
        let seconds = self.1.elapsed().as_secs_f64();
        self.0.stop();
        Ok(to_float(self.finish()?.completed) / seconds)
    }
}
