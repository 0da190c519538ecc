//! Frames on real interfaces: pairs of `veth` in a network namespace for each test. Where there are
//! none, prints the reason for a skip.

mod cable;
mod failures;
mod frames;
mod raw;
mod rings;
mod xdp;
