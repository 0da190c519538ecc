//! Exploration of quorate-core: every schedule within small bounds, and random schedules beyond
//! them.
//!
//! The production [`quorate_core::node::Node`] runs in a [`world`] that delivers messages in any
//! order, any number of times, or never, and crashes nodes. An [`observer`] watches the world and
//! does its own counting. [`explore`] chooses events at random, [`exhaustive`] tries them all, and
//! [`heal`] ends the faults and checks that the group makes progress. `docs/spec/model.md` lists
//! the bounds.
#![forbid(unsafe_code)]

pub mod claims;
pub mod device;
pub mod dice;
pub mod disk;
pub mod event;
pub mod exhaustive;
pub mod explore;
pub mod heal;
pub mod mutant;
pub mod observer;
pub mod profile;
pub mod seen;
pub mod setup;
pub mod site;
pub mod streams;
pub mod world;
