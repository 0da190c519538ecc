//! Measures the bare byte stream program, either under the load of a row or alone for `quorate
//! bench probe --stream`.

use std::{path::PathBuf, time::Duration};

use quorate_core::record::Class;
use quorate_testbed::usage::Machine;

use crate::{
    environment::Environment,
    load::Offer,
    probe::{
        part::Launcher,
        stream::{Bare, StreamShape, UNIT_BYTES},
    },
    problem::Problem,
    repetition::{Repetition, RoleUsage},
    report::Document,
    row::{Row, Setting},
    stream::{generator::Writers, speech::Speech},
};

use super::{
    Time,
    measure::watch,
    pin::Pin,
    program::launcher,
    session::Session,
    stream_load::{Load, StreamResult, row, setting},
};

/// A bare byte-stream program that is restarted for each repetition.
pub(super) struct BareStream {
    launcher: Launcher,
    folder: PathBuf,
    shape: StreamShape,
    pin: Option<Pin>,
}

/// Options of `quorate bench probe --stream`.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Minimum flush time, including that of the disk itself.
    pub disk_flush: Duration,
    /// Set if the writer runs on a dedicated CPU.
    pub pin: bool,
    pub time: Time,
}

/// Sizes of the small writes to the sink, in bytes.
const SMALL_WRITES: [usize; 2] = [14, 100];

impl Probe {
    /// Measures one writer: large writes to this disk, to a simulated disk if requested, and to
    /// memory; then small writes to a sink.
    pub fn run(&self, document: &mut Document) -> Result<(), Problem> {
        let session = Session::new()?;
        let pin = self.pin.then(Pin::new).transpose()?;
        let durable = |flush| StreamShape { durable: true, flush, follower: true };
        let volatile = StreamShape { durable: false, ..durable(Duration::ZERO) };
        let mut all = vec![(durable(Duration::ZERO), UNIT_BYTES)];
        if !self.disk_flush.is_zero() {
            all.push((durable(self.disk_flush), UNIT_BYTES));
        }
        all.push((volatile, UNIT_BYTES));
        all.extend(SMALL_WRITES.map(|bytes| (StreamShape::SINK, bytes)));
        for (shape, write_bytes) in all {
            let load = Load {
                speech: Speech::Raw,
                streams: 1,
                write_bytes,
                rate: None,
                outstanding: None,
                gather: false,
            };
            let row =
                BareStream::new(&session, shape, pin)?.run_alone(&load, &self.time, document)?;
            document.rows.extend(row);
        }
        Ok(())
    }
}

impl BareStream {
    pub(super) fn new(
        session: &Session,
        shape: StreamShape,
        pin: Option<Pin>,
    ) -> Result<Self, Problem> {
        Ok(Self { pin, launcher: launcher()?, folder: session.folder().to_owned(), shape })
    }

    pub(super) const fn system(&self) -> &'static str {
        self.shape.system()
    }

    fn run_alone(
        &self,
        load: &Load,
        time: &Time,
        document: &Document,
    ) -> Result<Option<Row>, Problem> {
        let class = if self.shape.durable { Class::Durable } else { Class::Volatile };
        let setting = setting("probe", load, class, self.shape.flush);
        let mut all = Vec::new();
        for number in 1..=time.repeat {
            let head = format!(
                "{}, {class}, {number} of {}",
                self.system(),
                time.repeat,
                class = setting.durability
            );
            let seen = self.repetition(load, time, &head)?;
            seen.tell(&head, load);
            all.push(seen);
        }
        Ok(self.row(&setting, &document.environment, load, all))
    }

    /// Measures a row about the bare program, where `like` belongs to another system.
    pub(super) fn row(
        &self,
        like: &Setting,
        environment: &Environment,
        load: &Load,
        all: Vec<StreamResult>,
    ) -> Option<Row> {
        let load = merge_streams(load);
        let setting = self.shape.setting(Setting { connections: load.streams, ..like.clone() });
        row(&setting, environment, &load, all, 1, self.pin.is_some())
    }

    /// Measures a repetition of the load, merged into one stream by [`merge_streams`].
    pub(super) fn repetition(
        &self,
        load: &Load,
        time: &Time,
        head: &str,
    ) -> Result<StreamResult, Problem> {
        let load = &merge_streams(load);
        let failed = |error| Problem::io("the bare program", &error);
        let bare = Bare::start(&self.launcher, &self.folder, self.shape).map_err(failed)?;
        let writers = Writers {
            speech: Speech::Raw,
            address: bare.address(),
            write_bytes: load.write_bytes,
            gather: load.gather,
            cpus: self.pin.map(|pin| pin.writer),
            prefix: String::new(),
            keeper: None,
        };
        let running = writers.start(load.plan(time)).map_err(failed)?;
        let Some(started) = running.started() else {
            let error = running.finish().err();
            let error = error.unwrap_or_else(|| std::io::Error::other("it did not begin"));
            return Err(failed(error));
        };
        let from = started + time.warmup;
        watch(&running, from, &format!("{head}: warming up"));
        let look = || (running.completed(), bare.usages(), Machine::now());
        let before = look();
        watch(&running, from + time.duration, head);
        let after = look();
        let written = running.finish().map_err(failed)?;
        let roles = after.1.into_iter().zip(before.1);
        let roles = roles
            .map(|(after, before)| RoleUsage { usage: after.usage.since(before.usage), ..after });
        let roles: Vec<RoleUsage> = roles.collect();
        let own: f64 = roles.iter().map(|role| role.usage.cpu_s()).sum();
        let machine = after.2.zip(before.2);
        let repetition = Repetition {
            counted: after.0 - before.0,
            samples: written.samples,
            roles,
            foreign_cpu: machine.map(|(after, before)| after.foreign_share(before, own)),
            ..Repetition::default()
        };
        Ok(StreamResult { repetition, acknowledged: written.acknowledged })
    }
}

/// Returns the load with a single stream over the raw protocol, because the bare program supports
/// nothing else.
fn merge_streams(load: &Load) -> Load {
    Load {
        speech: Speech::Raw,
        streams: 1,
        outstanding: match load.offer() {
            Offer::Closed { outstanding } => Some(outstanding),
            Offer::Open { .. } => None,
        },
        ..load.clone()
    }
}
