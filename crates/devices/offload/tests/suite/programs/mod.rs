//! Coordinator, acceptor and learner, seen from outside: each rule that one device can break.

mod acceptor;
mod coordinator;
mod desk;
mod frames;
mod host;
mod learner;
mod random;
