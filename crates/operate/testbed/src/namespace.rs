//! Network namespaces of this process, in which nodes have machines of their own.
//!
//! A command runs itself again in a network and a mount namespace of its own. They, and everything
//! in them, are gone with its last process, however it ends: nothing outside is ever touched.

use std::{
    env, fs, io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use crate::run::{has, read};

/// Ports of clients, peers and operators: each node has all of its own namespace.
pub const PORTS: [u16; 4] = [7450, 7451, 7452, 7453];

/// Why there can be no namespaces here, if so. `trial` is what will be made inside, as a line of
/// the shell; it is gone with the trial's own namespaces.
pub fn missing(trial: &str) -> Option<io::Error> {
    for program in ["ip", "unshare", "nsenter", "mount"] {
        if !has(program) {
            let why = format!("there is no `{program}` (Debian: iproute2, util-linux)");
            return Some(io::Error::other(why));
        }
    }
    let trial = format!("mount -t tmpfs tmpfs /run && {trial}");
    read(unshare().args(["sh", "-c", &trial])).err()
}

/// Returns the start of a command in a network and a mount namespace of its own: a program follows.
/// Without root it pretends to be root, where that is allowed.
pub fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--mount"]);
    command
}

/// Returns whether this process was started by [`enter`] with this variable.
pub fn is_inside(variable: &str) -> bool {
    env::var_os(variable).is_some()
}

/// Replaces this process by the same one in namespaces of its own, where the variable is set; comes
/// back only if that fails.
pub fn enter(variable: &str) -> io::Error {
    match env::current_exe() {
        Ok(program) => {
            unshare().arg(program).args(env::args_os().skip(1)).env(variable, "1").exec()
        }
        Err(error) => error,
    }
}

/// Makes a place for names of namespaces where `ip` keeps them, and one for pins of programs in the
/// kernel. Neither is for others to see, and both are gone with this process's namespaces.
pub fn prepare() -> io::Result<()> {
    read(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]))?;
    // A user who may not mount it may not load programs either.
    let _ = read(Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]));
    ip("link set lo up")
}

/// Runs `ip` with these words.
pub fn ip(words: &str) -> io::Result<()> {
    read(Command::new("ip").args(words.split(' '))).map(drop)
}

/// An interface of this name at a switch, in the namespace of both.
pub(crate) fn join(switch: &str, interface: &str) -> io::Result<()> {
    let port = "p0";
    ip(&format!("link add {port} type veth peer name {interface}"))?;
    ip(&format!("link set {port} master {switch} up"))?;
    ip(&format!("link set {interface} up"))
}

/// Returns the start of a command in a node's namespace: words follow.
pub fn inside(node: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/n{node}"));
    command
}

/// A program that becomes another one in a node's namespace, keeping its process id.
pub fn script(node: u32, program: &Path, folder: &Path) -> io::Result<PathBuf> {
    let script = folder.join(format!("node-{node}.sh"));
    let text = format!(
        "#!/bin/sh\nexec nsenter --net=/run/netns/n{node} '{}' \"$@\"\n",
        program.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}
