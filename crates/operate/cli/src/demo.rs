//! `quorate demo`: runs three nodes and checks that no write is lost while the leader is killed
//! under load, or while every node is replaced. With `--devices`, runs a group on three kinds of
//! machines and shows it on a web page.

mod compare;
mod devices;
mod etcd;
mod kernel;
mod load;
mod replace;
mod stream;

use std::{
    env, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use quorate_admin::{
    look::query_cluster,
    view::{Answer, ClusterView},
};
use quorate_testbed::{
    interrupt,
    nodes::NodeCluster,
    process::{NodeSpec, loopback_cluster},
};
use serde::Serialize;

use crate::values::{Number, Unit};
use crate::{
    output::{Exit, Output, Problem, format_table, progress},
    signals,
};
use kernel::Devices;
use load::{Load, Written};

const NODE_COUNT: u32 = 3;
/// Number of concurrent writers. They start on different nodes.
const WRITER_COUNT: usize = 6;
/// Timeout for each step of the demo.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between polls of the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Description of the writers' activity, shown with the progress.
const WRITING_TEXT: &str = "writing through every node";
/// Default duration of the load, in seconds.
const DEFAULT_SECONDS: u64 = 10;
/// Maximum duration of the load, in seconds.
const SECONDS_MAX: u64 = 600;

/// Arguments of `quorate demo`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Seconds to write for [default: 10; with --devices until Ctrl-C]
    #[arg(long, env = "QUORATE_SECONDS", value_name = "N",
          value_parser = Number::between(3, SECONDS_MAX, Unit::Count).argument::<u64>())]
    seconds: Option<u64>,
    /// Replace every node under load, instead of killing the leader
    #[arg(long, env = "QUORATE_REPLACE", value_parser = clap::builder::FalseyValueParser::new())]
    replace: bool,
    /// Write a file to a byte stream instead of writing keys, and kill the leader meanwhile
    #[arg(long, conflicts_with_all = ["replace", "seconds"])]
    stream: bool,
    /// File to write with --stream [default: 64 MiB of generated data]
    #[arg(long, value_name = "FILE", requires = "stream")]
    file: Option<PathBuf>,
    /// Run a group that votes in three different ways: by a box that stands for hardware, by
    /// programs in the kernel (as root; else by a thread), and by the node itself. A page in the
    /// browser has buttons that fail and restore each part
    #[arg(long, conflicts_with_all = ["replace", "stream", "keep"])]
    devices: bool,
    /// Address of the page of --devices
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", requires = "devices")]
    page: String,
    /// How the nodes talk: tcp, or kernel, where programs in the kernel vote and count, each node
    /// in a network namespace of its own (needs root; removed at the end) [default: tcp; with
    /// --devices kernel where possible]
    #[arg(long, value_name = "PLANE", value_enum, conflicts_with_all = ["replace", "keep"])]
    plane: Option<Plane>,
    /// What the nodes serve, and what the writers speak: kv is the Redis protocol, etcd that of
    /// etcd v3
    #[arg(long, value_name = "SERVICE", value_enum, default_value = "kv",
          conflicts_with_all = ["replace", "stream", "devices", "plane"])]
    service: Service,
    /// Leave the cluster running and print how to use it
    #[arg(long, env = "QUORATE_KEEP", value_parser = clap::builder::FalseyValueParser::new())]
    keep: bool,
}

/// Transport between the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Plane {
    Tcp,
    Kernel,
}

/// Service of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Service {
    Kv,
    Etcd,
}

impl Service {
    fn write_function(self) -> load::WriteLoop {
        match self {
            Self::Kv => load::write_until_end,
            Self::Etcd => etcd::write,
        }
    }
}

/// Result of `quorate demo`.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    written: u64,
    acknowledged: u64,
    lost: u64,
    failover_ms: Option<u64>,
    killed: u32,
    leader: u32,
    digest: Option<String>,
    /// Work done by the devices, or `None` if the nodes have no devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Devices>,
    nodes: Vec<KeptNode>,
    folder: Option<PathBuf>,
}

/// A node that keeps running after the demo.
#[derive(Clone, Debug, Serialize)]
struct KeptNode {
    node: u32,
    client: String,
    admin: String,
    stream: String,
    pid: u32,
}

