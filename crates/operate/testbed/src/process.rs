//! A node as a child process, which is killed when its owner ends in any way.
//!
//! `quorate demo`, the benchmarks and the tests with real processes use it.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, BufRead as _, BufReader, Read as _},
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use crate::namespace;

/// First port for nodes of a demo or a test, below the kernel's ephemeral ports.
const FIRST_PORT: u16 = 10_000;
const PORT_COUNT: u16 = 22_000;
/// Number of log lines shown in an error message.
const LOG_TAIL_LINES: usize = 5;
/// Time within which a node must listen.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Command line and environment of a node.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    pub program: PathBuf,
    pub data_folder: PathBuf,
    /// Flags other than the data folder.
    pub flags: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// File that receives the node's log.
    pub log_path: PathBuf,
    /// Set if the node is killed when the thread that started it ends.
    pub dies_with_parent: bool,
}

/// Addresses of a node, as listed in its first line of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyLine {
    pub node: u32,
    pub client: String,
    pub peer: String,
    pub admin: String,
    /// Stream address. Empty if the node serves no byte streams.
    pub stream: String,
    /// Address at which each connection is one stream, without framing. Empty if the node has none.
    pub stream_raw: String,
}

/// Running node process, killed on drop.
#[derive(Debug)]
pub struct NodeProcess {
    pub child: Child,
    pub spec: NodeSpec,
    /// Addresses of the node. Empty before [`Self::wait_ready`] returns.
    pub ready: ReadyLine,
    is_kept: bool,
}

