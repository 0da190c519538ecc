//! `quorate demo --devices`: a group on three kinds of machines, with a web page whose buttons fail
//! and restore each part.

mod board;
mod load;
mod parts;

use std::{
    io,
    net::TcpListener,
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    time::{Duration, Instant},
};

use quorate_admin::{
    client,
    server::page,
    view::{Answer, Transferred},
};
use quorate_net::device::p4_interpreter_path;
use quorate_testbed::{interrupt, network};
use serde::Serialize;

use super::{
    Demo, DemoArgs, POLL_INTERVAL, Plane, STEP_TIMEOUT, Service, compare, failed_problem,
    format_result,
};
use crate::{
    output::{Exit, Output, Problem, progress},
    signals,
};
use board::{Board, DeviceAction, Kind, Phase};
use load::Load;
use parts::{BOX_NODE, Part, Parts};

/// The web page, which needs no other files.
const PAGE_HTML: &str = include_str!("devices/page.html");
/// Maximum number of queued actions from the page's buttons.
const QUEUED_ACTIONS_MAX: usize = 8;
/// Maximum time for which the demo waits at its end, so that a viewer can see the result.
const FINAL_VIEW_WAIT: Duration = Duration::from_millis(1500);
/// Timeout for a request to hand over leadership.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(3);

/// Set once the user has interrupted the demo with a signal.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// State of the demo after it has entered its namespaces and before its nodes start.
#[derive(Debug)]
struct EnteredDemo {
    listener: TcpListener,
    /// Reason why the nodes have neither separate networks nor programs in the kernel.
    no_networks_reason: Option<String>,
}

/// Result of `quorate demo --devices`.
#[derive(Debug, Serialize)]
struct Outcome {
    acknowledged: u64,
    /// Number of writes with an unknown outcome.
    doubtful: u64,
    /// Number of reads that were compared with acknowledged writes.
    checked: u64,
    lost: u64,
    failures: u64,
    /// Longest time from a failure to the acknowledgement of a write sent after the failure, in
    /// milliseconds.
    longest_pause_ms: Option<u64>,
    leader: u32,
    digest: Option<String>,
    devices: Vec<Option<String>>,
}

impl Outcome {
    fn human(&self) -> String {
        let pause = self.longest_pause_ms.map(|ms| format!("{ms} ms"));
        let mut rows = vec![
            ("acknowledged", self.acknowledged.to_string()),
            ("failures", self.failures.to_string()),
            ("longest pause of writes", pause.unwrap_or_else(|| "none".to_owned())),
            ("checked by reads", self.checked.to_string()),
            ("leader now", format!("node {}", self.leader)),
        ];
        if self.doubtful > 0 {
            rows.push(("without an answer", self.doubtful.to_string()));
        }
        if let Some(digest) = &self.digest {
            rows.push(("equal contents", digest.clone()));
        }
        format_result(rows, &[], None, self.lost, Service::Kv)
    }
}

pub(super) fn run(args: &DemoArgs, output: Output) -> Result<Exit, Problem> {
    let interpreter = p4_interpreter_path().map_err(|refused| {
        let hint = refused.hint();
        Problem::new(Exit::Failed, "device", refused).with_hint(hint)
    })?;
    let mut entered = enter_namespaces(args)?;
    let first = || INTERRUPTED.store(true, Ordering::SeqCst);
    // A second signal ends the demo immediately, but still cleans up.
    signals::on_first_then_end(first, interrupt::clean_up)?;
    let mut demo = Demo::new(args)?;
    let make = |own_networks| {
        Parts::new(&demo.program, &interpreter, demo.nodes.data_folder(), own_networks)
    };
    let mut made = make(entered.no_networks_reason.is_none());
    if let Err(error) = &made
        && args.plane.is_none()
    {
        // Even root may lack permissions inside a namespace, in which case loopback is used.
        let why = error.to_string();
        entered.no_networks_reason = Some(why.lines().next().unwrap_or_default().to_owned());
        made = make(false);
    }
    let (parts, specs) = made.map_err(|error| Problem::io_error("make a network", &error))?;
    demo.start_nodes(Ok(specs))?;
    let shown = demo.run_with_page(args, entered, parts).map(|outcome| {
        output.print_result(&outcome, || outcome.human());
        outcome.lost
    });
    demo.exit_code(shown)
}

