//! `quorate bench stream`: byte-stream writers against a cluster started for them.

use std::time::Duration;

use quorate_core::record::Class;

use crate::{
    environment::Environment,
    generator::RunningLoad,
    probe::stream::StreamShape,
    problem::Problem,
    repetition::Repetition,
    report::BenchReport,
    stream::{
        StreamSamples,
        generator::{RetentionSettings, WriterSettings},
        speech::StreamProtocol,
    },
};

use super::{
    RunTime,
    bare_stream::BareStream,
    measure::{show_progress, unreachable_problem},
    pin::CpuPinning,
    readings::{CounterReadings, UsageDelta},
    session::{Cluster, NodeSession, resolve_address},
    stream_load::{StreamResult, flush_time_ms, make_row, stream_setting},
};

pub use super::stream_load::StreamLoad;

/// Minimum number of bytes retained in all streams together. Older bytes are dropped during the
/// measurement, as in any long-running cluster; otherwise the disk would be full after a minute.
const RETAINED_BYTES_MIN: u64 = 256 << 20;
/// Minimum number of bytes retained in each stream.
const RETAINED_PER_STREAM_MIN: u64 = 1 << 20;
/// Write size in bytes below which the sink is the ceiling of volatile writes.
const LARGE_WRITE_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub node_count: u32,
    /// Set if the last node is an auxiliary.
    pub last_is_auxiliary: bool,
    pub durability: Class,
    pub disk_flush: Duration,
}

#[derive(Clone, Debug)]
pub struct StreamOptions {
    pub nodes: NodeOptions,
    pub load: StreamLoad,
    /// Set if the writer runs on a dedicated CPU.
    pub pins_writer: bool,
    pub time: RunTime,
}

impl StreamOptions {
    /// Checks that a cluster with these properties can be started.
    pub fn check_options(&self) -> Result<(), Problem> {
        if self.nodes.last_is_auxiliary && self.nodes.node_count < 3 {
            let what =
                "--auxiliary needs at least 3 nodes: the others must form a quorum without it";
            return Err(Problem::usage_error(what));
        }
        let writes = self.load.bytes_per_second.map(|rate| rate / self.load.write_bytes as u64);
        if writes == Some(0) {
            let what = "--rate is less than one write per second";
            return Err(
                Problem::usage_error(what).with_hint("see --write-size for the size of a write")
            );
        }
        Ok(())
    }

    /// Runs the measurement. If it fails, the rows measured before remain in the document.
    pub fn run(&self, document: &mut BenchReport) -> Result<(), Problem> {
        let mut session = NodeSession::new()?;
        let measured = self.measure(&mut session, document);
        let measured = measured.map_err(|problem| session.add_last_log_lines(problem));
        session.kill_nodes();
        measured
    }

    /// Measures the load. If its rate is unlimited, its repetitions alternate with those of a bare
    /// program under the same load, because other load on the machine changes from minute to
    /// minute.
    fn measure(
        &self,
        session: &mut NodeSession,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        let pin = self.pins_writer.then(CpuPinning::new).transpose()?;
        let bare = match self.ceiling_shape() {
            Some(shape) => Some(BareStream::new(session, shape, pin)?),
            None => None,
        };
        let mut bench = StreamBench::start(session, &self.nodes, self.time.clone())?;
        bench.pin = pin;
        bench.measure_row("stream", &self.load, bare.as_ref(), document)
    }

    fn ceiling_shape(&self) -> Option<StreamShape> {
        let durable = self.nodes.durability == Class::Durable;
        let small = self.load.write_bytes < LARGE_WRITE_BYTES;
        match self.load.bytes_per_second {
            Some(_) => None,
            None if small && !durable => Some(StreamShape::SINK),
            None => Some(StreamShape {
                is_durable: durable,
                // Volatile clusters do not flush.
                flush_time: if durable { self.nodes.disk_flush } else { Duration::ZERO },
                has_follower: true,
            }),
        }
    }
}

/// Nodes to which the writers write.
#[derive(Debug)]
pub struct StreamBench {
    nodes: NodeOptions,
    cluster: Cluster,
    time: RunTime,
    environment: Environment,
    pin: Option<CpuPinning>,
    /// Number of repetitions that have been run. Each repetition uses new stream names.
    repetition_count: u32,
}

impl StreamBench {
    pub fn start(
        session: &mut NodeSession,
        nodes: &NodeOptions,
        time: RunTime,
    ) -> Result<Self, Problem> {
        let flush = format!("{}", flush_time_ms(nodes.disk_flush));
        let flags = [
            "--durability",
            nodes.durability.name(),
            "--store",
            "memory",
            "--disk-flush-ms",
            &flush,
            "--stream-raw",
            "127.0.0.1:0",
        ];
        let auxiliary = nodes.last_is_auxiliary.then_some(nodes.node_count);
        Ok(Self {
            nodes: nodes.clone(),
            cluster: session.boot_some(nodes.node_count, auxiliary, &flags)?,
            time,
            environment: Environment::of_this_machine(),
            pin: None,
            repetition_count: 0,
        })
    }

    /// Measures all repetitions of a load without a ceiling.
    pub fn measure_row_alone(
        &mut self,
        scenario: &str,
        load: &StreamLoad,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        self.measure_row(scenario, load, None, document)
    }

