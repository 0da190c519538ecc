//! What a client of a system says and hears, as bytes.

pub mod framed;
pub mod resp;

use std::fmt;

use crate::load::Answer;

/// A system that does not keep to its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed reply: {}", self.0)
    }
}

/// A client protocol whose replies come in the order of the requests.
pub trait Protocol {
    /// Appends the n-th command.
    fn request(&mut self, number: u64, out: &mut Vec<u8>);

    /// The reply at the start of the input, and its length; `None` if it is not complete.
    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<(usize, Answer<'a>)>, Malformed>;
}
