//! A process that is talked to by lines.

use std::{
    io::{BufRead as _, BufReader, Read, Write as _},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use crate::c::build::Built;

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(90);

fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, lines) = channel();
    thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
    });
    lines
}

/// A process; killed when it is dropped.
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Program {
    /// Starts it.
    pub(crate) fn start(built: &Built, arguments: &[&str]) -> Self {
        Self::spawn(built.command().args(arguments))
    }

    /// Starts it; what it says on standard error, too.
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

    /// The next line that it writes, if one comes.
    pub(crate) fn line_within(&mut self, patience: Duration) -> Option<String> {
        self.lines.recv_timeout(patience).ok()
    }

    /// The next line that it writes.
    pub(crate) fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(why) => panic!("no line: {why}; {:?}", self.child.try_wait()),
        }
    }

    /// Writes a line.
    pub(crate) fn write(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it reads");
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Asks it to end.
    pub(crate) fn terminate(&mut self) {
        let id = i32::try_from(self.child.id()).ok();
        let id = id.and_then(rustix::process::Pid::from_raw).expect("a process");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("asked");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, patience: Duration) -> ExitStatus {
        // Its output ends with it.
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
