//! Bare echoes on an emulated segment. The server runs in the first node's namespace, the client in
//! the second's.

use std::{
    env,
    fs::File,
    io,
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};

use quorate_bench::{
    problem::Problem,
    repetition::{GENERATOR_ROLE, Repetition, RoleUsage},
    run::network::{lan::BareProgram, peer_address},
};
use quorate_device::xdp::{Hook, PassProgram};
use quorate_testbed::{
    segment::PEERS_INTERFACE,
    usage::{MachineCpuTime, ResourceUsage},
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{EchoClientOptions, EchoTransport, run};

/// Number and name of the server's network namespace.
const SERVER_NAMESPACE: (u32, &str) = (1, "server");
const CLIENT_NAMESPACE: u32 = 2;

/// Messages and durations of one repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EchoLoad {
    pub(crate) way: EchoTransport,
    pub(crate) bytes: usize,
    pub(crate) outstanding: u32,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
}

/// Measures a repetition with a new server.
pub(crate) fn measure_repetition(load: &EchoLoad) -> Result<Repetition, Problem> {
    let failed = |error: io::Error| Problem::io_error("measure an echo", &error);
    // When XDP returns frames from one end of a veth pair, the other end drops them unless a
    // program is attached there.
    let passing = (load.way.server_hook == Some(Hook::Native))
        .then(|| PassProgram::attach(&format!("p{}", SERVER_NAMESPACE.0)))
        .transpose();
    let _passing = passing.map_err(|error| failed(io::Error::other(error)))?;
    let way = [format!("--way={}", load.way.name())];
    let own = env::current_exe().map_err(failed)?;
    let mut server = BareProgram::start_program(
        SERVER_NAMESPACE.0,
        &own,
        &["echo-server"],
        load.duration,
        &way,
    )?;
    let said = server.read_line().map_err(failed)?;
    let mac = said.parse().map_err(|_| {
        let why = format!("the server {} ended before it was ready", load.way.name());
        failed(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    })?;
    let asking = EchoClientOptions {
        way: load.way,
        server_address: (peer_address(SERVER_NAMESPACE.0), mac),
        bytes: load.bytes,
        outstanding: load.outstanding,
        warmup: load.warmup,
        duration: load.duration,
    };
    let id = server.id();
    let client = thread::Builder::new()
        .name("echo".to_owned())
        .spawn(move || run_client(id, &asking))
        .map_err(failed)?;
    let measured = client.join().unwrap_or_else(|_| {
        let why = "the client's thread ended without a word";
        Err(io::Error::other(why))
    });
    measured.map_err(failed)
}

/// Runs the client in its namespace. The calling thread remains in that namespace.
fn run_client(server: u32, asking: &EchoClientOptions) -> io::Result<Repetition> {
    let there = File::open(format!("/run/netns/n{CLIENT_NAMESPACE}"))?;
    move_into_link_name_space(there.as_fd(), Some(LinkNameSpaceType::Network))?;
    let mut before = None;
    let (samples, lost) =
        run(PEERS_INTERFACE, asking, || before = Some(UsageReading::read_now(server)))?;
    let after = UsageReading::read_now(server);
    let mut repetition = Repetition {
        replies_between_readings: samples.completed,
        samples,
        dropped_packets: Some(lost),
        ..Repetition::default()
    };
    if let Some(before) = before {
        let usages = [
            (SERVER_NAMESPACE.1, after.server.since(before.server)),
            (GENERATOR_ROLE, after.generator.since(before.generator)),
        ];
        repetition.roles =
            usages.map(|(role, usage)| RoleUsage { role: role.to_owned(), usage }).into();
        let own = usages.iter().map(|(_, usage)| usage.cpu_s()).sum();
        let machines = after.machine.zip(before.machine);
        repetition.foreign_cpu = machines.map(|(now, then)| now.other_processes_share(then, own));
        // No message was sent while the counters were being read.
        let measured = (after.begun - before.ended).as_nanos();
        repetition.samples.measured_ns = u64::try_from(measured).unwrap_or(u64::MAX);
    }
    Ok(repetition)
}

/// Resource usage up to a point in time.
struct UsageReading {
    begun: Instant,
    server: ResourceUsage,
    generator: ResourceUsage,
    machine: Option<MachineCpuTime>,
    ended: Instant,
}

impl UsageReading {
    fn read_now(server: u32) -> Self {
        Self {
            begun: Instant::now(),
            server: ResourceUsage::of_processes(&[server]),
            generator: ResourceUsage::of_processes(&[std::process::id()]),
            machine: MachineCpuTime::now(),
            ended: Instant::now(),
        }
    }
}