pub(crate) fn run(args: &DemoArgs, output: Output) -> Result<Exit, Problem> {
    if args.devices {
        return devices::run(args, output);
    }
    if args.service == Service::Etcd {
        etcd::check()?;
    }
    if args.plane() == Plane::Kernel {
        kernel::enter_namespaces()?;
    }
    signals::end_at_first_signal(interrupt::clean_up)?;
    let mut demo = Demo::new(args)?;
    demo.start()?;
    let lost = match args.replace {
        _ if args.stream => demo.put_file(args).map(|outcome| {
            output.print_result(&outcome, || outcome.human());
            outcome.lost_bytes()
        }),
        true => demo.replace_all(args).map(|outcome| {
            output.print_result(&outcome, || outcome.human());
            outcome.missing_count()
        }),
        false => demo.run_demo(args).map(|outcome| {
            output.print_result(&outcome, || human(&outcome, args.service));
            outcome.lost
        }),
    };
    demo.exit_code(lost)
}

impl DemoArgs {
    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(DEFAULT_SECONDS)
    }

    fn plane(&self) -> Plane {
        self.plane.unwrap_or(Plane::Tcp)
    }
}

/// Running nodes of the demo. Their folder is removed on drop, unless the user keeps it.
struct Demo {
    program: PathBuf,
    nodes: NodeCluster,
    client_addresses: Vec<String>,
    admin_addresses: Vec<String>,
    started_at: Instant,
    keeps_cluster: bool,
    plane: Plane,
    service: Service,
}

impl Demo {
    fn new(args: &DemoArgs) -> Result<Self, Problem> {
        let program =
            env::current_exe().map_err(|error| Problem::io_error("find this program", &error))?;
        let nodes = NodeCluster::with_empty_folder("quorate-demo-")
            .map_err(|error| Problem::io_error("make a temporary folder", &error))?;
        Ok(Self {
            program,
            nodes,
            client_addresses: Vec::new(),
            admin_addresses: Vec::new(),
            started_at: Instant::now(),
            keeps_cluster: args.keep,
            plane: args.plane(),
            service: args.service,
        })
    }

    fn print_line(&self, text: &str) {
        progress(&format!("{:5.1} s  {text}", self.started_at.elapsed().as_secs_f64()));
    }

    fn start(&mut self) -> Result<(), Problem> {
        let folder = self.nodes.data_folder();
        let specs = match self.plane {
            Plane::Tcp => {
                let options: &[&str] = match self.service {
                    Service::Kv => &[],
                    Service::Etcd => &["--service", "etcd"],
                };
                loopback_cluster(&self.program, folder, NODE_COUNT, options)
            }
            Plane::Kernel => kernel::create_cluster(&self.program, folder, NODE_COUNT),
        };
        self.start_nodes(specs)
    }

    fn start_nodes(&mut self, specs: io::Result<Vec<NodeSpec>>) -> Result<(), Problem> {
        let keep = self.keeps_cluster;
        let started = specs.and_then(|mut specs| {
            specs.iter_mut().for_each(|spec| spec.dies_with_parent = !keep);
            self.nodes.start(specs)
        });
        started.map_err(|error| {
            let what = format_args!("a node did not start: {error}");
            Problem::new(Exit::Failed, "node_failed", what)
        })?;
        self.update_client_addresses();
        Ok(())
    }

    /// Looks up the client addresses of the cluster's current nodes.
    fn update_client_addresses(&mut self) {
        self.client_addresses = self.nodes.client_addresses();
        self.admin_addresses = self.nodes.admin_addresses();
    }

    fn wait_until_serving(&self, then: &str) -> Result<(), Problem> {
        let leader = self.wait_for("a leader", |cluster| {
            let views = || cluster.nodes.iter().filter_map(Answer::node_view);
            let agreed = views().count() == NODE_COUNT as usize
                && views().all(|view| view.leader == cluster.leader);
            cluster.leader.filter(|_| agreed)
        })?;
        if self.plane == Plane::Kernel {
            let device = self.wait_for("a device that assigns slots", kernel::leader_device)?;
            self.print_line(&format!("devices vote and count; the leader's is {device}"));
        }
        self.print_line(&format!("three nodes are up, node {leader} leads; {then}"));
        Ok(())
    }

