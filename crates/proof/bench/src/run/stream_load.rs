//! Load on byte streams, its results and the resulting row. Shared by a cluster and the bare
//! program that it is compared with.

use std::time::Duration;

use quorate_core::record::Class;
use quorate_testbed::progress;

use crate::{
    environment::Environment,
    load::{Offer, Plan},
    repetition::Repetition,
    row::{Row, Setting},
    stream::{
        Acknowledged,
        figures::{Figures, StreamSetting, shown_rate},
        speech::Speech,
    },
};

use super::{
    Time,
    measure::{PATIENCE, nanos, trouble},
    readings::FOLLOWERS,
};

/// Number of bytes outstanding over all streams, if the rate is unlimited.
const OUTSTANDING_BYTES: u64 = 16 << 20;

/// Maximum number of outstanding writes, regardless of their size.
const OUTSTANDING_MAX: u64 = 1 << 16;

#[derive(Clone, Debug)]
pub struct Load {
    pub speech: Speech,
    pub streams: u32,
    pub write_bytes: usize,
    /// Bytes per second over all streams; `None` for unlimited.
    pub rate: Option<u64>,
    /// Number of outstanding writes over all streams, if the rate is unlimited; `None` for the
    /// default.
    pub outstanding: Option<u32>,
    /// Set if writes due at the same time share a system call.
    pub gather: bool,
}

impl Load {
    /// Converts the load to an offer for the generator.
    pub(super) fn offer(&self) -> Offer {
        let size = (self.write_bytes as u64).max(1);
        match (self.rate, self.outstanding) {
            (Some(rate), _) => Offer::Open { per_second: (rate / size).max(1) },
            (None, Some(outstanding)) => Offer::Closed { outstanding },
            (None, None) => {
                let least = u64::from(self.streams) * 2;
                let writes = (OUTSTANDING_BYTES / size).min(OUTSTANDING_MAX).max(least);
                Offer::Closed { outstanding: u32::try_from(writes).unwrap_or(u32::MAX) }
            }
        }
    }

    /// Returns the description of the load that a row contains.
    pub(super) fn asked(&self) -> StreamSetting {
        StreamSetting {
            speech: self.speech,
            write_bytes: self.write_bytes,
            offer: self.offer(),
            gather: self.gather,
        }
    }

    pub(super) fn plan(&self, time: &Time) -> Plan {
        Plan {
            offer: self.offer(),
            connections: self.streams,
            warmup: nanos(time.warmup),
            measure: nanos(time.duration),
            reply_timeout: nanos(PATIENCE),
        }
    }

    pub(super) fn shown(&self) -> String {
        let load = match self.offer() {
            Offer::Open { .. } => shown_rate(self.rate.unwrap_or(0)),
            Offer::Closed { outstanding } => format!("{outstanding} outstanding"),
        };
        let s = if self.streams == 1 { "" } else { "s" };
        format!("{} stream{s}, {} B, {load}", self.streams, self.write_bytes)
    }
}

/// Result of a repetition of stream writes.
#[derive(Clone, Debug)]
pub(super) struct StreamResult {
    pub(super) repetition: Repetition,
    pub(super) acknowledged: Acknowledged,
}

impl StreamResult {
    pub(super) fn tell(&self, head: &str, load: &Load) {
        let samples = &self.repetition.samples;
        let one = std::slice::from_ref(&self.repetition);
        let figures = Figures::new(load.asked(), one, std::slice::from_ref(&self.acknowledged));
        progress(&format!(
            "{head}: {:.1} MB/s, batches of {:.0} B, p50 from the call {:.0} µs, p99 {:.0} µs{}",
            figures.bytes_per_s / 1e6,
            figures.acknowledged_bytes,
            figures.from_call_p50_us,
            figures.from_call_p99_us,
            trouble(samples)
        ));
    }
}

/// Returns the row about the repetitions in `all`; `None` if there are none.
pub(super) fn row(
    setting: &Setting,
    environment: &Environment,
    load: &Load,
    all: Vec<StreamResult>,
    followers: usize,
    pinned: bool,
) -> Option<Row> {
    let (all, acknowledged): (Vec<Repetition>, Vec<Acknowledged>) =
        all.into_iter().map(|seen| (seen.repetition, seen.acknowledged)).unzip();
    let mut row = Row::of_streams(setting, environment, load.asked(), &all, &acknowledged)?;
    let of_role = |role: &str| if role == FOLLOWERS { followers } else { 1 };
    if let Some(figures) = &mut row.stream {
        figures.set_cpu(&row.roles, load.write_bytes, of_role);
        figures.pinned = pinned;
    }
    Some(row)
}

pub(super) fn setting(scenario: &str, load: &Load, durability: Class, flush: Duration) -> Setting {
    Setting {
        connections: load.streams,
        disk_flush_ms: flush_ms(flush),
        ..Setting::new(scenario, durability.name(), "streams", load.write_bytes, load.offer())
    }
}

pub(super) fn flush_ms(flush: Duration) -> f64 {
    flush.as_secs_f64() * 1000.0
}
