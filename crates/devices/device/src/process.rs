//! A device program in a separate process, which exchanges frames through pipes ([`crate::pipe`]).
//!
//! If the process ends or sends garbage, it is killed and restarted, at most once a second. To the
//! owner, that looks like a power loss with new memory ([offload-9]). A slow process still has its
//! votes, so it is waited for indefinitely, until the [`WaitCanceller`] is dropped.

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

use crate::pipe::{Event, SentFrame, read_sent_frames, write_event};

/// Minimum time between two starts of the process.
const RESTART_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Minimum time from a process's end to the next start. The group needs the machine's processor for
/// failover in the meantime.
const RESTART_DELAY: Duration = Duration::from_millis(200);

/// A handle that, when dropped, ends all waits for processes on any thread.
#[derive(Debug)]
pub struct WaitCanceller(
    #[expect(dead_code, reason = "its other end sees that it is closed")] PipeWriter,
);

/// Receiving end of a [`WaitCanceller`], polled by the waits.
#[derive(Clone, Debug)]
pub(crate) struct CancelReceiver(Arc<PipeReader>);

pub(crate) fn wait_canceller() -> io::Result<(WaitCanceller, CancelReceiver)> {
    let (reader, writer) = pipe()?;
    Ok((WaitCanceller(writer), CancelReceiver(Arc::new(reader))))
}

/// A device program and the process that runs it.
pub(crate) struct ProgramProcess {
    /// Command line of the process.
    command_line: Vec<String>,
    cancel_receiver: CancelReceiver,
    running: Option<RunningProcess>,
    /// Earliest time of a restart.
    restart_not_before: Instant,
}

impl ProgramProcess {
    pub(crate) fn start(words: Vec<String>, held: CancelReceiver) -> io::Result<Self> {
        let running = Some(RunningProcess::start(&words)?);
        Ok(Self {
            command_line: words,
            cancel_receiver: held,
            running,
            restart_not_before: Instant::now() + RESTART_INTERVAL_MIN,
        })
    }

    /// Returns whether the process was running when last checked.
    pub(crate) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Passes one event to the process and returns the frames that it sends. Waits for them until
    /// `until`, or indefinitely if that is `None`.
    pub(crate) fn step(
        &mut self,
        event: &Event,
        until: Option<Instant>,
    ) -> io::Result<Vec<SentFrame>> {
        if self.running.is_none() {
            if Instant::now() < self.restart_not_before {
                return Err(io::ErrorKind::NotConnected.into());
            }
            self.restart_not_before = Instant::now() + RESTART_INTERVAL_MIN;
            self.running = Some(RunningProcess::start(&self.command_line)?);
        }
        let Some(running) = &mut self.running else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let sent = running.step(event, &self.cancel_receiver, until);
        if sent.is_err() {
            self.kill();
        }
        sent
    }

    /// Kills the process if it is running, which erases its memory.
    pub(crate) fn kill(&mut self) {
        self.running = None;
        self.restart_not_before = self.restart_not_before.max(Instant::now() + RESTART_DELAY);
    }
}

struct RunningProcess {
    child: Child,
    stdin: ChildStdin,
    from: ChildStdout,
}

impl RunningProcess {
    fn start(words: &[String]) -> io::Result<Self> {
        let (command, rest) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(command)
            .args(rest)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        let running = Self { child, stdin: to, from };
        // From here on, the process is killed when `running` is dropped, including on an error.
        ioctl_fionbio(&running.stdin, true)?;
        ioctl_fionbio(&running.from, true)?;
        Ok(running)
    }

    fn step(
        &mut self,
        event: &Event,
        held: &CancelReceiver,
        until: Option<Instant>,
    ) -> io::Result<Vec<SentFrame>> {
        let mut bytes = Vec::new();
        write_event(&mut bytes, event)?;
        PipeWait(&mut self.stdin, PollFlags::OUT, held, until).write_all(&bytes)?;
        let answer = read_sent_frames(&mut PipeWait(&mut self.from, PollFlags::IN, held, until))?;
        answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Blocking access to a non-blocking pipe, until the leash is dropped or a deadline passes.
struct PipeWait<'a, P>(&'a mut P, PollFlags, &'a CancelReceiver, Option<Instant>);

impl<P: AsFd> PipeWait<'_, P> {
    fn wait_ready(&self) -> io::Result<()> {
        let left = self.3.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut ready =
            [PollFd::new(&*self.0, self.1), PollFd::new(&*self.2.0, PollFlags::empty())];
        match poll(&mut ready, left.as_ref()) {
            // The leash was dropped.
            Ok(_) if !ready[1].revents().is_empty() => Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<P: AsFd + Read> Read for PipeWait<'_, P> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_ready()?,
                other => return other,
            }
        }
    }
}

impl<P: AsFd + Write> Write for PipeWait<'_, P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_ready()?,
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

    fn shell(script: &str) -> (ProgramProcess, WaitCanceller) {
        let words = ["sh", "-c", script].map(str::to_owned);
        let (leash, held) = wait_canceller().unwrap();
        (ProgramProcess::start(words.into(), held).unwrap(), leash)
    }

    fn event() -> Event {
        Event::Frame(Port::Network, vec![7; 60])
    }

    #[test]
    fn echoing_process_sends_the_frame_it_received() {
        // The response is the event itself and an end mark, so the process sends what it receives.
        let (mut echo, _leash) = shell("while true; do head -c 62 || exit; printf '\\0\\0'; done");
        for _ in 0..3 {
            assert_eq!(echo.step(&event(), None).unwrap(), [(Port::Network, vec![7; 60])]);
        }
    }

    #[test]
    fn process_that_exits_or_writes_garbage_is_stopped() {
        for script in ["exit 0", "head -c 62; exit 1", "printf '\\360\\1abc'; cat > /dev/null"] {
            let (mut process, _leash) = shell(script);
            assert!(process.step(&event(), None).is_err(), "{script}");
            assert!(process.running.is_none());
            let down = process.step(&event(), None).unwrap_err();
            assert_eq!(down.kind(), io::ErrorKind::NotConnected, "{script}");
        }
    }

    /// [offload-9] A late process still has its votes, so only its owner may abandon it.
    #[test]
    fn late_process_is_awaited_until_its_leash_is_dropped() {
        let (mut process, leash) = shell("exec sleep 600");
        let waits = std::thread::spawn(move || process.step(&event(), None).unwrap_err().kind());
        drop(leash);
        assert_eq!(waits.join().unwrap(), io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn process_that_exceeds_the_deadline_is_killed_and_restarted() {
        let (mut process, _leash) = shell("head -c 62; printf '\\0\\0'; exec sleep 600");
        process.step(&event(), None).unwrap();
        let hangs = process.step(&event(), Some(Instant::now())).unwrap_err();
        assert_eq!(hangs.kind(), io::ErrorKind::TimedOut);
        assert!(process.running.is_none());
        // The process is restarted once the minimum time has passed.
        process.restart_not_before = Instant::now();
        assert!(process.step(&event(), None).is_ok());
    }

    #[test]
    fn missing_or_empty_command_is_an_error() {
        for words in [vec!["/nowhere/quorate-none".to_owned()], Vec::new()] {
            assert!(ProgramProcess::start(words, wait_canceller().unwrap().1).is_err());
        }
    }
}
