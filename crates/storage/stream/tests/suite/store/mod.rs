//! The store from its caller's point of view, on a disk in memory.

mod faults;
mod limits;
mod model;
mod placing;
mod power_cuts;
mod shop;
