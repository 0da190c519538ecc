//! Measures the throughput from bare senders to bare receivers, each in the namespace of a node on
//! an emulated segment.

use std::{
    io::{self, BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use quorate_testbed::{
    namespace::namespace_command,
    segment::{self, PEERS_INTERFACE},
    usage::{MachineCpuTime, ResourceUsage},
};

use super::{super::program::node_program, Network, peer_address};
use crate::{
    emulated::EmulatedNetwork,
    lan::{
        self, DatagramTransport,
        figures::{BareMeasurement, BareSetting},
        port,
        receiver::Reception,
        sender::DATAGRAMS_PER_CALL_MAX,
    },
    problem::Problem,
};

const KIB: u64 = 1024;
/// Time for which senders continue after the receivers' measured time, unless they are killed
/// earlier.
const SEND_LONGER: Duration = Duration::from_secs(30);

/// A running bare program, which is killed on drop.
pub struct BareProgram {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl BareProgram {
    /// Starts a part of the probe in the namespace of a node, at its interface to the segment.
    fn start(node: u32, part: &str, time: Duration, flags: &[String]) -> Result<Self, Problem> {
        Self::start_program(node, &node_program()?, &["bench", "part", part], time, flags)
    }

    /// Starts a program in the namespace of a node. Its arguments are `words`, its interface to the
    /// segment, the time in milliseconds, and `flags`. It must exit at the end of its standard
    /// input.
    pub fn start_program(
        node: u32,
        program: &Path,
        words: &[&str],
        time: Duration,
        flags: &[String],
    ) -> Result<Self, Problem> {
        let failed = |error| Problem::io_error("start a bare program", &error);
        let mut child = namespace_command(node)
            .arg(program)
            .args(words)
            .arg(PEERS_INTERFACE)
            .arg(time.as_millis().to_string())
            .args(flags)
            // The program watches this pipe and also exits if this process is killed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let said = child.stdout.take().ok_or_else(|| {
            let error = io::ErrorKind::BrokenPipe.into();
            failed(error)
        })?;
        Ok(Self { child, stdout: BufReader::new(said) })
    }

    /// Reads the next line of the program's output. Fails if the program has exited.
    pub fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program prints this word.
    fn wait_for_word(&mut self, word: &str) -> io::Result<()> {
        if self.read_line()? == word {
            return Ok(());
        }
        let why = format!("a bare receiver ended before it was {word}");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }
}

impl Drop for BareProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures the throughput from one sender to the slowest of `receivers` receivers, in payload
/// bytes per second.
pub(in super::super) fn measure_throughput(receivers: u32, time: Duration) -> Result<f64, Problem> {
    let asked = BareSetting {
        transport: DatagramTransport::Multicast,
        senders: 1,
        receivers,
        load_percent: None,
        burst_datagrams: DATAGRAMS_PER_CALL_MAX,
        queue_kib: None,
    };
    let found = run_bare_programs(&asked, None, [lan::WARMUP_DURATION, time])?;
    let slowest = found.slowest_reception().map(|heard| heard.to_string());
    slowest
        .and_then(|said| segment::parse_rate(&said))
        .ok_or_else(|| Problem::io_error("measure the segment", &io::ErrorKind::InvalidData.into()))
}

impl Network {
    /// Configures the switch for the bare programs. Multicast is limited to receivers, and queues
    /// get the requested size.
    pub fn configure_switch(&self, asked: &BareSetting) -> Result<(), Problem> {
        let failed = |error| Problem::io_error("arrange the segment", &error);
        let EmulatedNetwork::Lan(lan) = self.kind else {
            return Err(failed(io::ErrorKind::Unsupported.into()));
        };
        let receivers = asked.senders + 1..=asked.senders + asked.receivers;
        for node in 1..=self.nodes {
            segment::set_multicast(node, receivers.contains(&node)).map_err(failed)?;
            if let Some(kib) = asked.queue_kib {
                segment::limit_queue(lan, node, u64::from(kib) * KIB).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Runs the senders and receivers once, for a warm-up and a measured time.
    pub fn run_datagrams(
        &self,
        asked: &BareSetting,
        times: [Duration; 2],
    ) -> Result<BareMeasurement, Problem> {
        let rate = match self.kind {
            EmulatedNetwork::Lan(lan) => asked.datagrams_per_second(lan),
            EmulatedNetwork::Wan(_) => None,
        };
        run_bare_programs(asked, rate, times)
    }
}

/// Runs senders in the first namespaces and receivers in the following ones. `rate` is the rate of
/// each sender in datagrams per second.
fn run_bare_programs(
    asked: &BareSetting,
    rate: Option<u64>,
    times: [Duration; 2],
) -> Result<BareMeasurement, Problem> {
    let failed = |error: io::Error| Problem::io_error("measure the segment", &error);
    let [warmup, time] = times;
    let nodes = asked.senders + 1..=asked.senders + asked.receivers;
    let mut receivers = Vec::new();
    for node in nodes.clone() {
        let flags = receiver_flags(asked, warmup);
        receivers.push(BareProgram::start(node, "lan-receiver", time, &flags)?);
    }
    for receiver in &mut receivers {
        receiver.wait_for_word("ready").map_err(failed)?;
    }
    let mut senders = Vec::new();
    let long = warmup * 2 + time * 2 + SEND_LONGER;
    for node in 1..=asked.senders {
        let to = match asked.transport {
            DatagramTransport::Multicast => None,
            DatagramTransport::Unicast => Some(nodes.clone()),
        };
        let flags = sender_flags(node - 1, asked.burst_datagrams, rate, to.into_iter().flatten());
        senders.push(BareProgram::start(node, "lan-sender", long, &flags)?);
    }
    for receiver in &mut receivers {
        receiver.wait_for_word("begun").map_err(failed)?;
    }
    let [sending, hearing] = [process_ids(&senders), process_ids(&receivers)];
    let before = UsageReading::read_now(&sending, &hearing);
    let mut heard: Vec<Reception> = Vec::new();
    let mut after = None;
    for receiver in &mut receivers {
        let said = receiver.read_line().map_err(failed)?;
        heard.push(said.parse().map_err(failed)?);
        // All other programs are still sending or receiving at this point.
        after = after.or_else(|| Some(UsageReading::read_now(&sending, &hearing)));
    }
    let after = after.unwrap_or_else(|| UsageReading::read_now(&sending, &hearing));
    Ok(after.measurement_since(&before, heard))
}

fn process_ids(all: &[BareProgram]) -> Vec<u32> {
    all.iter().map(BareProgram::id).collect()
}

fn receiver_flags(asked: &BareSetting, warmup: Duration) -> Vec<String> {
    let (senders, warmup) = (asked.senders, warmup.as_millis());
    let mut flags = vec![format!("--senders={senders}"), format!("--warmup-ms={warmup}")];
    if asked.transport == DatagramTransport::Unicast {
        flags.push("--unicast".to_owned());
    }
    flags
}

fn sender_flags(
    sender: u32,
    burst: u32,
    rate: Option<u64>,
    to: impl Iterator<Item = u32>,
) -> Vec<String> {
    let mut flags = vec![format!("--sender={sender}"), format!("--burst={burst}")];
    flags.extend(rate.map(|rate| format!("--per-second={rate}")));
    flags.extend(to.map(|node| format!("--to={}:{}", peer_address(node), port())));
    flags
}

/// Resource usage up to a point in time.
struct UsageReading {
    at: Instant,
    senders_cpu_s: f64,
    receivers: ResourceUsage,
    machine: Option<MachineCpuTime>,
}

impl UsageReading {
    fn read_now(senders: &[u32], receivers: &[u32]) -> Self {
        Self {
            at: Instant::now(),
            senders_cpu_s: senders.iter().filter_map(|id| ResourceUsage::precise_cpu_s(*id)).sum(),
            receivers: ResourceUsage::of_processes(receivers),
            machine: MachineCpuTime::now(),
        }
    }

    fn measurement_since(&self, before: &Self, heard: Vec<Reception>) -> BareMeasurement {
        let senders_cpu_s = (self.senders_cpu_s - before.senders_cpu_s).max(0.0);
        let own_s = senders_cpu_s + self.receivers.since(before.receivers).cpu_s();
        let machines = self.machine.zip(before.machine);
        let taken = |own_s| machines.map(|(now, then)| now.other_processes_share(then, own_s));
        BareMeasurement {
            receptions: heard,
            senders_cpu_s,
            elapsed_seconds: (self.at - before.at).as_secs_f64(),
            cpu_busy_share: taken(0.0),
            foreign_cpu_share: taken(own_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_flags_for_their_group() {
        let asked = BareSetting {
            transport: DatagramTransport::Unicast,
            senders: 2,
            receivers: 2,
            load_percent: None,
            burst_datagrams: DATAGRAMS_PER_CALL_MAX,
            queue_kib: None,
        };
        assert_eq!(
            receiver_flags(&asked, lan::WARMUP_DURATION),
            ["--senders=2", "--warmup-ms=500", "--unicast"]
        );
        assert_eq!(
            sender_flags(1, 5, Some(7), 3..=4),
            [
                "--sender=1",
                "--burst=5",
                "--per-second=7",
                "--to=10.213.79.3:7461",
                "--to=10.213.79.4:7461"
            ]
        );
    }
}
