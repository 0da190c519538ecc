//! The tuner: what batch and window the system in front of us wants, and why.
#![forbid(unsafe_code)]

pub mod model;
