//! C program run as a process and controlled by lines of text.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use crate::c::build::Built;

/// Generous time limit for any step.
const PATIENCE: Duration = Duration::from_secs(90);

fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, lines) = channel();
    thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
    });
    lines
}

pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Program {
    pub(crate) fn start(built: &Built, arguments: &[&str]) -> Self {
        Self::spawn(built.command().args(arguments))
    }

    /// Starts the program. Also returns the lines that it writes to standard error.
    pub(crate) fn overheard(built: &Built, arguments: &[&str]) -> (Self, Receiver<String>) {
        let mut command = built.command();
        let mut program = Self::spawn(command.args(arguments).stderr(Stdio::piped()));
        let said = program.child.stderr.take().expect("piped");
        (program, lines(said))
    }

    fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let input = child.stdin.take().expect("piped");
        let lines = lines(child.stdout.take().expect("piped"));
        Self { child, input, lines }
    }

    /// Returns the next line of the program's output, or `None` on timeout.
    pub(crate) fn line_within(&mut self, patience: Duration) -> Option<String> {
        self.lines.recv_timeout(patience).ok()
    }

    /// Returns the next line of the program's output. Panics on timeout.
    pub(crate) fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(why) => panic!("no line: {why}; {:?}", self.child.try_wait()),
        }
    }

    /// Writes a line to the program's input.
    pub(crate) fn write(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it reads");
    }

    /// Kills the process without warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    pub(crate) fn terminate(&mut self) {
        let id = i32::try_from(self.child.id()).ok();
        let id = id.and_then(rustix::process::Pid::from_raw).expect("a process");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("asked");
    }

    pub(crate) fn wait(&mut self, patience: Duration) -> ExitStatus {
        // The output ends when the process does.
        while self.lines.recv_timeout(patience).is_ok() {}
        self.child.wait().expect("ended")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