    fn run_demo(&mut self, args: &DemoArgs) -> Result<Outcome, Problem> {
        self.wait_until_serving(WRITING_TEXT)?;
        let load =
            Load::start(writer_addresses(&self.client_addresses), self.service.write_function());
        let third = Duration::from_millis(args.seconds() * 1000 / 3);
        let begin = Instant::now();
        self.print_progress_until(&load, begin + third);
        let killed =
            self.kill_leader(|nodes, leader| load.kill_leader(|| nodes.kill(&[leader])))?;
        self.print_progress_until(&load, begin + third * 2);
        self.restart_node(killed)?;
        self.print_progress_until(&load, begin + third * 3);
        let failover = load.failover_time();
        let written = load.finish();
        let leader = self.wait_until_caught_up()?;
        let (lost, digest) = self.compare_writes(&written)?;
        let devices = match self.plane {
            Plane::Tcp => None,
            Plane::Kernel => Some(self.wait_for("devices", kernel::device_work)?),
        };
        let (nodes, folder) = self.detach_nodes();
        Ok(Outcome {
            devices,
            written: written.iter().map(|writer| writer.sent_count).sum(),
            acknowledged: written
                .iter()
                .map(|writer| writer.acknowledged_numbers.len() as u64)
                .sum(),
            lost,
            failover_ms: failover.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            killed,
            leader,
            digest,
            nodes,
            folder,
        })
    }

