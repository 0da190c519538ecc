//! Load on byte streams, its results and the resulting row. Shared by a cluster and the bare
//! program that it is compared with.

use std::time::Duration;

use quorate_core::record::Class;
use quorate_testbed::progress;

use crate::{
    environment::Environment,
    load::{LoadPlan, OfferedLoad},
    repetition::Repetition,
    row::{Row, RowSetting},
    stream::{
        AcknowledgementCounts,
        figures::{StreamFigures, StreamSetting, format_rate},
        speech::StreamProtocol,
    },
};

use super::{
    RunTime,
    measure::{REPLY_TIMEOUT, describe_errors, to_nanos},
    readings::FOLLOWERS_ROLE,
};

/// Number of bytes outstanding over all streams, if the rate is unlimited.
const OUTSTANDING_BYTES: u64 = 16 << 20;

/// Maximum number of outstanding writes, regardless of their size.
const OUTSTANDING_MAX: u64 = 1 << 16;

#[derive(Clone, Debug)]
pub struct StreamLoad {
    pub protocol: StreamProtocol,
    pub stream_count: u32,
    pub write_bytes: usize,
    /// Bytes per second over all streams; `None` for unlimited.
    pub bytes_per_second: Option<u64>,
    /// Number of outstanding writes over all streams, if the rate is unlimited; `None` for the
    /// default.
    pub outstanding_writes: Option<u32>,
    /// Set if writes due at the same time share a system call.
    pub gathers_writes: bool,
}

impl StreamLoad {
    /// Converts the load to an offer for the generator.
    pub(super) fn to_offer(&self) -> OfferedLoad {
        let size = (self.write_bytes as u64).max(1);
        match (self.bytes_per_second, self.outstanding_writes) {
            (Some(rate), _) => OfferedLoad::Open { per_second: (rate / size).max(1) },
            (None, Some(outstanding)) => OfferedLoad::Closed { outstanding },
            (None, None) => {
                let least = u64::from(self.stream_count) * 2;
                let writes = (OUTSTANDING_BYTES / size).min(OUTSTANDING_MAX).max(least);
                OfferedLoad::Closed { outstanding: u32::try_from(writes).unwrap_or(u32::MAX) }
            }
        }
    }

    /// Returns the description of the load that a row contains.
    pub(super) fn row_setting(&self) -> StreamSetting {
        StreamSetting {
            protocol: self.protocol,
            write_bytes: self.write_bytes,
            offer: self.to_offer(),
            gathers_writes: self.gathers_writes,
        }
    }

    pub(super) fn plan(&self, time: &RunTime) -> LoadPlan {
        LoadPlan {
            offer: self.to_offer(),
            connections: self.stream_count,
            warmup_ns: to_nanos(time.warmup),
            measure_ns: to_nanos(time.duration),
            reply_timeout_ns: to_nanos(REPLY_TIMEOUT),
        }
    }

    pub(super) fn describe(&self) -> String {
        let load = match self.to_offer() {
            OfferedLoad::Open { .. } => format_rate(self.bytes_per_second.unwrap_or(0)),
            OfferedLoad::Closed { outstanding } => format!("{outstanding} outstanding"),
        };
        let s = if self.stream_count == 1 { "" } else { "s" };
        format!("{} stream{s}, {} B, {load}", self.stream_count, self.write_bytes)
    }
}

/// Result of a repetition of stream writes.
#[derive(Clone, Debug)]
pub(super) struct StreamResult {
    pub(super) repetition: Repetition,
    pub(super) acknowledged: AcknowledgementCounts,
}

impl StreamResult {
    pub(super) fn print_result(&self, head: &str, load: &StreamLoad) {
        let samples = &self.repetition.samples;
        let one = std::slice::from_ref(&self.repetition);
        let figures =
            StreamFigures::new(load.row_setting(), one, std::slice::from_ref(&self.acknowledged));
        progress(&format!(
            "{head}: {:.1} MB/s, batches of {:.0} B, p50 from the call {:.0} µs, p99 {:.0} µs{}",
            figures.bytes_per_s / 1e6,
            figures.acknowledged_bytes,
            figures.from_call_p50_us,
            figures.from_call_p99_us,
            describe_errors(samples)
        ));
    }
}

/// Returns the row about the repetitions in `all`; `None` if there are none.
pub(super) fn make_row(
    setting: &RowSetting,
    environment: &Environment,
    load: &StreamLoad,
    all: Vec<StreamResult>,
    followers: usize,
    pinned: bool,
) -> Option<Row> {
    let (all, acknowledged): (Vec<Repetition>, Vec<AcknowledgementCounts>) =
        all.into_iter().map(|seen| (seen.repetition, seen.acknowledged)).unzip();
    let mut row = Row::from_streams(setting, environment, load.row_setting(), &all, &acknowledged)?;
    let of_role = |role: &str| if role == FOLLOWERS_ROLE { followers } else { 1 };
    if let Some(figures) = &mut row.stream {
        figures.set_cpu(&row.roles, load.write_bytes, of_role);
        figures.pinned = pinned;
    }
    Some(row)
}

pub(super) fn stream_setting(
    scenario: &str,
    load: &StreamLoad,
    durability: Class,
    flush: Duration,
) -> RowSetting {
    RowSetting {
        connections: load.stream_count,
        disk_flush_ms: flush_time_ms(flush),
        ..RowSetting::new(scenario, durability.name(), "streams", load.write_bytes, load.to_offer())
    }
}

pub(super) fn flush_time_ms(flush: Duration) -> f64 {
    flush.as_secs_f64() * 1000.0
}
