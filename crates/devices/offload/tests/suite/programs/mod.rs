//! Coordinator, acceptor and learner, tested from outside: each rule that a single device can
//! break.

mod acceptor;
mod coordinator;
mod desk;
mod frames;
mod host;
mod learner;
mod random;
