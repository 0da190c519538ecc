//! Statistics by command for this node's requests: calls, time and failures.
//!
//! Times are taken from the clock of the turn. Thus counting reads no clock, and a request that is
//! answered in the turn of its arrival takes no time.

use std::fmt::Write as _;

use super::{
    errors::Errors,
    latency::Latency,
    roster::ClientSlot,
    slow::{LatencySplit, SLOW_MS, SlowLog},
};
use crate::{command::Spec, commands::specs, resp::reply::NULL};

/// Command and arrival time of a request, in eight bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestStamp {
    command: u16,
    /// Time in milliseconds until the request was sent.
    waited_ms: u16,
    /// Lower half of the arrival time (Unix milliseconds), enough to measure a wait.
    arrived_ms: u32,
}

impl RequestStamp {
    /// Stamp of a request whose command is unknown or refused.
    pub(super) const NO_COMMAND: Self = Self { command: u16::MAX, waited_ms: 0, arrived_ms: 0 };

    /// Restarts the measurement once a client is no longer blocked.
    pub(super) const fn restart_clock(&mut self, now_ms: u64) {
        self.arrived_ms = lower_half(now_ms);
        self.waited_ms = 0;
    }

    pub(super) fn record_wait(&mut self, now_ms: u64) {
        let waited_ms = lower_half(now_ms).wrapping_sub(self.arrived_ms);
        self.waited_ms = u16::try_from(waited_ms).unwrap_or(u16::MAX);
    }
}

impl Default for RequestStamp {
    fn default() -> Self {
        Self::NO_COMMAND
    }
}

/// Maximum plausible duration of a request.
const LONGEST_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Clone, Copy, Debug, Default)]
struct CommandCounts {
    calls: u64,
    rejected: u64,
    failed: u64,
    /// Total time in milliseconds from arrival to reply.
    took_ms: u64,
    /// Number of reads that found something.
    hits: u64,
    /// Number of reads that found nothing.
    misses: u64,
}

/// Statistics in the order of the command table, and records of slow commands.
#[derive(Debug)]
pub(super) struct CommandStatistics {
    counts: Vec<CommandCounts>,
    pub(super) errors: Errors,
    /// Clock of the current turn, as Unix time in milliseconds.
    pub(super) now_ms: u64,
    pub(super) slow: SlowLog,
    pub(super) latency: Latency,
}

impl Default for CommandStatistics {
    fn default() -> Self {
        let commands = specs().count();
        assert!(commands < usize::from(u16::MAX), "the last number is no command's");
        Self {
            counts: vec![CommandCounts::default(); commands],
            errors: Errors::default(),
            now_ms: 0,
            slow: SlowLog::default(),
            latency: Latency::default(),
        }
    }
}

impl CommandStatistics {
    pub(super) const fn set_clock(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Counts a command that is about to be executed. Returns its stamp.
    pub(super) fn count_call(&mut self, command: u16) -> RequestStamp {
        if let Some(count) = self.count(command) {
            count.calls += 1;
        }
        RequestStamp { command, waited_ms: 0, arrived_ms: lower_half(self.now_ms) }
    }

    /// Counts a command that is forbidden or has invalid arguments.
    pub(super) fn count_rejection(&mut self, command: u16) {
        if let Some(count) = self.count(command) {
            count.rejected += 1;
        }
    }

    /// Counts a command that the connection answered directly.
    pub(super) fn count_direct_answer(&mut self, stamp: RequestStamp, reply: &[u8]) {
        self.errors.count(reply);
        if reply.first() == Some(&b'-')
            && let Some(count) = self.count(stamp.command)
        {
            count.failed += 1;
        }
    }

    /// Counts the reply to a queued command. Returns its duration in milliseconds if it was slow.
    pub(super) fn count_reply(&mut self, stamp: RequestStamp, reply: &[u8]) -> Option<u64> {
        let took_ms = u64::from(lower_half(self.now_ms).wrapping_sub(stamp.arrived_ms));
        // The clock has gone back, so the duration is unknown.
        let took_ms = if took_ms > LONGEST_MS { 0 } else { took_ms };
        let count = self.counts.get_mut(usize::from(stamp.command))?;
        self.errors.count(reply);
        let failed = u64::from(reply.first() == Some(&b'-'));
        let missed = u64::from(finds_nothing(reply));
        count.misses += missed;
        count.hits += 1 - missed - failed;
        count.took_ms = count.took_ms.saturating_add(took_ms);
        count.failed += failed;
        (took_ms >= SLOW_MS).then_some(took_ms)
    }

    /// Logs an answered command if it was slow, and discards its recorded arguments.
    #[cold]
    pub(super) fn log_if_slow(
        &mut self,
        seat: ClientSlot,
        number: u64,
        stamp: RequestStamp,
        slow_ms: Option<u64>,
    ) {
        let note = self.slow.take_recorded(seat, number);
        let Some(took_ms) = slow_ms else { return };
        let split = LatencySplit { took_ms, waited_ms: took_ms.min(stamp.waited_ms.into()) };
        self.latency.add(split, self.now_ms);
        self.slow.add(seat, note, Self::name(stamp), split, self.now_ms);
    }

    fn name(stamp: RequestStamp) -> &'static str {
        let spec = specs().nth(usize::from(stamp.command));
        spec.map_or("", |spec| spec.name)
    }

    pub(super) fn reset(&mut self) {
        self.counts.fill(CommandCounts::default());
        self.errors = Errors::default();
    }

    fn count(&mut self, command: u16) -> Option<&mut CommandCounts> {
        self.counts.get_mut(usize::from(command))
    }

    /// Returns the number of reads of keys that found something, and of those that found nothing.
    pub(super) fn hits_and_misses(&self) -> (u64, u64) {
        let of_keys =
            |spec: &Spec| spec.flags.contains(&"readonly") && spec.key_indexes(2).next().is_some();
        let counts = specs().zip(&self.counts).filter(|(spec, _)| of_keys(spec));
        counts.fold((0, 0), |(hits, misses), (_, count)| (hits + count.hits, misses + count.misses))
    }

    pub(super) fn write_commandstats(&self, text: &mut String) -> std::fmt::Result {
        write!(text, "# Commandstats\r\n")?;
        for (spec, count) in specs().zip(&self.counts) {
            let CommandCounts { calls, rejected, failed, took_ms, .. } = *count;
            if calls + rejected + failed == 0 {
                continue;
            }
            let usec = took_ms.saturating_mul(1000);
            let hundredths = u128::from(usec) * 100 / u128::from(calls.max(1));
            let (whole, rest) = (hundredths / 100, hundredths % 100);
            write!(
                text,
                "cmdstat_{}:calls={calls},usec={usec},usec_per_call={whole}.{rest:02},\
                 rejected_calls={rejected},failed_calls={failed}\r\n",
                spec.name
            )?;
        }
        Ok(())
    }
}

/// Returns whether a neutral reply means that there was nothing to read.
fn finds_nothing(reply: &[u8]) -> bool {
    const EMPTY: [&[u8]; 7] =
        [NULL, b"*0\r\n", b"%0\r\n", b"~0\r\n", b":0\r\n", b":-2\r\n", b"+none\r\n"];
    reply.len() <= 7 && EMPTY.contains(&reply)
}

#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
const fn lower_half(ms: u64) -> u32 {
    ms as u32
}
