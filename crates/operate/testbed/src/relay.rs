//! An emulated wide-area network between network namespaces.
//!
//! Each node lives in a namespace whose way to its peers is a TUN device: what the node sends there
//! is read here, held as long as a narrow and long link would hold it, and written to the device of
//! the node it is for. Reading order: [`link`] (the law of one link, in virtual time), [`wire`]
//! (all links between some nodes, in virtual time), [`packet`] (whom a packet is for), [`device`]
//! (TUN), [`relay`] (the same with clocks and devices; [`alarm`] wakes it). `quorate bench` makes
//! the namespaces around it.

pub mod alarm;
pub mod device;
pub mod link;
pub mod packet;
pub mod running;
pub mod wire;
