//! Network namespaces in which nodes run as if on separate machines.
//!
//! A command re-executes itself in new network and mount namespaces. These namespaces and their
//! contents disappear with the last process in them, so nothing outside is changed.

use std::{
    env, fs, io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use crate::run::{is_installed, read_output};

/// Ports for clients, peers, operators and stream clients. They are the same on every node, because
/// each node has its own namespace.
pub const NODE_PORTS: [u16; 4] = [7450, 7451, 7452, 7453];

/// Returns the error if namespaces cannot be created on this machine, or `None` if they can.
/// `trial` is a shell command that creates the same objects as the caller will; they disappear with
/// the namespaces that it runs in.
pub fn check_support(trial: &str) -> Option<io::Error> {
    for program in ["ip", "unshare", "nsenter", "mount"] {
        if !is_installed(program) {
            let why = format!("there is no `{program}` (Debian: iproute2, util-linux)");
            return Some(io::Error::other(why));
        }
    }
    let trial = format!("mount -t tmpfs tmpfs /run && {trial}");
    read_output(unshare_command().args(["sh", "-c", &trial])).err()
}

/// Returns a command prefix that runs a program in new network and mount namespaces. Maps the user
/// to root if that is necessary and permitted.
pub fn unshare_command() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--mount"]);
    command
}

/// Returns whether [`reenter`] started this process with the environment variable.
pub fn is_inside(variable: &str) -> bool {
    env::var_os(variable).is_some()
}

/// Re-executes this process in new namespaces with the variable set. Returns only on failure.
pub fn reenter(variable: &str) -> io::Error {
    match env::current_exe() {
        Ok(program) => {
            unshare_command().arg(program).args(env::args_os().skip(1)).env(variable, "1").exec()
        }
        Err(error) => error,
    }
}

/// Mounts private directories for the namespace names of `ip` and for pinned BPF programs. They
/// disappear with the namespaces of this process.
pub fn mount_private() -> io::Result<()> {
    read_output(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]))?;
    // A user who may not mount it may not load programs either, so ignore errors.
    let _ = read_output(Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]));
    run_ip("link set lo up")
}

/// Runs `ip` with arguments separated by spaces.
pub fn run_ip(words: &str) -> io::Result<()> {
    read_output(Command::new("ip").args(words.split(' '))).map(drop)
}

/// Creates an interface that is connected to a switch in the current namespace.
pub(crate) fn connect_to_switch(switch: &str, interface: &str) -> io::Result<()> {
    let port = "p0";
    run_ip(&format!("link add {port} type veth peer name {interface}"))?;
    run_ip(&format!("link set {port} master {switch} up"))?;
    run_ip(&format!("link set {interface} up"))
}

/// Returns a command prefix that runs a program in the namespace of a node.
pub fn namespace_command(node: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/n{node}"));
    command
}

/// Writes a script that becomes a program in a node's namespace, with the same process id.
pub fn write_namespace_script(node: u32, program: &Path, folder: &Path) -> io::Result<PathBuf> {
    let script = folder.join(format!("node-{node}.sh"));
    let text = format!(
        "#!/bin/sh\nexec nsenter --net=/run/netns/n{node} '{}' \"$@\"\n",
        program.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}
