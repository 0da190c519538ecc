//! `quorate tune`: shows how a cluster batches its commands, with the reasons.

mod page;

use std::{
    fs,
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
};

use clap::Args;
use quorate_admin::{
    look::query_cluster,
    tuning::{PointView, SettingView, TuningView},
    units::{format_exact_bytes, format_seconds, format_thousands},
    view::{Answer, ClusterView, NodeView},
};
use quorate_bench::run::sweep::{self, Sweep, SweepView};
use serde::Serialize;

use quorate_cli::values::{Number, Unit, node_argument};
use quorate_cli::{
    DEFAULT_ADMIN, address_argument,
    output::{Exit, Output, Problem, format_table, progress},
    signals,
};

/// Arguments of `quorate tune`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TuneArgs {
    /// Admin address of any node
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR", value_delimiter = ',', default_value = DEFAULT_ADMIN, value_parser = address_argument)]
    admin: Vec<String>,
    /// Node to look at [default: the leader]
    #[arg(long, env = "QUORATE_NODE", value_name = "NODE", value_parser = node_argument)]
    node: Option<u32>,
    /// Measure batch sizes and windows one by one under generated load. For test clusters: it
    /// writes keys (key:0000000000 …) and slows down all other clients
    #[arg(long)]
    sweep: bool,
    /// Sweep even if clients are connected
    #[arg(long)]
    yes: bool,
    /// With --sweep: commands in flight at any time
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = Number::between(1, 65_536, Unit::Count).argument::<u32>())]
    outstanding: u32,
    /// With --sweep: number of connections
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = Number::between(1, 1024, Unit::Count).argument::<u32>())]
    connections: u32,
    /// With --sweep: size of a value
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = Number::between(1, 1_048_576, Unit::Bytes).argument::<u32>())]
    value_size: u32,
    /// With --sweep: milliseconds per measurement
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = Number::between(50, 60_000, Unit::Milliseconds).argument::<u64>())]
    point_ms: u64,
    /// Write the result as an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Result of `quorate tune`.
#[derive(Clone, Debug, Serialize)]
struct TuneReport {
    node: u32,
    #[serde(flatten)]
    tuning: TuningView,
    /// Choices for the paths of frames to several nodes and of votes, with the reasons.
    choices: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<SweepView>,
}

pub(crate) fn run(args: &TuneArgs, output: Output) -> Result<Exit, Problem> {
    let cluster = query_cluster(&args.admin)?;
    let node = choose_node(&cluster, args.node)?;
    let admin = admin_address(&cluster, node, &args.admin)?;
    let sweep = if args.sweep {
        let view = find_view(&cluster, node)?;
        let sweep = Sweep::new(args.sweep_load(), &admin, view)?;
        ask_consent(sweep::client_count(&cluster)?, sweep.estimated_seconds(), args.yes)?;
        let admin = admin.clone();
        signals::end_at_first_signal(move || {
            let _ = sweep::release_setting(&admin);
        })?;
        Some(sweep.run()?)
    } else {
        None
    };
    let document = TuneReport {
        node,
        tuning: sweep::fetch_tuning(&admin)?,
        choices: find_view(&cluster, node)?.choices.clone(),
        sweep,
    };
    if let Some(file) = &args.html {
        let page = page::render_page(&document);
        fs::write(file, page).map_err(|error| Problem::io_error(file.display(), &error))?;
        progress(&format!("wrote {}", file.display()));
    }
    output.print_result(&document, || format_report(&document));
    Ok(Exit::Done)
}

fn choose_node(cluster: &ClusterView, wanted: Option<u32>) -> Result<u32, Problem> {
    wanted.or(cluster.leader).ok_or_else(|| {
        let what = "no leader with a quorum is known";
        Problem::new(Exit::Unreachable, "no_leader", what)
            .with_hint("give a node with --node; 'quorate status' shows which nodes are missing")
    })
}

fn find_view(cluster: &ClusterView, node: u32) -> Result<&NodeView, Problem> {
    let mut views = cluster.nodes.iter().filter_map(Answer::node_view);
    views.find(|view| view.node == node).ok_or_else(|| {
        let what = format_args!("node {node} does not answer");
        Problem::new(Exit::Unreachable, "unreachable", what)
            .with_hint("give its address with --admin; 'quorate status' shows its state")
    })
}

