//! One network namespace per node, all links of which can be cut in either direction.
//!
//! The whole task runs in a network and a mount namespace of its own. They, and everything in them,
//! are gone with its last process, however it ends: nothing outside is ever touched.
//!
//! Frames are lost by an address that nobody has: each node knows the others' hardware addresses
//! from a table, and a wrong entry makes what it sends to one of them vanish, silently, as on a real
//! network. This needs nothing of the kernel but `veth` and `bridge`.

use std::{
    env, fs,
    io::Write as _,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
};

use quorate_testbed::process::Spec;

use crate::shell::{Failed, has, read};

/// Set in the process that runs in its own namespaces.
const INSIDE: &str = "QUORATE_XTASK_INSIDE";
/// Nodes have the addresses from 1, clients have the last one.
const NET: &str = "10.213.77";
const CLIENTS: u32 = 254;
/// A hardware address that no node has.
const NOBODY: &str = "02:00:00:00:ff:ff";
const PORTS: [u16; 3] = [7450, 7451, 7452];

/// Namespaces of the nodes 1, 2, 3 …, joined by a bridge; clients are outside of them.
pub(crate) struct Network {
    nodes: u32,
}

/// Why there can be no namespaces here, if so.
pub(crate) fn missing() -> Option<String> {
    for program in ["ip", "unshare", "nsenter", "mount"] {
        if !has(program) {
            return Some(format!(
                "there is no `{program}` (Debian: iproute2, util-linux)"
            ));
        }
    }
    // A name in the trial's own namespace, which is gone with it.
    let trial = "mount -t tmpfs tmpfs /run && ip netns add x && ip link add br0 type bridge && \
                 ip link add v1 type veth peer name eth0 netns x";
    let tried = read(unshare().args(["sh", "-c", trial]));
    tried
        .err()
        .map(|Failed(why)| format!("this process may not make them: {why}"))
}

/// Without root it pretends to be root, where that is allowed.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--mount"]);
    command
}

/// Whether this process runs in namespaces of its own.
pub(crate) fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Replaces this process by the same one in namespaces of its own; comes back only if that fails.
pub(crate) fn enter() -> Failed {
    let Ok(program) = env::current_exe() else {
        return Failed("find this program".to_owned());
    };
    let error = unshare()
        .arg(program)
        .args(env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Failed(format!("unshare: {error}"))
}

impl Network {
    /// Makes it; this process must be inside.
    pub(crate) fn new(nodes: u32) -> Result<Self, Failed> {
        // Where `ip` keeps names of namespaces; ours are not for others to see.
        read(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]))?;
        ip("link set lo up")?;
        ip("link add br0 type bridge")?;
        ip("link set br0 up")?;
        ip(&format!("addr add {}/24 dev br0", address(CLIENTS)))?;
        let network = Self { nodes };
        for node in 1..=nodes {
            ip(&format!("netns add n{node}"))?;
            ip(&format!(
                "link add v{node} type veth peer name eth0 address {} netns n{node}",
                hardware(node)
            ))?;
            ip(&format!("link set v{node} master br0 up"))?;
            ip(&format!("-n n{node} link set lo up"))?;
            ip(&format!(
                "-n n{node} addr add {}/24 dev eth0",
                address(node)
            ))?;
            ip(&format!("-n n{node} link set eth0 up"))?;
        }
        network.heal()?;
        Ok(network)
    }

    /// What the first of each pair sends to the second is lost from now on.
    pub(crate) fn cut(&self, pairs: &[(u32, u32)]) -> Result<(), Failed> {
        self.send(|from, to| pairs.contains(&(from, to)).then(|| NOBODY.to_owned()))
    }

    /// Nothing is lost any more.
    pub(crate) fn heal(&self) -> Result<(), Failed> {
        self.send(|_, to| Some(hardware(to)))
    }

    /// Where one node's frames for another go from now on; unchanged for `None`.
    fn send(&self, place: impl Fn(u32, u32) -> Option<String>) -> Result<(), Failed> {
        for from in 1..=self.nodes {
            let line = |to| {
                let (at, hardware) = (address(to), place(from, to)?);
                Some(format!(
                    "neigh replace {at} lladdr {hardware} dev eth0 nud permanent\n"
                ))
            };
            let others = (1..=self.nodes).filter(|to| *to != from);
            let lines: String = others.filter_map(line).collect();
            if !lines.is_empty() {
                batch(from, &lines)?;
            }
        }
        Ok(())
    }

    /// How nodes are started, each in its namespace.
    pub(crate) fn specs(
        &self,
        program: &Path,
        folder: &Path,
        flags: &[&str],
    ) -> Result<Vec<Spec>, Failed> {
        let [client, peer, admin] = PORTS;
        let member = |node| format!("{node}={}:{peer}", address(node));
        let list = (1..=self.nodes).map(member).collect::<Vec<_>>().join(",");
        let spec = |node: u32| {
            let at = address(node);
            let own = [
                ("--node", node.to_string()),
                ("--cluster", list.clone()),
                ("--peer", format!("{at}:{peer}")),
                ("--client", format!("{at}:{client}")),
                ("--admin", format!("{at}:{admin}")),
            ];
            let own = own
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value]);
            Ok(Spec {
                program: inside(node, program, folder)?,
                data: folder.join(format!("node-{node}")),
                flags: own
                    .chain(flags.iter().map(|flag| (*flag).to_owned()))
                    .collect(),
                stderr: folder.join(format!("node-{node}.log")),
                tied: true,
            })
        };
        (1..=self.nodes).map(spec).collect()
    }
}

/// A program that becomes another one in a node's namespace, keeping its process id.
fn inside(node: u32, program: &Path, folder: &Path) -> Result<std::path::PathBuf, Failed> {
    let script = folder.join(format!("node-{node}.sh"));
    let text = format!(
        "#!/bin/sh\nexec nsenter --net=/run/netns/n{node} '{}' \"$@\"\n",
        program.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// All lines in one process, so that they take effect together.
fn batch(node: u32, lines: &str) -> Result<(), Failed> {
    let mut child = Command::new("ip")
        .args(["-n", &format!("n{node}"), "-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes())?;
    }
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(Failed(format!("ip -batch in namespace n{node}: {status}")))
    }
}

fn address(node: u32) -> String {
    format!("{NET}.{node}")
}

fn hardware(node: u32) -> String {
    format!("02:00:00:00:00:{node:02x}")
}

fn ip(words: &str) -> Result<(), Failed> {
    read(Command::new("ip").args(words.split(' '))).map(drop)
}
