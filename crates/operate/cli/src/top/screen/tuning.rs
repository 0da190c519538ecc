//! View of the settings that the leader has chosen automatically, and the reasons.

use quorate_admin::units::{format_micros, format_rate};

use ratatui::text::Line;

use super::{
    super::cluster::ClusterSnapshot,
    ViewArea,
    paint::plain_line,
    parts::{field_lines, wrap_paragraph},
};

pub(super) fn tuning_lines(now: &ClusterSnapshot<'_>, canvas: ViewArea) -> Vec<Line<'static>> {
    let (cells, paint) = (canvas.width, canvas.paint);
    let mut lines = vec![paint.heading_line("Batching by the leader")];
    match now.tuning {
        None => lines.push(plain_line("Not reported by the leader.")),
        Some(tuning) => {
            let mut say =
                |name: &str, what: &str| lines.extend(field_lines(name, what, cells, paint));
            let held = if tuning.held { ", held by an operator" } else { "" };
            say("in force", &format!("{}{held}", tuning.chosen.format_setting()));
            say("why", &tuning.reason);
            if let Some(measured) = tuning.measured {
                let what = format!(
                    "{} commands/s at {}",
                    format_rate(measured.throughput),
                    format_micros(measured.latency_us)
                );
                say("measured", &what);
            }
            if let Some(predicted) = tuning.predicted_performance(tuning.chosen) {
                say("predicted", &format!("{} commands/s", format_rate(predicted)));
            }
            if let Some(limit) = &tuning.bottleneck {
                say("limit", limit);
            }
        }
    }
    let leading = now.leader_status;
    let ring = leading.map_or(&[][..], |view| &view.ring);
    let ring: Vec<_> = ring.iter().map(u32::to_string).collect();
    let choices = leading.map_or(&[][..], |view| &view.choices);
    if !ring.is_empty() || !choices.is_empty() {
        lines.push(plain_line(""));
        lines.push(paint.heading_line("Other choices"));
        if !ring.is_empty() {
            let ring = format!("votes pass along a ring: {}", ring.join(" → "));
            lines.extend(wrap_paragraph(&ring, cells));
        }
        lines.extend(choices.iter().flat_map(|choice| wrap_paragraph(choice, cells)));
    }
    if let Some(tuning) = now.tuning.filter(|tuning| !tuning.parameters.is_empty()) {
        lines.push(plain_line(""));
        lines.push(paint.heading_line("Estimates"));
        let name = |name: &str| name.replace('_', " ");
        let names = tuning.parameters.iter();
        let widest = names.map(|parameter| parameter.name.chars().count()).max();
        let wide = widest.unwrap_or(0).min(cells / 2);
        lines.extend(tuning.parameters.iter().map(|parameter| {
            let name = super::super::text::pad_to_width(&name(&parameter.name), wide + 2, false);
            plain_line(name + &parameter.format_estimate())
        }));
    }
    lines
}
