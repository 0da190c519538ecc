//! A process that is talked to by lines.

use std::{
    io::Write as _,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdin, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use crate::c::build::Built;

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(90);

/// A process; killed when it is dropped.
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Program {
    /// Starts it.
    pub(crate) fn start(built: &Built, arguments: &[&str]) -> Self {
        let mut command = built.command();
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (tell, lines) = channel();
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| tell.send(line))
        });
        Self {
            child,
            input,
            lines,
        }
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
        let id = id
            .and_then(rustix::process::Pid::from_raw)
            .expect("a process");
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