/// Returns the admin address of a node. If the node does not report it, returns the given address,
/// provided that a single address was given and a single node is known.
fn admin_address(cluster: &ClusterView, node: u32, given: &[String]) -> Result<String, Problem> {
    let view = find_view(cluster, node)?;
    let own = view.members.iter().find(|member| member.node == node);
    let known = own.and_then(|member| member.admin.clone());
    known
        .or_else(|| match given {
            [only] if cluster.nodes.len() == 1 => Some(only.clone()),
            _ => None,
        })
        .ok_or_else(|| {
            let what = format_args!("the admin address of node {node} is not known");
            Problem::new(Exit::Unreachable, "unreachable", what).with_hint("give it with --admin")
        })
}

impl TuneArgs {
    const fn sweep_load(&self) -> sweep::SweepLoad {
        sweep::SweepLoad {
            outstanding: self.outstanding,
            connections: self.connections,
            value_bytes: self.value_size,
            point_duration_ms: self.point_ms,
        }
    }
}

/// Asks for confirmation if clients are connected, because a sweep slows them down.
fn ask_consent(clients: u64, seconds: u64, yes: bool) -> Result<(), Problem> {
    let what =
        format!("{clients} clients are connected; a sweep loads the cluster for about {seconds} s");
    if clients == 0 || yes {
        return Ok(());
    }
    let refused = || {
        Problem::new(Exit::Failed, "clients_connected", &what)
            .with_hint("use --yes to sweep anyway")
    };
    if !io::stdin().is_terminal() {
        return Err(refused());
    }
    progress(&format!("{what}. Continue? [y/N]"));
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    let yes = read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes");
    yes.then_some(()).ok_or_else(refused)
}

fn format_report(document: &TuneReport) -> String {
    let tuning = &document.tuning;
    let mut text = format!("node {}: {}\n", document.node, tuning.reason);
    if let Some(measured) = tuning.measured {
        text.push_str(&format!(
            "measured: {}/s, {} from acceptance to reply\n",
            format_thousands(measured.throughput),
            format_seconds(measured.latency_us / 1e6)
        ));
    }
    for choice in &document.choices {
        text.push_str(&format!("{choice}\n"));
    }
    text.push('\n');
    let parameters = tuning.parameters.iter();
    let rows: Vec<_> = parameters
        .map(|parameter| vec![parameter.name.replace('_', " "), parameter.format_estimate()])
        .collect();
    text.push_str(&format_table(&rows));
    text.push_str("\npredicted, commands per second:\n");
    text.push_str(&format_grid(&tuning.grid, |point| format_thousands(point.throughput)));
    text.push_str("\npredicted latency:\n");
    text.push_str(&format_grid(&tuning.grid, |point| format_seconds(point.latency_us / 1e6)));
    if let Some(sweep) = &document.sweep {
        text.push_str("\nmeasured, commands per second:\n");
        text.push_str(&format_grid(&sweep.grid_points(), |point| {
            format_thousands(point.throughput)
        }));
        text.push_str(&sweep.format_summary());
    }
    text
}

/// Formats a grid with one row per batch size and one column per window.
fn format_grid(points: &[PointView], shown: impl Fn(&PointView) -> String) -> String {
    if points.is_empty() {
        return "not enough measurements yet: put some load on the cluster\n".to_owned();
    }
    let (batches, windows) = grid_axes(points);
    let mut head = vec!["batch \\ window".to_owned()];
    head.extend(windows.iter().map(ToString::to_string));
    let mut rows = vec![head];
    for batch_bytes in batches {
        let mut row = vec![format_exact_bytes(batch_bytes)];
        for &window in &windows {
            let setting = SettingView { batch_bytes, window };
            let found = points.iter().find(|point| point.setting() == setting);
            row.push(found.map_or_else(String::new, &shown));
        }
        rows.push(row);
    }
    format_table(&rows)
}

/// Returns the batch sizes and the windows that occur in a grid, sorted.
fn grid_axes(points: &[PointView]) -> (Vec<usize>, Vec<usize>) {
    let mut batches: Vec<_> = points.iter().map(|point| point.batch_bytes).collect();
    let mut windows: Vec<_> = points.iter().map(|point| point.window).collect();
    for axis in [&mut batches, &mut windows] {
        axis.sort_unstable();
        axis.dedup();
    }
    (batches, windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_a_table_with_gaps() {
        let point = |batch_bytes, window, throughput| PointView {
            batch_bytes,
            window,
            throughput,
            latency_us: 1.0,
        };
        let points = [point(4096, 2, 20.0), point(1024, 1, 10.0)];
        let text = format_grid(&points, |point| format!("{:.0}", point.throughput));
        assert_eq!(text, "batch \\ window  1   2\n1 KiB           10\n4 KiB               20\n");
        assert!(format_grid(&[], |_| String::new()).contains("not enough measurements"));
    }
}
