//! A program of a device as a process of its own: frames go in and come out by pipes
//! ([`crate::pipe`]).
//!
//! It may end or talk nonsense at any time. Then it is killed, and started again, at most once a
//! second: that is a loss of power, and its owner sees another memory ([offload-9]). One that is
//! late, however late, still holds its votes: it is waited for until the [`Leash`] is dropped.

use std::{
    io::{self, PipeReader, PipeWriter, Read, Write, pipe},
    os::fd::AsFd,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
};

use crate::pipe::{Event, Sent, read_answer, write_event};

/// From the start of one process to that of the next at least.
const REST: Duration = Duration::from_secs(1);
/// From the end of one to the start of the next at least: the group needs the machine meanwhile, to
/// go on without it.
const PAUSE: Duration = Duration::from_millis(200);

/// Ends all waits for processes when it is dropped, on any thread.
#[derive(Debug)]
pub struct Leash(#[expect(dead_code, reason = "its other end sees that it is closed")] PipeWriter);

/// The other end of a [`Leash`].
#[derive(Clone, Debug)]
pub(crate) struct Held(Arc<PipeReader>);

/// Returns a leash, and its other end.
pub(crate) fn leash() -> io::Result<(Leash, Held)> {
    let (reader, writer) = pipe()?;
    Ok((Leash(writer), Held(Arc::new(reader))))
}

/// One program.
pub(crate) struct Process {
    /// The command, and its words.
    words: Vec<String>,
    held: Held,
    running: Option<Running>,
    /// Not before, if this one ends.
    again_at: Instant,
}

impl Process {
    /// Runs this command.
    pub(crate) fn start(words: Vec<String>, held: Held) -> io::Result<Self> {
        let running = Some(Running::start(&words)?);
        Ok(Self { words, held, running, again_at: Instant::now() + REST })
    }

    /// Returns whether it runs, as far as is known.
    pub(crate) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns what it sends for one event, or why it sends nothing; `until` then at the latest.
    pub(crate) fn step(&mut self, event: &Event, until: Option<Instant>) -> io::Result<Vec<Sent>> {
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
        let sent = running.step(event, &self.held, until);
        if sent.is_err() {
            self.end();
        }
        sent
    }

    /// Ends it, if it runs; it forgets.
    pub(crate) fn end(&mut self) {
        self.running = None;
        self.again_at = self.again_at.max(Instant::now() + PAUSE);
    }
}

struct Running {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
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
        let running = Self { child, to, from };
        // From here on it is ended whatever happens.
        ioctl_fionbio(&running.to, true)?;
        ioctl_fionbio(&running.from, true)?;
        Ok(running)
    }

    fn step(
        &mut self,
        event: &Event,
        held: &Held,
        until: Option<Instant>,
    ) -> io::Result<Vec<Sent>> {
        let mut bytes = Vec::new();
        write_event(&mut bytes, event)?;
        Patient(&mut self.to, PollFlags::OUT, held, until).write_all(&bytes)?;
        let answer = read_answer(&mut Patient(&mut self.from, PollFlags::IN, held, until))?;
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

/// A pipe that is waited for, as long as the leash is held, and up to some moment.
struct Patient<'a, P>(&'a mut P, PollFlags, &'a Held, Option<Instant>);

impl<P: AsFd> Patient<'_, P> {
    fn wait(&self) -> io::Result<()> {
        let left = self.3.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut ready =
            [PollFd::new(&*self.0, self.1), PollFd::new(&*self.2.0, PollFlags::empty())];
        match poll(&mut ready, left.as_ref()) {
            // Its writer is gone.
            Ok(_) if !ready[1].revents().is_empty() => Err(io::ErrorKind::ConnectionAborted.into()),
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

    fn shell(script: &str) -> (Process, Leash) {
        let words = ["sh", "-c", script].map(str::to_owned);
        let (leash, held) = leash().unwrap();
        (Process::start(words.into(), held).unwrap(), leash)
    }

    fn event() -> Event {
        Event::Frame(Port::Network, vec![7; 60])
    }

    #[test]
    fn what_goes_in_comes_out() {
        // The event itself, and then the end of an answer: what it sends is what it got.
        let (mut echo, _leash) = shell("while true; do head -c 62 || exit; printf '\\0\\0'; done");
        for _ in 0..3 {
            assert_eq!(echo.step(&event(), None).unwrap(), [(Port::Network, vec![7; 60])]);
        }
    }

    #[test]
    fn one_that_ends_or_talks_nonsense_is_no_more() {
        for script in ["exit 0", "head -c 62; exit 1", "printf '\\360\\1abc'; cat > /dev/null"] {
            let (mut process, _leash) = shell(script);
            assert!(process.step(&event(), None).is_err(), "{script}");
            assert!(process.running.is_none());
            let down = process.step(&event(), None).unwrap_err();
            assert_eq!(down.kind(), io::ErrorKind::NotConnected, "{script}");
        }
    }

    /// [offload-9] It holds its votes: only its owner gives it up.
    #[test]
    fn one_that_is_late_is_waited_for_until_its_leash_is_dropped() {
        let (mut process, leash) = shell("exec sleep 600");
        let waits = std::thread::spawn(move || process.step(&event(), None).unwrap_err().kind());
        drop(leash);
        assert_eq!(waits.join().unwrap(), io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn one_that_does_not_answer_in_time_is_killed() {
        let (mut process, _leash) = shell("head -c 62; printf '\\0\\0'; exec sleep 600");
        process.step(&event(), None).unwrap();
        let hangs = process.step(&event(), Some(Instant::now())).unwrap_err();
        assert_eq!(hangs.kind(), io::ErrorKind::TimedOut);
        assert!(process.running.is_none());
        // And it is started again when its rest is over.
        process.again_at = Instant::now();
        assert!(process.step(&event(), None).is_ok());
    }

    #[test]
    fn what_is_no_command_is_said() {
        for words in [vec!["/nowhere/quorate-none".to_owned()], Vec::new()] {
            assert!(Process::start(words, leash().unwrap().1).is_err());
        }
    }
}