impl NodeProcess {
    /// Starts the process without waiting until it listens.
    pub fn spawn(spec: NodeSpec) -> io::Result<Self> {
        let stderr = fs::File::options().create(true).append(true).open(&spec.log_path)?;
        let mut command = command_of(&spec.program);
        if spec.dies_with_parent {
            command.env("QUORATE_DIES_WITH_PARENT", std::process::id().to_string());
        }
        command
            .arg("start")
            .arg("--data")
            .arg(&spec.data_folder)
            .args(&spec.flags)
            .envs(spec.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            // An interrupt from the terminal must reach only the parent, which then ends its nodes.
            .process_group(0);
        let child = command.spawn()?;
        Ok(Self { child, spec, ready: ReadyLine::default(), is_kept: false })
    }

    /// Waits until the node reports that it listens.
    pub fn wait_ready(&mut self) -> io::Result<()> {
        let stdout = self.child.stdout.take();
        let stdout = stdout.ok_or_else(|| io::Error::other("it was waited for before"))?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = String::new();
            if reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let _ = sender.send(line);
            }
            // Keep reading, so that further output does not fill the pipe.
            let _ = io::copy(&mut reader, &mut io::sink());
        });
        let line = match lines.recv_timeout(READY_TIMEOUT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not get ready"));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                let said = self.log_tail();
                return Err(io::Error::other(format!("it ended with {status}: {said}")));
            }
        };
        self.ready = parse_ready_line(&line)
            .ok_or_else(|| io::Error::other(format!("its first line is {:?}", line.trim_end())))?;
        Ok(())
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process ids of the node's running child processes.
    pub fn child_pids(&self) -> io::Result<Vec<u32>> {
        let mut children = Vec::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.id()))? {
            // The thread may have ended in the meantime.
            let list = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            children.extend(list.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        Ok(children)
    }

    /// Kills all child processes of the node.
    pub fn kill_children(&self) -> io::Result<()> {
        for child in self.child_pids()? {
            let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
            match pid.map(|pid| kill_process(pid, Signal::KILL)) {
                // The child has already ended by itself.
                None | Some(Ok(()) | Err(Errno::SRCH)) => {}
                Some(Err(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns the last lines of the node's log. If the node aborted, returns the failed assertion.
    pub fn log_tail(&self) -> String {
        let mut text = String::new();
        let opened = fs::File::open(&self.spec.log_path);
        let _ = opened.and_then(|mut file| file.read_to_string(&mut text));
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let panicked = lines.iter().position(|line| line.contains("panicked at"));
        let from = panicked.unwrap_or(lines.len().saturating_sub(LOG_TAIL_LINES));
        let to = lines.len().min(from + LOG_TAIL_LINES);
        lines[from..to].join(" | ")
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Restarts the node, which must have ended, with the same command line.
    pub fn restart(&mut self) -> io::Result<()> {
        let next = Self::spawn(self.spec.clone())?;
        *self = next;
        self.wait_ready()
    }

    /// Returns whether the node will outlive this process.
    pub const fn is_kept(&self) -> bool {
        self.is_kept
    }

    pub fn keep_running(&mut self) {
        self.is_kept = true;
    }
}

/// Returns a command that runs `program`. The command inherits neither the caller's Quorate
/// settings, except the log level, nor its service manager.
pub fn command_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("QUORATE_") && name != "QUORATE_LOG" {
            command.env_remove(&*name);
        }
    }
    command
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn parse_ready_line(line: &str) -> Option<ReadyLine> {
    let mut words = line.split_whitespace();
    if words.next()? != "ready" {
        return None;
    }
    let fields: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
    let field = |name: &str| fields.get(name).map(|value| (*value).to_owned());
    Some(ReadyLine {
        node: field("node")?.parse().ok()?,
        client: field("client")?,
        peer: field("peer")?,
        admin: field("admin")?,
        stream: field("stream").unwrap_or_default(),
        stream_raw: field("stream-raw").unwrap_or_default(),
    })
}

/// Returns a free port below 32768. The kernel does not assign such ports to outgoing connections,
/// which could prevent a node from restarting on its port.
pub fn free_port() -> io::Result<u16> {
    /// Offset of the next search. Processes that search at the same time start at different ports.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(7919);
    for _ in 0..PORT_COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = start.wrapping_add(step) % u32::from(PORT_COUNT);
        let port = FIRST_PORT + u16::try_from(place).unwrap_or(0);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port on 127.0.0.1"))
}

/// Addresses of one node for clients, peers, operators and stream clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddresses {
    pub client: String,
    pub peer: String,
    pub admin: String,
    pub stream: String,
}

impl NodeAddresses {
    pub fn on_free_ports() -> io::Result<Self> {
        let address = || Ok::<_, io::Error>(format!("127.0.0.1:{}", free_port()?));
        Ok(Self { client: address()?, peer: address()?, admin: address()?, stream: address()? })
    }
}

impl NodeSpec {
    pub fn flag_value(&self, name: &str) -> Option<&str> {
        let mut flags = self.flags.iter().skip_while(|flag| *flag != name);
        flags.nth(1).map(String::as_str)
    }

    pub fn set_flag(&mut self, name: &str, value: &str) {
        match self.flags.iter().position(|flag| flag == name) {
            Some(at) if at + 1 < self.flags.len() => value.clone_into(&mut self.flags[at + 1]),
            _ => self.flags.extend([name.to_owned(), value.to_owned()]),
        }
    }

    /// Returns the specs of a cluster's members, node 1 first, with data and logs in `folder` and
    /// `flags` for all. The nodes end with the caller unless [`Self::dies_with_parent`] is cleared.
    pub fn cluster_members(
        program: &Path,
        folder: &Path,
        places: &[NodeAddresses],
        flags: &[&str],
    ) -> impl Iterator<Item = Self> {
        let members = (1..).zip(places);
        let list = members.map(|(node, at)| format!("{node}={}", at.peer));
        let list = list.collect::<Vec<_>>().join(",");
        (1..).zip(places).map(move |(node, at)| {
            let own = [
                ("--node", node.to_string()),
                ("--cluster", list.clone()),
                ("--peer", at.peer.clone()),
                ("--client", at.client.clone()),
                ("--admin", at.admin.clone()),
                ("--stream", at.stream.clone()),
            ];
            let own = own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
            Self {
                program: program.to_owned(),
                data_folder: folder.join(format!("node-{node}")),
                flags: own
                    .chain(insecure_flag(&at.peer, flags).map(str::to_owned))
                    .chain(flags.iter().map(|flag| (*flag).to_owned()))
                    .collect(),
                environment: Vec::new(),
                log_path: folder.join(format!("node-{node}.log")),
                dies_with_parent: true,
            }
        })
    }

    /// Changes the spec to run in the namespace of a node. Writes a script for this to `folder`.
    pub fn in_namespace(mut self, node: u32, folder: &Path) -> io::Result<Self> {
        self.program = namespace::write_namespace_script(node, &self.program, folder)?;
        Ok(self)
    }
}

/// Returns the flag that permits listening beyond loopback without TLS, if the address needs it.
/// The networks of these tests contain only trusted peers.
pub(crate) fn insecure_flag(peer: &str, flags: &[&str]) -> Option<&'static str> {
    let alone = peer.starts_with("127.") || peer.starts_with("[::1]");
    let proves = flags.iter().any(|flag| flag.starts_with("--tls"));
    (!alone && !proves).then_some("--insecure")
}

/// Returns the specs of a cluster on loopback, node 1 first. `flags` apply to all nodes. The
/// addresses are fixed, so that a restarted node has the same address.
pub fn loopback_cluster(
    program: &Path,
    folder: &Path,
    nodes: u32,
    flags: &[&str],
) -> io::Result<Vec<NodeSpec>> {
    // Choose all ports before any is used, so that they differ.
    let places: Vec<NodeAddresses> =
        (0..nodes).map(|_| NodeAddresses::on_free_ports()).collect::<io::Result<_>>()?;
    Ok(NodeSpec::cluster_members(program, folder, &places, flags).collect())
}
