//! Devices in this machine's kernel; skipped in print where programs may not be loaded.

mod at_once;
mod desk;
mod interfaces;
mod owner;
mod owners;
mod vlans;
mod wires;
