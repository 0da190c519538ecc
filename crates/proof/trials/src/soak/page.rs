//! Hourly report of faults, load and the nodes' state, as a page to watch during the run.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    cluster::{SoakCluster, WorkDone},
    sample::{FIGURES, Sample},
};
use crate::shell::Failed;

const PAGE_STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}\
    .charts{display:flex;flex-wrap:wrap;gap:1em}figure{margin:0}figcaption{font-size:13px;color:#555}\
    .wrong{color:#b00020;white-space:pre-wrap}@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}td,th{border-color:#333}figcaption{color:#aaa}}";
/// Size of a chart, in pixels.
const CHART_WIDTH: f64 = 200.0;
const CHART_HEIGHT: f64 = 70.0;

/// The page and its history.
pub(super) struct SoakPage {
    path: PathBuf,
    seed: u64,
    total_duration: Duration,
    /// Work done at the end of each hour, per cluster.
    work_by_hour: Vec<Vec<WorkDone>>,
}

impl SoakPage {
    /// Creates the page in this folder.
    pub(super) fn new(place: &Path, seed: u64, time: Duration) -> io::Result<Self> {
        let page = Self {
            path: place.join("index.html"),
            seed,
            total_duration: time,
            work_by_hour: Vec::new(),
        };
        fs::write(&page.path, "the first cycle has not ended\n")?;
        Ok(page)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Rewrites the page and the file of samples.
    pub(super) fn write_page(
        &mut self,
        elapsed: Duration,
        clusters: &[SoakCluster],
        failed: Option<&Failed>,
    ) -> io::Result<()> {
        let hours = usize::try_from(elapsed.as_secs() / 3600).unwrap_or(usize::MAX);
        if self.work_by_hour.len() < hours {
            let done = clusters.iter().map(|one| one.work_done).collect();
            self.work_by_hour.push(done);
        }
        fs::write(&self.path, self.text(elapsed, clusters, failed))?;
        let samples: Vec<(&str, &[Sample])> =
            clusters.iter().map(|one| (one.kind.name, &one.samples[..])).collect();
        let samples = serde_json::to_string(&samples).map_err(io::Error::other)?;
        fs::write(self.path.with_file_name("samples.json"), samples)
    }

    fn text(&self, elapsed: Duration, clusters: &[SoakCluster], failed: Option<&Failed>) -> String {
        let mut text = format!(
            "<!doctype html><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Soak</title>\
             <style>{PAGE_STYLE}</style><h1>Soak</h1><p>{} of {}, seed {}.</p>",
            format_duration(elapsed),
            format_duration(self.total_duration),
            self.seed
        );
        text.push_str(match failed {
            Some(_) => "<p class=\"wrong\">Something is wrong:</p>",
            None => "<p>Everything that was acknowledged is on all nodes.</p>",
        });
        if let Some(Failed(why)) = failed {
            let _ = write!(text, "<p class=\"wrong\">{}</p>", escape_html(why));
        }
        for (at, cluster) in clusters.iter().enumerate() {
            let hours: Vec<WorkDone> =
                self.work_by_hour.iter().filter_map(|all| all.get(at).copied()).collect();
            append_section(&mut text, cluster, &hours);
        }
        text
    }
}

fn append_section(text: &mut String, cluster: &SoakCluster, hours: &[WorkDone]) {
    let _ = write!(text, "<h2>{}</h2>", escape_html(cluster.kind.name));
    for grown in cluster.growing_figures() {
        let _ = write!(text, "<p class=\"wrong\">It grew: {}</p>", escape_html(&grown));
    }
    text.push_str("<div class=\"charts\">");
    for (name, figure, _) in FIGURES {
        append_chart(text, name, &cluster.samples.iter().map(figure).collect::<Vec<_>>());
    }
    text.push_str(
        "</div><table><tr><th>hour<th>cycles<th>faults<th>members replaced<th>disks filled<th>clocks jumped<th>programs exchanged\
         <th>keys compared<th>MiB of streams compared",
    );
    let mut before = WorkDone::default();
    for (hour, done) in (1..).zip(hours.iter().chain([&cluster.work_done])) {
        let _ = write!(
            text,
            "<tr><td>{hour}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            done.cycles - before.cycles,
            done.faults - before.faults,
            done.members_replaced - before.members_replaced,
            done.disks_filled - before.disks_filled,
            done.clock_jumps - before.clock_jumps,
            done.programs_exchanged - before.programs_exchanged,
            done.keys_compared - before.keys_compared,
            (done.stream_bytes_compared - before.stream_bytes_compared) >> 20,
        );
        before = *done;
    }
    text.push_str("</table>");
}

/// Appends a chart of a figure, from the first cycle to the last, with an axis from 0.
fn append_chart(text: &mut String, name: &str, values: &[f64]) {
    let most = values.iter().copied().fold(0.0, f64::max);
    let last = values.last().copied().unwrap_or(0.0);
    let _ = write!(
        text,
        "<figure><svg width=\"{CHART_WIDTH}\" height=\"{CHART_HEIGHT}\" role=\"img\" aria-label=\"{name}\">\
         <line x1=\"0\" y1=\"{CHART_HEIGHT}\" x2=\"{CHART_WIDTH}\" y2=\"{CHART_HEIGHT}\" stroke=\"#888\"/>\
         <polyline fill=\"none\" stroke=\"#0072b2\" stroke-width=\"1.5\" points=\""
    );
    #[expect(clippy::cast_precision_loss, reason = "places in a picture")]
    for (at, value) in values.iter().enumerate() {
        let x = CHART_WIDTH * at as f64 / (values.len().max(2) - 1) as f64;
        let y = CHART_HEIGHT - 1.0 - (CHART_HEIGHT - 4.0) * value / most.max(f64::MIN_POSITIVE);
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    let _ = write!(
        text,
        "\"/></svg><figcaption>{name}: {last:.1}, at most {most:.1}</figcaption></figure>"
    );
}

fn format_duration(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    format!("{}:{:02} h", minutes / 60, minutes % 60)
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
