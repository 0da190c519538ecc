//! Report rows in CSV format (RFC 4180).

use crate::{
    lan::figures::SegmentFigures as OfSegment,
    row::Row,
    stream::figures::{NodeCost, StreamFigures},
};

/// Column name, and the function that formats the column of a row.
type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: [Column; 76] = [
    ("scenario", |row| row.scenario.clone()),
    ("system", |row| row.system.clone()),
    ("durability", |row| row.durability.clone()),
    ("store", |row| row.store.clone()),
    ("value_bytes", |row| row.value_bytes.to_string()),
    ("connections", |row| row.connections.to_string()),
    ("outstanding", |row| optional_cell(row.outstanding)),
    ("offered_per_s", |row| optional_cell(row.offered_per_s)),
    ("achieved_per_s", |row| row.achieved_per_s.to_string()),
    ("p50_us", |row| row.p50_us.to_string()),
    ("p95_us", |row| row.p95_us.to_string()),
    ("p99_us", |row| row.p99_us.to_string()),
    ("p999_us", |row| row.p999_us.to_string()),
    ("max_us", |row| row.max_us.to_string()),
    ("cpu_us_per_op", |row| optional_cell(row.cpu_us_per_op)),
    ("errors", |row| row.errors.to_string()),
    ("repeats", |row| row.repeats.to_string()),
    ("foreign_cpu", |row| optional_cell(row.foreign_cpu)),
    ("ceiling", |row| optional_cell(row.ceiling)),
    ("ratio_to_ceiling", |row| optional_cell(row.ratio_to_ceiling)),
    ("valid", |row| row.valid.to_string()),
    ("why_not", |row| row.why_not.join("; ")),
    ("lost", |row| row.lost.to_string()),
    ("late_share", |row| row.late_share.to_string()),
    ("reads_percent", |row| row.reads_percent.to_string()),
    ("disk_flush_ms", |row| row.disk_flush_ms.to_string()),
    ("switches_per_op", |row| optional_cell(row.switches_per_op)),
    ("syscalls_per_op", |row| optional_cell(row.syscalls_per_op)),
    ("writes_per_op", |row| optional_cell(row.writes_per_op)),
    ("flushes_per_op", |row| optional_cell(row.flushes_per_op)),
    ("batch_bytes", |row| optional_cell(row.batch_bytes)),
    ("window", |row| optional_cell(row.window)),
    ("commands_per_batch", |row| optional_cell(row.commands_per_batch)),
    ("peer_bytes_per_op", |row| optional_cell(row.peer_bytes_per_op)),
    ("wan", |row| optional_cell(row.wan.as_ref())),
    ("plane", |row| optional_cell(row.plane.as_ref())),
    ("device", |row| optional_cell(row.device.as_ref().map(|device| &device.name))),
    ("device_slots_share", |row| {
        optional_cell(row.device.as_ref().map(|device| device.slots_share))
    }),
    ("dropped_packets", |row| optional_cell(row.dropped_packets)),
    ("delivered_per_s", |row| optional_cell(row.delivered_per_s)),
    ("achieved_least_per_s", |row| row.achieved_spread.0.to_string()),
    ("achieved_greatest_per_s", |row| row.achieved_spread.1.to_string()),
    ("p99_least_us", |row| row.p99_spread.0.to_string()),
    ("p99_greatest_us", |row| row.p99_spread.1.to_string()),
    ("commit", |row| optional_cell(row.commit.0.as_ref())),
    ("kernel", |row| row.kernel.clone()),
    ("cpus", |row| row.cpus.to_string()),
    ("protocol", |row| stream_cell(row, |figures| Some(figures.protocol.clone()))),
    ("gathered", |row| stream_cell(row, |figures| Some(figures.gathered))),
    ("pinned", |row| stream_cell(row, |figures| Some(figures.pinned))),
    ("target_bytes_per_s", |row| stream_cell(row, |figures| figures.target_bytes_per_s)),
    ("bytes_per_s", |row| stream_cell(row, |figures| Some(figures.bytes_per_s))),
    ("delivered", |row| stream_cell(row, |figures| figures.delivered)),
    ("acknowledged_bytes", |row| stream_cell(row, |figures| Some(figures.acknowledged_bytes))),
    ("from_call_p50_us", |row| stream_cell(row, |figures| Some(figures.from_call_p50_us))),
    ("from_call_p99_us", |row| stream_cell(row, |figures| Some(figures.from_call_p99_us))),
    ("leader_user_s_per_gb", |row| cpu_cell(row, "leader", |cost| cost.user_s_per_gb)),
    ("leader_system_s_per_gb", |row| cpu_cell(row, "leader", |cost| cost.system_s_per_gb)),
    ("follower_user_s_per_gb", |row| cpu_cell(row, "followers", |cost| cost.user_s_per_gb)),
    ("follower_system_s_per_gb", |row| cpu_cell(row, "followers", |cost| cost.system_s_per_gb)),
    ("way", |row| segment_cell(row, |figures| Some(figures.way.clone()))),
    ("senders", |row| segment_cell(row, |figures| Some(figures.senders))),
    ("receivers", |row| segment_cell(row, |figures| Some(figures.receivers))),
    ("load_percent", |row| segment_cell(row, |figures| figures.load_percent)),
    ("burst", |row| segment_cell(row, |figures| Some(figures.burst))),
    ("queue_kib", |row| segment_cell(row, |figures| figures.queue_kib)),
    ("offered_mbit", |row| segment_cell(row, |figures| figures.offered_mbit)),
    ("sent_mbit", |row| segment_cell(row, |figures| Some(figures.sent_mbit))),
    ("slowest_mbit", |row| segment_cell(row, |figures| Some(figures.slowest_mbit))),
    ("mean_mbit", |row| segment_cell(row, |figures| Some(figures.mean_mbit))),
    ("loss", |row| segment_cell(row, |figures| Some(figures.loss))),
    ("loss_worst", |row| segment_cell(row, |figures| Some(figures.loss_worst))),
    ("sender_cpus", |row| segment_cell(row, |figures| Some(figures.sender_cpus))),
    ("sender_s_per_gb", |row| segment_cell(row, |figures| Some(figures.sender_s_per_gb))),
    ("cpus_busy", |row| segment_cell(row, |figures| figures.cpus_busy)),
    ("limit", |row| segment_cell(row, |figures| Some(figures.limit.clone()))),
];

