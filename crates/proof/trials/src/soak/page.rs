//! Hourly report of faults, load and the nodes' state, as a page to watch during the run.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    cluster::{Cluster, WorkDone},
    sample::{FIGURES, Sample},
};
use crate::shell::Failed;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}\
    .charts{display:flex;flex-wrap:wrap;gap:1em}figure{margin:0}figcaption{font-size:13px;color:#555}\
    .wrong{color:#b00020;white-space:pre-wrap}@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}td,th{border-color:#333}figcaption{color:#aaa}}";
/// Size of a chart, in pixels.
const WIDTH: f64 = 200.0;
const HEIGHT: f64 = 70.0;

/// The page and its history.
pub(super) struct Page {
    path: PathBuf,
    seed: u64,
    time: Duration,
    /// Work done at the end of each hour, per cluster.
    hours: Vec<Vec<WorkDone>>,
}

impl Page {
    /// Creates the page in this folder.
    pub(super) fn new(place: &Path, seed: u64, time: Duration) -> io::Result<Self> {
        let page = Self { path: place.join("index.html"), seed, time, hours: Vec::new() };
        fs::write(&page.path, "the first cycle has not ended\n")?;
        Ok(page)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Rewrites the page and the file of samples.
    pub(super) fn write(
        &mut self,
        elapsed: Duration,
        clusters: &[Cluster],
        failed: Option<&Failed>,
    ) -> io::Result<()> {
        let hours = usize::try_from(elapsed.as_secs() / 3600).unwrap_or(usize::MAX);
        if self.hours.len() < hours {
            let done = clusters.iter().map(|one| one.done).collect();
            self.hours.push(done);
        }
        fs::write(&self.path, self.text(elapsed, clusters, failed))?;
        let samples: Vec<(&str, &[Sample])> =
            clusters.iter().map(|one| (one.kind.name, &one.samples[..])).collect();
        let samples = serde_json::to_string(&samples).map_err(io::Error::other)?;
        fs::write(self.path.with_file_name("samples.json"), samples)
    }

    fn text(&self, elapsed: Duration, clusters: &[Cluster], failed: Option<&Failed>) -> String {
        let mut text = format!(
            "<!doctype html><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Soak</title>\
             <style>{STYLE}</style><h1>Soak</h1><p>{} of {}, seed {}.</p>",
            clock(elapsed),
            clock(self.time),
            self.seed
        );
        text.push_str(match failed {
            Some(_) => "<p class=\"wrong\">Something is wrong:</p>",
            None => "<p>Everything that was acknowledged is on all nodes.</p>",
        });
        if let Some(Failed(why)) = failed {
            let _ = write!(text, "<p class=\"wrong\">{}</p>", escaped(why));
        }
        for (at, cluster) in clusters.iter().enumerate() {
            let hours: Vec<WorkDone> =
                self.hours.iter().filter_map(|all| all.get(at).copied()).collect();
            section(&mut text, cluster, &hours);
        }
        text
    }
}

fn section(text: &mut String, cluster: &Cluster, hours: &[WorkDone]) {
    let _ = write!(text, "<h2>{}</h2>", escaped(cluster.kind.name));
    for grown in cluster.growing_figures() {
        let _ = write!(text, "<p class=\"wrong\">It grew: {}</p>", escaped(&grown));
    }
    text.push_str("<div class=\"charts\">");
    for (name, figure, _) in FIGURES {
        chart(text, name, &cluster.samples.iter().map(figure).collect::<Vec<_>>());
    }
    text.push_str(
        "</div><table><tr><th>hour<th>cycles<th>faults<th>members replaced<th>disks filled<th>clocks jumped<th>programs exchanged\
         <th>keys compared<th>MiB of streams compared",
    );
    let mut before = WorkDone::default();
    for (hour, done) in (1..).zip(hours.iter().chain([&cluster.done])) {
        let _ = write!(
            text,
            "<tr><td>{hour}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            done.cycles - before.cycles,
            done.faults - before.faults,
            done.replaced - before.replaced,
            done.filled - before.filled,
            done.jumped - before.jumped,
            done.exchanged - before.exchanged,
            done.keys - before.keys,
            (done.stream_bytes - before.stream_bytes) >> 20,
        );
        before = *done;
    }
    text.push_str("</table>");
}

/// Appends a chart of a figure, from the first cycle to the last, with an axis from 0.
fn chart(text: &mut String, name: &str, values: &[f64]) {
    let most = values.iter().copied().fold(0.0, f64::max);
    let last = values.last().copied().unwrap_or(0.0);
    let _ = write!(
        text,
        "<figure><svg width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"{name}\">\
         <line x1=\"0\" y1=\"{HEIGHT}\" x2=\"{WIDTH}\" y2=\"{HEIGHT}\" stroke=\"#888\"/>\
         <polyline fill=\"none\" stroke=\"#0072b2\" stroke-width=\"1.5\" points=\""
    );
    #[expect(clippy::cast_precision_loss, reason = "places in a picture")]
    for (at, value) in values.iter().enumerate() {
        let x = WIDTH * at as f64 / (values.len().max(2) - 1) as f64;
        let y = HEIGHT - 1.0 - (HEIGHT - 4.0) * value / most.max(f64::MIN_POSITIVE);
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    let _ = write!(
        text,
        "\"/></svg><figcaption>{name}: {last:.1}, at most {most:.1}</figcaption></figure>"
    );
}

fn clock(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    format!("{}:{:02} h", minutes / 60, minutes % 60)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
