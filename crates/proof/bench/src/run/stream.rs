//! `quorate bench stream`: byte-stream writers against a cluster started for them.

use std::time::Duration;

use quorate_core::record::Class;

use crate::{
    environment::Environment,
    generator::RunningLoad,
    probe::stream::StreamShape,
    problem::Problem,
    repetition::Repetition,
    report::Document,
    stream::{
        Written,
        generator::{Keeper, Writers},
        speech::Speech,
    },
};

use super::{
    Time,
    bare_stream::BareStream,
    measure::{unreachable, watch},
    pin::Pin,
    readings::{Readings, UsageDelta},
    session::{Cluster, Session, resolve},
    stream_load::{StreamResult, flush_ms, row, setting},
};

pub use super::stream_load::Load;

/// Minimum number of bytes retained in all streams together. Older bytes are dropped during the
/// measurement, as in any long-running cluster; otherwise the disk would be full after a minute.
const KEPT_BYTES: u64 = 256 << 20;
/// Minimum number of bytes retained in each stream.
const KEPT_BYTES_MIN: u64 = 1 << 20;
/// Write size in bytes below which the sink is the ceiling of volatile writes.
const LARGE_WRITE: usize = 64 << 10;

#[derive(Clone, Debug)]
pub struct Nodes {
    pub count: u32,
    /// Set if the last node is an auxiliary.
    pub auxiliary: bool,
    pub durability: Class,
    pub disk_flush: Duration,
}

#[derive(Clone, Debug)]
pub struct StreamOptions {
    pub nodes: Nodes,
    pub load: Load,
    /// Set if the writer runs on a dedicated CPU.
    pub pin: bool,
    pub time: Time,
}

impl StreamOptions {
    /// Checks that a cluster with these properties can be started.
    pub fn check(&self) -> Result<(), Problem> {
        if self.nodes.auxiliary && self.nodes.count < 3 {
            let what =
                "--auxiliary needs at least 3 nodes: the others must form a quorum without it";
            return Err(Problem::usage(what));
        }
        let writes = self.load.rate.map(|rate| rate / self.load.write_bytes as u64);
        if writes == Some(0) {
            let what = "--rate is less than one write per second";
            return Err(Problem::usage(what).hint("see --write-size for the size of a write"));
        }
        Ok(())
    }

    /// Runs the measurement. If it fails, the rows measured before remain in the document.
    pub fn run(&self, document: &mut Document) -> Result<(), Problem> {
        let mut session = Session::new()?;
        let measured = self.measure(&mut session, document);
        let measured = measured.map_err(|problem| session.with_last_words(problem));
        session.end();
        measured
    }

    /// Measures the load. If its rate is unlimited, its repetitions alternate with those of a bare
    /// program under the same load, because other load on the machine changes from minute to
    /// minute.
    fn measure(&self, session: &mut Session, document: &mut Document) -> Result<(), Problem> {
        let pin = self.pin.then(Pin::new).transpose()?;
        let bare = match self.ceiling() {
            Some(shape) => Some(BareStream::new(session, shape, pin)?),
            None => None,
        };
        let mut bench = StreamBench::start(session, &self.nodes, self.time.clone())?;
        bench.pin = pin;
        bench.row("stream", &self.load, bare.as_ref(), document)
    }

    fn ceiling(&self) -> Option<StreamShape> {
        let durable = self.nodes.durability == Class::Durable;
        let small = self.load.write_bytes < LARGE_WRITE;
        match self.load.rate {
            Some(_) => None,
            None if small && !durable => Some(StreamShape::SINK),
            None => Some(StreamShape {
                durable,
                // Volatile clusters do not flush.
                flush: if durable { self.nodes.disk_flush } else { Duration::ZERO },
                follower: true,
            }),
        }
    }
}

/// Nodes to which the writers write.
#[derive(Debug)]
pub struct StreamBench {
    nodes: Nodes,
    cluster: Cluster,
    time: Time,
    environment: Environment,
    pin: Option<Pin>,
    /// Number of repetitions that have been run. Each repetition uses new stream names.
    repetitions: u32,
}

impl StreamBench {
    pub fn start(session: &mut Session, nodes: &Nodes, time: Time) -> Result<Self, Problem> {
        let flush = format!("{}", flush_ms(nodes.disk_flush));
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
        let auxiliary = nodes.auxiliary.then_some(nodes.count);
        Ok(Self {
            nodes: nodes.clone(),
            cluster: session.boot_some(nodes.count, auxiliary, &flags)?,
            time,
            environment: Environment::now(),
            pin: None,
            repetitions: 0,
        })
    }

    /// Measures all repetitions of a load without a ceiling.
    pub fn row_alone(
        &mut self,
        scenario: &str,
        load: &Load,
        document: &mut Document,
    ) -> Result<(), Problem> {
        self.row(scenario, load, None, document)
    }