    /// Prints the progress every second until the deadline.
    fn print_progress_until(&self, load: &Load, until: Instant) {
        let mut next = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            thread::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())));
            if Instant::now() >= next {
                next += Duration::from_secs(1);
                self.print_line(&format!("{} writes acknowledged", load.acknowledged_count()));
            }
        }
    }

    fn kill_leader(
        &mut self,
        kill: impl FnOnce(&mut NodeCluster, u32) -> io::Result<()>,
    ) -> Result<u32, Problem> {
        let leader = self.wait_for("a leader", |cluster| cluster.leader)?;
        let node = self.nodes.node(leader);
        let id = node
            .map_err(|_| {
                failed_problem(format_args!(
                    "node {leader} leads, but does not belong to this demo"
                ))
            })?
            .id();
        kill(&mut self.nodes, leader)
            .map_err(|error| Problem::io_error("kill the leader", &error))?;
        self.print_line(&format!("killed the leader, node {leader} (SIGKILL, process {id})"));
        Ok(leader)
    }

    fn restart_node(&mut self, node: u32) -> Result<(), Problem> {
        self.nodes.restart(&[node]).map_err(|error| {
            failed_problem(format_args!("node {node} did not come back: {error}"))
        })?;
        self.print_line(&format!("restarted node {node}"));
        Ok(())
    }

    /// Waits until every node has applied all decided slots, and returns the leader.
    fn wait_until_caught_up(&self) -> Result<u32, Problem> {
        let leader = self.wait_for("all nodes to catch up", |cluster| {
            let views: Vec<_> = cluster.nodes.iter().filter_map(Answer::node_view).collect();
            let decided = views.iter().map(|view| view.decided).max()?;
            let level = views.len() == NODE_COUNT as usize
                && views
                    .iter()
                    .all(|view| view.applied == decided && view.leader == cluster.leader);
            cluster.leader.filter(|_| level)
        })?;
        self.print_line("all nodes have caught up; comparing them");
        Ok(leader)
    }

    fn compare_writes(&self, written: &[Written]) -> Result<(u64, Option<String>), Problem> {
        for writer in written {
            if let Some(error) = &writer.error {
                self.print_line(&format!(
                    "a write of writer {} got no answer: {error}",
                    writer.writer
                ));
            }
        }
        let mut lost = compare::LostWrites::new();
        for client in &self.client_addresses {
            for stale in [false, true] {
                lost.extend(match self.service {
                    Service::Kv => {
                        compare::missing_writes(client, written, stale).map_err(client_problem)?
                    }
                    Service::Etcd => etcd::missing(client, written, stale)?,
                });
            }
        }
        let digest = match self.service {
            Service::Kv => compare::common_digest(&self.client_addresses, STEP_TIMEOUT)
                .map_err(client_problem)?,
            Service::Etcd => etcd::common_hash(&self.client_addresses, STEP_TIMEOUT)?,
        };
        if digest.is_none() {
            return Err(nodes_differ_problem());
        }
        Ok((lost.len() as u64, digest))
    }

    fn wait_for<T>(
        &self,
        what: &str,
        condition: impl Fn(&ClusterView) -> Option<T>,
    ) -> Result<T, Problem> {
        let until = Instant::now() + STEP_TIMEOUT;
        loop {
            if let Some(met) =
                query_cluster(&self.admin_addresses).ok().and_then(|cluster| condition(&cluster))
            {
                return Ok(met);
            }
            if Instant::now() >= until {
                let message = format_args!("waited {} s for {what}", STEP_TIMEOUT.as_secs());
                return Err(Problem::new(Exit::Unreachable, "timed_out", message));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Detaches the nodes from this process if the user keeps them. Returns them and their folder.
    fn detach_nodes(&mut self) -> (Vec<KeptNode>, Option<PathBuf>) {
        if !self.keeps_cluster {
            return (Vec::new(), None);
        }
        let folder = self.nodes.detach();
        let members = self.nodes.ids();
        let nodes = self.nodes.all().iter();
        let kept = nodes.filter(|process| members.contains(&process.ready.node));
        let kept = kept.map(|process| KeptNode {
            node: process.ready.node,
            client: process.ready.client.clone(),
            admin: process.ready.admin.clone(),
            stream: process.ready.stream.clone(),
            pid: process.id(),
        });
        (kept.collect(), folder)
    }

    /// Returns the exit code that corresponds to the number of lost writes.
    fn exit_code(&self, lost: Result<u64, Problem>) -> Result<Exit, Problem> {
        match lost {
            Ok(0) => Ok(Exit::Done),
            Ok(_) => Ok(Exit::Violation),
            Err(problem) => Err(self.with_last_log_lines(problem)),
        }
    }

    /// Prints the last log lines of every node, because the folders are about to be removed.
    /// Returns `problem`.
    fn with_last_log_lines(&self, problem: Problem) -> Problem {
        for node in self.nodes.all() {
            progress(&format!("node {}: {}", node.ready.node, node.log_tail()));
        }
        problem
    }
}

/// Returns one address list for each writer. Each list contains all nodes, rotated so that the
/// writers start on different ones.
fn writer_addresses(clients: &[String]) -> Vec<Vec<String>> {
    let from = |writer: usize| {
        let mut addresses = clients.to_vec();
        addresses.rotate_left(writer % NODE_COUNT as usize);
        addresses
    };
    (0..WRITER_COUNT).map(from).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "of errors")]
fn client_problem(error: quorate_client::Error) -> Problem {
    let what = format_args!("a node did not answer: {error}");
    Problem::new(Exit::Unreachable, "no_answer", what)
}

fn nodes_differ_problem() -> Problem {
    let what = "the nodes hold different data";
    Problem::new(Exit::Violation, "nodes_differ", what)
}

fn failed_problem(message: impl std::fmt::Display) -> Problem {
    Problem::new(Exit::Failed, "demo_failed", message)
}

fn human(outcome: &Outcome, service: Service) -> String {
    let failover =
        outcome.failover_ms.map_or_else(|| "unknown".to_owned(), |ms| format!("{ms} ms"));
    let mut rows = vec![
        ("written", outcome.written.to_string()),
        ("acknowledged", outcome.acknowledged.to_string()),
        ("killed", format!("node {}", outcome.killed)),
        ("failover", failover),
        ("leader now", format!("node {}", outcome.leader)),
    ];
    if let Some(devices) = &outcome.devices {
        rows.push(("voted by devices", format!("{} slots", devices.votes)));
        rows.push(("device", devices.name.clone()));
    }
    if let Some(digest) = &outcome.digest {
        rows.push(("equal contents", digest.clone()));
    }
    format_result(rows, &outcome.nodes, outcome.folder.as_deref(), outcome.lost, service)
}

/// Formats the result as a table, followed by instructions for a kept cluster and the number of
/// lost writes.
fn format_result(
    rows: Vec<(&str, String)>,
    nodes: &[KeptNode],
    folder: Option<&Path>,
    lost: u64,
    service: Service,
) -> String {
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let mut text = format_table(&rows);
    if let Some(folder) = folder {
        text.push('\n');
        text.push_str(&usage_text(nodes, folder, service));
        text.push('\n');
    }
    text.push_str(&format!("lost: {lost}"));
    text
}

fn usage_text(nodes: &[KeptNode], folder: &Path, service: Service) -> String {
    let mut text = String::from("the cluster keeps running\n");
    for node in nodes {
        let (host, port) = node.client.rsplit_once(':').unwrap_or(("127.0.0.1", &node.client));
        text.push_str(&match service {
            Service::Kv => format!("  connect: redis-cli -h {host} -p {port}\n"),
            Service::Etcd => {
                format!("  connect: etcdctl --endpoints {host}:{port} get '' --prefix --limit 5\n")
            }
        });
    }
    let ids: Vec<String> = nodes.iter().map(|node| node.pid.to_string()).collect();
    if let Some(first) = nodes.first() {
        text.push_str(&format!("  look:    quorate status --admin {}\n", first.admin));
    }
    text.push_str(&format!("  stop:    kill {}; rm -r {}\n", ids.join(" "), folder.display()));
    text
}
