//! One run of a system other than Quorate: a process in each namespace, one of which sends.
//!
//! bench-compare/README.md describes their output: `up` when started, `ready` when a process knows
//! all others, and at the end, from each receiver, the number of bytes and the nanoseconds in which
//! they arrived. A line on its input starts the sender; closing the inputs stops all processes.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::{
    segment::{self, PEERS_INTERFACE},
    usage::{MachineCpuTime, ResourceUsage},
};

use super::{
    super::systems::SOURCES_FOLDER,
    MulticastOptions, address, built_folder, corosync, create_memory_folder,
    figures::{MeasuredTurn, MulticastCell},
    member::{MemberProcess, command_in_namespace, find_member, with_forced_buffers},
    systems::System,
};
use crate::shell::{self, Failed};

/// The sender's namespace.
const SENDER_NODE: u32 = 1;
/// Start timeout, sufficient for thirty Java processes on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Extra time for a receiver beyond the expected duration.
const RECEIVER_GRACE: Duration = Duration::from_secs(60);
/// Warm-up that the bare receiver discards itself.
const BARE_WARMUP: Duration = Duration::from_millis(500);
/// Bytes of error output shown in a message.
const ERROR_BYTES_SHOWN: usize = 400;
/// Flags of every Java program.
const JAVA_FLAGS: [&str; 3] = ["-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx256m"];

/// Starts a system, measures it and stops it.
pub(super) fn run_turn(
    wish: &MulticastOptions,
    system: System,
    cell: MulticastCell,
) -> Result<MeasuredTurn, Failed> {
    let group = MulticastGroup {
        wish,
        system,
        member_count: cell.receiver_count + 1,
        bytes: cell.bytes,
        folder: create_memory_folder()?,
    };
    let mut processes = Vec::new();
    let measured = group.measure(&mut processes);
    measured.map_err(|Failed(why)| Failed(why + &group.last_error_lines()))
}

struct MulticastGroup<'a> {
    wish: &'a MulticastOptions,
    system: System,
    member_count: u32,
    /// Size of a message, in bytes.
    bytes: usize,
    folder: tempfile::TempDir,
}