    /// Measures all repetitions of a load, alternating with those of the bare program, if there is
    /// one. If one fails, adds rows about the earlier ones to the document.
    pub(super) fn row(
        &mut self,
        scenario: &str,
        load: &Load,
        bare: Option<&BareStream>,
        document: &mut Document,
    ) -> Result<(), Problem> {
        let (mut ours, mut ceilings) = (Vec::new(), Vec::new());
        let measured = self.repeat(load, bare, &mut ours, &mut ceilings);
        let repetitions = ours.len();
        let setting = setting(scenario, load, self.nodes.durability, self.nodes.disk_flush);
        let (followers, pinned) = (self.followers(), self.pin.is_some());
        let ours = row(&setting, &self.environment, load, ours, followers, pinned);
        let ceiling = bare.and_then(|bare| bare.row(&setting, &self.environment, load, ceilings));
        if let Some(mut row) = ours {
            if let Some(ceiling) = ceiling.as_ref().filter(|ceiling| ceiling.valid) {
                row.set_ceiling(ceiling.achieved_per_s);
            }
            if let Err(problem) = &measured {
                row.object(format!(
                    "only {repetitions} of {} repetitions: {}",
                    self.time.repeat, problem.message
                ));
            }
            document.rows.push(row);
        }
        document.rows.extend(ceiling);
        measured
    }

    fn followers(&self) -> usize {
        let nodes = self.cluster.members.len();
        nodes - 1 - usize::from(self.nodes.auxiliary)
    }

    fn repeat(
        &mut self,
        load: &Load,
        bare: Option<&BareStream>,
        ours: &mut Vec<StreamResult>,
        ceilings: &mut Vec<StreamResult>,
    ) -> Result<(), Problem> {
        for number in 1..=self.time.repeat {
            let head = format!("{}, {number} of {}", load.shown(), self.time.repeat);
            let seen = self.repetition(load, &head)?;
            seen.tell(&head, load);
            ours.push(seen);
            if let Some(bare) = bare {
                let head = format!("{}, {head}", bare.system());
                let seen = bare.repetition(load, &self.time, &head)?;
                seen.tell(&head, load);
                ceilings.push(seen);
            }
        }
        Ok(())
    }

    fn repetition(&mut self, load: &Load, head: &str) -> Result<StreamResult, Problem> {
        let leader = self.cluster.leader()?;
        let running = self.write(load, leader)?;
        let Some(started) = running.started() else {
            return Err(unreachable(running.finish().err()));
        };
        let cluster = Some(&self.cluster);
        let from = started + self.time.warmup;
        watch(&running, from, &format!("{head}: warming up"));
        let before = Readings::take(cluster, running.completed());
        watch(&running, from + self.time.duration, head);
        let after = Readings::take(cluster, running.completed());
        let written = running.finish().map_err(|error| unreachable(Some(error)))?;
        let mut repetition = Repetition { samples: written.samples, ..Repetition::default() };
        UsageDelta::between(&before, &after, Some(leader)).fill(&mut repetition);
        Ok(StreamResult { repetition, acknowledged: written.acknowledged })
    }

    /// Starts writers that connect to the leader, which then owns their streams.
    fn write(&mut self, load: &Load, leader: u32) -> Result<RunningLoad<Written>, Problem> {
        self.repetitions += 1;
        let place = self.cluster.place_of(leader);
        let place = place.expect("the leader is one of the nodes");
        let address = match load.speech {
            Speech::Framed => &place.stream,
            Speech::Raw => &place.stream_raw,
        };
        let bytes = (KEPT_BYTES / u64::from(load.streams)).max(KEPT_BYTES_MIN);
        let writers = Writers {
            speech: load.speech,
            address: resolve(address)?,
            write_bytes: load.write_bytes,
            gather: load.gather,
            cpus: self.pin.map(|pin| pin.writer),
            prefix: format!("bench-{}-", self.repetitions),
            keeper: Some(Keeper { address: place.stream.clone(), bytes }),
        };
        let started = writers.start(load.plan(&self.time));
        started.map_err(|error| Problem::io("start the load generator", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Offer;

    fn load(streams: u32, write_bytes: usize, rate: Option<u64>) -> Load {
        Load {
            speech: Speech::Framed,
            streams,
            write_bytes,
            rate,
            outstanding: None,
            gather: false,
        }
    }

    #[test]
    fn without_a_rate_a_bounded_number_of_bytes_is_outstanding() {
        let outstanding = |streams, bytes| match load(streams, bytes, None).offer() {
            Offer::Closed { outstanding } => outstanding,
            open @ Offer::Open { .. } => panic!("{open:?}"),
        };
        assert_eq!(outstanding(1, 256 << 10), 64);
        assert_eq!(outstanding(1, 1), 1 << 16);
        assert_eq!(outstanding(1000, 1 << 20), 2000);
    }

    #[test]
    fn rate_is_rounded_to_whole_writes() {
        let wish = |rate| StreamOptions {
            nodes: Nodes {
                count: 3,
                auxiliary: false,
                durability: Class::Durable,
                disk_flush: Duration::ZERO,
            },
            load: load(1, 1000, Some(rate)),
            pin: false,
            time: Time { duration: Duration::from_secs(1), warmup: Duration::ZERO, repeat: 1 },
        };
        let offer = wish(5_000_900).load.offer();
        assert_eq!(offer, Offer::Open { per_second: 5000 });
        assert!(wish(1000).check().is_ok() && wish(999).check().is_err());
        let mut few = wish(1000);
        few.nodes.auxiliary = true;
        assert!(few.check().is_ok());
        few.nodes.count = 2;
        assert!(few.check().is_err());
    }
}
