//! Tests of devices in this machine's kernel. Where programs may not be loaded, prints a notice and
//! skips them.

mod at_once;
mod desk;
mod interfaces;
mod owner;
mod owners;
mod vlans;
mod wires;