impl MulticastGroup<'_> {
    fn measure(&self, processes: &mut Vec<MemberProcess>) -> Result<MeasuredTurn, Failed> {
        let until = Instant::now() + START_TIMEOUT;
        let is_bare = self.system == System::Bare;
        // The sender must be the oldest member, which defines the order in systems where a member
        // does.
        if !is_bare {
            self.start(SENDER_NODE, processes)?;
            find_member(processes, SENDER_NODE)?.wait_for_line(until, |line| line == "up")?;
        }
        for node in SENDER_NODE + 1..=self.member_count {
            self.start(node, processes)?;
            if self.system == System::Corosync {
                // Many concurrent joins crash some of Corosync's daemons (an assertion in
                // totemsrp.c).
                find_member(processes, node)?.wait_for_line(until, |line| line == "up")?;
            }
        }
        for member in processes.iter_mut().filter(|member| member.prints_status_lines) {
            member.wait_for_line(until, |line| line == "ready")?;
        }
        let warmup = if is_bare {
            self.start(SENDER_NODE, processes)?;
            BARE_WARMUP
        } else {
            find_member(processes, SENDER_NODE)?.send_line("go")?;
            self.wish.warmup_duration()
        };
        let begun = Instant::now();
        thread::sleep(warmup);
        let before = CounterReading::read_now(processes);
        // All processes are still sending or receiving then.
        thread::sleep(self.wish.duration * 4 / 5);
        let spent = CounterReading::read_now(processes).usage_since(&before);
        let until = begun + warmup + self.wish.duration + RECEIVER_GRACE;
        let mut slowest = f64::INFINITY;
        for member in processes.iter_mut().filter(|member| member.counts_messages) {
            let said = member.wait_for_line(until, |line| {
                line.as_bytes().first().is_some_and(u8::is_ascii_digit)
            })?;
            let rate = segment::parse_rate(&said)
                .ok_or_else(|| Failed(format!("not a figure: {said}")))?;
            slowest = slowest.min(rate);
        }
        Ok(MeasuredTurn {
            slowest_mbit: slowest * 8.0 / 1e6,
            cpu_s_per_gb: spent.cpu_s * 1e9 / (slowest * spent.seconds).max(1.0),
            foreign_cpu: spent.foreign_cpu_share,
            dropped_packets: 0.0,
        })
    }

    /// Starts the processes of a member.
    fn start(&self, node: u32, processes: &mut Vec<MemberProcess>) -> Result<(), Failed> {
        if self.system == System::Corosync {
            let daemon = self.daemon_command(node)?;
            processes.push(self.spawn(node, "daemon", daemon)?);
        }
        let (command, log) = (self.command(node)?, "load");
        let mut member = self.spawn(node, log, command)?;
        member.prints_status_lines = node != SENDER_NODE || self.system != System::Bare;
        member.counts_messages = node != SENDER_NODE;
        processes.push(member);
        Ok(())
    }

    /// Returns the command that sends or receives in a namespace.
    fn command(&self, node: u32) -> Result<Command, Failed> {
        let name = self.system.name();
        let role = if node == SENDER_NODE { "sender" } else { "receiver" };
        let millis = |time: Duration| time.as_millis().to_string();
        if self.system == System::Bare {
            let time = if node == SENDER_NODE {
                BARE_WARMUP * 2 + self.wish.duration * 2
            } else {
                self.wish.duration
            };
            let mut command = command_in_namespace(node);
            command
                .arg(shell::release_path("quorate"))
                .args(["bench", "part", &format!("lan-{role}"), PEERS_INTERFACE])
                .arg(millis(time));
            return Ok(command);
        }
        let mut command = with_forced_buffers(command_in_namespace(node))?;
        match self.system {
            System::Corosync => command.arg(built_folder("bin")?.join("corosync-load")),
            _ => command
                .arg("java")
                .args(JAVA_FLAGS)
                // Aeron accesses internals of the Java machine.
                .args(["--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"])
                .arg(format!("-Djgroups.bind_addr={}", address(node)))
                .arg("-cp")
                .arg(format!("{0}:{0}/lib/*", built_folder(name)?.display()))
                .arg("Load"),
        };
        command
            .arg(role)
            .arg(self.member_count.to_string())
            .arg(self.bytes.to_string())
            .arg(millis(self.wish.warmup_duration()))
            .arg(millis(self.wish.duration));
        match self.system {
            System::Jgroups => {
                command.arg(shell::workspace_root().join(SOURCES_FOLDER).join("jgroups/stack.xml"));
            }
            System::Aeron => {
                command.arg(address(node).to_string());
                command.arg(self.member_path(node, "aeron"));
            }
            _ => {}
        }
        Ok(command)
    }

    /// Returns the command of a Corosync daemon with its own folder for the lock file.
    fn daemon_command(&self, node: u32) -> Result<Command, Failed> {
        let state = self.member_path(node, "state");
        fs::create_dir_all(&state)?;
        let config = self.member_path(node, "conf");
        let text = corosync::config_file(self.member_count, &state.display().to_string());
        fs::write(&config, text)?;
        let mut command = with_forced_buffers(command_in_namespace(node))?;
        command
            .args(["unshare", "--mount", "sh", "-c"])
            .arg("mount -t tmpfs tmpfs /run && exec /usr/sbin/corosync -f -c \"$0\"")
            .arg(config);
        Ok(command)
    }

    fn member_path(&self, node: u32, what: &str) -> PathBuf {
        self.folder.path().join(format!("{node}.{what}"))
    }

    fn spawn(&self, node: u32, what: &str, mut command: Command) -> Result<MemberProcess, Failed> {
        let log = File::create(self.member_path(node, &format!("{what}.log")))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let child = command.spawn().map_err(|error| Failed(format!("{command:?}: {error}")))?;
        Ok(MemberProcess::new(node, child))
    }

    /// Returns the processes' last error messages.
    fn last_error_lines(&self) -> String {
        let mut all = String::new();
        for node in 1..=self.member_count {
            for what in ["daemon.log", "load.log"] {
                let text = fs::read(self.member_path(node, what)).unwrap_or_default();
                let text =
                    String::from_utf8_lossy(&text[text.len().saturating_sub(ERROR_BYTES_SHOWN)..]);
                // Identical errors need not be repeated for every process.
                if !text.trim().is_empty() && all.len() < ERROR_BYTES_SHOWN * 3 {
                    all += &format!("; {node} said: {}", text.trim().replace('\n', " | "));
                }
            }
        }
        all
    }
}

/// Counters at a point in time.
struct CounterReading {
    at: Instant,
    own: ResourceUsage,
    machine: Option<MachineCpuTime>,
}

struct UsageDelta {
    seconds: f64,
    cpu_s: f64,
    foreign_cpu_share: f64,
}

impl CounterReading {
    fn read_now(processes: &[MemberProcess]) -> Self {
        let ids: Vec<u32> = processes.iter().map(|one| one.id()).collect();
        Self {
            at: Instant::now(),
            own: ResourceUsage::of_processes(&ids),
            machine: MachineCpuTime::now(),
        }
    }

    fn usage_since(&self, before: &Self) -> UsageDelta {
        let cpu_s = self.own.since(before.own).cpu_s();
        let machine = self.machine.zip(before.machine);
        UsageDelta {
            seconds: (self.at - before.at).as_secs_f64(),
            cpu_s,
            foreign_cpu_share: machine
                .map_or(0.0, |(after, before)| after.other_processes_share(before, cpu_s)),
        }
    }
}
