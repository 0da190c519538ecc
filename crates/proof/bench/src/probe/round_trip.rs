//! Round-trip time of a small message to another process over loopback.

use std::{
    io::{self, ErrorKind},
    time::{Duration, Instant},
};

use super::{
    Ceiling,
    part::{Launcher, accept_one, serve_datagrams},
    wire::{ProbeTransport, Wire},
};
use quorate_testbed::usage::Usage;

use crate::{figure::round, samples::Latencies};

const BYTES: usize = 64;

/// Method by which a process waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The process blocks until the kernel wakes it.
    Block,
    /// The process polls continuously on a dedicated CPU.
    Spin,
}

impl Wait {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Spin => "spin",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Self::Block, Self::Spin].into_iter().find(|wait| wait.name() == name)
    }
}

/// Runs the echoing part, which returns every message.
pub fn echo(wait: Wait, over: ProbeTransport) -> io::Result<()> {
    let mut client = match over {
        ProbeTransport::Tcp => Wire::Tcp(accept_one()?),
        ProbeTransport::Udp => Wire::Udp(serve_datagrams()?),
    };
    client.set_nonblocking(wait == Wait::Spin)?;
    let mut message = [0; BYTES];
    while receive(&mut client, &mut message)? {
        client.send(&message)?;
    }
    Ok(())
}

/// Measures round trips for `time`, with one message in flight.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn measure(
    launcher: &Launcher,
    wait: Wait,
    over: ProbeTransport,
    time: Duration,
) -> io::Result<Ceiling> {
    let part = launcher.start(&["echo", wait.name(), over.name()].map(str::to_owned))?;
    let mut socket = Wire::dial(part.address, over)?;
    socket.set_nonblocking(wait == Wait::Spin)?;
    let processes = [part.id(), std::process::id()];
    let mut latencies = Latencies::default();
    let mut message = [1; BYTES];
    let before = Usage::of_processes(&processes);
    let began = Instant::now();
    while began.elapsed() < time {
        let sent = Instant::now();
        socket.send(&message)?;
        match wait {
            Wait::Block => socket.receive_exact(&mut message)?,
            Wait::Spin if receive(&mut socket, &mut message)? => {}
            Wait::Spin => return Err(ErrorKind::UnexpectedEof.into()),
        }
        latencies.record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let took = began.elapsed().as_secs_f64();
    let cpu = Usage::of_processes(&processes).since(before).cpu_s();
    let count = latencies.count().max(1) as f64;
    let how = match wait {
        Wait::Block => "blocking",
        Wait::Spin => "spinning",
    };
    Ok(Ceiling {
        name: format!("64 B there and back over loopback {}, {how}", over.shown()),
        value: round(count / took),
        unit: "/s".to_owned(),
        p50_us: Some(round(latencies.quantile_us(0.5))),
        p99_us: Some(round(latencies.quantile_us(0.99))),
        cpu_us_per_op: Some(round(cpu * 1e6 / count)),
    })
}

/// Receives a complete message. Returns false at the end of the connection.
fn receive(socket: &mut Wire, message: &mut [u8]) -> io::Result<bool> {
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
