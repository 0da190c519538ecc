//! Measures the bare byte stream program, either under the load of a row or alone for `quorate
//! bench probe --stream`.

use std::{path::PathBuf, time::Duration};

use quorate_core::record::Class;
use quorate_testbed::usage::MachineCpuTime;

use crate::{
    environment::Environment,
    load::OfferedLoad,
    probe::{
        part::PartLauncher,
        stream::{BareStreamPrograms, StreamShape, UNIT_BYTES},
    },
    problem::Problem,
    repetition::{Repetition, RoleUsage},
    report::BenchReport,
    row::{Row, RowSetting},
    stream::{generator::WriterSettings, speech::StreamProtocol},
};

use super::{
    RunTime,
    measure::show_progress,
    pin::CpuPinning,
    program::part_launcher,
    session::NodeSession,
    stream_load::{StreamLoad, StreamResult, make_row, stream_setting},
};

/// A bare byte-stream program that is restarted for each repetition.
pub(super) struct BareStream {
    launcher: PartLauncher,
    folder: PathBuf,
    shape: StreamShape,
    pin: Option<CpuPinning>,
}

/// Options of `quorate bench probe --stream`.
#[derive(Clone, Debug)]
pub struct StreamProbe {
    /// Minimum flush time, including that of the disk itself.
    pub disk_flush: Duration,
    /// Set if the writer runs on a dedicated CPU.
    pub pin: bool,
    pub time: RunTime,
}

/// Sizes of the small writes to the sink, in bytes.
const SMALL_WRITE_BYTES: [usize; 2] = [14, 100];

impl StreamProbe {
    /// Measures one writer: large writes to this disk, to a simulated disk if requested, and to
    /// memory; then small writes to a sink.
    pub fn run(&self, document: &mut BenchReport) -> Result<(), Problem> {
        let session = NodeSession::new()?;
        let pin = self.pin.then(CpuPinning::new).transpose()?;
        let durable =
            |flush| StreamShape { is_durable: true, flush_time: flush, has_follower: true };
        let volatile = StreamShape { is_durable: false, ..durable(Duration::ZERO) };
        let mut all = vec![(durable(Duration::ZERO), UNIT_BYTES)];
        if !self.disk_flush.is_zero() {
            all.push((durable(self.disk_flush), UNIT_BYTES));
        }
        all.push((volatile, UNIT_BYTES));
        all.extend(SMALL_WRITE_BYTES.map(|bytes| (StreamShape::SINK, bytes)));
        for (shape, write_bytes) in all {
            let load = StreamLoad {
                protocol: StreamProtocol::Raw,
                stream_count: 1,
                write_bytes,
                bytes_per_second: None,
                outstanding_writes: None,
                gathers_writes: false,
            };
            let row = BareStream::new(&session, shape, pin)?
                .add_row_alone(&load, &self.time, document)?;
            document.rows.extend(row);
        }
        Ok(())
    }
}

impl BareStream {
    pub(super) fn new(
        session: &NodeSession,
        shape: StreamShape,
        pin: Option<CpuPinning>,
    ) -> Result<Self, Problem> {
        Ok(Self { pin, launcher: part_launcher()?, folder: session.folder().to_owned(), shape })
    }

    pub(super) const fn system_name(&self) -> &'static str {
        self.shape.system_name()
    }

    fn add_row_alone(
        &self,
        load: &StreamLoad,
        time: &RunTime,
        document: &BenchReport,
    ) -> Result<Option<Row>, Problem> {
        let class = if self.shape.is_durable { Class::Durable } else { Class::Volatile };
        let setting = stream_setting("probe", load, class, self.shape.flush_time);
        let mut all = Vec::new();
        for number in 1..=time.repetition_count {
            let head = format!(
                "{}, {class}, {number} of {}",
                self.system_name(),
                time.repetition_count,
                class = setting.durability
            );
            let seen = self.run_repetition(load, time, &head)?;
            seen.print_result(&head, load);
            all.push(seen);
        }
        Ok(self.measure_row(&setting, &document.environment, load, all))
    }

    /// Measures a row about the bare program, where `like` belongs to another system.
    pub(super) fn measure_row(
        &self,
        like: &RowSetting,
        environment: &Environment,
        load: &StreamLoad,
        all: Vec<StreamResult>,
    ) -> Option<Row> {
        let load = as_single_stream(load);
        let setting =
            self.shape.row_setting(RowSetting { connections: load.stream_count, ..like.clone() });
        make_row(&setting, environment, &load, all, 1, self.pin.is_some())
    }

    /// Measures a repetition of the load, merged into one stream by [`as_single_stream`].
    pub(super) fn run_repetition(
        &self,
        load: &StreamLoad,
        time: &RunTime,
        head: &str,
    ) -> Result<StreamResult, Problem> {
        let load = &as_single_stream(load);
        let failed = |error| Problem::io_error("the bare program", &error);
        let bare =
            BareStreamPrograms::start(&self.launcher, &self.folder, self.shape).map_err(failed)?;
        let writers = WriterSettings {
            protocol: StreamProtocol::Raw,
            address: bare.address(),
            write_bytes: load.write_bytes,
            gathers_writes: load.gathers_writes,
            cpus: self.pin.map(|pin| pin.writer_cpu),
            name_prefix: String::new(),
            retention: None,
        };
        let running = writers.start(load.plan(time)).map_err(failed)?;
        let Some(started) = running.wait_started() else {
            let error = running.finish().err();
            let error = error.unwrap_or_else(|| std::io::Error::other("it did not begin"));
            return Err(failed(error));
        };
        let from = started + time.warmup;
        show_progress(&running, from, &format!("{head}: warming up"));
        let look = || (running.completed(), bare.role_usages(), MachineCpuTime::now());
        let before = look();
        show_progress(&running, from + time.duration, head);
        let after = look();
        let written = running.finish().map_err(failed)?;
        let roles = after.1.into_iter().zip(before.1);
        let roles = roles
            .map(|(after, before)| RoleUsage { usage: after.usage.since(before.usage), ..after });
        let roles: Vec<RoleUsage> = roles.collect();
        let own: f64 = roles.iter().map(|role| role.usage.cpu_s()).sum();
        let machine = after.2.zip(before.2);
        let repetition = Repetition {
            replies_between_readings: after.0 - before.0,
            samples: written.samples,
            roles,
            foreign_cpu: machine.map(|(after, before)| after.other_processes_share(before, own)),
            ..Repetition::default()
        };
        Ok(StreamResult { repetition, acknowledged: written.acknowledged })
    }
}

/// Returns the load with a single stream over the raw protocol, because the bare program supports
/// nothing else.
fn as_single_stream(load: &StreamLoad) -> StreamLoad {
    StreamLoad {
        protocol: StreamProtocol::Raw,
        stream_count: 1,
        outstanding_writes: match load.to_offer() {
            OfferedLoad::Closed { outstanding } => Some(outstanding),
            OfferedLoad::Open { .. } => None,
        },
        ..load.clone()
    }
}