/// Opens the page's listener, then re-executes this process in new namespaces where possible. The
/// listener stays in the original namespace, where browsers can reach it.
fn enter_namespaces(args: &DemoArgs) -> Result<EnteredDemo, Problem> {
    if network::is_inside() {
        let listener = io::stdin().as_fd().try_clone_to_owned();
        let listener = listener.map(TcpListener::from);
        let listener = listener.and_then(|listener| listener.local_addr().map(|_| listener));
        let listener =
            listener.map_err(|error| Problem::io_error("find the page's socket", &error))?;
        return Ok(EnteredDemo { listener, no_networks_reason: None });
    }
    let listener = TcpListener::bind(&args.page).map_err(|error| {
        Problem::io_error(format_args!("listen on --page {}", args.page), &error)
    })?;
    let why_not = match args.plane {
        Some(Plane::Tcp) => Some("--plane tcp was asked for".to_owned()),
        Some(Plane::Kernel) | None => network::check_support(),
    };
    let Some(why) = why_not else {
        // Pass the listener as standard input, which the new process does not use.
        rustix::stdio::dup2_stdin(&listener)
            .map_err(|error| Problem::io_error("keep the page's socket", &error.into()))?;
        return Err(Problem::io_error("run in its own namespaces", &network::reenter()));
    };
    if args.plane == Some(Plane::Kernel) {
        return Err(super::kernel::namespace_problem(&why));
    }
    Ok(EnteredDemo { listener, no_networks_reason: Some(why) })
}

impl Demo {
    /// Runs the demo until its time has elapsed or the user interrupts it.
    fn run_with_page(
        &mut self,
        args: &DemoArgs,
        entered: EnteredDemo,
        parts: Parts,
    ) -> Result<Outcome, Problem> {
        self.wait_until_serving("three writers begin")?;
        if let Some(why) = &entered.no_networks_reason {
            self.print_line(&format!("no programs in the kernel: {why}"));
        }
        // The node with simulated hardware leads first if possible.
        let leader = self.wait_for("a leader", |cluster| cluster.leader)?;
        let _ = self.transfer_leadership(leader, BOX_NODE);
        let from = |node: usize| {
            let mut addresses = self.client_addresses.clone();
            addresses.rotate_left(node);
            addresses
        };
        let load = Load::start((0..parts::ALL_NODES.len()).map(from).collect());
        let (acts, asked) = sync_channel(QUEUED_ACTIONS_MAX);
        let board = Arc::new(Board::new(
            &parts,
            entered.no_networks_reason.clone(),
            self.client_addresses.clone(),
            Arc::clone(&load.observations),
            acts,
        ));
        board.start_polling(self.admin_addresses.clone());
        board.add_event(Kind::Note, "three nodes are up; three clients write");
        let address = entered.listener.local_addr();
        let address =
            address.map_err(|error| Problem::io_error("find the page's address", &error))?;
        page::serve_page(entered.listener, PAGE_HTML, Arc::clone(&board))
            .map_err(|error| Problem::io_error("serve the page", &error))?;
        self.print_address(args, &address.to_string());
        let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let mut play =
            RunningDemo { demo: self, parts, board: Arc::clone(&board), load, longest_pause: None };
        play.run_until(until, &asked)?;
        let outcome = play.finish();
        board.end_polling(FINAL_VIEW_WAIT);
        outcome
    }

    /// Requests that the leader hand over leadership to another node. Returns the reason if it
    /// refuses.
    fn transfer_leadership(&self, leader: u32, to: u32) -> Result<(), String> {
        if leader == to {
            return Ok(());
        }
        let at = usize::try_from(leader.saturating_sub(1)).unwrap_or(usize::MAX);
        let admin = self.admin_addresses.get(at).ok_or("it is not of this demo")?;
        let asked = format!("{{\"to\":{to}}}");
        let answer = client::post(admin, "/transfer", &asked, TRANSFER_TIMEOUT);
        let answer = answer.map_err(|error| error.to_string())?;
        let done = answer.parse_json::<Transferred>();
        done.map(drop).map_err(|refusal| refusal.message)
    }

