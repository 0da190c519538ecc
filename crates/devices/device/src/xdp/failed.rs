//! Errors of devices in the kernel.

use std::io;

use aya::{EbpfError, maps::MapError, pin::PinError, programs::ProgramError};
use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The size of the value area is zero, not a multiple of 8, or above 1408 bytes.
    #[error("a room of {0} bytes")]
    InvalidRoom(usize),
    /// The number of cells is not a power of two, or is above 2^24.
    #[error("{0} cells: not a power of two up to 2^24")]
    InvalidCells(u32),
    /// There are several routes for one type of frame, but an XDP program can send only one frame
    /// for each that arrives.
    #[error(
        "a device in the kernel has one route of each kind: the address of a group of stations reaches many"
    )]
    Routes,
    /// The object has an unexpected format.
    #[error("the object of the programs: {0}")]
    MalformedObject(String),
    /// The kernel rejected the object.
    #[error("the kernel refuses the programs: {}", innermost_message(.0))]
    Load(#[from] EbpfError),
    /// The verifier rejected a program, or the program cannot be run.
    #[error("the kernel refuses a program: {}", innermost_message(.0))]
    Program(#[from] ProgramError),
    #[error("a map of the device: {}", innermost_message(.0))]
    Map(#[from] MapError),
    /// Another program is attached to the interface, and it is not an abandoned device.
    #[error(
        "{interface} has another owner's program at {hook}: it must go, or the device must be told another hook"
    )]
    HookBusy { interface: String, hook: crate::xdp::Hook },
    /// Another process drives a device at the interface.
    #[error(
        "{interface} has an owner: another process drives a device there, and an interface has one"
    )]
    AlreadyOwned { interface: String },
    /// The interface does not exist, or a socket cannot be opened on it.
    #[error("the interface of the device: {0}")]
    Interface(#[from] quorate_packets::ethernet::EthernetError),
    #[error("a pin of the device: {}", innermost_message(.0))]
    Pin(#[from] PinError),
    #[error("a link of the device: {}", innermost_message(.0))]
    Link(#[from] aya::programs::links::LinkError),
    /// An operation on the BPF file system failed.
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    /// A program returned an unknown code.
    #[error("the program ended with {0}")]
    UnknownFate(u32),
    /// The device refused a control call.
    #[error("the device refuses: {}", .0.name())]
    Refused(quorate_offload::Reason),
    /// The device's answer does not match the request.
    #[error("the device answers something else")]
    MismatchedAnswer,
}

impl XdpError {
    /// Returns whether this machine or user may not load programs at all, in which case the caller
    /// should try the next kind of device.
    pub fn is_unsupported(&self) -> bool {
        let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
        self.system_errors().any(|cause| kinds.contains(&cause.kind()))
    }

    /// Returns whether another program already occupies the hook.
    pub(crate) fn is_hook_busy(&self) -> bool {
        let codes = [Errno::BUSY, Errno::EXIST].map(|code| code.raw_os_error());
        self.system_errors()
            .any(|cause| cause.raw_os_error().is_some_and(|code| codes.contains(&code)))
    }

    /// Returns the operating system's errors among all causes.
    fn system_errors(&self) -> impl Iterator<Item = &io::Error> {
        let first: &dyn std::error::Error = self;
        std::iter::successors(Some(first), |error| error.source())
            .filter_map(|error| error.downcast_ref())
    }
}

/// Returns the message of the innermost cause, which is the kernel's own.
fn innermost_message(error: &dyn std::error::Error) -> String {
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

/// Shortens the verifier's long output to its beginning and end, which contain the relevant parts.
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
