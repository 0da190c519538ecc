//! A node as a child process: spawned, waited for, killed on every way out.
//!
//! Used by `quorate demo`, by the benches, and by the tests of real processes.

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

/// Ports that nodes of a demo or a test get: below those of outgoing connections.
const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 22_000;
/// Lines of a log that a message shows.
const LAST_LINES: usize = 5;
/// Longest wait for a node to listen.
const READY_WAIT: Duration = Duration::from_secs(30);

/// Command line of a node.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The `quorate` binary.
    pub program: PathBuf,
    /// Its data folder.
    pub data: PathBuf,
    /// All other flags.
    pub flags: Vec<String>,
    /// Environment variables of its own.
    pub variables: Vec<(String, String)>,
    /// File for its log lines.
    pub stderr: PathBuf,
    /// It dies with the thread that started it.
    pub tied: bool,
}

/// Addresses of a node, from its first line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Its id.
    pub node: u32,
    pub client: String,
    pub peer: String,
    pub admin: String,
    /// Empty if it serves no byte streams.
    pub stream: String,
    /// Address where each connection is a stream; empty if there is none.
    pub stream_raw: String,
}

/// A running node; killed when dropped.
#[derive(Debug)]
pub struct NodeProcess {
    /// The process.
    pub child: Child,
    pub spec: Spec,
    /// Its addresses; empty before [`Self::wait_ready`].
    pub ready: Ready,
    kept: bool,
}

