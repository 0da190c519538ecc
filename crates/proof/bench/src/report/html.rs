//! Rows as a self-contained HTML page, without external scripts, fonts or images.

use std::fmt::Write as _;

use super::{
    BenchReport,
    compared::{ModelComparison, PublishedComparison},
    segment,
    svg::{Axis, Chart, Scale, Series, escape_xml},
};
use crate::{probe::commit::SYSTEM_NAME as BARE, row::Row};

const PAGE_STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:1180px;margin:24px auto;\
padding:0 16px;color:#111;background:#fff}h1{font-size:22px}h2{font-size:17px;margin-top:32px}\
table{border-collapse:collapse;font-size:13px}td,th{padding:3px 8px;border-bottom:1px solid #ddd;\
text-align:right;white-space:nowrap}td:first-child,th:first-child,td.text{text-align:left}\
.wide{overflow-x:auto}tr.bad{color:#999;text-decoration:line-through}td.why{color:#a00;\
text-decoration:none;text-align:left;white-space:normal}.charts{display:flex;flex-wrap:wrap;gap:24px}\
.charts>div{flex:1 1 480px;max-width:580px}svg{width:100%;height:auto}.grid{stroke:#e4e4e4}\
.tick{font-size:11px;fill:#555}.label{font-size:12px;fill:#333}.title{font-size:14px;font-weight:600}\
.legend{list-style:none;padding:0;margin:0;font-size:12px;display:flex;flex-wrap:wrap;gap:4px 14px}\
.legend i{display:inline-block;width:10px;height:10px;margin-right:5px}code{background:#f3f3f3;\
padding:1px 4px}";

pub(super) fn render_page(document: &BenchReport) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>quorate bench</title><style>{PAGE_STYLE}</style></head><body>\n<h1>quorate bench</h1>\n"
    );
    write_head(document, &mut page);
    write_charts(document, &mut page);
    write_rows(document, &mut page);
    write_streams(document, &mut page);
    segment::write_segment(&document.rows, &mut page);
    write_roles(document, &mut page);
    write_published(&document.published, &mut page);
    write_predictions(&document.predictions, &mut page);
    write_ceilings(document, &mut page);
    page.push_str("</body></html>\n");
    page
}

fn write_head(document: &BenchReport, page: &mut String) {
    let environment = &document.environment;
    let _ = writeln!(
        page,
        "<p><code>{}</code></p>\n<p>commit {} · {} · {} CPUs, {} · Unix time {}</p>",
        escape_xml(&document.command),
        escape_xml(&environment.commit.to_string()),
        escape_xml(&environment.kernel),
        environment.cpus,
        escape_xml(&environment.cpu_model),
        document.unix_time
    );
    if !document.notes.is_empty() {
        page.push_str("<ul>");
        for note in &document.notes {
            let _ = write!(page, "<li>{}</li>", escape_xml(note));
        }
        page.push_str("</ul>\n");
    }
}

/// Returns the properties that the rows of one chart line have in common.
fn line_family(row: &Row) -> String {
    let modelled = if row.disk_flush_ms > 0.0 {
        format!(", flush {} ms", row.disk_flush_ms)
    } else {
        String::new()
    };
    let mut family = format!(
        "{} {}, {}, {} B, {}{modelled}",
        row.system, row.scenario, row.durability, row.value_bytes, row.store
    );
    // Rows about bare programs on a segment name these in their load.
    let ways = [&row.wan, &row.plane].into_iter().flatten();
    for way in ways.filter(|_| row.segment.is_none()) {
        family.push_str(&format!(", {way}"));
    }
    family
}

