//! I/O threads. They own client sockets so that the reactor makes no system calls for the clients'
//! data.
//!
//! A connection is *here* if the reactor has its socket, and *away* if an I/O thread has it.
//! Requests and replies are exchanged as bytes, in order per connection; everything else about a
//! client stays in the reactor and its front. The rules are in `docs/spec/io.md`.

mod far;
mod load;
mod ring;
mod worker;

pub(crate) use self::{
    far::{ReturnReason, ThreadRecord, Threads},
    load::{ClientWork, HandoverDecision, ReactorLoad},
};

/// Number of I/O threads, as passed with `--io-threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoThreads {
    /// None on one or two CPUs, otherwise a quarter of the CPUs, at least 1 and at most 8.
    Auto,
    Fixed(u8),
}

impl IoThreads {
    /// Maximum number of threads.
    pub const MAX: u8 = 64;
    const AUTO_MAX: usize = 8;

    /// Parses the value of `--io-threads`: `auto`, or a number up to [`Self::MAX`].
    pub fn from_name(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            number => number.parse().ok().filter(|n| *n <= Self::MAX).map(Self::Fixed),
        }
    }

    /// Returns the number of threads on a machine with this many CPUs.
    pub(crate) fn thread_count(self, cpus: usize) -> usize {
        match self {
            Self::Fixed(count) => count.into(),
            Self::Auto if cpus <= 2 => 0,
            Self::Auto => (cpus / 4).clamp(1, Self::AUTO_MAX),
        }
    }
}

/// Condition under which connections are handed over to the I/O threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoSpread {
    /// The reactor is busy ([io-3]).
    #[default]
    ByLoad,
    /// Always. For tests: a command that runs alone then waits for two hand-offs.
    Always,
}

impl IoSpread {
    /// Parses the value of `--io-spread`.
    pub fn from_name(text: &str) -> Option<Self> {
        match text {
            "load" => Some(Self::ByLoad),
            "always" => Some(Self::Always),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_count_is_parsed_or_chosen() {
        let read = ["auto", "0", "2", "64"].map(IoThreads::from_name);
        let wished = [IoThreads::Auto, IoThreads::Fixed(0), IoThreads::Fixed(2)];
        assert_eq!(read[..3], wished.map(Some));
        assert_eq!(read[3], Some(IoThreads::Fixed(64)));
        for text in ["", "65", "-1", "on", "2 "] {
            assert_eq!(IoThreads::from_name(text), None, "{text}");
        }
        let auto = [1, 2, 3, 4, 8, 16, 128].map(|cpus| IoThreads::Auto.thread_count(cpus));
        assert_eq!(auto, [0, 0, 1, 1, 2, 4, 8]);
        assert_eq!(IoThreads::Fixed(3).thread_count(1), 3);
    }
}
