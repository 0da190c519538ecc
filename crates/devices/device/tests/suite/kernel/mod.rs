//! Devices in this machine's kernel. Prints a notice and skips tests where programs may not be
//! loaded.

mod at_once;
mod desk;
mod interfaces;
mod owner;
mod owners;
mod vlans;
mod wires;
