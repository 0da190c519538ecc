//! Coordinator, acceptor and learner, seen from outside: each rule that one device can break.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod acceptor;
mod coordinator;
mod desk;
mod frames;
mod host;
mod learner;
mod random;