/// Returns the lines of all valid rows, in the order in which their families appear.
fn chart_lines<'a>(
    rows: impl Iterator<Item = &'a Row>,
    suffix: &str,
    point: impl Fn(&Row) -> Option<(f64, f64)>,
) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows.filter(|row| row.valid) {
        let Some(point) = point(row) else { continue };
        let name = format!("{}{suffix}", line_family(row));
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    for series in &mut series {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    series
}

const fn per_command_axis(label: &'static str, scale: Scale) -> Axis {
    Axis { label, scale }
}

/// Returns the rows for the charts. Bare programs appear only in the chart against clients, unless
/// nothing else was measured, because they would squeeze all other lines into a corner.
fn charted_rows<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let systems = rows.iter().copied().filter(|row| row.system != BARE);
    let systems: Vec<&Row> = systems.collect();
    if systems.is_empty() { rows.to_vec() } else { systems }
}

fn write_charts(document: &BenchReport, page: &mut String) {
    // Rows with a fixed batch and window have a separate chart.
    let free: Vec<&Row> =
        document.rows.iter().filter(|row| row.window.is_none() && row.has_latency()).collect();
    let ours = charted_rows(&free);
    let all = || ours.iter().copied();
    let open = || all().filter(|row| row.offered_per_s.is_some());
    let clients = |row: &Row| row.outstanding.map(f64::from);
    let closed = || all().filter(|row| row.outstanding.is_some());
    // A closed loop and a fixed rate are different loads, so one line through both would be
    // meaningless.
    let mut against = Vec::new();
    for (loops, suffix) in [(closed().collect::<Vec<_>>(), ""), (open().collect(), ", fixed rate")]
    {
        let rows = || loops.iter().copied();
        let median = |row: &Row| Some((row.achieved_per_s, row.p50_us));
        let p99 = |row: &Row| Some((row.achieved_per_s, row.p99_us));
        against.extend(chart_lines(rows(), &format!("{suffix}, median"), median));
        against.extend(chart_lines(rows(), &format!("{suffix}, p99"), p99));
    }
    let mut waiting = chart_lines(all(), ", median", |row| Some((clients(row)?, row.p50_us)));
    waiting.extend(chart_lines(all(), ", p95", |row| Some((clients(row)?, row.p95_us))));
    let has_distribution = |row: &Row| row.valid && !row.cdf.is_empty();
    let fixed_rates = open().any(has_distribution);
    let distributions = all()
        .filter(|row| has_distribution(row) && (!fixed_rates || row.offered_per_s.is_some()))
        .take(8)
        .map(|row| Series {
            name: format!("{}, {}", line_family(row), row.describe_load()),
            points: row.cdf.iter().map(|(share, us)| (*us, *share)).collect(),
        });
    let charts = [
        rate_chart(&document.rows),
        batch_chart(&document.rows),
        Chart {
            title: "Latency against throughput".to_owned(),
            x: per_command_axis("commands per second", Scale::Linear),
            y: per_command_axis("latency, µs", Scale::Log),
            series: against,
        },
        Chart {
            title: "Distribution of the latency".to_owned(),
            x: per_command_axis("latency, µs", Scale::Log),
            y: per_command_axis("share of commands", Scale::Linear),
            series: distributions.collect(),
        },
        Chart {
            title: "Throughput against clients".to_owned(),
            x: per_command_axis("commands in flight", Scale::Log),
            y: per_command_axis("commands per second", Scale::Log),
            series: chart_lines(free.iter().copied(), "", |row| {
                Some((clients(row)?, row.achieved_per_s))
            }),
        },
        Chart {
            title: "Latency against clients".to_owned(),
            x: per_command_axis("commands in flight", Scale::Log),
            y: per_command_axis("latency, µs", Scale::Log),
            series: waiting,
        },
    ];
    page.push_str("<div class=\"charts\">\n");
    for chart in charts {
        let drawn = chart.render();
        if !drawn.is_empty() {
            let _ = writeln!(page, "<div>{drawn}</div>");
        }
    }
    page.push_str("</div>\n");
}

