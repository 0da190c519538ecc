//! `quorate tune --html`: the tuner's report as a self-contained page.

use std::fmt::Write as _;

use quorate_admin::{
    tuning::{PointView, SettingView},
    units::{format_exact_bytes, format_seconds, format_thousands},
};
use quorate_bench::report::escape_xml;

use super::{TuneReport, grid_axes};

const PAGE_STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{padding:.25em .7em;text-align:right;border:1px solid #ddd}\
th{background:#f5f5f5;font-weight:600}td.name,th.name{text-align:left}.chosen{outline:3px solid #c60}";

pub(super) fn render_page(document: &TuneReport) -> String {
    let tuning = &document.tuning;
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>quorate tune</title>\
         <style>{PAGE_STYLE}</style><h1>Node {}</h1><p>{}</p><h2>Measured</h2><table>",
        document.node,
        escape_xml(&tuning.reason)
    );
    for parameter in &tuning.parameters {
        let _ = write!(
            page,
            "<tr><th class=\"name\">{}<td class=\"name\">{}",
            escape_xml(&parameter.name.replace('_', " ")),
            escape_xml(&parameter.format_estimate())
        );
    }
    page.push_str("</table>");
    let rate = |point: &PointView| format_thousands(point.throughput);
    let latency = |point: &PointView| format_seconds(point.latency_us / 1e6);
    let mut table = |title: &str, points: &[PointView], shown: &dyn Fn(&PointView) -> String| {
        let _ = write!(page, "<h2>{title}</h2>");
        render_heat_map(points, tuning.chosen, shown, &mut page);
    };
    table("Predicted: commands per second", &tuning.grid, &rate);
    table("Predicted: latency", &tuning.grid, &latency);
    if let Some(sweep) = &document.sweep {
        table("Measured: commands per second", &sweep.grid_points(), &rate);
        table("Measured: median latency", &sweep.grid_points(), &latency);
        let _ = write!(page, "<p>{}</p>", escape_xml(&sweep.format_summary()));
    }
    page.push_str("</html>\n");
    page
}

/// Renders the grid as a heat map. Darker cells have a higher throughput, and the current setting
/// is framed.
fn render_heat_map(
    points: &[PointView],
    chosen: SettingView,
    shown: &dyn Fn(&PointView) -> String,
    page: &mut String,
) {
    if points.is_empty() {
        page.push_str("<p>Not enough measurements yet: put some load on the cluster.</p>");
        return;
    }
    let (batches, windows) = grid_axes(points);
    let most = points.iter().map(|point| point.throughput).fold(1.0, f64::max);
    page.push_str("<table><tr><th class=\"name\">batch \\ window");
    for window in &windows {
        let _ = write!(page, "<th>{window}");
    }
    for batch_bytes in batches {
        let _ = write!(page, "<tr><th class=\"name\">{}", format_exact_bytes(batch_bytes));
        for &window in &windows {
            let setting = SettingView { batch_bytes, window };
            let Some(point) = points.iter().find(|point| point.setting() == setting) else {
                page.push_str("<td>");
                continue;
            };
            let lightness = 100.0 - 45.0 * point.throughput / most;
            let class = if setting == chosen { " class=\"chosen\"" } else { "" };
            let _ = write!(
                page,
                "<td{class} style=\"background:hsl(205 70% {lightness:.0}%)\">{}",
                escape_xml(&shown(point))
            );
        }
    }
    page.push_str("</table>");
}
