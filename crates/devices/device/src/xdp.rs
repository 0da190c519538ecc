//! Devices in the kernel: loads, attaches, pins and controls the eBPF programs of
//! `crates/devices/programs/xdp`.
//!
//! The loader is **aya**. It is pure Rust and builds in about 19 s on a machine with two cores and
//! no other dependencies, whereas libbpf-rs takes 33 s and needs clang, libelf, zlib and
//! pkg-config; both load our objects. It has the required features: pinned maps, test runs of a
//! program, the ring buffer of the tap, XDP and tc links. The programs are written in C, because no
//! released Rust compiles to eBPF with the standard tools.
//!
//! Reading order: [`Settings`] (settings of a device), [`Device`] (in the kernel; frames in and
//! out, counters, the tap), [`control`] (owner requests), [`Hook`] (source of frames), [`Pins`] (a
//! device outlives its owner), [`Host`] (both programs at an interface, with the interface for
//! owners), [`Health`], [`end_orphans`] (devices of killed owners).

mod claim;
pub mod compile;
pub mod control;
mod decided;
mod device;
mod drain;
mod echo;
mod failed;
mod health;
mod hook;
mod host;
mod object;
mod orphans;
mod pins;
mod settings;

pub use aya::VerifierLogLevel;
pub use claim::FILE_SYSTEM;
pub use decided::{SocketKind, hear_only_decisions};
pub use device::{Device, Entry, Fate, Role};
pub use drain::Draining;
pub use echo::{ECHO_ETHER_TYPE, ECHO_PORT, Echo};
pub use failed::Failed;
pub use health::Health;
pub use hook::{Attached, Hook, Passing};
pub use host::{Host, PreviousDevice, RetiredDevice};
pub use object::ORIGIN;
pub use orphans::end_orphans;
pub use pins::{PinnedAttachment, Pins};
pub use settings::Settings;
