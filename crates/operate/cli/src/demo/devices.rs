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
use quorate_net::device::interpreter;
use quorate_testbed::{interrupt, network};
use serde::Serialize;

use super::{Demo, DemoArgs, PATIENCE, PAUSE, Plane, Service, compare, failed, format_result};
use crate::{
    output::{Exit, Output, Problem, progress},
    signals,
};
use board::{Act, Board, Kind, Phase};
use load::Load;
use parts::{BOX, Part, Parts};

/// The web page, which needs no other files.
const HTML: &str = include_str!("devices/page.html");
/// Maximum number of queued actions from the page's buttons.
const ACTS_MAX: usize = 8;
/// Maximum time for which the demo waits at its end, so that a viewer can see the result.
const LAST_LOOK: Duration = Duration::from_millis(1500);
/// Timeout for a request to hand over leadership.
const TRANSFER: Duration = Duration::from_secs(3);

/// Set once the user has interrupted the demo with a signal.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// State of the demo after it has entered its namespaces and before its nodes start.
#[derive(Debug)]
struct Entered {
    listener: TcpListener,
    /// Reason why the nodes have neither separate networks nor programs in the kernel.
    why_not: Option<String>,
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
    let interpreter = interpreter().map_err(|refused| {
        let hint = refused.hint();
        Problem::new(Exit::Failed, "device", refused).hint(hint)
    })?;
    let mut entered = enter_namespaces(args)?;
    let first = || INTERRUPTED.store(true, Ordering::SeqCst);
    // A second signal ends the demo immediately, but still cleans up.
    signals::on_first_then_end(first, interrupt::clean_up)?;
    let mut demo = Demo::new(args)?;
    let make =
        |own_networks| Parts::new(&demo.program, &interpreter, demo.nodes.folder(), own_networks);
    let mut made = make(entered.why_not.is_none());
    if let Err(error) = &made
        && args.plane.is_none()
    {
        // Even root may lack permissions inside a namespace, in which case loopback is used.
        let why = error.to_string();
        entered.why_not = Some(why.lines().next().unwrap_or_default().to_owned());
        made = make(false);
    }
    let (parts, specs) = made.map_err(|error| Problem::io("make a network", &error))?;
    demo.start_as(Ok(specs))?;
    let shown = demo.show(args, entered, parts).map(|outcome| {
        output.result(&outcome, || outcome.human());
        outcome.lost
    });
    demo.exit_code(shown)
}

/// Opens the page's listener, then re-executes this process in new namespaces where possible. The
/// listener stays in the original namespace, where browsers can reach it.
fn enter_namespaces(args: &DemoArgs) -> Result<Entered, Problem> {
    if network::is_inside() {
        let listener = io::stdin().as_fd().try_clone_to_owned();
        let listener = listener.map(TcpListener::from);
        let listener = listener.and_then(|listener| listener.local_addr().map(|_| listener));
        let listener = listener.map_err(|error| Problem::io("find the page's socket", &error))?;
        return Ok(Entered { listener, why_not: None });
    }
    let listener = TcpListener::bind(&args.page)
        .map_err(|error| Problem::io(format_args!("listen on --page {}", args.page), &error))?;
    let why_not = match args.plane {
        Some(Plane::Tcp) => Some("--plane tcp was asked for".to_owned()),
        Some(Plane::Kernel) | None => network::missing(),
    };
    let Some(why) = why_not else {
        // Pass the listener as standard input, which the new process does not use.
        rustix::stdio::dup2_stdin(&listener)
            .map_err(|error| Problem::io("keep the page's socket", &error.into()))?;
        return Err(Problem::io("run in its own namespaces", &network::enter()));
    };
    if args.plane == Some(Plane::Kernel) {
        return Err(super::kernel::no_network(&why));
    }
    Ok(Entered { listener, why_not: Some(why) })
}