    fn print_address(&self, args: &DemoArgs, address: &str) {
        self.print_line("the page is served; nothing is opened by itself");
        progress(&format!("\n  open    http://{address}/"));
        if let Some((_, port)) = address.rsplit_once(':') {
            progress(&format!(
                "  from another machine: ssh -L {port}:{address} HOST, then the same address there"
            ));
        }
        let end = match args.seconds {
            Some(seconds) => format!("in {seconds} s, or with Ctrl-C"),
            None => "with Ctrl-C".to_owned(),
        };
        progress(&format!("  ends    {end}; then all nodes are compared\n"));
    }
}

/// A demo in progress, with its nodes running and its clients connected.
struct RunningDemo<'a> {
    demo: &'a mut Demo,
    parts: Parts,
    board: Arc<Board>,
    load: Load,
    longest_pause: Option<Duration>,
}

impl RunningDemo<'_> {
    /// Executes the actions requested by the buttons until the deadline or an interrupt.
    fn run_until(
        &mut self,
        until: Option<Instant>,
        asked: &Receiver<DeviceAction>,
    ) -> Result<(), Problem> {
        loop {
            let over = until.is_some_and(|until| Instant::now() >= until);
            if over || INTERRUPTED.load(Ordering::SeqCst) {
                return Ok(());
            }
            match asked.recv_timeout(POLL_INTERVAL) {
                Ok(act) => self.run_action(act),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if let Some(pause) = self.load.observations.take_interruption() {
                self.longest_pause = self.longest_pause.max(Some(pause));
                self.show_event(
                    Kind::Note,
                    &format!("writes went on {} ms later", pause.as_millis()),
                );
            }
            self.report_ended_processes()?;
        }
    }

    /// Shows an event on the page and the terminal.
    fn show_event(&self, kind: Kind, text: &str) {
        self.demo.print_line(text);
        self.board.add_event(kind, text);
    }

    fn run_action(&mut self, act: DeviceAction) {
        let (doing, done) = describe_action(act);
        self.board.lock_stage().busy = Some(doing.clone());
        let result = self.execute_action(act);
        let works = self.parts.working_parts();
        let mut stage = self.board.lock_stage();
        (stage.working_parts, stage.busy) = (works, None);
        drop(stage);
        match result {
            Ok(Some(kind)) => self.show_event(kind, &done),
            // The button was pressed twice.
            Ok(None) => {}
            Err(why) => self.show_event(Kind::Note, &format!("{doing}: {why}")),
        }
    }

    /// Executes an action and returns the kind of its event, or `None` if there is nothing to do.
    fn execute_action(&mut self, act: DeviceAction) -> Result<Option<Kind>, String> {
        let (parts, nodes) = (&mut self.parts, &mut self.demo.nodes);
        let seen = &self.load.observations;
        match act {
            DeviceAction::Fail(part, node) if parts.action_obstacle(part, node, true).is_some() => {
                Ok(None)
            }
            DeviceAction::Restore(part, node)
                if parts.action_obstacle(part, node, false).is_some() =>
            {
                Ok(None)
            }
            DeviceAction::Fail(part, node) => {
                self.board.lock_stage().failures += 1;
                let failed = seen.measure_failure(|| parts.fail_part(nodes, part, node));
                failed.map_err(|error| error.to_string())?;
                Ok(Some(Kind::Fail))
            }
            DeviceAction::Restore(part, node) => {
                let restored = parts.restore_part(nodes, part, node);
                restored.map_err(|error| error.to_string())?;
                seen.return_to_first_nodes();
                Ok(Some(Kind::Restore))
            }
            DeviceAction::Lead(node) => {
                let Some(leader) = self.board.reported_leader() else {
                    return Err("no leader now".to_owned());
                };
                let demo = &*self.demo;
                seen.measure_failure(|| demo.transfer_leadership(leader, node))?;
                Ok(Some(Kind::Note))
            }
        }
    }

    /// Reports every node whose process ended unexpectedly, with its last log lines.
    fn report_ended_processes(&mut self) -> Result<(), Problem> {
        for (node, works) in parts::ALL_NODES.into_iter().zip(self.parts.working_parts()) {
            let Ok(process) = self.demo.nodes.node(node) else {
                continue;
            };
            let ended = process.child.try_wait();
            let ended = ended.map_err(|error| Problem::io_error("look at a node", &error))?;
            if let Some(status) = ended.filter(|_| works.node) {
                let said = process.log_tail();
                self.parts.record_ended_node(node);
                self.board.lock_stage().working_parts = self.parts.working_parts();
                self.show_event(
                    Kind::Fail,
                    &format!("node {node} ended by itself, {status}: {said}"),
                );
            }
        }
        Ok(())
    }

    /// Restores all parts, stops the clients, and compares the acknowledged writes with every node.
    fn finish(mut self) -> Result<Outcome, Problem> {
        self.board.lock_stage().phase = Phase::Ending;
        self.show_event(Kind::Note, "the end: everything is restored, and all nodes are compared");
        let restored = self.parts.restore_all(&mut self.demo.nodes);
        restored
            .map_err(|error| failed_problem(format_args!("a part did not come back: {error}")))?;
        self.board.lock_stage().working_parts = self.parts.working_parts();
        let (longest, board, demo) = (self.longest_pause, self.board, self.demo);
        let seen = self.load.finish();
        let leader = demo.wait_until_caught_up()?;
        let mut lost = seen.lost_reads();
        for client in &demo.client_addresses {
            for stale in [false, true] {
                lost += seen.count_missing(client, stale).map_err(super::client_problem)?;
            }
        }
        let digest = compare::common_digest(&demo.client_addresses, STEP_TIMEOUT)
            .map_err(super::client_problem)?;
        if digest.is_none() {
            return Err(super::nodes_differ_problem());
        }
        let mut devices = Vec::new();
        demo.wait_for("devices", |cluster| {
            let views = cluster.nodes.iter().filter_map(Answer::node_view);
            (views.count() == parts::ALL_NODES.len()).then_some(())
        })?;
        if let Ok(cluster) = quorate_admin::look::query_cluster(&demo.admin_addresses) {
            let views = cluster.nodes.iter().filter_map(Answer::node_view);
            devices.extend(views.map(|view| view.device.as_ref().map(|one| one.name.clone())));
        }
        let mut stage = board.lock_stage();
        (stage.phase, stage.lost_at_end) = (Phase::Over, Some(lost));
        let failures = stage.failures;
        drop(stage);
        board.add_event(Kind::Note, &format!("all nodes are equal; lost: {lost}"));
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(Outcome {
            acknowledged: seen.acknowledged_count(),
            doubtful: seen.doubtful_count(),
            checked: seen.checked_reads(),
            lost,
            failures,
            longest_pause_ms: longest.map(ms),
            leader,
            digest,
            devices,
        })
    }
}

/// Returns two descriptions of an action: one while it runs and one for when it has finished.
fn describe_action(act: DeviceAction) -> (String, String) {
    match act {
        DeviceAction::Fail(Part::Node, node) => {
            (format!("killing node {node}"), format!("killed node {node} (SIGKILL)"))
        }
        DeviceAction::Fail(Part::Device, node) => (
            format!("killing the box of node {node}"),
            format!("killed the box of node {node} (SIGKILL to its programs)"),
        ),
        DeviceAction::Fail(Part::Interface, node) => (
            format!("cutting the network of node {node}"),
            format!("cut the network of node {node}: its interface is down"),
        ),
        DeviceAction::Restore(Part::Node, node) => {
            (format!("starting node {node}"), format!("restarted node {node}"))
        }
        DeviceAction::Restore(Part::Device, node) => (
            format!("restoring the box of node {node}"),
            format!("restored the box of node {node}"),
        ),
        DeviceAction::Restore(Part::Interface, node) => {
            (format!("reconnecting node {node}"), format!("reconnected node {node}"))
        }
        DeviceAction::Lead(node) => (
            format!("handing leadership to node {node}"),
            format!("handed leadership to node {node}"),
        ),
    }
}