/// Formats a figure that exists only in rows about byte streams.
fn stream_cell<T: ToString>(row: &Row, figure: fn(&StreamFigures) -> Option<T>) -> String {
    optional_cell(row.stream.as_ref().and_then(figure))
}

/// Formats a figure that exists only in rows about bare programs on a segment.
fn segment_cell<T: ToString>(row: &Row, figure: fn(&OfSegment) -> Option<T>) -> String {
    optional_cell(row.segment.as_ref().and_then(figure))
}

/// Formats the CPU time per operation of the nodes in role `role`.
fn cpu_cell(row: &Row, role: &str, figure: fn(&NodeCost) -> f64) -> String {
    let figures = row.stream.as_ref();
    optional_cell(figures.and_then(|figures| figures.cpu_of(role)).map(figure))
}

pub(super) fn render_csv(rows: &[Row]) -> String {
    let mut text = COLUMNS.map(|(name, _)| name).join(",");
    text.push_str("\r\n");
    for row in rows {
        let cells = COLUMNS.map(|(_, cell)| quote_cell(&cell(row)));
        text.push_str(&cells.join(","));
        text.push_str("\r\n");
    }
    text
}

fn optional_cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn quote_cell(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_with_a_comma_or_a_quote_stays_one_cell() {
        assert_eq!(quote_cell("plain"), "plain");
        assert_eq!(quote_cell("a,b"), "\"a,b\"");
        assert_eq!(quote_cell("say \"no\""), "\"say \"\"no\"\"\"");
    }
}
