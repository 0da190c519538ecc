//! Exploration of quorate-core: every schedule within small bounds, random ones beyond.
//!
//! The production [`quorate_core::node::Node`] runs in a [`world`] that delivers messages in any
//! order, any number of times, or never, crashes nodes, and is watched by an [`observer`] that
//! counts for itself. [`explore`] chooses events at random, [`exhaustive`] tries them all,
//! [`heal`] ends the faults and demands progress. `docs/spec/model.md` tells the bounds.
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
