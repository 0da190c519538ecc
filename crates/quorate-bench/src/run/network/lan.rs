//! A switch, and a link of some speed from it to each node.

use std::{
    io::{self, BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use quorate_testbed::{
    namespace::{inside, ip},
    run::read,
};

use super::{super::session::Session, PEERS, far};
use crate::{
    lan::{self, Lan},
    problem::Problem,
};

const SWITCH: &str = "switch";

/// Gives each namespace a link to a switch that passes groups to everybody.
pub(super) fn lay(segment: Lan, nodes: u32) -> io::Result<()> {
    ip(&format!("link add {SWITCH} type bridge mcast_snooping 0"))?;
    ip(&format!("link set {SWITCH} up"))?;
    for node in 1..=nodes {
        let port = format!("p{node}");
        ip(&format!(
            "link add {port} type veth peer name {PEERS} netns n{node}"
        ))?;
        ip(&format!("link set {port} master {SWITCH} up"))?;
        ip(&format!("-n n{node} addr add {}/24 dev {PEERS}", far(node)))?;
        ip(&format!("-n n{node} link set {PEERS} up"))?;
        let tbf = format!("root tbf {}", segment.bucket());
        tc(&format!("qdisc add dev {port} {tbf}"))?;
        tc(&format!("-n n{node} qdisc add dev {PEERS} {tbf}"))?;
        in_order(Command::new("sh"), &port)?;
        in_order(inside_shell(node), PEERS)?;
    }
    Ok(())
}

fn inside_shell(node: u32) -> Command {
    let mut command = inside(node);
    command.arg("sh");
    command
}

/// A queue whose packets leave now by a timer and now by a sender comes to one processor or another, and they overtake
/// each other, as on no link. Packets of one flow are all for one processor.
fn in_order(mut shell: Command, device: &str) -> io::Result<()> {
    let all = u64::MAX >> 64_u32.saturating_sub(cpus());
    // What is known of devices is that of the namespace in which it is mounted.
    let set = format!(
        "unshare --mount sh -c 'mount -t sysfs sysfs /sys && \
         echo {all:x} > /sys/class/net/{device}/queues/rx-0/rps_cpus'"
    );
    read(shell.args(["-c", &set])).map(drop)
}

fn cpus() -> u32 {
    let count = thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(count.min(32)).unwrap_or(1)
}

fn tc(words: &str) -> io::Result<()> {
    read(Command::new("tc").args(words.split(' '))).map(drop)
}

/// A bare program. It ends when this is dropped.
struct Bare {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Bare {
    fn start(node: u32, part: &str, time: Duration) -> Result<Self, Problem> {
        let failed = |error| Problem::io("start a bare program", &error);
        let mut child = inside(node)
            .arg(Session::program()?)
            .args(["bench", "part", part, PEERS])
            .arg(time.as_millis().to_string())
            // It watches this pipe: should this process be killed, it ends, too.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let said = child.stdout.take().ok_or_else(|| {
            let error = io::ErrorKind::BrokenPipe.into();
            failed(error)
        })?;
        Ok(Self {
            child,
            said: BufReader::new(said),
        })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the slowest of as many receivers gets of one sender, in bytes of datagrams per second.
pub(in super::super) fn measure(receivers: u32, time: Duration) -> Result<f64, Problem> {
    let failed = |error| Problem::io("measure the segment", &error);
    let mut all = Vec::new();
    for node in 2..=receivers + 1 {
        let mut receiver = Bare::start(node, "lan-receiver", time)?;
        let mut ready = String::new();
        receiver.said.read_line(&mut ready).map_err(failed)?;
        all.push(receiver);
    }
    // Until the last of them has begun.
    let _sender = Bare::start(1, "lan-sender", lan::WARMUP * 2 + time * 2)?;
    let mut slowest = f64::INFINITY;
    for receiver in &mut all {
        let mut said = String::new();
        receiver.said.read_to_string(&mut said).map_err(failed)?;
        let rate = lan::rate(&said).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        slowest = slowest.min(rate);
    }
    Ok(slowest)
}