/// Returns the chart of rows with a fixed batch and window, with one line per window.
fn batch_chart(rows: &[Row]) -> Chart {
    let mut windows: Vec<u32> = rows.iter().filter_map(|row| row.window).collect();
    windows.sort_unstable();
    windows.dedup();
    #[expect(clippy::cast_precision_loss, reason = "a size")]
    let point = |row: &Row| Some((row.batch_bytes? as f64, row.achieved_per_s));
    let of = |window: &u32| {
        let rows = rows.iter().filter(|row| row.window == Some(*window));
        chart_lines(rows, &format!(", window {window}"), point)
    };
    Chart {
        title: "Throughput against batch size".to_owned(),
        x: per_command_axis("bytes of values in a batch", Scale::Log),
        y: per_command_axis("commands per second", Scale::Log),
        series: windows.iter().flat_map(of).collect(),
    }
}

/// Returns the chart of rate over time, for rows with an intervention in the system.
fn rate_chart(rows: &[Row]) -> Chart {
    let disturbed = rows.iter().filter_map(|row| Some((row, row.event_s?)));
    let series = disturbed.map(|(row, event_s)| {
        let at = |(bar, count): (u32, &u32)| (f64::from(bar) / 10.0, f64::from(*count) * 10.0);
        Series {
            name: format!("{} after {event_s} s", row.scenario),
            points: (0..).zip(&row.over_time).map(at).collect(),
        }
    });
    Chart {
        title: "Throughput over time".to_owned(),
        x: per_command_axis("seconds", Scale::Linear),
        y: per_command_axis("commands per second", Scale::Linear),
        series: series.collect(),
    }
}

fn write_rows(document: &BenchReport, page: &mut String) {
    if document.rows.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Rows</h2><p>Medians of the repetitions, with their range. A row in grey is no result.\
         </p><div class=\"wide\"><table><tr><th>what</th><th>load</th><th>conns</th>\
         <th>achieved/s</th><th>range</th><th>p50 µs</th><th>p95</th><th>p99</th><th>range</th><th>p99.9</th>\
         <th>max</th><th>CPU µs/op</th><th>switches/op</th><th>syscalls/op</th><th>writes/op</th>\
         <th>flushes/op</th><th>sent late</th><th>foreign CPU</th><th>ceiling/s</th><th>of it</th><th></th></tr>\n",
    );
    for row in &document.rows {
        let class = if row.valid { "" } else { " class=\"bad\"" };
        let _ = writeln!(
            page,
            "<tr{class}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"why\">{}</td></tr>",
            escape_xml(&line_family(row)),
            row.describe_load(),
            row.connections,
            row.achieved_per_s,
            row.achieved_spread,
            row.p50_us,
            row.p95_us,
            row.p99_us,
            row.p99_spread,
            row.p999_us,
            row.max_us,
            format_optional(row.cpu_us_per_op),
            format_optional(row.switches_per_op),
            format_optional(row.syscalls_per_op),
            format_optional(row.writes_per_op),
            format_optional(row.flushes_per_op),
            format_late_share(row),
            format_percent(row.foreign_cpu),
            format_optional(row.ceiling),
            format_percent(row.ratio_to_ceiling),
            escape_xml(&row.why_not.join("; "))
        );
    }
    page.push_str("</table></div>\n");
}

/// Appends the table of byte streams.
fn write_streams(document: &BenchReport, page: &mut String) {
    if document.rows.iter().all(|row| row.stream.is_none()) {
        return;
    }
    page.push_str(
        "<h2>Byte streams</h2><p>A write is one system call. CPU is that of one node of a role, user + \
         kernel, in seconds per 10⁹ bytes.</p><div class=\"wide\"><table><tr><th>what</th><th>load</th>\
         <th>protocol</th><th>MB/s</th><th>delivered</th><th>batch, B</th><th>p50 from the call, µs</th>\
         <th>p99</th><th>CPU s/GB</th></tr>\n",
    );
    for row in &document.rows {
        let Some(figures) = &row.stream else { continue };
        let class = if row.valid { "" } else { " class=\"bad\"" };
        let _ = writeln!(
            page,
            "<tr{class}><td>{}</td><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>",
            escape_xml(&line_family(row)),
            row.describe_load(),
            escape_xml(&figures.protocol),
            crate::figure::round_to_four_digits(figures.bytes_per_s / 1e6),
            format_optional(figures.delivered),
            figures.acknowledged_bytes,
            figures.from_call_p50_us,
            figures.from_call_p99_us,
            escape_xml(&figures.describe_cpu())
        );
    }
    page.push_str("</table></div>\n");
}