impl Demo {
    /// Runs the demo until its time has elapsed or the user interrupts it.
    fn show(
        &mut self,
        args: &DemoArgs,
        entered: Entered,
        parts: Parts,
    ) -> Result<Outcome, Problem> {
        self.wait_until_serving("three writers begin")?;
        if let Some(why) = &entered.why_not {
            self.print_line(&format!("no programs in the kernel: {why}"));
        }
        // The node with simulated hardware leads first if possible.
        let leader = self.wait_for("a leader", |cluster| cluster.leader)?;
        let _ = self.transfer_leadership(leader, BOX);
        let from = |node: usize| {
            let mut addresses = self.clients.clone();
            addresses.rotate_left(node);
            addresses
        };
        let load = Load::start((0..parts::ALL.len()).map(from).collect());
        let (acts, asked) = sync_channel(ACTS_MAX);
        let board = Arc::new(Board::new(
            &parts,
            entered.why_not.clone(),
            self.clients.clone(),
            Arc::clone(&load.observations),
            acts,
        ));
        board.watch(self.admins.clone());
        board.add_event(Kind::Note, "three nodes are up; three clients write");
        let address = entered.listener.local_addr();
        let address = address.map_err(|error| Problem::io("find the page's address", &error))?;
        page::serve(entered.listener, HTML, Arc::clone(&board))
            .map_err(|error| Problem::io("serve the page", &error))?;
        self.print_address(args, &address.to_string());
        let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let mut play =
            RunningDemo { demo: self, parts, board: Arc::clone(&board), load, longest: None };
        play.run_until(until, &asked)?;
        let outcome = play.finish();
        board.end(LAST_LOOK);
        outcome
    }

