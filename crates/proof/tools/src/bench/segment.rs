//! Formats the results for senders and receivers on a network segment.

use quorate_bench::row::Row;

use super::publish::{cells, optional, percent};
use quorate_cli::output::table;

/// Formats a table with one line per row.
pub(super) fn shown(rows: &[&Row]) -> String {
    let head = [
        "",
        "scenario",
        "way",
        "senders",
        "receivers",
        "queue, KiB",
        "load, % of link",
        "burst",
        "sent, Mbit/s",
        "slowest",
        "mean",
        "lost",
        "by the worst",
        "sender CPUs",
        "s/GB",
        "CPUs busy",
        "foreign",
        "limit",
    ];
    let mut lines = vec![cells(head)];
    for row in rows {
        let Some(figures) = &row.segment else {
            continue;
        };
        let given = |number: Option<u32>| optional(number.map(f64::from));
        lines.push(vec![
            if row.valid { "" } else { "✗" }.to_owned(),
            row.scenario.clone(),
            figures.way.clone(),
            figures.senders.to_string(),
            figures.receivers.to_string(),
            given(figures.queue_kib),
            given(figures.load_percent),
            figures.burst.to_string(),
            figures.sent_mbit.to_string(),
            figures.slowest_mbit.to_string(),
            figures.mean_mbit.to_string(),
            lost(figures.loss),
            lost(figures.loss_worst),
            figures.sender_cpus.to_string(),
            figures.sender_s_per_gb.to_string(),
            percent(figures.cpus_busy),
            percent(row.foreign_cpu),
            figures.limit.clone(),
        ]);
    }
    table(&lines)
}

/// Formats the share of lost datagrams. Small shares are shown precisely, because they matter here.
fn lost(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