fn write_roles(document: &BenchReport, page: &mut String) {
    if document.rows.iter().all(|row| row.roles.is_empty()) {
        return;
    }
    page.push_str(
        "<h2>Cost per role</h2><div class=\"wide\"><table><tr><th>what</th><th>load</th>\
         <th>role</th><th>user µs/op</th><th>kernel µs/op</th><th>CPUs busy</th>\
         <th>switches/op</th><th>switches/s</th></tr>\n",
    );
    for row in document.rows.iter().filter(|row| row.valid) {
        for role in &row.roles {
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td><td>{}</td></tr>",
                escape_xml(&line_family(row)),
                row.describe_load(),
                escape_xml(&role.role),
                role.user_us_per_op,
                role.system_us_per_op,
                role.cpus_busy,
                role.switches_per_op,
                role.switches_per_s
            );
        }
    }
    page.push_str("</table></div>\n");
}

fn write_published(published: &[PublishedComparison], page: &mut String) {
    if published.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Published, and ours</h2><p>Other machines, other networks: compare shapes, not \
         figures. ≈ is approximate in the source, or read off a plot.</p><div class=\"wide\"><table>\
         <tr><th>source</th><th>what</th><th>published</th><th>ours</th><th>ours ÷ published</th>\
         </tr>\n",
    );
    for one in published {
        let ratio = one.ours.map(|ours| ours / one.published);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"text\">{}</td><td>{}{} {}</td><td>{}</td><td>{}</td></tr>",
            escape_xml(&one.source),
            escape_xml(&one.what),
            if one.approximate { "≈ " } else { "" },
            one.published,
            escape_xml(&one.unit),
            format_optional(one.ours),
            format_optional(ratio.map(crate::figure::round_to_four_digits))
        );
    }
    page.push_str("</table></div>\n");
}

fn write_predictions(predictions: &[ModelComparison], page: &mut String) {
    if predictions.is_empty() {
        return;
    }
    page.push_str(
        "<h2>A model with our parameters, and our measurement</h2><p>Greatest throughput over \
         all windows that were tried; the notes above tell the parameters.</p><div class=\"wide\">\
         <table><tr><th>what</th><th>model/s</th><th>measured/s</th><th>error</th>\
         <th>w of the processor</th><th>w of the link</th></tr>\n",
    );
    for one in predictions {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:+.1} %</td><td>{}</td><td>{}</td></tr>",
            escape_xml(&one.what),
            one.predicted,
            one.measured,
            one.error * 100.0,
            one.window_cpu,
            one.window_net
        );
    }
    page.push_str("</table></div>\n");
}

fn write_ceilings(document: &BenchReport, page: &mut String) {
    if document.ceilings.is_empty() {
        return;
    }
    page.push_str(
        "<h2>What the machine can do</h2><p>Bare programs without any protocol.</p>\
         <div class=\"wide\"><table><tr><th>what</th><th>figure</th><th>p50 µs</th><th>p99 µs</th>\
         <th>CPU µs/op</th></tr>\n",
    );
    for ceiling in &document.ceilings {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{} {}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape_xml(&ceiling.name),
            ceiling.value,
            escape_xml(&ceiling.unit),
            format_optional(ceiling.p50_us),
            format_optional(ceiling.p99_us),
            format_optional(ceiling.cpu_us_per_op)
        );
    }
    page.push_str("</table></div>\n");
}

fn format_optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// Formats the share of late commands with two more digits than other shares, because 1 % makes a
/// row invalid.
fn format_late_share(row: &Row) -> String {
    let share = row.late_share_if_open();
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.2} %", share * 100.0))
}

fn format_percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{:.0} %", value * 100.0))
}