impl NodeProcess {
    /// Starts it; it may not listen yet.
    pub fn spawn(spec: Spec) -> io::Result<Self> {
        let stderr = fs::File::options().create(true).append(true).open(&spec.stderr)?;
        let mut command = command(&spec.program);
        if spec.tied {
            command.env("QUORATE_DIES_WITH_PARENT", std::process::id().to_string());
        }
        command
            .arg("start")
            .arg("--data")
            .arg(&spec.data)
            .args(&spec.flags)
            .envs(spec.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            // A terminal's interrupt is for the process that started it, which then ends its nodes.
            .process_group(0);
        let child = command.spawn()?;
        Ok(Self { child, spec, ready: Ready::default(), kept: false })
    }

    /// Waits until it says that it listens.
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
            // Whatever else it prints must not fill the pipe.
            let _ = io::copy(&mut reader, &mut io::sink());
        });
        let line = match lines.recv_timeout(READY_WAIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not get ready"));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                let said = self.last_words();
                return Err(io::Error::other(format!("it ended with {status}: {said}")));
            }
        };
        self.ready = parse_ready(&line)
            .ok_or_else(|| io::Error::other(format!("its first line is {:?}", line.trim_end())))?;
        Ok(())
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processes that it started and that run.
    pub fn children(&self) -> io::Result<Vec<u32>> {
        let mut children = Vec::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.id()))? {
            // A thread may have ended meanwhile.
            let list = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            children.extend(list.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        Ok(children)
    }

    /// Kills all of them.
    pub fn kill_children(&self) -> io::Result<()> {
        for child in self.children()? {
            let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
            match pid.map(|pid| kill_process(pid, Signal::KILL)) {
                // It ended by itself.
                None | Some(Ok(()) | Err(Errno::SRCH)) => {}
                Some(Err(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The end of what it logged; if it found itself wrong, what it found.
    pub fn last_words(&self) -> String {
        let mut text = String::new();
        let opened = fs::File::open(&self.spec.stderr);
        let _ = opened.and_then(|mut file| file.read_to_string(&mut text));
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let panicked = lines.iter().position(|line| line.contains("panicked at"));
        let from = panicked.unwrap_or(lines.len().saturating_sub(LAST_LINES));
        let to = lines.len().min(from + LAST_LINES);
        lines[from..to].join(" | ")
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Starts the same again after it ended.
    pub fn restart(&mut self) -> io::Result<()> {
        let next = Self::spawn(self.spec.clone())?;
        *self = next;
        self.wait_ready()
    }

    /// Returns whether it outlives this process.
    pub const fn is_kept(&self) -> bool {
        self.kept
    }

    /// Lets it outlive this process.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

/// This program without the caller's settings, which are not a node's; only the level of its log
/// is. Nor is the caller's service manager.
pub fn command(program: &Path) -> Command {
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
        if !self.kept {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn parse_ready(line: &str) -> Option<Ready> {
    let mut words = line.split_whitespace();
    if words.next()? != "ready" {
        return None;
    }
    let fields: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
    let field = |name: &str| fields.get(name).map(|value| (*value).to_owned());
    Some(Ready {
        node: field("node")?.parse().ok()?,
        client: field("client")?,
        peer: field("peer")?,
        admin: field("admin")?,
        stream: field("stream").unwrap_or_default(),
        stream_raw: field("stream-raw").unwrap_or_default(),
    })
}

/// Returns a free port below 32768, so that the kernel gives it to no outgoing connection, which
/// would block a node that returns to its port.
pub fn free_port() -> io::Result<u16> {
    /// Start of the search; differs between processes that search at the same time.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(7919);
    for _ in 0..PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = start.wrapping_add(step) % u32::from(PORTS);
        let port = FIRST_PORT + u16::try_from(place).unwrap_or(0);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port on 127.0.0.1"))
}

/// Addresses of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// For clients.
    pub client: String,
    /// For peers.
    pub peer: String,
    /// For operators.
    pub admin: String,
    /// For clients of byte streams.
    pub stream: String,
}

impl Places {
    /// Free ports of loopback.
    pub fn free() -> io::Result<Self> {
        let address = || Ok::<_, io::Error>(format!("127.0.0.1:{}", free_port()?));
        Ok(Self { client: address()?, peer: address()?, admin: address()?, stream: address()? })
    }
}

impl Spec {
    /// Returns the value of a flag.
    pub fn flag(&self, name: &str) -> Option<&str> {
        let mut flags = self.flags.iter().skip_while(|flag| *flag != name);
        flags.nth(1).map(String::as_str)
    }

    /// Tells it something else with this flag from the next start on.
    pub fn set_flag(&mut self, name: &str, value: &str) {
        match self.flags.iter().position(|flag| flag == name) {
            Some(at) if at + 1 < self.flags.len() => value.clone_into(&mut self.flags[at + 1]),
            _ => self.flags.extend([name.to_owned(), value.to_owned()]),
        }
    }

    /// Returns the specs of the members of a cluster, node 1 first; each has its data and its log
    /// in the folder. `flags` are for all of them. They die with the caller unless [`Self::tied`]
    /// is unset.
    pub fn members(
        program: &Path,
        folder: &Path,
        places: &[Places],
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
                data: folder.join(format!("node-{node}")),
                flags: own
                    .chain(trusting(&at.peer, flags).map(str::to_owned))
                    .chain(flags.iter().map(|flag| (*flag).to_owned()))
                    .collect(),
                variables: Vec::new(),
                stderr: folder.join(format!("node-{node}.log")),
                tied: true,
            }
        })
    }

    /// The same in the namespace of a node; the folder gets the script that enters it.
    pub fn in_namespace(mut self, node: u32, folder: &Path) -> io::Result<Self> {
        self.program = namespace::script(node, &self.program, folder)?;
        Ok(self)
    }
}

/// Returns the flag for a node that listens beyond loopback: no stranger is there in these
/// networks.
pub(crate) fn trusting(peer: &str, flags: &[&str]) -> Option<&'static str> {
    let alone = peer.starts_with("127.") || peer.starts_with("[::1]");
    let proves = flags.iter().any(|flag| flag.starts_with("--tls"));
    (!alone && !proves).then_some("--insecure")
}

/// Returns the specs of a cluster on loopback, node 1 first. `flags` are for all of them. Addresses
/// are fixed, so that a node comes back where it was.
pub fn cluster(program: &Path, folder: &Path, nodes: u32, flags: &[&str]) -> io::Result<Vec<Spec>> {
    // All are chosen before one is used: two equal ones are impossible only while none is taken.
    let places: Vec<Places> = (0..nodes).map(|_| Places::free()).collect::<io::Result<_>>()?;
    Ok(Spec::members(program, folder, &places, flags).collect())
}
