//! A member's process: its namespace, its input and output, and its end.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command},
    sync::mpsc::{self, Receiver},
    thread,
    time::Instant,
};

use super::{build::BUFFER_LIBRARY, built_folder};
use crate::shell::Failed;

/// Creates a command that runs in a node's namespace and is killed with this process.
pub(super) fn command_in_namespace(node: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "nsenter"]).arg(format!("--net=/run/netns/n{node}"));
    command
}

/// Makes a program's sockets get the requested buffer sizes.
pub(super) fn with_forced_buffers(mut command: Command) -> Result<Command, Failed> {
    command.env("LD_PRELOAD", built_folder("bin")?.join(Path::new(BUFFER_LIBRARY)));
    Ok(command)
}

/// A process, killed when dropped, and its output.
pub(super) struct MemberProcess {
    node: u32,
    child: Child,
    input: Option<ChildStdin>,
    output_lines: Option<Receiver<String>>,
    /// Set if the process prints the lines required by bench-compare/README.md.
    pub(super) prints_status_lines: bool,
    /// Set if the process counts received messages.
    pub(super) counts_messages: bool,
}

impl MemberProcess {
    pub(super) fn new(node: u32, mut child: Child) -> Self {
        let input = child.stdin.take();
        let output_lines = child.stdout.take().map(|out| {
            let (sender, receiver) = mpsc::channel();
            thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
            receiver
        });
        Self {
            node,
            child,
            input,
            output_lines,
            prints_status_lines: false,
            counts_messages: false,
        }
    }

    /// Returns the next line that satisfies the condition.
    pub(super) fn wait_for_line(
        &self,
        until: Instant,
        is_it: impl Fn(&str) -> bool,
    ) -> Result<String, Failed> {
        let node = self.node;
        let said = self.output_lines.as_ref();
        let said = said.ok_or_else(|| Failed(format!("member {node} cannot speak")))?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match said.recv_timeout(left) {
                Ok(line) if is_it(&line) => return Ok(line),
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(Failed(format!("member {node} took too long")));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Failed(format!("member {node} ended")));
                }
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn send_line(&mut self, line: &str) -> Result<(), Failed> {
        if let Some(input) = &mut self.input {
            writeln!(input, "{line}")?;
            input.flush()?;
        }
        Ok(())
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the last process of a node. This process prints the lines of output.
pub(super) fn find_member(
    processes: &mut [MemberProcess],
    node: u32,
) -> Result<&mut MemberProcess, Failed> {
    let mut all = processes.iter_mut().rev();
    let found = all.find(|member| member.node == node);
    found.ok_or_else(|| Failed(format!("member {node} was not started")))
}

#[cfg(test)]
mod tests {
    use std::{process::Stdio, time::Duration};

    use quorate_testbed::usage::ResourceUsage;

    use super::*;

    #[test]
    fn member_output_is_received_and_drop_ends_the_process() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo up; read line; echo \"heard $line\"; exec sleep 1000"]);
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut member = MemberProcess::new(1, shell.spawn().unwrap());
        let until = Instant::now() + Duration::from_secs(60);
        member.wait_for_line(until, |line| line == "up").unwrap();
        member.send_line("go").unwrap();
        let heard = member.wait_for_line(until, |line| line.starts_with("heard"));
        assert_eq!(heard.unwrap(), "heard go");
        let id = member.id();
        assert!(ResourceUsage::of_process(id).is_some());
        drop(member);
        assert!(ResourceUsage::of_process(id).is_none());
    }
}
