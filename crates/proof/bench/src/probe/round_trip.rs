//! Round-trip time of a small message to another process over loopback.

use std::{
    io::{self, ErrorKind},
    time::{Duration, Instant},
};

use super::{
    MeasuredCeiling,
    part::{PartLauncher, accept_one_client, serve_datagrams},
    wire::{ProbeSocket, ProbeTransport},
};
use quorate_testbed::usage::ResourceUsage;

use crate::{figure::round_to_four_digits, samples::Latencies};

const MESSAGE_BYTES: usize = 64;

/// Method by which a process waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMethod {
    /// The process blocks until the kernel wakes it.
    Block,
    /// The process polls continuously on a dedicated CPU.
    Spin,
}

impl WaitMethod {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Spin => "spin",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Block, Self::Spin].into_iter().find(|wait| wait.name() == name)
    }
}

/// Runs the echoing part, which returns every message.
pub fn run_echo(wait: WaitMethod, over: ProbeTransport) -> io::Result<()> {
    let mut client = match over {
        ProbeTransport::Tcp => ProbeSocket::Tcp(accept_one_client()?),
        ProbeTransport::Udp => ProbeSocket::Udp(serve_datagrams()?),
    };
    client.set_nonblocking(wait == WaitMethod::Spin)?;
    let mut message = [0; MESSAGE_BYTES];
    while receive_message(&mut client, &mut message)? {
        client.send(&message)?;
    }
    Ok(())
}

/// Measures round trips for `time`, with one message in flight.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn measure_round_trips(
    launcher: &PartLauncher,
    wait: WaitMethod,
    over: ProbeTransport,
    time: Duration,
) -> io::Result<MeasuredCeiling> {
    let part = launcher.start(&["echo", wait.name(), over.name()].map(str::to_owned))?;
    let mut socket = ProbeSocket::dial(part.address, over)?;
    socket.set_nonblocking(wait == WaitMethod::Spin)?;
    let processes = [part.id(), std::process::id()];
    let mut latencies = Latencies::default();
    let mut message = [1; MESSAGE_BYTES];
    let before = ResourceUsage::of_processes(&processes);
    let began = Instant::now();
    while began.elapsed() < time {
        let sent = Instant::now();
        socket.send(&message)?;
        match wait {
            WaitMethod::Block => socket.receive_exact(&mut message)?,
            WaitMethod::Spin if receive_message(&mut socket, &mut message)? => {}
            WaitMethod::Spin => return Err(ErrorKind::UnexpectedEof.into()),
        }
        latencies.record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let took = began.elapsed().as_secs_f64();
    let cpu = ResourceUsage::of_processes(&processes).since(before).cpu_s();
    let count = latencies.count().max(1) as f64;
    let how = match wait {
        WaitMethod::Block => "blocking",
        WaitMethod::Spin => "spinning",
    };
    Ok(MeasuredCeiling {
        name: format!("64 B there and back over loopback {}, {how}", over.display_name()),
        value: round_to_four_digits(count / took),
        unit: "/s".to_owned(),
        p50_us: Some(round_to_four_digits(latencies.quantile_us(0.5))),
        p99_us: Some(round_to_four_digits(latencies.quantile_us(0.99))),
        cpu_us_per_op: Some(round_to_four_digits(cpu * 1e6 / count)),
    })
}

/// Receives a complete message. Returns false at the end of the connection.
fn receive_message(socket: &mut ProbeSocket, message: &mut [u8]) -> io::Result<bool> {
    let mut have = 0;
    while have < message.len() {
        match socket.receive(&mut message[have..]) {
            Ok(0) => return Ok(false),
            Ok(count) => have += count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                std::hint::spin_loop();
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
