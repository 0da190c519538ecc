//! The store as its caller sees it, on a disk in memory.

mod faults;
mod limits;
mod model;
mod placing;
mod power_cuts;
mod shop;
