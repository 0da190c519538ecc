//! Charts and a table of bare senders and receivers on a segment.

use std::fmt::Write as _;

use super::svg::{Axis, Chart, Scale, Series, escape_xml};
use crate::{lan::figures::SegmentFigures, row::Row};

/// Appends the charts and the table to the page, if any row is about a segment.
pub(super) fn write_segment(rows: &[Row], page: &mut String) {
    let all = rows.iter().filter_map(|row| Some((row, row.segment.as_ref()?)));
    let all: Vec<(&Row, &SegmentFigures)> = all.collect();
    if all.is_empty() {
        return;
    }
    page.push_str("<h2>A segment without nodes</h2><div class=\"charts\">\n");
    for chart in segment_charts(&all) {
        let drawn = chart.render();
        if !drawn.is_empty() {
            let _ = writeln!(page, "<div>{drawn}</div>");
        }
    }
    page.push_str(
        "</div>\n<p>Payload in Mbit/s. CPU of the senders is in seconds per 10⁹ bytes at each \
         receiver.</p><div class=\"wide\"><table><tr><th>what</th><th>load</th><th>queue, KiB</th>\
         <th>sent</th><th>slowest</th><th>mean</th><th>lost</th><th>by the worst</th>\
         <th>sender CPUs</th><th>s/GB</th><th>CPUs busy</th><th>limit</th></tr>\n",
    );
    for (row, figures) in all {
        let class = if row.valid { "" } else { " class=\"bad\"" };
        let busy = figures.cpus_busy.map_or_else(none_cell, |share| share.to_string());
        let queue = figures.queue_kib.map_or_else(none_cell, |kib| kib.to_string());
        let _ = writeln!(
            page,
            "<tr{class}><td>{}</td><td>{}</td><td>{queue}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{busy}</td><td class=\"text\">{}</td></tr>",
            escape_xml(&row.scenario),
            escape_xml(&figures.describe_load()),
            figures.sent_mbit,
            figures.slowest_mbit,
            figures.mean_mbit,
            figures.loss,
            figures.loss_worst,
            figures.sender_cpus,
            figures.sender_s_per_gb,
            escape_xml(&figures.limit)
        );
    }
    page.push_str("</table></div>\n");
}

fn none_cell() -> String {
    "–".to_owned()
}

fn segment_charts(all: &[(&Row, &SegmentFigures)]) -> [Chart; 2] {
    let flat = |figures: &SegmentFigures| {
        let free = figures.load_percent.is_none();
        let name = format!("{}, {} senders", figures.way, figures.senders);
        free.then(|| (name, (f64::from(figures.receivers), figures.slowest_mbit)))
    };
    let loaded = |figures: &SegmentFigures| {
        let kept = figures.queue_kib;
        let kept = kept.map_or_else(String::new, |kib| format!(", queues of {kib} KiB"));
        let (senders, burst) = (figures.senders, figures.burst);
        let name = format!("{}, {senders} senders, by {burst}{kept}", figures.way);
        Some((name, (f64::from(figures.load_percent?), figures.loss * 100.0)))
    };
    let axis = |label| Axis { label, scale: Scale::Linear };
    [
        Chart {
            title: "Throughput against receivers".to_owned(),
            x: axis("receivers"),
            y: axis("payload at the slowest, Mbit/s"),
            series: group_series(all, flat),
        },
        Chart {
            title: "Loss against offered load".to_owned(),
            x: axis("load, percent of the link"),
            y: axis("lost, percent"),
            series: group_series(all, loaded),
        },
    ]
}

/// Groups points with the same name into one line.
fn group_series(
    all: &[(&Row, &SegmentFigures)],
    point: impl Fn(&SegmentFigures) -> Option<(String, (f64, f64))>,
) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for (_, figures) in all.iter().filter(|(row, _)| row.valid) {
        let Some((name, point)) = point(figures) else {
            continue;
        };
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    series
}