    /// Requests that the leader hand over leadership to another node. Returns the reason if it
    /// refuses.
    fn transfer_leadership(&self, leader: u32, to: u32) -> Result<(), String> {
        if leader == to {
            return Ok(());
        }
        let at = usize::try_from(leader.saturating_sub(1)).unwrap_or(usize::MAX);
        let admin = self.admins.get(at).ok_or("it is not of this demo")?;
        let asked = format!("{{\"to\":{to}}}");
        let answer = client::post(admin, "/transfer", &asked, TRANSFER);
        let answer = answer.map_err(|error| error.to_string())?;
        let done = answer.json::<Transferred>();
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
    longest: Option<Duration>,
}

impl RunningDemo<'_> {
    /// Executes the actions requested by the buttons until the deadline or an interrupt.
    fn run_until(&mut self, until: Option<Instant>, asked: &Receiver<Act>) -> Result<(), Problem> {
        loop {
            let over = until.is_some_and(|until| Instant::now() >= until);
            if over || INTERRUPTED.load(Ordering::SeqCst) {
                return Ok(());
            }
            match asked.recv_timeout(PAUSE) {
                Ok(act) => self.run_action(act),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if let Some(pause) = self.load.observations.stood_still() {
                self.longest = self.longest.max(Some(pause));
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

    fn run_action(&mut self, act: Act) {
        let (doing, done) = describe_action(act);
        self.board.stage().busy = Some(doing.clone());
        let result = self.carry_out(act);
        let works = self.parts.works();
        let mut stage = self.board.stage();
        (stage.works, stage.busy) = (works, None);
        drop(stage);
        match result {
            Ok(Some(kind)) => self.show_event(kind, &done),
            // The button was pressed twice.
            Ok(None) => {}
            Err(why) => self.show_event(Kind::Note, &format!("{doing}: {why}")),
        }
    }

    /// Executes an action and returns the kind of its event, or `None` if there is nothing to do.
    fn carry_out(&mut self, act: Act) -> Result<Option<Kind>, String> {
        let (parts, nodes) = (&mut self.parts, &mut self.demo.nodes);
        let seen = &self.load.observations;
        match act {
            Act::Fail(part, node) if parts.obstacle(part, node, true).is_some() => Ok(None),
            Act::Restore(part, node) if parts.obstacle(part, node, false).is_some() => Ok(None),
            Act::Fail(part, node) => {
                self.board.stage().failures += 1;
                let failed = seen.while_failing(|| parts.fail(nodes, part, node));
                failed.map_err(|error| error.to_string())?;
                Ok(Some(Kind::Fail))
            }
            Act::Restore(part, node) => {
                let restored = parts.restore(nodes, part, node);
                restored.map_err(|error| error.to_string())?;
                seen.return_to_first_nodes();
                Ok(Some(Kind::Restore))
            }
            Act::Lead(node) => {
                let Some(leader) = self.board.leader() else {
                    return Err("no leader now".to_owned());
                };
                let demo = &*self.demo;
                seen.while_failing(|| demo.transfer_leadership(leader, node))?;
                Ok(Some(Kind::Note))
            }
        }
    }

    /// Reports every node whose process ended unexpectedly, with its last log lines.
    fn report_ended_processes(&mut self) -> Result<(), Problem> {
        for (node, works) in parts::ALL.into_iter().zip(self.parts.works()) {
            let Ok(process) = self.demo.nodes.node(node) else {
                continue;
            };
            let ended = process.child.try_wait();
            let ended = ended.map_err(|error| Problem::io("look at a node", &error))?;
            if let Some(status) = ended.filter(|_| works.node) {
                let said = process.last_words();
                self.parts.record_ended(node);
                self.board.stage().works = self.parts.works();
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
        self.board.stage().phase = Phase::Ending;
        self.show_event(Kind::Note, "the end: everything is restored, and all nodes are compared");
        let restored = self.parts.restore_all(&mut self.demo.nodes);
        restored.map_err(|error| failed(format_args!("a part did not come back: {error}")))?;
        self.board.stage().works = self.parts.works();
        let (longest, board, demo) = (self.longest, self.board, self.demo);
        let seen = self.load.finish();
        let leader = demo.caught_up()?;
        let mut lost = seen.lost_reads();
        for client in &demo.clients {
            for stale in [false, true] {
                lost += seen.missing(client, stale).map_err(super::client_failed)?;
            }
        }
        let digest =
            compare::common_digest(&demo.clients, PATIENCE).map_err(super::client_failed)?;
        if digest.is_none() {
            return Err(super::nodes_differ());
        }
        let mut devices = Vec::new();
        demo.wait_for("devices", |cluster| {
            let views = cluster.nodes.iter().filter_map(Answer::view);
            (views.count() == parts::ALL.len()).then_some(())
        })?;
        if let Ok(cluster) = quorate_admin::look::query_cluster(&demo.admins) {
            let views = cluster.nodes.iter().filter_map(Answer::view);
            devices.extend(views.map(|view| view.device.as_ref().map(|one| one.name.clone())));
        }
        let mut stage = board.stage();
        (stage.phase, stage.lost_at_end) = (Phase::Over, Some(lost));
        let failures = stage.failures;
        drop(stage);
        board.add_event(Kind::Note, &format!("all nodes are equal; lost: {lost}"));
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Ok(Outcome {
            acknowledged: seen.acknowledged(),
            doubtful: seen.doubtful(),
            checked: seen.checked(),
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
fn describe_action(act: Act) -> (String, String) {
    match act {
        Act::Fail(Part::Node, node) => {
            (format!("killing node {node}"), format!("killed node {node} (SIGKILL)"))
        }
        Act::Fail(Part::Device, node) => (
            format!("killing the box of node {node}"),
            format!("killed the box of node {node} (SIGKILL to its programs)"),
        ),
        Act::Fail(Part::Interface, node) => (
            format!("cutting the network of node {node}"),
            format!("cut the network of node {node}: its interface is down"),
        ),
        Act::Restore(Part::Node, node) => {
            (format!("starting node {node}"), format!("restarted node {node}"))
        }
        Act::Restore(Part::Device, node) => (
            format!("restoring the box of node {node}"),
            format!("restored the box of node {node}"),
        ),
        Act::Restore(Part::Interface, node) => {
            (format!("reconnecting node {node}"), format!("reconnected node {node}"))
        }
        Act::Lead(node) => (
            format!("handing leadership to node {node}"),
            format!("handed leadership to node {node}"),
        ),
    }
}
