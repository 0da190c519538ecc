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
//! out, counters, the tap), [`control`] (owner requests), [`Hook`] (source of frames),
//! [`DevicePins`] (a device outlives its owner), [`XdpHost`] (both programs at an interface, with
//! the interface for owners), [`AttachmentHealth`], [`end_orphans`] (devices of killed owners).

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
pub use claim::BPF_FILE_SYSTEM;
pub use decided::{SocketFormat, filter_decisions};
pub use device::{Device, EntryPoint, FrameFate, Role};
pub use drain::DrainWait;
pub use echo::{ECHO_ETHER_TYPE, ECHO_PORT, EchoProgram};
pub use failed::XdpError;
pub use health::AttachmentHealth;
pub use hook::{AttachedDevice, Hook, PassProgram};
pub use host::{PreviousDevice, RetiredDevice, XdpHost};
pub use object::OBJECT_ORIGIN;
pub use orphans::end_orphans;
pub use pins::{DevicePins, PinnedAttachment};
pub use settings::Settings;
