//! Black-box tests of coordinator, acceptor and learner: each rule that a single device can break.

mod acceptor;
mod coordinator;
mod desk;
mod frames;
mod host;
mod learner;
mod random;