    /// Measures all repetitions of a load, alternating with those of the bare program, if there is
    /// one. If one fails, adds rows about the earlier ones to the document.
    pub(super) fn measure_row(
        &mut self,
        scenario: &str,
        load: &StreamLoad,
        bare: Option<&BareStream>,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        let (mut ours, mut ceilings) = (Vec::new(), Vec::new());
        let measured = self.run_repetitions(load, bare, &mut ours, &mut ceilings);
        let repetitions = ours.len();
        let setting = stream_setting(scenario, load, self.nodes.durability, self.nodes.disk_flush);
        let (followers, pinned) = (self.follower_count(), self.pin.is_some());
        let ours = make_row(&setting, &self.environment, load, ours, followers, pinned);
        let ceiling =
            bare.and_then(|bare| bare.measure_row(&setting, &self.environment, load, ceilings));
        if let Some(mut row) = ours {
            if let Some(ceiling) = ceiling.as_ref().filter(|ceiling| ceiling.valid) {
                row.set_bare_ceiling(ceiling.achieved_per_s);
            }
            if let Err(problem) = &measured {
                row.invalidate(format!(
                    "only {repetitions} of {} repetitions: {}",
                    self.time.repetition_count, problem.message
                ));
            }
            document.rows.push(row);
        }
        document.rows.extend(ceiling);
        measured
    }

    fn follower_count(&self) -> usize {
        let nodes = self.cluster.members.len();
        nodes - 1 - usize::from(self.nodes.last_is_auxiliary)
    }

    fn run_repetitions(
        &mut self,
        load: &StreamLoad,
        bare: Option<&BareStream>,
        ours: &mut Vec<StreamResult>,
        ceilings: &mut Vec<StreamResult>,
    ) -> Result<(), Problem> {
        for number in 1..=self.time.repetition_count {
            let head = format!("{}, {number} of {}", load.describe(), self.time.repetition_count);
            let seen = self.run_repetition(load, &head)?;
            seen.print_result(&head, load);
            ours.push(seen);
            if let Some(bare) = bare {
                let head = format!("{}, {head}", bare.system_name());
                let seen = bare.run_repetition(load, &self.time, &head)?;
                seen.print_result(&head, load);
                ceilings.push(seen);
            }
        }
        Ok(())
    }

    fn run_repetition(&mut self, load: &StreamLoad, head: &str) -> Result<StreamResult, Problem> {
        let leader = self.cluster.wait_for_leader()?;
        let running = self.start_writers(load, leader)?;
        let Some(started) = running.wait_started() else {
            return Err(unreachable_problem(running.finish().err()));
        };
        let cluster = Some(&self.cluster);
        let from = started + self.time.warmup;
        show_progress(&running, from, &format!("{head}: warming up"));
        let before = CounterReadings::read_all(cluster, running.completed());
        show_progress(&running, from + self.time.duration, head);
        let after = CounterReadings::read_all(cluster, running.completed());
        let written = running.finish().map_err(|error| unreachable_problem(Some(error)))?;
        let mut repetition = Repetition { samples: written.samples, ..Repetition::default() };
        UsageDelta::between(&before, &after, Some(leader)).fill_repetition(&mut repetition);
        Ok(StreamResult { repetition, acknowledged: written.acknowledged })
    }

    /// Starts writers that connect to the leader, which then owns their streams.
    fn start_writers(
        &mut self,
        load: &StreamLoad,
        leader: u32,
    ) -> Result<RunningLoad<StreamSamples>, Problem> {
        self.repetition_count += 1;
        let place = self.cluster.find_member(leader);
        let place = place.expect("the leader is one of the nodes");
        let address = match load.protocol {
            StreamProtocol::Framed => &place.stream,
            StreamProtocol::Raw => &place.stream_raw,
        };
        let bytes =
            (RETAINED_BYTES_MIN / u64::from(load.stream_count)).max(RETAINED_PER_STREAM_MIN);
        let writers = WriterSettings {
            protocol: load.protocol,
            address: resolve_address(address)?,
            write_bytes: load.write_bytes,
            gathers_writes: load.gathers_writes,
            cpus: self.pin.map(|pin| pin.writer_cpu),
            name_prefix: format!("bench-{}-", self.repetition_count),
            retention: Some(RetentionSettings { address: place.stream.clone(), bytes }),
        };
        let started = writers.start(load.plan(&self.time));
        started.map_err(|error| Problem::io_error("start the load generator", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::OfferedLoad;

    fn load(streams: u32, write_bytes: usize, rate: Option<u64>) -> StreamLoad {
        StreamLoad {
            protocol: StreamProtocol::Framed,
            stream_count: streams,
            write_bytes,
            bytes_per_second: rate,
            outstanding_writes: None,
            gathers_writes: false,
        }
    }

    #[test]
    fn without_a_rate_a_bounded_number_of_bytes_is_outstanding() {
        let outstanding = |streams, bytes| match load(streams, bytes, None).to_offer() {
            OfferedLoad::Closed { outstanding } => outstanding,
            open @ OfferedLoad::Open { .. } => panic!("{open:?}"),
        };
        assert_eq!(outstanding(1, 256 << 10), 64);
        assert_eq!(outstanding(1, 1), 1 << 16);
        assert_eq!(outstanding(1000, 1 << 20), 2000);
    }

    #[test]
    fn rate_is_rounded_to_whole_writes() {
        let wish = |rate| StreamOptions {
            nodes: NodeOptions {
                node_count: 3,
                last_is_auxiliary: false,
                durability: Class::Durable,
                disk_flush: Duration::ZERO,
            },
            load: load(1, 1000, Some(rate)),
            pins_writer: false,
            time: RunTime {
                duration: Duration::from_secs(1),
                warmup: Duration::ZERO,
                repetition_count: 1,
            },
        };
        let offer = wish(5_000_900).load.to_offer();
        assert_eq!(offer, OfferedLoad::Open { per_second: 5000 });
        assert!(wish(1000).check_options().is_ok() && wish(999).check_options().is_err());
        let mut few = wish(1000);
        few.nodes.last_is_auxiliary = true;
        assert!(few.check_options().is_ok());
        few.nodes.node_count = 2;
        assert!(few.check_options().is_err());
    }
}
