//! An emulated wide-area network between network namespaces.
//!
//! Each node runs in a namespace whose route to its peers is a TUN device. The relay delays the
//! packets that a node sends as a slow and long link would, and writes them to the device of the
//! destination. Reading order: [`link`] (one link, in virtual time), [`wire`] (all links between
//! nodes, in virtual time), [`packet`] (destination of a packet), [`device`] (TUN), [`running`]
//! (real clocks and devices; [`alarm`] wakes it). `quorate bench` creates the namespaces.

pub mod alarm;
pub mod device;
pub mod link;
pub mod packet;
pub mod running;
pub mod wire;
