//! Real processes: the fault tests again and again, and the failover measured.

use std::{
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    process::{NodeProcess, cluster},
    shell::{self, Failed, read},
};

/// Kill to the next acknowledged write, in milliseconds, as promised.
const MEDIAN_MS_MAX: u64 = 500;
const WORST_MS_MAX: u64 = 1500;
/// Measurements.
const KILLS: usize = 7;
/// A cluster that does not serve by then has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Three nodes with the release binary; gone when dropped.
pub(crate) struct Nodes {
    nodes: Vec<NodeProcess>,
    _folder: tempfile::TempDir,
}

impl Nodes {
    /// Starts and waits until each node serves.
    pub(crate) fn start(count: u32, flags: &[&str]) -> Result<Self, Failed> {
        let folder = tempfile::Builder::new()
            .prefix("quorate-xtask-")
            .tempdir()?;
        let specs = cluster(&program(), folder.path(), count, true, flags)?;
        let mut nodes = specs
            .into_iter()
            .map(NodeProcess::spawn)
            .collect::<Result<Vec<_>, _>>()?;
        for node in &mut nodes {
            node.wait_ready()?;
        }
        let nodes = Self {
            nodes,
            _folder: folder,
        };
        nodes.wait_for_leader()?;
        Ok(nodes)
    }

    fn wait_for_leader(&self) -> Result<(), Failed> {
        let until = Instant::now() + PATIENCE;
        for node in &self.nodes {
            while !serves(&node.ready.client) {
                if Instant::now() >= until {
                    return Err(Failed(format!("node {} does not serve", node.ready.node)));
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Where operators ask, per node.
    pub(crate) fn admin_addresses(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| node.ready.admin.clone())
            .collect()
    }

    /// Where clients connect, per node.
    pub(crate) fn client_ports(&self) -> Vec<u16> {
        let port = |node: &NodeProcess| node.ready.client.rsplit_once(':')?.1.parse().ok();
        self.nodes.iter().filter_map(port).collect()
    }
}

fn program() -> PathBuf {
    shell::release("quorate")
}

/// A linearizable read is answered.
fn serves(address: &str) -> bool {
    use std::io::{Read as _, Write as _};
    let ask = || {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"EXISTS x\r\n")?;
        let mut reply = [0; 1];
        stream.read_exact(&mut reply)?;
        Ok::<_, std::io::Error>(reply[0])
    };
    ask().is_ok_and(|kind| kind == b':')
}

/// Runs the task; a word is the number of rounds.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let rounds: u32 = match words {
        [] => 3,
        [count] => count
            .parse()
            .map_err(|_| Failed(format!("{count}: not a number of rounds")))?,
        _ => return Err(Failed("cluster [ROUNDS]".to_owned())),
    };
    shell::cargo(&["build", "--release", "--quiet", "--package", "quorate-cli"])?;
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        let tests = [
            "test",
            "--release",
            "--quiet",
            "--package",
            "quorate-cli",
            "--test",
            "faults",
        ];
        shell::cargo(&tests)?;
    }
    failover()
}

/// The demo kills a leader under load and says how long writes stood still.
fn failover() -> Result<(), Failed> {
    let mut times = Vec::new();
    for _ in 0..KILLS {
        let text = read(Command::new(program()).args(["demo", "--seconds", "3", "--json"]))?;
        let time = field(&text, "failover_ms")
            .ok_or_else(|| Failed(format!("the demo did not measure a failover: {text}")))?;
        println!("  kill to the next acknowledged write: {time} ms");
        times.push(time);
    }
    times.sort_unstable();
    let (median, worst) = (times[KILLS / 2], times[KILLS - 1]);
    println!("failover of {KILLS}: median {median} ms, worst {worst} ms");
    if median > MEDIAN_MS_MAX || worst > WORST_MS_MAX {
        return Err(Failed(format!(
            "promised: median {MEDIAN_MS_MAX} ms, worst {WORST_MS_MAX} ms"
        )));
    }
    Ok(())
}

/// A number of a flat JSON document.
fn field(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
