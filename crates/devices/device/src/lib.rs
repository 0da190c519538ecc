//! An offload device in software: the coordinator and the acceptor of Paxos phase 2, run by one
//! thread. Frames travel over UDP, raw Ethernet, or memory.
//!
//! [`SoftwareDevice`] implements [`quorate_offload::port::Device`]; the node that owns the device
//! controls it by frames. The thread has a [`Host`] (coordinator and acceptor of one machine,
//! combined) and a [`Wire`] (exchanges frames with other devices).
//!
//! Reading order: [`settings`] (settings of a device), [`programs`] (interface of the coordinator
//! and the acceptor, and their reference implementation), [`host`] (both programs combined, without
//! threads), [`wire`] and its implementations [`udp`], [`packet`] and [`loopback`], [`station`]
//! (the claim to a device's address at an interface), [`software`] (the owner's handle), and the
//! private module `work` (the thread). Then the other devices: [`boxed`], whose programs are
//! separate processes that communicate through [`pipe`], and [`xdp`], whose programs run in the
//! kernel.
#![forbid(unsafe_code)]

pub mod boxed;
pub mod host;
pub mod loopback;
pub mod packet;
pub mod pipe;
mod process;
pub mod programs;
pub mod settings;
pub mod software;
pub mod station;
mod tap;
pub mod udp;
mod wake;
pub mod wire;
mod work;
pub mod xdp;

pub use boxed::{DeviceProcesses, OpenBoxedError, TranslatingWire};
pub use host::Host;
pub use loopback::{Loopback, Network};
pub use packet::PacketSocketWire;
pub use settings::Settings;
pub use software::SoftwareDevice;
pub use station::StationClaim;
pub use udp::{GroupMembers, Udp};
pub use wire::Wire;
pub use work::ReasonCounts;
