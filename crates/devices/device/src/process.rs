//! A program of a device as a process of its own: frames go in and come out by pipes
//! ([`crate::pipe`]).
//!
//! It may end, hang or talk nonsense at any time. Then it is killed, and started again, at most
//! once a second: that is a loss of power, and its owner sees another memory ([offload-9]).

use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
};

use crate::pipe::{Event, Sent, read_answer, write_event};

/// How long an answer may take; the first one as long as a start.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_AT_START: Duration = Duration::from_secs(3);
/// From the start of one process to that of the next at least.
const REST: Duration = Duration::from_secs(1);
/// From the end of one to the start of the next at least: whoever goes on without it has the
/// machine for that.
const PAUSE: Duration = Duration::from_millis(200);

/// One program.
pub(crate) struct Process {
    /// The command, and its words.
    words: Vec<String>,
    running: Option<Running>,
    /// Not before, if this one ends.
    again_at: Instant,
}

impl Process {
    /// Runs this command.
    pub(crate) fn start(words: Vec<String>) -> io::Result<Self> {
        let running = Running::start(&words)?;
        Ok(Self { words, running: Some(running), again_at: Instant::now() + REST })
    }

    /// Whether it runs, as far as is known.
    pub(crate) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// What it sends for one event, or why it sends nothing.
    pub(crate) fn step(&mut self, event: &Event) -> io::Result<Vec<Sent>> {
        if self.running.is_none() {
            if Instant::now() < self.again_at {
                return Err(io::ErrorKind::NotConnected.into());
            }
            self.again_at = Instant::now() + REST;
            self.running = Some(Running::start(&self.words)?);
        }
        let Some(running) = &mut self.running else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let sent = running.step(event);
        if sent.is_err() {
            self.running = None;
            self.again_at = self.again_at.max(Instant::now() + PAUSE);
        }
        sent
    }
}

struct Running {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    patience: Duration,
}

impl Running {
    fn start(words: &[String]) -> io::Result<Self> {
        let (command, rest) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(command)
            .args(rest)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        let running = Self { child, to, from, patience: PATIENCE_AT_START };
        // From here on it is ended whatever happens.
        ioctl_fionbio(&running.to, true)?;
        ioctl_fionbio(&running.from, true)?;
        Ok(running)
    }

    fn step(&mut self, event: &Event) -> io::Result<Vec<Sent>> {
        let until = Instant::now() + self.patience;
        let mut bytes = Vec::new();
        write_event(&mut bytes, event)?;
        Patient(&mut self.to, PollFlags::OUT, until).write_all(&bytes)?;
        let answer = read_answer(&mut Patient(&mut self.from, PollFlags::IN, until))?;
        self.patience = PATIENCE;
        answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A pipe that is waited for, up to some moment.
struct Patient<'a, P>(&'a mut P, PollFlags, Instant);

impl<P: AsFd> Patient<'_, P> {
    fn wait(&self) -> io::Result<()> {
        let left = self.2.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(&*self.0, self.1)];
        match poll(&mut ready, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<P: AsFd + Read> Read for Patient<'_, P> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                other => return other,
            }
        }
    }
}

impl<P: AsFd + Write> Write for Patient<'_, P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use quorate_offload::Port;

    use super::*;

    fn shell(script: &str) -> Process {
        let words = ["sh", "-c", script].map(str::to_owned);
        Process::start(words.into()).unwrap()
    }

    fn event() -> Event {
        Event::Frame(Port::Network, vec![7; 60])
    }

    #[test]
    fn what_goes_in_comes_out() {
        // The event itself, and then the end of an answer: what it sends is what it got.
        let mut echo = shell("while true; do head -c 62 || exit; printf '\\0\\0'; done");
        for _ in 0..3 {
            assert_eq!(echo.step(&event()).unwrap(), [(Port::Network, vec![7; 60])]);
        }
    }

    #[test]
    fn one_that_ends_or_talks_nonsense_is_no_more() {
        for script in ["exit 0", "head -c 62; exit 1", "printf '\\360\\1abc'; cat > /dev/null"] {
            let mut process = shell(script);
            assert!(process.step(&event()).is_err(), "{script}");
            assert!(process.running.is_none());
            let down = process.step(&event()).unwrap_err();
            assert_eq!(down.kind(), io::ErrorKind::NotConnected, "{script}");
        }
    }

    #[test]
    fn one_that_hangs_is_killed() {
        let mut process = shell("head -c 62; printf '\\0\\0'; exec sleep 600");
        process.step(&event()).unwrap();
        let hangs = process.step(&event()).unwrap_err();
        assert_eq!(hangs.kind(), io::ErrorKind::TimedOut);
        assert!(process.running.is_none());
        // And it is started again when its rest is over.
        process.again_at = Instant::now();
        assert!(process.step(&event()).is_ok());
    }

    #[test]
    fn what_is_no_command_is_said() {
        let words = vec!["/nowhere/quorate-none".to_owned()];
        assert!(Process::start(words).is_err());
        assert!(Process::start(Vec::new()).is_err());
    }
}
