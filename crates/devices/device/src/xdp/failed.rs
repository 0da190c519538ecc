//! Why there is no device in the kernel.

use std::io;

use aya::{EbpfError, maps::MapError, pin::PinError, programs::ProgramError};
use rustix::io::Errno;

/// Reason why a device in the kernel could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// A room is no multiple of 8, or above 1408 bytes.
    #[error("a room of {0} bytes")]
    Room(usize),
    /// The cells are no power of two.
    #[error("{0} cells: not a power of two up to 2^24")]
    Cells(u32),
    /// A program of XDP sends one frame for each that arrives.
    #[error(
        "a device in the kernel has one route of each kind: the address of a group of stations reaches many"
    )]
    Routes,
    /// The object is not what the loader expects.
    #[error("the object of the programs: {0}")]
    Object(String),
    /// The kernel does not take the programs.
    #[error("the kernel refuses the programs: {}", deepest(.0))]
    Load(#[from] EbpfError),
    /// The verifier does not take a program, or it cannot be run.
    #[error("the kernel refuses a program: {}", deepest(.0))]
    Program(#[from] ProgramError),
    /// A map cannot be used.
    #[error("a map of the device: {}", deepest(.0))]
    Map(#[from] MapError),
    /// There is a program at the interface already, and it is none that was left behind.
    #[error(
        "{interface} has another owner's program at {hook}: it must go, or the device must be told another hook"
    )]
    Busy {
        /// Its name.
        interface: String,
        /// Where.
        hook: crate::xdp::Hook,
    },
    /// Another process drives a device there.
    #[error(
        "{interface} has an owner: another process drives a device there, and an interface has one"
    )]
    Owned {
        /// Its name.
        interface: String,
    },
    /// There is no such interface, or no socket on it.
    #[error("the interface of the device: {0}")]
    Interface(#[from] quorate_packets::ethernet::Failed),
    /// A pin cannot be made.
    #[error("a pin of the device: {}", deepest(.0))]
    Pin(#[from] PinError),
    /// A link cannot be made or taken.
    #[error("a link of the device: {}", deepest(.0))]
    Link(#[from] aya::programs::links::LinkError),
    /// The kernel's file system.
    #[error("{what}: {error}")]
    Io {
        /// Attempted operation.
        what: String,
        /// Error of the kernel.
        error: io::Error,
    },
    /// A program said what none says.
    #[error("the program ended with {0}")]
    Fate(u32),
    /// The device answered a call of control with a refusal.
    #[error("the device refuses: {}", .0.name())]
    Refused(quorate_offload::Reason),
    /// The device's answer is none to what was asked.
    #[error("the device answers something else")]
    Answer,
}

impl Failed {
    /// Returns whether this machine, or this user, may not load programs at all: then there is a
    /// next step of the ladder.
    pub fn is_forbidden(&self) -> bool {
        let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
        self.causes().any(|cause| kinds.contains(&cause.kind()))
    }

    /// Returns whether another process has the place.
    pub(crate) fn is_busy(&self) -> bool {
        let codes = [Errno::BUSY, Errno::EXIST].map(|code| code.raw_os_error());
        self.causes().any(|cause| cause.raw_os_error().is_some_and(|code| codes.contains(&code)))
    }

    /// Returns the system's errors among all causes.
    fn causes(&self) -> impl Iterator<Item = &io::Error> {
        let first: &dyn std::error::Error = self;
        std::iter::successors(Some(first), |error| error.source())
            .filter_map(|error| error.downcast_ref())
    }
}

/// Returns the last cause: the kernel's own message.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    shortened(&text)
}

/// Shortens the verifier's output, which is long: only its beginning and its end matter.
fn shortened(text: &str) -> String {
    const END: usize = 800;
    let lines: Vec<&str> = text.lines().collect();
    let Some((first, rest)) = lines.split_first() else {
        return String::new();
    };
    let mut kept = 0;
    let end = rest.iter().rev().take_while(|line| {
        kept += line.len();
        kept <= END
    });
    let end: Vec<&str> = end.copied().collect();
    let cut: String = first.chars().take(END).collect();
    end.iter().rev().fold(cut, |text, line| format!("{text}\n{line}"))
}
